/* A sorted set by score: walks that merge stored entries with the transaction's changes, spots by rank and
 * ranks of spots.
 *
 * Stored entries are the rows P · version · enc8(score) · member of redis_zset_score. The stored entry of a
 * touched member is ignored; its change record has the current score. */
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
    bool parked;              /* another walk has the iterator; this one continues at `sub` */
    bytes sub;                /* of the next stored entry */
    struct change *change;    /* at its position; NULL: an untouched stored entry */
    bytes member;             /* if change is NULL: valid until this or another walk moves */
    double score;
};

/* Starts at the first entry that is not before the spot or, in reverse, at the last one that is; from NULL:
 * at the very first or last. False: there is none. */
bool order_start(struct order *o, struct rk *rk, struct row *r, const struct spot *from, bool reverse);
bool order_at(struct order *o, struct rk *rk, struct row *r, u64 rank, bool reverse); /* at this rank */
bool order_next(struct order *o); /* false: no more entries; the walk is closed */
void order_done(struct order *o); /* returns the iterator; optional */

bytes just_behind(struct rk *rk, bytes member); /* the smallest greater member */

u64 order_before(struct rk *rk, struct row *r, const struct spot *s); /* number of entries before the spot */

/* To change a member, call `ready`; then `leaves` if it exists; change it; then `enters` if it exists now.
 * The row's size must be right at each call. */
void order_ready(struct rk *rk, struct row *r);
void order_leaves(struct rk *rk, struct row *r, const struct change *c);
void order_enters(struct rk *rk, struct row *r, struct change *c);
/* Called once, instead of `enters` for each, when an empty set was filled: its changes are in order. */
void order_filled(struct row *r);
/* Records that a run of entries was removed, from the first through the last: commit deletes their stored
 * rows by range. The second tells whether that deletes the row of a spot. */
void order_cut(struct rk *rk, struct row *r, const struct spot *first, const struct spot *last);
bool order_is_cut(const struct row *r, double score, bytes member);
/* Maintains low and high from here on: for sets used as queues. */
void order_remember_ends(struct row *r);

/* Writes removed runs and rank blocks into the batch. zset.c writes the entries afterwards. */
void order_commit(struct rk *rk, struct row *r);

#endif
