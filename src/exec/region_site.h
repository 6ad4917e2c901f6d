/* A region that is a site of active-active replication (docs/decisions/025-sites.md). On a server without
 * sites region.site is NULL, which costs a comparison per tick and commit, and nothing per request.
 *
 * A tick of a site:
 *
 *   region_begin           sets the site's time, which is the region's: the later of the wall clock and the
 *                          stamps of other sites (site_now). It never steps back.
 *   region_run …           commands write through the site's table of primitives (site/capture.h), which
 *                          keeps the metadata and collects the moves. The writes of one request, MULTI or
 *                          script become one effect, or several that other sites apply in one piece.
 *   region_site_take       applies a message of a link: like a request, in the open transaction. Its changes
 *                          are journalled as canonical effects (for replicas and the AOF), and reported to
 *                          WATCH, tracking, blocked clients and keyspace events.
 *   region_expire_step     a slice of expiry: deletes dead keys by effects of this site
 *   region_site_collect    a slice of garbage collection
 *   region_commit          stores the site's state in the same transaction. If the engine commits, the
 *                          effects of the tick are added to the backlog. If not, the site returns to its
 *                          state before the tick, and `lost` increases.
 *   links                  after server_commit: site_link_feed sends from the backlog. Output of links made
 *                          within a tick is also sent after the commit, or not at all.
 *
 * A region that follows (region_site_follow) is not a site: it keeps the metadata of a site whose history it
 * applies, as a replica of that site or while it loads a file. Its site's clocks are those of the history,
 * and it makes no effects. region_site_open turns it into the site.
 *
 * Persistence. A durable engine stores the site's state in each transaction that has an effect. Otherwise the
 * AOF contains it, with all metadata (exec/site_log.h), and so do the replication stream and RDB files.
 *
 * No dot is used twice. If a site has lost effects that others have, it must not write before it knows that:
 * it would give their numbers to other effects. A killed process loses nothing if each commit reaches the
 * kernel before its effects are sent. So a site is in doubt (`doubt`) if it starts from a state that may be
 * older than what it has sent: from an RDB file that does not belong to an AOF; or after another boot of the
 * machine (node.boot), unless commits were synced (node.synced); or if it has followed the site as a replica
 * and takes its place. In doubt (site.doubt) it makes no effects: it refuses writes of clients
 * (region_site_doubt), and deletes no dead keys. At first it also applies no effects of other sites
 * (region_site_may_take), until all other members have sent their clocks. If one of them has more of this
 * site's effects than the site itself, those were lost here; the site takes them back, with all others, and
 * then continues. Meanwhile applying effects expires nothing, as if everything had arrived in time; if the
 * site's own expiries were lost, they come back, too.
 *
 * A replica that takes the place of its site (region_site_take_place) gets the site's next incarnation, by
 * which members distinguish it (site_meet): they accept nothing more from the server that was the site
 * before. A clock counts only if it was sent to the new incarnation, so the doubt ends after all members know
 * it. The old server learns from any member that it was replaced, and makes no more effects.
 *
 * When `lost` has increased, all links must be closed and reconnected, because messages that had been applied
 * are needed again. */
#ifndef MAYFLY_EXEC_REGION_SITE_H
#define MAYFLY_EXEC_REGION_SITE_H

#include "exec/region.h"
#include "exec/site_log.h"
#include "exec/site_tables.h"
#include "site/backlog.h"
#include "site/capture.h"
#include "site/link.h"

#define REGION_SITE_LATE_MAX (8u << 20) /* bytes of names that wait for another site's expiry */
#define REGION_SITE_DOUBT \
    "SITEDOUBT this site may have lost writes that others have: it waits for the clocks of all members " \
    "(SITE INFO says for which; SITE TRUST, if they are gone and nothing was lost)"
#define REGION_SITE_REPLACED \
    "SITEREPLACED Another server has taken the place of this site: make this one its replica (REPLICAOF), " \
    "or start it empty under a new site-id"

