/* What is in the folder before RocksDB is asked to open it.
 *
 * RocksDB, told to create what is missing, takes a folder without the file CURRENT for an empty one, makes a
 * new database there and deletes the files of the old one. So it is told to create only in a folder that
 * holds no database, and everything else that is not whole is refused before RocksDB sees it. */
#ifndef MAYFLY_ENGINE_ROCKS_STORE_STORE_FOLDER_H
#define MAYFLY_ENGINE_ROCKS_STORE_STORE_FOLDER_H

#include "base/buf.h"

enum store_folder {
    STORE_FOLDER_EMPTY,       /* or missing: nothing of RocksDB's is there */
    STORE_FOLDER_INTERRUPTED, /* an empty database was being created when the process ended */
    STORE_FOLDER_DATABASE,    /* CURRENT is there, and so is the MANIFEST that it names */
    STORE_FOLDER_INCOMPLETE,  /* files of a database, but not what names them */
};

/* `why`, if given, gets what an incomplete one lacks and what to do. Changes nothing. */
enum store_folder store_folder_look(const char *dir, struct buf *why);

/* Whether another process has it open; `why`, if given, names it. RocksDB finds out only when it opens a
 * database for writing, and the logs of a running server must not be judged, let alone moved, before that.
 * Not for a folder that this process has open: closing LOCK would release its lock. */
bool store_folder_in_use(const char *dir, struct buf *why);

#endif
