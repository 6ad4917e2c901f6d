/* What a node hears of another one, in place of the heartbeats of groups that sleep (rule 20 of group.h): one
 * message between each two nodes every BEAT_TICKS, however many groups they share.
 *
 *     every tick                 ticks++; every BEAT_TICKS: send `nonce` to all nodes
 *                                if (beat_lost(&node->beat, ticks, election_ticks)) group_doubt(…)
 *     a beat comes               if (beat_heard(&node->beat, ticks, nonce)) group_doubt(…)
 *     raft_machine_ops.silence   beat_silence(&node->beat, ticks)
 *
 * with group_doubt for the member that each group has on that node. Ticks are those that the node has seen:
 * one that stood still doesn't take the others for dead. */
#ifndef MAYFLY_RAFT_BEAT_H
#define MAYFLY_RAFT_BEAT_H

#include "base/types.h"

enum { BEAT_TICKS = 2 };

/* All 0: never heard of. */
struct beat {
    u64 nonce; /* of the process there: never 0, and another one when it is started again */
    u64 tick;  /* when it was last heard of */
    bool lost;
};

/* True: the node was started again, so its groups have forgotten that they slept. */
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

/* True once: it has been silent for so long. */
static inline bool beat_lost(struct beat *b, u64 tick, u32 timeout)
{
    bool news = !b->lost && b->nonce && beat_silence(b, tick) >= timeout;
    b->lost |= news;
    return news;
}

#endif
