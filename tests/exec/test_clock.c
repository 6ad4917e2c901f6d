/* Time is an input: what lives and dies when, told by a clock that the test sets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataset.h"
#include "harness.h"

#define HOUR 3600000

/* -- the boundary -------------------------------------------------------------------- */

/* `setup` (commands separated by ';') gives something a deadline of T0 + 1000.
 * The command is asked one millisecond before it and at it. Words of the
 * replies may come in any order. */
struct boundary {
    const char *setup, *command, *there, *gone;
};

#define WRONGTYPE "-WRONGTYPE Operation against a key holding the wrong kind of value"
#define K(value) value ";PEXPIRE k 1000"
#define STRING K("SET k v")
#define HASH K("HSET k a b")
#define LIST K("RPUSH k a")
#define SET K("SADD k a")
#define ZSET K("ZADD k 1 a")

static const struct boundary keys[] = {
    {STRING, "GET k", "v", "nil"},
    {STRING, "MGET k", "[v]", "[nil]"},
    {STRING, "STRLEN k", "1", "0"},
    {STRING, "GETRANGE k 0 -1", "v", ""},
    {STRING, "GETBIT k 1", "1", "0"},
    {STRING, "BITCOUNT k", "5", "0"},
    {STRING, "BITPOS k 1", "1", "-1"},
    {STRING, "BITFIELD_RO k GET u8 0", "[118]", "[0]"},
    {STRING, "BITOP AND d k", "1", "0"},
    {STRING, "LCS k k LEN", "1", "0"},
    {STRING, "EXISTS k k", "2", "0"},
    {STRING, "TOUCH k", "1", "0"},
    {STRING, "TYPE k", "string", "none"},
    {STRING, "TTL k", "0", "-2"},
    {STRING, "PTTL k", "1", "-2"},
    {STRING, "EXPIRETIME k", "1700000001", "-2"},
    {STRING, "PEXPIRETIME k", "1700000001000", "-2"},
    {STRING, "KEYS *", "[k]", "[]"},
    {STRING, "KEYS k", "[k]", "[]"},
    {STRING, "SCAN 0", "[0 [k]]", "[0 []]"},
    {STRING, "SCAN 0 TYPE string", "[0 [k]]", "[0 []]"},
    {STRING, "RANDOMKEY", "k", "nil"},
    {STRING, "OBJECT ENCODING k", "embstr", "nil"},
    {STRING, "OBJECT REFCOUNT k", "1", "nil"},
    {STRING, "OBJECT IDLETIME k", "0", "nil"},
    {STRING, "GETDEL k", "v", "nil"},
    {STRING, "GETEX k", "v", "nil"},
    {STRING, "GETEX k PERSIST", "v", "nil"},
    {STRING, "GETSET k w", "v", "nil"},
    {STRING, "SET k w XX", "OK", "nil"},
    {STRING, "SET k w NX", "nil", "OK"},
    {STRING, "SET k w GET", "v", "nil"},
    {STRING, "SETNX k w", "0", "1"},
    {STRING, "MSETNX k w", "0", "1"},
    {STRING, "APPEND k w", "2", "1"},
    {STRING, "SETRANGE k 1 w", "2", "2"},
    {STRING, "SETRANGE k 9 ''", "1", "0"},
    {STRING, "SETBIT k 1 1", "1", "0"},
    {K("SET k 5"), "INCR k", "6", "1"},
    {K("SET k 5"), "INCRBYFLOAT k 1.5", "6.5", "1.5"},
    {STRING, "DEL k", "1", "0"},
    {STRING, "UNLINK k", "1", "0"},
    {STRING, "EXPIRE k 9", "1", "0"},
    {STRING, "EXPIRE k 9 GT", "1", "0"},
    {STRING, "PERSIST k", "1", "0"},
    {STRING, "RENAME k d", "OK", "-ERR no such key"},
    {STRING, "RENAMENX k d", "1", "-ERR no such key"},
    {STRING ";SET a x", "RENAMENX a k", "0", "1"},
    {STRING, "COPY k d", "1", "0"},
    {STRING ";SET a x", "COPY a k", "0", "1"},
    {STRING, "MOVE k 1", "1", "0"},
    {STRING, "LPUSH k a", WRONGTYPE, "1"},
    {K("PFADD k a b"), "PFCOUNT k", "2", "0"},
    {K("PFADD k a b") ";PFADD p c", "PFCOUNT k p", "3", "1"},

    {LIST, "LLEN k", "1", "0"},
    {LIST, "LRANGE k 0 -1", "[a]", "[]"},
    {LIST, "LINDEX k 0", "a", "nil"},
    {LIST, "LPOS k a", "0", "nil"},
    {LIST, "LPUSHX k b", "2", "0"},
    {LIST, "RPUSH k b", "2", "1"},
    {LIST, "LPOP k", "a", "nil"},
    {LIST, "LMPOP 1 k LEFT", "[k [a]]", "nil"},
    {LIST, "LMOVE k d LEFT LEFT", "a", "nil"},
    {LIST, "LSET k 0 b", "OK", "-ERR no such key"},
    {LIST, "LINSERT k BEFORE a b", "2", "0"},
    {LIST, "LREM k 0 a", "1", "0"},
    {LIST, "SORT k ALPHA", "[a]", "[]"},
    {LIST, "SORT_RO k ALPHA", "[a]", "[]"},
    {LIST, "SORT k ALPHA STORE d", "1", "0"},
    {"RPUSH l 1 2;SET w1 9;SET w2 5;PEXPIRE w1 1000", "SORT l BY w* LIMIT 0 1", "[2]", "[1]"},
    {"RPUSH l 1;SET w1 9;PEXPIRE w1 1000", "SORT l GET w*", "[9]", "[nil]"},
    {"RPUSH l 1;HSET w1 f 9;PEXPIRE w1 1000", "SORT l GET w*->f", "[9]", "[nil]"},
    {"RPUSH l 1;HSET w1 f 9 g 9;HPEXPIRE w1 1000 FIELDS 1 f", "SORT l GET w*->f", "[9]", "[nil]"},

    {SET, "SCARD k", "1", "0"},
    {SET, "SMEMBERS k", "[a]", "[]"},
    {SET, "SISMEMBER k a", "1", "0"},
    {SET, "SMISMEMBER k a", "[1]", "[0]"},
    {SET, "SRANDMEMBER k", "a", "nil"},
    {SET, "SRANDMEMBER k 5", "[a]", "[]"},
    {SET, "SSCAN k 0", "[0 [a]]", "[0 []]"},
    {SET, "SADD k b", "1", "1"},
    {SET, "SADD k a", "0", "1"},
    {SET, "SPOP k", "a", "nil"},
    {SET, "SMOVE k d a", "1", "0"},
    {SET ";SADD b b", "SUNION b k", "[a b]", "[b]"},
    {SET ";SADD b a", "SINTER b k", "[a]", "[]"},
    {SET ";SADD b a", "SINTERCARD 2 b k", "1", "0"},
    {SET ";SADD b a", "SDIFF b k", "[]", "[a]"},
    {SET ";SADD b b", "SUNIONSTORE d b k", "2", "1"},
    {SET ";SADD b a", "SINTERSTORE d b k", "1", "0"},
    {SET ";SADD b a", "SDIFFSTORE d b k", "0", "1"},

    {ZSET, "ZCARD k", "1", "0"},
    {ZSET, "ZSCORE k a", "1", "nil"},
    {ZSET, "ZMSCORE k a", "[1]", "[nil]"},
    {ZSET, "ZRANK k a", "0", "nil"},
    {ZSET, "ZRANGE k 0 -1", "[a]", "[]"},
    {ZSET, "ZRANGEBYSCORE k -inf inf", "[a]", "[]"},
    {ZSET, "ZCOUNT k -inf inf", "1", "0"},
    {ZSET, "ZLEXCOUNT k - +", "1", "0"},
    {ZSET, "ZRANDMEMBER k", "a", "nil"},
    {ZSET, "ZSCAN k 0", "[0 [a 1]]", "[0 []]"},
    {ZSET, "ZINCRBY k 1 a", "2", "1"},
    {ZSET, "ZADD k XX CH 5 a", "1", "0"},
    {ZSET, "ZPOPMIN k", "[a 1]", "[]"},
    {ZSET, "ZMPOP 1 k MIN", "[k [[a 1]]]", "nil"},
    {ZSET, "ZREM k a", "1", "0"},
    {ZSET, "ZUNION 1 k", "[a]", "[]"},
    {ZSET, "ZUNIONSTORE d 1 k", "1", "0"},
    {ZSET ";ZADD b 1 a", "ZINTERSTORE d 2 b k", "1", "0"},
    {ZSET ";ZADD b 1 a", "ZDIFFSTORE d 2 b k", "0", "1"},
    {ZSET, "ZINTERCARD 1 k", "1", "0"},
    {ZSET, "ZRANGESTORE d k 0 -1", "1", "0"},
    {K("GEOADD k 1 1 a"), "GEOHASH k a", "[s00twy01mt0]", "[nil]"},
    {K("GEOADD k 1 1 a"), "GEOSEARCH k FROMLONLAT 1 1 BYRADIUS 9 km", "[a]", "[]"},
    {K("GEOADD k 1 1 a"), "GEOSEARCHSTORE d k FROMLONLAT 1 1 BYRADIUS 9 km", "1", "0"},

    {HASH, "HLEN k", "1", "0"},
    {HASH, "HGET k a", "b", "nil"},
    {HASH, "HGETALL k", "[a b]", "[]"},
    {HASH, "HINCRBY k n 1", "1", "1"},
    {HASH, "HSETNX k a c", "0", "1"},
    {HASH, "HTTL k FIELDS 1 a", "[-1]", "[-2]"},
    {HASH, "HEXPIRE k 9 FIELDS 1 a", "[1]", "[-2]"},
};

