/* Collections of the rocks engine beneath the primitives: changes over what is stored, walks that
 * merge the two, cursors, drawing at random, and the rows of field deadlines. The engine suite says
 * what hashes and sets do; here is what it can't see. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rand.h"
#include "engine/rocks/type/random_element.h"
#include "engine/rocks/type/elements.h"
#include "engine/rocks/type/fields.h"
#include "rounds.h"

#define START 1700000000000LL
#define NAMES 700

static struct rk *rk;
static u64 rng, seq;
static char dir[256];

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    struct buf why = {0};
    snprintf(dir, sizeof dir, "%s/mayfly-delta-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    struct rocks_options o = {.dir = dir, .databases = 2, .seed = 7, .write_buffer = 1 << 20};
    struct engine *e = rocks_engine_open(&o, &why);
    assert_non_null(e);
    rk = rk_of(e);
    rng = 1;
    seq = 0;
    e->ops->begin(e, START);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char command[300];
    rk->base.ops->close(&rk->base);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static void tick(i64 step_ms)
{
    assert_false(rk->base.failed);
    assert_true(rk->base.ops->commit(&rk->base, ++seq));
    rk->base.ops->begin(&rk->base, rk->base.now_ms + step_ms);
}

static struct key_ref make(enum value_type type)
{
    struct key_ref ref;
    if (rk->base.ops->find(&rk->base, 0, BYTES_LIT("k"), &ref)) rk->base.ops->drop(&rk->base, &ref);
    rk->base.ops->create(&rk->base, 0, BYTES_LIT("k"), type, &ref);
    return ref;
}

static struct row *again(struct key_ref *ref)
{
    assert_true(rk->base.ops->find(&rk->base, 0, BYTES_LIT("k"), ref));
    return row_of(ref);
}

/* Short and long, and one the beginning of another; "" is one of them. */
static bytes name_of(u32 id)
{
    static char text[16][100];
    static u32 slot;
    char *p = text[slot++ % 16];
    int n = id == 0 ? 0 : id % 7 == 0 ? snprintf(p, 100, "%*d", (int)(60 + id % 30), (int)id)
                                      : snprintf(p, 100, "n%u", id);
    return bytes_of(p, (size_t)n);
}

/* -- changes and walks --------------------------------------------------------------------- */

struct model {
    u32 n;
    struct { bytes name; u32 value; } v[NAMES]; /* sorted by name; value 0: absent */
};

static int by_name(const void *a, const void *b) { return bytes_cmp(*(const bytes *)a, *(const bytes *)b); }

static struct model *model_new(void)
{
    struct model *m = mem_zalloc(sizeof *m);
    m->n = NAMES;
    for (u32 i = 0; i < NAMES; i++) {
        bytes name = name_of(i);
        char *p = mem_alloc(name.n + 1);
        memcpy(p, name.p, name.n);
        m->v[i].name = bytes_of(p, name.n);
    }
    qsort(m->v, NAMES, sizeof m->v[0], by_name);
    return m;
}

static void model_free(struct model *m)
{
    for (u32 i = 0; i < NAMES; i++) mem_free((char *)m->v[i].name.p);
    mem_free(m);
}

static bytes value_of(u32 value)
{
    static char text[4][16];
    static u32 slot;
    char *p = text[slot++ % 4];
    return bytes_of(p, (size_t)snprintf(p, 16, "%u", value));
}

static void change_one(struct row *r, struct model *m, u32 i)
{
    struct change *c = delta_at(rk, r, m->v[i].name);
    assert_int_equal(c->exists, m->v[i].value != 0);
    if (c->exists) assert_true(bytes_eq(c->value, value_of(m->v[i].value)));
    row_touch(rk, r);
    if (below(3)) {
        r->size += !c->exists;
        m->v[i].value = 1 + below(1000);
        delta_put(rk, r, c, value_of(m->v[i].value));
    } else if (c->exists) {
        r->size--;
        m->v[i].value = 0;
        delta_erase(rk, r, c);
    }
}

