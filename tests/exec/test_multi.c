/* Transactions and WATCH in a region: what is queued and refused, one record per transaction that replays to
 * the same data, keys that die while they are watched (the clock is the test's), a storage that fails. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataset.h"
#include "exec/multi.h"
#include "generate.h"
#include "harness.h"

#define NESTED_MAX 16

/* A world with a second client, which `swap_clients` lets speak. */
struct two {
    struct world w;
    struct session other;
};

static void open_two(struct two *t)
{
    world_open(&t->w);
    session_init(&t->other, 2, true);
}

static void swap_clients(struct two *t)
{
    struct session s = t->w.session;
    t->w.session = t->other;
    t->other = s;
}

/* What another client does meanwhile. */
static void other_does(struct two *t, const char *commands)
{
    swap_clients(t);
    run_all(&t->w, commands);
    swap_clients(t);
}

static void close_two(struct two *t)
{
    multi_end(&t->w.session);
    multi_end(&t->other);
    run(&t->w, "SET unwatched 1"); /* a region notices at the next change that no client watches */
    assert_null(t->w.region.ks.watcher);
    assert_int_equal(t->w.region.watches.keys.count, 0);
    session_release(&t->other);
    world_close(&t->w);
}

/* -- queueing and running -------------------------------------------------------------------------------- */

static void runs_at_once(void **state)
{
    (void)state;
    struct two t;
    open_two(&t);
    struct world *w = &t.w;
    run_all(w, "RPUSH list a");
    journal_text(w);
    assert_string_equal(run(w, "MULTI"), "OK");
    assert_string_equal(run(w, "SET k v EX 10"), "QUEUED");
    assert_true(w->outcome.queued && !w->outcome.failed && !w->outcome.rejected);
    assert_string_equal(run(w, "INCR list"), "QUEUED");
    assert_string_equal(run(w, "SELECT 1"), "QUEUED");
    assert_string_equal(run(w, "SET k in1"), "QUEUED");
    assert_string_equal(run(w, "GET k"), "QUEUED");
    other_does(&t, "SET between 1");
    assert_string_equal(journal_text(w), "SET between 1");
    assert_int_equal(t.w.session.tx->count, 5);
    assert_true(t.w.session.queue_bytes > 40);
    assert_string_equal(run(w, "EXEC"),
                        "[OK -WRONGTYPE Operation against a key holding the wrong kind of value OK OK in1]");
    assert_true(!w->outcome.failed); /* the error is INCR's */
    assert_int_equal(w->session.queue_bytes, 0);
    assert_null(w->session.tx);
    assert_string_equal(journal_text(w), "MULTI; SET k v PXAT 1700000010000; SELECT 1; SET k in1; EXEC");
    assert_int_equal(w->session.db, 1);
    run_all(w, "MULTI;GET k;GET k");
    assert_string_equal(run(w, "EXEC"), "[in1 in1]");
    assert_string_equal(journal_text(w), "");
    run_all(w, "MULTI");
    assert_string_equal(run(w, "EXEC"), "[]");
    close_two(&t);
}

struct refusal {
    const char *inside, *reply, *exec;
};

#define ABORTED "-EXECABORT Transaction discarded because of previous errors."

static const struct refusal refusals[] = {
    {"NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: ", ABORTED},
    {"SET a", "-ERR wrong number of arguments for 'set' command", ABORTED},
    {"SAVE", "-ERR Command not allowed inside a transaction", ABORTED},
    {"MULTI", "-ERR MULTI calls can not be nested", "[OK OK]"},
    {"WATCH a", "-ERR WATCH inside MULTI is not allowed", "[OK OK]"},
    {"EXEC now", "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
     "-ERR EXEC without MULTI"},
    {"DISCARD", "OK", "-ERR EXEC without MULTI"},
    {"DISCARD now", "-ERR wrong number of arguments for 'discard' command", ABORTED},
};

