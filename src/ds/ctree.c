/* Invariants:
 * (1) All leaves are at the same depth, and their linked list is in the tree's order.
 * (2) count[i] is the number of entries below child[i]. In a keyed tree first[i] is exactly the first of
 *     them: its item pointer never outlives the entry.
 * (3) The counts of (2) leave out the first and the last leaf of an unkeyed tree. A list grows and shrinks
 *     there, and so no inner node has to be updated.
 * (4) The root, if an inner node, has at least two children, any other inner node at least one, and two
 *     adjacent inner nodes under one parent have more than MERGE_AT children together. This bounds the
 *     height.
 *
 * Nodes point to their parents; a node's slot in its parent is found by a linear search. The client changes a
 * leaf, and the update propagates up from there. */
#include "ds/ctree.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

#define MERGE_AT (CTREE_FANOUT / 2)

static size_t inner_size(const struct ctree *t)
{
    size_t keys = t->keyed ? CTREE_FANOUT * sizeof(struct ctree_key) : 0;
    return sizeof(struct ctree_inner) + keys;
}

static struct ctree_inner *inner_new(struct ctree *t)
{
    struct ctree_inner *in = mem_alloc(inner_size(t));
    in->node.parent = NULL;
    in->n = 0;
    t->inners++;
    return in;
}

static void inner_free(struct ctree *t, struct ctree_inner *in)
{
    t->inners--;
    mem_free(in);
}

/* Searches from both ends, because lists and logs grow there. */
static u32 ctree_slot_of(const struct ctree_inner *in, const struct ctree_node *child)
{
    u32 low = 0, high = in->n - 1;
    while (in->child[low] != child && in->child[high] != child) {
        low++;
        high--;
    }
    return in->child[low] == child ? low : high;
}

static u64 total(const struct ctree_inner *in)
{
    u64 sum = 0;
    for (u32 i = 0; i < in->n; i++) sum += in->count[i];
    return sum;
}

static const struct ctree_key *first_key(const struct ctree *t, const struct ctree_inner *in)
{
    return t->keyed ? &in->first[0] : NULL;
}

/* --- the slots of one inner node; counts above it are not touched --- */

/* Moves n slots, children included, from src[i] on to dst[j] on. Parents are not set. */
static void slots_move(const struct ctree *t, struct ctree_inner *dst, u32 j,
                       const struct ctree_inner *src, u32 i, u32 n)
{
    memmove(&dst->child[j], &src->child[i], n * sizeof dst->child[0]);
    memmove(&dst->count[j], &src->count[i], n * sizeof dst->count[0]);
    if (t->keyed) memmove(&dst->first[j], &src->first[i], n * sizeof dst->first[0]);
}

static void slot_put(const struct ctree *t, struct ctree_inner *in, u32 i,
                     struct ctree_node *child, u64 count, const struct ctree_key *first)
{
    slots_move(t, in, i + 1, in, i, in->n - i);
    in->child[i] = child;
    in->count[i] = count;
    if (t->keyed) in->first[i] = *first;
    in->n++;
    child->parent = in;
}

static void slot_drop(const struct ctree *t, struct ctree_inner *in, u32 i)
{
    in->n--;
    slots_move(t, in, i, in, i + 1, in->n - i);
}

/* Moves the children of src from `from` on to the end of dst. */
static void slots_give(const struct ctree *t, struct ctree_inner *dst, struct ctree_inner *src,
                       u32 from)
{
    u32 n = src->n - from;
    for (u32 i = from; i < src->n; i++) src->child[i]->parent = dst;
    slots_move(t, dst, dst->n, src, from, n);
    dst->n += n;
    src->n -= n;
}

/* --- propagating changes upward --- */

static bool is_end(const struct ctree_leaf *leaf) { return !leaf->prev || !leaf->next; }

/* The number of entries that inner nodes count for a leaf: invariant (3). */
static u64 weight(const struct ctree *t, const struct ctree_leaf *leaf)
{
    return !t->keyed && is_end(leaf) ? 0 : leaf->count;
}

static void sum_up(struct ctree *t)
{
    t->count = t->counted;
    if (t->keyed || !t->root) return;
    t->count += t->head->count;
    if (t->tail != t->head) t->count += t->tail->count;
}

/* Updates the count and the first entry of a node in all nodes above it. */
static void climb(struct ctree *t, const struct ctree_node *node, u64 count,
                  const struct ctree_key *first)
{
    struct ctree_inner *in = node->parent;
    u32 i = in ? ctree_slot_of(in, node) : 0;
    u64 delta = count - (in ? in->count[i] : t->counted);
    while (in) {
        in->count[i] += delta;
        if (first) in->first[i] = *first;
        if (i > 0) first = NULL;
        node = &in->node;
        in = node->parent;
        if (in) i = ctree_slot_of(in, node);
    }
    if (first) t->first = *first;
    t->counted += delta;
}

