/* Fields of hashes that have died: that each of them is told of once, whoever meets it. On both engines. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "follower.h"

#define FIELDS 300 /* more than a command takes out one by one when nobody asks for them */

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
    static const char *const writes[] = {
        "HSET h new 1", "SET h 1", "SET h 1 GET", "GETSET h 1", "LPUSH h 1", "COPY k h", "RENAME k h", "SORT l STORE h",
    };
    for (enum kind kind = MEMORY; kind <= ROCKS; kind++) {
        for (size_t i = 0; i < ARRAY_LEN(writes); i++) {
            struct world w;
            open_telling(&w, kind);
            run_all(&w, "SET k v;RPUSH l 1 2");
            make_hollow(&w);
            recorder_clear(&w.journal);
            run_all(&w, writes[i]);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_tells_all),
        cmocka_unit_test(a_read_leaves_most_to_the_cycle),
    };
    followers_open();
    int failed = cmocka_run_group_tests_name("fields", tests, NULL, NULL);
    followers_close();
    return failed;
}
