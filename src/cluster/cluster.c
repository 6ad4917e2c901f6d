/* A node's part of the cluster: its life, its nodes, its messages and its timer. */
#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "cluster/cluster_parts.h"
#include "cluster/message.h"
#include "cluster/snapshot.h"
#include "engine/rocks/rocks.h"
#include "persist/disk_file.h"
#include "raft/plant.h"
#include "repl/primary.h"
#include "server/client/pubsub.h"

#define QUEUE_MAX ((size_t)64 << 20)
#define GREET_TIMEOUT_MS 5000
#define STORED_FORMAT 2    /* of the rows that a node stores of its cluster; before 2 it was not stored */
#define LEAVE_QUIET_MS 500 /* so long no client has asked anything when a former leader ends */

struct server *cluster_server(const struct cluster *c) { return c->server; }
const struct cluster_node *cluster_nodes(const struct cluster *c) { return c->nodes; }
const struct cluster_node *cluster_self(const struct cluster *c) { return c->nodes; }
struct bus *cluster_bus(struct cluster *c) { return c->bus; }
u64 cluster_number(const struct cluster *c) { return c->number; }

void cluster_die(struct cluster *c, const char *why)
{
    log_line(&c->server->log, LOG_WARNING,
             "Fatal: %s. This node stops, so that it can't diverge; the others "
             "go on without it.",
             why);
    _exit(1);
}

/* -- nodes ------------------------------------------------------------------------------------- */

/* 0 is no node. */
u64 cluster_node_number(const char *id)
{
    char digits[11];
    snprintf(digits, sizeof digits, "%.10s", id);
    return MAX(strtoull(digits, NULL, 16), 1ull);
}

struct cluster_node *cluster_node_numbered(struct cluster *c, u64 number)
{
    struct cluster_node *n = c->nodes;
    while (n && n->number != number) n = n->next;
    return n;
}

struct cluster_node *cluster_node_of(struct cluster *c, u64 peer)
{
    return cluster_node_numbered(c, node_of(peer));
}

struct cluster_node *cluster_find(struct cluster *c, const char *id, size_t len)
{
    struct cluster_node *n = c->nodes;
    while (n && (len != BUS_NODE_ID || memcmp(n->id, id, len) != 0)) n = n->next;
    return n;
}

static struct cluster_node *add_node(struct cluster *c, const char *id)
{
    struct cluster_node *n = mem_zalloc(sizeof *n), **at = &c->nodes;
    memcpy(n->id, id, BUS_NODE_ID); /* mem_zalloc has ended it */
    n->number = cluster_node_number(id);
    while (*at) at = &(*at)->next;
    *at = n;
    return n;
}

void cluster_print_node(const struct cluster_node *n, struct buf *out)
{
    buf_printf(out, "%s %s %d %d%s", n->id, n->host, n->port, n->bus_port, n->draining ? " draining" : "");
}

bool cluster_learn_node(struct cluster *c, bytes line)
{
    char text[512], id[64], host[256], more[16] = "";
    int port, bus_port;
    snprintf(text, sizeof text, "%.*s", (int)line.n, line.p);
    int got = sscanf(text, "%63s %255s %d %d %15s", id, host, &port, &bus_port, more);
    if (got < 4 || !bus_is_node_id(id)) return false;
    struct cluster_node *n = cluster_find(c, id, strlen(id));
    if (!n && cluster_node_numbered(c, cluster_node_number(id))) return false; /* never, but for chance */
    if (!n) n = add_node(c, id);
    bool draining = strcmp(more, "draining") == 0;
    c->unsaved |= draining != n->draining;
    n->draining = draining;
    bool same = n->port == port && n->bus_port == bus_port && strcmp(n->host, host) == 0;
    if (same) return true;
    snprintf(n->host, sizeof n->host, "%s", host);
    n->port = port;
    n->bus_port = bus_port;
    c->unsaved = true;
    if (n != c->nodes && c->bus) n->link = bus_peer_add(c->bus, n->id, n->host, n->bus_port);
    return true;
}

struct forgotten_rows {
    struct cluster *cluster;
    struct buf names; /* each ends with a 0 */
};

