#include "peers/peers_parts.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "repl/primary.h"
#include "server/commit.h"

#define COLLECT_EVERY_MS 1000
#define COLLECT_KEYS 64
#define COUNT_KEYS 1024
#define COLLECT_SLICE_US 500
#define SKEW_LOG_EVERY_MS 60000

const u32 peers_lag_edges_ms[PEERS_LAGS] = {1,   2,   5,    10,   20,    50,    100,
                                            200, 500, 1000, 5000, 10000, 60000, 600000};

void peer_note_reason(struct peer_reason *r, const char *why)
{
    snprintf(r->text, sizeof r->text, "%s", why);
    r->at_ms = clock_wall_ms();
    r->count++;
}

/* -- starting ------------------------------------------------------------------------------------------ */

/* Data of a site without site-id: its metadata would grow wrong, so the server runs only without it. */
static bool peers_leave(struct server *s)
{
    struct region *r = lone_region(s);
    struct buf place = {0};
    u32 db = 0;
    u8 gid;
    bool more = true, kept = true;
    if (!region_site_was_here(r, &gid)) return true;
    if (!s->config.site_drop_metadata) {
        log_line(
            &s->log, LOG_WARNING,
            "Fatal error: this is the data of site %d. Start with --site-id %d; or, to make it a lone server "
            "for good, with --site-drop-metadata yes (other sites then have to evict site %d). Exiting.",
            gid, gid, gid);
        return false;
    }
    log_line(&s->log, LOG_WARNING, "The metadata of site %d is dropped: this server is no site any more",
             gid);
    while (more && kept) {
        region_begin(r, clock_wall_ms());
        more = region_site_forget_some(r, &place, &db);
        kept = server_commit(s, COMMIT_LOAD_END);
    }
    buf_release(&place);
    s->persist.rewrite_scheduled |= config_wants_aof(&s->config); /* the file is full of it */
    if (!kept) log_line(&s->log, LOG_WARNING, "Fatal error: the storage did not take it. Exiting.");
    return kept;
}

