/* A replica: what it does with the commands of its primary, what its clients see, and what it never does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "follower.h"

/* -- deadlines that have passed ---------------------------------------------------------- */

/* `setup` and `command` come from the primary; the key, or the field f of h, is then there, dead, and hidden. */
static const struct {
    const char *setup, *command, *key, *record;
} past[] = {
    {NULL, "SET k v PXAT 1600000000000", "k", "SET k v PXAT 1600000000000"},
    {NULL, "SET k v EXAT 1600000000", "k", "SET k v PXAT 1600000000000"},
    {"SET k v", "PEXPIREAT k 1600000000000", "k", "PEXPIREAT k 1600000000000"},
    {"SET k v", "EXPIREAT k 1600000000", "k", "PEXPIREAT k 1600000000000"},
    {"SET k v", "PEXPIREAT k 1", "k", "PEXPIREAT k 1"},
    {"SET k v", "PEXPIREAT k 0", "k", "PEXPIREAT k 1"},
    {"SET k v", "PEXPIREAT k -5", "k", "PEXPIREAT k 1"},
    {"SET k v", "EXPIRE k -100", "k", "PEXPIREAT k 1699999900000"},
    {"SET k v", "GETEX k PXAT 1600000000000", "k", "PEXPIREAT k 1600000000000"},
    {"SET k v", "GETEX k EXAT 1600000000", "k", "PEXPIREAT k 1600000000000"},
    {"HSET h f v", "HPEXPIREAT h 1600000000000 FIELDS 1 f", "h", "HPEXPIREAT h 1600000000000 FIELDS 1 f"},
    {"HSET h f v", "HEXPIREAT h 1600000000 FIELDS 1 f", "h", "HPEXPIREAT h 1600000000000 FIELDS 1 f"},
    {"HSET h f v", "HPEXPIREAT h 0 FIELDS 1 f", "h", "HPEXPIREAT h 1 FIELDS 1 f"},
    {"HSET h f v", "HGETEX h PXAT 1600000000000 FIELDS 1 f", "h", "HPEXPIREAT h 1600000000000 FIELDS 1 f"},
    {NULL, "HSETEX h PXAT 1600000000000 FIELDS 1 f v", "h",
     "MULTI; HSET h f v; HPEXPIREAT h 1600000000000 FIELDS 1 f; EXEC"},
};

static void stream_and_check_past(enum kind kind, size_t i)
{
    struct world w;
    char line[32];
    open_replica(&w, kind, "replica");
    stream(&w, "SET unrelated x");
    stream(&w, "DEL unrelated");
    if (past[i].setup) stream(&w, past[i].setup);
    journal_text(&w);
    stream(&w, past[i].command);
    assert_string_equal(journal_text(&w), past[i].record);
    assert_int_equal(count_of(&w, 0), 1);
    snprintf(line, sizeof line, "EXISTS %s", past[i].key);
    expect(&w, line, "0");
    expect(&w, "KEYS *", "[]");
    expect(&w, "DBSIZE", "1");
    snprintf(line, sizeof line, "DEL %s", past[i].key);
    stream(&w, line);
    assert_int_equal(count_of(&w, 0), 0);
    nothing_expired(&w);
    close_on(&w, "replica");
}

static void past_deadlines_are_kept(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(past); i++) {
        stream_and_check_past(MEMORY, i);
        stream_and_check_past(ROCKS, i);
    }
}

static void request_restore(struct world *w, bytes payload, const char *ttl, const char *option)
{
    bytes argv[] = {BYTES_LIT("RESTORE"), BYTES_LIT("r"), bytes_str(ttl), payload, BYTES_LIT("REPLACE"),
                    bytes_str(option)};
    i64 now_ms = now_of(w);
    assert_true(region_commit(&w->region));
    region_follow_begin(&w->region);
    follow_one(w, *option ? 6 : 5, argv);
    assert_true(region_commit(&w->region));
    region_begin(&w->region, now_ms);
}

