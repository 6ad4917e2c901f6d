/* The inside of a node's part of the cluster: for the files of this folder that need more than cluster.h. */
#ifndef MAYFLY_CLUSTER_CLUSTER_PARTS_H
#define MAYFLY_CLUSTER_CLUSTER_PARTS_H

#include "cluster/batch.h"
#include "cluster/cluster.h"
#include "cluster/cluster_log.h"
#include "server/server.h"

struct cluster {
    struct server *server;
    struct bus *bus;
    struct cluster_logs *logs;
    u64 number;                 /* of the cluster; 0: not known yet */
    struct cluster_node *nodes; /* this one first */
    bool unsaved;               /* the engine has not got them yet */
    struct member **members;    /* of the regions of this node, by number: the first region's first */
    u32 members_n, members_cap;
    struct member *stirred;     /* those whose groups had something to do: a list by stirred_next */
    struct member *ticking;     /* those that this tick has begun: a list by ticking_next */
    struct member *reclaiming;  /* of which a slice is reclaimed; NULL: none */
    struct member_joint *joint; /* what this tick's requests for all regions wait for; NULL: there was none */
    u32 flying;                 /* members with an entry in flight */
    bool wants_all;             /* a request for all regions waits until none has */
    i64 clock_due_ms;           /* no led region has a deadline before this one; 0: not known */
    bool started;               /* the groups run */
    bool moved_on;              /* see cluster_moved_on */
    bool acked;                 /* a member, or this disk, may have more of the log than at the last look */
    struct batch batch;         /* of requests for the next entry, and its clock */
    uv_poll_t batch_timer;
    int batch_fd;
    uv_timer_t timer;
    u64 checks, digest_mismatches;
    u64 diverged;               /* where this node's data was found to differ; 0: it was not */
    uv_prepare_t prepare;
    uv_idle_t awake;            /* it runs once more before the loop sleeps */
    u32 handles;                /* of these four: the loop still knows them */
    u64 ticks;                  /* of the timer */
    u64 clock_looked_ms;        /* when it was last looked whether a region's clock must move */
    i64 timer_ms;               /* when it last ran, by the loop's time */
    struct snapshot_out *out;   /* snapshot.c: what goes out; NULL: nothing … */
    struct snapshot_in *in;     /* … and what comes in */
    struct {
        u64 sent, failed, installed; /* failed: to be sent, or to be received */
        u64 bytes_out, bytes_in;
    } snapshots;
    i64 scheduled_ms;           /* when leaders were last spread, by the loop's time */
    i64 autosplit_ms;           /* likewise: when the sizes of regions were last looked at … */
    i64 load_ms;                /* … and when this period of counting requests began */
    i64 full_until_ms;          /* leadership was handed on because the disk is full: not again until then */
    struct bus_conn *join;      /* the question that is under way; NULL: none */
    bool join_answered;         /* … was answered */
    i64 join_logged_ms;         /* when it was logged that it was not; 0: never */
    u32 join_next;              /* which of the addresses is asked next */
    char meet_host[256];        /* CLUSTER MEET: whom to ask; "": nobody */
    int meet_port;              /* of its bus */
    char ask_host[256];         /* where another node said the leader is; "": nowhere */
    int ask_port;
    char forgotten[16][BUS_NODE_ID + 1]; /* nodes that have left, the last of them */
    u32 forgotten_next;
    u64 removing, removing_term; /* the member that this leader was told to remove, and its term then */
    i64 leave_until_ms;         /* shutting down: how long to wait for other leaders; 0: not */
    u64 leave_bytes_in;         /* what clients had sent at the last look … */
    i64 leave_heard_ms;         /* … and when there was more than before */
    u32 leave_how;
    char moved[320];            /* text of the last MOVED */
};

u64 cluster_peer_of(const char *id); /* a node's number in Raft */