static void climb_from(struct ctree *t, const struct ctree_inner *in)
{
    climb(t, &in->node, total(in), first_key(t, in));
}

void ctree_update(struct ctree *t, struct ctree_leaf *leaf, const struct ctree_key *first)
{
    if (t->keyed || !is_end(leaf)) climb(t, &leaf->node, leaf->count, first);
    sum_up(t);
}

/* A neighbour was added or removed, so the leaf may have become an end leaf, or ceased to be one: invariant
 * (3). */
static void end_changed(struct ctree *t, struct ctree_leaf *leaf)
{
    if (!t->keyed) climb(t, &leaf->node, weight(t, leaf), NULL);
}

/* --- adding --- */

static void add_beside(struct ctree *t, struct ctree_node *sibling, bool after,
                       struct ctree_node *child, u64 count, const struct ctree_key *first,
                       u32 keep);

/* Adds a new root above the old one. */
static struct ctree_inner *ctree_grow_root(struct ctree *t)
{
    struct ctree_inner *in = inner_new(t);
    slot_put(t, in, 0, t->root, t->counted, &t->first);
    t->root = &in->node;
    t->height++;
    return in;
}

/* Splits a full node, leaving it `keep` children; returns the new right one. */
static struct ctree_inner *ctree_split_inner(struct ctree *t, struct ctree_inner *in, u32 keep)
{
    struct ctree_inner *right = inner_new(t);
    slots_give(t, right, in, keep);
    climb_from(t, in);
    add_beside(t, &in->node, true, &right->node, total(right), first_key(t, right), keep);
    return right;
}

/* Adds a child next to a sibling. If a node must be split for it, the left part
 * keeps `keep` children. */
static void add_beside(struct ctree *t, struct ctree_node *sibling, bool after,
                       struct ctree_node *child, u64 count, const struct ctree_key *first,
                       u32 keep)
{
    struct ctree_inner *in = sibling->parent ? sibling->parent : ctree_grow_root(t);
    u32 i = ctree_slot_of(in, sibling) + after;
    if (in->n == CTREE_FANOUT) {
        struct ctree_inner *right = ctree_split_inner(t, in, keep);
        if (i > keep) {
            in = right;
            i -= keep;
        }
    }
    slot_put(t, in, i, child, count, first);
    climb_from(t, in);
}

void ctree_insert(struct ctree *t, struct ctree_leaf *after, struct ctree_leaf *leaf,
                  const struct ctree_key *first)
{
    leaf->node.parent = NULL;
    leaf->prev = after;
    leaf->next = after ? after->next : t->head;
    *(leaf->prev ? &leaf->prev->next : &t->head) = leaf;
    *(leaf->next ? &leaf->next->prev : &t->tail) = leaf;
    t->leaves++;
    if (!t->root) {
        t->root = &leaf->node;
        climb(t, &leaf->node, weight(t, leaf), first);
    } else {
        /* A tree that grows at one end should consist of full nodes. */
        u32 keep = !leaf->next ? CTREE_FANOUT - 1 : !leaf->prev ? 1 : CTREE_FANOUT / 2;
        struct ctree_leaf *sibling = after ? after : leaf->next;
        CHECK(sibling); /* a tree with a root has a leaf */
        add_beside(t, &sibling->node, after != NULL, &leaf->node, weight(t, leaf), first, keep);
        if (is_end(leaf)) end_changed(t, sibling);
    }
    sum_up(t);
}

/* --- removing --- */

static void ctree_drop_child(struct ctree *t, struct ctree_inner *in, const struct ctree_node *child);

/* Merges two small neighbours under one parent: invariant (4). */
static void merge(struct ctree *t, struct ctree_inner *left, struct ctree_inner *right)
{
    slots_give(t, left, right, 0);
    climb_from(t, left);
    ctree_drop_child(t, right->node.parent, &right->node);
    inner_free(t, right);
}

/* Drops the root while it has a single child. */
static void ctree_shrink_root(struct ctree *t)
{
    while (t->height > 0) {
        struct ctree_inner *in = (struct ctree_inner *)t->root;
        if (in->n > 1) return;
        t->root = in->child[0];
        t->root->parent = NULL;
        t->height--;
        inner_free(t, in);
    }
}

