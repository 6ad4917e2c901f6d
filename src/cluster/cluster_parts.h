/* The inside of a node's part of the cluster: for the files of this folder that need more than cluster.h. */
#ifndef MAYFLY_CLUSTER_CLUSTER_PARTS_H
#define MAYFLY_CLUSTER_CLUSTER_PARTS_H

#include "cluster/batch.h"
#include "cluster/cluster.h"
#include "cluster/cluster_log.h"
#include "cluster/cluster_map.h"
#include "cluster/peer_id.h"
#include "cluster/region_rules.h"
#include "server/server.h"

struct message_head;

struct cluster {
    struct server *server;
    struct bus *bus;
    struct cluster_logs *logs;
    u64 number;                 /* of the cluster; 0: not known yet */
    struct cluster_node *nodes; /* this one first */
    bool unsaved;               /* the engine has not got them yet … */
    bool unsaved_regions, unsaved_tombstones; /* … nor some of these */
    bool other_format;                        /* what was stored is of another version of this program */
    struct cluster_map map;                   /* the regions of the cluster, as region 0's log has them */
    struct region_tombstone *tombstones;      /* of members that this node had */
    u32 tombstones_n, tombstones_cap;
    struct member **members; /* of the regions of this node, by number: that of region 0 first */
    u32 members_n, members_cap;
    u32 awake_n;                /* members whose groups do not sleep */
    u32 swept;                  /* of members: looked at last although it slept */
    u64 nonce;                  /* of this process, for beats; never 0 */
    u64 raft_ticks;             /* of Raft; beats are timed by them */
    u64 news;                   /* what may concern regions that sleep, as of the last look */
    struct member *stirred;     /* those whose groups had something to do: a list by stirred_next */
    struct member *untold;      /* those whose groups may owe others a word: a list by untold_next */
    struct member *ticking;     /* those that this tick has begun: a list by ticking_next */
    struct member *reclaiming;  /* of which a slice is reclaimed; NULL: none */
    struct member_joint *joint; /* what this tick's requests for all regions wait for; NULL: there was none */
    u32 flying;                 /* members with an entry in flight */
    bool wants_all;             /* a request for all regions waits until none has */
    struct heap dues;           /* led regions by their nearest deadline: member.due */
    bool started;               /* the groups run */
    bool moved_on;              /* see cluster_moved_on */
    bool acked;                 /* a member, or this disk, may have more of the log than at the last look */
    struct batch batch;         /* of requests for the next entry, and its clock */
    uv_poll_t batch_timer;
    int batch_fd;
    uv_timer_t timer, tell_timer;
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
    i64 autosplit_ms;  /* when the sizes of regions were last looked at, by the loop's time … */
    i64 load_ms;       /* … and when this period of counting requests began */
    i64 schedule_ms;   /* when to look at the regions' members and leaders next, by the loop's time */
    bool leads_meta;   /* as of the last look: nodes had time to report since */
    i64 report_ms;     /* when to report at the latest, by the loop's time … */
    i64 report_all_ms; /* … and when all regions that this node leads */
    u64 reported_to;   /* the number of the node that got the last report */
    bool merges;       /* a merge is wished, prepared, or waits to be applied: cluster_merge_step looks */
    u32 merged_n;      /* of the tombstones: those of merges */
    i64 merge_ask_ms;  /* when others were last asked what became of regions, by the loop's time … */
    u64 merge_asked;   /* … and how often */
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
    i64 leave_until_ms;         /* shutting down: how long to wait for other leaders; 0: not */
    u64 leave_bytes_in;         /* what clients had sent at the last look … */
    i64 leave_heard_ms;         /* … and when there was more than before */
    u32 leave_how;
    char moved[400]; /* text of the last MOVED */
};

u64 cluster_node_number(const char *id);

/* cluster_members.c */
/* The member of this node that a message is for, made if need be; NULL: it is ignored. */
struct member *cluster_addressee(struct cluster *c, const struct message_head *h);
enum region_split cluster_split_fate(const struct cluster *c, u64 child, u64 peer);
bool cluster_may_install(const struct cluster *c, const struct member *m, const struct raft_applied *at);
/* All members but that of region 0. */
struct regions_here cluster_here(const struct cluster *c, struct region_here *members);
bool cluster_members_used(const struct cluster *c); /* none may be taken away just now */
void cluster_destroy_superseded(struct cluster *c); /* rule 9: after a snapshot has come */
struct region_tombstone *cluster_add_tombstone(struct cluster *c, u64 region, u64 peer);
void cluster_release_region(struct cluster *c, struct region *r); /* out of the map; its member is closed */
void cluster_bury(struct member *m);       /* it was removed: its data and log go, when nothing uses them */
void cluster_bury_step(struct cluster *c); /* now and then: those that are to go; looks at the map for more */
/* Whether a message's sender was removed from the region, and is told so. */
bool cluster_is_stale(struct member *m, u64 from);
void cluster_drop_slots(struct cluster *c,
                        const struct rocks_region *of); /* that belong to CLUSTER_NO_REGION */
