#include "ds/intset.h"

#include <string.h>

#include "base/alloc.h"

/* Index of the first value that is not below the wanted one. */
static u32 lower_bound(const struct intset *s, i64 value)
{
    u32 lo = 0, hi = s->n;
    while (lo < hi) {
        u32 mid = lo + (hi - lo) / 2;
        if (s->v[mid] < value) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

void intset_release(struct intset *s)
{
    mem_free(s->v);
    *s = (struct intset){0};
}

void intset_copy(struct intset *to, const struct intset *from)
{
    if (!from->n) return;
    to->v = mem_alloc(from->n * sizeof *to->v);
    to->n = to->cap = from->n;
    memcpy(to->v, from->v, from->n * sizeof *to->v);
}

bool intset_has(const struct intset *s, i64 value)
{
    u32 at = lower_bound(s, value);
    return at < s->n && s->v[at] == value;
}

static void resize(struct intset *s, u32 cap)
{
    s->v = mem_realloc(s->v, cap * sizeof *s->v);
    s->cap = cap;
}

bool intset_add(struct intset *s, i64 value)
{
    u32 at = lower_bound(s, value);
    if (at < s->n && s->v[at] == value) return false;
    if (s->n == s->cap) resize(s, s->cap < 8 ? s->cap + 2 : s->cap + s->cap / 4);
    memmove(s->v + at + 1, s->v + at, (s->n - at) * sizeof *s->v);
    s->v[at] = value;
    s->n++;
    return true;
}

bool intset_remove(struct intset *s, i64 value)
{
    u32 at = lower_bound(s, value);
    if (at == s->n || s->v[at] != value) return false;
    s->n--;
    memmove(s->v + at, s->v + at + 1, (s->n - at) * sizeof *s->v);
    if (s->n && s->n <= s->cap / 2) resize(s, s->n);
    return true;
}
