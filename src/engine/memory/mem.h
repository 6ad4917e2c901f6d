/* Inside the memory engine: what its files share. */
#ifndef MAYFLY_ENGINE_MEMORY_MEM_H
#define MAYFLY_ENGINE_MEMORY_MEM_H

#include "base/alloc.h"
#include "base/arena.h"
#include "ds/omap.h"
#include "ds/packed.h"
#include "ds/rope.h"
#include "ds/table.h"
#include "ds/wheel.h"
#include "ds/ztree.h"
#include "engine/memory/entry.h"
#include "engine/memory/map_table.h"
#include "engine/memory/memory.h"

struct mem_db {
    struct table keys;        /* of struct entry */
    struct table kept;        /* likewise, of TYPE_NONE: companions that stay */
    struct wheel deadlines;   /* keys, by their own deadline */
    struct wheel fields;      /* hashes, by their nearest field deadline */
    __int128 deadline_total;  /* sum of the keys' deadlines: INFO's avg_ttl */
    struct mem_walk *walk;    /* the snapshot's walk over these keys; NULL: none */
};

/* An object in the lazy-free queue: reclaim() frees it in slices. */
struct mem_lazyfree {
    struct mem_lazyfree *next;
    enum { LAZYFREE_KEYS, LAZYFREE_BLOB, LAZYFREE_MAP, LAZYFREE_SEQ, LAZYFREE_ZSET, LAZYFREE_ROWS } kind;
    void *object;
};

struct mem_engine {
    struct engine base;
    struct engine_ops ops; /* base.ops points here */
    u64 seed;
    struct mem_db *dbs; /* the staging databases after the others */
    u32 timed_dbs; /* databases from this one on, but for staging ones, have never filed a deadline */
    u32 due_db; /* where due() continues; below timed_dbs, or 0 */
    i64 clock_ms; /* the time deadlines are filed by: the latest now_ms other than 0 */
    struct mem_lazyfree *lazyfree, *lazyfree_last;
    u64 lazyfree_count;
    struct mem_snap *snap; /* NULL: no snapshot */
    u8 mark;               /* of entries that are saved or newer than the snapshot; without one, of all */
    struct arena handed_out; /* text made for slices handed out in this transaction … */
    u64 transaction;         /* … of this number */
};

static inline struct mem_engine *mem_of(struct engine *e) { return (struct mem_engine *)e; }
static inline struct mem_db *mem_db_of(struct engine *e, u32 db) { return &mem_of(e)->dbs[db]; }
static inline u32 mem_all_dbs(const struct mem_engine *m) { return 2 * m->base.databases; }

/* Every tick looks at the wheels, and most servers use few of their databases. */
static inline void mem_note_timed(struct mem_engine *m, u32 db)
{
    if (UNLIKELY(db >= m->timed_dbs) && db < m->base.databases) m->timed_dbs = db + 1;
}

/* wheel_add for one of the two wheels of a database. */
static inline wheel_pos mem_file_deadline(struct mem_engine *m, u32 db, struct wheel *w, u64 hash,
                                          i64 deadline_ms)
{
    mem_note_timed(m, db);
    return wheel_add(w, hash, deadline_ms, m->clock_ms);
}

/* Points a ref at an entry. */
void mem_ref(struct key_ref *ref, u32 db, u64 hash, struct entry *entry);

/* The entry of a ref was copied to `fresh`: updates the table and the ref, and
 * frees the old entry (not what it points to). */
void mem_moved(struct engine *e, struct key_ref *ref, struct entry *fresh);

/* Frees an entry that is no longer in a table, and its value: now if it is
 * small, otherwise through the lazy-free queue. An open snapshot gets it first.
 * ref has the database and the hash. */
void mem_discard(struct engine *e, const struct key_ref *ref, struct entry *entry);
void mem_lazyfree_add(struct mem_engine *m, int kind, void *object);
u64 mem_reclaim(struct engine *e, u32 units);

/* -- expiry: due.c ----------------------------------------------------------- */
u32 mem_due(struct engine *e, i64 until_ms, u32 max, key_fn fn, void *arg);
i64 mem_next_due(struct engine *e);
void mem_forecast(struct engine *e, u32 db, due_span_fn fn, void *arg);
bool mem_random_volatile(struct engine *e, u32 db, u64 *rng, struct key_ref *ref);

#define ENTRY_BYTES 128 /* prefetched of an entry: most are not longer */

/* -- snapshots: snapshot.c ---------------------------------------------------
 * Every primitive that changes a key calls mem_keep before it does. */
void mem_snap_keep(struct engine *e, const struct key_ref *ref);
static inline void mem_keep(struct engine *e, const struct key_ref *ref)
{
    if (UNLIKELY(mem_of(e)->snap != NULL)) mem_snap_keep(e, ref);
}

/* Entries enter a table only through these two, which mark them. */
static inline void mem_insert(struct engine *e, struct table *keys, u64 hash, struct entry *entry)
{
    entry_set_mark(entry, mem_of(e)->mark);
    table_insert(keys, hash, entry);
}
static inline void mem_replace(struct engine *e, struct table *keys, u64 hash, const struct entry *old,
                               struct entry *by)
{
    entry_set_mark(by, mem_of(e)->mark);
    table_replace(keys, hash, old, by);
}

