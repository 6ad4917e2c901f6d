/* The scheduler: its steps in simple cases, and that it always finishes: whatever happens to the nodes, all
 * regions get enough members, evenly spread, and then it has nothing to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rand.h"
#include "cluster/peer_id.h"
#include "cluster/schedule.h"

enum { NODES = 12, REGIONS = 60, STEPS = 64, NOW = 10000000, DEAD_AFTER = 600000 };

struct world {
    struct schedule_node nodes[NODES];
    struct schedule_region regions[REGIONS];
    struct schedule_table t;
    struct schedule_step steps[STEPS];
    size_t n;
    u32 conf_ver;
    u64 rng;
};

static struct world *world_new(u32 nodes, u32 voters)
{
    static struct world w;
    w = (struct world){.conf_ver = 1, .rng = 1};
    w.t = (struct schedule_table){.now_ms = NOW,
                                  .nodes = w.nodes,
                                  .nodes_n = nodes,
                                  .regions = w.regions,
                                  .voters = voters,
                                  .dead_after_ms = DEAD_AFTER,
                                  .split_bytes = 100,
                                  .moves_max = 4,
                                  .moves_node_max = 2};
    for (u32 i = 0; i < nodes; i++)
        w.nodes[i] = (struct schedule_node){.node = i + 1, .heard_ms = NOW - 1000};
    return &w;
}

static struct schedule_region *world_region(struct world *w, const char *nodes)
{
    struct schedule_region *r = &w->regions[w->t.regions_n++];
    *r = (struct schedule_region){.region = w->t.regions_n, .bytes = 50, .settled = true};
    r->slots = (struct raft_slots){(u16)(w->t.regions_n * 100), (u16)(w->t.regions_n * 100 + 99)};
    for (; *nodes; nodes++) r->voters[r->voters_n++] = peer_of((u64)(*nodes - '0'), 1);
    r->leader = r->voters[0];
    return r;
}

static void world_kill(struct world *w, u64 node) { w->nodes[node - 1].heard_ms = NOW - DEAD_AFTER - 1; }

static void world_schedule(struct world *w) { w->n = schedule(&w->t, w->steps, STEPS); }

static const struct schedule_step *only(struct world *w, enum schedule_kind kind)
{
    world_schedule(w);
    assert_int_equal(w->n, 1);
    assert_int_equal(w->steps[0].kind, kind);
    assert_true(strlen(w->steps[0].reason) > 0);
    return &w->steps[0];
}

static void test_a_dead_node_is_replaced(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    struct schedule_region *r = world_region(w, "123");
    world_schedule(w);
    assert_int_equal(w->n, 0);
    w->nodes[2].heard_ms = NOW - DEAD_AFTER;
    world_schedule(w);
    assert_int_equal(w->n, 0); /* silent for long, but not yet dead */
    world_kill(w, 3);
    const struct schedule_step *s = only(w, SCHEDULE_ADD);
    assert_int_equal(s->node, 4);
    assert_string_equal(s->reason, "to replace the member on node 3, which is dead");
    r->learners[r->learners_n++] = peer_of(4, 7);
    s = only(w, SCHEDULE_PROMOTE);
    assert_int_equal(s->peer, peer_of(4, 7));
    assert_int_equal(s->gone, peer_of(3, 1));
    r->changing = true;
    world_schedule(w);
    assert_int_equal(w->n, 0);
}

static void test_a_dead_node_stays_if_there_is_no_other(void **state UNUSED)
{
    struct world *w = world_new(3, 3);
    world_region(w, "123");
    world_kill(w, 3);
    world_schedule(w);
    assert_int_equal(w->n, 0);
}

static void test_a_learner_on_a_dead_node_goes(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    struct schedule_region *r = world_region(w, "123");
    r->learners[r->learners_n++] = peer_of(4, 7);
    world_kill(w, 3);
    world_kill(w, 4);
    assert_int_equal(only(w, SCHEDULE_REMOVE)->gone, peer_of(4, 7));
}