static void refuses(void **state)
{
    (void)state;
    struct two t;
    open_two(&t);
    struct world *w = &t.w;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        const struct refusal *r = &refusals[i];
        run_all(w, "MULTI;SET k v");
        assert_string_equal(run(w, r->inside), r->reply);
        run(w, "SET k v");
        assert_string_equal(run(w, "EXEC"), r->exec);
        assert_null(w->session.tx);
    }
    assert_string_equal(run(w, "DISCARD"), "-ERR DISCARD without MULTI");
    assert_string_equal(run(w, "EXEC"), "-ERR EXEC without MULTI");
    close_two(&t);
}

/* What forbids one of the queued commands forbids EXEC, which is over then. */
static void exec_is_checked_by_what_it_runs(void **state)
{
    (void)state;
    struct two t;
    open_two(&t);
    struct world *w = &t.w;
    run_all(w, "MULTI;SET k v");
    w->node.deny_writes = "READONLY no";
    assert_string_equal(run(w, "EXEC"), "-EXECABORT Transaction discarded because of: READONLY no");
    assert_true(w->outcome.rejected);
    assert_string_equal(run(w, "EXEC"), "-ERR EXEC without MULTI");
    run_all(w, "MULTI;GET k");
    assert_string_equal(run(w, "SET k v"), "-READONLY no");
    assert_string_equal(run(w, "EXEC"), ABORTED);
    run_all(w, "MULTI;GET k");
    assert_string_equal(run(w, "EXEC"), "[nil]");
    w->node.deny_writes = NULL;

    run_all(w, "MULTI;PING");
    w->node.loading = true;
    assert_string_equal(run(w, "EXEC"), "-EXECABORT Transaction discarded because of: " REGION_LOADING);
    w->node.loading = false;
    close_two(&t);
}

/* -- WATCH ------------------------------------------------------------------------------------------------ */

struct watch_case {
    const char *before, *watch;
    const char *meanwhile; /* by another client */
    bool runs;
};

static const struct watch_case watch_cases[] = {
    {"SET k v", "WATCH k", "GET k", true},
    {"SET k v", "WATCH k", "SET other v", true},
    {"SET k v", "WATCH k", "SET k v", false},
    {"SET k v", "WATCH other k", "APPEND k v", false},
    {"SET k v", "WATCH k;WATCH k;WATCH other", "DEL k", false},
    {"SET k v", "WATCH k", "EXPIRE k 100", false},
    {"SET k v", "WATCH k;UNWATCH", "SET k w", true},
    {"SET k v", "WATCH k", "SELECT 1;SET k w;SELECT 0", true},
    {"SET k v", "WATCH k", "RENAME k other", false},
    {"SET k v", "WATCH other", "RENAME k other", false},
    {"SET k v", "WATCH k", "FLUSHALL", false},
    {"SET k v", "WATCH k", "FLUSHDB", false},
    {"SET k v", "WATCH other", "FLUSHALL", true},
    {"SET k v", "WATCH k", "SELECT 1;FLUSHDB;SELECT 0", true},
    {"SET k v", "WATCH other", "SWAPDB 0 1", true},
    {"SET k v", "WATCH k", "SWAPDB 0 1;SWAPDB 0 1", false},
    {"SELECT 1;SET k v;SELECT 0", "WATCH k", "SWAPDB 0 1", false},
    {"SET k v", "WATCH k", "SWAPDB 2 1", true},
    {"HSET k f v", "WATCH k", "HDEL k f", false},
    {"SADD k a", "WATCH k", "SADD k a", true},
    {"SET k v", "WATCH gone", "DEL gone", true},
    {"SET k v", "WATCH new", "SETNX new 1;DEL new", false},
};

