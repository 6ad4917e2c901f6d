/* Shared by the sorted-set commands and GEOADD. */
#ifndef MAYFLY_COMMAND_COLLECTION_ZSET_H
#define MAYFLY_COMMAND_COLLECTION_ZSET_H

#include "command/ctx.h"

/* ZADD's options. */
enum {
    ZADD_NX = 1 << 0,   /* only add */
    ZADD_XX = 1 << 1,   /* only update */
    ZADD_GT = 1 << 2,   /* update only upwards */
    ZADD_LT = 1 << 3,   /* update only downwards */
    ZADD_CH = 1 << 4,   /* count updates, too */
    ZADD_INCR = 1 << 5, /* the score is an increment; one pair, replies the sum */
};

/* Executes ZADD after its arguments are checked, reply included: n pairs, the i-th member is members[i *
 * stride]. */
void zset_add(struct ctx *c, u32 flags, int n, const double *scores, const bytes *members,
              int stride);

/* Whether Redis would keep a set of this many members in its small encoding, as far as this member goes. That
 * stores whole scores as integers, so a negative zero loses its sign there, and only there. */
static inline bool zset_fits_small(const struct ctx *c, u64 size, bytes member)
{
    return (i64)size <= c->eng->limits.zset_max_listpack_entries &&
           (i64)member.n <= c->eng->limits.zset_max_listpack_value;
}

static inline double zset_plain_zero(double score) { return score + 0.0; }

/* The header of a reply of n members, each perhaps with its score: RESP2 has a
 * flat array, RESP3 an array of pairs. */
static inline size_t zset_reply_length(const struct reply *r, size_t n, bool with_scores)
{
    return with_scores && r->proto == 2 ? n * 2 : n;
}

static inline void zset_reply_pair(struct reply *r, bytes member, double score, bool with_scores)
{
    if (with_scores && r->proto > 2) reply_array(r, 2);
    reply_bulk(r, member);
    if (with_scores) reply_double(r, score);
}

#endif
