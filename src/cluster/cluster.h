/* Cluster mode: one node of a cluster. The slots are divided into regions, each replicated by Raft on some of
 * the nodes.
 *
 * A node has a random id, created at its first start. The first node (cluster-init) creates the cluster;
 * further nodes ask any node they can reach to let them join (cluster-join). The nodes, their addresses and
 * the regions are entries of the log of region 0, of which every node has a member. Region 0 has no slots,
 * and stores functions. Its leader decides which nodes have members of the other regions
 * (cluster_schedule.c), and the leaders of these regions carry it out.
 *
 *     server_tick   cluster_begin_tick, requests (cluster_enforce, cluster_elsewhere, cluster_holds),
 *                   cluster_commit
 *     the bus       messages of Raft, joining, snapshots
 *     a timer       Raft's ticks, promotion of learners, compaction of the log */
#ifndef MAYFLY_CLUSTER_CLUSTER_H
#define MAYFLY_CLUSTER_CLUSTER_H

#include "cluster/bus.h"
#include "cluster/member.h"
#include "raft/beat.h"
#include "server/commit.h"

#define CLUSTER_META 0   /* the number of the region that all nodes have */
#define CLUSTER_REGION 1 /* … and of the first that has slots */

enum cluster_frame {
    CLUSTER_RAFT = 1,        /* message.h: a head, then a group's message */
    CLUSTER_JOIN = 2,        /* a node's line: may I join? */
    CLUSTER_JOIN_ANSWER = 3, /* "ok CLUSTER", "ask HOST PORT" or "later", then lines of nodes */
    CLUSTER_PUBLISH = 4,     /* pub/sub: u8 kind · u32 length of the channel · channel · message */
    CLUSTER_SNAPSHOT = 5,    /* the beginning of a snapshot: snapshot.c */
    CLUSTER_SNAPSHOT_DATA = 6,
    CLUSTER_SNAPSHOT_END = 7,
    CLUSTER_SNAPSHOT_STORED = 8,
    CLUSTER_DIGEST = 10,  /* to the leader: index · digest · whether there is one, each u64 */
    CLUSTER_DIFFERS = 11, /* the leader's verdict: index */
    CLUSTER_INVITE = 9,   /* a node's line, as a call: join the cluster of that node */
    CLUSTER_FORGET = 20,  /* to region 0's leader: the id of a node to remove */
    CLUSTER_GONE = 21,    /* message.h: the member `to` was removed from its region */
    CLUSTER_REPORT = 22,  /* to region 0's leader: lines of regions (cluster_map.h) that the sender leads */
    CLUSTER_STEP = 23,    /* to a region's leader: a step of the scheduler (cluster_schedule.c) */
    CLUSTER_BEAT = 24,    /* raft/beat.h: the nonce of the process, u64, and BEAT_HELD if its loop is held */
    CLUSTER_MERGED = 25,  /* what is known of merges (cluster_merge.c, as the next two) */
    CLUSTER_MERGE = 26,   /* to a region's leader: a neighbour is to be merged into it */
    CLUSTER_MERGE_ASK = 27, /* what became of a region that was to be merged? */
};

struct cluster_node {
    struct cluster_node *next;
    char id[BUS_NODE_ID + 1];
    u64 number;    /* in the numbers of members (peer_id.h): the first 10 digits of its id */
    bool draining; /* it is being removed: its members go to other nodes first */
    char host[256];
    int port, bus_port;
    struct bus_peer *link; /* NULL: it is this node */
    i64 heard_ms;          /* when its last message came, wall clock; 0: never */
    i64 reported_ms;       /* when its last report came, by the loop's time; on region 0's leader */
    struct beat beat;
    u64 part_tick;         /* when a part of a message came last that counted as a beat */
    u32 leads;             /* how many regions, as CLUSTER has counted last */
    bool unreachable;      /* the last frame could not be sent, and the group does not know yet */
};

struct cluster; /* cluster_parts.h */

/* -- life: called by the server ---------------------------------------------------------------- */

/* Call it when the engine is open, before clients are served. False: the log says why it can't start. */
NODISCARD bool cluster_start(struct server *s);
void cluster_stop(struct server *s);
/* Shutting down: a leader transfers its leadership first. True: that is in progress, and server_shutdown will
 * be called again. */
bool cluster_leaves(struct server *s, u32 how);

/* -- WAIT: called in cluster mode -------------------------------------------------------------- */

bool cluster_leads(const struct server *s);
u64 cluster_next_index(struct server *s, struct region *r); /* of the entry of this tick's changes */
/* Other members that have synced it. */
u32 cluster_acknowledged(const struct server *s, u64 region, u64 index);
bool cluster_synced(const struct server *s, u64 region, u64 index); /* whether this one has */

void cluster_info(struct server *s, struct buf *b); /* INFO's section; also without a cluster */

/* The data that BGSAVE saves: that of all regions this node leads or, if it leads none, of all regions it
 * has. Returns their number; the caller frees the array. */
u32 cluster_saved(struct server *s, struct keyspace ***all);
/* An AUX field of RDB files: the slots that this node leads and whose keys are in the file: "0-100,200-300".
 * A file without it is not a backup. */
#define CLUSTER_SLOTS_AUX "mayfly-cluster-slots"
struct rdb_out;
void cluster_save_aux(struct server *s, struct rdb_out *out);

bool cluster_diverge(struct server *s, bytes key); /* for tests: drops a key on this member only */