/* … also those of a payload, and of its fields. */
static void restored_dead_are_kept(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        struct world from, w;
        struct buf payload = {0};
        world_open(&from);
        run_all(&from, "HSET h f 1 g 2;HPEXPIREAT h 1700000000500 FIELDS 1 f");
        run(&from, "DUMP h");
        keep_payload(&from, &payload);
        open_replica(&w, kind, "replica");
        at(&w, 1000);
        request_restore(&w, buf_bytes(&payload), "1600000000000", "ABSTTL");
        assert_int_equal(count_of(&w, 0), 1);
        expect(&w, "EXISTS r", "0");
        request_restore(&w, buf_bytes(&payload), "5000", "");
        expect(&w, "PEXPIRETIME r", "1700000006000");
        expect(&w, "HGETALL r", "[g 2]");
        w.region.mode = EXPIRY_REPLICA_SERVES;
        at(&w, 1000);
        expect(&w, "HMGET r f g", "[1 2]");
        buf_release(&payload);
        world_close(&from);
        close_on(&w, "replica");
    }
}

/* -- relative deadlines ------------------------------------------------------------------ */

static const struct {
    const char *setup, *command, *ask, *answer;
} relative[] = {
    {NULL, "SETEX k 7 v", "PEXPIRETIME k", "1700000009000"},
    {NULL, "PSETEX k 7 v", "PEXPIRETIME k", "1700000002007"},
    {NULL, "SET k v EX 7", "PEXPIRETIME k", "1700000009000"},
    {NULL, "SET k v PX 7", "PEXPIRETIME k", "1700000002007"},
    {"SET k v", "EXPIRE k 7", "PEXPIRETIME k", "1700000009000"},
    {"SET k v", "PEXPIRE k 7", "PEXPIRETIME k", "1700000002007"},
    {"SET k v", "GETEX k EX 7", "PEXPIRETIME k", "1700000009000"},
    {"HSET h f v", "HEXPIRE h 7 FIELDS 1 f", "HPEXPIRETIME h FIELDS 1 f", "[1700000009000]"},
    {"HSET h f v", "HPEXPIRE h 7 FIELDS 1 f", "HPEXPIRETIME h FIELDS 1 f", "[1700000002007]"},
    {NULL, "HSETEX h EX 7 FIELDS 1 f v", "HPEXPIRETIME h FIELDS 1 f", "[1700000009000]"},
};

static void relative_deadlines_count_from_now(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(relative); i++) {
        struct world w;
        open_replica(&w, MEMORY, "replica");
        at(&w, 2000);
        if (relative[i].setup) stream(&w, relative[i].setup);
        stream(&w, relative[i].command);
        expect(&w, relative[i].ask, relative[i].answer);
        close_on(&w, "replica");
    }
}

/* -- what the primary does with the dead ------------------------------------------------- */

/* Its clock is behind ours, or its cycle is: to it they are alive. */
static void streams_see_the_dead(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        struct world w;
        open_replica(&w, kind, "replica");
        stream(&w, "SET k ab PXAT 1700000000100");
        stream(&w, "SET n 5 PXAT 1700000000100");
        stream(&w, "RPUSH l a b");
        stream(&w, "PEXPIREAT l 1700000000100");
        stream(&w, "HSET h f 5 g 1");
        stream(&w, "HPEXPIREAT h 1700000000100 FIELDS 1 f");
        at(&w, 1000);
        expect(&w, "MGET k n", "[nil nil]");
        expect(&w, "HLEN h", "1");
        stream(&w, "APPEND k c");
        stream(&w, "INCR n");
        stream(&w, "LPOP l");
        stream(&w, "HINCRBY h f 2");
        expect(&w, "EXISTS k n l", "0");
        expect(&w, "HGET h f", "nil");
        at(&w, 50); /* by a clock that is right they are still there */
        at(&w, -2000);
        expect(&w, "MGET k n", "[abc 6]");
        expect(&w, "LRANGE l 0 -1", "[b]");
        expect(&w, "HGET h f", "7");
        at(&w, 1000);
        stream(&w, "PERSIST k");
        expect(&w, "GET k", "abc");
        stream(&w, "HDEL h f");
        stream(&w, "UNLINK n l");
        expect(&w, "DBSIZE", "2");
        w.region.mode = EXPIRY_REPLICA_SERVES;
        at(&w, 1000);
        expect(&w, "HGETALL h", "[g 1]");
        nothing_expired(&w);
        close_on(&w, "replica");
    }
}