static void watches(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(watch_cases); i++) {
        const struct watch_case *c = &watch_cases[i];
        struct two t;
        open_two(&t);
        run_all(&t.w, c->before);
        run_all(&t.w, c->watch);
        other_does(&t, c->meanwhile);
        run_all(&t.w, "MULTI;ECHO ran");
        const char *reply = run(&t.w, "EXEC");
        if (strcmp(reply, c->runs ? "[ran]" : "nil") != 0)
            fail_msg("%s; %s; %s: %s", c->before, c->watch, c->meanwhile, reply);
        run_all(&t.w, "MULTI;ECHO again"); /* whatever it was, it is over */
        assert_string_equal(run(&t.w, "EXEC"), "[again]");
        close_two(&t);
    }
}

static void own_changes_count_too(void **state)
{
    (void)state;
    struct two t;
    open_two(&t);
    run_all(&t.w, "WATCH k;SET k v;MULTI;GET k");
    assert_string_equal(run(&t.w, "EXEC"), "nil");
    run_all(&t.w, "WATCH k;MULTI;SET k w;GET k");
    assert_string_equal(run(&t.w, "EXEC"), "[OK w]");
    run_all(&t.w, "WATCH k;SET k v;UNWATCH;MULTI;GET k");
    assert_string_equal(run(&t.w, "EXEC"), "[v]");
    run_all(&t.w, "WATCH k;SET k v;MULTI;DISCARD;MULTI;GET k");
    assert_string_equal(run(&t.w, "EXEC"), "[v]");
    run_all(&t.w, "WATCH k;SET k v");
    assert_null(t.w.region.ks.watcher); /* it knows already */
    run_all(&t.w, "WATCH k");
    assert_null(t.w.region.ks.watcher);
    run_all(&t.w, "MULTI;GET k"); /* and nothing is kept that will not run */
    assert_int_equal(t.w.session.tx->count, 0);
    assert_string_equal(run(&t.w, "EXEC"), "nil");
    close_two(&t);
}

/* Many clients and keys, in all combinations: no watch is lost, no client is affected by others' keys. */
static void many_watch(void **state)
{
    (void)state;
    enum { CLIENTS = 40, KEYS = 30 };
    struct world w;
    struct session who[CLIENTS];
    world_open(&w);
    for (u32 round = 0; round < KEYS; round++) {
        struct session mine = w.session;
        for (u32 i = 0; i < CLIENTS; i++) {
            session_init(&who[i], i + 2, true);
            w.session = who[i];
            for (u32 k = 0; k < KEYS; k++) {
                char line[32];
                snprintf(line, sizeof line, "WATCH k%u", (k + i) % KEYS);
                if ((k * 7 + i * 3 + round) % 5 == 0) run(&w, line);
            }
            who[i] = w.session;
        }
        w.session = mine;
        char line[32];
        snprintf(line, sizeof line, "INCR k%u", round);
        run(&w, line);
        for (u32 i = 0; i < CLIENTS; i++) {
            bool watched = false;
            for (u32 k = 0; k < KEYS; k++)
                watched |= (k * 7 + i * 3 + round) % 5 == 0 && (k + i) % KEYS == round;
            w.session = who[i];
            run_all(&w, "MULTI;ECHO ran");
            assert_string_equal(run(&w, "EXEC"), watched ? "nil" : "[ran]");
            multi_end(&w.session);
            session_release(&w.session);
        }
        w.session = mine;
        assert_int_equal(w.region.watches.keys.count, 0);
    }
    world_close(&w);
}

/* -- WATCH and time ---------------------------------------------------------------------------------------- */

/* A key lives until T0 + 1000. */
struct timed_case {
    i64 watched_at;
    const char *meanwhile; /* what somebody does at once; "" nothing, "(step)" the active cycle runs */
    i64 exec_at;
    bool runs;
};

