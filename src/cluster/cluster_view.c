#include "cluster/cluster_view.h"

/* A member that was away while others changed knows less than the map. */
static bool view_is_behind(const struct member *m, const struct map_region *row)
{
    return row && row->number == m->number && row->at.epoch.conf_ver > m->at.epoch.conf_ver;
}

bool view_at(struct cluster *c, u32 slot, struct region_view *v)
{
    const struct member *m = cluster_at_slot(c, slot);
    const struct map_region *row = map_at(&c->map, slot);
    if (m && !view_is_behind(m, row)) {
        if (!row || row->number != m->number) row = map_find(&c->map, m->number);
        *v = (struct region_view){c, m->number, m->slots.first, m->slots.last, &m->at, 0, m, row};
        v->leader = m->group ? group_leader(m->group) : 0;
        return true;
    }
    if (!row) return false;
    *v = (struct region_view){c, row->number, row->at.slots.first, row->at.slots.last, &row->at, row->leader,
                              m, row};
    return true;
}

void view_each(struct cluster *c, void (*fn)(void *arg, const struct region_view *v), void *arg)
{
    struct region_view v;
    for (u32 slot = 0; slot < RAFT_SLOTS; slot++) {
        if (!view_at(c, slot, &v)) continue;
        v.first = slot; /* while a split is under way a row may begin too early */
        fn(arg, &v);
        slot = v.last;
    }
}

struct cluster_node *view_leader(const struct region_view *v)
{
    return v->leader ? cluster_node_of(v->cluster, v->leader) : NULL;
}