static void find_forgotten(void *arg, bytes name, bytes value UNUSED, double unused UNUSED)
{
    struct forgotten_rows *f = arg;
    if (name.n > 7 && memcmp(name.p, "region ", 7) == 0) {
        char number[32];
        snprintf(number, sizeof number, "%.*s", (int)(name.n - 7), name.p + 7);
        if (map_find(&f->cluster->map, strtoull(number, NULL, 10))) return;
        buf_append_bytes(&f->names, name); /* it was merged */
        buf_append_char(&f->names, '\0');
        return;
    }
    if (name.n != 5 + BUS_NODE_ID || memcmp(name.p, "node ", 5) != 0) return;
    if (cluster_find(f->cluster, name.p + 5, BUS_NODE_ID)) return;
    buf_append_bytes(&f->names, name);
    buf_append_char(&f->names, '\0');
}

static void erase_forgotten(struct cluster *c, struct engine *e)
{
    struct forgotten_rows f = {.cluster = c};
    e->ops->meta.each(e, META_CLUSTER, find_forgotten, &f);
    for (const char *p = f.names.p, *end = p + f.names.n; p < end; p += strlen(p) + 1)
        e->ops->meta.del(e, META_CLUSTER, bytes_str(p));
    buf_release(&f.names);
}

static void write_regions(struct cluster *c, struct engine *e, struct buf *text)
{
    for (u32 i = 0; i < c->map.n; i++) {
        struct map_region *r = &c->map.rows[i];
        char name[40];
        int len = snprintf(name, sizeof name, "region %llu", (ull)r->number);
        if (!r->unsaved) continue;
        buf_clear(text);
        map_print(r, text);
        e->ops->meta.put(e, META_CLUSTER, bytes_of(name, (size_t)len), buf_bytes(text));
        r->unsaved = false;
    }
}

static void write_tombstones(struct cluster *c, struct engine *e, struct buf *text)
{
    for (u32 i = 0; i < c->tombstones_n; i++) {
        char name[40];
        int len = snprintf(name, sizeof name, "tombstone %llu", (ull)c->tombstones[i].region);
        buf_clear(text);
        const struct region_tombstone *t = &c->tombstones[i];
        buf_printf(text, "%llx", (ull)t->peer);
        if (t->into) buf_printf(text, " %llu %u", (ull)t->into, t->version);
        e->ops->meta.put(e, META_CLUSTER, bytes_of(name, (size_t)len), buf_bytes(text));
    }
}

static void write_regions_and_tombstones(struct cluster *c, struct engine *e)
{
    struct buf text = {0};
    if (c->unsaved_regions) write_regions(c, e, &text);
    if (c->unsaved_tombstones) write_tombstones(c, e, &text);
    buf_release(&text);
    c->unsaved_regions = c->unsaved_tombstones = false; /* as below */
}

void cluster_write_nodes(struct cluster *c, struct engine *e)
{
    if (UNLIKELY(c->unsaved_regions | c->unsaved_tombstones)) write_regions_and_tombstones(c, e);
    if (!c->unsaved) return;
    struct buf text = {0};
    erase_forgotten(c, e);
    if (c->diverged) buf_printf(&text, "%llu", (ull)c->diverged);
    if (c->diverged) e->ops->meta.put(e, META_CLUSTER, BYTES_LIT("diverged"), buf_bytes(&text));
    else e->ops->meta.del(e, META_CLUSTER, BYTES_LIT("diverged"));
    buf_clear(&text);
    buf_printf(&text, "%s %llx %d", c->nodes->id, (ull)c->number, STORED_FORMAT);
    e->ops->meta.put(e, META_CLUSTER, BYTES_LIT("identity"), buf_bytes(&text));
    for (const struct cluster_node *n = c->nodes; n; n = n->next) {
        char name[64];
        int len = snprintf(name, sizeof name, "node %s", n->id);
        buf_clear(&text);
        cluster_print_node(n, &text);
        e->ops->meta.put(e, META_CLUSTER, bytes_of(name, (size_t)len), buf_bytes(&text));
    }
    buf_release(&text);
    c->unsaved = false; /* a member whose commit fails ends: cluster_die */
}