/* Hash fields: f dies, g lives on. */
#define FIELD "HSET k f 5 g 6;HPEXPIRE k 1000 FIELDS 1 f"
/* The only field dies, and the hash with it. */
#define HOLLOW "HSET k f 5;HPEXPIRE k 1000 FIELDS 1 f"

static const struct boundary fields[] = {
    {FIELD, "HGET k f", "5", "nil"},
    {FIELD, "HMGET k f g", "[5 6]", "[nil 6]"},
    {FIELD, "HLEN k", "2", "1"},
    {FIELD, "HGETALL k", "[f 5 g 6]", "[g 6]"},
    {FIELD, "HKEYS k", "[f g]", "[g]"},
    {FIELD, "HVALS k", "[5 6]", "[6]"},
    {FIELD, "HEXISTS k f", "1", "0"},
    {FIELD, "HSTRLEN k f", "1", "0"},
    {FIELD, "HSCAN k 0", "[0 [f 5 g 6]]", "[0 [g 6]]"},
    {FIELD, "HRANDFIELD k 9", "[f g]", "[g]"},
    {FIELD, "HRANDFIELD k 9 WITHVALUES", "[f 5 g 6]", "[g 6]"},
    {FIELD, "HTTL k FIELDS 2 f g", "[1 -1]", "[-2 -1]"},
    {FIELD, "HPTTL k FIELDS 2 f g", "[1 -1]", "[-2 -1]"},
    {FIELD, "HPEXPIRETIME k FIELDS 1 f", "[1700000001000]", "[-2]"},
    {FIELD, "HPERSIST k FIELDS 1 f", "[1]", "[-2]"},
    {FIELD, "HEXPIRE k 9 FIELDS 1 f", "[1]", "[-2]"},
    {FIELD, "HEXPIRE k 9 XX FIELDS 1 f", "[1]", "[-2]"},
    {FIELD, "HSET k f 7", "0", "1"},
    {FIELD, "HSETNX k f 7", "0", "1"},
    {FIELD, "HSETEX k FNX FIELDS 1 f 7", "0", "1"},
    {FIELD, "HSETEX k FXX FIELDS 1 f 7", "1", "0"},
    {FIELD, "HINCRBY k f 1", "6", "1"},
    {FIELD, "HINCRBYFLOAT k f 1.5", "6.5", "1.5"},
    {FIELD, "HDEL k f", "1", "0"},
    {FIELD, "HGETDEL k FIELDS 1 f", "[5]", "[nil]"},
    {FIELD, "HGETEX k FIELDS 1 f", "[5]", "[nil]"},
    {FIELD, "EXISTS k", "1", "1"},

    {HOLLOW, "EXISTS k", "1", "0"},
    {HOLLOW, "TYPE k", "hash", "none"},
    {HOLLOW, "TTL k", "-1", "-2"},
    {HOLLOW, "KEYS *", "[k]", "[]"},
    {HOLLOW, "SCAN 0", "[0 [k]]", "[0 []]"},
    {HOLLOW, "RANDOMKEY", "k", "nil"},
    {HOLLOW, "OBJECT ENCODING k", "listpackex", "nil"},
    {HOLLOW, "HLEN k", "1", "0"},
    {HOLLOW, "HGETALL k", "[f 5]", "[]"},
    {HOLLOW, "HRANDFIELD k", "f", "nil"},
    {HOLLOW, "HSCAN k 0", "[0 [f 5]]", "[0 []]"},
    {HOLLOW, "DEL k", "1", "0"},
    {HOLLOW, "EXPIRE k 9", "1", "0"},
    {HOLLOW, "RENAME k d", "OK", "-ERR no such key"},
    {HOLLOW, "COPY k d", "1", "0"},
    {HOLLOW, "MOVE k 1", "1", "0"},
    {HOLLOW, "SET k v NX", "nil", "OK"},
    {HOLLOW, "LPUSH k a", WRONGTYPE, "1"},
    {HOLLOW, "HSETEX k FXX FIELDS 1 f 7", "1", "0"},
    {HOLLOW, "HINCRBY k f 1", "6", "1"},
    {HOLLOW, "SORT k", WRONGTYPE, "[]"},
};

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int sorted_words(char *text, char **word)
{
    int n = 0;
    char *rest = NULL;
    for (char *p = strtok_r(text, "[] ", &rest); p; p = strtok_r(NULL, "[] ", &rest)) word[n++] = p;
    qsort(word, (size_t)n, sizeof *word, compare_words);
    return n;
}

