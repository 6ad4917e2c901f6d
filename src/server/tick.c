#include "server/tick.h"

#include "base/clock.h"
#include "base/key_slot.h"
#include "command/commands.h"
#include "exec/route.h"
#include "net/fence.h"
#include "cluster/cluster.h"
#include "peers/peers.h"
#include "server/account.h"
#include "server/commit.h"
#include "server/housekeeping.h"
#include "server/storage.h"

#define PREFETCH_MAX 256
#define WEB_WARN_EVERY_US 60000000

/* -- running requests ------------------------------------------------------------- */

static bytes element_of(struct server *s, const struct net_request *q)
{
    const bytes *argv = s->net.tick.args + q->argv_at;
    const struct command *cmd = node_find(&s->node, argv[0]);
    return cmd && cmd->element && cmd->element < q->argc ? argv[cmd->element] : (bytes){0};
}

/* Tells each engine its keys, to prefetch them: all keys of one region, then those of the next. */
static COLD void prefetch_by_region(struct server *s, struct want *want, u32 n)
{
    struct region *of[PREFETCH_MAX];
    for (u32 i = 0; i < n; i++) of[i] = region_map_at(&s->node.regions, key_slot(want[i].key));
    for (u32 from = 0, to; from < n; from = to) {
        to = from + 1;
        for (u32 i = to; i < n; i++) {
            if (of[i] != of[from]) continue;
            struct want next = want[i];
            want[i] = want[to];
            of[i] = of[to];
            want[to] = next;
            of[to++] = of[from];
        }
        struct engine *e = of[from] ? of[from]->eng : NULL; /* of another node's region: none */
        if (e && to - from > 1) e->ops->prefetch(e, want + from, to - from);
    }
}

/* Tells the engines the keys of the next requests, so that they can fetch them together. Returns the index
 * after the last of them. */
static u32 prefetch(struct server *s, u32 from)
{
    const struct net_tick *t = &s->net.tick;
    struct engine *e = node_engine(&s->node);
    struct want want[PREFETCH_MAX];
    if (t->request_count - from < 2) return t->request_count;
    bool fetch_elements = e->caps.prefetch_elements;
    u32 wants = 0, end = MIN(t->request_count, from + MIN(e->caps.prefetch_ahead, PREFETCH_MAX));
    for (u32 i = from; i < end; i++) {
        const struct net_request *q = &t->requests[i];
        if (q->argc < 2 || !q->conn) continue;
        /* The first argument is nearly always a key; a wrong guess costs nothing. */
        bytes key = t->args[q->argv_at + 1];
        bytes element = fetch_elements ? element_of(s, q) : (bytes){0};
        if (wants && !element.p && bytes_eq(want[wants - 1].key, key)) continue; /* one hot key */
        want[wants++] = (struct want){q->conn->session.db, key, element};
    }
    if (UNLIKELY(s->node.regions.count > 1)) prefetch_by_region(s, want, wants);
    else if (wants > 1) e->ops->prefetch(e, want, wants);
    return end;
}

static bool is_web_request(bytes name)
{
    bool may_be = name.n == 4 || (name.n == 5 && name.p[4] == ':'); /* excludes nearly all requests cheaply */
    return may_be && (bytes_is(name, "post") || bytes_is(name, "host:"));
}

/* Rate-limited: any client can send such requests, and must not be able to fill the log. */
static void warn_of_web_request(struct server *s, const struct conn *c)
{
    if (s->web_warned_us && s->tick_us - s->web_warned_us <= WEB_WARN_EVERY_US) return;
    s->web_warned_us = s->tick_us;
    log_line(&s->log, LOG_WARNING,
             "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: "
             "commands to Mayfly. This is likely due to an attacker attempting to use Cross Protocol "
             "Scripting to compromise your server. Connection from %s aborted.", c->peer);
}

/* A browser tricked into sending us a request must not get as far as a command in its body. */
static void refuse_web_request(struct server *s, struct conn *c)
{
    warn_of_web_request(s, c);
    conn_close(c);
}

/* Guessing passwords is slow: after some failures every attempt waits about a
 * second. A client that knows its password only notices the delay. */
static bool auth_must_wait(const struct server *s, struct conn *c, u32 argc, bytes name)
{
    bool greets = bytes_is(name, "hello") && (argc > 2 || !c->session.authenticated);
    if (s->auth_failures <= AUTH_FAILURES_FREE || (!greets && !bytes_is(name, "auth"))) return false;
    c->session.auth_waited = !c->session.auth_waited;
    return c->session.auth_waited;
}