/* Only while there is a snapshot: */
bool mem_snap_hold(struct engine *e, const struct key_ref *ref, struct entry *entry); /* true: it frees it */
bool mem_snap_flush(struct mem_engine *m, struct mem_db *old); /* true: the snapshot frees it */
void mem_snap_swap(struct mem_engine *m, u32 a, u32 b);        /* after the two were exchanged */
u64 mem_snap_reclaim(struct mem_engine *m, u32 units);         /* one that ended early; pending */
void mem_snap_close(struct engine *e);
extern const struct snapshot_ops mem_snapshot_ops;

/* Values up to this many elements are freed at once. */
#define MEM_FREE_NOW 64

/* Small hashes, sets, lists and sorted sets are in their entry: small.h. The objects of big ones: */

/* -- hashes and sets: map.c -------------------------------------------------- */

/* The table of a hash or set; NULL: it is small. */
static inline struct map_table *mem_map_table(const struct entry *entry)
{
    return entry_form(entry) == FORM_POINTER ? entry_object(entry) : NULL;
}
u64 mem_map_count(const struct entry *, i64 now_ms); /* live fields */
u64 mem_map_stored(const struct entry *);            /* dead ones included */
const char *mem_map_encoding(const struct entry *);
/* Where a hash is filed in mem_db.fields: by its nearest field deadline, or one that was postponed. */
struct map_filing {
    i64 due_ms; /* 0: not filed */
    wheel_pos pos;
};
struct map_filing mem_map_filing(const struct entry *); /* of a hash */
void mem_map_set_filing(struct entry *, struct map_filing);
/* When a hash changed, or is renamed, dropped or found due. */
void mem_map_file(struct engine *, struct key_ref *);
void mem_map_unfile(struct engine *, u32 db, struct entry *);
void mem_map_postpone(struct engine *, struct key_ref *, i64 until_ms);
struct entry *mem_map_copied(struct entry *fresh, i64 now_ms); /* FORM_TIMED is no plain copy */
extern const struct map_ops mem_map_ops;

/* -- lists: seq.c -------------------------------------------------------------- */
struct mem_seq {
    struct rope rope;
    u32 pack_bytes; /* of the listpack Redis would have; 0: not counted because it is far too long */
    bool quick;     /* Redis would have a quicklist */
};
struct mem_seq *mem_seq_copy(struct mem_engine *m, const struct mem_seq *);
bool mem_seq_free_some(struct mem_seq *, u32 units);
size_t mem_seq_memory(const struct mem_seq *);
u64 mem_seq_count(const struct entry *);
const char *mem_seq_encoding(const struct entry *);
extern const struct seq_ops mem_seq_ops;

/* -- sorted sets: zset.c -------------------------------------------------------- */
struct zset_table {
    struct table items;  /* f64 score · length · member */
    struct ztree order;  /* of the same */
};
/* NULL: it is small. */
static inline struct zset_table *mem_zset_table(const struct entry *entry)
{
    return entry_form(entry) == FORM_POINTER ? entry_object(entry) : NULL;
}
struct zset_table *mem_zset_copy(struct mem_engine *m, const struct zset_table *);
bool mem_zset_free_some(struct zset_table *, u32 units); /* true: all of it was freed */
u64 mem_zset_count(const struct entry *);
size_t mem_zset_memory(const struct zset_table *, u32 samples);
const char *mem_zset_encoding(const struct entry *);
extern const struct zset_ops mem_zset_ops;

/* -- streams: rows.c ------------------------------------------------------------- */
struct mem_rows {
    struct omap map;
    u64 size; /* as the commands set it */
    char *head;
    u32 head_bytes;
};
struct mem_rows *mem_rows_new(u32 leaf_bytes);
struct mem_rows *mem_rows_copy(const struct mem_rows *);
bool mem_rows_free_some(struct mem_rows *, u32 units);
size_t mem_rows_memory(const struct mem_rows *);
void mem_rows_set_head(struct mem_rows *, bytes head);
bool mem_rows_read(struct engine *, const struct mem_rows *, bytes name, bytes *value);
void mem_rows_seek(struct engine *, const struct mem_rows *, bytes from, bool reverse, struct rows_iter *);
void mem_rows_discard(struct mem_engine *, struct mem_rows *); /* now if it is small, else by reclaim() */
extern const struct rows_ops mem_rows_ops;

/* -- companions: companion.c ------------------------------------------------------ */

/* Moves the companion of ref's entry to `fresh`, which is about to replace that entry. The old entry keeps an
 * empty one; a snapshot has got it as it was. Returns fresh, which may have moved. */
struct entry *mem_companion_carry(struct engine *, struct key_ref *ref, struct entry *fresh);
void mem_companion_prefetch(const struct entry *); /* what its companion refers to */
void mem_companion_discard(struct mem_engine *, struct entry *); /* frees what the prefix points to */
size_t mem_companion_memory(const struct entry *);               /* bytes of prefix and rows */
size_t mem_companion_usage(struct engine *, struct key_ref *);   /* bytes of the key's companion; 0: none */
extern const struct companion_ops mem_companion_ops;

/* -- filling any of them: fill.c ---------------------------------------------------- */

/* The index of a name of v[0], v[stride] … that occurs twice, or n. */
u32 mem_find_twice(const bytes *v, u32 n, u32 stride);
/* Elements are added in groups, whose buckets are prefetched first, so that cache misses overlap. */
#define MEM_FILL_TOGETHER 16
void mem_fetch_places(const struct table *, const bytes *v, u32 n, u32 stride);

extern const struct str_ops mem_str_ops;

#endif
