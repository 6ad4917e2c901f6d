/* Beats between nodes, which replace the heartbeats of sleeping groups (rule 20 of group.h): one message
 * between any two nodes every BEAT_TICKS, however many groups they share.
 *
 *     every tick                 ticks++; every BEAT_TICKS: send `nonce` to all nodes
 *                                if (beat_lost(&node->beat, ticks, election_ticks)) group_doubt(…)
 *     a beat arrives             if (beat_heard(&node->beat, ticks, nonce)) group_doubt(…)
 *     raft_machine_ops.silence   beat_silence(&node->beat, ticks)
 *
 * A node calls group_excuse for each group with a member on another node that is late (rule 21 of group.h):
 *
 *     a beat says that a long request holds the loop of that node
 *     a part of a message arrives, which is so long that beats behind it are late; that counts as a beat, too
 *     a beat arrives while parts of a long message go to that node
 *
 * Call group_doubt for each group with a member on that node. Time is measured in this node's own ticks, so a
 * node that was stopped for a while does not take the others for dead. */
#ifndef MAYFLY_RAFT_BEAT_H
#define MAYFLY_RAFT_BEAT_H

#include "base/types.h"

enum { BEAT_TICKS = 2 };

/* All 0: no beat has arrived yet. */
struct beat {
    u64 nonce; /* of that node's process: never 0, and different after a restart */
    u64 tick;  /* when the last beat arrived */
    bool lost;
};

/* True: the node was restarted, so its groups are awake. */
static inline bool beat_heard(struct beat *b, u64 tick, u64 nonce)
{
    bool again = b->nonce && b->nonce != nonce;
    *b = (struct beat){nonce, tick, false};
    return again;
}

static inline u32 beat_silence(const struct beat *b, u64 tick)
{
    return b->nonce ? (u32)MIN(tick - b->tick, UINT32_MAX) : UINT32_MAX;
}

/* True, once, when it has been silent for `timeout` ticks. */
static inline bool beat_lost(struct beat *b, u64 tick, u32 timeout)
{
    bool news = !b->lost && b->nonce && beat_silence(b, tick) >= timeout;
    b->lost |= news;
    return news;
}

#endif
