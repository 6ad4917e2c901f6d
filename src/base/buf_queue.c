#include "base/buf_queue.h"

#include "base/alloc.h"

struct buf_queue_node {
    struct buf b;
    struct buf_queue_node *prev, *next;
};

void buf_queue_add(struct buf_queue *q, struct buf *b)
{
    struct buf_queue_node *new = mem_alloc(sizeof *new);
    *new = (struct buf_queue_node){.b = *b, .prev = q->last};
    buf_trim(&new->b);
    *(q->last ? &q->last->next : &q->first) = new;
    q->last = new;
    q->count++;
    q->bytes += new->b.n;
    q->memory += new->b.cap + sizeof *new;
    *b = (struct buf){0};
}

bytes buf_queue_first(const struct buf_queue *q) { return buf_bytes(&q->first->b); }

static void buf_queue_remove(struct buf_queue *q, struct buf_queue_node *gone)
{
    *(gone->prev ? &gone->prev->next : &q->first) = gone->next;
    *(gone->next ? &gone->next->prev : &q->last) = gone->prev;
    q->count--;
    q->bytes -= gone->b.n;
    q->memory -= gone->b.cap + sizeof *gone;
    buf_release(&gone->b);
    mem_free(gone);
}

void buf_queue_drop_first(struct buf_queue *q) { buf_queue_remove(q, q->first); }

void buf_queue_cut(struct buf_queue *q, size_t end)
{
    while (q->last && q->bytes - q->last->b.n >= end) buf_queue_remove(q, q->last);
    if (!q->last || q->bytes <= end) return;
    q->last->b.n -= q->bytes - end;
    q->bytes = end;
}

void buf_queue_copy(const struct buf_queue *q, size_t begin, struct buf *to)
{
    const struct buf_queue_node *node = q->last;
    size_t at = q->bytes; /* where `node` begins, once it is found */
    if (begin >= q->bytes) return;
    while ((at -= node->b.n) > begin) node = node->prev;
    for (size_t skip = begin - at; node; node = node->next, skip = 0)
        buf_append(to, node->b.p + skip, node->b.n - skip);
}
