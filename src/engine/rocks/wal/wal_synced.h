/* How much of the write-ahead logs is known to be on the disk.
 *
 * A log that ends too soon does not show why: the power may have failed before the end was synced, which
 * `appendfsync` allows, or a part of the file was lost later. So the server keeps a small file beside the
 * logs, `mayfly-synced`, and rewrites it after each sync. What it says is synced has to be there when the
 * logs are read again.
 *
 * The file is synced when a database is opened, and after that only written: a power cut may leave an older
 * version, which promises less. It is one sector long, so it changes as a whole. */
#ifndef MAYFLY_ENGINE_ROCKS_WAL_WAL_SYNCED_H
#define MAYFLY_ENGINE_ROCKS_WAL_WAL_SYNCED_H

#include "base/bytes.h"

#define WAL_SYNCED_NAME "mayfly-synced"

struct wal_synced {
    u64 manifest;  /* the number of the MANIFEST: each time a database is opened it gets a new one */
    u64 first_log; /* the first one since the database was opened … */
    u64 before;    /* … which begins with the sequence number after this one */
    u64 sealed_log, sealed_size; /* the newest log that is complete and synced; 0: none */
    u64 log, size; /* the newest log, and how many bytes of it are synced */
    u64 sequence;  /* everything up to this sequence number is synced */
};

bool wal_synced_read(const char *dir, struct wal_synced *out); /* false: there is none, or it is damaged */

int wal_synced_open(const char *dir); /* for writing: a descriptor, or -1 */
bool wal_synced_write(int fd, const struct wal_synced *n);

#endif
