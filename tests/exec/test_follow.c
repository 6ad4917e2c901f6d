/* Random commands and clocks: a replica has what its primary has, dead or alive, shows what is alive by its own
 * clock, and deletes nothing by itself, until it is promoted. The stream is that of the journal.
 *
 *   test_follow [seed [commands]]   one longer run; compares after every command */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "follower.h"
#include "generate.h"

/* primary → replica → second: the last follows what the replica's own journal says, as its AOF does. */
struct trial {
    u64 seed, commands;
    struct world primary, replica, second;
    struct gen gen;
    size_t followed, followed_on; /* records */
    i64 skew_ms;                  /* of the replica's clock */
    struct buf payload;           /* of a hash, some time ago */
    struct buf ours, theirs;
};

static void trial_open(struct trial *t, u64 seed, enum kind primary, enum kind replica)
{
    *t = (struct trial){.seed = seed, .gen = {.rng = seed, .now_ms = T0, .databases = DBS}};
    open_on(&t->primary, primary, "primary");
    open_replica(&t->replica, replica, "replica");
    open_replica(&t->second, primary, "second");
    if (seed % 2 && primary == MEMORY) t->primary.region.cycle.source = EXPIRE_SAMPLE;
}

static void trial_close(struct trial *t)
{
    close_on(&t->primary, "primary");
    close_on(&t->replica, "replica");
    close_on(&t->second, "second");
    gen_release(&t->gen);
    buf_release(&t->payload);
    buf_release(&t->ours);
    buf_release(&t->theirs);
}

static void print_records(const struct recorder *j)
{
    for (size_t k = j->n > 4 ? j->n - 4 : 0; k < j->n; k++) {
        struct buf text = {0};
        record_text(&j->v[k], &text);
        fprintf(stderr, "record: %.*s\n", (int)text.n, text.p);
        buf_release(&text);
    }
}

static int line_length(const struct buf *b, size_t from)
{
    const char *nl = memchr(b->p + from, '\n', b->n - from);
    return (int)(nl ? (size_t)(nl - b->p) - from : b->n - from);
}

static void must_be_equal(struct trial *t, const char *who)
{
    const struct buf *a = &t->ours, *b = &t->theirs;
    size_t i = 0, line = 0;
    if (bytes_eq(buf_bytes(a), buf_bytes(b))) return;
    while (i < a->n && i < b->n && a->p[i] == b->p[i])
        if (a->p[i++] == '\n') line = i;
    fprintf(stderr, "after:");
    for (int k = 0; k < t->gen.argc; k++) fprintf(stderr, " %.*s", (int)t->gen.argv[k].n, t->gen.argv[k].p);
    fprintf(stderr, " at %lld\n", (long long)now_of(&t->primary));
    print_records(&t->primary.journal);
    fprintf(stderr, "expected: %.*s\n%s: %.*s\n", line_length(a, line), a->p + line, who,
            line_length(b, line), b->p + line);
    fail_msg("seed %llu, command %llu: the %s differs", (unsigned long long)t->seed,
             (unsigned long long)t->commands, who);
}

static void deliver(struct trial *t)
{
    struct recorder *from = &t->primary.journal, *on = &t->replica.journal;
    while (t->followed < from->n) {
        size_t n = 1 + gen_below(&t->gen, 5);
        n = MIN(n, from->n - t->followed);
        follow(&t->replica, &from->v[t->followed], n);
        t->followed += n;
    }
    follow(&t->second, &on->v[t->followed_on], on->n - t->followed_on);
    t->followed_on = on->n;
}

/* Nothing goes but by the primary's word: all three have the same, the dead included. */
static void compare_all(struct trial *t)
{
    dump(&t->primary, 0, &t->ours);
    dump(&t->replica, 0, &t->theirs);
    must_be_equal(t, "replica");
    dump(&t->second, 0, &t->theirs);
    must_be_equal(t, "second replica");
}

/* What clients of the replica see is what is alive by its own clock. */
static void compare_visible(struct trial *t)
{
    struct world *w = &t->replica;
    i64 now_ms = now_of(w);
    for (u32 db = 0; db < DBS; db++) {
        w->session.db = db;
        struct dump_items keys = dump_keys(w->region.eng, db);
        size_t alive_keys = 0;
        for (size_t i = 0; i < keys.n; i++) {
            char line[64];
            struct key_ref ref;
            assert_true(w->region.eng->ops->find(w->region.eng, db, keys.v[i].name, &ref));
            bool lives = alive(ref.deadline_ms, now_ms) && !dump_is_hollow(w->region.eng, &ref);
            alive_keys += lives;
            snprintf(line, sizeof line, "EXISTS %.*s", (int)ref.key.n, ref.key.p);
            expect(w, line, lives ? "1" : "0");
            snprintf(line, sizeof line, "PTTL %.*s", (int)ref.key.n, ref.key.p);
            i64 ttl = strtoll(run(w, line), NULL, 10);
            assert_int_equal(ttl, !lives ? -2 : !ref.deadline_ms ? -1 : ref.deadline_ms - now_ms);
        }
        run(w, "KEYS *");
        assert_int_equal(strtoull(w->out.p + 1, NULL, 10), alive_keys);
        run(w, "DBSIZE");
        assert_int_equal(strtoull(w->out.p + 1, NULL, 10), keys.n);
        mem_free(keys.v);
    }
}

