/* This node's member of a region that is replicated by Raft: the state machine of its group (raft/group.h).
 *
 * The leader evaluates the requests of a tick in the engine's transaction. Their effects, as journal records,
 * become one entry of the log. Until a quorum has it, the transaction stays open, the replies wait for a
 * fence, and further requests for the region wait (HOLD_RAFT); they form the next entry. A tick without
 * changes waits until the quorum has confirmed that this is still the leader.
 *
 * Other members apply committed entries at the entries' time stamps, several in one engine transaction. The
 * position in the log (struct raft_applied) is stored with the data, by the same commit.
 *
 *     state        the engine's transaction        requests for the region
 *     evaluating   holds what the tick changed     run, their replies wait for `fence`
 *     in flight    the same, its entry is on       wait
 *                  its way
 *     otherwise    applied entries, or nothing     are redirected to the leader, or wait for a follower
 *     read */
#ifndef MAYFLY_CLUSTER_MEMBER_H
#define MAYFLY_CLUSTER_MEMBER_H

#include "cluster/commit_times.h"
#include "cluster/load.h"
#include "exec/region.h"
#include "net/fence.h"
#include "raft/merge.h"

struct cluster;
struct server;

/* Replies that depend on several regions: their fence passes when all these are committed or confirmed. */
struct member_joint {
    struct fence *fence; /* NULL: a region failed, and so did the replies */
    u32 regions;         /* that have not ended it */
};

/* What waits for the outcome of an evaluation; each may be NULL. */
struct member_replies {
    struct fence *fence;
    struct member_joint *joint;
};

struct member_read {
    u64 read; /* the group's number of it */
    struct member_replies replies;
};

struct member {
    struct raft_machine machine; /* first: the group's view */
    struct cluster *cluster;
    struct server *server;
    struct region *region; /* NULL: it has no data yet and waits for a snapshot */
    struct group *group;
    struct raft_log *log;
    u64 number;              /* of the region */
    u64 peer;                /* its own: peer_id.h */
    bool gone;               /* it was removed: to be destroyed */
    bool conf_unsaved;       /* the open transaction changes the members */
    u64 conf_mark;           /* the last change is durable when the logs have come so far; 0: it is */
    struct raft_epoch reported_epoch; /* as it led, to region 0's leader … */
    u64 reported_term;                /* … 0: not at all */
    bool to_report;                   /* in cluster.to_report: there may be news … */
    struct member *to_report_next;
    bool to_look;                     /* in cluster.to_look: its size may have changed much … */
    struct member *to_look_next;
    struct raft_slots slots; /* of its engine */
    bool awake;              /* its group does not sleep: the timer visits it */
    struct heap_node due;    /* its nearest deadline, while it leads … */
    bool is_due;             /* … is in cluster.dues */
    struct member *due_next; /* see move_clocks */
    bool rested;             /* … and the memory that only work needs is given back */
    bool stirred;            /* its group had something to do since the loop last slept: in cluster.stirred */
    struct member *stirred_next;
    bool untold;                 /* in cluster.untold: its group may have committed what it has not told … */
    i64 untold_ms;               /* … since then, by the loop's time */
    struct member *untold_next;
    u64 tick;                    /* of net: when it last began one */
    struct member *ticking_next; /* in cluster.ticking */
    bool led;                    /* at the last look … */
    u64 leader;                  /* … and who did */
    i64 await_until_ms;          /* until when requests wait for a leader to be known, by the loop's time */
    /* Members to which no snapshot could be sent, which has to be reported to the group. */
    u64 unsent[2 * RAFT_MEMBERS_MAX];
    u32 unsent_n;
    u64 next_index, next_index_tick; /* cluster_next_index as of this tick */
    char decision[160];              /* the last of its leader about it, and why */
    u64 bytes;                   /* that its data takes on disk, at the last look … */
    u64 looked_written, looked_written_all; /* … at which so much had been written … */
    i64 looked_ms, split_ms;     /* … and when that was; when it was last to be split: by the loop's time */
    bool one_slot;               /* it was logged that it is too large for its one slot to be split */
    u64 splits;                  /* since this node was started */
    u64 requests;                /* that ran here, on the leader … */
    u64 requests_before, load;   /* … at the beginning of this period; and per second in the last one */
    u32 sample_in, sample_gap;   /* how many requests until a slot is noted; and from one to the next */
    struct load *sample;         /* NULL: none is taken */
    bool one_slot_load;          /* it was logged that one slot has most of its requests */
    struct cluster_check *check; /* the last one; NULL: there was none */
    i64 checked_ms;              /* when the last one began, or this node was started, by the loop's time */
    struct cluster_install *install; /* a snapshot that takes the place of the data; NULL: none */
    struct journal_sink sink;
    struct buf effects;      /* of the requests that are being evaluated */
    struct session session;  /* of applied entries */
    struct raft_applied at;  /* how far the engine's open transaction has come … */
    bool unsaved;            /* … which it has not committed … */
    u32 unsaved_bytes;       /* … and what it has in entries of others' */
    bool saved_later;        /* it is in cluster.saved_later */
    struct member *saved_later_next;
    bool evaluating, in_flight;
    i64 proposed_us;         /* when, by the monotonic clock, while in flight */
    struct commit_times *times; /* of its entries; NULL: none so far */
    u32 slices;              /* of reclaiming while something waits for the log: cluster_expiry.c */
    bool expiring;           /* it evaluates a slice of the expire cycle, and no requests: cluster_expiry.c */
    struct member_replies replies; /* of the open evaluation; both NULL: none so far */
    struct member_read *reads; /* that wait for their confirmation */
    u32 reads_n, reads_cap;
    bool merged;       /* its region was merged into another: it goes as soon as it may */
    u64 wish;          /* a region that is to be merged into it when both are led here; 0: none … */
    i64 wish_until_ms; /* … until when, by the loop's time */
    u64 merge_index, merge_ticks;    /* the PREPARE that it has applied, and how long ago */
    u64 refused_index;               /* the PREPARE of a source whose target will not commit it, or 0 */
    struct raft_merge_commit wanted; /* what its group waits for, of the source; source 0: nothing */
    bool may_merge;                  /* no code uses a region: it may take its source over */
    u64 merges;                      /* since this node was started */
    u64 early_read;          /* was confirmed before it was known here; 0: none was */
    u64 asked_read;          /* the follower read of this tick; 0: none … */
    u64 granted_read;        /* … the latest that may be evaluated … */
    u64 refused_read;        /* … and the latest that failed */
};