/* cluster_regions.c */
#define CLUSTER_NO_REGION UINT64_MAX /* takes slots that a region no longer has; never opened */
/* The first region's member: its log also says who belongs to the cluster. */
static inline struct member *cluster_first(const struct cluster *c) { return c->members[0]; }
struct member *cluster_member_of(const struct cluster *c, u64 region); /* NULL: none here */
struct member *cluster_at_slot(const struct cluster *c, u32 slot);     /* NULL: no region with data here */
struct member *cluster_new_member(struct cluster *c, u64 number, struct region *r);
bool cluster_open_regions(struct cluster *c); /* all that are stored but the first, at start */
void cluster_make_regions(struct cluster *c); /* a new cluster: splits the first into cluster-regions */
struct region *cluster_new_region(struct cluster *c, const struct rocks_region *of); /* opens its engine */
void cluster_unlink(struct cluster *c);      /* commands see one region, unless they ask for all */
void cluster_start_member(struct member *m); /* opens its log and its group */
void cluster_stir(struct member *m);         /* its group had something to do */
void cluster_before_split(struct member *m);
void cluster_add_child(struct member *m, const struct rocks_region *child, const struct raft_applied *at);
const char *cluster_split(struct cluster *c, u32 slot);                                /* CLUSTER SPLIT */
const char *cluster_transfer(struct cluster *c, u64 region, const char *id, size_t n); /* CLUSTER TRANSFER */

/* cluster_tick.c */
void cluster_end_part(struct member *m); /* of a tick, before an entry that no evaluation may be behind */

/* cluster_schedule.c */
void cluster_schedule_step(struct cluster *c); /* on the first region's leader, now and then */

/* cluster_autosplit.c */
void cluster_autosplit_step(struct cluster *c); /* splits regions that are too large, or too busy */
void cluster_autosplit_sample(struct member *m, u16 slot);
/* For each request: counts it, and notes the slot of some. */
static inline void cluster_autosplit_count(struct member *m, i32 slot)
{
    m->requests++;
    if (UNLIKELY(m->sample_in-- == 0) && slot >= 0) cluster_autosplit_sample(m, (u16)slot);
}

/* cluster_time.c */
void cluster_start_time(struct cluster *c);
void cluster_stop_time(struct cluster *c);
void cluster_on_closed(uv_handle_t *h); /* one of the cluster's own handles: the last one frees it */
i64 cluster_next_deadline(const struct member *m); /* of a region with data; INT64_MAX: none */

/* cluster_install.c */
void install_begin(struct member *m, const struct raft_applied *at); /* of the file that has come */
void install_resume(struct cluster *c); /* at start: what was under way when the node ended */
void install_stop(struct member *m);

/* cluster_join.c */
void cluster_join_step(struct cluster *c);  /* on a node that is not a member yet */
void cluster_admit_step(struct member *m);  /* on a leader: nodes become members, learners become voters */
const struct bus_conn_ops *cluster_join_ops(void);
bool cluster_is_member(const struct cluster *c, u64 peer); /* of the cluster */
bool member_has(const struct member *m, u64 peer);         /* of the region */
void cluster_forget_for(struct cluster *c, const char *from, bytes id); /* a node passes CLUSTER FORGET on */

/* cluster_batch.c */
void cluster_open_batch(struct cluster *c);
void cluster_close_batch(struct cluster *c);

/* cluster_expiry.c */
void cluster_expiry_step(struct member *m);      /* now and then: tells the group whether to log deaths */
void cluster_expire_with_tick(struct member *m); /* deaths that become part of the tick's entry */
void cluster_end_expiry(struct member *m);       /* a slice of the cycle has run: it is proposed */

/* cluster_check.c */
const char *cluster_check(struct cluster *c); /* CLUSTER CHECK: an error, or NULL */
void check_on_digest(struct cluster *c, u64 from, bytes body);
void check_on_differs(struct cluster *c, bytes body);
void check_step(struct member *m); /* now and then */
void check_info(const struct cluster *c, struct buf *b);
void check_end_view(struct member *m); /* what it reads is about to be split or replaced */
void check_stop(struct member *m);
void cluster_diverged(struct cluster *c, u64 index); /* this node's data was found to differ */

/* cluster_recover.c: obeys cluster-recover, if it is given. False: the node may not start. */
bool cluster_recover(struct cluster *c);

/* Makes what a node that has never been in a cluster needs. False: the log says what is missing. */
bool cluster_make_identity(struct cluster *c);
bool cluster_load_identity(struct cluster *c); /* false: there is none */

#endif
