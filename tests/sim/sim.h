/* A cluster in one process: N nodes with members of one or more Raft groups (raft/group.c, as the server runs it) on a
 * simulated network, disks and clocks, with clients whose histories are checked. Everything comes from one seed.
 *
 * A node has one store of cells and one disk, for all its members. A region has a range of slots, and the members of its
 * group; splits make regions of regions, merges unite them. Which member gets a message, and what may be installed where, is decided by
 * cluster/region_rules.c, as in the server.
 *
 *   sim.c     events, network, command line
 *   disk.c    a node's disk: the logs of its members (raft_log), crashes
 *   member.c  a member: its state machine (raft_machine)
 *   node.c    a node: members, messages, requests
 *   merge.c   merges: what nodes do about them each tick, and what they tell each other
 *   client.c  clients, histories
 *   hush.c    the end of a run: nobody asks anything, groups sleep, a node dies
 *   fault.c   what goes wrong, changes of membership, splits
 *   operator.c changes of members as cluster/schedule.c wants them
 *   verify.c  what must hold after every step
 *   check.c   the linearizability checker
 *
 * After a violation sim_fail prints what is wrong and the command that replays it, and ends the process with 1. */
#ifndef MAYFLY_TESTS_SIM_SIM_H
#define MAYFLY_TESTS_SIM_SIM_H

#include "base/buf.h"
#include "base/rand.h"
#include "cluster/merge_rules.h"
#include "cluster/peer_id.h"
#include "cluster/region_rules.h"
#include "raft/beat.h"
#include "raft/plant.h"
#include "raft/split.h"
#include "sim/check.h"

enum {
    NODES_MAX = 15,
    REGIONS_MAX = 60,  /* their ids are 1 … REGIONS_MAX … */
    REGIONS_LIVE = 10, /* … of which so many are there at a time */
    KEYS_MAX = 8192,
    CLIENTS = 10,
    OBJECTS_LIVE = 10, /* objects in use at a time; the last two are pairs of keys */
    TICK_US = 100000,
    START_MS = 1000000000, /* the true time at the start */
    ELECTION_TICKS = 10
};

/* Planted in the simulator's nodes, beside those of raft/plant.h. The bits differ. */
enum {
    PLANT_RECLAIM_AHEAD = 16,
    PLANT_OVERLAP = 128,              /* snapshots are installed whatever other members have */
    PLANT_REUSE_PEER = 256,           /* a node has the same number whenever it is added to a region */
    PLANT_STALE_MAP = 512,            /* a node serves slots that a split has taken from its member */
    PLANT_MERGE_EARLY = 2048,         /* a merge is committed before all members of the source can catch up */
    PLANT_MERGE_NO_CATCH_UP = 4096,   /* a target takes over what its source has here, however little */
    PLANT_MERGE_ROLLBACK = 8192,      /* a source is rolled back because it has waited for long */
    PLANT_MERGE_NO_TOMBSTONE = 16384, /* nobody remembers that a region was merged */
    PLANT_MERGE_UNTOLD = 32768,       /* nodes don't tell each other of merges */
    PLANTS_OF_MERGES = 0xfc00
};

enum event_type {
    EV_TICK, EV_BEAT, EV_MESSAGE, EV_DURABLE, EV_SNAPSHOT, EV_SNAPSHOT_SENT, EV_INSTALLED, EV_FLUSH, EV_REQUEST,
    EV_REPLY, EV_CLIENT, EV_FAULT, EV_OPERATOR, EV_RESTART, EV_RESUME
};

struct event {
    u64 at_us, seq;
    enum event_type type;
    u32 node, incarnation; /* of a node: ignored if it crashed since, unless 0 */
    u32 region, opened;    /* of a member: ignored if its group was opened again */
    u64 a, b;
    char *data; /* owned */
    size_t size;
};

/* Without padding: cells are compared and sent as they are. */
struct cell {
    u64 exists, value, deadline_ms;
};

/* In place of `exists`, in a change: the cell is deleted because its deadline has come, and this is told. */
enum { CELL_DEATH = 2 };

