/* CLUSTER, READONLY, READWRITE, ASKING; INFO's section. Shapes are Redis Cluster's: a region's leader is the
 * primary of its slots, the other members are its replicas. */
#include <stdio.h>

#include "base/key_slot.h"
#include "cluster/cluster_parts.h"
#include "command/commands.h"
#include "engine/rocks/rocks.h"

#define LAST_SLOT (KEY_SLOTS - 1)

static const struct cluster_node *leading_node(struct cluster *c)
{
    u64 leader = c->started ? group_leader(c->member.group) : 0;
    return leader ? cluster_node_of(c, leader) : NULL;
}

static bool is_up(const struct cluster *c, const struct cluster_node *n)
{
    return n == c->nodes || (n->link && bus_peer_up(n->link));
}

static void shard_id(const struct cluster *c, char id[BUS_NODE_ID + 1])
{
    snprintf(id, BUS_NODE_ID + 1, "%016llx%024llx", (ull)c->number, (ull)c->member.number);
}

/* -- descriptions ------------------------------------------------------------------------------ */

static void print_node_line(struct cluster *c, const struct cluster_node *n, struct buf *b)
{
    const struct cluster_node *leader = leading_node(c);
    bool leads = n == leader, member = cluster_is_member(c, n->peer);
    struct group_status st;
    group_status(c->member.group, &st);
    buf_printf(b, "%s %s:%d@%d %s%s %s 0 0 %llu %s%s\n", n->id, n->host, n->port, n->bus_port,
               n == c->nodes ? "myself," : "",
               leads || !leader ? "master"
               : member         ? "slave"
                                : "slave,noaddr",
               leads || !leader ? "-" : leader->id, (ull)st.core.term,
               is_up(c, n) ? "connected" : "disconnected", leads ? " 0-16383" : "");
}

static void cluster_nodes_cmd(struct ctx *c, struct cluster *cl)
{
    struct buf b = {0};
    for (const struct cluster_node *n = cl->nodes; n; n = n->next) print_node_line(cl, n, &b);
    reply_verbatim(c->out, buf_bytes(&b), "txt");
    buf_release(&b);
}

static u32 replicas_of(struct cluster *c, const struct cluster_node *leader)
{
    u32 count = 0;
    for (const struct cluster_node *n = c->nodes; n; n = n->next)
        count += n != leader && cluster_is_member(c, n->peer);
    return count;
}

static void reply_slot_node(struct ctx *c, const struct cluster_node *n)
{
    reply_array(c->out, 4);
    reply_bulk_str(c->out, n->host);
    reply_int(c->out, n->port);
    reply_bulk_str(c->out, n->id);
    reply_array(c->out, 0);
}

static void cluster_slots_cmd(struct ctx *c, struct cluster *cl)
{
    const struct cluster_node *leader = leading_node(cl);
    if (!leader) {
        reply_array(c->out, 0);
        return;
    }
    reply_array(c->out, 1);
    reply_array(c->out, 3 + replicas_of(cl, leader));
    reply_int(c->out, 0);
    reply_int(c->out, LAST_SLOT);
    reply_slot_node(c, leader);
    for (const struct cluster_node *n = cl->nodes; n; n = n->next)
        if (n != leader && cluster_is_member(cl, n->peer)) reply_slot_node(c, n);
}

static void reply_shard_node(struct ctx *c, struct cluster *cl, const struct cluster_node *n, bool leads)
{
    reply_map(c->out, 7);
    reply_bulk_str(c->out, "id");
    reply_bulk_str(c->out, n->id);
    reply_bulk_str(c->out, "port");
    reply_int(c->out, n->port);
    reply_bulk_str(c->out, "ip");
    reply_bulk_str(c->out, n->host);
    reply_bulk_str(c->out, "endpoint");
    reply_bulk_str(c->out, n->host);
    reply_bulk_str(c->out, "role");
    reply_bulk_str(c->out, leads ? "master" : "replica");
    reply_bulk_str(c->out, "replication-offset");
    reply_int(c->out, (i64)cl->member.at.index);
    reply_bulk_str(c->out, "health");
    reply_bulk_str(c->out, is_up(cl, n) ? "online" : "fail");
}

static void cluster_shards_cmd(struct ctx *c, struct cluster *cl)
{
    const struct cluster_node *leader = leading_node(cl);
    reply_array(c->out, 1);
    reply_map(c->out, 2);
    reply_bulk_str(c->out, "slots");
    reply_array(c->out, leader ? 2 : 0);
    if (leader) {
        reply_int(c->out, 0);
        reply_int(c->out, LAST_SLOT);
    }
    u32 count = 0;
    for (const struct cluster_node *n = cl->nodes; n; n = n->next) count += cluster_is_member(cl, n->peer);
    reply_bulk_str(c->out, "nodes");
    reply_array(c->out, count);
    for (const struct cluster_node *n = cl->nodes; n; n = n->next)
        if (cluster_is_member(cl, n->peer)) reply_shard_node(c, cl, n, n == leader);
}

static void cluster_replicas_cmd(struct ctx *c, struct cluster *cl)
{
    const struct cluster_node *leader = leading_node(cl), *of = cluster_find(cl, c->argv[2].p, c->argv[2].n);
    if (!of) {
        reply_errorf(c->out, "ERR Unknown node %.*s", (int)c->argv[2].n, c->argv[2].p);
        return;
    }
    if (of != leader) {
        reply_error(c->out, "ERR The specified node is not a master");
        return;
    }
    reply_array(c->out, replicas_of(cl, leader));
    struct buf b = {0};
    for (const struct cluster_node *n = cl->nodes; n; n = n->next) {
        if (n == leader || !cluster_is_member(cl, n->peer)) continue;
        buf_clear(&b);
        print_node_line(cl, n, &b);
        reply_bulk(c->out, bytes_of(b.p, b.n - 1));
    }
    buf_release(&b);
}

