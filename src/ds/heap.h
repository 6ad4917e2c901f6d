/* A binary heap of nodes that live in the caller's structs: the smallest key first, among equals the smallest
 * `tie`. Adding and removing any node is O(log n). */
#ifndef MAYFLY_DS_HEAP_H
#define MAYFLY_DS_HEAP_H

#include "base/types.h"

struct heap_node {
    i64 key;
    u64 tie;
    u32 at; /* its place in the heap */
};

struct heap { /* zeroed to start */
    struct heap_node **v;
    u32 n, cap;
};

void heap_add(struct heap *h, struct heap_node *node);
void heap_remove(struct heap *h, struct heap_node *node); /* which is in it */
void heap_release(struct heap *h);

static inline struct heap_node *heap_first(const struct heap *h) { return h->n ? h->v[0] : NULL; }

#endif
