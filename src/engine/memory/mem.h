/* Inside the memory engine: what its files share. */
#ifndef MAYFLY_ENGINE_MEMORY_MEM_H
#define MAYFLY_ENGINE_MEMORY_MEM_H

#include "base/alloc.h"
#include "base/arena.h"
#include "ds/intset.h"
#include "ds/packed.h"
#include "ds/rope.h"
#include "ds/table.h"
#include "ds/wheel.h"
#include "ds/ztree.h"
#include "engine/memory/entry.h"
#include "engine/memory/memory.h"

struct mem_db {
    struct table keys;        /* of struct entry */
    struct wheel deadlines;   /* keys, by their own deadline */
    struct wheel fields;      /* hashes, by their nearest field deadline */
    __int128 deadline_total;  /* sum of the keys' deadlines: INFO's avg_ttl */
};

/* What a drop leaves behind: freed in slices by reclaim(). */
struct grave {
    struct grave *next;
    enum { GRAVE_KEYS, GRAVE_BLOB, GRAVE_MAP, GRAVE_SEQ, GRAVE_ZSET } kind;
    void *object;
};

struct mem_engine {
    struct engine base;
    struct engine_ops ops; /* base.ops points here */
    u64 seed;
    struct mem_db *dbs;
    u32 due_db; /* where due() goes on */
    struct grave *graves, *last_grave;
    u64 grave_count;
    struct arena handed_out; /* text made for slices handed out in this transaction */
};

static inline struct mem_engine *mem_of(struct engine *e) { return (struct mem_engine *)e; }
static inline struct mem_db *mem_db_of(struct engine *e, u32 db) { return &mem_of(e)->dbs[db]; }

/* Points a ref at an entry. */
void mem_ref(struct key_ref *ref, u32 db, u64 hash, struct entry *entry);

/* The entry behind a ref was copied to `fresh`: fixes the table and the ref, and
 * frees the old entry (not what it points to). */
void mem_moved(struct engine *e, struct key_ref *ref, struct entry *fresh);

/* Frees an entry that is in no table any more, and its value: now if it is
 * small, else through reclaim(). ref tells the database. */
void mem_discard(struct engine *e, const struct key_ref *ref, struct entry *entry);
void mem_bury(struct mem_engine *m, int kind, void *object);
u64 mem_reclaim(struct engine *e, u32 units);

/* Values up to this many elements are freed on the spot. */
#define MEM_FREE_NOW 64

/* -- hashes and sets: map.c --------------------------------------------------
 * The file says what an item of the table form looks like. */
struct mem_map {
    struct intset ints;        /* the members of a set as long as all_ints; then the rest is empty */
    packed *small;             /* field, value, field, value … (sets: members only); or NULL */
    struct table big;          /* of items, when small is NULL */
    struct ztree *field_due;   /* items with a deadline, by it; NULL when no field has one */
    wheel_pos due_pos;         /* of the nearest field deadline, in mem_db.fields … */
    i64 due_ms;                /* … which is this; 0 when not filed */
    bool is_set;
    bool all_ints;             /* a set in the form Redis calls intset */
    bool was_big;              /* OBJECT ENCODING once said hashtable: it stays so */
};
struct mem_map *mem_map_new(struct mem_engine *m, bool is_set);
struct mem_map *mem_map_copy(struct mem_engine *m, struct mem_map *);
bool mem_map_free_some(struct mem_map *, u32 units); /* true when the struct itself is gone */
u64 mem_map_count(struct mem_map *, i64 now_ms);     /* live fields */
u64 mem_map_stored(struct mem_map *);                /* dead ones included */
size_t mem_map_memory(struct mem_map *, u32 samples);
const char *mem_map_encoding(struct engine *, struct mem_map *);
/* Filing of the nearest field deadline, when the key is renamed, dropped or found due. */
void mem_map_file(struct engine *, struct key_ref *, struct mem_map *);
void mem_map_unfile(struct engine *, u32 db, struct mem_map *);
extern const struct map_ops mem_map_ops;

/* -- lists: seq.c -------------------------------------------------------------- */
struct mem_seq {
    struct rope rope;
};
struct mem_seq *mem_seq_new(struct mem_engine *m);
struct mem_seq *mem_seq_copy(struct mem_engine *m, struct mem_seq *);
bool mem_seq_free_some(struct mem_seq *, u32 units);
size_t mem_seq_memory(struct mem_seq *, u32 samples);
extern const struct seq_ops mem_seq_ops;

/* -- sorted sets: zset.c -------------------------------------------------------- */
struct mem_zset {
    packed *small;       /* member, 8 bytes of score, … in order; or NULL */
    struct table big;    /* of items: f64 score · length · member */
    struct ztree order;  /* the same items */
};
struct mem_zset *mem_zset_new(struct mem_engine *m);
struct mem_zset *mem_zset_copy(struct mem_engine *m, struct mem_zset *);
bool mem_zset_free_some(struct mem_zset *, u32 units);
u64 mem_zset_count(struct mem_zset *);
size_t mem_zset_memory(struct mem_zset *, u32 samples);
const char *mem_zset_encoding(struct engine *, struct mem_zset *);
extern const struct zset_ops mem_zset_ops;

extern const struct str_ops mem_str_ops;

#endif
