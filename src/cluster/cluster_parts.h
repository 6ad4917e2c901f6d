/* Internals of cluster mode, for the files of this folder that need more than cluster.h. */
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
    bool unsaved;               /* the nodes have changed since they were written to the engine … */
    bool unsaved_regions, unsaved_tombstones; /* … and so have some of these */
    bool other_format;                        /* the stored state is of another version of this program */
    struct cluster_map map;                   /* the regions of the cluster, as region 0's log has them */
    struct region_tombstone *tombstones;      /* of members that this node had */
    u32 tombstones_n, tombstones_cap;
    struct member **members; /* of the regions of this node, by number: that of region 0 first */
    u32 members_n, members_cap;
    u32 awake_n;                /* members whose groups do not sleep */
    u32 swept;                  /* index of the sleeping member that was woken last, in turn */
    u64 nonce;                  /* of this process, for beats; never 0 */
    u64 raft_ticks;             /* ticks of Raft, by which beats are timed */
    u64 news;                   /* changes that sleeping regions must notice, as of the last check */
    struct member *stirred;     /* those whose groups had something to do: a list by stirred_next */
    struct member *untold;      /* those whose groups may owe others a word: a list by untold_next */
    struct member *saved_later; /* those with entries that are stored soon: a list by saved_later_next */
    struct member *to_report;   /* those of which there may be news: a list by to_report_next */
    struct member *to_look;     /* those whose size is to be looked at: a list by to_look_next */
    bool may_bury;              /* since the last look a member may have become one that goes */
    struct member *ticking;     /* those that this tick has begun: a list by ticking_next */
    struct member *reclaiming;  /* of which a slice is reclaimed; NULL: none */
    struct member_joint *joint; /* what this tick's requests for all regions wait for; NULL: there was none */
    u32 flying;                 /* members with an entry in flight */
    bool wants_all;             /* a request for all regions waits until no member has one */
    struct heap dues;           /* led regions by their nearest deadline: member.due */
    bool started;               /* the groups run */
    bool moved_on;              /* see cluster_moved_on */
    bool acked;                 /* a member, or this disk, may have more of the log than at the last look */
    struct batch batch;         /* waiting for requests for the next entry, and its timer */
    uv_poll_t batch_timer;
    int batch_fd;
    uv_timer_t timer, tell_timer, save_timer;
    uv_timer_t feed_timer, install_timer; /* the next piece of a snapshot is to be sent, or loaded */
    u64 checks, digest_mismatches;
    u64 diverged;               /* the index at which this node's data was found to differ; 0: it does not */
    uv_prepare_t prepare;
    uv_idle_t awake;            /* it runs once more before the loop sleeps */
    u32 handles;                /* of these: the loop still knows them */
    u64 ticks;                  /* of the timer */
    u64 clock_looked_ms;        /* when regions' clocks were last checked for due deadlines */
    i64 timer_ms;               /* when the timer last ran, by the loop's time */
    i64 beat_us;                /* when the last beats were sent */
    struct snapshot_out *out;   /* snapshot.c: the snapshot being sent; NULL: none … */
    struct snapshot_in *in;     /* … and the one being received */
    struct cluster_install *installs; /* those that are installed, the oldest first: by their next */
    struct {
        u64 sent, failed, installed; /* failed: at either end */
        u64 bytes_out, bytes_in;
    } snapshots;
    i64 autosplit_ms;  /* when the sizes of regions were last looked at, by the loop's time … */
    u64 look_limit;    /* … and what they might be … */
    u32 looked;        /* … of members: the last whose turn it was */
    i64 load_ms;       /* … and when this period of counting requests began */
    i64 schedule_ms;   /* when the scheduler runs next, by the loop's time */
    bool leads_meta;   /* it led region 0 at the last check, so nodes had time to report since */
    i64 report_ms;     /* when to report at the latest, by the loop's time … */
    i64 report_all_ms; /* … and when to report all regions that this node leads */
    u64 reported_to;   /* the number of the node that got the last report */
    bool merges;       /* a merge is requested, prepared, or waits to be applied: for cluster_merge_step */
    u32 merged_n;      /* how many of the tombstones are of merges */
    i64 merge_ask_ms;  /* when other nodes were last asked about merges, by the loop's time … */
    u64 merge_asked;   /* … and how often */
    i64 full_until_ms;          /* leadership was given up because of a full disk: not again until then */
    struct bus_conn *join;      /* the call that asks to join; NULL: none */
    bool join_answered;         /* … got its reply */
    i64 join_logged_ms;         /* when it was logged that it did not; 0: never */
    u32 join_next;              /* which of the addresses is asked next */
    char meet_host[256];        /* CLUSTER MEET: the node to ask; "": none */
    int meet_port;              /* of its bus */
    char ask_host[256];         /* where the leader is, as another node said; "": unknown */
    int ask_port;
    char forgotten[16][BUS_NODE_ID + 1]; /* nodes that have left, the last of them */
    u32 forgotten_next;
    i64 leave_until_ms;         /* shutting down: how long to wait for other leaders; 0: it is not */
    u64 leave_bytes_in;         /* bytes clients had sent at the last check … */
    i64 leave_heard_ms;         /* … and when they last sent more */
    u32 leave_how;
    char moved[400]; /* text of the last MOVED */
};

