/* Which clients have read which keys, and invalidations. See tracking.h; prefixes (BCAST) are in
 * tracking_bcast.c.
 *
 * A name in `keys` has the ids of its readers, sorted. Clients that disconnected or changed their mode may be
 * among them until the name is invalidated: ids are never reused. */
#include "server/client/tracking.h"

#include "command/commands.h"
#include "exec/multi.h"
#include "server/server.h"
#include "server/client/tracking_bcast.h"

#define KEYS_AT_ONCE 64
#define EVICT_AT_ONCE 100
#define EVICT_PER_ROUND 1000 /* ten times a second, and more with each round */
#define EVICT_ROUNDS 20u
#define FREE_AT_ONCE 4096

struct tracked {
    u64 *readers; /* client ids, ascending */
    u32 count, cap;
    u32 n;
    char name[];
};

static bytes tracked_key(const void *item)
{
    const struct tracked *k = item;
    return bytes_of(k->name, k->n);
}

static bytes tracker_key(const void *item)
{
    const struct tracker *t = item;
    return bytes_of(&t->id, sizeof t->id);
}

static struct tracker *find_tracker(const struct tracking *g, u64 id)
{
    bytes key = bytes_of(&id, sizeof id);
    return table_find(&g->clients, key, table_hash(&g->clients, key));
}

/* The connection whose request is being run; NULL: none. */
static struct conn *tracking_current(const struct server *s)
{
    const struct net_request *q = net_running(&s->net);
    return q && q->conn->answering ? q->conn : NULL;
}

/* The client that causes the current change: the one above, or a blocked one that is being served. */
static const struct conn *author(const struct server *s)
{
    return s->blocking.served ? s->blocking.served : tracking_current(s);
}

/* -- sending --------------------------------------------------------------------------------- */

static void tell_broken(struct tracker *t)
{
    struct conn *c = t->conn;
    t->broken = true;
    if (c->session.proto < 3 || c->closing) return;
    struct reply out = conn_push(c, PUSH_AFTER);
    reply_push(&out, 2);
    reply_bulk_str(&out, "tracking-redir-broken");
    reply_int(&out, (i64)t->redirect);
}

void tracking_tell(struct tracker *t, tracking_writer write, const void *what)
{
    struct conn *c = t->conn;
    if (t->redirect) {
        c = t->target;
        if (!c || c->closing) {
            tell_broken(t);
            return;
        }
    }
    CHECK(c); /* a tracker lives as long as its connection */
    bool as_message = t->redirect && c->session.subscribed;
    if (c->closing || c->session.close_after_reply || c->class == CONN_REPLICA) return;
    if (c->session.proto < 3 && !as_message) return; /* RESP2 has no way to send it */
    const struct server *s = c->net->owner; /* keys evicted for a command are invalidated before it runs */
    struct reply out = conn_push(c, s->node.depth ? PUSH_AFTER : PUSH_BEFORE);
    if (c->session.proto > 2) {
        reply_push(&out, 2);
        reply_bulk_str(&out, "invalidate");
    } else {
        reply_push(&out, 3);
        reply_bulk_str(&out, "message");
        reply_bulk_str(&out, "__redis__:invalidate");
    }
    write(&out, what);
    conn_check_output(c);
}

static void tracking_write_key(struct reply *out, const void *key)
{
    reply_array(out, 1);
    reply_bulk(out, *(const bytes *)key);
}

static void write_all(struct reply *out, const void *nothing UNUSED) { reply_null(out); }

/* -- invalidating ------------------------------------------------------------------------------------ */

static void free_tracked(void *arg UNUSED, void *item)
{
    struct tracked *k = item;
    mem_free(k->readers);
    mem_free(k);
}

/* A client's own changes are sent after its reply. (Without redirection, PUSH_AFTER does that.) */
static void postpone(struct tracking *g, bytes name)
{
    u32 n = (u32)name.n;
    buf_append(&g->pending, &n, sizeof n);
    buf_append_bytes(&g->pending, name);
}

static void tell_pending(struct tracking *g, struct tracker *t)
{
    for (size_t at = 0; t && at < g->pending.n;) {
        u32 n;
        memcpy(&n, g->pending.p + at, sizeof n);
        bytes name = bytes_of(g->pending.p + at + sizeof n, n);
        tracking_tell(t, tracking_write_key, &name);
        at += sizeof n + n;
    }
    buf_release(&g->pending);
}

