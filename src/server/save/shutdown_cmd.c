/* SHUTDOWN, MODULE and LOLWUT. */
#include "base/clock.h"
#include "command/commands.h"
#include "script/script.h"
#include "server/client/client.h"
#include "server/server.h"

/* -- SHUTDOWN ------------------------------------------------------------------------ */

#define SHUTDOWN_ABORT 16 /* in addition to the SHUTDOWN_* of config.h */

static bool parse_shutdown(struct ctx *c, u32 *how)
{
    *how = 0;
    for (int i = 1; i < c->argc; i++) {
        bytes word = c->argv[i];
        if (bytes_is(word, "nosave")) *how |= SHUTDOWN_NOSAVE;
        else if (bytes_is(word, "save")) *how |= SHUTDOWN_SAVE;
        else if (bytes_is(word, "now")) *how |= SHUTDOWN_NOW;
        else if (bytes_is(word, "force")) *how |= SHUTDOWN_FORCE;
        else if (bytes_is(word, "abort")) *how |= SHUTDOWN_ABORT;
        else return false;
    }
    bool torn = (*how & SHUTDOWN_NOSAVE) && (*how & SHUTDOWN_SAVE);
    return !torn && (!(*how & SHUTDOWN_ABORT) || *how == SHUTDOWN_ABORT);
}

/* Before the server ends, replicas should have everything that was written; writes are held back
 * meanwhile. */
bool shutdown_waits(struct server *s, u32 how)
{
    struct replication *r = &s->repl;
    u32 of;
    if (how & SHUTDOWN_NOW || !s->config.shutdown_timeout || s->node.loading || r->link) return false;
    if (s->node.script) return false; /* replicas' acknowledgements are not read while it runs */
    r->leave_how = how;
    if (r->leaving) return true;
    r->leave_at = r->stream.end + r->stream.staged;
    if (primary_in_step(s, r->leave_at, &of) == of) return false;
    log_line(&s->log, LOG_NOTICE, "Waiting for replicas before shutting down.");
    r->leaving = r->ask_acks = true;
    replication_hold(s);
    r->leave_until_ms = clock_mono_us() / 1000 + s->config.shutdown_timeout * 1000;
    return true;
}

/* The shutdown was cancelled: everything continues, and the clients that asked for it get an error. */
static void shutdown_stop_waiting(struct server *s)
{
    s->repl.leaving = false;
    replication_hold(s);
    s->stop_signal = 0;
    if (!s->repl.failover.state) net_resume(&s->net, HOLD_FAILOVER);
    for (struct conn *c = s->net.conns; c; c = c->next) {
        if (!(c->hold & HOLD_SHUTDOWN) || c->closing) continue;
        struct reply out = conn_reply(c);
        reply_error(&out, "ERR Errors trying to SHUTDOWN. Check logs.");
        conn_answer_deferred(c, false);
        conn_resume(c, HOLD_SHUTDOWN);
    }
}

void shutdown_cron(struct server *s)
{
    struct replication *r = &s->repl;
    u32 of, ready;
    if (LIKELY(!r->leaving)) return;
    ready = primary_in_step(s, r->leave_at, &of);
    if (ready < of && clock_mono_us() / 1000 < r->leave_until_ms) return;
    if (of) log_line(&s->log, ready < of ? LOG_WARNING : LOG_NOTICE,
                     "%u of %u replicas are in sync when shutting down.", ready, of);
    if (!server_shutdown(s, r->leave_how | SHUTDOWN_NOW)) shutdown_stop_waiting(s);
}

static void abort_shutdown(struct ctx *c)
{
    if (!c->server->repl.leaving) {
        reply_error(c->out, "ERR No shutdown in progress.");
        return;
    }
    log_line(&c->server->log, LOG_NOTICE, "Shutdown manually aborted");
    shutdown_stop_waiting(c->server);
    reply_ok(c->out);
}

void cmd_shutdown(struct ctx *c)
{
    u32 how;
    const char *busy = script_busy_error(ctx_node(c));
    if (!parse_shutdown(c, &how)) ctx_syntax_error(c);
    else if (how & SHUTDOWN_ABORT) abort_shutdown(c);
    else if (busy && !(how & SHUTDOWN_NOSAVE)) reply_error(c->out, busy); /* its changes are half done */
    else if (!server_shutdown(c->server, how))
        reply_error(c->out, "ERR Errors trying to SHUTDOWN. Check logs.");
    else if (c->server->repl.leaving && !c->server->shutting_down)
        conn_block(&c->server->net, conn_of(c->session), HOLD_SHUTDOWN);
}

/* -- MODULE -------------------------------------------------------------------------- */

void cmd_module_list(struct ctx *c) { reply_array(c->out, 0); }

void cmd_module_help(struct ctx *c)
{
    static const char *const lines[] = {
        "LIST",
        "    The loaded modules: none, there is no way to load one.",
        NULL,
    };
    ctx_help(c, lines);
}

/* -- LOLWUT -------------------------------------------------------------------------- */

#define POND_ROWS 7
#define POND_COLUMNS 56

/* A swarm over a pond at dusk; each call draws another evening. */
static void draw_pond(struct ctx *c, struct buf *out)
{
    static const char *const fly[] = {"\\|/", "~o~", ">=-", "-=<", "'v'"};
    char sky[POND_ROWS][POND_COLUMNS + 1];
    for (u32 y = 0; y < POND_ROWS; y++) {
        memset(sky[y], ' ', POND_COLUMNS);
        sky[y][POND_COLUMNS] = '\0';
        for (u32 n = 0; n < 1 + y / 2; n++)
            memcpy(&sky[y][4 * rand_below(&c->rng, POND_COLUMNS / 4)],
                   fly[rand_below(&c->rng, ARRAY_LEN(fly))], 3);
        buf_printf(out, "%s\n", sky[y]);
    }
    for (u32 y = 0; y < 2; y++) {
        for (u32 x = 0; x < POND_COLUMNS; x++)
            buf_append_char(out, "~-~ ~~_"[rand_below(&c->rng, 7)]);
        buf_append_char(out, '\n');
    }
}

static const char portrait[] =
    "\n"
    "              __..--\"\"\"--..\n"
    "         _.-\"'   /   |    \\ '.             She dances for one day\n"
    "       .'    /  /    |    .-'              and knows to the millisecond\n"
    "      '-.._ /__/_____|.-'                  when it is over.\n"
    "   (\\        o(_)====)====)-.__\n"
    "    \\\\______/ / /  \\ \\      ''--.._____________\n"
    "             ' '    ' '          ''---..._______\n"
    "\n";

/* Earlier editions took the size of the canvas as numbers: those must still be numbers. */
static bool parse_lolwut(struct ctx *c)
{
    i64 version, number;
    if (c->argc < 3 || !bytes_is(c->argv[1], "version")) return true;
    if (!ctx_int(c, c->argv[2], &version)) return false;
    int numbers = version == 5 ? 3 : version == 6 ? 2 : 0;
    for (int i = 3; i < c->argc && i < 3 + numbers; i++) {
        if (!ctx_int(c, c->argv[i], &number)) return false;
    }
    return true;
}

void cmd_lolwut(struct ctx *c)
{
    struct buf text = {0};
    if (!parse_lolwut(c)) return;
    draw_pond(c, &text);
    buf_append_str(&text, portrait);
    buf_append_str(&text, "Mayfly ver. " MAYFLY_VERSION " (Redis " REDIS_VERSION " protocol)\n");
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}
