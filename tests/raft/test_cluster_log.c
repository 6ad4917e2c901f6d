/* The Raft logs of a node (cluster/cluster_log.h) against a simple model: random writes to two regions, with
 * reopening at random points, and a process that is killed at random moments. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "cluster/cluster_log.h"
#include "rounds.h"
#include "unit/rocks_helpers.h"

enum { REGIONS = 2 };
#define REGION(i) (7 + (u64)(i)) /* neighbours */

/* ---- The model: entries are known by what they were made of. */

struct made {
    u64 term, salt;
    u32 size, type;
};

struct model {
    struct raft_hard_state hard_state;
    u64 point_index, point_term, n, cap;
    struct made *v;
};

static u64 model_last(const struct model *m) { return m->point_index + m->n; }

static u64 model_term(const struct model *m, u64 index)
{
    if (index == m->point_index) return m->point_term;
    if (index < m->point_index || index > model_last(m)) return 0;
    return m->v[index - m->point_index - 1].term;
}

/* The bytes of an entry, in memory of its own. */
static char *made_data(const struct made *e)
{
    char *p = malloc(e->size + 8);
    u64 x = e->salt;
    for (u32 i = 0; i < e->size; i += 8, x = x * 6364136223846793005u + 1442695040888963407u) memcpy(p + i, &x, 8);
    return p;
}

/* One change, of one region. */
struct op {
    u32 region;
    bool compact;            /* up to w.reset_index; else: */
    struct raft_log_write w; /* without its entries, which are: */
    u64 first;
    struct made entries[8];
    struct raft_hard_state hard_state;
};

static void model_apply(struct model *m, const struct op *op)
{
    const struct raft_log_write *w = &op->w;
    if (op->compact) {
        u64 gone = w->reset_index - m->point_index;
        memmove(m->v, m->v + gone, (m->n - gone) * sizeof *m->v);
        m->n -= gone;
    }
    if (w->reset) m->n = 0;
    if (op->compact || w->reset) m->point_index = w->reset_index, m->point_term = w->reset_term;
    if (w->entries_n) m->n = op->first - m->point_index - 1;
    for (size_t i = 0; i < w->entries_n; i++) {
        if (m->n == m->cap) m->v = realloc(m->v, (m->cap = m->cap * 2 + 8) * sizeof *m->v);
        m->v[m->n++] = op->entries[i];
    }
    if (w->hard_state) m->hard_state = op->hard_state;
}

/* What random writes are made from; the same seed gives the same writes. */
struct source {
    u64 rng;
    u64 number[REGIONS], term[REGIONS];
    struct model model[REGIONS];
    u32 size_max;
};

static u64 below(struct source *s, u64 n) { return rand_below(&s->rng, n); }

static void source_init(struct source *s, u64 seed, u32 size_max)
{
    memset(s, 0, sizeof *s);
    s->rng = seed;
    s->size_max = size_max;
    for (u32 r = 0; r < REGIONS; r++) s->term[r] = 1;
}

static void source_release(struct source *s)
{
    for (u32 r = 0; r < REGIONS; r++) free(s->model[r].v);
}

static struct made some_entry(struct source *s, u64 term)
{
    u32 most = below(s, 50) == 0 ? s->size_max : 200;
    return (struct made){term, rand_next(&s->rng), (u32)below(s, most + 1), (u32)below(s, 3)};
}

static void some_entries(struct source *s, struct op *op, u64 first)
{
    op->first = first;
    op->w.entries_n = 1 + below(s, ARRAY_LEN(op->entries));
    for (size_t i = 0; i < op->w.entries_n; i++) op->entries[i] = some_entry(s, s->term[op->region]);
    op->w.sync = true;
}

