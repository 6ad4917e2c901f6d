/* The inside of a node's part of the cluster: for cluster.c, cluster_join.c and cluster_tick.c. */
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
    struct raft_log *log;
    u64 number;                 /* of the cluster; 0: not known yet */
    struct cluster_node *nodes; /* this one first */
    bool unsaved;               /* the engine has not got them yet */
    struct member member;
    bool started;               /* the group runs */
    bool moved_on;              /* see cluster_moved_on */
    bool led;                   /* at the last look … */
    u64 leader;                 /* … and who did */
    bool acked;                 /* a member, or this disk, may have more of the log than at the last look */
    u64 next_index, next_index_tick; /* cluster_next_index as of this tick */
    struct batch batch;         /* of requests for the next entry, and its clock */
    uv_poll_t batch_timer;
    int batch_fd;
    uv_timer_t timer;
    uv_timer_t check_timer;     /* slices of a digest */
    struct cluster_check *check; /* the last one; NULL: there was none */
    i64 checked_ms;             /* when the last one began, or this node was started, by the loop's time */
    u64 checks, digest_mismatches;
    u64 diverged;               /* where this node's data was found to differ; 0: it was not */
    uv_prepare_t prepare;
    u64 ticks;                  /* of the timer */
    u64 clock_looked_ms;        /* when it was last looked whether the region's clock must move */
    i64 timer_ms;               /* when it last ran, by the loop's time */
    struct snapshot_out *out;   /* snapshot.c: what goes out; NULL: nothing … */
    struct snapshot_in *in;     /* … and what comes in */
    struct {
        u64 sent, failed, installed; /* failed: to be sent, or to be received */
        u64 bytes_out, bytes_in;
    } snapshots;
    u64 unsent[2 * RAFT_MEMBERS_MAX]; /* members to which none could be sent: the group has to be told */
    u32 unsent_n;
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
    i64 leave_until_ms;         /* shutting down: how long to wait for another leader; 0: not */
    u64 leave_bytes_in;         /* what clients had sent at the last look … */
    i64 leave_heard_ms;         /* … and when there was more than before */
    u32 leave_how;
    char moved[320];            /* text of the last MOVED */
};

u64 cluster_peer_of(const char *id); /* a node's number in Raft */

/* cluster_join.c */
void cluster_join_step(struct cluster *c);  /* on a node that is not a member yet */
void cluster_admit_step(struct cluster *c); /* on the leader: learners become voters */
const struct bus_conn_ops *cluster_join_ops(void);
bool cluster_is_member(const struct cluster *c, u64 peer);
void cluster_forget_for(struct cluster *c, const char *from, bytes id); /* a node passes CLUSTER FORGET on */

/* cluster_batch.c */
void cluster_open_batch(struct cluster *c);
void cluster_close_batch(struct cluster *c);

/* cluster_expiry.c */
void cluster_expiry_step(struct cluster *c);      /* now and then: tells the group whether to log deaths */
void cluster_expire_with_tick(struct cluster *c); /* deaths that become part of the tick's entry */
void cluster_end_expiry(struct cluster *c);       /* a slice of the cycle has run: it is proposed */

/* cluster_check.c */
const char *cluster_check(struct cluster *c); /* CLUSTER CHECK: an error, or NULL */
void check_on_digest(struct cluster *c, u64 from, bytes body);
void check_on_differs(struct cluster *c, bytes body);
void check_step(struct cluster *c); /* now and then */
void check_info(const struct cluster *c, struct buf *b);
void check_stop(struct cluster *c);
void cluster_diverged(struct cluster *c, u64 index); /* this node's data was found to differ */

/* cluster_recover.c: obeys cluster-recover, if it is given. False: the node may not start. */
bool cluster_recover(struct cluster *c);

/* Makes what a node that has never been in a cluster needs. False: the log says what is missing. */
bool cluster_make_identity(struct cluster *c);
bool cluster_load_identity(struct cluster *c); /* false: there is none */

#endif
