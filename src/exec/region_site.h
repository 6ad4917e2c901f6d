/* A region that is a site of active-active replication (docs/decisions/025-sites.md). On a server without
 * sites region.site is NULL, which costs a comparison per tick and commit, and nothing per request.
 *
 * A tick of a site:
 *
 *   region_begin           sets the site's time, which is the region's: the later of the wall clock and of
 *                          the stamps of others (site_now). It never steps back.
 *   region_run …           commands write through the site's table of primitives (site/capture.h), which
 *                          keeps the metadata and gathers the moves. What one request, MULTI or script did
 *                          becomes one effect, or several that others apply in one piece.
 *   region_site_take       takes a message of a link: like a request, in the open transaction. What it
 *                          changes reaches the journal as canonical effects (for replicas and the AOF), and
 *                          WATCH, tracking, blocked clients and keyspace events hear of it.
 *   region_expire_step     a slice of expiry: what is past its deadline goes by an effect of this site
 *   region_site_collect    a slice of garbage collection
 *   region_commit          stores the site's state in the same transaction. If the engine kept it, the
 *                          effects of the tick enter the backlog. If not, the site is what it was before the
 *                          tick, and `lost` grows.
 *   links                  after server_commit: site_link_feed sends from the backlog. Output of links that
 *                          was made within a tick is sent after the commit, too, or not at all.
 *
 * When `lost` has grown, all links must be closed, and connect anew: messages that had been taken are
 * needed again. */
#ifndef MAYFLY_EXEC_REGION_SITE_H
#define MAYFLY_EXEC_REGION_SITE_H

#include "exec/region.h"
#include "site/backlog.h"
#include "site/capture.h"
#include "site/link.h"

struct region_site {
    struct site_capture capture;
    struct site_backlog backlog; /* committed effects only */
    u64 lost;                    /* commits that failed */
    bool fresh;                  /* there was no state: the owner founds a group (site_found) or joins one */
    /* private to region_site.c */
    struct region *region;
    struct buf made;        /* effects of the open transaction, each with its length */
    struct site_saved *saved; /* the site as of the last commit; NULL: nothing has changed since */
    struct buf collecting;  /* where garbage collection continues */
    u32 collecting_db;
    bool state_changed;     /* something to store, although there was no effect */
};

static inline struct site *region_site_of(struct region *r) { return &r->site->capture.site; }

/* Makes a region a site, between two ticks, when its data has been loaded. A state that the engine has
 * stored is read; a durable engine's site continues where it was. False, with a reason: the data is of
 * another gid, is damaged, or was written without sites and has keys. */
NODISCARD bool region_site_open(struct region *r, u8 gid, size_t backlog_bytes, const char **why);
void region_site_close(struct region *r); /* region_release does that */

/* Whether the engine's data is that of a site: then the server must not serve it without a gid. */
bool region_site_was_here(struct region *r, u8 *gid);
/* Ends being a site: deletes all metadata of keys, and the state. Not while it is one; in slices: true: call
 * again, after a commit. */
bool region_site_forget_some(struct region *r, struct buf *place, u32 *db);

/* Takes a message of a link in the open transaction (site_link_take). False: the link is over. */
bool region_site_take(struct region *r, struct site_link *l, const bytes *argv, u32 argc, struct buf *out);

/* Members. In the open transaction, like a command: these are effects. */
void region_site_found(struct region *r, const u8 *gids, u32 n);
void region_site_admit(struct region *r, u8 gid);
void region_site_evict(struct region *r, u8 gid);
void region_site_fence(struct region *r, u8 gid, u64 seq);

/* Collects garbage of about `count` keys that have some, in the open transaction. False: that was all for
 * now; call it again in a second. */
bool region_site_collect(struct region *r, u32 count);

/* Parts of region_begin, region_run and region_commit. */
i64 region_site_begin(struct region *r, i64 wall_ms);
void region_site_ran(struct region *r);    /* a request has ended */
void region_site_store(struct region *r);  /* before the engine commits */
void region_site_settle(struct region *r, bool kept);

/* In place of the keyspace's expiry: deletes what is past its deadline in this key. */
bool region_site_expire_step(struct region *r);

#endif
