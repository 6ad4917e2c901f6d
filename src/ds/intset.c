#include "ds/intset.h"

#include <string.h>

#include "base/alloc.h"

/* Index of the first value >= `value`. The end is tried first, because values often arrive in order. */
static u32 lower_bound(const struct intset *s, i64 value)
{
    u32 lo = 0, hi = intset_count(s);
    if (hi > 0 && s->v[hi - 1] < value) return hi;
    while (lo < hi) {
        u32 mid = lo + (hi - lo) / 2;
        if (s->v[mid] < value) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

static bool is_at(const struct intset *s, u32 at, i64 value)
{
    return at < intset_count(s) && s->v[at] == value;
}

void intset_free(struct intset *s) { mem_free(s); }

struct intset *intset_copy(const struct intset *s)
{
    if (!s) return NULL;
    struct intset *copy = mem_alloc(sizeof *copy + s->n * sizeof s->v[0]);
    memcpy(copy, s, sizeof *copy + s->n * sizeof s->v[0]);
    copy->cap = s->n;
    return copy;
}

bool intset_has(const struct intset *s, i64 value) { return is_at(s, lower_bound(s, value), value); }

static void intset_resize(struct intset **s, u32 cap)
{
    u32 n = intset_count(*s);
    *s = mem_realloc(*s, sizeof **s + cap * sizeof (*s)->v[0]);
    (*s)->n = n;
    (*s)->cap = cap;
}

void intset_reserve(struct intset **s, u32 n)
{
    if (n > (*s ? (*s)->cap : 0)) intset_resize(s, n);
}

bool intset_add(struct intset **s, i64 value)
{
    u32 at = lower_bound(*s, value), n = intset_count(*s);
    if (is_at(*s, at, value)) return false;
    if (!*s || n == (*s)->cap) intset_resize(s, n < 8 ? n + 2 : n + n / 4);
    i64 *v = (*s)->v;
    memmove(v + at + 1, v + at, (n - at) * sizeof *v);
    v[at] = value;
    (*s)->n++;
    return true;
}

bool intset_remove(struct intset **s, i64 value)
{
    u32 at = lower_bound(*s, value);
    if (!is_at(*s, at, value)) return false;
    u32 n = --(*s)->n;
    i64 *v = (*s)->v;
    memmove(v + at, v + at + 1, (n - at) * sizeof *v);
    if (n && n <= (*s)->cap / 2) intset_resize(s, n);
    return true;
}