struct region_site_was { /* the state that was found, or came */
    bool known;
    u8 flags;
    u64 boot, stamp;
};

struct region_site {
    struct site_capture capture;
    struct site_backlog backlog; /* committed effects only */
    u64 lost;                    /* commits that failed */
    bool fresh;                  /* there was no state: the owner founds a group (site_found) or joins one */
    bool follows;                /* it is no site, but keeps the metadata of one */
    bool heard[SITE_GIDS];       /* members that have sent their clock since the start */
    /* private to region_site.c and site_tables.c */
    struct region *region;
    struct site_tables tables;
    struct site_log log;      /* of the open record */
    struct buf made;          /* effects of the open transaction: site_backlog_gather() */
    struct site_saved *saved; /* the site as of the last commit, if `saving`: since a tick began, or longer */
    bool saving;
    u64 emitted, entered; /* effects that were emitted; region_site_enter: the position without them … */
    u64 entered_torn;     /* … whether it was torn … */
    u64 entered_met;      /* … and which servers it had met */
    bool state_changed;   /* the site's state has to be stored … */
    bool state_logged;    /* … and to be in the log, too: it is more than what effects say */
    struct region_site_was was;
    u64 becoming;  /* the stamp of the effect that keys become that were here before; 0: none do */
    bool behind;   /* its state may be older than the effects it has sent */
    bool marked;   /* follows: the log says so (ROW_FOLLOWS) */
    bool mismatch; /* a full sync brought the data of another site, or of none */
    struct site_clock *reloading; /* the clock before; NULL: it is not */
    struct buf staged;            /* a state that belongs to the staging databases */
    struct buf place;             /* where garbage collection continues … */
    u32 place_db;                 /* … in this database */
    struct buf late; /* keys past their deadline that another site is to delete: time, database, name … */
    size_t late_at;  /* … from here on */
    i64 look_ms;     /* there is nothing to expire before this */
    bool whole, whole_empty; /* a stream is to be told as a whole, because it is empty … */
    struct buf whole_key;    /* … this one */
    u32 whole_db;
    const char *told_event; /* the last event of the open record, and of which key */
    struct buf told_key;
    u32 told_db;
};

static inline struct site *region_site_of(struct region *r) { return &r->site->capture.site; }

/* Whether it is one, and not only keeps the metadata of one. */
static inline bool region_is_site(const struct region *r) { return r->site && !r->site->follows; }

/* Makes a region keep the metadata of the site `gid`, between two ticks: before files are loaded, or before
 * it follows a primary that is that site. If it is a site, it stops being one and keeps its metadata. Reads
 * the state that the engine has stored. False, with a reason: it is damaged, or of another site. */
NODISCARD bool region_site_follow(struct region *r, u8 gid, const char **why);

/* Makes a region a site, between two ticks, when its data has been loaded. It continues where the state says
 * that region_site_follow has found, or has got since. If there is none, and there are keys, these become an
 * effect of this site. False, with a reason: the data is of another gid, or is damaged. */
NODISCARD bool region_site_open(struct region *r, u8 gid, size_t backlog_bytes, const char **why);
void region_site_close(struct region *r); /* region_release does that */

/* Whether the data is that of a site: then the server must not serve it without a gid. Known as soon as the
 * engine is open (RocksDB), or when the files are loaded. */
bool region_site_was_here(struct region *r, u8 *gid);
/* Ends being a site: deletes all metadata of keys, and the state. Not while it is one; in slices: true: call
 * again, after a commit. */
bool region_site_forget_some(struct region *r, struct buf *place, u32 *db);

/* A replica is to be the site that it follows: before region_site_open. `complete`: it is known to have all
 * that the site has sent. */
void region_site_take_place(struct region *r, bool complete, u32 random);
/* Whether what was loaded is a replica's, which has not taken the site's place. */
bool region_site_was_replica(const struct region *r);

