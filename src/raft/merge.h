/* Merging a region, the source, into its neighbour, the target. The members of both are on the same nodes.
 *
 *     target's log   PREPARE …………………… COMMIT, or ROLLBACK
 *     source's log            PREPARE …………………………… if the target will not commit: ROLLBACK
 *
 * Rules, which continue those of raft/group.h:
 *  14  The target's log decides whether a merge happens. The target's PREPARE starts an epoch version, during
 *      which its slots and members don't change. The COMMIT of that version, or a ROLLBACK, starts the next
 *      one; a later COMMIT of that version has no effect. So a node that sees the target in a later version,
 *      and does not know of a COMMIT, knows that there never will be one. Only then may the source's log get
 *      a ROLLBACK.
 *  15  After the source's PREPARE all its entries except a ROLLBACK are void, including changes of members,
 *      and nothing is evaluated. The target takes over the source's state at that entry.
 *  16  A COMMIT is proposed when every member of the source has that PREPARE in its log, synced. So a member
 *      of the target that applies a COMMIT finds the source's member on its node, with all it needs in that
 *      member's log. It tells that member that the PREPARE is committed (group_committed), and waits until
 *      it is applied. A member of the target that is no longer a voter may find no member of the source. It
 *      waits until it learns that it was removed.
 *  17  The merged region's clock is the later of the two. The machine stores in one step that the target has
 *      the source's slots, that the source's member is removed, and that no member of the source may be
 *      created again. The source's log is erased only when that is durable.
 *
 * cluster/merge_rules.h decides who proposes what when, and what nodes must know of each other's merges.
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

/* What a target takes over: the source's state after its PREPARE. */
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
