/* Members of a Raft group reclaim by themselves and stay identical.
 *
 * A leader evaluates random commands; each that has effects, or found something dead that the region's clock
 * calls alive, is an entry with the time of its evaluation as its stamp. Followers apply entries later, at
 * their own pace. Every member reclaims whenever it likes, by the stamp of its last entry, and nobody hears of
 * it. At the same place of the log all members show the same data. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataset.h"
#include "follower.h"
#include "generate.h"

#define MEMBERS 3
#define STEPS 6000
#define ROCKS_STEPS 1500

struct entry {
    i64 stamp_ms;
    size_t record; /* index in the leader's journal; SIZE_MAX: the entry moves the clock only */
};

struct member {
    struct world w;
    size_t applied; /* entries */
    i64 clock_ms;   /* stamp of the last one */
};

struct trial {
    struct member m[MEMBERS]; /* the first is the leader */
    struct gen gen;
    struct entry *log;
    size_t n;
    bool reclaims_ahead; /* planted: the leader reclaims by the time it evaluated at */
    u64 differences, reclaimed;
    struct buf texts[MEMBERS];
};

static const char *const names[MEMBERS] = {"leader", "second", "third"};

static void trial_open(struct trial *t, u64 seed, enum kind kind)
{
    *t = (struct trial){.gen = {.rng = seed, .now_ms = T0, .databases = 1}};
    t->log = mem_alloc((STEPS + 1) * sizeof *t->log);
    for (int i = 0; i < MEMBERS; i++) {
        struct world *w = &t->m[i].w;
        open_on(w, i == 2 ? kind : MEMORY, names[i]); /* the third may be on another engine */
        w->region.mode = EXPIRY_RAFT;
        if (i) journal_detach(&w->region.journal, &w->journal.sink);
        t->m[i].clock_ms = T0;
        at(w, 0);
    }
}

static void trial_close(struct trial *t)
{
    for (int i = 0; i < MEMBERS; i++) {
        if (i) journal_attach(&t->m[i].w.region.journal, &t->m[i].w.journal.sink);
        close_on(&t->m[i].w, names[i]);
        buf_release(&t->texts[i]);
    }
    gen_release(&t->gen);
    mem_free(t->log);
}

static void append(struct trial *t, i64 stamp_ms, size_t record)
{
    t->log[t->n++] = (struct entry){stamp_ms, record};
    t->m[0].applied = t->n;
    t->m[0].clock_ms = stamp_ms;
}

/* The leader runs a command at the present time, which may be ahead of the region's clock. */
static void evaluate(struct trial *t)
{
    struct member *leader = &t->m[0];
    size_t before = leader->w.journal.n;
    at(&leader->w, t->gen.now_ms - T0);
    run_argv(&leader->w, t->gen.argc, t->gen.argv);
    assert_true(leader->w.journal.n <= before + 1);
    if (leader->w.journal.n > before) append(t, t->gen.now_ms, before);
    else if (leader->w.region.ks.found_dead_ms > leader->clock_ms) append(t, t->gen.now_ms, SIZE_MAX);
    at(&leader->w, leader->clock_ms - T0);
}

static void apply_next(struct trial *t, struct member *m)
{
    const struct entry *e = &t->log[m->applied++];
    m->clock_ms = e->stamp_ms;
    at(&m->w, m->clock_ms - T0);
    if (e->record == SIZE_MAX) return;
    struct journal_record *r = &t->m[0].w.journal.v[e->record];
    assert_int_equal(r->now_ms, e->stamp_ms);
    assert_int_equal(region_apply(&m->w.region, &m->w.session, NULL, r), OK);
    at(&m->w, m->clock_ms - T0);
}

static void reclaim(struct trial *t, struct member *m)
{
    bool ahead = t->reclaims_ahead && m == &t->m[0];
    size_t records = t->m[0].w.journal.n;
    u64 expired = m->w.region.ks.stats.expired_keys;
    at(&m->w, (ahead ? t->gen.now_ms : m->clock_ms) - T0);
    for (u64 n = gen_below(&t->gen, 4); n > 0; n--) region_expire_step(&m->w.region);
    t->reclaimed += m->w.region.ks.stats.expired_keys - expired;
    assert_int_equal(t->m[0].w.journal.n, records); /* not a byte of log for it */
    at(&m->w, m->clock_ms - T0);
}

static void compare_members(struct trial *t)
{
    for (int i = 0; i < MEMBERS; i++) {
        while (t->m[i].applied < t->n) apply_next(t, &t->m[i]);
        dump(&t->m[i].w, t->m[i].clock_ms, &t->texts[i]);
        t->differences += !bytes_eq(buf_bytes(&t->texts[i]), buf_bytes(&t->texts[0]));
    }
}

