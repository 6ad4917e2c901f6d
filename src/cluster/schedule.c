#include "cluster/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "cluster/peer_id.h"

/* What is computed about a node, beside its row in the table. */
struct tally {
    bool dead, usable; /* usable: for new members */
    u32 members;       /* when all moves that are under way are done */
    u32 incoming;      /* learners */
    u32 leaders;
    u32 from; /* how the search for a path came here: through this region */
    bool seen;
};

struct plan {
    const struct schedule_table *t;
    struct tally *tally; /* by index of t->nodes, and one more for nodes that the table lacks */
    u64 *victims;        /* by index of t->regions: the voter that goes when the learner is there; 0: none */
    bool *done;          /* has a step */
    size_t *into;        /* by index of t->regions: 1 + that of the one it is to be merged into; 0: none */
    bool *paired;        /* is to be merged, or merged into */
    u32 moves;
    u32 wanted; /* voters of a region */
    struct schedule_step *out;
    size_t n, max;
};

static size_t plan_index(const struct plan *p, u64 peer)
{
    size_t i = 0;
    while (i < p->t->nodes_n && p->t->nodes[i].node != node_of(peer)) i++;
    return i;
}

static struct tally *plan_tally(const struct plan *p, u64 peer) { return &p->tally[plan_index(p, peer)]; }

/* A node that the table lacks was removed from the cluster. */
static bool plan_draining(const struct plan *p, u64 peer)
{
    size_t i = plan_index(p, peer);
    return i == p->t->nodes_n || p->t->nodes[i].draining;
}

static bool plan_has_node(const u64 *peers, u32 n, u64 node)
{
    for (u32 i = 0; i < n; i++)
        if (node_of(peers[i]) == node) return true;
    return false;
}

static bool plan_is_on(const struct schedule_region *r, u64 node)
{
    return plan_has_node(r->voters, r->voters_n, node) || plan_has_node(r->learners, r->learners_n, node);
}

/* The step for a region; its reason is the text. */
static struct schedule_step *plan_step(struct plan *p, size_t region, enum schedule_kind kind,
                                       const char *format, ...) PRINTF_LIKE(4, 5);
static struct schedule_step *plan_step(struct plan *p, size_t region, enum schedule_kind kind,
                                       const char *format, ...)
{
    va_list ap;
    struct schedule_step *s = &p->out[p->n++];
    *s = (struct schedule_step){.kind = kind, .region = p->t->regions[region].region};
    p->done[region] = true;
    va_start(ap, format);
    vsnprintf(s->reason, sizeof s->reason, format, ap);
    va_end(ap);
    return s;
}

/* ---- Finding members and nodes. */

/* Whether a member is on a node without a member of the region into which its own will be merged. */
static bool plan_astray(const struct plan *p, const struct schedule_region *r, u64 peer)
{
    size_t into = p->into[r - p->t->regions];
    if (!into) return false;
    const struct schedule_region *o = &p->t->regions[into - 1];
    return !plan_has_node(o->voters, o->voters_n, node_of(peer));
}

/* Which member to remove first: one on a dead node, on one that is being removed, one that prevents a merge,
 * one on the node with most members; among equals not the leader. */
static u64 plan_victim(const struct plan *p, const struct schedule_region *r)
{
    u64 worst = 0, worst_rank = 0;
    for (u32 i = 0; i < r->voters_n; i++) {
        const struct tally *n = plan_tally(p, r->voters[i]);
        u64 rank = (u64)n->dead << 42 | (u64)plan_draining(p, r->voters[i]) << 41 |
                   (u64)plan_astray(p, r, r->voters[i]) << 40 | (u64)n->members << 2 |
                   (r->voters[i] != r->leader) << 1 | 1;
        if (rank > worst_rank) worst = r->voters[i], worst_rank = rank;
    }
    return worst;
}

static void plan_count_region(struct plan *p, const struct schedule_region *r)
{
    for (u32 i = 0; i < r->voters_n; i++) plan_tally(p, r->voters[i])->members++;
    for (u32 i = 0; i < r->learners_n; i++) {
        struct tally *n = plan_tally(p, r->learners[i]);
        n->members++, n->incoming++, p->moves++;
    }
    if (r->leader) plan_tally(p, r->leader)->leaders++;
}