/* The next write; the model is as it is left by that. */
static void source_next(struct source *s, struct op *op)
{
    memset(op, 0, sizeof *op);
    u32 r = op->region = (u32)below(s, REGIONS), kind = (u32)below(s, 100);
    struct model *m = &s->model[r];
    u64 last = model_last(m);
    if (kind < 12 && m->n) { /* somewhere, mostly near the end of the log */
        op->compact = true;
        op->w.reset_index = m->point_index + 1 + below(s, m->n);
        op->w.reset_term = model_term(m, op->w.reset_index);
        model_apply(m, op);
        return;
    }
    op->w.number = ++s->number[r];
    if (kind < 20 && m->n) { /* a new leader has other entries */
        s->term[r]++;
        some_entries(s, op, m->point_index + 1 + below(s, m->n));
    } else if (kind < 23) {
        op->w.reset = op->w.sync = true;
        op->w.reset_index = last + below(s, 100), op->w.reset_term = ++s->term[r];
    } else if (kind < 85) {
        some_entries(s, op, last + 1);
    }
    if (!op->w.sync || below(s, 2)) {
        op->w.hard_state = &op->hard_state;
        op->hard_state = (struct raft_hard_state){s->term[r], below(s, 5), op->w.number};
    }
    model_apply(m, op);
}

static void log_apply(struct raft_log *l, const struct op *op)
{
    struct raft_entry entries[ARRAY_LEN(op->entries)];
    struct raft_log_write w = op->w;
    if (op->compact) {
        l->ops->compact(l, w.reset_index, w.reset_term);
        return;
    }
    for (size_t i = 0; i < w.entries_n; i++) {
        const struct made *e = &op->entries[i];
        entries[i] = (struct raft_entry){op->first + i, e->term, e->type, {(u8 *)made_data(e), e->size}};
    }
    w.entries = entries;
    if (w.hard_state) w.hard_state = &op->hard_state;
    l->ops->write(l, &w);
    for (size_t i = 0; i < w.entries_n; i++) free((void *)entries[i].data.data);
}

/* ---- Comparing. What read() hands out comes here: the core, which it is meant for, is not linked. */

struct raft_core_sink {
    const struct model *m;
    u64 next, bytes;
    bool same;
};

void raft_core_push(struct raft_core_sink *sink, const struct raft_entry *e)
{
    const struct model *m = sink->m;
    bool there = e->index == sink->next++ && e->index > m->point_index && e->index <= model_last(m);
    const struct made *want = there ? &m->v[e->index - m->point_index - 1] : NULL;
    sink->bytes += e->data.size;
    if (!want || want->term != e->term || want->type != e->type || want->size != e->data.size) {
        sink->same = false;
        return;
    }
    char *data = made_data(want);
    sink->same &= want->size == 0 || memcmp(data, e->data.data, want->size) == 0;
    free(data);
}

static bool same_state(struct raft_log *l, const struct model *m)
{
    struct raft_log_state s;
    l->ops->load(l, &s);
    const struct raft_hard_state *a = &s.hard_state, *b = &m->hard_state;
    return a->term == b->term && a->vote == b->vote && a->commit == b->commit && s.point_index == m->point_index &&
           s.point_term == m->point_term && s.last_index == model_last(m);
}

static bool same_entries(struct raft_log *l, const struct model *m, u64 low, u64 high, u64 bytes_max, u64 *next)
{
    struct raft_core_sink sink = {m, low, 0, true};
    bool ok = l->ops->read(l, low, high, bytes_max, &sink);
    *next = sink.next;
    return ok && sink.same;
}

static bool same_log(struct raft_log *l, const struct model *m)
{
    u64 last = model_last(m), next;
    if (!same_state(l, m)) return false;
    if (!same_entries(l, m, m->point_index + 1, last + 1, UINT64_MAX, &next) || next != last + 1) return false;
    for (u64 i = m->point_index ? m->point_index - 1 : 0; i <= last + 1; i++)
        if (l->ops->term_of(l, i) != model_term(m, i)) return false;
    return true;
}

/* ---- A node. */

static char path[256];
static uv_loop_t loop;
static struct rocks *db;
static struct cluster_logs *logs;
static struct raft_log *log_of[REGIONS];
static u64 durable[REGIONS], written[REGIONS]; /* numbers; the last that asked for a sync */
static const struct log errors = {.level = LOG_NOTHING};

static void on_durable(void *arg, u64 number)
{
    u64 *at = arg;
    assert_true(number > *at);
    *at = number;
}

