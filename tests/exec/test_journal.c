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
#include "rounds.h"

#define SEEDS 6
#define COMMANDS_PER_SEED ROUNDS(100000)
#define COMPARE_EVERY 256

/* -- what a record may hold --------------------------------------------------------- */

/* Writes whose result depends on chance, on the time, or on options that another
 * form says without: none of them may reach a reader of the journal. */
static const char *const never_recorded[] = {
    "expire", "pexpire", "expireat", "setex", "psetex", "getex", "getdel", "getset", "incrbyfloat",
    "spop", "lmpop", "zmpop", "zincrby", "sort",
    "hexpire", "hpexpire", "hexpireat", "hgetex", "hgetdel", "hsetnx", "hincrbyfloat", "xreadgroup", "xautoclaim",
};

static bool options_canonical(const char *name, int argc, const bytes *argv)
{
    if (strcmp(name, "set") == 0)
        return argc == 3 || (argc == 4 && bytes_is(argv[3], "keepttl")) ||
               (argc == 5 && bytes_is(argv[3], "pxat"));
    if (strcmp(name, "pexpireat") == 0) return argc == 3;
    if (strcmp(name, "hpexpireat") == 0) return bytes_is(argv[3], "fields") || bytes_is(argv[4], "fields");
    if (strcmp(name, "hsetex") == 0)
        return bytes_is(argv[2], "pxat") && bytes_is(argv[4], "fields");
    for (int i = 0; strcmp(name, "zadd") == 0 && i < argc; i++)
        if (bytes_is(argv[i], "incr")) return false;
    for (int i = 2; (strcmp(name, "xadd") == 0 || strcmp(name, "xtrim") == 0) && i < argc && i < 5; i++)
        if (bytes_is(argv[i], "~") || bytes_is(argv[i], "*")) return false;
    for (int i = 5; strcmp(name, "xclaim") == 0 && i < argc; i++)
        if (bytes_is(argv[i], "idle")) return false;
    return true;
}

