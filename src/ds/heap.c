/* Invariant: the children of v[i] are v[2i + 1] and v[2i + 2], and neither orders before it. */
#include "ds/heap.h"

#include "base/alloc.h"

static bool before(const struct heap_node *a, const struct heap_node *b)
{
    return a->key < b->key || (a->key == b->key && a->tie < b->tie);
}

static void heap_place(struct heap *h, u32 at, struct heap_node *node)
{
    h->v[at] = node;
    node->at = at;
}

static void heap_move_up(struct heap *h, u32 at, struct heap_node *node)
{
    for (; at; at = (at - 1) / 2) {
        struct heap_node *parent = h->v[(at - 1) / 2];
        if (!before(node, parent)) break;
        heap_place(h, at, parent);
    }
    heap_place(h, at, node);
}

static void move_down(struct heap *h, u32 at, struct heap_node *node)
{
    for (u32 child; (child = at * 2 + 1) < h->n; at = child) {
        if (child + 1 < h->n && before(h->v[child + 1], h->v[child])) child++;
        if (!before(h->v[child], node)) break;
        heap_place(h, at, h->v[child]);
    }
    heap_place(h, at, node);
}

void heap_add(struct heap *h, struct heap_node *node)
{
    if (h->n == h->cap) {
        h->cap = h->cap ? h->cap * 2 : 16;
        h->v = mem_realloc(h->v, h->cap * sizeof(struct heap_node *));
    }
    heap_move_up(h, h->n++, node);
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    u32 at = node->at;
    struct heap_node *last = h->v[--h->n];
    if (last == node) return;
    if (at && before(last, h->v[(at - 1) / 2])) heap_move_up(h, at, last);
    else move_down(h, at, last);
}

void heap_release(struct heap *h)
{
    mem_free(h->v);
    *h = (struct heap){0};
}
