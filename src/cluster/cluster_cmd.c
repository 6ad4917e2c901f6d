/* CLUSTER, READONLY, READWRITE, ASKING. Shapes are Redis Cluster's: a region's leader is the
 * primary of its slots, the other members are its replicas. */
#include <stdio.h>

#include "base/key_slot.h"
#include "cluster/cluster_view.h"
#include "command/commands.h"

static void count_leader(void *arg UNUSED, const struct region_view *v)
{
    struct cluster_node *n = view_leader(v);
    if (n) n->leads++;
}

/* How many regions each node leads. */
static void count_leaders(struct cluster *c)
{
    for (struct cluster_node *n = c->nodes; n; n = n->next) n->leads = 0;
    view_each(c, count_leader, NULL);
}

/* The node that clients should ask: while there is no leader, it tells them to try again. Clients give up if
 * a slot has no node. */
static const struct cluster_node *node_to_ask(const struct region_view *v)
{
    const struct cluster_node *n = view_leader(v), *self = v->cluster->nodes;
    return n || !view_has(v, self) ? n : self;
}

static bool is_up(const struct cluster *c, const struct cluster_node *n)
{
    return n == c->nodes || (n->link && bus_peer_up(n->link));
}

static void shard_id(const struct cluster *c, char id[BUS_NODE_ID + 1])
{
    snprintf(id, BUS_NODE_ID + 1, "%016llx%024llx", (ull)c->number, (ull)CLUSTER_REGION);
}

/* -- descriptions ------------------------------------------------------------------------------ */

struct find_primary {
    const struct cluster_node *of, *found, *any;
};

static void note_primary(void *arg, const struct region_view *v)
{
    struct find_primary *f = arg;
    const struct cluster_node *leader = view_leader(v);
    if (!leader) return;
    if (!f->any) f->any = leader;
    if (!f->found && view_has(v, f->of)) f->found = leader;
}

/* To clients a node that leads nothing is a replica of one node: the leader of its first region or, if it has
 * no region, any leader. NULL: there is no leader. */
static const struct cluster_node *primary_of(struct cluster *c, const struct cluster_node *n)
{
    struct find_primary f = {.of = n};
    view_each(c, note_primary, &f);
    return f.found ? f.found : f.any;
}

/* What Redis calls a handshake: it is known, and not a member yet. */
static const char *node_role(struct cluster *c, const struct cluster_node *n,
                             const struct cluster_node *primary)
{
    if (!cluster_is_member(c, n) && cluster_meta(c)->at.conf.voters_n) return "handshake";
    return n->leads || !primary ? "master" : "slave";
}

struct print_slots {
    const struct cluster_node *node;
    struct buf *out;
    u32 from, to; /* in a row; from > to: none */
};

static void print_range(const struct print_slots *p)
{
    if (p->to > p->from) buf_printf(p->out, " %u-%u", p->from, p->to);
    else if (p->to == p->from) buf_printf(p->out, " %u", p->from);
}

static void note_slots(void *arg, const struct region_view *v)
{
    struct print_slots *p = arg;
    if (view_leader(v) != p->node) return;
    bool goes_on = p->from <= p->to && v->first == p->to + 1;
    if (!goes_on) {
        print_range(p);
        p->from = v->first;
    }
    p->to = v->last;
}

/* Slots in a row, over regions that the node leads. */
static void print_slots(struct cluster *c, const struct cluster_node *n, struct buf *b)
{
    struct print_slots p = {n, b, 1, 0};
    view_each(c, note_slots, &p);
    print_range(&p);
}

static void print_node_line(struct cluster *c, const struct cluster_node *n, struct buf *b)
{
    const struct cluster_node *primary = primary_of(c, n);
    const char *role = node_role(c, n, primary);
    struct group_status st;
    group_status(cluster_meta(c)->group, &st);
    buf_printf(b, "%s %s:%d@%d %s%s%s %s 0 %lld %llu %s", n->id, n->host, n->port, n->bus_port,
               n == c->nodes ? "myself," : "", role, is_up(c, n) ? "" : ",fail?",
               strcmp(role, "slave") == 0 ? primary->id : "-", (long long)n->heard_ms, (ull)st.core.term,
               is_up(c, n) ? "connected" : "disconnected");
    print_slots(c, n, b);
    buf_append_char(b, '\n');
}

