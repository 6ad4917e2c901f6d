/* Companions: the model has one beside each key, whether or not that is there. Its string is the head, its
 * elements are the rows, sorted by text(id), as those of a stream; `size` is 1 if it stays. */
#include "suite.h"
#include "suite_model.h"

static bool is_there(const struct mval *m) { return m->type != TYPE_NONE; }
static bool stays(const struct mval *m) { return is_there(m) && m->size; }

/* It is made by what writes to it; of an absent key it stays. */
static void made(struct mval *m, const struct key_ref *ref)
{
    if (is_there(m)) return;
    m->type = TYPE_STREAM;
    m->size = ref->entry == NULL;
}

static void change_head(struct world *w, struct key_ref *ref, struct mval *m)
{
    char head[COMPANION_HEAD_MAX];
    u32 n = below(below(4) ? 18 : below(4) ? 200 : COMPANION_HEAD_MAX + 1);
    for (u32 i = 0; i < n; i++) head[i] = (char)below(256);
    made(m, ref);
    w->ops->companion.set_head(w->e, ref, bytes_of(head, n));
    buf_clear(&m->str);
    buf_append(&m->str, head, n);
}

static void change_row(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 at = row_place(m, text(id)), value = below(below(8) ? 60 : 2000);
    bytes given = text(value);
    if (m->n && below(10) == 0) { /* what another row has */
        const struct elem *other = &m->v[below(m->n)];
        value = other->value;
        assert_true(w->ops->companion.get(w->e, ref, text(other->id), &given));
    }
    made(m, ref);
    w->ops->companion.put(w->e, ref, text(id), given);
    if (row_is_at(m, at, id)) m->v[at].value = value;
    else mval_insert(m, at, (struct elem){.id = id, .value = value});
}

static void delete_row(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 at = row_place(m, text(id));
    bool there = row_is_at(m, at, id);
    assert_int_equal(w->ops->companion.del(w->e, ref, text(id)), there);
    if (there) mval_erase(m, at, 1);
}

static void change_staying(struct world *w, struct key_ref *ref, struct mval *m)
{
    bool on = below(2);
    w->ops->companion.keep(w->e, ref, on);
    if (!is_there(m)) return;
    m->size = on;
    if (!on && !ref->entry) mval_clear(m);
}

void change_companion(struct world *w, u32 db, u32 id)
{
    char name[TEXT_MAX];
    struct key_ref ref;
    struct mval *m = &w->companion[db][id];
    if (!w->ops->companion.head) return;
    w->ops->find(w->e, db, text_keep(name, text(id)), &ref);
    u32 what = below(100), rows = below(6) ? 12 : 600;
    if (what < 45) {
        for (u32 n = 1 + below(below(20) ? 4 : 200); n > 0; n--) change_row(w, &ref, m, below(rows));
    } else if (what < 60) {
        delete_row(w, &ref, m, m->n && below(2) ? m->v[below(m->n)].id : below(rows));
    } else if (what < 80) {
        change_head(w, &ref, m);
    } else if (what < 94) {
        change_staying(w, &ref, m);
    } else {
        w->ops->companion.drop(w->e, &ref);
        mval_clear(m);
    }
    if (below(4) == 0) compare_companion(w, &ref, m);
}

void model_after_drop(struct world *w, const struct mval *key)
{
    struct mval *m = &w->companion[0][0] + (key - &w->key[0][0]);
    if (!stays(m)) mval_clear(m);
}

/* -- comparing ------------------------------------------------------------------------------------ */

static void assert_text(bytes got, u32 id)
{
    bytes want = text(id);
    assert_int_equal(got.n, want.n);
    if (want.n) assert_memory_equal(got.p, want.p, want.n);
}

static void check_row(struct world *w, struct key_ref *ref, struct mval *m, u32 id)
{
    u32 at = row_place(m, text(id));
    bool there = row_is_at(m, at, id);
    bytes value;
    assert_int_equal(w->ops->companion.get(w->e, ref, text(id), below(2) ? &value : NULL), there);
    assert_int_equal(w->ops->companion.get(w->e, ref, text(id), &value), there);
    if (there) assert_text(value, m->v[at].value);
}

