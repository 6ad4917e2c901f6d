/* Commands about the connection itself: PING ECHO AUTH HELLO SELECT QUIT RESET,
 * and TIME. */
#include "base/clock.h"
#include "command/commands.h"
#include "exec/multi.h"
#include "script/script.h"
#include "server/client/client.h"
#include "server/client/monitor.h"
#include "server/client/users.h"

/* In RESP2 a subscriber could take a plain reply for a message. */
static void ping_subscriber(struct ctx *c)
{
    reply_array(c->out, 2);
    reply_bulk_str(c->out, "pong");
    reply_bulk(c->out, c->argc == 2 ? c->argv[1] : (bytes){0});
}

void cmd_ping(struct ctx *c)
{
    if (c->argc > 2) ctx_wrong_arity(c);
    else if (UNLIKELY(c->session->subscribed) && c->session->proto == 2) ping_subscriber(c);
    else if (c->argc == 2) reply_bulk(c->out, c->argv[1]);
    else reply_simple(c->out, "PONG");
}

void cmd_echo(struct ctx *c) { reply_bulk(c->out, c->argv[1]); }

void cmd_select(struct ctx *c)
{
    i64 db;
    if (!ctx_int(c, c->argv[1], &db)) return;
    if (ctx_node(c)->cluster_enabled && db != 0) {
        reply_error(c->out, "ERR SELECT is not allowed in cluster mode");
        return;
    }
    if (db < 0 || db >= (i64)c->eng->databases) {
        reply_error(c->out, "ERR DB index is out of range");
        return;
    }
    c->session->db = (u32)db;
    reply_ok(c->out);
}

void cmd_quit(struct ctx *c)
{
    reply_ok(c->out);
    c->session->close_after_reply = true;
}

void cmd_reset(struct ctx *c)
{
    struct session *s = c->session;
    monitor_leave(c->server, s);
    multi_end(s);
    pubsub_forget(c->server, conn_of(s));
    tracking_off(c->server, conn_of(s));
    s->db = 0;
    s->proto = c->out->proto = (u8)c->server->config.client_default_resp;
    s->reply_mode = REPLY_ON;
    s->no_touch = s->no_evict = false;
    users_greet(c->server, s);
    buf_clear(&s->name);
    reply_simple(c->out, "RESET");
}

void cmd_time(struct ctx *c)
{
    struct script_run *script = ctx_node(c)->script;
    i64 us = c->may_wait ? clock_wall_us() : c->now_ms * 1000; /* within another command time stands still */
    if (script) {
        if (!script->time_us || script_takes_long(ctx_node(c)))
            script->time_us = MAX(script->time_us, clock_wall_us());
        us = script->time_us;
    }
    reply_array(c->out, 2);
    reply_bulk_int(c->out, us / 1000000);
    reply_bulk_int(c->out, us % 1000000);
}

/* -- authentication ------------------------------------------------------------------ */

/* Returns an argument and hides it from MONITOR and the slow log, which read argv later. */
static bytes connection_take_secret(struct ctx *c, int at)
{
    bytes secret = c->argv[at];
    c->argv[at] = BYTES_LIT("(redacted)");
    return secret;
}

void cmd_auth(struct ctx *c)
{
    if (c->argc > 3) {
        ctx_syntax_error(c);
        return;
    }
    bytes password = connection_take_secret(c, c->argc - 1);
    bytes user = c->argc == 3 ? connection_take_secret(c, 1) : BYTES_LIT(ACL_DEFAULT_NAME);
    if (c->argc == 2 && acl_default(&c->server->acl)->nopass) {
        reply_error(c->out, "ERR AUTH <password> called without any password configured for the default "
                            "user. Are you sure your configuration is correct?");
        return;
    }
    if (users_log_in(c, user, password)) reply_ok(c->out);
}

/* The options take effect one by one: those before an invalid one stay in force, as in Redis. */
static bool hello_options(struct ctx *c)
{
    for (int i = 2; i < c->argc; i++) {
        int more = c->argc - 1 - i;
        if (bytes_is(c->argv[i], "auth") && more >= 2) {
            if (!users_log_in(c, connection_take_secret(c, i + 1), connection_take_secret(c, i + 2)))
                return false;
            i += 2;
        } else if (bytes_is(c->argv[i], "setname") && more >= 1) {
            if (!client_set_name(c, c->argv[++i])) return false;
        } else {
            reply_errorf(c->out, "ERR Syntax error in HELLO option '%.*s'", (int)MIN(c->argv[i].n, 128u),
                         c->argv[i].p);
            return false;
        }
    }
    return true;
}

static bool hello_version(struct ctx *c, i64 *proto)
{
    if (c->argc == 1) return true;
    if (!num_parse_i64(c->argv[1], proto)) {
        reply_error(c->out, "ERR Protocol version is not an integer or out of range");
        return false;
    }
    if (*proto < 2 || *proto > 3) {
        reply_error(c->out, "NOPROTO unsupported protocol version");
        return false;
    }
    return true;
}

void cmd_hello(struct ctx *c)
{
    i64 proto = c->session->proto;
    if (!hello_version(c, &proto) || !hello_options(c)) return;
    if (!c->session->authenticated && !ctx_node(c)->open) {
        reply_error(c->out, "NOAUTH HELLO must be called with the client already authenticated, otherwise "
                            "the HELLO AUTH <user> <pass> option can be used to authenticate the client and "
                            "select the RESP protocol version at the same time");
        return;
    }
    c->session->proto = c->out->proto = (u8)proto;
    reply_map(c->out, 7);
    reply_bulk_str(c->out, "server");
    reply_bulk_str(c->out, "redis");
    reply_bulk_str(c->out, "version");
    reply_bulk_str(c->out, REDIS_VERSION);
    reply_bulk_str(c->out, "proto");
    reply_int(c->out, c->out->proto);
    reply_bulk_str(c->out, "id");
    reply_int(c->out, (i64)c->session->id);
    reply_bulk_str(c->out, "mode");
    reply_bulk_str(c->out, "standalone");
    reply_bulk_str(c->out, "role");
    reply_bulk_str(c->out, c->server->repl.link ? "replica" : "master");
    reply_bulk_str(c->out, "modules");
    reply_array(c->out, 0);
}
