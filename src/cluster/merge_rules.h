/* Who proposes which entry of a merge, and when. One node's leaders decide by what its own members of the two
 * regions have applied; nothing but Raft messages goes from node to node. Written for the simulator and the
 * server alike.
 *
 *     merge_begin     both lead here: PREPARE of the target
 *     merge_target    each tick, for a target that leads: PREPARE of the source, when that leads here, too;
 *                     COMMIT, when all members of the source have it; ROLLBACK if that takes too long
 *     merge_source    each tick, for a source that leads: leadership goes to the node where the target leads;
 *                     ROLLBACK when the target will not commit
 *
 * They make merges end. That merges are safe is due to rules 14 to 17 (raft/merge.h) and to two conditions
 * here: a COMMIT has the facts of an applied PREPARE that every member has (merge_facts), and only rule 10 of
 * region_rules.h, or the loss of entries by the act of an operator, lets a source roll back. */
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
    MERGE_BUSY,        /* a merge or a change of members is under way */
    MERGE_LEADERS,     /* they are not both led from here */
    MERGE_LATER        /* a member of the source is behind, or the entry was refused */
};
enum merge_refusal merge_begin(const struct merge_member *target, const struct merge_member *source);

/* Whether this target may take this source over now, and then what its COMMIT says. */
bool merge_facts(const struct merge_member *target, const struct merge_member *source,
                 struct raft_merge_commit *c);
/* `source`: of the region that the target's state names. waited_ticks: since this member of the target has
 * prepared, whoever led meanwhile: a merge ends although leadership moves all the time. */
void merge_target(const struct merge_member *target, const struct merge_member *source, u64 waited_ticks);
/* After cluster-recover, which makes this node the only voter of all its regions, the source's log may name a
 * version of the target that the target's log has lost: then no COMMIT of it ever comes. A leader that is the
 * only voter, and has applied its log, knows all there is. target_here: there is a member, whether it has a
 * group or not; without one the target was moved away after it had rolled back, as otherwise it would have
 * taken the source over here. */
bool merge_lost(const struct merge_member *source, const struct merge_member *target, bool target_here);
/* refused: rules_merge_refused() says so, or another node for which it says so, or merge_lost(). */
void merge_source(const struct merge_member *source, const struct merge_member *target, bool refused);

#endif
