/* A subscription is in two lists, its channel's and its connection's, and in the connection's table by name:
 * subscribing, unsubscribing and closing a connection touch no other subscriptions. A channel exists while it
 * has subscribers. */
#include "server/client/pubsub.h"

#include "base/glob.h"
#include "server/server.h"

struct channel {
    struct channel *prev, *next; /* in the list of all patterns */
    struct subscription *first, *last;
    u64 subscribers;
    u32 n;
    char name[];
};

struct subscription {
    struct channel *channel;
    struct conn *conn;
    struct subscription *prev, *next;         /* in the channel's list, oldest first */
    struct subscription *own_prev, *own_next; /* in the connection's list, likewise */
};

struct subscriber {
    struct {
        struct table by_name;
        struct subscription *first, *last;
    } of[PUBSUB_KINDS];
    size_t memory; /* of its subscriptions, with their names */
};

static bytes channel_name(const struct channel *ch) { return bytes_of(ch->name, ch->n); }
static bytes channel_key(const void *item) { return channel_name(item); }
static bytes subscription_key(const void *item)
{
    return channel_name(((const struct subscription *)item)->channel);
}

void pubsub_init(struct pubsub *p, u64 seed)
{
    *p = (struct pubsub){0};
    for (u32 k = 0; k < PUBSUB_KINDS; k++) table_init(&p->names[k], channel_key, seed);
}

void pubsub_release(struct pubsub *p)
{
    for (u32 k = 0; k < PUBSUB_KINDS; k++) table_release(&p->names[k]);
}

/* -- lists ------------------------------------------------------------------------------------------- */

/* Adds an item at the end of a list, or removes it. */
#define LIST_ADD(item_, first_, last_, prev_, next_)   \
    do {                                               \
        (item_)->prev_ = (last_);                      \
        (item_)->next_ = NULL;                         \
        if (last_) (last_)->next_ = (item_);           \
        else (first_) = (item_);                       \
        (last_) = (item_);                             \
    } while (0)
#define LIST_REMOVE(item_, first_, last_, prev_, next_)            \
    do {                                                           \
        if ((item_)->prev_) (item_)->prev_->next_ = (item_)->next_;\
        else (first_) = (item_)->next_;                            \
        if ((item_)->next_) (item_)->next_->prev_ = (item_)->prev_;\
        else (last_) = (item_)->prev_;                             \
    } while (0)

/* -- channels ---------------------------------------------------------------------------------------- */

static struct channel *open_channel(struct pubsub *p, enum pubsub_kind kind, bytes name, u64 hash)
{
    struct channel *ch = table_find(&p->names[kind], name, hash);
    if (ch) return ch;
    ch = mem_zalloc(sizeof *ch + name.n);
    ch->n = (u32)name.n;
    if (name.n) memcpy(ch->name, name.p, name.n);
    table_insert(&p->names[kind], hash, ch);
    if (kind == PUBSUB_PATTERN) LIST_ADD(ch, p->patterns, p->last_pattern, prev, next);
    return ch;
}

static void close_channel(struct pubsub *p, enum pubsub_kind kind, struct channel *ch)
{
    if (ch->subscribers) return;
    table_remove(&p->names[kind], table_hash(&p->names[kind], channel_name(ch)), ch);
    if (kind == PUBSUB_PATTERN) LIST_REMOVE(ch, p->patterns, p->last_pattern, prev, next);
    mem_free(ch);
}

u64 pubsub_subscribers(const struct pubsub *p, enum pubsub_kind kind, bytes name)
{
    const struct channel *ch = table_find(&p->names[kind], name, table_hash(&p->names[kind], name));
    return ch ? ch->subscribers : 0;
}

void pubsub_names(const struct pubsub *p, enum pubsub_kind kind, const bytes *pattern,
                  void (*fn)(void *arg, bytes name), void *arg)
{
    struct table_iter it = {0};
    const struct channel *ch;
    while ((ch = table_next(&p->names[kind], &it)))
        if (!pattern || glob_match(*pattern, channel_name(ch), false)) fn(arg, channel_name(ch));
}

/* -- subscriptions ----------------------------------------------------------------------------------- */

u64 pubsub_subscriptions(const struct conn *c, enum pubsub_kind kind)
{
    return c->subscriber ? c->subscriber->of[kind].by_name.count : 0;
}

static struct subscriber *subscriber_of(struct server *s, struct conn *c)
{
    if (c->subscriber) return c->subscriber;
    c->subscriber = mem_zalloc(sizeof *c->subscriber);
    for (u32 k = 0; k < PUBSUB_KINDS; k++)
        table_init(&c->subscriber->of[k].by_name, subscription_key, s->pubsub.names[k].seed);
    c->session.subscribed = true;
    if (c->class == CONN_NORMAL) c->class = CONN_PUBSUB;
    return c->subscriber;
}

/* Frees the state of a connection without subscriptions. */
static void subscriber_free_if_idle(struct server *s, struct conn *c)
{
    struct subscriber *u = c->subscriber;
    u64 left = 0;
    for (u32 k = 0; k < PUBSUB_KINDS; k++) left += u->of[k].by_name.count;
    if (!left) {
        for (u32 k = 0; k < PUBSUB_KINDS; k++) table_release(&u->of[k].by_name);
        mem_free(u);
        c->subscriber = NULL;
        c->session.subscribed = false;
        if (c->class == CONN_PUBSUB) c->class = CONN_NORMAL;
    }
    if (!pubsub_listened(&s->pubsub)) notify_listen(s);
}

size_t pubsub_memory(const struct conn *c) { return c->subscriber ? c->subscriber->memory : 0; }

