/* Looks at the folder before RocksDB opens it.
 *
 * With create_if_missing RocksDB takes a folder without the file CURRENT for an empty one, makes a new
 * database there and deletes the files of the old one. So that option is set only for a folder without a
 * database, and an incomplete database is refused before RocksDB sees it. */
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

/* True if another process has it open; `why`, if given, names it. RocksDB finds out only when it opens a
 * database for writing, and the WAL of a running server must not be verified, let alone moved, before that.
 * Not for a folder that this process has open: closing LOCK would release its lock. */
bool store_folder_in_use(const char *dir, struct buf *why);

#endif
