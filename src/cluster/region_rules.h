/* Rules between the regions of one node, and for members that were removed while they could not hear it.
 * Pure functions, so that the server and the simulator (tests/sim) run the same code. What makes one group
 * safe is in raft/group.h.
 *
 *   1  A node has at most one member of a region, and the data of a slot belong to at most one member.
 *   2  A member that was removed is destroyed, data and log, and leaves a tombstone: its number never speaks
 *      again. In the order of their numbers the members of a region on one node follow each other
 *      (peer_id.h). So a tombstone is one of every number up to its own, and a message to a greater number
 *      than that of the member here proves that the member here was removed.
 *   3  A message to a member that is not here makes it, without data, unless that number has a tombstone or
 *      its slots belong to a member here: then a split that is still to be applied here will make it, or the
 *      member here is to learn first that it was removed.
 *   4  A snapshot is installed only where its slots belong to no other member of this node. It replaces what
 *      the member had in its slots before and in the slots of the snapshot.
 *   5  A split finds the child's member absent and makes it; or finds it without data, gives it data and
 *      leaves its log, in which it may have promised a vote; or the child's member was removed already, and
 *      the data of the child's slots are deleted.
 *   6  A configuration that is newer than the one a member was added under and does not contain it proves
 *      that it was removed, if another member or the table of region 0 says so. A member that hears nothing
 *      for a while asks: one that does not vote believes in its last leader for ever.
 *   7  A member that applies its own removal stays until it is told: the others may crash before they have
 *      stored that it was committed, and then need the votes of the configuration before.
 *   8  A region that was merged into another leaves a tombstone of all its members, with the target and the
 *      version that the target had then. Who has the data of a slot in some version has the tombstones of all
 *      merges in the history of that slot before: they travel with snapshots, all of them, and with every
 *      answer to a member that asks or speaks for a region that has one.
 *   9  A member whose region has such a tombstone is destroyed when the target's member here, if there is one
 *      with data, has that version or a later one, or is to be destroyed by this rule itself. Before, the
 *      target's member may still need it to apply the merge. A snapshot that brings the target that far is
 *      installed over such members and destroys them in the same step.
 *  10  A target that is seen in a later version than it prepared in, or merged into another region, by one
 *      who has no tombstone of the source has not taken it over and never will (rule 14 of raft/merge.h). */
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
    u64 into;         /* the region was merged into this one, so that all its members are dead; or 0 */
    u32 version;      /* of the target after that */
};

struct regions_here {
    const struct region_here *members;
    size_t members_n;
    const struct region_tombstone *tombstones;
    size_t tombstones_n;
};

enum region_message {
    REGION_DELIVER, /* to the member that is here */
    REGION_CREATE,  /* make the member, without data, then deliver */
    REGION_REPLACE, /* the member here was removed: destroy it, then ask again */
    REGION_IGNORE
};
/* What becomes of a message to member `to` of a region. `slots`: the sender's; NULL: it has no data. */
enum region_message rules_message(const struct regions_here *h, u64 region, u64 to,
                                   const struct raft_slots *slots);

/* Whether a snapshot with these slots may be installed by the member of this region: no other member has data
 * there … */
bool rules_may_install(const struct regions_here *h, u64 region, struct raft_slots slots);
/* … unless rule 9 destroys it when the snapshot, of this version, is installed. */
bool rules_may_install_over(const struct regions_here *h, u64 region, struct raft_slots slots, u32 version);

/* Rule 8: the tombstone of a region that was merged; NULL: as far as is known here, it was not. */
const struct region_tombstone *rules_merged(const struct regions_here *h, u64 region);
/* Rule 9: whether the member of this region that is here is to be destroyed. */
bool rules_superseded(const struct regions_here *h, u64 region);
/* Rule 10: whether this node knows that the target, which prepared in this version, will never take the
 * source over. */
bool rules_merge_refused(const struct regions_here *h, u64 source, u64 target, u32 version);

enum region_split {
    REGION_SPLIT_MAKE,      /* the child's member, with a log that starts empty */
    REGION_SPLIT_TAKE_OVER, /* the member is here, without data: its log stays */
    REGION_SPLIT_DISCARD    /* no member: the data of the child's slots are deleted */
};
/* What a split of a region does here whose member has the number `peer`, as the child's will. */
enum region_split rules_split(const struct regions_here *h, u64 child, u64 peer);

/* Whether this configuration, of that conf_ver, proves that a member was removed. */
bool rules_removed(u64 peer, u32 conf_ver, const struct raft_conf *conf);
/* Whether all members of two regions are voters, on the same nodes. */
bool rules_same_nodes(const struct raft_conf *a, const struct raft_conf *b);
/* Whether a member belongs to a configuration in any way. */
bool rules_has_peer(const struct raft_conf *conf, u64 peer);

#endif