static void load_row(void *arg, bytes name, bytes value, double unused UNUSED)
{
    struct cluster *c = arg;
    char id[64] = "", text[128];
    ull peer;
    struct map_region row;
    ull number = 0;
    int format = 0;
    if (bytes_eq(name, BYTES_LIT("identity"))) {
        snprintf(text, sizeof text, "%.*s", (int)value.n, value.p);
        if (sscanf(text, "%63s %llx %d", id, &number, &format) < 2 || !bus_is_node_id(id)) return;
        c->other_format = format != STORED_FORMAT;
        c->number = number;
        if (c->nodes->id[0]) return;
        snprintf(c->nodes->id, sizeof c->nodes->id, "%.40s", id);
        c->nodes->number = cluster_node_number(id);
    } else if (bytes_eq(name, BYTES_LIT("diverged"))) {
        snprintf(text, sizeof text, "%.*s", (int)value.n, value.p);
        c->diverged = strtoull(text, NULL, 10);
    } else if (name.n > 5 && memcmp(name.p, "node ", 5) == 0) {
        cluster_learn_node(c, value);
    } else if (name.n > 7 && memcmp(name.p, "region ", 7) == 0) {
        if (!c->other_format && map_parse(value, &row)) map_take(&c->map, &row);
    } else if (name.n > 10 && memcmp(name.p, "tombstone ", 10) == 0) {
        snprintf(text, sizeof text, "%.*s %.*s", (int)(name.n - 10), name.p + 10, (int)value.n, value.p);
        ull into = 0;
        unsigned version;
        int n = sscanf(text, "%llu %llx %llu %u", &number, &peer, &into, &version);
        if (n >= 2) (void)cluster_add_tombstone(c, number, peer);
        if (n == 4) cluster_add_merged(c, number, into, version);
    }
}

/* The identity comes before the nodes in the order of the rows. */
bool cluster_load_identity(struct cluster *c)
{
    struct engine *e = cluster_meta(c)->region->eng;
    e->ops->meta.each(e, META_CLUSTER, load_row, c);
    for (u32 i = 0; i < c->map.n; i++) c->map.rows[i].unsaved = false;
    c->unsaved = c->unsaved_regions = c->unsaved_tombstones = false;
    return c->nodes->id[0];
}

/* -- messages ---------------------------------------------------------------------------------- */

void cluster_send(struct member *m, u64 to, bytes message)
{
    struct cluster_node *n = cluster_node_of(m->cluster, to);
    const struct raft_applied *at = &m->at;
    char head[MESSAGE_HEAD];
    if (!n || !n->link) return; /* not known yet: Raft repeats */
    if (message.n >= HELD_BYTES) cluster_held(m->server);
    message_put(head, &(struct message_head){m->number, m->peer, to, at->slots.first, at->slots.last,
                                             at->index != 0});
    if (!bus_send(n->link, CLUSTER_RAFT, bytes_of(head, sizeof head), message)) n->unreachable = true;
}

void cluster_publish(struct server *s, bytes channel, bytes message, bool sharded)
{
    struct cluster *c = s->cluster;
    struct buf head = {0};
    u32 n = (u32)channel.n;
    buf_append_char(&head, sharded);
    buf_append(&head, &n, sizeof n);
    buf_append_bytes(&head, channel);
    for (struct cluster_node *to = c->nodes->next; to; to = to->next)
        if (to->link) bus_send(to->link, CLUSTER_PUBLISH, buf_bytes(&head), message);
    buf_release(&head);
}

void cluster_deliver(struct server *s, bytes body)
{
    u32 n;
    if (body.n < 5) return;
    memcpy(&n, body.p + 1, sizeof n);
    if (n > body.n - 5) return;
    pubsub_publish(s, body.p[0] ? PUBSUB_SHARD : PUBSUB_CHANNEL, bytes_of(body.p + 5, n),
                   bytes_of(body.p + 5 + n, body.n - 5 - n));
}

