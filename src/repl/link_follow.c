/* Following the stream of our primary: its commands are run here, and its bytes become our stream.
 *
 * The commands of one read are one transaction, together with the position after them. Nothing of a MULTI …
 * EXEC block runs before all of it has arrived. So our position is always between two commands or two blocks,
 * and the data is exactly that of the position, also on disk. */
#include <ctype.h>

#include "base/clock.h"
#include "command/commands.h"
#include "script/script_replay.h"
#include "repl/link.h"
#include "server/client/monitor.h"
#include "server/commit.h"

#define READ_BYTES (64u << 10)
#define READ_MORE (1u << 20)       /* bytes per read while one long argument arrives */
#define LONGEST_BULK (512ll << 20) /* at least: the primary may allow longer ones than we do */
#define PREFETCH_MAX 256
#define LOGGED_MAX 4096

/* -- what can't be done ----------------------------------------------------------------------------- */

/* Whether a failure of this command was already logged: each is logged once. */
static bool was_logged(struct link *l, bytes name)
{
    size_t n = MIN(name.n, (size_t)BYTES_LEGIBLE);
    char text[BYTES_LEGIBLE + 2] = {0};
    for (size_t i = 0; i < n; i++) text[i + 1] = (char)tolower((u8)name.p[i]);
    if (!l->logged.n) buf_append_char(&l->logged, '\0');
    if (l->logged.n > LOGGED_MAX || memmem(l->logged.p, l->logged.n, text, n + 2)) return true;
    buf_append(&l->logged, text + 1, n + 1);
    return false;
}

static void not_run(struct link *l, bytes name)
{
    char text[BYTES_LEGIBLE + 4];
    l->server->repl.unexpected_errors++;
    if (was_logged(l, name)) return;
    log_line(&l->server->log, LOG_WARNING,
             "This replica can't run %s, which its primary sends: its data may differ from the primary's",
             bytes_legible(name, text));
}

static void link_follow_failed(struct link *l, bytes name)
{
    char text[BYTES_LEGIBLE + 4];
    bytes error = buf_bytes(&l->ignored);
    l->server->repl.unexpected_errors++;
    if (was_logged(l, name)) return;
    while (error.n && (error.p[error.n - 1] == '\n' || error.p[error.n - 1] == '\r')) error.n--;
    if (l->server->config.hide_user_data_from_log) { /* the text may quote arguments, the code not */
        const char *blank = memchr(error.p, ' ', error.n);
        if (blank) error.n = (size_t)(blank - error.p);
    }
    log_line(&l->server->log, LOG_WARNING, "== CRITICAL == This replica is sending an error to its master: "
                                           "'%.*s' after processing the command '%s'",
             (int)MIN(error.n, 256u), error.p, bytes_legible(name, text));
}

/* -- one command ------------------------------------------------------------------------------------ */

static COLD void link_follow_show(struct link *l, int argc, const bytes *argv)
{
    struct link_client x;
    if (link_as_client(l->server, &x)) monitor_tell(l->server, l->session.db, x.peer, argc, argv);
}

static COLD void note_slow(struct link *l, int argc, const bytes *argv, i64 usec)
{
    struct server *s = l->server;
    struct link_client x;
    link_as_client(s, &x);
    slowlog_add(&s->slowlog, (u64)s->config.slowlog_max_len, clock_wall_ms() / 1000, usec, argc, argv,
                bytes_str(x.peer), (bytes){0});
}

