#include "cluster/snapshot.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/endian.h"
#include "cluster/cluster_parts.h"
#include "persist/disk_file.h"
#include "persist/saver.h"
#include "raft/split.h"

#define FEED_MS 5               /* from one slice to the next */
#define FEED_US 500             /* that a slice may take … */
#define FEED_BYTES (32u << 10)  /* … looked at after so much */
#define CREDIT_MS 50            /* what was not sent in so long is not made up for */
#define QUEUE_BYTES (512u << 10) /* that may wait in the connection: what a snapshot takes of memory */
#define REPORT_MS 10000

/* A snapshot that is being sent. */
struct snapshot_out {
    struct member *member;
    u64 to;
    struct bus_conn *conn; /* NULL: it has ended, which has to be reported to the group */
    struct saver *saver;   /* NULL: everything was read */
    struct rdb_sink sink;
    struct buf head; /* the first frame */
    u64 index, bytes;
    i64 begun_ms, reported_ms; /* by the loop's time */
    i64 credit, credit_us;     /* bytes that cluster-snapshot-rate-limit allows, as of then */
    bool open, ok; /* the other side takes it; and has stored it */
};

/* A snapshot that is being received: receiving → storing → (offered to Raft) → loading. */
struct snapshot_in {
    struct cluster *cluster;
    struct member *member; /* NULL: its first frame has not come */
    struct bus_conn *conn; /* NULL: everything has arrived, or the connection is closed */
    u64 from;              /* the node's number */
    struct buf message; /* Raft's */
    struct raft_applied at;
    struct buf nodes, regions; /* lines */
    struct disk_file file;
    u64 bytes;
    i64 begun_ms, reported_ms; /* by the loop's time */
    bool open, storing, complete, wanted;
};

/* -- sending ----------------------------------------------------------------------------------- */

static bool out_write(struct rdb_sink *sink, bytes piece)
{
    struct snapshot_out *o = (struct snapshot_out *)(void *)((char *)sink -
                                                             offsetof(struct snapshot_out, sink));
    if (!o->conn) return false;
    bus_conn_send(o->conn, CLUSTER_SNAPSHOT_DATA, (bytes){0}, piece);
    o->bytes += piece.n;
    o->credit -= (i64)piece.n;
    o->member->cluster->snapshots.bytes_out += piece.n;
    return true;
}

/* Credit grows with time, but only a little is kept: the receiver's disk and both loops get an even
 * stream. */
static bool out_has_credit(struct snapshot_out *o, i64 now_us)
{
    const struct server *s = o->member->server;
    i64 rate = s->config.cluster_snapshot_rate_limit;
    i64 passed_us = MIN(now_us - o->credit_us, CREDIT_MS * 1000);
    o->credit = MIN(o->credit + (i64)((double)rate * (double)passed_us / 1e6), rate / 1000 * CREDIT_MS + 1);
    o->credit_us = now_us;
    return !rate || o->credit > 0;
}

static void out_end_data(struct snapshot_out *o)
{
    bool failed = saver_failed(o->saver);
    saver_free(o->saver);
    o->saver = NULL;
    if (failed) bus_conn_close(o->conn, "the data can't be read");
    else bus_conn_send(o->conn, CLUSTER_SNAPSHOT_END, (bytes){0}, (bytes){0});
}

static void out_on_timer(uv_timer_t *t);

/* A slice; the timer brings the next one. */
static void out_feed(struct snapshot_out *o)
{
    struct cluster *c = o->member->cluster;
    i64 now_us = clock_mono_us(), until_us = now_us + FEED_US;
    if (!o->conn || !o->saver) return;
    uv_timer_start(&c->feed_timer, out_on_timer, FEED_MS, 0);
    while (o->conn && now_us < until_us && out_has_credit(o, now_us)) {
        if (bus_conn_queued(o->conn) >= QUEUE_BYTES) return;
        if (saver_step(o->saver, FEED_BYTES)) {
            out_end_data(o);
            return;
        }
        now_us = clock_mono_us();
    }
}

static void out_on_timer(uv_timer_t *t)
{
    const struct cluster *c = t->data;
    if (c->out) out_feed(c->out);
}