static void plan_count_nodes(struct plan *p)
{
    const struct schedule_table *t = p->t;
    u32 stay = 0;
    for (size_t i = 0; i < t->nodes_n; i++) {
        const struct schedule_node *n = &t->nodes[i];
        p->tally[i].dead = t->now_ms > n->heard_ms && t->now_ms - n->heard_ms > t->dead_after_ms;
        p->tally[i].usable = !p->tally[i].dead && !n->away && !n->draining;
        stay += !n->draining;
    }
    p->wanted = MAX(MIN(t->voters, stay), 1u);
}

static void plan_count_regions(struct plan *p)
{
    const struct schedule_table *t = p->t;
    for (size_t i = 0; i < t->regions_n; i++) plan_count_region(p, &t->regions[i]);
    for (size_t i = 0; i < t->regions_n; i++) {
        const struct schedule_region *r = &t->regions[i];
        if (!r->learners_n || r->voters_n < p->wanted) continue;
        p->victims[i] = plan_victim(p, r);
        plan_tally(p, p->victims[i])->members--;
    }
}

/* ---- Pairs to be merged (rule 6). */

static bool plan_same_voters(const struct schedule_region *a, const struct schedule_region *b)
{
    if (a->voters_n != b->voters_n) return false;
    for (u32 i = 0; i < a->voters_n; i++)
        if (!plan_has_node(b->voters, b->voters_n, node_of(a->voters[i]))) return false;
    return true;
}

static bool plan_steady(const struct plan *p, const struct schedule_region *r)
{
    bool steady = r->settled && !r->merging && r->leader && r->voters_n;
    for (u32 i = 0; i < r->voters_n; i++) steady &= plan_tally(p, r->voters[i])->usable;
    return steady;
}

static bool plan_may_merge(const struct plan *p, const struct schedule_region *a,
                           const struct schedule_region *b)
{
    const struct schedule_table *t = p->t;
    u64 bytes = a->bytes + b->bytes, load = a->load + b->load;
    if (a->slots.last + 1 != b->slots.first || MIN(a->bytes, b->bytes) >= t->merge_bytes) return false;
    if ((t->merged_bytes && bytes > t->merged_bytes) || (t->merged_load && load > t->merged_load))
        return false;
    return plan_steady(p, a) && plan_steady(p, b);
}

struct plan_place {
    u16 first;
    size_t index; /* of t->regions */
};

static int plan_by_slot(const void *a, const void *b)
{
    return (int)((const struct plan_place *)a)->first - ((const struct plan_place *)b)->first;
}

/* How many merges may begin, or be prepared by moving members. */
static u32 plan_pairs_max(const struct schedule_table *t)
{
    u32 merging = 0;
    for (size_t i = 0; i < t->regions_n; i++) merging += t->regions[i].merging;
    merging = (merging + 1) / 2; /* two regions each */
    u32 regions = (u32)t->regions_n - MIN((u32)t->regions_n, merging);
    u32 spare = regions - MIN(regions, t->regions_min);
    return t->merge_bytes ? MIN(spare, t->merges_max - MIN(t->merges_max, merging)) : 0;
}

/* First pairs on the same nodes. The smaller region is merged into the other; its members may have to
 * move. */
static void plan_pairs(struct plan *p)
{
    const struct schedule_table *t = p->t;
    u32 left = plan_pairs_max(t);
    if (!left || t->regions_n < 2) return;
    struct plan_place *at = mem_alloc(t->regions_n * sizeof *at);
    for (size_t i = 0; i < t->regions_n; i++) at[i] = (struct plan_place){t->regions[i].slots.first, i};
    qsort(at, t->regions_n, sizeof *at, plan_by_slot);
    for (size_t k = 0; left && k < 2 * (t->regions_n - 1); k++) {
        bool same = k < t->regions_n - 1;
        size_t low = at[k % (t->regions_n - 1)].index, high = at[k % (t->regions_n - 1) + 1].index;
        const struct schedule_region *a = &t->regions[low], *b = &t->regions[high];
        if (p->paired[low] || p->paired[high] || plan_same_voters(a, b) != same || !plan_may_merge(p, a, b))
            continue;
        if (a->bytes < b->bytes) p->into[low] = high + 1;
        else p->into[high] = low + 1;
        p->paired[low] = p->paired[high] = true;
        left--;
    }
    mem_free(at);
}

/* ---- Members. */

