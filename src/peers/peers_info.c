/* INFO sites, SITE INFO, and the metrics of sites. */
#include <stdio.h>

#include "base/clock.h"
#include "peers/peers_parts.h"

static const char *info_peer_state(const struct peer *x)
{
    if (x->state == PEER_DOWN) return "down";
    if (x->state != PEER_LINKED) return "connecting";
    return x->link.state == LINK_STREAM ? "up" : x->link.state == LINK_FULL ? "full-sync" : "greeting";
}

/* How many effects a member lacks, as far as this site knows. */
static u64 info_behind(const struct site *s, u8 gid)
{
    u64 n = 0;
    for (u32 g = 1; g < SITE_GIDS; g++) {
        u64 has = s->acks[gid] ? s->acks[gid]->seq[g] : 0;
        n += s->clock.seq[g] > has ? s->clock.seq[g] - has : 0;
    }
    return n;
}

static void info_clock(const struct site_clock *c, struct buf *b)
{
    bool first = true;
    for (u32 g = 1; g < SITE_GIDS; g++) {
        if (!c->seq[g]) continue;
        buf_printf(b, "%s%u=%llu", first ? "" : ",", g, (ull)c->seq[g]);
        first = false;
    }
    buf_append_str(b, "\r\n");
}

/* Members that delay garbage collection, because they are not known to have all effects. */
static void info_waits_for(const struct site *s, struct buf *b)
{
    size_t before = b->n;
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->members[g].in && g != s->gid && info_behind(s, (u8)g))
            buf_printf(b, "%s%u", b->n > before ? "," : "", g);
}

/* How many of its own effects a site in doubt knows that others have. */
static u64 info_lacks(const struct site *s)
{
    u64 has = s->clock.seq[s->gid];
    return s->doubt_upto > has ? s->doubt_upto - has : 0;
}

/* Members whose clocks a site in doubt waits for. */
static void info_doubt(const struct peers *p, struct buf *b)
{
    const struct region *r = lone_region(p->server);
    if (!region_site_doubt(r)) return;
    buf_printf(b, "site_doubt_lacks_effects:%llu\r\nsite_doubt_waits_for:", (ull)info_lacks(peers_site(p)));
    size_t before = b->n;
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (region_site_waits_for(r, (u8)g)) buf_printf(b, "%s%u", b->n > before ? "," : "", g);
    buf_append_str(b, "\r\n");
}

static void info_member(const struct peers *p, u8 gid, struct buf *b)
{
    const struct site *s = peers_site(p);
    struct buf waits = {0};
    buf_printf(b, "site_member%d:state=%s,effects=%llu,behind=%llu,lag_ms=%lld,clock_ahead_ms=%lld", gid,
               gid == s->gid    ? "self"
               : s->fenced[gid] ? "evicting"
                                : "member",
               (ull)s->clock.seq[gid], (ull)(gid == s->gid ? 0 : info_behind(s, gid)),
               (long long)p->lag_ms[gid], (long long)p->skew_ms[gid]);
    if (p->reports[gid] && peers_evict_waits(p, gid, &waits))
        buf_printf(b, ",eviction_waits_for=%.*s", (int)waits.n, waits.p);
    buf_append_str(b, "\r\n");
    buf_release(&waits);
}

static void info_peer(const struct peer *x, struct buf *b)
{
    buf_printf(b, "site_peer%d:host=%s,port=%d,link=%s,effects=%llu,bytes=%llu,full_syncs=%llu,errors=%llu",
               x->gid, x->host, x->port, info_peer_state(x), (ull)x->effects, (ull)x->bytes_in,
               (ull)x->full_syncs, (ull)x->reason.count);
    buf_append_str(b, "\r\n");
    if (x->reason.text[0]) buf_printf(b, "site_peer%d_last_error:%s\r\n", x->gid, x->reason.text);
}

