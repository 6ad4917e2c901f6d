/* The nodes of the cluster: creating a cluster, joining one, leaving it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cluster/cluster_parts.h"

#define FIRST_INDEX 5 /* where a new log begins, so that a member without any data needs a snapshot */
#define JOIN_EVERY 2  /* ticks of the timer */
#define JOIN_LOG_EVERY_MS 10000

static u64 peer_among(const u64 *ids, u32 n, u64 node)
{
    for (u32 i = 0; i < n; i++)
        if (node_of(ids[i]) == node) return ids[i];
    return 0;
}

u64 conf_peer_on(const struct raft_conf *conf, u64 node)
{
    u64 voter = peer_among(conf->voters, conf->voters_n, node);
    return voter ? voter : peer_among(conf->learners, conf->learners_n, node);
}

static bool is_voter(const struct member *m)
{
    return peer_among(m->at.conf.voters, m->at.conf.voters_n, node_of(m->peer)) == m->peer;
}

bool member_has(const struct member *m, u64 node) { return conf_peer_on(&m->at.conf, node) != 0; }

bool cluster_is_member(const struct cluster *c, const struct cluster_node *n)
{
    return member_has(cluster_meta(c), n->number);
}

/* -- making ------------------------------------------------------------------------------------ */

static const struct rocks_region whole = {CLUSTER_REGION, 1, 0, RAFT_SLOTS - 1};

/* The clock is there before the first entry: some commands show times. */
static struct raft_applied first_state(u64 peer, struct raft_slots slots)
{
    return (struct raft_applied){
        .index = FIRST_INDEX,
        .term = FIRST_INDEX,
        .clock_ms = (u64)clock_wall_ms(),
        .epoch = {1, 1},
        .slots = slots,
        .conf = {.voters = {peer}, .voters_n = 1},
    };
}

/* Region 1 gets all slots, and the data of a lone server. It is stored before the identity: a node that ends
 * in between makes the cluster again. */
static bool make_first_region(struct cluster *c)
{
    struct region *r = cluster_new_region(c, &whole);
    if (!r) return false;
    u64 peer = peer_of(c->nodes->number, 0);
    struct member *m = cluster_new_member(c, CLUSTER_REGION, r, peer);
    m->peer = peer;
    m->at = first_state(peer, (struct raft_slots){0, RAFT_SLOTS - 1});
    region_begin(r, member_clock(m));
    member_adopt(m, &m->at);
    if (!region_commit(r)) {
        log_line(&c->server->log, LOG_WARNING, "The first region of the cluster can't be stored");
        return false;
    }
    region_begin(r, member_clock(m));
    return true;
}

/* A node that joins must not have data, because it can't be kept. */
static bool has_no_data(const struct cluster *c)
{
    struct buf why = {0};
    struct engine *e = rocks_region_open(c->server->rocks, &whole, &why);
    u64 keys = 0;
    if (!e) log_line(&c->server->log, LOG_WARNING, "Can't join a cluster: %.*s", (int)why.n, why.p);
    buf_release(&why);
    if (!e) return false;
    bool empty = !(keys = e->ops->count(e, 0));
    if (keys)
        log_line(&c->server->log, LOG_WARNING,
                 "Can't join a cluster with data: %s holds %llu keys. A node that joins "
                 "starts with an empty folder",
                 c->server->config.dir.p, (ull)keys);
    e->ops->begin(e, clock_wall_ms());
    if (empty && !rocks_region_drop(e)) empty = false; /* the slots are free for what comes */
    e->ops->close(e);
    return empty;
}

