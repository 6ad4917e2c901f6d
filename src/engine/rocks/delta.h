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
    bytes value;         /* as it is now */
    struct change *next; /* the one touched next */
    union {
        struct { double stored_score, score; };          /* sorted sets; value then is the coded score */
        struct { i64 stored_deadline_ms, deadline_ms; }; /* fields; 0: none */
    };
    bool stored;  /* RocksDB has it */
    bool exists;  /* it is there now */
    bool touched; /* something of it is to be written: */
    bool put;     /* the value is */
    bool deadline_known, deadline_moved; /* fields.c's */
};

struct fields;
struct list;
struct ordering;

/* A range of the collection that the transaction has erased. What is stored in it is gone, with or without a
 * change record; what was changed since counts. */
struct erased_range {
    bytes from, to;    /* [from, to); they live as long as the transaction */
    bool as_tombstone; /* commit writes a range deletion; otherwise each stored element has a change record */
};

struct erased_ranges {
    struct erased_range *v; /* ascending, disjoint and not adjacent */
    u32 n, cap;
};

#define DELTA_FEW 8

struct delta {
    struct change *few[DELTA_FEW]; /* all of them, while they are few */
    u32 n;                         /* how many; above DELTA_FEW they are in the table instead */
    u32 touched;                   /* how many of them are */
    struct table changes;          /* by sub */
    struct change *first, **end;   /* the touched ones, in order of first touch */
    struct {
        struct change **v;         /* the touched ones by sub … */
        u32 n, cap;                /* … as far as they are sorted in: the first n */
        struct change **rest;      /* the link to the next one that is not */
    } order;
    bytes prefix, after; /* P · version, and the bound of all that begins with it; p NULL: not made yet */
    size_t room;         /* bytes behind prefix where a sub may be written */
    struct fields *fields; /* fields.c's; NULL: not needed yet */
    struct list *list;         /* seq.c's, likewise */
    struct ordering *ordering; /* order.c's, likewise */
    struct erased_ranges *erased; /* NULL: none */
};

/* The element's change record, with what is stored read in if RocksDB may have it. Never NULL;
 * ->exists tells whether the element is there. */
struct change *delta_at(struct rk *rk, struct row *r, bytes sub);
/* The same for an element that RocksDB surely does not have: nothing is read. */
struct change *delta_new(struct rk *rk, struct row *r, bytes sub);
struct change *delta_peek(const struct row *r, bytes sub); /* NULL: not looked at yet */
/* One batched read of elements that will be asked for: rows[i]'s subs[i]. What is known is left alone. */
void delta_prefetch(struct rk *rk, struct row **rows, const bytes *subs, u32 n);

struct delta *delta_of(struct rk *rk, struct row *r); /* made if there is none */
bytes delta_keep(struct rk *rk, bytes b);             /* a copy that lasts as long as the transaction */
bytes delta_key(struct rk *rk, struct row *r, bytes sub); /* P · version · sub; until the next call */
bytes delta_prefix(struct rk *rk, struct row *r);     /* P · version; lives as long as the delta */
bytes delta_after(struct rk *rk, struct row *r);      /* the upper bound of all that begins with it */

/* Change it. The value is copied. The row must have been touched; its size is the caller's. */
void delta_put(struct rk *rk, struct row *r, struct change *c, bytes value);
void delta_erase(struct rk *rk, struct row *r, struct change *c);
void delta_touch(struct row *r, struct change *c); /* something beside the value changed */

/* Every touched one, in order of first touch: what commit is to write. A change that does not exist
 * and is not stored is to be passed over. */
#define delta_each(c, delta) (struct change *c = (delta) ? (delta)->first : NULL; c; c = c->next)

/* The transaction was kept: what it wrote is now what is stored. */
void delta_kept(struct rk *rk, struct row *r);

void delta_release(struct delta *d); /* at the end of the transaction, or with the collection */

/* The touched changes in the order of subs; valid until the next change. */
struct change **delta_ordered(struct rk *rk, struct row *r, u32 *n);

/* -- erased ranges ------------------------------------------------------------------------ */

/* Erases [from, to), which must live as long as the transaction. A walk skips the range at once. Erasing
 * many elements `as_tombstone` needs no change record for each: commit writes one range deletion, before
 * any put. */
void delta_erase_range(struct rk *rk, struct row *r, bytes from, bytes to, bool as_tombstone);

/* The erased range that contains `sub`; NULL: none. */
const struct erased_range *delta_erased_range(const struct delta *d, bytes sub);

void delta_write_ranges(struct rk *rk, struct row *r, enum family f); /* range deletions into the batch */

/* -- walks: walk.c ----------------------------------------------------------------------- */

/* A walk over a collection's elements in the order of subs, changes included. It may go on
 * after delta_erase of the element it stands on, and of none else. */
struct walk {
    struct rk *rk;
    struct row *row;
    struct store_iter *base; /* NULL: nothing stored */
    size_t prefix;           /* length of P · version in base's keys */
    u32 at;                  /* ordered changes that lie behind it; the next is where it stands, or beyond */
    u32 n;                   /* of how many ordered changes */
    bool reverse;
    struct change *change;   /* where it stands; NULL: on a stored element nothing was done to */
    bytes sub, value;        /* until the walk moves */
};
/* Stands on the first element >= from (or the last <= from when reverse; from.p NULL: on the
 * very first or last). False: there is none. */
bool walk_start(struct walk *w, struct rk *rk, struct row *r, bytes from, bool reverse);
bool walk_next(struct walk *w); /* false: no further one; the walk is then done */
void walk_done(struct walk *w); /* of a walk that is left early; optional: commit does it, too */

#endif
