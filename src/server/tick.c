#include "server/tick.h"

#include "base/clock.h"
#include "command/commands.h"
#include "exec/multi.h"
#include "server/client/monitor.h"
#include "server/storage.h"

#define PREFETCH_MAX 256
#define RECLAIM_UNITS 64
#define WEB_WARN_EVERY_US 60000000

/* -- running requests ------------------------------------------------------------- */

static bytes element_of(struct server *s, const struct net_request *q)
{
    const bytes *argv = s->net.tick.args + q->argv_at;
    const struct command *cmd = region_find(&s->region, argv[0]);
    return cmd && cmd->element && cmd->element < q->argc ? argv[cmd->element] : (bytes){0};
}

/* Tells the engine which keys the next requests will read, so that it can fetch
 * them together. Returns up to which request. */
static u32 prefetch(struct server *s, u32 from)
{
    const struct net_tick *t = &s->net.tick;
    struct want want[PREFETCH_MAX];
    bool fetch_elements = s->region.eng->caps.prefetch_elements;
    u32 wants = 0, end = MIN(t->request_count, from + MIN(s->region.eng->caps.prefetch_ahead, PREFETCH_MAX));
    for (u32 i = from; i < end; i++) {
        const struct net_request *q = &t->requests[i];
        if (q->argc < 2 || !q->conn) continue;
        /* The first argument is nearly always a key; a wrong guess costs nothing. */
        bytes key = t->args[q->argv_at + 1];
        bytes element = fetch_elements ? element_of(s, q) : (bytes){0};
        if (wants && !element.p && bytes_eq(want[wants - 1].key, key)) continue; /* one hot key */
        want[wants++] = (struct want){q->conn->session.db, key, element};
    }
    if (wants > 1) s->region.eng->ops->prefetch(s->region.eng, want, wants);
    return end;
}

static bool is_web_request(bytes name)
{
    bool may_be = name.n == 4 || (name.n == 5 && name.p[4] == ':'); /* spares nearly all requests the rest */
    return may_be && (bytes_is(name, "post") || bytes_is(name, "host:"));
}

/* Once in a while: anybody can send such requests, and is not to fill the log with them. */
static void warn_of_web_request(struct server *s, const struct conn *c)
{
    if (s->web_warned_us && s->tick_us - s->web_warned_us <= WEB_WARN_EVERY_US) return;
    s->web_warned_us = s->tick_us;
    log_line(&s->log, LOG_WARNING,
             "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: "
             "commands to Mayfly. This is likely due to an attacker attempting to use Cross Protocol "
             "Scripting to compromise your server. Connection from %s aborted.", c->peer);
}

/* A browser tricked into talking to us must not get as far as a command in its body. */
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

/* Whoever may end a pause gets through. */
static bool pause_spares(const struct command *cmd)
{
    return cmd->flags & CMD_ADMIN || strncmp(cmd->name, "client|", 7) == 0;
}

/* A message is not stored. */
static bool is_message(const struct command *cmd)
{
    return cmd->run == cmd_publish || cmd->run == cmd_spublish;
}

u32 tick_holds(void *owner, const struct request *q, const struct command *cmd, bool may_write)
{
    struct server *s = owner;
    if (q->session->monitor || conn_of(q->session)->class == CONN_REPLICA) return 0;
    if (s->pause_until_ms && (may_write || !s->pause_writes_only) && !pause_spares(cmd)) return HOLD_PAUSE;
    if (replication_frozen(&s->repl) && may_write) return HOLD_FAILOVER;
    if (!s->throttle.holding || !may_write || is_message(cmd)) return 0;
    s->throttle.waiting = true;
    s->throttle.held++;
    return HOLD_STORAGE;
}