static void logs_open(void)
{
    logs = cluster_logs_open(&loop, db, &errors);
    assert_non_null(logs);
    for (u32 r = 0; r < REGIONS; r++) {
        log_of[r] = cluster_log_open(logs, REGION(r), on_durable, &durable[r]);
        assert_non_null(log_of[r]);
        durable[r] = written[r] = 0;
    }
}

static void logs_close(void)
{
    for (u32 r = 0; r < REGIONS; r++) cluster_log_close(log_of[r]);
    cluster_logs_close(logs);
    uv_run(&loop, UV_RUN_DEFAULT);
}

static void node_open(void)
{
    struct buf why = {0};
    struct rocks_options o = rocks_small(path, 1);
    db = rocks_open(&o, &why);
    if (!db) print_error("%.*s\n", (int)why.n, why.p);
    assert_non_null(db);
    buf_release(&why);
    assert_int_equal(uv_loop_init(&loop), 0);
    logs_open();
}

static void node_close(void)
{
    logs_close();
    assert_int_equal(uv_loop_close(&loop), 0);
    rocks_close(db);
}

static void node_reopen(void)
{
    node_close();
    node_open();
}

static int setup(void **state UNUSED)
{
    if (!folder_make(path, sizeof path, "raft-log")) return -1;
    node_open();
    return 0;
}

static int teardown(void **state UNUSED)
{
    node_close();
    folder_remove(path);
    return 0;
}

/* A turn of the loop, as the server has it. */
static void turn(uv_run_mode mode)
{
    cluster_logs_flush(logs);
    uv_run(&loop, mode);
}

static void await_durable(void)
{
    for (u32 r = 0; r < REGIONS; r++)
        while (durable[r] < written[r]) turn(UV_RUN_ONCE);
}

static void apply(const struct op *op)
{
    log_apply(log_of[op->region], op);
    if (op->w.sync) written[op->region] = op->w.number;
}

/* ---- Tests with one region; the numbers say what is in the log. */

static u64 next_number(u32 r) { return MAX(written[r], durable[r]) + 1; }

/* Entries first … last with this term and size, and what they are into the model. */
static void append(struct model *m, u32 r, u64 first, u64 last, u64 term, u32 size)
{
    while (first <= last) {
        struct op op = {.region = r, .first = first, .w = {.number = next_number(r), .sync = true}};
        for (; first <= last && op.w.entries_n < ARRAY_LEN(op.entries); first++)
            op.entries[op.w.entries_n++] = (struct made){term, first * 31 + term, size, 0};
        model_apply(m, &op);
        apply(&op);
    }
}

static void compact(struct model *m, u32 r, u64 index)
{
    struct op op = {.region = r, .compact = true};
    op.w.reset_index = index, op.w.reset_term = model_term(m, index);
    model_apply(m, &op);
    apply(&op);
}

static void a_new_log_is_empty(void **state UNUSED)
{
    struct model m = {0};
    u64 next;
    assert_true(same_state(log_of[0], &m));
    assert_int_equal(log_of[0]->ops->term_of(log_of[0], 0), 0);
    assert_int_equal(log_of[0]->ops->term_of(log_of[0], 1), 0);
    assert_false(same_entries(log_of[0], &m, 1, 2, 100, &next));
}

static void suffixes_are_replaced(void **state UNUSED)
{
    struct model m = {0}, other = {0};
    append(&other, 1, 1, 60, 2, 10);
    append(&m, 0, 1, 60, 1, 10);
    append(&m, 0, 55, 56, 2, 10); /* a few go: one by one */
    await_durable();
    assert_true(same_log(log_of[0], &m));
    append(&m, 0, 10, 10, 3, 10); /* many: by range */
    await_durable();
    assert_int_equal(model_last(&m), 10);
    assert_true(same_log(log_of[0], &m));
    append(&m, 0, 11, 13, 3, 10);
    node_reopen();
    assert_true(same_log(log_of[0], &m));
    assert_true(same_log(log_of[1], &other)); /* the next region's rows come right after */
    free(m.v);
    free(other.v);
}

