#include "exec/region_map.h"

#include "base/alloc.h"
#include "exec/region.h"

static bool has_all_slots(u32 from, u32 to) { return from == 0 && to == REGION_SLOTS - 1; }

/* So far `first` has all slots, or there is no region: from now on a table is used. */
static void region_map_spread(struct region_map *m)
{
    if (m->of_slot) return;
    m->of_slot = mem_alloc(REGION_SLOTS * sizeof *m->of_slot);
    for (u32 i = 0; i < REGION_SLOTS; i++) m->of_slot[i] = m->first;
}

/* Links the keyspaces of all regions into a ring, through which commands reach the data of all of them. */
static void region_map_link(const struct region_map *m)
{
    struct region *r;
    REGIONS_EACH(m, r) r->ks.next = r->next ? &r->next->ks : &m->first->ks;
}

/* Where the list points to a region, or (NULL) where it ends. */
static struct region **region_map_place(struct region_map *m, const struct region *r)
{
    struct region **at = &m->first;
    while (*at && *at != r) at = &(*at)->next;
    return at;
}

void region_map_add(struct region_map *m, struct region *r, u32 from, u32 to)
{
    CHECK(from <= to && to < REGION_SLOTS);
    if (m->count > 0 || !has_all_slots(from, to)) {
        region_map_spread(m);
        for (u32 i = from; i <= to; i++) m->of_slot[i] = r;
    }
    *region_map_place(m, m->home) = r;
    r->next = m->home;
    m->count++;
    region_map_link(m);
}

void region_map_add_home(struct region_map *m, struct region *r)
{
    CHECK(!m->first);
    region_map_spread(m);
    m->first = m->home = r;
    r->next = NULL;
    m->count++;
    region_map_link(m);
}

void region_map_give(struct region_map *m, struct region *r, u32 from, u32 to)
{
    region_map_spread(m);
    for (u32 i = from; i <= to; i++) m->of_slot[i] = r;
}

void region_map_remove(struct region_map *m, struct region *r)
{
    struct region **at = region_map_place(m, r);
    CHECK(*at);
    region_map_spread(m);
    for (u32 i = 0; i < REGION_SLOTS; i++)
        if (m->of_slot[i] == r) m->of_slot[i] = NULL;
    *at = r->next;
    if (m->home == r) m->home = NULL;
    m->count--;
    r->next = NULL;
    r->ks.next = &r->ks;
    region_map_link(m);
}

void region_map_keep(struct region_map *m, struct region *r, u32 from, u32 to)
{
    if (has_all_slots(from, to)) return;
    region_map_spread(m);
    for (u32 i = 0; i < REGION_SLOTS; i++)
        if ((i < from || i > to) && m->of_slot[i] == r) m->of_slot[i] = NULL;
}

void region_map_release(struct region_map *m)
{
    mem_free(m->of_slot);
    *m = (struct region_map){0};
}