static const char *info_state(const struct peers *p)
{
    const struct site *s = peers_site(p);
    if (s->torn) return "torn";
    if (s->replaced_by) return "replaced";
    if (region_site_doubt(lone_region(p->server))) return "doubt";
    return s->members[s->gid].in ? "member" : s->fenced[s->gid] ? "evicted" : "joining";
}

/* Of a server that keeps the metadata of its primary, which is the site. */
static void peers_info_replica(struct server *srv, struct buf *b)
{
    if (!srv->config.site_id) return;
    buf_printf(b, "site_id:%d\r\nsite_state:replica\r\nsite_clock:", (int)srv->config.site_id);
    info_clock(&region_site_of(lone_region(srv))->clock, b);
}

void peers_info(struct server *srv, struct buf *b)
{
    const struct peers *p = srv->peers;
    if (!p) {
        peers_info_replica(srv, b);
        return;
    }
    const struct site *s = peers_site(p);
    const struct region_site *rs = peers_region(p);
    u32 members = 0, up = 0;
    for (u32 g = 1; g < SITE_GIDS; g++) members += s->members[g].in;
    for (const struct peer *x = p->list; x; x = x->next)
        up += x->state == PEER_LINKED && x->link.state == LINK_STREAM;
    buf_printf(b, "site_id:%d\r\nsite_state:%s\r\nsite_members:%u\r\nsite_links_up:%u\r\n", s->gid,
               info_state(p), members, up);
    info_doubt(p, b);
    buf_append_str(b, "site_clock:");
    info_clock(&s->clock, b);
    buf_printf(b, "site_time_ms:%lld\r\nsite_clock_ahead_ms:%lld\r\n", (long long)site_now(s),
               (long long)MAX(site_now(s) - s->phys_ms, 0));
    buf_printf(b,
               "site_effects_pending:%u\r\nsite_effects_pending_bytes:%zu\r\n"
               "site_effects_too_far_ahead:%llu\r\n",
               s->n_pending, s->pending_bytes, (ull)s->refused_ahead);
    buf_printf(b, "site_backlog_effects:%u\r\nsite_backlog_bytes:%zu\r\nsite_backlog_limit:%zu\r\n",
               rs->backlog.n, rs->backlog.bytes, rs->backlog.limit);
    buf_printf(b, "site_garbage_keys:%llu\r\nsite_garbage_waits_for:", (ull)peers_garbage(p));
    info_waits_for(s, b);
    buf_printf(b, "\r\nsite_expiries_sent:%llu\r\nsite_expiries_suppressed:%llu\r\n",
               (ull)s->stats.expiries_sent, (ull)s->stats.expiries_suppressed);
    buf_printf(b,
               "site_conflicts_values:%llu\r\nsite_conflicts_types:%llu\r\nsite_conflicts_deadlines:%llu\r\n",
               (ull)s->stats.conflicts[SITE_CONFLICT_VALUE], (ull)s->stats.conflicts[SITE_CONFLICT_TYPE],
               (ull)s->stats.conflicts[SITE_CONFLICT_DEADLINE]);
    buf_printf(b, "site_refused_links:%llu\r\n", (ull)p->refused.count);
    if (p->refused.text[0]) buf_printf(b, "site_refused_last:%s\r\n", p->refused.text);
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->members[g].in || g == s->gid) info_member(p, (u8)g, b);
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->fenced[g] && !s->members[g].in)
            buf_printf(b, "site_evicted%u:last_effect=%llu\r\n", g, (ull)s->fence[g]);
    for (const struct peer *x = p->list; x; x = x->next) info_peer(x, b);
    for (const struct served *v = p->served; v; v = v->next)
        buf_printf(b, "site_served%d:addr=%s,state=%s,bytes=%llu\r\n", v->link.peer, v->conn->peer,
                   v->link.state == LINK_STREAM ? "up" : "greeting", (ull)v->bytes_out);
}

/* -- metrics ------------------------------------------------------------------------------------------- */

static void sites_head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP mayfly_%s %s\n# TYPE mayfly_%s %s\n", name, help, name, type);
}

