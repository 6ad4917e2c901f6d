/* What has come from a primary and is not applied yet: bytes, and the commands that were found in them, each
 * byte looked at once. The first byte is the one at our position in the stream.
 *
 * Commands may be applied as far as they are `ready`: nothing of a MULTI … EXEC block is before its end is
 * there. */
#ifndef MAYFLY_REPL_INBOX_H
#define MAYFLY_REPL_INBOX_H

#include "resp/request.h"

struct inbox_command {
    size_t begin, end; /* in the bytes */
    size_t args;       /* index of its first argument */
    u32 argc;          /* 0: an empty line */
};

struct inbox_arg {
    size_t at, n;
};

struct inbox {
    struct buf in;
    size_t parsed;      /* bytes that are in commands */
    struct inbox_command *commands;
    u32 count, cap;
    u32 ready;          /* of them */
    struct inbox_arg *args;
    size_t arg_count, arg_cap;
    bool in_block;      /* behind a MULTI */
    struct request_parser parser;
};

void inbox_init(struct inbox *b);
void inbox_release(struct inbox *b);

/* Room for more bytes, at least `least`; inbox_took says how many were put there and finds commands in them.
 * ERR_SYNTAX: it is no stream; parser.error says why. ERR_LIMIT: one request is longer than can be. */
char *inbox_room(struct inbox *b, size_t least, size_t *room);
NODISCARD err inbox_took(struct inbox *b, size_t n, i64 max_bulk);

/* Argument i of a command. Good until the next call that changes the inbox. */
static inline bytes inbox_arg(const struct inbox *b, const struct inbox_command *c, u32 i)
{
    const struct inbox_arg *a = &b->args[c->args + i];
    return bytes_of(b->in.p + a->at, a->n);
}

/* The bytes of the commands that are ready. */
static inline bytes inbox_ready(const struct inbox *b)
{
    return bytes_of(b->in.p, b->ready ? b->commands[b->ready - 1].end : 0);
}

/* All that was ready is applied. */
void inbox_applied(struct inbox *b);

#endif
