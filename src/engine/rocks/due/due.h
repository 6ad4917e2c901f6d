/* Internals of the deadline index, shared by due.c (filing, counting, committing), due_drain.c (visiting due
 * rows) and due_query.c (forecasts, random keys). rk.h has what the rest of the engine uses.
 *
 * A row of the family `deadline` means "look at this key at that time". Where the row of a deadline lies is a
 * pure function of the deadline and of how far the index has been drained (due_place_now in due_row.h). So no
 * key stores its place, keys are counted per bucket exactly, and moving a deadline within its bucket is free.
 *
 * Invariants, including the open batch:
 * 1. There are two queues. Rows of level 0 are fine: their keys die next. All others are coarse: they are
 *    visited well before their keys die, only to be filed at a finer level. Fine rows go first, so that a
 *    coarse bucket with millions of rows does not delay the deletion of dead keys.
 * 2. A database has one index for all its regions. An engine skips the rows of other regions' slots; each
 *    region has its own position.
 * 3. Every stored key with a deadline is counted in the bucket of its place, and its row is there, unless the
 *    place is below its queue's `low`: then the row was visited, and the key is dead.
 * 4. A queue has no row below its `low`. Iterators start there: a drain never reads through the tombstones of
 *    rows it deleted, and never visits a row twice in a transaction. Filing a row below `low` (the clock was
 *    set back, or a dead key was left alone) lowers it at commit.
 * 5. A row may be stale, because its key is gone or has another deadline. It is dropped when visited.
 * 6. A hash with field deadlines also has a row at the place of the nearest one. That row is not counted, and
 *    may coincide with the row of the hash's own deadline.
 * 7. Rows filed during a drain are not in the family before the commit: a new round stops before the first
 *    of them (`barrier_ms`). */
#ifndef MAYFLY_ENGINE_ROCKS_DUE_DUE_H
#define MAYFLY_ENGINE_ROCKS_DUE_DUE_H

#include "engine/rocks/rk.h"
#include "engine/rocks/due/due_counts.h"

enum due_kind { DUE_FINE, DUE_COARSE, DUE_KINDS }; /* level 0, or any other */

struct due_queue {
    i64 low_ms;       /* when `low` is due; INT64_MAX: the queue is empty */
    struct buf low;   /* a row key, or a prefix of one */
    i64 filed_ms;     /* when `filed` is due; INT64_MAX: none */
    struct buf filed; /* the earliest row this transaction has filed */
};

struct due {
    struct due_position at; /* at.low_ms is as of the last commit */
    struct due_queue queue[DUE_KINDS];
    struct buf last_key; /* at.last.key */
    i64 barrier_ms;      /* the earliest coarse row that this transaction's drain has filed after the round */
    bool changed;        /* something was filed, counted or visited in this transaction */
    bool unread;         /* loading the stored position failed; tried again before the next use */
    const struct rocks_region *region;
    struct due_shared *shared;
    struct due_change *changes; /* of this transaction, not yet in `shared` */
    u32 changes_n, changes_cap;
    bool recounted;     /* due_recount has changed `shared` directly */
    struct buf emptied; /* u64 indexes of flushed databases; applied before `changes` */
    bool locked;        /* from due_commit to due_committed: `shared` has changes that are not written yet */
    struct due_rows {
        struct row **v;
        u32 n, cap;
    } again, visited;      /* rows this transaction visited: hashes that still have dead fields; live keys */
    struct buf row, names; /* scratch */
};

/* How the index identifies a key. */
struct due_name {
    u64 index;
    u16 slot;
    bytes key;
};

static inline struct due_name due_name(const struct row *r)
{
    return (struct due_name){r->db->index, codec_slot(row_key(r)), row_key(r)};
}

/* Where a key with this deadline is filed now. */
static inline struct due_place due_key_place(const struct due *d, i64 deadline_ms, const struct due_name *n)
{
    return due_place_now(&d->at, deadline_ms, n->index, n->slot, n->key);
}

static inline bool due_place_same(struct due_place a, struct due_place b)
{
    return a.due_ms == b.due_ms && a.level == b.level;
}

static inline enum due_kind due_kind(u8 level) { return level ? DUE_COARSE : DUE_FINE; }

/* No row of this kind is due before this. */
static inline i64 due_soonest(const struct due *d, enum due_kind kind)
{
    return MIN(d->queue[kind].low_ms, d->queue[kind].filed_ms);
}

/* Records that a key is to be added to (n = 1) or removed from (n = -1) the counts at commit. */
void due_count(struct due *d, u64 index, struct due_place p, i64 deadline_ms, int n);
/* Locks the shared counts, and loads them if need be. False: they can't be read, and engine.failed is set. */
bool due_lock(struct rk *rk);
void due_unlock(struct due *d);

bool due_usable(struct rk *rk); /* false: the stored position can't be read; engine.failed is set */
bytes due_row(struct due *d, struct due_place p, const struct due_name *n);      /* until the next call */
bool due_below_low(struct due *d, struct due_place p, const struct due_name *n); /* a row there was visited */
void due_file(struct rk *rk, struct due_place p, const struct due_name *n);
void due_advance(struct due *d, i64 now_ms); /* moves the position up to the next row, at most to now_ms */
void due_set_last(struct due *d, const struct codec_due *last);
void due_set_low(struct due *d, enum due_kind kind, i64 low_ms); /* no row is due before this */

/* An iterator over this region's rows of a kind, in order. After limit_ms it may stop on another region's. */
struct store_iter *due_iter(struct store_session *s, struct due *d, enum due_kind kind, i64 limit_ms);
/* Moves it forward to the first such row at or after its position. */
void due_iter_find(struct due *d, struct store_iter *it, enum due_kind kind, i64 limit_ms);
/* Raises `low` to the iterator's row. */
void due_raise_low(struct due *d, enum due_kind kind, const struct store_iter *it);

/* due_drain.c, due_query.c */
void due_drain_commit(struct rk *rk); /* files the hashes that were visited */
/* Moves the position forward to this time, in transactions of its own. Two regions need the same position
 * before they can be merged. False: something failed. */
bool due_drain_align(struct rk *rk, i64 position_ms);
u32 rk_due(struct engine *e, i64 until_ms, u32 max, key_fn fn, void *arg);
void due_query_ops(struct engine_ops *ops);

#endif
