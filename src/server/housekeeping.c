#include "server/housekeeping.h"

#include "base/clock.h"
#include "server/account.h"
#include "server/commit.h"

#define RECLAIM_UNITS 64

/* Waking the loop is what it is for. */
static void on_wake(uv_timer_t *t) { ((struct server *)t->data)->wake_ms = 0; }

static bool may_expire(const struct server *s)
{
    const struct region *r = &s->region;
    return expire_cycle_active(&r->cycle) && !s->node.refuse_writes && !s->node.loading &&
           (!expiry_follows(r->mode) || own_keys_any(&r->own)) && !server_stands_still(s) &&
           !s->shutting_down; /* what was saved is the end */
}

static i64 next_due(struct server *s)
{
    struct engine *e = s->region.eng;
    return expiry_follows(s->region.mode) ? own_keys_next_due(&s->region.own) : e->ops->next_due(e);
}

/* When the loop may sleep: not beyond the next visit of the index. The sampling cycle
 * leaves the index alone, so that its next visit says nothing: it runs at `hz`. */
static void arm_wake(struct server *s)
{
    const struct region *r = &s->region;
    const struct expire_cycle *cycle = &r->cycle;
    bool knows = expiry_follows(r->mode) || (cycle->source == EXPIRE_INDEX && r->mode == EXPIRY_ACTIVE);
    if (!may_expire(s) || !knows) return;
    i64 next = MAX(next_due(s), cycle->next_ms);
    if (next == s->wake_ms || next > s->now_ms + 1000) return;
    s->wake_ms = next;
    uv_timer_start(&s->wake, on_wake, (u64)MAX(next - s->now_ms + 1, 1), 0);
}

/* Freed values, swept references: the engine's own housekeeping. */
static u64 reclaim_for(struct server *s, i64 us)
{
    struct engine *e = s->region.eng;
    u64 left = e->ops->reclaim(e, RECLAIM_UNITS);
    if (LIKELY(!left)) return 0; /* as in most ticks: they need no clock */
    i64 until_us = clock_mono_us() + us;
    do left = e->ops->reclaim(e, RECLAIM_UNITS);
    while (left && clock_mono_us() < until_us);
    return left;
}

/* A slice of the cycle, committed by itself; true if there is more to do. */
static bool expire_until(struct server *s, i64 start_us, i64 until_us)
{
    struct region *r = &s->region;
    u64 before = expire_total(&r->ks), cleaned;
    i64 cpu_us = clock_thread_us(); /* the budget is one of CPU: what others took meanwhile is not spent */
    bool more;
    net_keep_output(&s->net); /* the answers of this tick are no part of the slice */
    do {
        more = region_expire_step(r);
        cleaned = expire_total(&r->ks) - before;
    } while (more && cleaned < r->cycle.batch && clock_mono_us() < until_us);
    bool kept = server_commit(s, COMMIT_EXPIRY);
    i64 took_us = clock_thread_us() - cpu_us;
    more = more && kept;
    expire_cycle_spent(&r->cycle, took_us, more);
    expire_cycle_ran(&r->cycle, &r->ks, kept ? cleaned : 0, took_us, more);
    if (!kept) r->cycle.next_ms = s->now_ms + EXPIRE_RETRY_MS;
    account_latency(s, "expire-cycle", clock_mono_us() - start_us);
    return more;
}

static void on_busy(uv_idle_t *h UNUSED) {} /* its being active keeps the loop from sleeping */

void housekeeping_run(struct server *s, bool idle)
{
    struct expire_cycle *cycle = &s->region.cycle;
    bool more = false;
    if (may_expire(s) && expire_cycle_due(cycle, s->now_ms)) {
        i64 start = clock_mono_us();
        i64 allowance = expire_cycle_allowance(cycle, start, idle);
        more = allowance ? expire_until(s, start, start + allowance) : expire_cycle_waits(cycle);
    }
    bool may_evict = !s->node.loading && !server_stands_still(s);
    bool evicting = UNLIKELY(s->node.evictor.unfinished) && may_evict && region_evict_step(&s->region);
    if (UNLIKELY(!region_settled(&s->region))) server_commit(s, COMMIT_HOUSEKEEPING);
    s->reclaim_pending = reclaim_for(s, EXPIRE_SLICE_US);
    if (more || evicting || s->reclaim_pending || waiters_any_ready(&s->region.waiters)) {
        uv_idle_start(&s->busy, on_busy);
    } else {
        uv_idle_stop(&s->busy);
        arm_wake(s);
    }
}
