/* Maintains the map of the cluster (cluster_map.h). Leaders of regions report to the leader of region 0:
 * changes at once, all regions they lead every few seconds, and at least every second that their node is
 * alive. Reports that change the map become entries of region 0's log, which distributes them to all nodes.
 *
 * Only durable states are reported (rule 2 of cluster_map.h). */
#include "base/clock.h"
#include "cluster/cluster_parts.h"

#define REPORT_ALL_EVERY_MS 5000
#define REPORT_EVERY_MS 1000

/* -- on leaders of regions --------------------------------------------------------------------- */

static bool report_has_news(const struct member *m)
{
    struct raft_epoch a = m->at.epoch, b = m->reported_epoch;
    u64 term = m->group ? group_led_term(m->group) : 0;
    return term && (term != m->reported_term || a.version != b.version || a.conf_ver != b.conf_ver);
}

void cluster_note_news(struct member *m)
{
    struct cluster *c = m->cluster;
    if (m->to_report || cluster_is_meta(m) || !report_has_news(m)) return;
    m->to_report = true;
    m->to_report_next = c->to_report;
    c->to_report = m;
}

static void report_region(struct member *m, struct buf *lines)
{
    struct group_status st;
    if (!member_leads(m) || !m->region || m->install || !member_conf_is_durable(m)) return;
    group_status(m->group, &st);
    if (!st.core.applied_own_term) return;
    struct engine *e = m->region->eng;
    struct map_region r = {.number = m->number, .leader = m->peer, .term = st.core.term, .at = m->at};
    r.keys = e->ops->count(e, 0);
    r.bytes = m->bytes;
    r.load = m->load;
    map_print(&r, lines);
    buf_append_char(lines, '\n');
    m->reported_epoch = m->at.epoch;
    m->reported_term = st.core.term;
}

/* Those that can't be reported yet stay in the list. */
static void report_news(struct cluster *c, struct buf *lines)
{
    struct member *list = c->to_report;
    c->to_report = NULL;
    for (struct member *m = list, *next; m; m = next) {
        next = m->to_report_next;
        m->to_report = false;
        report_region(m, lines);
        cluster_note_news(m);
    }
}

void cluster_report_step(struct cluster *c)
{
    const struct cluster_node *to = cluster_node_of(c, group_leader(cluster_meta(c)->group));
    i64 now_ms = (i64)uv_now(&c->server->loop);
    struct buf lines = {0};
    if (!to || !c->number) {
        c->reported_to = 0;
        return;
    }
    bool all = to->number != c->reported_to || now_ms >= c->report_all_ms;
    for (u32 i = 1; all && i < c->members_n; i++) report_region(c->members[i], &lines);
    report_news(c, &lines);
    if (lines.n || now_ms >= c->report_ms || all) {
        bool sent = true;
        if (to == c->nodes) cluster_take_report(c, c->nodes->id, buf_bytes(&lines));
        else sent = bus_send(to->link, CLUSTER_REPORT, (bytes){0}, buf_bytes(&lines));
        c->report_ms = now_ms + REPORT_EVERY_MS;
        if (all) c->report_all_ms = now_ms + REPORT_ALL_EVERY_MS;
        c->reported_to = sent ? to->number : 0; /* all again, otherwise */
    }
    buf_release(&lines);
}

/* -- on region 0's leader ---------------------------------------------------------------------- */

/* Calls fn for each line that is a region's. */
static void report_each(struct cluster *c, bytes lines,
                        void (*fn)(struct cluster *c, const struct map_region *r, bytes line, void *arg),
                        void *arg)
{
    const char *p = lines.p, *end = p + lines.n;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        struct map_region r;
        bytes line = bytes_of(p, (size_t)(stop - p));
        if (map_parse(line, &r)) fn(c, &r, line, arg);
        p = stop + 1;
    }
}

static void report_sort(struct cluster *c, const struct map_region *r, bytes line, void *arg)
{
    struct buf *news = arg;
    struct map_region *row = map_find(&c->map, r->number);
    if (map_is_news(&c->map, r)) {
        buf_append_bytes(news, line);
        buf_append_char(news, '\n');
    } else if (row && row->leader == r->leader) {
        row->keys = r->keys, row->bytes = r->bytes, row->load = r->load;
    }
}

void cluster_take_report(struct cluster *c, const char *from, bytes lines)
{
    struct member *m = cluster_meta(c);
    struct cluster_node *n = cluster_find(c, from, BUS_NODE_ID);
    struct buf news = {0};
    if (!n || !member_leads(m)) return;
    n->reported_ms = (i64)uv_now(&c->server->loop);
    report_each(c, lines, report_sort, &news);
    if (news.n) {
        group_wall(m->group, (u64)clock_wall_ms());
        group_propose(m->group, RAFT_KIND_REGIONS, buf_bytes(&news)); /* if it fails, all is reported again */
        cluster_stir(m);
    }
    buf_release(&news);
}

/* -- on every node ----------------------------------------------------------------------------- */

static void report_take(struct cluster *c, const struct map_region *r, bytes line UNUSED, void *arg UNUSED)
{
    map_take(&c->map, r);
}

void cluster_take_regions(struct cluster *c, bytes lines)
{
    u32 before = c->map.n;
    report_each(c, lines, report_take, NULL);
    if (c->map.n != before) c->unsaved = true; /* rows went */
    c->may_bury = true;
    c->unsaved_regions = true;
    cluster_moved_on(c);
}

static bool report_has_node(const struct raft_conf *conf, u64 node)
{
    if (conf_peer_on(conf, node)) return true;
    for (u32 i = 0; i < conf->outgoing_n; i++)
        if (node_of(conf->outgoing[i]) == node) return true;
    for (u32 i = 0; i < conf->learners_next_n; i++)
        if (node_of(conf->learners_next[i]) == node) return true;
    return false;
}

bool cluster_has_regions(const struct cluster *c, u64 node)
{
    for (u32 i = 0; i < c->map.n; i++)
        if (report_has_node(&c->map.rows[i].at.conf, node)) return true;
    return false;
}
