#include "ds/intset.h"

u32 intset_log_of(i64 value)
{
    if (value == (int8_t)value) return 0;
    if (value == (int16_t)value) return 1;
    return value == (i32)value ? 2 : 3;
}

static inline i64 intset_read(const char *s, u32 log, u32 index)
{
    const char *p = s + INTSET_HEAD + ((size_t)index << log);
    switch (log) {
    case 0: return (int8_t)*p;
    case 1: {
        int16_t v;
        memcpy(&v, p, 2);
        return v;
    }
    case 2: {
        i32 v;
        memcpy(&v, p, 4);
        return v;
    }
    default: {
        i64 v;
        memcpy(&v, p, 8);
        return v;
    }
    }
}

i64 intset_at(bytes s, u32 index) { return intset_read(s.p, intset_log(s), index); }

/* The end is tried first, because values often arrive in order. */
bool intset_find(bytes s, i64 value, u32 *index)
{
    u32 lo = 0, hi = intset_count(s), log = intset_log(s);
    if (hi > 0 && intset_read(s.p, log, hi - 1) < value) {
        *index = hi;
        return false;
    }
    while (lo < hi) {
        u32 mid = lo + (hi - lo) / 2;
        if (intset_read(s.p, log, mid) < value) lo = mid + 1;
        else hi = mid;
    }
    *index = lo;
    return lo < intset_count(s) && intset_read(s.p, log, lo) == value;
}

void intset_write(char *s, u32 log, u32 index, i64 value)
{
    memcpy(s + INTSET_HEAD + ((size_t)index << log), &value, (size_t)1 << log); /* little endian */
}

/* From the last on, so that none is overwritten before it is read. */
void intset_widen(char *s, u32 count, u32 log)
{
    u32 old = (u8)s[0];
    for (u32 i = count; i-- > 0;) intset_write(s, log, i, intset_read(s, old, i));
    s[0] = (char)log;
}
