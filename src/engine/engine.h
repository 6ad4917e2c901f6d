/* The engine: typed primitives under the commands. Every Redis command is
 * written once, above this table; each engine implements the table once.
 *
 * - An engine belongs to one region and is single-threaded: there is always
 *   exactly one open transaction, from begin() to commit(), and a primitive sees
 *   the writes made before it in the same transaction.
 * - The engine stores deadlines but does not judge keys by them: find() also
 *   returns dead keys, and the keyspace's gate hides them. Hash *fields* are
 *   hidden here, because only the engine can count the live ones cheaply; it
 *   uses the same predicate with the now_ms of begin().
 * - Failure is sticky, like ferror(): a primitive that cannot reach its storage
 *   answers "absent" and sets `failed`; exec looks once per command and answers
 *   -IOERR. If the command may have written, the whole transaction is given up
 *   with abort(), for it is all or nothing. So commands read without an error
 *   branch at every call. (docs/decisions/001-sticky-engine-errors.md)
 * - A collection is never empty: the caller that removes the last element drops the key.
 * - Slices handed out live until the next primitive that writes to the same
 *   key, or until commit(), whichever comes first. */
#ifndef MAYFLY_ENGINE_ENGINE_H
#define MAYFLY_ENGINE_ENGINE_H

#include "base/buf.h"
#include "base/err.h"
#include "engine/companion.h"
#include "engine/deadline.h"
#include "engine/disk.h"
#include "engine/handles.h"

/* Strings. put creates or replaces a key of any type; deadline_ms replaces its deadline. */
struct str_ops {
    void (*put)(struct engine *, u32 db, bytes key, struct key_ref *ref, bytes value, i64 deadline_ms);
    /* ^ ref: in, the key as found, or a ref whose entry is NULL when it is absent; out, the new key.
     * A value in `input` may be kept where it is: see there. */
    /* The same, but the value stays text even if it reads as an integer: for INCRBYFLOAT, whose result
     * Redis encodes as embstr. */
    void (*put_text)(struct engine *, u32 db, bytes key, struct key_ref *ref, bytes value, i64 deadline_ms);
    void (*get)(struct engine *, struct key_ref *, struct str_view *);
    size_t (*length)(struct engine *, struct key_ref *);
    bool (*get_int)(struct engine *, struct key_ref *, i64 *); /* false unless it is one, or reads as one */
    void (*set_int)(struct engine *, struct key_ref *, i64);   /* keeps the deadline */
    /* Resize to new_len (new bytes are zero) and hand out the writable bytes,
     * which the caller may change until the next primitive. Keeps the deadline. */
    char *(*edit)(struct engine *, struct key_ref *, size_t new_len);
};

/* Hashes and sets. A set's values are empty. */
struct map_ops {
    bool (*get)(struct engine *, struct key_ref *, bytes field, bytes *value); /* value may be NULL */
    /* True when the field is new. A replaced field loses its deadline unless keep_deadline. */
    bool (*put)(struct engine *, struct key_ref *, bytes field, bytes value, bool keep_deadline);
    /* Adds n elements at once, when a file is loaded: members, or fields and values in turn. Returns n, or
     * the index of an element that exists already or occurs twice; which others were added is then
     * undefined. */
    u32 (*fill)(struct engine *, struct key_ref *, const bytes *v, u32 n);
    bool (*del)(struct engine *, struct key_ref *, bytes field);
    void (*iter)(struct engine *, struct key_ref *, struct map_iter *);
    bool (*next)(struct map_iter *, bytes *field, bytes *value); /* value may be NULL */
    u64 (*scan)(struct engine *, struct key_ref *, u64 cursor, u32 count, pair_fn, void *arg);
    bool (*random)(struct engine *, struct key_ref *, u64 *rng, bytes *field, bytes *value);
    /* Field deadlines (hashes only). False: no such field. 0: no deadline. */
    bool (*field_deadline)(struct engine *, struct key_ref *, bytes field, i64 *deadline_ms);
    void (*set_field_deadline)(struct engine *, struct key_ref *, bytes field, i64 deadline_ms);
    /* As it is stored: also a field that is dead. deadline_ms: 0 for none. */
    bool (*stored)(struct engine *, struct key_ref *, bytes field, bytes *value, i64 *deadline_ms);
    /* Deletes up to max fields whose deadline has passed; calls fn before each. */
    u32 (*reap)(struct engine *, struct key_ref *, u32 max, pair_fn, void *arg);
    bool (*reap_field)(struct engine *, struct key_ref *, bytes field, pair_fn, void *arg); /* if dead */
    /* Calls fn (with no value) for up to max fields whose deadline is <= until_ms, roughly in that order, and
     * leaves them there. fn must not change the hash. Returns how many. */
    u32 (*due)(struct engine *, struct key_ref *, i64 until_ms, u32 max, pair_fn, void *arg);
    bool (*has_field_deadlines)(struct engine *, struct key_ref *);
    u64 (*dead_fields)(struct engine *, struct key_ref *); /* not yet removed by reap() */
};

