/* CLUSTER CHECK: whether all members have the same data.
 *
 * The leader proposes an entry. Each member that applies it takes a view of its data at that entry, and
 * computes a digest of it in slices while it serves. The digest covers what clients can see: the commands
 * that would create the data (persist/saver.h), without keys that are dead by the region's clock. Each member
 * sends its digest to the leader, which compares them. A member whose digest differs from the majority's is
 * told so, and stops serving, also after a restart, until it is replaced or gets a snapshot. */
#include "base/clock.h"
#include "base/crc64.h"
#include "base/endian.h"
#include "base/key_slot.h"
#include "cluster/cluster_parts.h"
#include "persist/saver.h"

#define SLICE_BYTES (256u << 10)
#define SLICE_EVERY_MS 2
#define PATIENCE_MS 600000 /* then those that have not answered are left out */

struct cluster_check {
    uv_timer_t timer; /* slices of the digest; first: closing it frees this */
    u64 index;
    struct saver *saver; /* NULL: this member's digest is complete, or could not be made */
    struct rdb_sink sink;
    u64 crc;
    i64 begun_ms;
    struct check_result {
        u64 peer, crc;
        bool ok; /* it could make one: only one view at a time can be open */
    } results[2 * RAFT_MEMBERS_MAX];
    u32 results_n;
    bool judged;
};

/* -- the digest -------------------------------------------------------------------------------- */

static bool check_write(struct rdb_sink *sink, bytes piece)
{
    struct cluster_check *k = (struct cluster_check *)(void *)((char *)sink -
                                                               offsetof(struct cluster_check, sink));
    k->crc = crc64(k->crc, piece);
    return true;
}

static void check_judge(struct member *m, bool wait_for_all);

static void check_note(struct member *m, u64 peer, u64 crc, bool ok)
{
    struct cluster_check *k = m->check;
    for (u32 i = 0; i < k->results_n; i++)
        if (k->results[i].peer == peer) return;
    if (k->results_n == ARRAY_LEN(k->results)) return;
    k->results[k->results_n++] = (struct check_result){peer, crc, ok};
    check_judge(m, true);
}

/* Sends this member's digest to the current leader. */
static void check_tell(struct member *m, bool ok)
{
    struct cluster *c = m->cluster;
    struct cluster_check *k = m->check;
    u64 leader = group_leader(m->group);
    const struct cluster_node *n = leader ? cluster_node_of(c, leader) : NULL;
    char body[32];
    put_le64(body, m->number);
    put_le64(body + 8, k->index);
    put_le64(body + 16, k->crc);
    put_le64(body + 24, ok);
    check_note(m, m->peer, k->crc, ok);
    if (n && n->link) bus_send(n->link, CLUSTER_DIGEST, (bytes){0}, bytes_of(body, sizeof body));
}

static void check_free_view(struct cluster_check *k)
{
    if (k->saver) saver_free(k->saver);
    k->saver = NULL;
    uv_timer_stop(&k->timer);
}

static void check_on_timer(uv_timer_t *t)
{
    struct member *m = t->data;
    struct cluster_check *k = m->check;
    if (!saver_step(k->saver, SLICE_BYTES)) return;
    bool ok = !saver_failed(k->saver);
    check_free_view(k);
    check_tell(m, ok);
}

void check_end_view(struct member *m)
{
    if (!m->check || !m->check->saver) return;
    check_free_view(m->check);
    check_tell(m, false);
}

static void check_on_closed(uv_handle_t *h) { mem_free(h); }

void check_stop(struct member *m)
{
    if (!m->check) return;
    check_free_view(m->check);
    uv_close((uv_handle_t *)&m->check->timer, check_on_closed);
    m->check = NULL;
}

void check_begin(struct member *m, u64 index)
{
    uv_loop_t *loop = &m->server->loop;
    check_stop(m);
    struct cluster_check *k = m->check = mem_zalloc(sizeof *k);
    k->index = index;
    k->sink.write = check_write;
    k->begun_ms = m->checked_ms = (i64)uv_now(loop);
    uv_timer_init(loop, &k->timer);
    k->timer.data = m;
    const struct saver_options o = {.commands = true, .dead_by_ms = member_clock(m)};
    member_save(m); /* entries applied before; an evaluation in flight comes after this entry */
    k->saver = saver_begin(&m->region->ks, &o, &k->sink);
    if (k->saver) uv_timer_start(&k->timer, check_on_timer, SLICE_EVERY_MS, SLICE_EVERY_MS);
    else check_tell(m, false);
}

/* -- comparing --------------------------------------------------------------------------------- */

static u32 check_count(const struct cluster_check *k, u64 crc)
{
    u32 n = 0;
    for (u32 i = 0; i < k->results_n; i++) n += k->results[i].ok && k->results[i].crc == crc;
    return n;
}

/* The digest that most have; between equal numbers the leader's. False: the leader has none. */
static bool check_prevailing(const struct member *m, u64 *crc)
{
    const struct cluster_check *k = m->check;
    bool known = false;
    for (u32 i = 0; i < k->results_n; i++) {
        if (k->results[i].peer != m->peer || !k->results[i].ok) continue;
        *crc = k->results[i].crc;
        known = true;
    }
    u32 most = known ? check_count(k, *crc) : 0;
    for (u32 i = 0; known && i < k->results_n; i++) {
        u32 n = k->results[i].ok ? check_count(k, k->results[i].crc) : 0;
        if (n > most) *crc = k->results[i].crc, most = n;
    }
    return known;
}

