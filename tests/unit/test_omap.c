/* omap against a sorted array of names and values: the same random operations on both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/omap.h"

#define MODEL_MAX 3000
#define TEXT_MAX 5000

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

struct pair {
    bytes name, value;
};

struct model {
    struct pair v[MODEL_MAX + 1];
    u32 n;
};

static bytes keep(bytes v)
{
    char *p = mem_alloc(v.n + 1);
    if (v.n) memcpy(p, v.p, v.n);
    return bytes_of(p, v.n);
}

static void pair_free(struct pair *p)
{
    mem_free((char *)p->name.p);
    mem_free((char *)p->value.p);
}

/* The first pair >= name. */
static u32 model_find(const struct model *m, bytes name)
{
    u32 low = 0, high = m->n;
    while (low < high) {
        u32 half = (low + high) / 2;
        if (bytes_cmp(m->v[half].name, name) < 0) low = half + 1;
        else high = half;
    }
    return low;
}

static bool model_has(const struct model *m, u32 i, bytes name)
{
    return i < m->n && bytes_eq(m->v[i].name, name);
}

static void model_erase(struct model *m, u32 i, u32 n)
{
    for (u32 k = i; k < i + n; k++) pair_free(&m->v[k]);
    memmove(&m->v[i], &m->v[i + n], (m->n - i - n) * sizeof m->v[0]);
    m->n -= n;
}

static void model_put(struct model *m, bytes name, bytes value)
{
    u32 i = model_find(m, name);
    struct pair p = {keep(name), keep(value)};
    if (model_has(m, i, name)) {
        pair_free(&m->v[i]);
    } else {
        memmove(&m->v[i + 1], &m->v[i], (m->n - i) * sizeof m->v[0]);
        m->n++;
    }
    m->v[i] = p;
}

/* -- texts ----------------------------------------------------------------------- */

enum kind { COUNTING, SHORT, MIXED };

#define COUNTED 17

/* The name of the i-th of a stream's entries, as commands make them. */
static size_t counted_name(char *to, u64 i)
{
    u64 ms = __builtin_bswap64(1700000000000ull + i / 3), seq = __builtin_bswap64(i % 3);
    to[0] = 'e';
    memcpy(to + 1, &ms, 8);
    memcpy(to + 9, &seq, 8);
    return COUNTED;
}

static bytes some_name(enum kind kind)
{
    static char text[TEXT_MAX];
    if (kind == COUNTING) return bytes_of(text, counted_name(text, below(5000)));
    size_t n = below(kind == SHORT ? 6 : below(30) ? 40 : 400);
    if (kind == MIXED && below(200) == 0) n = below(TEXT_MAX);
    for (size_t i = 0; i < n; i++) text[i] = (char)(below(20) ? below(3) : below(256));
    return bytes_of(text, n);
}

static bytes some_value(void)
{
    static char text[TEXT_MAX];
    size_t n = below(40) ? below(40) : below(below(10) ? 400 : TEXT_MAX), alike = below(30);
    for (size_t i = 0; i < n; i++) text[i] = (char)(i < alike ? i : below(256));
    return bytes_of(text, n);
}

/* -- comparing ------------------------------------------------------------------- */

static void assert_row(const struct omap_row *row, const struct pair *p)
{
    static char text[2 * TEXT_MAX];
    char *end = omap_join_name(row, text);
    assert_int_equal(end - text, omap_name_size(row));
    assert_true(bytes_eq(p->name, bytes_of(text, omap_name_size(row))));
    end = omap_join_value(row, text);
    assert_int_equal(end - text, omap_value_size(row));
    assert_true(bytes_eq(p->value, bytes_of(text, omap_value_size(row))));
}

static void assert_at(const struct omap_pos *pos, const struct pair *p)
{
    struct omap_row row;
    omap_read(pos, &row);
    assert_row(&row, p);
}

static void assert_same(const struct omap *o, const struct model *m)
{
    struct omap_pos pos;
    omap_check(o);
    assert_int_equal(omap_seek(o, BYTES_LIT(""), false, &pos), m->n > 0);
    for (u32 i = 0; i < m->n; i++) {
        assert_at(&pos, &m->v[i]);
        assert_int_equal(omap_step(&pos, false), i + 1 < m->n);
    }
    for (u32 i = m->n; i-- > 0;) {
        assert_at(&pos, &m->v[i]);
        assert_int_equal(omap_step(&pos, true), i > 0);
    }
}

