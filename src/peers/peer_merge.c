/* Merging a full sync that has arrived, in slices between ticks. Meanwhile clients' writes and messages of
 * other sites wait. It does not need its sender any more: if the connection is closed, merging continues. */
#include "base/clock.h"
#include "peers/peers_parts.h"
#include "server/commit.h"

#define MERGE_SLICE_US 1000
#define MERGE_KEYS 8 /* between two looks at the clock */

static struct site_link *merge_link(struct peers *p) { return p->orphan ? p->orphan : &p->merging->link; }

static void merge_on_closed(uv_handle_t *h) { mem_free(h); }

static void merge_end(struct peers *p)
{
    struct server *s = p->server;
    if (p->idle) {
        uv_idle_stop(p->idle);
        uv_close((uv_handle_t *)p->idle, merge_on_closed);
    }
    if (p->orphan) {
        site_link_release(p->orphan);
        mem_free(p->orphan);
    }
    p->idle = NULL;
    p->orphan = NULL;
    p->merging = NULL;
    server_hold(s, HOLD_SITE, false);
    net_resume(&s->net, HOLD_SITE);
}

static void merge_finished(struct peers *p)
{
    struct peer *x = p->merging;
    merge_end(p);
    if (!x) return;
    x->full_syncs++;
    peer_linked(x, true);
    peer_resume(x);
}

static void merge_failed(struct peers *p, const char *why)
{
    struct peer *x = p->merging;
    merge_end(p);
    log_line(&p->server->log, LOG_WARNING, "A full sync was not merged: %s", why);
    if (x) peer_close(x, why);
}

static void merge_slice(struct peers *p)
{
    struct server *s = p->server;
    struct region *r = lone_region(s);
    struct site_link *l = merge_link(p);
    struct buf ignored = {0}; /* a refusal, which peer_close tells of */
    i64 until_us = clock_mono_us() + MERGE_SLICE_US;
    bool on = true;
    s->now_ms = node_begin(&s->node, clock_wall_ms());
    net_keep_output(&s->net);
    region_site_enter(r);
    do on = site_link_step(l, MERGE_KEYS, &ignored);
    while (on && l->state == LINK_MERGE && clock_mono_us() < until_us);
    region_site_leave(r);
    const char *why = l->why ? l->why : "";
    buf_release(&ignored);
    if (!server_commit(s, COMMIT_SITE)) { /* which has dropped it, with all links */
        if (peers_merging(p)) peers_merge_drop(p);
    } else if (!on) {
        merge_failed(p, why);
    } else if (l->state != LINK_MERGE) {
        merge_finished(p);
    }
}

static void merge_on_idle(uv_idle_t *h)
{
    struct peers *p = h->data;
    if (!server_holds(p->server, HOLD_STORAGE)) merge_slice(p);
}

void peers_merge_begin(struct peers *p, struct peer *x)
{
    p->merging = x;
    p->idle = mem_alloc(sizeof *p->idle);
    uv_idle_init(&p->server->loop, p->idle);
    p->idle->data = p;
    uv_idle_start(p->idle, merge_on_idle);
    server_hold(p->server, HOLD_SITE, true);
    log_line(&p->server->log, LOG_NOTICE, "All data of site %d has arrived and is being merged: writes wait",
             x->gid);
}

void peers_merge_orphan(struct peers *p)
{
    p->orphan = mem_alloc(sizeof *p->orphan);
    *p->orphan = p->merging->link;
    p->merging->link = (struct site_link){0};
    p->merging = NULL;
}

void peers_merge_drop(struct peers *p)
{
    if (!peers_merging(p)) return;
    if (merge_link(p)->full) site_full_tear(merge_link(p)->full);
    merge_end(p);
}
