/* The server: everything that is not data. One per process, made in main. */
#ifndef MAYFLY_SERVER_SERVER_H
#define MAYFLY_SERVER_SERVER_H

#include "base/log.h"
#include "exec/region.h"
#include "net/net.h"
#include "server/client/acl_log.h"
#include "server/client/block.h"
#include "server/client/client_evict.h"
#include "config/config.h"
#include "repl/durable.h"
#include "server/client/migrate.h"
#include "server/observe/latency.h"
#include "server/observe/metrics.h"
#include "server/save/persistence.h"
#include "server/prefault.h"
#include "server/process.h"
#include "server/client/pubsub.h"
#include "repl/replication.h"
#include "server/observe/slowlog.h"
#include "server/observe/stats.h"
#include "server/throttle.h"
#include "server/client/tracking.h"

#define MAYFLY_VERSION "0.1.0"
#define REDIS_VERSION "7.4.0" /* what clients are told: the newest Redis whose commands we have */

/* Reasons a connection's requests wait: see conn_postpone. */
enum {
    HOLD_PAUSE = 1, HOLD_AUTH = 2, HOLD_SNAPSHOT = 4, HOLD_WAIT = 8, HOLD_FAILOVER = 16, HOLD_SHUTDOWN = 32,
    HOLD_BLOCKED = 64, /* it waits for keys: block.h */
    HOLD_STORAGE = 128, /* it writes, and RocksDB is behind: throttle.h */
    HOLD_MIGRATE = 256, /* it waits for another server: migrate.h */
    HOLD_RAFT = 512,    /* its region can't run requests just now: cluster/member.h */
    HOLD_SITE = 2048,   /* it writes, and a full sync of another site is being merged: peers/peers.h */
    HOLD_MEMORY = 1024, /* memory for its value is being made ready: prefault.h */
    /* What Redis calls a blocked client. */
    HOLD_SHOWN = HOLD_PAUSE | HOLD_WAIT | HOLD_BLOCKED | HOLD_SHUTDOWN | HOLD_STORAGE | HOLD_MIGRATE
};

/* DEBUG FENCE HOLD: the replies of every tick wait for fences (net/fence.h) until DEBUG FENCE ends them. */
#define DEBUG_FENCES 4
struct debug_fences {
    u32 count;  /* fences per tick: a request waits for number (database modulo this); 0: off */
    u32 wanted; /* `count` from the next tick on */
    struct fence *of[DEBUG_FENCES]; /* this tick's; NULL: not opened yet */
};

#define AUTH_FAILURES_FREE 8 /* recent failures before every further AUTH has to wait a second */

struct server {
    struct config config;
    struct log log;
    uv_loop_t loop;
    struct net net;
    struct node node;      /* its regions, and what they share */
    struct stats stats;
    struct slowlog slowlog;
    struct acl acl;        /* users: see users.h */
    struct acl_log acl_log;
    struct buf password;   /* the requirepass in effect */
    struct latency latency;
    struct persistence persist;
    struct replication repl;
    struct durable durable;
    struct pubsub pubsub;
    struct tracking tracking;
    struct client_evict client_evict;
    struct process process;
    struct blocking blocking; /* clients that wait for keys */
    struct prefault prefault; /* memory for a very long value */
    struct throttle throttle; /* clients that wait to write */
    struct cluster *cluster;  /* NULL: a lone server */
    struct peers *peers;      /* NULL: this server is no site */
    struct rocks *rocks;      /* the database under the regions, in cluster mode; NULL: the engine has it */
    struct debug_fences debug_fences;
    /* Called before each request, and with NULL before blocked clients are served: puts the fence in force
     * that the replies wait for, and returns the region to run the request in. NULL on a lone server, whose
     * replies wait for the end of the tick only. */
    struct region *(*enforce)(struct server *s, const struct net_request *q, struct request *to);
    struct metrics *metrics; /* NULL: off */

    uv_timer_t cron;       /* every 1/hz second */
    uv_timer_t purge;      /* active for a while after much memory was freed */
    uv_work_t purge_work;  /* returns free pages to the kernel, on a worker thread … */
    bool purging;          /* … which is running */
    uv_timer_t pause;      /* the end of CLIENT PAUSE */
    uv_timer_t wake;       /* wakes a sleeping loop for the next deadline */
    i64 wake_ms;           /* what `wake` is set to; 0: it is not */
    uv_idle_t busy;        /* active while reclaim has work left: the loop does not sleep */
    int signal_fd;         /* SIGTERM and SIGINT, to be read … */
    uv_poll_t signals;     /* … by the loop, or by script_host.look while a script runs */
    u32 stop_signal;       /* the signal that asked for a shutdown still to come; 0: none */
    i64 stop_us;           /* when it came, by the monotonic clock */