u64 cluster_node_number(const char *id);
/* Sends what there is for other nodes, and has the log's thread sync what is to be synced. */
void cluster_flush(struct cluster *c);

/* cluster_members.c */
/* This node's member that a message is for, created if necessary; NULL: ignore the message. */
struct member *cluster_addressee(struct cluster *c, const struct message_head *h);
enum region_split cluster_split_fate(const struct cluster *c, u64 child, u64 peer);
bool cluster_may_install(const struct cluster *c, const struct member *m, const struct raft_applied *at);
/* All members but that of region 0. */
struct regions_here cluster_here(const struct cluster *c, struct region_here *members);
bool cluster_members_used(const struct cluster *c); /* code is using one, so none may be destroyed */
void cluster_destroy_superseded(struct cluster *c); /* rule 9: after a snapshot has arrived */
struct region_tombstone *cluster_add_tombstone(struct cluster *c, u64 region, u64 peer);
void cluster_release_region(struct cluster *c, struct region *r); /* out of the map; its member is closed */
void cluster_bury(struct member *m);       /* it was removed: destroy it when no code uses it */
void cluster_bury_step(struct cluster *c); /* periodically: destroys those, and finds more in the map */
/* Whether a message's sender was removed from the region; if so, it gets a message that says so. */
bool cluster_is_stale(struct member *m, u64 from);
void cluster_drop_slots(struct cluster *c,
                        const struct rocks_region *of); /* that belong to CLUSTER_NO_REGION */
void cluster_discard_slots(struct member *m,
                           const struct rocks_region *child); /* of a split, without a member on this node */
void cluster_empty_discarded(struct cluster *c); /* at start: what cluster_discard_slots has not finished */
void cluster_sweep_logs(struct cluster *c);      /* at start: of members that were destroyed */
void cluster_drop_member(struct member *m);      /* removes it from the cluster's lists, and frees it */

/* cluster_merge.c */
void cluster_add_merged(struct cluster *c, u64 region, u64 into, u32 version);
bool cluster_is_merged(const struct cluster *c, u64 region);         /* as far as this node knows */
void cluster_print_merged(const struct cluster *c, struct buf *out); /* all tombstones of merges, as lines */
void cluster_learn_merged(struct cluster *c, bytes lines);
bool cluster_was_merged(struct cluster *c, const struct message_head *h); /* then it tells the sender */
void cluster_merge_asked(struct cluster *c, const char *from, bytes body);
void cluster_merge_answered(struct cluster *c, bytes body);
bool cluster_source_ready(struct member *m, const struct raft_merge_commit *commit);
void cluster_take_source(struct member *m, const struct raft_applied *at,
                         const struct raft_merge_commit *commit);
void cluster_merge_step(struct cluster *c, u64 ticks);    /* when no other code of the cluster is running */
const char *cluster_merge(struct cluster *c, u64 region); /* CLUSTER MERGE */
const char *cluster_merge_into(struct member *s, u64 into); /* a step of the scheduler, on its leader */
void cluster_take_wish(struct cluster *c, bytes body);

/* cluster_report.c */
void cluster_report_step(struct cluster *c); /* now and then */
void cluster_note_news(struct member *m);    /* it may lead, or be in another epoch than before */
void cluster_take_report(struct cluster *c, const char *from, bytes lines);
void cluster_take_regions(struct cluster *c, bytes lines);   /* an entry of region 0's log */
bool cluster_has_regions(const struct cluster *c, u64 node); /* whether any but region 0 has a member there */

