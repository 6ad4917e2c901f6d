/* The hits of a geo search, and sorting them. */
#ifndef MAYFLY_COMMAND_COLLECTION_GEO_HITS_H
#define MAYFLY_COMMAND_COLLECTION_GEO_HITS_H

#include "base/bytes.h"
#include "command/collection/geohash.h"

struct geo_hit {
    bytes member; /* points into the engine */
    double score;
    double distance; /* metres */
    struct geo_point at;
    size_t found; /* in order of discovery: set by geo_hits_add() */
};

/* A zeroed struct is an empty list. */
struct geo_hits {
    struct geo_hit *v;
    size_t n, cap;
};

void geo_hits_release(struct geo_hits *l);
void geo_hits_add(struct geo_hits *l, struct geo_hit hit);

/* Brings the `wanted` nearest (farthest: descending) to the front, in order.
 * Which of several equally distant ones come first, and which are left out, is as
 * in Redis: all wanted, those found earlier; else, see the source. */
void geo_hits_sort(struct geo_hits *l, size_t wanted, bool descending);

#endif
