/* A region: a slice of the data with everything that belongs to it. What it shares with other regions is in
 * its node (exec/node.h). A lone server has one. It is single-threaded; requests reach it through region_run,
 * in order, and the time is the one last given to region_begin. */
#ifndef MAYFLY_EXEC_REGION_H
#define MAYFLY_EXEC_REGION_H

#include "command/ctx.h"
#include "command/expiry_stream.h"
#include "command/waiting.h"
#include "exec/node.h"
#include "exec/key_listeners.h"
#include "exec/waiters.h"
#include "keyspace/expire.h"
#include "keyspace/own_keys.h"
#include "keyspace/watch.h"

#define REGION_CLOCK_SLACK_MS 1000 /* a clock set back by less than this stands still instead */

struct request {
    struct session *session;
    struct server *server; /* passed on to the commands that need it */
    int argc;              /* at least 1 */
    bytes *argv;
    struct reply *out;
    struct buf *input; /* what the arguments are in, if the engine may take it over (engine.input); or NULL */
    i32 slot; /* slot of its keys: route_request sets it, in cluster mode only */
};

struct outcome {
    const struct command *cmd; /* NULL: unknown command */
    bool rejected;             /* did not run: arity, authentication, memory … */
    bool failed;               /* ran, and replied with an error */
    bool queued;               /* did not run: EXEC will run it */
    u32 held; /* did not run, or not to its end (ctx.postponed): why (HOLD_*); it is to be run again later */
    bool wrote;                /* it changed data */
    struct region *region;     /* the region it ran in; NULL: none */
    struct waiting *waiting;   /* no reply yet, it waits for keys; the caller owns it now; or NULL */
};

struct region {
    struct node *node;       /* shared with its other regions */
    struct region *next;     /* of the node's: exec/region_map.h */
    struct member *member;   /* of its Raft group: cluster/member.h; NULL on a lone server */
    struct region_site *site; /* exec/region_site.h; NULL on a server without sites */
    u8 site_was;             /* the gid of the site whose metadata files had; 0: they had none */
    struct engine *eng;      /* owned */
    struct journal journal;
    struct keyspace ks;
    struct expire_cycle cycle;
    struct expiry_stream expiry_stream; /* gets what has expired, if it is on */
    u32 listeners;           /* LISTEN_*: which listeners get changes of keys … */
    struct watches watches;  /* … of them WATCH */
    struct waiters waiters;  /* … and blocked commands */
    struct own_keys own; /* … and, in a replica that takes writes, the keys its clients gave deadlines */
    u64 seeds;               /* generator of the commands' seeds */
    u64 committed;           /* journal.seq as of the last commit */
    i64 seen_ms;             /* the latest time a tick ran at */
    enum expiry_mode mode;   /* set by the owner, between ticks; never EXPIRY_APPLY */
    bool obeys;              /* the command that runs comes from the primary */
    u64 dirty_outside;       /* ks.dirty when the outermost command began (node.depth) */
    bool begun;              /* it began a transaction since housekeeping looked at it: in node.begun */
    struct region *begun_next;
    bool visited;            /* it is to be visited at a time of its own: `visit` is in node.visits */
    struct heap_node visit;
    bool doomed;             /* the storage failed during a write: this tick will not be committed */
};

/* What the running command shares with those of other regions. */
static inline struct node *ctx_node(const struct ctx *c) { return c->region->node; }

/* Any engine of the node, for what all have in common: name, capabilities, databases, and the store on disk,
 * which they share. */
static inline struct engine *node_engine(const struct node *n) { return n->regions.first->eng; }

/* Takes the engine over; the node outlives the region. `seed` starts the generator of command seeds. The
 * caller adds the region to the node's map, and removes it before the release. */
void region_init(struct region *r, struct node *node, struct engine *eng, u64 seed);
void region_release(struct region *r);

#define REGION_LOADING "LOADING Redis is loading the dataset in memory"
#define REGION_OOM "OOM command not allowed when used memory > 'maxmemory'."
#define REGION_NO_SITE "ERR this command is not supported with active-active replication"
#define REGION_IO_ERROR "IOERR the storage engine failed; see the log"