static void trial_run(struct trial *t, u32 steps)
{
    struct gen *g = &t->gen;
    for (u32 i = 0; i < steps && !t->differences; i++) {
        g->now_ms += gen_below(g, 10) ? (i64)gen_below(g, 20) : (i64)gen_below(g, 1500);
        gen_next(g);
        evaluate(t);
        for (int k = 1; k < MEMBERS; k++)
            while (t->m[k].applied < t->n && gen_below(g, 3)) apply_next(t, &t->m[k]);
        if (gen_below(g, 3) == 0) reclaim(t, &t->m[gen_below(g, MEMBERS)]);
        if (i % 64 == 0) compare_members(t);
    }
    compare_members(t);
}

static void test_members_stay_identical(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 4; seed++) {
        struct trial t;
        trial_open(&t, seed, MEMORY);
        trial_run(&t, STEPS);
        assert_int_equal(t.differences, 0);
        assert_true(t.reclaimed > 100);
        trial_close(&t);
    }
}

static void test_members_on_different_engines_stay_identical(void **state UNUSED)
{
    struct trial t;
    trial_open(&t, 77, ROCKS);
    trial_run(&t, ROCKS_STEPS);
    assert_int_equal(t.differences, 0);
    trial_close(&t);
}

/* The check above finds a member that reclaims ahead of the region's clock. */
static void test_reclaiming_ahead_of_the_clock_is_found(void **state UNUSED)
{
    struct trial t;
    trial_open(&t, 1, MEMORY);
    t.reclaims_ahead = true;
    trial_run(&t, STEPS);
    assert_true(t.differences > 0);
    trial_close(&t);
}

/* -- one by one ------------------------------------------------------------------------------ */

static void test_what_a_read_found_dead_is_reported(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    w.region.mode = EXPIRY_RAFT;
    at(&w, 0);
    run_all(&w, "SET a 1 PX 100;SET b 1 PX 300;SET c 1;HSET h f 1 g 2;HPEXPIRE h 200 FIELDS 1 f");
    at(&w, 50);
    run_all(&w, "GET a;GET b;GET c;HGET h f");
    assert_int_equal(w.region.ks.found_dead_ms, 0);
    at(&w, 150);
    run_all(&w, "GET c;GET b");
    assert_int_equal(w.region.ks.found_dead_ms, 0);
    run_all(&w, "EXISTS a");
    assert_int_equal(w.region.ks.found_dead_ms, T0 + 100);
    at(&w, 250);
    run_all(&w, "HGET h g");
    assert_int_equal(w.region.ks.found_dead_ms, T0 + 250); /* which field was looked for is not known */
    at(&w, 350);
    run_all(&w, "KEYS *");
    assert_true(w.region.ks.found_dead_ms >= T0 + 300);
    assert_string_equal(run(&w, "DBSIZE"), "4"); /* reads delete nothing */
    world_close(&w);
}

static void test_a_watched_key_that_died_is_reported(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    w.region.mode = EXPIRY_RAFT;
    at(&w, 0);
    run_all(&w, "SET a 1 PX 100;WATCH a;MULTI;SET b 1");
    at(&w, 150);
    assert_string_equal(run(&w, "EXEC"), "nil");
    assert_int_equal(w.region.ks.found_dead_ms, T0 + 100);
    world_close(&w);
}

static void test_writes_over_dead_keys_record_no_deletion(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    w.region.mode = EXPIRY_RAFT;
    at(&w, 0);
    run_all(&w, "SET a 1 PX 100;HSET h f 1 g 2;HPEXPIRE h 100 FIELDS 2 f g");
    journal_text(&w);
    at(&w, 200);
    run_all(&w, "INCR a;HSET h f 3");
    assert_string_equal(journal_text(&w), "INCR a | HSET h f 3");
    at(&w, 300);
    each_step(&w);
    assert_string_equal(journal_text(&w), "");
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_stay_identical),
        cmocka_unit_test(test_members_on_different_engines_stay_identical),
        cmocka_unit_test(test_reclaiming_ahead_of_the_clock_is_found),
        cmocka_unit_test(test_what_a_read_found_dead_is_reported),
        cmocka_unit_test(test_a_watched_key_that_died_is_reported),
        cmocka_unit_test(test_writes_over_dead_keys_record_no_deletion),
    };
    followers_open();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    followers_close();
    return rc;
}
