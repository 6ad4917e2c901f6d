#include "base/arena.h"

#include "base/alloc.h"

#define CHUNK 8192

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, cap;
    char data[];
};

void *arena_alloc(struct arena *a, size_t n)
{
    struct arena_chunk *c = a->chunks;
    n = (n + 7) & ~(size_t)7;
    if (!c || c->cap - c->used < n) {
        size_t cap = MAX(n, CHUNK - sizeof *c);
        c = mem_alloc(sizeof *c + cap);
        *c = (struct arena_chunk){.next = a->chunks, .cap = cap};
        a->chunks = c;
    }
    void *p = c->data + c->used;
    c->used += n;
    return p;
}

static void free_from(struct arena_chunk *c)
{
    while (c) {
        struct arena_chunk *next = c->next;
        mem_free(c);
        c = next;
    }
}

void arena_clear(struct arena *a)
{
    if (!a->chunks) return;
    free_from(a->chunks->next);
    a->chunks->next = NULL;
    a->chunks->used = 0;
}

void arena_release(struct arena *a)
{
    free_from(a->chunks);
    a->chunks = NULL;
}
