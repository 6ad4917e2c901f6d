/* CLIENT and MONITOR. */
#include "server/client.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "command/commands.h"
#include "exec/multi.h"
#include "exec/script.h"
#include "server/monitor.h"

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

void client_describe(struct conn *c, i64 now_ms, struct buf *out)
{
    const struct session *s = &c->session;
    char flags[16];
    size_t f = 0;
    if (c->class == CONN_REPLICA) flags[f++] = 'S';
    if (s->monitor) flags[f++] = 'O';
    if (s->subscribed) flags[f++] = 'P';
    if (multi_open(s)) flags[f++] = 'x';
    if (c->hold & (HOLD_WAIT | HOLD_BLOCKED)) flags[f++] = 'b';
    f += tracking_flags(c, flags + f);
    if (s->tx && s->tx->watcher.dirty) flags[f++] = 'd';
    if (s->close_after_reply) flags[f++] = 'c';
    if (c->is_unix) flags[f++] = 'U';
    if (s->no_evict) flags[f++] = 'e';
    if (s->no_touch) flags[f++] = 'T';
    if (f == 0) flags[f++] = 'N';
    flags[f] = '\0';
    bytes user = s->user ? buf_bytes(&s->user->name) : BYTES_LIT("(superuser)");
    size_t qbuf = c->in.n + c->lent.n, out_bytes = conn_output_bytes(c);
    buf_printf(out, "id=%llu addr=%s laddr=%s fd=%d name=%.*s age=%lld idle=%lld flags=%s db=%u sub=%llu psub=%llu ssub=%llu multi=%d",
               (unsigned long long)s->id, c->peer, c->local, c->fd, (int)s->name.n, s->name.p ? s->name.p : "",
               (long long)((now_ms - c->created_ms) / 1000), (long long)((now_ms - c->active_ms) / 1000), flags,
               s->db, (unsigned long long)pubsub_subscriptions(c, PUBSUB_CHANNEL),
               (unsigned long long)pubsub_subscriptions(c, PUBSUB_PATTERN),
               (unsigned long long)pubsub_subscriptions(c, PUBSUB_SHARD), multi_open(s) ? (int)s->tx->count : -1);
    buf_printf(out, " qbuf=%zu qbuf-free=%zu argv-mem=%zu multi-mem=%zu rbs=%zu rbp=%zu obl=%zu oll=%u omem=%zu tot-mem=%zu events=%s",
               qbuf, c->in.cap + c->lent.cap - qbuf, c->parser.cap * sizeof(struct arg_span), s->queue_bytes,
               c->out.cap,
               c->out.cap, c->out.n - c->sent, 0u, out_bytes, conn_memory(c) + multi_memory(s),
               c->events & UV_WRITABLE ? "rw" : "r");
    buf_printf(out, " cmd=%s user=%.*s redir=%lld resp=%u lib-name=%.*s lib-ver=%.*s",
               c->last_command ? c->last_command : "NULL", (int)user.n, user.p, tracking_redirect(c), s->proto, (int)s->lib_name.n,
               s->lib_name.p ? s->lib_name.p : "", (int)s->lib_ver.n, s->lib_ver.p ? s->lib_ver.p : "");
}

void cmd_client_info(struct ctx *c)
{
    struct buf text = {0};
    conn_of(c->session)->last_command = c->may_wait ? c->cmd->name : "exec";
    client_describe(conn_of(c->session), c->now_ms, &text);
    buf_append_char(&text, '\n');
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}

/* -- filters of CLIENT LIST and CLIENT KILL ------------------------------------------------- */

struct client_filter {
    u64 id;
    bool by_id, by_type, by_addr, by_laddr, by_user, skip_me;
    enum conn_class class;
    bool by_link; /* TYPE master: the connection to our primary, which is none of net's */
    bytes addr, laddr;
    const struct acl_user *user;
};

static bool matches(const struct client_filter *f, struct conn *c)
{
    if (f->by_id && c->session.id != f->id) return false;
    if (f->by_type && (f->by_link || c->class != f->class)) return false;
    if (f->by_addr && !bytes_eq(bytes_str(c->peer), f->addr)) return false;
    if (f->by_laddr && !bytes_eq(bytes_str(c->local), f->laddr)) return false;
    if (f->by_user && c->session.user != f->user) return false;
    return true;
}

static bool parse_class(struct ctx *c, bytes word, struct client_filter *f)
{
    f->by_type = true;
    if (bytes_is(word, "normal")) f->class = CONN_NORMAL;
    else if (bytes_is(word, "replica") || bytes_is(word, "slave")) f->class = CONN_REPLICA;
    else if (bytes_is(word, "pubsub")) f->class = CONN_PUBSUB;
    else if (bytes_is(word, "master")) f->by_link = true;
    else {
        reply_errorf(c->out, "ERR Unknown client type '%.*s'", (int)MIN(word.n, 128u), word.p);
        return false;
    }
    return true;
}

