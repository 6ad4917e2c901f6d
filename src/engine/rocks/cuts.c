/* Invariant: v[i].to < v[i + 1].from. */
#include "engine/rocks/cuts.h"

/* How many of them end before this element, or right at it if `touching` is not enough. */
static u32 ends_before(const struct cuts *c, bytes sub, bool touching)
{
    u32 low = 0, high = c->n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        int order = bytes_cmp(c->v[mid].to, sub);
        if (order < 0 || (order == 0 && !touching)) low = mid + 1;
        else high = mid;
    }
    return low;
}

const struct cut *cuts_find(const struct cuts *c, bytes sub)
{
    if (LIKELY(!c)) return NULL;
    u32 i = ends_before(c, sub, false);
    return i < c->n && bytes_cmp(c->v[i].from, sub) <= 0 ? &c->v[i] : NULL;
}

static void make_room(struct rk *rk, struct cuts *c)
{
    if (c->n < c->cap) return;
    c->cap = MAX(2 * c->cap, 4);
    struct cut *v = arena_alloc(&rk->arena, c->cap * sizeof *v);
    if (c->n) memcpy(v, c->v, c->n * sizeof *v);
    c->v = v;
}

void cuts_add(struct rk *rk, struct row *r, bytes from, bytes to, bool whole)
{
    struct delta *d = delta_of(rk, r);
    if (!d->cuts) {
        d->cuts = arena_alloc(&rk->arena, sizeof *d->cuts);
        *d->cuts = (struct cuts){0};
    }
    struct cuts *c = d->cuts;
    u32 at = ends_before(c, from, true), end = at;
    for (; end < c->n && bytes_cmp(c->v[end].from, to) <= 0; end++) {
        if (bytes_cmp(c->v[end].from, from) < 0) from = c->v[end].from;
        if (bytes_cmp(c->v[end].to, to) > 0) to = c->v[end].to;
        whole |= c->v[end].whole;
    }
    if (end == at) make_room(rk, c);
    memmove(&c->v[at + 1], &c->v[end], (c->n - end) * sizeof *c->v);
    c->v[at] = (struct cut){from, to, whole};
    c->n = c->n + 1 - (end - at);
}

void cuts_write(struct rk *rk, struct row *r, enum family f)
{
    const struct cuts *c = r->delta->cuts;
    for (u32 i = 0; c && i < c->n; i++) {
        if (!c->v[i].whole) continue;
        bytes from = delta_keep(rk, delta_key(rk, r, c->v[i].from));
        store_delete_range(rk->session, f, from, delta_key(rk, r, c->v[i].to));
    }
}
