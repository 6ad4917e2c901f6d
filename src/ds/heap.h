/* A binary heap of nodes embedded in the caller's structs: smallest key first, then smallest `tie`. Adding
 * and removing any node is O(log n). The heap owns its array, not the nodes. */
#ifndef MAYFLY_DS_HEAP_H
#define MAYFLY_DS_HEAP_H

#include "base/types.h"

struct heap_node {
    i64 key;
    u64 tie;
    u32 at; /* its index in the heap */
};

struct heap { /* zeroed: empty */
    struct heap_node **v;
    u32 n, cap;
};

void heap_add(struct heap *h, struct heap_node *node);
void heap_remove(struct heap *h, struct heap_node *node); /* must be in the heap */
void heap_release(struct heap *h);

static inline struct heap_node *heap_first(const struct heap *h) { return h->n ? h->v[0] : NULL; }

#endif
