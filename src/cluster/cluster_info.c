/* INFO's section of cluster mode. */
#include "cluster/cluster_parts.h"

void cluster_info(struct server *s, struct buf *b)
{
    struct cluster *c = s->cluster;
    struct group_status st;
    struct cluster_logs_stats log;
    static const char *const roles[] = {"follower", "candidate", "leader", "pre-candidate"};
    buf_printf(b, "cluster_enabled:%d\r\n", c != NULL);
    if (!c || !c->started) return;
    group_status(c->member.group, &st);
    cluster_logs_stats(c->logs, &log);
    buf_printf(
        b,
        "cluster_node_id:%s\r\nregion%llu:role=%s,term=%llu,commit=%llu,applied=%llu,last=%llu,first=%llu,"
        "voters=%u,learners=%u,joint=%d,clock_ahead_ms=%llu,in_flight=%d,reads_waiting=%llu,"
        "abandoned=%llu,clock_entries=%llu,deaths_logged=%d\r\n",
        c->nodes->id, (ull)c->member.number, roles[st.core.role & 3], (ull)st.core.term, (ull)st.core.commit,
        (ull)st.core.applied, (ull)st.core.last_index, (ull)st.core.first_index, st.at.conf.voters_n,
        st.at.conf.learners_n, st.at.conf.outgoing_n > 0, (ull)st.clock_ahead_ms, c->member.in_flight,
        (ull)st.reads_waiting, (ull)st.evaluations_abandoned, (ull)st.clock_entries,
        st.at.deaths_from_ms != 0);
    buf_printf(b, "raft_log_entries:%llu\r\nraft_log_bytes:%llu\r\nraft_log_syncs:%llu\r\n",
               (ull)log.entries, (ull)log.bytes, (ull)log.syncs);
}