static bool same_words(const char *a, const char *b)
{
    char x[256], y[256], *xs[64], *ys[64];
    snprintf(x, sizeof x, "%s", a);
    snprintf(y, sizeof y, "%s", b);
    int n = sorted_words(x, xs), m = sorted_words(y, ys);
    for (int i = 0; i < n && n == m; i++)
        if (strcmp(xs[i], ys[i]) != 0) return false;
    return n == m && strlen(a) == strlen(b);
}

static void check_at(const struct boundary *b, i64 ms, const char *expected)
{
    struct world w;
    world_open(&w);
    run_all(&w, b->setup);
    at(&w, ms);
    const char *got = run(&w, b->command);
    if (!same_words(got, expected))
        fail_msg("%s; %s at %lld: %s, not %s", b->setup, b->command, (long long)ms, got, expected);
    world_close(&w);
}

static void check_boundaries(const struct boundary *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        check_at(&b[i], 999, b[i].there);
        check_at(&b[i], 1000, b[i].gone);
        check_at(&b[i], HOUR, b[i].gone);
    }
}

static void keys_die_at_their_deadline(void **state)
{
    (void)state;
    check_boundaries(keys, ARRAY_LEN(keys));
}

static void fields_die_at_their_deadline(void **state)
{
    (void)state;
    check_boundaries(fields, ARRAY_LEN(fields));
}

