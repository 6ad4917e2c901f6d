/* The map of a cluster: all its regions, with slots, members and leader. Every node has it, because it is
 * stored as entries of region 0's log (RAFT_KIND_REGIONS), which contain the reports of the regions' leaders.
 *
 * Rules:
 *   1  A row is replaced only by a newer one: a higher version or conf_ver of the region's epoch, or, in the
 *      same epoch, a leader with a higher term. So rows may be repeated and late.
 *   2  The members in a row are committed, and durable at the leader: a configuration that does not
 *      contain a member proves that it was removed (region_rules.h, rule 6).
 *   3  Rows may be out of date. Of two rows with the same slot the one with the higher version counts; this
 *      node's own members are more reliable than the map.
 *   4  A region loses its first slot only when it is merged into another. So if a row's first slot belongs to
 *      another region in a later version, its region no longer exists, and the row is deleted.
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
    u16 *of_slot; /* for each slot 1 + the index of its row; NULL: built when it is needed */
};

void map_release(struct cluster_map *map);
struct map_region *map_find(const struct cluster_map *map, u64 number); /* NULL: unknown */
struct map_region *map_at(struct cluster_map *map, u32 slot);           /* NULL: unknown */

/* Whether `r` is newer than the map (rule 1). */
bool map_is_news(const struct cluster_map *map, const struct map_region *r);
/* Takes it over if it is newer. */
void map_take(struct cluster_map *map, const struct map_region *r);

void map_print(const struct map_region *r, struct buf *out); /* without a newline */
NODISCARD bool map_parse(bytes line, struct map_region *r);

#endif
