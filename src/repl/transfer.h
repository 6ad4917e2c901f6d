/* The data a primary sends at a full sync, on its way from the socket into a file: "$<length>" and so many
 * bytes, or "$EOF:<mark>", anything, and the mark. Empty lines before that say that the primary is still at
 * work. What comes behind it is no part of it: the stream goes on there. */
#ifndef MAYFLY_REPL_TRANSFER_H
#define MAYFLY_REPL_TRANSFER_H

#include "base/err.h"
#include "rdb/rdb_out.h"

#define TRANSFER_MARK 40
#define TRANSFER_LINE 1024 /* no header is longer */

struct transfer {
    enum { TRANSFER_HEADER, TRANSFER_SIZED, TRANSFER_MARKED, TRANSFER_DONE } stage;
    char line[TRANSFER_LINE + 1]; /* of the header; after ERR_SYNTAX what is wrong with it */
    u32 line_n;
    u64 size;                     /* TRANSFER_SIZED */
    u64 received;                 /* bytes of data */
    char mark[TRANSFER_MARK];
    char tail[TRANSFER_MARK];     /* the last bytes, which may begin the mark: not handed on yet */
    u32 tail_n;
};

void transfer_init(struct transfer *t);

/* Takes what has come, from the first byte on. OK: that was all; *used bytes of `in` belonged to it.
 * ERR_AGAIN: there is more to come, all of `in` was used. ERR_SYNTAX: no such header. ERR_LIMIT: the sink
 * does not take any more. */
NODISCARD err transfer_take(struct transfer *t, bytes in, struct rdb_sink *out, size_t *used);

#endif
