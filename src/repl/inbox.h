/* Bytes received from the primary that are not applied yet, and the commands found in them. Each byte is
 * parsed once. The first byte is the one at our position in the stream.
 *
 * Only the first `ready` commands may be applied: commands of a MULTI … EXEC block become ready when its EXEC
 * has arrived. */
#ifndef MAYFLY_REPL_INBOX_H
#define MAYFLY_REPL_INBOX_H

#include "resp/request.h"

struct inbox_command {
    size_t begin, end; /* offsets in the bytes */
    size_t args;       /* index of its first argument */
    u32 argc;          /* 0: an empty line */
};

struct inbox_arg {
    size_t at, n;
};

struct inbox {
    struct buf in;
    size_t parsed;      /* bytes that belong to commands found so far */
    struct inbox_command *commands;
    u32 count, cap;
    u32 ready;          /* how many of them may be applied */
    struct inbox_arg *args;
    size_t arg_count, arg_cap;
    bool in_block;      /* after a MULTI without its EXEC */
    struct request_parser parser;
};

void inbox_init(struct inbox *b);
void inbox_release(struct inbox *b);

/* Space for at least `least` more bytes. inbox_took says how many were written there and finds the commands
 * in them. ERR_SYNTAX: not a replication stream; parser.error says why. ERR_LIMIT: a request is too long. */
char *inbox_room(struct inbox *b, size_t least, size_t *room);
NODISCARD err inbox_took(struct inbox *b, size_t n, i64 max_bulk);

/* Argument i of a command; valid until the next call that changes the inbox. */
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

/* All ready commands were applied. */
void inbox_applied(struct inbox *b);

#endif