static void test_a_node_is_drained(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    struct schedule_region *r = world_region(w, "123");
    w->nodes[0].draining = true; /* it leads */
    assert_int_equal(only(w, SCHEDULE_ADD)->node, 4);
    r->learners[r->learners_n++] = peer_of(4, 7);
    assert_int_equal(only(w, SCHEDULE_TRANSFER)->peer, peer_of(2, 1));
    r->leader = peer_of(2, 1);
    assert_int_equal(only(w, SCHEDULE_PROMOTE)->gone, peer_of(1, 1));
    w = world_new(3, 3); /* nobody takes its place */
    r = world_region(w, "123");
    w->nodes[2].draining = true;
    assert_int_equal(only(w, SCHEDULE_REMOVE)->gone, peer_of(3, 1));
}

static void test_a_node_that_is_away_gets_nothing(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    world_region(w, "123");
    world_kill(w, 3);
    w->nodes[3].away = true;
    world_schedule(w);
    assert_int_equal(w->n, 0); /* no member … */
    w = world_new(3, 3);
    world_region(w, "123");
    world_region(w, "123");
    w->nodes[1].away = true;
    assert_int_equal(only(w, SCHEDULE_TRANSFER)->peer, peer_of(3, 1)); /* … and no leadership */
    w->nodes[2].away = true;
    world_schedule(w);
    assert_int_equal(w->n, 0);
}

static void test_what_is_uneven_may_stay(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    for (u32 i = 0; i < 4; i++) world_region(w, "123");
    w->t.uneven = true;
    world_schedule(w);
    assert_int_equal(w->n, 0);
    world_kill(w, 3);
    world_schedule(w);
    assert_true(w->n > 0); /* what has to be done is done */
    w->nodes[2].heard_ms = NOW;
    w->t.uneven = false;
    world_schedule(w);
    assert_true(w->n > 0);
}

static void test_the_only_member_moves(void **state UNUSED)
{
    struct world *w = world_new(2, 1);
    struct schedule_region *r = world_region(w, "1");
    w->nodes[0].draining = true;
    assert_int_equal(only(w, SCHEDULE_ADD)->node, 2);
    r->learners[r->learners_n++] = peer_of(2, 7);
    assert_int_equal(only(w, SCHEDULE_PROMOTE)->gone, 0);
    r->voters[r->voters_n++] = r->learners[--r->learners_n];
    assert_int_equal(only(w, SCHEDULE_TRANSFER)->peer, peer_of(2, 7));
    r->leader = peer_of(2, 7);
    assert_int_equal(only(w, SCHEDULE_REMOVE)->gone, peer_of(1, 1));
}

static void test_regions_grow_with_the_nodes(void **state UNUSED)
{
    struct world *w = world_new(2, 3);
    struct schedule_region *r = world_region(w, "1");
    assert_int_equal(only(w, SCHEDULE_ADD)->node, 2);
    r->learners[r->learners_n++] = peer_of(2, 7);
    assert_int_equal(only(w, SCHEDULE_PROMOTE)->gone, 0);
    r->voters[r->voters_n++] = r->learners[--r->learners_n];
    world_schedule(w);
    assert_int_equal(w->n, 0); /* as many as there are nodes */
}

static void nothing(struct world *w)
{
    world_schedule(w);
    assert_int_equal(w->n, 0);
}

static void world_learn(struct schedule_region *r, u64 node) { r->learners[r->learners_n++] = peer_of(node, 7); }

/* Its clock is that of another node: one that was heard from in the future lives. */
static void test_a_node_heard_from_later_than_now_lives(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    world_region(w, "123");
    nothing((w->nodes[2].heard_ms = NOW + 5, w));
}

static void test_members_on_unknown_nodes_are_replaced(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    world_region(w, "129");
    const struct schedule_step *s = only(w, SCHEDULE_ADD);
    assert_true(s->node == 3 || s->node == 4);
}

