/* Points on the globe and their 52-bit hashes, bit for bit Redis's, so that scores written by one server mean
 * the same to the other.
 *
 * A hash interleaves 26 bits of latitude (even bits) with 26 of longitude (odd bits). A prefix of it (2 *
 * step bits) names a cell; all points of a cell have neighbouring scores, so a cell is a score range of the
 * sorted set. */
#ifndef MAYFLY_COMMAND_COLLECTION_GEOHASH_H
#define MAYFLY_COMMAND_COLLECTION_GEOHASH_H

#include "base/types.h"

#define GEO_LON_MAX 180.0
#define GEO_LAT_MAX 85.05112878 /* where the Mercator map is cut to be square */

struct geo_point {
    double lon, lat; /* degrees */
};

static inline bool geo_valid(struct geo_point p)
{
    return p.lon >= -GEO_LON_MAX && p.lon <= GEO_LON_MAX && p.lat >= -GEO_LAT_MAX &&
           p.lat <= GEO_LAT_MAX;
}

/* The score of a valid point, and the middle of the cell a score names. */
u64 geohash_encode(struct geo_point p);
struct geo_point geohash_decode(double score);

/* The standard text form: 11 characters and a NUL. */
#define GEOHASH_TEXT_LEN 11
void geohash_text(struct geo_point p, char out[GEOHASH_TEXT_LEN + 1]);

double geo_distance(struct geo_point a, struct geo_point b); /* metres */

/* The area of a search: a circle, or a box aligned with the compass. */
struct geo_shape {
    struct geo_point center;
    bool is_box;
    double unit;          /* metres in the unit the sizes are given in */
    double radius;        /* of a circle */
    double width, height; /* of a box */
};

/* Whether the shape contains the point; if so, also the distance from its centre in metres. */
bool geo_contains(const struct geo_shape *s, struct geo_point p, double *distance);

/* The score ranges [from, to) that hold all points of the shape, in the order in
 * which Redis looks through them. Returns how many. */
#define GEO_COVER_MAX 9
struct geo_cell {
    double from, to;
};
int geo_cover(const struct geo_shape *s, struct geo_cell out[GEO_COVER_MAX]);

#endif
