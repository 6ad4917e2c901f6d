/* Replicas of this server: registering them, feeding them the stream, their acknowledgements and timeouts.
 *
 * repl.replicas holds every connection that sent PSYNC or SYNC until net frees it: one that is being closed
 * (conn->closing) is still in the list, with all it holds. */
#include "repl/primary.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cluster/cluster.h"
#include "peers/peers.h"
#include "server/commit.h"

static i64 primary_now_s(void) { return clock_mono_ms() / 1000; }

/* -- names ----------------------------------------------------------------------------------------------- */

void replica_host(const struct replica *r, char host[REPLICA_HOST])
{
    const char *from = r->ip[0] ? r->ip : r->conn->peer;
    snprintf(host, REPLICA_HOST, "%s", from + (!r->ip[0] && from[0] == '['));
    if (r->ip[0]) return;
    char *end = strrchr(host, ':');
    if (end) *end = '\0';
    if (end && end > host && end[-1] == ']') end[-1] = '\0';
}

struct replica_name replica_name(const struct replica *r)
{
    struct replica_name name;
    char host[REPLICA_HOST];
    replica_host(r, host);
    if (r->port) snprintf(name.text, sizeof name.text, "%s:%d", host, r->port);
    else snprintf(name.text, sizeof name.text, "%s:<unknown-replica-port>", host);
    return name;
}

/* -- what its connection sends --------------------------------------------------------------------------- */

static struct replica *of_source(const struct conn_source *source)
{
    return (struct replica *)(void *)((char *)(uintptr_t)source - offsetof(struct replica, source));
}

static bytes primary_peek(struct conn_source *source)
{
    struct replica *r = of_source(source);
    if (r->state == REPLICA_RECEIVES) return sync_peek(r);
    if (r->state != REPLICA_ONLINE || !r->fed) return (bytes){0};
    return repl_stream_peek(&r->server->repl.stream, &r->live);
}

static void primary_sent(struct conn_source *source, size_t n)
{
    struct replica *r = of_source(source);
    if (r->state == REPLICA_RECEIVES) sync_sent(r, n);
    else repl_stream_move(&r->server->repl.stream, &r->live, n);
    r->server->repl.bytes_out += n;
}

/* The data of a sync is not counted: it is generated only as fast as the replica takes it. */
static u64 primary_pending(const struct conn_source *source)
{
    const struct replica *r = of_source(source);
    return r->live.open ? r->server->repl.stream.end - r->live.at : 0;
}

/* -- coming and going ------------------------------------------------------------------------------------ */

struct replica *replica_of(struct server *s, struct conn *c)
{
    if (c->replica) return c->replica;
    struct replica *r = mem_zalloc(sizeof *r);
    r->source = (struct conn_source){primary_peek, primary_sent, primary_pending};
    r->server = s;
    r->conn = c;
    c->replica = r;
    return r;
}

void primary_count_good(struct server *s)
{
    struct replication *repl = &s->repl;
    i64 now = primary_now_s();
    repl->good_replicas = 0;
    for (const struct replica *r = repl->replicas; r; r = r->next)
        if (r->state == REPLICA_ONLINE && now - r->heard_s <= s->config.min_replicas_max_lag)
            repl->good_replicas++;
}

/* From now on no request of this connection is answered and nothing else is sent to it: all bytes belong to
 * the stream. */
void replica_enlist(struct replica *r)
{
    struct replication *repl = &r->server->repl;
    pubsub_forget(r->server, r->conn);
    tracking_off(r->server, r->conn);
    r->conn->class = CONN_REPLICA;
    r->conn->session.reply_mode = REPLY_OFF;
    r->conn->source = &r->source;
    if (r->server->config.repl_disable_tcp_nodelay && !r->conn->is_unix) {
        int off = 0;
        setsockopt(r->conn->fd, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off); /* failure is harmless */
    }
    struct replica **at = &repl->replicas;
    while (*at) at = &(*at)->next;
    *at = r;
    repl->replica_count++;
    repl->alone_since_ms = 0;
}

