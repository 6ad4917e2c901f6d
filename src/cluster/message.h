/* The head of a Raft message between nodes: region · from · to, each u64, little-endian. */
#ifndef MAYFLY_CLUSTER_MESSAGE_H
#define MAYFLY_CLUSTER_MESSAGE_H

#include "base/bytes.h"

enum { MESSAGE_HEAD = 24 };

struct message_head {
    u64 region;
    u64 from, to; /* members: cluster_node.peer */
};

void message_put(char out[MESSAGE_HEAD], const struct message_head *h);

/* Reads the head of a message that came from `from` and is to be for `to`. NULL: it is; otherwise why it is
 * refused, a static string. */
const char *message_get(bytes body, u64 from, u64 to, struct message_head *h);

#endif
