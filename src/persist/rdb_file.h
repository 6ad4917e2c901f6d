/* RDB files: what is around the values. Written key by key, in slices; loaded key by key, under the
 * caller's policy. Neither opens files: bytes go through a sink, and come from a source. */
#ifndef MAYFLY_PERSIST_RDB_FILE_H
#define MAYFLY_PERSIST_RDB_FILE_H

#include "rdb/rdb_value.h"
#include "script/functions.h"
#include "keyspace/keyspace.h"

/* -- writing: rdb_write.c ------------------------------------------------------------------------
 *
 * rdb_out_init, then rdb_file_begin, aux fields, then for each database rdb_file_select and its keys,
 * then rdb_file_end. Keys may come in any order, and a database may be selected again. Whether it went
 * well, out->failed tells, at any time and for good.
 *
 * With RDB_TTLS_AUX the file is of version 10, which Redis 7.0 loads (it then knows nothing of field
 * deadlines, and keeps the fields); with RDB_TTLS_NATIVE of version 12, for Redis 7.4.
 *
 * A key that has to be written while another is under way (because it is about to be changed) goes
 * to an rdb_out without a sink: rdb_file_select, rdb_file_key, rdb_save_step with RDB_SAVE_ALL. What
 * is then in its buf is added with rdb_put_raw() when the other is done; the next key of the file
 * needs an rdb_file_select of its own. */

void rdb_file_begin(const struct rdb_job *job);
void rdb_file_aux(struct rdb_out *out, const char *name, bytes value);
void rdb_file_aux_int(struct rdb_out *out, const char *name, i64 value);
void rdb_file_select(struct rdb_out *out, u32 db);
void rdb_file_sizes(struct rdb_out *out, u64 keys, u64 with_deadline); /* of the database: a hint */

/* What eviction knows of a key; -1: not kept. One of them at most. */
struct rdb_key_use {
    i64 idle_s, frequency;
};

/* Whether a key is to be saved at all: not if it is dead by job->now_ms. */
bool rdb_file_wants(const struct rdb_job *job, struct key_ref *ref);

/* Begins a key of the selected database: its deadline, use, type and name. The value follows by
 * rdb_save_step(s) until that is true; then rdb_save_release(s). See rdb_save_begin for what must not
 * happen between the steps. */
void rdb_file_key(struct rdb_save *s, const struct rdb_job *job, struct key_ref *ref, struct rdb_key_use use);

/* The end mark and the checksum; everything has then reached the sink. */
void rdb_file_end(struct rdb_out *out);

/* -- loading: rdb_read.c ----------------------------------------------------------------------- */

struct rdb_policy {
    bool replace;          /* a key that is there already makes room; otherwise that is an error */
    bool skip_unsupported; /* what we have no use for is left out (module data); otherwise it is an error */
    bool checksum;         /* is verified, unless the file has none */
    bool tail;             /* something else may follow: an AOF */
    u32 db_base;           /* where the file's database 0 goes: the spare ones begin at engine.databases */
    struct node *node; /* whose functions those of the file become (those aside: functions_stage, if the
                            * data goes to the spare databases); NULL: they are nothing we have a use for */

    /* Whether to keep a key even if it is dead by now, and dead fields of it; NULL: no. */
    bool (*load_dead)(void *arg, u32 db, bytes key, i64 deadline_ms);
    /* Every AUX field; may be NULL. */
    void (*aux)(void *arg, bytes name, bytes value);
    /* Something the operator should know, in a sentence; may be NULL. */
    void (*note)(void *arg, const char *text);
    /* A breath inside a long value: see struct rdb_load. May be NULL. */
    void (*breathe)(void *arg);
    void *arg;
};

struct rdb_counts {
    u64 loaded, dead, empty, unsupported; /* keys */
    u64 functions, module_aux;            /* left out */
};

/* Must stay where it is: its parts point to each other. */
struct rdb_loader {
    struct keyspace *ks;
    struct rdb_policy policy;
    struct rdb_in in;
    struct rdb_load load;  /* of the key under way, then the last one */
    struct rdb_counts counts;
    int version;           /* of the file; 0: not read yet */
    u32 db;                /* as the file numbers them */
    u64 may_come;          /* keys that are not announced yet, at most */
    bool last_kept;        /* load.ref is a key of the file that was loaded */
    bool done;
    i64 deadline_ms, idle_s, frequency; /* of the next key; 0 and -1: none */
    struct buf key, text;
    char error[512];       /* what is wrong with the file, and where */
};

/* Loads into ks->eng, which needs an open transaction; the time is ks->now_ms. `size` is that of the
 * file, or RDB_IN_UNKNOWN. The source, and what the policy points to, are borrowed. */
void rdb_loader_init(struct rdb_loader *l, struct keyspace *ks, struct rdb_source *source, u64 size,
                     const struct rdb_policy *policy);

/* Reads on for about `budget` bytes, and stops between keys, where the caller may commit. OK: all is
 * loaded. ERR_AGAIN: there is more. ERR_SYNTAX: the file is damaged, or holds what the policy doesn't
 * want, and `error` tells; keys before that place are in the engine. */
NODISCARD err rdb_loader_step(struct rdb_loader *l, u64 budget);

/* How far it is: for progress, and where an AOF begins after a file that may have a tail. */
static inline u64 rdb_loader_offset(const struct rdb_loader *l) { return rdb_offset(&l->in); }

void rdb_loader_release(struct rdb_loader *l);

#endif