/* A tick: begin, any number of run/apply/expire steps, commit. If commit returns false, nothing of the tick
 * was kept, and none of its replies may be sent. */
void region_begin(struct region *r, i64 now_ms);
void region_touch(struct region *r); /* housekeeping is to look at it */
void region_visit_at(struct region *r, i64 ms); /* … at this time; INT64_MAX: not by time */
NODISCARD bool region_commit(struct region *r);
/* The same for regions of one database on disk, DISK_TOGETHER at most: disk_ops.commit_all. False: it is not
 * known which were kept. */
NODISCARD bool region_commit_all(struct region *const *r, u32 n);

/* Ends the open record, within a tick: for what changes data and is no command. */
void region_end_record(struct region *r);

/* Advances the time within a tick, after a command that took long. An earlier time, or one at which nothing
 * is dead, is ignored. */
void region_advance(struct region *r, i64 now_ms);
void region_set_time(struct region *r, i64 now_ms); /* to any time */

/* Whether nothing but the running command has changed data since the last commit. */
static inline bool region_settled(const struct region *r)
{
    return r->journal.seq == r->committed && !r->doomed && !r->eng->failed;
}

/* The same of all regions. */
static inline bool node_settled(const struct node *n)
{
    const struct region *r;
    REGIONS_EACH(&n->regions, r)
        if (!region_settled(r)) return false;
    return true;
}

/* For the middle of a tick, within a command that holds nothing of the engine (a script). may_split: whether
 * the command has changed nothing so far, so that what the tick did before it may be committed by itself.
 * split: begins the rest of the tick, at the same time, after such a commit. If that was not kept, the rest
 * will not be either. */
bool region_may_split(const struct region *r);
void region_split(struct region *r, bool kept);

/* Finds, checks and runs a command, and closes its journal record. */
void region_run(struct region *r, const struct request *q, struct outcome *o);

/* Runs a blocked command again, because a key it waits for may have something. True: it was answered. False:
 * it continues to wait, and nothing was changed. */
NODISCARD bool region_retry(struct region *r, const struct request *q, const struct command *cmd, bytes ready,
                            struct outcome *o);

/* Runs a command within the running one (EXEC, a script): at the same time, into the same journal record. It
 * cannot block. The caller has found and admitted it. */
void region_call(struct region *r, const struct request *q, const struct command *cmd, struct outcome *o);

/* Replays the effects of a journal record at the record's own time (0: nothing is dead): no authentication,
 * no memory limit, nothing replied. ERR_SYNTAX if the record is not well-formed. */
NODISCARD err region_apply(struct region *r, struct session *session, struct server *server,
                           const struct journal_record *record);

/* Runs one command of a file that is being loaded, in the open transaction and at the keyspace's time: like
 * region_apply, but the outcome is returned, and no record is made (no sink may be attached). A command that
 * does not write is rejected, except SELECT and scripts of old files. */
void region_replay(struct region *r, const struct request *q, struct outcome *o);

/* Runs one command of a primary's stream, and closes its journal record. The primary decides what is dead
 * (EXPIRY_APPLY): between region_follow_begin and region_commit a deadline in the past is like any other.
 * Relative deadlines count from the time of the last tick. MULTI and EXEC are skipped: the caller runs
 * everything between them in one transaction. Unlike region_replay it takes any command; the caller knows
 * what may not come from a primary. */
void region_follow_begin(struct region *r);
void region_follow(struct region *r, const struct request *q, struct outcome *o);

/* One step of the active expire cycle, with its own journal record. */
bool region_expire_step(struct region *r);

/* Deletes everything that is dead at once, in a walk over all keys; within a command, into its record. Does
 * nothing in a mode that keeps dead keys. */
void region_expire_all(struct region *r);

/* One step of eviction, with its own journal record; see evict_step. */
bool region_evict_step(struct region *r);

#endif
