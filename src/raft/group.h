/* One member's part in one Raft group: it connects the core (raft_core.h), the log and the state machine.
 *
 * All rules that keep a group safe are implemented here, so that the server and the simulator (tests/sim)
 * run the same code. A group does no I/O, reads no clock, and belongs to one thread.
 *
 * Rules, referred to by number in group.c:
 *   1  No promise is sent before it is durable: votes and acknowledgements wait for the write they belong to.
 *   2  Entries are applied in order, once, when committed. The machine stores `struct raft_applied`
 *      atomically with what an entry changed.
 *   3  One evaluation is open at a time. Its transaction commits when its own entry, known by (term,
 *      index), comes back committed. If leadership or the epoch is lost first, it is given up; should the
 *      entry come back through the log after all, it is applied as on any follower.
 *   4  An entry proposed under another epoch version is void: it changes nothing on any member.
 *   5  Stamps never decrease along the log. The region's clock is the stamp of the last applied entry.
 *      Evaluations of a leader never go back in time, and what is proposed during one has its time.
 *   6  If a reply depends on something having expired that is still alive by the region's clock, it waits for
 *      an entry with that stamp, proposed by the same leader. Then no later evaluation, on any member, sees
 *      it alive again.
 *   7  The reply to a read is sent after a quorum has confirmed, later than it was evaluated, that this was
 *      the leader.
 *   8  A follower reads its state at the region's clock, when it has applied everything that was committed
 *      when it asked the leader.
 *   9  While a snapshot is being installed the group does nothing else. It is installed in the machine first,
 *      then in the log: see group_open.
 *  10  A split gives the slots from a given one on to a child region, and starts a new epoch version for the
 *      remaining slots. The child starts with the parent's members under the same numbers, its clock, and the
 *      new epoch. The machine stores both states in one step. A split that does not fit the region's
 *      slots changes nothing on any member.
 *  11  If a member has a log of the child already, it is kept, even if its machine has to create the child
 *      again after a crash, because the log may contain a vote. But the split is durable before any entry of
 *      the child is: a machine without the child would not fit a log with its entries.
 *  12  A leader does not evaluate after it has proposed an entry that starts an epoch, because the evaluation
 *      would be void, or one that changes whether expiry is logged, because the evaluation would follow the
 *      old rule. It does not propose such an entry during an evaluation either: the evaluation's changes are
 *      in the machine's open transaction, and would be committed with the split.
 *  13  Before a leader transfers its leadership, the open evaluation is committed or confirmed, so that no
 *      client's outcome is uncertain, and no other one begins. If that takes longer than an election timeout,
 *      it keeps its leadership.
 *  14 to 17: see raft/merge.h.
 *  18  An idle group sleeps: its members don't tick. The leader falls asleep, and tells the others to, when
 *      all members have answered lately, have its whole log committed and applied, and nothing is in
 *      progress. A follower falls asleep when the leader of its term tells it to, if it has the same log,
 *      committed and applied, and waits for nothing; otherwise it wakes the leader.
 *  19  Every message except the reply to a heartbeat wakes a member, and so does every request. A follower
 *      that is woken by anyone but its leader wakes its leader; so does a follower that is awake and hears
 *      nothing for an election timeout (a learner would never campaign).
 *  20  Beats between nodes (raft/beat.h) replace the heartbeats of sleeping groups. A follower wakes when the
 *      node of its leader is silent for an election timeout, or was restarted; a leader wakes when this is
 *      true of any member's node. A member that wakes counts the time since the last beat towards its
 *      election timeout, so elections start, and votes are refused, as if each beat had been a heartbeat.
 *  21  While a long request holds the loop of a node, or a long entry is on its way, what a member says is
 *      late. Signs of life of its node then count as if it had answered: a follower does not campaign, and
 *      a leader keeps its leadership. Neither promises anything by that: it only waits longer.
 *
 * Life of a write on the leader:
 *
 *     if (group_may_evaluate(g)) {
 *         now = group_evaluation_time(g);
 *         run the requests that wait, at `now`, in an open transaction; their effects are journal records;
 *         group_evaluated(g, now, effects, depends_ms, &wait);
 *     }
 *     … ops->commit: the transaction commits and replies are sent; or ops->abandon: it is rolled back.
 *
 * Callbacks must not call the group again, except for group_status() and the small queries below. */
#ifndef MAYFLY_RAFT_GROUP_H
#define MAYFLY_RAFT_GROUP_H

#include "raft/command.h"
#include "raft/raft_log.h"

struct group;
struct raft_machine;
struct raft_merge_commit;

enum raft_merge_role { RAFT_MERGE_NONE, RAFT_MERGE_TARGET, RAFT_MERGE_SOURCE };

