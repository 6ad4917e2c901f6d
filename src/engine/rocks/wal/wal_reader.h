/* Reads a file in RocksDB's log format: a write-ahead log (000012.log) or a MANIFEST.
 *
 * A file is a sequence of blocks of 32 KB, the last of which may be short. A block holds fragments. None
 * crosses the end of a block; what is left there, less than a header, is filled with zeros:
 *
 *     0                                 32 KB                               64 KB
 *     +----------+-----------------+----+--------------+--------------------+-----
 *     | fragment | fragment        | 00 | fragment     | fragment           | …
 *     +----------+-----------------+----+--------------+--------------------+-----
 *
 *     a fragment   +----------+----------+--------+--------------+-----------------+
 *                  | CRC  u32 | size u16 | type u8| (log  u32)   | size bytes      |
 *                  +----------+----------+--------+--------------+-----------------+
 *                             little-endian        types 5-8, 11,   of a record
 *                                                  131 only
 *
 * The CRC-32C covers everything after the size, and is masked: rotated by 15 bits, plus a constant. A
 * record is one fragment of type FULL, or FIRST, MIDDLE …, LAST. Other types (from 9 on) are RocksDB's
 * metadata about the file.
 *
 * A record of a write-ahead log is a write batch. Each of its rows has a sequence number:
 *
 *     +----------------------+------------+--------------
 *     | sequence of row 1 u64| rows   u32 | rows …
 *     +----------------------+------------+--------------
 *
 * The next batch begins with the number after that of the last row, in this file or in the next one. */
#ifndef MAYFLY_ENGINE_ROCKS_WAL_WAL_READER_H
#define MAYFLY_ENGINE_ROCKS_WAL_WAL_READER_H

#include "base/buf.h"

#define WAL_BLOCK 32768u

enum wal_found {
    WAL_RECORD, /* `record`, which begins at `offset` */
    WAL_END,    /* the file ends with a whole record */
    WAL_BAD,    /* what is at `offset` is not a whole, sound record */
    WAL_FAILED, /* the file can't be read: errno */
};

struct wal_reader {
    struct buf record; /* its first `keep` bytes */
    u64 offset;        /* where the record, or what is bad, begins */
    u64 end;           /* of the last whole record */

    int fd;
    u32 number; /* the log's */
    size_t keep;
    u64 bad;      /* where the bad fragment begins: in the middle of a record that is `offset` or behind */
    bool partial; /* a FIRST was found, but not its LAST */
    bool refuted; /* another record begins before that: what is behind is sound */
    char block[WAL_BLOCK];
    u64 block_offset;
    u32 block_n, at;
};

/* False: errno. */
bool wal_reader_open(struct wal_reader *r, const char *path, u64 number, size_t keep);
void wal_reader_close(struct wal_reader *r);
enum wal_found wal_reader_next(struct wal_reader *r);

/* After WAL_BAD: whether a sound fragment follows. After an interrupted write there is none; after a flipped
 * bit there is, unless it hit the last record. */
bool wal_reader_sound_behind(struct wal_reader *r);

/* After WAL_BAD: whether zeros are where the record should be, as if the kernel had written later pages but
 * not this one when the power failed: a whole page, or the rest of the one that the last sync wrote in
 * part. */
bool wal_reader_at_hole(const struct wal_reader *r);

/* After WAL_BAD: whether the file ends in the middle of the fragment, or has only zeros from there on. An
 * interrupted write leaves that; a flipped bit usually leaves the fragment as long as it was. */
bool wal_reader_torn(const struct wal_reader *r);

/* Of a write batch. False: it is too short to be one. */
bool wal_batch(bytes record, u64 *sequence, u32 *rows);

#endif
