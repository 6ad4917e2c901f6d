/* A split makes a new region of the upper slots of a region. It is an entry of the parent's log
 * (RAFT_KIND_SPLIT), so that every member of the parent creates the same child at the same index, by rule 10
 * of raft/group.h. The payload, little-endian:
 *
 *     0              8            10
 *     | child's id   | its first slot | */
#ifndef MAYFLY_RAFT_SPLIT_H
#define MAYFLY_RAFT_SPLIT_H

#include "raft/group.h"

/* The child's log starts here, with nothing before: a member without it needs a snapshot. */
enum { RAFT_FIRST_INDEX = 5, RAFT_FIRST_TERM = 5 };

struct raft_split {
    u64 child; /* the new region's id, used by no other region ever */
    u16 first; /* the child gets the slots from here to the parent's last */
};

void raft_split_encode(struct buf *out, const struct raft_split *s);
/* ERR_SYNTAX: damaged, or of a later version of this program. */
NODISCARD err raft_split_decode(bytes payload, struct raft_split *s);

static inline bool raft_slots_overlap(struct raft_slots a, struct raft_slots b)
{
    return a.first <= b.last && b.first <= a.last;
}

/* Whether a region with these slots can be split so: both parts have slots. */
bool raft_split_fits(const struct raft_split *s, struct raft_slots slots);
/* Applies a split that fits: *at becomes the parent's state after it, the result is the child's first. */
struct raft_applied raft_split_apply(const struct raft_split *s, struct raft_applied *at);

#endif
