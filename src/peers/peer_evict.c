/* Evictions. All survivors must agree on the last effect of the evicted site that counts:
 *
 * 1. SITE EVICT gid at a member fences the evicted site off: the member accepts no further effects of gid,
 *    and reports over all links how many it has (SITE.FENCE gid reports, a clock by member).
 * 2. A site that receives this also fences gid off, adds its own report, and forwards all reports. An effect
 *    of gid that any survivor has counts for all: the fence is the maximum of the reports. Effects that
 *    arrived while the fence was lower were dropped, so the links reconnect, and they are sent again.
 * 3. When the first site has reports of all members but gid, and all effects up to the fence, it makes an
 *    EVICT effect. With it the fence is the same at all sites, and garbage collection ignores gid.
 *
 * Fences are stored, reports are not: after a restart SITE EVICT has to be repeated. */
#include <stdio.h>

#include "base/clock.h"
#include "peers/peers_parts.h"
#include "server/commit.h"

/* How many effects of gid this site has. Reports are stored plus one, so that 0 means none was received. */
static bool evict_report(struct peers *p, u8 gid)
{
    struct region *r = lone_region(p->server);
    struct site *s = region_site_of(r);
    bool fresh = !p->reports[gid];
    if (fresh) p->reports[gid] = mem_zalloc(sizeof **p->reports);
    if (!s->fenced[gid]) region_site_fence(r, gid, s->clock.seq[gid]);
    if (!p->reports[gid]->seq[s->gid]) p->reports[gid]->seq[s->gid] = s->clock.seq[gid] + 1;
    return fresh;
}

static u64 evict_fence(const struct site_clock *reports)
{
    u64 most = 0;
    for (u32 g = 1; g < SITE_GIDS; g++) most = MAX(most, reports->seq[g]);
    return most ? most - 1 : 0;
}

static void evict_raise_fence(struct peers *p, u8 gid)
{
    struct site *s = peers_site(p);
    u64 fence = evict_fence(p->reports[gid]);
    if (fence <= s->fence[gid]) return;
    region_site_fence(lone_region(p->server), gid, fence);
    if (s->clock.seq[gid] < fence) p->missed = true;
}

void peers_evict(struct peers *p, u8 gid)
{
    p->evicting[gid] = true;
    evict_report(p, gid);
    p->reports_version++;
}

void peers_put_reports(const struct peers *p, u64 *version, struct buf *out)
{
    struct buf clock = {0};
    char text[NUM_I64_LEN];
    if (LIKELY(*version == p->reports_version)) return;
    *version = p->reports_version;
    for (u32 g = 1; g < SITE_GIDS; g++) {
        if (!p->reports[g]) continue;
        size_t n = num_print_i64(text, g);
        buf_clear(&clock);
        site_put_clock(&clock, p->reports[g]);
        buf_printf(out, "*3\r\n$10\r\nSITE.FENCE\r\n$%zu\r\n%.*s\r\n$%zu\r\n", n, (int)n, text, clock.n);
        buf_append_bytes(out, buf_bytes(&clock));
        buf_append_str(out, "\r\n");
    }
    buf_release(&clock);
}

bool peers_take_reports(struct peers *p, const bytes *argv, u32 argc)
{
    struct site *s = peers_site(p);
    struct site_clock theirs;
    i64 gid;
    if (argc != 3 || !num_parse_i64(argv[1], &gid) || gid < 1 || gid >= SITE_GIDS) return false;
    struct site_reader r = site_reader_of(argv[2]);
    site_get_clock(&r, &theirs);
    if (r.bad || site_left(&r) || gid == s->gid) return false;
    if (!s->members[gid].in) return true; /* done already, or not known here yet: it is said again */
    bool news = evict_report(p, (u8)gid);
    if (!site_clock_covers(p->reports[gid], &theirs)) {
        site_clock_join(p->reports[gid], &theirs);
        news = true;
    }
    evict_raise_fence(p, (u8)gid);
    p->reports_version += news;
    return true;
}

bool peers_evict_waits(const struct peers *p, u8 gid, struct buf *out)
{
    const struct site *s = peers_site(p);
    size_t before = out->n;
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->members[g].in && g != gid && !p->reports[gid]->seq[g] && !p->evicting[g])
            buf_printf(out, "%s%u", out->n > before ? " " : "", g);
    return out->n > before;
}

/* Whether all survivors have fenced it off, and all that any of them has of it is here. */
static bool evict_may_end(const struct peers *p, u8 gid)
{
    const struct site *s = peers_site(p);
    struct buf waits = {0};
    bool ready = s->clock.seq[gid] >= evict_fence(p->reports[gid]) && !peers_evict_waits(p, gid, &waits);
    buf_release(&waits);
    return ready;
}

static void evict_forget(struct peers *p, u8 gid)
{
    mem_free(p->reports[gid]);
    p->reports[gid] = NULL;
    p->evicting[gid] = false;
}

void peers_evict_cron(struct peers *p)
{
    struct server *s = p->server;
    for (u32 g = 1; g < SITE_GIDS; g++) {
        if (!p->reports[g]) continue;
        if (!peers_site(p)->members[g].in) {
            evict_forget(p, (u8)g);
        } else if (p->evicting[g] && evict_may_end(p, (u8)g) && !peers_deny(p)) {
            s->now_ms = node_begin(&s->node, clock_wall_ms());
            region_site_evict(lone_region(s), (u8)g);
            if (server_commit(s, COMMIT_SITE)) log_line(&s->log, LOG_WARNING, "Site %u was evicted", g);
        }
    }
}

void peers_evict_release(struct peers *p)
{
    for (u32 g = 1; g < SITE_GIDS; g++) evict_forget(p, (u8)g);
}