void cluster_discard_slots(struct member *m,
                           const struct rocks_region *child); /* of a split: nobody's here */
void cluster_empty_discarded(struct cluster *c); /* at start: what cluster_discard_slots has not finished */
void cluster_sweep_logs(struct cluster *c);      /* at start: of members that were destroyed */
void cluster_drop_member(struct member *m);      /* takes it out of the cluster's lists, and frees it */

/* cluster_merge.c */
void cluster_add_merged(struct cluster *c, u64 region, u64 into, u32 version);
bool cluster_is_merged(const struct cluster *c, u64 region);         /* as far as is known here */
void cluster_print_merged(const struct cluster *c, struct buf *out); /* all tombstones of merges, as lines */
void cluster_learn_merged(struct cluster *c, bytes lines);
bool cluster_was_merged(struct cluster *c, const struct message_head *h); /* then the sender is told */
void cluster_merge_asked(struct cluster *c, const char *from, bytes body);
void cluster_merge_answered(struct cluster *c, bytes body);
bool cluster_source_ready(struct member *m, const struct raft_merge_commit *commit);
void cluster_take_source(struct member *m, const struct raft_applied *at,
                         const struct raft_merge_commit *commit);
void cluster_merge_step(struct cluster *c, u64 ticks);    /* when nothing else of the cluster is under way */
const char *cluster_merge(struct cluster *c, u64 region); /* CLUSTER MERGE */
const char *cluster_merge_into(struct member *s, u64 into); /* a step of the scheduler, on its leader */
void cluster_take_wish(struct cluster *c, bytes body);

/* cluster_report.c */
void cluster_report_step(struct cluster *c); /* now and then */
void cluster_take_report(struct cluster *c, const char *from, bytes lines);
void cluster_take_regions(struct cluster *c, bytes lines);   /* an entry of region 0's log */
bool cluster_has_regions(const struct cluster *c, u64 node); /* whether any but region 0 has a member there */

/* cluster_regions.c */
#define CLUSTER_NO_REGION UINT64_MAX /* takes slots that no region has here, until they are emptied */
/* The member of region 0, whose log says who belongs to the cluster. Those of slots follow it. */
static inline struct member *cluster_meta(const struct cluster *c) { return c->members[0]; }
static inline struct member *cluster_first(const struct cluster *c)
{
    return c->server->node.regions.first->member;
}
static inline u32 cluster_slots_regions(const struct cluster *c) { return c->members_n - 1; }
static inline bool cluster_is_meta(const struct member *m) { return m->number == CLUSTER_META; }
struct member *cluster_member_of(const struct cluster *c, u64 region); /* NULL: none here */
struct member *cluster_at_slot(const struct cluster *c, u32 slot);     /* NULL: no region with data here */
struct member *cluster_new_member(struct cluster *c, u64 number, struct region *r, u64 peer);
bool cluster_open_regions(struct cluster *c); /* all that are stored, at start */
void cluster_make_regions(struct cluster *c); /* a new cluster: splits region 1 into cluster-regions */
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
void cluster_schedule_step(struct cluster *c);         /* on region 0's leader, now and then */
void cluster_take_step(struct cluster *c, bytes body); /* on a region's leader */

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
#define ELECTION_TICKS 10
void cluster_start_time(struct cluster *c);
void cluster_stop_time(struct cluster *c);
void cluster_awake(struct member *m, bool awake); /* its group wakes, or falls asleep: the timer visits it */
void cluster_on_beat(struct cluster *c, struct cluster_node *n, bytes nonce);
void cluster_on_closed(uv_handle_t *h); /* one of the cluster's own handles: the last one frees it */
void cluster_tell_later(struct member *m); /* its group has committed: others are told, soon */
void cluster_note_due(struct member *m, bool leads); /* a member's nearest deadline may have changed */

/* cluster_install.c */
void install_begin(struct member *m, const struct raft_applied *at); /* of the file that has come */
void install_resume(struct cluster *c); /* at start: what was under way when the node ended */
void install_stop(struct member *m);
void install_erase(struct member *m, struct engine *e); /* in the transaction that destroys the member */

/* cluster_join.c */
void cluster_join_step(struct cluster *c);  /* on a node that is not a member yet */
void cluster_admit_step(struct cluster *c); /* on region 0's leader: its voters; nodes that leave */
bool cluster_meta_votes(const struct cluster *c, u64 peer);
void cluster_meta_give_vote(struct cluster *c, u64 peer); /* in place of another voter, not the leader */
const struct bus_conn_ops *cluster_join_ops(void);
bool cluster_is_member(const struct cluster *c, const struct cluster_node *n); /* of the cluster */
bool member_has(const struct member *m, u64 node);        /* the node has a member of the region */
u64 conf_peer_on(const struct raft_conf *conf, u64 node); /* the member on that node; 0: none */
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
void check_on_digest(struct cluster *c, u64 node, bytes body);
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
