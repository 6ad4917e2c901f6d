/* Checks, before RocksDB replays them, whether the write-ahead logs can be replayed.
 *
 * RocksDB replays whatever logs it finds, in the order of their numbers, even if records
 * between them are missing: the result is a state that never existed. Its mode for torn ends drops
 * everything after the first bad record of a log, even if that is one flipped bit before a million sound
 * records. So all logs that the MANIFEST still needs are read first, and have to be
 *
 *   1. sound: every record has the right checksum, except for a torn end, which no sound record follows;
 *   2. continuous: a record begins with the sequence number after that of the record before, across all logs;
 *   3. complete: everything that is known to have been synced (wal_synced.h) is there.
 *
 * A violation after everything that was synced is what a power cut leaves: the part before it is used, and
 * the rest moved aside. Anything else is damage, and a person has to decide. */
#ifndef MAYFLY_ENGINE_ROCKS_WAL_WAL_VERIFY_H
#define MAYFLY_ENGINE_ROCKS_WAL_WAL_VERIFY_H

#include "base/buf.h"
#include "base/log.h"

enum wal_state {
    WAL_SOUND,
    WAL_TORN,    /* ends at `offset` of `log`; the rest was never synced */
    WAL_DAMAGED, /* sound up to there */
    WAL_UNKNOWN, /* the MANIFEST can't be understood: nothing was verified */
};

struct wal_verdict {
    enum wal_state state;
    u64 log;         /* 0: not even the first one is there */
    u64 offset;
    bool log_bad;    /* the end is a bad record, not that of the file */
    bool tables_ahead; /* tables hold a part of what was written later: there is no state to go back to */
    struct buf text; /* for people: what was found. Not of WAL_SOUND */
    struct buf after; /* of u64: the logs after that one, which must not be replayed */
};

/* Reads only. Writes a line to `log` (may be NULL) if it takes long. */
void wal_verify(const char *dir, const struct log *log, struct wal_verdict *v);
void wal_verdict_release(struct wal_verdict *v);

/* Makes the part before the end the whole: moves what is behind it to the folder "lost-logs", where a
 * damaged log gets a second name as well. False: `why`, and nothing may be opened. */
bool wal_put_aside(const char *dir, const struct wal_verdict *v, struct buf *why);

#define WAL_ASIDE "lost-logs"

#endif
