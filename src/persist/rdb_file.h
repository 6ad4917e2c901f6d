/* RDB files: everything around the values. Written key by key, in slices; loaded key by key, under the
 * caller's policy. Neither opens files: bytes go to a sink, and come from a source. */
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

/* A key's idle time or frequency, for eviction; -1: not kept. At most one of them is set. */
struct rdb_key_use {
    i64 idle_s, frequency;
};

/* Whether a key is to be saved: not if it is dead by job->now_ms. */
bool rdb_file_wants(const struct rdb_job *job, struct key_ref *ref);

/* Begins a key of the selected database: its deadline, use, type and name. Its value follows by
 * rdb_save_step(s), until that returns true, and rdb_save_release(s). See rdb_save_begin for what must not
 * happen between the steps. */
void rdb_file_key(struct rdb_save *s, const struct rdb_job *job, struct key_ref *ref, struct rdb_key_use use);

/* Writes the end mark and the checksum; everything has then reached the sink. */
void rdb_file_end(struct rdb_out *out);

/* -- loading: rdb_read.c ----------------------------------------------------------------------- */

struct rdb_policy {
    bool replace;          /* an existing key is replaced; otherwise it is an error */
    bool skip_unsupported; /* module data is skipped; otherwise it is an error */
    bool checksum;         /* verify it, unless the file has none */
    bool tail;             /* something may follow the file: an AOF */
    u32 db_base;           /* where the file's database 0 goes: staging databases begin at engine.databases */
    struct node *node;     /* gets the file's functions (staged, if the data goes to the staging databases:
                            * functions_stage); NULL: functions are skipped */

    /* Whether to keep a key, and its fields, although dead by now; NULL: no. */
    bool (*load_dead)(void *arg, u32 db, bytes key, i64 deadline_ms);
    /* Called with the code of every library of functions, in place of loading it; may be NULL. */
    void (*library)(void *arg, bytes code);
    struct region *site;   /* gets the metadata of a site (region_site_take_log); NULL: it is skipped */

    /* Called with every other AUX field; may be NULL. */
    void (*aux)(void *arg, bytes name, bytes value);
    /* Called with a sentence for the operator; may be NULL. */
    void (*note)(void *arg, const char *text);
    /* Commits a part of a long value: see struct rdb_load. May be NULL. */
    void (*commit_chunk)(void *arg);
    void *arg;
};

struct rdb_counts {
    u64 loaded, dead, empty, unsupported; /* keys */
    u64 functions, module_aux;            /* skipped */
};

/* Must not be moved: its parts point to each other. */
struct rdb_loader {
    struct keyspace *ks;
    struct rdb_policy policy;
    struct rdb_in in;
    struct rdb_load load;  /* of the current key, then the last one */
    struct rdb_counts counts;
    int version;           /* of the file; 0: not read yet */
    u32 db;                /* the file's number */
    u64 may_come;          /* upper limit of keys not announced yet */
    bool last_kept;        /* load.ref is a key that was loaded from this file */
    bool done;
    i64 deadline_ms, idle_s, frequency; /* of the next key; 0 and -1: none */
    struct buf key, text;
    char error[512];       /* what is wrong with the file, and where */
};

/* Loads into ks->eng, which needs an open transaction; the time is ks->now_ms. `size` is that of the
 * file, or RDB_IN_UNKNOWN. The source, and what the policy points to, are borrowed. */
void rdb_loader_init(struct rdb_loader *l, struct keyspace *ks, struct rdb_source *source, u64 size,
                     const struct rdb_policy *policy);

/* Reads about `budget` bytes and stops between keys, where the caller may commit. OK: all is loaded.
 * ERR_AGAIN: there is more. ERR_SYNTAX: the file is damaged, or holds something the policy refuses; `error`
 * says what. Keys before that are in the engine. */
NODISCARD err rdb_loader_step(struct rdb_loader *l, u64 budget);

/* Offset in the file: for progress, and where an AOF begins after its RDB preamble. */
static inline u64 rdb_loader_offset(const struct rdb_loader *l) { return rdb_offset(&l->in); }

void rdb_loader_release(struct rdb_loader *l);

#endif