/* The error for clients that write; NULL: they may. */
static inline const char *region_site_doubt(const struct region *r)
{
    if (LIKELY(!region_is_site(r)) || !r->site->capture.site.doubt) return NULL;
    return r->site->capture.site.replaced_by ? REGION_SITE_REPLACED : REGION_SITE_DOUBT;
}

void region_site_trust(struct region *r); /* the operator knows that nothing was lost */

bool region_site_may_take_in_doubt(const struct region *r, const struct site_link *l);
/* In doubt, only the first answer of a link is taken, which has a clock. What follows has to wait, until all
 * members have told theirs. */
static inline bool region_site_may_take(const struct region *r, const struct site_link *l)
{
    return LIKELY(!r->site->capture.site.doubt) || region_site_may_take_in_doubt(r, l);
}

/* Whether the doubt lasts until this member has sent its clock. */
static inline bool region_site_waits_for(const struct region *r, u8 gid)
{
    const struct site *s = &r->site->capture.site;
    return s->doubt && s->members[gid].in && gid != s->gid && !r->site->heard[gid];
}

/* Applies a message of a link in the open transaction (site_link_take). False: the link has ended. */
bool region_site_take(struct region *r, struct site_link *l, const bytes *argv, u32 argc, struct buf *out);

/* Around other work of the site layer in the open transaction (a slice of a merge): its changes are reported
 * and logged. */
void region_site_enter(struct region *r);
void region_site_leave(struct region *r); /* ends the record */

/* Members. In the open transaction, like a command: these are effects. */
void region_site_found(struct region *r, const u8 *gids, u32 n);
void region_site_unfound(struct region *r); /* no member any more; before its first effect only */
void region_site_admit(struct region *r, u8 gid);
void region_site_evict(struct region *r, u8 gid);
void region_site_fence(struct region *r, u8 gid, u64 seq);

/* Collects garbage of about `count` keys that have some, in the open transaction. False: that was all for
 * now; call it again in a second. */
bool region_site_collect(struct region *r, u32 count);

/* Parts of region_begin, region_run and region_commit. */
i64 region_site_begin(struct region *r, i64 wall_ms);
void region_site_ran(struct region *r);   /* a record ends */
void region_site_store(struct region *r); /* before the engine commits */
void region_site_settle(struct region *r, bool kept);

/* Replaces the keyspace's expiry: deletes dead keys. True: there may be more to do at once. */
bool region_site_expire_step(struct region *r);
i64 region_site_next_due(const struct region *r); /* when there may be something; INT64_MAX: nothing at all */

/* Files and the replication stream. */

/* If ECHO's argument is a log (site_log_is): applies it, or ignores it if the region does not follow; in both
 * cases the region's data is known to be a site's. Journals it, if there are sinks. False: malformed. */
bool region_site_take_log(struct region *r, bytes log, u32 db_base);
/* Appends the site's state as a log, for the head of a file; nothing without a site. */
void region_site_put_state(struct region *r, struct site_log *l);
/* A file was loaded that may be older than the effects the site has sent. */
void region_site_loaded_old(struct region *r);
/* All data was deleted without an effect: next another history of the site is loaded, or none. */
void region_site_emptied(struct region *r);
/* Around DEBUG RELOAD and the like, within a command: a site follows while a file is loaded in place of its
 * data, and then continues. It is in doubt if the file is not of now. */
void region_site_reload_begin(struct region *r);
void region_site_reload_end(struct region *r);
/* Uses the engine's own table: for changes that are not history, like deleting everything for a full sync. */
static inline const struct engine_ops *region_engine_ops(const struct engine *e)
{
    return UNLIKELY(e->site != NULL) ? e->site->tables.engine : e->ops;
}
/* The staging databases have become the data, or were dropped. */
void region_site_adopt_staged(struct region *r, bool adopted);

#endif