void tick_filter_reply(struct conn *c, size_t mark, enum session_reply before)
{
    struct session *s = &c->session;
    bool answered = c->out.n > mark || c->before.n || c->behind.n;
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

static ALWAYS_INLINE void note_latency(struct server *s, const char *event, i64 usec)
{
    i64 threshold_ms = s->config.latency_monitor_threshold;
    if (UNLIKELY(threshold_ms) && usec / 1000 >= threshold_ms)
        latency_add(&s->latency, event, s->now_ms / 1000, (u32)(usec / 1000));
}

static ALWAYS_INLINE void note_errors(struct server *s, const struct reply *out)
{
    const struct buf *b = out->out;
    if (LIKELY(out->errors == out->counted)) return;
    stats_error(&s->stats, bytes_of(b->p + out->error_at, b->n - out->error_at));
}

static COLD void note_slow(struct server *s, const struct conn *c, const struct request *q, i64 usec)
{
    slowlog_add(&s->slowlog, (u64)s->config.slowlog_max_len, s->now_ms / 1000, usec, q->argc, q->argv,
                bytes_str(c->peer), buf_bytes(&c->session.name));
}

static ALWAYS_INLINE void note_time(struct server *s, struct conn *c, const struct request *q,
                                    const struct outcome *o, i64 usec)
{
    if (s->config.latency_tracking) stats_latency(&s->stats, o->cmd->id, (u64)usec);
    if (UNLIKELY(server_is_slow(s, o->cmd, usec))) note_slow(s, c, q, usec);
}

static COLD void account_rejected(struct server *s, struct conn *c, const struct request *q,
                                  const struct command *cmd)
{
    s->stats.commands[cmd->id].rejected++;
    migrate_forget(c); /* it may not end what it began */
    if (s->monitor_count && cmd->run == cmd_exec) /* MULTI was shown: it is over */
        monitor_feed(s, c, cmd, q->argc, q->argv);
}

static ALWAYS_INLINE void account(struct server *s, struct conn *c, const struct request *q,
                                  const struct outcome *o, i64 usec)
{
    note_errors(s, q->out);
    if (UNLIKELY(!o->cmd || o->queued)) return;
    if (UNLIKELY(o->rejected)) {
        account_rejected(s, c, q, o->cmd);
        return;
    }
    stats_call(&s->stats, o->cmd->id, (u64)usec, o->failed);
    if (UNLIKELY(s->monitor_count)) monitor_feed(s, c, o->cmd, q->argc, q->argv);
    if (UNLIKELY(o->waiting != NULL)) return;
    note_time(s, c, q, o, usec);
    note_latency(s, o->cmd->flags & CMD_FAST ? "fast-command" : "command", usec);
    if (UNLIKELY(o->cmd->run == cmd_flushall)) s->persist.flushed |= !o->failed;
}

void tick_account_late(struct server *s, struct conn *c, const struct request *q, const struct outcome *o,
                       i64 usec_before, i64 usec)
{
    struct command_stats *stats = &s->stats.commands[o->cmd->id];
    note_errors(s, q->out);
    stats->usec += (u64)usec;
    stats->failed += o->failed;
    note_time(s, c, q, o, usec_before + usec);
    note_latency(s, "command-unblocking", usec);
}

void tick_nested(void *owner, const struct request *q, const struct outcome *o)
{
    struct server *s = owner;
    i64 now_us = clock_mono_us();
    const struct net_request *running = net_running(&s->net);
    if (!running) return; /* a script that our primary sent */
    struct conn *c = running->conn;
    account(s, c, q, o, now_us - s->tick_us);
    s->tick_us = now_us;
    if (UNLIKELY(tracking_used(&s->tracking))) tracking_nested(s, c, q, o);
    conn_mind_output(c);
    if (UNLIKELY(c->closing)) c->out.n = c->answer_at; /* nobody will read it: EXEC's answer stays short */
}

/* Why a request is left for later, whatever becomes of it then; 0: it may run. */
static inline u32 reason_to_hold(struct server *s, struct net_request *q, const bytes *argv)
{
    if (UNLIKELY(s->auth_failures) && auth_must_wait(s, q->conn, q->argc, argv[0])) return HOLD_AUTH;
    if (UNLIKELY(persistence_busy(&s->persist)) && persistence_must_wait(s, q)) return HOLD_SNAPSHOT;
    return 0;
}

void tick_run(struct net *n, u32 at)
{
    struct server *s = n->owner;
    struct net_request *nq = &n->tick.requests[at];
    struct conn *c = nq->conn;
    if (!c || c->closing || c->session.close_after_reply || s->shutting_down) return;
    struct reply out = conn_reply(c);
    if (nq->error) {
        if (c->session.reply_mode == REPLY_ON) reply_errorf(&out, "ERR Protocol error: %s", nq->error);
        c->session.close_after_reply = true;
        return;
    }
    bytes *argv = n->tick.args + nq->argv_at;
    if (UNLIKELY(is_web_request(argv[0]))) {
        refuse_web_request(s, c);
        return;
    }
    if (UNLIKELY(c->class == CONN_REPLICA) && primary_refuses(s, c, region_find(&s->region, argv[0]))) return;
    u32 hold = reason_to_hold(s, nq, argv);
    if (UNLIKELY(hold)) {
        conn_postpone(n, at, hold);
        return;
    }
    bool tracked = UNLIKELY(tracking_used(&s->tracking)) && !s->region.script;
    if (tracked) tracking_before(s);
    size_t mark = conn_answer_begin(c);
    u64 seq = s->region.journal.seq;
    i64 start_us = s->tick_us; /* which moves with every command that EXEC runs */
    enum session_reply before = c->session.reply_mode;
    struct request q = {&c->session, s, (int)nq->argc, argv, &out};
    struct outcome o;
    s->region.paused = server_stands_still(s);
    region_run(&s->region, &q, &o);
    if (UNLIKELY(o.held)) {
        conn_answer_end(c, mark);
        conn_postpone(n, at, o.held);
        conn_mind_end(c); /* unlike what waits for our own reasons, it goes with a client that leaves */
        return;
    }
    nq->wrote = s->region.journal.seq != seq;
    if (nq->wrote) primary_note_write(s, c);
    i64 now_us = clock_mono_us();
    account(s, c, &q, &o, now_us - start_us);
    s->tick_us = now_us;
    if (LIKELY(o.cmd != NULL)) c->last_command = o.cmd->name;
    bool filtered = before != REPLY_ON || c->session.reply_mode != REPLY_ON;
    if (UNLIKELY(o.waiting != NULL)) block_begin(s, c, &o, now_us - start_us);
    else if (UNLIKELY(filtered)) tick_filter_reply(c, mark, before);
    conn_answer_end(c, mark);
    if (tracked) tracking_after(s, c, &q, &o);
    if (UNLIKELY(waiters_any_ready(&s->region.waiters)) && !s->region.script) block_serve(s);
}

/* -- reclaiming ---------------------------------------------------------------------- */

/* Waking the loop is what it is for. */
static void on_wake(uv_timer_t *t) { ((struct server *)t->data)->wake_ms = 0; }

static bool may_expire(const struct server *s)
{
    const struct region *r = &s->region;
    return expire_cycle_active(&r->cycle) && !r->refuse_writes && !r->loading &&
           (!expiry_follows(r->mode) || own_keys_any(&r->own)) && !server_stands_still(s) &&
           !s->shutting_down; /* what was saved is the end */
}

static i64 next_due(struct server *s)
{
    struct engine *e = s->region.eng;
    return expiry_follows(s->region.mode) ? own_keys_next_due(&s->region.own) : e->ops->next_due(e);
}

/* When the loop may sleep: not beyond the next visit of the index. The sampling cycle
 * leaves the index alone, so that its next visit says nothing: it runs at `hz`. */
static void arm_wake(struct server *s)
{
    const struct region *r = &s->region;
    const struct expire_cycle *cycle = &r->cycle;
    bool knows = expiry_follows(r->mode) || (cycle->source == EXPIRE_INDEX && r->mode == EXPIRY_ACTIVE);
    if (!may_expire(s) || !knows) return;
    i64 next = MAX(next_due(s), cycle->next_ms);
    if (next == s->wake_ms || next > s->now_ms + 1000) return;
    s->wake_ms = next;
    uv_timer_start(&s->wake, on_wake, (u64)MAX(next - s->now_ms + 1, 1), 0);
}

/* Freed values, swept references: the engine's own housekeeping. */
static u64 reclaim_for(struct server *s, i64 us)
{
    struct engine *e = s->region.eng;
    u64 left = e->ops->reclaim(e, RECLAIM_UNITS);
    if (LIKELY(!left)) return 0; /* as in most ticks: they need no clock */
    i64 until_us = clock_mono_us() + us;
    do left = e->ops->reclaim(e, RECLAIM_UNITS);
    while (left && clock_mono_us() < until_us);
    return left;
}

/* A slice of the cycle, committed by itself; true if there is more to do. */
static bool expire_until(struct server *s, i64 start_us, i64 until_us)
{
    struct region *r = &s->region;
    u64 before = expire_total(&r->ks), cleaned;
    i64 cpu_us = clock_thread_us(); /* the budget is one of CPU: what others took meanwhile is not spent */
    bool more;
    net_keep_output(&s->net); /* the answers of this tick are no part of the slice */
    do {
        more = region_expire_step(r);
        cleaned = expire_total(&r->ks) - before;
    } while (more && cleaned < r->cycle.batch && clock_mono_us() < until_us);
    r->eng->relaxed = true; /* what is dead stays dead, and will be found again */
    bool kept = replication_commit(s);
    r->eng->relaxed = false;
    i64 took_us = clock_thread_us() - cpu_us;
    more = more && kept;
    expire_cycle_spent(&r->cycle, took_us, more);
    expire_cycle_ran(&r->cycle, &r->ks, kept ? cleaned : 0, took_us, more);
    if (!kept) {
        r->cycle.next_ms = s->now_ms + EXPIRE_RETRY_MS;
        net_take_back(&s->net); /* what was told of it */
    }
    note_latency(s, "expire-cycle", clock_mono_us() - start_us);
    return more;
}

static void on_busy(uv_idle_t *h UNUSED) {} /* its being active keeps the loop from sleeping */

static void housekeeping(struct server *s, bool idle)
{
    struct expire_cycle *cycle = &s->region.cycle;
    bool more = false;
    if (may_expire(s) && expire_cycle_due(cycle, s->now_ms)) {
        i64 start = clock_mono_us();
        i64 allowance = expire_cycle_allowance(cycle, start, idle);
        more = allowance ? expire_until(s, start, start + allowance) : expire_cycle_waits(cycle);
    }
    bool may_evict = !s->region.loading && !server_stands_still(s);
    bool evicting = UNLIKELY(s->region.evictor.unfinished) && may_evict && region_evict_step(&s->region);
    if (UNLIKELY(!region_settled(&s->region)) && !replication_commit(s))
        storage_note_refusal(s); /* of eviction */
    persistence_flush_quietly(s);
    s->reclaim_pending = reclaim_for(s, EXPIRE_SLICE_US);
    if (more || evicting || s->reclaim_pending || waiters_any_ready(&s->region.waiters)) {
        uv_idle_start(&s->busy, on_busy);
    } else {
        uv_idle_stop(&s->busy);
        arm_wake(s);
    }
}

/* -- the tick ------------------------------------------------------------------------- */

/* The client will not take itself to be within MULTI if that was answered by an error. */
static void fail_transaction(struct server *s, struct conn *c, u32 at, u32 end)
{
    const struct net_tick *t = &s->net.tick;
    bool said_multi = false;
    for (; at < end && !said_multi; at++) {
        const struct net_request *q = &t->requests[at];
        const struct command *cmd = q->argc ? region_find(&s->region, t->args[q->argv_at]) : NULL;
        said_multi = cmd && cmd->run == cmd_multi;
    }
    multi_failed(&c->session, said_multi);
}

/* What the tick has told a connection is taken back; instead it gets the error so many times. */
static void take_back(struct conn *c, const char *error, u32 times)
{
    conn_cut_output(c, c->tick_mark);
    if (c->session.reply_mode != REPLY_OFF) {
        struct reply out = conn_reply(c);
        for (; times > 0; times--) reply_error(&out, error);
    }
    c->tick_mark = conn_output_end(c);
    c->late = c->late_wrote = false;
}

/* Instead of what the tick answered a connection, each of its requests gets the error, and so does one of an
 * earlier tick that was answered in this one. Those from `at` up to the one that is returned are the
 * connection's: they stand together. */
static u32 fail_connection(struct net *n, u32 at, const char *error, bool writers_only)
{
    const struct net_tick *t = &n->tick;
    struct conn *c = t->requests[at].conn;
    u32 end = at;
    bool wrote = c && c->late_wrote;
    for (; end < t->request_count && t->requests[end].conn == c; end++) wrote |= t->requests[end].wrote;
    if (!c || c->closing || (writers_only && !wrote)) return end;
    if (UNLIKELY(c->replica || c->hold & HOLD_WAIT)) primary_failed(n->owner, c);
    if (UNLIKELY(c->session.tx != NULL)) fail_transaction(n->owner, c, at, end);
    block_forget(n->owner, c);
    take_back(c, error, end - at + c->late);
    return end;
}

/* A connection that asked for nothing in this tick, but was told something: what it waited for, and the error
 * takes its place; or what others did, which was not so. A replica hears of nothing before it is kept. */
static void fail_listener(struct conn *c, const char *error, bool writers_only)
{
    if (c->closing || c->replica || (writers_only && !c->late_wrote)) return;
    take_back(c, error, c->late);
}

/* Nothing the tick did was kept: whoever asked for anything in it is told so instead. Or (writers_only) it
 * could not be written to the AOF: whoever changed anything is. */
static void fail_replies(struct server *s, const char *error, bool writers_only)
{
    for (u32 i = 0; i < s->net.tick.request_count;) i = fail_connection(&s->net, i, error, writers_only);
    for (struct conn *c = s->net.tick.ready; c; c = c->ready_next) fail_listener(c, error, writers_only);
}

static void end_requests(struct server *s)
{
    if (!replication_commit(s)) {
        storage_note_refusal(s);
        migrate_distrust(s);
        const char *why = s->region.refuse_writes;
        fail_replies(s, why ? why : REGION_IO_ERROR, false);
    } else if (!persistence_end_tick(s)) {
        const char *why = aof_refuses(s->persist.aof);
        tracking_distrust(s);
        fail_replies(s, why ? why : "MISCONF Errors writing to the AOF file", true);
    }
}

/* A failure is reported when the tick ends, to every client that has a request in it. */
bool tick_settle(struct server *s)
{
    struct region *r = &s->region;
    if (!region_settled(r) && region_may_split(r)) {
        bool kept = replication_commit(s);
        region_split(r, kept);
        if (kept) persistence_flush_early(s);
    }
    return region_settled(r) && !s->persist.failed_early;
}

/* Whether anybody is told of what others do. */
static bool tells(const struct server *s)
{
    return pubsub_listened(&s->pubsub) || s->pubsub.names[PUBSUB_SHARD].count || tracking_used(&s->tracking);
}

void server_tick(struct net *n)
{
    struct server *s = n->owner;
    region_begin(&s->region, clock_wall_ms());
    s->now_ms = s->region.ks.now_ms;
    i64 start_us = s->tick_us = clock_mono_us();
    storage_note_refusal(s);
    throttle_begin_tick(s);
    persistence_begin_tick(s);
    replication_begin_tick(s);
    if (UNLIKELY(tells(s))) net_keep_output(n); /* of the primary's commands */
    /* What happened since the last tick: the primary's commands, expiry, a full sync. */
    bool served = UNLIKELY(waiters_any_ready(&s->region.waiters)) && block_serve(s);
    for (u32 i = 0, fetched = 0; i < n->tick.request_count; i++) {
        if (i == fetched) fetched = prefetch(s, i);
        n->tick.running = i;
        tick_run(n, i);
    }
    n->tick.running = NET_NO_REQUEST;
    s->tick_took_us = n->tick.request_count ? s->tick_us - start_us : -1;
    if (n->tick.request_count || served) end_requests(s);
    housekeeping(s, n->tick.request_count == 0);
    if (UNLIKELY(tracking_used(&s->tracking))) tracking_end_tick(s);
    if (UNLIKELY(s->repl.ask_acks)) primary_ask(s);
    if (UNLIKELY(s->repl.waiting_local)) wait_look(s);
    throttle_end_tick(s);
}
