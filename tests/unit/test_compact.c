/* compact and intset against arrays: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/rand.h"
#include "ds/compact.h"
#include "ds/intset.h"
#include "rounds.h"

#define ELEMENTS 40
#define TEXT_MAX 70000

static u64 rng = 1;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* Numbers of every width, what only looks like one, and strings around every boundary. */
static bytes random_text(char *to)
{
    static const char *const odd[] = {
        "", "0", "-", "-0", "007", "+7", "127", "-128", "128", "32767", "-32769", "2147483648",
        "9223372036854775807", "-9223372036854775808", "9223372036854775808"};
    static const u32 lengths[] = {10, 11, 12, 13, 238, 239, 240, 241, 255, 256, 66000};
    u32 n = below(8) ? below(20) : lengths[below(below(20) ? 10 : 11)];
    switch (below(4)) {
    case 0: return bytes_of(to, num_print_i64(to, (i64)(rand_next(&rng) >> below(64)) - (i64)below(300)));
    case 1: return bytes_str(odd[below(ARRAY_LEN(odd))]);
    default:
        for (u32 i = 0; i < n; i++) to[i] = (char)(below(2) ? '0' + (char)below(3) : (char)below(256));
        return bytes_of(to, n);
    }
}

static bytes text_of(const struct compact_slot *s)
{
    static char digits[4][NUM_I64_LEN];
    static u32 turn;
    return compact_text(s, digits[turn++ % 4]);
}

static void assert_text(const struct compact_slot *s, bytes want) { assert_true(bytes_eq(text_of(s), want)); }

struct model {
    bytes v[2][ELEMENTS];
    u32 at[ELEMENTS + 1]; /* offsets */
    u32 n;
    char *p;
};

static bytes own_text(void)
{
    static char buf[TEXT_MAX];
    bytes t = random_text(buf);
    char *copy = malloc(t.n + 1); /* exactly: ASan sees what reads beyond it */
    memcpy(copy, t.p, t.n);
    return bytes_of(realloc(copy, t.n ? t.n : 1), t.n);
}

static void model_make(struct model *m, bool pairs)
{
    *m = (struct model){.n = below(ELEMENTS)};
    for (u32 i = 0; i < m->n; i++) {
        struct compact_item a, b = {0}, *second = pairs ? &b : NULL;
        m->v[0][i] = own_text();
        m->v[1][i] = own_text();
        compact_item_text(&a, m->v[0][i]);
        compact_item_text(&b, m->v[1][i]);
        m->at[i + 1] = m->at[i] + compact_need(&a, second);
        m->p = realloc(m->p, m->at[i + 1]);
        assert_ptr_equal(compact_write(m->p + m->at[i], &a, second), m->p + m->at[i + 1]);
    }
}

static void model_free(struct model *m)
{
    for (u32 i = 0; i < m->n; i++) {
        free((void *)m->v[0][i].p);
        free((void *)m->v[1][i].p);
    }
    free(m->p);
}

static void check_find(const struct model *m, bool pairs, bytes name)
{
    struct compact_item it;
    u32 want = 0;
    while (want < m->n && !bytes_eq(m->v[0][want], name)) want++;
    compact_item_text(&it, name);
    const char *found = compact_find(m->p, m->p + m->at[m->n], pairs, &it);
    if (want == m->n) assert_null(found);
    else assert_ptr_equal(found, m->p + m->at[want]);
}

