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
    for (u32 i = 0; i < m->count; i++) m->all[i]->ks.next = &m->all[(i + 1) % m->count]->ks;
}

void region_map_add(struct region_map *m, struct region *r, u32 from, u32 to)
{
    CHECK(from <= to && to < REGION_SLOTS);
    if (m->count > 0 || !has_all_slots(from, to)) {
        region_map_spread(m);
        for (u32 i = from; i <= to; i++) m->of_slot[i] = r;
    }
    if (m->count == m->cap) {
        m->cap = MAX(m->cap * 2, 4u);
        m->all = mem_realloc(m->all, m->cap * sizeof(struct region *));
    }
    m->all[m->count++] = r;
    m->first = m->all[0];
    region_map_link(m);
}

void region_map_remove(struct region_map *m, struct region *r)
{
    u32 at = 0;
    while (at < m->count && m->all[at] != r) at++;
    CHECK(at < m->count);
    region_map_spread(m);
    for (u32 i = 0; i < REGION_SLOTS; i++)
        if (m->of_slot[i] == r) m->of_slot[i] = NULL;
    m->count--;
    for (; at < m->count; at++) m->all[at] = m->all[at + 1];
    m->first = m->count ? m->all[0] : NULL;
    r->ks.next = &r->ks;
    region_map_link(m);
}

void region_map_release(struct region_map *m)
{
    mem_free(m->of_slot);
    mem_free(m->all);
    *m = (struct region_map){0};
}
