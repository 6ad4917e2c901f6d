/* Reading RDB: lengths, numbers and strings from an untrusted stream of bytes.
 *
 * Every length is compared with the bytes that remain before memory is allocated for it, and memory grows
 * with the bytes that really arrive, so a small input cannot make us allocate much. Failure is sticky: the
 * first error is kept with its offset, and every later call fails. */
#ifndef MAYFLY_RDB_RDB_IN_H
#define MAYFLY_RDB_RDB_IN_H

#include "base/buf.h"

/* Source of bytes. `read` returns 1 to n bytes, 0 at the end, or a negative errno. */
struct rdb_source {
    i64 (*read)(struct rdb_source *source, void *to, size_t n);
};

#define RDB_IN_UNKNOWN UINT64_MAX     /* the size is not known: a socket */
#define RDB_MAX_STRING (512ULL << 20) /* the default of proto-max-bulk-len */

struct rdb_in {
    const char *p, *end; /* buffered, not read yet */
    struct rdb_source *source; /* NULL: everything is buffered */
    char *window;        /* where the source is read into */
    u64 end_offset;      /* offset of `end` in the stream */
    u64 left;            /* bytes the source has after `end`, or RDB_IN_UNKNOWN */
    u64 max_string;      /* longer strings are errors; RDB_MAX_STRING unless changed */
    u64 crc;             /* of everything read, up to `crc_to` */
    const char *crc_to;
    struct buf packed;   /* scratch for compressed strings */
    bool failed;
    u64 error_offset;
    char error[200];     /* what is wrong, without the offset */
};

/* Reads from memory, which must stay valid meanwhile. */
void rdb_in_memory(struct rdb_in *in, bytes input);

/* Reads `size` bytes from a source, or RDB_IN_UNKNOWN. The source is borrowed. */
void rdb_in_source(struct rdb_in *in, struct rdb_source *source, u64 size);

void rdb_in_release(struct rdb_in *in);

static inline u64 rdb_offset(const struct rdb_in *in) { return in->end_offset - (u64)(in->end - in->p); }

/* Bytes left to read, or RDB_IN_UNKNOWN. */
static inline u64 rdb_left(const struct rdb_in *in)
{
    return in->left == RDB_IN_UNKNOWN ? RDB_IN_UNKNOWN : in->left + (u64)(in->end - in->p);
}

/* Whether nothing is left. Asks the source if the size is not known. */
bool rdb_at_end(struct rdb_in *in);

/* CRC-64 of everything read. */
u64 rdb_in_crc(struct rdb_in *in);

/* Records an error and its offset, unless there is one already. Returns false. */
bool rdb_fail(struct rdb_in *in, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* -- reading: false means that it failed, and outputs are not set ------------------------------ */

NODISCARD bool rdb_read_raw(struct rdb_in *in, void *to, size_t n);
NODISCARD bool rdb_read_byte(struct rdb_in *in, u8 *out);
NODISCARD bool rdb_read_u64(struct rdb_in *in, u64 *out);       /* eight bytes, little-endian */
NODISCARD bool rdb_read_double(struct rdb_in *in, double *out); /* eight bytes; NaN is refused */
NODISCARD bool rdb_read_score(struct rdb_in *in, double *out);  /* as text, before RDB 8 */
NODISCARD bool rdb_read_len(struct rdb_in *in, u64 *out);       /* a length, count or other number */

/* A string in any encoding: appended to the buffer, or replacing its content. */
NODISCARD bool rdb_append_string(struct rdb_in *in, struct buf *to);
NODISCARD bool rdb_read_string(struct rdb_in *in, struct buf *to);

/* Like rdb_read_string, but without a copy where possible: the bytes are in the buffer or in the input, and
 * valid until the next read. */
NODISCARD bool rdb_view_string(struct rdb_in *in, struct buf *space, bytes *out);

NODISCARD bool rdb_skip_raw(struct rdb_in *in, u64 n);
NODISCARD bool rdb_skip_string(struct rdb_in *in);

#endif