/* DBSIZE counts what is there; the dead count until they are reclaimed. */
static void dbsize_follows_reclaim(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run_all(&w, STRING ";SET other x");
    at(&w, 1000);
    assert_string_equal(run(&w, "DBSIZE"), "2");
    at(&w, 1100);
    each_step(&w);
    assert_string_equal(run(&w, "DBSIZE"), "1");
    world_close(&w);
}

/* Dead keys met by a walk are reclaimed, but do not count as misses. */
static void walks_miss_nothing(void **state)
{
    (void)state;
    static const char *const walks[] = {"SCAN 0", "RANDOMKEY", "KEYS *"};
    for (size_t i = 0; i < ARRAY_LEN(walks); i++) {
        struct world w;
        world_open(&w);
        run_all(&w, STRING);
        at(&w, 1000);
        run(&w, walks[i]);
        assert_int_equal(w.region.ks.stats.misses, 0);
        assert_int_equal(w.region.ks.stats.lazy_expired, i < 2); /* KEYS only hides */
        world_close(&w);
    }
}

/* A deadline that was moved or taken away counts no more. */
static void deadlines_move(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run_all(&w, "SET a v PX 1000;SET b v PX 1000;SET c v PX 1000;SET d v PX 9000");
    run_all(&w, "PERSIST a;PEXPIRE b 5000;SET c w;PEXPIRE d 1000");
    at(&w, 1100);
    each_step(&w);
    assert_string_equal(run(&w, "EXISTS a b c d"), "3");
    assert_int_equal(count_of(&w, 0), 3);
    at(&w, 4999);
    assert_string_equal(run(&w, "PTTL b"), "1");
    at(&w, 5100);
    each_step(&w);
    assert_int_equal(count_of(&w, 0), 2);
    assert_string_equal(run(&w, "PTTL a"), "-1");
    world_close(&w);
}

