/* A long sequence of bytes in pieces, each a buffer that stays as it is: none of it is moved, or copied to
 * where there is room for more. It grows at the end, and goes from the beginning; or back to where it ended
 * before. A zeroed struct is empty. */
#ifndef MAYFLY_BASE_PIECES_H
#define MAYFLY_BASE_PIECES_H

#include "base/buf.h"

struct piece;

struct pieces {
    struct piece *first, *last;
    u32 count;
    size_t bytes, memory; /* of all of them */
};

void pieces_add(struct pieces *p, struct buf *b); /* takes over what it holds, and leaves an empty buf */
bytes pieces_first(const struct pieces *p);       /* what the first piece holds; there is one */
void pieces_drop_first(struct pieces *p);
void pieces_cut(struct pieces *p, size_t end);    /* leaves so many bytes, if there are more */
static inline void pieces_release(struct pieces *p) { pieces_cut(p, 0); }

#endif
