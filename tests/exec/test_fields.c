/* Dead hash fields: each is reported exactly once, whichever command meets it. On both engines. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "follower.h"

#define FIELDS 300 /* more than a command deletes one by one on the side */

static void open_telling(struct world *w, enum kind kind)
{
    open_on(w, kind, "fields");
    expiry_stream_set(&w->region.expiry_stream, &w->region.ks, BYTES_LIT("gone"), 0);
}

static void close_telling(struct world *w) { close_on(w, "fields"); }

/* How many entries the stream has, of how many different fields. */
static void told(struct world *w, u64 entries)
{
    char line[32];
    snprintf(line, sizeof line, "%llu", (unsigned long long)entries);
    expect(w, "XLEN gone", line);
    assert_int_equal(w->region.expiry_stream.told, entries);
    assert_int_equal(w->region.ks.stats.expired_fields, entries);
}

/* -- hashes of which nothing is left ------------------------------------------------------- */

static void make_hollow(struct world *w)
{
    char line[64];
    for (int i = 0; i < FIELDS; i++) {
        snprintf(line, sizeof line, "HSETEX h PX %d FIELDS 1 f%d v", 10 + i % 7, i);
        run_all(w, line);
    }
    at(w, 20);
}

/* A writer that needs the name takes all of them out, in one record with their entries. */
static void a_write_tells_all(void **state UNUSED)
{
    static const char *const takes[] = {
        "HSET h new 1", "SET h 1", "SET h 1 GET", "GETSET h 1", "LPUSH h 1", "COPY k h", "RENAME k h", "SORT l STORE h",
    };
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        for (size_t i = 0; i < ARRAY_LEN(takes); i++) {
            struct world w;
            open_telling(&w, kind);
            run_all(&w, "SET k v;RPUSH l 1 2");
            make_hollow(&w);
            recorder_clear(&w.journal);
            run_all(&w, takes[i]);
            assert_int_equal(w.journal.n, 1);
            told(&w, FIELDS);
            expect(&w, "EXISTS h", "1");
            at(&w, 200);
            each_step(&w);
            told(&w, FIELDS);
            close_telling(&w);
        }
    }
}

/* Readers don't pay for all of them; the cycle tells of those they leave. */
static void a_read_leaves_most_to_the_cycle(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        struct world w;
        open_telling(&w, kind);
        make_hollow(&w);
        expect(&w, "HGET h f1", "nil");
        assert_in_range(w.region.expiry_stream.told, 0, 64);
        expect(&w, "EXISTS h", "0");
        at(&w, 200);
        each_step(&w);
        told(&w, FIELDS);
        expect(&w, "KEYS *", "[gone]");
        close_telling(&w);
    }
}

/* -- dead fields that a write reaches before the cycle -------------------------------------------------- */

#define HDEL_A "MULTI; HDEL h a; "
#define TOLD_A "; XADD gone 1700000000020-0 key h db 0 type hash deadline 1700000000010 reclaimed 1700000000020 field a"

/* h has the fields a, which is dead, and b; k is just a key. */
static const struct {
    const char *command, *reply, *events, *record;
} writes[] = {
    {"HSET h a 9", "1", "hexpired h, hset h", HDEL_A "HSET h a 9" TOLD_A "; EXEC"},
    {"HSET h b 3 a 9", "1", "hexpired h, hset h", HDEL_A "HSET h b 3 a 9" TOLD_A "; EXEC"},
    {"HMSET h a 9", "OK", "hexpired h, hset h", HDEL_A "HMSET h a 9" TOLD_A "; EXEC"},
    {"HSETNX h a 9", "1", "hexpired h, hset h", HDEL_A "HSET h a 9" TOLD_A "; EXEC"},
    {"HINCRBY h a 1", "1", "hexpired h, hincrby h", HDEL_A "HINCRBY h a 1" TOLD_A "; EXEC"},
    {"HINCRBYFLOAT h a 1", "1", "hexpired h, hincrbyfloat h", HDEL_A "HSET h a 1" TOLD_A "; EXEC"},
    {"HSETEX h FIELDS 1 a 9", "1", "hexpired h, hset h", HDEL_A "HSET h a 9" TOLD_A "; EXEC"},
    {"HSETEX h KEEPTTL FIELDS 1 a 9", "1", "hexpired h, hset h", HDEL_A "HSET h a 9" TOLD_A "; EXEC"},
    {"HSETEX h FNX PX 9 FIELDS 1 a 9", "1", "hexpired h, hset h, hexpire h",
     HDEL_A "HSET h a 9; HPEXPIREAT h 1700000000029 FIELDS 1 a" TOLD_A "; EXEC"},
    {"HSETEX h PX 0 FIELDS 1 a 9", "1", "hexpired h, hset h, hdel h", HDEL_A "HDEL h a" TOLD_A "; EXEC"},
    /* The last one that lives goes: the hash with it, and before that the one that is dead. */
    {"HDEL h b", "1", "hdel h, hexpired h, del h", "MULTI; HDEL h b; HDEL h a" TOLD_A "; EXEC"},
    {"HDEL h a b", "1", "hdel h, hexpired h, del h", "MULTI; HDEL h b; HDEL h a" TOLD_A "; EXEC"},
    {"HGETDEL h FIELDS 1 b", "[2]", "hdel h, hexpired h, del h", "MULTI; HDEL h b; HDEL h a" TOLD_A "; EXEC"},
    {"HEXPIRE h 0 FIELDS 1 b", "[2]", "hdel h, hexpired h, del h", "MULTI; HDEL h b; HDEL h a" TOLD_A "; EXEC"},
    {"HSETEX h PX 0 FIELDS 1 b 9", "1", "hset h, hdel h, hexpired h, del h",
     "MULTI; HDEL h b; HDEL h a" TOLD_A "; EXEC"},
};

