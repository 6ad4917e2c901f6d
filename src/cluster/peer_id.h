/* A member's number in a Raft group (peer id) consists of its node and the version of the configuration under
 * which it was added:
 *
 *     63             24 23                 0
 *     | node, 40 bits  | conf_ver, 24 bits |
 *
 * So if a node is removed from a region and added again, the new member has another number: it has lost the
 * old member's votes, and must not vote in its name. Each change of members increases conf_ver, and there is
 * only one at a time, so numbers are unique within a region. The child of a split has its parent's conf_ver
 * and members with the same numbers; members added later have different ones. */
#ifndef MAYFLY_CLUSTER_PEER_ID_H
#define MAYFLY_CLUSTER_PEER_ID_H

#include "base/types.h"

#define PEER_NODE_MAX ((1ull << 40) - 1) /* 0 is no node */
#define PEER_CONF_VER_MAX 0xffffffu

/* `conf_ver` is the region's when the leader proposes to add the member; of the very first member 0. */
static inline u64 peer_of(u64 node, u32 conf_ver) { return node << 24 | (conf_ver & PEER_CONF_VER_MAX); }
static inline u64 node_of(u64 peer) { return peer >> 24; }
static inline u32 peer_conf_ver(u64 peer) { return peer & PEER_CONF_VER_MAX; }

#endif
