#include "base/pieces.h"

#include "base/alloc.h"

struct piece {
    struct buf b;
    struct piece *prev, *next;
};

void pieces_add(struct pieces *p, struct buf *b)
{
    struct piece *new = mem_alloc(sizeof *new);
    *new = (struct piece){.b = *b, .prev = p->last};
    buf_trim(&new->b);
    *(p->last ? &p->last->next : &p->first) = new;
    p->last = new;
    p->count++;
    p->bytes += new->b.n;
    p->memory += new->b.cap + sizeof *new;
    *b = (struct buf){0};
}

bytes pieces_first(const struct pieces *p) { return buf_bytes(&p->first->b); }

static void drop(struct pieces *p, struct piece *gone)
{
    *(gone->prev ? &gone->prev->next : &p->first) = gone->next;
    *(gone->next ? &gone->next->prev : &p->last) = gone->prev;
    p->count--;
    p->bytes -= gone->b.n;
    p->memory -= gone->b.cap + sizeof *gone;
    buf_release(&gone->b);
    mem_free(gone);
}

void pieces_drop_first(struct pieces *p) { drop(p, p->first); }

void pieces_cut(struct pieces *p, size_t end)
{
    while (p->last && p->bytes - p->last->b.n >= end) drop(p, p->last);
    if (!p->last || p->bytes <= end) return;
    p->last->b.n -= p->bytes - end;
    p->bytes = end;
}
