/* The regions of a node, and which of them has which slot. A lone server has one region with all slots, and
 * then there is no table and no lookup.
 *
 * Use the accessor that says what you mean:
 *
 *   region_map_at     the region that has a key's slot
 *   REGIONS_EACH      for all data: sums, configuration, cron, flushing
 *   region_map_only   for features of a lone server: AOF, RDB, replication by PSYNC
 *   map->first        the first region, where requests without keys run
 *   region_map_home   the region that stores data that belongs to no slot: functions
 *
 * The map does not own regions: remove one before it is released. */
#ifndef MAYFLY_EXEC_REGION_MAP_H
#define MAYFLY_EXEC_REGION_MAP_H

#include "base/err.h"
#include "base/types.h"

#define REGION_SLOTS 16384 /* as in Redis Cluster */

struct region;

struct region_map {
    struct region *first;    /* a list, by region.next, in the order they were added; NULL: there is none */
    struct region *home;     /* a region without slots, the last of the list; NULL: there is none */
    struct region **of_slot; /* for each slot its region, or NULL; or no table: `first` has all slots */
    u32 count;
};

/* Adds a region that has the slots from `from` to `to`, both included. They are taken from the regions that
 * had them. */
void region_map_add(struct region_map *m, struct region *r, u32 from, u32 to);
/* Adds a region that has no slots, to an empty map. */
void region_map_add_home(struct region_map *m, struct region *r);
/* It gets these slots, too, from any region that had them. */
void region_map_give(struct region_map *m, struct region *r, u32 from, u32 to);
void region_map_remove(struct region_map *m, struct region *r); /* its slots become unassigned */
/* Of its slots it keeps those from `from` to `to`; the others become unassigned. */
void region_map_keep(struct region_map *m, struct region *r, u32 from, u32 to);
void region_map_release(struct region_map *m);

/* NULL: no region of this node has the slot. */
static inline struct region *region_map_at(const struct region_map *m, u32 slot)
{
    return m->of_slot ? m->of_slot[slot] : m->first;
}

static inline struct region *region_map_home(const struct region_map *m)
{
    return m->home ? m->home : m->first;
}

/* How many regions have slots. */
static inline u32 region_map_slotted(const struct region_map *m) { return m->count - (m->home != NULL); }

/* The only region. */
static inline struct region *region_map_only(const struct region_map *m)
{
    CHECK(m->count == 1);
    return m->first;
}

/* Runs the following statement for each region: struct region *r; REGIONS_EACH(&n->regions, r) … The map may
 * not change meanwhile. */
#define REGIONS_EACH(map, r) for ((r) = (map)->first; (r); (r) = (r)->next)

#endif