/* Lists. Indexes count from the head and are below size(). */
struct seq_ops {
    void (*push)(struct engine *, struct key_ref *, bool front, bytes value);
    /* n elements of one command */
    void (*push_all)(struct engine *, struct key_ref *, bool front, const bytes *v, u32 n);
    void (*fill)(struct engine *, struct key_ref *, const bytes *v, u32 n); /* to the back, at once */
    void (*pop)(struct engine *, struct key_ref *, bool front, struct buf *out); /* appended to out */
    void (*get)(struct engine *, struct key_ref *, u64 index, bytes *value);
    void (*set)(struct engine *, struct key_ref *, u64 index, bytes value);
    void (*insert)(struct engine *, struct key_ref *, u64 index, bytes value); /* before it; size() appends */
    void (*erase)(struct engine *, struct key_ref *, u64 index, u64 count);
    void (*iter)(struct engine *, struct key_ref *, u64 index, bool reverse, struct seq_iter *);
    bool (*next)(struct seq_iter *, bytes *value);
    void (*erase_current)(struct seq_iter *); /* the element of the last next(); the walk continues */
};

/* Sorted sets. */
struct zset_ops {
    bool (*score)(struct engine *, struct key_ref *, bytes member, double *score);
    bool (*put)(struct engine *, struct key_ref *, bytes member, double score); /* true when new */
    /* As map.fill. */
    u32 (*fill)(struct engine *, struct key_ref *, const bytes *members, const double *scores, u32 n);
    bool (*del)(struct engine *, struct key_ref *, bytes member);
    bool (*rank)(struct engine *, struct key_ref *, bytes member, u64 *rank);
    /* How many entries precede the position where this seek starts (reverse is
     * ignored): ZCOUNT is the difference of two. For ZSEEK_SCORE: entries with
     * score < bound, or <= bound when exclusive; ZSEEK_LEX likewise. */
    u64 (*before)(struct engine *, struct key_ref *, const struct zset_seek *);
    void (*iter)(struct engine *, struct key_ref *, const struct zset_seek *, struct zset_iter *);
    bool (*next)(struct zset_iter *, bytes *member, double *score);
    /* Removes ranks [from, from + count), calling fn (may be NULL) before each. */
    void (*erase)(struct engine *, struct key_ref *, u64 from, u64 count, pair_fn, void *arg);
    u64 (*scan)(struct engine *, struct key_ref *, u64 cursor, u32 count, pair_fn, void *arg);
};

/* Streams: rows in the order of their names (memcmp, then length), and a head of a few bytes. What
 * rows and head mean is defined above the engine (xstream/xstream.h): entries, groups, consumers and pending
 * entries are all rows. Unlike other collections a stream may have no row at all; only drop() ends it. */