/* Starts anywhere, now and then erases what it stands on, and stops anywhere. */
static void check_walk(struct row *r, struct model *m, bool erase)
{
    struct walk w;
    bool reverse = below(2), whole = below(3) == 0;
    u32 from = below(NAMES), steps = below(4) ? NAMES : below(20);
    u32 at = whole ? (reverse ? NAMES - 1 : 0) : from; /* goes below 0 to the greatest number */
    const bytes anywhere = {0};
    bool more = walk_start(&w, rk, r, whole ? anywhere : m->v[from].name, reverse);
    for (; steps-- > 0; more = walk_next(&w), at += reverse ? -1u : 1u) {
        while (at < NAMES && !m->v[at].value) at += reverse ? -1u : 1u;
        assert_int_equal(more, at < NAMES);
        if (!more) return;
        assert_true(bytes_eq(w.sub, m->v[at].name));
        assert_true(bytes_eq(w.value, value_of(m->v[at].value)));
        if (!erase || below(4)) continue;
        row_touch(rk, r);
        r->size--;
        m->v[at].value = 0;
        delta_erase(rk, r, w.change ? w.change : delta_at(rk, r, w.sub));
        if (below(3) == 0) check_walk(r, m, false); /* the order is rebuilt meanwhile */
    }
    walk_done(&w);
}

static void check_order(struct row *r)
{
    u32 n, touched = 0;
    struct change **v = delta_ordered(rk, r, &n);
    for delta_each(c, r->delta) touched++;
    assert_int_equal(n, touched);
    for (u32 i = 1; i < n; i++) assert_true(bytes_cmp(v[i - 1]->sub, v[i]->sub) < 0);
}

static void test_walks(void **state)
{
    (void)state;
    struct model *m = model_new();
    struct key_ref ref = make(TYPE_HASH);
    for (u32 step = 0; step < ROUNDS(2500); step++) {
        struct row *r = again(&ref);
        for (u32 n = below(below(10) ? 5 : 300); n > 0; n--) change_one(r, m, below(NAMES));
        for (u32 n = below(4); n > 0; n--) check_walk(r, m, below(2));
        if (below(10) == 0) check_order(r);
        if (below(4) == 0) tick(1);
        if (below(100) == 0) { /* a new collection under the name: nothing shines through */
            ref = make(TYPE_HASH);
            for (u32 i = 0; i < NAMES; i++) m->v[i].value = 0;
        }
    }
    model_free(m);
}

/* What was given up has not happened, in memory as on disk. */
static void test_abort(void **state)
{
    (void)state;
    struct key_ref ref = make(TYPE_HASH);
    bytes value;
    rk->base.ops->map.put(&rk->base, &ref, BYTES_LIT("a"), BYTES_LIT("1"), false);
    rk->base.ops->map.set_field_deadline(&rk->base, &ref, BYTES_LIT("a"), START + 10);
    tick(1);
    again(&ref);
    rk->base.ops->map.put(&rk->base, &ref, BYTES_LIT("a"), BYTES_LIT("2"), false);
    rk->base.ops->map.put(&rk->base, &ref, BYTES_LIT("b"), BYTES_LIT("2"), false);
    assert_false(rk->base.ops->map.has_field_deadlines(&rk->base, &ref));
    rk->base.ops->abort(&rk->base);
    rk->base.ops->begin(&rk->base, START + 2);
    again(&ref);
    assert_true(rk->base.ops->map.get(&rk->base, &ref, BYTES_LIT("a"), &value));
    assert_true(bytes_eq(value, BYTES_LIT("1")));
    assert_false(rk->base.ops->map.get(&rk->base, &ref, BYTES_LIT("b"), NULL));
    assert_true(rk->base.ops->map.has_field_deadlines(&rk->base, &ref));
    assert_int_equal(fields_nearest(rk, row_of(&ref)), START + 10);
}