/* r: a region whose engine is open and has not been read yet; NULL: there is no data. peer: the member's
 * number, unless one is stored with the data. */
void member_open(struct member *m, struct cluster *c, struct region *r, u64 number, u64 peer);
void member_give(struct member *m, struct region *r); /* it gets data */
void member_start(struct member *m, const struct group_config *config, struct raft_log *log);
void member_close(struct member *m);

/* No leader is known at the moment: requests wait for one instead of being refused. */
void member_await_leader(struct member *m);
bool member_awaits_leader(const struct member *m);

/* Its group sleeps: frees the memory that it needs only while it is active. */
void member_rest(struct member *m);

/* -- the tick ---------------------------------------------------------------------------------- */

/* Begins the region's tick. */
void member_begin_tick(struct member *m, i64 wall_ms);
/* Enforces the fence that the next reply waits for. */
void member_enforce(struct member *m, bool touches_data);
/* All requests of the tick have run. */
void member_end_tick(struct member *m);

/* The region's clock: the stamp of the last entry that was applied. */
i64 member_clock(const struct member *m);

/* Commits a slice of housekeeping that has reclaimed keys dead by the region's clock. False: it failed. */
bool member_commit_reclaim(struct member *m);

/* Commits entries that were applied, its own evaluations among them: before the loop sleeps, and before
 * anything else is evaluated. */
void member_save(struct member *m);
void member_save_all(struct member *const *m, u32 n); /* in as few writes as pays */

/* For a READONLY connection: whether its read may be evaluated now. If not, *wanted is the number to wait
 * for. */
bool member_may_read(struct member *m, u64 *wanted);
/* Whether the read *wanted has failed; then *wanted is reset. */
bool member_read_failed(const struct member *m, u64 *wanted);

/* -- snapshots --------------------------------------------------------------------------------- */

/* A split, as struct raft_machine_ops has it; also when a cluster is made. */
void member_split(struct member *m, const struct raft_applied *at, u64 child,
                  const struct raft_applied *child_at);

/* In the transaction that replaces the data by a received snapshot: stores the snapshot's state. */
void member_adopt(struct member *m, const struct raft_applied *at);

/* The same for another region of this node, in the transaction of this one. */
void member_adopt_at(struct member *m, u64 number, u64 peer, const struct raft_applied *at);
void member_erase(struct member *m); /* in the transaction that destroys it */
void member_forget(struct member *m, u64 number); /* in m's transaction: the state of another region */
/* The engine's transaction has merged another region's slots into it. */
void member_took(struct member *m, const struct raft_applied *at);

/* Whether the members that this member knows would survive a crash. */
bool member_conf_is_durable(const struct member *m);

/* Text form of raft_applied: stored in the engine with the member's number, and sent (peer 0). */
void member_encode(const struct raft_applied *at, u64 peer, struct buf *out);
NODISCARD bool member_decode(bytes text, struct raft_applied *at, u64 *peer);

static inline bool member_leads(const struct member *m) { return m->group && group_is_leader(m->group); }

#endif
