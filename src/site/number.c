#include "site/number.h"

#include <math.h>
#include <stdio.h>

#include "base/num.h"

#define REAL_DIGITS 21 /* as many as an 80-bit long double has: what is read is what was written */
#define REAL_TEXT 64

bool site_num_parse(bytes text, struct site_num *out)
{
    *out = (struct site_num){0};
    if (num_parse_i64(text, &out->i)) return true;
    out->real = true;
    return num_parse_long_double(text, &out->f);
}

struct site_num site_num_of(i64 i) { return (struct site_num){.i = i}; }

long double site_num_real(struct site_num n) { return n.real ? n.f : (long double)n.i; }

static struct site_num num_of_real(long double f)
{
    return (struct site_num){.real = true, .f = isnan(f) ? 0 : f};
}

struct site_num site_num_add(struct site_num a, struct site_num b)
{
    struct site_num sum = {0};
    if (!a.real && !b.real && !__builtin_add_overflow(a.i, b.i, &sum.i)) return sum;
    return num_of_real(site_num_real(a) + site_num_real(b));
}

struct site_num site_num_sub(struct site_num a, struct site_num b)
{
    struct site_num rest = {0};
    if (!a.real && !b.real && !__builtin_sub_overflow(a.i, b.i, &rest.i)) return rest;
    return num_of_real(site_num_real(a) - site_num_real(b));
}

void site_num_print(struct buf *to, struct site_num n)
{
    to->n += n.real ? num_print_long_double(buf_reserve(to, NUM_DOUBLE_LEN), n.f)
                    : num_print_i64(buf_reserve(to, NUM_I64_LEN), n.i);
}

/* A byte: 0 and then a zigzag varint, or the length of the text of a real number. */
char *site_write_num(char *p, struct site_num n)
{
    if (!n.real) {
        *p++ = 0;
        return site_write_varint(p, n.i < 0 ? ~((u64)n.i << 1) : (u64)n.i << 1);
    }
    int len = snprintf(p + 1, REAL_TEXT, "%.*Lg", REAL_DIGITS, n.f);
    *p = (char)len;
    return p + 1 + len;
}

void site_put_num(struct buf *to, struct site_num n)
{
    char *p = buf_reserve(to, SITE_NUM_MAX);
    to->n += (size_t)(site_write_num(p, n) - p);
}

struct site_num site_get_num(struct site_reader *r)
{
    struct site_num n = {0};
    u8 len = site_get_u8(r);
    if (len == 0) {
        u64 v = site_get_varint(r);
        n.i = (i64)(v >> 1) ^ -(i64)(v & 1);
        return n;
    }
    n.real = true;
    if (len >= REAL_TEXT || site_left(r) < len || !num_parse_long_double(bytes_of(r->p, len), &n.f))
        r->bad = true;
    else r->p += len;
    return n;
}
