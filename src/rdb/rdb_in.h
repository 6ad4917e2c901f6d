/* Reading RDB: lengths, numbers and strings out of a stream of bytes, none of which is trusted.
 *
 * Every length is compared with what is left before memory is taken for it, and memory grows with
 * the bytes that really come, so a small input cannot make us take much. Failure is sticky: the
 * first one is kept with its place, and every call after it fails. */
#ifndef MAYFLY_RDB_RDB_IN_H
#define MAYFLY_RDB_RDB_IN_H

#include "base/buf.h"

/* Where bytes come from. `read` gives 1 to n bytes, or 0 at the end, or a negative errno. */
struct rdb_source {
    i64 (*read)(struct rdb_source *source, void *to, size_t n);
};

#define RDB_IN_UNKNOWN UINT64_MAX     /* nobody knows how much there is: a socket */
#define RDB_MAX_STRING (512ULL << 20) /* as proto-max-bulk-len by default */

struct rdb_in {
    const char *p, *end; /* what is at hand, not read yet */
    struct rdb_source *source; /* NULL: that is all */
    char *window;        /* of a source: where it is read to */
    u64 end_offset;      /* of `end` in the stream */
    u64 left;            /* bytes the source has beyond `end`, or RDB_IN_UNKNOWN */
    u64 max_string;      /* a longer one is an error; RDB_MAX_STRING unless changed */
    u64 crc;             /* of what was read, up to `crc_to` */
    const char *crc_to;
    struct buf packed;   /* scratch for compressed strings */
    bool failed;
    u64 error_offset;
    char error[200];     /* what was wrong, without the place */
};

/* All input is at hand, and must stay there while it is read. */
void rdb_in_memory(struct rdb_in *in, bytes input);

/* `size` bytes will come, or RDB_IN_UNKNOWN. The source is borrowed. */
void rdb_in_source(struct rdb_in *in, struct rdb_source *source, u64 size);

void rdb_in_release(struct rdb_in *in);

static inline u64 rdb_offset(const struct rdb_in *in) { return in->end_offset - (u64)(in->end - in->p); }

/* Bytes left to read, or RDB_IN_UNKNOWN. */
static inline u64 rdb_left(const struct rdb_in *in)
{
    return in->left == RDB_IN_UNKNOWN ? RDB_IN_UNKNOWN : in->left + (u64)(in->end - in->p);
}

/* Whether there is nothing more. Asks the source if nobody told how much comes. */
bool rdb_at_end(struct rdb_in *in);

/* CRC-64 of all that was read. */
u64 rdb_in_crc(struct rdb_in *in);

/* Notes what is wrong, and where, unless something was before. False, to be returned. */
bool rdb_fail(struct rdb_in *in, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* -- reading: false means that it failed, and outputs are not set ------------------------------ */

NODISCARD bool rdb_read_raw(struct rdb_in *in, void *to, size_t n);
NODISCARD bool rdb_read_byte(struct rdb_in *in, u8 *out);
NODISCARD bool rdb_read_u64(struct rdb_in *in, u64 *out);       /* eight bytes, little-endian */
NODISCARD bool rdb_read_double(struct rdb_in *in, double *out); /* eight bytes; NaN is refused */
NODISCARD bool rdb_read_score(struct rdb_in *in, double *out);  /* as text, before RDB 8 */
NODISCARD bool rdb_read_len(struct rdb_in *in, u64 *out);       /* a length, count or other number */

/* A string in any encoding: added to the buffer, or in place of what it held. */
NODISCARD bool rdb_append_string(struct rdb_in *in, struct buf *to);
NODISCARD bool rdb_read_string(struct rdb_in *in, struct buf *to);

/* The same without a copy, if it can be: the bytes are in the buffer or in the input, where they stay
 * until it is read on. */
NODISCARD bool rdb_view_string(struct rdb_in *in, struct buf *space, bytes *out);

NODISCARD bool rdb_skip_raw(struct rdb_in *in, u64 n);
NODISCARD bool rdb_skip_string(struct rdb_in *in);

#endif
