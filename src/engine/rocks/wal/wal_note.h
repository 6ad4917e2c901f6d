/* How much of the write-ahead logs is known to be on the disk.
 *
 * A log that ends too soon tells nothing about why: the power may have gone before the end was synced,
 * which is what `appendfsync` allows, or a piece of the file was lost later. So the server keeps a
 * note, a small file beside the logs, that it renews after each sync. What the note vouches for has to be
 * there when the logs are read again.
 *
 * The note is synced when a database is opened, and after that only written: if the power goes, an older
 * one may be left, which vouches for less. It is one sector long, and changes as a whole. */
#ifndef MAYFLY_ENGINE_ROCKS_WAL_WAL_NOTE_H
#define MAYFLY_ENGINE_ROCKS_WAL_WAL_NOTE_H

#include "base/bytes.h"

#define WAL_NOTE_NAME "mayfly-synced"

struct wal_note {
    u64 manifest;  /* the number of the MANIFEST: each time a database is opened it gets a new one */
    u64 first_log; /* the first one since the database was opened … */
    u64 before;    /* … which begins with the sequence number after this one */
    u64 sealed_log, sealed_size; /* the newest log that is complete and synced; 0: none is */
    u64 log, size; /* the newest log, and so many bytes of it are synced */
    u64 sequence;  /* everything up to this sequence number is synced */
};

bool wal_note_read(const char *dir, struct wal_note *out); /* false: there is none, or it is damaged */

int wal_note_open(const char *dir); /* for writing: a descriptor, or -1 */
bool wal_note_write(int fd, const struct wal_note *n);

#endif