/* Commands that may end a pause are not held back. */
static bool pause_spares(const struct command *cmd)
{
    return cmd->flags & CMD_ADMIN || strncmp(cmd->name, "client|", 7) == 0;
}

/* A message is not stored. */
static bool tick_is_message(const struct command *cmd)
{
    return cmd->run == cmd_publish || cmd->run == cmd_spublish;
}

u32 tick_holds(void *owner, const struct request *q, const struct command *cmd, bool may_write)
{
    struct server *s = owner;
    if (q->session->monitor || conn_of(q->session)->class == CONN_REPLICA) return 0;
    if (s->pause_until_ms && (may_write || !s->pause_writes_only) && !pause_spares(cmd)) return HOLD_PAUSE;
    if (replication_frozen(&s->repl) && may_write) return HOLD_FAILOVER;
    if (UNLIKELY(s->cluster) && cluster_holds(s, q, cmd)) return HOLD_RAFT;
    if (server_holds(s, HOLD_SITE) && may_write && !tick_is_message(cmd)) return HOLD_SITE;
    if (!server_holds(s, HOLD_STORAGE) || !may_write || tick_is_message(cmd)) return 0;
    s->throttle.waiting = true;
    s->throttle.held++;
    return HOLD_STORAGE;
}

void tick_filter_reply(struct conn *c, size_t mark, enum session_reply before)
{
    struct session *s = &c->session;
    bool answered = c->out.n > mark || c->before.n || c->after.n;
    if (c->class == CONN_REPLICA && before == REPLY_OFF && answered) {
        primary_answered(c->net->owner, c);
    } else if (s->reply_mode == REPLY_SKIPPING) {
        c->out.n = mark;
        s->reply_mode = REPLY_ON;
    } else if (s->reply_mode == REPLY_OFF && before == REPLY_OFF) {
        c->out.n = mark;
    } else if (s->reply_mode == REPLY_SKIP_NEXT) {
        s->reply_mode = REPLY_SKIPPING;
    }
}

void tick_nested(void *owner, const struct request *q, const struct outcome *o)
{
    struct server *s = owner;
    i64 now_us = clock_mono_us();
    const struct net_request *running = net_running(&s->net);
    if (!running) return; /* a script from our primary */
    struct conn *c = running->conn;
    account_request(s, c, q, o, now_us - s->tick_us);
    s->tick_us = now_us;
    if (UNLIKELY(tracking_used(&s->tracking))) tracking_nested(s, c, q, o);
    conn_limit_output(c);
    if (UNLIKELY(c->closing)) c->out.n = c->answer_at; /* it will not be read: EXEC's reply stays short */
}

/* Why a request is held back before it is dispatched; 0: it may run. */
static inline u32 reason_to_hold(struct server *s, struct net_request *q, const bytes *argv)
{
    if (UNLIKELY(s->auth_failures) && auth_must_wait(s, q->conn, q->argc, argv[0])) return HOLD_AUTH;
    if (UNLIKELY(persistence_busy(&s->persist)) && persistence_must_wait(s, q)) return HOLD_SNAPSHOT;
    if (UNLIKELY(argv[q->argc - 1].n >= PREFAULT_MIN) && prefault_must_wait(s, q, argv)) return HOLD_MEMORY;
    return 0;
}

