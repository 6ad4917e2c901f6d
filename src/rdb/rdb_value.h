/* One value in RDB: written in slices, read into an engine, or skipped. The RDB files of src/persist and DUMP
 * payloads are made of these. */
#ifndef MAYFLY_RDB_RDB_VALUE_H
#define MAYFLY_RDB_RDB_VALUE_H

#include "rdb/rdb_format.h"
#include "rdb/rdb_in.h"
#include "rdb/rdb_out.h"
#include "engine/walk.h"

/* -- writing: rdb_save.c ----------------------------------------------------------------------- */

/* How field deadlines of a hash are written; Redis has them since 7.4. */
enum rdb_field_ttls {
    RDB_TTLS_NATIVE, /* as Redis 7.4 does; the hash type then needs version 12 */
    RDB_TTLS_AUX,    /* in AUX fields after the value: only in files; any Redis reads the hash */
};

/* Settings common to all values of a file. */
struct rdb_job {
    struct rdb_out *out;
    struct engine *eng;
    i64 now_ms; /* the time that is saved; may be earlier than the engine's time */
    enum rdb_field_ttls ttls;
};

/* A value being written. Callers use `type`, and `budget` after a step; the rest is private to rdb_save.c. */
struct rdb_save {
    enum rdb_type type; /* the RDB type it is written as */
    struct rdb_out *out;
    struct engine *eng;
    i64 now_ms;
    struct key_ref *ref;
    i64 budget;         /* what remains of this step's budget; negative: overdrawn */
    enum { SAVE_SURVEY, SAVE_HEAD, SAVE_BODY, SAVE_TTLS, SAVE_DONE } phase;
    bool aux_ttls;      /* field deadlines follow the value */
    bool ready;         /* `blob` holds the whole value, or it is written */
    bool walking;       /* the iterator of this phase is in use */
    u64 elements;       /* of the collection; bytes of a string */
    u64 left;           /* elements left in this walk */
    u64 count;          /* the header's count: elements or nodes */
    u64 in_node;        /* elements in `blob` */
    size_t node_used;
    i64 min_deadline_ms;
    union element_walk walk;
    struct buf blob, tail;
    struct rdb_stream_save *stream; /* a stream's state: rdb_stream.h */
};

/* Begins to write a live value as it was at job->now_ms: fields that died since then are included, unless
 * they were reaped. Sets s->type, which the caller writes before the value (in files, before the key). The
 * job may be freed; what it points to, and `ref`, must stay.
 *
 * Between two steps nothing may be written to the key, not even its deadline: before a write, the rest of the
 * value has to be written out. The engine's iterators must stay valid meanwhile. The memory engine's do
 * across commits; with the rocksdb engine all steps must be in one transaction. */
void rdb_save_begin(struct rdb_save *s, const struct rdb_job *job, struct key_ref *ref);

/* The RDB version that has this type: 10, or 12 for what only Redis 7.4 reads. */
int rdb_save_version(const struct rdb_save *s);

#define RDB_SAVE_ALL UINT64_MAX

/* Continues for about `budget` bytes of work, an element counting its size and 32 more. Stops only between
 * elements, or inside a long string. True: the value is complete, or writing has failed (out->failed, also if
 * the engine yielded other elements than it had counted). */
bool rdb_save_step(struct rdb_save *s, u64 budget);

void rdb_save_release(struct rdb_save *s); /* also before the end */

/* -- reading: rdb_load.c ----------------------------------------------------------------------- */

enum rdb_result {
    RDB_OK,
    RDB_EMPTY,       /* a collection without elements: no key was made. Old versions of Redis wrote them. */
    RDB_DEAD,        /* all its fields were dead: no key was made */
    RDB_UNSUPPORTED, /* a module's value; nothing was read */
    RDB_CORRUPT,     /* in->error says what; no key was made, but a key to be replaced may be gone */
};

#define RDB_LOAD_BATCH 256 /* even: a field and its value stay together */

/* Destination of a value. */
struct rdb_load {
    struct rdb_in *in;
    struct engine *eng;
    u32 db;
    bytes key;
    bool replace;     /* an existing key is replaced; otherwise it is an error */
    i64 deadline_ms;  /* of the key; 0: none */
    i64 now_ms;       /* fields dead by then are left out; 0: none */

    /* Called now and then between elements of a long value, to commit what has been added and begin another
     * transaction, or to serve clients. The key must still exist afterwards. May be NULL. */
    void (*commit_chunk)(void *arg);
    void *arg;

    struct key_ref ref; /* out: the key, if RDB_OK */
    enum value_type kind; /* private from here on */
    bool made;          /* the key exists */
    u64 dead;           /* fields left out */
    u64 next_commit;
    struct buf a, b;    /* scratch; kept for the next value */
    u32 waiting;        /* elements collected for the next batch */
    bytes items[RDB_LOAD_BATCH];
    double scores[RDB_LOAD_BATCH];
};

enum rdb_result rdb_load_value(struct rdb_load *l, enum rdb_type type);

/* Called after each element by readers of a part of a long value: calls commit_chunk when it is due. False:
 * the key is gone. */
NODISCARD bool rdb_load_commit_chunk(struct rdb_load *l);

/* Applies the content of RDB_AUX_FIELD_TTL to the hash loaded before it, l->ref. RDB_DEAD: its last field was
 * dead, and the hash is gone. */
enum rdb_result rdb_load_field_ttls(struct rdb_load *l, bytes blob);

void rdb_load_release(struct rdb_load *l); /* frees its scratch buffers */

/* -- passing over: rdb_skip.c ------------------------------------------------------------------ */

/* Skips a value of any type, streams and modules included (except modules of 4.0's release candidates, whose
 * values don't say where they end). False: in->error says why. */
NODISCARD bool rdb_skip_value(struct rdb_in *in, enum rdb_type type);
NODISCARD bool rdb_skip_module(struct rdb_in *in); /* the value after the module's id */

/* "string", "list", "stream" …; NULL: not a type of ours. */
const char *rdb_type_name(enum rdb_type type);

/* -- payloads: dump.c ---------------------------------------------------------------------------- */

/* Appends or removes the footer of a DUMP payload: version and checksum. False: it is wrong (any_checksum:
 * the checksum is ignored). */
void rdb_payload_end(struct buf *payload, u16 version);

/* The DUMP payload of a key in out->buf, to be released. out->failed: the key could not be read. */
struct keyspace;
void rdb_dump(struct keyspace *ks, struct key_ref *ref, struct rdb_out *out);
NODISCARD bool rdb_payload_body(bytes payload, bool any_checksum, bytes *body);

/* The nine letters of a module's type, which its id encodes. */
void rdb_module_name(u64 id, char name[10]);

#endif