static void out_on_open(struct bus_conn *conn)
{
    struct snapshot_out *o = bus_conn_user(conn);
    log_line(&o->member->server->log, LOG_NOTICE,
             "Sending a snapshot of region %llu at index %llu to node %.8s.", (ull)o->member->number,
             (ull)o->index, bus_conn_node(conn));
    o->open = true;
    out_feed(o);
}

static void out_on_frame(struct bus_conn *conn, u8 type, bytes body UNUSED)
{
    struct snapshot_out *o = bus_conn_user(conn);
    o->ok = type == CLUSTER_SNAPSHOT_STORED && !o->saver;
    bus_conn_close(conn, o->ok ? "stored" : "an unknown answer");
}

static void out_on_closed(struct bus_conn *conn, const char *why)
{
    struct snapshot_out *o = bus_conn_user(conn);
    struct cluster *c = o->member->cluster;
    const struct log *log = &o->member->server->log;
    c->snapshots.sent += o->ok;
    c->snapshots.failed += !o->ok;
    if (o->ok)
        log_line(log, LOG_NOTICE, "A snapshot of region %llu was sent: %llu bytes in %lld ms.",
                 (ull)o->member->number, (ull)o->bytes,
                 (long long)((i64)uv_now(&o->member->server->loop) - o->begun_ms));
    else /* a busy node refuses it, which is often: it is sent again soon */
        log_line(log, o->open ? LOG_WARNING : LOG_VERBOSE, "A snapshot of region %llu could not be sent: %s",
                 (ull)o->member->number, why);
    o->conn = NULL;
}

static void out_end(struct cluster *c)
{
    struct snapshot_out *o = c->out;
    if (o->saver) saver_free(o->saver);
    if (o->conn) bus_conn_close(o->conn, "it is given up");
    buf_release(&o->head);
    mem_free(o);
    c->out = NULL;
}

/* u64 region · u64 member it is for · five parts, each with its length before it (u32): Raft's message ·
 * how far · lines of nodes · lines of regions, in a snapshot of region 0 · lines of merges, if there are any
 * (rule 8 of region_rules.h) */
static void put_part(struct buf *out, bytes part)
{
    u32 n = (u32)part.n;
    buf_append(out, &n, sizeof n);
    buf_append_bytes(out, part);
}

static bool get_part(bytes *in, bytes *part)
{
    u32 n;
    if (in->n < sizeof n) return false;
    memcpy(&n, in->p, sizeof n);
    if (n > in->n - sizeof n) return false;
    *part = bytes_of(in->p + sizeof n, n);
    *in = bytes_of(in->p + sizeof n + n, in->n - sizeof n - n);
    return true;
}

static void write_head(struct member *m, u64 to, struct buf *out, const struct raft_applied *at,
                       bytes message)
{
    const struct cluster *c = m->cluster;
    struct buf text = {0};
    append_le64(out, m->number);
    append_le64(out, to);
    put_part(out, message);
    member_encode(at, 0, &text);
    put_part(out, buf_bytes(&text));
    buf_clear(&text);
    for (const struct cluster_node *n = c->nodes; n; n = n->next) {
        cluster_print_node(n, &text);
        buf_append_char(&text, '\n');
    }
    put_part(out, buf_bytes(&text));
    buf_clear(&text);
    for (u32 i = 0; cluster_is_meta(m) && i < c->map.n; i++) {
        map_print(&c->map.rows[i], &text);
        buf_append_char(&text, '\n');
    }
    put_part(out, buf_bytes(&text));
    buf_clear(&text);
    cluster_print_merged(c, &text);
    if (text.n) put_part(out, buf_bytes(&text));
    buf_release(&text);
}

static struct saver *read_data(struct member *m, struct rdb_sink *sink)
{
    bool has_functions = cluster_is_meta(m);
    const struct saver_options o = {.with_dead = true,
                                    .functions = has_functions ? functions_live(&m->server->node) : NULL,
                                    .redis_version = REDIS_VERSION,
                                    .mayfly_version = MAYFLY_VERSION};
    member_save(m); /* what was applied is part of it */
    return saver_begin(&m->region->ks, &o, sink);
}

