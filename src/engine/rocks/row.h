/* Rows: a key as a transaction sees it (row.c, row_write.c).
 *
 * `struct row`, and `row` in the names of this engine, is the cached metadata of one
 * key. A stored row is a key-value pair of a column family ("a row of `deadline`");
 * the rows of a stream or of a companion are its elements (type/rows.c). */
#ifndef MAYFLY_ENGINE_ROCKS_ROW_H
#define MAYFLY_ENGINE_ROCKS_ROW_H

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/rocks/store/store.h"

#define ROW_COMPANION 7 /* type of a companion's row; no key has it (companion.h) */

struct rk;    /* rk.h */
struct rk_db; /* rk.h */
struct delta;
struct ranks;
struct gaps;

/* A key as the transaction sees it: what redis_metadata holds, decoded. key_ref.entry points to one.
 * It stays where it is until the end of the transaction. */
struct row {
    struct row *next_touched, *next_open;
    struct rk_db *db;
    char *key;
    u32 key_len;
    u8 type;              /* enum value_type, or ROW_COMPANION; TYPE_NONE: the key is known to be absent */
    bool touched;         /* will be written at commit */
    bool open;            /* in rk->open: has, or had, a delta */
    bool used;            /* since the last sweep of the cache */
    bool passing;         /* not in the cache: created for one callback of a walk, or unreadable */
    bool field_deadlines;
    bool text;            /* a string whose encoding must not be int */
    bool edited;          /* a string that was changed in place: Redis calls it raw */
    bool unpacked;        /* a collection that Redis would not have packed, for encoding(); not stored */
    bool legacy;          /* the old form is stored, too, or instead */
    bool companion;       /* has a companion that is deleted with the key: companion.h */
    bool kept;            /* is a companion that outlives its key */
    u16 slot;             /* of the key; while it is touched */
    bool unread;          /* a dead string whose value was not read: row_value */
    u64 cost;             /* bytes it was counted with in rk->cached.bytes */
    u32 access;           /* 24 bits for LRU or LFU; not stored */
    i64 deadline_ms;
    u64 version, size;
    union {
        struct { u64 head, tail; };           /* lists */
        struct { u64 dead; i64 dead_at_ms; }; /* hashes: fields.h; 0: not counted */
        u64 before;       /* strings: bytes of the value's memory that precede it: row_take_input */
    };
    struct buf value;     /* strings (row_value); heads of streams; hashes: fields.h */
    struct delta *delta;  /* collections: what this transaction changed; NULL: nothing */
    struct ranks *ranks;  /* big sorted sets: zset.c's; NULL: not loaded */
    struct gaps *gaps;    /* streams: type/rows.h; NULL: none is known */
    struct {              /* as RocksDB has it: what the changes are relative to */
        u8 type;          /* TYPE_NONE: absent */
        i64 deadline_ms;
        i64 field_due_ms; /* the field deadline the hash is filed under; 0: none, or not known */
        u64 version, size;
        bool field_deadlines, kept;
        /* counted as a key with a deadline, also where due_drain.c cleared deadline_ms */
        bool has_deadline;
    } stored;
};

static inline bytes row_key(const struct row *r) { return bytes_of(r->key, r->key_len); }

/* The row of a key, read if it is not cached; type TYPE_NONE when the key is absent. */
struct row *row_get(struct rk *rk, struct rk_db *db, bytes key, u64 hash);
struct row *row_peek(struct rk *rk, struct rk_db *db, bytes key, u64 hash); /* NULL: not cached */
void row_prefetch(struct rk *rk, const struct want *want, u32 n);
/* Marks the row to be written at commit. Call it before any change to the row or its delta. */
void row_touch(struct rk *rk, struct row *r);
/* Turns the row of an absent key into that of a new, empty value; or a present one into absent. O(1). */
void row_create(struct rk *rk, struct row *r, enum value_type type);
void row_drop(struct rk *rk, struct row *r);
void row_set_deadline(struct rk *rk, struct row *r, i64 deadline_ms);
/* A string's value. Call it before every use; after a failed read the value is empty. */
void row_read_value(struct rk *rk, struct row *r);
static inline struct buf *row_value(struct rk *rk, struct row *r)
{
    if (UNLIKELY(r->unread)) row_read_value(rk, r);
    return &r->value;
}
/* The value of a string, which must be in e->input, becomes that memory. False: that is not worth it. */
bool row_take_input(struct rk *rk, struct row *r, bytes value);
void row_clear_value(struct row *r); /* before a string gets another value */
void row_move_value(struct row *to, struct row *from); /* between strings */
/* A string's value becomes memory of its own, which may grow. */
void row_own_value(struct row *r);
/* The family that stores the elements of this collection. */
static inline enum family row_family(const struct row *r)
{
    return r->type < TYPE_STREAM ? FAM_DATA : r->type == TYPE_STREAM ? FAM_STREAM : FAM_COMPANION;
}
/* Whether elements of this collection are, or may be, in RocksDB, under stored.version. */
static inline bool row_has_base(const struct row *r)
{
    bool some = r->stored.size > 0 || r->type == TYPE_STREAM; /* a stream's size is not its number of rows */
    return r->stored.type == r->type && r->stored.version == r->version && some;
}
void row_ref(struct row *r, u64 hash, struct key_ref *ref);
bool row_decode(struct row *r, bytes raw); /* from redis_metadata; false: malformed */
bool row_decode_legacy(struct row *r, bytes raw); /* from `data`: a string of the old form */
void row_malformed(struct rk *rk, const struct row *r); /* logs it, and sets failed */
struct row *row_new(struct rk_db *db, bytes key); /* of an absent key, in no table */
void row_cache(struct rk *rk, struct row *r, u64 hash); /* puts a new one into its table */
struct row *row_unreadable(struct rk *rk, struct row *r); /* a new one that could not be read: not cached */
void row_remember_stored(struct row *r); /* what is stored is what the row says */
void row_free(struct row *r);
bytes row_raw_key(struct rk *rk, const struct row *r); /* of its metadata; uses rk->scratch */
/* P · version of a collection, appended. */
void row_prefix(struct rk *rk, const struct row *r, u64 version, struct buf *out);
void row_write_all(struct rk *rk); /* puts all touched rows into the batch: row_write.c … */
void row_write_long(struct rk *rk); /* … but for long strings, which come at its end */
/* The transaction is over: touched rows are now as stored, or (not kept) have to be read again. */
void row_settle(struct rk *rk, bool kept);
/* Shrinks the cache to this size, or some way. Between transactions. */
void row_sweep(struct rk *rk, u64 bytes);
void row_flush(struct rk *rk, struct rk_db *db); /* drops all rows of a database: O(touched) */
u64 row_lazyfree(struct rk *rk, u32 units);      /* frees up to `units` of them; how many remain */

#endif