static void ctree_drop_child(struct ctree *t, struct ctree_inner *in, const struct ctree_node *child)
{
    struct ctree_inner *up = in->node.parent;
    slot_drop(t, in, ctree_slot_of(in, child));
    if (in->n == 0) { /* not the root: that has two children */
        ctree_drop_child(t, up, &in->node);
        inner_free(t, in);
        return;
    }
    climb_from(t, in);
    if (!up) {
        ctree_shrink_root(t);
        return;
    }
    u32 i = ctree_slot_of(up, &in->node);
    struct ctree_inner *left = i > 0 ? (struct ctree_inner *)up->child[i - 1] : NULL;
    struct ctree_inner *right = i + 1 < up->n ? (struct ctree_inner *)up->child[i + 1] : NULL;
    if (left && left->n + in->n <= MERGE_AT)
        merge(t, left, in);
    else if (right && in->n + right->n <= MERGE_AT)
        merge(t, in, right);
}

void ctree_remove(struct ctree *t, struct ctree_leaf *leaf)
{
    *(leaf->prev ? &leaf->prev->next : &t->head) = leaf->next;
    *(leaf->next ? &leaf->next->prev : &t->tail) = leaf->prev;
    t->leaves--;
    if (leaf->node.parent) {
        struct ctree_leaf *sibling = leaf->prev ? leaf->prev : leaf->next;
        CHECK(sibling); /* an inner node has several leaves below it */
        ctree_drop_child(t, leaf->node.parent, &leaf->node);
        if (is_end(leaf)) end_changed(t, sibling);
    } else {
        t->root = NULL;
        t->counted = 0;
    }
    sum_up(t);
}

/* --- reading --- */

struct ctree_leaf *ctree_at(const struct ctree *t, u64 rank, u32 *offset)
{
    CHECK(rank < t->count);
    if (!t->keyed) {
        if (rank < t->head->count) {
            *offset = (u32)rank;
            return t->head;
        }
        rank -= t->head->count;
        if (rank >= t->counted) {
            *offset = (u32)(rank - t->counted);
            return t->tail;
        }
    }
    struct ctree_node *node = t->root;
    for (u32 level = t->height; level > 0; level--) {
        const struct ctree_inner *in = (const struct ctree_inner *)node;
        u32 i = 0;
        while (rank >= in->count[i]) rank -= in->count[i++];
        node = in->child[i];
    }
    *offset = (u32)rank;
    return (struct ctree_leaf *)node;
}

size_t ctree_memory(const struct ctree *t) { return t->inners * inner_size(t); }

/* --- checking --- */

struct walk {
    const struct ctree *t;
    const struct ctree_key *(*first_of)(const struct ctree_leaf *leaf);
    const struct ctree_leaf *next; /* the leaf the walk must meet next */
    u64 entries, leaves, inners;
};

/* CHECKs a subtree. Returns its count and its first key. */
static u64 check_node(struct walk *w, const struct ctree_node *node, u32 level,
                      struct ctree_key *first)
{
    if (level == 0) {
        const struct ctree_leaf *leaf = (const struct ctree_leaf *)node;
        CHECK(leaf == w->next && leaf->count > 0);
        CHECK(leaf->next ? leaf->next->prev == leaf : w->t->tail == leaf);
        w->next = leaf->next;
        w->leaves++;
        w->entries += leaf->count;
        if (w->t->keyed) *first = *w->first_of(leaf);
        return weight(w->t, leaf);
    }
    const struct ctree_inner *in = (const struct ctree_inner *)node;
    w->inners++;
    CHECK(in->n > (in->node.parent ? 0 : 1) && in->n <= CTREE_FANOUT);
    for (u32 i = 0; i < in->n; i++) {
        struct ctree_key key = {0};
        CHECK(in->child[i]->parent == in);
        CHECK(check_node(w, in->child[i], level - 1, &key) == in->count[i]);
        if (i == 0) *first = key;
        if (w->t->keyed)
            CHECK(key.item == in->first[i].item && key.score == in->first[i].score);
        if (level > 1 && i > 0) {
            const struct ctree_inner *left = (const struct ctree_inner *)in->child[i - 1];
            const struct ctree_inner *right = (const struct ctree_inner *)in->child[i];
            CHECK(left->n + right->n > MERGE_AT);
        }
    }
    return total(in);
}

void ctree_check(const struct ctree *t,
                 const struct ctree_key *(*first_of)(const struct ctree_leaf *leaf))
{
    struct walk w = {.t = t, .first_of = first_of, .next = t->head};
    struct ctree_key first = {0};
    if (t->root) {
        CHECK(!t->root->parent && !t->head->prev);
        CHECK(check_node(&w, t->root, t->height, &first) == t->counted);
        if (t->keyed) CHECK(first.item == t->first.item && first.score == t->first.score);
    } else {
        CHECK(!t->head && !t->tail && t->counted == 0 && t->height == 0);
    }
    CHECK(w.entries == t->count);
    CHECK(!w.next && w.leaves == t->leaves && w.inners == t->inners);
}
