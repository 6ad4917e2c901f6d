/* The blocks of sorted sets against a sorted array, on a store that is one: the same random entries come
 * and go in both, commits are kept or lost, and what is loaded again must count as the array does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "engine/rocks/type/ranks.h"

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* -- a store: rows in order, of one family -------------------------------------------------------- */

struct row {
    char key[48], value[4096 * 8];
    u32 key_len, value_len;
};

static struct {
    struct row **v;
    u32 n, cap, writes;
} rows;

struct store_iter {
    u32 at;
};

static bytes key_at(u32 i) { return bytes_of(rows.v[i]->key, rows.v[i]->key_len); }

static u32 place(bytes key)
{
    u32 low = 0, high = rows.n;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (bytes_cmp(key_at(mid), key) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

static bytes joined(bytes a, bytes b)
{
    static char key[128];
    if (a.n) memcpy(key, a.p, a.n);
    if (b.n) memcpy(key + a.n, b.p, b.n);
    return bytes_of(key, a.n + b.n);
}

void store_put2(struct store_session *s, enum family f, bytes key_a, bytes key_b, bytes value)
{
    bytes key = joined(key_a, key_b);
    u32 at = place(key);
    assert_null(s);
    assert_int_equal(f, FAM_RANK);
    rows.writes++;
    if (at == rows.n || !bytes_eq(key_at(at), key)) {
        if (rows.n == rows.cap) rows.v = mem_realloc(rows.v, (rows.cap = 2 * rows.cap + 16) * sizeof *rows.v);
        memmove(rows.v + at + 1, rows.v + at, (rows.n++ - at) * sizeof *rows.v);
        rows.v[at] = mem_alloc(sizeof **rows.v);
        memcpy(rows.v[at]->key, key.p, rows.v[at]->key_len = (u32)key.n);
    }
    assert_true(value.n <= sizeof rows.v[at]->value);
    memcpy(rows.v[at]->value, value.p, rows.v[at]->value_len = (u32)value.n);
}

static void erase(u32 from, u32 to)
{
    for (u32 i = from; i < to; i++) mem_free(rows.v[i]);
    memmove(rows.v + from, rows.v + to, (rows.n - to) * sizeof *rows.v);
    rows.n -= to - from;
}

void store_delete2(struct store_session *s, enum family f, bytes key_a, bytes key_b)
{
    bytes key = joined(key_a, key_b);
    u32 at = place(key);
    (void)s, (void)f;
    rows.writes++;
    assert_true(at < rows.n && bytes_eq(key_at(at), key)); /* only rows that exist are deleted */
    erase(at, at + 1);
}

void store_delete_range(struct store_session *s, enum family f, bytes from, bytes to)
{
    (void)s, (void)f;
    rows.writes++;
    erase(place(from), place(to));
}

struct store_iter *store_iter(struct store_session *s, enum family f, bytes lower, bytes upper, u32 flags)
{
    (void)s, (void)f, (void)upper, (void)flags;
    struct store_iter *it = mem_alloc(sizeof *it);
    it->at = place(lower);
    return it;
}

void store_iter_done(struct store_iter *it) { mem_free(it); }
void store_seek_first(struct store_iter *it) { (void)it; }
void store_next(struct store_iter *it) { it->at++; }
bool store_valid(const struct store_iter *it) { return it->at < rows.n; }
bytes store_key(const struct store_iter *it) { return key_at(it->at); }
bytes store_iter_value(const struct store_iter *it)
{
    return bytes_of(rows.v[it->at]->value, rows.v[it->at]->value_len);
}

/* -- a sorted set --------------------------------------------------------------------------------- */

struct entry {
    double score;
    u32 n;
    char member[12];
};

struct model {
    struct entry *v;
    u32 n, cap;
};

static struct spot spot_of(const struct entry *e)
{
    return (struct spot){.score = e->score, .member = bytes_of(e->member, e->n)};
}

static u32 model_before(const struct model *m, const struct spot *s)
{
    u32 low = 0, high = m->n;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (before_spot(m->v[mid].score, bytes_of(m->v[mid].member, m->v[mid].n), s)) low = mid + 1;
        else high = mid;
    }
    return low;
}

static void model_insert(struct model *m, u32 at, struct entry e)
{
    if (m->n == m->cap) m->v = mem_realloc(m->v, (m->cap = 2 * m->cap + 16) * sizeof e);
    memmove(m->v + at + 1, m->v + at, (m->n++ - at) * sizeof e);
    m->v[at] = e;
}

static void model_erase(struct model *m, u32 at)
{
    memmove(m->v + at, m->v + at + 1, (--m->n - at) * sizeof *m->v);
}

static void model_copy(struct model *to, const struct model *from)
{
    to->v = mem_realloc(to->v, (to->cap = from->cap) * sizeof *to->v);
    memcpy(to->v, from->v, (to->n = from->n) * sizeof *to->v);
}

static struct entry some_entry(void)
{
    static const double special[] = {0, INFINITY, -INFINITY, 1e300, -1e-300};
    struct entry e = {.score = below(50) ? below(40) - 20.0 : special[below(ARRAY_LEN(special))]};
    if (below(4) == 0) e.score += below(1000) / 1000.0;
    e.n = below(100) ? (u32)sprintf(e.member, "%u", below(1000000)) : 0;
    return e;
}

/* -- both ------------------------------------------------------------------------------------------- */

static struct ranks *k;
static struct model now, kept;
static const bytes prefix = {"prefix", 6}, after = {"prefiy", 6};

static void compare_places(u32 times)
{
    struct spot start;
    while (times-- > 0) {
        struct entry e = some_entry();
        struct spot s = {.score = e.score, .member = bytes_of(e.member, e.n), .past = below(3) == 0};
        u64 before = ranks_before(k, &s, &start);
        u32 first = model_before(&now, &start);
        assert_int_equal(before, first);
        assert_in_range(model_before(&now, &s) - first, 0, RANKS_BLOCK);

        u32 rank = below(now.n);
        u32 offset = ranks_at(k, rank, &start);
        assert_int_equal(model_before(&now, &start) + offset, rank);
        assert_in_range(offset, 0, RANKS_BLOCK - 1);
    }
}

static void build(void)
{
    for (u32 i = 0; i < now.n; i += RANKS_FILL) {
        struct spot start = i ? spot_of(&now.v[i]) : SPOT_FIRST;
        ranks_append(k, &start, MIN(now.n - i, RANKS_FILL));
    }
}

static void add_one(void)
{
    struct entry e = some_entry();
    struct spot s = spot_of(&e);
    u32 at = model_before(&now, &s);
    if (at < now.n && now.v[at].score == e.score &&
        bytes_eq(bytes_of(now.v[at].member, now.v[at].n), s.member))
        return;
    model_insert(&now, at, e);
    struct block *big = ranks_add(k, &s, 1);
    if (!big) return;
    struct spot start;
    u32 half = ranks_split_at(big);
    ranks_start(big, &start);
    s = spot_of(&now.v[model_before(&now, &start) + half]);
    ranks_split(k, big, &s, half);
}

/* From the low end, the high end or anywhere: sets used as queues empty their blocks. */
static void remove_one(void)
{
    u32 how = below(4), at = how == 0 ? 0 : how == 1 ? now.n - 1 : below(now.n);
    struct spot s = spot_of(&now.v[at]);
    ranks_add(k, &s, -1);
    model_erase(&now, at);
}

static void commit(void)
{
    ranks_commit(k, NULL, prefix, after);
    model_copy(&kept, &now);
}

/* What was not committed is lost. */
static void reload(void)
{
    ranks_free(k);
    k = ranks_new(1);
    model_copy(&now, &kept);
    ranks_load(k, NULL, prefix, after, now.n);
    assert_true(ranks_kept(k) && !k->wipe);
}

static int setup(void **state)
{
    (void)state;
    rng = 7;
    k = ranks_new(1);
    while (now.n < 1100) {
        struct entry e = some_entry();
        struct spot s = spot_of(&e);
        u32 at = model_before(&now, &s);
        if (at == now.n || before_spot(e.score, s.member, &(struct spot){now.v[at].score,
                                       bytes_of(now.v[at].member, now.v[at].n), false}))
            model_insert(&now, at, e);
    }
    build();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ranks_free(k);
    erase(0, rows.n);
    mem_free(rows.v);
    mem_free(now.v);
    mem_free(kept.v);
    memset(&rows, 0, sizeof rows);
    memset(&now, 0, sizeof now);
    memset(&kept, 0, sizeof kept);
    return 0;
}

static void test_against_model(void **state)
{
    (void)state;
    commit();
    for (u32 round = 0; round < 4000; round++) {
        u32 size = round % 1000 < 500 ? 6000 : 700; /* it grows, and shrinks */
        for (u32 n = 1 + below(below(10) ? 20 : 200); n > 0; n--) {
            bool grow = now.n < 600 || (now.n < size ? below(3) > 0 : below(3) == 0);
            if (grow) add_one();
            else remove_one();
        }
        if (round % 16 == 0) ranks_check(k);
        compare_places(4);
        if (below(20)) commit();
        if (below(10) == 0) reload();
        compare_places(4);
    }
}

/* The log is bounded by the blocks, and a change costs much less than a block's row each. */
static void test_log(void **state)
{
    (void)state;
    commit();
    u32 changes = 0;
    for (u32 round = 0; round < 2000; round++) {
        for (u32 n = 0; n < 32; n++, changes++) {
            if (now.n < 20000) add_one();
            else remove_one();
        }
        if (round == 1000) rows.writes = changes = 0;
        commit();
        u64 logged = 0;
        for (u32 i = 0; i < rows.n; i++) logged += rows.v[i]->value_len == 20 ? 0 : rows.v[i]->value_len / 8;
        assert_int_equal(logged, k->log);
        assert_true(logged <= RANKS_LOG_MIN + 2 * RANKS_FOLD * (k->blocks.leaves + 32));
    }
    assert_true(rows.writes < changes / 2);
    reload();
    compare_places(1000);
}

/* One change at a time goes straight to its block: no log, and no more rows than changes and splits. */
static void test_single_changes(void **state)
{
    (void)state;
    commit();
    for (u32 n = 0; n < 3000; n++) {
        rows.writes = 0;
        if (below(2)) add_one();
        else remove_one();
        commit();
        assert_true(rows.writes <= 2);
        assert_int_equal(k->log, 0);
    }
    reload();
    compare_places(1000);
}

/* Rows that don't add up are not believed, and go. */
static void test_damage(void **state)
{
    (void)state;
    for (u32 how = 0; how < 4; how++) {
        commit();
        assert_true(rows.n > 2);
        struct row *victim = rows.v[1 + below(rows.n - 2)];
        u64 size = now.n;
        switch (how) {
        case 0: victim->value[7]++; break;
        case 1: victim->value_len--; break;
        case 2: erase(0, 1); break;
        case 3: size++; break;
        }
        ranks_free(k);
        k = ranks_new(1);
        ranks_load(k, NULL, prefix, after, size);
        assert_true(k->loaded && k->wipe && !ranks_kept(k));
        build();
        commit();
        reload();
        compare_places(50);
    }
}

/* A set that lost its blocks has none stored; one that never had any has none to lose. */
static void test_drop(void **state)
{
    (void)state;
    commit();
    ranks_drop(k);
    commit();
    assert_int_equal(rows.n, 0);
    ranks_free(k);
    k = ranks_new(1);
    ranks_load(k, NULL, prefix, after, now.n);
    assert_true(k->loaded && !k->wipe && !ranks_kept(k));
    build();
    ranks_drop(k);
    build();
    commit();
    reload();
    compare_places(100);
}

static void test_spots(void **state)
{
    (void)state;
    struct buf a = {0}, b = {0};
    for (u32 n = 0; n < 20000; n++) {
        struct entry x = some_entry(), y = some_entry();
        if (below(2)) y.score = x.score;
        struct spot s = spot_of(&x), t = spot_of(&y), back;
        t.past = below(2);
        buf_clear(&a);
        buf_clear(&b);
        spot_encode(&s, &a);
        spot_encode(&t, &b);
        assert_int_equal(bytes_cmp(buf_bytes(&a), buf_bytes(&b)) < 0, before_spot(s.score, s.member, &t));
        assert_true(spot_read(buf_bytes(&a), &back));
        assert_true(back.score == s.score && bytes_eq(back.member, s.member));
    }
    buf_release(&a);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_against_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log, setup, teardown),
        cmocka_unit_test_setup_teardown(test_single_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drop, setup, teardown),
        cmocka_unit_test(test_spots),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
