/* PSYNC, SYNC and REPLCONF, which replicas send; and ROLE. */
#include "command/commands.h"
#include "repl/link.h"
#include "repl/primary.h"

/* -- PSYNC and SYNC ------------------------------------------------------------------------------------- */

static bool may_sync(struct ctx *c)
{
    struct server *s = c->server;
    struct conn *conn = conn_of(c->session);
    const struct replica *r = conn->replica;
    const char *why = NULL;
    if (s->cluster) why = "ERR A node of a cluster has no replicas; a node joins with cluster-join";
    else if (s->repl.failover.state) why = "NOMASTERLINK Can't SYNC while failing over";
    else if (s->repl.link && !link_is_up(s))
        why = "NOMASTERLINK Can't SYNC while not connected with my master";
    else if (conn_has_output(conn)) why = "ERR SYNC and PSYNC are invalid with pending output";
    else if (r && r->no_data && !r->eof) why = "ERR Filtered replica requires EOF capability";
    if (why) reply_error(c->out, why);
    if (s->repl.link && !link_is_up(s)) link_refuses(s, conn);
    return !why;
}

static bool is_replica(const struct ctx *c)
{
    const struct conn *conn = conn_of(c->session);
    return conn->replica && conn->replica->state != REPLICA_NEW;
}

static void refuse_partial(struct replica *r, bytes id, i64 offset)
{
    struct server *s = r->server;
    const struct repl_stream *stream = &s->repl.stream;
    if (id.n && id.p[0] == '?') {
        log_line(&s->log, LOG_NOTICE, "Full resync requested by replica %s", replica_name(r).text);
        return;
    }
    s->repl.refused_syncs++;
    char text[BYTES_LEGIBLE + 4];
    log_line(&s->log, LOG_NOTICE, "Partial resynchronization not accepted: replica %s asked for '%s' from "
                                  "%lld on; there is '%s' from %llu to %llu, and '%s' up to %lld",
             replica_name(r).text, bytes_legible(id, text), (long long)offset, stream->id,
             (unsigned long long)stream->begin + 1, (unsigned long long)stream->end + 1, stream->id2,
             (long long)stream->id2_end + 1);
}

/* offset counts from one. */
static bool try_partial(struct ctx *c, struct replica *r, bytes id, i64 offset)
{
    struct replication *repl = &r->server->repl;
    if (r->rdb_only || !repl->streaming || offset < 1 ||
        !repl_stream_continues(&repl->stream, id, (u64)offset - 1)) {
        refuse_partial(r, id, offset);
        return false;
    }
    repl->partial_syncs++;
    if (r->psync2) buf_printf(c->out->out, "+CONTINUE %s\r\n", repl->stream.id);
    else buf_append_str(c->out->out, "+CONTINUE\r\n");
    repl_stream_open(&repl->stream, &r->live, (u64)offset - 1);
    log_line(&r->server->log, LOG_NOTICE, "Partial resynchronization request from %s accepted. Sending %llu "
                                          "bytes of backlog starting from offset %lld.",
             replica_name(r).text, (unsigned long long)(repl->stream.end - r->live.at), (long long)offset);
    replica_enlist(r);
    replica_online(r, true);
    return true;
}

/* PSYNC id offset FAILOVER: our primary asks us to take over, and will follow us. False: an error was
 * replied. */
static bool replication_cmd_take_over(struct ctx *c)
{
    struct server *s = c->server;
    const char *why = NULL;
    if (c->argc < 4 || !bytes_is(c->argv[3], "failover")) return true;
    log_line(&s->log, LOG_WARNING, "Failover request received for replid %.*s.", (int)MIN(c->argv[1].n, 64u),
             c->argv[1].p);
    if (!s->repl.link) why = "ERR PSYNC FAILOVER can't be sent to a master.";
    else if (!bytes_is(c->argv[1], s->repl.stream.id))
        why = "ERR PSYNC FAILOVER replid must match my replid.";
    if (why) {
        reply_error(c->out, why);
        return false;
    }
    i64 offset;
    bool complete = num_parse_i64(c->argv[2], &offset) && offset == (i64)s->repl.stream.end + 1;
    replication_promote(s, complete);
    log_line(&s->log, LOG_NOTICE, "MASTER MODE enabled (failover request from '%s')",
             conn_of(c->session)->peer);
    return true;
}

static struct replica *ask_for_sync(struct ctx *c)
{
    if (is_replica(c) || c->session->monitor) return NULL; /* neither gets a reply */
    if (!replication_cmd_take_over(c) || !may_sync(c)) return NULL;
    struct replica *r = replica_of(c->server, conn_of(c->session));
    log_line(&c->server->log, LOG_NOTICE, "Replica %s asks for synchronization", replica_name(r).text);
    return r;
}

void cmd_psync(struct ctx *c)
{
    i64 offset;
    struct replica *r = ask_for_sync(c);
    if (!r || !ctx_int(c, c->argv[2], &offset)) return;
    if (!try_partial(c, r, c->argv[1], offset)) sync_enter(r);
}