/* Raft sends nothing to a member until the outcome of its snapshot is reported, so no outcome may be lost. */
static void remember_unsent(struct member *m, u64 to)
{
    for (u32 i = 0; i < m->unsent_n; i++)
        if (m->unsent[i] == to) return;
    CHECK(m->unsent_n < sizeof m->unsent / sizeof *m->unsent); /* voters and learners */
    m->unsent[m->unsent_n++] = to;
}

static void tell_unsent(struct member *m)
{
    u64 unsent[2 * RAFT_MEMBERS_MAX];
    u32 n = m->unsent_n;
    if (!n) return;
    memcpy(unsent, m->unsent, sizeof unsent);
    m->unsent_n = 0; /* the group may try again at once */
    for (u32 i = 0; i < n; i++) group_snapshot_sent(m->group, unsent[i], false);
    cluster_stir(m);
}

void snapshot_send(struct member *m, u64 to, const struct raft_applied *at, bytes message)
{
    static const struct bus_conn_ops ops = {
        .on_open = out_on_open, .on_frame = out_on_frame, .on_closed = out_on_closed};
    struct cluster *c = m->cluster;
    struct cluster_node *n = cluster_node_of(c, to);
    struct snapshot_out *o = c->out || !n || !n->link ? NULL : mem_zalloc(sizeof *o);
    if (o) {
        i64 now_ms = (i64)uv_now(&m->server->loop);
        *o = (struct snapshot_out){.member = m, .to = to, .sink = {out_write}, .index = at->index};
        o->begun_ms = o->reported_ms = now_ms;
        o->credit_us = clock_mono_us();
        o->saver = read_data(m, &o->sink);
    }
    if (!o ||
        !o->saver) { /* busy with another one, or with BGSAVE: snapshot_step reports it to the group */
        mem_free(o);
        remember_unsent(m, to);
        return;
    }
    c->out = o;
    write_head(m, to, &o->head, at, message);
    o->conn = bus_dial(c->bus, n->host, n->bus_port, BUS_BULK, n->id, &ops, o);
    bus_conn_send(o->conn, CLUSTER_SNAPSHOT, (bytes){0}, buf_bytes(&o->head));
}

/* -- receiving --------------------------------------------------------------------------------- */

static void in_free(struct snapshot_in *in)
{
    if (in->cluster) in->cluster->in = NULL;
    buf_release(&in->message);
    buf_release(&in->nodes);
    buf_release(&in->regions);
    mem_free(in);
}

void snapshot_path(const struct member *m, char path[4200], const char *ending)
{
    snprintf(path, 4200, "%s/" SNAPSHOT_FILE "%llu.rdb%s", m->server->config.dir.p, (ull)m->number, ending);
}

static void in_stored(void *arg, bool ok);

/* Before it is complete. A file that is being finished, or removed, is freed by in_stored. */
static void in_give_up(struct snapshot_in *in)
{
    struct bus_conn *conn = in->conn;
    in->conn = NULL;
    in->member = NULL;
    if (conn) bus_conn_close(conn, "the snapshot is not wanted");
    in->cluster->snapshots.failed++;
    if (!in->open) {
        in_free(in);
    } else if (!in->storing) {
        in->storing = true;
        disk_file_abandon(&in->file, in_stored, in);
    }
}

/* Whether no other region here has these slots. Otherwise that region has yet to be split or removed, and the
 * snapshot is sent again later. */
static bool in_fits(const struct snapshot_in *in)
{
    const struct cluster *c = in->cluster;
    return !in->member->install && cluster_may_install(c, in->member, &in->at);
}

