/* One watcher for all listeners. While there are none, the keyspace has no watcher, and a change costs it one
 * branch. */
#include "exec/key_listeners.h"

#include "exec/region.h"

static bool is_listening(const struct region *r, u32 who) { return r->listeners & who; }

/* A watch ends with the first change. A client that ends one does not report it: its region notices here, at
 * the next change. */
static void end_watch(struct region *r)
{
    if (!watches_any(&r->watches)) region_listen(r, LISTEN_WATCH, false);
}

static void on_changed(void *arg, u32 db, bytes key)
{
    struct region *r = arg;
    if (is_listening(r, LISTEN_WATCH)) {
        watch_changed(&r->watches, db, key);
        end_watch(r);
    }
    if (is_listening(r, LISTEN_WAIT)) waiters_changed(r, db, key);
    if (is_listening(r, LISTEN_TRACK)) r->node->touched.touched(r->node->owner, db, key);
    if (is_listening(r, LISTEN_OWN)) own_keys_changed(&r->own, db, key, r->obeys);
}

static void on_flushing(void *arg, u32 db)
{
    struct region *r = arg;
    bool holds = r->eng->ops->count(r->eng, db) > 0;
    if (is_listening(r, LISTEN_WATCH) && holds) {
        watch_flushing(&r->watches, db);
        end_watch(r);
    }
    if (is_listening(r, LISTEN_WAIT)) waiters_flushing(r, db);
    if (is_listening(r, LISTEN_TRACK)) r->node->touched.flushed(r->node->owner, db);
    if (is_listening(r, LISTEN_OWN)) own_keys_flushed(&r->own, db);
}

static void on_swapped(void *arg, u32 a, u32 b)
{
    struct region *r = arg;
    if (is_listening(r, LISTEN_WATCH)) {
        watch_swapped(&r->watches, a, b);
        end_watch(r);
    }
    if (is_listening(r, LISTEN_WAIT)) waiters_swapped(r, a, b);
    if (is_listening(r, LISTEN_OWN)) own_keys_swapped(&r->own, a, b);
}

static const struct keyspace_watcher fan_out = {on_changed, on_flushing, on_swapped};

void region_listen(struct region *r, u32 who, bool on)
{
    u32 *listeners = &r->listeners;
    *listeners = on ? *listeners | who : *listeners & ~who;
    r->ks.watcher = *listeners ? &fan_out : NULL;
    r->ks.watcher_arg = r;
}

void node_listen(struct node *n, u32 who, bool on)
{
    struct region *r;
    REGIONS_EACH(&n->regions, r) region_listen(r, who, on);
}

void region_flushing_all(struct region *r)
{
    for (u32 db = 0; r->listeners && db < r->eng->databases; db++) on_flushing(r, db);
}

void region_replaced_all(struct region *r)
{
    for (u32 db = 0; r->listeners && db < r->eng->databases; db++) {
        on_swapped(r, db, db + r->eng->databases);
        if (is_listening(r, LISTEN_TRACK)) r->node->touched.flushed(r->node->owner, db);
    }
    own_keys_clear(&r->own);
}