struct rows_ops {
    bytes (*head)(struct engine *, struct key_ref *);
    /* `size` is what size() returns from now on. At most ROWS_HEAD_MAX bytes. */
    void (*set_head)(struct engine *, struct key_ref *, bytes head, u64 size);
    bool (*get)(struct engine *, struct key_ref *, bytes row, bytes *value); /* value may be NULL */
    void (*put)(struct engine *, struct key_ref *, bytes row, bytes value);
    bool (*del)(struct engine *, struct key_ref *, bytes row);
    u64 (*erase)(struct engine *, struct key_ref *, bytes from, bytes to); /* from <= row < to; how many */
    /* The same without counting, which may cost less for many rows. `about`: how many, roughly. */
    void (*wipe)(struct engine *, struct key_ref *, bytes from, bytes to, u64 about);
    /* From the first row >= `from` up; reverse: from the last row <= `from` down. */
    void (*iter)(struct engine *, struct key_ref *, bytes from, bool reverse, struct rows_iter *);
    bool (*next)(struct rows_iter *, bytes *row, bytes *value); /* value may be NULL */
    /* Ends a walk before next() has returned false; may be called again. Without it the walk keeps its
     * resources until the transaction ends. */
    void (*done)(struct rows_iter *);
};

#define ROWS_HEAD_MAX 128 /* bytes of a head */

/* Metadata: what the server keeps beside the data, as rows of a kind, each with a name. Changes belong to the
 * open transaction; an engine that loses its data with the process keeps no metadata either. */
enum meta_kind {
    META_FUNCTIONS, /* script/function_rows.c */
    META_CLUSTER,   /* cluster/cluster.c: nodes, and how far regions have applied their logs */
    META_SITE,      /* exec/region_site.c: what a site knows beside its keys */
};
#define ENGINE_META_MAX ((size_t)40 << 20) /* bytes of a value */

struct meta_ops {
    void (*put)(struct engine *, enum meta_kind, bytes name, bytes value); /* creates or replaces a row */
    void (*del)(struct engine *, enum meta_kind, bytes name);              /* the row may be absent */
    /* All rows of a kind as of the last commit, in the order of their names (memcmp, then length). fn may
     * put and delete rows; the walk does not see that. */
    void (*each)(struct engine *, enum meta_kind, pair_fn, void *arg);
};

/* The data of one moment, handed out key by key while commands continue to change it: one snapshot at a
 * time, no second copy of the data, one mark per key.
 *
 * - begin() is the moment. From then on the engine calls `keep` before it changes or deletes a key of that
 *   moment which was not handed out yet, or which was handed out last: the snapshot has to read all it needs
 *   of the key during that call. A big value that is deleted as a whole (DEL, expiry, FLUSHALL) is not
 *   passed to `keep`; the engine retains it and hands it out in its turn.
 * - next() hands out each key exactly once, in any order, dead ones too. Read `ref` through ref_of, which
 *   need not be the engine itself. It stays as it was at the moment until the following next(), or until
 *   keep() has been called with the same key. ref->db is the database at the moment.
 *   True with ref->type TYPE_NONE and no entry: no key found yet, call again (this bounds a call's time).
 *   TYPE_NONE with an entry is a companion that stays (companion.h); `keep` is called with those, too.
 * - Keys created after the moment are neither handed out nor passed to `keep`.
 * - Between two calls of next() ticks may be committed. */
struct snapshot_ops {
    bool (*begin)(struct engine *, key_fn keep, void *arg); /* false: not just now, try again later */
    /* Likewise, of the last commit: what the open transaction has changed is not in it. NULL: the engine has
     * no such thing. */
    bool (*begin_stored)(struct engine *);
    bool (*next)(struct engine *, struct key_ref *ref, struct engine **ref_of); /* false: that was all */
    void (*end)(struct engine *); /* after the last key, or earlier: the rest is dropped */
    /* Whether changing this key now would make `keep` read so much that the command should wait. If so the
     * key is handed out before others, unless many are waited for. */
    bool (*heavy)(struct engine *, u32 db, bytes key);
};

