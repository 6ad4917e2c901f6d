/* The changes a transaction made to one collection, on top of what RocksDB has.
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
    bool touched; /* commit has to write it … */
    bool put;     /* … with its value */
    bool deadline_known, deadline_moved; /* fields.c's */
};

struct fields;
struct list;
struct ordering;

/* A range of the collection that the transaction has erased. Stored elements in it are gone, with or without
 * a change record; elements put since then exist. */
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
    bytes prefix, after; /* P · version, and the upper bound of keys with that prefix; p NULL: not made yet */
    size_t room;         /* bytes after the prefix where a sub may be written */
    struct fields *fields; /* fields.c's; NULL: not needed yet */
    struct list *list;         /* seq.c's, likewise */
    struct ordering *ordering; /* order.c's, likewise */
    struct erased_ranges *erased; /* NULL: none */
};

/* The element's change record; reads the stored element if RocksDB may have it. Never NULL; ->exists tells
 * whether the element exists. */
struct change *delta_at(struct rk *rk, struct row *r, bytes sub);
/* The same for an element that RocksDB is known not to have: nothing is read. */
struct change *delta_new(struct rk *rk, struct row *r, bytes sub);
/* These will be asked for next, in a collection that will have `n` change records about. */
void delta_expect(struct delta *d, const bytes *subs, u32 next, u32 n);
struct change *delta_peek(const struct row *r, bytes sub); /* NULL: not looked at yet */
/* Reads the elements subs[i] of rows[i] with one MultiGet, unless they are known already. */
void delta_prefetch(struct rk *rk, struct row **rows, const bytes *subs, u32 n);

struct delta *delta_of(struct rk *rk, struct row *r); /* made if there is none */
bytes delta_keep(struct rk *rk, bytes b);             /* a copy that lasts as long as the transaction */
bytes delta_key(struct rk *rk, struct row *r, bytes sub); /* P · version · sub; until the next call */
bytes delta_prefix(struct rk *rk, struct row *r);     /* P · version; lives as long as the delta */
bytes delta_after(struct rk *rk, struct row *r);      /* the upper bound of keys with that prefix */

/* Changes the element. The value is copied. The row must have been touched; the caller updates its size. */
void delta_put(struct rk *rk, struct row *r, struct change *c, bytes value);
void delta_erase(struct rk *rk, struct row *r, struct change *c);
void delta_touch(struct row *r, struct change *c); /* something beside the value changed */

/* Iterates over the touched changes, in order of first touch, for commit to write. Skip those that neither
 * exist nor are stored. */
#define delta_each(c, delta) (struct change *c = (delta) ? (delta)->first : NULL; c; c = c->next)

/* The transaction has committed: the changes are now what is stored. */
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

/* A walk over a collection's elements in the order of subs, changes included. While it is open, only the
 * element at its position may be erased (delta_erase). */
struct walk {
    struct rk *rk;
    struct row *row;
    struct store_iter *base; /* NULL: nothing stored */
    size_t prefix;           /* length of P · version in base's keys */
    u32 at;                  /* how many ordered changes precede its position */
    u32 n;                   /* number of ordered changes */
    bool reverse;
    struct change *change;   /* at its position; NULL: an unchanged stored element */
    bytes sub, value;        /* valid until the walk moves */
};
/* Starts at the first element >= from (reverse: the last <= from; from.p NULL: the very first or last).
 * False: there is none. */
bool walk_start(struct walk *w, struct rk *rk, struct row *r, bytes from, bool reverse);
bool walk_next(struct walk *w); /* false: no more elements; the walk is closed */
void walk_done(struct walk *w); /* closes a walk that is left early; optional, commit does it, too */

#endif
