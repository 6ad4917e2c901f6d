/* Numbers in text, exactly as Redis reads and writes them.
 *
 * Integers are on the path of every INCR, SET and reply, so they are read and
 * printed by hand. Floating point goes to libc, which rounds correctly; short
 * plain decimals, the usual scores, take an exact shortcut. The process keeps
 * the C locale for numbers, so the point is always '.'. */
#include "base/num.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"

/* -- integers --------------------------------------------------------------- */

/* 1-20 digits without sign or leading zero ("0" itself is fine). */
static bool parse_digits(const char *p, size_t n, u64 *out)
{
    if (n == 0 || n > 20) return false;
    u64 v = (u64)(u8)p[0] - '0';
    if (v > 9 || (v == 0 && n > 1)) return false;

    size_t safe = n < 19 ? n : 19; /* 19 digits never overflow a u64 */
    for (size_t i = 1; i < safe; i++) {
        u32 d = (u32)(u8)p[i] - '0';
        if (d > 9) return false;
        v = v * 10 + d;
    }
    if (n == 20) {
        u32 d = (u32)(u8)p[19] - '0';
        if (d > 9 || __builtin_mul_overflow(v, (u64)10, &v) ||
            __builtin_add_overflow(v, (u64)d, &v))
            return false;
    }
    *out = v;
    return true;
}

bool num_parse_i64(bytes s, i64 *out)
{
    u64 v;
    if (s.n == 0) return false;
    if (s.p[0] != '-') {
        if (!parse_digits(s.p, s.n, &v) || v > INT64_MAX) return false;
        *out = (i64)v;
        return true;
    }
    /* "-0" is not how zero is printed */
    if (!parse_digits(s.p + 1, s.n - 1, &v) || v == 0 || v > (u64)INT64_MAX + 1) return false;
    *out = (i64)(0 - v);
    return true;
}

static u32 count_digits(u64 u)
{
    static const u64 power[] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000,
        100000000000, 1000000000000, 10000000000000, 100000000000000, 1000000000000000,
        10000000000000000, 100000000000000000, 1000000000000000000, 10000000000000000000u,
    };
    u |= 1; /* 0 has one digit too; no power of ten above 1 is odd, so the comparison below is unaffected */
    u32 n = (u32)(64 - __builtin_clzll(u)) * 1233 >> 12; /* 1233/4096 is about log10(2) */
    return n + (u >= power[n]);
}

static inline char *print_pair(char *end, u32 n)
{
    static const char pairs[201] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    return memcpy(end - 2, pairs + 2 * n, 2);
}

/* Counts the digits first, so that each is written to its final position: copying them from a scratch buffer
 * would stall on store forwarding. */
size_t num_print_i64(char *buf, i64 v)
{
    u64 u = v < 0 ? 0 - (u64)v : (u64)v;
    size_t n = (v < 0) + count_digits(u);
    char *p = buf + n;

    *p = '\0';
    if (v < 0) buf[0] = '-';
    for (; u > UINT32_MAX; u /= 100) p = print_pair(p, (u32)(u % 100));
    u32 w = (u32)u; /* cheaper to divide */
    for (; w >= 100; w /= 100) p = print_pair(p, w % 100);
    if (w >= 10) print_pair(p, w);
    else p[-1] = (char)('0' + w);
    return n;
}

/* -- floating point --------------------------------------------------------- */

/* [-]digits[.digits] with at most 15 significant digits: the digits fit a
 * double exactly, and so does the power of ten, so one division rounds once,
 * which is what strtod would give. */
static bool parse_short_decimal(bytes s, double *out)
{
    static const double pow10[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    bool negative = s.n && s.p[0] == '-';
    size_t i = negative, digits = 0, decimals = 0;
    bool point = false;
    u64 v = 0;

    if (s.n - negative > 16) return false;
    for (; i < s.n; i++) {
        u32 d = (u32)(u8)s.p[i] - '0';
        if (d <= 9) {
            v = v * 10 + d;
            digits++;
            decimals += point;
        } else if (s.p[i] == '.' && !point) {
            point = true;
        } else {
            return false;
        }
    }
    if (digits == 0 || digits > 15) return false;
    double d = (double)v / pow10[decimals];
    *out = negative ? -d : d;
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Redis refuses overflow and underflow to zero, and accepts denormals. */
static bool out_of_range(int error, bool infinite, bool zero)
{
    return error == ERANGE && (infinite || zero);
}

static bool parse_double_text(const char *text, size_t n, double *out)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if ((size_t)(end - text) != n || isnan(v)) return false;
    if (out_of_range(errno, isinf(v), v == 0)) return false;
    *out = v;
    return true;
}

bool num_parse_double(bytes s, double *out)
{
    char local[128];

    if (parse_short_decimal(s, out)) return true;
    if (s.n == 0 || is_space(s.p[0])) return false;
    char *text = s.n < sizeof(local) ? local : mem_alloc(s.n + 1);
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    bool ok = parse_double_text(text, s.n, out);
    if (text != local) mem_free(text);
    return ok;
}

bool num_parse_long_double(bytes s, long double *out)
{
    char text[NUM_DOUBLE_LEN]; /* Redis refuses longer ones */
    char *end;

    if (s.n == 0 || s.n >= sizeof(text) || is_space(s.p[0])) return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    errno = 0;
    long double v = strtold(text, &end);
    if ((size_t)(end - text) != s.n || isnan(v)) return false;
    if (out_of_range(errno, isinf(v), v == 0)) return false;
    *out = v;
    return true;
}

size_t num_print_double(char *buf, double v)
{
    const double limit = (double)(INT64_MAX / 2);
    if (v >= -limit && v <= limit && v != 0 && v == (double)(i64)v) return num_print_i64(buf, (i64)v);
    if (v != 0 && isfinite(v)) return num_print_shortest(buf, v);
    if (isnan(v)) v = fabs(v); /* never "-nan" */
    return (size_t)snprintf(buf, 64, "%g", v);
}

size_t num_print_packed_score(char *buf, double v) { return num_print_double(buf, v == 0 ? 0 : v); }

size_t num_print_long_double(char *buf, long double v)
{
    size_t n = (size_t)snprintf(buf, NUM_DOUBLE_LEN, "%.17Lf", v);
    if (isfinite(v)) { /* so there is a point */
        while (buf[n - 1] == '0') n--;
        if (buf[n - 1] == '.') n--;
        if (n == 2 && buf[0] == '-' && buf[1] == '0') {
            buf[0] = '0';
            n = 1;
        }
        buf[n] = '\0';
    }
    return n;
}

/* -- sizes ------------------------------------------------------------------ */

/* Redis reads missing digits as 0 ("kb"), and lets a large value wrap around. We do the first and refuse the
 * second. */
bool num_parse_memory(bytes s, u64 *out)
{
    static const struct {
        const char *name;
        u64 factor;
    } units[] = {
        {"", 1},          {"b", 1},
        {"k", 1000},      {"kb", 1024},
        {"m", 1000000},   {"mb", 1024 * 1024},
        {"g", 1000000000}, {"gb", 1024 * 1024 * 1024},
    };
    u64 v = 0;
    size_t i = 0;

    for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++) {
        u64 d = (u64)(s.p[i] - '0');
        if (__builtin_mul_overflow(v, (u64)10, &v) || __builtin_add_overflow(v, d, &v))
            return false;
    }
    bytes unit = bytes_of(s.p + i, s.n - i);
    for (size_t u = 0; u < ARRAY_LEN(units); u++)
        if (bytes_is(unit, units[u].name))
            return !__builtin_mul_overflow(v, units[u].factor, out);
    return false;
}
