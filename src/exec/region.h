/* A region: a slice of the data with everything that belongs to it. What it shares with other regions is its
 * node's (exec/node.h). A lone server has one. It is single-threaded; requests reach it through region_run,
 * in order, and time is what region_begin last said. */
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
    struct server *server; /* handed through to the commands that need it */
    int argc;              /* at least 1 */
    bytes *argv;
    struct reply *out;
    i32 slot; /* of its keys: route_request sets it, in cluster mode only */
};

struct outcome {
    const struct command *cmd; /* NULL: unknown command */
    bool rejected;             /* did not run: arity, authentication, memory … */
    bool failed;               /* ran, and replied with an error */
    bool queued;               /* did not run: it will with EXEC */
    u32 held; /* did not run, or not to its end (ctx.postponed): why; it is to be run again later */
    bool wrote;                /* it changed data */
    struct region *region;     /* it ran in; NULL: nowhere */
    struct waiting *waiting;   /* no reply yet: it waits for keys; the caller's from here on; or NULL */
};

struct region {
    struct node *node;       /* it belongs to; shared with its other regions */
    struct engine *eng;      /* owned */
    struct journal journal;
    struct keyspace ks;
    struct expire_cycle cycle;
    struct expiry_stream expiry_stream; /* told of what has expired, if it is on */
    u32 listeners;           /* LISTEN_*: who hears of changed keys … */
    struct watches watches;  /* … and of them those who WATCH */
    struct waiters waiters;  /* … and those who wait for keys */
    struct own_keys own; /* … and, in a replica that takes writes, the keys its clients gave deadlines */
    u64 seeds;               /* generator of the commands' seeds */
    u64 committed;           /* journal.seq as of the last commit */
    i64 seen_ms;             /* the latest time a tick ran at */
    enum expiry_mode mode;   /* the owner decides it, between ticks; never EXPIRY_APPLY */
    bool obeys;              /* the command that runs is the primary's */
    u64 dirty_outside;       /* ks.dirty when the command began within which others may run (node.depth) */
    bool doomed;             /* the storage failed under a write: this tick will not be committed */
};

/* What the command that runs shares with those of other regions. */
static inline struct node *ctx_node(const struct ctx *c) { return c->region->node; }

/* An engine of the node, for what all of them have in common: name, capabilities, databases, and the store on
 * disk, which they share. */
static inline struct engine *node_engine(const struct node *n) { return n->regions.first->eng; }

/* Takes the engine over; the node outlives the region. `seed` starts the generator of command seeds. The
 * caller puts the region into the node's map, and takes it out before the release. */
void region_init(struct region *r, struct node *node, struct engine *eng, u64 seed);
void region_release(struct region *r);

#define REGION_LOADING "LOADING Redis is loading the dataset in memory"
#define REGION_OOM "OOM command not allowed when used memory > 'maxmemory'."
#define REGION_IO_ERROR "IOERR the storage engine failed; see the log"

/* A tick: begin, any number of run/apply/expire steps, commit. If that says false, nothing the tick
 * did was kept, and none of its replies may be sent. */
void region_begin(struct region *r, i64 now_ms);
NODISCARD bool region_commit(struct region *r);

/* Time has passed within a tick, in a command that took long: what comes after it runs at this time. A time
 * that is earlier, or one at which nothing is dead, stays as it is. */
void region_advance(struct region *r, i64 now_ms);

/* Whether nothing has been changed since the last commit, but by the command that runs. */
static inline bool region_settled(const struct region *r)
{
    return r->journal.seq == r->committed && !r->doomed && !r->eng->failed;
}

/* In the middle of a tick, within a command that holds nothing of the engine's (a script): whether that has
 * changed nothing so far, so that what the tick did before it may be committed by itself; and the beginning
 * of the rest of the tick, at the same time, after such a commit. If it was not kept, the rest will not
 * be. */
bool region_may_split(const struct region *r);
void region_split(struct region *r, bool kept);

/* Finds, checks and runs a command, and closes its journal record. */
void region_run(struct region *r, const struct request *q, struct outcome *o);

/* Runs again what waited for a key, which now may have something. True: it was answered. False: it goes on
 * waiting, and nothing was changed. */
NODISCARD bool region_retry(struct region *r, const struct request *q, const struct command *cmd, bytes ready,
                            struct outcome *o);

/* Runs a command within the one that is running (EXEC, a script): at the same time, into the same journal
 * record. It cannot wait for keys. The caller has found and admitted it. */
void region_call(struct region *r, const struct request *q, const struct command *cmd, struct outcome *o);

/* Replays the effects of a journal record at the record's own time (0: nothing is dead): no authentication,
 * no memory limit, nothing replied. ERR_SYNTAX if the record is not well-formed. */
NODISCARD err region_apply(struct region *r, struct session *session, struct server *server,
                           const struct journal_record *record);

/* Runs one command of a file that is being loaded, in the open transaction and at the time the keyspace has
 * begun with: as region_apply does, but the outcome is returned, and there is no record of it (no sink may be
 * attached). A command that does not write is rejected, but for SELECT and scripts of old files. */
void region_replay(struct region *r, const struct request *q, struct outcome *o);

/* Runs one command of a primary's stream, and closes its journal record. The sender decides what is
 * dead (EXPIRY_APPLY): between region_follow_begin and region_commit a deadline in the past is one like any
 * other. Relative ones count from the time of the last tick. MULTI and EXEC are passed over: the caller gives
 * everything between them within one transaction. Unlike region_replay it takes any command; what may not
 * come from a primary is the caller's to know. */
void region_follow_begin(struct region *r);
void region_follow(struct region *r, const struct request *q, struct outcome *o);

/* One step of the active expire cycle, with its own journal record. */
bool region_expire_step(struct region *r);

/* Everything that is dead goes at once, in a walk over all keys; within a command, into its record. Where the
 * dead are to be left, nothing does. */
void region_expire_all(struct region *r);

/* One step of eviction, likewise; see evict_step. */
bool region_evict_step(struct region *r);

#endif
