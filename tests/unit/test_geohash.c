/* Geohashes: vectors taken from redis-server 7.0.15, that a cover covers, and that
 * hits come out in order. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "base/rand.h"
#include "command/collection/geo_hits.h"
#include "command/collection/geohash.h"

static const struct place {
    struct geo_point at;
    u64 score;
    const char *text;
} places[] = {
    {{13.361389, 38.115556}, 3479099956230698, "sqc8b49rny0"},   /* Palermo */
    {{15.087269, 37.502669}, 3479447370796909, "sqdtr74hyu0"},   /* Catania */
    {{0, 0}, 3377699720527872, "s0000000000"},
    {{-180, -85.05112878}, 0, "00bh0hbj200"},
    {{180, 85.05112878}, 13510798882111488, "bp05b5048p0"},      /* one bit too high, as in Redis */
    {{2.349014, 48.864716}, 3663832805879806, "u09tvrw3xg0"},    /* Paris */
    {{151.209296, -33.86882}, 3252046221958826, "r3gx2f75zf0"},  /* Sydney */
    {{-122.27652, 37.805186}, 1367952638197536, "9q9p1d0znt0"},  /* Oakland */
    {{179.9999, 0.0001}, 4128299658423479, "xbpbpbpbtd0"},
};

static struct geo_point stored(int i) { return geohash_decode((double)places[i].score); }

static void test_encode(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        assert_int_equal(geohash_encode(places[i].at), places[i].score);
}

static void test_text(void **state)
{
    (void)state;
    char text[GEOHASH_TEXT_LEN + 1];
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        geohash_text(stored((int)i), text);
        assert_string_equal(text, places[i].text);
    }
}

static void check_coordinate(double got, const char *want)
{
    char text[64];
    snprintf(text, sizeof(text), "%.17Lf", (long double)got);
    assert_string_equal(text, want);
}

static void test_decode(void **state)
{
    (void)state;
    check_coordinate(stored(0).lon, "13.36138933897018433");
    check_coordinate(stored(0).lat, "38.11555639549629859");
    check_coordinate(stored(2).lon, "0.00000268220901489");
    check_coordinate(stored(2).lat, "0.00000126736058093");
    check_coordinate(stored(3).lon, "-179.99999731779098511");
    check_coordinate(stored(3).lat, "-85.05112751263942528");
    check_coordinate(stored(4).lon, "180.00000000000000000");
    check_coordinate(stored(6).lat, "-33.86882119711083305");
}

/* Any double may stand in a sorted set; decoding it must give a place on the map. */
static void test_decode_any_score(void **state)
{
    (void)state;
    static const double scores[] = {-1, -1e300, 1e300, INFINITY, -INFINITY, 0.5, 9.3e18, 1e17};
    for (size_t i = 0; i < ARRAY_LEN(scores); i++)
        assert_true(geo_valid(geohash_decode(scores[i])));
}

static void check_distance(int a, int b, double want)
{
    assert_true(fabs(geo_distance(stored(a), stored(b)) - want) < 0.00006);
}

static void test_distance(void **state)
{
    (void)state;
    check_distance(0, 1, 166274.1516);
    check_distance(5, 6, 16965171.2700);
    check_distance(3, 4, 18919844.5891);
    check_distance(2, 8, 20020718.0091);
    check_distance(7, 5, 8945380.0230);
    check_distance(0, 0, 0);
}

static void test_valid(void **state)
{
    (void)state;
    assert_true(geo_valid((struct geo_point){-180, 85.05112878}));
    assert_false(geo_valid((struct geo_point){180.0001, 0}));
    assert_false(geo_valid((struct geo_point){0, -85.06}));
}

static double between(u64 *rng, double low, double high)
{
    return low + (high - low) * ((double)(rand_next(rng) >> 11) / 9007199254740992.0);
}

static bool covered(const struct geo_cell *cells, int n, double score)
{
    for (int i = 0; i < n; i++)
        if (score >= cells[i].from && score < cells[i].to) return true;
    return false;
}

/* Around a centre away from the poles and the date line (where Redis's cover has
 * holes, which we share), every point of the shape is in one of the cells. */