static void test_elements(void **state)
{
    (void)state;
    for (u32 round = 0; round < ROUNDS(4000); round++) {
        struct model m;
        bool pairs = below(2);
        model_make(&m, pairs);
        const char *p = m.p;
        for (u32 i = 0; i < m.n; i++) {
            struct compact_slot a, b;
            assert_ptr_equal(compact_skip(m.p, pairs, i), p);
            assert_ptr_equal(compact_next(p, pairs), m.p + m.at[i + 1]);
            p = pairs ? compact_read_pair(p, &a, &b) : compact_read(p, &a);
            assert_ptr_equal(p, m.p + m.at[i + 1]);
            assert_text(&a, m.v[0][i]);
            if (pairs) assert_text(&b, m.v[1][i]);
            check_find(&m, pairs, m.v[0][i]);
        }
        bytes other = own_text();
        check_find(&m, pairs, other);
        free((void *)other.p);
        u32 i = below(m.n + 1), at = m.at[i];
        struct compact_back back = {0};
        while (compact_prev(&back, m.p, at, pairs, &at)) assert_int_equal(at, m.at[--i]);
        assert_int_equal(i, 0);
        model_free(&m);
    }
}

/* What README and bench promise stands on these. */
static void test_sizes(void **state)
{
    (void)state;
    static const struct { const char *text; u32 single, half; } sizes[] = {
        {"item-1", 7, 6}, {"", 1, 0}, {"7", 2, 1}, {"77", 2, 1}, {"-128", 2, 1}, {"4000", 3, 2},
        {"70000", 5, 4}, {"1700000000000", 9, 9}, {"eleven chrs", 12, 11}, {"twelve chars", 13, 13},
    };
    for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
        struct compact_item it, empty;
        compact_item_text(&it, bytes_str(sizes[i].text));
        compact_item_text(&empty, (bytes){"", 0});
        assert_int_equal(compact_need(&it, NULL), sizes[i].single);
        assert_int_equal(compact_need(&it, &empty), 1 + sizes[i].half);
        assert_int_equal(compact_need(&empty, &it), 1 + sizes[i].half);
    }
}

/* Scores keep their bits. */
static void test_scores(void **state)
{
    (void)state;
    double odd[] = {0, -0.0, 1, -1, 0.5, 127, 128, -129, 32768, 2147483647, 2147483648, -2147483648.0,
                    1.0 / 0.0, -1.0 / 0.0, 1e300, 5e-324};
    for (u32 i = 0; i < ROUNDS(20000); i++) {
        struct compact_item name, it;
        struct compact_slot a, b;
        char buf[16];
        double score = (double)((i64)rand_next(&rng) >> below(64)) / (below(2) ? 1 : 8);
        if (i < ARRAY_LEN(odd)) score = odd[i];
        compact_item_text(&name, BYTES_LIT("m"));
        compact_item_score(&it, score);
        compact_write(buf, &name, &it);
        compact_read_pair(buf, &a, &b);
        double got = compact_score(&b);
        assert_memory_equal(&got, &score, sizeof got);
    }
}

static int int_cmp(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void test_intset(void **state)
{
    (void)state;
    for (u32 round = 0; round < ROUNDS(4000); round++) {
        char s[INTSET_HEAD + 8 * ELEMENTS];
        i64 v[ELEMENTS] = {0};
        u32 n = below(ELEMENTS), width = below(64), log = 0, index;
        for (u32 i = 0; i < n; i++) v[i] = (i64)rand_next(&rng) >> width;
        qsort(v, n, sizeof v[0], int_cmp);
        for (u32 i = 0; i < n; i++) { /* widened whenever one needs it */
            if (intset_log_of(v[i]) > log || i == 0) {
                if (i == 0) s[0] = 0;
                log = MAX(log, intset_log_of(v[i]));
                intset_widen(s, i, log);
            }
            intset_write(s, log, i, v[i]);
        }
        bytes set = bytes_of(s, n ? INTSET_HEAD + ((size_t)n << log) : 0);
        assert_int_equal(intset_count(set), n);
        for (u32 i = 0; i < n; i++) {
            assert_true(intset_at(set, i) == v[i]);
            assert_true(intset_find(set, v[i], &index) && v[index] == v[i]);
        }
        i64 other = (i64)rand_next(&rng) >> below(64);
        bool found = intset_find(set, other, &index);
        assert_int_equal(found, index < n && v[index] == other);
        assert_true(index == 0 || v[index - 1] < other);
        assert_true(index == n || v[index] >= other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_intset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