/* The node for a new member: the one with the fewest. NULL: none may get it. */
static const struct schedule_node *plan_target(const struct plan *p, const struct schedule_region *r)
{
    size_t best = p->t->nodes_n;
    if (p->moves >= p->t->moves_max) return NULL;
    for (size_t i = 0; i < p->t->nodes_n; i++) {
        const struct tally *n = &p->tally[i];
        if (!n->usable || n->incoming >= p->t->moves_node_max || plan_is_on(r, p->t->nodes[i].node)) continue;
        if (best == p->t->nodes_n || n->members < p->tally[best].members) best = i;
    }
    return best == p->t->nodes_n ? NULL : &p->t->nodes[best];
}

/* Counts the move as done from now on. */
static void plan_add(struct plan *p, struct schedule_step *s, const struct schedule_node *to, u64 victim)
{
    struct tally *n = &p->tally[to - p->t->nodes];
    s->node = to->node;
    n->members++, n->incoming++, p->moves++;
    if (victim) plan_tally(p, victim)->members--;
}

static const char *plan_why(const struct plan *p, u64 peer)
{
    return plan_tally(p, peer)->dead ? "dead" : "being removed";
}

static bool plan_must_go(const struct plan *p, u64 peer)
{
    return plan_tally(p, peer)->dead || plan_draining(p, peer);
}

/* A voter to transfer leadership to: of those that stay, the one whose node leads the fewest. 0: none. */
static u64 plan_heir(const struct plan *p, const struct schedule_region *r)
{
    u64 best = 0;
    for (u32 i = 0; i < r->voters_n; i++) {
        u64 v = r->voters[i];
        if (v == r->leader || !plan_tally(p, v)->usable) continue;
        if (!best || plan_tally(p, v)->leaders < plan_tally(p, best)->leaders) best = v;
    }
    return best;
}

/* A leader does not remove itself. True: it transfers its leadership first, or there is no successor. */
static bool plan_hand_on(struct plan *p, size_t i, u64 gone)
{
    const struct schedule_region *r = &p->t->regions[i];
    u64 heir = gone == r->leader ? plan_heir(p, r) : 0;
    if (gone != r->leader) return false;
    if (!heir) return r->voters_n > 1;
    plan_tally(p, r->leader)->leaders--, plan_tally(p, heir)->leaders++;
    plan_step(p, i, SCHEDULE_TRANSFER, "the leader is about to leave the region")->peer = heir;
    return true;
}

/* A region with a learner: the learner replaces a member, or is removed if it is not needed any more. */
static void plan_learner(struct plan *p, size_t i)
{
    const struct schedule_region *r = &p->t->regions[i];
    u64 learner = r->learners[0], victim = p->victims[i];
    if (plan_must_go(p, learner)) {
        plan_step(p, i, SCHEDULE_REMOVE, "the node of the learner is %s", plan_why(p, learner))
            ->gone = learner;
        return;
    }
    bool even = victim && !plan_must_go(p, victim) && !plan_astray(p, r, victim) &&
                plan_tally(p, victim)->members + 1 <= plan_tally(p, learner)->members - 1;
    if (even && r->voters_n <= p->wanted) {
        plan_step(p, i, SCHEDULE_REMOVE, "the nodes have become even without this move")->gone = learner;
        plan_tally(p, victim)->members++, plan_tally(p, learner)->members--;
        return;
    }
    if (victim && plan_hand_on(p, i, victim)) return;
    if (victim == r->leader) victim = 0; /* the only voter: the learner becomes the second, then it goes */
    struct schedule_step *s = victim ? plan_step(p, i, SCHEDULE_PROMOTE,
                                                 "takes the place of the member on node %llx%s%s",
                                                 (ull)node_of(victim),
                                                 plan_must_go(p, victim) ? ", which is " : "",
                                                 plan_must_go(p, victim) ? plan_why(p, victim) : "")
                                     : plan_step(p, i, SCHEDULE_PROMOTE, "the region has %u of %u voters",
                                                 r->voters_n, p->wanted);
    s->peer = learner, s->gone = victim;
}

