/* CLIENT: names, descriptions, modes and pauses. LIST and KILL are in client_list.c. */
#include "server/client/client.h"

#include "command/commands.h"
#include "exec/multi.h"
#include "script/script.h"

#define FLAGS_MOST 16

/* -- names ------------------------------------------------------------------------------ */

static bool is_printable_word(bytes s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '!' || s.p[i] > '~') return false;
    }
    return true;
}

static void store(struct buf *to, bytes value)
{
    buf_clear(to);
    if (value.n) buf_append_bytes(to, value);
    else buf_release(to);
}

bool client_set_name(struct ctx *c, bytes name)
{
    if (!is_printable_word(name)) {
        reply_error(c->out, "ERR Client names cannot contain spaces, newlines or special characters.");
        return false;
    }
    store(&c->session->name, name);
    return true;
}

void cmd_client_setname(struct ctx *c)
{
    if (client_set_name(c, c->argv[2])) reply_ok(c->out);
}

void cmd_client_getname(struct ctx *c)
{
    if (c->session->name.n) reply_bulk(c->out, buf_bytes(&c->session->name));
    else reply_null(c->out);
}

void cmd_client_setinfo(struct ctx *c)
{
    bool is_name = bytes_is(c->argv[2], "lib-name"), is_version = bytes_is(c->argv[2], "lib-ver");
    if (!is_name && !is_version) {
        reply_errorf(c->out, "ERR Unrecognized option '%.*s'", (int)MIN(c->argv[2].n, 128u), c->argv[2].p);
    } else if (!is_printable_word(c->argv[3])) {
        reply_errorf(c->out, "ERR %s cannot contain spaces, newlines or special characters.",
                     is_name ? "lib-name" : "lib-ver");
    } else {
        store(is_name ? &c->session->lib_name : &c->session->lib_ver, c->argv[3]);
        reply_ok(c->out);
    }
}

void cmd_client_id(struct ctx *c) { reply_int(c->out, (i64)c->session->id); }

/* -- describing --------------------------------------------------------------------------- */

/* The letters of its flags. */
static void print_flags(struct conn *c, char flags[FLAGS_MOST])
{
    const struct session *s = &c->session;
    size_t f = 0;
    if (c->class == CONN_REPLICA) flags[f++] = 'S';
    if (s->monitor) flags[f++] = 'O';
    if (s->subscribed) flags[f++] = 'P';
    if (multi_open(s)) flags[f++] = 'x';
    if (c->hold & HOLD_SHOWN) flags[f++] = 'b';
    f += tracking_flags(c, flags + f);
    if (s->tx && s->tx->watcher.dirty) flags[f++] = 'd';
    if (s->close_after_reply) flags[f++] = 'c';
    if (c->is_unix) flags[f++] = 'U';
    if (s->no_evict) flags[f++] = 'e';
    if (s->no_touch) flags[f++] = 'T';
    if (f == 0) flags[f++] = 'N';
    flags[f] = '\0';
}

static void print_text(struct buf *out, const char *name, bytes value)
{
    buf_printf(out, " %s=", name);
    buf_append_bytes(out, value);
}

static void print_buffers(const struct conn *c, struct buf *out)
{
    size_t kept = c->in.n + c->lent.n, unused = c->in.cap + c->lent.cap - kept;
    buf_printf(out, " qbuf=%zu qbuf-free=%zu argv-mem=%zu multi-mem=%zu", kept + c->fresh.n, unused,
               c->parser.cap * sizeof(struct arg_span), c->session.queue_bytes);
    size_t room = conn_output_room(c);
    buf_printf(out, " rbs=%zu rbp=%zu obl=%zu oll=%u omem=%zu tot-mem=%zu", room, room,
               c->out.n - (c->waiting.first ? 0 : c->sent), c->waiting.count, conn_output_bytes(c),
               client_memory(c));
}

i64 client_age_s(const struct conn *c) { return ((i64)uv_now(c->net->loop) - c->connected_ms) / 1000; }

void client_describe(struct conn *c, struct buf *out)
{
    const struct session *s = &c->session;
    long long now_ms = (long long)uv_now(c->net->loop);
    char flags[FLAGS_MOST];
    print_flags(c, flags);
    buf_printf(out, "id=%llu addr=%s laddr=%s fd=%d", (ull)s->id, c->peer, c->local, c->fd);
    print_text(out, "name", buf_bytes(&s->name));
    buf_printf(out, " age=%lld idle=%lld flags=%s db=%u", (long long)client_age_s(c),
               (now_ms - c->active_ms) / 1000, flags, s->db);
    buf_printf(out, " sub=%llu psub=%llu ssub=%llu multi=%d watch=%u",
               (ull)pubsub_subscriptions(c, PUBSUB_CHANNEL), (ull)pubsub_subscriptions(c, PUBSUB_PATTERN),
               (ull)pubsub_subscriptions(c, PUBSUB_SHARD), multi_open(s) ? (int)s->tx->count : -1,
               s->tx ? s->tx->watcher.count : 0);
    print_buffers(c, out);
    buf_printf(out, " events=%s cmd=%s", c->events & UV_WRITABLE ? "rw" : "r",
               c->last_command ? c->last_command : "NULL");
    print_text(out, "user", s->user ? buf_bytes(&s->user->name) : BYTES_LIT("(superuser)"));
    buf_printf(out, " redir=%lld resp=%u", tracking_redirect(c), s->proto);
    print_text(out, "lib-name", buf_bytes(&s->lib_name));
    print_text(out, "lib-ver", buf_bytes(&s->lib_ver));
}

void client_note_running(struct ctx *c)
{
    const struct script_run *script = ctx_node(c)->script;
    const char *name = c->may_wait ? c->cmd->name : c->in_script ? script->c->cmd->name : "exec";
    conn_of(c->session)->last_command = name;
}

