/* The stream of replication against a plain array of all its bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "repl/repl_stream.h"

#define ROOM (16u << 20)
#define CURSORS 8
#define FAR 1000000000000ULL

static const char *const ID_A = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char *const ID_B = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
static const char *const ID_C = "cccccccccccccccccccccccccccccccccccccccc";

struct world {
    struct repl_stream s;
    char *bytes;          /* from position `origin` on */
    u64 origin, end, staged;
    struct repl_stream_cursor cursor[CURSORS];
    u64 at[CURSORS];
};

static u64 rng;

static u64 below(u64 n) { return rand_below(&rng, n); }

static void append(struct world *w, size_t n)
{
    char *to = w->bytes + (w->end + w->staged - w->origin);
    for (size_t i = 0; i < n; i++) to[i] = (char)rand_next(&rng);
    repl_stream_append(&w->s, bytes_of(to, n));
    w->staged += n;
}

static void publish(struct world *w)
{
    repl_stream_publish(&w->s);
    w->end += w->staged;
    w->staged = 0;
}

static void take_back(struct world *w)
{
    repl_stream_take_back(&w->s);
    w->staged = 0;
}

static size_t some_bytes(void)
{
    switch (below(20)) {
    case 0: return below(3u << 20);
    case 1: return below(200u << 10);
    default: return below(300);
    }
}

/* What a cursor sees is what was published at its place, and it sees something unless it is at the end. */
static void check_cursor(struct world *w, u32 i)
{
    bytes b = repl_stream_peek(&w->s, &w->cursor[i]);
    assert_int_equal(w->cursor[i].at, w->at[i]);
    assert_true(w->at[i] + b.n <= w->end);
    assert_true(b.n > 0 || w->at[i] == w->end);
    assert_true(memcmp(b.p, w->bytes + (w->at[i] - w->origin), b.n) == 0);
}

static void check(struct world *w)
{
    assert_int_equal(w->s.end, w->end);
    assert_int_equal(w->s.staged, w->staged);
    assert_true(w->s.begin <= w->end);
    for (u32 i = 0; i < CURSORS; i++) {
        if (!w->cursor[i].open) continue;
        assert_true(w->s.begin <= w->at[i]);
        check_cursor(w, i);
    }
}

static u64 slowest(const struct world *w)
{
    u64 at = w->end;
    for (u32 i = 0; i < CURSORS; i++)
        if (w->cursor[i].open) at = MIN(at, w->at[i]);
    return at;
}

/* At least what was asked for stays, and hardly more than that. */
static void trim(struct world *w, u64 keep)
{
    u64 begin = w->s.begin;
    repl_stream_trim(&w->s, keep);
    u64 needed = MIN(slowest(w), w->end - MIN(keep, w->end));
    assert_true(w->s.begin <= MAX(needed, begin));
    assert_true(w->s.begin + (2u << 20) >= needed);
    assert_true(w->s.memory <= w->end - w->s.begin + w->staged + (3u << 20));
}

static void step_cursor(struct world *w, u32 i)
{
    struct repl_stream_cursor *c = &w->cursor[i];
    if (!c->open) {
        w->at[i] = below(2) ? w->end : w->s.begin + below(w->end - w->s.begin + 1);
        repl_stream_open(&w->s, c, w->at[i]);
    } else if (below(10) == 0) {
        repl_stream_close(&w->s, c);
        repl_stream_close(&w->s, c);
    } else {
        u64 n = below(3) ? repl_stream_peek(&w->s, c).n : below(w->end - w->at[i] + 1);
        repl_stream_move(&w->s, c, n);
        w->at[i] += n;
    }
}

static void close_all(struct world *w)
{
    for (u32 i = 0; i < CURSORS; i++) repl_stream_close(&w->s, &w->cursor[i]);
}

static void start_again(struct world *w, u64 position)
{
    close_all(w);
    repl_stream_restart(&w->s, ID_B, position);
    w->origin = w->end = position;
    w->staged = 0;
    assert_int_equal(w->s.begin, position);
    assert_int_equal(w->s.memory, 0);
    assert_int_equal(w->s.id2_end, -1);
}