/* A message of a group, or word that this node's member was removed from one. */
static void on_group_message(struct bus_conn *conn, bool gone, bytes body)
{
    struct cluster *c = bus_conn_user(conn);
    struct message_head h;
    const char *wrong = message_get(body, cluster_node_number(bus_conn_node(conn)), c->nodes->number, &h);
    if (wrong) {
        bus_conn_refuse(conn, wrong);
        return;
    }
    if (!c->started || !c->number) return;
    i64 wall_ms = clock_wall_ms();
    struct cluster_node *n = cluster_node_of(c, h.from);
    if (n) n->heard_ms = wall_ms;
    if (gone) {
        struct member *left = cluster_member_of(c, h.region);
        if (left && left->peer == h.to) cluster_bury(left);
        return;
    }
    if (cluster_was_merged(c, &h)) return;
    struct member *m = cluster_addressee(c, &h);
    if (!m || cluster_is_stale(m, h.from)) return;
    group_wall(m->group, (u64)wall_ms);
    group_receive(m->group, h.from, bytes_of(body.p + MESSAGE_HEAD, body.n - MESSAGE_HEAD));
    cluster_stir(m);
    c->acked = true;
}

static void on_message(struct bus_conn *conn, u8 type, bytes body)
{
    struct cluster *c = bus_conn_user(conn);
    const char *from = bus_conn_node(conn);
    switch (type) {
    case CLUSTER_RAFT: on_group_message(conn, false, body); break;
    case CLUSTER_GONE: on_group_message(conn, true, body); break;
    case CLUSTER_PUBLISH: cluster_deliver(c->server, body); break;
    case CLUSTER_DIGEST: check_on_digest(c, cluster_node_number(from), body); break;
    case CLUSTER_DIFFERS: check_on_differs(c, body); break;
    case CLUSTER_FORGET: cluster_forget_for(c, from, body); break;
    case CLUSTER_REPORT:
        if (c->started) cluster_take_report(c, from, body);
        break;
    case CLUSTER_MERGED:
        if (c->started) cluster_merge_answered(c, body);
        break;
    case CLUSTER_MERGE_ASK:
        if (c->started) cluster_merge_asked(c, from, body);
        break;
    case CLUSTER_MERGE:
        if (c->started) cluster_take_wish(c, body);
        break;
    case CLUSTER_STEP:
        if (c->started) cluster_take_step(c, body);
        break;
    case CLUSTER_BEAT: cluster_on_beat(c, cluster_find(c, from, BUS_NODE_ID), body); break;
    default: bus_conn_refuse(conn, "an unknown message");
    }
}

static void on_part(struct bus_conn *conn)
{
    struct cluster *c = bus_conn_user(conn);
    cluster_on_part(c, cluster_find(c, bus_conn_node(conn), BUS_NODE_ID));
}

static const struct bus_conn_ops message_ops = {.on_frame = on_message, .on_part = on_part};

static const struct bus_conn_ops *cluster_on_accept(void *owner, const struct bus_hello *h, void **user,
                                                    const char **why)
{
    struct cluster *c = owner;
    *user = c;
    if (h->purpose == BUS_CALL) return cluster_join_ops();
    if (h->purpose == BUS_BULK) return snapshot_accept(c, user, why);
    return &message_ops;
}

static void on_peer(void *owner, struct bus_peer *p, bool up)
{
    struct cluster *c = owner;
    struct cluster_node *n = cluster_find(c, bus_peer_node(p), BUS_NODE_ID);
    if (n && !up) n->unreachable = true;
}

/* -- life -------------------------------------------------------------------------------------- */

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ||
           strcmp(address, "localhost") == 0;
}

/* The first address of `bind`. */
static void own_address(const struct server *s, char host[256])
{
    const struct config *cf = &s->config;
    const char *bind = cf->bind.n ? cf->bind.p : "127.0.0.1";
    bind += *bind == '-';
    snprintf(host, 256, "%.*s", (int)strcspn(bind, " "), bind);
    if (cf->cluster_announce_ip.n) snprintf(host, 256, "%s", cf->cluster_announce_ip.p);
    else if (strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0) snprintf(host, 256, "127.0.0.1");
}

static int own_bus_port(const struct config *cf)
{
    return cf->cluster_port ? (int)cf->cluster_port : (int)cf->port + 10000;
}

