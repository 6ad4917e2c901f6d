#include "ds/compact.h"

#include "base/err.h"

#define CODE_DOUBLE 8u /* a string of eight bytes, if it is a score */
#define WIDE_LONG 0xffu
#define INT_DIGITS 20

const u8 compact_code_bytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 4, 0};

static inline u32 code_first(const char *at) { return (u8)*at >> 4; }

/* -- items to be written -------------------------------------------------------------------------- */

/* Logarithm of the bytes that an integer takes. */
static inline u32 int_width_log(i64 v)
{
    if (v == (int8_t)v) return 0;
    if (v == (int16_t)v) return 1;
    return v == (i32)v ? 2 : 3;
}

static void compact_item_int(struct compact_item *it, i64 v, u32 log)
{
    it->number = v; /* little endian, so that its first bytes are the short form */
    it->p = (const char *)&it->number;
    it->n = 1u << log;
    it->code = (u8)(COMPACT_INT + log); /* 15 for eight bytes: COMPACT_WIDE */
    it->wide = (u8)(COMPACT_WIDE_INT + log);
}

static inline bool may_be_int(bytes v)
{
    return v.n > 1 && v.n <= INT_DIGITS && ((u8)(v.p[0] - '0') < 10 || v.p[0] == '-');
}

void compact_item_text(struct compact_item *it, bytes v)
{
    if (may_be_int(v) && num_parse_i64(v, &it->number)) {
        u32 log = int_width_log(it->number);
        if (1u << log < v.n) {
            compact_item_int(it, it->number, log);
            return;
        }
    }
    it->p = v.p;
    it->n = (u32)v.n;
    it->code = (u8)(v.n < COMPACT_INT ? v.n : COMPACT_WIDE);
    it->wide = (u8)(v.n < COMPACT_WIDE_INT ? v.n : WIDE_LONG);
}

void compact_item_score(struct compact_item *it, double score)
{
    if (score >= INT32_MIN && score <= INT32_MAX && score == (double)(i32)score &&
        !(score == 0 && __builtin_signbit(score))) {
        compact_item_int(it, (i32)score, int_width_log((i32)score));
        return;
    }
    memcpy(&it->number, &score, sizeof score);
    it->p = (const char *)&it->number;
    it->n = sizeof score;
    it->code = it->wide = CODE_DOUBLE;
}

static inline u32 wide_size(const struct compact_item *it) { return it->wide == WIDE_LONG ? 5 : 1; }

static inline u32 half_need(const struct compact_item *it)
{
    return it->n + (UNLIKELY(it->code == COMPACT_WIDE) ? wide_size(it) : 0);
}

u32 compact_need(const struct compact_item *first, const struct compact_item *second)
{
    return second ? 1 + half_need(first) + half_need(second) : wide_size(first) + first->n;
}

static inline char *wide_write(char *to, const struct compact_item *it)
{
    *to++ = (char)it->wide;
    if (it->wide != WIDE_LONG) return to;
    memcpy(to, &it->n, 4);
    return to + 4;
}

static inline char *payload_write(char *to, const struct compact_item *it)
{
    if (it->n) memcpy(to, it->p, it->n);
    return to + it->n;
}

char *compact_write(char *to, const struct compact_item *first, const struct compact_item *second)
{
    if (!second) return payload_write(wide_write(to, first), first);
    *to++ = (char)(first->code << 4 | second->code);
    if (first->code == COMPACT_WIDE) to = wide_write(to, first);
    to = payload_write(to, first);
    if (second->code == COMPACT_WIDE) to = wide_write(to, second);
    return payload_write(to, second);
}

/* -- reading ------------------------------------------------------------------------------------- */

const char *compact_read_wide(const char *at, struct compact_slot *slot)
{
    u8 wide = (u8)*at++;
    slot->is_int = false;
    slot->n = wide;
    if (wide >= COMPACT_WIDE_INT) {
        if (wide == WIDE_LONG) {
            memcpy(&slot->n, at, 4);
            at += 4;
        } else {
            slot->is_int = true;
            slot->n = 1u << (wide - COMPACT_WIDE_INT);
        }
    }
    slot->p = at;
    return at + slot->n;
}

/* Whether these bytes are the item's. Names often have their beginning in common, so the end is looked at
 * first. */
static inline bool payload_is(const char *at, const struct compact_item *it)
{
    return it->n == 0 || (at[it->n - 1] == it->p[it->n - 1] && memcmp(at, it->p, it->n - 1) == 0);
}

/* Whether the item with a wide head at `at` is this one. */
static inline bool wide_is(const char *at, const struct compact_item *it)
{
    if ((u8)*at++ != it->wide) return false;
    if (it->wide == WIDE_LONG) {
        if (memcmp(at, &it->n, 4) != 0) return false;
        at += 4;
    }
    return payload_is(at, it);
}

static const char *single_find(const char *at, const char *end, const struct compact_item *it)
{
    for (; at < end; at = compact_next(at, false))
        if ((u8)*at == it->wide && wide_is(at, it)) return at;
    return NULL;
}

static const char *pair_find(const char *at, const char *end, const struct compact_item *it)
{
    for (; at < end; at = compact_next(at, true)) {
        if (code_first(at) != it->code) continue;
        if (UNLIKELY(it->code == COMPACT_WIDE) ? wide_is(at + 1, it) : payload_is(at + 1, it)) return at;
    }
    return NULL;
}

const char *compact_find(const char *at, const char *end, bool pairs, const struct compact_item *it)
{
    return pairs ? pair_find(at, end, it) : single_find(at, end, it);
}

i64 compact_int(const struct compact_slot *s)
{
    switch (s->n) {
    case 1: return (int8_t)*s->p;
    case 2: {
        int16_t v;
        memcpy(&v, s->p, 2);
        return v;
    }
    case 4: {
        i32 v;
        memcpy(&v, s->p, 4);
        return v;
    }
    default: {
        i64 v;
        memcpy(&v, s->p, 8);
        return v;
    }
    }
}

double compact_score(const struct compact_slot *s)
{
    if (s->is_int) return (double)compact_int(s);
    double score;
    memcpy(&score, s->p, sizeof score);
    return score;
}

bool compact_prev(struct compact_back *b, const char *start, u32 before, bool pairs, u32 *at)
{
    if (b->n == 0) {
        for (const char *p = start; p < start + before; p = compact_next(p, pairs)) {
            b->at[b->top++ % COMPACT_BACK] = (u32)(p - start);
            b->n++;
        }
        b->n = MIN(b->n, COMPACT_BACK);
    }
    if (b->n == 0) return false;
    b->n--;
    *at = b->at[--b->top % COMPACT_BACK];
    return true;
}
