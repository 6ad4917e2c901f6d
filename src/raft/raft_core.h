/* The Raft library (tikv/raft-rs 0.7, src/raft/core) behind a C interface.
 *
 * A core is one member's part of one Raft group. It only decides: it reads no clock, no socket and no file,
 * has no threads, and calls back only to read old log entries. The same calls with the same arguments give
 * the same results, because election timeouts are computed from (seed, id, term, attempt) and not random.
 *
 *     raft_core_tick(c);                                  time passes
 *     raft_core_step(c, message, size);                   a message arrived
 *     while (raft_core_ready(c, &r)) {                    is there anything to do?
 *         send r.now; write r.hard_state and r.entries to the log, without waiting;
 *         raft_core_advance(c);
 *     }
 *     the log says that everything up to write r.number is durable:
 *         send the messages of r.after; raft_core_persisted(c, r.number);
 *     committed entries are applied:
 *         raft_core_applied(c, index);
 *
 * Only src/raft/group*.c call these functions, in the order that safety requires (raft/group.h).
 *
 * Lifetimes: a slice passed in is copied. A slice returned by ready is valid until the next ready. A broken
 * invariant (for example a log that contradicts what was written to it) ends the process with a message,
 * because continuing would mean lost or diverged data. Bytes from a peer are checked first, but peers must be
 * authenticated. */
#ifndef MAYFLY_RAFT_RAFT_CORE_H
#define MAYFLY_RAFT_RAFT_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAFT_MEMBERS_MAX = 16 }; /* of each kind in a configuration */

struct raft_core;
struct raft_core_sink;

struct raft_bytes {
    const uint8_t *data;
    size_t size;
};

enum raft_entry_type { RAFT_ENTRY_NORMAL = 0, RAFT_ENTRY_CONF = 1, RAFT_ENTRY_CONF_V2 = 2 };

struct raft_entry {
    uint64_t index, term;
    uint32_t type; /* enum raft_entry_type */
    struct raft_bytes data;
};

/* A member's promises; must be durable before messages that depend on them are sent. */
struct raft_hard_state {
    uint64_t term, vote, commit;
};

/* The members of the group. While `outgoing` is not empty a change is in progress (joint consensus). */
struct raft_conf {
    uint64_t voters[RAFT_MEMBERS_MAX], learners[RAFT_MEMBERS_MAX];
    uint64_t outgoing[RAFT_MEMBERS_MAX], learners_next[RAFT_MEMBERS_MAX];
    uint32_t voters_n, learners_n, outgoing_n, learners_next_n;
    bool auto_leave;
};

struct raft_core_config {
    uint64_t id, seed;
    uint32_t election_ticks, heartbeat_ticks; /* silence before an election: 1 to 2 times */
    uint64_t message_bytes_max, uncommitted_bytes_max, cache_bytes_max;
    uint32_t inflight_messages_max;

    /* The state of the log and the machine at the start:
     * snapshot_index <= applied <= hard_state.commit <= last_index; the log begins after snapshot_index. */
    struct raft_hard_state hard_state;
    struct raft_conf conf; /* as of `applied` */
    uint64_t applied, snapshot_index, snapshot_term, last_index;

    /* The durable part of the log. read pushes the entries of [low, high) into the sink, at least the first
     * and about bytes_max in all; false: they are not there, which ends the process. term: 0 if not there. */
    void *log;
    bool (*read)(void *log, uint64_t low, uint64_t high, uint64_t bytes_max, struct raft_core_sink *sink);
    uint64_t (*term)(void *log, uint64_t index);
    void (*print)(void *log, int level, const char *text, size_t size); /* or NULL; 0 error … 3 debug */
};

struct raft_message {
    uint64_t to;
    bool snapshot; /* it announces a snapshot of the applied index; the data is sent separately, and the
                    * outcome must be reported */
    uint64_t snapshot_index, snapshot_term;
    struct raft_bytes data;
};

struct raft_read_state {
    uint64_t index;
    struct raft_bytes context;
};

enum raft_role { RAFT_FOLLOWER = 0, RAFT_CANDIDATE = 1, RAFT_LEADER = 2, RAFT_PRE_CANDIDATE = 3 };

struct raft_ready {
    uint64_t number; /* of the write; grows by one */
    bool must_sync;  /* the write needs an fsync; otherwise it may be written with the next one */
    bool has_hard_state, has_snapshot;
    struct raft_hard_state hard_state;
    /* Replace the state machine by the announced snapshot, and empty the log. */
    uint64_t snapshot_index, snapshot_term;
    struct raft_conf snapshot_conf;

    const struct raft_entry *entries, *committed; /* to append (replaces what has these indexes); to apply */
    const struct raft_message *now, *after;       /* to send at once; once this write is durable */
    const struct raft_read_state *reads;
    size_t entries_n, committed_n, now_n, after_n, reads_n;
};

