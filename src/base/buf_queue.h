/* A queue of buffers that together hold a long sequence of bytes. Appending moves a buffer in without copying
 * its bytes; they stay at the same address until they are dropped. Bytes leave at the front, a buffer at a
 * time, or at the back, by cutting the queue to an earlier length. The queue owns its buffers. A zeroed
 * struct is empty.
 *
 *     buf_queue_add(&q, &b);               b is empty afterwards
 *     bytes first = buf_queue_first(&q);   valid until it is dropped or cut
 *     buf_queue_drop_first(&q); */
#ifndef MAYFLY_BASE_BUF_QUEUE_H
#define MAYFLY_BASE_BUF_QUEUE_H

#include "base/buf.h"

struct buf_queue_node;

struct buf_queue {
    struct buf_queue_node *first, *last;
    u32 count;            /* buffers */
    size_t bytes, memory; /* in all buffers */
};

void buf_queue_add(struct buf_queue *q, struct buf *b); /* moves b's bytes to the end, leaves b empty */
bytes buf_queue_first(const struct buf_queue *q);       /* the first buffer's bytes; the queue is not empty */
void buf_queue_drop_first(struct buf_queue *q);         /* frees the first buffer; the queue is not empty */
void buf_queue_cut(struct buf_queue *q, size_t end);    /* keeps the first `end` bytes, drops the rest */
/* Appends all but the first `begin` bytes to `to`. */
void buf_queue_copy(const struct buf_queue *q, size_t begin, struct buf *to);
static inline void buf_queue_release(struct buf_queue *q) { buf_queue_cut(q, 0); }

#endif
