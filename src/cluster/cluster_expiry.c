/* Expiry in cluster mode, beyond what each member deletes by itself.
 *
 * With expiry-stream every death is told exactly once, whoever leads. So the leader makes it an entry of the
 * log: the deletion, and what the stream gets, as effects of one evaluation. An entry that is lost with its
 * leader has deleted nothing, and the next leader tells. For that every member must keep what is dead until
 * the log deletes it; that it must is an entry, too (RAFT_KIND_DEATHS), proposed by a leader whose
 * configuration has a stream. What had died before that entry is not told, and each member deletes it by
 * itself. */
#include "base/clock.h"
#include "cluster/cluster_parts.h"
#include "server/housekeeping.h"

/* Slices while something waits for the log. A slice takes up to 50 us, and its deletions about three times as
 * long to commit. On a leader they are committed with the entry in flight, before its replies leave; on a
 * follower the commit waits for the sync that is under way. So many of them would delay clients, and none
 * would let a busy member never reclaim. */
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

/* The leader proposes an entry that moves the clock when a deadline has come: until then a deadline beyond
 * the clock is none of the others' business. */
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

/* A member reclaims by itself what is dead by its region's clock, also while an entry is in flight: a busy
 * leader always has one. The transaction that holds the entry's effects then holds the deletions, too. If it
 * is rolled back, so are they.
 *
 * Deaths that are logged are reclaimed by the leader's evaluation of a tick, by one of its own, or by itself.
 * Events wait for the entry. */
void cluster_begin_reclaim(struct region *r)
{
    struct member *m = r->member;
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
