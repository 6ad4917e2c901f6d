/* See cluster_log.h, whose rules are referred to by number. */
#include "cluster/cluster_log.h"

#include <pthread.h>
#include <signal.h>

#include "base/alloc.h"
#include "base/crash.h"
#include "base/err.h"

struct cluster_log {
    struct raft_log raft; /* first: raft_log.h */
    struct cluster_logs *logs;
    u64 region;
    struct raft_log_state state; /* rule 5 */
    void (*durable)(void *arg, u64 number);
    void *arg;
    u64 asked, told; /* the number of the last write to be synced; the last one reported as durable */
    u64 batch, mark; /* the batch that has its last mark, and where that is */
};

/* The highest number that a log has written to a batch. */
struct cluster_log_mark {
    struct cluster_log *log; /* NULL: it was closed */
    u64 number;
};

struct cluster_log_marks {
    struct cluster_log_mark *v;
    size_t n, cap;
};

struct cluster_log_batch {
    struct rocks_log_batch *rows;
    struct cluster_log_marks marks;
    u64 number;     /* how manieth it is; set when it is taken to be written */
    bool any, sync; /* it has rows; they are to be synced … */
    bool due;       /* … now: the loop is done with it */
};

struct cluster_logs {
    uv_async_t async; /* something became durable */
    struct rocks_log *reader;
    const struct log *log;
    struct cluster_log_marks telling; /* the loop's: what on_durable is working on */
    bool closed;                      /* likewise: a log was, and some of it may be queued still */
    bool asked;                       /* likewise: something is to be synced, and the thread is not told */

    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, idle;
    struct cluster_log_batch *filling, *writing; /* the loop's; the thread's, while it is busy */
    u64 filled;                                  /* counts batches that the loop began to fill … */
    u64 synced;                                  /* … and the last of them that was synced */
    struct cluster_log_marks done;               /* durable, and not told yet */
    bool waiting, busy;                          /* the thread */
    bool drain, closing;                         /* write also what need not be synced; and end then */
    struct cluster_logs_stats stats;
};

static struct cluster_log *cluster_log_of(struct raft_log *l) { return (struct cluster_log *)l; }

/* ---- Marks. */

static size_t marks_push(struct cluster_log_marks *m, struct cluster_log_mark mark)
{
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 16;
        m->v = mem_realloc(m->v, m->cap * sizeof(*m->v));
    }
    m->v[m->n] = mark;
    return m->n++;
}

static void marks_forget(struct cluster_log_marks *m, const struct cluster_log *log)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].log == log) m->v[i].log = NULL;
}

/* ---- The thread. */

