/* What a transaction changed in one collection, over what RocksDB has of it.
 *
 * A change is the state of one element (sub: field, member, index): as stored,
 * if that was looked up, and as it is now. Point reads go through delta_at, so
 * that an element is read from RocksDB at most once per transaction; walks merge
 * the stored elements with the changed ones in the order of subs. All of it lives
 * in the transaction's arena. */
#ifndef MAYFLY_ENGINE_ROCKS_DELTA_H
#define MAYFLY_ENGINE_ROCKS_DELTA_H

#include "engine/rocks/rk.h"

struct change {
    bytes sub;
    bytes value;                /* as it is now */
    bool stored;                /* RocksDB has it */
    bool exists;                /* it is there now */
    bool touched;               /* to be written */
    double stored_score, score; /* sorted sets; value then is the coded score */
    i64 stored_deadline_ms, deadline_ms; /* fields; 0: none */
};

struct delta {
    struct table changes;    /* of struct change, by sub */
    struct change **ordered; /* the touched ones by sub; NULL: to be made when wanted */
    u32 touched;             /* how many */
};

/* The element's change record, with what is stored read in if RocksDB may have it. Never NULL;
 * ->exists tells whether the element is there. */
struct change *delta_at(struct rk *rk, struct row *r, bytes sub);
/* The same for an element that RocksDB surely does not have: nothing is read. */
struct change *delta_new(struct rk *rk, struct row *r, bytes sub);
struct change *delta_peek(const struct row *r, bytes sub); /* NULL: not looked at yet */

/* Change it. The value is copied. The row must have been touched; its size is the caller's. */
void delta_put(struct rk *rk, struct row *r, struct change *c, bytes value);
void delta_erase(struct rk *rk, struct row *r, struct change *c);

/* The touched changes in the order of subs; valid until the next change. */
struct change **delta_ordered(struct rk *rk, struct row *r, u32 *n);

/* A walk over a collection's elements in the order of subs, changes included. It may go on
 * after delta_erase of the element it stands on, and of none else. */
struct walk {
    struct rk *rk;
    struct row *row;
    struct store_iter *base; /* NULL: nothing stored */
    size_t prefix;           /* length of P · version in base's keys */
    struct change **ordered;
    u32 n, at;
    bool reverse, on_change; /* where it stands */
    bytes sub, value;        /* until the walk moves */
};
/* Stands on the first element >= from (or the last <= from when reverse; from.p NULL: on the
 * very first or last). False: there is none. */
bool walk_start(struct walk *w, struct rk *rk, struct row *r, bytes from, bool reverse);
bool walk_next(struct walk *w); /* false: no further one; the walk is then done */
void walk_done(struct walk *w); /* of a walk that is left early; optional: commit does it, too */

#endif
