#include "server/housekeeping.h"

#include "base/clock.h"
#include "cluster/cluster.h"
#include "exec/region_site.h"
#include "server/account.h"
#include "server/commit.h"

#define RECLAIM_UNITS 64
#define LOOK_AGAIN_MS 100

/* Its only purpose is to wake the loop. */
static void on_wake(uv_timer_t *t) { ((struct server *)t->data)->wake_ms = 0; }

static bool may_expire(const struct server *s, const struct region *r)
{
    return expire_cycle_active(&r->cycle) && !s->node.refuse_writes && !s->node.loading &&
           (!expiry_follows(r->mode) || own_keys_any(&r->own)) && !server_holds_changes(s) &&
           !s->shutting_down && /* what was saved is final */
           (LIKELY(!s->cluster) || cluster_may_reclaim(s, r));
}

static i64 region_next_due(const struct region *r)
{
    if (UNLIKELY(region_is_site(r))) return region_site_next_due(r);
    return expiry_follows(r->mode) ? own_keys_next_due(&r->own) : r->eng->ops->next_due(r->eng);
}

/* When a region is to be looked at again; INT64_MAX: it does not say. The sampling cycle leaves the index
 * alone, so that its next visit says nothing: it runs at `hz`. */
static i64 next_visit(const struct server *s, const struct region *r)
{
    const struct expire_cycle *cycle = &r->cycle;
    bool knows = expiry_follows(r->mode) || (cycle->source == EXPIRE_INDEX && expiry_cycles(r->mode));
    if (!may_expire(s, r) || !knows) return INT64_MAX;
    i64 due = region_next_due(r);
    return MAX(due, cycle->next_ms);
}

/* The same on a node of a cluster. Keys that are due while something keeps the cycle from running are looked
 * for again. */
static i64 next_visit_of_member(const struct server *s, const struct region *r)
{
    i64 due = cluster_next_visit(r, region_next_due(r), s->now_ms);
    if (due == INT64_MAX) return due;
    return may_expire(s, r) ? MAX(due, r->cycle.next_ms) : MAX(due, s->now_ms + LOOK_AGAIN_MS);
}

/* When the loop may sleep: not beyond the next visit of an index. */
static void arm_wake(struct server *s, i64 next)
{
    if (next == s->wake_ms || next > s->now_ms + 1000) return;
    s->wake_ms = next;
    uv_timer_start(&s->wake, on_wake, (u64)MAX(next - s->now_ms + 1, 1), 0);
}

/* Freeing dropped values and sweeping references: the engine's own housekeeping. */
static u64 reclaim_for(struct engine *e, i64 us)
{
    u64 left = e->ops->reclaim(e, RECLAIM_UNITS);
    if (LIKELY(!left)) return 0; /* as in most ticks: they need no clock */
    i64 until_us = clock_mono_us() + us;
    do left = e->ops->reclaim(e, RECLAIM_UNITS);
    while (left && clock_mono_us() < until_us);
    return left;
}

/* A slice of the cycle, committed by itself; true if there is more to do. */
static bool expire_until(struct server *s, struct region *r, i64 start_us, i64 until_us)
{
    u64 before = expire_total(&r->ks), cleaned;
    i64 cpu_us = clock_thread_us(); /* the budget is CPU time: time that other processes took is not spent */
    bool more;
    net_keep_output(&s->net); /* the replies of this tick don't depend on the slice */
    if (UNLIKELY(s->cluster)) cluster_begin_reclaim(r);
    do {
        more = region_expire_step(r);
        cleaned = expire_total(&r->ks) - before;
    } while (more && cleaned < r->cycle.batch && clock_mono_us() < until_us);
    bool kept = server_commit(s, COMMIT_EXPIRY);
    i64 took_us = clock_thread_us() - cpu_us;
    more = more && kept;
    expire_cycle_spent(&r->cycle, took_us, more);
    expire_cycle_ran(&r->cycle, &r->ks, s->now_ms, kept ? cleaned : 0, took_us, more);
    if (!kept) r->cycle.next_ms = s->now_ms + EXPIRE_RETRY_MS;
    account_latency(s, "expire-cycle", clock_mono_us() - start_us);
    return more;
}