static void cluster_nodes_cmd(struct ctx *c, struct cluster *cl)
{
    struct buf b = {0};
    for (const struct cluster_node *n = cl->nodes; n; n = n->next) print_node_line(cl, n, &b);
    reply_verbatim(c->out, buf_bytes(&b), "txt");
    buf_release(&b);
}

/* To clients a node is a primary or a replica, and some keep one role for each: so a node that leads a
 * region is not named as a replica of others. */
static bool is_replica_of(const struct region_view *v, const struct cluster_node *n)
{
    return !n->leads && n != node_to_ask(v) && view_has(v, n);
}

static u32 replicas_of(const struct region_view *v)
{
    u32 count = 0;
    for (const struct cluster_node *n = v->cluster->nodes; n; n = n->next) count += is_replica_of(v, n);
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

static void reply_slots_of(struct ctx *c, const struct region_view *v, const struct cluster_node *leader)
{
    reply_array(c->out, 3 + replicas_of(v));
    reply_int(c->out, v->first);
    reply_int(c->out, v->last);
    reply_slot_node(c, leader);
    for (const struct cluster_node *n = v->cluster->nodes; n; n = n->next)
        if (is_replica_of(v, n)) reply_slot_node(c, n);
}

struct told_regions {
    struct ctx *ctx;
    u32 n;
};

static void tell_slots(void *arg, const struct region_view *v)
{
    struct told_regions *t = arg;
    const struct cluster_node *leader = node_to_ask(v);
    if (!leader) return;
    t->n++;
    reply_slots_of(t->ctx, v, leader);
}

static void cluster_slots_cmd(struct ctx *c, struct cluster *cl)
{
    struct told_regions t = {.ctx = c};
    size_t mark = reply_mark(c->out);
    view_each(cl, tell_slots, &t);
    if (t.n) reply_array_at(c->out, mark, t.n);
    else reply_error(c->out, "CLUSTERDOWN This node knows no slots yet");
}

/* How much of the log a node has, as far as is known here. */
static u64 cluster_matched(const struct region_view *v, const struct cluster_node *n)
{
    if (!v->member) return 0;
    if (n == v->cluster->nodes) return v->member->at.index;
    return group_matched(v->member->group, conf_peer_on(&v->at->conf, n->number));
}

static void reply_shard_node(struct ctx *c, const struct region_view *v, const struct cluster_node *n,
                             bool leads)
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
    reply_int(c->out, (i64)cluster_matched(v, n));
    reply_bulk_str(c->out, "health");
    reply_bulk_str(c->out, is_up(v->cluster, n) ? "online" : "fail");
}

static void tell_shard(void *arg, const struct region_view *v)
{
    struct told_regions *t = arg;
    struct ctx *c = t->ctx;
    const struct cluster_node *leader = node_to_ask(v);
    u32 count = 0;
    t->n++;
    reply_map(c->out, 2);
    reply_bulk_str(c->out, "slots");
    reply_array(c->out, leader ? 2 : 0);
    if (leader) {
        reply_int(c->out, v->first);
        reply_int(c->out, v->last);
    }
    for (const struct cluster_node *n = v->cluster->nodes; n; n = n->next) count += view_has(v, n);
    reply_bulk_str(c->out, "nodes");
    reply_array(c->out, count);
    for (const struct cluster_node *n = v->cluster->nodes; n; n = n->next)
        if (view_has(v, n)) reply_shard_node(c, v, n, n == leader);
}

static void cluster_shards_cmd(struct ctx *c, struct cluster *cl)
{
    struct told_regions t = {.ctx = c};
    size_t mark = reply_mark(c->out);
    view_each(cl, tell_shard, &t);
    reply_array_at(c->out, mark, t.n);
}

