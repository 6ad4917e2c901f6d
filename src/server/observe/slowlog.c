/* The slow log and SLOWLOG. Entries own truncated copies of their arguments, so that a log of big commands
 * stays small. */
#include "server/observe/slowlog.h"

#include "base/alloc.h"
#include "command/commands.h"
#include "server/server.h"

#define KEPT_ARGS 32
#define KEPT_BYTES 128
#define DEFAULT_COUNT 10

/* -- the log ------------------------------------------------------------------------- */

static void keep_argument(struct buf *to, bytes arg)
{
    buf_append(to, arg.p, MIN(arg.n, (size_t)KEPT_BYTES));
    if (arg.n > KEPT_BYTES) buf_printf(to, "... (%zu more bytes)", arg.n - KEPT_BYTES);
}

/* Too many arguments: the last one says how many are not shown. */
static void keep_arguments(struct slow_entry *e, int argc, const bytes *argv)
{
    e->argc = (u32)MIN(argc, KEPT_ARGS);
    e->argv = mem_zalloc(e->argc * sizeof *e->argv);
    for (u32 i = 0; i < e->argc; i++) {
        if (i == KEPT_ARGS - 1 && argc > KEPT_ARGS)
            buf_printf(&e->argv[i], "... (%d more arguments)", argc - KEPT_ARGS + 1);
        else keep_argument(&e->argv[i], argv[i]);
    }
}

void slowlog_add(struct slowlog *l, u64 max_len, i64 time_s, i64 usec, int argc, const bytes *argv,
                 bytes peer, bytes name)
{
    struct slow_entry *e = mem_zalloc(sizeof *e);
    e->id = l->next_id++;
    e->time_s = time_s;
    e->usec = usec;
    keep_arguments(e, argc, argv);
    buf_append_bytes(&e->peer, peer);
    buf_append_bytes(&e->name, name);
    e->older = l->newest;
    if (l->newest) l->newest->newer = e;
    else l->oldest = e;
    l->newest = e;
    l->count++;
    slowlog_trim(l, max_len);
}

static void forget_oldest(struct slowlog *l)
{
    struct slow_entry *e = l->oldest;
    l->oldest = e->newer;
    if (l->oldest) l->oldest->older = NULL;
    else l->newest = NULL;
    l->count--;
    for (u32 i = 0; i < e->argc; i++) buf_release(&e->argv[i]);
    mem_free(e->argv);
    buf_release(&e->peer);
    buf_release(&e->name);
    mem_free(e);
}

void slowlog_trim(struct slowlog *l, u64 max_len)
{
    while (l->count > max_len) forget_oldest(l);
}

void slowlog_clear(struct slowlog *l) { slowlog_trim(l, 0); }

/* -- SLOWLOG ------------------------------------------------------------------------- */

static void slowlog_reply_entry(struct ctx *c, const struct slow_entry *e)
{
    reply_array(c->out, 6);
    reply_int(c->out, (i64)e->id);
    reply_int(c->out, e->time_s);
    reply_int(c->out, e->usec);
    reply_array(c->out, e->argc);
    for (u32 i = 0; i < e->argc; i++) reply_bulk(c->out, buf_bytes(&e->argv[i]));
    reply_bulk(c->out, buf_bytes(&e->peer));
    reply_bulk(c->out, buf_bytes(&e->name));
}

void cmd_slowlog_get(struct ctx *c)
{
    const struct slowlog *l = &c->server->slowlog;
    i64 count = DEFAULT_COUNT;
    if (c->argc > 3) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (c->argc == 3 && (!num_parse_i64(c->argv[2], &count) || count < -1)) {
        reply_error(c->out, "ERR count should be greater than or equal to -1");
        return;
    }
    if (count == -1 || count > (i64)l->count) count = (i64)l->count;
    reply_array(c->out, (size_t)count);
    for (const struct slow_entry *e = l->newest; count--; e = e->older) slowlog_reply_entry(c, e);
}

void cmd_slowlog_len(struct ctx *c) { reply_int(c->out, (i64)c->server->slowlog.count); }

void cmd_slowlog_reset(struct ctx *c)
{
    slowlog_clear(&c->server->slowlog);
    reply_ok(c->out);
}

void cmd_slowlog_help(struct ctx *c)
{
    static const char *const lines[] = {
        "GET [<count>]",
        "    The latest <count> entries (default: 10, -1: all), newest first. Each has:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    How many entries there are.",
        "RESET",
        "    Forget them all.",
        NULL,
    };
    ctx_help(c, lines);
}
