/* Writes a snapshot to an RDB file: the engine's keys of one moment (engine.h, snapshot_ops), in slices
 * between ticks. Keys that are about to change are written ahead of their turn.
 *
 * Dead keys (by the moment's time) are saved only if requested. */
#ifndef MAYFLY_PERSIST_SAVER_H
#define MAYFLY_PERSIST_SAVER_H

#include "persist/rdb_file.h"

struct saver_options {
    bool compress, checksum;
    bool aof_base;  /* adds the AUX field that says so, as Redis does */
    bool commands;  /* commands instead of RDB: an AOF base without RDB preamble */
    bool keep_use;  /* idle time or frequency of every key, as the eviction policy has it; not in commands */
    bool with_dead; /* dead keys and fields, too: their deletion is sent, or reported, later */
    bool stored;    /* of the last commit, whatever the open transaction has changed: for engines that can */
    i64 dead_by_ms; /* dead by this time; 0: by the moment's */
    const char *redis_version, *mayfly_version; /* for AUX fields; NULL: left out */
    const struct function_set *functions; /* NULL: none */
    void (*aux)(void *arg, struct rdb_out *out); /* writes more of them (rdb_file_aux); may be NULL */
    void *arg;
};

struct saver_progress {
    u64 keys, keys_total; /* the total at the moment of the snapshot */
    u64 ahead;            /* keys written ahead of their turn */
    u64 bytes;
    u64 waiting;          /* bytes written ahead that wait in memory for the current key to be complete */
};

struct saver;

/* Takes the snapshot now, within a tick. `sink` is borrowed and gets everything, the end mark included;
 * commands arrive in pieces that end where a command ends. NULL: the engine can't take a snapshot now; try
 * again later. */
struct saver *saver_begin(struct keyspace *ks, const struct saver_options *o, struct rdb_sink *sink);
/* The same of several regions' keyspaces, one after the other in one file, each as it is now. */
struct saver *saver_begin_all(struct keyspace *const *all, u32 n, const struct saver_options *o,
                              struct rdb_sink *sink);

/* Continues for about `budget` bytes. True: the sink has got everything, or it has failed (saver_failed).
 * Call it between ticks; RDB_SAVE_ALL writes all the rest. */
bool saver_step(struct saver *s, u64 budget);

bool saver_failed(const struct saver *s); /* the sink or the engine failed */
struct saver_progress saver_progress(const struct saver *s);
void saver_free(struct saver *s); /* also before the end: the sink's content is then incomplete */

/* Saves everything at once, without a snapshot: nothing else runs meanwhile. For SAVE and shutdown, also
 * while a snapshot is under way. False: the sink failed. */
bool saver_save_now(struct keyspace *ks, const struct saver_options *o, struct rdb_sink *sink);

#endif
