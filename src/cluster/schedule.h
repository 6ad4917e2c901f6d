/* The scheduler: decides which steps give every region enough members on live nodes, evenly spread. It is a
 * pure function of a table. The leader of region 0 fills the table about twice a second, calls schedule() and
 * sends the steps to the regions' leaders. A leader refuses a step that is late or impossible (raft/group.h);
 * it is then decided again.
 *
 *     struct schedule_step steps[16];
 *     size_t n = schedule(&table, steps, 16);
 *
 * There is at most one step per region, and none for a region with a change in progress or an unknown leader.
 * In order of priority:
 *   1  Replace members whose node is dead or is being removed: add a learner, and when it has caught up let
 *      it take the member's place by one change of members. If no node can take it, a member on a node that
 *      is being removed is just removed; a member on a dead node stays, as it costs nothing and may return.
 *   2  Add voters to a region with too few, remove them from one with too many.
 *   3  Split a region that is too large.
 *   4  Move members from nodes with more to nodes with fewer, until no two nodes differ by more than one.
 *   5  Transfer leaderships until no two nodes differ by more than one, as far as members allow.
 *   6  Merge a small region into a neighbour, if both together are far from being split again. First move its
 *      members to the nodes of the neighbour. Regions that are to be merged are exempt from 4 and 5. Only a
 *      few are merged at a time.
 *
 * It does not oscillate: a move in progress counts as done, and each move makes the numbers more even. */
#ifndef MAYFLY_CLUSTER_SCHEDULE_H
#define MAYFLY_CLUSTER_SCHEDULE_H

#include "raft/group.h"

struct schedule_node {
    u64 node;      /* its number in peer ids (peer_id.h) */
    u64 heard_ms;  /* when its last report arrived; for a new leader of region 0: now */
    bool away;     /* can't be reached at the moment: it gets nothing */
    bool draining; /* it is being removed */
};

struct schedule_region {
    u64 region;
    struct raft_slots slots;
    u64 leader; /* peer id; 0: unknown */
    u64 voters[RAFT_MEMBERS_MAX], learners[RAFT_MEMBERS_MAX];
    u32 voters_n, learners_n;
    bool changing; /* a change of members, a split or a merge is in progress */
    u64 bytes, load;
    bool merging; /* prepared for a merge */
    bool settled; /* its slots have not changed for a while, so its size and load are known */
};

struct schedule_table {
    u64 now_ms;
    const struct schedule_node *nodes;
    size_t nodes_n;
    const struct schedule_region *regions;
    size_t regions_n;

    u32 voters;         /* per region, if there are as many nodes (cluster-replicas) */
    u64 dead_after_ms;  /* milliseconds of silence (cluster-node-dead-after) */
    u64 split_bytes;    /* split larger regions; 0: none */
    u64 merge_bytes;    /* merge smaller regions; 0: none … */
    u64 merged_bytes, merged_load; /* … unless both together have more than this; 0: no limit … */
    u32 regions_min;    /* … as long as there are more than this … */
    u32 merges_max;     /* … and at most this many at a time */
    bool uneven;        /* skip rules 4 and 5 (cluster-balance no) */
    u32 moves_max;      /* maximum number of learners that catch up, in total … */
    u32 moves_node_max; /* … and on one node */
};

enum schedule_kind {
    SCHEDULE_ADD,      /* a learner on `node` */
    SCHEDULE_PROMOTE,  /* the learner `peer`, and remove `gone` with the same change if not 0 */
    SCHEDULE_REMOVE,   /* `gone` */
    SCHEDULE_TRANSFER, /* leadership to `peer` */
    SCHEDULE_SPLIT,    /* at a slot that its leader chooses */
    SCHEDULE_MERGE     /* into the region `into`, its neighbour */
};

struct schedule_step {
    enum schedule_kind kind;
    u64 region, node, peer, gone, into;
    char reason[120];
};

size_t schedule(const struct schedule_table *t, struct schedule_step *out, size_t out_max);

#endif