static const struct timed_case timed_cases[] = {
    {0, "", 999, true},
    {0, "", 1000, false},         /* dead, though not deleted yet */
    {0, "(step)", 1000, false},   /* somebody has */
    {999, "GET k", 1000, false},
    {1000, "", 2000, true},       /* it was dead before */
    {1000, "GET k", 2000, true},  /* … and is deleted by who finds it */
    {1000, "(step)", 2000, true},
    {1000, "DEL k", 2000, true},
    {1000, "SET k w", 2000, false},
    {1000, "GET k;SET k w", 2000, false},
    {1000, "SET k w;DEL k", 2000, false},
    {1000, "FLUSHALL", 2000, true},
    {1000, "SWAPDB 0 1", 2000, true},
    {0, "FLUSHALL", 1, false},
    {0, "PERSIST k", 1, false},
};

static void watched_keys_die(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(timed_cases); i++) {
        const struct timed_case *c = &timed_cases[i];
        struct two t;
        open_two(&t);
        run_all(&t.w, "SET k v PX 1000;SET stays v");
        at(&t.w, c->watched_at);
        run_all(&t.w, "WATCH k");
        if (strcmp(c->meanwhile, "(step)") == 0) {
            at(&t.w, MAX(c->watched_at, 1000));
            at(&t.w, c->exec_at + 1000);
            each_step(&t.w);
        } else {
            other_does(&t, c->meanwhile);
        }
        at(&t.w, MAX(c->exec_at, now_of(&t.w) - T0));
        run_all(&t.w, "MULTI;ECHO ran");
        const char *reply = run(&t.w, "EXEC");
        if (strcmp(reply, c->runs ? "[ran]" : "nil") != 0) fail_msg("case %zu: %s", i, reply);
        close_two(&t);
    }
}

/* A dead key that comes in by SWAPDB is none; one that lives is. */
static void swapped_in(void **state)
{
    (void)state;
    struct two t;
    open_two(&t);
    run_all(&t.w, "SELECT 1;SET dead v PX 1000;SET k v;SELECT 0");
    at(&t.w, 2000);
    run_all(&t.w, "WATCH dead");
    other_does(&t, "SWAPDB 0 1;GET dead");
    run_all(&t.w, "MULTI;GET dead");
    assert_string_equal(run(&t.w, "EXEC"), "[nil]");
    run_all(&t.w, "SET dead v PX 10;SWAPDB 0 1;WATCH dead");
    other_does(&t, "SWAPDB 0 1");
    run_all(&t.w, "MULTI;GET dead");
    assert_string_equal(run(&t.w, "EXEC"), "nil");
    close_two(&t);
}

/* A hash whose fields have all died is gone, too. */
static void hollow_hashes(void **state)
{
    (void)state;
    struct two t;
    open_two(&t);
    run_all(&t.w, "HSET h f v;HPEXPIRE h 1000 FIELDS 1 f");
    at(&t.w, 5000);
    run_all(&t.w, "WATCH h");
    each_step(&t.w);
    run_all(&t.w, "MULTI;EXISTS h");
    assert_string_equal(run(&t.w, "EXEC"), "[0]");
    run_all(&t.w, "HSET h f v g w;HPEXPIRE h 1000 FIELDS 1 f;WATCH h");
    at(&t.w, 9000);
    each_step(&t.w);
    run_all(&t.w, "MULTI;EXISTS h");
    assert_string_equal(run(&t.w, "EXEC"), "nil");
    close_two(&t);
}

/* -- the storage fails -------------------------------------------------------------------------------------- */

struct flaky {
    struct engine_ops ops, real;
    const char *fail_on; /* finding this key fails */
};

static bool flaky_find(struct engine *e, u32 db, bytes key, struct key_ref *ref)
{
    struct flaky *f = (struct flaky *)(void *)e->ops;
    bool found = f->real.find(e, db, key, ref);
    if (!f->fail_on || !bytes_is(key, f->fail_on)) return found;
    e->failed = true;
    *ref = (struct key_ref){.key = key, .db = db, .hash = ref->hash};
    return false;
}

static void flaky_abort(struct engine *e UNUSED) {}