static void big_entries(void **state UNUSED)
{
    enum { SIZE = 3 << 19, N = 9 };
    struct model m = {0};
    u64 next;
    append(&m, 0, 1, N, 1, SIZE);
    await_durable();
    assert_true(same_log(log_of[0], &m));
    /* At least one, and about as many as were asked for. */
    assert_true(same_entries(log_of[0], &m, 2, N + 1, 0, &next));
    assert_int_equal(next, 3);
    assert_true(same_entries(log_of[0], &m, 2, N + 1, 2 * SIZE, &next));
    assert_int_equal(next, 4);
    node_reopen();
    assert_true(same_log(log_of[0], &m));
    free(m.v);
}

static void a_snapshot_resets(void **state UNUSED)
{
    struct model m = {0};
    append(&m, 0, 1, 40, 1, 10);
    struct op op = {.region = 0, .w = {.number = next_number(0), .sync = true, .reset = true}};
    op.w.reset_index = 30, op.w.reset_term = 5; /* what is after it goes, too */
    op.w.hard_state = &op.hard_state, op.hard_state = (struct raft_hard_state){5, 2, 30};
    model_apply(&m, &op);
    apply(&op);
    append(&m, 0, 31, 33, 5, 10); /* in the same batch, probably */
    await_durable();
    assert_true(same_log(log_of[0], &m));
    node_reopen();
    assert_true(same_log(log_of[0], &m));
    /* As group_open does it, with number 0, which is not reported. */
    op.w.number = 0, op.w.reset_index = 100;
    model_apply(&m, &op);
    log_apply(log_of[0], &op);
    assert_true(same_log(log_of[0], &m));
    append(&m, 0, 101, 102, 6, 10);
    node_reopen();
    assert_true(same_log(log_of[0], &m));
    free(m.v);
}

static void what_is_compacted_is_gone(void **state UNUSED)
{
    struct model m = {0};
    u64 next;
    append(&m, 0, 1, 50, 1, 10);
    await_durable();
    compact(&m, 0, 45);
    assert_int_equal(log_of[0]->ops->term_of(log_of[0], 45), 1);
    assert_int_equal(log_of[0]->ops->term_of(log_of[0], 44), 0);
    assert_false(same_entries(log_of[0], &m, 45, 47, 1000, &next));
    node_reopen();
    assert_true(same_log(log_of[0], &m));
    log_of[0]->ops->compact(log_of[0], 45, 1); /* nothing to do */
    append(&m, 0, 51, 51, 1, 10);
    compact(&m, 0, 51); /* everything, before it is written */
    append(&m, 0, 52, 52, 1, 10);
    await_durable();
    assert_true(same_log(log_of[0], &m));
    node_reopen();
    assert_true(same_log(log_of[0], &m));
    free(m.v);
}

/* Without a sync there is no batch of its own, but at the end everything is written. */
static void writes_without_sync_ride_along(void **state UNUSED)
{
    struct cluster_logs_stats s;
    struct model m = {0};
    struct op op = {.w = {.number = 1}, .hard_state = {3, 1, 0}};
    op.w.hard_state = &op.hard_state;
    model_apply(&m, &op);
    apply(&op);
    turn(UV_RUN_NOWAIT);
    cluster_logs_stats(logs, &s);
    assert_int_equal(s.batches, 0);
    struct op entry = {.first = 1, .w = {.number = 2, .sync = true, .entries_n = 1}, .entries = {{3, 9, 9, 0}}};
    model_apply(&m, &entry);
    apply(&entry);
    await_durable();
    cluster_logs_stats(logs, &s);
    assert_int_equal(s.batches, 1);
    assert_int_equal(s.syncs, 1);
    assert_int_equal(s.writes, 2);
    assert_int_equal(durable[0], 2);
    op.w.number = 3, op.hard_state.commit = 1;
    model_apply(&m, &op);
    apply(&op);
    node_reopen();
    assert_true(same_log(log_of[0], &m));
    free(m.v);
}