static void run_write(struct link *l, const struct command *cmd, int argc, bytes *argv)
{
    struct server *s = l->server;
    struct reply out = {.out = &l->ignored, .proto = 2};
    struct request q = {&l->session, s, argc, argv, &out};
    struct outcome o;
    i64 start_us = clock_mono_us();
    bytes name = argv[0];
    buf_clear(&l->ignored);
    l->running = &q;
    region_follow(lone_region(s), &q, &o);
    l->running = NULL;
    if (o.rejected || o.failed) link_follow_failed(l, name);
    else if (cmd->run == cmd_flushall) s->persist.flushed |= !snapshot_finishing_save(&s->persist);
    l->last_command = cmd->name;
    i64 usec = clock_mono_us() - start_us;
    if (o.cmd) stats_call(&s->stats, o.cmd->id, (u64)usec, o.failed);
    if (UNLIKELY(server_is_slow(s, cmd, usec))) note_slow(l, argc, argv, usec);
}

static bool parse_db(int argc, const bytes *argv, u32 *db)
{
    i64 n;
    if (argc != 2 || !num_parse_i64(argv[1], &n) || n < 0 || n > INT32_MAX) return false;
    *db = (u32)n;
    return true;
}

/* A database we don't have is remembered all the same, so that its commands fail instead of going
 * elsewhere. */
static void link_follow_select_db(struct link *l, int argc, const bytes *argv)
{
    u32 db;
    if (!parse_db(argc, argv, &db)) {
        not_run(l, argv[0]);
        return;
    }
    l->session.db = l->server->repl.stream_db = db;
}

/* As Redis answers GETACK: the position before this command. */
static void note_question(struct link *l, const struct inbox_command *c)
{
    l->asked = true;
    l->asked_at = l->server->repl.stream.end + c->begin;
}

static bool is_ignored(bytes name)
{
    static const char *const names[] = {"ping", "multi", "exec", "replconf"};
    for (u32 i = 0; i < ARRAY_LEN(names); i++)
        if (bytes_is(name, names[i])) return true;
    return false;
}

/* Redis also propagates PFCOUNT, which stores its result in the key. PUBLISH reaches our own subscribers. */
static bool link_follow_may_run(const struct link *l, const struct command *cmd)
{
    bool runs = cmd->flags & CMD_WRITE || cmd->run == cmd_pfcount || cmd->run == cmd_publish ||
                cmd->run == cmd_spublish || cmd->run == cmd_echo || script_is_replayed(cmd);
    return runs && l->session.db < lone_region(l->server)->eng->databases;
}

static void link_follow_run(struct link *l, const struct inbox_command *c)
{
    int argc = (int)c->argc;
    if (!argc) return;
    if (UNLIKELY(c->argc > l->argv_cap)) {
        l->argv_cap = MAX(c->argc, 64u);
        l->argv = mem_realloc(l->argv, l->argv_cap * sizeof *l->argv);
    }
    for (u32 i = 0; i < c->argc; i++) l->argv[i] = inbox_arg(&l->inbox, c, i);
    bytes name = l->argv[0];
    const struct command *cmd = command_find(name);
    if (UNLIKELY(cmd && cmd->sub_count && argc > 1)) cmd = command_find_sub(cmd, l->argv[1]);
    if (UNLIKELY(l->server->monitor_count) && cmd && monitor_shows(cmd)) link_follow_show(l, argc, l->argv);
    if (LIKELY(cmd && link_follow_may_run(l, cmd))) run_write(l, cmd, argc, l->argv);
    else if (bytes_is(name, "select")) link_follow_select_db(l, argc, l->argv);
    else if (bytes_is(name, "replconf") && argc > 1 && bytes_is(l->argv[1], "getack")) note_question(l, c);
    else if (!is_ignored(name)) not_run(l, name);
}

/* -- what a read has brought ------------------------------------------------------------------------ */