static void note(void *arg, u32 class UNUSED, const char *event, u32 db UNUSED, bytes key)
{
    struct buf *seen = arg;
    if (!bytes_is(key, "h")) return;
    buf_printf(seen, "%s%s %.*s", seen->n ? ", " : "", event, (int)key.n, key.p);
}

/* Replaying the journal yields the same data. */
static void check_follower(struct world *w, enum kind kind, const struct recorder *records)
{
    struct world follower;
    struct buf here = {0}, there = {0};
    open_replica(&follower, kind, "follower");
    follow(&follower, records->v, records->n);
    dump(w, 0, &here);
    dump(&follower, 0, &there);
    assert_int_equal(here.n, there.n);
    assert_memory_equal(here.p, there.p, here.n);
    buf_release(&here);
    buf_release(&there);
    close_on(&follower, "follower");
}

static void check_write(enum kind kind, size_t i)
{
    struct world w;
    struct buf seen = {0}, record = {0};
    open_telling(&w, kind);
    run_all(&w, "HSET h a 1 b 2;HPEXPIREAT h 1700000000010 FIELDS 1 a");
    at(&w, 20);
    w.region.ks.on_event = note;
    w.region.ks.on_event_arg = &seen;
    w.region.ks.event_mask = ~(u32)NOTIFY_MISS;
    expect(&w, writes[i].command, writes[i].reply);
    buf_append_char(&seen, '\0');
    assert_string_equal(seen.p, writes[i].events);
    record_text(&w.journal.v[w.journal.n - 1], &record);
    buf_append_char(&record, '\0');
    assert_string_equal(record.p, writes[i].record);
    told(&w, 1);
    assert_int_equal(w.node.lag.lazy.count, 1);
    check_follower(&w, kind, &w.journal);
    at(&w, 200);
    each_step(&w);
    assert_in_range(w.region.ks.stats.expired_fields, 1, 2); /* HSETEX FNX gave another deadline */
    close_telling(&w);
    buf_release(&seen);
    buf_release(&record);
}

static void writes_tell_of_the_dead_they_meet(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++)
        for (size_t i = 0; i < ARRAY_LEN(writes); i++) check_write(kind, i);
}

/* A write costs what it writes, however many other fields of the hash are dead. */
static void writes_leave_other_dead_fields(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        struct world w;
        open_telling(&w, kind);
        run_all(&w, "HSET h stays 1");
        make_hollow(&w);
        expect(&w, "HSET h f299 9", "1");
        told(&w, 1);
        run_all(&w, "HDEL h f299;HDEL h stays");
        assert_in_range(w.region.expiry_stream.told, 1, 1 + 64);
        expect(&w, "EXISTS h", "0");
        at(&w, 200);
        each_step(&w);
        told(&w, FIELDS);
        expect(&w, "KEYS *", "[gone]");
        check_follower(&w, kind, &w.journal);
        close_telling(&w);
    }
}

/* -- WATCH ---------------------------------------------------------------------------------------------- */

/* The hash h is made at 0 ms, watched, and EXEC comes at 20 ms; nothing is reclaimed. */
static const struct {
    const char *hash, *exec;
} watched[] = {
    {"HSETEX h PX 20 FIELDS 1 a 1", "nil"},
    {"HSETEX h PX 21 FIELDS 1 a 1", "[OK]"},
    {"HSETEX h PX 20 FIELDS 2 a 1 b 2;HSET h c 3", "nil"}, /* some of its value is gone */
    {"HSETEX h PX 10 FIELDS 1 a 1;HSETEX h PX 21 FIELDS 1 b 2", "[OK]"}, /* … was gone at WATCH already */
    {"HSETEX h PX 10 FIELDS 1 a 1;HSETEX h PX 20 FIELDS 1 b 2", "nil"},
    {"HSETEX h PX 10 FIELDS 1 a 1", "[OK]"}, /* there was none */
};

static void watches_see_fields_die(void **state UNUSED)
{
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        for (size_t i = 0; i < ARRAY_LEN(watched); i++) {
            struct world w;
            open_on(&w, kind, "fields");
            run_all(&w, watched[i].hash);
            at(&w, 10);
            run_all(&w, "WATCH h");
            at(&w, 20);
            run_all(&w, "MULTI;SET won 1");
            expect(&w, "EXEC", watched[i].exec);
            close_on(&w, "fields");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_tells_all),
        cmocka_unit_test(a_read_leaves_most_to_the_cycle),
        cmocka_unit_test(writes_tell_of_the_dead_they_meet),
        cmocka_unit_test(writes_leave_other_dead_fields),
        cmocka_unit_test(watches_see_fields_die),
    };
    followers_open();
    int failed = cmocka_run_group_tests_name("fields", tests, NULL, NULL);
    followers_close();
    return failed;
}
