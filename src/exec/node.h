/* A node: what all regions of a server share. A region (exec/region.h) is a slice of the data. The node has
 * what commands need besides: script interpreters and functions, the memory limit, the role of the server,
 * and the owner's hooks. A server is one node.
 *
 * Where the line is, in the cases that are not obvious:
 *
 *   the node's                                      a region's
 *   functions (the set of libraries; the rows       engine, journal, keyspace, expire cycle, clock, expiry
 *   that keep them are written by the home          mode, seeds, expiry stream, own keys of a replica
 *   region, see script/functions.h)
 *   the limit of memory and the evictor: there      what was evicted (its own journal records)
 *   is one heap
 *   refuse_writes: there is one store               doomed: a failed write dooms only its transaction
 *   deny_writes, deny_stale: the role of the        -
 *   server
 *   loading: files are loaded before any region     -
 *   is served
 *   the script that runs, and how deep commands     dirty_outside: what they changed
 *   are nested: one command runs at a time
 *   how many clients watch keys                     which keys are watched, and by whom
 *   how many keys are ready to serve waiters        which keys are waited for, and by whom
 *   the histogram of expiry's lag: it is large      - */
#ifndef MAYFLY_EXEC_NODE_H
#define MAYFLY_EXEC_NODE_H

#include "command/command.h"
#include "ds/heap.h"
#include "exec/acl.h"
#include "exec/region_map.h"
#include "exec/key_listeners.h"
#include "keyspace/evict.h"
#include "keyspace/lag.h"

struct request;
struct outcome;

struct node {
    struct region_map regions;
    struct region *begun;   /* what housekeeping is to look at, by region.begun_next … */
    struct heap visits;     /* … and what later, by region.visit; used by nodes of many regions */
    const struct command *(*find)(void *arg, bytes name); /* rename-command; NULL: command_find */
    void *find_arg;
    const char *refuse_writes; /* the error while the storage can't accept writes; or NULL */
    const char *deny_writes;   /* the error for clients that write (read-only, too few replicas); or NULL */
    const char *deny_stale;    /* the error for commands without CMD_STALE on a stale replica; or NULL */
    bool cluster_enabled;    /* keys decide which region a request runs in: exec/route.h */
    bool cross_slots;        /* … and may be in several slots: for tests of servers whose region has all */
    u64 boot;                /* which boot of the machine this is; 0: unknown (exec/region_site.h) */
    bool synced;             /* commits are on disk before anything of them is sent (appendfsync always) */
    bool open;               /* the default user needs no password: clients without AUTH are that user */
    bool loading;            /* the dataset is being loaded: only commands with CMD_LOADING may run */
    u32 held_for;            /* why commands may be held back (HOLD_*): `holds` is asked, unless it is 0 */
    bool replays_script;     /* `script` comes from a file or a primary: script/script_replay.h */
    bool scripts_unbound;    /* DEBUG SET-DISABLE-DENY-SCRIPTS: scripts may call DEBUG and CLIENT */
    bool over_memory;        /* memory was above the limit when the last command of a client began */
    bool evict_following;    /* a replica evicts, too: replica-ignore-maxmemory no */
    struct expiry_lag lag;   /* how late its regions delete dead keys */
    u32 keys_ready;          /* keys that may have something for clients that wait: exec/waiters.h */
    u64 watching;            /* clients that watch keys */
    u32 depth;               /* how deep commands are nested: 1, or more in EXEC and scripts */
    struct script_run *script; /* the script that is running; NULL: none */

    /* Owner's hook, for statistics and MONITOR: a command has run within another one (EXEC, a script). */
    void (*on_nested)(void *owner, const struct request *q, const struct outcome *o);
    /* Owner's hook: ACL denied a request; `what` is the command, the key or the channel. */
    void (*on_denied)(void *owner, const struct request *q, enum acl_denial denial, enum acl_context where,
                      bytes what);
    /* Owner's hook, asked while `held_for` is not 0: the reason (HOLD_*) to hold this command back, or 0. */
    u32 (*holds)(void *owner, const struct request *q, const struct command *cmd, bool may_write);
    /* Owner's hook in cluster mode: the error if a request can't run on this node; NULL: it can. */
    const char *(*elsewhere)(void *owner, const struct request *q, const struct command *cmd);
    /* Owner's hook in cluster mode. Work that may take long calls it now and then, so that other nodes know
     * that this one is alive. */
    void (*held)(void *owner);
    struct touch_hooks touched; /* of keys that clients have cached */
    void *owner;
    struct script_host {     /* what scripts need of the owner */
        i64 (*now_us)(void *owner);  /* a monotonic clock; NULL: scripts have no time limit */
        i64 (*cpu_us)(void *owner);  /* CPU time of this thread, to limit compiling; NULL: no limit */
        void (*look)(void *owner);   /* called now and then while one runs: checks for signals */
        void (*serve)(void *owner);  /* one runs longer than busy_after_ms: serves other clients */
        void (*begins)(void *owner, int argc, const bytes *argv); /* a command that runs a script: MONITOR */
        void (*log)(void *owner, int level, const char *text); /* of enum log_level */
        i64 busy_after_ms;           /* 0: never */
        u64 memory;                  /* bytes a run may add to its interpreter's memory; 0: no limit */
    } host;
    struct scripts *scripts;     /* EVAL's; NULL: never needed so far */
    u64 scripts_evicted;         /* from its cache, since the last CONFIG RESETSTAT */
    struct functions *functions; /* likewise: script/functions.h */
    struct evictor evictor;
};

void node_init(struct node *n, u64 seed);
void node_release(struct node *n); /* after its regions */

/* region_begin of all its regions. Returns the time of its first one. */
i64 node_begin(struct node *n, i64 now_ms);

/* region_may_split and region_split of all of them. */
bool node_may_split(const struct node *n);
void node_split(struct node *n, bool kept);

static inline void node_held(const struct node *n)
{
    if (UNLIKELY(n->held != NULL)) n->held(n->owner);
}

/* The command clients mean by this name. */
static inline const struct command *node_find(const struct node *n, bytes name)
{
    return n->find ? n->find(n->find_arg, name) : command_find(name);
}

#endif