static void housekeeping_on_busy(uv_idle_t *h UNUSED) {} /* while it is active the loop does not sleep */

/* A slice of a member's cycle, unless it is to rest; true if the next may follow at once. `hz` and the effort
 * don't matter. */
static bool expire_paced(struct server *s, struct region *r, i64 start_us)
{
    if (expire_pace_rests(&s->pace, start_us)) return false;
    if (!expire_until(s, r, start_us, start_us + EXPIRE_PACED_SLICE_US)) return false;
    i64 end_us = clock_mono_us();
    i64 late_ms = s->now_ms - region_next_due(r);
    expire_pace_spent(&s->pace, end_us, end_us - start_us, region_settled(r), late_ms);
    return !expire_pace_rests(&s->pace, end_us);
}

/* A slice of one region's cycle, if it is time for one; true if there is more to do. */
static bool expire_some(struct server *s, struct region *r, bool idle)
{
    struct expire_cycle *cycle = &r->cycle;
    if (!may_expire(s, r) || !expire_cycle_due(cycle, s->now_ms)) return false;
    if (UNLIKELY(s->cluster))
        return cluster_has_dead(r, region_next_due(r), s->now_ms) && expire_paced(s, r, clock_mono_us());
    i64 start = clock_mono_us();
    i64 allowance = expire_cycle_allowance(cycle, start, idle);
    return allowance ? expire_until(s, r, start, start + allowance) : expire_cycle_waits(cycle);
}

void housekeeping_expire(struct server *s, struct region *r) { expire_some(s, r, false); }

static bool evicts(const struct server *s)
{
    return UNLIKELY(s->node.evictor.unfinished) && !s->node.loading && !server_holds_changes(s);
}

static void housekeeping_end(struct server *s, bool more, i64 next_ms)
{
    if (more || s->reclaim_pending || s->node.keys_ready) {
        uv_idle_start(&s->busy, housekeeping_on_busy);
    } else {
        uv_idle_stop(&s->busy);
        arm_wake(s, next_ms);
    }
}

/* Adds regions whose next visit is due to those that were used. */
static void housekeeping_touch_due(struct server *s)
{
    struct node *n = &s->node;
    for (struct heap_node *h; (h = heap_first(&n->visits)) && h->key <= s->now_ms;) {
        struct region *r = (struct region *)(void *)((char *)h - offsetof(struct region, visit));
        region_visit_at(r, INT64_MAX);
        region_touch(r);
    }
}

/* A cluster node has many regions: it visits only those that began a transaction since the last time, and
 * those whose next visit is due. */
static void housekeeping_of_regions(struct server *s)
{
    struct node *n = &s->node;
    struct region *r;
    bool more = false, unsettled = false;
    housekeeping_touch_due(s);
    for (r = n->begun; r; r = r->begun_next) {
        more |= expire_some(s, r, false);
        unsettled |= cluster_unsettled(r);
    }
    if (UNLIKELY(unsettled)) server_commit(s, COMMIT_HOUSEKEEPING);
    s->reclaim_pending = 0;
    struct region *list = n->begun;
    n->begun = NULL;
    while ((r = list)) {
        list = r->begun_next;
        r->begun = false;
        u64 left = reclaim_for(r->eng, EXPIRE_SLICE_US);
        s->reclaim_pending += left;
        if (left || more) region_touch(r);
        region_visit_at(r, next_visit_of_member(s, r));
    }
    const struct heap_node *first = heap_first(&n->visits);
    housekeeping_end(s, more, first ? first->key : INT64_MAX);
}

void housekeeping_run(struct server *s, bool idle)
{
    if (UNLIKELY(s->cluster)) {
        housekeeping_of_regions(s);
        return;
    }
    struct region *r = s->node.regions.first;
    bool more = expire_some(s, r, idle);
    if (evicts(s)) more |= region_evict_step(r);
    if (UNLIKELY(!region_settled(r))) server_commit(s, COMMIT_HOUSEKEEPING);
    s->reclaim_pending = reclaim_for(r->eng, EXPIRE_SLICE_US);
    housekeeping_end(s, more, next_visit(s, r));
}