/* -- operations -------------------------------------------------------------------- */

static void put(struct omap *o, struct model *m, bytes name)
{
    bytes value = some_value();
    omap_put(o, name, value);
    model_put(m, name, value);
}

/* What is put may be a piece of the map itself. */
static void put_own(struct omap *o, struct model *m, enum kind kind)
{
    struct omap_pos pos;
    struct omap_row row;
    if (!omap_seek(o, some_name(kind), below(2), &pos)) return;
    omap_read(&pos, &row);
    bytes name = some_name(kind), value = below(2) ? row.value[1] : row.name[1];
    model_put(m, name, value);
    omap_put(o, name, value);
}

static void get(const struct omap *o, const struct model *m, bytes name)
{
    struct omap_row row;
    u32 i = model_find(m, name);
    bool there = omap_get(o, name, &row);
    assert_int_equal(there, model_has(m, i, name));
    if (there) assert_row(&row, &m->v[i]);
}

static void del(struct omap *o, struct model *m, bytes name)
{
    u32 i = model_find(m, name);
    bool there = model_has(m, i, name);
    assert_int_equal(omap_del(o, name), there);
    if (there) model_erase(m, i, 1);
}

static void erase(struct omap *o, struct model *m, bytes from, bytes to)
{
    u32 i = model_find(m, from), j = model_find(m, to);
    assert_int_equal(omap_erase(o, from, to), j > i ? j - i : 0);
    if (j > i) model_erase(m, i, j - i);
}

static void erase_near(struct omap *o, struct model *m, enum kind kind)
{
    bytes from = keep(some_name(kind));
    u32 j = model_find(m, from) + below(below(10) ? 20 : 500);
    bytes to = keep(j < m->n ? m->v[j].name : some_name(kind));
    erase(o, m, from, to);
    mem_free((char *)from.p);
    mem_free((char *)to.p);
}

static void seek(const struct omap *o, const struct model *m, bytes name)
{
    struct omap_pos pos;
    u32 i = model_find(m, name), back = model_has(m, i, name) ? i + 1 : i;
    assert_int_equal(omap_seek(o, name, false, &pos), i < m->n);
    if (i < m->n) assert_at(&pos, &m->v[i]);
    assert_int_equal(omap_seek(o, name, true, &pos), back > 0);
    if (back > 0) assert_at(&pos, &m->v[back - 1]);
}

static void step(struct omap *o, struct model *m, enum kind kind)
{
    u32 op = below(100);
    bytes name = m->n && below(2) ? m->v[below(m->n)].name : some_name(kind);
    if (op < 50 && m->n < MODEL_MAX) {
        name = keep(name);
        put(o, m, name);
        mem_free((char *)name.p);
    } else if (op < 52 && m->n < MODEL_MAX) put_own(o, m, kind);
    else if (op < 65) get(o, m, name);
    else if (op < 80) seek(o, m, name);
    else if (op < 97) {
        name = keep(name);
        del(o, m, name);
        mem_free((char *)name.p);
    } else if (op == 97) erase_near(o, m, kind);
}

static void copy_and_drain(struct omap *o, struct model *m)
{
    struct omap twin;
    omap_copy(&twin, o);
    assert_int_equal(omap_memory(&twin) > 0, m->n > 0);
    while (!omap_release_some(o, 3)) omap_check(o);
    assert_int_equal(omap_memory(o), 0);
    assert_same(&twin, m);
    omap_release(&twin);
    model_erase(m, 0, m->n);
}

static void run(u64 seed, enum kind kind, u32 leaf_bytes)
{
    static struct model m;
    struct omap o;
    rng = seed;
    omap_init(&o, leaf_bytes);
    for (u32 i = 0; i < 20000; i++) {
        step(&o, &m, kind);
        if (i % 16 == 0) omap_check(&o);
        if (i % 512 == 0) assert_same(&o, &m);
    }
    assert_same(&o, &m);
    copy_and_drain(&o, &m);
}

static void test_random(void **state)
{
    (void)state;
    run(1, COUNTING, OMAP_LEAF);
    run(2, SHORT, OMAP_LEAF);
    run(3, MIXED, OMAP_LEAF);
    run(4, SHORT, 512);
    run(5, MIXED, 512);
}