/* -- the clock steps --------------------------------------------------------------------- */

/* Set back by less than a second it stands still until the time is reached again. */
static void small_step_back(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    at(&w, 1000);
    run_all(&w, "SET k v PX 500");
    for (i64 ms = 800; ms <= 1000; ms += 50) {
        at(&w, ms);
        assert_int_equal(now_of(&w), T0 + 1000);
        assert_string_equal(run(&w, "PTTL k"), "500");
    }
    at(&w, 1001);
    assert_string_equal(run(&w, "PTTL k"), "499");
    at(&w, 1499);
    assert_string_equal(run(&w, "GET k"), "v");
    at(&w, 1300);
    assert_string_equal(run(&w, "PTTL k"), "1");
    at(&w, 1500);
    assert_string_equal(run(&w, "GET k"), "nil");
    world_close(&w);
}

static void step_back_an_hour(enum reclaim how)
{
    struct world w;
    world_open(&w);
    set_reclaim(&w, how);
    run_all(&w, "SET old v PX 5000;SET recent v PX 9990;SET now v PX 10000");
    run_all(&w, "SET live v PX 20000;SET stays v");
    run_all(&w, "HSET h f 1 g 2 k 3;HPEXPIRE h 10000 FIELDS 1 f;HPEXPIRE h 20000 FIELDS 1 g");
    run_all(&w, "HSET hollow f 1;HPEXPIRE hollow 9999 FIELDS 1 f");
    w.session.db = 3;
    run_all(&w, "SET old v PX 5000;SET recent v PX 9990");
    w.session.db = 0;
    at(&w, 10000);
    at(&w, 10000 - HOUR);
    assert_int_equal(now_of(&w), T0 + 10000 - HOUR);
    assert_string_equal(run(&w, "EXISTS old recent now hollow"), "0");
    assert_string_equal(run(&w, "EXISTS live stays h"), "3");
    assert_string_equal(run(&w, "HMGET h f g k"), "[nil 2 3]");
    assert_string_equal(run(&w, "HLEN h"), "2");
    w.session.db = 3;
    assert_string_equal(run(&w, "DBSIZE"), "0");
    w.session.db = 0;

    /* Deadlines are absolute; new ones count from the new time. */
    assert_string_equal(run(&w, "PEXPIRETIME live"), "1700000020000");
    run_all(&w, "SET fresh v PX 50;SET old again");
    at(&w, 10049 - HOUR);
    assert_string_equal(run(&w, "EXISTS fresh"), "1");
    at(&w, 10050 - HOUR);
    assert_string_equal(run(&w, "EXISTS fresh"), "0");
    at(&w, 19999);
    assert_string_equal(run(&w, "EXISTS live old"), "2");
    assert_string_equal(run(&w, "HGET h g"), "2");
    at(&w, 20000);
    assert_string_equal(run(&w, "EXISTS live"), "0");
    assert_string_equal(run(&w, "HGET h g"), "nil");
    world_close(&w);
}

