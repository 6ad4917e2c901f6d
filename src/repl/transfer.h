/* The data a primary sends in a full sync, from the socket into a sink: "$<length>" and as many bytes, or
 * "$EOF:<mark>", any number of bytes, and the mark. Empty lines before the header mean that the primary is
 * still preparing. Bytes after the data belong to the stream. */
#ifndef MAYFLY_REPL_TRANSFER_H
#define MAYFLY_REPL_TRANSFER_H

#include "base/err.h"
#include "rdb/rdb_out.h"

#define TRANSFER_MARK 40
#define TRANSFER_LINE 1024 /* limit of a header */

struct transfer {
    enum { TRANSFER_HEADER, TRANSFER_SIZED, TRANSFER_MARKED, TRANSFER_DONE } stage;
    char line[TRANSFER_LINE + 1]; /* the header; after ERR_SYNTAX what is wrong with it */
    u32 line_n;
    u64 size;                     /* TRANSFER_SIZED */
    u64 received;                 /* bytes of data */
    char mark[TRANSFER_MARK];
    char tail[TRANSFER_MARK];     /* the last bytes, which may begin the mark: held back */
    u32 tail_n;
};

void transfer_init(struct transfer *t);

/* Takes bytes as they arrive, header first. OK: the transfer is complete; *used bytes of `in` belonged to it.
 * ERR_AGAIN: more is expected, all of `in` was used. ERR_SYNTAX: bad header. ERR_LIMIT: the sink failed. */
NODISCARD err transfer_take(struct transfer *t, bytes in, struct rdb_sink *out, size_t *used);

#endif