bool cluster_make_identity(struct cluster *c)
{
    struct server *s = c->server;
    const struct config *cf = &s->config;
    struct cluster_node *self = c->nodes;
    struct member *m = cluster_meta(c);
    if (!cf->cluster_init && !cf->cluster_join.n)
        log_line(&s->log, LOG_WARNING,
                 "This node belongs to no cluster yet. Start it once with --cluster-init "
                 "yes to make one, or with --cluster-join HOST:PORT to join one; or send it CLUSTER MEET "
                 "with the address of a node of one");
    if (!cf->cluster_init && !has_no_data(c)) return false;
    server_random_id(self->id);
    self->number = cluster_node_number(self->id);
    if (!cf->cluster_init) return true;
    c->number = rand_next(&m->region->seeds) | 1;
    if (!make_first_region(c)) return false;
    m->peer = peer_of(self->number, 0);
    m->at = first_state(m->peer, (struct raft_slots){0, 0});
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
        cluster_meta(c)->unsaved = true; /* with the next commit */
        cluster_stir(cluster_meta(c));
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
        c->join_answered = true;
        take_answer(c, text.p);
        buf_release(&text);
    }
    bus_conn_close(conn, "answered");
}

/* Says why it can't join, now and then. */
static void on_join_closed(struct bus_conn *conn, const char *why)
{
    struct cluster *c = bus_conn_user(conn);
    i64 now_ms = (i64)uv_now(&c->server->loop);
    c->join = NULL;
    if (c->join_answered || (c->join_logged_ms && now_ms - c->join_logged_ms < JOIN_LOG_EVERY_MS)) return;
    c->join_logged_ms = MAX(now_ms, 1);
    log_line(&c->server->log, LOG_WARNING, "No answer from the cluster (cluster-join %s): %s",
             c->server->config.cluster_join.p, why);
}

void cluster_join_step(struct cluster *c)
{
    static const struct bus_conn_ops ops = {.on_frame = on_join_answer, .on_closed = on_join_closed};
    struct buf line = {0};
    char host[256];
    int port;
    if (cluster_meta(c)->at.conf.voters_n || c->join || c->ticks % JOIN_EVERY) return;
    if (c->ask_host[0]) {
        snprintf(host, sizeof host, "%s", c->ask_host);
        port = c->ask_port;
        c->ask_host[0] = '\0';
    } else if (c->meet_host[0]) {
        snprintf(host, sizeof host, "%s", c->meet_host);
        port = c->meet_port;
    } else if (!next_seed(c, host, &port)) {
        return;
    }
    c->join_answered = false;
    c->join = bus_dial(c->bus, host, port, BUS_CALL, "", &ops, c);
    cluster_print_node(c->nodes, &line);
    bus_conn_send(c->join, CLUSTER_JOIN, (bytes){0}, buf_bytes(&line));
    buf_release(&line);
}

/* -- joining: the node that is asked ----------------------------------------------------------- */

static void answer_later(struct cluster *c, struct buf *answer)
{
    const struct cluster_node *n = cluster_node_of(c, group_leader(cluster_meta(c)->group));
    if (n && n != c->nodes) buf_printf(answer, "ask %s %d", n->host, n->bus_port);
    else buf_append_str(answer, "later");
}