void cmd_client_info(struct ctx *c)
{
    struct buf text = {0};
    client_note_running(c);
    client_describe(conn_of(c->session), &text);
    buf_append_char(&text, '\n');
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

/* -- modes ------------------------------------------------------------------------------------- */

void cmd_client_reply(struct ctx *c)
{
    struct session *s = c->session;
    if (bytes_is(c->argv[2], "on")) {
        s->reply_mode = REPLY_ON;
        reply_ok(c->out);
    } else if (bytes_is(c->argv[2], "off")) {
        s->reply_mode = REPLY_OFF;
    } else if (bytes_is(c->argv[2], "skip")) {
        if (s->reply_mode != REPLY_OFF) s->reply_mode = REPLY_SKIP_NEXT;
    } else {
        ctx_syntax_error(c);
    }
}

static void on_off(struct ctx *c, bool *flag)
{
    if (bytes_is(c->argv[2], "on")) *flag = true;
    else if (bytes_is(c->argv[2], "off")) *flag = false;
    else {
        ctx_syntax_error(c);
        return;
    }
    reply_ok(c->out);
}

void cmd_client_no_evict(struct ctx *c) { on_off(c, &c->session->no_evict); }
void cmd_client_no_touch(struct ctx *c) { on_off(c, &c->session->no_touch); }

static void end_pause(struct server *s)
{
    s->pause_until_ms = 0;
    server_hold(s, HOLD_PAUSE, false);
    uv_timer_stop(&s->pause);
    net_resume(&s->net, HOLD_PAUSE);
}

static void on_pause_over(uv_timer_t *t) { end_pause(t->data); }

/* A pause in progress is extended, never shortened. */
static void pause_for(struct server *s, i64 ms)
{
    uv_update_time(&s->loop);
    i64 now = (i64)uv_now(&s->loop);
    s->pause_until_ms = MAX(s->pause_until_ms, now + MIN(ms, INT64_MAX - now));
    server_hold(s, HOLD_PAUSE, true);
    uv_timer_start(&s->pause, on_pause_over, (u64)(s->pause_until_ms - now) + 1, 0); /* never too early */
}

void cmd_client_pause(struct ctx *c)
{
    struct server *s = c->server;
    i64 ms;
    bool writes_only = false;
    if (c->argc > 4) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (c->argc == 4) {
        if (bytes_is(c->argv[3], "write")) writes_only = true;
        else if (!bytes_is(c->argv[3], "all")) {
            reply_error(c->out, "ERR CLIENT PAUSE mode must be WRITE or ALL");
            return;
        }
    }
    if (!ctx_timeout_ms(c, c->argv[2], &ms)) return;
    s->pause_writes_only = writes_only && (!s->pause_until_ms || s->pause_writes_only);
    pause_for(s, ms);
    reply_ok(c->out);
}

void cmd_client_unpause(struct ctx *c)
{
    end_pause(c->server);
    reply_ok(c->out);
}

void cmd_client_unblock(struct ctx *c)
{
    i64 id;
    if (c->argc > 4 || (c->argc == 4 && !bytes_is(c->argv[3], "timeout") && !bytes_is(c->argv[3], "error"))) {
        if (c->argc > 4) ctx_wrong_subcommand(c);
        else reply_error(c->out, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        return;
    }
    if (!ctx_int(c, c->argv[2], &id)) return;
    struct conn *x = c->server->net.conns;
    while (x && x->session.id != (u64)id) x = x->next;
    if (x && x->closing) x = NULL;
    bool with_error = c->argc == 4 && bytes_is(c->argv[3], "error");
    reply_int(c->out, x && (primary_unblock(c->server, x, with_error) ||
                            block_unblock(c->server, x, with_error)));
}

void cmd_client_help(struct ctx *c)
{
    static const char *const lines[] = {
        "CACHING (YES|NO)", "    Whether the keys that the next command reads are tracked (OPTIN, OPTOUT).",
        "GETNAME", "    The name of this connection.",
        "GETREDIR", "    The connection that is told what this one tracks.",
        "ID", "    The number of this connection.",
        "INFO", "    A line that describes this connection.",
        "KILL <ip:port>", "    Close the connection from that address.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Close connections that match all options:",
        "    ADDR <ip:port>, LADDR <ip:port>, ID <number>, USER <name>,",
        "    TYPE (NORMAL|MASTER|REPLICA|PUBSUB), SKIPME (YES|NO), MAXAGE <seconds>",
        "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <number> [<number> ...]]",
        "    A line for each connection.",
        "NO-EVICT (ON|OFF)", "    Keep this connection when client buffers must go.",
        "NO-TOUCH (ON|OFF)", "    Let this connection's reads leave the keys' LRU and LFU alone.",
        "PAUSE <milliseconds> [WRITE|ALL]", "    Hold the commands of all clients for a while.",
        "REPLY (ON|OFF|SKIP)", "    Whether replies are sent to this connection.",
        "SETINFO (LIB-NAME|LIB-VER) <value>", "    Tell which client library this is.",
        "SETNAME <name>", "    Name this connection.",
        "TRACKING (ON|OFF) [REDIRECT <number>] [BCAST] [PREFIX <prefix> [...]]",
        "         [OPTIN] [OPTOUT] [NOLOOP]",
        "    Tell this connection when keys it has read are changed.",
        "TRACKINGINFO", "    How this connection tracks keys.",
        "UNBLOCK <number> [TIMEOUT|ERROR]", "    Wake a client that waits in a blocking command.",
        "UNPAUSE", "    End a pause.", NULL,
    };
    ctx_help(c, lines);
}
