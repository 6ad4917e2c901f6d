/* The deadline index, inside: what due.c (filing, counting, committing), drain.c (visiting) and
 * ask.c (questions about it) share. For the rest of the engine see rk.h.
 *
 * A row of the family `deadline` stands for "look at this key then". Where a deadline's row lies is
 * place_now() of it, a pure function of how far the index has been drained (place.h); so no key
 * stores its place, keys are counted per bucket exactly, and a deadline that moves within its
 * bucket costs nothing.
 *
 * Invariants, as of the batch:
 * - There are two queues: the rows of level 0, whose keys die next, and all others, which are visited to be
 *   filed anew, a good while before their keys die. Those of level 0 come first, so that a wide bucket with
 *   millions of rows, all due at once, holds up nothing that is dead.
 * - There is one index for all regions of a database: their rows lie side by side, and each engine passes
 *   over those of other regions' slots. The position is the region's own.
 * - Every stored key with a deadline is counted in the bucket of its place, and its row is there,
 *   unless the place lies below its queue's `low`: then the row was visited, and the key is dead.
 * - No row of a queue lies below its `low`. Iterators start there, so that a drain never wades through the
 *   tombstones of the rows it deleted, and never meets a row twice in one transaction. Rows that
 *   are filed below it (the clock was set back, or a dead key was left alone) lower it at commit.
 * - A row may be stale: its key is gone, or has another deadline. It is dropped when visited.
 * - A hash with field deadlines has a row at the place of the nearest, too, which is not counted,
 *   and may be the same as that of its own deadline.
 * - What is filed while the index is drained is not in the family before the commit: a new round
 *   goes no further than that (`barrier_ms`). */
#ifndef MAYFLY_ENGINE_ROCKS_DUE_DUE_H
#define MAYFLY_ENGINE_ROCKS_DUE_DUE_H

#include "engine/rocks/rk.h"
#include "engine/rocks/due/due_counts.h"

enum due_kind { DUE_FINE, DUE_COARSE, DUE_KINDS }; /* of level 0, or any other */

struct due_queue {
    i64 low_ms;       /* when that row is due; INT64_MAX: there is none */
    struct buf low;   /* a row, or the start of one */
    i64 filed_ms;     /* of the earliest row this transaction has filed; INT64_MAX: none */
    struct buf filed; /* that row */
};

struct due {
    struct drain at; /* at.low_ms is as of the last commit */
    struct due_queue queue[DUE_KINDS];
    struct buf last_key; /* at.last.key */
    i64 barrier_ms;      /* of the earliest coarse row it has filed for keys it visited, after the round */
    bool changed;        /* something was filed, counted or visited in this transaction */
    bool unread;         /* what is stored could not be read yet */
    const struct rocks_region *region;
    struct due_shared *shared;
    struct due_change *changes; /* of this transaction, not yet in `shared` */
    u32 changes_n, changes_cap;
    bool recounted;      /* `shared` was changed without that, by due_recount */
    struct buf emptied;  /* u64 indexes of databases that it flushed: before the changes */
    bool locked;         /* from due_commit to due_committed: `shared` is changed, but not written yet */
    struct due_rows {
        struct row **v;
        u32 n, cap;
    } again, visited; /* by this transaction: hashes that still hold dead fields; what else lives on */
    struct buf row, names; /* scratch */
};

/* A key as the index names it. */
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
static inline struct place due_place(const struct due *d, i64 deadline_ms, const struct due_name *n)
{
    return place_now(&d->at, deadline_ms, n->index, n->slot, n->key);
}

static inline bool same_place(struct place a, struct place b)
{
    return a.due_ms == b.due_ms && a.level == b.level;
}

static inline enum due_kind due_kind(u8 level) { return level ? DUE_COARSE : DUE_FINE; }

/* No row of this kind is to be visited before this. */
static inline i64 due_soonest(const struct due *d, enum due_kind kind)
{
    return MIN(d->queue[kind].low_ms, d->queue[kind].filed_ms);
}

/* Counts a key in (n = 1) or out (n = -1). */
void due_count(struct due *d, u64 index, struct place p, i64 deadline_ms, int n);
/* What is counted, under its lock; released by due_unlock. False: it can't be read; engine.failed is set. */
bool due_lock(struct rk *rk);
void due_unlock(struct due *d);

bool due_usable(struct rk *rk); /* false: what is stored can't be read; engine.failed is set */
bytes due_row(struct due *d, struct place p, const struct due_name *n); /* until the next call */
bool due_below_low(struct due *d, struct place p, const struct due_name *n); /* a row there was visited */
void due_file(struct rk *rk, struct place p, const struct due_name *n);
void due_advance(struct due *d, i64 now_ms); /* moves the position as far as there are no rows */
void due_set_last(struct due *d, const struct codec_due *last);
void due_set_low(struct due *d, enum due_kind kind, i64 low_ms); /* no row is due before this */

/* The rows of a kind that are the region's, in order; beyond limit_ms it may stand on another's. Made to
 * stand on the first; moved on to the next one from wherever it stands; and `low` put to where it stands. */
struct store_iter *due_iter(struct store_session *s, struct due *d, enum due_kind kind, i64 limit_ms);
void due_iter_find(struct due *d, struct store_iter *it, enum due_kind kind, i64 limit_ms);
void due_raise_low(struct due *d, enum due_kind kind, const struct store_iter *it);

/* drain.c, ask.c */
void due_drain_commit(struct rk *rk); /* files the hashes that were visited */
/* Brings the position to this time, which must not be before it, in transactions of its own: so that two
 * regions can be joined, which need the same. False: something failed. */
bool drain_align(struct rk *rk, i64 position_ms);
u32 rk_due(struct engine *e, i64 until_ms, u32 max, key_fn fn, void *arg);
void rk_ask_ops(struct engine_ops *ops);

#endif
