/* A blocked connection is held back by HOLD_BLOCKED and has a struct blocked, which has its waiter
 * (exec/waiters.h) and its place in the heap of timeouts. Every end of the wait goes through unblock(). */
#include "server/client/block.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/key_slot.h"
#include "cluster/cluster.h"
#include "exec/permit.h"
#include "server/account.h"
#include "server/tick.h"

struct blocked {
    struct heap_node time; /* key 0: no timeout */
    struct conn *conn;
    struct waiter *waiter;
    const struct command *cmd;
    i64 usec;              /* how long the command has run so far */
};

/* -- the end of a wait --------------------------------------------------------------------------- */

static void block_on_timeout(uv_timer_t *t);

/* The timer may fire too early: then it is set again. */
static void arm(struct server *s)
{
    struct blocking *b = &s->blocking;
    const struct heap_node *first = heap_first(&b->times);
    if (!first || (b->timer_ms && b->timer_ms <= first->key)) return;
    b->timer_ms = first->key;
    i64 now = (i64)uv_now(&s->loop);
    uv_timer_start(&b->timer, block_on_timeout, (u64)MAX(first->key - now, 0), 0);
}

/* The caller removes the waiter. */
static void unblock(struct server *s, struct blocked *b)
{
    struct conn *c = b->conn;
    if (b->time.key) heap_remove(&s->blocking.times, &b->time);
    s->blocking.count--;
    c->blocked = NULL;
    mem_free(b);
    conn_resume(c, HOLD_BLOCKED);
}

void block_forget(struct server *s, struct conn *c)
{
    if (LIKELY(!c->blocked)) return;
    waiters_remove(c->blocked->waiter);
    unblock(s, c->blocked);
}

/* What was written to `out` after `mark` is the reply. Requests after it may run. */
static void end_wait(struct server *s, struct conn *c, struct reply *out, size_t mark)
{
    if (out->errors) stats_error(&s->stats, bytes_of(out->out->p + mark, out->out->n - mark));
    tick_filter_reply(c, mark, c->session.reply_mode);
    conn_answer_deferred(c, c->out.n == mark);
    block_forget(s, c);
}

/* Replies with an error or, if it is NULL, with a null array. */
static void block_answer(struct server *s, struct conn *c, const char *error)
{
    if (c->closing) {
        block_forget(s, c);
        return;
    }
    struct reply out = conn_reply(c);
    size_t mark = reply_mark(&out);
    if (error) reply_error(&out, error);
    else reply_null_array(&out);
    end_wait(s, c, &out, mark);
}

static void block_on_timeout(uv_timer_t *t)
{
    struct server *s = t->data;
    struct heap *times = &s->blocking.times;
    s->blocking.timer_ms = 0;
    for (struct heap_node *first; (first = heap_first(times)) && first->key <= (i64)uv_now(&s->loop);)
        block_answer(s, ((struct blocked *)(void *)first)->conn, NULL);
    arm(s);
}

bool block_unblock(struct server *s, struct conn *c, bool with_error)
{
    if (!c->blocked) return false;
    s->stats.commands[c->blocked->cmd->id].failed++; /* as Redis counts both cases */
    block_answer(s, c, with_error ? "UNBLOCKED client unblocked via CLIENT UNBLOCK" : NULL);
    return true;
}

void block_recheck(struct server *s, struct conn *c)
{
    struct blocked *b = c->blocked;
    if (!b || c->closing) return;
    const struct waiting *what = b->waiter->what;
    struct reply out = conn_reply(c);
    size_t mark = reply_mark(&out);
    struct request q = {&c->session, s, what->argc, what->argv, &out};
    if (permit_request(&s->node, &q, b->cmd, ACL_TOPLEVEL)) return;
    s->stats.commands[b->cmd->id].rejected++;
    end_wait(s, c, &out, mark);
}

static void block_refuse(struct server *s, const struct region *r)
{
    for (struct conn *c = s->blocking.count ? s->net.conns : NULL; c; c = c->next) {
        if (!c->blocked || (r && c->blocked->waiter->region != r)) continue;
        block_answer(s, c, "UNBLOCKED force unblock from blocking operation, instance state changed "
                     "(master -> replica?)");
        c->session.close_after_reply = true;
    }
}

