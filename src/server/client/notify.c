/* Turns keyspace events into messages: notify-keyspace-events selects the classes and the channels. Only
 * subscribers of this server get them: a replica generates its own. */
#include "server/client/pubsub.h"
#include "server/server.h"

#define EVENT_CHANNELS (CONFIG_EVENTS_KEYSPACE | CONFIG_EVENTS_KEYEVENT)

static void notify_publish(struct server *s, const char *what, u32 db, bytes about, bytes message)
{
    struct buf channel = {0};
    buf_printf(&channel, "__%s@%u__:", what, db);
    buf_append_bytes(&channel, about);
    pubsub_publish(s, PUBSUB_CHANNEL, buf_bytes(&channel), message);
    buf_release(&channel);
}

static void on_event(void *arg, u32 class UNUSED, const char *event, u32 db, bytes key)
{
    struct server *s = arg;
    u32 wanted = s->config.notify_keyspace_events;
    bytes name = bytes_str(event);
    if (wanted & CONFIG_EVENTS_KEYSPACE) notify_publish(s, "keyspace", db, key, name);
    if (wanted & CONFIG_EVENTS_KEYEVENT) notify_publish(s, "keyevent", db, name, key);
}

void notify_listen(struct server *s)
{
    u32 wanted = s->config.notify_keyspace_events;
    bool on = wanted & EVENT_CHANNELS && pubsub_listened(&s->pubsub);
    struct region *r;
    REGIONS_EACH(&s->node.regions, r) {
        r->ks.event_mask = on ? wanted & ~(u32)EVENT_CHANNELS : 0;
        r->ks.on_event = on_event;
        r->ks.on_event_arg = s;
    }
}
