/* Publish/subscribe: who is subscribed to which channels and patterns, and messages on their way to them.
 *
 * A message goes into its subscribers' output at once, within the tick that publishes it: should the tick's
 * commit fail, it is taken back with the replies. Three kinds of names don't know each other: channels,
 * patterns of channels, and shard channels, which patterns don't match. */
#ifndef MAYFLY_SERVER_CLIENT_PUBSUB_H
#define MAYFLY_SERVER_CLIENT_PUBSUB_H

#include "ds/table.h"

struct server;
struct conn;

enum pubsub_kind { PUBSUB_CHANNEL, PUBSUB_PATTERN, PUBSUB_SHARD, PUBSUB_KINDS };

struct pubsub {
    struct table names[PUBSUB_KINDS]; /* those that somebody is subscribed to */
    struct channel *patterns;         /* all of them, oldest first */
    struct channel *last_pattern;
};

void pubsub_init(struct pubsub *p, u64 seed);
void pubsub_release(struct pubsub *p); /* when all connections have gone */

/* Delivers to the subscribers of a channel and, unless it is a shard channel, to those of patterns that match
 * it. Returns how many times. Replicas are not told: that is for PUBLISH to do. */
u64 pubsub_publish(struct server *s, enum pubsub_kind kind, bytes channel, bytes message);

/* Whether anybody is subscribed to anything that events could be published to. */
static inline bool pubsub_listened(const struct pubsub *p)
{
    return p->names[PUBSUB_CHANNEL].count || p->names[PUBSUB_PATTERN].count;
}

/* Ends all subscriptions of a connection, silently: it goes, or RESET. O(its subscriptions). */
void pubsub_forget(struct server *s, struct conn *c);

u64 pubsub_subscriptions(const struct conn *c, enum pubsub_kind kind);
size_t pubsub_memory(const struct conn *c); /* of its subscriptions, with their names: bytes, about */

/* Visits what a connection is subscribed to until `fn` says false. True: it never did. */
bool pubsub_each(const struct conn *c, bool (*fn)(void *arg, enum pubsub_kind kind, bytes name), void *arg);

/* -- for the commands -------------------------------------------------------------------------------- */

/* False: it was so already. */
bool pubsub_join(struct server *s, struct conn *c, enum pubsub_kind kind, bytes name);
bool pubsub_leave(struct server *s, struct conn *c, enum pubsub_kind kind, bytes name);

/* The name a connection subscribed to first, among those of the kind; false: there is none. */
bool pubsub_first(const struct conn *c, enum pubsub_kind kind, bytes *name);

u64 pubsub_subscribers(const struct pubsub *p, enum pubsub_kind kind, bytes name);

/* Visits all names of a kind that match, or all. */
void pubsub_names(const struct pubsub *p, enum pubsub_kind kind, const bytes *pattern,
                  void (*fn)(void *arg, bytes name), void *arg);

/* -- keyspace events (notify.c) ---------------------------------------------------------------------- */

/* Has the keyspace report what notify-keyspace-events names, as long as anybody is subscribed. */
void notify_listen(struct server *s);

#endif
