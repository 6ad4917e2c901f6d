/* One value in RDB: written in slices, read into an engine, or passed over. The RDB files of
 * src/persist are made of these, and DUMP payloads are nothing else. */
#ifndef MAYFLY_RDB_RDB_VALUE_H
#define MAYFLY_RDB_RDB_VALUE_H

#include "rdb/rdb_format.h"
#include "rdb/rdb_in.h"
#include "rdb/rdb_out.h"
#include "engine/walk.h"

/* -- writing: rdb_save.c ----------------------------------------------------------------------- */

/* How the deadlines of a hash's fields are kept, which Redis can since 7.4. */
enum rdb_field_ttls {
    RDB_TTLS_NATIVE, /* as 7.4 does; the hash is then of a type that needs version 12 */
    RDB_TTLS_AUX,    /* aside, in AUX fields after the value: only in files, any Redis reads the hash */
};

/* What the values of one file have in common. */
struct rdb_job {
    struct rdb_out *out;
    struct engine *eng;
    i64 now_ms; /* the moment that is saved; it may be earlier than the engine's time */
    enum rdb_field_ttls ttls;
};

/* A value being written: rdb_save.c's own, but for `type`, and `budget` after a step. */
struct rdb_save {
    enum rdb_type type; /* what it is written as */
    struct rdb_out *out;
    struct engine *eng;
    i64 now_ms;
    struct key_ref *ref;
    i64 budget;         /* what is left of this step's; negative: it took more */
    enum { SAVE_SURVEY, SAVE_HEAD, SAVE_BODY, SAVE_TTLS, SAVE_DONE } phase;
    bool aux_ttls;      /* field deadlines follow the value */
    bool ready;         /* `blob` holds the whole value, or it is written */
    bool walking;       /* the iterator of this phase is in use */
    u64 elements;       /* of the collection; bytes of a string */
    u64 left;           /* of them, in this walk */
    u64 count;          /* what the head announces: elements or nodes */
    u64 in_node;        /* elements in `blob` */
    size_t node_used;
    i64 min_deadline_ms;
    union element_walk walk;
    struct buf blob, tail;
    struct rdb_stream_save *stream; /* of a stream: rdb_stream.h */
};

/* Begins to write a live value as it was at job->now_ms: fields that died since then are still there,
 * unless reaped. Sets s->type, which goes into the stream before the value (in files, before the key)
 * and is the caller's to write. The job itself may go; what it points to, and `ref`, must stay.
 *
 * Between two steps nothing may be written to the key, not even its deadline: whoever is about to
 * has the rest written first. The engine's iterators must live on meanwhile. The memory engine's
 * do, whatever is committed in between; for the rocks engine all is to be done within one
 * transaction. */
void rdb_save_begin(struct rdb_save *s, const struct rdb_job *job, struct key_ref *ref);

/* The version of RDB that knows such a type: 10, or 12 for what only Redis 7.4 reads. */
int rdb_save_version(const struct rdb_save *s);

#define RDB_SAVE_ALL UINT64_MAX

/* Goes on for about `budget` bytes of work, an element counting for itself and 32 more; stops only
 * between elements, or inside a long string. True: the value is complete, or the writing has failed
 * (out->failed, also when the engine gave other elements than it had counted). */
bool rdb_save_step(struct rdb_save *s, u64 budget);

void rdb_save_release(struct rdb_save *s); /* also before the end */

/* -- reading: rdb_load.c ----------------------------------------------------------------------- */

enum rdb_result {
    RDB_OK,
    RDB_EMPTY,       /* a collection without elements: no key was made. Old versions of Redis wrote such. */
    RDB_DEAD,        /* all its fields were dead: no key was made */
    RDB_UNSUPPORTED, /* a module's value; nothing was read */
    RDB_CORRUPT,     /* in->error says what; no key was made, but one that was to be replaced may be gone */
};

#define RDB_LOAD_BATCH 256 /* even, for a field goes with its value */

/* Where a value goes. */
struct rdb_load {
    struct rdb_in *in;
    struct engine *eng;
    u32 db;
    bytes key;
    bool replace;     /* a key that is there already makes room; otherwise that is an error */
    i64 deadline_ms;  /* of the key; 0: none */
    i64 now_ms;       /* fields that are dead by then are left out; 0: none is */

    /* Called now and then between elements of a long value: a chance to commit and to begin
     * again, or to answer a client. The key must still be there afterwards. May be NULL. */
    void (*breathe)(void *arg);
    void *arg;

    struct key_ref ref; /* out: the key, if RDB_OK */
    enum value_type kind; /* own from here on */
    bool made;          /* the key is there */
    u64 dead;           /* fields left out */
    u64 next_breath;
    struct buf a, b;    /* scratch; kept for the next value */
    u32 waiting;        /* how many of these wait for being added together */
    bytes items[RDB_LOAD_BATCH];
    double scores[RDB_LOAD_BATCH];
};

enum rdb_result rdb_load_value(struct rdb_load *l, enum rdb_type type);

/* After an element of a long value, for those who read its parts: a breath, if it is time. False: the key has
 * gone meanwhile. */
NODISCARD bool rdb_load_breathe(struct rdb_load *l);

/* Applies what RDB_AUX_FIELD_TTL holds to the hash that was loaded before, l->ref. RDB_DEAD: the hash
 * has gone with the last of its fields. */
enum rdb_result rdb_load_field_ttls(struct rdb_load *l, bytes blob);

void rdb_load_release(struct rdb_load *l); /* its scratch */

/* -- passing over: rdb_skip.c ------------------------------------------------------------------ */

/* Reads past a value of any type, streams and modules included (but not modules of 4.0's release
 * candidates, whose values don't say where they end). False: in->error says why. */
NODISCARD bool rdb_skip_value(struct rdb_in *in, enum rdb_type type);
NODISCARD bool rdb_skip_module(struct rdb_in *in); /* the value after the module's id */

/* "string", "list", "stream" …; NULL: no type of ours. */
const char *rdb_type_name(enum rdb_type type);

/* -- payloads: dump.c ---------------------------------------------------------------------------- */

/* What DUMP adds to a value: the version and a checksum. And takes off again; false: they are wrong
 * (any_checksum: that is not looked at). */
void rdb_payload_end(struct buf *payload, u16 version);

/* The whole payload of a key, in out->buf; to be released. out->failed: it could not be read. */
struct ctx;
void rdb_dump(struct ctx *c, struct key_ref *ref, struct rdb_out *out);
NODISCARD bool rdb_payload_body(bytes payload, bool any_checksum, bytes *body);

/* The nine letters of a module's type, which its id holds. */
void rdb_module_name(u64 id, char name[10]);

#endif