void replica_online(struct replica *r, bool fed)
{
    r->state = REPLICA_ONLINE;
    r->fed = fed;
    r->heard_s = primary_now_s();
    primary_count_good(r->server);
    if (fed) log_line(&r->server->log, LOG_NOTICE, "Synchronization with replica %s succeeded",
                      replica_name(r).text);
}

/* Releases everything the replica holds; the connection may outlive it for one iteration of the loop. */
static void primary_release(struct replica *r)
{
    struct replication *repl = &r->server->repl;
    struct replica **at = &repl->replicas;
    if (r->state != REPLICA_NEW) {
        sync_leave(r);
        repl_stream_close(&repl->stream, &r->live);
        while (*at != r) at = &(*at)->next;
        *at = r->next;
        if (--repl->replica_count == 0) repl->alone_since_ms = clock_mono_ms();
        r->state = REPLICA_NEW;
        primary_count_good(r->server);
    }
    r->conn->source = NULL;
    r->conn->replica = NULL;
    buf_release(&r->piece);
    mem_free(r);
}

void primary_forget(struct server *s, struct conn *c)
{
    wait_forget(s, c);
    if (!c->replica) return;
    if (c->replica->state != REPLICA_NEW)
        log_line(&s->log, LOG_WARNING, "Connection with replica %s lost.", replica_name(c->replica).text);
    primary_release(c->replica);
}

void replica_close(struct replica *r, const char *why)
{
    log_line(&r->server->log, LOG_WARNING, "%s: %s", why, replica_name(r).text);
    conn_close(r->conn);
}

void replication_drop_replicas(struct server *s)
{
    struct replica *next;
    wait_refuse_all(s);
    for (struct replica *r = s->repl.replicas; r; r = next) {
        next = r->next;
        conn_close(r->conn);
        primary_release(r);
    }
}

/* -- the stream ------------------------------------------------------------------------------------------ */

void primary_feed(struct server *s)
{
    struct replication *repl = &s->repl;
    for (struct replica *r = repl->replicas; r; r = r->next)
        if (r->state == REPLICA_ONLINE && r->fed) conn_wake(r->conn);
    repl_stream_trim(&repl->stream, (u64)s->config.repl_backlog_size);
}

/* Appends a command that is no change (PING, GETACK). A replica sends none of its own to its replicas. */
static void primary_append(struct server *s, bytes command)
{
    struct replication *repl = &s->repl;
    if (repl->link || !repl->streaming || repl->stream.staged) return;
    repl_stream_append(&repl->stream, command);
    if (!server_commit(s, COMMIT_POSITION))
        log_line(&s->log, LOG_WARNING, "The position of replication could not be kept");
}

/* While replicas are expected to acknowledge everything the end must not move: they are asked later. */
void primary_ask(struct server *s)
{
    if (s->pause_until_ms || s->repl.failover.state) return;
    s->repl.ask_acks = false;
    if (s->repl.replica_count)
        primary_append(s, BYTES_LIT("*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"));
}

/* -- acknowledgements ------------------------------------------------------------------------------------ */

void replica_heard(struct replica *r, i64 position, i64 synced)
{
    if (position > 0 && (u64)position > r->acknowledged) r->acknowledged = (u64)position;
    if (synced > 0 && (u64)synced > r->synced) r->synced = (u64)synced;
    r->heard_s = primary_now_s();
    if (r->state == REPLICA_ONLINE && !r->fed) {
        replica_online(r, true);
        conn_wake(r->conn);
    }
    if (r->server->repl.waiting) wait_check(r->server);
}

static bool is_online(const struct replica *r) { return r->state == REPLICA_ONLINE && !r->conn->closing; }

u32 primary_acknowledged(const struct server *s, u64 position)
{
    u32 n = 0;
    for (const struct replica *r = s->repl.replicas; r; r = r->next)
        n += is_online(r) && r->acknowledged >= position;
    return n;
}

u32 primary_synced(const struct server *s, u64 position)
{
    u32 n = 0;
    for (const struct replica *r = s->repl.replicas; r; r = r->next)
        n += is_online(r) && r->synced >= position;
    return n;
}

static COLD void primary_note_member_write(struct server *s, struct conn *c, struct region *r)
{
    c->wrote_to = cluster_next_index(s, r);
    c->wrote_seq = r->member->number;
}