/* Waits for a batch to write and takes it. False: there will be none. */
static bool cluster_logs_take(struct cluster_logs *s)
{
    pthread_mutex_lock(&s->lock);
    s->busy = false;
    pthread_cond_broadcast(&s->idle);
    while (!s->filling->due && !(s->drain && s->filling->any) && !s->closing) {
        s->waiting = true;
        pthread_cond_wait(&s->work, &s->lock);
    }
    s->waiting = false;
    bool any = s->filling->any;
    if (any) {
        struct cluster_log_batch *b = s->filling;
        s->filling = s->writing;
        s->writing = b;
        s->busy = true;
        b->number = s->filled++;
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

/* The batch is written. Unsynced writes are not reported: a later one will be. */
static void cluster_logs_written(struct cluster_logs *s, struct cluster_log_batch *b)
{
    pthread_mutex_lock(&s->lock);
    bool tell = b->sync && s->done.n == 0;
    for (size_t i = 0; b->sync && i < b->marks.n; i++)
        if (b->marks.v[i].log) marks_push(&s->done, b->marks.v[i]);
    s->stats.batches++;
    s->stats.syncs += b->sync;
    if (b->sync) s->synced = b->number;
    tell = tell && s->done.n;
    b->marks.n = 0;
    b->any = b->sync = b->due = false;
    pthread_mutex_unlock(&s->lock);
    if (tell) uv_async_send(&s->async);
}

static void *cluster_logs_thread(void *arg)
{
    struct cluster_logs *s = arg;
    while (cluster_logs_take(s)) {
        struct cluster_log_batch *b = s->writing;
        if (!rocks_log_write(b->rows, b->sync)) /* rule 4 */
            crash_panic("The Raft log could not be written (the reason is in the log above). What this node "
                        "promised to others may be lost, so it must not continue. Repair the disk, then "
                        "start it again.");
        cluster_logs_written(s, b);
    }
    return NULL;
}

/* Signals are the loop's. */
static bool cluster_logs_start(struct cluster_logs *s)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool ok = pthread_create(&s->thread, NULL, cluster_logs_thread, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}

/* ---- The loop: what became durable. */

static void cluster_logs_on_durable(uv_async_t *async)
{
    struct cluster_logs *s = async->data;
    pthread_mutex_lock(&s->lock);
    struct cluster_log_marks done = s->done;
    s->done = s->telling;
    s->telling = done;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < s->telling.n; i++) { /* a callback may close logs: marks_forget */
        struct cluster_log_mark m = s->telling.v[i];
        if (!m.log || !m.number) continue;
        m.log->told = m.number;
        m.log->durable(m.log->arg, m.number);
    }
    s->telling.n = 0;
}

/* Waits until everything that is queued is written; synced, where that was asked for. */
static void cluster_logs_drain(struct cluster_logs *s)
{
    pthread_mutex_lock(&s->lock);
    s->drain = true;
    pthread_cond_signal(&s->work);
    while (s->busy || s->filling->any) pthread_cond_wait(&s->idle, &s->lock);
    s->drain = false;
    pthread_mutex_unlock(&s->lock);
}

/* ---- Opening and closing. */

static struct cluster_log_batch *cluster_log_batch_new(struct rocks *db)
{
    struct cluster_log_batch *b = mem_zalloc(sizeof(*b));
    b->rows = rocks_log_batch_open(db);
    return b;
}

static void cluster_log_batch_free(struct cluster_log_batch *b)
{
    rocks_log_batch_close(b->rows);
    mem_free(b->marks.v);
    mem_free(b);
}

static void cluster_logs_free(uv_handle_t *async) { mem_free(async->data); }

static void cluster_logs_release(struct cluster_logs *s)
{
    cluster_log_batch_free(s->filling);
    cluster_log_batch_free(s->writing);
    rocks_log_close(s->reader);
    mem_free(s->done.v);
    mem_free(s->telling.v);
    pthread_cond_destroy(&s->idle);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
}

struct cluster_logs *cluster_logs_open(uv_loop_t *loop, struct rocks *db, const struct log *log)
{
    struct cluster_logs *s = mem_zalloc(sizeof(*s));
    s->log = log;
    s->filled = 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->idle, NULL);
    s->filling = cluster_log_batch_new(db);
    s->writing = cluster_log_batch_new(db);
    s->reader = rocks_log_open(db);
    bool async = uv_async_init(loop, &s->async, cluster_logs_on_durable) == 0;
    s->async.data = s;
    if (async && cluster_logs_start(s)) return s;
    if (log) log_line(log, LOG_WARNING, "The thread that writes the Raft log can't be started");
    cluster_logs_release(s);
    if (async) uv_close((uv_handle_t *)&s->async, cluster_logs_free);
    else mem_free(s);
    return NULL;
}

void cluster_logs_close(struct cluster_logs *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->drain = s->closing = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    CHECK(!s->filling->any);
    cluster_logs_release(s);
    uv_close((uv_handle_t *)&s->async, cluster_logs_free);
}

/* ---- Writing. */

/* Between these two the loop may fill the batch. */
static struct rocks_log_batch *cluster_log_begin(struct cluster_log *l)
{
    struct cluster_logs *s = l->logs;
    pthread_mutex_lock(&s->lock);
    s->filling->any = true;
    return s->filling->rows;
}

