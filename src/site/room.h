/* Makes room for one more element in an array that grows; returns where it is now. */
#ifndef MAYFLY_SITE_ROOM_H
#define MAYFLY_SITE_ROOM_H

#include "base/alloc.h"

static inline void *site_room(void *p, u32 n, u32 *room, size_t size)
{
    if (n < *room) return p;
    *room = *room ? *room * 2 : 2;
    return mem_realloc(p, *room * size);
}

#endif