/* The data of a node: every member has the cells of its slots. */
struct store {
    u32 keys; /* cells beyond have never existed */
    struct cell cell[KEYS_MAX];
};

struct change {
    u64 key;
    struct cell cell;
};

struct snapshot {
    struct raft_applied at;
    struct region_tombstone tombstones[REGIONS_MAX]; /* of regions that were merged */
    u64 tombstones_n, n;
    struct change cells[];
};

struct disk_write; /* disk.c */

struct disk {
    struct disk_write *pending; /* oldest first, of all members */
    u64 busy_until_us, last;
};

/* Operations that wait for one event: the open evaluation, or a read. */
struct batch {
    u64 read; /* its number; 0: the open evaluation */
    u32 ops[64];
    u32 n;
};

/* A member of a region, or the log that one has left on the disk. */
struct member {
    struct raft_machine machine;
    struct raft_log log;
    struct node *node;
    u64 region, peer;
    u32 opened;          /* changes whenever its group is opened */
    struct group *group; /* NULL: the member does not exist, or its node is down */
    bool exists, flushed_exists;
    bool erase;      /* it was destroyed: its log goes with the next flush */
    u64 heard_us;    /* when it got a message last */
    bool led;        /* as verify_leader last saw it */
    bool gone;       /* it has learned that it was removed */
    bool campaign;   /* it was just made by a split that its node's leader applied */
    u64 merge_index, merge_ticks; /* the PREPARE that it has applied, and since when */
    struct raft_merge_commit wanted; /* what it waits for, of which region; source 0: nothing */
    bool to_split;   /* right behind its next evaluation … */
    u64 split_us;    /* … or at this time; 0: no */
    struct raft_applied at, flushed_at;
    struct raft_slots before; /* its slots before the last split */

    struct raft_hard_state hard_state;
    u64 point_index, point_term, entries_n, entries_cap;
    struct raft_entry *entries; /* point_index + 1 …; data owned; what is on the disk */

    struct snapshot *incoming, *installing;
    struct change *changes; /* of the open evaluation */
    u32 changes_n, changes_cap;
    struct batch open, reads[64], follower_reads[64];
    u32 reads_n, follower_reads_n;
};

struct node {
    struct sim *sim;
    u64 id;
    bool alive, paused;
    bool retired; /* never comes back */
    u32 incarnation;
    u64 heard_ms; /* for the operator */
    u64 ticks;
    struct beat beats[NODES_MAX + 1]; /* of the others, by id */
    i64 clock_offset_ms, drift_ppm;
    u32 disk_slowness;
    struct disk disk;
    struct store *store, *flushed;
    struct member *members[REGIONS_MAX + 1]; /* by region; NULL: there never was one */
    struct region_tombstone tombstones[REGIONS_MAX], flushed_tombstones[REGIONS_MAX];
    u32 tombstones_n, flushed_tombstones_n;
    u32 queue[64]; /* requests that wait for their evaluation */
    u32 queue_n;
    struct event *backlog; /* what arrived while it was paused */
    u32 backlog_n, backlog_cap;
};

enum op_outcome { OP_SENT, OP_EVALUATED, OP_DONE, OP_REPLIED, OP_NOT_DONE };

struct op {
    struct check_op c;
    u32 client, object, place; /* place: in sim.live */
    bool pair, follower, torn;
    enum op_outcome outcome;
    u64 min_wall_ms, deadline_seen_ms;
};

struct object {
    u32 key;   /* and key + 1 of a pair */
    bool pair, retired;
    u32 *ops, n, cap, unknown;
};

struct client {
    u32 op; /* + 1; 0: none */
    u64 op_serial;
    u64 guess[OBJECTS_LIVE]; /* its map: who leads the region of each object, as far as it knows */
};

struct applied_record {
    u64 term, clock_ms, digest;
};