/* Which boot of the machine this is: 0 if it is not known. */
static u64 peers_boot(void)
{
    char text[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : 0;
    if (fd >= 0) close(fd);
    return n > 0 ? hash_bytes(bytes_of(text, (size_t)n), 0) : 0;
}

bool peers_prepare(struct server *s)
{
    const struct config *c = &s->config;
    const char *why = "";
    if (!c->site_id) return true;
    s->node.boot = peers_boot();
    peers_apply_config(s);
    if (region_site_follow(lone_region(s), (u8)c->site_id, &why)) return true;
    log_line(&s->log, LOG_WARNING, "Fatal error: this server can't be site %d: %s. Exiting.", (int)c->site_id,
             why);
    return false;
}

static void peers_close_all(struct peers *p, const char *why);

/* Founds a group and admits the peers. False: the storage did not take it. */
static bool peers_found(struct peers *p)
{
    struct server *s = p->server;
    u8 gid = (u8)s->config.site_id;
    s->now_ms = node_begin(&s->node, clock_wall_ms());
    region_site_found(lone_region(s), &gid, 1);
    for (const struct peer *x = p->list; x; x = x->next) region_site_admit(lone_region(s), x->gid);
    if (!server_commit(s, COMMIT_SITE)) return false;
    log_line(&s->log, LOG_NOTICE, "Site %d is new: it is the first of a group", gid);
    return true;
}

/* A new site founds a group, or joins that of its peers. */
static bool peers_found_or_join(struct peers *p)
{
    if (!p->list) return peers_found(p);
    log_line(&p->server->log, LOG_NOTICE,
             "Site %d is new: it joins the group of its peers, and takes no writes until then",
             (int)p->server->config.site_id);
    return true;
}

/* Whether this site and all its peers are new, and it has the lowest id of them. All peers must have said
 * that they have no group: a site that has lost its data must not found a second one. */
static bool peers_are_all_new(const struct peers *p)
{
    const struct site *s = peers_site(p);
    if (LIKELY(s->members[s->gid].in) || s->torn || s->fenced[s->gid]) return false;
    for (const struct peer *x = p->list; x; x = x->next)
        if (x->gid < s->gid || strcmp(x->reason.text, SITE_NOT_JOINED) != 0) return false;
    return p->list != NULL;
}

/* Of new sites that all have each other as peers, each waits for another to admit it: one has to begin. */
static void peers_found_together(struct peers *p)
{
    if (peers_are_all_new(p)) peers_found(p);
}

static bool peers_begin(struct server *s)
{
    struct region *r = lone_region(s);
    const struct config *c = &s->config;
    const char *why = "";
    if (!region_site_open(r, (u8)c->site_id, (size_t)c->site_backlog_size, &why)) {
        log_line(&s->log, LOG_WARNING, "Fatal error: this server can't be site %d: %s. Exiting.",
                 (int)c->site_id, why);
        return false;
    }
    struct peers *p = mem_zalloc(sizeof *p);
    struct config_site_peer peer;
    p->server = s;
    p->later = mem_alloc(sizeof *p->later);
    uv_timer_init(&s->loop, p->later);
    p->later->data = p;
    p->lost = r->site->lost;
    s->peers = p;
    peers_apply_config(s);
    for (u32 i = 0; config_site_peer(c, i, &peer); i++) peer_add(p, peer.gid, peer.host, peer.port);
    return !r->site->fresh || peers_found_or_join(p);
}

static u32 peers_random(void)
{
    u32 v = (u32)clock_mono_us();
    (void)!uv_random(NULL, NULL, &v, sizeof v, 0, NULL);
    return v;
}

bool peers_open(struct server *s)
{
    if (s->cluster) return true;
    if (!s->config.site_id) return peers_leave(s);
    if (s->config.replicaof.n) return true; /* it follows, and may take the site's place later */
    struct region *r = lone_region(s);
    if (region_site_was_replica(r)) region_site_take_place(r, false, peers_random());
    return peers_begin(s);
}

void peers_follow(struct server *s)
{
    const char *why;
    if (!s->config.site_id) return;
    if (s->peers) {
        peers_close_all(s->peers, NULL);
        peers_stop(s);
        log_line(&s->log, LOG_NOTICE, "This server is a replica of site %d now", (int)s->config.site_id);
    }
    CHECK(region_site_follow(lone_region(s), (u8)s->config.site_id, &why)); /* the data is that site's */
}

void peers_promote(struct server *s, bool complete)
{
    if (s->config.site_id) region_site_take_place(lone_region(s), complete, peers_random());
}

/* A replica that was promoted becomes the site between two ticks. */
static void peers_take_place(struct server *s)
{
    if (s->repl.link || s->node.loading) return;
    if (!peers_begin(s) || !server_commit(s, COMMIT_SITE)) {
        server_end(s, 1);
        return;
    }
    log_line(&s->log, LOG_NOTICE, "This server has taken the place of site %d%s", (int)s->config.site_id,
             region_site_doubt(lone_region(s)) ? ": it waits for the clocks of all members" : "");
}

static void peers_on_closed(uv_handle_t *h) { mem_free(h); }

void peers_stop(struct server *s)
{
    struct peers *p = s->peers;
    if (!p) return;
    peers_merge_drop(p);
    while (p->list) peer_remove(p, p->list->gid);
    for (struct conn *c = s->net.conns; c; c = c->next) peers_forget(s, c);
    peers_evict_release(p);
    uv_close((uv_handle_t *)p->later, peers_on_closed);
    buf_release(&p->count_place);
    mem_free(p);
    s->peers = NULL;
}

void peers_apply_config(struct server *s)
{
    const struct config *c = &s->config;
    struct peers *p = s->peers;
    s->node.synced = c->appendfsync == DISK_SYNC_ALWAYS;
    if (!p) return;
    peers_region(p)->backlog.limit = (size_t)c->site_backlog_size;
    peers_site(p)->max_pending = (size_t)c->site_pending_max_size;
    peers_site(p)->max_skew_ms = c->site_max_clock_skew;
    peers_site(p)->expire_delay_ms = c->site_expire_delay;
}

/* -- ticks --------------------------------------------------------------------------------------------- */

const char *peers_deny(const struct peers *p)
{
    const struct site *s = peers_site(p);
    if (UNLIKELY(s->torn))
        return "SITETORN A full sync of this site was cut off: it takes no writes until another one is here";
    if (LIKELY(s->members[s->gid].in)) return region_site_doubt(lone_region(p->server));
    if (s->fenced[s->gid])
        return "EVICTED This site was evicted from its group: it has to come back empty, under a new site-id";
    return "SITEJOIN This site is joining its group: it takes no writes until it has all data";
}

const char *peers_deny_writes(const struct server *s)
{
    if (!s->peers) return REGION_SITE_DOUBT; /* it is about to take its site's place */
    return region_site_doubt(lone_region(s));
}

void peers_begin_tick(struct server *s)
{
    const struct peers *p = s->peers;
    const char *why = peers_merging(p) ? NULL : peers_deny(p);
    if (UNLIKELY(why != NULL)) s->node.deny_writes = why;
}

static void peers_close_all(struct peers *p, const char *why)
{
    peers_merge_drop(p);
    for (struct peer *x = p->list; x; x = x->next)
        if (x->state != PEER_DOWN) peer_close(x, why);
    for (struct served *v = p->served; v; v = v->next) served_close(v);
}

/* For effects that were dropped when they arrived: a new link begins after what this site has. */
static void peers_ask_again(struct peers *p)
{
    if (LIKELY(!p->missed)) return;
    p->missed = false;
    for (struct peer *x = p->list; x; x = x->next)
        if (x->state != PEER_DOWN) peer_close(x, "it has effects of an evicted site that were not taken");
}

static void peers_wake_served(const struct peers *p)
{
    for (struct served *v = p->served; v; v = v->next)
        if (v->conn->source && v->link.state == LINK_STREAM) conn_wake(v->conn);
}

void peers_committed(struct server *s, bool kept)
{
    struct peers *p = s->peers;
    const struct region_site *rs = peers_region(p);
    if (UNLIKELY(rs->lost != p->lost)) {
        p->lost = rs->lost;
        peers_close_all(p, "the storage failed: what it sent is needed again");
        return;
    }
    if (!kept) return;
    if (UNLIKELY(s->repl.waiting)) wait_check(s); /* SITE WAIT */
    peers_wake_served(p);
}

static void peers_on_later(uv_timer_t *t)
{
    struct peers *p = t->data;
    for (struct peer *x = p->list; x; x = x->next) peer_feed(x);
    peers_wake_served(p);
}

void peers_feed_later(struct peers *p)
{
    if (!uv_is_active((uv_handle_t *)p->later)) uv_timer_start(p->later, peers_on_later, PEER_CLOCK_MS, 0);
}

bool peers_may_tell(const struct peers *p)
{
    const struct persistence *of = &p->server->persist;
    return !(of->aof_state == AOF_IS_ON && aof_refuses(of->aof));
}

/* -- what is applied here ------------------------------------------------------------------------------ */

static void peers_note_skew(struct peers *p, u8 gid, i64 ahead_ms)
{
    const struct server *s = p->server;
    p->skew_ms[gid] = ahead_ms;
    if (ahead_ms <= s->config.site_max_clock_skew) return;
    i64 now = peers_now_ms(p);
    if (p->skew_logged_ms && now - p->skew_logged_ms < SKEW_LOG_EVERY_MS) return;
    p->skew_logged_ms = now;
    log_line(
        &s->log, LOG_WARNING,
        "The clock of site %d is %lld ms ahead of ours (site-max-clock-skew is %lld): it is not followed",
        gid, (long long)ahead_ms, (long long)s->config.site_max_clock_skew);
}

void peers_note_effect(struct peers *p, const struct site_link *l)
{
    i64 lag = p->server->now_ms - (i64)(l->stamp >> 16);
    u32 i = 0;
    peers_note_skew(p, l->author, MAX(-lag, 0));
    lag = MAX(lag, 0);
    p->lag_ms[l->author] = lag;
    while (i < PEERS_LAGS && lag > peers_lag_edges_ms[i]) i++;
    p->lag.count[i]++;
    p->lag.total++;
    p->lag.sum_ms += (u64)lag;
}

/* -- SITE WAIT ----------------------------------------------------------------------------------------- */

u64 peers_position(const struct server *s)
{
    const struct site *site = peers_site(s->peers);
    return site->clock.seq[site->gid];
}

u32 peers_acknowledged(const struct server *s, u64 position)
{
    const struct site *site = peers_site(s->peers);
    u32 n = 0;
    for (u32 g = 1; g < SITE_GIDS; g++)
        n += site->members[g].in && g != site->gid && site->acks[g] &&
             site->acks[g]->seq[site->gid] >= position;
    return n;
}

/* -- time ---------------------------------------------------------------------------------------------- */

u64 peers_garbage(const struct peers *p) { return p->garbage; }

static void peers_count_key(void *arg, struct key_ref *ref UNUSED) { ++*(u64 *)arg; }

/* Keys that have some are counted a few at a time. */
static void peers_count_garbage(struct peers *p)
{
    struct engine *e = lone_region(p->server)->eng;
    if (e->ops->companion.each_kept(e, p->count_db, &p->count_place, COUNT_KEYS, peers_count_key,
                                    &p->garbage_seen))
        return;
    buf_clear(&p->count_place);
    if (++p->count_db < e->databases) return;
    p->count_db = 0;
    p->garbage = p->garbage_seen;
    p->garbage_seen = 0;
}

/* Garbage is collected in slices; after all keys were visited, again after a second. */
static void peers_collect(struct peers *p)
{
    struct server *s = p->server;
    i64 now = peers_now_ms(p);
    if (now < p->collect_ms || server_holds_changes(s)) return;
    i64 until_us = clock_mono_us() + COLLECT_SLICE_US;
    bool more = true;
    s->now_ms = node_begin(&s->node, clock_wall_ms());
    while (more && clock_mono_us() < until_us) more = region_site_collect(lone_region(s), COLLECT_KEYS);
    bool kept = server_commit(s, COMMIT_SITE);
    if (!more || !kept) p->collect_ms = now + COLLECT_EVERY_MS;
}

void peers_cron(struct server *s)
{
    struct peers *p = s->peers;
    if (UNLIKELY(!p)) {
        peers_take_place(s);
        return;
    }
    if (s->node.loading) return;
    for (struct peer *x = p->list; x; x = x->next) {
        peer_cron(x);
        peer_feed(x);
    }
    for (struct served *v = p->served; v; v = v->next) served_cron(v);
    if (!peers_merging(p) && !replication_frozen(&s->repl)) {
        peers_found_together(p);
        peers_ask_again(p);
        peers_evict_cron(p);
    }
    peers_count_garbage(p);
    peers_collect(p);
}