static bool in_begin(struct snapshot_in *in, bytes body)
{
    struct cluster *c = in->cluster;
    char temp[4200], path[4200];
    bytes message, at, nodes, regions, merged = {0};
    u64 no_peer;
    if (in->open || body.n < 16) return false;
    u64 region = get_le64(body.p), to = get_le64(body.p + 8);
    body = bytes_of(body.p + 16, body.n - 16);
    if (!get_part(&body, &message) || !get_part(&body, &at) || !get_part(&body, &nodes) ||
        !get_part(&body, &regions) || (body.n && !get_part(&body, &merged)) || body.n)
        return false;
    cluster_learn_merged(c, merged); /* it is true, whatever becomes of the snapshot */
    if (!member_decode(at, &in->at, &no_peer)) return false;
    in->member = cluster_member_of(c, region); /* a message has made it: it asked for the snapshot */
    if (!in->member || in->member->peer != to || in->member->gone || !in_fits(in)) return false;
    log_line(&c->server->log, LOG_NOTICE, "Receiving a snapshot of region %llu from node %.8s.", (ull)region,
             bus_conn_node(in->conn));
    buf_append_bytes(&in->message, message);
    buf_append_bytes(&in->nodes, nodes);
    buf_append_bytes(&in->regions, regions);
    snapshot_path(in->member, temp, ".temp");
    snapshot_path(in->member, path, "");
    in->open = disk_file_open(&in->file, &c->server->loop, temp, path);
    if (!in->open) log_line(&c->server->log, LOG_WARNING, "A snapshot can't be stored: %s", in->file.error);
    return in->open;
}

/* Without a connection no one needs it any longer. */
static void in_stored(void *arg, bool ok)
{
    struct snapshot_in *in = arg;
    struct cluster *c = in->cluster;
    struct bus_conn *conn = in->conn;
    if (!ok && conn) {
        log_line(&c->server->log, LOG_WARNING, "A snapshot can't be stored: %s", in->file.error);
        in->open = false;
        in_give_up(in);
        return;
    }
    if (!conn) {
        in_free(in);
        return;
    }
    in->complete = true;
    in->conn = NULL;
    bus_conn_send(conn, CLUSTER_SNAPSHOT_STORED, (bytes){0}, (bytes){0});
    bus_conn_finish(conn);
    struct member *m = in->member;
    group_wall(m->group, (u64)clock_wall_ms());
    struct buf message = in->message;
    in->message = (struct buf){0};
    group_receive_snapshot(m->group, conf_peer_on(&in->at.conf, in->from),
                           buf_bytes(&message)); /* or discards it */
    buf_release(&message);
    cluster_stir(m);
}

static bool in_write(struct snapshot_in *in, bytes piece)
{
    in->bytes += piece.n;
    in->cluster->snapshots.bytes_in += piece.n;
    return in->file.sink.write(&in->file.sink, piece);
}

static void in_on_frame(struct bus_conn *conn, u8 type, bytes body)
{
    struct cluster *c = bus_conn_user(conn);
    struct snapshot_in *in = c->in;
    bool ok = true;
    if (!in || in->conn != conn) {
        bus_conn_close(conn, "another snapshot is under way");
        return;
    }
    if (type == CLUSTER_SNAPSHOT) ok = in_begin(in, body);
    else if (in->open && type == CLUSTER_SNAPSHOT_DATA) ok = in_write(in, body);
    else if (in->open && type == CLUSTER_SNAPSHOT_END && !in->storing) {
        in->storing = true;
        disk_file_finish(&in->file, in_stored, in);
    } else ok = false;
    if (!ok) in_give_up(in);
    else if (in->open && disk_file_full(&in->file)) bus_conn_pause(conn, true);
}

static bool in_is_busy(const struct cluster *c) { return c->in || install_is_busy(c); }

static void in_on_open(struct bus_conn *conn)
{
    struct cluster *c = bus_conn_user(conn);
    const struct cluster_node *n = cluster_find(c, bus_conn_node(conn), BUS_NODE_ID);
    if (in_is_busy(c)) {
        bus_conn_close(conn, "another snapshot is under way");
        return;
    }
    c->in = mem_zalloc(sizeof *c->in);
    c->in->cluster = c;
    c->in->conn = conn;
    c->in->from = n ? n->number : 0;
    c->in->begun_ms = c->in->reported_ms = (i64)uv_now(&c->server->loop);
}

static void in_on_closed(struct bus_conn *conn, const char *why UNUSED)
{
    struct cluster *c = bus_conn_user(conn);
    if (!c->in || c->in->conn != conn) return;
    c->in->conn = NULL;
    in_give_up(c->in);
}