struct engine_ops {
    const char *name;
    void (*close)(struct engine *);

    void (*begin)(struct engine *, i64 now_ms); /* opens the tick's transaction */
    /* Ends the transaction: all of it is kept, durable as configured, or (false) nothing is. */
    bool (*commit)(struct engine *, u64 seq);
    void (*abort)(struct engine *); /* ends the transaction: nothing of it is kept */
    void (*prefetch)(struct engine *, const struct want *, u32 n);
    /* Hands out all elements of n sets and sorted sets, with 1 as the score of a set's: the
     * collections in any order, the elements of one together. Elements live as long as the
     * transaction. NULL: walking over one after the other costs no more. */
    void (*gather)(struct engine *, struct key_ref *const *, u32 n, gather_fn, void *arg);

    bool (*find)(struct engine *, u32 db, bytes key, struct key_ref *); /* on false, entry is NULL */
    /* A new, empty collection under a key that is absent. */
    void (*create)(struct engine *, u32 db, bytes key, enum value_type, struct key_ref *);
    void (*expect)(struct engine *, u32 db, u64 keys); /* a hint: about to create so many */
    void (*drop)(struct engine *, struct key_ref *); /* O(1): reclaim() frees; entry becomes NULL */
    void (*set_deadline)(struct engine *, struct key_ref *, i64 deadline_ms); /* 0 removes */
    /* The target must be absent. It gets the deadline. */
    void (*rename)(struct engine *, struct key_ref *, u32 db, bytes key);
    void (*copy)(struct engine *, struct key_ref *, u32 db, bytes key, struct key_ref *out);

    u64 (*size)(struct engine *, struct key_ref *); /* elements (live fields); bytes of a string */
    const char *(*encoding)(struct engine *, struct key_ref *); /* Redis's name for it */
    size_t (*usage)(struct engine *, struct key_ref *, u32 samples); /* bytes; samples 0 = all */
    u32 (*access)(struct engine *, struct key_ref *);  /* 24 bits for LRU or LFU */
    void (*set_access)(struct engine *, struct key_ref *, u32 bits);

    u64 (*count)(struct engine *, u32 db);   /* keys, dead ones not yet reclaimed included */
    u64 (*expires)(struct engine *, u32 db); /* keys with a deadline */
    u64 (*timed_hashes)(struct engine *, u32 db); /* hashes with a field that has one */
    /* Returns the next cursor, 0 = done. The ref passed to fn is valid during the call only. */
    u64 (*scan)(struct engine *, u32 db, u64 cursor, u32 count, key_fn, void *arg);
    bool (*random)(struct engine *, u32 db, u64 *rng, struct key_ref *);
    bool (*random_volatile)(struct engine *, u32 db, u64 *rng, struct key_ref *); /* with a deadline */
    void (*flush)(struct engine *, u32 db); /* O(1); reclaim() frees */
    void (*swap)(struct engine *, u32 a, u32 b);

    bool (*has_deadlines)(struct engine *, u32 db); /* any key or any field */

    /* Expiry. due() offers up to max keys whose own deadline, or one of whose fields' deadlines, is
     * <= until_ms; fn drops the key or reaps fields. Keys of staging databases are not offered, and while
     * these hold keys an engine may offer none at all. A hash that is heavy for a snapshot is offered later.
     * A dead key that fn leaves alone may never be offered again: caps.due_again.
     * O(offered), never a scan. Returns how many references it visited. */
    u32 (*due)(struct engine *, i64 until_ms, u32 max, key_fn, void *arg);
    i64 (*next_due)(struct engine *); /* no key is due before this; INT64_MAX: none at all */
    void (*forecast)(struct engine *, u32 db, due_span_fn, void *arg); /* counted keys by deadline */
    double (*mean_deadline)(struct engine *, u32 db); /* over keys with one; INFO's avg_ttl */

    /* Frees up to `units` elements of dropped values; returns how many objects remain. */
    u64 (*reclaim)(struct engine *, u32 units);