static void test_prefetch(void **state)
{
    (void)state;
    struct key_ref ref = make(TYPE_HASH);
    struct row *rows[200];
    bytes subs[200];
    for (u32 i = 0; i < 100; i++)
        rk->base.ops->map.put(&rk->base, &ref, value_of(2 * i), value_of(i + 1000), false);
    tick(1);
    elements_begin(rk->elements, UINT64_MAX); /* as for a collection that was there before */
    struct row *r = again(&ref);
    for (u32 i = 0; i < 200; i++) {
        rows[i] = r;
        subs[i] = delta_keep(rk, value_of(i % 190)); /* some twice */
    }
    rk->base.ops->map.put(&rk->base, &ref, BYTES_LIT("4"), BYTES_LIT("new"), false);
    delta_prefetch(rk, rows, subs, 200);
    assert_int_equal(r->delta->touched, 1);
    for (u32 i = 0; i < 190; i++) {
        struct change *c = delta_peek(r, value_of(i));
        assert_non_null(c);
        assert_int_equal(c->exists, i % 2 == 0);
        assert_int_equal(c->stored, i % 2 == 0);
        if (i == 4) assert_true(bytes_eq(c->value, BYTES_LIT("new")));
        else if (i % 2 == 0) assert_true(bytes_eq(c->value, value_of(i / 2 + 1000)));
    }
    assert_null(delta_peek(r, value_of(195)));
}

/* What the cache knows all of is not asked for. */
static void test_prefetch_of_known(void **state UNUSED)
{
    struct key_ref ref = make(TYPE_HASH);
    for (u32 i = 0; i < 100; i++)
        rk->base.ops->map.put(&rk->base, &ref, value_of(2 * i), value_of(i + 1000), false);
    tick(1);
    struct row *r = again(&ref), *rows[] = {r, r, r};
    bytes subs[] = {BYTES_LIT("4"), BYTES_LIT("5"), BYTES_LIT("7")};
    delta_prefetch(rk, rows, subs, 3);
    assert_true(delta_peek(r, subs[0])->stored);
    assert_null(delta_peek(r, subs[1]));
    assert_false(delta_at(rk, r, subs[1])->exists);
    assert_false(delta_at(rk, r, subs[2])->stored);
}

/* A transaction that has only read may begin again, also when the cache has no room. */
static void test_begin_again_after_reading(void **state UNUSED)
{
    struct key_ref ref = make(TYPE_HASH);
    rk->base.ops->map.put(&rk->base, &ref, BYTES_LIT("f"), BYTES_LIT("v"), false);
    tick(1);
    struct row *r = again(&ref);
    assert_true(rk->base.ops->map.get(&rk->base, &ref, BYTES_LIT("f"), NULL));
    assert_true(r->open);
    cache_share_release(&rk->row_share);
    for (u32 i = 0; i < 100; i++) rk->base.ops->begin(&rk->base, rk->base.now_ms);
    cache_share_init(&rk->row_share, &rk->db->rows);
    assert_ptr_equal(again(&ref), r);
    assert_true(r->open);
    tick(0);
    assert_false(again(&ref)->open);
}

/* A transaction that changes very many elements leaves them out of the cache, and old values of theirs, too. */
static void test_many_are_left_out(void **state UNUSED)
{
    enum { MANY = 20000 };
    struct key_ref ref = make(TYPE_HASH);
    bytes value;
    for (u32 i = 0; i < MANY; i++) rk->base.ops->map.put(&rk->base, &ref, value_of(i), BYTES_LIT("old"), false);
    tick(1);
    assert_int_equal(elements_memory(rk->elements), 0);
    struct row *r = again(&ref);
    assert_false(elements_whole(rk->elements, r->version));
    for (u32 i = 0; i < MANY; i += 1000)
        assert_true(rk->base.ops->map.get(&rk->base, &ref, value_of(i), &value) && bytes_eq(value, BYTES_LIT("old")));
    assert_true(elements_memory(rk->elements) > 0);
    for (u32 i = 0; i < MANY; i++) rk->base.ops->map.put(&rk->base, &ref, value_of(i), BYTES_LIT("new"), false);
    tick(1);
    again(&ref);
    for (u32 i = 0; i < MANY; i += 500)
        assert_true(rk->base.ops->map.get(&rk->base, &ref, value_of(i), &value) && bytes_eq(value, BYTES_LIT("new")));
}