/* However long it takes the loop to come to its end. */
static void a_turn_shares_a_sync(void **state UNUSED)
{
    struct cluster_logs_stats s;
    struct model m[REGIONS];
    memset(m, 0, sizeof m);
    for (u32 r = 0; r < REGIONS; r++) append(&m[r], r, 1, 3, 1, 10);
    struct timespec pause = {.tv_nsec = 20000000}; /* a thread that does not wait for it would begin */
    nanosleep(&pause, NULL);
    cluster_logs_stats(logs, &s);
    assert_int_equal(s.batches, 0);
    await_durable();
    cluster_logs_stats(logs, &s);
    assert_int_equal(s.batches, 1);
    assert_int_equal(s.syncs, 1);
    for (u32 r = 0; r < REGIONS; r++) {
        assert_true(same_log(log_of[r], &m[r]));
        free(m[r].v);
    }
}

/* A region that is closed and opened again at once finds what was queued. */
static void a_closed_log_is_written(void **state UNUSED)
{
    struct model m = {0};
    append(&m, 0, 1, 30, 1, 10);
    compact(&m, 0, 20);
    cluster_log_close(log_of[0]);
    log_of[0] = cluster_log_open(logs, REGION(0), on_durable, &durable[0]);
    assert_true(same_log(log_of[0], &m));
    written[0] = durable[0] = 0;
    turn(UV_RUN_NOWAIT); /* the old one's writes are not told */
    assert_int_equal(durable[0], 0);
    free(m.v);
}

static void a_destroyed_log_is_empty(void **state UNUSED)
{
    struct model m = {0}, other = {0}, empty = {0};
    append(&m, 0, 1, 30, 1, 10);
    append(&other, 1, 1, 30, 1, 10);
    cluster_log_destroy(log_of[0]);
    log_of[0] = cluster_log_open(logs, REGION(0), on_durable, &durable[0]);
    assert_true(same_log(log_of[0], &empty));
    written[0] = durable[0] = 0;
    append(&empty, 0, 1, 2, 1, 10);
    node_reopen();
    assert_true(same_log(log_of[0], &empty));
    assert_true(same_log(log_of[1], &other));
    free(m.v);
    free(other.v);
    free(empty.v);
}

/* Both are durable at once; the first that is told closes both. */
static u32 told;
static void close_both(void *arg UNUSED, u64 number)
{
    assert_int_equal(number, 1);
    told++;
    for (u32 r = 0; r < REGIONS; r++) cluster_log_close(log_of[r]);
}

static void callbacks_may_close(void **state UNUSED)
{
    struct model m[REGIONS];
    memset(m, 0, sizeof m);
    told = 0;
    for (u32 r = 0; r < REGIONS; r++) {
        cluster_log_close(log_of[r]);
        log_of[r] = cluster_log_open(logs, REGION(r), close_both, NULL);
    }
    for (u32 r = 0; r < REGIONS; r++) append(&m[r], r, 1, 1, 1, 10);
    while (!told) turn(UV_RUN_ONCE);
    for (u32 r = 0; r < REGIONS; r++) {
        log_of[r] = cluster_log_open(logs, REGION(r), on_durable, &durable[r]);
        durable[r] = written[r] = 0;
        assert_true(same_log(log_of[r], &m[r]));
        free(m[r].v);
    }
    turn(UV_RUN_NOWAIT);
    assert_int_equal(told, 1);
}

/* ---- Random writes. */

static void compare_all(const struct source *s)
{
    for (u32 r = 0; r < REGIONS; r++) assert_true(same_log(log_of[r], &s->model[r]));
}

static void numbers_start_over(struct source *s)
{
    for (u32 r = 0; r < REGIONS; r++) s->number[r] = 0;
}

static void random_writes(void **state UNUSED)
{
    struct source s;
    struct op op;
    source_init(&s, 42, 2 << 20);
    for (u32 i = 0; i < ROUNDS(6000); i++) {
        source_next(&s, &op);
        apply(&op);
        if (below(&s, 4) == 0) turn(UV_RUN_NOWAIT);
        if (below(&s, 50) == 0) {
            await_durable();
            compare_all(&s);
        }
        if (below(&s, 300) == 0) {
            if (below(&s, 2)) {
                node_reopen();
            } else {
                logs_close();
                logs_open();
            }
            numbers_start_over(&s);
            compare_all(&s);
        }
    }
    await_durable();
    compare_all(&s);
    source_release(&s);
}