    struct snapshot_ops snapshot;
    struct str_ops str;
    struct map_ops map;
    struct seq_ops seq;
    struct zset_ops zset;
    struct rows_ops rows;
    struct meta_ops meta;
    struct companion_ops companion; /* companion.h: metadata beside a key's value */
    const struct disk_ops *disk; /* NULL: the data is lost with the process */
};

/* Thresholds at which OBJECT ENCODING changes its answer, by Redis's names. */
struct engine_limits {
    i64 hash_max_listpack_entries, hash_max_listpack_value;
    i64 zset_max_listpack_entries, zset_max_listpack_value;
    i64 set_max_intset_entries, set_max_listpack_entries, set_max_listpack_value;
    i64 list_max_listpack_size; /* negative: -1 4 KB … -5 64 KB; positive: entries */
};

/* What a command means by the put that follows. A put has only the new value, but replicating increments
 * needs to know which puts are increments (site/capture.h). Engines ignore it. */
enum engine_intent {
    INTENT_WRITE,    /* the value is written */
    INTENT_IN_PLACE, /* a string changes, and its deadline stays: SET KEEPTTL */
    INTENT_ADD,      /* something is added to a string, field or score */
};

/* The replication position: stored with the data by the next commit, if the engine is durable. */
struct engine_repl_position {
    struct buf text;
    bool changed;
};
#define ENGINE_REPL_POSITION_MAX 4096 /* bytes */

struct engine {
    const struct engine_ops *ops;

    /* What it can do: fixed once it is open. */
    struct {
        bool durable;           /* everything survives a restart: has ops->disk */
        bool reads_only;        /* reads write nothing: dead keys they find are hidden and left to due() */
        bool prefetch_elements; /* prefetch() makes use of them */
        u32 prefetch_ahead;     /* how many wants prefetch() makes best use of */
        u32 value_copies;       /* of a long value that a commit makes, beside `input` */
        bool due_again;         /* due() offers a dead key that was left alone again, after a commit */
        u32 draw_cost;          /* steps of a walk that one map.random costs, about; 3 at least */
    } caps;
    /* After these `databases` come as many staging databases. All primitives take their numbers, but clients
     * never see them: a full sync loads a new dataset there and then swaps it with the one that is served,
     * in one transaction. They are empty when an engine starts. */
    u32 databases;

    /* Inputs: the caller sets them. */
    struct engine_limits limits; /* may change at run time (CONFIG SET) */
    struct engine_repl_position repl_position;
    i64 now_ms;         /* set by begin(): the time by which things are dead */
    u32 fresh_access;   /* access bits a key gets when it is written */
    struct buf *input;  /* The memory of the running command's arguments. str.put may take it over with a
                         * long value, instead of copying that, and leaves this empty; the bytes stay in
                         * place until the key is changed again. NULL: the arguments belong to others. */
    struct region_site *site; /* whose tables stand in place of ours: exec/region_site.h; or NULL */
    bool relaxed;       /* this commit may become durable later: it can be repeated if it is lost */
    enum engine_intent intent; /* of the next put; stated just before it, unless it is INTENT_WRITE */
    u64 intent_at;      /* for seq.erase_current(): the index of the element */
    bool captured;      /* what is written becomes effects for other sites (site/capture.h) */
    u8 gid;             /* of the site whose data this is (site/site.h); 0: none. XADD * makes IDs that end
                         * in it. */
    bool report_expiry; /* every expiry has to be reported (replication stream, expiry-stream), so the engine
                         * itself deletes nothing because of its deadline: only drop() and reap() do */

    /* Outputs. */
    bool failed;   /* an operation could not read or write: the transaction can only be aborted */
    u64 applied;   /* sequence number of the last commit, also across restarts */
    u64 reclaimed; /* dropped values that reclaim() has finished freeing */
    u64 held;      /* approximate bytes of dropped values that a snapshot still retains */
};

#endif