static void test_of_too_many_voters_one_that_follows_goes(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    world_region(w, "1234");
    assert_int_not_equal(only(w, SCHEDULE_REMOVE)->gone, peer_of(1, 1));
}

/* Limits count learners that are there, and those that are added just now. */
static void test_few_learners_at_a_time(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    struct schedule_region *a = world_region(w, "123");
    world_region(w, "213");
    w->t.moves_node_max = 1;
    world_kill(w, 3);
    only(w, SCHEDULE_ADD);
    world_learn(a, 4);
    assert_int_equal(only(w, SCHEDULE_PROMOTE)->region, 1);
    w = world_new(5, 3);
    world_region(w, "123");
    world_region(w, "213");
    world_kill(w, 3);
    world_schedule(w);
    assert_int_equal(w->n, 2);
    assert_int_not_equal(w->steps[0].node, w->steps[1].node); /* to where there are fewer */
}

static void test_no_more_moves_than_make_it_even(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    static const char *const nodes[] = {"123", "231", "312"};
    u32 moves = 0;
    w->t.moves_max = w->t.moves_node_max = 8;
    for (u32 i = 0; i < 6; i++) world_region(w, nodes[i % 3]);
    world_schedule(w);
    for (size_t i = 0; i < w->n; i++) moves += w->steps[i].kind == SCHEDULE_ADD;
    assert_int_equal(moves, 4); /* 5, 5, 4 and 4 */
}

static void test_a_move_that_is_not_needed_any_more_is_taken_back(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    struct schedule_region *a = world_region(w, "123");
    world_region(w, "214");
    world_region(w, "342");
    world_region(w, "431");
    world_learn(a, 4);
    assert_int_equal(only(w, SCHEDULE_REMOVE)->gone, peer_of(4, 7));
}

/* Two regions whose leader is on a node that goes: the other nodes get one each. */
static void test_who_leaves_hands_on_to_nodes_that_lead_less(void **state UNUSED)
{
    struct world *w = world_new(5, 3);
    struct schedule_region *a = world_region(w, "123"), *b = world_region(w, "123");
    w->t.moves_node_max = 4;
    w->nodes[0].draining = true;
    world_learn(a, 4), world_learn(b, 4);
    world_schedule(w);
    assert_int_equal(w->n, 2);
    for (size_t i = 0; i < 2; i++) assert_int_equal(w->steps[i].kind, SCHEDULE_TRANSFER);
    assert_int_equal(node_of(w->steps[0].peer) + node_of(w->steps[1].peer), 2 + 3);
    w->t.regions_n = 1;
    w->nodes[1].away = true;
    assert_int_equal(only(w, SCHEDULE_TRANSFER)->peer, peer_of(3, 1));
    nothing((w->nodes[2].away = true, w)); /* it waits for somebody to hand on to */
}

static void test_a_node_that_leads_little_is_preferred(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    struct schedule_region *a = world_region(w, "123");
    world_region(w, "243");
    world_learn(a, 4);
    w->nodes[0].draining = true;
    assert_int_equal(only(w, SCHEDULE_TRANSFER)->peer, peer_of(3, 1));
}

static void test_without_a_leader_there_is_no_step(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    struct schedule_region *r = world_region(w, "123");
    world_kill(w, 3);
    nothing((r->leader = 0, w));
    world_learn(r, 4);
    nothing(w);
}

static void test_there_are_no_more_steps_than_asked_for(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    for (u32 i = 0; i < 3; i++) world_learn(world_region(w, "123"), 4);
    world_kill(w, 3);
    assert_int_equal(schedule(&w->t, w->steps, 1), 1);
}

