/* The map of a cluster: which regions there are, with which slots, members and leader. Every node has it,
 * because it is made of entries of region 0's log (RAFT_KIND_REGIONS), which tell what the regions' leaders
 * have reported.
 *
 * Rules:
 *   1  A row is replaced only by a newer one: a higher version or conf_ver of the region's epoch, or, in the
 *      same epoch, a leader of a higher term. So rows may be told twice, and late.
 *   2  What a row says of members was committed and is durable at its leader: a configuration that does not
 *      contain a member proves that it was removed (region_rules.h, rule 6).
 *   3  Rows may be behind. Of two rows with the same slot the one with the higher version counts; a member of
 *      this node knows better.
 *   4  A region gives its first slot away only when it is merged into another. So a row whose first slot is
 *      another's, in a later version, is of a region that is gone: there is no such row.
 *
 * A row as text, one line, as it is reported, logged and stored:
 *
 *     NUMBER LEADER TERM KEYS BYTES then the state as member_encode writes it, then qLOAD if there is any */
#ifndef MAYFLY_CLUSTER_CLUSTER_MAP_H
#define MAYFLY_CLUSTER_CLUSTER_MAP_H

#include "raft/group.h"

struct map_region {
    u64 number;
    u64 leader, term;       /* the member that leads, and since which term; 0: unknown */
    u64 keys, bytes, load;  /* as reported last, on region 0's leader; elsewhere when the row was logged */
    struct raft_applied at; /* epoch, slots and members */
    bool unsaved;           /* the engine has not got it yet */
    char decision[160];     /* the last about it, and why; on region 0's leader … */
    u32 looked_version;     /* … which has seen it in this version … */
    i64 looked_ms;          /* … since that time, by the loop's time */
};

struct cluster_map {
    struct map_region *rows; /* by number */
    u32 n, cap;
    u16 *of_slot; /* for each slot 1 + the index of its row; made when it is needed; NULL: to be made */
};

void map_release(struct cluster_map *map);
struct map_region *map_find(const struct cluster_map *map, u64 number); /* NULL: unknown */
struct map_region *map_at(struct cluster_map *map, u32 slot);           /* NULL: unknown */

/* Whether `r` says more than the map does. */
bool map_is_news(const struct cluster_map *map, const struct map_region *r);
/* Takes it over if it is news. */
void map_take(struct cluster_map *map, const struct map_region *r);

void map_print(const struct map_region *r, struct buf *out); /* without a newline */
NODISCARD bool map_parse(bytes line, struct map_region *r);

#endif