/* Rows come and go so that the map often gets a tree and loses it again. */
static void test_border(void **state)
{
    (void)state;
    static struct model m;
    struct omap o;
    u32 planted = 0, felled = 0;
    rng = 6;
    omap_init(&o, 1024);
    for (u32 i = 0; i < 20000; i++) {
        bool was = omap_leaves(&o) > 1, grows = i / 100 % 2;
        char name[COUNTED];
        bytes n = bytes_of(name, counted_name(name, below(40)));
        if (below(10) < (grows ? 8 : 2)) put(&o, &m, n);
        else if (below(50)) del(&o, &m, n);
        else erase_near(&o, &m, COUNTING);
        assert_same(&o, &m);
        planted += !was && omap_leaves(&o) > 1;
        felled += was && omap_leaves(&o) <= 1;
        if (i % 1000 == 999) copy_and_drain(&o, &m);
    }
    assert_true(planted > 30 && felled > 30);
    omap_release(&o);
    model_erase(&m, 0, m.n);
}

/* What fits into a leaf is one allocation. */
static void test_small(void **state)
{
    (void)state;
    struct omap o;
    char name[COUNTED];
    omap_init(&o, OMAP_LEAF);
    for (u32 i = 0; i < 2; i++)
        omap_put(&o, bytes_of(name, counted_name(name, i)), BYTES_LIT("\1\5field\7value-1"));
    assert_in_range(omap_memory(&o), 1, 80);
    for (u32 i = 2; omap_leaves(&o) == 1; i++)
        omap_put(&o, bytes_of(name, counted_name(name, i)), BYTES_LIT("\1\5field\7value-1"));
    assert_in_range(omap_memory(&o), OMAP_LEAF, 2 * OMAP_LEAF);
    omap_release(&o);
}

static void test_empty(void **state)
{
    (void)state;
    struct omap o;
    struct omap_pos pos;
    struct omap_row row;
    omap_init(&o, OMAP_LEAF);
    assert_int_equal(omap_memory(&o), 0);
    assert_false(omap_del(&o, BYTES_LIT("a")));
    assert_false(omap_get(&o, BYTES_LIT("a"), &row));
    assert_false(omap_seek(&o, BYTES_LIT("a"), false, &pos));
    assert_false(omap_seek(&o, BYTES_LIT("a"), true, &pos));
    assert_int_equal(omap_erase(&o, BYTES_LIT(""), BYTES_LIT("z")), 0);
    omap_put(&o, BYTES_LIT(""), BYTES_LIT(""));
    assert_true(omap_get(&o, BYTES_LIT(""), &row));
    assert_int_equal(omap_value_size(&row), 0);
    omap_check(&o);
    assert_true(omap_del(&o, BYTES_LIT("")));
    assert_int_equal(omap_leaves(&o), 0);
    omap_release(&o);
}

/* A log grows at its end and is trimmed at its front: it keeps only the memory its rows need. */
static void test_log(void **state)
{
    (void)state;
    struct omap o;
    char name[COUNTED], to[COUNTED];
    omap_init(&o, OMAP_LEAF);
    for (u32 i = 0; i < 100000; i++)
        omap_put(&o, bytes_of(name, counted_name(name, i)), BYTES_LIT("name field another value"));
    omap_check(&o);
    assert_true(omap_memory(&o) < 100000 * 11);
    for (u32 i = 1000; i < 100000; i += 1000)
        assert_int_equal(omap_erase(&o, BYTES_LIT("e"), bytes_of(to, counted_name(to, i))), 1000);
    omap_check(&o);
    assert_true(omap_memory(&o) < 1000 * 14);
    omap_release(&o);
}

/* Several logs side by side grow at their ends, which are in the middle: leaves are filled all the same. */
static void test_logs_side_by_side(void **state)
{
    (void)state;
    struct omap o;
    char name[1 + COUNTED];
    omap_init(&o, OMAP_LEAF);
    for (u32 i = 0; i < 30000; i++) {
        name[0] = (char)('a' + i % 3);
        omap_put(&o, bytes_of(name, 1 + counted_name(name + 1, i / 3)), BYTES_LIT("value"));
    }
    omap_check(&o);
    assert_true(omap_memory(&o) < 30000 * 11);
    omap_release(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_border),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_logs_side_by_side),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
