/* A merge of a region, the source, into its neighbour, the target, whose members are on the same nodes:
 *
 *     target's log   PREPARE …………………… COMMIT, or ROLLBACK
 *     source's log            PREPARE …………………………… if the target will not commit: ROLLBACK
 *
 * Rules, which continue those of raft/group.h:
 *  14  A merge is decided by the target's log. Its PREPARE starts an epoch version, under which its slots and
 *      members stay as they are. The COMMIT of that version, or else a ROLLBACK, starts the next; no later
 *      COMMIT of that version has an effect. So who sees the target in a later version and knows of no
 *      COMMIT knows that there never will be one: only then may the source's log have a ROLLBACK.
 *  15  Behind the source's PREPARE everything but its ROLLBACK is void, changes of members too. What the
 *      target takes over is the source at that entry. Nothing is evaluated behind it.
 *  16  A COMMIT is proposed when every member of the source has that PREPARE in its log, synced. So a member
 *      of the target that is to apply a COMMIT finds the source's member on its node, and all it needs in
 *      that one's log; it says that this is committed (group_committed) and waits until it is applied. A
 *      member of the target that is no voter any more may find nothing. It stays where it is until it is told
 *      that it was removed.
 *  17  The merged region's clock is the later of the two. The machine stores in one step that the target has
 *      the source's slots, that the source's member is gone, and that no member of the source ever comes
 *      again. The source's log is erased only when that is durable.
 *
 * Who proposes what when, and what nodes must know of each other's merges, is in cluster/merge_rules.h.
 * Payloads, little-endian; that of a ROLLBACK is empty:
 *
 *     PREPARE   0      1                 9                   13
 *               | role | the other's id  | target's version  |       version: 0 in the target's own log
 *     COMMIT    0        8                 16     24      32            40        44      46     48
 *               | source | PREPARE's index | term | clock | deaths from | version | first | last | */
#ifndef MAYFLY_RAFT_MERGE_H
#define MAYFLY_RAFT_MERGE_H

#include "raft/group.h"

struct raft_merge_prepare {
    enum raft_merge_role role; /* of the region in whose log it is */
    u64 other;
    u32 version; /* of the target, since its own PREPARE */
};

/* What a target takes over: the source as it is once its PREPARE is applied. */
struct raft_merge_commit {
    u64 source;
    u64 index, term; /* of the source's PREPARE: all its members have it */
    u64 clock_ms, deaths_from_ms;
    u32 version;
    struct raft_slots slots;
};

void raft_merge_prepare_encode(struct buf *out, const struct raft_merge_prepare *p);
void raft_merge_commit_encode(struct buf *out, const struct raft_merge_commit *c);
/* ERR_SYNTAX: damaged, or of a later version of this program. */
NODISCARD err raft_merge_prepare_decode(bytes payload, struct raft_merge_prepare *p);
NODISCARD err raft_merge_commit_decode(bytes payload, struct raft_merge_commit *c);

/* Two ranges with nothing between them. */
bool raft_slots_adjoin(struct raft_slots a, struct raft_slots b);

/* Whether a region in this state can take such an entry; otherwise it is void. */
bool raft_merge_may_prepare(const struct raft_applied *at);
bool raft_merge_may_commit(const struct raft_applied *at, const struct raft_merge_commit *c);
/* The state after it. at->index and term are already those of the entry, `stamp_ms` is its stamp. */
void raft_merge_apply_prepare(struct raft_applied *at, const struct raft_merge_prepare *p);
void raft_merge_apply_commit(struct raft_applied *at, const struct raft_merge_commit *c, u64 stamp_ms);
void raft_merge_apply_rollback(struct raft_applied *at);

#endif