static bool is_canonical(int argc, const bytes *argv)
{
    const struct command *cmd = command_find(argv[0]);
    if (cmd && cmd->sub_count && argc > 1) cmd = command_find_sub(cmd, argv[1]);
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
        c->multi = c->effects == 0;
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
    bool several = c.effects > 1 && record->expired < record->effects; /* keys that expire need not go together */
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

/* So that collections of a dozen elements are in their big forms. */
static void small_limits(struct world *w)
{
    struct engine_limits *l = &w->region.eng->limits;
    l->hash_max_listpack_entries = l->zset_max_listpack_entries = l->set_max_intset_entries = 8;
}

static void trial_open(struct trial *t, u64 seed)
{
    *t = (struct trial){.seed = seed, .gen = {.rng = seed, .now_ms = T0, .databases = DBS}};
    world_open(&t->primary);
    world_open(&t->plain);
    world_open(&t->keeper);
    journal_detach(&t->plain.region.journal, &t->plain.journal.sink);
    journal_detach(&t->keeper.region.journal, &t->keeper.journal.sink);
    t->keeper.region.mode = EXPIRY_PAUSED;
    if (seed % 2) t->primary.region.cycle.source = EXPIRE_SAMPLE;
    small_limits(&t->primary);
    small_limits(&t->plain);
    small_limits(&t->keeper);
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
    u64 kind = gen_below(g, 100);
    if (kind == 0) return (i64)gen_below(g, 5001);
    if (kind < 10) return (i64)gen_below(g, 300);
    return kind < 40 ? (i64)gen_below(g, 20) : 0;
}

/* The counters of everything that may be recorded. */
static u64 changes_of(const struct world *w)
{
    const struct keyspace *ks = &w->region.ks;
    return ks->dirty + ks->stats.expired_keys + ks->stats.expired_fields;
}

static bool always_recorded(const struct gen *g)
{
    return bytes_is(g->argv[0], "flushall") || bytes_is(g->argv[0], "flushdb");
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
    bool changed = changes_of(w) > changes || always_recorded(&t->gen);
    if (w->journal.n > records + 1 || (w->journal.n > records) != changed) {
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

/* The index lets nothing slip; samples may. */
static void expire_everything(struct world *w)
{
    struct expire_sweep sweep = {0};
    each_step(w);
    if (w->region.cycle.source == EXPIRE_INDEX) return;
    while (expire_sweep_step(&sweep, &w->region.ks)) {}
    journal_close(&w->region.journal, now_of(w), 0);
}

/* A day later all that can die has died, and all of it was deleted everywhere:
 * by itself in the plain follower, by the primary's word in the replica. */
static void compare_after_a_day(struct trial *t)
{
    at(&t->primary, now_of(&t->primary) - T0 + 86400000);
    expire_everything(&t->primary);
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
    small_limits(&late);
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

/* Changes have the same numbers with a sink and without one. */
static void the_sequence_is_the_same_without_sinks(void **state)
{
    (void)state;
    struct gen g = {.rng = 77, .now_ms = T0, .databases = DBS};
    struct world told, alone;
    world_open(&told);
    world_open(&alone);
    journal_detach(&alone.region.journal, &alone.journal.sink);
    for (u32 i = 0; i < COMMANDS_PER_SEED; i++) {
        g.now_ms += random_step(&g);
        bool cycle = gen_below(&g, 8) == 0;
        gen_next(&g);
        for (struct world *w = &told;; w = &alone) {
            at(w, g.now_ms - T0);
            if (cycle) region_expire_step(&w->region);
            run_argv(w, g.argc, g.argv);
            if (w == &alone) break;
        }
        if (told.region.journal.seq != alone.region.journal.seq) print_command(&g);
        assert_int_equal(told.region.journal.seq, alone.region.journal.seq);
    }
    assert_int_equal(told.region.journal.seq, told.journal.n); /* and there are no gaps */
    gen_release(&g);
    world_close(&told);
    world_close(&alone);
}

/* -- the forms, one by one ----------------------------------------------------------------- */

struct form {
    const char *before; /* commands that make the data, separated by ';' */
    i64 later_ms;       /* then so much time passes */
    const char *command, *record;
};

static const struct form forms[] = {
    {NULL, 0, "SET k v", "SET k v"},
    {NULL, 0, "SET k v NX GET", "SET k v"},
    {NULL, 0, "SET k v EX 10", "SET k v PXAT 1700000010000"},
    {NULL, 0, "SET k v PX 10", "SET k v PXAT 1700000000010"},
    {NULL, 0, "SET k v EXAT 1800000000", "SET k v PXAT 1800000000000"},
    {NULL, 0, "SETEX k 10 v", "SET k v PXAT 1700000010000"},
    {NULL, 0, "PSETEX k 10 v", "SET k v PXAT 1700000000010"},
    {"SET k v EX 9", 0, "SET k w KEEPTTL", "SET k w KEEPTTL"},
    {NULL, 0, "SET k w KEEPTTL", "SET k w KEEPTTL"},
    {"SET k v", 0, "GETEX k EX 10", "PEXPIREAT k 1700000010000"},
    {"SET k v EX 9", 0, "GETEX k PERSIST", "PERSIST k"},
    {"SET k v", 0, "GETEX k PXAT 5", "DEL k"},
    {"SET k v", 0, "GETDEL k", "DEL k"},
    {"SET k v EX 9", 0, "GETSET k w", "SET k w"},
    {"SET k 1 EX 9", 0, "INCRBYFLOAT k 0.5", "SET k 1.5 KEEPTTL"},
    {NULL, 0, "INCRBYFLOAT k 0.5", "SET k 0.5 KEEPTTL"},
    {"SET k 1 EX 9", 0, "INCR k", "INCR k"},
    {"SET k v", 0, "EXPIRE k 10", "PEXPIREAT k 1700000010000"},
    {"SET k v EX 9", 0, "EXPIRE k 10 GT", "PEXPIREAT k 1700000010000"},
    {"SET k v", 0, "PEXPIRE k 10 LT", "PEXPIREAT k 1700000000010"},
    {"SET k v", 0, "EXPIREAT k 1800000000", "PEXPIREAT k 1800000000000"},
    {"SET k v", 0, "EXPIRE k 0", "DEL k"},
    {"SET k v", 0, "PEXPIREAT k 1", "DEL k"},
    {"SADD s a", 0, "SPOP s", "SREM s a"},
    {"SADD s a b", 0, "SPOP s 2", "DEL s"},
    {"RPUSH l a b c", 0, "LTRIM l 0 1", "LTRIM l 0 1"},
    {"RPUSH l a b c", 0, "LTRIM l 0 -1", ""},
    {NULL, 0, "SWAPDB 0 0", "SWAPDB 0 0"},
    {"RPUSH l a b c", 0, "LMPOP 2 x l LEFT COUNT 2", "LPOP l 2"},
    {"RPUSH l b a", 0, "SORT l ALPHA STORE d", "RPUSH d a b"},
    {"RPUSH l b a;SET d x", 0, "SORT l ALPHA STORE d", "MULTI; DEL d; RPUSH d a b; EXEC"},
    {"ZADD z 1 a 2 b 3 c", 0, "ZPOPMIN z 2", "ZPOPMIN z 2"},
    {"ZADD z 1 a 2 b 3 c", 0, "ZMPOP 1 z MAX", "ZPOPMAX z 1"},
    {"ZADD z 1 a 2 b", 0, "ZMPOP 2 x z MIN COUNT 9", "ZPOPMIN z 2"},
    {"ZADD z 1 a 2 b", 0, "BZPOPMAX x z 0", "ZPOPMAX z 1"},
    {"ZADD z 1 a", 0, "ZINCRBY z 1.5 a", "ZADD z 2.5 a"},
    {"ZADD z 1 a", 0, "ZADD z XX INCR 1.5 a", "ZADD z 2.5 a"},
    {NULL, 0, "HSETNX h f v", "HSET h f v"},
    {NULL, 0, "HINCRBYFLOAT h f 1.5", "HSET h f 1.5"},
    {"HSET h f 1", 0, "HEXPIRE h 10 FIELDS 1 f", "HPEXPIREAT h 1700000010000 FIELDS 1 f"},
    {"HSET h f 1 g 1", 0, "HEXPIRE h 0 FIELDS 1 f", "HDEL h f"},
    {NULL, 0, "HSETEX h EX 1 FIELDS 1 f v",
     "MULTI; HSET h f v; HPEXPIREAT h 1700000001000 FIELDS 1 f; EXEC"},
    {"HSET h f 1", 0, "HGETEX h PX 10 FIELDS 1 f", "HPEXPIREAT h 1700000000010 FIELDS 1 f"},
    {"HSET h f 1 g 1", 0, "HGETDEL h FIELDS 2 f x", "HDEL h f"},
    {"HSETEX h EX 9 FIELDS 1 f 1;HSET h g 1", 0, "HINCRBY h f 1", "HINCRBY h f 1"},
    {"HSETEX h EX 9 FIELDS 1 f 1;HSET h g 1", 0, "HINCRBYFLOAT h f 1",
     "MULTI; HSET h f 2; HPEXPIREAT h 1700000009000 FIELDS 1 f; EXEC"},
    {"PFADD p a", 0, "PFCOUNT p", "SETRANGE p 8 \x01\0\0\0\0\0\0\0"},

    /* whatever is found dead goes first */
    {"SET k 5 PX 10", 10, "GET k", "DEL k"},
    {"SET k 5 PX 10", 10, "INCR k", "MULTI; DEL k; INCR k; EXEC"},
    {"SET k 5 PX 10", 10, "SET k w KEEPTTL", "MULTI; DEL k; SET k w KEEPTTL; EXEC"},
    {"SET a x;SET k 5 PX 10", 10, "RENAME a k", "MULTI; DEL k; RENAME a k; EXEC"},
    {"SADD a m;SADD b m;PEXPIRE b 10;SET d x PX 10", 10, "SUNIONSTORE d a b",
     "MULTI; DEL b; DEL d; SUNIONSTORE d a b; EXEC"},
    {"HSETEX h PX 10 FIELDS 1 f v", 10, "HLEN h", "HDEL h f"},
    {"HSETEX h PX 10 FIELDS 1 f v", 10, "HSET h g w", "MULTI; HDEL h f; HSET h g w; EXEC"},

    /* and nothing comes of nothing */
    {NULL, 0, "GET k", ""},
    {NULL, 0, "DEL k", ""},
    {NULL, 0, "EXPIRE k 5", ""},
    {"XADD x 1-1 f v;XADD x 2-1 f v;XGROUP CREATE x g 0;XREADGROUP GROUP g a STREAMS x >;XDEL x 1-1", 0,
     "XCLAIM x g b 0 1-1", "MULTI; XACK x g 1-1; XGROUP CREATECONSUMER x g b; EXEC"},
    {NULL, 0, "FLUSHALL", "flushall"}, /* a replica may hold more */
    {NULL, 0, "FLUSHDB SYNC", "flushdb SYNC"},
    {NULL, 0, "SPOP s", ""},
    {NULL, 0, "LPUSHX l a", ""},
    {NULL, 0, "SUNIONSTORE d a b", ""},
    {NULL, 0, "HDEL h f", ""},
    {NULL, 0, "NOSUCH x", ""},
    {NULL, 0, "GET", ""},
    {"SET k v", 0, "SET k w NX", ""},
    {"SET k v", 0, "PERSIST k", ""},
    {"SET k v", 0, "GETEX k", ""},
    {"SET k v", 0, "GETEX k PERSIST", ""},
    {"SET k v", 0, "EXPIRE k 5 XX", ""},
    {"SET k v", 0, "INCR k", ""},
    {"SET k v", 0, "LPUSH k a", ""},
    {"SET k v", 0, "SETRANGE k 5 ''", ""},
    {"SET k v", 0, "RENAME k k", ""},
    {"SET k v;SET l w", 0, "COPY k l", ""},
    {"SADD s a", 0, "SADD s a", ""},
    {"ZADD z 1 a", 0, "ZADD z 1 a", ""},
    {"HSET h f v", 0, "HSETNX h f w", ""},
    {"HSET h f v", 0, "HPERSIST h FIELDS 1 f", ""},
    {"RPUSH l a", 0, "LREM l 0 x", ""},
    {"PFADD p a", 0, "PFADD p a", ""},
};

static void effects_have_their_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        const struct form *f = &forms[i];
        struct world w;
        world_open(&w);
        run(&w, "SET unrelated x"); /* so that SELECT is behind us */
        run(&w, "DEL unrelated");
        if (f->before) run_all(&w, f->before);
        at(&w, f->later_ms);
        journal_text(&w);
        run(&w, f->command);
        const char *got = journal_text(&w);
        /* PFCOUNT's record holds NULs: compared as far as a string goes. */
        if (strcmp(got, f->record) != 0) fail_msg("%s: %s", f->command, got);
        world_close(&w);
    }
}

/* -- databases, sinks, sequence numbers ------------------------------------------------------ */

static void databases_are_selected_where_they_change(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run(&w, "SET a 1");
    run(&w, "SET b 1");
    w.session.db = 1;
    run(&w, "SET x 1 PX 10");
    w.session.db = 0;
    run(&w, "SET c 1");
    assert_string_equal(journal_text(&w),
                        "SELECT 0; SET a 1 | SET b 1 | SELECT 1; SET x 1 PXAT 1700000000010 | "
                        "SELECT 0; SET c 1");
    at(&w, 10);
    run(&w, "COPY a x DB 1");
    assert_string_equal(journal_text(&w), "SELECT 1; MULTI; DEL x; SELECT 0; COPY a x DB 1; EXEC");
    world_close(&w);
}

static void a_huge_record_leaves_no_room_behind(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    char *value = mem_alloc(1 << 20);
    memset(value, 'x', 1 << 20);
    run_argv(&w, 3, (bytes[]){BYTES_LIT("SET"), BYTES_LIT("k"), bytes_of(value, 1 << 20)});
    assert_true(w.region.journal.open.resp.cap <= 64 << 10);
    run(&w, "SET a 1");
    mem_free(value);
    world_close(&w);
}

/* A sink that notes which argument of the last record was lent to it. */
struct lent_sink {
    struct journal_sink sink;
    bytes lent;
    size_t copied;
};

static void note_lent(struct journal_sink *sink, const struct journal_record *record)
{
    struct lent_sink *s = (struct lent_sink *)(void *)sink;
    s->lent = record->lent;
    s->copied = record->resp.n;
}

/* The last record of the world's recorder is this text around `size` times the letter x. */
static void assert_text_around(struct world *w, const char *head, size_t size, const char *tail)
{
    const struct buf *text = &w->journal.v[w->journal.n - 1].resp;
    assert_int_equal(text->n, strlen(head) + size + strlen(tail));
    assert_memory_equal(text->p, head, strlen(head));
    for (size_t i = 0; i < size; i++)
        if (text->p[strlen(head) + i] != 'x') fail_msg("another byte at %zu", i);
    assert_memory_equal(text->p + strlen(head) + size, tail, strlen(tail));
    recorder_clear(&w->journal);
}

/* A last argument of more than 16 MB is not copied into the record, unless it may be gone before the record is
 * closed. */
static void a_huge_argument_is_lent(void **state)
{
    (void)state;
    struct world w;
    struct lent_sink s = {.sink.append = note_lent};
    const size_t size = JOURNAL_LEND_MIN + 1;
    char *value = mem_alloc(size);
    bytes set[] = {BYTES_LIT("SET"), BYTES_LIT("k"), bytes_of(value, size)};
    memset(value, 'x', size);
    world_open(&w);
    journal_attach(&w.region.journal, &s.sink);

    run_argv(&w, 3, set);
    assert_ptr_equal(s.lent.p, value);
    assert_int_equal(s.lent.n, size);
    assert_true(s.copied < 100);
    assert_text_around(&w, "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16777217\r\n",
                       size, "\r\n");

    run(&w, "PEXPIRE k 10"); /* a record of two effects: of the dead key and the command */
    at(&w, 20);
    recorder_clear(&w.journal);
    run_argv(&w, 3, (bytes[]){BYTES_LIT("APPEND"), BYTES_LIT("k"), set[2]});
    assert_ptr_equal(s.lent.p, value);
    assert_text_around(&w,
                       "*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n"
                       "*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$16777217\r\n",
                       size, "\r\n*1\r\n$4\r\nEXEC\r\n");

    run(&w, "MULTI");
    run_argv(&w, 3, set);
    run(&w, "EXEC");
    assert_int_equal(s.lent.n, 0);
    assert_text_around(&w, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16777217\r\n", size, "\r\n");
    run(&w, "SET a 1");
    assert_int_equal(s.lent.n, 0);
    journal_detach(&w.region.journal, &s.sink);
    mem_free(value);
    world_close(&w);
}

static void a_new_sink_is_told_the_database(void **state)
{
    (void)state;
    struct world w;
    struct recorder second = {.sink.append = recorder_append};
    struct buf text = {0};
    world_open(&w);
    run(&w, "SET a 1");
    journal_attach(&w.region.journal, &second.sink);
    run(&w, "SET b 1");
    assert_int_equal(w.journal.n, 2);
    assert_int_equal(second.n, 1);
    assert_int_equal(second.v[0].seq, 2);
    record_text(&second.v[0], &text);
    assert_memory_equal(text.p, "SELECT 0; SET b 1", text.n);
    journal_detach(&w.region.journal, &second.sink);
    run(&w, "SET c 1");
    assert_int_equal(second.n, 1);
    assert_string_equal(journal_text(&w), "SELECT 0; SET a 1 | SELECT 0; SET b 1 | SET c 1");
    recorder_clear(&second);
    mem_free(second.v);
    buf_release(&text);
    world_close(&w);
}

/* The cycle's deletes are records of their own, between those of commands. */
static void the_cycle_has_its_own_records(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run(&w, "SET a 1 PX 10");
    run(&w, "HSETEX h PX 10 FIELDS 2 f 1 g 2");
    run(&w, "HSET h k 3");
    journal_text(&w);
    at(&w, 200);
    each_step(&w);
    for (size_t i = 0; i < w.journal.n; i++) {
        assert_int_equal(w.journal.v[i].seq, 4 + i);
        assert_int_equal(w.journal.v[i].now_ms, T0 + 200);
    }
    assert_string_equal(journal_text(&w), "MULTI; HDEL h f; HDEL h g; DEL a; EXEC");
    assert_int_equal(w.region.journal.seq, 4);
    world_close(&w);
}

/* A command that meets a big hash whose fields have all died does not take them out one by one. */
static void a_hollow_hash_goes_as_a_whole(void **state)
{
    (void)state;
    enum { FIELDS = 5000 };
    struct world w, follower;
    char line[64];
    world_open(&w);
    world_open(&follower);
    for (int i = 0; i < FIELDS; i++) {
        snprintf(line, sizeof line, "HSETEX h PX %d FIELDS 1 f%d v", 10 + i % 7, i);
        run_all(&w, line);
    }
    set_reclaim(&w, OFF);
    at(&w, 1000);
    assert_string_equal(run(&w, "EXISTS h"), "0");
    const struct journal_record *last = &w.journal.v[w.journal.n - 1];
    assert_in_range(last->effects, 1, 100);
    assert_int_equal(count_of(&w, 0), 0);
    assert_int_equal(w.region.ks.stats.expired_fields, FIELDS);
    for (size_t i = 0; i < w.journal.n; i++)
        assert_int_equal(region_apply(&follower.region, &follower.session, NULL, &w.journal.v[i]), OK);
    assert_int_equal(count_of(&follower, 0), 0);
    world_close(&w);
    world_close(&follower);
}

static void malformed_records_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "*1\r\n$3\r\nSE", "*2\r\n$3\r\nSET\r\n$1\r\nk\r\n", "*1\r\n$4\r\nNOPE\r\n", "*x\r\n",
        "*2\r\n$6\r\nOBJECT\r\n$4\r\nNOPE\r\n",
    };
    struct world w;
    world_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct journal_record r = {.seq = 1, .now_ms = T0, .effects = 1};
        buf_append_str(&r.resp, bad[i]);
        assert_int_equal(region_apply(&w.region, &w.session, NULL, &r), ERR_SYNTAX);
        buf_release(&r.resp);
    }
    assert_int_equal(w.journal.n, 0);
    world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effects_have_their_forms),
        cmocka_unit_test(databases_are_selected_where_they_change),
        cmocka_unit_test(a_new_sink_is_told_the_database),
        cmocka_unit_test(a_huge_record_leaves_no_room_behind),
        cmocka_unit_test(a_huge_argument_is_lent),
        cmocka_unit_test(the_cycle_has_its_own_records),
        cmocka_unit_test(a_hollow_hash_goes_as_a_whole),
        cmocka_unit_test(malformed_records_are_refused),
        cmocka_unit_test(random_commands_replay),
        cmocka_unit_test(the_sequence_is_the_same_without_sinks),
    };
    if (argc > 1) {
        run_trial(strtoull(argv[1], NULL, 10), argc > 2 ? strtoull(argv[2], NULL, 10) : 100000, 1);
        return 0;
    }
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
