/* base/num: what Redis accepts and prints at the edges. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "base/rand.h"

static void i64_is(const char *text, i64 want)
{
    i64 v = 0;
    assert_true(num_parse_i64(bytes_str(text), &v));
    assert_int_equal(v, want);

    char buf[NUM_I64_LEN];
    assert_int_equal(num_print_i64(buf, want), strlen(text));
    assert_string_equal(buf, text);
}

static void test_i64(void **state)
{
    (void)state;
    i64_is("0", 0);
    i64_is("7", 7);
    i64_is("-1", -1);
    i64_is("10", 10);
    i64_is("99", 99);
    i64_is("100", 100);
    i64_is("999999999999999999", 999999999999999999);
    i64_is("1000000000000000000", 1000000000000000000);
    i64_is("9223372036854775807", INT64_MAX);
    i64_is("-9223372036854775808", INT64_MIN);
    i64_is("-9223372036854775807", -INT64_MAX);

    static const char *const bad[] = {
        "", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1a", "a", "1.0", "0x1", "--1",
        "9223372036854775808", "-9223372036854775809", "18446744073709551615",
        "18446744073709551616", "99999999999999999999", "100000000000000000000",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        i64 v;
        assert_false(num_parse_i64(bytes_str(bad[i]), &v));
    }
    i64 v;
    assert_false(num_parse_i64(bytes_of("1\0", 2), &v));
}

static void test_double_accepts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double want;
    } good[] = {
        {"0", 0},          {"1.", 1},         {".5", 0.5},      {"-1.5", -1.5},
        {"+5", 5},         {"1e5", 1e5},      {"0x10", 16},     {"0x1p3", 8},
        {"inf", INFINITY}, {"-inf", -INFINITY}, {"+inf", INFINITY}, {"infinity", INFINITY},
        {"007", 7},        {"3.1", 3.1},      {"1e-320", 1e-320},
        {"123456789012345", 123456789012345.0},
        {"0.12345678901234", 0.12345678901234},
        {"9007199254740993", 9007199254740992.0},
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        double v = -7;
        assert_true(num_parse_double(bytes_str(good[i].text), &v));
        assert_true(v == good[i].want);
    }
    double v;
    assert_true(num_parse_double(bytes_str("-0"), &v));
    assert_true(v == 0 && signbit(v));
}

static void test_double_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", " 1", "\t1", "1 ", ".", "-", "-.", "5e", "1..2", "1.2.3", "nan", "-nan", "nan(1)",
        "1e400", "-1e400", "1e-400", "1_0", "abc", "--1", "0x",
    };
    double v;
    long double ld;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(num_parse_double(bytes_str(bad[i]), &v));
        if (strstr(bad[i], "e") == NULL || strstr(bad[i], "400") == NULL)
            assert_false(num_parse_long_double(bytes_str(bad[i]), &ld));
    }
    assert_false(num_parse_double(bytes_of("1\0", 2), &v));
    assert_false(num_parse_double(bytes_of("1.5\0", 4), &v));
    assert_false(num_parse_long_double(bytes_of("1\0", 2), &ld));
    assert_true(num_parse_long_double(bytes_str("1e400"), &ld));
    assert_false(num_parse_long_double(bytes_str("1e5000"), &ld));
}

/* The shortcut for short decimals must agree with strtod in every bit. */
static void test_double_agrees_with_libc(void **state)
{
    (void)state;
    u64 rng = 1;
    for (int i = 0; i < 200000; i++) {
        char text[64];
        u64 whole = rand_next(&rng) >> rand_below(&rng, 64);
        int decimals = (int)rand_below(&rng, 12);
        snprintf(text, sizeof(text), "%s%llu.%0*llu", rand_below(&rng, 2) ? "-" : "",
                 (unsigned long long)(whole % 100000000), decimals,
                 (unsigned long long)rand_below(&rng, 100000));
        double v, want = strtod(text, NULL);
        assert_true(num_parse_double(bytes_str(text), &v));
        assert_memory_equal(&v, &want, sizeof(v));
    }
}

static void test_long_texts(void **state)
{
    (void)state;
    static char text[NUM_DOUBLE_LEN + 1];
    memset(text, '0', sizeof(text));
    double v;
    long double ld;
    assert_true(num_parse_double(bytes_of(text, sizeof(text)), &v));
    assert_true(v == 0);
    assert_true(num_parse_long_double(bytes_of(text, NUM_DOUBLE_LEN - 1), &ld));
    assert_false(num_parse_long_double(bytes_of(text, NUM_DOUBLE_LEN), &ld));
}