static void test_random(void **state)
{
    (void)state;
    struct world w = {.bytes = mem_alloc(ROOM)};
    rng = 20261115;
    repl_stream_init(&w.s, ID_A, 0);
    for (u32 round = 0; round < 20000; round++) {
        if (w.end + w.staged - w.origin > ROOM - (4u << 20)) start_again(&w, FAR + below(1000));
        switch (below(8)) {
        case 0: publish(&w); break;
        case 1: below(4) ? publish(&w) : take_back(&w); break;
        case 2: case 3: append(&w, some_bytes()); break;
        case 4: trim(&w, below(3) ? below(2u << 20) : 0); break;
        default: step_cursor(&w, (u32)below(CURSORS)); break;
        }
        check(&w);
    }
    close_all(&w);
    repl_stream_release(&w.s);
    assert_int_equal(w.s.memory, 0);
    mem_free(w.bytes);
}

/* A cursor that waits at the very end of a block, behind which a whole block is staged and taken back. */
static void test_take_back_a_block(void **state)
{
    (void)state;
    static char data[300u << 10];
    struct repl_stream s;
    struct repl_stream_cursor c = {0};
    repl_stream_init(&s, ID_A, 7);
    repl_stream_append(&s, bytes_of(data, 1));
    repl_stream_publish(&s);
    repl_stream_open(&s, &c, 8);
    for (u32 i = 0; i < 3; i++) {
        memset(data, 'a' + (int)i, sizeof data);
        repl_stream_append(&s, bytes_of(data, sizeof data));
        assert_int_equal(repl_stream_peek(&s, &c).n, 0);
        repl_stream_take_back(&s);
        assert_int_equal(s.staged, 0);
        assert_int_equal(repl_stream_peek(&s, &c).n, 0);
    }
    repl_stream_append(&s, BYTES_LIT("here"));
    repl_stream_publish(&s);
    assert_true(bytes_eq(repl_stream_peek(&s, &c), BYTES_LIT("here")));
    repl_stream_move(&s, &c, 4);
    assert_int_equal(c.at, s.end);
    repl_stream_trim(&s, 0);
    assert_int_equal(repl_stream_peek(&s, &c).n, 0);
    repl_stream_close(&s, &c);
    repl_stream_trim(&s, 0);
    assert_int_equal(s.begin, s.end);
    assert_int_equal(s.memory, 0);
    repl_stream_release(&s);
}

static bool goes_on(const struct repl_stream *s, const char *id, u64 position)
{
    return repl_stream_continues(s, bytes_str(id), position);
}

static void test_names(void **state)
{
    (void)state;
    struct repl_stream s;
    repl_stream_init(&s, ID_A, 100);
    assert_true(goes_on(&s, ID_A, 100));
    assert_false(goes_on(&s, ID_A, 99));
    assert_false(goes_on(&s, ID_A, 101));
    assert_false(goes_on(&s, ID_B, 100));
    assert_false(goes_on(&s, REPL_NO_ID, 100));
    assert_false(goes_on(&s, "?", 100));
    repl_stream_append(&s, BYTES_LIT("0123456789"));
    assert_false(goes_on(&s, ID_A, 101));
    repl_stream_publish(&s);
    assert_true(goes_on(&s, ID_A, 110));

    repl_stream_rename(&s, ID_B);
    repl_stream_append(&s, BYTES_LIT("0123456789"));
    repl_stream_publish(&s);
    assert_string_equal(s.id, ID_B);
    assert_string_equal(s.id2, ID_A);
    assert_int_equal(s.id2_end, 110);
    assert_true(goes_on(&s, ID_A, 105));
    assert_true(goes_on(&s, ID_A, 110));
    assert_false(goes_on(&s, ID_A, 111)); /* it went on differently there */
    assert_true(goes_on(&s, ID_B, 105));
    assert_true(goes_on(&s, ID_B, 120));
    assert_true(goes_on(&s, "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB", 120));

    repl_stream_trim(&s, 0);
    assert_false(goes_on(&s, ID_B, 119));
    assert_false(goes_on(&s, ID_A, 110));
    assert_true(goes_on(&s, ID_B, 120));

    repl_stream_restart(&s, ID_C, 5);
    assert_true(goes_on(&s, ID_C, 5));
    assert_false(goes_on(&s, ID_B, 5));
    assert_int_equal(s.id2_end, -1);
    repl_stream_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_take_back_a_block),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