/* What is known of a region by looking at all of its members. */
struct region_truth {
    u64 *leaders; /* nodes by term */
    u64 leaders_n;
    struct applied_record *applied; /* by index */
    u64 applied_n;
    struct raft_applied newest; /* the highest that any member ever applied … */
    struct raft_applied durable; /* … and that a voter would still have after a crash */
    u64 merged;                 /* into this region; 0: it lives */
    u64 messages;
};

struct sim {
    u64 seed, rng, now_us, end_us, seq;
    u32 nodes_n, plant; /* ids are never used twice, so nodes_n grows when members are replaced */
    u32 disk_slowness; /* of every member when nothing is wrong */
    u64 fault_gap_us;  /* the longest time between faults */
    u64 rest_us;       /* the longest time between a client's requests; 0: a short one */
    u32 sleep_ticks;   /* groups sleep when idle for so long; 0: never */
    u64 snapshot_us;   /* the longest time that a snapshot takes */
    u32 voters_first, voters_min; /* at the start, and after removals */
    bool trace, calm;
    bool regions; /* --regions */
    bool hush; /* clients ask nothing any more */
    bool scheduled; /* members change as the scheduler wants it */
    bool deaths; /* are entries of the log */
    bool merges, merge_often; /* there are some; many, and few changes of members */
    bool idle; /* few writes, and clocks that are seldom moved: time passes between entries */
    u32 faults; /* those that this seed has, one bit each: few at a time find more than all at once */
    struct node node[NODES_MAX + 1]; /* by id */
    struct event *heap;
    u32 heap_n, heap_cap;
    bool cut[NODES_MAX + 1][NODES_MAX + 1];
    u32 deaf[NODES_MAX + 1]; /* a node's member of this region hears nothing; 0: all hear */
    u32 excused[NODES_MAX + 1]; /* the nodes that a node takes for late, a bit each */
    u32 lossy; /* a node that most messages don't reach; 0: none */
    u32 loss_percent, duplicate_percent, slow_percent;
    struct client client[CLIENTS];
    struct op *ops;
    u32 ops_n, ops_cap;
    struct object *objects;
    u32 objects_n, objects_cap, live[OBJECTS_LIVE], keys_used;
    struct region_truth region[REGIONS_MAX + 1]; /* by id */
    u32 regions_n, next_region, regions_max; /* the newest; the next id; the last id */
    u64 nonces;
    u64 wall_max_ms, stepped_us; /* the highest clock ever; when a clock was last set back */
    u64 sleeps, done_ops, replies, messages, snapshots, crashes, voids, conf_changes, late_replies_ok, replaced, killed;
    struct {
        u32 target, source, tries;
    } wish; /* a merge that is to begin when both are led from one node */
    u64 merges_begun, merged, rolled_back, waited;     /* waited: a target for its source */
    u64 destroyed, overtaken, refused_snapshots, told; /* members; children that were there, or gone, before their split */
};

#define EACH_MEMBER(n, m)                                             \
    for (u32 region_ = 1; region_ < (n)->sim->next_region; region_++) \
        for (struct member *m = (n)->members[region_]; m; m = NULL)

/* sim.c */
_Noreturn void sim_fail(struct sim *s, const char *format, ...) PRINTF_LIKE(2, 3);
void sim_trace(struct sim *s, const char *format, ...) PRINTF_LIKE(2, 3);
void sim_post(struct sim *s, struct event e); /* takes over e.data; e.at_us is absolute */
void sim_run_until(struct sim *s, u64 end_us);
u64 sim_below(struct sim *s, u64 n);
bool sim_chance(struct sim *s, u32 percent);
void sim_send(struct sim *s, u64 from, u64 to, enum event_type type, bytes data, u64 a, u64 delay_us);
u64 sim_true_ms(const struct sim *s);

/* disk.c */
extern const struct raft_log_ops DISK_OPS;
void disk_durable(struct node *n, u64 number);
void disk_crash(struct node *n);
void disk_erase(struct member *m); /* its log, and what of it waits to be written */