static void a_failed_read_behind_a_write_dooms_the_tick(void **state)
{
    (void)state;
    struct world w;
    struct flaky f;
    struct engine *e = memory_engine_new(DBS, 7);
    f = (struct flaky){.ops = *e->ops, .real = *e->ops};
    f.ops.find = flaky_find;
    f.ops.abort = flaky_abort;
    e->ops = &f.ops;
    world_open_on(&w, e);
    f.fail_on = "bad";
    run_all(&w, "MULTI;GET good;GET bad");
    assert_string_equal(run(&w, "EXEC"), "[nil -" REGION_IO_ERROR "]");
    assert_false(w.region.doomed); /* nothing is lost */
    run_all(&w, "MULTI;GET bad;SET good v");
    assert_string_equal(run(&w, "EXEC"), "[-" REGION_IO_ERROR " OK]");
    assert_string_equal(journal_text(&w), "SELECT 0; SET good v");
    assert_false(w.region.doomed);
    run_all(&w, "MULTI;SET good w;GET bad");
    run(&w, "EXEC");
    assert_true(w.region.doomed);
    assert_string_equal(journal_text(&w), "");
    assert_false(region_commit(&w.region));
    multi_end(&w.session);
    world_close(&w);
}

/* -- random transactions -------------------------------------------------------------------------------------- */

static void run_transaction(struct world *w, struct gen *g)
{
    size_t records = w->journal.n;
    u64 n = 1 + gen_below(g, NESTED_MAX);
    i64 now = now_of(w);
    run_all(w, "MULTI");
    for (u64 i = 0; i < n; i++) {
        gen_next(g);
        run_argv(w, g->argc, g->argv);
        if (gen_below(g, 8) == 0) at(w, now - T0); /* ticks may end between */
    }
    assert_int_equal(w->session.tx->spoiled ? 0 : w->session.tx->count, w->session.tx->spoiled ? 0 : n);
    run(w, "EXEC");
    assert_true(w->journal.n <= records + 1);
}

static void random_transactions_replay(void **state)
{
    (void)state;
    struct world w, late;
    struct gen g = {.rng = 5, .now_ms = T0, .databases = DBS};
    struct buf ours = {0}, theirs = {0};
    world_open(&w);
    world_open(&late);
    journal_detach(&late.region.journal, &late.journal.sink);
    for (u32 i = 0, applied = 0; i < 3000; i++) {
        g.now_ms += (i64)gen_below(&g, 300);
        at(&w, g.now_ms - T0);
        if (gen_below(&g, 4) == 0) region_expire_step(&w.region);
        if (gen_below(&g, 8) == 0) w.session.db = (u32)gen_below(&g, DBS);
        run_transaction(&w, &g);
        for (; applied < w.journal.n; applied++)
            assert_int_equal(region_apply(&late.region, &late.session, NULL, &w.journal.v[applied]), OK);
        if (i % 50) continue;
        buf_clear(&ours);
        buf_clear(&theirs);
        dataset_dump(w.region.eng, now_of(&w), &ours);
        dataset_dump(late.region.eng, now_of(&w), &theirs);
        w.region.eng->ops->begin(w.region.eng, now_of(&w));
        assert_true(bytes_eq(buf_bytes(&ours), buf_bytes(&theirs)));
    }
    assert_true(w.journal.n > 2000 && ours.n > 1000);
    buf_release(&ours);
    buf_release(&theirs);
    gen_release(&g);
    world_close(&late);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_at_once),
        cmocka_unit_test(refuses),
        cmocka_unit_test(exec_is_checked_by_what_it_runs),
        cmocka_unit_test(watches),
        cmocka_unit_test(own_changes_count_too),
        cmocka_unit_test(many_watch),
        cmocka_unit_test(watched_keys_die),
        cmocka_unit_test(swapped_in),
        cmocka_unit_test(hollow_hashes),
        cmocka_unit_test(a_failed_read_behind_a_write_dooms_the_tick),
        cmocka_unit_test(random_transactions_replay),
    };
    return cmocka_run_group_tests_name("multi", tests, NULL, NULL);
}
