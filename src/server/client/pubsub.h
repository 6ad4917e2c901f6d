/* Publish/subscribe: which connections are subscribed to which channels and patterns, and delivery of
 * messages.
 *
 * A message is written to its subscribers' output at once, within the tick that publishes it: if the tick's
 * commit fails, it is taken back with the replies. The three kinds of names are independent: channels,
 * patterns of channels, and shard channels, which patterns don't match. */
#ifndef MAYFLY_SERVER_CLIENT_PUBSUB_H
#define MAYFLY_SERVER_CLIENT_PUBSUB_H

#include "ds/table.h"

struct server;
struct conn;

enum pubsub_kind { PUBSUB_CHANNEL, PUBSUB_PATTERN, PUBSUB_SHARD, PUBSUB_KINDS };

struct pubsub {
    struct table names[PUBSUB_KINDS]; /* names with subscribers */
    struct channel *patterns;         /* all of them, oldest first */
    struct channel *last_pattern;
};

void pubsub_init(struct pubsub *p, u64 seed);
void pubsub_release(struct pubsub *p); /* when all connections are closed */

/* Delivers to the subscribers of a channel and, unless it is a shard channel, to those of patterns that match
 * it. Returns the number of deliveries. PUBLISH itself sends it to replicas. */
u64 pubsub_publish(struct server *s, enum pubsub_kind kind, bytes channel, bytes message);

/* Whether there are subscribers of any kind that events could be published to. */
static inline bool pubsub_listened(const struct pubsub *p)
{
    return p->names[PUBSUB_CHANNEL].count || p->names[PUBSUB_PATTERN].count;
}

/* Ends all subscriptions of a connection without replies: it is closed, or RESET. O(its subscriptions). */
void pubsub_forget(struct server *s, struct conn *c);

u64 pubsub_subscriptions(const struct conn *c, enum pubsub_kind kind);
size_t pubsub_memory(const struct conn *c); /* approximate bytes of its subscriptions, with their names */

/* Visits a connection's subscriptions until `fn` returns false. True: it never did. */
bool pubsub_each(const struct conn *c, bool (*fn)(void *arg, enum pubsub_kind kind, bytes name), void *arg);

/* -- for the commands -------------------------------------------------------------------------------- */

/* False: nothing changed. */
bool pubsub_join(struct server *s, struct conn *c, enum pubsub_kind kind, bytes name);
bool pubsub_leave(struct server *s, struct conn *c, enum pubsub_kind kind, bytes name);

/* The first name of the kind that a connection subscribed to; false: there is none. */
bool pubsub_first(const struct conn *c, enum pubsub_kind kind, bytes *name);

u64 pubsub_subscribers(const struct pubsub *p, enum pubsub_kind kind, bytes name);

/* Visits all names of a kind, or those that match. */
void pubsub_names(const struct pubsub *p, enum pubsub_kind kind, const bytes *pattern,
                  void (*fn)(void *arg, bytes name), void *arg);

/* -- keyspace events (notify.c) ---------------------------------------------------------------------- */

/* Makes the keyspace report the events of notify-keyspace-events, while there are subscribers. */
void notify_listen(struct server *s);

#endif
