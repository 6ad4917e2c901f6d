/* What is done to regions so that every one has enough members on nodes that live, spread evenly: a pure
 * function of a table. The leader of region 0 fills the table once a second, calls schedule() and has the
 * steps carried out by the regions' leaders. A step that comes too late or cannot be done is refused there
 * (raft/group.h) and comes again.
 *
 *     struct schedule_step steps[16];
 *     size_t n = schedule(&table, steps, 16);
 *
 * At most one step per region, none for a region whose change is under way or whose leader is unknown. What
 * comes first:
 *   1  A member that is to go, because its node is dead or is being removed, is replaced: a learner is added,
 *      and takes its place by one change of members when it has caught up. If there is no node to take it,
 *      a member of a node that is being removed just goes; that of a dead node stays, as it costs nothing and
 *      may come back.
 *   2  A region with too few voters gets more, one with too many fewer.
 *   3  A region that is too large is split.
 *   4  Members move from nodes with more to nodes with fewer, until no two nodes differ by more than one.
 *   5  Leaderships move until no two nodes differ by more than one, as far as members allow that.
 *   6  A small region is merged into a neighbour, if both together are far from being split again. First its
 *      members move to the nodes of that one. Regions that are to be merged are left out of 4 and 5. Few are
 *      at a time.
 *
 * It does not oscillate: a move under way counts as if it were done, and each move makes the numbers more
 * even than they were. */
#ifndef MAYFLY_CLUSTER_SCHEDULE_H
#define MAYFLY_CLUSTER_SCHEDULE_H

#include "raft/group.h"

struct schedule_node {
    u64 node;      /* its number in peer ids (peer_id.h) */
    u64 heard_ms;  /* when it was last heard from; for a leader of region 0 that is new: now */
    bool away;     /* can't be reached just now: nothing is given to it */
    bool draining; /* is being removed */
};

struct schedule_region {
    u64 region;
    struct raft_slots slots;
    u64 leader; /* peer id; 0: unknown */
    u64 voters[RAFT_MEMBERS_MAX], learners[RAFT_MEMBERS_MAX];
    u32 voters_n, learners_n;
    bool changing; /* a change of members, a split or a merge is under way */
    u64 bytes, load;
    bool merging; /* prepared for a merge */
    bool settled; /* its slots have been the same for a while, and so its size and load are known */
};

struct schedule_table {
    u64 now_ms;
    const struct schedule_node *nodes;
    size_t nodes_n;
    const struct schedule_region *regions;
    size_t regions_n;

    u32 voters;         /* a region's, if there are as many nodes (cluster-replicas) */
    u64 dead_after_ms;  /* without a word (cluster-node-dead-after) */
    u64 split_bytes;    /* larger regions are split; 0: none */
    u64 merge_bytes;    /* smaller regions are merged; 0: none … */
    u64 merged_bytes, merged_load; /* … unless both have more than this together; 0: whatever they have … */
    u32 regions_min;    /* … as long as there are more than this … */
    u32 merges_max;     /* … so many at a time */
    bool uneven;        /* rules 4 and 5 are left out (cluster-balance no) */
    u32 moves_max;      /* learners that catch up, in all … */
    u32 moves_node_max; /* … and on one node */
};

enum schedule_kind {
    SCHEDULE_ADD,      /* a learner on `node` */
    SCHEDULE_PROMOTE,  /* the learner `peer`, and remove `gone` with the same change if not 0 */
    SCHEDULE_REMOVE,   /* `gone` */
    SCHEDULE_TRANSFER, /* leadership to `peer` */
    SCHEDULE_SPLIT,    /* where its leader thinks best */
    SCHEDULE_MERGE     /* into the region `into`, its neighbour */
};

struct schedule_step {
    enum schedule_kind kind;
    u64 region, node, peer, gone, into;
    char reason[120];
};

size_t schedule(const struct schedule_table *t, struct schedule_step *out, size_t out_max);

#endif
