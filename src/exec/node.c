#include "exec/node.h"

#include "script/functions.h"
#include "exec/region.h"

void node_init(struct node *n, u64 seed)
{
    *n = (struct node){0};
    evictor_init(&n->evictor, seed);
}

void node_release(struct node *n)
{
    evictor_release(&n->evictor);
    scripts_release(n);
    functions_release(n);
    heap_release(&n->visits);
    region_map_release(&n->regions);
}

i64 node_begin(struct node *n, i64 now_ms)
{
    struct region *r;
    REGIONS_EACH(&n->regions, r) region_begin(r, now_ms);
    return n->regions.first->ks.now_ms;
}

bool node_may_split(const struct node *n)
{
    const struct region *r;
    REGIONS_EACH(&n->regions, r)
        if (!region_may_split(r)) return false;
    return true;
}

void node_split(struct node *n, bool kept)
{
    struct region *r;
    REGIONS_EACH(&n->regions, r) region_split(r, kept);
}
