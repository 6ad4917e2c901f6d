/* Reads requests (RESP arrays of bulk strings, or inline commands) out of a
 * connection's input, incrementally and without copying.
 *
 * A parser keeps its state while a request is incomplete, so that each byte is parsed once however the input
 * is fragmented. Offsets are relative to the start of the incomplete request: the input may move in memory,
 * but must stay contiguous from there. */
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
    u32 pos;      /* bytes of the incomplete request parsed so far */
    i64 left;     /* arguments still missing; 0: between requests */
    i64 bulk;     /* length of the argument being read; -1: its header comes next */
    u32 argc, cap;
    struct arg_span *argv; /* offsets from the request's start, or into `words` */
    bool is_inline;
    struct buf words;      /* an inline request's words, quotes and escapes resolved */
    char error[64];        /* after ERR_SYNTAX: Redis's text after "Protocol error: " */
};

void request_parser_init(struct request_parser *p);
void request_parser_release(struct request_parser *p);

/* Frees the memory a large request needed, and its arguments. Allowed between requests and in the middle of
 * one. */
void request_parser_trim(struct request_parser *p);

/* Parses the request at the start of `in`. OK          it took *used bytes, and request_arg reads its argc
 * arguments; argc is 0 for an empty line, *0
 *               and *-1
 *   ERR_AGAIN   incomplete
 *   ERR_SYNTAX  see p->error
 *   ERR_LIMIT   like ERR_SYNTAX, but only because the client is not authenticated yet */
NODISCARD err request_parse(struct request_parser *p, const struct request_limits *limits, bytes in,
                            size_t *used);

/* The fast path: parses a complete request of 1 to `room` bulk strings below 1000 bytes, straight into argv.
 * Nearly every request is one. Returns its length, or 0 if request_parse has to handle it; argv is then
 * undefined. Not allowed in the middle of a request that request_parse has begun (left > 0). */
size_t request_take(const struct request_limits *limits, bytes in, bytes *argv, u32 room, u32 *argc);

/* Argument i of the request just parsed, which started at `start`. */
static inline bytes request_arg(const struct request_parser *p, const char *start, u32 i)
{
    return bytes_of((p->is_inline ? p->words.p : start) + p->argv[i].at, p->argv[i].n);
}

/* A word of request_split_words. */
static inline bytes request_word(const struct request_parser *p, u32 i)
{
    return bytes_of(p->words.p + p->argv[i].at, p->argv[i].n);
}

/* The number of bytes the incomplete request needs from its start, 0 if unknown: the reader makes room for a
 * large argument at once. */
size_t request_needed(const struct request_parser *p);

/* Splits a line into words with quotes and escapes as Redis understands them.
 * False: unbalanced quotes. */
NODISCARD bool request_split_words(struct request_parser *p, bytes line);

#endif