static void cluster_replicas_cmd(struct ctx *c, struct cluster *cl)
{
    const struct cluster_node *of = cluster_find(cl, c->argv[2].p, c->argv[2].n);
    u32 count = 0;
    if (!of) {
        reply_errorf(c->out, "ERR Unknown node %.*s", (int)c->argv[2].n, c->argv[2].p);
        return;
    }
    if (!of->leads) {
        reply_error(c->out, "ERR The specified node is not a master");
        return;
    }
    size_t mark = reply_mark(c->out);
    struct buf b = {0};
    for (const struct cluster_node *n = cl->nodes; n; n = n->next) {
        bool follows = !n->leads && cluster_is_member(cl, n) && primary_of(cl, n) == of;
        if (!follows) continue; /* as print_node_line says */
        buf_clear(&b);
        print_node_line(cl, n, &b);
        reply_bulk(c->out, bytes_of(b.p, b.n - 1));
        count++;
    }
    reply_array_at(c->out, mark, count);
    buf_release(&b);
}

/* -- regions ----------------------------------------------------------------------------------- */

static void print_members(const struct region_view *v, struct buf *b)
{
    const char *between = "";
    for (const struct cluster_node *n = v->cluster->nodes; n; n = n->next) {
        if (!view_has(v, n)) continue;
        buf_printf(b, "%s%.8s", between, n->id);
        between = ",";
    }
}

static u64 region_keys(const struct region_view *v)
{
    struct engine *e = v->member ? v->member->region->eng : NULL;
    return e ? e->ops->count(e, 0) : v->row->keys;
}

static void tell_region(void *arg, const struct region_view *v)
{
    struct buf *b = arg;
    const struct cluster_node *leader = view_leader(v);
    buf_printf(b, "%llu slots=%u-%u leader=%.8s members=", (ull)v->number, v->first, v->last,
               leader ? leader->id : "-");
    print_members(v, b);
    buf_printf(b, " keys=%llu bytes=%llu load=%llu version=%u conf=%u state=%s decision=%s\n",
               (ull)region_keys(v), (ull)(v->member ? v->member->bytes : v->row->bytes),
               (ull)(v->member ? v->member->load : v->row->load), v->at->epoch.version, v->at->epoch.conf_ver,
               v->member && v->member->install ? "installing"
               : v->at->conf.outgoing_n        ? "changing-members"
               : v->at->merge.role             ? "merging"
                                               : "serving",
               v->row && v->row->decision[0]         ? v->row->decision
               : v->member && v->member->decision[0] ? v->member->decision
                                                     : "-");
}

static void cluster_regions_cmd(struct ctx *c, struct cluster *cl)
{
    struct buf b = {0};
    view_each(cl, tell_region, &b);
    reply_verbatim(c->out, buf_bytes(&b), "txt");
    buf_release(&b);
}

struct slot_state {
    u32 ok, masters;
};

static void count_slots(void *arg, const struct region_view *v)
{
    struct slot_state *s = arg;
    if (view_leader(v)) s->ok += v->last - v->first + 1u;
}

static void cluster_info_cmd(struct ctx *c, struct cluster *cl)
{
    struct group_status st;
    struct buf b = {0};
    u32 known = 0;
    struct slot_state slots = {0};
    const struct bus_stats *bus = bus_stats(cl->bus);
    group_status(cluster_meta(cl)->group, &st);
    view_each(cl, count_slots, &slots);
    for (const struct cluster_node *n = cl->nodes; n; n = n->next) {
        known++;
        slots.masters += n->leads > 0;
    }
    buf_printf(
        &b,
        "cluster_state:%s\r\ncluster_slots_assigned:%d\r\ncluster_slots_ok:%u\r\ncluster_slots_pfail:0\r\n"
        "cluster_slots_fail:%u\r\ncluster_known_nodes:%u\r\ncluster_size:%u\r\ncluster_current_epoch:%llu\r\n"
        "cluster_my_epoch:%llu\r\ncluster_stats_messages_sent:%llu\r\n"
        "cluster_stats_messages_received:%llu\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n",
        slots.ok == KEY_SLOTS ? "ok" : "fail", KEY_SLOTS, slots.ok, KEY_SLOTS - slots.ok, known,
        slots.masters, (ull)st.core.term, (ull)st.core.term, (ull)bus->frames_out, (ull)bus->frames_in);
    reply_verbatim(c->out, buf_bytes(&b), "txt");
    buf_release(&b);
}

/* -- small questions --------------------------------------------------------------------------- */

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

