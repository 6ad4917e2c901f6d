/* glob_match: Redis's pattern language, its quirks, and that many stars stay cheap. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/glob.h"
#include "base/rand.h"

struct example {
    const char *pattern, *s;
    bool matches;
};

static void check_all(const struct example *e, size_t n, bool ignore_case)
{
    for (size_t i = 0; i < n; i++) {
        bool got = glob_match(bytes_str(e[i].pattern), bytes_str(e[i].s), ignore_case);
        if (got != e[i].matches)
            fail_msg("\"%s\" on \"%s\": %d expected", e[i].pattern, e[i].s, e[i].matches);
    }
}

static void test_plain(void **state)
{
    (void)state;
    static const struct example e[] = {
        {"", "", true},          {"", "a", false},        {"a", "", false},
        {"abc", "abc", true},    {"abc", "abcd", false},  {"abcd", "abc", false},
        {"h?llo", "hello", true},{"h?llo", "hllo", false},{"?", "a", true},
        {"*", "a", true},        {"*", "abc", true},      {"***", "abc", true},
        {"a*", "a", true},       {"a**", "a", true},      {"*a", "bca", true},
        {"a*c", "abbc", true},   {"a*c", "abbd", false},  {"*b*d*", "abcde", true},
        {"a*b*c", "aXbYbZc", true}, {"*aab", "aaaab", true}, {"abc", "ABC", false},
        {"h\\*llo", "h*llo", true}, {"h\\*llo", "hello", false}, {"\\\\", "\\", true},
    };
    check_all(e, ARRAY_LEN(e), false);
}

static void test_classes(void **state)
{
    (void)state;
    static const struct example e[] = {
        {"[abc]", "b", true},    {"[abc]", "d", false},   {"[^abc]", "d", true},
        {"[^abc]", "b", false},  {"[a-c]x", "bx", true},  {"[c-a]x", "bx", true},
        {"[a-c]", "d", false},   {"[\\]]", "]", true},    {"[\\-a]", "-", true},
        {"[a-c-e]", "-", true},  {"*[0-9]", "key7", true},
    };
    check_all(e, ARRAY_LEN(e), false);
}

/* Each of these was asked of redis-server 7.0.15. */
static void test_quirks(void **state)
{
    (void)state;
    static const struct example e[] = {
        {"*", "", false},        {"**", "", false},       /* no star matches the empty string */
        {"[abc", "a", true},     {"x[^", "xy", true},     /* an open class ends with the pattern */
        {"[", "[", false},       {"[]", "]", false},      {"[]a]", "a]", false},
        {"[^]", "a", true},      {"[a-]", "b", false},    {"[a-]", "_", true},
        {"[a-]x", "_", true},    {"[\\", "\\", true},     {"a\\", "a\\", true},
        {"[\x7f-\xff]", "a", true}, {"[a-\xff]", "\x80", false}, /* bytes are signed */
    };
    check_all(e, ARRAY_LEN(e), false);
}

static void test_ignore_case(void **state)
{
    (void)state;
    static const struct example e[] = {
        {"ABC", "abc", true},    {"a*C", "AxxC", true},   {"[A-C]x", "bX", true},
        {"[abc]", "B", true},    {"\\A", "a", true},
        {"[\\A]", "a", false},   /* an escaped byte in a class keeps its case */
        {"[a-Z]", "b", false},   /* put in order first, lowered then: an empty range */
        {"[Z-a]", "z", false},
    };
    check_all(e, ARRAY_LEN(e), true);
}

static void test_binary(void **state)
{
    (void)state;
    assert_true(glob_match(bytes_of("a\0*", 3), bytes_of("a\0bc", 4), false));
    assert_false(glob_match(bytes_of("a\0", 2), bytes_of("a", 1), false));
    assert_true(glob_match(bytes_of("[\0]", 3), bytes_of("\0", 1), false));
}

/* The plain recursive definition, for patterns of letters, '?' and '*' only. */
static bool naive(bytes p, bytes s)
{
    if (p.n == 0) return s.n == 0;
    bytes rest = bytes_of(p.p + 1, p.n - 1);
    if (p.p[0] == '*') {
        for (size_t i = 0; i <= s.n; i++)
            if (naive(rest, bytes_of(s.p + i, s.n - i))) return true;
        return false;
    }
    return s.n > 0 && (p.p[0] == '?' || p.p[0] == s.p[0]) &&
           naive(rest, bytes_of(s.p + 1, s.n - 1));
}

static void test_against_definition(void **state)
{
    (void)state;
    u64 rng = 1;
    for (int round = 0; round < 200000; round++) {
        char p[8], s[10];
        size_t pn = rand_below(&rng, sizeof(p) + 1), sn = 1 + rand_below(&rng, sizeof(s));
        for (size_t i = 0; i < pn; i++) p[i] = "ab?**"[rand_below(&rng, 5)];
        for (size_t i = 0; i < sn; i++) s[i] = "ab"[rand_below(&rng, 2)];
        bytes pattern = bytes_of(p, pn), text = bytes_of(s, sn);
        assert_int_equal(glob_match(pattern, text, false), naive(pattern, text));
    }
}

/* With a retry per star this would outlast the universe. */
static void test_many_stars(void **state)
{
    (void)state;
    enum { STARS = 2000, LENGTH = 20000 };
    char *p = mem_alloc(2 * STARS + 1), *s = mem_alloc(LENGTH);
    for (int i = 0; i < STARS; i++) memcpy(p + 2 * i, "a*", 2);
    p[2 * STARS] = 'b';
    memset(s, 'a', LENGTH);
    assert_false(glob_match(bytes_of(p, 2 * STARS + 1), bytes_of(s, LENGTH), false));
    s[LENGTH - 1] = 'b';
    assert_true(glob_match(bytes_of(p, 2 * STARS + 1), bytes_of(s, LENGTH), false));
    mem_free(p);
    mem_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_quirks),
        cmocka_unit_test(test_ignore_case),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_many_stars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
