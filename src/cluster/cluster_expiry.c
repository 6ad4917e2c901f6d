/* Expiry in cluster mode: when members delete dead keys, and expiry that is logged.
 *
 * With expiry-stream every expired key is reported exactly once, whichever node leads. So expiry becomes an
 * entry of the log: the deletion and the stream's entry, as effects of one evaluation. If that entry is lost
 * with its leader, nothing was deleted, and the next leader reports the key. Therefore every member must keep
 * dead keys until the log deletes them. A leader that is configured with a stream turns this on by an entry
 * (RAFT_KIND_DEATHS). Keys that died before that entry are not reported; each member deletes them by
 * itself. */
#include "base/clock.h"
#include "cluster/cluster_parts.h"
#include "server/housekeeping.h"

/* The maximum number of slices while something waits for the log. A slice takes up to 100 us, and committing
 * its deletions about three times as long. A leader commits them with the entry in flight, right after it has
 * sent the replies; on a follower the commit waits for the sync in progress. More slices would delay clients,
 * but without any a busy member would never reclaim. */
#define WAITING_SLICES 8

static bool logs_deaths(const struct member *m) { return m->at.deaths_from_ms != 0; }

void cluster_expiry_step(struct member *m)
{
    if (!m->region) return;
    char wanted = expiry_stream_on(&m->region->expiry_stream);
    if (wanted == logs_deaths(m) || m->in_flight) return;
    group_propose(m->group, RAFT_KIND_DEATHS, bytes_of(&wanted, 1));
}

/* Something that died before deaths were logged. */
static bool has_untold(const struct member *m)
{
    struct engine *e = m->region->eng;
    return e->ops->next_due(e) <= (i64)m->at.deaths_from_ms;
}

static bool waits_for_log(const struct member *m) { return m->in_flight || cluster_log_syncing(m->log); }

bool cluster_may_reclaim(const struct server *s, const struct region *r)
{
    const struct member *m = r->member;
    if (!m || m->install || loading_busy(&s->persist.loading)) return false;
    if (!logs_deaths(m)) return !m->evaluating && (!waits_for_log(m) || m->slices < WAITING_SLICES);
    if (m->in_flight) return false;
    return m->evaluating || group_may_evaluate(m->group) || has_untold(m);
}

/* A leader proposes an entry that advances the clock when a deadline has passed. Other members can't delete
 * keys with deadlines beyond the clock. */
i64 cluster_next_visit(const struct region *r, i64 deadline_ms, i64 now_ms)
{
    const struct member *m = r->member;
    if (!m || deadline_ms == INT64_MAX) return INT64_MAX;
    if (deadline_ms <= member_clock(m)) return MIN(deadline_ms, now_ms);
    return member_leads(m) ? MAX(deadline_ms, now_ms + 1) : INT64_MAX;
}

bool cluster_has_dead(const struct region *r, i64 deadline_ms, i64 now_ms)
{
    const struct member *m = r->member;
    if (!m) return false;
    return deadline_ms <= member_clock(m) || (logs_deaths(m) && deadline_ms <= now_ms);
}

/* A member reclaims keys that are dead by its region's clock, also while an entry is in flight, because a
 * busy leader always has one. The deletions are then in the same transaction as the entry's effects, and are
 * rolled back with it.
 *
 * Others don't wait for it: what this turn of the loop has for them leaves first.
 *
 * If expiry is logged, the leader reclaims as a part of a tick's evaluation, or in an evaluation of its own.
 * Events wait for the entry. */
void cluster_begin_reclaim(struct region *r)
{
    struct member *m = r->member;
    cluster_flush(m->cluster);
    m->cluster->reclaiming = m;
    if (!logs_deaths(m)) {
        m->slices += waits_for_log(m);
        region_set_time(m->region, member_clock(m));
        return;
    }
    if (!m->evaluating) {
        member_begin_tick(m, clock_wall_ms());
        m->expiring = m->evaluating;
    }
    if (m->evaluating) member_enforce(m, true);
    else region_begin(m->region, (i64)m->at.deaths_from_ms);
}

void cluster_end_expiry(struct member *m)
{
    m->expiring = false;
    fence_enforce(&m->server->net, NULL);
    member_end_tick(m);
}

/* A busy leader has an entry in flight at the end of every tick: there would be no other time. */
void cluster_expire_with_tick(struct member *m)
{
    if (logs_deaths(m) && m->evaluating) housekeeping_expire(m->server, m->region);
}