static void test_splits_and_merges(void **state UNUSED)
{
    struct world *w = world_new(3, 3);
    struct schedule_region *a = world_region(w, "123"), *b = world_region(w, "213");
    world_region(w, "312");
    a->bytes = 101;
    assert_int_equal(only(w, SCHEDULE_SPLIT)->region, 1);
    a->slots.first = a->slots.last; /* one slot: nothing to split */
    world_schedule(w);
    assert_int_equal(w->n, 0);
    a->bytes = 5, b->bytes = 5, w->t.merge_bytes = 25, w->t.merges_max = 2, w->t.regions_min = 2;
    const struct schedule_step *s = only(w, SCHEDULE_MERGE);
    assert_int_equal(s->region, 2);
    assert_int_equal(s->into, 1);
    b->bytes = 6; /* the one with less goes */
    s = only(w, SCHEDULE_MERGE);
    assert_int_equal(s->region, 1);
    assert_int_equal(s->into, 2);
    w->t.regions_min = 3;
    world_schedule(w);
    assert_int_equal(w->n, 0);
}

/* What would be split again soon is not merged, nor what is not known. */
static void test_merges_wait_and_keep_away_from_splits(void **state UNUSED)
{
    struct world *w = world_new(3, 3);
    struct schedule_region *a = world_region(w, "123"), *b = world_region(w, "213");
    a->bytes = 5, b->bytes = 46, a->load = 10, b->load = 21;
    w->t.merge_bytes = 10, w->t.merges_max = 2;
    nothing((w->t.merged_bytes = 50, w));
    w->t.merged_bytes = 51;
    only(w, SCHEDULE_MERGE);
    nothing((w->t.merged_load = 30, w));
    w->t.merged_load = 31;
    only(w, SCHEDULE_MERGE);
    nothing((a->bytes = 10, w)); /* it is not small */
    a->bytes = 5;
    nothing((b->settled = false, w));
    b->settled = true;
    nothing((b->changing = true, w));
    b->changing = false;
    nothing((b->slots.first++, w)); /* no neighbour */
    b->slots.first--;
    nothing((w->nodes[2].away = true, w)); /* it could not be finished */
    w->nodes[2].away = false;
    only(w, SCHEDULE_MERGE);
}

/* Two at a time, those that are prepared included. */
static void test_few_merges_at_a_time(void **state UNUSED)
{
    struct world *w = world_new(3, 3);
    static const char *const nodes[] = {"123", "231", "312"};
    for (u32 i = 0; i < 9; i++) world_region(w, nodes[i % 3])->bytes = 1;
    w->t.merge_bytes = 10, w->t.merges_max = 2;
    world_schedule(w);
    assert_int_equal(w->n, 2);
    assert_int_equal(w->steps[0].region, 2);
    assert_int_equal(w->steps[1].region, 4);
    w->regions[0].merging = w->regions[0].changing = w->regions[1].merging = w->regions[1].changing = true;
    only(w, SCHEDULE_MERGE);
    w->regions[2].merging = w->regions[2].changing = w->regions[3].merging = w->regions[3].changing = true;
    nothing(w);
}

/* Members come to the nodes of the neighbour first, one at a time, and evenness does not send them back. */
static void test_members_come_together_to_be_merged(void **state UNUSED)
{
    struct world *w = world_new(6, 3);
    struct schedule_region *a = world_region(w, "123"), *b = world_region(w, "145");
    a->bytes = 5, b->bytes = 4;
    w->t.merge_bytes = 10, w->t.merges_max = 2;
    const struct schedule_step *s = only(w, SCHEDULE_ADD);
    assert_int_equal(s->region, 2);
    assert_int_equal(s->node, 2);
    assert_string_equal(s->reason, "to be where region 1 is, and merged into it");
    b->learners[b->learners_n++] = peer_of(2, 7);
    s = only(w, SCHEDULE_PROMOTE);
    assert_int_equal(s->peer, peer_of(2, 7));
    assert_true(s->gone == peer_of(4, 1) || s->gone == peer_of(5, 1));
    b->learners_n = 0;
    for (u32 i = 0; i < 3; i++) /* as the step says */
        if (b->voters[i] == s->gone) b->voters[i] = peer_of(2, 7);
    s = only(w, SCHEDULE_ADD);
    assert_int_equal(s->node, 3);
    for (u32 i = 0; i < 3; i++)
        if (node_of(b->voters[i]) > 3) b->voters[i] = peer_of(3, 8);
    s = only(w, SCHEDULE_MERGE);
    assert_int_equal(s->region, 2);
    assert_int_equal(s->into, 1);
}