static void sites_one(struct buf *b, const char *name, const char *type, double value, const char *help)
{
    sites_head(b, name, type, help);
    buf_printf(b, "mayfly_%s %.17g\n", name, value);
}

static void sites_lag(const struct peers *p, struct buf *b)
{
    u64 n = 0;
    sites_head(b, "site_lag_seconds", "histogram",
               "Time from another site's write until it was applied here.");
    for (u32 i = 0; i < PEERS_LAGS; i++) {
        n += p->lag.count[i];
        buf_printf(b, "mayfly_site_lag_seconds_bucket{le=\"%g\"} %llu\n", peers_lag_edges_ms[i] / 1e3,
                   (ull)n);
    }
    buf_printf(b, "mayfly_site_lag_seconds_bucket{le=\"+Inf\"} %llu\n", (ull)p->lag.total);
    buf_printf(b, "mayfly_site_lag_seconds_sum %.17g\nmayfly_site_lag_seconds_count %llu\n",
               (double)p->lag.sum_ms / 1e3, (ull)p->lag.total);
}

static void sites_members(const struct peers *p, struct buf *b)
{
    const struct site *s = peers_site(p);
    sites_head(b, "site_behind_effects", "gauge",
               "Effects that a member is not known to have: garbage waits for them.");
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->members[g].in && g != s->gid)
            buf_printf(b, "mayfly_site_behind_effects{site=\"%u\"} %llu\n", g, (ull)info_behind(s, (u8)g));
    sites_head(b, "site_clock_ahead_seconds", "gauge",
               "How far a site's clock was ahead of ours when it last wrote.");
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->members[g].in && g != s->gid)
            buf_printf(b, "mayfly_site_clock_ahead_seconds{site=\"%u\"} %.17g\n", g,
                       (double)p->skew_ms[g] / 1e3);
    sites_head(b, "site_link_up", "gauge", "1 if the link over which we ask this site is up.");
    for (const struct peer *x = p->list; x; x = x->next)
        buf_printf(b, "mayfly_site_link_up{site=\"%d\"} %d\n", x->gid,
                   x->state == PEER_LINKED && x->link.state == LINK_STREAM);
}

static void sites_conflicts(const struct site *s, struct buf *b)
{
    static const char *const kinds[SITE_CONFLICTS] = {"value", "type", "deadline"};
    sites_head(b, "site_conflicts_total", "counter", "Concurrent writes that were resolved.");
    for (u32 i = 0; i < SITE_CONFLICTS; i++)
        buf_printf(b, "mayfly_site_conflicts_total{kind=\"%s\"} %llu\n", kinds[i],
                   (ull)s->stats.conflicts[i]);
}

void peers_metrics(struct server *srv, struct buf *b)
{
    const struct peers *p = srv->peers;
    const struct site *s = peers_site(p);
    const struct region_site *rs = peers_region(p);
    u64 syncs = 0;
    for (const struct peer *x = p->list; x; x = x->next) syncs += x->full_syncs;
    sites_lag(p, b);
    sites_members(p, b);
    sites_conflicts(s, b);
    sites_one(b, "site_expiries_sent_total", "counter", (double)s->stats.expiries_sent,
              "Expiries that this site told others of.");
    sites_one(b, "site_expiries_suppressed_total", "counter", (double)s->stats.expiries_suppressed,
              "Expired keys that another site deleted before this one would have.");
    sites_one(b, "site_backlog_bytes", "gauge", (double)rs->backlog.bytes,
              "Effects kept for sites that were away.");
    sites_one(b, "site_garbage_keys", "gauge", (double)peers_garbage(p),
              "Keys with metadata that waits to go.");
    sites_one(b, "site_full_syncs_total", "counter", (double)syncs, "Full syncs that this site has got.");
    sites_one(b, "site_refused_links_total", "counter", (double)p->refused.count,
              "Links of others that ended badly.");
}