/* Rule 1. True: the region has its step, or waits for one. */
static bool plan_replace(struct plan *p, size_t i)
{
    const struct schedule_region *r = &p->t->regions[i];
    u64 victim = plan_victim(p, r);
    if (!plan_must_go(p, victim)) return false;
    if (r->voters_n > p->wanted) {
        if (!plan_hand_on(p, i, victim))
            plan_step(p, i, SCHEDULE_REMOVE, "its node is %s", plan_why(p, victim))->gone = victim;
        return true;
    }
    const struct schedule_node *to = plan_target(p, r);
    if (to) {
        struct schedule_step *s = plan_step(p, i, SCHEDULE_ADD,
                                            "to replace the member on node %llx, which is %s",
                                            (ull)node_of(victim), plan_why(p, victim));
        plan_add(p, s, to, victim);
    }
    return true;
}

/* Rule 2. */
static bool plan_strength(struct plan *p, size_t i)
{
    const struct schedule_region *r = &p->t->regions[i];
    if (r->voters_n > p->wanted) {
        u64 victim = plan_victim(p, r);
        if (!plan_hand_on(p, i, victim))
            plan_step(p, i, SCHEDULE_REMOVE, "the region has %u voters, and should have %u", r->voters_n,
                      p->wanted)
                ->gone = victim;
        return true;
    }
    const struct schedule_node *to = r->voters_n < p->wanted ? plan_target(p, r) : NULL;
    if (!to) return false;
    plan_add(p, plan_step(p, i, SCHEDULE_ADD, "the region has %u of %u voters", r->voters_n, p->wanted), to,
             0);
    return true;
}

/* Rule 4. */
static void plan_even(struct plan *p, size_t i)
{
    const struct schedule_region *r = &p->t->regions[i];
    u64 victim = plan_victim(p, r);
    const struct schedule_node *to = plan_target(p, r);
    if (!to || r->voters_n != p->wanted || plan_must_go(p, victim)) return;
    u32 has = plan_tally(p, victim)->members, gets = p->tally[to - p->t->nodes].members;
    if (has < gets + 2) return;
    struct schedule_step *s = plan_step(p, i, SCHEDULE_ADD, "node %llx has %u members, node %llx only %u",
                                        (ull)node_of(victim), has, (ull)to->node, gets);
    plan_add(p, s, to, victim);
}

/* Nothing happens to this region, and it may get a step. */
static bool plan_idle(const struct plan *p, size_t i)
{
    const struct schedule_region *r = &p->t->regions[i];
    return p->n < p->max && !p->done[i] && !r->changing && r->leader && r->voters_n && !r->learners_n;
}

/* ---- Leaders (rule 5). */

/* Follows one edge of the search from node `at`: the regions it leads can be led by their other voters'. */
static void plan_spread(struct plan *p, size_t at, size_t *queue, size_t *queue_n)
{
    for (size_t i = 0; i < p->t->regions_n; i++) {
        const struct schedule_region *r = &p->t->regions[i];
        if (!plan_idle(p, i) || p->paired[i] || plan_index(p, r->leader) != at) continue;
        for (u32 k = 0; k < r->voters_n; k++) {
            size_t to = plan_index(p, r->voters[k]);
            if (!p->tally[to].usable || p->tally[to].seen) continue;
            p->tally[to].seen = true, p->tally[to].from = (u32)i;
            queue[(*queue_n)++] = to;
        }
    }
}

/* Moves one leadership along each edge of the path that ends at this node. */
static void plan_transfers(struct plan *p, size_t first, size_t last)
{
    u32 most = p->tally[first].leaders, least = p->tally[last].leaders;
    for (size_t at = last; at != first && p->n < p->max;) {
        const struct schedule_region *r = &p->t->regions[p->tally[at].from];
        size_t before = plan_index(p, r->leader);
        struct schedule_step *s = plan_step(
            p, p->tally[at].from, SCHEDULE_TRANSFER, "node %llx leads %u regions, node %llx only %u",
            (ull)p->t->nodes[first].node, most, (ull)p->t->nodes[last].node, least);
        for (u32 k = 0; k < r->voters_n; k++)
            if (plan_index(p, r->voters[k]) == at) s->peer = r->voters[k];
        p->tally[at].leaders++, p->tally[before].leaders--;
        at = before;
    }
}

/* One leadership more for a node that can be reached from `first` and has two fewer. A node between them on
 * the path gives one and gets one. */