static COLD void primary_note_site_write(struct server *s, struct conn *c)
{
    c->wrote_site = peers_position(s);
}

void primary_note_write(struct server *s, struct conn *c, struct region *r)
{
    if (UNLIKELY(s->cluster)) {
        primary_note_member_write(s, c, r);
        return;
    }
    if (UNLIKELY(s->peers != NULL)) primary_note_site_write(s, c);
    c->wrote_to = s->repl.stream.end + s->repl.stream.staged;
    c->wrote_seq = r->journal.seq;
}

u32 primary_in_step(const struct server *s, u64 position, u32 *of)
{
    u32 n = 0;
    *of = 0;
    for (const struct replica *r = s->repl.replicas; r; r = r->next) {
        if (r->state != REPLICA_ONLINE || r->old || r->conn->closing) continue;
        ++*of;
        n += r->acknowledged >= position;
    }
    return n;
}

/* -- the rest of the server ------------------------------------------------------------------------------ */

bool primary_refuses(struct server *s, struct conn *c, const struct command *cmd)
{
    if (!cmd || !(cmd->flags & CMD_OF_KEYSPACE)) return false;
    log_line(&s->log, LOG_WARNING, "Replica can't interact with the keyspace: %s sent '%s'. "
                                   "Disconnecting it.", c->peer, cmd->name);
    conn_close(c);
    return true;
}

void primary_answered(struct server *s, struct conn *c)
{
    log_line(&s->log, LOG_WARNING, "Replica generated a reply to command '%s', disconnecting it: %s",
             c->last_command ? c->last_command : "<unknown>", c->peer);
    conn_close(c);
}

/* The client's tick was not committed: its WAIT is void, and so is a PSYNC. */
void primary_failed(struct server *s, struct conn *c)
{
    wait_forget(s, c);
    if (c->replica && c->replica->state != REPLICA_NEW) conn_close(c);
}

u64 primary_buffers(const struct server *s)
{
    u64 stream = s->repl.stream.memory, keep = (u64)s->config.repl_backlog_size;
    return (stream > keep ? stream - keep : 0) + sync_memory(s);
}

/* -- time ------------------------------------------------------------------------------------------------ */

/* A replica that is busy loading sends empty lines, which are not requests. */
static void note_signs_of_life(struct replica *r, i64 now)
{
    if (r->conn->got_input) r->heard_s = now;
    r->conn->got_input = false;
}

static void check_silence(struct replica *r, i64 now)
{
    i64 timeout = r->server->config.repl_timeout;
    note_signs_of_life(r, now);
    if (r->conn->closing) return;
    if (r->state == REPLICA_ONLINE && !r->old && now - r->heard_s > timeout)
        replica_close(r, "Disconnecting timedout replica (streaming sync)");
    else if (r->state == REPLICA_RECEIVES && r->progress_s && now - r->progress_s > timeout)
        replica_close(r, "Disconnecting timedout replica (full sync)");
}

/* An empty line for replicas that wait for data, so that they do not time out. */
static void primary_send_keepalive(struct replica *r)
{
    const struct sync *y = r->sync;
    bool waits = r->state == REPLICA_WAITS || (y && y->disk && y->fd < 0);
    if (!waits || r->conn->closing) return;
    struct reply out = conn_reply(r->conn);
    buf_append_char(out.out, '\n');
}

static void primary_every_second(struct server *s)
{
    struct replication *repl = &s->repl;
    i64 now = primary_now_s();
    for (struct replica *r = repl->replicas; r; r = r->next) {
        check_silence(r, now);
        primary_send_keepalive(r);
    }
    primary_count_good(s);
    if (replication_frozen(repl)) return; /* the end must not move: replicas are to acknowledge everything */
    if (repl->replica_count && ++repl->since_ping_s >= s->config.repl_ping_replica_period) {
        repl->since_ping_s = 0;
        primary_append(s, BYTES_LIT("*1\r\n$4\r\nPING\r\n"));
    }
}

void primary_cron(struct server *s)
{
    i64 now = primary_now_s();
    if (s->repl.replicas) sync_cron(s);
    if (now == s->repl.second_s) return;
    s->repl.second_s = now;
    primary_every_second(s);
}
