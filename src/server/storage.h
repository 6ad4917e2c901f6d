/* The server and its storage engine: which one, where its data is, and what only
 * one of them has. Everything else talks to the engine through engine.h. */
#ifndef MAYFLY_SERVER_STORAGE_H
#define MAYFLY_SERVER_STORAGE_H

#include "server/server.h"

#define STORAGE_FOLDER "rocksdb" /* below `dir` */

/* Opens the configured engine. NULL: the log says why. */
struct engine *storage_open(struct server *s, u64 seed);

/* Takes up what the engine has kept beside the data: the functions. False: the log says why it can't. */
NODISCARD bool storage_recall(struct server *s);

/* Whether the engine is to be closed at the end: what is only in memory, the kernel frees quicker. */
bool storage_must_close(const struct server *s);

void storage_apply_config(struct server *s); /* what CONFIG SET may have changed */
void storage_cron(struct server *s);         /* ten times a second */

/* Why writes are refused just now goes to the node: at the start of a tick, and when a commit failed. */
void storage_note_refusal(struct server *s);

/* The offline checker, on the folder of a server (`dir`) or on RocksDB's own within it. */
int storage_check(const char *dir);

#endif