void cmd_sync(struct ctx *c)
{
    struct replica *r = ask_for_sync(c);
    if (!r) return;
    r->old = true;
    sync_enter(r);
}

/* -- REPLCONF ------------------------------------------------------------------------------------------- */

static bool set_port(struct ctx *c, struct replica *r, bytes value)
{
    i64 port;
    if (!ctx_int(c, value, &port)) return false;
    r->port = (int)port;
    return true;
}

static bool set_ip(struct ctx *c, struct replica *r, bytes value)
{
    if (value.n >= sizeof r->ip) {
        reply_errorf(c->out, "ERR REPLCONF ip-address provided by replica instance is too long: %zu bytes",
                     value.n);
        return false;
    }
    for (size_t i = 0; i < value.n; i++) /* it is printed in INFO and in the log */
        r->ip[i] = value.p[i] > ' ' && value.p[i] <= '~' ? value.p[i] : '?';
    r->ip[value.n] = '\0';
    return true;
}

/* A replica that may take the place of its site. */
static bool set_site(struct ctx *c, struct replica *r, bytes value)
{
    i64 gid;
    if (!ctx_int(c, value, &gid)) return false;
    r->site = (u8)gid;
    if (gid == r->server->config.site_id) return true;
    reply_errorf(c->out, "ERR this server is not site %lld", (long long)gid);
    return false;
}

static bool set_capability(struct ctx *c UNUSED, struct replica *r, bytes value)
{
    r->eof |= bytes_is(value, "eof");
    r->psync2 |= bytes_is(value, "psync2");
    return true;
}

static bool set_rdb_only(struct ctx *c, struct replica *r, bytes value)
{
    i64 only;
    if (!ctx_int_range(c, value, 0, 1, &only)) return false;
    r->rdb_only = only;
    return true;
}

/* Which parts of a snapshot the replica wants: "functions" or nothing; never data. */
static bool set_filter(struct ctx *c, struct replica *r, bytes value)
{
    r->no_data = true;
    r->functions = bytes_is(value, "functions");
    if (value.n == 0 || r->functions) return true;
    reply_errorf(c->out, "ERR Unsupported rdb-filter-only option: %.*s", (int)MIN(value.n, 128u), value.p);
    return false;
}

static bool set_version(struct ctx *c UNUSED, struct replica *r UNUSED, bytes value UNUSED)
{
    return true; /* newer replicas send it */
}

static const struct {
    const char *name;
    bool (*set)(struct ctx *c, struct replica *r, bytes value); /* false: an error was replied */
} options[] = {
    {"listening-port", set_port}, {"ip-address", set_ip}, {"capa", set_capability},
    {"site-id", set_site},
    {"rdb-only", set_rdb_only}, {"rdb-filter-only", set_filter}, {"version", set_version},
};

static bool replication_cmd_set_option(struct ctx *c, bytes name, bytes value)
{
    for (u32 i = 0; i < ARRAY_LEN(options); i++)
        if (bytes_is(name, options[i].name))
            return options[i].set(c, replica_of(c->server, conn_of(c->session)), value);
    reply_errorf(c->out, "ERR Unrecognized REPLCONF option: %.*s", (int)MIN(name.n, 128u), name.p);
    return false;
}

/* ACK position [FACK synced], from argument `at` on. */
static void acknowledge(struct ctx *c, int at)
{
    i64 position, synced = 0;
    if (!is_replica(c) || !num_parse_i64(c->argv[at + 1], &position)) return;
    if (at + 3 < c->argc && bytes_is(c->argv[at + 2], "fack") && !num_parse_i64(c->argv[at + 3], &synced))
        return;
    replica_heard(conn_of(c->session)->replica, position, synced);
}

/* ACK and GETACK are not answered. */
void cmd_replconf(struct ctx *c)
{
    if (c->argc % 2 == 0) {
        ctx_syntax_error(c);
        return;
    }
    for (int i = 1; i < c->argc; i += 2) {
        if (bytes_is(c->argv[i], "ack")) {
            acknowledge(c, i);
            return;
        }
        if (bytes_is(c->argv[i], "getack")) return;
        if (!replication_cmd_set_option(c, c->argv[i], c->argv[i + 1])) return;
    }
    reply_ok(c->out);
}

/* -- ROLE ----------------------------------------------------------------------------------------------- */

static void role_of_primary(struct ctx *c)
{
    const struct replication *repl = &c->server->repl;
    size_t n = 0;
    reply_array(c->out, 3);
    reply_bulk_str(c->out, "master");
    reply_int(c->out, (i64)repl->stream.end);
    size_t mark = reply_mark(c->out);
    for (const struct replica *r = repl->replicas; r; r = r->next) {
        char host[REPLICA_HOST];
        if (r->state != REPLICA_ONLINE) continue;
        replica_host(r, host);
        reply_array(c->out, 3);
        reply_bulk_str(c->out, host);
        reply_bulk_int(c->out, r->port);
        reply_bulk_int(c->out, (i64)r->acknowledged);
        n++;
    }
    reply_array_at(c->out, mark, n);
}

void cmd_role(struct ctx *c)
{
    if (c->server->repl.link) link_role(c);
    else role_of_primary(c);
}
