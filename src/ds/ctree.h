/* A counted B+tree: the shared part of sorted sets (ztree), lists (rope) and ordered maps (omap). It keeps
 * leaves in order and counts the entries below every branch, so that the leaf of the i-th entry is found in
 * O(log n).
 *
 * The client defines the leaves: it embeds struct ctree_leaf as the first member of its own struct, allocates
 * and frees it, moves entries between leaves, and calls ctree_update afterwards. A keyed tree also keeps the
 * first entry of every branch, for the client to search by. An unkeyed tree takes NULL for every key;
 * changing the number of entries in its first or last leaf is O(1). */
#ifndef MAYFLY_DS_CTREE_H
#define MAYFLY_DS_CTREE_H

#include "base/types.h"

#define CTREE_FANOUT 31 /* makes an inner node just under 512 bytes, 1024 when keyed */

struct ctree_inner;

struct ctree_node {
    struct ctree_inner *parent; /* NULL at the root */
};

struct ctree_leaf {
    struct ctree_node node;
    struct ctree_leaf *prev, *next; /* in order; NULL at the ends */
    u32 count;                      /* entries; the client sets it, then calls ctree_update */
};

struct ctree_key {
    double score;
    void *item;
};

struct ctree_inner {
    struct ctree_node node;
    u32 n; /* children, at least 1; at least 2 in the root */
    struct ctree_node *child[CTREE_FANOUT];
    u64 count[CTREE_FANOUT];  /* entries below each child, without an unkeyed tree's end leaves */
    struct ctree_key first[]; /* the first entry below each child; keyed trees only */
};

/* An empty tree is zeroed except for `keyed`. */
struct ctree {
    struct ctree_node *root; /* a leaf when height is 0; NULL when empty */
    struct ctree_leaf *head, *tail;
    struct ctree_key first; /* the first entry of all; keyed trees only */
    u64 count;              /* entries in all leaves */
    u64 counted;            /* of these, counted in the inner nodes */
    u64 leaves, inners;
    u32 height; /* levels of inner nodes */
    bool keyed;
};

/* The leaf holding the entry of that rank, and the entry's offset in it. rank < t->count. */
struct ctree_leaf *ctree_at(const struct ctree *t, u64 rank, u32 *offset);

/* Adds a leaf with leaf->count entries after `after`, or before all when that is NULL.
 * The tree must know the other leaves' counts already. */
void ctree_insert(struct ctree *t, struct ctree_leaf *after, struct ctree_leaf *leaf,
                  const struct ctree_key *first);

/* Call it when leaf->count or the leaf's first entry has changed. */
void ctree_update(struct ctree *t, struct ctree_leaf *leaf, const struct ctree_key *first);

/* Removes a leaf from the tree. The client frees it. */
void ctree_remove(struct ctree *t, struct ctree_leaf *leaf);

/* Bytes of the inner nodes, without the leaves. */
size_t ctree_memory(const struct ctree *t);

/* For tests: CHECKs links, counts, fill and that first_of(leaf) equals the key in the tree (NULL for an
 * unkeyed tree). O(n). */
void ctree_check(const struct ctree *t,
                 const struct ctree_key *(*first_of)(const struct ctree_leaf *leaf));

#endif
