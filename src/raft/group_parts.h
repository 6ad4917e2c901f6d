/* Internals of a group, shared by group.c (storing, applying, evaluating), group_reads.c, group_members.c,
 * group_merge.c and group_sleep.c. Other code uses group.h. */
#ifndef MAYFLY_RAFT_GROUP_PARTS_H
#define MAYFLY_RAFT_GROUP_PARTS_H

#include "base/alloc.h"
#include "base/endian.h"
#include "raft/group.h"
#include "raft/plant.h"

/* Messages between groups. */
enum group_frame {
    FRAME_CORE = 1,         /* a message of the core */
    FRAME_READ_REQUEST = 2, /* a follower read: when may I read? */
    FRAME_READ_REPLY = 3,
    FRAME_TRANSFER = 4,     /* to the leader: transfer leadership to the member in the first number */
    FRAME_SLEEP = 5,        /* rule 18: sleep, if the term and the last index are these */
    FRAME_WAKE = 6          /* rule 19 */
};

/* Messages that wait until the write `number` is durable; to_sync: that write needs an fsync. */
struct group_held {
    u64 number;
    bool to_sync;
    size_t bytes_from, bytes_n; /* in g->held_bytes: (to, size, message) … */
};

/* A read on the leader that waits for its confirmation. */
struct group_read {
    u64 number;                    /* of the ReadIndex that confirms it, or a later one */
    u64 id;                        /* of a local read: the argument of `confirmed` */
    u64 from, from_nonce, from_id; /* of another member: where to send the reply … */
    u64 clock_ms;                  /* … and the time its clock must have reached */
};

/* A follower read on this member. */
struct group_wish {
    u64 id, index, clock_ms; /* how far to apply before it is read; index 0: no reply yet */
    u64 asked_tick, born_tick;
};

struct group {
    struct group_config config;
    struct raft_core *core;
    struct raft_log *log;
    struct raft_machine *machine;
    struct raft_applied at;
    u64 wall_ms, ticks;
    bool asleep;
    u64 busy_tick;  /* when something other than heartbeats last happened */
    u64 heard_tick; /* when the last message arrived … */
    u64 sent_tick;  /* … and the core sent one */

    u64 durable;
    struct raft_hard_state written; /* as last passed to the log */
    u64 conf_index; /* no later entry of the log changes the members */
    struct group_held *held;
    size_t held_n, held_cap;
    struct buf held_bytes, frame;

    struct {
        bool active;
        u64 term, index;
    } flight;
    bool evaluating; /* an evaluation has begun and is not proposed yet */
    u64 leader_term; /* the term in which this member leads; 0: it does not */
    u64 rules_index; /* of the last entry it proposed after which it must not evaluate (rule 12) */
    u64 floor_ms;    /* this leader proposes and evaluates nothing before this time */
    u64 proposed_ms; /* the stamp of its last proposal */
    bool untold;     /* this leader has committed entries that it has not announced … */
    bool tell_now;   /* … and must announce them at once */
    u64 successor, successor_tick; /* leadership is being transferred there since this tick; 0: it is not */

    /* A member that got a snapshot at this index, at that tick: it installs it, and answers nothing until it
     * needs the entries after it. 0: there is none. */
    u64 caught_id, caught_index, caught_tick;

    u64 reads_number, reads_asked_tick; /* of the last ReadIndex */
    struct group_read *reads;
    size_t reads_n, reads_cap;
    struct group_wish *wishes;
    size_t wishes_n, wishes_cap;
    u64 next_id;

    struct raft_entry *waiting; /* a COMMIT waiting for its source, and committed entries after it; owned */
    size_t waiting_n, waiting_cap;

    bool installing;
    struct raft_ready *install; /* its number, hard state and index; NULL: none */
    u64 entries_void, evaluations_abandoned, clock_entries, reads_retried;
    u32 planted; /* see raft/plant.h */
};

#define GROUP_PUSH(g, list)                                                                  \
    (((g)->list##_n == (g)->list##_cap                                                       \
          ? (void)((g)->list##_cap = (g)->list##_cap ? (g)->list##_cap * 2 : 8,              \
                   (g)->list = mem_realloc((g)->list, (g)->list##_cap * sizeof(*(g)->list))) \
          : (void)0),                                                                        \
     &(g)->list[(g)->list##_n++])

/* group.c */
void group_run(struct group *g); /* does all pending work; called at the end of every input */
void group_write(struct group *g, const struct raft_ready *r, bool reset);
bool group_must_wait(const struct group *g); /* it ignores messages, ticks and elections for now */
bool group_may_propose(const struct group *g);
bool group_has_applied_all(const struct group *g);
bool group_propose_clock(struct group *g);
bool group_append(struct group *g, enum raft_kind kind, bytes payload, u64 stamp_ms);
bool group_propose_at(struct group *g, enum raft_kind kind, bytes payload, u64 stamp_ms);
u64 group_time(const struct group *g);
bool group_leads(const struct group *g);                       /* and may propose */
bool group_apply(struct group *g, const struct raft_entry *e); /* false: not yet */
void group_send_numbers(struct group *g, u64 to, enum group_frame type, const u64 numbers[4]);

/* group_sleep.c */
void group_rouse(struct group *g); /* there is work for this member */
void group_try_sleep(struct group *g); /* after each tick */
void group_on_sleep(struct group *g, u64 from, u64 term, u64 index);
void group_on_word(struct group *g, u64 from, bytes message); /* rule 19, for any other message */

/* group_reads.c */
u64 group_read_index(struct group *g);
void group_confirm(struct group *g, const struct raft_read_state *s);
void group_fail_reads(struct group *g);
bool group_owes_reads(const struct group *g); /* to this member's clients */
void group_ask(struct group *g, struct group_wish *w);
void group_end_wish(struct group *g, size_t i, bool ok);
void group_check_wishes(struct group *g);
void group_on_read_request(struct group *g, u64 from, u64 nonce, u64 id);
void group_on_read_reply(struct group *g, u64 nonce, u64 id, u64 index, u64 clock_ms);

/* group_merge.c */
bool group_is_void(const struct group *g, const struct raft_command *c); /* it changes nothing */
bool group_waits_for_source(const struct group *g, const struct raft_entry *e);
void group_wait_for_source(struct group *g, const struct raft_entry *entries, size_t n); /* keeps them */
void group_retry_waiting(struct group *g);
void group_drop_waiting(struct group *g);
void group_apply_merge(struct group *g, const struct raft_command *c);

#endif