/* Prefetches keys for the commands that follow, as a tick does for requests. Returns up to which command. */
static u32 link_follow_prefetch(const struct link *l, u32 from)
{
    struct engine *e = lone_region(l->server)->eng;
    const struct inbox *b = &l->inbox;
    struct want want[PREFETCH_MAX];
    u32 wants = 0, db = l->session.db, ahead = MAX(MIN(e->caps.prefetch_ahead, PREFETCH_MAX), 1u);
    u32 end = MIN(b->ready, from + ahead);
    for (u32 i = from; i < end; i++) {
        const struct inbox_command *c = &b->commands[i];
        if (c->argc < 2) continue;
        bytes name = inbox_arg(b, c, 0), key = inbox_arg(b, c, 1), element = {0};
        if (name.n == 6 && bytes_is(name, "select")) parse_db((int)c->argc, (bytes[]){name, key}, &db);
        const struct command *cmd = e->caps.prefetch_elements ? command_find(name) : NULL;
        if (cmd && cmd->element && cmd->element < c->argc) element = inbox_arg(b, c, cmd->element);
        if (db < e->databases) want[wants++] = (struct want){db, key, element};
    }
    if (wants > 1) e->ops->prefetch(e, want, wants);
    return end;
}

static void link_follow_apply(struct link *l)
{
    struct server *s = l->server;
    struct replication *r = &s->repl;
    u32 db = r->stream_db;
    region_follow_begin(lone_region(s));
    net_keep_output(&s->net); /* replies to requests of earlier ticks */
    for (u32 i = 0, fetched = 0; i < l->inbox.ready && !lone_region(s)->doomed; i++) {
        if (i == fetched) fetched = link_follow_prefetch(l, i);
        link_follow_run(l, &l->inbox.commands[i]);
    }
    repl_stream_append(&r->stream, inbox_ready(&l->inbox));
    if (!server_commit(s, COMMIT_PRIMARY)) { /* nothing was applied: it is tried again from this position */
        r->stream_db = db;
        log_line(&s->log, LOG_WARNING, "The storage refused commands of the primary: %s",
                 s->node.refuse_writes ? s->node.refuse_writes : REGION_IO_ERROR);
        link_close(l, false);
        return;
    }
    inbox_applied(&l->inbox);
    if (!l->asked) return;
    l->asked = false;
    link_acknowledge(l, l->asked_at);
}

/* The stream can't be followed from here: the next sync is a full one. */
static void corrupt(struct link *l, err e)
{
    log_line(&l->server->log, LOG_WARNING, "Protocol error (%s) from client: the master. Closing the master "
                                           "connection and discarding the cached master.",
             e == ERR_LIMIT ? "too long a command" : l->inbox.parser.error);
    l->no_partial = true;
    link_close(l, false);
}

static bool aof_fails(const struct link *l)
{
    const struct persistence *p = &l->server->persist;
    bool anyway = l->server->config.replica_ignore_disk_write_errors;
    return !anyway && p->aof_state == AOF_IS_ON && aof_refuses(p->aof);
}

bool follow_may(const struct link *l) { return !server_holds(l->server, HOLD_STORAGE) && !aof_fails(l); }

void follow_resume(struct link *l)
{
    if (l->state == LINK_UP && follow_may(l)) link_watch(l, l->conn->events | UV_READABLE);
}

static size_t wanted_bytes(const struct inbox *b)
{
    size_t needed = request_needed(&b->parser), have = b->in.n - b->parsed;
    return needed <= have + READ_BYTES ? READ_BYTES : MIN(needed - have, (size_t)READ_MORE);
}

void follow_readable(struct link *l)
{
    struct server *s = l->server;
    size_t room;
    if (!follow_may(l)) {
        if (aof_fails(l))
            log_line(&s->log, LOG_WARNING,
                     "Replica is unable to write to disk: it does not follow its primary until it can");
        link_watch(l, l->conn->events & ~UV_READABLE);
        return;
    }
    size_t least = wanted_bytes(&l->inbox);
    char *to = inbox_room(&l->inbox, least, &room);
    size_t n = link_read(l, to, least);
    if (!l->conn) return;
    err e = inbox_took(&l->inbox, n, MAX(s->net.config.max_bulk, LONGEST_BULK));
    if (e) corrupt(l, e);
    else if (l->inbox.ready) link_follow_apply(l);
}