const struct bus_conn_ops *snapshot_accept(struct cluster *c, void **user, const char **why)
{
    static const struct bus_conn_ops ops = {
        .on_open = in_on_open, .on_frame = in_on_frame, .on_closed = in_on_closed};
    *user = c;
    bool busy = in_is_busy(c) || !c->started;
    if (busy) *why = "another snapshot is under way";
    return busy ? NULL : &ops;
}

/* -- installing -------------------------------------------------------------------------------- */

static void in_learn_nodes(struct snapshot_in *in)
{
    struct cluster *c = in->cluster;
    const char *p = in->nodes.p, *end = p + in->nodes.n;
    while (p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        if (!line_end) break;
        cluster_learn_node(c, bytes_of(p, (size_t)(line_end - p)));
        p = line_end + 1;
    }
    cluster_take_regions(c, buf_bytes(&in->regions));
    c->unsaved = true;
    c->diverged = 0; /* with the data that was found to differ */
    struct member *m = in->member;
    if (!cluster_is_meta(m)) return;
    struct raft_conf before = m->at.conf;
    m->at.conf = in->at.conf;
    cluster_members_changed(c, &before);
}

static void in_adopt(struct server *s)
{
    struct snapshot_in *in = s->cluster->in;
    in_learn_nodes(in);
    member_adopt(in->member, &in->at);
}

void snapshot_installed(struct member *m, const struct raft_applied *at)
{
    struct cluster *c = m->cluster;
    region_begin(m->region, (i64)MAX(at->clock_ms, 1u));
    group_wall(m->group, (u64)clock_wall_ms());
    group_installed(m->group, at);
    c->snapshots.installed++;
    log_line(&c->server->log, LOG_NOTICE, "The snapshot of region %llu is installed: index %llu.",
             (ull)m->number, (ull)at->index);
    cluster_stir(m);
    cluster_moved_on(c);
}

static void in_loaded(struct server *s, bool ok)
{
    struct cluster *c = s->cluster;
    struct member *m = c->in->member;
    char path[4200];
    if (!ok) cluster_die(c, "a snapshot that the group relies on can't be loaded");
    struct raft_applied at = c->in->at;
    snapshot_path(m, path, "");
    disk_remove_later(&s->loop, path);
    in_free(c->in);
    snapshot_installed(m, &at);
}

/* The only region of this node that has slots, before and after. */
static bool in_is_whole(const struct snapshot_in *in)
{
    const struct raft_slots *s = &in->at.slots;
    bool only = in->cluster->members_n == 2 && in->member == in->cluster->members[1] && in->member->region;
    if (!only || !rocks_stages(in->member->region->eng)) return false;
    if (in->member->slots.first != 0 || in->member->slots.last != RAFT_SLOTS - 1) return false;
    return s->first == 0 && s->last == RAFT_SLOTS - 1;
}

void snapshot_install(struct member *m, u64 index, u64 term)
{
    struct cluster *c = m->cluster;
    char path[4200];
    CHECK(c->in && c->in->member == m && c->in->complete);
    CHECK(c->in->at.index == index && c->in->at.term == term);
    c->in->wanted = true;
    log_line(&c->server->log, LOG_NOTICE, "Installing the snapshot of region %llu at index %llu: %llu bytes.",
             (ull)m->number, (ull)index, (ull)c->in->bytes);
    snapshot_path(m, path, "");
    check_stop(m); /* the data it reads is replaced */
    snapshot_give_up(m);
    member_save(m);
    if (in_is_whole(c->in)) {
        loading_sync(c->server, path, true, in_adopt, in_loaded);
        return;
    }
    snapshot_restart(c->server);
    in_learn_nodes(c->in);
    struct raft_applied at = c->in->at;
    in_free(c->in); /* the next one may come while this one is loaded */
    install_begin(m, &at);
}

void snapshot_discard(struct member *m)
{
    struct cluster *c = m->cluster;
    if (c->in && c->in->member == m && c->in->complete && !c->in->wanted) in_free(c->in);
}

/* The member is destroyed. */
void snapshot_forget(struct member *m)
{
    struct snapshot_in *in = m->cluster->in;
    if (!in || in->member != m) return;
    if (in->complete) in_free(in);
    else in_give_up(in);
}

/* -- progress ---------------------------------------------------------------------------------- */