/* For Prometheus: see observe/metrics_text.c. False: not in cluster mode. */
struct cluster_figures {
    u32 index; /* of the region, among those of this node */
    u64 region;
    bool leads, has_leader;
    u64 term, commit, applied, first, last;
    u32 voters, learners;
    u64 clock_ahead_ms;
    u64 bytes, splits, merges, requests; /* on disk, at the last look; since the start */
    const struct commit_times *times; /* of entries that it proposed; NULL: there were none */
    u64 log_bytes, log_entries, log_syncs; /* written since the start */
    u64 snapshots_sent, snapshots_installed, snapshots_failed, snapshot_bytes_out, snapshot_bytes_in;
    u64 digest_mismatches;
    bool diverged; /* this node's data was found to differ */
    u64 bus_bytes_in, bus_bytes_out, bus_dropped, bus_refused;
};
bool cluster_figures(struct server *s, u32 i, struct cluster_figures *f); /* of its i-th region */

/* -- the tick ---------------------------------------------------------------------------------- */

void cluster_begin_tick(struct server *s, i64 wall_ms); /* in place of node_begin */
/* node.held: tells the other nodes, now and then, that this one is alive, so that it keeps what it leads. */
void cluster_held(void *owner);
/* server.enforce: routes a request, too; cluster_ran ends what it began. */
struct region *cluster_enforce(struct server *s, const struct net_request *q, struct request *to);
void cluster_ran(struct region *r);
bool cluster_serve(struct server *s, struct region *r); /* whether its blocked clients can be served now */
bool cluster_commit(struct server *s, enum commit_kind kind); /* in place of what a lone server does */
u32 cluster_holds(struct server *s, const struct request *q, const struct command *cmd); /* HOLD_*, or 0 */
/* Whether a slice of the expire cycle may run now. cluster_begin_reclaim begins it; COMMIT_EXPIRY ends it. */
bool cluster_may_reclaim(const struct server *s, const struct region *r);
/* Whether a slice would find dead keys, if this is the nearest deadline. */
bool cluster_has_dead(const struct region *r, i64 deadline_ms, i64 now_ms);
/* When to visit a key with this deadline; INT64_MAX: when the region's clock has advanced, which wakes the
 * loop. */
i64 cluster_next_visit(const struct region *r, i64 deadline_ms, i64 now_ms);
/* Whether there are changes that neither an entry in flight nor a tick will commit. */
bool cluster_unsettled(const struct region *r);
void cluster_begin_reclaim(struct region *r);

/* node.elsewhere: why a request can't run here, as the text of an error; NULL: it can. */
const char *cluster_elsewhere(void *owner, const struct request *q, const struct command *cmd);

/* -- for the other files of this folder -------------------------------------------------------- */

struct server *cluster_server(const struct cluster *c);
const struct cluster_node *cluster_nodes(const struct cluster *c);
const struct cluster_node *cluster_self(const struct cluster *c);
struct cluster_node *cluster_node_of(struct cluster *c, u64 peer); /* that has this member; NULL: unknown */
struct cluster_node *cluster_node_numbered(struct cluster *c, u64 number);      /* NULL: unknown */
struct cluster_node *cluster_find(struct cluster *c, const char *id, size_t n); /* by id; NULL: unknown */
struct bus *cluster_bus(struct cluster *c);
u64 cluster_number(const struct cluster *c);

void cluster_send(struct member *m, u64 to, bytes message);
void cluster_flies(struct cluster *c, bool on); /* an entry of a region is in flight, or no longer is */
void cluster_moved_on(struct cluster *c); /* waiting requests may be able to run now */
/* Whether requests that waited are about to run: new requests run with them, not before them. */
bool cluster_resumes(const struct cluster *c);
/* An entry was committed, took_us after it was proposed, and `answered` requests get replies. */
void cluster_committed(struct cluster *c, u32 answered, u64 took_us);
bool cluster_gathers(struct cluster *c); /* whether requests wait for more of them: cluster/batch.h */
_Noreturn void cluster_die(struct cluster *c, const char *why);

/* A node's line: "ID HOST PORT BUS_PORT". Unknown nodes are added, known ones get the address. */
bool cluster_learn_node(struct cluster *c, bytes line);
void cluster_print_node(const struct cluster_node *n, struct buf *out);
/* Writes the nodes into the engine's open transaction, if they have changed. */
void cluster_write_nodes(struct cluster *c, struct engine *e);

/* An entry of CLUSTER CHECK is applied: starts computing this member's digest. */
void check_begin(struct member *m, u64 index);

/* Forgets nodes that were in the group before and no longer are. */
void cluster_members_changed(struct cluster *c, const struct raft_conf *before);

/* CLUSTER FORGET. Returns an error text, or NULL. */
const char *cluster_forget(struct cluster *c, const char *id, size_t n);
/* CLUSTER FAILOVER; forced: by an election, without asking the leader. */
const char *cluster_take_over(struct cluster *c, bool forced);
/* CLUSTER MEET: joins the cluster of the node there, or, in a cluster, invites that node. */
const char *cluster_meet(struct cluster *c, const char *host, int bus_port);

/* cluster_publish sends a pub/sub message to all other nodes; cluster_deliver passes one to our clients. */
void cluster_publish(struct server *s, bytes channel, bytes message, bool sharded);
void cluster_deliver(struct server *s, bytes body);

#endif
