/* One budget for the caches of several regions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/rand.h"
#include "engine/rocks/cache_budget.h"

#define TOTAL (1u << 20)
#define CACHES 16

/* A cache that evicts whatever it is asked to, as far as `slowly` allows. */
struct cache {
    struct cache_share share;
    u64 bytes, uses, slowly;
};

static u64 shares(const struct cache *c, u32 n)
{
    u64 sum = 0;
    for (u32 i = 0; i < n; i++) sum += c[i].share.limit;
    return sum;
}

static void evict(struct cache *c, u64 to)
{
    if (c->bytes > to) c->bytes -= MIN(c->bytes - to, c->slowly);
}

static void use(struct cache *c, u64 more)
{
    c->uses++;
    c->bytes += more;
    cache_take(&c->share, c->bytes);
    evict(c, c->share.limit);
}

static void ask(struct cache *c)
{
    u64 wanted = cache_asked(&c->share, c->bytes, c->uses);
    assert_true(wanted <= c->share.limit);
    evict(c, wanted);
    cache_gave(&c->share, c->bytes, wanted);
}

static void open_all(struct cache_budget *b, struct cache *c, u32 n)
{
    cache_budget_init(b, TOTAL);
    for (u32 i = 0; i < n; i++) {
        c[i] = (struct cache){.slowly = UINT64_MAX};
        cache_share_init(&c[i].share, b);
    }
}

static void close_all(struct cache_budget *b, struct cache *c, u32 n)
{
    for (u32 i = 0; i < n; i++) cache_share_release(&c[i].share);
    assert_int_equal(atomic_load(&b->left), TOTAL);
    assert_int_equal(atomic_load(&b->active), 0);
}

static void one_has_all(void **state)
{
    (void)state;
    struct cache_budget b;
    struct cache c[CACHES];
    open_all(&b, c, CACHES);
    for (u32 i = 0; i < 3000; i++) use(&c[0], 1000);
    assert_int_equal(c[0].share.limit, TOTAL);
    assert_int_equal(c[0].bytes, TOTAL);
    close_all(&b, c, CACHES);
}

/* What is not used any more goes to those that are short, also where these have more than an equal part. */
static void idle_ones_give(void **state)
{
    (void)state;
    struct cache_budget b;
    struct cache c[3];
    open_all(&b, c, 3);
    for (u32 i = 0; i < 3000; i++) use(&c[0], 1000);
    for (u32 round = 0; round < 100; round++) {
        for (u32 i = 0; i < 100; i++) use(&c[1], 1000);
        use(&c[2], 1); /* it is in use, and needs little */
        for (u32 k = 0; k < 3; k++) ask(&c[k]);
    }
    assert_true(c[1].bytes > TOTAL / 10 * 9);
    close_all(&b, c, 3);
}

/* Of those in use, one that has little comes to about an equal part, and those that have that keep it. */
static void equal_parts(void **state)
{
    (void)state;
    struct cache_budget b;
    struct cache c[4];
    open_all(&b, c, 4);
    for (u32 i = 0; i < 3000; i++) use(&c[0], 1000);
    for (u32 round = 0; round < 200; round++) {
        for (u32 i = 0; i < 100; i++)
            for (u32 k = 0; k < 4; k++) use(&c[k], 100 * (k + 1));
        for (u32 k = 0; k < 4; k++) ask(&c[k]);
    }
    for (u32 k = 0; k < 4; k++) assert_in_range(c[k].bytes, TOTAL / 8, TOTAL / 8 * 3);
    close_all(&b, c, 4);
}

/* Nobody is short of memory: idle ones keep what they have. */
static void nobody_needs_it(void **state)
{
    (void)state;
    struct cache_budget b;
    struct cache c[2];
    open_all(&b, c, 2);
    for (u32 i = 0; i < 100; i++) use(&c[0], 1000);
    for (u32 i = 0; i < 100; i++) {
        use(&c[1], 1000);
        ask(&c[0]);
        ask(&c[1]);
    }
    assert_int_equal(c[0].bytes, 100000);
    assert_int_equal(c[0].share.limit, 100000); /* but no more than that */
    assert_int_equal(c[1].bytes, 100000);
    close_all(&b, c, 2);
}

/* Whatever happens, shares and what is left add up, and caches are within their shares. */
static void at_random(void **state)
{
    (void)state;
    struct cache_budget b;
    struct cache c[CACHES];
    u64 rng = 5;
    open_all(&b, c, CACHES);
    for (u32 i = 0; i < 200000; i++) {
        struct cache *x = &c[rand_below(&rng, 1 + rand_below(&rng, CACHES))];
        u64 what = rand_below(&rng, 20);
        if (what == 0) {
            ask(x);
        } else if (what == 1) {
            x->bytes -= rand_below(&rng, x->bytes + 1);
        } else {
            x->slowly = UINT64_MAX;
            use(x, rand_below(&rng, 2000));
        }
        x->slowly = rand_below(&rng, 5000);
        assert_int_equal(shares(c, CACHES) + atomic_load(&b.left), TOTAL);
        for (u32 k = 0; k < CACHES; k++) assert_true(c[k].bytes <= c[k].share.limit);
    }
    close_all(&b, c, CACHES);
}

static void *beside_others(void *arg)
{
    struct cache *c = arg;
    for (u32 i = 0; i < 20000; i++) {
        use(c, 1000);
        if (i % 16 == 0) ask(c);
    }
    return NULL;
}

static void on_threads(void **state)
{
    (void)state;
    struct cache_budget b;
    struct cache c[3];
    pthread_t thread[3];
    open_all(&b, c, 3);
    for (u32 i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, beside_others, &c[i]), 0);
    for (u32 i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    assert_int_equal(shares(c, 3) + atomic_load(&b.left), TOTAL);
    close_all(&b, c, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_has_all),     cmocka_unit_test(idle_ones_give), cmocka_unit_test(equal_parts),
        cmocka_unit_test(nobody_needs_it), cmocka_unit_test(at_random),      cmocka_unit_test(on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
