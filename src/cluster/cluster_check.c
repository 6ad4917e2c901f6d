/* CLUSTER CHECK: do all members have the same data?
 *
 * The leader proposes an entry. Each member that applies it takes a view of its data, which is that of the
 * entry's index, and computes a digest of it in slices, while it serves. The digest covers what clients can
 * see: the commands that would make the data (persist/saver.h), without what is dead by the region's clock.
 * Each tells the leader, which compares. Members whose digest is not that of most are told, and refuse to
 * serve from then on, also after a restart: until they are replaced, or get a snapshot. */
#include "base/crc64.h"
#include "base/endian.h"
#include "cluster/cluster_parts.h"
#include "persist/saver.h"

#define SLICE_BYTES (256u << 10)
#define SLICE_EVERY_MS 2
#define PATIENCE_MS 600000 /* then those that have not answered are left out */

struct cluster_check {
    struct cluster *cluster;
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

static void check_judge(struct cluster *c, bool wait_for_all);

static void check_note(struct cluster *c, u64 peer, u64 crc, bool ok)
{
    struct cluster_check *k = c->check;
    for (u32 i = 0; i < k->results_n; i++)
        if (k->results[i].peer == peer) return;
    if (k->results_n == ARRAY_LEN(k->results)) return;
    k->results[k->results_n++] = (struct check_result){peer, crc, ok};
    check_judge(c, true);
}

/* This member's digest: to whoever leads now. */
static void check_tell(struct cluster *c, bool ok)
{
    struct cluster_check *k = c->check;
    u64 leader = group_leader(c->member.group);
    const struct cluster_node *n = leader ? cluster_node_of(c, leader) : NULL;
    char body[24];
    put_le64(body, k->index);
    put_le64(body + 8, k->crc);
    put_le64(body + 16, ok);
    check_note(c, c->nodes->peer, k->crc, ok);
    if (n && n->link) bus_send(n->link, CLUSTER_DIGEST, (bytes){0}, bytes_of(body, sizeof body));
}

static void check_end_view(struct cluster_check *k)
{
    if (k->saver) saver_free(k->saver);
    k->saver = NULL;
}

static void check_on_timer(uv_timer_t *t)
{
    struct cluster *c = t->data;
    struct cluster_check *k = c->check;
    if (!saver_step(k->saver, SLICE_BYTES)) return;
    bool ok = !saver_failed(k->saver);
    check_end_view(k);
    uv_timer_stop(t);
    check_tell(c, ok);
}

void check_begin(struct cluster *c, u64 index)
{
    struct member *m = &c->member;
    struct cluster_check *k = c->check ? c->check : mem_zalloc(sizeof *k);
    check_end_view(k);
    uv_timer_stop(&c->check_timer);
    *k = (struct cluster_check){.cluster = c, .index = index, .sink = {check_write}};
    k->begun_ms = c->checked_ms = (i64)uv_now(&c->server->loop);
    c->check = k;
    const struct saver_options o = {.commands = true, .dead_by_ms = member_clock(m)};
    member_save(m); /* what was applied before; an evaluation in flight comes after this entry */
    k->saver = saver_begin(&m->region->ks, &o, &k->sink);
    if (k->saver) uv_timer_start(&c->check_timer, check_on_timer, SLICE_EVERY_MS, SLICE_EVERY_MS);
    else check_tell(c, false);
}

/* -- comparing --------------------------------------------------------------------------------- */

static u32 check_count(const struct cluster_check *k, u64 crc)
{
    u32 n = 0;
    for (u32 i = 0; i < k->results_n; i++) n += k->results[i].ok && k->results[i].crc == crc;
    return n;
}

/* The digest that most have; between equal numbers the leader's. False: the leader has none. */
static bool check_prevailing(const struct cluster *c, u64 *crc)
{
    const struct cluster_check *k = c->check;
    bool known = false;
    for (u32 i = 0; i < k->results_n; i++) {
        if (k->results[i].peer != c->nodes->peer || !k->results[i].ok) continue;
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

static void check_differs(struct cluster *c, u64 peer)
{
    struct cluster_node *n = cluster_node_of(c, peer);
    char body[8];
    c->digest_mismatches++;
    log_line(&c->server->log, LOG_WARNING,
             "The data of node %.8s differs from that of most members at index %llu. It must be replaced: "
             "CLUSTER FORGET it, and let it join with an empty folder",
             n ? n->id : "?", (ull)c->check->index);
    put_le64(body, c->check->index);
    if (peer == c->nodes->peer) cluster_diverged(c, c->check->index);
    else if (n && n->link) bus_send(n->link, CLUSTER_DIFFERS, (bytes){0}, bytes_of(body, sizeof body));
}

static void check_judge(struct cluster *c, bool wait_for_all)
{
    struct cluster_check *k = c->check;
    const struct raft_conf *conf = &c->member.at.conf;
    u64 crc;
    u32 differ = 0, compared = 0;
    if (k->judged || !member_leads(&c->member)) return;
    if (wait_for_all && k->results_n < conf->voters_n + conf->learners_n) return;
    if (!check_prevailing(c, &crc)) return;
    k->judged = true;
    for (u32 i = 0; i < k->results_n; i++) {
        compared += k->results[i].ok;
        if (!k->results[i].ok || k->results[i].crc == crc) continue;
        differ++;
        check_differs(c, k->results[i].peer);
    }
    c->checks++;
    log_line(&c->server->log, LOG_NOTICE, "Compared the data of %u members at index %llu: %s.", compared,
             (ull)k->index, differ ? "there are differences" : "equal");
}

/* The next check is due when the period has passed since the last began, whoever led then. */
static void check_by_time(struct cluster *c, i64 now_ms)
{
    i64 period_ms = (i64)c->server->config.cluster_check_period * 1000;
    if (!period_ms || now_ms - c->checked_ms < period_ms || !member_leads(&c->member)) return;
    if (!cluster_check(c)) c->checked_ms = now_ms; /* it begins when its entry is applied */
}

void check_step(struct cluster *c)
{
    struct cluster_check *k = c->check;
    i64 now_ms = (i64)uv_now(&c->server->loop);
    if (k && !k->judged && now_ms - k->begun_ms > PATIENCE_MS) check_judge(c, false);
    check_by_time(c, now_ms);
}

/* -- messages ---------------------------------------------------------------------------------- */

void check_on_digest(struct cluster *c, u64 from, bytes body)
{
    if (body.n != 24 || !c->check || get_le64(body.p) != c->check->index) return;
    check_note(c, from, get_le64(body.p + 8), get_le64(body.p + 16) != 0);
}

void check_on_differs(struct cluster *c, bytes body)
{
    if (body.n == 8) cluster_diverged(c, get_le64(body.p));
}

void cluster_diverged(struct cluster *c, u64 index)
{
    if (c->diverged || !index) return;
    c->diverged = index;
    c->unsaved = c->member.unsaved = true; /* with the next commit */
    log_line(&c->server->log, LOG_WARNING,
             "The data of this node differs from that of the others at index %llu. It refuses to serve. "
             "Replace it: CLUSTER FORGET it on the leader, and let it join with an empty folder",
             (ull)index);
}

bool cluster_diverge(struct server *s, bytes key)
{
    struct member *m = &s->cluster->member;
    struct engine *e = m->region->eng;
    struct key_ref ref;
    if (member_leads(m) || m->in_flight || !e->ops->find(e, 0, key, &ref)) return false;
    e->ops->drop(e, &ref);
    m->unsaved = true; /* committed before the loop sleeps */
    return true;
}

/* -- the command, INFO --------------------------------------------------------------------------- */

const char *cluster_check(struct cluster *c)
{
    if (!member_leads(&c->member)) return "ERR Ask the node that leads: see CLUSTER NODES";
    if (c->check && !c->check->judged && c->check->saver) return "ERR A check is under way: see INFO cluster";
    return group_propose(c->member.group, RAFT_KIND_DIGEST, (bytes){0}) ? NULL : "TRYAGAIN Not just now";
}

void check_info(const struct cluster *c, struct buf *b)
{
    const struct cluster_check *k = c->check;
    buf_printf(b, "digest_checks:%llu\r\ndigest_mismatches:%llu\r\ndigest_diverged_at:%llu\r\n",
               (ull)c->checks, (ull)c->digest_mismatches, (ull)c->diverged);
    if (!k) return;
    buf_printf(b, "digest:index=%llu,state=%s,value=%016llx,members=%u\r\n", (ull)k->index,
               k->saver ? "computing" : k->judged ? "compared" : "waiting", k->saver ? 0 : (ull)k->crc,
               k->results_n);
}

void check_stop(struct cluster *c)
{
    if (!c->check) return;
    uv_timer_stop(&c->check_timer);
    check_end_view(c->check);
    mem_free(c->check);
    c->check = NULL;
}