static void access_goes_by_the_time(void **state UNUSED)
{
    struct world w;
    open_replica(&w, MEMORY, "replica");
    stream(&w, "SET k v");
    stream(&w, "RPUSH l a");
    at(&w, 90000);
    expect(&w, "OBJECT IDLETIME k", "90");
    stream(&w, "SET k w");
    stream(&w, "RPUSH l b");
    expect(&w, "OBJECT IDLETIME k", "0");
    expect(&w, "OBJECT IDLETIME l", "0");
    w.region.ks.policy = EVICT_ALLKEYS_LFU;
    at(&w, 90000);
    stream(&w, "SET f v");
    at(&w, 90000 + 2 * 60000);
    expect(&w, "OBJECT FREQ f", "3");
    close_on(&w, "replica");
}

/* -- what clients see and do -------------------------------------------------------------- */

/* Commands, what they answer by hiding, and what by serving. */
static const struct {
    const char *command, *hide, *serve;
} reads[] = {
    {"GET k", "nil", "v"}, {"STRLEN k", "0", "1"}, {"TTL k", "-2", "0"}, {"PTTL k", "-2", "0"},
    {"PEXPIRETIME k", "-2", "1700000000100"}, {"TYPE k", "none", "string"}, {"EXISTS k", "0", "1"},
    {"TOUCH k", "0", "1"}, {"OBJECT ENCODING k", "nil", "embstr"}, {"KEYS *", "[h]", NULL}, {"SCAN 0", "[0 [h]]", NULL},
    {"RANDOMKEY", "h", NULL}, {"DBSIZE", "3", "3"}, {"DUMP k", "nil", NULL}, {"SORT_RO l ALPHA", "[]", "[a b]"},
    {"LRANGE l 0 -1", "[]", "[a b]"}, {"LLEN l", "0", "2"}, {"LPOS l b", "nil", "1"},
    {"HGET h f", "nil", "1"}, {"HLEN h", "1", "2"}, {"HSTRLEN h f", "0", "1"}, {"HEXISTS h f", "0", "1"},
    {"HMGET h f g", "[nil 2]", "[1 2]"}, {"HTTL h FIELDS 2 f g", "[-2 -1]", "[0 -1]"},
    {"HPTTL h FIELDS 1 f", "[-2]", "[0]"}, {"HPEXPIRETIME h FIELDS 1 f", "[-2]", "[1700000000100]"},
    {"HGETALL h", "[g 2]", NULL}, {"HVALS h", "[2]", NULL}, {"HRANDFIELD h 5", "[g]", NULL},
    {"HSCAN h 0", "[0 [g 2]]", NULL},
};

static void check_reads(struct world *w, bool serve)
{
    struct buf before = {0}, after = {0};
    dump(w, 0, &before);
    w->region.mode = serve ? EXPIRY_REPLICA_SERVES : EXPIRY_REPLICA;
    at(w, 5000);
    for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
        const char *wanted = serve ? reads[i].serve : reads[i].hide;
        if (wanted) expect(w, reads[i].command, wanted);
        else run(w, reads[i].command);
    }
    dump(w, 0, &after);
    assert_int_equal(before.n, after.n);
    assert_memory_equal(before.p, after.p, before.n);
    buf_release(&before);
    buf_release(&after);
}

static void reads_hide_or_serve(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        struct world w;
        open_replica(&w, kind, "replica");
        stream(&w, "SET k v PXAT 1700000000100");
        stream(&w, "RPUSH l a b");
        stream(&w, "PEXPIREAT l 1700000000100");
        stream(&w, "HSET h f 1 g 2");
        stream(&w, "HPEXPIREAT h 1700000000100 FIELDS 1 f");
        journal_text(&w);
        check_reads(&w, false);
        check_reads(&w, true);
        check_reads(&w, false);
        assert_string_equal(journal_text(&w), "");
        nothing_expired(&w);
        set_role(&w, false);
        at(&w, 5000);
        expect(&w, "MGET k k", "[nil nil]");
        expect(&w, "HLEN h", "1");
        each_step(&w);
        expect(&w, "DBSIZE", "1");
        close_on(&w, "replica");
    }
}

/* replica-read-only no: what a client writes over, it deletes. */
static void client_writes_bury_the_dead(void **state UNUSED)
{
    struct world w;
    open_replica(&w, MEMORY, "replica");
    stream(&w, "SET k 5 PXAT 1700000000100");
    stream(&w, "HSET h f 5");
    stream(&w, "HPEXPIREAT h 1700000000100 FIELDS 1 f");
    at(&w, 1000);
    journal_text(&w);
    expect(&w, "INCR k", "1");
    assert_string_equal(journal_text(&w), "MULTI; DEL k; INCR k; EXEC");
    expect(&w, "TTL k", "-1");
    expect(&w, "HSET h g 1", "1");
    expect(&w, "HGETALL h", "[g 1]");
    assert_int_equal(w.region.ks.stats.expired_keys, 1);
    close_on(&w, "replica");
}

