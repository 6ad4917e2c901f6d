/* A split or merge moves no rows of data, of the deadline index or of its counts: those are ordered by slot,
 * or shared. One batch writes what belongs to a region alone: its slots ('s'), its position in the deadline
 * index ('p'), and its log of counts ('d'), which is folded into the base rows ('c'). */
#include "engine/rocks/regions.h"

#include "engine/rocks/companion.h"
#include "engine/rocks/due/due.h"
#include "engine/rocks/state.h"
#include "engine/rocks/type/random_element.h"
#include "engine/rocks/type/elements.h"

static u32 regions_slots(const struct rocks_region *r) { return (u32)r->last - r->first + 1; }

/* Drops everything cached: keys were added, changed or removed by another engine. */
static void regions_forget(struct rk *rk)
{
    for (u32 i = 0; i < rk_all(rk); i++) {
        row_flush(rk, rk->dbs[i]);
        companion_flush(rk, rk->dbs[i]);
    }
    draws_free(rk->draws);
    rk->draws = NULL;
    elements_free(rk->elements);
    rk->elements = elements_new(&rk->db->elements, rk->db->options.seed);
    elements_begin(rk->elements, atomic_load(&rk->db->last_version));
}

/* -- splitting ------------------------------------------------------------------------------------------ */

void rocks_split(struct engine *e, const struct rocks_region *child, u64 child_seq)
{
    struct rk *rk = rk_of(e);
    CHECK(!rk->legacy && !rk_uses_staging(rk));
    CHECK(child->prefix == rk->region.prefix && child->id != rk->region.id);
    CHECK(child->first > rk->region.first && child->first <= rk->region.last);
    CHECK(child->last == rk->region.last);
    rk->cut = (struct region_cut){true, *child, child_seq};
    rk->slot_log.base = true;
}

/* What is cached of the child's slots stays until it is evicted: nothing asks this region for it, unless it
 * gets the slots back, and rocks_merge drops what is cached. */
void regions_cut(struct rk *rk)
{
    rk->region.last = (u16)(rk->cut.child.first - 1);
    rk->cut.pending = false;
    for (u32 i = 0; i < rk_all(rk); i++) {
        struct slots *s = &rk->dbs[i]->slots;
        if (s->v) s->v = mem_realloc(s->v, regions_slots(&rk->region) * sizeof *s->v);
    }
    slots_total(rk);
}

/* -- dropping -------------------------------------------------------------------------------------------- */

bool rocks_region_drop(struct engine *e)
{
    struct rk *rk = rk_of(e);
    CHECK(!rk->view && !rk->legacy);
    for (u32 i = 0; i < rk_all(rk); i++) e->ops->flush(e, i);
    rk->dropped = rk->slot_log.base = true;
    return e->ops->commit(e, e->applied);
}

bool rocks_stages(struct engine *e) { return rk_of(e)->staging > 0; }

/* -- moving --------------------------------------------------------------------------------------------- */

void rocks_region_move(struct engine *e, u16 first, u16 last)
{
    struct rk *rk = rk_of(e);
    CHECK(!rk->view && !rk->legacy && !rk_uses_staging(rk) && first <= last && last < ROCKS_SLOTS);
    for (u32 i = 0; i < rk_all(rk); i++) e->ops->flush(e, i);
    rk->move.pending = true, rk->move.first = first, rk->move.last = last;
    rk->slot_log.base = rk->state_changed = true;
}

void regions_moved(struct rk *rk)
{
    rk->region.first = rk->move.first, rk->region.last = rk->move.last;
    rk->move.pending = false;
    regions_forget(rk);
    for (u32 i = 0; i < rk_all(rk); i++) {
        struct slots *s = &rk->dbs[i]->slots;
        mem_free(s->v);
        s->v = NULL;
    }
    slots_total(rk);
}

/* -- joining -------------------------------------------------------------------------------------------- */

/* A deadline's place depends on its region's position, so both regions need the same one. */
bool rocks_align(struct engine *a, struct engine *b)
{
    struct rk *one = rk_of(a), *two = rk_of(b);
    CHECK(!one->touched && !two->touched);
    i64 position_ms = MAX(one->due->at.to_ms, two->due->at.to_ms);
    return due_drain_align(one, position_ms) && due_drain_align(two, position_ms);
}

static bool regions_aligned(const struct rk *a, const struct rk *b)
{
    i64 at_ms = a->due->at.to_ms;
    return a->due->at.from_ms == at_ms && b->due->at.from_ms == at_ms && b->due->at.to_ms == at_ms;
}

static struct slot_counts *regions_join_slots(const struct rk *low, const struct rk *high, u32 db)
{
    const struct slot_counts *a = low->dbs[db]->slots.v, *b = high->dbs[db]->slots.v;
    u32 n = regions_slots(&low->region), m = regions_slots(&high->region);
    if (!a && !b) return NULL;
    struct slot_counts *v = mem_zalloc((n + m) * sizeof *v);
    if (a) memcpy(v, a, n * sizeof *v);
    if (b) memcpy(v + n, b, m * sizeof *v);
    return v;
}

static void regions_join_lows(struct due *into, const struct due *from)
{
    for (u32 kind = 0; kind < DUE_KINDS; kind++) {
        const struct due_queue *q = &from->queue[kind];
        if (bytes_cmp(buf_bytes(&q->low), buf_bytes(&into->queue[kind].low)) >= 0) continue;
        into->queue[kind].low_ms = q->low_ms;
        buf_clear(&into->queue[kind].low);
        buf_append_bytes(&into->queue[kind].low, buf_bytes(&q->low));
    }
    into->changed = true;
}

bool rocks_merge(struct engine *into_engine, struct engine *from_engine, u64 seq)
{
    struct rk *into = rk_of(into_engine), *from = rk_of(from_engine);
    bool below = from->region.last + 1 == into->region.first;
    struct rk *low = below ? from : into, *high = below ? into : from;
    CHECK(into->db == from->db && into->region.prefix == from->region.prefix);
    CHECK(low->region.last + 1 == high->region.first && !into->view && !from->view);
    CHECK(!into->touched && !from->touched);
    CHECK(regions_aligned(into, from));
    struct rocks_region was = into->region;
    struct slot_counts **slots_were = mem_alloc(into->base.databases * sizeof *slots_were);
    for (u32 i = 0; i < into->base.databases; i++) {
        slots_were[i] = into->dbs[i]->slots.v;
        into->dbs[i]->slots.v = regions_join_slots(low, high, i);
        into->dbs[i]->has_row |= from->dbs[i]->has_row;
    }
    into->region.first = low->region.first;
    into->region.last = high->region.last;
    into->slot_log.stamp = MAX(into->slot_log.stamp, from->slot_log.stamp);
    into->slot_log.base = into->state_changed = true;
    into->companions |= from->companions;
    into->last_version = MAX(into->last_version, from->last_version);
    regions_join_lows(into->due, from->due);
    state_forget_region(into, from->region.id);
    bool ok = into_engine->ops->commit(into_engine, seq);
    for (u32 i = 0; i < into->base.databases; i++) {
        mem_free(ok ? slots_were[i] : into->dbs[i]->slots.v);
        if (!ok) into->dbs[i]->slots.v = slots_were[i];
    }
    mem_free(slots_were);
    if (!ok) into->region = was;
    slots_total(into);
    if (!ok) return false;
    regions_forget(into);
    from_engine->ops->close(from_engine);
    return true;
}