/* Node 1 leads two, node 3 none, and no region of node 1's has a member there: each hands one on. */
static void test_leaderships_move_along_a_path(void **state UNUSED)
{
    struct world *w = world_new(3, 2);
    world_region(w, "12");
    world_region(w, "12");
    world_region(w, "23");
    w->t.voters = 2;
    w->nodes[2].draining = false;
    w->t.moves_max = 0;
    world_schedule(w);
    assert_int_equal(w->n, 2);
    for (size_t i = 0; i < 2; i++) assert_int_equal(w->steps[i].kind, SCHEDULE_TRANSFER);
    assert_int_equal(node_of(w->steps[0].peer) + node_of(w->steps[1].peer), 2 + 3);
}

/* Neighbours that are on the same nodes already come first. Nodes that have enough to do are passed over. */
static void test_merges_that_need_no_moves_come_first(void **state UNUSED)
{
    struct world *w = world_new(4, 3);
    world_region(w, "123")->bytes = 5;
    world_region(w, "234")->bytes = 5;
    world_region(w, "342")->bytes = 5;
    w->t.merge_bytes = 10, w->t.merges_max = 1;
    const struct schedule_step *s = only(w, SCHEDULE_MERGE);
    assert_int_equal(s->region, 3);
    assert_int_equal(s->into, 2);
    w = world_new(6, 3);
    world_region(w, "123")->bytes = 5;
    world_region(w, "145")->bytes = 4;
    struct schedule_region *c = world_region(w, "456");
    c->slots.last += 100, c->slots.first += 100; /* no neighbour */
    world_learn(c, 2);
    w->t.merge_bytes = 10, w->t.merges_max = 2, w->t.moves_node_max = 1;
    world_schedule(w);
    for (size_t i = 0; i < w->n; i++)
        if (w->steps[i].kind == SCHEDULE_ADD) assert_int_equal(w->steps[i].node, 3);
    assert_true(w->n > 0);
}

/* ---- Whatever happens, it comes to an end. */

static void drop(u64 *peers, u32 *n, u64 peer)
{
    for (u32 i = 0; i < *n; i++)
        if (peers[i] == peer) peers[i] = peers[--*n];
}

static struct schedule_region *world_find(struct world *w, u64 region)
{
    size_t i = 0;
    while (w->regions[i].region != region) i++;
    assert_in_range(i, 0, w->t.regions_n - 1);
    return &w->regions[i];
}

static void world_merge(struct world *w, struct schedule_region *r, struct schedule_region *into)
{
    assert_int_equal(r->voters_n, into->voters_n);
    assert_int_equal(r->learners_n + into->learners_n, 0);
    for (u32 i = 0; i < r->voters_n; i++) {
        bool same = false;
        for (u32 k = 0; k < into->voters_n; k++) same |= node_of(r->voters[i]) == node_of(into->voters[k]);
        assert_true(same);
    }
    assert_true(r->slots.last + 1 == into->slots.first || into->slots.last + 1 == r->slots.first);
    into->slots.first = MIN(into->slots.first, r->slots.first);
    into->slots.last = MAX(into->slots.last, r->slots.last);
    into->bytes += r->bytes;
    *r = w->regions[--w->t.regions_n];
}

