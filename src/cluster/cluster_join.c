/* Who belongs to the cluster: making one, joining one, leaving it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cluster/cluster_parts.h"

#define FIRST_INDEX 5 /* where a new log begins, so that a member without any data needs a snapshot */
#define JOIN_EVERY 2  /* ticks of the timer */

static bool has(const u64 *ids, u32 n, u64 id)
{
    for (u32 i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool is_voter(const struct cluster *c, u64 peer)
{
    return has(c->member.at.conf.voters, c->member.at.conf.voters_n, peer);
}

static bool is_learner(const struct cluster *c, u64 peer)
{
    return has(c->member.at.conf.learners, c->member.at.conf.learners_n, peer);
}

bool cluster_is_member(const struct cluster *c, u64 peer) { return is_voter(c, peer) || is_learner(c, peer); }

/* -- making ------------------------------------------------------------------------------------ */

/* What a lone server has in other databases can't be reached in cluster mode. */
static bool only_database_0(struct cluster *c)
{
    struct engine *e = c->member.region->eng;
    for (u32 db = 1; db < e->databases; db++) {
        if (!e->ops->count(e, db)) continue;
        log_line(&c->server->log, LOG_WARNING,
                 "Can't make a cluster of this data: database %u holds %llu keys, "
                 "and a cluster has database 0 only. Move or delete them first",
                 db, (ull)e->ops->count(e, db));
        return false;
    }
    return true;
}

bool cluster_make_identity(struct cluster *c)
{
    struct server *s = c->server;
    const struct config *cf = &s->config;
    struct cluster_node *self = c->nodes;
    struct engine *e = c->member.region->eng;
    if (!cf->cluster_init && !cf->cluster_join.n) {
        log_line(&s->log, LOG_WARNING,
                 "This node belongs to no cluster yet. Start it once with --cluster-init "
                 "yes to make one, or with --cluster-join HOST:PORT to join one");
        return false;
    }
    if (!cf->cluster_init && e->ops->count(e, 0)) {
        log_line(&s->log, LOG_WARNING,
                 "Can't join a cluster with data: %s holds %llu keys. A node that joins "
                 "starts with an empty folder",
                 cf->dir.p, (ull)e->ops->count(e, 0));
        return false;
    }
    if (!only_database_0(c)) return false;
    server_random_id(self->id);
    self->peer = cluster_peer_of(self->id);
    if (!cf->cluster_init) return true;
    c->number = rand_next(&c->member.region->seeds) | 1;
    c->member.at = (struct raft_applied){
        .index = FIRST_INDEX,
        .term = FIRST_INDEX,
        .clock_ms = 0,
        .epoch = {1, 1},
        .conf = {.voters = {self->peer}, .voters_n = 1},
    };
    return true;
}

/* -- joining: the node that asks --------------------------------------------------------------- */

/* The next of cluster-join's addresses, "HOST:PORT …", with the port clients use. */
static bool next_seed(struct cluster *c, char host[256], int *port)
{
    const char *p = c->server->config.cluster_join.p;
    u32 at = 0, wanted = c->join_next++;
    for (int round = 0; round < 2; round++, wanted = 0, c->join_next = 1, at = 0) {
        for (const char *q = p; q && *q; at++) {
            size_t n = strcspn(q, " ");
            if (at == wanted) {
                const char *colon = memrchr(q, ':', n);
                if (!colon) return false;
                snprintf(host, 256, "%.*s", (int)(colon - q), q);
                *port = atoi(colon + 1) + 10000;
                return true;
            }
            q += n + strspn(q + n, " ");
        }
    }
    return false;
}

static void take_answer(struct cluster *c, const char *text)
{
    char host[256], word[16] = "";
    ull number = 0;
    int port;
    if (sscanf(text, "ok %llx", &number) == 1) {
        for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
            cluster_learn_node(c, bytes_of(line + 1, strcspn(line + 1, "\n")));
        if (c->number == number) return;
        c->number = number;
        bus_set_cluster(c->bus, number);
        c->unsaved = true;
        c->member.unsaved = true; /* with the next commit */
    } else if (sscanf(text, "ask %255s %d", host, &port) == 2) {
        snprintf(c->ask_host, sizeof c->ask_host, "%s", host);
        c->ask_port = port;
    } else if (sscanf(text, "%15s", word) == 1) {
        c->ask_host[0] = '\0';
    }
}

static void on_join_answer(struct bus_conn *conn, u8 type, bytes body)
{
    struct cluster *c = bus_conn_user(conn);
    struct buf text = {0};
    if (type == CLUSTER_JOIN_ANSWER) {
        buf_append_bytes(&text, body);
        buf_append_char(&text, '\0');
        take_answer(c, text.p);
        buf_release(&text);
    }
    bus_conn_close(conn, "answered");
}

static void on_join_closed(struct bus_conn *conn, const char *why UNUSED)
{
    struct cluster *c = bus_conn_user(conn);
    c->join = NULL;
}

void cluster_join_step(struct cluster *c)
{
    static const struct bus_conn_ops ops = {.on_frame = on_join_answer, .on_closed = on_join_closed};
    struct buf line = {0};
    char host[256];
    int port;
    if (c->member.at.conf.voters_n || c->join || c->ticks % JOIN_EVERY) return;
    if (c->ask_host[0]) {
        snprintf(host, sizeof host, "%s", c->ask_host);
        port = c->ask_port;
        c->ask_host[0] = '\0';
    } else if (!next_seed(c, host, &port)) {
        return;
    }
    c->join = bus_dial(c->bus, host, port, BUS_CALL, "", &ops, c);
    cluster_print_node(c->nodes, &line);
    bus_conn_send(c->join, CLUSTER_JOIN, (bytes){0}, buf_bytes(&line));
    buf_release(&line);
}

/* -- joining: the node that is asked ----------------------------------------------------------- */

static void answer_later(struct cluster *c, struct buf *answer)
{
    const struct cluster_node *n = cluster_node_of(c, group_leader(c->member.group));
    if (n && n != c->nodes) buf_printf(answer, "ask %s %d", n->host, n->bus_port);
    else buf_append_str(answer, "later");
}

/* First everybody has to know where it is reached, then it becomes a learner. */
static void admit_node(struct cluster *c, bytes line, struct buf *answer)
{
    const struct cluster_node *known = line.n > BUS_NODE_ID ? cluster_find(c, line.p, BUS_NODE_ID) : NULL;
    struct buf stored = {0};
    if (known) cluster_print_node(known, &stored);
    bool current = known && bytes_eq(buf_bytes(&stored), line);
    buf_release(&stored);
    group_wall(c->member.group, (u64)clock_wall_ms());
    if (!current) {
        group_propose(c->member.group, RAFT_KIND_NODE, line);
        buf_append_str(answer, "later");
        return;
    }
    if (!cluster_is_member(c, known->peer)) {
        struct raft_change change = {known->peer, RAFT_ADD_LEARNER};
        if (group_change(c->member.group, &change, 1) != GROUP_CHANGE_PROPOSED) {
            buf_append_str(answer, "later");
            return;
        }
        log_line(&c->server->log, LOG_NOTICE, "Node %.8s at %s:%d joins the cluster.", known->id, known->host,
                 known->port);
    }
    buf_printf(answer, "ok %llx", (ull)c->number);
    for (const struct cluster_node *n = c->nodes; n; n = n->next) {
        buf_append_char(answer, '\n');
        cluster_print_node(n, answer);
    }
}

static void on_call(struct bus_conn *conn, u8 type, bytes body)
{
    struct cluster *c = bus_conn_user(conn);
    struct buf answer = {0};
    if (type != CLUSTER_JOIN || !c->started || !c->number) {
        bus_conn_close(conn, "not a question this node can answer");
        return;
    }
    if (member_leads(&c->member)) admit_node(c, body, &answer);
    else answer_later(c, &answer);
    bus_conn_send(conn, CLUSTER_JOIN_ANSWER, (bytes){0}, buf_bytes(&answer));
    bus_conn_finish(conn);
    buf_release(&answer);
}

const struct bus_conn_ops *cluster_join_ops(void)
{
    static const struct bus_conn_ops ops = {.on_frame = on_call};
    return &ops;
}

/* -- on the leader: learners that have caught up become voters --------------------------------- */

void cluster_admit_step(struct cluster *c)
{
    const struct raft_conf *conf = &c->member.at.conf;
    if (conf->outgoing_n || conf->voters_n >= (u32)c->server->config.cluster_replicas) return;
    for (u32 i = 0; i < conf->learners_n; i++) {
        struct raft_change change = {conf->learners[i], RAFT_ADD_VOTER};
        if (group_change(c->member.group, &change, 1) != GROUP_CHANGE_PROPOSED) continue;
        const struct cluster_node *n = cluster_node_of(c, change.id);
        log_line(&c->server->log, LOG_NOTICE, "Node %.8s has caught up and becomes a voter.",
                 n ? n->id : "?");
        return;
    }
}

const char *cluster_forget(struct cluster *c, const char *id, size_t len)
{
    const struct cluster_node *n = cluster_find(c, id, len);
    if (!n) return "ERR Unknown node";
    if (n == c->nodes) return "ERR I tried hard but I can't forget myself...";
    if (!member_leads(&c->member)) return "ERR Ask the node that leads: see CLUSTER NODES";
    struct raft_change change = {n->peer, RAFT_REMOVE};
    switch (group_change(c->member.group, &change, 1)) {
    case GROUP_CHANGE_PROPOSED: return NULL;
    case GROUP_CHANGE_INVALID: return "ERR The node is not a member, or is the last one";
    default: return "TRYAGAIN Another change of members is under way";
    }
}

const char *cluster_take_over(struct cluster *c)
{
    struct group *g = c->member.group;
    if (member_leads(&c->member)) return "ERR This node leads already";
    if (!is_voter(c, c->nodes->peer)) return "ERR This node is not a voter yet";
    if (!group_leader(g)) return "CLUSTERDOWN There is no leader to take over from";
    group_transfer(g, c->nodes->peer);
    return NULL;
}
