/* Geohashes, distances, and the cells that cover a search area.
 *
 * The order of the floating-point operations is part of the contract: another
 * order rounds differently, and then a point on the edge of a cell or of a
 * search area falls on the other side than in Redis. */
#include "command/collection/geohash.h"

#include <math.h>

#define STEP_MAX 26
#define EARTH_RADIUS_M 6372797.560856
#define MERCATOR_MAX_M 20037726.37

struct cell {
    u64 bits;
    int step;
};

struct box {
    double min_lon, max_lon, min_lat, max_lat;
};

static double radians(double degrees) { return degrees * (M_PI / 180.0); }
static double degrees(double radians) { return radians / (M_PI / 180.0); }

/* -- bits -------------------------------------------------------------------------------- */

/* Puts a zero between any two bits. */
static u64 spread(u32 v)
{
    u64 x = v;
    x = (x | x << 16) & 0x0000FFFF0000FFFFULL;
    x = (x | x << 8) & 0x00FF00FF00FF00FFULL;
    x = (x | x << 4) & 0x0F0F0F0F0F0F0F0FULL;
    x = (x | x << 2) & 0x3333333333333333ULL;
    return (x | x << 1) & 0x5555555555555555ULL;
}

/* The even bits, side by side again. */
static u32 squash(u64 x)
{
    x &= 0x5555555555555555ULL;
    x = (x | x >> 1) & 0x3333333333333333ULL;
    x = (x | x >> 2) & 0x0F0F0F0F0F0F0F0FULL;
    x = (x | x >> 4) & 0x00FF00FF00FF00FFULL;
    x = (x | x >> 8) & 0x0000FFFF0000FFFFULL;
    return (u32)(x | x >> 16);
}

static u64 interleave(u32 lat, u32 lon) { return spread(lat) | spread(lon) << 1; }

/* -- cells -------------------------------------------------------------------------------- */

static struct cell cell_of(struct geo_point p, double lat_max, int step)
{
    double lat = (p.lat + lat_max) / (lat_max + lat_max);
    double lon = (p.lon + GEO_LON_MAX) / (GEO_LON_MAX + GEO_LON_MAX);
    double cells = (double)(1ULL << step);
    return (struct cell){interleave((u32)(lat * cells), (u32)(lon * cells)), step};
}

static struct box cell_box(struct cell c)
{
    const double lat_size = GEO_LAT_MAX + GEO_LAT_MAX, lon_size = GEO_LON_MAX + GEO_LON_MAX;
    double cells = (double)(1ULL << c.step);
    u32 lat = squash(c.bits), lon = squash(c.bits >> 1);
    return (struct box){
        .min_lon = -GEO_LON_MAX + (lon * 1.0 / cells) * lon_size,
        .max_lon = -GEO_LON_MAX + ((lon + 1) * 1.0 / cells) * lon_size,
        .min_lat = -GEO_LAT_MAX + (lat * 1.0 / cells) * lat_size,
        .max_lat = -GEO_LAT_MAX + ((lat + 1) * 1.0 / cells) * lat_size,
    };
}

/* The cell next to this one; the map's edges meet on its other side. */
static struct cell cell_beside(struct cell c, int east, int north)
{
    u32 mask = (u32)(1ULL << c.step) - 1;
    u32 lat = squash(c.bits), lon = squash(c.bits >> 1);
    /* only a coordinate that moves is cut: on the map's last edge the other is one too high */
    if (east) lon = (lon + (u32)east) & mask;
    if (north) lat = (lat + (u32)north) & mask;
    return (struct cell){interleave(lat, lon), c.step};
}

u64 geohash_encode(struct geo_point p) { return cell_of(p, GEO_LAT_MAX, STEP_MAX).bits; }

/* A score that is no hash (any double may be ZADDed) still decodes to some place:
 * the one that the same conversion gives Redis on the usual machines. */
static u64 bits_of_score(double score)
{
    const double two63 = 9223372036854775808.0;
    if (score >= two63) return score < 2 * two63 ? (u64)score : 0;
    return score >= -two63 ? (u64)(i64)score : (u64)1 << 63;
}

static double clamp(double v, double max) { return v > max ? max : v < -max ? -max : v; }

struct geo_point geohash_decode(double score)
{
    struct box b = cell_box((struct cell){bits_of_score(score), STEP_MAX});
    return (struct geo_point){
        .lon = clamp((b.min_lon + b.max_lon) / 2, GEO_LON_MAX),
        .lat = clamp((b.min_lat + b.max_lat) / 2, GEO_LAT_MAX),
    };
}

void geohash_text(struct geo_point p, char out[GEOHASH_TEXT_LEN + 1])
{
    static const char alphabet[] = "0123456789bcdefghjkmnpqrstuvwxyz";
    u64 bits = cell_of(p, 90, STEP_MAX).bits; /* the standard goes up to the poles */
    for (int i = 0; i < GEOHASH_TEXT_LEN; i++) {
        int shift = 2 * STEP_MAX - (i + 1) * 5;
        out[i] = alphabet[shift < 0 ? 0 : (bits >> shift) & 31]; /* no bits left for the last */
    }
    out[GEOHASH_TEXT_LEN] = '\0';
}

