/* Who proposes which entry of a merge, and when. A leader decides by what this node's members of the two
 * regions have applied; nodes exchange only Raft messages. The simulator and the server both use this code.
 *
 *     merge_begin     if both lead here: proposes the target's PREPARE
 *     merge_target    each tick, if the target leads here: proposes the source's PREPARE, if the source leads
 *                     here, too; COMMIT, when all members of the source have it; ROLLBACK after too long
 *     merge_source    each tick, if the source leads here: transfers leadership to the node where the target
 *                     leads; proposes ROLLBACK if the target will not commit
 *
 * They make merges finish. Merges are safe because of rules 14 to 17 (raft/merge.h) and two conditions here:
 * a COMMIT describes an applied PREPARE that every member has (merge_facts), and a source rolls back only by
 * rule 10 of region_rules.h, or if an operator has given entries up (merge_lost). */
#ifndef MAYFLY_CLUSTER_MERGE_RULES_H
#define MAYFLY_CLUSTER_MERGE_RULES_H

#include "raft/merge.h"

enum { MERGE_PATIENCE_TICKS = 30 }; /* then a merge is given up */

/* A region's member on this node. */
struct merge_member {
    u64 region;
    struct group *group; /* NULL: there is none */
};

enum merge_refusal {
    MERGE_BEGUN,
    MERGE_NOT_NEIGHBOURS,
    MERGE_OTHER_NODES, /* the members are not voters on the same nodes */
    MERGE_BUSY,        /* a merge or a change of members is in progress */
    MERGE_LEADERS,     /* they are not both led from here */
    MERGE_LATER        /* a member of the source is behind, or the entry was refused */
};
enum merge_refusal merge_begin(const struct merge_member *target, const struct merge_member *source);

/* Whether this target may take this source over now; then *c is its COMMIT. */
bool merge_facts(const struct merge_member *target, const struct merge_member *source,
                 struct raft_merge_commit *c);
/* `source`: the region in the target's state. waited_ticks: since this member of the target has prepared,
 * regardless of who led meanwhile, so that a merge ends even if leadership changes all the time. */
void merge_target(const struct merge_member *target, const struct merge_member *source, u64 waited_ticks);
/* After cluster-recover, which makes this node the only voter of all its regions, the source's PREPARE may
 * name a version of the target that the target's log has lost, and no COMMIT of it will ever come. A leader
 * that is the only voter, and has applied its log, knows everything there is. target_here: this node has a
 * member of the target, with or without a group. Without one, the target was moved away after it had rolled
 * back: otherwise it would have taken the source over here. Call it for a leader that is a prepared
 * source. */
bool merge_lost(const struct merge_member *source, const struct merge_member *target, bool target_here);
/* Call it for a leader that is a prepared source. refused: rules_merge_refused() on this node or another
 * one, or merge_lost(). */
void merge_source(const struct merge_member *source, const struct merge_member *target, bool refused);

#endif