static void check_walk(struct world *w, struct key_ref *ref, struct mval *m, bytes from, bool reverse)
{
    struct rows_iter it;
    bytes name, value;
    u32 at = row_place(m, from);
    u32 left = !reverse ? m->n - at : at + (at < m->n && bytes_eq(text(m->v[at].id), from));
    bool named = below(4) == 0;
    w->ops->companion.iter(w->e, ref, from, reverse, &it);
    it.passing = below(2);
    for (u32 n = 0, stop = below(4) ? below(30) : NONE; n < stop; n++, left--) {
        bool more = w->ops->companion.next(&it, &name, named ? NULL : &value);
        assert_int_equal(more, left > 0);
        if (!more) break;
        const struct elem *el = &m->v[reverse ? left - 1 : m->n - left];
        assert_text(name, el->id);
        if (!named) assert_text(value, el->value);
    }
    w->ops->companion.done(&it);
    assert_false(w->ops->companion.next(&it, &name, NULL));
}

void compare_companion(struct world *w, struct key_ref *ref, struct mval *m)
{
    bytes head;
    assert_int_equal(w->ops->companion.head(w->e, ref, &head), is_there(m));
    assert_int_equal(w->ops->companion.kept(w->e, ref), stays(m));
    if (is_there(m)) {
        assert_int_equal(head.n, m->str.n);
        if (head.n) assert_memory_equal(head.p, m->str.p, head.n);
    }
    for (u32 n = 0; n < 3; n++) check_row(w, ref, m, n && m->n ? m->v[below(m->n)].id : below(600));
    check_walk(w, ref, m, BYTES_LIT(""), false);
    check_walk(w, ref, m, BYTES_LIT("\xff\xff"), true);
    char from[TEXT_MAX];
    bytes bound = text(m->n && below(2) ? m->v[below(m->n)].id : below(600));
    check_walk(w, ref, m, text_keep(from, bound), below(2));
}

struct seen_kept {
    struct world *w;
    u32 db;
};

static void see_kept(void *arg, struct key_ref *ref)
{
    struct seen_kept *s = arg;
    u32 id = text_id(ref->key);
    assert_true(id < IDS);
    assert_int_equal(ref->db, s->db);
    assert_int_equal(ref->type, s->w->key[s->db][id].type);
    assert_true(stays(&s->w->companion[s->db][id]));
    s->w->companion[s->db][id].seen = true;
}

void compare_companions(struct world *w, u32 db)
{
    struct seen_kept s = {w, db};
    struct buf place = {0};
    if (!w->ops->companion.head) return;
    while (w->ops->companion.each_kept(w->e, db, &place, 1 + below(20), see_kept, &s)) {}
    buf_release(&place);
    for (u32 id = 0; id < IDS; id++) {
        char name[TEXT_MAX];
        struct key_ref ref;
        struct mval *m = &w->companion[db][id];
        w->ops->find(w->e, db, text_keep(name, text(id)), &ref);
        compare_companion(w, &ref, m);
        if (m->seen) assert_true(stays(m));
        if (w->all_kept_seen) assert_int_equal(m->seen, stays(m));
        m->seen = false;
    }
}

/* -- tests ----------------------------------------------------------------------------------------- */

static engine_open_fn open_engine;
static struct world w;

