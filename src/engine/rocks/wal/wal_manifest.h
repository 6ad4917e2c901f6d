/* What RocksDB's MANIFEST says about the write-ahead logs: which of them are still needed. */
#ifndef MAYFLY_ENGINE_ROCKS_WAL_WAL_MANIFEST_H
#define MAYFLY_ENGINE_ROCKS_WAL_WAL_MANIFEST_H

#include "base/bytes.h"

struct wal_manifest {
    u64 number;
    u64 first_log;     /* what older ones held is in tables; there may be no log with this very number */
    u64 flushed_log;   /* tables hold nothing of this log or a later one */
    u64 in_tables;     /* the highest sequence number that a table has */
    u64 last_sequence; /* as last recorded; the oldest needed log begins at the next one or before */
    bool damaged;      /* it has a bad record, which is not a torn end, … */
    u64 offset;        /* … at this place */
};

u64 wal_manifest_current(const char *dir); /* the number of the one that CURRENT names; 0: none */

/* Of the MANIFEST that CURRENT names. False: it can't be read, is damaged, or has something that we
 * don't know. */
bool wal_manifest_read(const char *dir, struct wal_manifest *out);

#endif
