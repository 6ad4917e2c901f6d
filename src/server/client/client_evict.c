#include "server/client/client_evict.h"

#include "exec/multi.h"
#include "server/client/client.h"
#include "server/server.h"

#define SMALLEST_LOG2 15
#define LIMIT_LEAST (128u << 10) /* with less, no client could talk to the server */

size_t client_memory(const struct conn *c)
{
    return conn_memory(c) + c->before.cap + c->after.cap + multi_memory(&c->session) + pubsub_memory(c) +
           (c->tracker ? c->tracker->prefix_bytes : 0);
}

/* -- counting ------------------------------------------------------------------------------------------ */

static u32 bucket_of(size_t memory)
{
    u32 log2 = 63 - (u32)__builtin_clzll(memory | 1);
    return MIN(log2 > SMALLEST_LOG2 ? log2 - SMALLEST_LOG2 : 0, CLIENT_EVICT_BUCKETS - 1u);
}

static void leave_bucket(struct client_evict *e, struct conn *c)
{
    if (!c->in_bucket) return;
    if (c->bucket_prev) c->bucket_prev->bucket_next = c->bucket_next;
    else e->buckets[c->bucket] = c->bucket_next;
    if (c->bucket_next) c->bucket_next->bucket_prev = c->bucket_prev;
    c->in_bucket = false;
}

static void enter_bucket(struct client_evict *e, struct conn *c, u32 bucket)
{
    c->in_bucket = true;
    c->bucket = bucket;
    c->bucket_prev = NULL;
    c->bucket_next = e->buckets[bucket];
    if (c->bucket_next) c->bucket_next->bucket_prev = c;
    e->buckets[bucket] = c;
}

void client_evict_forget(struct server *s, struct conn *c)
{
    leave_bucket(&s->client_evict, c);
    s->client_evict.total -= c->counted;
    c->counted = 0;
}

static void client_evict_count(struct server *s, struct conn *c)
{
    struct client_evict *e = &s->client_evict;
    if (c->closing || c->class == CONN_REPLICA) {
        client_evict_forget(s, c);
        return;
    }
    size_t memory = client_memory(c);
    u32 bucket = bucket_of(memory);
    e->total += memory - c->counted;
    c->counted = memory;
    if (c->in_bucket && c->bucket == bucket && !c->session.no_evict) return;
    leave_bucket(e, c);
    if (!c->session.no_evict) enter_bucket(e, c, bucket);
}

static void on_moved(struct net *n, struct conn *c) { client_evict_count(n->owner, c); }

/* -- evicting ------------------------------------------------------------------------------------------ */

static void evict(struct server *s, struct conn *c)
{
    struct buf who = {0};
    if (s->config.hide_user_data_from_log) buf_printf(&who, "id=%llu addr=%s", (ull)c->session.id, c->peer);
    else client_describe(c, &who);
    log_line(&s->log, LOG_NOTICE, "Evicting client: %.*s", (int)MIN(who.n, 900u), who.p);
    buf_release(&who);
    s->client_evict.evicted++;
    client_evict_forget(s, c);
    conn_close(c);
}

/* Connections of a bucket may have changed size since they were counted (a blocked client was served by
 * another): they are counted again before they are closed. */
static void client_evict_on_prepare(uv_prepare_t *h)
{
    struct server *s = h->data;
    struct client_evict *e = &s->client_evict;
    for (u32 i = CLIENT_EVICT_BUCKETS; i-- && e->total >= e->limit;) {
        while (e->buckets[i] && e->total >= e->limit) {
            struct conn *c = e->buckets[i];
            client_evict_count(s, c);
            if (c->in_bucket && c->bucket == i && e->total >= e->limit) evict(s, c);
        }
    }
    bool over = e->total >= e->limit;
    if (over && !e->warned)
        log_line(&s->log, LOG_WARNING, "Over client maxmemory after evicting all evictable clients");
    e->warned = over;
}

/* -- configuration ------------------------------------------------------------------------------------- */

static u64 limit_of(const struct config *c)
{
    i64 limit = c->maxmemory_clients;
    if (limit < 0) limit = (i64)((double)c->maxmemory * -(double)limit / 100);
    return limit > 0 ? (u64)MAX(limit, (i64)LIMIT_LEAST) : 0;
}

static void client_evict_turn_on(struct server *s)
{
    s->net.on_moved = on_moved;
    uv_prepare_start(&s->client_evict.prepare, client_evict_on_prepare);
    for (struct conn *c = s->net.conns; c; c = c->next) client_evict_count(s, c);
}

static void client_evict_turn_off(struct server *s)
{
    s->net.on_moved = NULL;
    uv_prepare_stop(&s->client_evict.prepare);
    for (struct conn *c = s->net.conns; c; c = c->next) client_evict_forget(s, c);
}

void client_evict_apply_config(struct server *s)
{
    struct client_evict *e = &s->client_evict;
    u64 before = e->limit;
    if (!e->started) return;
    e->limit = limit_of(&s->config);
    if (e->limit && !before) client_evict_turn_on(s);
    else if (!e->limit && before) client_evict_turn_off(s);
}

void client_evict_start(struct server *s)
{
    struct client_evict *e = &s->client_evict;
    uv_prepare_init(&s->loop, &e->prepare);
    e->prepare.data = s;
    e->started = true;
    client_evict_apply_config(s);
}
