/* See inbox.h. Arguments are kept as offsets, because the buffer moves when it grows. */
#include "repl/inbox.h"

#include <stdio.h>

#include "base/alloc.h"

#define ARGS_AT_ONCE 64           /* a request with more arguments goes through the incremental parser */
#define LONGEST_REQUEST (3ull << 30) /* the parser counts in 32 bits */
#define KEEP_BYTES (1u << 20)     /* a buffer larger than this is not kept after a big command */
#define KEEP_COUNT 65536

void inbox_init(struct inbox *b)
{
    *b = (struct inbox){0};
    request_parser_init(&b->parser);
}

void inbox_release(struct inbox *b)
{
    buf_release(&b->in);
    mem_free(b->commands);
    mem_free(b->args);
    request_parser_release(&b->parser);
    inbox_init(b);
}

char *inbox_room(struct inbox *b, size_t least, size_t *room)
{
    char *to = buf_reserve(&b->in, least);
    *room = b->in.cap - b->in.n;
    return to;
}

/* -- finding commands ------------------------------------------------------------------------------- */

static void add_arg(struct inbox *b, bytes arg)
{
    if (UNLIKELY(b->arg_count == b->arg_cap)) {
        b->arg_cap = b->arg_cap ? b->arg_cap * 2 : 256;
        b->args = mem_realloc(b->args, b->arg_cap * sizeof *b->args);
    }
    b->args[b->arg_count++] = (struct inbox_arg){(size_t)(arg.p - b->in.p), arg.n};
}

static struct inbox_command *add_command(struct inbox *b, size_t used, u32 argc)
{
    if (UNLIKELY(b->count == b->cap)) {
        b->cap = b->cap ? b->cap * 2 : 64;
        b->commands = mem_realloc(b->commands, b->cap * sizeof *b->commands);
    }
    struct inbox_command *c = &b->commands[b->count++];
    *c = (struct inbox_command){b->parsed, b->parsed + used, b->arg_count, argc};
    b->parsed += used;
    return c;
}

/* The incremental parser, for requests that are long or incomplete. A primary never sends inline commands, so
 * one in the stream means that the stream is corrupt. Empty lines are fine. */
static err parse_slowly(struct inbox *b, const struct request_limits *limits, bytes in)
{
    struct request_parser *p = &b->parser;
    size_t used;
    err e = request_parse(p, limits, in, &used);
    if (e == ERR_AGAIN && in.n > LONGEST_REQUEST) e = ERR_LIMIT;
    if (e) return e;
    if (p->is_inline && p->argc) {
        snprintf(p->error, sizeof p->error, "Master using the inline protocol. Desync?");
        return ERR_SYNTAX;
    }
    add_command(b, used, p->argc);
    for (u32 i = 0; i < p->argc; i++) add_arg(b, request_arg(p, in.p, i));
    request_parser_trim(p);
    return OK;
}

static err inbox_parse_one(struct inbox *b, const struct request_limits *limits)
{
    bytes in = bytes_of(b->in.p + b->parsed, b->in.n - b->parsed), argv[ARGS_AT_ONCE];
    u32 argc;
    size_t used = b->parser.left ? 0 : request_take(limits, in, argv, ARGS_AT_ONCE, &argc);
    if (UNLIKELY(!used)) return parse_slowly(b, limits, in);
    add_command(b, used, argc);
    for (u32 i = 0; i < argc; i++) add_arg(b, argv[i]);
    return OK;
}

static void note_block(struct inbox *b)
{
    const struct inbox_command *c = &b->commands[b->count - 1];
    bytes name = c->argc ? inbox_arg(b, c, 0) : (bytes){0};
    if (name.n == 5 && bytes_is(name, "multi")) b->in_block = true;
    else if (b->in_block && name.n == 4 && bytes_is(name, "exec")) b->in_block = false;
    if (!b->in_block) b->ready = b->count;
}

err inbox_took(struct inbox *b, size_t n, i64 max_bulk)
{
    struct request_limits limits = {.max_bulk = max_bulk};
    err e = OK;
    b->in.n += n;
    while (!e && b->parsed < b->in.n) {
        e = inbox_parse_one(b, &limits);
        if (!e) note_block(b);
    }
    return e == ERR_AGAIN ? OK : e;
}

/* -- applied ---------------------------------------------------------------------------------------- */

/* Usually all that remains is the beginning of a command or of a block. */
static void move_up(struct inbox *b, size_t bytes_gone, size_t args_gone)
{
    b->in.n -= bytes_gone;
    b->parsed -= bytes_gone;
    memmove(b->in.p, b->in.p + bytes_gone, b->in.n);
    b->count -= b->ready;
    memmove(b->commands, b->commands + b->ready, b->count * sizeof *b->commands);
    for (u32 i = 0; i < b->count; i++) {
        b->commands[i].begin -= bytes_gone;
        b->commands[i].end -= bytes_gone;
        b->commands[i].args -= args_gone;
    }
    b->arg_count -= args_gone;
    if (b->arg_count) memmove(b->args, b->args + args_gone, b->arg_count * sizeof *b->args);
    for (size_t i = 0; i < b->arg_count; i++) b->args[i].at -= bytes_gone;
}

static void shrink(struct inbox *b)
{
    if (b->in.n == 0 && b->in.cap > KEEP_BYTES) buf_release(&b->in);
    if (b->count == 0 && b->cap > KEEP_COUNT) {
        mem_free(b->commands);
        b->commands = NULL;
        b->cap = 0;
    }
    if (b->arg_count == 0 && b->arg_cap > KEEP_COUNT) {
        mem_free(b->args);
        b->args = NULL;
        b->arg_cap = 0;
    }
}

void inbox_applied(struct inbox *b)
{
    if (!b->ready) return;
    bool all = b->ready == b->count;
    move_up(b, inbox_ready(b).n, all ? b->arg_count : b->commands[b->ready].args);
    b->ready = 0;
    shrink(b);
}