/* Carries a step out as the region's leader would; sometimes it is too late, or the learner needs longer. */
static void world_do(struct world *w, const struct schedule_step *s)
{
    struct schedule_region *r = world_find(w, s->region);
    assert_false(r->changing);
    if (rand_below(&w->rng, 100) < 30) return;
    if (s->kind == SCHEDULE_ADD) {
        for (u32 i = 0; i < r->voters_n; i++) assert_int_not_equal(node_of(r->voters[i]), s->node);
        r->learners[r->learners_n++] = peer_of(s->node, ++w->conf_ver);
        assert_int_equal(r->learners_n, 1);
    } else if (s->kind == SCHEDULE_PROMOTE) {
        drop(r->learners, &r->learners_n, s->peer);
        r->voters[r->voters_n++] = s->peer;
        drop(r->voters, &r->voters_n, s->gone);
        assert_true(s->gone != r->leader);
    } else if (s->kind == SCHEDULE_REMOVE) {
        assert_true(s->gone != r->leader);
        drop(r->voters, &r->voters_n, s->gone);
        drop(r->learners, &r->learners_n, s->gone);
    } else if (s->kind == SCHEDULE_TRANSFER) {
        r->leader = s->peer;
    } else if (s->kind == SCHEDULE_MERGE) {
        world_merge(w, r, world_find(w, s->into));
        return;
    }
    assert_in_range(r->voters_n, 1, w->t.voters + 1);
}

static bool world_lives(const struct world *w, u64 peer)
{
    return NOW - w->nodes[node_of(peer) - 1].heard_ms <= DEAD_AFTER;
}

/* The leader of a node that died is followed by another voter. */
static void world_elect(struct world *w, struct schedule_region *r)
{
    if (r->leader && world_lives(w, r->leader)) return;
    r->leader = 0;
    for (u32 i = 0; i < r->voters_n; i++)
        if (world_lives(w, r->voters[i])) r->leader = r->voters[i];
}

static u32 world_learners(const struct world *w)
{
    u32 n = 0;
    for (size_t i = 0; i < w->t.regions_n; i++) n += w->regions[i].learners_n;
    return n;
}

/* Until there is nothing to do for a while; returns how many rounds that took. */
static u32 world_settle(struct world *w)
{
    u32 rounds = 0;
    for (u32 quiet = 0; quiet < 5; rounds++) {
        for (size_t i = 0; i < w->t.regions_n; i++) world_elect(w, &w->regions[i]);
        world_schedule(w);
        quiet = w->n ? 0 : quiet + 1;
        for (size_t i = 0; i < w->n; i++)
            for (size_t k = 0; k < i; k++) assert_int_not_equal(w->steps[i].region, w->steps[k].region);
        for (size_t i = 0; i < w->n; i++) world_do(w, &w->steps[i]);
        assert_in_range(world_learners(w), 0, w->t.moves_max);
        assert_in_range(rounds, 0, 2000);
    }
    return rounds;
}

static void world_check_even(const struct world *w)
{
    u32 members[NODES] = {0}, leaders[NODES] = {0}, most = 0, least = UINT32_MAX, lead_most = 0,
        lead_least = UINT32_MAX;
    for (size_t i = 0; i < w->t.regions_n; i++) {
        const struct schedule_region *r = &w->regions[i];
        assert_int_equal(r->learners_n, 0);
        for (u32 k = 0; k < r->voters_n; k++) members[node_of(r->voters[k]) - 1]++;
        leaders[node_of(r->leader) - 1]++;
    }
    for (size_t i = 0; i < w->t.nodes_n; i++) {
        const struct schedule_node *n = &w->nodes[i];
        if (n->draining || NOW - n->heard_ms > DEAD_AFTER) continue;
        most = MAX(most, members[i]), least = MIN(least, members[i]);
        lead_most = MAX(lead_most, leaders[i]), lead_least = MIN(lead_least, leaders[i]);
    }
    assert_in_range(most - least, 0, 1);
    assert_in_range(lead_most - lead_least, 0, 1);
}

/* No small region is left that could be merged. */
static void world_check_merged(const struct world *w)
{
    u32 slots = 0;
    for (size_t i = 0; i < w->t.regions_n; i++) {
        const struct schedule_region *a = &w->regions[i];
        slots += a->slots.last - a->slots.first + 1u;
        for (size_t k = 0; k < w->t.regions_n && w->t.merge_bytes && w->t.regions_n > w->t.regions_min; k++) {
            const struct schedule_region *b = &w->regions[k];
            if (a->slots.last + 1 != b->slots.first) continue;
            assert_true(MIN(a->bytes, b->bytes) >= w->t.merge_bytes ||
                        a->bytes + b->bytes > w->t.merged_bytes);
        }
    }
    assert_int_equal(slots % 100, 0);
}

