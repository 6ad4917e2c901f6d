/* A snapshot on its way into an RDB file: the engine's keys of one moment (engine.h, snapshot_ops), written
 * in slices between ticks. Keys that are about to change are written ahead of their turn.
 *
 * Dead keys (by the moment's time) are saved only if that is wanted. */
#ifndef MAYFLY_PERSIST_SAVER_H
#define MAYFLY_PERSIST_SAVER_H

#include "persist/rdb_file.h"

struct saver_options {
    bool compress, checksum;
    bool aof_base;  /* says so in an AUX field, as Redis does */
    bool commands;  /* not RDB but the commands that make the data: an AOF's base without RDB preamble */
    bool keep_use;  /* idle time or frequency of every key, as the eviction policy has it; not in commands */
    bool with_dead; /* dead keys and fields, too: whoever loads this is told when they go, or has to tell */
    const char *redis_version, *mayfly_version; /* for AUX fields; NULL: left out */
    const struct function_set *functions; /* NULL: none */
    void (*aux)(void *arg, struct rdb_out *out); /* writes more of them (rdb_file_aux); may be NULL */
    void *arg;
};

struct saver_progress {
    u64 keys, keys_total; /* the total is as of the moment */
    u64 ahead;            /* of the keys: written ahead of their turn */
    u64 bytes;
    u64 waiting;          /* bytes written ahead that wait in memory for the key under way to be complete */
};

struct saver;

/* The moment is now, within a tick. `sink` is borrowed, and gets everything, the end mark included; commands
 * it gets in pieces that end where one ends. NULL: the engine can't take a snapshot just now; try again
 * later. */
struct saver *saver_begin(struct keyspace *ks, const struct saver_options *o, struct rdb_sink *sink);

/* Goes on for about `budget` bytes. True: everything has been given to the sink, or it has failed
 * (saver_failed). To be called between ticks; with RDB_SAVE_ALL it writes all the rest. */
bool saver_step(struct saver *s, u64 budget);

bool saver_failed(const struct saver *s); /* the sink, or the engine, gave up */
struct saver_progress saver_progress(const struct saver *s);
void saver_free(struct saver *s); /* also before the end: what is in the sink is then incomplete */

/* The same in one go, without a snapshot: nothing else runs meanwhile. For SAVE and at shutdown, also while a
 * snapshot is under way. False: the sink gave up. */
bool saver_save_now(struct keyspace *ks, const struct saver_options *o, struct rdb_sink *sink);

#endif
