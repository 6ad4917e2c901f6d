/* Reads requests (RESP arrays of bulk strings, or inline commands) out of a
 * connection's input, incrementally and without copying.
 *
 * A parser holds what it knows of a request that is not complete yet, so that
 * each byte is looked at once however the input is cut into pieces. Offsets are
 * relative to the start of the unfinished request: the input may move in memory
 * as long as it is kept whole from there. */
#ifndef MAYFLY_RESP_REQUEST_H
#define MAYFLY_RESP_REQUEST_H

#include "base/buf.h"
#include "base/err.h"

/* Bounds checked before anything is allocated for a request. */
struct request_limits {
    i64 max_bulk;         /* proto-max-bulk-len */
    bool unauthenticated; /* at most 10 arguments of at most 16 KB */
};

struct arg_span {
    u32 at, n;
};

struct request_parser {
    u32 pos;      /* how far the unfinished request has been read */
    i64 left;     /* arguments still missing; 0: no request has begun */
    i64 bulk;     /* length of the argument being read; -1: its header comes next */
    u32 argc, cap;
    struct arg_span *argv; /* offsets from the request's start, or into `words` */
    bool is_inline;
    struct buf words;      /* an inline request's words, quotes and escapes resolved */
    char error[64];        /* after ERR_SYNTAX: Redis's text behind "Protocol error: " */
};

void request_parser_init(struct request_parser *p);
void request_parser_release(struct request_parser *p);

/* Lets go of the room that a big request took; its arguments with it. Between requests
 * or in the middle of one. */
void request_parser_trim(struct request_parser *p);

/* Parses the request at the start of `in`. OK: it took *used bytes and its argc
 * arguments can be read with request_arg (argc may be 0: an empty line, *0, *-1).
 * ERR_AGAIN: not all there yet. ERR_SYNTAX: see p->error. ERR_LIMIT: as
 * ERR_SYNTAX, but only because the client has not authenticated yet. */
NODISCARD err request_parse(struct request_parser *p, const struct request_limits *limits, bytes in,
                            size_t *used);

/* Takes a request that is all there and ordinary, an array of 1 to `room` bulk strings below
 * 1000 bytes, in one go and straight into argv: that is nearly every request. Its length; or 0
 * for request_parse to deal with it, argv then holding anything. Not for the rest of a request
 * that request_parse has begun (left > 0). */
size_t request_take(const struct request_limits *limits, bytes in, bytes *argv, u32 room, u32 *argc);

/* Argument i of the request just parsed, which started at `start`. */
static inline bytes request_arg(const struct request_parser *p, const char *start, u32 i)
{
    return bytes_of((p->is_inline ? p->words.p : start) + p->argv[i].at, p->argv[i].n);
}

/* Bytes the unfinished request is known to need from its start, 0 if not known:
 * lets the reader make room for a big argument at once. */
size_t request_needed(const struct request_parser *p);

/* Splits a line into words with quotes and escapes as Redis understands them.
 * False: unbalanced quotes. */
NODISCARD bool request_split_words(struct request_parser *p, bytes line);

#endif