bool pubsub_join(struct server *s, struct conn *c, enum pubsub_kind kind, bytes name)
{
    struct subscriber *u = subscriber_of(s, c);
    u64 hash = table_hash(&u->of[kind].by_name, name);
    if (table_find(&u->of[kind].by_name, name, hash)) return false;
    bool first = !pubsub_listened(&s->pubsub);
    struct subscription *sub = mem_zalloc(sizeof *sub);
    struct channel *ch = open_channel(&s->pubsub, kind, name, hash);
    sub->conn = c;
    sub->channel = ch;
    ch->subscribers++;
    LIST_ADD(sub, ch->first, ch->last, prev, next);
    LIST_ADD(sub, u->of[kind].first, u->of[kind].last, own_prev, own_next);
    table_insert(&u->of[kind].by_name, hash, sub);
    u->memory += sizeof *sub + name.n;
    if (first) notify_listen(s);
    return true;
}

static void end_subscription(struct server *s, enum pubsub_kind kind, struct subscription *sub)
{
    struct subscriber *u = sub->conn->subscriber;
    struct channel *ch = sub->channel;
    table_remove(&u->of[kind].by_name, table_hash(&u->of[kind].by_name, channel_name(ch)), sub);
    LIST_REMOVE(sub, u->of[kind].first, u->of[kind].last, own_prev, own_next);
    LIST_REMOVE(sub, ch->first, ch->last, prev, next);
    u->memory -= sizeof *sub + ch->n;
    ch->subscribers--;
    close_channel(&s->pubsub, kind, ch);
    mem_free(sub);
}

bool pubsub_leave(struct server *s, struct conn *c, enum pubsub_kind kind, bytes name)
{
    struct subscriber *u = c->subscriber;
    if (!u) return false;
    struct table *t = &u->of[kind].by_name;
    struct subscription *sub = table_find(t, name, table_hash(t, name));
    if (!sub) return false;
    end_subscription(s, kind, sub);
    subscriber_free_if_idle(s, c);
    return true;
}

bool pubsub_first(const struct conn *c, enum pubsub_kind kind, bytes *name)
{
    if (!pubsub_subscriptions(c, kind)) return false;
    *name = channel_name(c->subscriber->of[kind].first->channel);
    return true;
}

bool pubsub_each(const struct conn *c, bool (*fn)(void *arg, enum pubsub_kind kind, bytes name), void *arg)
{
    const struct subscriber *u = c->subscriber;
    for (u32 k = 0; u && k < PUBSUB_KINDS; k++)
        for (const struct subscription *sub = u->of[k].first; sub; sub = sub->own_next)
            if (!fn(arg, k, channel_name(sub->channel))) return false;
    return true;
}

void pubsub_forget(struct server *s, struct conn *c)
{
    struct subscriber *u = c->subscriber;
    if (!u) return;
    for (u32 k = 0; k < PUBSUB_KINDS; k++)
        while (u->of[k].first) end_subscription(s, k, u->of[k].first);
    subscriber_free_if_idle(s, c);
}

/* -- messages ---------------------------------------------------------------------------------------- */

/* A message, and its bytes in the two protocols, each made when it is needed first. */
struct message {
    const char *word;
    const bytes *pattern; /* the pattern that matched; NULL: subscribed to the channel itself */
    bytes channel, payload;
    struct buf bytes[2];
};

static bytes encoded(struct message *m, u8 proto)
{
    struct buf *b = &m->bytes[proto > 2];
    if (!b->n) {
        struct reply out = {.out = b, .proto = proto};
        reply_push(&out, m->pattern ? 4 : 3);
        reply_bulk_str(&out, m->word);
        if (m->pattern) reply_bulk(&out, *m->pattern);
        reply_bulk(&out, m->channel);
        reply_bulk(&out, m->payload);
    }
    return buf_bytes(b);
}

/* A connection that has become a replica's carries only the stream. A message caused by the client's own
 * command comes after the reply, as in 7.4; one caused by eviction for the command, before it. */
static bool deliver(const struct server *s, struct conn *c, struct message *m)
{
    if (c->closing || c->class != CONN_PUBSUB) return false;
    if (c->session.close_after_reply) return true;
    struct reply out = conn_push(c, s->node.depth ? PUSH_AFTER : PUSH_BEFORE);
    buf_append_bytes(out.out, encoded(m, c->session.proto));
    conn_check_output(c);
    return true;
}

static u64 deliver_all(const struct server *s, const struct channel *ch, struct message *m)
{
    u64 n = 0;
    for (const struct subscription *sub = ch->first; sub; sub = sub->next) n += deliver(s, sub->conn, m);
    buf_release(&m->bytes[0]);
    buf_release(&m->bytes[1]);
    return n;
}

u64 pubsub_publish(struct server *s, enum pubsub_kind kind, bytes channel, bytes payload)
{
    struct pubsub *p = &s->pubsub;
    struct message m = {.word = kind == PUBSUB_SHARD ? "smessage" : "message", .channel = channel,
                        .payload = payload};
    const struct table *t = &p->names[kind];
    const struct channel *ch = t->count ? table_find(t, channel, table_hash(t, channel)) : NULL;
    u64 n = ch ? deliver_all(s, ch, &m) : 0;
    if (kind == PUBSUB_SHARD) return n;
    m.word = "pmessage";
    for (ch = p->patterns; ch; ch = ch->next) {
        bytes pattern = channel_name(ch);
        if (!glob_match(pattern, channel, false)) continue;
        m.pattern = &pattern;
        n += deliver_all(s, ch, &m);
    }
    return n;
}