static void big_step_back(void **state)
{
    (void)state;
    step_back_an_hour(BY_INDEX);
    step_back_an_hour(BY_SAMPLES);
    step_back_an_hour(OFF);
}

/* What was used before the clock was set back was used just now, not long ago: it is not what eviction
 * looks for. */
static void access_survives_a_step_back(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    w.region.ks.policy = EVICT_ALLKEYS_LRU;
    at(&w, 0);
    run_all(&w, "SET used v");
    at(&w, -4000000);
    assert_string_equal(run(&w, "OBJECT IDLETIME used"), "0");
    at(&w, 10000);
    assert_string_equal(run(&w, "OBJECT IDLETIME used"), "10");
    w.region.ks.policy = EVICT_ALLKEYS_LFU;
    w.region.ks.lfu_decay_minutes = 1;
    at(&w, 20000);
    run_all(&w, "SET k v");
    at(&w, -4000000);
    assert_string_equal(run(&w, "OBJECT FREQ k"), "5");
    world_close(&w);
}

/* The index still finds everything in time after the clock has been elsewhere. */
static void index_survives_steps(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    at(&w, 100000);
    run_all(&w, "SET a v PX 3000;SET b v PX 7200000;HSET h f v;HPEXPIRE h 3000 FIELDS 1 f");
    each_step(&w);
    at(&w, 100000 - HOUR);
    run_all(&w, "SET c v PX 3000;HSET i f v;HPEXPIRE i 3000 FIELDS 1 f");
    at(&w, 103100 - HOUR);
    each_step(&w);
    assert_int_equal(count_of(&w, 0), 3);
    assert_string_equal(run(&w, "EXISTS a b h"), "3");
    at(&w, 103100);
    each_step(&w);
    assert_int_equal(count_of(&w, 0), 1);
    at(&w, 7300100);
    each_step(&w);
    assert_int_equal(count_of(&w, 0), 0);
    world_close(&w);
}

static void big_step_forward(void **state)
{
    (void)state;
    struct world w;
    char line[64];
    world_open(&w);
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof line, "SET k%d v PX %d", i, 1 + i * 7200);
        w.session.db = (u32)i % DBS;
        run_all(&w, line);
    }
    at(&w, HOUR);
    each_step(&w);
    u64 left = 0;
    for (u32 db = 0; db < DBS; db++) left += count_of(&w, db);
    assert_int_equal(left, 0); /* all were due within the hour */
    run_all(&w, "SET fresh v PX 1000");
    assert_string_equal(run(&w, "PEXPIRETIME fresh"), "1700003601000");
    world_close(&w);
}

/* -- a replica -------------------------------------------------------------------------- */