/* ---- A process that is killed. It runs this program again, since RocksDB's threads don't survive a fork. */

struct report {
    _Atomic u64 issued; /* writes; counted before they are made */
    _Atomic u64 durable[REGIONS];
};

static struct report *report_map(const char *file)
{
    FILE *f = fopen(file, "a+");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), sizeof(struct report)), 0);
    void *p = mmap(NULL, sizeof(struct report), PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
    assert_true(p != MAP_FAILED);
    fclose(f);
    return p;
}

static pid_t child_start(const char *what, const char *report, u64 seed)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_cluster_log", what, path, report, text, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

enum { KILLED_SIZE_MAX = 50000 };

/* The child: writes until it is killed. */
static _Noreturn void write_forever(const char *dir, const char *file, u64 seed)
{
    struct source s;
    struct op op;
    struct report *rep = report_map(file);
    snprintf(path, sizeof path, "%s", dir);
    node_open();
    source_init(&s, seed, KILLED_SIZE_MAX);
    for (;;) {
        source_next(&s, &op);
        atomic_fetch_add(&rep->issued, 1);
        apply(&op);
        turn(UV_RUN_NOWAIT);
        for (u32 r = 0; r < REGIONS; r++) {
            while (written[r] > durable[r] + 40) turn(UV_RUN_ONCE);
            atomic_store(&rep->durable[r], durable[r]);
        }
    }
}

/* Whether what was found is what the first `k` writes leave, for some k up to those issued, and no write that was
 * reported durable is missing. The source becomes what it was after these. */
static bool some_prefix(struct source *s, const struct report *rep, struct source *found)
{
    struct op op;
    u64 issued = atomic_load(&rep->issued);
    for (u64 k = 0;; k++) {
        bool enough = true, same = true;
        for (u32 r = 0; r < REGIONS; r++) enough &= s->number[r] >= atomic_load(&rep->durable[r]);
        for (u32 r = 0; r < REGIONS && enough && same; r++) same = same_state(log_of[r], &s->model[r]);
        for (u32 r = 0; r < REGIONS && enough && same; r++) same = same_log(log_of[r], &s->model[r]);
        if (enough && same) {
            *found = *s;
            return true;
        }
        if (k == issued) return false;
        source_next(s, &op);
    }
}

/* What was recovered can be written to. */
static void go_on(struct source *s)
{
    struct op op;
    numbers_start_over(s);
    for (u32 i = 0; i < 20; i++) {
        source_next(s, &op);
        apply(&op);
    }
    await_durable();
    node_reopen();
    compare_all(s);
}

static void kill_one(u64 seed)
{
    char file[300];
    struct source s, found;
    int status;
    snprintf(file, sizeof file, "%s/report", path);
    struct report *rep = report_map(file);
    node_close();
    source_init(&s, seed, KILLED_SIZE_MAX);
    pid_t pid = child_start("--write", file, seed);
    u64 target = 1 + below(&s, 1500);
    while (atomic_load(&rep->issued) < target) {
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
        usleep(200);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    node_open();
    source_init(&s, seed, KILLED_SIZE_MAX);
    if (!some_prefix(&s, rep, &found)) fail_msg("not a prefix of the writes: seed %llu", (unsigned long long)seed);
    go_on(&found);
    source_release(&found);
    munmap(rep, sizeof *rep);
}

static void killed_at_random_moments(void **state UNUSED)
{
    for (u64 seed = 1; seed <= ROUNDS(12); seed++) {
        if (seed > 1) {
            teardown(NULL);
            assert_int_equal(setup(NULL), 0);
        }
        kill_one(seed);
    }
}

/* ---- A disk that fails. */

static int write_and_fail(const char *dir)
{
    struct model m = {0};
    snprintf(path, sizeof path, "%s", dir);
    node_open();
    append(&m, 0, 1, 3, 1, 100);
    await_durable();
    puts("durable");
    fflush(stdout);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {64 << 10, 64 << 10}, no_core = {0, 0};
    setrlimit(RLIMIT_FSIZE, &limit);
    setrlimit(RLIMIT_CORE, &no_core);
    append(&m, 0, 4, 4, 1, 1 << 20);
    await_durable();
    return 0; /* it should not come to this */
}

static void a_failed_write_ends_the_process(void **state UNUSED)
{
    int status;
    struct model m = {0};
    for (u64 i = 0; i < 3; i++) append(&m, 0, i + 1, i + 1, 1, 100);
    node_close();
    folder_remove(path);
    assert_int_equal(mkdir(path, 0700), 0);
    pid_t pid = child_start("--fail", "", 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) != 0);
    node_open();
    assert_true(same_log(log_of[0], &m)); /* what was durable before is */
    free(m.v);
}