static void invalidate(struct server *s, struct tracked *k)
{
    struct tracking *g = &s->tracking;
    bytes name = tracked_key(k);
    const struct conn *running = tracking_current(s), *by = author(s);
    table_remove(&g->keys, table_hash(&g->keys, name), k);
    g->items -= k->count;
    for (u32 i = 0; i < k->count; i++) {
        struct tracker *t = find_tracker(g, k->readers[i]);
        if (!t || t->options & TRACK_BCAST || (t->options & TRACK_NOLOOP && t->conn == by)) continue;
        if (t->conn == running && t->redirect) postpone(g, name);
        else tracking_tell(t, tracking_write_key, &name);
    }
    free_tracked(NULL, k);
}

static void on_touched(void *owner, u32 db UNUSED, bytes key)
{
    struct server *s = owner;
    struct tracking *g = &s->tracking;
    const struct conn *by = author(s);
    if (g->prefixes.count) bcast_changed(g, key, by ? by->session.id : 0);
    struct tracked *k = g->keys.count ? table_find(&g->keys, key, table_hash(&g->keys, key)) : NULL;
    if (k) invalidate(s, k);
}

/* Drops the whole table at once; its memory is freed in slices. */
static void forget_keys(struct tracking *g)
{
    if (!g->keys.count) return;
    while (!table_drain(&g->old_keys, FREE_AT_ONCE, free_tracked, NULL)) {}
    table_release(&g->old_keys);
    g->old_keys = g->keys;
    table_init(&g->keys, tracked_key, g->old_keys.seed);
    g->items = 0;
}

static void tell_all(const struct tracking *g)
{
    struct table_iter it = {0};
    struct tracker *t;
    while ((t = table_next(&g->clients, &it))) tracking_tell(t, write_all, NULL);
}

static void on_flushed(void *owner, u32 db UNUSED)
{
    struct tracking *g = &((struct server *)owner)->tracking;
    forget_keys(g);
    if (!g->flushed) tell_all(g);
    g->flushed = true;
}

void tracking_distrust(struct server *s)
{
    if (!tracking_used(&s->tracking)) return;
    forget_keys(&s->tracking);
    s->tracking.distrusted = true;
}

/* -- reading ----------------------------------------------------------------------------------------- */

static struct tracked *open_key(struct tracking *g, bytes name)
{
    u64 hash = table_hash(&g->keys, name);
    struct tracked *k = table_find(&g->keys, name, hash);
    if (k) return k;
    k = mem_zalloc(sizeof *k + name.n);
    k->n = (u32)name.n;
    if (name.n) memcpy(k->name, name.p, name.n);
    table_insert(&g->keys, hash, k);
    return k;
}

static void add_reader(struct tracking *g, struct tracked *k, u64 id)
{
    u32 low = 0, high = k->count;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (k->readers[mid] < id) low = mid + 1;
        else high = mid;
    }
    if (low < k->count && k->readers[low] == id) return;
    if (k->count == k->cap) {
        k->cap = MAX(k->cap * 2, 1u);
        k->readers = mem_realloc(k->readers, k->cap * sizeof *k->readers);
    }
    memmove(k->readers + low + 1, k->readers + low, (k->count - low) * sizeof *k->readers);
    k->readers[low] = id;
    k->count++;
    g->items++;
}

static void tracking_remember(struct server *s, const struct tracker *t, const struct command *cmd, int argc,
                     const bytes *argv)
{
    struct key_use some[KEYS_AT_ONCE], *keys = some;
    bool opted = !(t->options & TRACK_OPTIN) || t->caching;
    if (!opted || (t->options & TRACK_OPTOUT && t->caching) || cmd->flags & CMD_PUBSUB) return;
    int n = command_keys(cmd, argc, argv, some, KEYS_AT_ONCE);
    if (n > KEYS_AT_ONCE) {
        keys = mem_alloc((size_t)n * sizeof *keys);
        n = command_keys(cmd, argc, argv, keys, n);
    }
    for (int i = 0; i < n; i++) add_reader(&s->tracking, open_key(&s->tracking, argv[keys[i].at]), t->id);
    if (keys != some) mem_free(keys);
}

static bool reads(const struct tracker *t, const struct outcome *o)
{
    bool ran = o->cmd && !o->rejected && !o->queued && o->cmd->flags & CMD_READONLY;
    return ran && !(t->options & TRACK_BCAST);
}

static bool runs_a_script(const struct command *cmd) { return strcmp(cmd->group, "scripting") == 0; }

/* For a script, the keys that its commands read are tracked. */
void tracking_nested(struct server *s, struct conn *c, const struct request *q, const struct outcome *o)
{
    const struct tracker *t = c->tracker;
    s->tracking.flushed = false;
    if (t && reads(t, o) && !runs_a_script(o->cmd)) tracking_remember(s, t, o->cmd, q->argc, q->argv);
}