/* A read sees nothing of the dead, and leaves them where they are. */
static void check_replica_read(struct world *w, const struct boundary *b)
{
    struct buf before = {0}, after = {0};
    dataset_dump(w->region.eng, 0, &before);
    at(w, 2000);
    if (!same_words(run(w, b->command), b->gone)) fail_msg("%s: %s", b->command, w->text.p);
    assert_false(region_expire_step(&w->region));
    w->region.cycle.source = EXPIRE_SAMPLE;
    assert_false(region_expire_step(&w->region));
    dataset_dump(w->region.eng, 0, &after);
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.p, after.p, before.n);
    assert_int_equal(w->journal.n, 0);
    buf_release(&before);
    buf_release(&after);
}

/* A write (replica-read-only no) sees nothing of them either, and takes their place. */
static void check_replica_write(struct world *w, const struct boundary *b)
{
    struct buf data = {0};
    if (!same_words(run(w, b->command), b->gone)) fail_msg("%s: %s", b->command, w->text.p);
    dataset_dump(w->region.eng, 0, &data); /* finds a key that is there twice */
    buf_release(&data);
}

static void replicas_hide_and_keep(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys) + ARRAY_LEN(fields); i++) {
        const struct boundary *b = i < ARRAY_LEN(keys) ? &keys[i] : &fields[i - ARRAY_LEN(keys)];
        const struct command *cmd = command_find(bytes_of(b->command, strcspn(b->command, " ")));
        struct world w;
        world_open(&w);
        run_all(&w, b->setup);
        journal_text(&w);
        w.region.mode = EXPIRY_PAUSED;
        at(&w, 2000);
        if (cmd->flags & CMD_WRITE) check_replica_write(&w, b);
        else check_replica_read(&w, b);
        assert_false(w.region.ks.deletes_dead);
        world_close(&w);
    }
}

static void apply_text(struct world *w, i64 ms, const char *resp)
{
    struct journal_record r = {.seq = 1, .now_ms = T0 + ms, .effects = 1};
    buf_append_str(&r.resp, resp);
    assert_int_equal(region_apply(&w->region, &w->session, NULL, &r), OK);
    buf_release(&r.resp);
}

static void replicas_delete_on_the_primarys_word(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run_all(&w, "SET k v PX 1000;SET other v PX 1000");
    run_all(&w, "HSET h f 1 g 2 i 3;HPEXPIRE h 1000 FIELDS 2 f g");
    w.region.mode = EXPIRY_PAUSED;
    at(&w, 2000);
    assert_string_equal(run(&w, "EXISTS k other"), "0");
    assert_int_equal(count_of(&w, 0), 3);
    apply_text(&w, 1990, "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n");
    assert_int_equal(count_of(&w, 0), 2);
    apply_text(&w, 1990, "*3\r\n$4\r\nHDEL\r\n$1\r\nh\r\n$1\r\nf\r\n");
    apply_text(&w, 1990, "*3\r\n$4\r\nHDEL\r\n$1\r\nh\r\n$1\r\ng\r\n");
    assert_int_equal(w.region.ks.stats.expired_fields, 2);
    /* What is dead here is replaced, not doubled. */
    apply_text(&w, 1990, "*3\r\n$3\r\nSET\r\n$5\r\nother\r\n$1\r\nw\r\n");
    assert_int_equal(count_of(&w, 0), 2);
    at(&w, 2000);
    assert_string_equal(run(&w, "GET other"), "w");
    assert_false(w.region.ks.deletes_dead);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_die_at_their_deadline),
        cmocka_unit_test(fields_die_at_their_deadline),
        cmocka_unit_test(dbsize_follows_reclaim),
        cmocka_unit_test(walks_miss_nothing),
        cmocka_unit_test(deadlines_move),
        cmocka_unit_test(small_step_back),
        cmocka_unit_test(big_step_back),
        cmocka_unit_test(access_survives_a_step_back),
        cmocka_unit_test(index_survives_steps),
        cmocka_unit_test(big_step_forward),
        cmocka_unit_test(replicas_hide_and_keep),
        cmocka_unit_test(replicas_delete_on_the_primarys_word),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
