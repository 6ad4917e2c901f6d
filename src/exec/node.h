/* A node: what all regions of a server share. A region (exec/region.h) is a slice of the data. What commands
 * need beside the data belongs here: the interpreters of scripts and functions, the limit of memory, the role
 * of the server, and the owner's hooks. A server is one node.
 *
 * Where the line is, in the cases that are not obvious:
 *
 *   the node's                                      a region's
 *   functions (the set of libraries; the rows       engine, journal, keyspace, expire cycle, clock, expiry
 *   that keep them are in the first region's        mode, seeds, expiry stream, own keys of a replica
 *   engine, see script/functions.h)
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
 *   how many keys are ready to serve waiters        which keys are waited for, and by whom */
#ifndef MAYFLY_EXEC_NODE_H
#define MAYFLY_EXEC_NODE_H

#include "command/command.h"
#include "exec/acl.h"
#include "exec/region_map.h"
#include "exec/key_listeners.h"
#include "keyspace/evict.h"

struct request;
struct outcome;

struct node {
    struct region_map regions;
    const struct command *(*find)(void *arg, bytes name); /* rename-command; NULL: command_find */
    void *find_arg;
    const char *refuse_writes; /* why the storage can't take any now, as the text of an error; or NULL */
    const char *deny_writes;   /* why clients may not write, likewise: read-only, too few replicas */
    const char *deny_stale;    /* why nobody may read what may be out of date, but by CMD_STALE */
    bool cluster_enabled;    /* keys decide which region a request runs in: exec/route.h */
    bool cross_slots;        /* … and may be in several slots: for tests of servers whose region has all */
    bool open;               /* the default user needs no password: whoever has not said one is that user */
    bool loading;            /* not all data is there yet: only commands that don't mind may run */
    bool paused;             /* `holds` is to be asked: the owner keeps this up to date */
    bool replays_script;     /* `script` comes from a file or a primary: script/script_replay.h */
    bool scripts_unbound;    /* DEBUG SET-DISABLE-DENY-SCRIPTS: scripts may call DEBUG and CLIENT */
    bool over_memory;        /* the limit was met when the last command of a client began */
    bool evict_following;    /* a replica evicts, too: replica-ignore-maxmemory no */
    u32 keys_ready;          /* keys that may have something for clients that wait: exec/waiters.h */
    u64 watching;            /* clients that watch keys */
    u32 depth;               /* commands that run: 1, or more within one another */
    struct script_run *script; /* what is being run; NULL: nothing */

    /* The owner's, to count and to show: a command has run within another one (EXEC, a script). */
    void (*on_nested)(void *owner, const struct request *q, const struct outcome *o);
    /* Likewise: a user may not do what it tried; `what` is the command, the key or the channel. */
    void (*on_denied)(void *owner, const struct request *q, enum acl_denial denial, enum acl_context where,
                      bytes what);
    /* Likewise, of a command that is about to run while there is a pause: why it is left for later, or 0. */
    u32 (*holds)(void *owner, const struct request *q, const struct command *cmd, bool may_write);
    /* Likewise, in cluster mode: why a request can't run on this node (an error text); NULL: it can. */
    const char *(*elsewhere)(void *owner, const struct request *q, const struct command *cmd);
    struct touch_hooks touched; /* of keys that clients have cached */
    void *owner;
    struct script_host {     /* what scripts need of the owner */
        i64 (*now_us)(void *owner);  /* a monotonic clock; NULL: scripts have no limit of time */
        i64 (*cpu_us)(void *owner);  /* CPU time of this thread, which limits compiling; NULL: nothing does */
        void (*look)(void *owner);   /* now and then while one runs: signals, which may stop it */
        void (*serve)(void *owner);  /* one runs longer than busy_after_ms: others may ask meanwhile */
        void (*begins)(void *owner, int argc, const bytes *argv); /* a command that runs a script: MONITOR */
        void (*log)(void *owner, int level, const char *text); /* of enum log_level */
        i64 busy_after_ms;           /* 0: never */
        u64 memory;                  /* so much a run may add to what its interpreter holds; 0: anything */
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

/* The command clients mean by this name. */
static inline const struct command *node_find(const struct node *n, bytes name)
{
    return n->find ? n->find(n->find_arg, name) : command_find(name);
}

#endif
