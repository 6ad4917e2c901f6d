/* The journal: replaying the records of any run of commands into an empty
 * region gives the same data, deadlines included; and every record is canonical.
 *
 *   test_journal [seed [commands]]   one longer run; compares after every command */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataset.h"
#include "generate.h"
#include "harness.h"

#define SEEDS 6
#define COMMANDS_PER_SEED 50000
#define COMPARE_EVERY 256

/* -- what a record may hold --------------------------------------------------------- */

/* Writes whose result depends on chance, on the time, or on options that another
 * form says without: none of them may reach a reader of the journal. */
static const char *const never_recorded[] = {
    "expire", "pexpire", "expireat", "setex", "psetex", "getex", "getdel", "getset", "incrbyfloat",
    "spop", "lmpop", "zpopmin", "zpopmax", "zmpop", "zincrby", "sort",
    "hexpire", "hpexpire", "hexpireat", "hgetex", "hgetdel", "hsetnx", "hincrbyfloat",
};

static bool options_canonical(const char *name, int argc, const bytes *argv)
{
    if (strcmp(name, "set") == 0)
        return argc == 3 || (argc == 4 && bytes_is(argv[3], "keepttl")) ||
               (argc == 5 && bytes_is(argv[3], "pxat"));
    if (strcmp(name, "pexpireat") == 0) return argc == 3;
    if (strcmp(name, "hpexpireat") == 0) return bytes_is(argv[3], "fields");
    if (strcmp(name, "hsetex") == 0) return bytes_is(argv[2], "pxat") && bytes_is(argv[4], "fields");
    for (int i = 0; strcmp(name, "zadd") == 0 && i < argc; i++)
        if (bytes_is(argv[i], "incr")) return false;
    return true;
}

static bool is_canonical(int argc, const bytes *argv)
{
    const struct command *cmd = command_find(argv[0]);
    if (!cmd || !(cmd->flags & CMD_WRITE)) return false;
    for (size_t i = 0; i < ARRAY_LEN(never_recorded); i++)
        if (strcmp(cmd->name, never_recorded[i]) == 0) return false;
    return options_canonical(cmd->name, argc, argv);
}

struct record_check {
    u32 at, commands, effects;
    bool multi, exec, bad;
};

static void check_effect(void *arg, int argc, const bytes *argv)
{
    struct record_check *c = arg;
    c->commands++;
    if (bytes_is(argv[0], "multi")) {
        c->multi = c->commands == 1;
    } else if (bytes_is(argv[0], "exec")) {
        c->exec = true;
    } else {
        if (c->exec) c->bad = true; /* nothing may follow */
        if (bytes_is(argv[0], "select")) return;
        c->effects++;
        if (!is_canonical(argc, argv)) c->bad = true;
    }
}

static void check_record(const struct journal_record *record, u64 seq, i64 now_ms)
{
    struct record_check c = {0};
    record_each(record, check_effect, &c);
    bool several = c.effects > 1;
    if (c.bad || c.multi != several || c.exec != several || c.effects != record->effects) {
        struct buf text = {0};
        record_text(record, &text);
        fail_msg("record is not canonical: %.*s", (int)text.n, text.p);
    }
    assert_true(c.effects > 0);
    assert_int_equal(record->seq, seq);
    assert_int_equal(record->now_ms, now_ms);
}

/* -- a primary and its followers ------------------------------------------------------ */

struct trial {
    u64 seed;
    struct world primary;
    struct world plain;  /* deletes dead keys it meets, as a server loading its AOF */
    struct world keeper; /* leaves them for the primary's DEL, as a replica */
    struct gen gen;
    size_t applied;      /* records the followers have */
    u64 commands;
    struct buf ours, theirs;
};

static void trial_open(struct trial *t, u64 seed)
{
    *t = (struct trial){.seed = seed, .gen = {.rng = seed, .now_ms = T0, .databases = DBS}};
    world_open(&t->primary);
    world_open(&t->plain);
    world_open(&t->keeper);
    journal_detach(&t->plain.region.journal, &t->plain.journal.sink);
    journal_detach(&t->keeper.region.journal, &t->keeper.journal.sink);
    t->keeper.region.ks.keep_dead = true;
}

static void trial_close(struct trial *t)
{
    world_close(&t->primary);
    world_close(&t->plain);
    world_close(&t->keeper);
    gen_release(&t->gen);
    buf_release(&t->ours);
    buf_release(&t->theirs);
}

static void print_command(const struct gen *g)
{
    fprintf(stderr, "after:");
    for (int i = 0; i < g->argc; i++) fprintf(stderr, " %.*s", (int)g->argv[i].n, g->argv[i].p);
    fprintf(stderr, "\n");
}

static size_t line_length(const struct buf *b, size_t from)
{
    const char *nl = memchr(b->p + from, '\n', b->n - from);
    return nl ? (size_t)(nl - b->p) - from : b->n - from;
}