static void prints(double v, const char *want)
{
    char buf[64];
    assert_int_equal(num_print_double(buf, v), strlen(want));
    assert_string_equal(buf, want);
}

static void test_print_double(void **state)
{
    (void)state;
    prints(0, "0");
    prints(-0.0, "-0");
    prints(1, "1");
    prints(-17, "-17");
    prints(1.5, "1.5");
    prints(3.1, "3.1");
    prints(-1e-5, "-0.00001");
    prints(4503599627370495, "4503599627370495");
    prints(4503599627370497, "4503599627370497");
    prints(1e16, "10000000000000000");
    prints(1e17, "100000000000000000");
    prints(1e21, "1e+21");
    prints(123456789012345678, "123456789012345680");
    prints(1e19, "1e+19");
    prints(1.25e19, "1.25e+19");
    prints(12345678901234567e3, "12345678901234567000");
    prints(2.8e301, "2.8e+301");
    prints(1e-7, "1e-7");
    prints(-1.5e-8, "-1.5e-8");
    prints(0.000001, "0.000001");
    prints(5e-324, "5e-324");
    prints(DBL_MAX, "1.7976931348623157e+308");
    prints(DBL_MIN, "2.2250738585072014e-308");
    prints(1e-320, "1e-320");
    prints(INFINITY, "inf");
    prints(-INFINITY, "-inf");
    prints(NAN, "nan");
}

static size_t significant(const char *text)
{
    size_t n = 0;
    for (; *text && *text != 'e'; text++) n += *text != '.' && *text != '-' && (n || *text != '0');
    return n;
}

/* Any double reads back as itself. Where the 15 digits of %.15g suffice there are hardly ever more. */
static void test_print_shortest(void **state)
{
    (void)state;
    u64 rng = 11;
    int enough = 0, more = 0;
    for (int i = 0; i < 200000; i++) {
        char buf[64], plain[64];
        u64 bits = rand_next(&rng);
        double v, back;
        if (i % 2) v = (double)(bits % 2000000000) / (bits & 1 ? 1000 : -10000);
        else memcpy(&v, &bits, sizeof v);
        if (!isfinite(v) || v == 0) continue;
        num_print_shortest(buf, v);
        assert_true(strtod(buf, NULL) == v);
        snprintf(plain, sizeof plain, "%.15g", v);
        back = strtod(plain, NULL);
        if (back != v || fabs(v) >= 1e15) continue;
        enough++;
        more += significant(buf) > significant(plain);
    }
    assert_true(enough > 90000);
    assert_true(more < enough / 200);
}

static void prints_long(const char *text, const char *want)
{
    static char buf[NUM_DOUBLE_LEN];
    long double v;
    assert_true(num_parse_long_double(bytes_str(text), &v));
    assert_int_equal(num_print_long_double(buf, v), strlen(want));
    assert_string_equal(buf, want);
}

static void test_print_long_double(void **state)
{
    (void)state;
    prints_long("0", "0");
    prints_long("-0", "0");
    prints_long("-1e-30", "0");
    prints_long("3.1", "3.1");
    prints_long("10.50", "10.5");
    prints_long("100", "100");
    prints_long("-1e-5", "-0.00001");
    prints_long("1e21", "1000000000000000000000");
    prints_long("9007199254740993", "9007199254740993");
    prints_long("0x10", "16");
    prints_long("inf", "inf");
    prints_long("-inf", "-inf");

    static char buf[NUM_DOUBLE_LEN];
    long double v;
    assert_true(num_parse_long_double(bytes_str("-1.1e4932"), &v));
    assert_int_equal(num_print_long_double(buf, v), 4934);
}

static void test_memory(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        u64 want;
    } good[] = {
        {"", 0},       {"kb", 0},           {"0", 0},      {"01", 1},       {"1b", 1},
        {"1K", 1000},  {"1kb", 1024},       {"2m", 2000000}, {"2MB", 2 << 20},
        {"3g", 3000000000}, {"3Gb", 3221225472}, {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        u64 v = 7;
        assert_true(num_parse_memory(bytes_str(good[i].text), &v));
        assert_true(v == good[i].want);
    }
    static const char *const bad[] = {
        "-1", "+1", "1x", "1 kb", "1kbb", " 1", "1.5gb", "18446744073709551616", "20000000000gb",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        u64 v;
        assert_false(num_parse_memory(bytes_str(bad[i]), &v));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_i64),
        cmocka_unit_test(test_double_accepts),
        cmocka_unit_test(test_double_refuses),
        cmocka_unit_test(test_double_agrees_with_libc),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_print_double),
        cmocka_unit_test(test_print_shortest),
        cmocka_unit_test(test_print_long_double),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