static void cluster_log_end(struct cluster_log *l, bool sync)
{
    struct cluster_logs *s = l->logs;
    s->filling->sync |= sync;
    s->asked |= sync;
    pthread_mutex_unlock(&s->lock);
}

void cluster_logs_flush(struct cluster_logs *s)
{
    if (!s->asked) return;
    s->asked = false;
    pthread_mutex_lock(&s->lock);
    s->filling->due |= s->filling->sync; /* a drain may have taken it */
    bool wake = s->filling->due && s->waiting;
    if (wake) s->waiting = false; /* once is enough */
    pthread_mutex_unlock(&s->lock);
    if (wake) pthread_cond_signal(&s->work);
}

/* Under the lock. A number covers all before it, so one mark per log and batch will do. */
static void cluster_log_mark(struct cluster_log *l, u64 number)
{
    struct cluster_logs *s = l->logs;
    struct cluster_log_marks *marks = &s->filling->marks;
    if (l->batch == s->filled) {
        marks->v[l->mark].number = number;
        return;
    }
    l->batch = s->filled;
    l->mark = marks_push(marks, (struct cluster_log_mark){l, number});
}

static void cluster_log_reset(struct cluster_log *l, struct rocks_log_batch *b, u64 index, u64 term)
{
    rocks_log_delete(b, l->region, 1, UINT64_MAX);
    rocks_log_put_point(b, l->region, index, term);
    l->state.point_index = l->state.last_index = index;
    l->state.point_term = term;
}

static void cluster_log_append(struct cluster_log *l, struct rocks_log_batch *b,
                               const struct raft_log_write *w)
{
    struct cluster_logs_stats *stats = &l->logs->stats;
    u64 index = w->entries[0].index, last = l->state.last_index;
    CHECK(index > l->state.point_index && index <= last + 1);
    for (size_t i = 0; i < w->entries_n; i++, index++) {
        const struct raft_entry *e = &w->entries[i];
        CHECK(e->index == index && e->type <= UINT8_MAX);
        bytes data = bytes_of(e->data.data, e->data.size);
        rocks_log_put(b, l->region, &(struct rocks_log_entry){index, e->term, (u8)e->type, data});
        stats->bytes += data.n;
    }
    stats->entries += w->entries_n;
    rocks_log_delete(b, l->region, index, last);
    l->state.last_index = index - 1;
}

static void cluster_log_write(struct raft_log *log, const struct raft_log_write *w)
{
    struct cluster_log *l = cluster_log_of(log);
    struct rocks_log_batch *b = cluster_log_begin(l);
    if (w->reset) cluster_log_reset(l, b, w->reset_index, w->reset_term);
    if (w->entries_n) cluster_log_append(l, b, w);
    if (w->hard_state) {
        const struct raft_hard_state *h = w->hard_state;
        rocks_log_put_hard_state(b, l->region, h->term, h->vote, h->commit);
        l->state.hard_state = *h;
    }
    l->logs->stats.writes++;
    if (w->sync) l->asked = w->number;
    cluster_log_mark(l, w->number);
    cluster_log_end(l, w->sync);
}

static void cluster_log_compact(struct raft_log *log, u64 index, u64 term)
{
    struct cluster_log *l = cluster_log_of(log);
    struct raft_log_state *at = &l->state;
    if (index <= at->point_index) return;
    CHECK(index <= at->last_index);
    struct rocks_log_batch *b = cluster_log_begin(l);
    rocks_log_delete(b, l->region, at->point_index + 1, index);
    rocks_log_put_point(b, l->region, index, term);
    at->point_index = index;
    at->point_term = term;
    cluster_log_end(l, false); /* rule 2 */
}

/* The row is as it was: a batch needs one. */
u64 cluster_log_sync(struct raft_log *log)
{
    struct cluster_log *l = cluster_log_of(log);
    struct rocks_log_batch *b = cluster_log_begin(l);
    u64 number = l->logs->filled;
    rocks_log_put_point(b, l->region, l->state.point_index, l->state.point_term);
    cluster_log_end(l, true);
    return number;
}

