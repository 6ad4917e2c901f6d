/* The head of a message between members of a region, little-endian:
 *
 *     0        8      16   24           26          28         29
 *     | region | from | to | first slot | last slot | has data | zero (3)
 *
 * The slots are the sender's: a node without such a member creates one only if no other member has these
 * slots (cluster/region_rules.h). */
#ifndef MAYFLY_CLUSTER_MESSAGE_H
#define MAYFLY_CLUSTER_MESSAGE_H

#include "base/bytes.h"

enum { MESSAGE_HEAD = 32 };

struct message_head {
    u64 region;
    u64 from, to; /* members: peer_id.h */
    u16 first, last;
    bool has_data; /* the sender has data; otherwise the slots mean nothing */
};

void message_put(char out[MESSAGE_HEAD], const struct message_head *h);

/* Reads the head of a message from node `from` to node `to`. NULL: it is valid; otherwise the reason to
 * refuse it, a static string. */
const char *message_get(bytes body, u64 from, u64 to, struct message_head *h);

#endif
