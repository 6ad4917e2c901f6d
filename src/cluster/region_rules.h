/* Rules between the regions of one node, and for members that were removed while they could not be reached.
 * They are pure functions, so that the server and the simulator (tests/sim) run the same code. The rules that
 * make one group safe are in raft/group.h.
 *
 *   1  A node has at most one member of a region, and the data of a slot belong to at most one member.
 *   2  A removed member is destroyed with its data and log, and leaves a tombstone: its number is never used
 *      again. The members that a region has had on one node have increasing numbers (peer_id.h). So a
 *      tombstone covers all numbers up to its own, and a message to a greater number than that of the
 *      existing member proves that the existing member was removed.
 *   3  A message to a member that does not exist creates it, without data, unless its number has a tombstone
 *      or its slots belong to another member on this node. In that case either a split that this node has yet
 *      to apply will create it, or the other member must first learn that it was removed.
 *   4  A snapshot is installed only if its slots belong to no other member of this node. It replaces the
 *      member's data in the slots it had before and in the slots of the snapshot.
 *   5  A split creates the child's member. If it exists already, without data, it gets data and keeps its
 *      log, which may contain a vote. If the child's member was removed already, the data of the child's
 *      slots are deleted.
 *   6  A configuration that does not contain a member, and is newer than the one under which it was added,
 *      proves that it was removed, if another member or the map of region 0 says so. A member that receives
 *      nothing for a while asks, because one that does not vote would wait for its last leader for ever.
 *   7  A member that applies its own removal stays until others tell it to go: they may crash before they
 *      have stored that the removal was committed, and then need the votes of the previous configuration.
 *   8  A region that was merged into another leaves a tombstone of all its members, with the target and the
 *      version that the target had then. A node that has the data of a slot in some version has the
 *      tombstones of all earlier merges in that slot's history: all tombstones of merges are sent with each
 *      snapshot, and in each reply to a member that asks about, or sends a message from, a region that has
 *      one.
 *   9  A member whose region has such a tombstone is destroyed when the target's member on this node has no
 *      data, has that version or a later one, or is itself to be destroyed by this rule, or does not exist.
 *      Before that the target's member may need it to apply the merge. A snapshot that brings the target that
 *      far is installed over such members, and destroys them in the same step.
 *  10  If a node sees a target in a later version than that of its PREPARE, or merged into another region,
 *      and has no tombstone of the source, the target has not taken the source over and never will (rule 14
 *      of raft/merge.h). */
#ifndef MAYFLY_CLUSTER_REGION_RULES_H
#define MAYFLY_CLUSTER_REGION_RULES_H

#include "raft/group.h"

/* A member on this node. */
struct region_here {
    u64 region, peer;
    bool has_data;           /* or is installing a snapshot */
    struct raft_slots slots; /* of its data, and of the snapshot that it is installing */
    u32 version;             /* of its data; 0: it has none */
};

struct region_tombstone {
    u64 region, peer; /* the greatest */
    u64 into;         /* the region was merged into this one: the tombstone covers all its members; or 0 */
    u32 version;      /* of the target after that */
};

struct regions_here {
    const struct region_here *members;
    size_t members_n;
    const struct region_tombstone *tombstones;
    size_t tombstones_n;
};

enum region_message {
    REGION_DELIVER, /* to the existing member */
    REGION_CREATE,  /* create the member, without data, then deliver */
    REGION_REPLACE, /* the existing member was removed: destroy it, then call again */
    REGION_IGNORE
};
/* What to do with a message to member `to` of a region. `slots`: the sender's; NULL: it has no data. */
enum region_message rules_message(const struct regions_here *h, u64 region, u64 to,
                                   const struct raft_slots *slots);

/* Whether a snapshot with these slots may be installed by the member of this region: no other member has data
 * there … */
bool rules_may_install(const struct regions_here *h, u64 region, struct raft_slots slots);
/* … unless rule 9 destroys it when the snapshot, of this version, is installed. */
bool rules_may_install_over(const struct regions_here *h, u64 region, struct raft_slots slots, u32 version);

/* Rule 8: the tombstone of a merged region; NULL: this node does not know that it was merged. */
const struct region_tombstone *rules_merged(const struct regions_here *h, u64 region);
/* Rule 9: whether this node's member of the region must be destroyed. */
bool rules_superseded(const struct regions_here *h, u64 region);
/* Rule 10: whether this node knows that the target, which prepared in this version, will never take the
 * source over. */
bool rules_merge_refused(const struct regions_here *h, u64 source, u64 target, u32 version);

enum region_split {
    REGION_SPLIT_MAKE,      /* create the child's member, with an empty log */
    REGION_SPLIT_TAKE_OVER, /* the member exists, without data: keep its log */
    REGION_SPLIT_DISCARD    /* no member: delete the data of the child's slots */
};
/* What a split does on this node. `peer`: the number of the parent's member here, and of the child's. */
enum region_split rules_split(const struct regions_here *h, u64 child, u64 peer);

/* Whether this configuration, of that conf_ver, proves that a member was removed. */
bool rules_removed(u64 peer, u32 conf_ver, const struct raft_conf *conf);
/* Whether all members of two regions are voters, on the same nodes. */
bool rules_same_nodes(const struct raft_conf *a, const struct raft_conf *b);
/* Whether a configuration contains a member, in any role. */
bool rules_has_peer(const struct raft_conf *conf, u64 peer);

#endif
