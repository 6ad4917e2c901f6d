/* The server's choice of a storage engine: opening it, its folder, and what only one engine has. Everything
 * else uses the engine through engine.h. */
#ifndef MAYFLY_SERVER_STORAGE_H
#define MAYFLY_SERVER_STORAGE_H

#include "server/server.h"

#define STORAGE_FOLDER "rocksdb" /* below `dir` */

/* Opens the configured engine. NULL: the log says why. */
struct engine *storage_open(struct server *s, u64 seed);

/* Closes the database and opens it again: data and functions are read from disk, as by a restart. Called
 * between a commit and the next command, while no snapshot is open. Exits if it can't be opened. */
void storage_reopen(struct server *s);

/* Loads what the engine stores beside the data: the functions. False: the log says why not. */
NODISCARD bool storage_recall(struct server *s);

/* True if the engine has to be closed at exit. The kernel frees plain memory faster. */
bool storage_must_close(const struct server *s);

void storage_apply_config(struct server *s); /* what CONFIG SET may have changed */
void storage_cron(struct server *s);         /* ten times a second */

/* Sets node.refuse_writes: at the start of a tick, and when a commit has failed. */
void storage_note_refusal(struct server *s);

/* The offline checker, on the folder of a server (`dir`) or on RocksDB's own within it. */
int storage_check(const char *dir);

#endif