void tick_run(struct net *n, u32 at)
{
    struct server *s = n->owner;
    struct net_request *nq = &n->tick.requests[at];
    struct conn *c = nq->conn;
    if (!c || c->closing || s->shutting_down) return;
    if (UNLIKELY(c->session.close_after_reply)) {
        nq->silent = true;
        return;
    }
    struct request q = {&c->session, s, (int)nq->argc, n->tick.args + nq->argv_at, NULL,
                        .input = UNLIKELY(s->cluster) ? NULL : &c->lent};
    struct region *region = s->node.regions.first;
    if (UNLIKELY(s->enforce)) region = s->enforce(s, nq, &q);
    struct reply out = conn_reply(c);
    q.out = &out;
    if (nq->error) {
        nq->silent = c->session.reply_mode != REPLY_ON;
        if (c->session.reply_mode == REPLY_ON) reply_errorf(&out, "ERR Protocol error: %s", nq->error);
        c->session.close_after_reply = true;
        return;
    }
    bytes *argv = q.argv;
    if (UNLIKELY(is_web_request(argv[0]))) {
        refuse_web_request(s, c);
        return;
    }
    if (UNLIKELY(c->class == CONN_REPLICA) && primary_refuses(s, c, node_find(&s->node, argv[0]))) return;
    u32 hold = reason_to_hold(s, nq, argv);
    if (UNLIKELY(hold)) {
        conn_postpone(n, at, hold);
        return;
    }
    bool tracked = UNLIKELY(tracking_used(&s->tracking)) && !s->node.script;
    if (tracked) tracking_before(s);
    size_t mark = conn_answer_begin(c);
    i64 start_us = s->tick_us; /* it advances with every command that EXEC runs */
    enum session_reply before = c->session.reply_mode;
    struct outcome o;
    region_run(region, &q, &o);
    if (UNLIKELY(s->cluster)) cluster_ran(region);
    if (UNLIKELY(o.held)) {
        conn_answer_end(c, mark);
        conn_postpone(n, at, o.held);
        /* A long pause: the request is dropped if the client leaves. Raft needs a moment, as a disk does. */
        if (o.held != HOLD_RAFT) conn_close_on_eof(c);
        return;
    }
    if (UNLIKELY(s->prefault.conn == c)) prefault_forget(s, c);
    nq->wrote = o.wrote;
    if (nq->wrote) primary_note_write(s, c, o.region);
    i64 now_us = clock_mono_us();
    account_request(s, c, &q, &o, now_us - start_us);
    s->tick_us = now_us;
    if (LIKELY(o.cmd != NULL)) c->last_command = o.cmd->name;
    bool filtered = before != REPLY_ON || c->session.reply_mode != REPLY_ON;
    if (UNLIKELY(o.waiting != NULL)) block_begin(s, c, &o, now_us - start_us);
    else if (UNLIKELY(filtered)) {
        tick_filter_reply(c, mark, before);
        nq->silent = c->out.n == mark;
    }
    conn_answer_end(c, mark);
    if (tracked) tracking_after(s, c, &q, &o);
    if (UNLIKELY(s->node.keys_ready) && !s->node.script) block_serve(s);
}

/* -- the tick ------------------------------------------------------------------------- */

/* Whether any client gets messages about what others do. */
static bool tells(const struct server *s)
{
    return pubsub_listened(&s->pubsub) || s->pubsub.names[PUBSUB_SHARD].count || tracking_used(&s->tracking);
}

/* The tick is committed: DEBUG LOADAOF has asked to open the database again, to read it from disk. */
static COLD void tick_reopen(struct server *s, bool kept)
{
    s->persist.reopen = false;
    if (kept) storage_reopen(s);
}

void server_tick(struct net *n)
{
    struct server *s = n->owner;
    i64 wall_ms = clock_wall_ms();
    if (LIKELY(!s->cluster)) {
        s->now_ms = node_begin(&s->node, wall_ms);
    } else { /* regions have clocks of their own */
        s->now_ms = wall_ms;
        cluster_begin_tick(s, wall_ms);
    }
    i64 start_us = s->tick_us = clock_mono_us();
    storage_note_refusal(s);
    throttle_begin_tick(s);
    persistence_begin_tick(s);
    replication_begin_tick(s);
    if (UNLIKELY(s->peers != NULL)) peers_begin_tick(s);
    if (UNLIKELY(tells(s))) net_keep_output(n); /* from the primary's commands */
    /* Keys that became ready since the last tick: the primary's commands, expiry, a full sync. */
    bool serves = UNLIKELY(s->node.keys_ready);
    if (serves && UNLIKELY(s->enforce)) s->enforce(s, NULL, NULL);
    bool served = serves && block_serve(s);
    for (u32 i = 0, fetched = 0; i < n->tick.request_count; i++) {
        if (i == fetched) fetched = prefetch(s, i);
        n->tick.running = i;
        tick_run(n, i);
    }
    net_requests_done(n);
    s->tick_took_us = n->tick.request_count ? s->tick_us - start_us : -1;
    bool ran = n->tick.request_count || served || UNLIKELY(s->cluster);
    bool kept = !ran || server_commit(s, COMMIT_TICK);
    if (UNLIKELY(s->persist.reopen)) tick_reopen(s, kept);
    housekeeping_run(s, n->tick.request_count == 0);
    if (UNLIKELY(tracking_used(&s->tracking))) tracking_end_tick(s);
    if (UNLIKELY(s->repl.ask_acks)) primary_ask(s);
    if (UNLIKELY(s->repl.waiting_local)) wait_look(s);
    throttle_end_tick(s);
}