/* Fails with the first line that differs. */
static void compare(struct trial *t, const char *who, const struct buf *a, const struct buf *b)
{
    size_t i = 0, line = 0;
    if (bytes_eq(buf_bytes(a), buf_bytes(b))) return;
    while (i < a->n && i < b->n && a->p[i] == b->p[i])
        if (a->p[i++] == '\n') line = i;
    print_command(&t->gen);
    for (size_t n = t->primary.journal.n, k = n > 3 ? n - 3 : 0; k < n; k++) {
        struct buf text = {0};
        record_text(&t->primary.journal.v[k], &text);
        fprintf(stderr, "record: %.*s\n", (int)text.n, text.p);
        buf_release(&text);
    }
    fprintf(stderr, "primary: %.*s\n%s: %.*s\n", (int)line_length(a, line), a->p + line, who,
            (int)line_length(b, line), b->p + line);
    fail_msg("seed %llu, command %llu: the %s differs", (unsigned long long)t->seed,
             (unsigned long long)t->commands, who);
}

static void compare_with(struct trial *t, struct world *follower, const char *who, i64 now_ms)
{
    dataset_dump(t->primary.region.eng, now_ms, &t->ours);
    dataset_dump(follower->region.eng, now_ms, &t->theirs);
    t->primary.region.eng->ops->begin(t->primary.region.eng, now_of(&t->primary));
    compare(t, who, &t->ours, &t->theirs);
}

static void apply(struct world *follower, const struct journal_record *record)
{
    assert_int_equal(region_apply(&follower->region, &follower->session, NULL, record), OK);
}

static void follow(struct trial *t)
{
    const struct recorder *j = &t->primary.journal;
    for (; t->applied < j->n; t->applied++) {
        check_record(&j->v[t->applied], t->applied + 1, now_of(&t->primary));
        apply(&t->plain, &j->v[t->applied]);
        apply(&t->keeper, &j->v[t->applied]);
    }
}

/* -- random commands -------------------------------------------------------------------- */

static i64 random_step(struct gen *g)
{
    switch (gen_below(g, 20)) {
    case 0: return (i64)gen_below(g, 5001);
    case 1:
    case 2: return (i64)gen_below(g, 300);
    case 3:
    case 4:
    case 5:
    case 6: return (i64)gen_below(g, 20);
    default: return 0;
    }
}

/* The counters of everything that may be recorded. */
static u64 changes_of(const struct world *w)
{
    const struct keyspace *ks = &w->region.ks;
    return ks->dirty + ks->stats.expired_keys + ks->stats.expired_fields;
}

/* Runs the next command. A record comes of it if and only if it changed something. */
static void run_next(struct trial *t)
{
    struct world *w = &t->primary;
    u64 changes = changes_of(w);
    size_t records = w->journal.n;
    bool look = gen_below(&t->gen, 64) == 0;
    if (look) compare_with(t, w, "primary", 0); /* fills t->ours with all there is */
    run_argv(w, t->gen.argc, t->gen.argv);
    if (w->journal.n > records + 1 || (w->journal.n > records) != (changes_of(w) > changes)) {
        print_command(&t->gen);
        fail_msg("%zu records, %llu changes", w->journal.n - records,
                 (unsigned long long)(changes_of(w) - changes));
    }
    if (look && w->journal.n == records) {
        dataset_dump(w->region.eng, 0, &t->theirs);
        w->region.eng->ops->begin(w->region.eng, now_of(w));
        compare(t, "data changed without a record; now it", &t->ours, &t->theirs);
    }
}

static void trial_step(struct trial *t)
{
    struct world *w = &t->primary;
    struct gen *g = &t->gen;
    g->now_ms += random_step(g);
    at(w, g->now_ms - T0);
    if (gen_below(g, 8) == 0) region_expire_step(&w->region);
    if (gen_below(g, 16) == 0) w->session.db = (u32)gen_below(g, DBS);
    gen_next(g);
    t->commands++;
    run_next(t);
    follow(t);
}

static void compare_followers(struct trial *t)
{
    compare_with(t, &t->plain, "plain follower", now_of(&t->primary));
    compare_with(t, &t->keeper, "replica", now_of(&t->primary));
}

/* A day later all that can die has died, and all of it was deleted everywhere:
 * by itself in the plain follower, by the primary's word in the replica. */
static void compare_after_a_day(struct trial *t)
{
    at(&t->primary, now_of(&t->primary) - T0 + 86400000);
    each_step(&t->primary);
    follow(t);
    compare_with(t, &t->keeper, "replica (physically)", 0);
    region_begin(&t->plain.region, now_of(&t->primary));
    each_step(&t->plain);
    compare_with(t, &t->plain, "plain follower (physically)", 0);
}

static void replay_from_the_start(struct trial *t)
{
    struct world late;
    world_open(&late);
    journal_detach(&late.region.journal, &late.journal.sink);
    for (size_t i = 0; i < t->primary.journal.n; i++) apply(&late, &t->primary.journal.v[i]);
    compare_with(t, &late, "empty region after replay", now_of(&t->primary));
    world_close(&late);
}

static void run_trial(u64 seed, u64 commands, u64 every)
{
    struct trial t;
    trial_open(&t, seed);
    for (u64 i = 1; i <= commands; i++) {
        trial_step(&t);
        if (i % every == 0) compare_followers(&t);
    }
    replay_from_the_start(&t);
    compare_after_a_day(&t);
    trial_close(&t);
}

static void random_commands_replay(void **state)
{
    (void)state;
    for (u64 seed = 1; seed <= SEEDS; seed++) run_trial(seed, COMMANDS_PER_SEED, COMPARE_EVERY);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_commands_replay),
    };
    if (argc > 1) {
        run_trial(strtoull(argv[1], NULL, 10), argc > 2 ? strtoull(argv[2], NULL, 10) : 100000, 1);
        return 0;
    }
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