/* ---- The checker. */

static void plant(u64 region, u64 index, bytes value)
{
    bool failed = false;
    char key[CODEC_LOG_KEY];
    struct rocks_options o = rocks_small(path, 1);
    struct store_session *s = store_open_alone(&o, false, &failed, NULL);
    if (value.p) store_put(s, FAM_RAFT_LOG, codec_log_key(key, region, index), value);
    else store_delete(s, FAM_RAFT_LOG, codec_log_key(key, region, index));
    assert_true(store_write(s));
    store_close_alone(s);
}

static void the_checker_knows_it(void **state UNUSED)
{
    static const struct rocks_region whole = {1, 1, 0, ROCKS_SLOTS - 1};
    struct model m = {0};
    struct buf why = {0};
    struct engine *e = rocks_region_open(db, &whole, &why);
    e->ops->begin(e, 1700000000000);
    assert_true(e->ops->commit(e, 1));
    e->ops->close(e);
    append(&m, 0, 1, 20, 1, 10);
    append(&m, 1, 1, 20, 1, 10);
    compact(&m, 1, 5);
    node_close();
    assert_int_equal(rocks_check(path), 0);
    plant(REGION(0), 10, (bytes){0});
    assert_int_equal(rocks_check(path), 1); /* a gap */
    plant(REGION(0), 10, BYTES_LIT("\0\0\0\0\0\0\0\1\0 any"));
    assert_int_equal(rocks_check(path), 0);
    plant(REGION(0), 10, BYTES_LIT("\0\0\0\0\0\0\0\2\0 any"));
    assert_int_equal(rocks_check(path), 1); /* the term decreases then */
    plant(REGION(0), 10, BYTES_LIT("short"));
    assert_int_equal(rocks_check(path), 1);
    plant(REGION(0), 10, BYTES_LIT("\0\0\0\0\0\0\0\1\0 any"));
    plant(REGION(1), 6, (bytes){0});
    assert_int_equal(rocks_check(path), 1); /* it begins after the compaction point */
    struct rocks_options o = rocks_small(path, 1);
    db = rocks_open(&o, &why);
    assert_int_equal(uv_loop_init(&loop), 0);
    logs = cluster_logs_open(&loop, db, &errors);
    assert_null(cluster_log_open(logs, REGION(1), on_durable, NULL)); /* nor can it be opened */
    cluster_logs_close(logs);
    uv_run(&loop, UV_RUN_DEFAULT);
    logs = NULL;
    uv_loop_close(&loop);
    rocks_close(db);
    plant(REGION(1), 6, BYTES_LIT("\0\0\0\0\0\0\0\1\0 any"));
    node_open();
    free(m.v);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--write") == 0) write_forever(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "--fail") == 0) return write_and_fail(argv[2]);
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_new_log_is_empty),
        TEST(suffixes_are_replaced),
        TEST(big_entries),
        TEST(a_snapshot_resets),
        TEST(what_is_compacted_is_gone),
        TEST(writes_without_sync_ride_along),
        TEST(a_closed_log_is_written),
        TEST(a_destroyed_log_is_empty),
        TEST(a_turn_shares_a_sync),
        TEST(callbacks_may_close),
        TEST(random_writes),
        TEST(killed_at_random_moments),
        TEST(a_failed_write_ends_the_process),
        TEST(the_checker_knows_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
