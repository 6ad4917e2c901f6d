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
 *      stored that it was committed, and then need the votes of the configuration before. */
#ifndef MAYFLY_CLUSTER_REGION_RULES_H
#define MAYFLY_CLUSTER_REGION_RULES_H

#include "raft/group.h"

/* A member on this node. */
struct region_here {
    u64 region, peer;
    bool has_data;           /* or is installing a snapshot */
    struct raft_slots slots; /* of its data, and of the snapshot that it is installing */
};

struct region_tombstone {
    u64 region, peer; /* the greatest */
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

/* Whether a snapshot with these slots may be installed by the member of this region. */
bool rules_may_install(const struct regions_here *h, u64 region, struct raft_slots slots);

enum region_split {
    REGION_SPLIT_MAKE,      /* the child's member, with a log that starts empty */
    REGION_SPLIT_TAKE_OVER, /* the member is here, without data: its log stays */
    REGION_SPLIT_DISCARD    /* no member: the data of the child's slots are deleted */
};
/* What a split of a region does here whose member has the number `peer`, as the child's will. */
enum region_split rules_split(const struct regions_here *h, u64 child, u64 peer);

/* Whether this configuration, of that conf_ver, proves that a member was removed. */
bool rules_removed(u64 peer, u32 conf_ver, const struct raft_conf *conf);
/* Whether a member belongs to a configuration in any way. */
bool rules_has_peer(const struct raft_conf *conf, u64 peer);

#endif
