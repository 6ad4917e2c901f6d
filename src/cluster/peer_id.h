/* A member's number in a Raft group (peer id) is made of the node it is on and of the configuration under
 * which it was added:
 *
 *     63             24 23                 0
 *     | node, 40 bits  | conf_ver, 24 bits |
 *
 * So a node that was removed from a region and is added again has another number: the new member, which has
 * forgotten what the old one promised, never votes in its name. Each change of members raises conf_ver, and
 * only one is under way at a time, so no number comes twice in a region. A child of a split has its parent's
 * conf_ver and the numbers of its members; those it adds later differ from them. */
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