    i64 now_ms;            /* of this tick; its regions' is this or later (region_begin), or a group's */
    i64 tick_us;           /* monotonic time this tick's requests began */
    i64 tick_took_us;      /* how long those of the last tick took; -1: there were none */
    i64 slow_us;           /* a command that took this long is for the slow log or LATENCY: account.h */
    i64 start_ms, start_mono_us;
    u64 cron_loops;
    u32 storage_turn;      /* which region is the next to share its caches' memory */
    bool cron_paused;      /* DEBUG PAUSE-CRON */
    char run_id[41];
    struct conn **monitors; /* connections in MONITOR mode */
    u32 monitor_count;

    i64 pause_until_ms;    /* CLIENT PAUSE, by the loop's time; 0: none */
    bool pause_writes_only;
    u32 auth_failures;     /* recent ones: halved every second */
    struct {
        i64 told_ms; /* when a failed TLS handshake was last logged, by the monotonic clock; 0: never … */
        u64 untold;  /* … and how many have failed since */
    } no_tls;
    i64 web_warned_us;     /* when an HTTP request was last logged; 0: never */

    struct expire_pace pace; /* of all regions' cycles, in cluster mode */
    u64 reclaim_pending;   /* dropped values that wait to be freed */
    u64 used_before;       /* at the last cron: to notice that much memory was freed */
    u64 purge_until;       /* loop time up to which `purge` runs */
    i64 script_look_us;    /* while a script runs: when to check for signals next … */
    i64 script_serve_us;   /* … if it runs too long, when to serve other clients next … */
    i64 script_auth_us;    /* … and when clients that wait for AUTH were last allowed to try */
    u64 startup_memory;    /* used when the first client could connect */
    bool shutting_down;
    int exit_code;
};

/* config is set. False: the log says why, and nothing is left to release. */
NODISCARD bool server_start(struct server *s);
void server_run(struct server *s);             /* until shutdown */
void server_release(struct server *s);

/* Begins an orderly shutdown, saving as SHUTDOWN_* say and as configured: the loop ends after this turn, or
 * when the replicas have everything (repl.leaving).
 * False: something could not be saved, and the server stays; the log says what. */
NODISCARD bool server_shutdown(struct server *s, u32 how);
void server_hear_signals(struct server *s);
void server_stop_by_signal(struct server *s, u32 signum); /* now, or as soon as nothing prevents it */
u32 server_signal_means(const struct server *s, u32 signum); /* SHUTDOWN_* */
bool shutdown_waits(struct server *s, u32 how); /* true: it waits for replicas, and starts again after that */
void shutdown_cron(struct server *s);

/* Ends the loop after this turn, saving nothing. */
void server_end(struct server *s, int exit_code);

void server_random_id(char id[41]); /* 40 hexadecimal digits */

/* Everything is loaded: notifies systemd and the parent of a daemon. */
void server_ready(struct server *s);

/* Applies the configuration, at start and after CONFIG SET. */
void server_apply_config(struct server *s);

/* Raises the limit of open files for maxclients; returns for how many clients it suffices. */
i64 server_ask_files(const struct config *c);

/* Listens again on the configured bind and port; open connections stay. False: not on all of them; the log
 * says why. */
NODISCARD bool server_relisten(struct server *s);

/* Reloads certificates and TLS settings for new connections. False: `why` says what is wrong with them. */
NODISCARD bool server_apply_tls(struct server *s, struct buf *why);
void server_no_tls(struct net *n, struct conn *c, const char *why); /* net.on_no_tls: for the log */

/* From now on commands may be held back for this reason, or no longer are: tick_holds decides which ones. */
static inline void server_hold(struct server *s, u32 why, bool on)
{
    if (on) s->node.held_for |= why;
    else s->node.held_for &= ~why;
}

static inline bool server_holds(const struct server *s, u32 why) { return s->node.held_for & why; }

/* Writes are held: until they may run nothing expires and nothing is evicted, so that replicas, or the
 * storage, catch up. */
static inline bool server_holds_changes(const struct server *s)
{
    return server_holds(s, HOLD_PAUSE | HOLD_FAILOVER | HOLD_STORAGE | HOLD_SITE);
}

/* The region of a server that has only one, for the features that exist only there: AOF, RDB and PSYNC. On a
 * node of a cluster, which has none of them but snapshots of its data while it has one region, the first. */
static inline struct region *lone_region(const struct server *s)
{
    return s->cluster ? s->node.regions.first : region_map_only(&s->node.regions);
}

/* True if a command that took this long goes to the slow log. */
static inline bool server_is_slow(const struct server *s, const struct command *cmd, i64 usec)
{
    i64 limit = s->config.slowlog_log_slower_than;
    return UNLIKELY(usec >= limit) && limit >= 0 && !(cmd->flags & CMD_SKIP_SLOWLOG);
}

/* The connection a session belongs to. */
static inline struct conn *conn_of(struct session *s)
{
    return (struct conn *)(void *)((char *)s - offsetof(struct conn, session));
}

#endif