static int setup(void **state)
{
    (void)state;
    suite_seed();
    world_open(&w, open_engine(DBS, 12345));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

static bool none_here(void)
{
    if (w.ops->companion.head) return false;
    skip();
    return true;
}

static void one_step(void)
{
    u32 db = below(DBS), id = below(IDS / 4), what = below(1000);
    struct mval *m = &w.key[db][id];
    struct key_ref ref;
    if (what < 500) {
        change_companion(&w, db, id);
    } else if (!world_find(&w, db, id, &ref)) {
        create_value(&w, db, id, 1 + below(6), &ref);
    } else if (what < 700) {
        change_value(&w, &ref, m, 300);
    } else if (what < 770) {
        change_deadline(&w, &ref, m);
    } else if (what < 900) {
        drop_key(&w, &ref, m);
    } else if (what < 960) {
        rename_key(&w, &ref, m);
    } else if (what < 963) {
        swap_dbs(&w, below(DBS), below(DBS));
    } else if (what < 965) {
        flush_db(&w, below(DBS));
    } else {
        w.ops->reclaim(w.e, 1 + below(50));
    }
}

static void test_companions(void **state)
{
    (void)state;
    if (none_here()) return;
    for (u32 round = 0; round < ROUNDS(60); round++) {
        for (u32 n = 0; n < 500; n++) {
            one_step();
            if (below(10) == 0) world_tick(&w, below(below(10) ? 100 : 20000));
            if (below(50) == 0) drain_due(&w, below(DBS));
        }
        check_world(&w);
        world_tick(&w, 0);
        w.all_kept_seen = true;
        for (u32 db = 0; db < DBS; db++) compare_companions(&w, db);
        w.all_kept_seen = false;
    }
}

/* Keys without a companion are as if there were none; usage() counts it. */
static void test_usage(void **state)
{
    (void)state;
    if (none_here()) return;
    struct key_ref ref;
    bytes head;
    w.ops->find(w.e, 0, BYTES_LIT("k"), &ref);
    w.ops->str.put(w.e, 0, BYTES_LIT("k"), &ref, BYTES_LIT("value"), 0);
    size_t alone = w.ops->usage(w.e, &ref, 0);
    assert_false(w.ops->companion.head(w.e, &ref, &head));
    assert_false(w.ops->companion.del(w.e, &ref, BYTES_LIT("none")));
    w.ops->companion.drop(w.e, &ref);
    w.ops->companion.keep(w.e, &ref, true);
    assert_int_equal(w.ops->usage(w.e, &ref, 0), alone);
    w.ops->companion.set_head(w.e, &ref, BYTES_LIT("0123456789abcd"));
    size_t with_head = w.ops->usage(w.e, &ref, 0);
    assert_true(with_head >= alone + 14);
    for (u32 i = 1; i < 1000; i++) w.ops->companion.put(w.e, &ref, text(i), text(i));
    assert_true(w.ops->usage(w.e, &ref, 0) > with_head + 1000);
    world_tick(&w, 0);
    assert_true(w.ops->find(w.e, 0, BYTES_LIT("k"), &ref));
    assert_true(w.ops->usage(w.e, &ref, 0) > with_head + 1000);
    w.ops->companion.drop(w.e, &ref);
    assert_int_equal(w.ops->usage(w.e, &ref, 0), alone);
}

/* A walk over kept companions resumes where it was, whatever is added or removed between its steps. */
static u32 came[400];

static void count_kept(void *arg, struct key_ref *ref)
{
    (void)arg;
    u32 id = text_id(ref->key);
    assert_true(id < ARRAY_LEN(came));
    came[id]++;
}

static void keep_or_drop(u32 id, bool put)
{
    char name[TEXT_MAX];
    struct key_ref ref;
    w.ops->find(w.e, 1, text_keep(name, text(id)), &ref);
    if (put) w.ops->companion.set_head(w.e, &ref, text(id));
    else w.ops->companion.drop(w.e, &ref);
}

static void test_walk_in_slices(void **state)
{
    (void)state;
    if (none_here()) return;
    struct buf place = {0};
    memset(came, 0, sizeof came);
    for (u32 id = 0; id < ARRAY_LEN(came); id++) keep_or_drop(id, true);
    world_tick(&w, 1);
    for (bool more = true; more;) {
        more = w.ops->companion.each_kept(w.e, 1, &place, 10, count_kept, NULL);
        for (u32 n = 0; n < 5; n++) keep_or_drop(2 * below(ARRAY_LEN(came) / 2), below(2));
        world_tick(&w, 1);
    }
    for (u32 id = 1; id < ARRAY_LEN(came); id += 2) assert_true(came[id] >= 1);
    buf_release(&place);
    w.ops->flush(w.e, 1);
    assert_false(w.ops->companion.each_kept(w.e, 1, &place, 10, count_kept, NULL));
    buf_release(&place);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int companion_suite(engine_open_fn open)
{
    open_engine = open;
    const struct CMUnitTest tests[] = {TEST(test_companions), TEST(test_usage), TEST(test_walk_in_slices)};
    return cmocka_run_group_tests_name("companions", tests, NULL, NULL);
}