u64 cluster_logs_synced(struct cluster_logs *s)
{
    pthread_mutex_lock(&s->lock);
    u64 number = s->synced;
    pthread_mutex_unlock(&s->lock);
    return number;
}

/* ---- Reading. */

static void cluster_log_load(struct raft_log *log, struct raft_log_state *state)
{
    *state = cluster_log_of(log)->state;
}

struct cluster_log_reading {
    struct raft_core_sink *sink;
    u64 left; /* bytes */
};

static bool cluster_log_push(void *arg, const struct rocks_log_entry *e)
{
    struct cluster_log_reading *r = arg;
    struct raft_entry entry = {e->index, e->term, e->type, {(const u8 *)e->data.p, e->data.n}};
    raft_core_push(r->sink, &entry);
    bool more = r->left > e->data.n;
    r->left -= MIN(r->left, e->data.n);
    return more;
}

static bool cluster_log_read(struct raft_log *log, u64 low, u64 high, u64 bytes_max,
                             struct raft_core_sink *sink)
{
    struct cluster_log *l = cluster_log_of(log);
    struct cluster_log_reading r = {sink, bytes_max};
    if (low <= l->state.point_index || low > high || high > l->state.last_index + 1) return false;
    return rocks_log_read(l->logs->reader, l->region, low, high, cluster_log_push, &r);
}

static u64 cluster_log_term_of(struct raft_log *log, u64 index)
{
    struct cluster_log *l = cluster_log_of(log);
    const struct raft_log_state *at = &l->state;
    if (index == at->point_index) return at->point_term;
    if (index < at->point_index || index > at->last_index) return 0;
    return rocks_log_term(l->logs->reader, l->region, index);
}

static const struct raft_log_ops CLUSTER_LOG_OPS = {
    .load = cluster_log_load,
    .write = cluster_log_write,
    .read = cluster_log_read,
    .term_of = cluster_log_term_of,
    .compact = cluster_log_compact,
};

/* ---- One region's log. */

struct raft_log *cluster_log_open(struct cluster_logs *s, u64 region,
                                  void (*durable)(void *arg, u64 number), void *arg)
{
    struct rocks_log_state at;
    if (s->closed) cluster_logs_drain(s); /* it may have been this one */
    s->closed = false;
    if (!rocks_log_load(s->reader, region, &at)) {
        if (s->log)
            log_line(s->log, LOG_WARNING, "The Raft log of region %llu can't be opened",
                     (unsigned long long)region);
        return NULL;
    }
    struct cluster_log *l = mem_zalloc(sizeof(*l));
    *l = (struct cluster_log){
        .raft.ops = &CLUSTER_LOG_OPS,
        .logs = s,
        .region = region,
        .state = {{at.term, at.vote, at.commit}, at.point_index, at.point_term, at.last_index},
        .durable = durable,
        .arg = arg,
    };
    return &l->raft;
}

void cluster_log_close(struct raft_log *log)
{
    struct cluster_log *l = cluster_log_of(log);
    if (!l) return;
    struct cluster_logs *s = l->logs;
    pthread_mutex_lock(&s->lock);
    marks_forget(&s->filling->marks, l);
    marks_forget(&s->writing->marks, l);
    marks_forget(&s->done, l);
    pthread_mutex_unlock(&s->lock);
    marks_forget(&s->telling, l);
    s->closed = true;
    mem_free(l);
}

void cluster_log_destroy(struct raft_log *log)
{
    struct cluster_log *l = cluster_log_of(log);
    struct rocks_log_batch *b = cluster_log_begin(l);
    rocks_log_delete_region(b, l->region);
    cluster_log_end(l, false);
    cluster_log_close(log);
}

bool cluster_log_syncing(const struct raft_log *log)
{
    const struct cluster_log *l = (const struct cluster_log *)log;
    return l->asked > l->told;
}

void cluster_logs_stats(struct cluster_logs *s, struct cluster_logs_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}
