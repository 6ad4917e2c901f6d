/* Filling a collection element by element: for an engine, or a collection, without a faster way. */
#ifndef MAYFLY_ENGINE_FILL_H
#define MAYFLY_ENGINE_FILL_H

#include "engine/engine.h"

static inline u32 map_stride(const struct key_ref *ref) { return ref->type == TYPE_SET ? 1 : 2; }

static inline u32 map_fill_each(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    u32 stride = map_stride(ref), i = 0;
    for (; i < n; i += stride) {
        bytes value = stride == 2 ? v[i + 1] : (bytes){"", 0};
        if (!e->ops->map.put(e, ref, v[i], value, false)) break;
    }
    return i;
}

static inline u32 zset_fill_each(struct engine *e, struct key_ref *ref, const bytes *members,
                                 const double *scores, u32 n)
{
    u32 i = 0;
    while (i < n && e->ops->zset.put(e, ref, members[i], scores[i])) i++;
    return i;
}

#endif
