/* Internals of peers, for the files of this folder. */
#ifndef MAYFLY_PEERS_PEERS_PARTS_H
#define MAYFLY_PEERS_PEERS_PARTS_H

#include <uv.h>

#include "exec/region_site.h"
#include "net/dial.h"
#include "peers/peers.h"
#include "repl/inbox.h"
#include "server/server.h"

#define PEER_RETRY_LEAST_MS 100
#define PEER_HEARTBEAT_MS 1000
#define PEER_CLOCK_MS 10 /* least time between two clocks on a link: one per tick costs as much as effects */
#define PEER_REASON 160

/* Why a link ended or was refused, for the log and SITE INFO. */
struct peer_reason {
    char text[PEER_REASON]; /* "": there was none */
    i64 at_ms;              /* wall clock */
    u64 count;
};

enum peer_state { PEER_DOWN, PEER_CONNECTING, PEER_GREETING, PEER_LINKED };

/* libuv needs the handle until its close callback has run, so this outlives the connection. */
struct peer_conn {
    struct peer *peer; /* NULL: closed */
    uv_poll_t poll;
    int fd;
    struct tls *tls; /* NULL: plain */
    int events, polled;
};

struct peer {
    struct peers *of;
    struct peer *next;
    u8 gid;
    char host[256];
    int port;
    enum peer_state state;
    struct dial *dial;      /* PEER_CONNECTING */
    struct peer_conn *conn; /* from PEER_GREETING on */
    struct site_link link;
    bool needs_full; /* when it is linked again */
    struct inbox inbox;
    struct buf out;
    size_t sent;   /* so much of `out` the kernel has */
    u64 reports;   /* of evictions: peers.reports_version as last sent */
    u32 greetings; /* replies to commands before SITE.HELLO that are still to come */
    bool shown;    /* the log has heard that it is linked, or why it is not */
    i64 retry_ms, backoff_ms, heard_ms, said_ms; /* by the loop's time */
    i64 up_ms;                                   /* wall clock; 0: never linked */
    struct peer_reason reason;
    u64 bytes_in, effects, full_syncs;
    bytes *argv; /* scratch */
    u32 argv_cap;
};

/* A site that fetches from us. It lives as long as its connection. */
struct served {
    struct conn_source source;
    struct peers *of;
    struct served *next;
    struct conn *conn;
    struct site_link link;
    struct buf piece; /* being sent … */
    size_t sent;      /* … up to here */
    i64 heard_ms, said_ms, clock_ms; /* clock_ms: the last time that a clock could be said */
    u64 reports;                     /* as peer.reports */
    i64 since_ms; /* wall clock */
    u64 bytes_out;
};

#define PEERS_LAGS 14
struct peers {
    struct server *server;
    struct peer *list;
    struct served *served;
    struct peer *merging;                  /* whose full sync is being merged; NULL: none, or … */
    struct site_link *orphan;              /* … one whose connection has ended since */
    uv_idle_t *idle;                       /* active while something is merged */
    uv_timer_t *later;                     /* active while a link has a clock to say */
    u64 lost;                              /* of the region's, as last seen */
    bool evicting[SITE_GIDS];              /* SITE EVICT was said here */
    struct site_clock *reports[SITE_GIDS]; /* evictions that are under way: peer_evict.c */
    u64 reports_version;
    bool missed; /* effects that came when a fence was lower: they have to come again */
    u64 garbage, garbage_seen; /* keys that have some; of the walk that is under way */
    u32 count_db;
    struct buf count_place;
    i64 collect_ms;             /* when garbage is collected again */
    struct peer_reason refused; /* links that others wanted */
    char refused_logged[PEER_REASON];
    i64 refused_logged_ms;
    u64 full_syncs_sent;
    i64 skew_ms[SITE_GIDS]; /* how far a site's clock was ahead of ours when it last wrote */
    i64 skew_logged_ms;
    struct {
        u64 count[PEERS_LAGS + 1], total, sum_ms;
    } lag;                 /* from an effect's stamp to when it was applied here */
    i64 lag_ms[SITE_GIDS]; /* of the last effect of each site */
};

static inline struct region_site *peers_region(const struct peers *p) { return lone_region(p->server)->site; }
static inline struct site *peers_site(const struct peers *p)
{
    return region_site_of(lone_region(p->server));
}
static inline i64 peers_now_ms(const struct peers *p) { return (i64)uv_now(&p->server->loop); }

struct ctx;
struct peers *peers_of(struct ctx *c); /* NULL: this server is no site now, and an error was replied */

extern const u32 peers_lag_edges_ms[PEERS_LAGS];
void peers_note_effect(struct peers *p, const struct site_link *l);
void peer_note_reason(struct peer_reason *r, const char *why);
u64 peers_garbage(const struct peers *p); /* keys that wait for garbage collection, as last counted */
/* Whether links may send. Not while the AOF can't be written: other sites would get effects and clocks that
 * this site loses if it is killed now. */
bool peers_may_tell(const struct peers *p);
/* Why this site may not write; NULL: it may. */
const char *peers_deny(const struct peers *p);

/* A full sync that has arrived is being merged: writes and messages of peers wait. */
static inline bool peers_merging(const struct peers *p) { return p->merging || p->orphan; }

/* Whether a link may say its clock now, given when it last did. */
static inline void peers_pace(const struct peers *p, struct site_link *l, i64 last_ms)
{
    l->clock_waits = peers_now_ms(p) - last_ms < PEER_CLOCK_MS;
}
void peers_feed_later(struct peers *p); /* links that have a clock to say */

/* -- peer_merge.c */
void peers_merge_begin(struct peers *p, struct peer *x);
void peers_merge_orphan(struct peers *p); /* its connection ends: the rest is merged all the same */
void peers_merge_drop(struct peers *p);   /* the site stays torn */

/* -- peer_ask.c */
void peer_linked(struct peer *x, bool full); /* for the log */
void peer_resume(struct peer *x);            /* what came after the full sync is taken */
struct peer *peer_of(const struct peers *p, u8 gid);
void peer_add(struct peers *p, u8 gid, const char *host, int port); /* or changes its address */
void peer_remove(struct peers *p, u8 gid);
void peer_close(struct peer *x, const char *why); /* and reconnects; NULL: no reason to report */
void peer_feed(struct peer *x);
void peer_cron(struct peer *x);

/* -- peer_serve.c */
void served_over(struct served *v); /* takes note of the reason */
void served_close(struct served *v);
void served_cron(struct served *v);

/* -- peer_evict.c */
void peers_evict(struct peers *p, u8 gid); /* begins an eviction, in an open transaction */
void peers_put_reports(const struct peers *p, u64 *version, struct buf *out);
bool peers_take_reports(struct peers *p, const bytes *argv, u32 argc); /* SITE.FENCE; false: malformed */
void peers_evict_cron(struct peers *p);
void peers_evict_release(struct peers *p);
/* Members whose reports for the eviction of gid are missing: appended as "3 7". False: none. */
bool peers_evict_waits(const struct peers *p, u8 gid, struct buf *out);

#endif