static bool plan_even_leaders(struct plan *p, size_t first)
{
    size_t *queue = mem_alloc((p->t->nodes_n + 1) * sizeof *queue), queue_n = 1;
    bool found = false;
    for (size_t i = 0; i <= p->t->nodes_n; i++) p->tally[i].seen = i == first;
    queue[0] = first;
    for (size_t i = 0; i < queue_n && !found; i++) {
        found = p->tally[queue[i]].leaders + 2 <= p->tally[first].leaders;
        if (found) plan_transfers(p, first, queue[i]);
        else plan_spread(p, queue[i], queue, &queue_n);
    }
    mem_free(queue);
    return found;
}

static void plan_leaders(struct plan *p)
{
    for (size_t i = 0; i < p->t->nodes_n; i++)
        while (p->n < p->max && !p->tally[i].dead && plan_even_leaders(p, i)) {}
}

/* ---- Merging (rule 6). */

/* Adds a member on a node of the other region, to replace one that is on another node. */
static void plan_approach(struct plan *p, size_t i, const struct schedule_region *into)
{
    const struct schedule_region *r = &p->t->regions[i];
    for (u32 k = 0; k < into->voters_n && p->moves < p->t->moves_max; k++) {
        size_t at = plan_index(p, into->voters[k]);
        if (plan_is_on(r, node_of(into->voters[k])) || p->tally[at].incoming >= p->t->moves_node_max)
            continue;
        struct schedule_step *s = plan_step(
            p, i, SCHEDULE_ADD, "to be where region %llu is, and merged into it", (ull)into->region);
        plan_add(p, s, &p->t->nodes[at], plan_victim(p, r));
        return;
    }
}

static void plan_merge(struct plan *p, size_t i)
{
    const struct schedule_region *r = &p->t->regions[i];
    size_t k = p->into[i] - 1;
    const struct schedule_region *into = &p->t->regions[k];
    if (!plan_idle(p, i)) return;
    if (!plan_same_voters(r, into)) {
        plan_approach(p, i, into);
    } else if (plan_idle(p, k)) {
        plan_step(p, i, SCHEDULE_MERGE, "it has %llu bytes, and with its neighbour %llu", (ull)r->bytes,
                  (ull)(r->bytes + into->bytes))
            ->into = into->region;
    }
}

/* ---- All of it. */

static void plan_members(struct plan *p)
{
    for (size_t i = 0; i < p->t->regions_n; i++) {
        const struct schedule_region *r = &p->t->regions[i];
        if (r->learners_n && r->leader && r->voters_n && !r->changing && p->n < p->max) plan_learner(p, i);
    }
    for (size_t i = 0; i < p->t->regions_n; i++)
        if (plan_idle(p, i) && !plan_replace(p, i)) plan_strength(p, i);
}

static void plan_sizes(struct plan *p)
{
    const struct schedule_table *t = p->t;
    for (size_t i = 0; i < t->regions_n; i++) {
        const struct schedule_region *r = &t->regions[i];
        if (!t->split_bytes || r->bytes <= t->split_bytes || r->slots.first == r->slots.last) continue;
        if (plan_idle(p, i)) plan_step(p, i, SCHEDULE_SPLIT, "it has %llu bytes", (ull)r->bytes);
    }
}

size_t schedule(const struct schedule_table *t, struct schedule_step *out, size_t out_max)
{
    struct plan p = {.t = t, .out = out, .max = out_max};
    p.tally = mem_zalloc((t->nodes_n + 1) * sizeof *p.tally);
    p.victims = mem_zalloc((t->regions_n + 1) * sizeof *p.victims);
    p.done = mem_zalloc(t->regions_n + 1);
    p.into = mem_zalloc((t->regions_n + 1) * sizeof *p.into);
    p.paired = mem_zalloc(t->regions_n + 1);
    plan_count_nodes(&p);
    plan_pairs(&p);
    plan_count_regions(&p);
    plan_members(&p);
    plan_sizes(&p);
    for (size_t i = 0; i < t->regions_n && !t->uneven; i++)
        if (plan_idle(&p, i) && !p.paired[i]) plan_even(&p, i);
    if (!t->uneven) plan_leaders(&p);
    for (size_t i = 0; i < t->regions_n; i++)
        if (p.into[i]) plan_merge(&p, i);
    mem_free(p.tally);
    mem_free(p.victims);
    mem_free(p.done);
    mem_free(p.into);
    mem_free(p.paired);
    return p.n;
}