/* First all nodes must know its address, then it becomes a learner. */
static void admit_node(struct cluster *c, bytes line, struct buf *answer)
{
    const struct cluster_node *known = line.n > BUS_NODE_ID ? cluster_find(c, line.p, BUS_NODE_ID) : NULL;
    struct member *m = cluster_meta(c);
    struct buf stored = {0};
    if (known) cluster_print_node(known, &stored);
    bool current = known && bytes_eq(buf_bytes(&stored), line);
    buf_release(&stored);
    group_wall(m->group, (u64)clock_wall_ms());
    cluster_stir(m);
    if (!current) {
        group_propose(m->group, RAFT_KIND_NODE, line);
        buf_append_str(answer, "later");
        return;
    }
    if (known->draining) {
        buf_append_str(answer, "later");
        return;
    }
    if (!cluster_is_member(c, known)) {
        struct raft_change change = {peer_of(known->number, m->at.epoch.conf_ver), RAFT_ADD_LEARNER};
        if (group_change(m->group, &change, 1) != GROUP_CHANGE_PROPOSED) {
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

/* A node of a cluster invites this one, by CLUSTER MEET there. */
static void take_invitation(struct cluster *c, bytes line)
{
    char text[512], host[256];
    int port, bus_port;
    snprintf(text, sizeof text, "%.*s", (int)line.n, line.p);
    if (sscanf(text, "%*s %255s %d %d", host, &port, &bus_port) == 3) (void)cluster_meet(c, host, bus_port);
}

static void on_call(struct bus_conn *conn, u8 type, bytes body)
{
    struct cluster *c = bus_conn_user(conn);
    struct buf answer = {0};
    if (type == CLUSTER_INVITE) {
        if (!c->number) take_invitation(c, body);
        bus_conn_close(conn, "invited");
        return;
    }
    if (type != CLUSTER_JOIN || !c->started || !c->number) {
        bus_conn_close(conn, "not a question this node can answer");
        return;
    }
    if (member_leads(cluster_meta(c))) admit_node(c, body, &answer);
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

/* -- on region 0's leader: its voters ---------------------------------------------------------- */

#define META_VOTERS_MAX 5

static bool join_dead(const struct cluster *c, const struct cluster_node *n)
{
    return schedule_silence_ms(c, n) > (i64)c->server->config.cluster_node_dead_after * 1000;
}

static u32 meta_voters_wanted(const struct cluster *c)
{
    u32 stay = 0, wanted = MIN(MAX((u32)c->server->config.cluster_replicas, 3u), META_VOTERS_MAX);
    for (const struct cluster_node *n = c->nodes; n; n = n->next)
        stay += !n->draining && cluster_is_member(c, n);
    return MAX(MIN(stay, wanted), 1u);
}

/* A member of region 0 that is (not) a voter, on a node that should (not) have one. */
static u64 meta_find(const struct cluster *c, bool voter, bool fit)
{
    const struct raft_conf *conf = &cluster_meta(c)->at.conf;
    for (const struct cluster_node *n = c->nodes; n; n = n->next) {
        bool is_fit = !n->draining && !join_dead(c, n);
        u64 peer = voter ? peer_among(conf->voters, conf->voters_n, n->number)
                         : peer_among(conf->learners, conf->learners_n, n->number);
        if (peer && is_fit == fit) return peer;
    }
    return 0;
}

static bool meta_change(struct member *m, const struct raft_change *changes, size_t n, const char *what)
{
    if (group_change(m->group, changes, n) != GROUP_CHANGE_PROPOSED) return false;
    const struct cluster_node *node = cluster_node_of(m->cluster, changes[0].id);
    log_line(&m->server->log, LOG_NOTICE, "Node %.8s %s of region 0.", node ? node->id : "?", what);
    return true;
}

/* A node that is being removed leaves region 0, and so the cluster, when it has no other member. */
static bool meta_remove_drained(struct cluster *c)
{
    struct member *m = cluster_meta(c);
    for (const struct cluster_node *n = c->nodes; n; n = n->next) {
        u64 peer = conf_peer_on(&m->at.conf, n->number);
        if (!n->draining || !peer || cluster_has_regions(c, n->number)) continue;
        return meta_change(m, &(struct raft_change){peer, RAFT_REMOVE}, 1,
                           "leaves the cluster: it is no member any more");
    }
    return false;
}

/* Every node has a member of region 0. Up to five vote, on nodes that live and stay. */
void cluster_admit_step(struct cluster *c)
{
    struct member *m = cluster_meta(c);
    const struct raft_conf *conf = &m->at.conf;
    u64 spare = meta_find(c, false, true), unfit = meta_find(c, true, false);
    if (conf->outgoing_n || meta_remove_drained(c)) return;
    if (conf->voters_n < meta_voters_wanted(c)) {
        if (spare) (void)meta_change(m, &(struct raft_change){spare, RAFT_ADD_VOTER}, 1, "becomes a voter");
    } else if (unfit && spare) {
        struct raft_change change[] = {{spare, RAFT_ADD_VOTER}, {unfit, RAFT_ADD_LEARNER}};
        (void)meta_change(m, change, 2, "becomes a voter in place of one that is dead or leaves");
    } else if (unfit && conf->voters_n > meta_voters_wanted(c)) {
        (void)meta_change(m, &(struct raft_change){unfit, RAFT_ADD_LEARNER}, 1, "no longer votes in the log");
    }
}

bool cluster_meta_votes(const struct cluster *c, u64 peer)
{
    const struct raft_conf *conf = &cluster_meta(c)->at.conf;
    return peer_among(conf->voters, conf->voters_n, node_of(peer)) == peer;
}

void cluster_meta_give_vote(struct cluster *c, u64 peer)
{
    struct member *m = cluster_meta(c);
    const struct raft_conf *conf = &m->at.conf;
    u64 gives = 0;
    for (u32 i = 0; i < conf->voters_n; i++)
        if (conf->voters[i] != m->peer) gives = conf->voters[i];
    struct raft_change change[] = {{peer, RAFT_ADD_VOTER}, {gives, RAFT_ADD_LEARNER}};
    if (!conf->outgoing_n && gives)
        (void)meta_change(m, change, 2, "becomes a voter: it leads the first slots");
}

/* -- taking over ------------------------------------------------------------------------------- */

/* Of one region. True: it leads it, or has tried to. */
static bool take_over_region(struct member *m, bool forced)
{
    if (member_leads(m)) return true;
    if (!is_voter(m) || (!forced && !group_leader(m->group))) return false;
    group_wall(m->group, (u64)clock_wall_ms());
    if (forced) group_campaign(m->group);
    else group_transfer(m->group, m->peer);
    cluster_stir(m);
    return true;
}

const char *cluster_take_over(struct cluster *c, bool forced)
{
    bool all = true, some = false, votes = false;
    for (u32 i = 1; i < c->members_n; i++) {
        all &= member_leads(c->members[i]);
        votes |= is_voter(c->members[i]);
    }
    if (all && c->members_n > 1) return "ERR You should send CLUSTER FAILOVER to a replica";
    if (!votes) return "ERR This node is not a voter yet";
    if (c->diverged) return "ERR The data of this node differs from that of the others";
    for (u32 i = 0; i < c->members_n; i++)
        some |= !member_leads(c->members[i]) && take_over_region(c->members[i], forced);
    return some ? NULL : "ERR Master is down or failed, please use CLUSTER FAILOVER FORCE";
}

/* -- inviting ---------------------------------------------------------------------------------- */

static void ignore_answer(struct bus_conn *conn UNUSED, u8 type UNUSED, bytes body UNUSED) {}

const char *cluster_meet(struct cluster *c, const char *host, int bus_port)
{
    static const struct bus_conn_ops ops = {.on_frame = ignore_answer};
    if (!c->number) {
        snprintf(c->meet_host, sizeof c->meet_host, "%s", host);
        c->meet_port = bus_port;
        return NULL;
    }
    struct buf line = {0};
    struct bus_conn *conn = bus_dial(c->bus, host, bus_port, BUS_CALL, "", &ops, c);
    cluster_print_node(c->nodes, &line);
    bus_conn_send(conn, CLUSTER_INVITE, (bytes){0}, buf_bytes(&line));
    buf_release(&line);
    return NULL;
}

/* -- forgetting -------------------------------------------------------------------------------- */

/* CLUSTER FORGET may be sent to any node, as redis-cli --cluster del-node does. It forwards the request to
 * the leader of region 0, and replies OK also if the removal is in progress or done. */

static void note_forgotten(struct cluster *c, const struct cluster_node *n)
{
    memcpy(c->forgotten[c->forgotten_next++ % ARRAY_LEN(c->forgotten)], n->id, sizeof n->id);
}

static bool was_forgotten(const struct cluster *c, const char *id, size_t len)
{
    for (size_t i = 0; len == BUS_NODE_ID && i < ARRAY_LEN(c->forgotten); i++)
        if (memcmp(c->forgotten[i], id, BUS_NODE_ID) == 0) return true;
    return false;
}

/* The node is marked; cluster_schedule.c moves its members, then it leaves region 0. */
static const char *drain_node(struct cluster *c, const struct cluster_node *n)
{
    struct member *m = cluster_meta(c);
    struct buf line = {0};
    u32 stay = 0;
    for (const struct cluster_node *o = c->nodes; o; o = o->next)
        stay += o != n && !o->draining && cluster_is_member(c, o);
    if (n->draining) return NULL; /* it is under way */
    if (!cluster_is_member(c, n) || !stay) return "ERR The node is not a member, or is the last one";
    struct cluster_node marked = *n;
    marked.draining = true;
    cluster_print_node(&marked, &line);
    group_wall(m->group, (u64)clock_wall_ms());
    bool ok = group_propose(m->group, RAFT_KIND_NODE, buf_bytes(&line));
    buf_release(&line);
    cluster_stir(m);
    if (!ok) return "TRYAGAIN Not just now";
    log_line(&c->server->log, LOG_NOTICE, "Node %.8s at %s:%d is to leave the cluster.", n->id, n->host,
             n->port);
    return NULL;
}

static const char *ask_leader_to_forget(struct cluster *c, const struct cluster_node *n)
{
    const struct cluster_node *leader = cluster_node_of(c, group_leader(cluster_meta(c)->group));
    if (!leader || leader == c->nodes) return "CLUSTERDOWN There is no node that leads";
    if (bus_send(leader->link, CLUSTER_FORGET, (bytes){0}, bytes_of(n->id, BUS_NODE_ID))) return NULL;
    return "TRYAGAIN The node that leads can't be reached";
}

const char *cluster_forget(struct cluster *c, const char *id, size_t len)
{
    const struct cluster_node *n = cluster_find(c, id, len);
    if (!n) return was_forgotten(c, id, len) ? NULL : "ERR Unknown node";
    if (n == c->nodes) return "ERR I tried hard but I can't forget myself...";
    return member_leads(cluster_meta(c)) ? drain_node(c, n) : ask_leader_to_forget(c, n);
}

/* Sent by another node: also this one may be meant. */
void cluster_forget_for(struct cluster *c, const char *from, bytes id)
{
    const struct cluster_node *n = cluster_find(c, id.p, id.n);
    if (!n) return;
    const char *error = member_leads(cluster_meta(c)) ? drain_node(c, n) : "This node does not lead";
    if (error)
        log_line(&c->server->log, LOG_WARNING,
                 "Node %.8s asked to forget node %.8s, which was refused: %s", from, n->id, error);
}

static bool is_in(const struct raft_conf *conf, u64 node)
{
    return conf_peer_on(conf, node) || peer_among(conf->outgoing, conf->outgoing_n, node) ||
           peer_among(conf->learners_next, conf->learners_next_n, node);
}

void cluster_members_changed(struct cluster *c, const struct raft_conf *before)
{
    const struct raft_conf *now = &cluster_meta(c)->at.conf;
    for (struct cluster_node **at = &c->nodes->next; *at;) {
        struct cluster_node *n = *at;
        if (!is_in(before, n->number) || is_in(now, n->number)) {
            at = &n->next;
            continue;
        }
        log_line(&c->server->log, LOG_NOTICE, "Node %.8s at %s:%d has left the cluster.", n->id, n->host,
                 n->port);
        c->unsaved = true;
        note_forgotten(c, n);
        *at = n->next;
        if (n->link) bus_peer_remove(n->link);
        mem_free(n);
    }
}