/* A merge that is prepared and neither committed nor rolled back (raft/merge.h). */
struct raft_merge {
    enum raft_merge_role role;
    u32 version;     /* of the target, since its PREPARE */
    u64 other;       /* the region to be merged with */
    u64 index, term; /* of the PREPARE in this region's log */
};

/* How far a machine has applied the log. The machine stores it atomically with the data it describes. */
struct raft_applied {
    u64 index, term;
    u64 clock_ms; /* the region's clock */
    struct raft_epoch epoch;
    struct raft_slots slots;
    struct raft_conf conf;
    /* Keys that expire after this are deleted only by log entries; 0: each member deletes keys that are dead
     * by the region's clock by itself. */
    u64 deaths_from_ms;
    struct raft_merge merge;
};

enum group_loss {
    GROUP_LOSS_UNKNOWN, /* the writes may or may not happen: -UNCERTAIN */
    GROUP_LOSS_VOID     /* they certainly have not happened and will not */
};

struct raft_machine_ops {
    void (*load)(struct raft_machine *m, struct raft_applied *at);

    /* An entry that is not the open evaluation's: apply its effects at at->clock_ms, and store `at`. Without
     * a command only `at` changes. */
    void (*apply)(struct raft_machine *m, const struct raft_applied *at, const struct raft_command *command);
    /* A split: the region's state becomes `at`, and the region `child` is created with state child_at and the
     * data of its slots. Stores both in one step. The child's log is not changed (rule 11). */
    void (*split)(struct raft_machine *m, const struct raft_applied *at, u64 child,
                  const struct raft_applied *child_at);
    /* A merge, for the target. source_ready: whether the source's member on this node fulfils rule 16; if
     * not, the entry is retried at the next input. merge: the region's state becomes `at` (rule 17). */
    bool (*source_ready)(struct raft_machine *m, const struct raft_merge_commit *commit);
    void (*merge)(struct raft_machine *m, const struct raft_applied *at,
                  const struct raft_merge_commit *commit);
    /* The open evaluation's entry is committed: commit the transaction, with `at`, and send its replies. */
    void (*commit)(struct raft_machine *m, const struct raft_applied *at);
    /* Roll the open evaluation back. */
    void (*abandon)(struct raft_machine *m, enum group_loss loss);
    /* ok: the reply to a read that waited for confirmation (group_evaluated) may be sent; otherwise the
     * client must retry elsewhere. */
    void (*confirmed)(struct raft_machine *m, u64 read, bool ok);
    /* ok: a follower read (group_follower_read) may be evaluated now, at the region's clock; otherwise it has
     * failed. */
    void (*readable)(struct raft_machine *m, u64 read, bool ok);
    /* The nearest deadline of anything that is alive by the region's clock; 0: none. */
    u64 (*next_deadline)(struct raft_machine *m);

    void (*send)(struct raft_machine *m, u64 to, bytes message);
    /* Send a snapshot of the machine's committed data, whose state is `at`, together with this message
     * (group_receive_snapshot at the other end). Call group_snapshot_sent in any case. */
    void (*snapshot_send)(struct raft_machine *m, u64 to, const struct raft_applied *at, bytes message);
    /* Replace all data by the latest received snapshot, which has this index and term; durably and
     * atomically with its raft_applied. Then call group_installed. */
    void (*snapshot_install)(struct raft_machine *m, u64 index, u64 term);
    /* The latest received snapshot is not needed. */
    void (*snapshot_discard)(struct raft_machine *m);

    /* The group has fallen asleep (group_tick does nothing), or has woken up. */
    void (*slept)(struct raft_machine *m, bool asleep);
    /* How many ticks ago the last message from another member's node arrived (beat_silence). */
    u32 (*silence)(struct raft_machine *m, u64 peer);
};

/* The first member of a machine's struct. */
struct raft_machine {
    const struct raft_machine_ops *ops;
};

struct group_config {
    u64 id;
    u64 seed;                                 /* of election timeouts */
    u64 nonce;                                /* never used before by this member, as a random number */
    u32 election_ticks, heartbeat_ticks;      /* 10 and 2 */
    u32 read_retry_ticks, read_timeout_ticks; /* ask again; give up */
    u32 sleep_ticks;                          /* a group that is idle for this long sleeps; 0: never */
    u64 log_entries_max;                      /* compaction does not wait for slow members beyond this */
    void (*print)(void *log, int level, const char *text, size_t size);
};

/* Opens a member with the contents of its log and machine; both outlive the group. A member that is not in
 * its own configuration waits until a leader adds it. Entries known to be committed are applied before this
 * returns; these may include a split, whose child is opened then. */
struct group *group_open(const struct group_config *config, struct raft_log *log,
                         struct raft_machine *machine);
void group_close(struct group *g);

/* ---- Input. Call group_wall before the others, at least once per turn of the loop. */
void group_wall(struct group *g, u64 wall_ms);
void group_tick(struct group *g);
void group_receive(struct group *g, u64 from, bytes message);
void group_durable(struct group *g, u64 number);   /* every log write up to this one would survive a crash */
void group_unreachable(struct group *g, u64 peer); /* a connection broke, or a queue is full */