/* -- cursors --------------------------------------------------------------------------------- */

static void test_cursor_hints(void **state)
{
    (void)state;
    struct cursors c = {0};
    bytes name;
    assert_false(cursor_recall(&c, 1, 5, &name));
    for (u32 i = 0; i < 100000; i++) {
        u64 cursor = cursor_of(value_of(i));
        assert_true(cursor > 0 && cursor < (u64)1 << CURSOR_BITS);
        cursor_remember(&c, i % 3, cursor, value_of(i));
        assert_true(cursor_recall(&c, i % 3, cursor, &name));
        assert_true(bytes_eq(name, value_of(i)));
        assert_false(cursor_recall(&c, i % 3 + 1, cursor, &name));
    }
    assert_false(cursor_recall(&c, 0, cursor_of(value_of(0)), &name)); /* room is limited */
    cursor_remember(&c, 9, 1, (bytes){"", 0});
    assert_true(cursor_recall(&c, 9, 1, &name) && name.n == 0);
    cursors_release(&c);
}

static void strike(void *arg, bytes member, bytes value, double score)
{
    (void)value;
    (void)score;
    u32 id = (u32)strtoul(member.p, NULL, 10);
    ((u8 *)arg)[id] = 1;
}

static bytes number_name(u32 id)
{
    static char text[32];
    return bytes_of(text, (size_t)snprintf(text, sizeof text, "%u:x", id));
}

/* Cursors hold when everything that was remembered is lost, also for a name that is gone. */
static void test_scan_after_a_restart(void **state)
{
    (void)state;
    enum { ALL = 3000 };
    for (u32 round = 0; round < 20; round++) {
        struct key_ref ref = make(TYPE_SET);
        u8 *seen = mem_zalloc(ALL);
        for (u32 i = 0; i < ALL; i++) rk->base.ops->map.put(&rk->base, &ref, number_name(i), (bytes){"", 0}, false);
        tick(1);
        again(&ref);
        u64 cursor = 0;
        u32 calls = 0;
        do {
            cursor = rk->base.ops->map.scan(&rk->base, &ref, cursor, 1 + below(200), strike, seen);
            if (below(5) == 0) cursors_release(&rk->cursors);
            if (below(10) == 0 && calls < 500) /* the second half may go */
                for (u32 n = 0; n < 20; n++)
                    rk->base.ops->map.del(&rk->base, &ref, number_name(ALL / 2 + below(ALL / 2)));
            assert_true(++calls < 5000);
        } while (cursor);
        for (u32 i = 0; i < ALL / 2; i++) assert_true(seen[i]);
        mem_free(seen);
    }
}

/* -- drawing at random --------------------------------------------------------------------------- */

enum kind { NUMBERS, PADDED, UUIDS, BINARY, TWO_KINDS, DATES, WORDS, KINDS };

static bytes drawn_name(enum kind kind, u32 id)
{
    static char text[64];
    u64 x = id, a = rand_next(&x), b = rand_next(&x);
    int n = 0;
    switch (kind) {
    case NUMBERS: n = snprintf(text, sizeof text, "member:%u", id); break;
    case PADDED: n = snprintf(text, sizeof text, "element:%012u", id * 7); break;
    case UUIDS:
        n = snprintf(text, sizeof text, "%08x-%04x-%012llx", (u32)a, (u32)(a >> 32) & 0xffff,
                     (unsigned long long)b >> 16);
        break;
    case TWO_KINDS:
        n = snprintf(text, sizeof text, id % 3 ? "user:session:%u" : "zone:of:interest:%u", id);
        break;
    case DATES:
        n = snprintf(text, sizeof text, "2024-%02u-%02uT%02u:%02u", 1 + (u32)a % 12, 1 + (u32)(a >> 8) % 28,
                     (u32)(a >> 16) % 24, (u32)(a >> 24) % 60);
        n += snprintf(text + n, sizeof text - (size_t)n, "#%u", id);
        break;
    case WORDS: /* letters that are not equally frequent */
        for (; n < 4 + (int)(b % 5); n++) text[n] = "eeeeeetttaaooiinnsshrdlu"[(a >> (6 * n)) % 24];
        n += snprintf(text + n, sizeof text - (size_t)n, "%u", id);
        break;
    default: memcpy(text, &a, 8); n = 8; break;
    }
    return bytes_of(text, (size_t)n);
}