/* All connections, oldest first, which is in the order of their ids: net's list has the
 * newest first. The caller frees the array. */
static struct conn **by_age(const struct net *n)
{
    struct conn **v = mem_alloc(n->count * sizeof *v);
    u32 at = n->count;
    for (struct conn *x = n->conns; x; x = x->next) v[--at] = x;
    return v;
}

static struct conn *find_id(struct conn *const *v, u32 n, u64 id)
{
    u32 low = 0, high = n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (v[mid]->session.id < id) low = mid + 1;
        else high = mid;
    }
    return low < n && v[low]->session.id == id ? v[low] : NULL;
}

static void describe_line(struct ctx *c, struct conn *x, struct buf *out)
{
    if (x->closing) return;
    client_describe(x, c->now_ms, out);
    buf_append_char(out, '\n');
}

/* CLIENT LIST ID: those named, as often and in the order they are named. */
static bool list_ids(struct ctx *c, struct conn *const *v, u32 n, struct buf *out)
{
    for (int i = 3; i < c->argc; i++) {
        i64 id;
        if (!num_parse_i64(c->argv[i], &id)) {
            reply_error(c->out, "ERR Invalid client ID");
            return false;
        }
        struct conn *x = find_id(v, n, (u64)id);
        if (x) describe_line(c, x, out);
    }
    return true;
}

void cmd_client_list(struct ctx *c)
{
    struct client_filter f = {0};
    bool by_id = c->argc > 3 && bytes_is(c->argv[2], "id");
    if (c->argc == 4 && bytes_is(c->argv[2], "type")) {
        if (!parse_class(c, c->argv[3], &f)) return;
    } else if (c->argc != 2 && !by_id) {
        ctx_syntax_error(c);
        return;
    }
    struct buf text = {0};
    u32 n = c->server->net.count;
    struct conn **v = by_age(&c->server->net);
    conn_of(c->session)->last_command = c->may_wait ? c->cmd->name : "exec";
    for (u32 i = 0; !by_id && i < n; i++) {
        if (matches(&f, v[i])) describe_line(c, v[i], &text);
    }
    if (!by_id || list_ids(c, v, n, &text)) reply_verbatim(c->out, buf_bytes(&text), "txt");
    mem_free(v);
    buf_release(&text);
}

