/* Inside the rocks engine: what its files share.
 *
 * A transaction (one tick) never touches RocksDB before its end: keys it reads
 * become rows in the cache, what it changes is marked there, and commit() encodes
 * every touched row and its delta once into the batch. So reads see the
 * transaction's own writes, and giving up means forgetting the touched rows. */
#ifndef MAYFLY_ENGINE_ROCKS_RK_H
#define MAYFLY_ENGINE_ROCKS_RK_H

#include "base/alloc.h"
#include "base/arena.h"
#include "ds/table.h"
#include "engine/rocks/codec.h"
#include "engine/rocks/store.h"

#define RK_REGION 1 /* a lone server has one region */

struct delta;
struct ranks;

/* A key as the transaction sees it: what redis_metadata holds, decoded. key_ref.entry points to one.
 * It stays where it is until the end of the transaction. */
struct row {
    struct row *next_touched;
    char *key;
    u32 key_len, db;
    u8 type;              /* enum value_type; TYPE_NONE: the key is known to be absent */
    bool touched;         /* to be written at commit */
    bool used;            /* since the sweep of the cache last came by */
    bool passing;         /* not in the cache: made for one callback of a walk */
    bool field_deadlines;
    bool text;            /* a string that is not to be shown as an integer */
    bool legacy;          /* the old form is stored, too, or instead */
    u32 access;           /* 24 bits for LRU or LFU; not stored */
    i64 deadline_ms;
    u64 version, size, head, tail;
    struct buf value;     /* strings */
    struct delta *delta;  /* collections: what this transaction changed; NULL: nothing */
    struct ranks *ranks;  /* big sorted sets: zset.c's; NULL: not loaded */
    struct {              /* as RocksDB has it: what the changes are relative to */
        u8 type;          /* TYPE_NONE: absent */
        i64 deadline_ms;
        i64 field_due_ms; /* the field deadline the hash is filed under; 0: none, or not known */
        u64 version, size;
    } stored;
};

struct rk_db {
    u64 index;          /* index_id: follows the data when databases are swapped */
    struct table rows;  /* the cache: of struct row */
    u64 count, expires; /* keys; keys with a deadline */
    __int128 deadline_total;
    bool counts_changed; /* to be written at commit */
    bool flushed;        /* in this transaction: nothing that is stored counts any more */
};

struct due; /* due.c: the deadline index */

struct rk {
    struct engine base;
    struct engine_ops ops; /* base.ops points here */
    struct store *store;
    const struct log *log;
    struct rk_db *dbs;
    struct arena arena; /* of the transaction: changes, slices handed out */
    struct row *touched; /* in order of first touch */
    struct row **touched_end;
    struct due *due;
    struct buf scratch;
    u64 last_version, applied_seq;
    bool state_changed;
    u64 row_bytes, row_budget; /* memory of the cached rows */
    u32 sweep_db;
    u64 sweep_cursor;
    bool legacy; /* strings of the old form may be stored */
    struct { u64 hits, misses; } cache;
};

static inline struct rk *rk_of(struct engine *e) { return (struct rk *)e; }
static inline struct row *row_of(const struct key_ref *ref) { return ref->entry; }
static inline bytes row_key(const struct row *r) { return bytes_of(r->key, r->key_len); }

/* -- rows: row.c --------------------------------------------------------------- */

/* The row of a key, read if it is not cached; type TYPE_NONE when the key is absent. */
struct row *row_get(struct rk *rk, u32 db, bytes key, u64 hash);
void row_prefetch(struct rk *rk, const struct want *want, u32 n);
/* The row will be written at commit. To be called before any change to it or its delta. */
void row_touch(struct rk *rk, struct row *r);
/* Makes an absent key's row that of a new, empty value; or a present one's absent. O(1). */
void row_create(struct rk *rk, struct row *r, enum value_type type);
void row_drop(struct rk *rk, struct row *r);
void row_set_deadline(struct rk *rk, struct row *r, i64 deadline_ms);
/* Whether elements of this collection are in RocksDB, under stored.version. */
static inline bool row_has_base(const struct row *r)
{
    return r->stored.type == r->type && r->stored.version == r->version && r->stored.size > 0;
}
void row_ref(struct row *r, u64 hash, struct key_ref *ref);
/* P · version of a collection, appended. */
void row_prefix(struct rk *rk, const struct row *r, u64 version, struct buf *out);
void row_forget(struct rk *rk); /* every touched row: the transaction failed */
void row_sweep(struct rk *rk);  /* brings the cache back into its budget; between transactions */
u64 rk_new_version(struct rk *rk); /* strictly increasing, also across restarts and clock steps */

/* -- the deadline index: due.c ---------------------------------------------------- */

struct due *due_open(struct rk *rk);
void due_close(struct due *d);
/* A stored key's deadline changes from one to another (0: none): files the new one and keeps the
 * counts. Goes into the batch, at commit. */
void due_changed(struct rk *rk, const struct row *r, i64 old_ms, i64 new_ms);
/* Files a hash by its nearest field deadline; not counted. At commit. */
void due_file_fields(struct rk *rk, const struct row *r, i64 due_ms);
void due_flush(struct rk *rk, u32 db);    /* forgets the counts of a database */
void due_swap(struct rk *rk, u32 a, u32 b);
void due_commit(struct rk *rk);           /* changed counters and the position, into the batch */
void due_abandon(struct rk *rk);          /* the transaction failed: back to what is stored */
extern void rk_due_ops(struct engine_ops *ops); /* sets due, next_due, forecast, random_volatile */

/* -- types ---------------------------------------------------------------------------- */

extern const struct str_ops rk_str_ops;   /* str.c */
extern const struct map_ops rk_map_ops;   /* map.c */
extern const struct seq_ops rk_seq_ops;   /* seq.c */
extern const struct zset_ops rk_zset_ops; /* zset.c */

/* Each type: its delta into the batch (the row itself is row.c's), and its elements, as
 * they are now, into a new and empty collection. */
void map_commit(struct rk *rk, struct row *r);
void seq_commit(struct rk *rk, struct row *r);
void zset_commit(struct rk *rk, struct row *r);
void map_copy(struct rk *rk, struct row *from, struct row *to);
void seq_copy(struct rk *rk, struct row *from, struct row *to);
void zset_copy(struct rk *rk, struct row *from, struct row *to);
u64 map_live(struct rk *rk, struct row *r); /* size() of a hash or set: dead fields don't count */
const char *map_encoding(struct rk *rk, struct row *r);
const char *zset_encoding(struct rk *rk, struct row *r);
void ranks_free(struct ranks *ranks); /* NULL is fine */

#endif