static void failover_cmd(struct ctx *c, struct cluster *cl)
{
    bool force = c->argc == 3 && bytes_is(c->argv[2], "force");
    if (c->argc == 3 && bytes_is(c->argv[2], "takeover"))
        reply_error(c->out, "ERR No node takes over without a majority: CLUSTER FAILOVER FORCE asks it");
    else if (c->argc > 2 && !force) reply_error(c->out, "ERR syntax error");
    else reply_done(c, cluster_take_over(cl, force));
}

static void meet_cmd(struct ctx *c, struct cluster *cl)
{
    char host[256];
    i64 port, bus_port = 0;
    if (!ctx_int(c, c->argv[3], &port) || (c->argc == 5 && !ctx_int(c, c->argv[4], &bus_port))) return;
    if (!bus_port) bus_port = port + 10000;
    bool ports = port >= 1 && port <= 65535 && bus_port >= 1 && bus_port <= 65535;
    if (c->argc > 5 || c->argv[2].n >= sizeof host || !ports) {
        reply_errorf(c->out, "ERR Invalid node address specified: %.*s:%.*s", (int)MIN(c->argv[2].n, 128u),
                     c->argv[2].p, (int)MIN(c->argv[3].n, 16u), c->argv[3].p);
        return;
    }
    snprintf(host, sizeof host, "%.*s", (int)c->argv[2].n, c->argv[2].p);
    reply_done(c, cluster_meet(cl, host, (int)bus_port));
}

static void count_failure_reports(struct ctx *c, struct cluster *cl)
{
    /* Nodes don't report each other. */
    if (cluster_find(cl, c->argv[2].p, c->argv[2].n)) reply_int(c->out, 0);
    else reply_errorf(c->out, "ERR Unknown node %.*s", (int)MIN(c->argv[2].n, 128u), c->argv[2].p);
}

static void cluster_help_cmd(struct ctx *c, struct cluster *cl UNUSED)
{
    static const char *const lines[] = {
        "CHECK",
        "    Compare the data of all members. INFO cluster and the log have the result.",
        "COUNTKEYSINSLOT <slot>",
        "    How many keys this node has in the slot.",
        "FAILOVER [FORCE]",
        "    Make this node the leader; FORCE: by an election.",
        "FORGET <node-id>",
        "    Remove the node from the cluster.",
        "GETKEYSINSLOT <slot> <count>",
        "    So many keys of the slot.",
        "INFO",
        "    The state of the cluster.",
        "KEYSLOT <key>",
        "    The slot of the key.",
        "LINKS",
        "    The connections between this node and others.",
        "MEET <ip> <port> [<bus-port>]",
        "    Join the cluster of that node, or invite it into this one.",
        "MERGE <region>",
        "    Merge the region into a neighbour. Send it to the region's leader.",
        "MYID",
        "    The id of this node.",
        "MYSHARDID",
        "    The id of its shard.",
        "NODES",
        "    The nodes, one per line.",
        "REGIONS",
        "    The regions of the cluster, one per line.",
        "REPLICAS <node-id>",
        "    The nodes that follow the leader.",
        "SHARDS",
        "    Slots and their nodes, with details.",
        "SLOT-STATS SLOTSRANGE <start> <end> | ORDERBY key-count [LIMIT <n>] [ASC|DESC]",
        "    How many keys slots have.",
        "SLOTS",
        "    Slots and their nodes.",
        "SPLIT <slot>",
        "    Split the slot's region there. Send it to the region's leader.",
        "TRANSFER <region> <node-id>",
        "    Make the node the region's leader. Send it to its leader.",
        NULL,
    };
    ctx_help(c, lines);
}

static void split_cmd(struct ctx *c, struct cluster *cl)
{
    i64 slot;
    if (ctx_int_range(c, c->argv[2], 0, KEY_SLOTS - 1, &slot)) reply_done(c, cluster_split(cl, (u32)slot));
}

static void merge_cmd(struct ctx *c, struct cluster *cl)
{
    i64 region;
    if (ctx_int_range(c, c->argv[2], 1, INT64_MAX, &region)) reply_done(c, cluster_merge(cl, (u64)region));
}

static void transfer_cmd(struct ctx *c, struct cluster *cl)
{
    i64 region;
    if (!ctx_int_range(c, c->argv[2], 1, INT64_MAX, &region)) return;
    reply_done(c, cluster_transfer(cl, (u64)region, c->argv[3].p, c->argv[3].n));
}