enum raft_change_type { RAFT_ADD_VOTER = 0, RAFT_REMOVE = 1, RAFT_ADD_LEARNER = 2 };

struct raft_change {
    uint64_t id;
    uint32_t type; /* enum raft_change_type; RAFT_ADD_VOTER of a learner promotes it */
};

struct raft_core_status {
    uint64_t id, term, vote, leader, transferee; /* 0: none */
    uint64_t commit, applied, persisted, first_index, last_index;
    uint32_t role;
    bool applied_own_term; /* an entry of this term was applied: the state is complete */
    bool conf_pending;     /* a configuration change may be under way */
    bool promotable;       /* a voter */
};

/* The leader's view of another member. */
struct raft_progress {
    uint64_t matched, next, pending_snapshot;
    uint32_t state; /* 0 probe, 1 replicate, 2 snapshot */
    bool active;    /* heard from lately */
};

enum raft_core_result {
    RAFT_CORE_OK = 0,
    RAFT_CORE_NOT_LEADER = -1,
    RAFT_CORE_DROPPED = -2,  /* a transfer is in progress, or too much is uncommitted */
    RAFT_CORE_PENDING = -3,  /* another configuration change is in progress */
    RAFT_CORE_INVALID = -4,  /* the change makes no sense: nothing was proposed */
    RAFT_CORE_BAD_BYTES = -5 /* not a message that a peer may send */
};

struct raft_core *raft_core_open(const struct raft_core_config *config);
void raft_core_close(struct raft_core *c);

void raft_core_tick(struct raft_core *c);
int raft_core_step(struct raft_core *c, const uint8_t *message, size_t size);
/* The message that announces a snapshot, whose data has arrived. step refuses these. */
int raft_core_step_snapshot(struct raft_core *c, const uint8_t *message, size_t size);
/* OK: the entry is in this leader's log, at the index that status.last_index then shows. Followers refuse. */
int raft_core_propose(struct raft_core *c, const uint8_t *data, size_t size);
/* Changes members by joint consensus, which is left automatically. Checked against the current
 * configuration. */
int raft_core_propose_conf(struct raft_core *c, const struct raft_change *changes, size_t n);
/* A committed entry of type CONF: call exactly once, when it is applied. Fills the new configuration. A
 * leader that is no longer a voter steps down. An entry that is invalid changes nothing and returns
 * RAFT_CORE_INVALID. */
int raft_core_apply_conf(struct raft_core *c, const uint8_t *data, size_t size, struct raft_conf *conf);
/* When a quorum has confirmed that this is the leader, the context is returned in ready.reads. If it is not
 * the leader, the request is lost silently. */
void raft_core_read_index(struct raft_core *c, const uint8_t *context, size_t size);
void raft_core_transfer(struct raft_core *c, uint64_t to);
void raft_core_campaign(struct raft_core *c);
/* Announces this leader's commit index to the others, which otherwise learn it with the next entry or
 * heartbeat. */
void raft_core_tell(struct raft_core *c);
void raft_core_unreachable(struct raft_core *c, uint64_t id);
void raft_core_snapshot_sent(struct raft_core *c, uint64_t id, bool ok);

/* False: nothing to do, *r is unchanged. True: call advance next. */
bool raft_core_ready(struct raft_core *c, struct raft_ready *r);
void raft_core_advance(struct raft_core *c);
void raft_core_persisted(struct raft_core *c, uint64_t number);
void raft_core_applied(struct raft_core *c, uint64_t index);
/* The entry with this index and term is committed, known from elsewhere than this group's leader. False: this
 * log has no such entry. */
bool raft_core_commit_to(struct raft_core *c, uint64_t index, uint64_t term);
/* rest: frees memory that a sleeping group does not need. silence: the leader has been silent for this many
 * ticks; leaders ignore it. active: whether this member has been heard of lately; for leaders. */
void raft_core_rest(struct raft_core *c);
void raft_core_silence(struct raft_core *c, uint32_t ticks);
void raft_core_active(struct raft_core *c, uint64_t id, bool active);

/* The log will forget entries up to `index`, which must be applied. Returns that entry's term. */
uint64_t raft_core_compacted(struct raft_core *c, uint64_t index);

void raft_core_status(const struct raft_core *c, struct raft_core_status *status);
bool raft_core_progress(const struct raft_core *c, uint64_t id, struct raft_progress *progress);

/* For `read`. */
void raft_core_push(struct raft_core_sink *sink, const struct raft_entry *entry);

/* A message's type as eraftpb numbers it, and its term, for traces; -1 if it can't be parsed. */
int raft_core_message_type(const uint8_t *message, size_t size, uint64_t *term);

#endif