static void test_cover(void **state)
{
    (void)state;
    u64 rng = 42;
    int inside = 0;
    for (int round = 0; round < 2000; round++) {
        struct geo_shape s = {
            .center = {between(&rng, -150, 150), between(&rng, -60, 60)},
            .is_box = round & 1,
            .unit = round & 2 ? 1 : 0.3048,
        };
        double size = pow(10, between(&rng, 0, 5.5)); /* up to 300 km */
        s.radius = s.width = size / s.unit;
        s.height = s.width * between(&rng, 0.2, 2);
        struct geo_cell cells[GEO_COVER_MAX];
        int n = geo_cover(&s, cells);
        assert_in_range(n, 1, GEO_COVER_MAX);
        double reach = size / 50000; /* in degrees, more than the size */
        for (int i = 0; i < 50; i++) {
            double distance, score = (double)geohash_encode((struct geo_point){
                between(&rng, s.center.lon - reach, s.center.lon + reach),
                between(&rng, s.center.lat - reach, s.center.lat + reach)});
            if (!geo_contains(&s, geohash_decode(score), &distance)) continue;
            inside++;
            assert_true(covered(cells, n, score));
        }
    }
    assert_true(inside > 10000);
}

static void test_contains(void **state)
{
    (void)state;
    double d;
    struct geo_shape circle = {.center = {15, 37}, .unit = 1000, .radius = 191};
    struct geo_shape box = {
        .center = {15, 37}, .is_box = true, .unit = 1000, .width = 400, .height = 400};
    assert_true(geo_contains(&circle, stored(0), &d));
    assert_true(fabs(d - 190442.4) < 0.1);
    circle.radius = 190;
    assert_false(geo_contains(&circle, stored(0), &d));
    assert_true(geo_contains(&box, stored(0), &d));
    assert_true(fabs(d - 190442.4) < 0.1);
    box.width = 280; /* Palermo lies 144 km west of the centre */
    assert_false(geo_contains(&box, stored(0), &d));
    box.width = 400;
    box.height = 240; /* … and 124 km north of it */
    assert_false(geo_contains(&box, stored(0), &d));
}

/* Few different distances, so that there are many ties. */
static void fill(struct geo_hits *l, size_t n, u64 places, u64 *rng)
{
    for (size_t i = 0; i < n; i++)
        geo_hits_add(l, (struct geo_hit){.distance = (double)rand_below(rng, places)});
}

static void test_sort_part(void **state)
{
    (void)state;
    u64 rng = 7;
    for (int round = 0; round < 3000; round++) {
        struct geo_hits part = {0}, whole = {0};
        size_t n = 1 + rand_below(&rng, 200), wanted = 1 + rand_below(&rng, n);
        u64 places = 1 + rand_below(&rng, 100), same = rng;
        bool descending = round & 1;
        fill(&part, n, places, &rng);
        fill(&whole, n, places, &same);
        geo_hits_sort(&part, wanted, descending);
        geo_hits_sort(&whole, n, descending);
        for (size_t i = 0; i < wanted; i++)
            assert_true(part.v[i].distance == whole.v[i].distance);
        for (size_t i = 1; i < n; i++) /* all of it: those found earlier first */
            assert_true(whole.v[i - 1].distance != whole.v[i].distance ||
                        whole.v[i - 1].found < whole.v[i].found);
        geo_hits_release(&part);
        geo_hits_release(&whole);
    }
}

/* Which of equally distant ones Redis puts first: three places with three members
 * each, GEOSEARCH … ASC COUNT 5 and DESC COUNT 5. */
static void test_sort_ties(void **state)
{
    (void)state;
    static const size_t want[2][5] = {{1, 0, 2, 4, 3}, {8, 6, 7, 4, 3}};
    for (int descending = 0; descending < 2; descending++) {
        struct geo_hits l = {0};
        for (int i = 0; i < 9; i++) geo_hits_add(&l, (struct geo_hit){.distance = i / 3});
        geo_hits_sort(&l, 5, descending);
        for (int i = 0; i < 5; i++) assert_int_equal(l.v[i].found, want[descending][i]);
        geo_hits_release(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_any_score),
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_cover),
        cmocka_unit_test(test_contains),
        cmocka_unit_test(test_sort_part),
        cmocka_unit_test(test_sort_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