/* CLIENT CACHING applies to the next command or transaction. */
void tracking_after(struct server *s, struct conn *c, const struct request *q, const struct outcome *o)
{
    struct tracker *t = c->tracker;
    if (t && reads(t, o) && !runs_a_script(o->cmd)) tracking_remember(s, t, o->cmd, q->argc, q->argv);
    bool is_client = o->cmd && strncmp(o->cmd->name, "client", strlen("client")) == 0;
    if (t && !is_client && !multi_open(&c->session)) t->caching = false;
    if (UNLIKELY(s->tracking.pending.n)) tell_pending(&s->tracking, t);
    s->tracking.flushed = false;
}

static bool tracking_over(const struct server *s)
{
    u64 max = (u64)s->config.tracking_table_max_keys;
    return max && s->tracking.keys.count > max;
}

static void tracking_limit(struct server *s, u32 effort)
{
    for (; tracking_over(s) && effort; effort--)
        invalidate(s, table_random(&s->tracking.keys, &s->tracking.rng));
}

/* A few at a time: the limit may just have been lowered. */
void tracking_before(struct server *s) { tracking_limit(s, EVICT_AT_ONCE); }

/* The more often it finds too many, the more it removes. */
void tracking_cron(struct server *s)
{
    struct tracking *g = &s->tracking;
    g->rounds_over = tracking_over(s) ? MIN(g->rounds_over + 1, EVICT_ROUNDS) : 0;
    tracking_limit(s, g->rounds_over * EVICT_PER_ROUND);
}

void tracking_end_tick(struct server *s)
{
    struct tracking *g = &s->tracking;
    if (g->distrusted) tell_all(g);
    g->flushed = g->distrusted = false;
    if (g->changed) bcast_tell(g);
    if (g->old_keys.count) table_drain(&g->old_keys, FREE_AT_ONCE, free_tracked, NULL);
}

/* -- switching on and off -------------------------------------------------------------------- */

static void set_target(struct tracker *t, struct conn *target)
{
    if (t->target) {
        if (t->prev) t->prev->next = t->next;
        else t->target->redirects = t->next;
        if (t->next) t->next->prev = t->prev;
    }
    t->target = target;
    t->prev = t->next = NULL;
    if (!target) return;
    t->next = target->redirects;
    if (t->next) t->next->prev = t;
    target->redirects = t;
}

static struct tracker *tracker_of(struct server *s, struct conn *c)
{
    struct tracking *g = &s->tracking;
    if (c->tracker) return c->tracker;
    struct tracker *t = mem_zalloc(sizeof *t);
    t->id = c->session.id;
    t->conn = c;
    table_insert(&g->clients, table_hash(&g->clients, tracker_key(t)), t);
    c->tracker = t;
    node_listen(&s->node, LISTEN_TRACK, true);
    return t;
}

struct tracker *tracking_on(struct server *s, struct conn *c, u32 options, struct conn *target)
{
    struct tracker *t = tracker_of(s, c);
    t->options = options;
    t->broken = false;
    t->redirect = target ? target->session.id : 0;
    set_target(t, target);
    return t;
}

void tracking_off(struct server *s, struct conn *c)
{
    struct tracking *g = &s->tracking;
    struct tracker *t = c->tracker;
    if (!t) return;
    bcast_leave(g, t);
    set_target(t, NULL);
    table_remove(&g->clients, table_hash(&g->clients, tracker_key(t)), t);
    mem_free(t);
    c->tracker = NULL;
    if (g->clients.count) return;
    node_listen(&s->node, LISTEN_TRACK, false);
    forget_keys(g); /* later changes would not be reported */
    g->flushed = g->distrusted = false;
}

void tracking_forget(struct server *s, struct conn *c)
{
    tracking_off(s, c);
    while (c->redirects) set_target(c->redirects, NULL);
}

void tracking_init(struct server *s, u64 seed)
{
    struct tracking *g = &s->tracking;
    *g = (struct tracking){.rng = seed};
    table_init(&g->clients, tracker_key, seed);
    table_init(&g->keys, tracked_key, seed);
    table_init(&g->old_keys, tracked_key, seed);
    bcast_init(g, seed);
    s->node.touched = (struct touch_hooks){on_touched, on_flushed};
}

void tracking_release(struct server *s)
{
    struct tracking *g = &s->tracking;
    buf_release(&g->pending);
    forget_keys(g);
    while (!table_drain(&g->old_keys, FREE_AT_ONCE, free_tracked, NULL)) {}
    table_release(&g->clients);
    table_release(&g->keys);
    table_release(&g->old_keys);
    bcast_release(g);
}