/* cluster_regions.c */
#define CLUSTER_NO_REGION UINT64_MAX /* has slots that no region here has, until they are emptied */
/* The member of region 0, whose log contains the nodes of the cluster. The regions with slots follow it. */
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
void cluster_end_part(struct member *m); /* of a tick, before an entry of rule 12 (raft/group.h) */

/* cluster_schedule.c */
void cluster_schedule_step(struct cluster *c);         /* on region 0's leader, now and then */
i64 schedule_silence_ms(const struct cluster *c, const struct cluster_node *n); /* no report, or no beat */
void cluster_take_step(struct cluster *c, bytes body); /* on a region's leader */

/* cluster_autosplit.c */
void cluster_autosplit_step(struct cluster *c); /* splits regions that are too large, or too busy */
void cluster_autosplit_note(struct member *m);  /* its size may have changed */
void cluster_autosplit_sample(struct member *m, u16 slot);
/* For each request: counts it, and samples its slot now and then. */
static inline void cluster_autosplit_count(struct member *m, i32 slot)
{
    m->requests++;
    if (UNLIKELY(m->sample_in-- == 0) && slot >= 0) cluster_autosplit_sample(m, (u16)slot);
}

/* cluster_time.c */
#define HELD_BYTES (4u << 20) /* what so many bytes pass through may take long: cluster_held */
#define ELECTION_TICKS 10
void cluster_start_time(struct cluster *c);
void cluster_stop_time(struct cluster *c);
void cluster_save(struct cluster *c); /* what regions have applied since the loop last slept */
void cluster_awake(struct member *m, bool awake); /* its group wakes, or falls asleep: the timer visits it */
void cluster_on_beat(struct cluster *c, struct cluster_node *n, bytes beat);
void cluster_on_part(struct cluster *c, struct cluster_node *n); /* of a long message */
/* How long the node has not been heard, by this node's ticks. Every node hears every other one, so a new
 * leader of region 0 knows it at once, while reports reach only the leader. */
i64 cluster_silence_ms(const struct cluster *c, const struct cluster_node *n);
void cluster_on_closed(uv_handle_t *h); /* one of the cluster's own handles: the last one frees it */
void cluster_tell_later(struct member *m); /* its group has committed: it is announced soon */
void cluster_note_due(struct member *m, bool leads); /* a member's nearest deadline may have changed */

/* cluster_install.c */
#define INSTALLS_MAX 2 /* at a time on a node: one is loaded while another one arrives, or waits */
void install_begin(struct member *m, const struct raft_applied *at); /* of the file that was received */
void install_on_timer(uv_timer_t *t);
bool install_is_busy(const struct cluster *c); /* there are as many as may be */
void install_info(const struct cluster *c, struct buf *b);
void install_resume(struct cluster *c); /* at start: those that were in progress when the node ended */
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
void cluster_forget_for(struct cluster *c, const char *from, bytes id); /* forwarded by a node */

/* cluster_batch.c */
void cluster_open_batch(struct cluster *c);
void cluster_close_batch(struct cluster *c);

/* cluster_expiry.c */
void cluster_expiry_step(struct member *m);      /* periodically: turns logged expiry on or off */
void cluster_expire_with_tick(struct member *m); /* expiry that becomes part of the tick's entry */
void cluster_end_expiry(struct member *m);       /* a slice of the cycle has run: proposes it */

/* cluster_check.c */
const char *cluster_check(struct cluster *c); /* CLUSTER CHECK: an error, or NULL */
void check_on_digest(struct cluster *c, u64 node, bytes body);
void check_on_differs(struct cluster *c, bytes body);
void check_step(struct member *m); /* periodically */
void check_info(const struct cluster *c, struct buf *b);
void check_end_view(struct member *m); /* the data it reads is about to be split or replaced */
void check_stop(struct member *m);
void cluster_diverged(struct cluster *c, u64 index); /* this node's data was found to differ */

/* cluster_recover.c: executes cluster-recover, if it is given. False: the node may not start. */
bool cluster_recover(struct cluster *c);

/* Creates the identity of a node that has never been in a cluster. False: the log says what is missing. */
bool cluster_make_identity(struct cluster *c);
bool cluster_load_identity(struct cluster *c); /* false: there is none */

#endif
