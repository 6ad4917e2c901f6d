/* Internals of the rocks engine, shared by its files.
 *
 * A transaction (one tick) writes nothing to RocksDB before commit: keys it reads
 * become rows in the cache, changes are marked there, and commit() encodes every
 * touched row and its delta once into the batch. So reads see the transaction's
 * own writes, and abort() only drops the touched rows. */
#ifndef MAYFLY_ENGINE_ROCKS_RK_H
#define MAYFLY_ENGINE_ROCKS_RK_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "ds/table.h"
#include "engine/rocks/cache_budget.h"
#include "engine/rocks/codec.h"
#include "engine/rocks/cursor.h"
#include "engine/rocks/row.h"
#include "engine/rocks/slots.h"
#include "engine/rocks/store/store.h"

/* A database. When databases are swapped the struct moves; only the number changes.
 *
 * A database's first index is its number + 1. A staging database gets an index that was never used before
 * (CODEC_STAGING | a version), and a new one whenever it has been emptied: so what a swap or a crash leaves
 * there can't be mistaken for other data, and nothing has to be stored about staging databases. */
struct rk_db {
    u64 index;          /* identifies it in stored keys */
    u32 number;         /* from base.databases on: a staging database */
    u32 stored_number;  /* the same, before this transaction */
    struct table rows;  /* the cache: of struct row */
    u64 count, expires; /* keys; keys with a deadline */
    u64 timed_hashes;   /* hashes with field deadlines */
    struct slots slots; /* the same per slot, as of the last commit */
    bool has_row;       /* the row 'c' that says that it has, or had, keys is stored */
    bool renumbered;    /* by a swap: will be written at commit */
    bool flushed;        /* in this transaction: stored keys no longer count */
    bool all_cached;     /* every stored key has a row in the cache: others need no read */
    bool companions;     /* its rows are companions: it is the `side` of another database */
    bool has_companions; /* it may have companions: made since the last flush, or never flushed */
    struct rk_db *side;  /* the companions of its keys; NULL: none was needed yet */
};

struct due;   /* due.c: the deadline index */
struct due_shared;
struct row_lazyfree; /* row.c: the lazy-free queue: rows of flushed databases */

/* What the engines of a database share. */
struct rocks {
    struct store *store;
    struct engine_ops ops;     /* of all its engines */
    struct rocks_options options;
    struct due_shared *counts; /* due_counts.h: one per prefix */
    pthread_mutex_t lock;      /* of that list, and of the engines */
    _Atomic u64 last_version;  /* given out by any of its engines */
    struct cache_budget rows, elements; /* memory of the caches of all engines */
    struct rk *engines;        /* that are open */
    u64 hits, misses, together; /* of those that were closed: struct rk_cached */
};

/* What an engine has cached, and how useful that was. Its own thread counts, any may read. */
struct rk_cached {
    _Atomic u64 rows, bytes, hits, misses; /* bytes: of the rows */
    _Atomic u64 together;                  /* of the misses, those that were read with others */
    _Atomic u64 element_bytes;             /* as of the last transaction */
};

/* A split that the commit will do. */
struct region_cut {
    bool pending;
    struct rocks_region child;
    u64 child_seq;
};

struct rk {
    struct engine base;
    struct rocks *db;              /* the database and what its engines share; NULL in a view */
    struct rocks_region region;
    bool owns_db;                  /* it is the only engine, and closes the database */
    struct store *store;           /* the database; NULL in a view */
    struct store_session *session; /* of this engine alone */
    const struct log *log;
    struct rk_db **dbs; /* by number */
    u32 staging;        /* number of staging databases, numbered after the others; 0 in a view */
    bool staging_touched; /* this transaction changed one of them, or its number */
    bool staging_used;    /* some have keys, as stored */
    bool companions;    /* there may be companions */
    struct arena arena; /* of the transaction: changes, slices handed out */
    struct row *touched; /* in order of first touch; by slot when they are written */
    struct row **touched_end;
    bool long_strings;   /* some of them are long strings, which are written last */
    struct row *open;    /* rows with a delta, which is freed at the end */
    struct due *due;
    struct slot_log slot_log;
    struct region_cut cut;
    struct {
        bool pending;
        u16 first, last;
    } move;       /* rocks_region_move */
    bool dropped; /* the region goes with this transaction: rocks_region_drop */
    struct cursors cursors;
    struct draws *draws; /* type/random_element.c's */
    struct elements *elements; /* cache of collections' elements; NULL in a view */
    struct buf scratch;
    u64 last_version, applied_seq;
    i64 clock_ms;    /* the latest now_ms other than 0: deadlines are filed by it */
    struct buf repl_position; /* as stored */
    bool state_changed;
    bool foreign;    /* the database was made elsewhere: it has keys, but no state of ours */
    bool old_layout; /* it has the state of STATE_LAYOUT_UNCOUNTED */
    bool old_log;    /* the region's state has the form of STATE_LAYOUT_BEFORE: the next commit replaces it */
    bool new_region; /* nothing is stored of the region yet */
    struct cache_share row_share; /* memory for cached rows */
    u32 sweep_db; /* row_sweep's: twice the number, and 1 more for its companions */
    u64 sweep_cursor;
    i64 compaction_grace_ms;
    bool cleaner_keeps_up;   /* as of the last cron: no key is dead for longer than that */
    struct row_lazyfree *lazyfree;
    u64 lazyfree_count;
    bool legacy; /* strings of the old form may be stored: legacy.c */
    bool legacy_stuck; /* migrating them met something unreadable; it resumes at the next start */
    bool legacy_ends; /* the last was migrated: `legacy` becomes false if this transaction commits */
    struct buf legacy_position;
    u64 legacy_moved;
    struct rk_cached cached;
    struct rk *next_engine, **engine_link; /* in db->engines */
    struct view *view; /* snapshot.c's; NULL: none is open */
};

