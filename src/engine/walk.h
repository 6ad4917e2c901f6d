/* Iterates over the elements of a list, set, hash or sorted set. */
#ifndef MAYFLY_ENGINE_WALK_H
#define MAYFLY_ENGINE_WALK_H

#include "engine/engine.h"

struct element {
    bytes name;   /* of a list: the element itself */
    bytes value;  /* of a hash */
    double score; /* of a sorted set */
};

union element_walk {
    struct map_iter map;
    struct seq_iter seq;
    struct zset_iter zset;
};

/* passing: an element need only live until the next one. */
static inline void element_walk(union element_walk *w, struct engine *e, struct key_ref *ref, bool passing)
{
    struct zset_seek from_lowest = {.by = ZSEEK_RANK};
    if (ref->type == TYPE_LIST) {
        e->ops->seq.iter(e, ref, 0, false, &w->seq);
        w->seq.passing = passing;
    } else if (ref->type == TYPE_ZSET) {
        e->ops->zset.iter(e, ref, &from_lowest, &w->zset);
        w->zset.passing = passing;
    } else {
        e->ops->map.iter(e, ref, &w->map);
        w->map.passing = passing;
    }
}

/* False at the end. Parts that elements of this type don't have are empty or 0. */
static inline bool element_next(union element_walk *w, const struct engine *e, const struct key_ref *ref,
                                struct element *x)
{
    *x = (struct element){0};
    if (ref->type == TYPE_LIST) return e->ops->seq.next(&w->seq, &x->name);
    if (ref->type == TYPE_ZSET) return e->ops->zset.next(&w->zset, &x->name, &x->score);
    return e->ops->map.next(&w->map, &x->name, &x->value);
}

#endif