static void test_it_becomes_even_and_silent(void **state UNUSED)
{
    for (u64 seed = 1; seed <= 300; seed++) {
        u64 rng = seed;
        u32 nodes = 4 + (u32)rand_below(&rng, NODES - 3), regions = 1 + (u32)rand_below(&rng, REGIONS);
        struct world *w = world_new(nodes, 3);
        w->rng = rng;
        for (u32 i = 0; i < regions; i++) {
            struct schedule_region *r = world_region(w, i % 2 ? "123" : "1");
            if (seed % 2) r->bytes = rand_below(&w->rng, 40);
        }
        if (seed % 2)
            w->t.merge_bytes = 20, w->t.merged_bytes = 50, w->t.merges_max = 2, w->t.regions_min = 3;
        world_settle(w);
        for (u32 event = 0; event < 4; event++) {
            u64 node = 1 + rand_below(&w->rng, nodes);
            switch (rand_below(&w->rng, 4)) {
            case 0: world_kill(w, node); break;
            case 1: w->nodes[node - 1].draining = true; break;
            case 2: w->nodes[node - 1] = (struct schedule_node){.node = node, .heard_ms = NOW}; break;
            default: w->regions[rand_below(&w->rng, w->t.regions_n)].leader = 0; /* another one is elected */
            }
            u32 gone = 0;
            for (u32 i = 0; i < nodes; i++)
                gone += w->nodes[i].draining || NOW - w->nodes[i].heard_ms > DEAD_AFTER;
            if (gone + 3 > nodes || gone > 1) w->nodes[node - 1] = (struct schedule_node){node, NOW, false};
            world_settle(w);
        }
        for (size_t i = 0; i < w->t.regions_n; i++) assert_int_equal(w->regions[i].voters_n, 3);
        world_check_even(w);
        world_check_merged(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dead_node_is_replaced),
        cmocka_unit_test(test_a_dead_node_stays_if_there_is_no_other),
        cmocka_unit_test(test_a_learner_on_a_dead_node_goes),
        cmocka_unit_test(test_a_node_is_drained),
        cmocka_unit_test(test_a_node_that_is_away_gets_nothing),
        cmocka_unit_test(test_what_is_uneven_may_stay),
        cmocka_unit_test(test_the_only_member_moves),
        cmocka_unit_test(test_regions_grow_with_the_nodes),
        cmocka_unit_test(test_a_node_heard_from_later_than_now_lives),
        cmocka_unit_test(test_members_on_unknown_nodes_are_replaced),
        cmocka_unit_test(test_of_too_many_voters_one_that_follows_goes),
        cmocka_unit_test(test_few_learners_at_a_time),
        cmocka_unit_test(test_no_more_moves_than_make_it_even),
        cmocka_unit_test(test_a_move_that_is_not_needed_any_more_is_taken_back),
        cmocka_unit_test(test_who_leaves_hands_on_to_nodes_that_lead_less),
        cmocka_unit_test(test_a_node_that_leads_little_is_preferred),
        cmocka_unit_test(test_without_a_leader_there_is_no_step),
        cmocka_unit_test(test_there_are_no_more_steps_than_asked_for),
        cmocka_unit_test(test_splits_and_merges),
        cmocka_unit_test(test_merges_wait_and_keep_away_from_splits),
        cmocka_unit_test(test_few_merges_at_a_time),
        cmocka_unit_test(test_members_come_together_to_be_merged),
        cmocka_unit_test(test_merges_that_need_no_moves_come_first),
        cmocka_unit_test(test_leaderships_move_along_a_path),
        cmocka_unit_test(test_it_becomes_even_and_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