/* How many of n were drawn less than a fifth, and how many more than four times, as often as they should. */
static void draw_many(struct key_ref *ref, u32 n, u32 mean, u32 *seldom, u32 *often)
{
    u32 *count = mem_zalloc(n * sizeof *count);
    bytes field, value;
    for (u32 i = 0; i < n * mean; i++) {
        if (i % 100 == 0) tick(1);
        again(ref);
        assert_true(rk->base.ops->map.random(&rk->base, ref, &rng, &field, &value));
        u32 id;
        assert_int_equal(value.n, sizeof id);
        memcpy(&id, value.p, sizeof id);
        count[id]++;
    }
    *seldom = *often = 0;
    for (u32 i = 0; i < n; i++) {
        *seldom += count[i] < mean / 5;
        *often += count[i] > mean * 4;
    }
    mem_free(count);
}

static void test_draws_are_fair(void **state)
{
    (void)state;
    enum { N = ROUNDS(1000), MEAN = 12 };
    for (enum kind kind = 0; kind < KINDS; kind++) {
        struct key_ref ref = make(TYPE_HASH);
        for (u32 i = 0; i < N; i++) {
            rk->base.ops->map.put(&rk->base, &ref, drawn_name(kind, i), bytes_of(&i, sizeof i), false);
            if (i == N / 2) {
                tick(1);
                again(&ref);
            }
        }
        u32 seldom, often;
        assert_int_equal(rk->base.ops->size(&rk->base, &ref), N);
        draw_many(&ref, N, MEAN, &seldom, &often);
        if (getenv("VERBOSE")) print_message("kind %d: %u seldom, %u often\n", (int)kind, seldom, often);
        assert_in_range(seldom, 0, kind == WORDS ? N / 4 : N / 100);
        assert_in_range(often, 0, N / 100);
    }
}

/* Elements that come and go under the draws of one transaction, down to the last. */
static void test_draw_until_empty(void **state)
{
    (void)state;
    struct key_ref ref = make(TYPE_HASH);
    bytes field, value;
    for (u32 i = 0; i < 2000; i++)
        rk->base.ops->map.put(&rk->base, &ref, drawn_name(NUMBERS, i), bytes_of(&i, sizeof i), false);
    tick(1);
    again(&ref);
    for (u32 n = 2000; n > 0; n--) {
        assert_true(rk->base.ops->map.random(&rk->base, &ref, &rng, &field, &value));
        assert_true(rk->base.ops->map.del(&rk->base, &ref, field));
        assert_int_equal(rk->base.ops->size(&rk->base, &ref), n - 1);
    }
    assert_false(rk->base.ops->map.random(&rk->base, &ref, &rng, &field, &value));
}

/* Nearly all fields are dead: one of the living is found nevertheless. */
static void test_draw_among_the_dead(void **state)
{
    (void)state;
    struct key_ref ref = make(TYPE_HASH);
    bytes field, value;
    for (u32 i = 0; i < 3000; i++) {
        rk->base.ops->map.put(&rk->base, &ref, drawn_name(UUIDS, i), bytes_of(&i, sizeof i), false);
        if (i % 1000) rk->base.ops->map.set_field_deadline(&rk->base, &ref, drawn_name(UUIDS, i), START + 50);
    }
    tick(100);
    again(&ref);
    for (u32 n = 0; n < 200; n++) {
        u32 id;
        assert_true(rk->base.ops->map.random(&rk->base, &ref, &rng, &field, &value));
        memcpy(&id, value.p, sizeof id);
        assert_int_equal(id % 1000, 0);
    }
}

/* -- field deadlines ------------------------------------------------------------------------------ */

