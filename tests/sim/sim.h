/* A cluster in one process: N members of one Raft group (raft/group.c, as the server runs it) on a simulated network,
 * disks and clocks, with clients whose histories are checked. Everything comes from one seed.
 *
 *   sim.c     events, network, command line
 *   node.c    a member: its disk (raft_log), its state machine (raft_machine), crashes
 *   client.c  clients, histories
 *   fault.c   what goes wrong, and changes of membership
 *   check.c   the linearizability checker
 *
 * After a violation sim_fail prints what is wrong and the command that replays it, and ends the process with 1. */
#ifndef MAYFLY_TESTS_SIM_SIM_H
#define MAYFLY_TESTS_SIM_SIM_H

#include "base/buf.h"
#include "base/rand.h"
#include "raft/split.h"
#include "raft/plant.h"
#include "sim/check.h"

enum {
    NODES_MAX = 15,
    KEYS_MAX = 8192,
    CLIENTS = 10,
    OBJECTS_LIVE = 10, /* objects in use at a time; the last two are pairs of keys */
    TICK_US = 100000,
    START_MS = 1000000000 /* the true time at the start */
};

/* Planted in the simulator's machine, beside those of raft/plant.h. The bits differ. */
enum { PLANT_RECLAIM_AHEAD = 16 };

enum event_type {
    EV_TICK, EV_MESSAGE, EV_DURABLE, EV_SNAPSHOT, EV_SNAPSHOT_SENT, EV_INSTALLED, EV_FLUSH, EV_REQUEST,
    EV_REPLY, EV_CLIENT, EV_FAULT, EV_RESTART, EV_RESUME
};

struct event {
    u64 at_us, seq;
    enum event_type type;
    u32 node, incarnation; /* of a member: ignored if it crashed since, unless 0 */
    u64 a, b;
    char *data; /* owned */
    size_t size;
};

/* Without padding: cells are compared and sent as they are. */
struct cell {
    u64 exists, value, deadline_ms;
};

/* The data of a member: committed, as of at.index. */
struct store {
    struct raft_applied at;
    u32 keys; /* cells beyond have never existed */
    struct cell cell[KEYS_MAX];
};

struct change {
    u64 key;
    struct cell cell;
};

/* What a split does: the cells of some keys are cleared, as their slots have moved away. */
struct clear {
    u32 first_op, n;
    u32 keys[OBJECTS_LIVE];
};

struct disk_write; /* node.c */

struct disk {
    struct raft_log log;
    struct node *node;
    struct raft_hard_state hard_state;
    u64 point_index, point_term, entries_n, entries_cap;
    struct raft_entry *entries; /* point_index + 1 …; data owned */
    struct disk_write *pending; /* oldest first */
    u64 busy_until_us;
};

/* Operations that wait for one event: the open evaluation, or a read. */
struct batch {
    u64 read; /* its number; 0: the open evaluation */
    u32 ops[64];
    u32 n;
};

struct machine {
    struct raft_machine machine;
    struct node *node;
    struct store *store, *flushed, *incoming, *installing;
    struct change *changes; /* of the open evaluation */
    u32 changes_n, changes_cap;
    struct batch open, reads[64], follower_reads[64];
    u32 reads_n, follower_reads_n;
};

struct node {
    struct sim *sim;
    u64 id;
    bool alive, paused;
    bool retired; /* was removed, and never comes back */
    bool to_split; /* while its next evaluation is open */
    u32 incarnation;
    i64 clock_offset_ms, drift_ppm;
    u32 disk_slowness;
    struct group *group;
    struct disk disk;
    struct machine machine;
    u32 queue[64]; /* requests that wait for their evaluation */
    u32 queue_n;
    struct event *backlog; /* what arrived while it was paused */
    u32 backlog_n, backlog_cap;
};

enum op_outcome { OP_SENT, OP_EVALUATED, OP_DONE, OP_REPLIED, OP_NOT_DONE };

struct op {
    struct check_op c;
    u32 client, object;
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
    u64 op_serial, leader_guess;
};

struct applied_record {
    u64 term, clock_ms, digest;
};

struct sim {
    u64 seed, rng, now_us, end_us, seq;
    u32 nodes_n, plant; /* ids are never used twice, so nodes_n grows when members are replaced */
    u32 disk_slowness; /* of every member when nothing is wrong */
    u64 fault_gap_us;  /* the longest time between faults */
    u32 voters_first, voters_min; /* at the start, and after removals */
    bool trace, calm;
    bool idle; /* few writes, and clocks that are seldom moved: time passes between entries */
    u32 faults; /* those that this seed has, one bit each: few at a time find more than all at once */
    struct node node[NODES_MAX + 1]; /* by id */
    struct event *heap;
    u32 heap_n, heap_cap;
    bool cut[NODES_MAX + 1][NODES_MAX + 1];
    u32 loss_percent, duplicate_percent, slow_percent;
    struct client client[CLIENTS];
    struct op *ops;
    u32 ops_n, ops_cap;
    struct object *objects;
    u32 objects_n, objects_cap, live[OBJECTS_LIVE], keys_used;
    struct clear *clears; /* by the number of the split's child, from 2 on */
    u32 clears_n;
    u64 *leaders; /* by term */
    u64 leaders_n;
    struct applied_record *applied; /* by index */
    u64 applied_n;
    struct raft_applied newest; /* the highest that any member ever applied */
    u64 wall_max_ms, stepped_us; /* the highest clock ever; when a clock was last set back */
    u64 done_ops, replies, messages, snapshots, crashes, voids, conf_changes, late_replies_ok, replaced;
};

/* sim.c */
_Noreturn void sim_fail(struct sim *s, const char *format, ...) PRINTF_LIKE(2, 3);
void sim_trace(struct sim *s, const char *format, ...) PRINTF_LIKE(2, 3);
void sim_post(struct sim *s, struct event e); /* takes over e.data; e.at_us is absolute */
u64 sim_below(struct sim *s, u64 n);
bool sim_chance(struct sim *s, u32 percent);
void sim_send(struct sim *s, u64 from, u64 to, enum event_type type, bytes data, u64 a, u64 delay_us);
u64 sim_true_ms(const struct sim *s);

/* node.c */
void node_start(struct sim *s, u64 id, const struct raft_conf *conf); /* conf: of a new cluster, or NULL */
void node_crash(struct node *n);
void node_free(struct node *n);
void node_event(struct node *n, struct event *e);
u64 node_wall_ms(const struct node *n);
void node_split(struct node *n);
u64 node_digest(const struct store *st);
void nodes_check_logs(struct sim *s);

/* client.c */
void clients_start(struct sim *s);
void client_event(struct sim *s, struct event *e);
void op_run(struct node *n, struct op *op, u64 now_ms, struct cell *one, struct cell *two);
void op_evaluated(struct node *n, u32 op, u64 now_ms, u64 hint);
void op_done(struct node *n, u32 op, u64 hint); /* the reply leaves */
void op_moved(struct node *n, u32 op);          /* it certainly has not happened */
u32 op_clear(struct sim *s);                    /* about to be proposed */
void op_cleared(struct sim *s, const struct clear *c, u64 now_ms, u64 hint);
void clients_check(struct sim *s);

/* fault.c */
void fault_choose(struct sim *s); /* which faults this seed has, and how small the group gets */
void fault_event(struct sim *s);
void fault_heal(struct sim *s);

#endif
