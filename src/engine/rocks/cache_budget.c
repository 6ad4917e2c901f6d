#include "engine/rocks/cache_budget.h"

#define STEP_MIN 1024
#define STEP_MAX (64 << 10) /* a thousand regions that do little take 64 MB of a budget at most */
#define STEPS 256           /* of a small budget */
#define UNTAKEN 16          /* part of the budget that waits for one that was short, at most */
#define GIVES 32            /* part of the budget that a cache gives at once: 1 / GIVES */

void cache_budget_init(struct cache_budget *b, u64 total)
{
    b->total = total;
    b->step = MIN(MAX(total / STEPS, STEP_MIN), STEP_MAX);
    atomic_init(&b->left, total);
    atomic_init(&b->active, 0);
    atomic_init(&b->short_of, 0);
}

static void cache_set_active(struct cache_share *s, bool active)
{
    if (s->active != active) atomic_fetch_add(&s->of->active, active ? 1u : -1u);
    s->active = active;
}

void cache_share_init(struct cache_share *s, struct cache_budget *of)
{
    *s = (struct cache_share){.of = of};
    cache_set_active(s, true);
}

void cache_share_release(struct cache_share *s)
{
    if (!s->of) return;
    cache_set_active(s, false);
    atomic_fetch_add(&s->of->left, s->limit);
    *s = (struct cache_share){0};
}

/* What each would have if all that are in use had the same. */
static u64 cache_equal_part(const struct cache_budget *b)
{
    return b->total / MAX(atomic_load_explicit(&b->active, memory_order_relaxed), 1u);
}

void cache_take(struct cache_share *s, u64 bytes)
{
    struct cache_budget *b = s->of;
    if (!b || bytes <= s->limit) return;
    bool less = s->limit < cache_equal_part(b);
    u32 short_of = atomic_load_explicit(&b->short_of, memory_order_relaxed);
    if (!less && short_of & CACHE_SHORT_LESS) return; /* what is given is for others */
    u64 want = MAX(bytes - s->limit, b->step), left = atomic_load(&b->left), got;
    do got = MIN(want, left);
    while (!atomic_compare_exchange_weak(&b->left, &left, left - got));
    s->limit += got;
    if (s->limit < bytes) atomic_fetch_or(&b->short_of, less ? CACHE_SHORT_LESS : CACHE_SHORT_MORE);
    else if (less && short_of) atomic_fetch_and(&b->short_of, ~(u32)CACHE_SHORT_LESS);
}

u64 cache_asked(struct cache_share *s, u64 bytes, u64 uses)
{
    struct cache_budget *b = s->of;
    if (!b) return s->limit;
    cache_set_active(s, uses != s->uses);
    s->uses = uses;
    u64 needs = MIN(s->limit, s->active ? bytes + b->step : bytes), part = b->total / GIVES;
    u64 least = s->active ? MIN(needs, cache_equal_part(b)) : 0;
    u32 short_of = atomic_load_explicit(&b->short_of, memory_order_relaxed);
    bool gives = short_of & CACHE_SHORT_LESS || (short_of && !s->active);
    return gives ? MAX(needs - MIN(needs, part), least) : needs;
}

void cache_gave(struct cache_share *s, u64 bytes, u64 wanted)
{
    u64 limit = MIN(MAX(bytes, wanted), s->limit), gave = s->limit - limit;
    if (!s->of || !gave) return;
    s->limit = limit;
    bool untaken = atomic_fetch_add(&s->of->left, gave) > s->of->total / UNTAKEN;
    if (atomic_load_explicit(&s->of->short_of, memory_order_relaxed))
        atomic_fetch_and(&s->of->short_of, untaken ? 0u : (u32)CACHE_SHORT_LESS);
}