static bool parse_kill(struct ctx *c, struct client_filter *f)
{
    f->skip_me = true;
    for (int i = 2; i < c->argc; i += 2) {
        bytes name = c->argv[i];
        if (i + 1 >= c->argc) {
            ctx_syntax_error(c);
            return false;
        }
        bytes value = c->argv[i + 1];
        if (bytes_is(name, "id")) {
            i64 id;
            if (!num_parse_i64(value, &id) || id < 1) {
                reply_error(c->out, "ERR client-id should be greater than 0");
                return false;
            }
            f->by_id = true;
            f->id = (u64)id;
        } else if (bytes_is(name, "type")) {
            if (!parse_class(c, value, f)) return false;
        } else if (bytes_is(name, "addr")) {
            f->by_addr = true;
            f->addr = value;
        } else if (bytes_is(name, "laddr")) {
            f->by_laddr = true;
            f->laddr = value;
        } else if (bytes_is(name, "user")) {
            if (!(f->user = acl_find(&c->server->acl, value))) {
                reply_errorf(c->out, "ERR No such user '%.*s'", (int)MIN(value.n, 128u), value.p);
                return false;
            }
            f->by_user = true;
        } else if (bytes_is(name, "skipme") && (bytes_is(value, "yes") || bytes_is(value, "no"))) {
            f->skip_me = bytes_is(value, "yes");
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

void cmd_client_kill(struct ctx *c)
{
    struct client_filter f = {0};
    bool old_style = c->argc == 3;
    if (old_style) {
        f.by_addr = true;
        f.addr = c->argv[2];
    } else if (!parse_kill(c, &f)) {
        return;
    }
    i64 killed = 0;
    for (struct conn *x = c->server->net.conns; x; x = x->next) {
        bool me = &x->session == c->session;
        if (x->closing || !matches(&f, x) || (me && f.skip_me)) continue;
        killed++;
        if (me) x->session.close_after_reply = true;
        else conn_close(x);
    }
    if (f.by_link && link_is_up(c->server)) {
        link_break(c->server);
        killed++;
    }
    if (!old_style) reply_int(c->out, killed);
    else if (killed) reply_ok(c->out);
    else reply_error(c->out, "ERR No such client");
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

void client_end_pause(struct server *s)
{
    s->pause_until_ms = 0;
    net_resume(&s->net, HOLD_PAUSE);
}

static void too_many_arguments(struct ctx *c)
{
    reply_errorf(c->out, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try CLIENT HELP.",
                 (int)c->argv[1].n, c->argv[1].p);
}

void cmd_client_pause(struct ctx *c)
{
    struct server *s = c->server;
    i64 ms;
    bool writes_only = false;
    if (c->argc > 4) {
        too_many_arguments(c);
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
    s->pause_until_ms = MAX(s->pause_until_ms, c->now_ms + MIN(ms, INT64_MAX - c->now_ms));
    reply_ok(c->out);
}

void cmd_client_unpause(struct ctx *c)
{
    client_end_pause(c->server);
    reply_ok(c->out);
}

void cmd_client_unblock(struct ctx *c)
{
    i64 id;
    if (c->argc > 4 || (c->argc == 4 && !bytes_is(c->argv[3], "timeout") && !bytes_is(c->argv[3], "error"))) {
        if (c->argc > 4) too_many_arguments(c);
        else reply_error(c->out, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        return;
    }
    if (!ctx_int(c, c->argv[2], &id)) return;
    struct conn *x = c->server->net.conns;
    while (x && x->session.id != (u64)id) x = x->next;
    bool with_error = c->argc == 4 && bytes_is(c->argv[3], "error");
    bool unblocked = x && (primary_unblock(c->server, x, with_error) || block_unblock(c->server, x, with_error));
    reply_int(c->out, unblocked);
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
        "    TYPE (NORMAL|MASTER|REPLICA|PUBSUB), SKIPME (YES|NO)",
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

/* -- MONITOR --------------------------------------------------------------------------------------- */

void client_enter_monitor(struct server *s, struct session *session)
{
    if (session->monitor) return;
    session->monitor = true;
    s->monitors = mem_realloc(s->monitors, (s->monitor_count + 1) * sizeof(struct conn *));
    s->monitors[s->monitor_count++] = conn_of(session);
}

void client_leave_monitor(struct server *s, struct session *session)
{
    if (!session->monitor) return;
    session->monitor = false;
    u32 at = 0;
    while (s->monitors[at] != conn_of(session)) at++;
    s->monitors[at] = s->monitors[--s->monitor_count];
}

void cmd_monitor(struct ctx *c)
{
    if (!c->may_wait) {
        reply_error(c->out, "ERR MONITOR isn't allowed for DENY BLOCKING client");
        return;
    }
    client_enter_monitor(c->server, c->session);
    reply_ok(c->out);
}

static void append_quoted(struct buf *out, bytes s)
{
    buf_append_char(out, '"');
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        switch (ch) {
        case '\\':
        case '"': buf_printf(out, "\\%c", ch); break;
        case '\n': buf_append_str(out, "\\n"); break;
        case '\r': buf_append_str(out, "\\r"); break;
        case '\t': buf_append_str(out, "\\t"); break;
        case '\a': buf_append_str(out, "\\a"); break;
        case '\b': buf_append_str(out, "\\b"); break;
        default:
            if (ch >= ' ' && ch <= '~') buf_append_char(out, ch);
            else buf_printf(out, "\\x%02x", (u8)ch);
        }
    }
    buf_append_char(out, '"');
}

void monitor_feed(struct server *s, const struct conn *from, const struct command *cmd, int argc,
                  const bytes *argv)
{
    if (!(cmd->flags & (CMD_SKIP_MONITOR | CMD_ADMIN))) monitor_show(s, from, argc, argv);
}

void monitor_show(struct server *s, const struct conn *from, int argc, const bytes *argv)
{
    const struct script_run *script = s->region.script;
    bool by_script = script && script->c->session == &from->session; /* others may speak while it runs */
    struct buf line = {0};
    i64 us = clock_wall_us();
    buf_printf(&line, "+%lld.%06lld [%u %s]", (long long)(us / 1000000), (long long)(us % 1000000),
               from->session.db, by_script ? "lua" : from->is_unix ? "unix:" : from->peer);
    if (from->is_unix && !by_script) {
        line.n--;
        buf_append_str(&line, from->peer);
        if (line.n > 2 && memcmp(line.p + line.n - 2, ":0", 2) == 0) line.n -= 2;
        buf_append_char(&line, ']');
    }
    for (int i = 0; i < argc; i++) {
        buf_append_char(&line, ' ');
        append_quoted(&line, argv[i]);
    }
    buf_append_str(&line, "\r\n");
    for (u32 i = 0; i < s->monitor_count; i++) {
        if (s->monitors[i]->closing) continue;
        struct reply r = conn_reply(s->monitors[i]);
        buf_append_bytes(r.out, buf_bytes(&line));
    }
    buf_release(&line);
}