void block_refuse_all(struct server *s) { block_refuse(s, NULL); }
void block_refuse_region(struct server *s, const struct region *r) { block_refuse(s, r); }

void block_split(struct server *s, const struct region *from, struct region *to)
{
    for (struct conn *c = s->blocking.count ? s->net.conns : NULL; c; c = c->next) {
        struct waiter *w = c->blocked ? c->blocked->waiter : NULL;
        if (!w || w->region != from || !w->what->count) continue;
        u32 slot = key_slot(w->what->argv[w->what->first]);
        if (region_map_at(&s->node.regions, slot) == to) c->blocked->waiter = waiters_move(w, to);
    }
}

/* -- the beginning of a wait ----------------------------------------------------------------- */

void block_begin(struct server *s, struct conn *c, const struct outcome *o, i64 usec)
{
    struct blocked *b = c->blocked = mem_zalloc(sizeof *b);
    b->conn = c;
    b->cmd = o->cmd;
    b->usec = usec;
    b->waiter = waiters_add(o->region, c->session.db, o->waiting, b);
    s->blocking.count++;
    conn_block(&s->net, c, HOLD_BLOCKED);
    if (!o->waiting->timeout_ms) return;
    uv_update_time(&s->loop);
    i64 now = (i64)uv_now(&s->loop) + 1; /* rounded up, so that no wait is too short */
    b->time.key = now + MIN(o->waiting->timeout_ms, INT64_MAX - now);
    b->time.tie = c->session.id;
    heap_add(&s->blocking.times, &b->time);
    arm(s);
}

/* -- serving ------------------------------------------------------------------------------------- */

static void block_finish(struct server *s, struct blocked *b, const struct request *q,
                         const struct outcome *o, size_t mark, i64 usec)
{
    struct conn *c = b->conn;
    account_deferred(s, c, q, o, b->usec, usec);
    tick_filter_reply(c, mark, c->session.reply_mode);
    conn_answer_deferred(c, c->out.n == mark);
    conn_answer_end(c, mark);
    unblock(s, b);
}

static bool block_serve_waiter(void *arg, struct waiter *w, bytes key)
{
    struct server *s = arg;
    struct blocked *b = w->client;
    struct conn *c = b->conn;
    if (c->closing || w->region->doomed) return false;
    struct reply out = conn_reply(c);
    struct request q = {&c->session, s, w->what->argc, w->what->argv, &out};
    struct outcome o;
    size_t mark = conn_answer_begin(c);
    i64 start_us = clock_mono_us();
    s->blocking.served = c;
    bool answered = region_retry(w->region, &q, b->cmd, key, &o);
    s->blocking.served = NULL;
    if (!answered) {
        conn_answer_end(c, mark);
        return false;
    }
    if (o.wrote) {
        c->deferred_wrote = true;
        primary_note_write(s, c, w->region);
    }
    block_finish(s, b, &q, &o, mark, clock_mono_us() - start_us);
    return true;
}

const struct waiting *block_served(const struct server *s)
{
    return s->blocking.served->blocked->waiter->what;
}

bool block_serve(struct server *s)
{
    u32 before = s->blocking.count;
    /* The key may have died during the command that made it ready: EXEC, a script. */
    i64 now_ms = clock_wall_ms();
    struct region *r;
    if (UNLIKELY(server_holds(s, HOLD_SITE))) return false; /* they may write */
    REGIONS_EACH(&s->node.regions, r) {
        if (UNLIKELY(s->cluster) && (!r->waiters.ready || !cluster_serve(s, r))) continue;
        region_advance(r, now_ms);
        waiters_serve(r, block_serve_waiter, s);
    }
    s->tick_us = clock_mono_us(); /* the next command has not run yet */
    return s->blocking.count != before;
}

/* -- life ---------------------------------------------------------------------------------------- */

void block_init(struct server *s)
{
    s->blocking = (struct blocking){0};
    uv_timer_init(&s->loop, &s->blocking.timer);
    s->blocking.timer.data = s;
}

void block_release(struct server *s) { heap_release(&s->blocking.times); }