static bool listen_on_bus(struct cluster *c)
{
    const struct server *s = c->server;
    const char *p = s->config.bind.n ? s->config.bind.p : "127.0.0.1";
    int port = own_bus_port(&s->config);
    while (*p) {
        char address[256];
        size_t n = strcspn(p, " ");
        bool optional = *p == '-';
        snprintf(address, sizeof address, "%.*s", (int)(n - optional), p + optional);
        p += n + strspn(p + n, " ");
        if (!is_loopback(address) && !s->config.cluster_secret.n && !s->config.tls_cluster) {
            log_line(&s->log, LOG_WARNING,
                     "The cluster bus does not listen on %s without a cluster-secret: "
                     "nodes must be able to prove who they are",
                     address);
            return false;
        }
        int rc = bus_listen(c->bus, strcmp(address, "*") == 0 ? "0.0.0.0" : address, port);
        if (rc == 0 || optional) continue;
        log_line(&s->log, LOG_WARNING, "Failed listening on cluster port %d of %s: %s", port, address,
                 uv_strerror(rc));
        return false;
    }
    return true;
}

static bool open_bus(struct cluster *c)
{
    struct server *s = c->server;
    const struct config *cf = &s->config;
    struct bus_options o = {
        .loop = &s->loop,
        .log = &s->log,
        .cluster = c->number,
        .secret = bytes_of(cf->cluster_secret.p, cf->cluster_secret.n),
        .tls = cf->tls_cluster ? s->net.tls : NULL,
        .queue_max = QUEUE_MAX,
        .frame_max = 1u << 30,
        .greet_timeout_ms = GREET_TIMEOUT_MS,
        .owner = c,
        .on_accept = cluster_on_accept,
        .on_peer = on_peer,
        .late = true,
    };
    memcpy(o.node, c->nodes->id, sizeof o.node);
    c->bus = bus_new(&o);
    for (struct cluster_node *n = c->nodes->next; n; n = n->next)
        n->link = bus_peer_add(c->bus, n->id, n->host, n->bus_port);
    return listen_on_bus(c);
}

static bool prepare_node(struct cluster *c)
{
    struct server *s = c->server;
    struct member *m = cluster_meta(c);
    struct cluster_node *self = c->nodes;
    char host[256];
    bool known = cluster_load_identity(c);
    if (c->other_format) {
        log_line(
            &s->log, LOG_WARNING,
            "This folder is of a cluster that another version of Mayfly has made, whose nodes this one "
            "can't join. Export its data there (BGSAVE), make a new cluster and import it (--import-rdb)");
        return false;
    }
    if (known && !cluster_open_regions(c)) return false;
    install_resume(c);
    if (!cluster_recover(c) || (!known && !cluster_make_identity(c))) return false;
    if (!m->peer) m->peer = peer_of(self->number, 0); /* until it is told another */
    own_address(s, host);
    struct buf line = {0};
    int port = (int)(s->config.cluster_announce_port ? s->config.cluster_announce_port : s->config.port);
    int bus_port = (int)(s->config.cluster_announce_bus_port ? s->config.cluster_announce_bus_port
                                                             : own_bus_port(&s->config));
    buf_printf(&line, "%s %s %d %d", self->id, host, port, bus_port);
    cluster_learn_node(c, buf_bytes(&line));
    buf_release(&line);
    region_begin(m->region, member_clock(m));
    c->unsaved = true;
    member_adopt(m, &m->at);
    crash_point("cluster-start-1");
    if (!region_commit(m->region)) {
        log_line(&s->log, LOG_WARNING, "The identity of this node can't be stored");
        return false;
    }
    crash_point("cluster-start-2");
    region_begin(m->region, member_clock(m));
    if (!known && s->config.cluster_init) cluster_make_regions(c);
    return true;
}

/* What all regions have to say in a turn of the loop shares a system call per node, and a sync. */
void cluster_flush(struct cluster *c)
{
    bus_flush(c->bus);
    cluster_logs_flush(c->logs);
}

static void cluster_on_sleep(struct net *n) { cluster_flush(((struct server *)n->owner)->cluster); }

