/* Whether the write-ahead logs can be replayed, found out before RocksDB does it.
 *
 * RocksDB replays whatever logs it finds, in the order of their numbers, and does not mind if records
 * between them are missing: what comes of it is a state that never was. Its mode for torn ends drops
 * everything behind the first bad record of a log, also if that is one flipped bit in front of a million
 * sound records. So all logs that the MANIFEST still needs are read first, and have to be
 *
 *   1. sound: every record has the right checksum, except for a torn end, which no sound record follows;
 *   2. continuous: a record begins with the sequence number after that of the record before, across all logs;
 *   3. complete: everything that is known to have been synced (wal_note.h) is there.
 *
 * What breaks a rule behind everything that was synced is what a power cut leaves: the part before it is
 * used, and the rest put aside. Anything else is damage, and is for a person to decide. */
#ifndef MAYFLY_ENGINE_ROCKS_WAL_WAL_VERIFY_H
#define MAYFLY_ENGINE_ROCKS_WAL_WAL_VERIFY_H

#include "base/buf.h"
#include "base/log.h"

enum wal_state {
    WAL_SOUND,
    WAL_TORN,    /* ends at `offset` of `log`; what is behind was never synced */
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
    struct buf after; /* of u64: the logs behind that one, which are not to be replayed */
};

/* Reads only. `log`, which may be NULL, hears of it if it takes long. */
void wal_verify(const char *dir, const struct log *log, struct wal_verdict *v);
void wal_verdict_release(struct wal_verdict *v);

/* Makes the part before the end the whole: moves what is behind it to the folder "lost-logs", where a
 * damaged log gets a second name as well. False: `why`, and nothing may be opened. */
bool wal_put_aside(const char *dir, const struct wal_verdict *v, struct buf *why);

#define WAL_ASIDE "lost-logs"

#endif