/* The entry of this index and term is committed, as the target's COMMIT proves (rule 16). */
void group_committed(struct group *g, u64 index, u64 term);
/* The leader announces its commit index now, unless it has already. Otherwise the others learn it with the
 * next entry or heartbeat. */
void group_tell(struct group *g);
void group_retry(struct group *g); /* an entry that waits for its source */
/* ---- Sleep (rules 18 to 20). */
bool group_sleeps(const struct group *g);
void group_wake(struct group *g);
/* The node of this member is silent, or was restarted: wakes the group if it has to know. */
void group_doubt(struct group *g, u64 peer);
/* The node of this member is alive, but its messages are late: rule 21. */
void group_excuse(struct group *g, u64 peer);

/* ---- Evaluation, on the leader. */
bool group_may_evaluate(const struct group *g);
/* Begins an evaluation, which group_evaluated or group_drop_evaluation ends. Returns the time at which to
 * evaluate: the wall clock, or the region's if that is ahead. */
u64 group_evaluation_time(struct group *g);
void group_drop_evaluation(struct group *g); /* nothing was read or changed, or it is rolled back */

enum group_wait {
    GROUP_WAIT_COMMIT, /* commit or abandon will be called */
    GROUP_WAIT_READ,   /* confirmed will be called with *read; the transaction is over */
    GROUP_REFUSED      /* nothing was proposed and nothing has happened: roll back */
};
/* Ends an evaluation. `effects` may be empty. depends_ms: the latest deadline of anything it found dead, or
 * 0. */
enum group_wait group_evaluated(struct group *g, u64 now_ms, bytes effects, u64 depends_ms, u64 *read);

/* Proposes another kind of entry. If it is committed, `apply` is called on every member. False: not possible
 * now (an entry of rule 12 is not possible during an evaluation). */
bool group_propose(struct group *g, enum raft_kind kind, bytes payload);
/* Proposes the COMMIT of a merge, on the target's leader. */
bool group_propose_commit(struct group *g, const struct raft_merge_commit *c);
/* Proposes an entry that advances the region's clock if something has become due and no other entry does
 * that. Call it periodically; returns whether an entry was proposed. */
bool group_clock_due(struct group *g);

/* ---- Follower reads. Returns a number for `readable`. */
u64 group_follower_read(struct group *g);

/* ---- Leadership and membership. */
void group_campaign(struct group *g);
void group_transfer(struct group *g, u64 to); /* rule 13; a follower asks the leader */
u64 group_successor(const struct group *g);   /* the voter to transfer leadership to; 0: there is none */

enum group_change {
    GROUP_CHANGE_PROPOSED,
    GROUP_CHANGE_NOT_LEADER,
    GROUP_CHANGE_LATER,  /* retry: another change is in progress, a learner is behind, or leadership has to be
                          * transferred first */
    GROUP_CHANGE_UNSAFE, /* too few of the remaining voters have answered lately to be a majority */
    GROUP_CHANGE_INVALID /* it can never be done */
};
/* New members start as learners; a learner that has caught up may become a voter, and a voter a learner. */
enum group_change group_change(struct group *g, const struct raft_change *changes, size_t n);

/* ---- Snapshots and compaction. */
void group_receive_snapshot(struct group *g, u64 from, bytes message);
void group_installed(struct group *g, const struct raft_applied *at);
void group_snapshot_sent(struct group *g, u64 to, bool ok);
/* After a crash the machine would have applied at least `flushed_index`: entries up to it can be removed,
 * except those that active members still need. */
void group_compact(struct group *g, u64 flushed_index);

/* ---- Queries. */
struct group_status {
    struct raft_core_status core;
    struct raft_applied at;
    u64 clock_ahead_ms; /* the region's clock is ahead of this member's by that much */
    bool evaluating;    /* an entry is in flight */
    bool epoch_pending; /* an entry of rule 12 that it proposed is not applied yet */
    bool installing;
    u64 reads_waiting;
    u64 entries_void, evaluations_abandoned, clock_entries, reads_retried;
};
void group_status(const struct group *g, struct group_status *status);
bool group_is_leader(const struct group *g);
u64 group_led_term(const struct group *g); /* the term that this member leads in; 0: it does not */
u64 group_leader(const struct group *g); /* 0: unknown */
u64 group_clock(const struct group *g);
/* On the leader: the last entry that is known to be in another member's log; elsewhere 0. */
u64 group_matched(const struct group *g, u64 id);
/* On the leader: whether every voter has the entry in its log, synced. */
bool group_all_have(const struct group *g, u64 index);
/* On the leader: how many other members have the entry in their logs, synced. */
u32 group_acknowledged(const struct group *g, u64 index);

#endif
