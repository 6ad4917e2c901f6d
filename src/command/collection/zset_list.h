/* A temporary list of (member, score) pairs to be replied or stored: the result of ZUNION, ZRANGESTORE,
 * GEOSEARCHSTORE … A zeroed struct is an empty list. The members are borrowed: their owner must outlive the
 * list, or its last use. */
#ifndef MAYFLY_COMMAND_COLLECTION_ZSET_LIST_H
#define MAYFLY_COMMAND_COLLECTION_ZSET_LIST_H

#include "command/ctx.h"

struct zpair {
    bytes member;
    double score;
};

struct zlist {
    struct zpair *v;
    size_t n, cap;
};

void zlist_release(struct zlist *l);
void zlist_reserve(struct zlist *l, size_t cap); /* up to cap pairs won't move */
struct zpair *zlist_add(struct zlist *l, bytes member, double score);

/* By score, then by member: a sorted set's own order. */
void zlist_sort(struct zlist *l);

void zlist_reply(struct ctx *c, const struct zlist *l, bool with_scores);

/* Stores the pairs (no member twice) under dst in place of its value, and replies how many. An empty list
 * deletes dst. Reports the change as `event`, or `del`. The members may be dst's own; they are gone
 * afterwards. */
void zlist_store(struct ctx *c, bytes dst, const struct zlist *l, const char *event);

#endif