static inline u64 cached_get(const _Atomic u64 *n) { return atomic_load_explicit(n, memory_order_relaxed); }
static inline void cached_set(_Atomic u64 *n, u64 to) { atomic_store_explicit(n, to, memory_order_relaxed); }
static inline void cached_add(_Atomic u64 *n, u64 by) { cached_set(n, cached_get(n) + by); }

static inline struct rk *rk_of(struct engine *e) { return (struct rk *)e; }
static inline struct row *row_of(const struct key_ref *ref) { return ref->entry; }
static inline u32 rk_all(const struct rk *rk) { return rk->base.databases + rk->staging; }
static inline struct rk_db *rk_db_of(struct rk *rk, u64 index) /* NULL: no such database */
{
    for (u32 i = 0; i < rk_all(rk); i++)
        if (rk->dbs[i]->index == index) return rk->dbs[i];
    return NULL;
}
/* How many databases a transaction may have changed. */
static inline u32 rk_changed(const struct rk *rk)
{
    return rk->staging_touched ? rk_all(rk) : rk->base.databases;
}
static inline bool rk_uses_staging(const struct rk *rk) { return rk->staging_used || rk->staging_touched; }
static inline bool rk_is_staging(const struct rk *rk, const struct rk_db *db)
{
    return db->number >= rk->base.databases;
}
/* True if the region has all slots, so that no other region has keys. */
static inline bool rk_is_whole(const struct rk *rk)
{
    return rk->region.first == 0 && rk->region.last == ROCKS_SLOTS - 1;
}
/* The time deadlines are filed by. */
static inline i64 rk_clock(const struct rk *rk) { return rk->base.now_ms ? rk->base.now_ms : rk->clock_ms; }
static inline u64 row_hash(const struct rk_db *db, bytes key) { return table_hash(&db->rows, key); }
/* Called when a row gets a delta, which is released at the end of the transaction. */
static inline void row_open(struct rk *rk, struct row *r)
{
    if (r->open) return;
    r->open = true;
    r->next_open = rk->open;
    rk->open = r;
}
u64 rk_new_version(struct rk *rk); /* strictly increasing, also across restarts and clock steps */

/* -- snapshots: snapshot.c ------------------------------------------------------------ */

extern const struct snapshot_ops rk_snapshot_ops;

/* -- the deadline index: due.c ---------------------------------------------------- */

/* sets rk->due; NULL: what is stored can't be read */
struct due *due_open(struct rk *rk, struct due_shared *shared);
void due_close(struct due *d);
void due_rest(struct due *d); /* between transactions: gives back what only they need */
/* A stored key's deadline changes from one to another (0: none): files the new one and keeps the
 * counts. Goes into the batch, at commit. */
void due_changed(struct rk *rk, const struct row *r, i64 old_ms, i64 new_ms);
/* Files a hash by its nearest field deadline; not counted. At commit. */
void due_file_fields(struct rk *rk, const struct row *r, i64 due_ms);
/* The stored hash is deleted, or stored.field_due_ms is no longer its nearest. Call it before anything of
 * the key is filed again. Optional: a stale row is dropped when it is visited. */
void due_forget_fields(struct rk *rk, const struct row *r);
void due_flush(struct rk *rk, struct rk_db *db); /* clears the counts of a database */
void due_commit(struct rk *rk);           /* changed counters and the position, into the batch */
void due_committed(struct rk *rk);        /* … which was written */
/* Resets all counts before a recount. due_count_filed counts one key that is filed already. */
void due_recount(struct rk *rk);
void due_count_filed(struct rk *rk, const struct row *r);
void due_abandon(struct rk *rk);          /* the transaction failed: back to what is stored */
/* of the deadlines of all keys that have one; 0: none */
double due_mean(struct rk *rk, const struct rk_db *db);
/* Sets due, next_due, forecast, random_volatile, has_deadlines. */
void rk_due_ops(struct engine_ops *ops);

/* -- types ---------------------------------------------------------------------------- */

extern const struct str_ops rk_str_ops;   /* str.c */
extern const struct map_ops rk_map_ops;   /* map.c */
extern const struct seq_ops rk_seq_ops;   /* seq.c */
extern const struct zset_ops rk_zset_ops; /* zset.c */
u32 rk_zset_fill(struct engine *e, struct key_ref *ref, const bytes *members, const double *scores, u32 n);
void rk_gather(struct engine *e, struct key_ref *const *refs, u32 n, gather_fn fn, void *arg); /* gather.c */
extern const struct rows_ops rk_rows_ops; /* rows.c */

/* Per type: writes its delta into the batch (row_write.c writes the row itself); copies its current
 * elements into a new, empty collection. */
void rk_map_commit(struct rk *rk, struct row *r);
void rk_seq_commit(struct rk *rk, struct row *r);
void rk_zset_commit(struct rk *rk, struct row *r);
void rk_rows_commit(struct rk *rk, struct row *r);
void rk_map_copy(struct rk *rk, struct row *from, struct row *to, bool dead_too);
void rk_seq_copy(struct rk *rk, struct row *from, struct row *to);
void rk_zset_copy(struct rk *rk, struct row *from, struct row *to);
void rk_rows_copy(struct rk *rk, struct row *from, struct row *to);
u64 rk_map_live(struct rk *rk, struct row *r); /* size() of a hash or set: dead fields don't count */
const char *rk_map_encoding(struct rk *rk, struct row *r);
const char *rk_zset_encoding(struct rk *rk, struct row *r);
const char *rk_list_encoding(struct rk *rk, struct row *r);
void ranks_free(struct ranks *ranks); /* NULL is fine */

#endif