/* A read of the generator's, on the replica: it changes nothing. */
static void read_replica(struct trial *t)
{
    struct world *w = &t->replica;
    struct gen g = {.rng = rand_next(&t->gen.rng), .now_ms = now_of(w), .databases = DBS};
    size_t records = w->journal.n;
    w->node.deny_writes = "READONLY";
    w->session.db = (u32)gen_below(&g, DBS);
    gen_next(&g);
    const struct command *cmd = command_find(g.argv[0]);
    const struct command *sub = g.argc > 1 ? command_find_sub(cmd, g.argv[1]) : NULL;
    bool writes = (sub ? sub : cmd)->flags & CMD_WRITE;
    run_argv(w, g.argc, g.argv);
    assert_int_equal(w->outcome.rejected, writes);
    assert_int_equal(w->journal.n, records);
    assert_false(region_expire_step(&w->region));
    w->node.deny_writes = NULL;
    w->session.db = 0;
    gen_release(&g);
}

/* Clocks differ, and both drift; now and then the replica's is set, which deletes nothing either. */
static void move_clocks(struct trial *t)
{
    struct gen *g = &t->gen;
    u64 kind = gen_below(g, 100);
    g->now_ms += kind == 0 ? (i64)gen_below(g, 5001) : kind < 10 ? (i64)gen_below(g, 300) : (i64)(kind < 40);
    if (gen_below(g, 200) == 0) t->skew_ms = (i64)gen_below(g, 12001) - 6000;
    else if (gen_below(g, 10) == 0) t->skew_ms += (i64)gen_below(g, 101) - 50;
    at(&t->primary, g->now_ms - T0);
    at(&t->replica, g->now_ms + t->skew_ms - T0);
}

/* DUMP, and later RESTORE, when some of the fields have died. */
static void carry_hash(struct trial *t)
{
    struct gen *g = &t->gen;
    char line[32], ttl[32];
    if (!t->payload.n) {
        snprintf(line, sizeof line, "DUMP h%d", (int)gen_below(g, 6));
        run(&t->primary, line);
        t->primary.out.n--; /* the end of the text */
        keep_payload(&t->primary, &t->payload);
        return;
    }
    snprintf(line, sizeof line, "h%d", (int)gen_below(g, 6));
    snprintf(ttl, sizeof ttl, "%d", (int)gen_below(g, 2) * (int)gen_below(g, 5000));
    bytes argv[] = {BYTES_LIT("RESTORE"), bytes_str(line), bytes_str(ttl), buf_bytes(&t->payload),
                    BYTES_LIT("REPLACE")};
    run_argv(&t->primary, 5, argv);
    CHECK(t->primary.out.p[0] == '+');
    buf_clear(&t->payload);
}

/* What the replica's session has selected is the stream's. */
static void trial_step(struct trial *t)
{
    struct world *w = &t->primary;
    struct gen *g = &t->gen;
    move_clocks(t);
    if (gen_below(g, t->seed % 3 ? 8 : 200) == 0) region_expire_step(&w->region);
    if (gen_below(g, 16) == 0) w->session.db = (u32)gen_below(g, DBS);
    do gen_next(g);
    while (t->seed % 4 == 1 && g->argv[0].p[0] != 'H' && gen_below(g, 8)); /* some are about hashes, mostly */
    t->commands++;
    run_argv(w, g->argc, g->argv);
    if (gen_below(g, 32) == 0) carry_hash(t);
    u32 stream_db = t->replica.session.db;
    if (gen_below(g, 4) == 0) read_replica(t);
    t->replica.session.db = stream_db;
    if (gen_below(g, 3) == 0) deliver(t);
}

static void compare_now(struct trial *t)
{
    deliver(t);
    u32 stream_db = t->replica.session.db;
    compare_visible(t);
    t->replica.session.db = stream_db;
    compare_all(t);
}

/* The primary has gone. All that can die dies, now by the replica's hand, and the second hears of it. */
static void promote(struct trial *t)
{
    struct world *w = &t->replica;
    struct expire_sweep sweep = {0};
    set_role(w, false);
    at(w, now_of(w) - T0 + 86400000);
    dump(w, 0, &t->theirs);
    each_step(w);
    while (expire_sweep_step(&sweep, &w->region.ks)) CHECK(w->region.cycle.source == EXPIRE_INDEX);
    assert_int_equal(w->journal.v[w->journal.n - 1].seq, w->region.journal.seq);
    dump(w, now_of(w), &t->ours);
    dump(w, 0, &t->theirs);
    must_be_equal(t, "promoted replica");
    follow(&t->second, &w->journal.v[t->followed_on], w->journal.n - t->followed_on);
    dump(&t->second, 0, &t->theirs);
    must_be_equal(t, "replica of the promoted one");
}

static void run_trial(u64 seed, u64 commands, u64 every, enum kind primary, enum kind replica)
{
    struct trial t;
    trial_open(&t, seed, primary, replica);
    while (t.commands < commands) {
        trial_step(&t);
        if (t.commands % every == 0) compare_now(&t);
    }
    compare_now(&t);
    nothing_expired(&t.replica);
    nothing_expired(&t.second);
    promote(&t);
    trial_close(&t);
}

static void random_commands(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 6; seed++) run_trial(seed, 10000, 100, MEMORY, MEMORY);
    run_trial(5, 4000, 100, MEMORY, ROCKS);
    run_trial(6, 4000, 100, ROCKS, MEMORY);
    run_trial(7, 4000, 100, ROCKS, ROCKS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_commands)};
    int failed = 0;
    followers_open();
    if (argc > 1) {
        u64 seed = strtoull(argv[1], NULL, 10), commands = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;
        run_trial(seed, commands, 1, seed & 4 ? ROCKS : MEMORY, seed & 2 ? ROCKS : MEMORY);
    } else {
        failed = cmocka_run_group_tests_name("follow", tests, NULL, NULL);
    }
    followers_close();
    return failed;
}
