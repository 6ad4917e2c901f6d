/* Writing RDB: lengths, numbers and strings into a sink, which gets them in pieces of bounded size.
 *
 * Failure is sticky: once the sink has refused a piece it gets nothing more, and the caller checks `failed`
 * when convenient. Without a sink everything stays in `buf`: a DUMP payload, or a key that is written ahead
 * of its turn. */
#ifndef MAYFLY_RDB_RDB_OUT_H
#define MAYFLY_RDB_RDB_OUT_H

#include "base/buf.h"

/* Receives bytes. False: it failed; the sink remembers why. */
struct rdb_sink {
    bool (*write)(struct rdb_sink *sink, bytes piece);
};

#define RDB_PIECE (64u << 10) /* size of a piece, about */

struct rdb_out {
    struct rdb_sink *sink; /* borrowed; or NULL */
    size_t compress_max;   /* strings of more than 20 and up to this many bytes are compressed; 0: none */
    bool checksum;         /* compute crc; the default */
    bool failed;
    u64 written;           /* bytes so far, including buf */
    u64 crc;               /* of the bytes that left buf */
    struct buf buf;
    struct buf packed;     /* scratch for compressing */
};

/* Compression takes about 4 ns a byte and can't be interrupted: a snapshot taken in slices keeps compress_max
 * small, a DUMP does not. */
void rdb_out_init(struct rdb_out *out, struct rdb_sink *sink, size_t compress_max);
void rdb_out_release(struct rdb_out *out);

/* Passes buf to the sink, if there is one. */
void rdb_out_flush(struct rdb_out *out);

void rdb_put_raw(struct rdb_out *out, bytes b);
void rdb_put_byte(struct rdb_out *out, u8 b);
void rdb_put_u64(struct rdb_out *out, u64 v); /* eight bytes, little-endian */
void rdb_put_double(struct rdb_out *out, double v);
void rdb_put_len(struct rdb_out *out, u64 n);

/* A string in its shortest encoding: as a number, compressed, or plain. */
void rdb_put_string(struct rdb_out *out, bytes s);

#endif
