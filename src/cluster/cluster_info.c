/* INFO's section of cluster mode, and its figures for Prometheus. */
#include <stdio.h>

#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"
#include "persist/rdb_file.h"

static void bus_info(struct cluster *c, struct buf *b)
{
    const struct bus_stats *bus = bus_stats(c->bus);
    buf_printf(b,
               "bus_bytes_sent:%llu\r\nbus_bytes_received:%llu\r\nbus_frames_sent:%llu\r\n"
               "bus_frames_received:%llu\r\nbus_frames_dropped:%llu\r\nbus_refused:%llu\r\n",
               (ull)bus->bytes_out, (ull)bus->bytes_in, (ull)bus->frames_out, (ull)bus->frames_in,
               (ull)bus->dropped, (ull)bus->refused);
}

static void region_info(const struct member *m, struct buf *b)
{
    struct group_status st;
    static const char *const roles[] = {"follower", "candidate", "leader", "pre-candidate"};
    group_status(m->group, &st);
    char name[32] = "meta";
    if (!cluster_is_meta(m)) snprintf(name, sizeof name, "region%llu", (ull)m->number);
    buf_printf(b,
               "%s:role=%s,term=%llu,commit=%llu,applied=%llu,last=%llu,first=%llu,"
               "voters=%u,learners=%u,joint=%d,clock_ahead_ms=%llu,in_flight=%d,reads_waiting=%llu,"
               "abandoned=%llu,clock_entries=%llu,deaths_logged=%d,slots=%u-%u,version=%u,asleep=%d\r\n",
               name, roles[st.core.role & 3], (ull)st.core.term, (ull)st.core.commit, (ull)st.core.applied,
               (ull)st.core.last_index, (ull)st.core.first_index, st.at.conf.voters_n, st.at.conf.learners_n,
               st.at.conf.outgoing_n > 0, (ull)st.clock_ahead_ms, m->in_flight, (ull)st.reads_waiting,
               (ull)st.evaluations_abandoned, (ull)st.clock_entries, st.at.deaths_from_ms != 0,
               m->at.slots.first, m->at.slots.last, st.at.epoch.version, group_sleeps(m->group));
}

void cluster_info(struct server *s, struct buf *b)
{
    struct cluster *c = s->cluster;
    struct cluster_logs_stats log;
    buf_printf(b, "cluster_enabled:%d\r\n", c != NULL);
    if (!c || !c->started) return;
    cluster_logs_stats(c->logs, &log);
    buf_printf(b, "cluster_node_id:%s\r\n", c->nodes->id);
    buf_printf(b, "cluster_regions:%u\r\ncluster_regions_awake:%u\r\nraft_ticks:%llu\r\n", c->members_n,
               c->awake_n, (ull)c->raft_ticks);
    for (u32 i = 0; i < c->members_n; i++) region_info(c->members[i], b);
    buf_printf(b, "raft_log_entries:%llu\r\nraft_log_bytes:%llu\r\nraft_log_syncs:%llu\r\n",
               (ull)log.entries, (ull)log.bytes, (ull)log.syncs);
    bus_info(c, b);
    snapshot_info(c, b);
    check_info(c, b);
}

bool cluster_figures(struct server *s, u32 i, struct cluster_figures *f)
{
    struct cluster *c = s->cluster;
    struct group_status st;
    struct cluster_logs_stats log;
    if (!c || !c->started || i >= c->members_n) return false;
    const struct member *m = c->members[i];
    const struct bus_stats *bus = bus_stats(c->bus);
    group_status(m->group, &st);
    cluster_logs_stats(c->logs, &log);
    *f = (struct cluster_figures){
        .index = i,
        .region = m->number,
        .leads = st.core.role == RAFT_LEADER,
        .has_leader = st.core.leader != 0,
        .term = st.core.term,
        .commit = st.core.commit,
        .applied = st.core.applied,
        .first = st.core.first_index,
        .last = st.core.last_index,
        .voters = st.at.conf.voters_n,
        .learners = st.at.conf.learners_n,
        .clock_ahead_ms = st.clock_ahead_ms,
        .bytes = m->bytes,
        .splits = m->splits,
        .merges = m->merges,
        .requests = m->requests,
        .times = m->times,
        .log_bytes = log.bytes,
        .log_entries = log.entries,
        .log_syncs = log.syncs,
        .snapshots_sent = c->snapshots.sent,
        .snapshots_installed = c->snapshots.installed,
        .snapshots_failed = c->snapshots.failed,
        .snapshot_bytes_out = c->snapshots.bytes_out,
        .snapshot_bytes_in = c->snapshots.bytes_in,
        .digest_mismatches = c->digest_mismatches,
        .diverged = c->diverged != 0,
        .bus_bytes_in = bus->bytes_in,
        .bus_bytes_out = bus->bytes_out,
        .bus_dropped = bus->dropped,
        .bus_refused = bus->refused,
    };
    return true;
}

/* -- saving ------------------------------------------------------------------------------------ */

/* It leads, and has applied all that was acknowledged before it did. */
static bool save_leads(const struct member *m)
{
    return m->region && member_leads(m) && (m->in_flight || m->evaluating || group_may_evaluate(m->group));
}

u32 cluster_saved(struct server *s, struct keyspace ***all)
{
    struct cluster *c = s->cluster;
    bool any = false;
    u32 n = 0;
    *all = mem_alloc((c->members_n + 1) * sizeof(struct keyspace *));
    for (u32 i = 1; i < c->members_n && !any; i++) any = save_leads(c->members[i]);
    for (u32 i = 1; i < c->members_n; i++) {
        struct member *m = c->members[i];
        if (!m->region || m->install || (any && !save_leads(m))) continue;
        member_save(m); /* what was applied is part of it */
        (*all)[n++] = &m->region->ks;
    }
    if (c->members_n == 1) (*all)[n++] = &cluster_meta(c)->region->ks; /* it has no keys, as this node */
    return n;
}

void cluster_save_aux(struct server *s, struct rdb_out *out)
{
    const struct cluster *c = s->cluster;
    struct buf slots = {0};
    for (u32 i = 1; i < c->members_n; i++) {
        const struct member *m = c->members[i];
        if (save_leads(m))
            buf_printf(&slots, "%s%u-%u", slots.n ? "," : "", m->at.slots.first, m->at.slots.last);
    }
    if (slots.n) rdb_file_aux(out, CLUSTER_SLOTS_AUX, buf_bytes(&slots));
    buf_release(&slots);
}