/* The stored rows of a family under the collection, and the sum of the deadlines in them. */
static u32 rows_of(struct row *r, enum family f, u64 *sum)
{
    u32 n = 0;
    bytes prefix = delta_prefix(rk, r);
    struct store_iter *it = store_iter(rk->session, f, prefix, delta_after(rk, r), 0);
    *sum = 0;
    for (store_seek_first(it); store_valid(it); store_next(it), n++) {
        bytes at = f == FAM_FIELD ? store_iter_value(it) : bytes_of(store_key(it).p + prefix.n, 8);
        *sum += get_u64(at.p);
    }
    store_iter_done(it);
    return n;
}

static void count_reaped(void *arg, bytes field, bytes value, double deadline_ms)
{
    (void)field;
    (void)value;
    (void)deadline_ms;
    ++*(u32 *)arg;
}

/* Both families say the same, and what the row remembers of them is true. */
static void test_field_rows(void **state)
{
    (void)state;
    enum { FIELDS = 400 };
    struct key_ref ref = make(TYPE_HASH);
    i64 deadline[FIELDS] = {0};
    bool there[FIELDS] = {0};
    for (u32 step = 0; step < 1200; step++) {
        struct row *r = again(&ref);
        u32 n = below(20), with = 0, dead = 0, reaped = 0;
        u64 want = 0, sum_a, sum_b;
        for (; n > 0; n--) {
            u32 i = below(FIELDS);
            bool live = there[i] && alive(deadline[i], rk->base.now_ms);
            if (!live || below(3) == 0) {
                bool keep = below(2);
                bool fresh = rk->base.ops->map.put(&rk->base, &ref, number_name(i), BYTES_LIT("v"), keep);
                assert_int_equal(fresh, !live);
                if (!live || !keep) deadline[i] = 0;
                there[i] = true;
            } else if (below(4)) {
                deadline[i] = below(5) ? rk->base.now_ms + 1 + (below(2) ? below(200) : 100 * below(5)) : 0;
                rk->base.ops->map.set_field_deadline(&rk->base, &ref, number_name(i), deadline[i]);
            } else {
                assert_true(rk->base.ops->map.del(&rk->base, &ref, number_name(i)));
                there[i] = false;
                deadline[i] = 0;
            }
        }
        for (u32 i = 0; i < FIELDS; i++) dead += there[i] && !alive(deadline[i], rk->base.now_ms);
        if (below(2)) assert_int_equal(rk->base.ops->map.dead_fields(&rk->base, &ref), dead);
        if (below(10) == 0) {
            assert_int_equal(rk->base.ops->map.reap(&rk->base, &ref, UINT32_MAX, count_reaped, &reaped), dead);
            assert_int_equal(reaped, dead);
            for (u32 i = 0; i < FIELDS; i++) {
                if (!there[i] || alive(deadline[i], rk->base.now_ms)) continue;
                there[i] = false;
                deadline[i] = 0;
            }
        }
        tick(below(10) ? below(30) : -(i64)below(50));
        r = again(&ref);
        for (u32 i = 0; i < FIELDS; i++) {
            with += deadline[i] != 0;
            want += (u64)deadline[i];
        }
        assert_int_equal(rows_of(r, FAM_FIELD, &sum_a), with);
        assert_int_equal(rows_of(r, FAM_SCORE, &sum_b), with);
        assert_true(sum_a == want && sum_b == want);
        assert_int_equal(r->field_deadlines, with > 0);
        if (below(50) == 0) { /* as after a restart: nothing is remembered */
            cache_share_release(&rk->row_share);
            tick(0);
            tick(0);
            cache_share_init(&rk->row_share, &rk->db->rows);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_walks), TEST(test_abort), TEST(test_prefetch), TEST(test_prefetch_of_known),
        TEST(test_begin_again_after_reading),
        TEST(test_many_are_left_out), TEST(test_cursor_hints),
        TEST(test_scan_after_a_restart), TEST(test_draws_are_fair), TEST(test_draw_until_empty),
        TEST(test_draw_among_the_dead), TEST(test_field_rows),
    };
    return cmocka_run_group_tests_name("rocks delta", tests, NULL, NULL);
}