static void check_differs(struct member *m, u64 peer)
{
    struct cluster *c = m->cluster;
    u64 index = m->check->index;
    struct cluster_node *n = cluster_node_of(c, peer);
    char body[8];
    c->digest_mismatches++;
    log_line(&c->server->log, LOG_WARNING,
             "The data of node %.8s in region %llu differs from that of most members at index %llu. It must "
             "be replaced: CLUSTER FORGET it, and let it join with an empty folder",
             n ? n->id : "?", (ull)m->number, (ull)index);
    put_le64(body, index);
    if (peer == m->peer) cluster_diverged(c, index);
    else if (n && n->link) bus_send(n->link, CLUSTER_DIFFERS, (bytes){0}, bytes_of(body, sizeof body));
}

static void check_judge(struct member *m, bool wait_for_all)
{
    struct cluster *c = m->cluster;
    struct cluster_check *k = m->check;
    const struct raft_conf *conf = &m->at.conf;
    u64 crc;
    u32 differ = 0, compared = 0;
    if (k->judged || !member_leads(m)) return;
    if (wait_for_all && k->results_n < conf->voters_n + conf->learners_n) return;
    if (!check_prevailing(m, &crc)) return;
    k->judged = true;
    for (u32 i = 0; i < k->results_n; i++) {
        compared += k->results[i].ok;
        if (!k->results[i].ok || k->results[i].crc == crc) continue;
        differ++;
        check_differs(m, k->results[i].peer);
    }
    c->checks++;
    log_line(&c->server->log, LOG_NOTICE, "Compared the data of %u members at index %llu of region %llu: %s.",
             compared, (ull)k->index, (ull)m->number, differ ? "there are differences" : "equal");
}

static bool check_propose(struct member *m)
{
    group_wall(m->group, (u64)clock_wall_ms());
    cluster_stir(m);
    return group_propose(m->group, RAFT_KIND_DIGEST, (bytes){0});
}

/* The next check is due when the period has passed since the last one began, under any leader. */
static void check_by_time(struct member *m, i64 now_ms)
{
    i64 period_ms = (i64)m->server->config.cluster_check_period * 1000;
    if (cluster_is_meta(m) || !period_ms || now_ms - m->checked_ms < period_ms || !member_leads(m)) return;
    if (m->check && m->check->saver) return;
    if (check_propose(m)) m->checked_ms = now_ms; /* it begins when its entry is applied */
}

void check_step(struct member *m)
{
    struct cluster_check *k = m->check;
    i64 now_ms = (i64)uv_now(&m->server->loop);
    if (k && !k->judged && now_ms - k->begun_ms > PATIENCE_MS) check_judge(m, false);
    check_by_time(m, now_ms);
}

/* -- messages ---------------------------------------------------------------------------------- */

void check_on_digest(struct cluster *c, u64 node, bytes body)
{
    struct member *m = body.n == 32 ? cluster_member_of(c, get_le64(body.p)) : NULL;
    if (!m || !m->check || get_le64(body.p + 8) != m->check->index) return;
    check_note(m, conf_peer_on(&m->at.conf, node), get_le64(body.p + 16), get_le64(body.p + 24) != 0);
}

void check_on_differs(struct cluster *c, bytes body)
{
    if (body.n == 8) cluster_diverged(c, get_le64(body.p));
}

void cluster_diverged(struct cluster *c, u64 index)
{
    if (c->diverged || !index) return;
    c->diverged = index;
    c->unsaved = cluster_meta(c)->unsaved = true; /* with the next commit */
    cluster_stir(cluster_meta(c));
    log_line(&c->server->log, LOG_WARNING,
             "The data of this node differs from that of the others at index %llu. It refuses to serve. "
             "Replace it: CLUSTER FORGET it on the leader, and let it join with an empty folder",
             (ull)index);
}

bool cluster_diverge(struct server *s, bytes key)
{
    struct member *m = cluster_at_slot(s->cluster, key_slot(key));
    struct key_ref ref;
    if (!m) return false;
    struct engine *e = m->region->eng;
    if (member_leads(m) || m->in_flight || !e->ops->find(e, 0, key, &ref)) return false;
    e->ops->drop(e, &ref);
    m->unsaved = true; /* committed before the loop sleeps */
    cluster_stir(m);
    return true;
}

/* -- the command, INFO --------------------------------------------------------------------------- */

const char *cluster_check(struct cluster *c)
{
    const char *why = "ERR Ask a node that leads: see CLUSTER NODES";
    for (u32 i = 1; i < c->members_n; i++) {
        struct member *m = c->members[i];
        if (!member_leads(m)) continue;
        if (m->check && !m->check->judged && m->check->saver)
            return "ERR A check is under way: see INFO cluster";
        why = check_propose(m) ? NULL : "TRYAGAIN Not just now";
        if (why) return why;
    }
    return why;
}

static void check_info_of(const struct member *m, struct buf *b)
{
    const struct cluster_check *k = m->check;
    if (!k) return;
    buf_append_str(b, "digest");
    if (m->number != CLUSTER_REGION) buf_printf(b, "_region%llu", (ull)m->number);
    buf_printf(b, ":index=%llu,state=%s,value=%016llx,members=%u\r\n", (ull)k->index,
               k->saver ? "computing" : k->judged ? "compared" : "waiting", k->saver ? 0 : (ull)k->crc,
               k->results_n);
}

void check_info(const struct cluster *c, struct buf *b)
{
    buf_printf(b, "digest_checks:%llu\r\ndigest_mismatches:%llu\r\ndigest_diverged_at:%llu\r\n",
               (ull)c->checks, (ull)c->digest_mismatches, (ull)c->diverged);
    for (u32 i = 1; i < c->members_n; i++) check_info_of(c->members[i], b);
}
