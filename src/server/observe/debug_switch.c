/* The subcommands of DEBUG that switch a safeguard off, or do something no client should: for test suites. */
#include <errno.h>

#include "base/alloc.h"
#include "cluster/cluster.h"
#include "resp/command.h"
#include "server/observe/debug_parts.h"
#include "server/server.h"
#include "server/client/users.h"

/* Like atoi: 0 if it is not a number. */
static bool switch_is_on(struct ctx *c)
{
    i64 n = 0;
    return num_parse_i64(c->argv[2], &n) && n != 0;
}

void debug_set_disable_deny_scripts(struct ctx *c)
{
    ctx_node(c)->scripts_unbound = switch_is_on(c);
    reply_ok(c->out);
}

void debug_set_skip_checksum_validation(struct ctx *c)
{
    c->ks->skip_checksums = switch_is_on(c);
    reply_ok(c->out);
}

void debug_pause_cron(struct ctx *c)
{
    c->server->cron_paused = switch_is_on(c);
    reply_ok(c->out);
}

/* About structures that Mayfly does not have. */
void debug_no_effect(struct ctx *c) { reply_ok(c->out); }

/* Our output buffers record no peak. */
void debug_replybuffer(struct ctx *c)
{
    bytes what = c->argv[2], value = c->argv[3];
    i64 ms;
    bool by_time = bytes_is(what, "peak-reset-time");
    if (!by_time && !bytes_is(what, "resizing")) {
        ctx_wrong_subcommand(c);
        return;
    }
    if (by_time && !bytes_is(value, "never") && !bytes_is(value, "reset") && !ctx_int(c, value, &ms)) return;
    reply_ok(c->out);
}

/* A member of a group drops a key, and the others don't. */
void debug_raft_diverge(struct ctx *c)
{
    if (!c->server->cluster || !cluster_diverge(c->server, c->argv[2]))
        reply_error(c->out, "ERR Not a follower in a cluster, or no such key");
    else reply_ok(c->out);
}

/* -- replication ------------------------------------------------------------------------------ */

void debug_change_repl_id(struct ctx *c)
{
    log_line(&c->server->log, LOG_NOTICE, "Changing replication IDs after receiving DEBUG change-repl-id");
    replication_change_id(c->server);
    reply_ok(c->out);
}

/* Replicas get a command that was not run here. */
void debug_replicate(struct ctx *c)
{
    struct buf command = {0};
    resp_write_command(&command, c->argc - 2, c->argv + 2);
    replication_feed(c->server, buf_bytes(&command));
    buf_release(&command);
    reply_ok(c->out);
}

/* -- the process -------------------------------------------------------------------------------- */

void debug_config_rewrite_force_all(struct ctx *c)
{
    struct server *s = c->server;
    struct buf users = {0};
    users_lines(s, &users);
    bool ok = s->config.file.n && config_rewrite(&s->config, buf_bytes(&users), true);
    if (!s->config.file.n) reply_error(c->out, "ERR CONFIG-REWRITE-FORCE-ALL failed: no configuration file");
    else if (ok) reply_ok(c->out);
    else reply_errorf(c->out, "ERR CONFIG-REWRITE-FORCE-ALL failed: %s", strerror(errno));
    buf_release(&users);
}

void debug_leak(struct ctx *c)
{
    char *volatile forgotten = mem_alloc(c->argv[2].n + 1);
    (void)forgotten;
    reply_ok(c->out);
}

void debug_oom(struct ctx *c)
{
    volatile size_t much = SIZE_MAX / 2;
    mem_free(mem_alloc(much));
    reply_ok(c->out);
}