/* -- distances ----------------------------------------------------------------------------- */

/* Great circle, by the haversine formula. */
double geo_distance(struct geo_point a, struct geo_point b)
{
    double lat1 = radians(a.lat), lat2 = radians(b.lat);
    double u = sin((lat2 - lat1) / 2);
    double v = sin((radians(b.lon) - radians(a.lon)) / 2);
    double h = u * u + cos(lat1) * cos(lat2) * v * v;
    return 2.0 * EARTH_RADIUS_M * asin(sqrt(h));
}

bool geo_contains(const struct geo_shape *s, struct geo_point p, double *distance)
{
    struct geo_point o = s->center;
    if (s->is_box) {
        double across = geo_distance(p, (struct geo_point){o.lon, p.lat});
        double along = geo_distance(p, (struct geo_point){p.lon, o.lat});
        if (across > s->width * s->unit / 2 || along > s->height * s->unit / 2) return false;
    }
    *distance = geo_distance(o, p);
    return s->is_box || *distance <= s->radius * s->unit;
}

/* -- covering ------------------------------------------------------------------------------ */

/* The box around the shape. Meridians converge, so it is as wide as on the side
 * of the shape that is nearer to a pole. */
static struct box bounds_of(const struct geo_shape *s)
{
    struct geo_point o = s->center;
    double up = s->unit * (s->is_box ? s->height / 2 : s->radius);
    double aside = s->unit * (s->is_box ? s->width / 2 : s->radius);
    double lat_delta = degrees(up / EARTH_RADIUS_M);
    double widest = o.lat < 0 ? o.lat - lat_delta : o.lat + lat_delta;
    double lon_delta = degrees(aside / EARTH_RADIUS_M / cos(radians(widest)));
    return (struct box){o.lon - lon_delta, o.lon + lon_delta, o.lat - lat_delta, o.lat + lat_delta};
}

static double reach_m(const struct geo_shape *s)
{
    double w = s->width / 2, h = s->height / 2;
    return (s->is_box ? sqrt(w * w + h * h) : s->radius) * s->unit;
}

/* The finest step at which a cell and its eight neighbours should hold a circle
 * of this radius; cells narrow towards the poles, so there it is coarser. */
static int estimate_step(double radius_m, double lat)
{
    if (radius_m == 0) return STEP_MAX;
    int step = 1;
    while (radius_m < MERCATOR_MAX_M) {
        radius_m *= 2;
        step++;
    }
    step -= 2;
    if (fabs(lat) > 66) step--;
    if (fabs(lat) > 80) step--;
    return MIN(MAX(step, 1), STEP_MAX);
}

/* Whether the shape reaches beyond the neighbours of the cell. */
static bool too_fine(struct cell c, struct box want)
{
    return cell_box(cell_beside(c, 0, 1)).max_lat < want.max_lat ||
           cell_box(cell_beside(c, 0, -1)).min_lat > want.min_lat ||
           cell_box(cell_beside(c, 1, 0)).max_lon < want.max_lon ||
           cell_box(cell_beside(c, -1, 0)).min_lon > want.min_lon;
}

static struct geo_cell score_range(struct cell c)
{
    int shift = 2 * (STEP_MAX - c.step);
    return (struct geo_cell){(double)(c.bits << shift), (double)((c.bits + 1) << shift)};
}

int geo_cover(const struct geo_shape *s, struct geo_cell out[GEO_COVER_MAX])
{
    static const struct {
        int east, north;
    } around[GEO_COVER_MAX] = {{0, 0}, {0, 1}, {0, -1}, {1, 0}, {-1, 0},
                               {1, 1}, {-1, 1}, {1, -1}, {-1, -1}};
    struct box want = bounds_of(s);
    int step = estimate_step(reach_m(s), s->center.lat), n = 0;
    struct cell middle = cell_of(s->center, GEO_LAT_MAX, step);
    if (step > 1 && too_fine(middle, want)) middle = cell_of(s->center, GEO_LAT_MAX, --step);

    struct box have = cell_box(middle);
    bool skips = step >= 2; /* coarser cells are their own neighbours' neighbours */
    u64 last = 0;
    for (int i = 0; i < GEO_COVER_MAX; i++) {
        int east = around[i].east, north = around[i].north;
        if (skips && ((north < 0 && have.min_lat < want.min_lat) ||
                      (north > 0 && have.max_lat > want.max_lat) ||
                      (east < 0 && have.min_lon < want.min_lon) ||
                      (east > 0 && have.max_lon > want.max_lon)))
            continue;
        struct cell c = cell_beside(middle, east, north);
        /* Redis compares with the cell before, but never with the one in the middle */
        if (n > 1 && c.bits == last) continue;
        last = c.bits;
        out[n++] = score_range(c);
    }
    return n;
}