static void check_cmd(struct ctx *c, struct cluster *cl) { reply_done(c, cluster_check(cl)); }

static void my_id(struct ctx *c, struct cluster *cl) { reply_bulk_str(c->out, cl->nodes->id); }

static void my_shard_id(struct ctx *c, struct cluster *cl)
{
    char id[BUS_NODE_ID + 1];
    shard_id(cl, id);
    reply_bulk_str(c->out, id);
}

struct links {
    struct ctx *ctx;
    u32 n;
};

static void reply_link(void *arg, const struct bus_link *l)
{
    struct links *all = arg;
    struct reply *out = all->ctx->out;
    all->n++;
    reply_map(out, 6);
    reply_bulk_str(out, "direction");
    reply_bulk_str(out, l->dialled ? "to" : "from");
    reply_bulk_str(out, "node");
    reply_bulk_str(out, l->node);
    reply_bulk_str(out, "create-time");
    reply_int(out, l->since_ms);
    reply_bulk_str(out, "events");
    reply_bulk_str(out, l->queued ? "rw" : "r");
    reply_bulk_str(out, "send-buffer-allocated");
    reply_int(out, (i64)l->buffer);
    reply_bulk_str(out, "send-buffer-used");
    reply_int(out, (i64)l->queued);
}

static void links_cmd(struct ctx *c, struct cluster *cl)
{
    struct links all = {.ctx = c};
    size_t mark = reply_mark(c->out);
    bus_each_link(cl->bus, reply_link, &all);
    reply_array_at(c->out, mark, all.n);
}

/* -- dispatch ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(struct ctx *c, struct cluster *cl);
} subcommands[] = {
    {"check", check_cmd},
    {"count-failure-reports", count_failure_reports},
    {"failover", failover_cmd},
    {"forget", forget_cmd},
    {"help", cluster_help_cmd},
    {"info", cluster_info_cmd},
    {"keyslot", key_slot_cmd},
    {"links", links_cmd},
    {"meet", meet_cmd},
    {"merge", merge_cmd},
    {"myid", my_id},
    {"myshardid", my_shard_id},
    {"nodes", cluster_nodes_cmd},
    {"regions", cluster_regions_cmd},
    {"replicas", cluster_replicas_cmd},
    {"shards", cluster_shards_cmd},
    {"slaves", cluster_replicas_cmd},
    {"slots", cluster_slots_cmd},
    {"split", split_cmd},
    {"transfer", transfer_cmd},
};

/* Subcommands of Redis Cluster that make no sense where Raft decides, and what to use instead. */
static const struct {
    const char *prefix, *instead;
} unused[] = {
    {"replicate",
     "the cluster places regions itself; CLUSTER FAILOVER makes a node the leader of what it has"},
    {"reset", "CLUSTER FORGET on another node removes this one, which then can join with an empty folder"},
    {"saveconfig", "what a node knows of the cluster is stored with its data"},
    {"bumpepoch", "the epoch is Raft's term, and grows with each election"},
    {"set-config-epoch", "the epoch is Raft's term, and grows with each election"},
    {"", "Raft decides who has which slots; CLUSTER MEET and CLUSTER FORGET add and remove nodes"},
};

static void refuse_subcommand(struct ctx *c, const char *name)
{
    size_t i = 0;
    while (strncmp(unused[i].prefix, name, strlen(unused[i].prefix)) != 0) i++;
    reply_errorf(c->out, "ERR CLUSTER %s is not used here: %s", name, unused[i].instead);
}

static bool enabled(struct ctx *c)
{
    return c->server->cluster || ctx_refuse(c, "ERR This instance has cluster support disabled");
}

void cmd_cluster(struct ctx *c)
{
    if (!enabled(c)) return;
    const char *name = c->cmd->name + strlen("cluster|");
    count_leaders(c->server->cluster);
    for (size_t i = 0; i < ARRAY_LEN(subcommands); i++) {
        if (strcmp(subcommands[i].name, name) != 0) continue;
        subcommands[i].run(c, c->server->cluster);
        return;
    }
    refuse_subcommand(c, name);
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