static void cluster_info_cmd(struct ctx *c, struct cluster *cl)
{
    struct group_status st;
    struct buf b = {0};
    u32 known = 0;
    bool ok = leading_node(cl) != NULL;
    const struct bus_stats *bus = bus_stats(cl->bus);
    group_status(cl->member.group, &st);
    for (const struct cluster_node *n = cl->nodes; n; n = n->next) known++;
    buf_printf(
        &b,
        "cluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_slots_ok:%d\r\ncluster_slots_pfail:0\r\n"
        "cluster_slots_fail:%d\r\ncluster_known_nodes:%u\r\ncluster_size:1\r\ncluster_current_epoch:%llu\r\n"
        "cluster_my_epoch:%llu\r\ncluster_stats_messages_sent:%llu\r\n"
        "cluster_stats_messages_received:%llu\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
        ok ? "ok" : "fail", KEY_SLOTS, ok ? KEY_SLOTS : 0, ok ? 0 : KEY_SLOTS, known, (ull)st.core.term,
        (ull)st.core.term, (ull)bus->frames_out, (ull)bus->frames_in);
    reply_verbatim(c->out, buf_bytes(&b), "txt");
    buf_release(&b);
}

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

/* -- slots ------------------------------------------------------------------------------------- */

static bool read_slot(struct ctx *c, i64 *slot)
{
    if (!ctx_int(c, c->argv[2], slot)) return false;
    return (*slot >= 0 && *slot < KEY_SLOTS) || ctx_refuse(c, "ERR Invalid slot");
}

static void count_keys_in_slot(struct ctx *c, struct cluster *cl UNUSED)
{
    i64 slot;
    if (read_slot(c, &slot)) reply_int(c->out, (i64)rocks_slot_count(c->eng, 0, (u16)slot));
}

static void key_slot_cmd(struct ctx *c, struct cluster *cl UNUSED)
{
    reply_int(c->out, key_slot(c->argv[2]));
}

/* -- changing ---------------------------------------------------------------------------------- */

static void reply_done(struct ctx *c, const char *error)
{
    if (error) reply_error(c->out, error);
    else reply_ok(c->out);
}

static void forget_cmd(struct ctx *c, struct cluster *cl)
{
    reply_done(c, cluster_forget(cl, c->argv[2].p, c->argv[2].n));
}

static void failover_cmd(struct ctx *c, struct cluster *cl) { reply_done(c, cluster_take_over(cl)); }

static void my_id(struct ctx *c, struct cluster *cl) { reply_bulk_str(c->out, cl->nodes->id); }

static void my_shard_id(struct ctx *c, struct cluster *cl)
{
    char id[BUS_NODE_ID + 1];
    shard_id(cl, id);
    reply_bulk_str(c->out, id);
}

static void links_cmd(struct ctx *c, struct cluster *cl)
{
    u32 up = 0;
    for (const struct cluster_node *n = cl->nodes->next; n; n = n->next) up += is_up(cl, n);
    reply_array(c->out, up);
    for (const struct cluster_node *n = cl->nodes->next; n; n = n->next) {
        if (!is_up(cl, n)) continue;
        reply_map(c->out, 6);
        reply_bulk_str(c->out, "direction");
        reply_bulk_str(c->out, "to");
        reply_bulk_str(c->out, "node");
        reply_bulk_str(c->out, n->id);
        reply_bulk_str(c->out, "create-time");
        reply_int(c->out, 0);
        reply_bulk_str(c->out, "events");
        reply_bulk_str(c->out, "rw");
        reply_bulk_str(c->out, "send-buffer-allocated");
        reply_int(c->out, (i64)bus_peer_queued(n->link));
        reply_bulk_str(c->out, "send-buffer-used");
        reply_int(c->out, (i64)bus_peer_queued(n->link));
    }
}

/* -- dispatch ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(struct ctx *c, struct cluster *cl);
} subcommands[] = {
    {"countkeysinslot", count_keys_in_slot},
    {"failover", failover_cmd},
    {"forget", forget_cmd},
    {"info", cluster_info_cmd},
    {"keyslot", key_slot_cmd},
    {"links", links_cmd},
    {"myid", my_id},
    {"myshardid", my_shard_id},
    {"nodes", cluster_nodes_cmd},
    {"replicas", cluster_replicas_cmd},
    {"shards", cluster_shards_cmd},
    {"slaves", cluster_replicas_cmd},
    {"slots", cluster_slots_cmd},
};

static bool enabled(struct ctx *c)
{
    return c->server->cluster || ctx_refuse(c, "ERR This instance has cluster support disabled");
}

void cmd_cluster(struct ctx *c)
{
    if (!enabled(c)) return;
    const char *name = c->cmd->name + strlen("cluster|");
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++) {
        if (strcmp(subcommands[i].name, name) != 0) continue;
        subcommands[i].run(c, c->server->cluster);
        return;
    }
    reply_errorf(c->out,
                 "ERR CLUSTER %s is not used here: Raft decides who has which slots. Nodes join with "
                 "cluster-join and leave by CLUSTER FORGET",
                 name);
}

void cmd_readonly(struct ctx *c)
{
    if (!enabled(c)) return;
    c->session->readonly = true;
    reply_ok(c->out);
}

void cmd_readwrite(struct ctx *c)
{
    if (!enabled(c)) return;
    c->session->readonly = false;
    reply_ok(c->out);
}

void cmd_asking(struct ctx *c)
{
    if (enabled(c)) reply_ok(c->out); /* no slot is ever on its way between nodes */
}