static void clients_are_refused(void **state UNUSED)
{
    struct world w;
    open_replica(&w, MEMORY, "replica");
    stream(&w, "PFADD p a b c");
    w.node.deny_writes = "READONLY You can't write against a read only replica.";
    expect(&w, "SET k v", "-READONLY You can't write against a read only replica.");
    journal_text(&w);
    expect(&w, "PFCOUNT p", "3"); /* may replicate, but is a read */
    assert_string_equal(journal_text(&w), "");
    expect(&w, "GET k", "nil");
    stream(&w, "SET k v");
    w.node.deny_stale = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    expect(&w, "GET k", "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
    expect(&w, "ECHO x", "x");
    expect(&w, "SET k v", "-READONLY You can't write against a read only replica.");
    stream(&w, "SET k w");
    w.node.loading = true;
    expect(&w, "GET k", "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
    w.node.deny_stale = NULL;
    expect(&w, "GET k", "-LOADING Redis is loading the dataset in memory");
    w.node.loading = false;
    expect(&w, "GET k", "w");
    close_on(&w, "replica");
}

/* -- the clock of a replica, and its memory ---------------------------------------------- */

static void clock_steps_delete_nothing(void **state UNUSED)
{
    struct world w;
    open_replica(&w, MEMORY, "replica");
    stream(&w, "SET k v PXAT 1700000000100");
    at(&w, 200);
    expect(&w, "GET k", "nil");
    at(&w, 50); /* a little back: it stands still, and nothing comes back to life */
    assert_int_equal(now_of(&w), T0 + 200);
    stream(&w, "SET other v");
    at(&w, 60);
    expect(&w, "GET k", "nil");
    at(&w, -5000); /* set back: followed */
    assert_int_equal(now_of(&w), T0 - 5000);
    assert_int_equal(count_of(&w, 0), 2);
    expect(&w, "GET k", "v");
    at(&w, 86400000);
    expect(&w, "GET k", "nil");
    assert_false(region_expire_step(&w.region));
    assert_int_equal(count_of(&w, 0), 2);
    nothing_expired(&w);
    close_on(&w, "replica");
}

static void fill(struct world *w)
{
    char line[64];
    for (int i = 0; i < 200; i++) {
        snprintf(line, sizeof line, "SETRANGE k%d 999 x", i);
        stream(w, line);
        snprintf(line, sizeof line, "PEXPIREAT k%d 1700000000100", i);
        if (i < 20) stream(w, line);
    }
}

static void memory_is_the_primarys(void **state UNUSED)
{
    struct world w;
    open_replica(&w, MEMORY, "replica");
    fill(&w);
    at(&w, 1000);
    journal_text(&w);
    w.region.ks.policy = EVICT_ALLKEYS_RANDOM;
    w.node.evictor.maxmemory = 1;
    w.node.evictor.unfinished = true;
    expect(&w, "SET c 1", "OK");
    stream(&w, "SET k0 v");
    assert_false(region_evict_step(&w.region));
    assert_string_equal(journal_text(&w), "SELECT 0; SET c 1 | SET k0 v" + strlen("SELECT 0; "));
    w.node.evict_following = true; /* replica-ignore-maxmemory no */
    w.region.ks.policy = EVICT_NONE;
    expect(&w, "SET c 1", "-OOM command not allowed when used memory > 'maxmemory'.");
    stream(&w, "SET k1 v");
    expect(&w, "GET k1", "v");
    assert_int_equal(count_of(&w, 0), 201);
    w.region.ks.policy = EVICT_ALLKEYS_RANDOM;
    w.node.evictor.unfinished = true;
    while (region_evict_step(&w.region)) {}
    assert_int_equal(count_of(&w, 0), 0);
    assert_int_equal(w.region.ks.stats.evicted_keys, 201);
    nothing_expired(&w);
    close_on(&w, "replica");
}

/* -- after promotion --------------------------------------------------------------------- */

static void promotion_lets_the_dead_go(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        struct world w;
        open_replica(&w, kind, "replica");
        stream(&w, "SET k 5 PXAT 1700000000100");
        stream(&w, "SET l 5 PXAT 1700000000100");
        stream(&w, "SET m 5 PXAT 1700000500000");
        stream(&w, "HSET h f 5 g 1");
        stream(&w, "HPEXPIREAT h 1700000000100 FIELDS 1 f");
        at(&w, 1000);
        journal_text(&w);
        set_role(&w, false);
        at(&w, 1000);
        expect(&w, "INCR k", "1"); /* by the gate … */
        assert_string_equal(journal_text(&w), "MULTI; DEL k; INCR k; EXEC");
        each_step(&w);             /* … and by the cycle */
        const char *got = journal_text(&w);
        assert_non_null(strstr(got, "DEL l"));
        assert_non_null(strstr(got, "HDEL h f"));
        expect(&w, "DBSIZE", "3");
        assert_int_equal(w.region.ks.stats.expired_keys, 2);
        assert_int_equal(w.region.ks.stats.expired_fields, 1);
        expect(&w, "GET m", "5");
        close_on(&w, "replica");
    }
}

static u64 tracked(struct world *w) { return own_keys_count(&w->region.own, &w->region.ks); }

/* A replica that takes writes deletes what its own clients gave a deadline, and nothing else. */
static void own_keys_expire(void **state UNUSED)
{
    for (int i = 0; i < 2; i++) {
        struct world w;
        open_replica(&w, i ? ROCKS : MEMORY, "replica");
        region_listen(&w.region, LISTEN_OWN, true);
        stream(&w, "SET theirs 1 PXAT 1700000000100");
        run(&w, "SET mine 1 PX 100");
        run(&w, "RPUSH list 1");
        run(&w, "PEXPIRE list 50");
        run(&w, "SET later 1 PX 100");
        run(&w, "PEXPIRE later 500");
        run(&w, "SET kept 1 PX 100");
        run(&w, "PERSIST kept");
        run(&w, "SET overwritten 1 PX 100");
        stream(&w, "SET overwritten 2 PXAT 1700000000100");
        run(&w, "MULTI");
        run(&w, "SELECT 1");
        run(&w, "SET elsewhere 1 PX 90");
        run(&w, "SELECT 0");
        run(&w, "EXEC");
        assert_int_equal(tracked(&w), 4); /* mine, list, later, elsewhere */
        assert_int_equal(own_keys_next_due(&w.region.own), T0 + 50);
        at(&w, 49);
        journal_text(&w);
        each_step(&w);
        assert_string_equal(journal_text(&w), "");
        at(&w, 100);
        each_step(&w);
        assert_string_equal(journal_text(&w),
            "SELECT 0; DEL list; SELECT 1; DEL elsewhere; SELECT 0; DEL mine");
        assert_int_equal(w.region.ks.stats.expired_keys, 3);
        assert_int_equal(tracked(&w), 1);
        assert_int_equal(count_of(&w, 0), 4); /* theirs, later, kept, overwritten */
        run(&w, "SET fresh 1 PX 400");
        run(&w, "SWAPDB 0 2");
        assert_int_equal(tracked(&w), 2);
        at(&w, 500);
        each_step(&w);
        assert_int_equal(w.region.ks.stats.expired_keys, 5);
        assert_int_equal(count_of(&w, 2), 3);
        run(&w, "SET mine 1 PX 100");
        assert_int_equal(tracked(&w), 1);
        run(&w, "FLUSHALL");
        assert_int_equal(tracked(&w), 0);
        close_on(&w, "replica");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(past_deadlines_are_kept),
        cmocka_unit_test(restored_dead_are_kept),
        cmocka_unit_test(relative_deadlines_count_from_now),
        cmocka_unit_test(streams_see_the_dead),
        cmocka_unit_test(access_goes_by_the_time),
        cmocka_unit_test(reads_hide_or_serve),
        cmocka_unit_test(client_writes_bury_the_dead),
        cmocka_unit_test(clients_are_refused),
        cmocka_unit_test(clock_steps_delete_nothing),
        cmocka_unit_test(memory_is_the_primarys),
        cmocka_unit_test(promotion_lets_the_dead_go),
        cmocka_unit_test(own_keys_expire),
    };
    followers_open();
    int failed = cmocka_run_group_tests_name("replica", tests, NULL, NULL);
    followers_close();
    return failed;
}