/* member.c */
extern const struct raft_machine_ops MEMBER_OPS;
struct cell member_cell(const struct member *m, u64 key);
void member_change(struct member *m, u64 key, struct cell c);
void member_abandon(struct member *m, enum group_loss loss);
bool member_owes_death(const struct member *m, const struct cell *c, u64 now_ms); /* it died, and was not told */
u32 member_find_dead(struct member *m, u64 now_ms, u32 max); /* tells deaths; returns how many */
void member_reclaim(struct member *m); /* each member reclaims dead keys when it likes, by the region's clock */
void member_installed(struct member *m);
void member_split(struct member *m); /* proposes one */
u64 member_digest(const struct member *m);
void store_set(struct node *n, u64 key, struct cell c);
void store_clear(struct node *n, struct raft_slots slots);

/* merge.c */
void merge_tick(struct member *m);     /* what a leader does about its merge */
void merge_catch_up(struct member *m); /* the source gets what the target needs */
void merge_bury(struct node *n, const struct region_tombstone *t);
u64 merge_tombstones(const struct node *n, struct region_tombstone *out); /* of regions that were merged */
void merge_learn(struct node *n, const struct region_tombstone *t, u64 count);
void merge_ask(struct node *n); /* another node, what was merged */
void merge_destroy_superseded(struct node *n);
u32 regions_live(const struct sim *s);

/* node.c */
void node_start(struct sim *s, u64 id);
void node_crash(struct node *n);
void node_free(struct node *n);
void node_event(struct node *n, struct event *e);
void node_flush_state(struct node *n); /* a crash leaves the machines as they are now */
u64 node_wall_ms(const struct node *n);
struct member *node_make(struct node *n, u64 region, u64 peer); /* without data, or with that which it had */
void node_open(struct member *m);
void node_destroy(struct member *m); /* it was removed */
struct regions_here node_here(struct node *n, struct region_here *members);
void node_send(struct member *m, u64 to, enum event_type type, bytes message, u64 delay_us);
struct member *node_route(struct node *n, u32 op); /* the member that has the operation's slot */
u64 node_hint(struct node *n, u32 op);             /* who leads it, as far as this node knows */
/* Without a trace but its tombstone, once that is flushed; the cells stay. */
void node_remove(struct member *m);
static inline u16 slot_of(u64 key) { return (u16)((key / 2 * 0x9e3779b97f4a7c15ULL) >> 50); } /* one for a pair */
static inline bool slots_have(struct raft_slots s, u16 slot) { return s.first <= slot && slot <= s.last; }

/* verify.c */
void verify_applied(struct member *m); /* it has applied an entry, or a split has made it */
void verify_installed(struct member *m);
void verify_merged(struct member *m, u64 source); /* it has taken the source over */
void verify_leader(struct member *m, bool again);
void verify_node(struct node *n);
void verify_logs(struct sim *s);
void verify_end(struct sim *s);
void verify_free(struct sim *s);

/* client.c */
void clients_start(struct sim *s);
void client_event(struct sim *s, struct event *e);
void op_run(struct op *op, u64 now_ms, struct cell *one, struct cell *two);
void op_evaluated(struct member *m, u32 op, u64 now_ms, u64 hint);
void op_done(struct node *n, u32 op, u64 hint); /* the reply leaves */
void op_moved(struct node *n, u32 op);          /* it certainly has not happened */
void clients_check(struct sim *s);
u64 op_hint(const struct member *m, u64 i); /* a guess of the order, for the checker */

/* fault.c */
void fault_choose(struct sim *s); /* which faults this seed has, and how small the group gets */
void fault_event(struct sim *s, bool once);
void fault_heal(struct sim *s);
struct member *fault_leader_of(struct sim *s, u32 region); /* NULL: none that lives */
/* Whether most of these voters, without one, are on nodes that will live again; `counts`: it stays a voter. */
bool fault_majority(struct sim *s, const u64 *voters, u32 n, u64 without, bool counts);

/* hush.c */
void hush_run(struct sim *s);

/* operator.c */
void operator_event(struct sim *s);
void operator_check(struct sim *s);

#endif
