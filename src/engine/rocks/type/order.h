/* A sorted set by score: walks that merge what is stored with what the transaction changed, places by
 * rank and ranks of places.
 *
 * Stored entries are the rows P · version · enc8(score) · member of redis_zset_score. Of a member that
 * the transaction touched the stored entry does not count; it is where its change record says. */
#ifndef MAYFLY_ENGINE_ROCKS_TYPE_ORDER_H
#define MAYFLY_ENGINE_ROCKS_TYPE_ORDER_H

#include "engine/rocks/delta.h"
#include "engine/rocks/type/ranks.h"

/* A walk. The set must not be changed while it is in use. */
struct order {
    struct rk *rk;
    struct row *row;
    struct ordering *shared;  /* of all walks over this set in this transaction */
    struct ztree_pos touched; /* the next touched entry */
    bool reverse;
    bool more_touched, more_base; /* whether there is a next one of each kind */
    bool parked;              /* another walk has the iterator; this one goes on at `sub` */
    bytes sub;                /* of the next stored entry */
    struct change *change;    /* where it stands; NULL: on a stored entry nothing was done to */
    bytes member;             /* until the walk moves, if change is NULL, or another one does */
    double score;
};

/* Stands on the first entry that is not before the place or, in reverse, on the last one that is;
 * from NULL: on the very first, the very last. False: there is none. */
bool order_start(struct order *o, struct rk *rk, struct row *r, const struct spot *from, bool reverse);
bool order_at(struct order *o, struct rk *rk, struct row *r, u64 rank, bool reverse); /* on this entry */
bool order_next(struct order *o); /* false: no further one; the walk is then done */
void order_done(struct order *o); /* lets the next walk have the iterator; optional */

bytes just_behind(struct rk *rk, bytes member); /* the next member there could be */

u64 order_before(struct rk *rk, struct row *r, const struct spot *s); /* entries before the place */

/* Changing a member: first `ready`, then `leaves` if it exists, then the change itself, then `enters`
 * if it exists then. The row's size is to be right for what is there at the time. */
void order_ready(struct rk *rk, struct row *r);
void order_leaves(struct rk *rk, struct row *r, const struct change *c);
void order_enters(struct rk *rk, struct row *r, struct change *c);
/* A run of entries has left, from the first through the last: at commit their stored rows go all
 * together. Whether that will take a place's row away. */
void order_cut(struct rk *rk, struct row *r, const struct spot *first, const struct spot *last);
bool order_is_cut(const struct row *r, double score, bytes member);
/* Stored entries that touched ones were passed over for are remembered from here on: for sets that
 * are used as queues. */
void order_remember_ends(struct row *r);

/* Runs and ranks, into the batch; each entry is zset.c's to write, after that. */
void order_commit(struct rk *rk, struct row *r);

#endif