bool cluster_start(struct server *s)
{
    struct cluster *c = mem_zalloc(sizeof *c);
    s->cluster = c;
    c->server = s;
    c->nodes = mem_zalloc(sizeof *c->nodes);
    if (!s->rocks) {
        log_line(&s->log, LOG_WARNING, "Cluster mode needs engine rocksdb: start with --engine rocksdb");
        return false;
    }
    if (s->config.replicaof.n) {
        log_line(&s->log, LOG_WARNING,
                 "replicaof is not allowed in cluster mode: nodes join with cluster-join");
        return false;
    }
    cluster_new_member(c, CLUSTER_META, region_map_home(&s->node.regions), 0);
    s->node.cluster_enabled = true;
    s->node.cross_slots = s->config.cluster_cross_slots;
    s->node.elsewhere = cluster_elsewhere;
    s->node.held = cluster_held;
    s->enforce = cluster_enforce;
    s->net.config.brief_holds = HOLD_RAFT;
    server_hold(s, HOLD_RAFT, true);
    if (!prepare_node(c) || !open_bus(c)) return false;
    c->logs = cluster_logs_open(&s->loop, s->rocks, &s->log);
    crash_point("cluster-start-3");
    cluster_sweep_logs(c);
    c->started = c->merges = true;
    s->net.on_sleep = cluster_on_sleep;
    server_apply_config(s); /* to the regions that were opened */
    for (u32 i = 0; i < c->members_n; i++) /* a split in a log may have made and started some */
        if (!c->members[i]->group) cluster_start_member(c->members[i]);
    cluster_start_time(c);
    cluster_open_batch(c);
    crash_point("cluster-start-4");
    log_line(&s->log, LOG_NOTICE, "Cluster mode: node %.40s, cluster %llx, bus at port %d", c->nodes->id,
             (ull)c->number, own_bus_port(&s->config));
    return true;
}

/* Redirected clients don't send further requests here. A request that is still on its way when connections
 * are closed would get no reply. */
static bool clients_still_ask(struct cluster *c, i64 now_ms)
{
    u64 bytes_in = c->server->net.own.stats.bytes_in;
    if (bytes_in != c->leave_bytes_in) c->leave_heard_ms = now_ms;
    c->leave_bytes_in = bytes_in;
    return now_ms - c->leave_heard_ms < LEAVE_QUIET_MS;
}

/* False: this member has no leadership to hand on. */
static bool leave_region(struct member *m)
{
    u64 to = member_leads(m) ? group_successor(m->group) : 0;
    if (!to) return false;
    group_wall(m->group, (u64)clock_wall_ms());
    group_transfer(m->group, to);
    cluster_stir(m);
    return true;
}

/* While a script that is to end with the server runs, leadership is not handed on. */
bool cluster_leaves(struct server *s, u32 how)
{
    struct cluster *c = s->cluster;
    bool leads = false;
    if (!c || !c->started || s->node.script) return false;
    i64 now_ms = (i64)uv_now(&s->loop);
    if (c->leave_until_ms && now_ms >= c->leave_until_ms) return false;
    for (u32 i = 0; i < c->members_n; i++) leads |= leave_region(c->members[i]);
    if (!leads) return c->leave_until_ms && clients_still_ask(c, now_ms);
    c->leave_how = how;
    if (c->leave_until_ms) return true;
    c->leave_until_ms = now_ms + 2 * s->config.cluster_node_timeout;
    log_line(&s->log, LOG_NOTICE, "Handing leadership on before shutting down.");
    return true;
}

static void cluster_free(struct cluster *c)
{
    while (c->nodes) {
        struct cluster_node *n = c->nodes;
        c->nodes = n->next;
        mem_free(n);
    }
    map_release(&c->map);
    mem_free(c->tombstones);
    mem_free(c);
}

void cluster_on_closed(uv_handle_t *h)
{
    struct cluster *c = h->data;
    if (--c->handles == 0) cluster_free(c);
}

void cluster_stop(struct server *s)
{
    struct cluster *c = s->cluster;
    if (!c) return;
    snapshot_stop(c);
    if (c->started) {
        cluster_stop_time(c);
        cluster_close_batch(c);
    }
    for (u32 i = 0; i < c->members_n; i++) {
        check_stop(c->members[i]);
        install_stop(c->members[i]);
        member_close(c->members[i]);
        mem_free(c->members[i]);
    }
    mem_free(c->members);
    heap_release(&c->dues);
    cluster_logs_close(c->logs);
    if (c->bus) bus_free(c->bus);
    s->cluster = NULL;
    s->net.on_sleep = NULL;
    s->node.elsewhere = NULL;
    s->node.held = NULL;
    s->enforce = NULL;
    s->net.config.brief_holds = 0;
    server_hold(s, HOLD_RAFT, false);
    if (!c->handles) cluster_free(c); /* otherwise when the loop has closed the last of them */
}