static i64 snapshot_seconds(const struct cluster *c, i64 begun_ms)
{
    return ((i64)uv_now(&c->server->loop) - begun_ms) / 1000;
}

static const char *in_state(const struct snapshot_in *in)
{
    return in->wanted ? "loading" : in->storing ? "storing" : "receiving";
}

void snapshot_info(struct cluster *c, struct buf *b)
{
    const struct snapshot_out *o = c->out;
    const struct snapshot_in *in = c->in;
    buf_printf(b, "snapshots_sent:%llu\r\nsnapshots_installed:%llu\r\nsnapshots_failed:%llu\r\n",
               (ull)c->snapshots.sent, (ull)c->snapshots.installed, (ull)c->snapshots.failed);
    if (o) {
        const struct cluster_node *n = cluster_node_of(c, o->to);
        struct saver_progress p = o->saver ? saver_progress(o->saver) : (struct saver_progress){0};
        buf_printf(
            b,
            "snapshot_out:region=%llu,node=%s,index=%llu,state=%s,bytes=%llu,keys=%llu,keys_total=%llu,"
            "seconds=%lld\r\n",
            (ull)o->member->number, n ? n->id : "", (ull)o->index, o->saver ? "sending" : "sent",
            (ull)o->bytes, (ull)p.keys, (ull)p.keys_total, (long long)snapshot_seconds(c, o->begun_ms));
    }
    if (in) {
        const struct cluster_node *n = cluster_node_numbered(c, in->from);
        buf_printf(b, "snapshot_in:node=%s,index=%llu,state=%s,bytes=%llu,seconds=%lld\r\n", n ? n->id : "",
                   (ull)in->at.index, in_state(in), (ull)in->bytes,
                   (long long)snapshot_seconds(c, in->begun_ms));
    }
    install_info(c, b);
}

static bool report_is_due(const struct cluster *c, i64 *reported_ms)
{
    i64 now_ms = (i64)uv_now(&c->server->loop);
    if (now_ms - *reported_ms < REPORT_MS) return false;
    *reported_ms = now_ms;
    return true;
}

static void snapshot_report(struct cluster *c)
{
    struct snapshot_out *o = c->out;
    struct snapshot_in *in = c->in;
    if (o && o->saver && report_is_due(c, &o->reported_ms)) {
        struct saver_progress p = saver_progress(o->saver);
        log_line(&c->server->log, LOG_NOTICE, "Sending a snapshot: %llu bytes, %llu of %llu keys in %lld s.",
                 (ull)o->bytes, (ull)p.keys, (ull)p.keys_total, (long long)snapshot_seconds(c, o->begun_ms));
    }
    if (in && report_is_due(c, &in->reported_ms))
        log_line(&c->server->log, LOG_NOTICE, "Snapshot %s: %llu bytes in %lld s.", in_state(in),
                 (ull)in->bytes, (long long)snapshot_seconds(c, in->begun_ms));
}

/* -- now and then ------------------------------------------------------------------------------ */

bool snapshot_is_sent(const struct member *m)
{
    const struct snapshot_out *o = m->cluster->out;
    return o && o->member == m;
}

void snapshot_give_up(struct member *m)
{
    struct cluster *c = m->cluster;
    if (!snapshot_is_sent(m)) return;
    remember_unsent(m, c->out->to);
    out_end(c);
}

void snapshot_step(struct cluster *c)
{
    snapshot_report(c);
    for (u32 i = 0; i < c->members_n; i++) tell_unsent(c->members[i]);
    if (c->out && !c->out->conn) {
        struct member *m = c->out->member;
        u64 to = c->out->to;
        bool ok = c->out->ok;
        out_end(c);
        group_snapshot_sent(m->group, to, ok);
        cluster_stir(m);
    }
    if (c->in && c->in->conn && c->in->open && !disk_file_full(&c->in->file))
        bus_conn_pause(c->in->conn, false);
}

void snapshot_stop(struct cluster *c)
{
    if (c->out) out_end(c);
    struct snapshot_in *in = c->in;
    if (!in || in->wanted) return;
    in_give_up(in);
    if (c->in) in->cluster = NULL; /* not freed yet, because its file is not closed */
    c->in = NULL;
}
