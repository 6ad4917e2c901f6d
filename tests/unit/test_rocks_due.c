/* The deadline index against a model, over a store and rows that are plain arrays: so transactions
 * can be abandoned, and reads fail, whenever it suits the test. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/rand.h"
#include "engine/rocks/due/due.h"
#include "engine/rocks/type/fields.h"

#define DBS 2
#define KEYS 400
#define START 1700000000000LL
#define SECOND 1000LL
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static u64 rng;
static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* -- a store in two arrays -------------------------------------------------------------- */

struct pair {
    struct buf key, value;
};

struct op {
    enum { PUT, DELETE, RANGE } what;
    enum family f;
    struct buf key, value;
};

struct store_session {
    struct pair *row[FAM_COUNT];
    u32 n[FAM_COUNT], cap[FAM_COUNT];
    struct op *batch;
    u32 ops, op_cap;
    bool *failed;
    u32 fail_in; /* reads until one fails; 0: none does */
};

struct store_iter {
    struct store_session *s;
    enum family f;
    struct buf lower, upper;
    u32 at;
};

static struct buf copy(bytes b)
{
    struct buf out = {0};
    buf_append_bytes(&out, b);
    return out;
}

/* The first row at or after a key. */
static u32 position(const struct store_session *s, enum family f, bytes key)
{
    u32 lo = 0, hi = s->n[f];
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (bytes_cmp(buf_bytes(&s->row[f][mid].key), key) < 0) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

static bool holds(const struct store_session *s, enum family f, bytes key)
{
    u32 at = position(s, f, key);
    return at < s->n[f] && bytes_eq(buf_bytes(&s->row[f][at].key), key);
}

static void remove_at(struct store_session *s, enum family f, u32 at)
{
    buf_release(&s->row[f][at].key);
    buf_release(&s->row[f][at].value);
    memmove(&s->row[f][at], &s->row[f][at + 1], (--s->n[f] - at) * sizeof(struct pair));
}

static void apply(struct store_session *s, const struct op *o)
{
    bytes key = buf_bytes(&o->key), value = buf_bytes(&o->value);
    u32 at = position(s, o->f, key);
    if (o->what == RANGE) {
        while (at < s->n[o->f] && bytes_cmp(buf_bytes(&s->row[o->f][at].key), value) < 0)
            remove_at(s, o->f, at);
        return;
    }
    if (holds(s, o->f, key)) remove_at(s, o->f, at);
    if (o->what == DELETE) return;
    if (s->n[o->f] == s->cap[o->f]) {
        s->cap[o->f] = s->cap[o->f] * 2 + 64;
        s->row[o->f] = mem_realloc(s->row[o->f], s->cap[o->f] * sizeof(struct pair));
    }
    memmove(&s->row[o->f][at + 1], &s->row[o->f][at], (s->n[o->f]++ - at) * sizeof(struct pair));
    s->row[o->f][at] = (struct pair){copy(key), copy(value)};
}

static void add_op(struct store_session *s, struct op o)
{
    if (s->ops == s->op_cap) {
        s->op_cap = s->op_cap * 2 + 64;
        s->batch = mem_realloc(s->batch, s->op_cap * sizeof o);
    }
    s->batch[s->ops++] = o;
}

static void end_batch(struct store_session *s, bool keep)
{
    for (u32 i = 0; i < s->ops; i++) {
        if (keep) apply(s, &s->batch[i]);
        buf_release(&s->batch[i].key);
        buf_release(&s->batch[i].value);
    }
    s->ops = 0;
}

void store_put(struct store_session *s, enum family f, bytes key, bytes value)
{
    add_op(s, (struct op){PUT, f, copy(key), copy(value)});
}
void store_delete(struct store_session *s, enum family f, bytes key)
{
    add_op(s, (struct op){DELETE, f, copy(key), {0}});
}
void store_delete_range(struct store_session *s, enum family f, bytes from, bytes to)
{
    add_op(s, (struct op){RANGE, f, copy(from), copy(to)});
}

static bool read_fails(struct store_session *s)
{
    if (s->fail_in == 0 || --s->fail_in > 0) return false;
    s->fail_in = 1; /* and so do all that follow */
    return *s->failed = true;
}

bool store_get(struct store_session *s, enum family f, bytes key, struct store_value *out)
{
    *out = (struct store_value){0};
    if (read_fails(s) || !holds(s, f, key)) return false;
    struct pair *p = &s->row[f][position(s, f, key)];
    *out = (struct store_value){buf_bytes(&p->value), p};
    return true;
}
void store_value_release(struct store_value *v) { *v = (struct store_value){0}; }

struct store_iter *store_iter(struct store_session *s, enum family f, bytes lower, bytes upper, u32 flags UNUSED)
{
    struct store_iter *it = mem_alloc(sizeof *it);
    *it = (struct store_iter){s, f, copy(lower), copy(upper), UINT32_MAX};
    return it;
}
void store_iter_done(struct store_iter *it)
{
    buf_release(&it->lower);
    buf_release(&it->upper);
    mem_free(it);
}
void store_seek(struct store_iter *it, bytes key)
{
    bytes from = bytes_cmp(key, buf_bytes(&it->lower)) < 0 ? buf_bytes(&it->lower) : key;
    it->at = read_fails(it->s) ? UINT32_MAX : position(it->s, it->f, from);
}
void store_seek_first(struct store_iter *it) { store_seek(it, buf_bytes(&it->lower)); }
void store_next(struct store_iter *it) { it->at = read_fails(it->s) ? UINT32_MAX : it->at + 1; }
bool store_valid(const struct store_iter *it)
{
    return it->at < it->s->n[it->f] &&
           bytes_cmp(buf_bytes(&it->s->row[it->f][it->at].key), buf_bytes(&it->upper)) < 0;
}
bytes store_key(const struct store_iter *it)
{
    assert_true(store_valid(it));
    return buf_bytes(&it->s->row[it->f][it->at].key);
}
bytes store_iter_value(const struct store_iter *it) { return buf_bytes(&it->s->row[it->f][it->at].value); }

/* -- rows in an array ----------------------------------------------------------------------- */

/* A key is numbered, and always there as a row. head is the deadline of its fields, 0: they have none;
 * tail says how many they are, less one. */
struct world {
    struct rk rk;
    struct engine_ops ops;
    struct store_session store;
    struct rk_db db[DBS];
    struct rk_db *dbs[DBS];
    struct due_shared *counts;
    struct row key[DBS][KEYS], stored[DBS][KEYS]; /* stored: as of the last commit */
    char name[KEYS][16];
    u64 offered, seen;
    bool refuse; /* leave what is offered alone */
};

static struct world *the_world; /* row_get knows nothing but its arguments */

static u32 id_of(bytes key)
{
    u32 id = 0;
    for (size_t i = key.p[0] == '{'; i < key.n; i++) id = id * 10 + (u32)(key.p[i] - '0');
    return id;
}

struct row *row_get(struct rk *rk, struct rk_db *db, bytes key, u64 hash UNUSED)
{
    struct world *w = the_world;
    if (read_fails(&w->store)) assert_true(rk->base.failed);
    struct row *r = &w->key[db - w->db][id_of(key)];
    assert_true(bytes_eq(row_key(r), key));
    return r;
}
struct row *row_peek(struct rk *rk UNUSED, struct rk_db *db UNUSED, bytes key UNUSED, u64 hash UNUSED)
{
    return NULL;
}
void row_prefetch(struct rk *rk UNUSED, const struct want *want UNUSED, u32 n UNUSED) {}
void row_ref(struct row *r, u64 hash, struct key_ref *ref)
{
    *ref = (struct key_ref){row_key(r), r->db->number, (enum value_type)r->type, r->deadline_ms, hash, r};
}
void keys_range(const struct rk *rk UNUSED, const struct rk_db *db UNUSED, struct buf *from UNUSED, struct buf *to UNUSED)
{
    fail(); /* of a part of the slots only */
}
i64 fields_nearest(struct rk *rk UNUSED, struct row *r) { return (i64)r->head; }

static void touch(struct world *w, struct row *r)
{
    if (r->touched) return;
    r->touched = true;
    r->next_touched = NULL;
    *w->rk.touched_end = r;
    w->rk.touched_end = &r->next_touched;
}

static void set_deadline(struct world *w, struct row *r, i64 deadline_ms)
{
    touch(w, r);
    r->db->expires += !!deadline_ms;
    r->db->expires -= !!r->deadline_ms;
    r->deadline_ms = deadline_ms;
}

static void drop(struct world *w, struct row *r)
{
    touch(w, r);
    set_deadline(w, r, 0);
    r->type = TYPE_NONE;
    r->field_deadlines = false;
    r->head = r->tail = 0;
    r->db->count--;
}

static void put(struct world *w, struct row *r, i64 deadline_ms)
{
    touch(w, r);
    r->db->count += r->type == TYPE_NONE;
    if (r->type == TYPE_NONE) r->type = below(3) ? TYPE_STRING : TYPE_HASH;
    set_deadline(w, r, deadline_ms);
}

static void set_field(struct world *w, struct row *r, i64 deadline_ms, u32 more)
{
    if (r->type != TYPE_HASH) return;
    touch(w, r);
    r->head = (u64)deadline_ms;
    r->tail = deadline_ms ? more : 0;
    r->field_deadlines = deadline_ms != 0;
}

/* -- transactions ------------------------------------------------------------------------------ */

static void remember(struct world *w)
{
    memcpy(w->stored, w->key, sizeof w->stored);
}

static void end_rows(struct world *w)
{
    w->rk.touched = NULL;
    w->rk.touched_end = &w->rk.touched;
    for (u32 db = 0; db < DBS; db++)
        for (u32 id = 0; id < KEYS; id++) w->key[db][id].touched = false;
}

/* As row_write and fields_commit do it. */
static void write_row(struct world *w, struct row *r)
{
    struct rk *rk = &w->rk;
    if (r->stored.field_due_ms != (i64)r->head) {
        due_forget_fields(rk, r);
        if (r->head) due_file_fields(rk, r, (i64)r->head);
    }
    r->stored.field_due_ms = (i64)r->head;
    if (r->stored.deadline_ms != r->deadline_ms) due_changed(rk, r, r->stored.deadline_ms, r->deadline_ms);
    r->stored.type = r->type;
    r->stored.deadline_ms = r->deadline_ms;
}

static u64 db_count[DBS], db_expires[DBS];

static void remember_counts(struct world *w)
{
    for (u32 i = 0; i < DBS; i++) {
        db_count[i] = w->db[i].count;
        db_expires[i] = w->db[i].expires;
    }
}

static void give_up(struct world *w)
{
    end_batch(&w->store, false);
    memcpy(w->key, w->stored, sizeof w->key);
    for (u32 i = 0; i < DBS; i++) {
        w->db[i].count = db_count[i];
        w->db[i].expires = db_expires[i];
    }
    w->store.fail_in = 0;
    w->rk.base.failed = false;
    due_abandon(&w->rk);
    assert_false(w->rk.base.failed);
    end_rows(w);
    remember(w);
}

static void commit(struct world *w)
{
    for (struct row *r = w->rk.touched; r; r = r->next_touched) write_row(w, r);
    due_commit(&w->rk);
    if (w->rk.base.failed) {
        give_up(w);
        return;
    }
    end_batch(&w->store, true);
    due_committed(&w->rk);
    end_rows(w);
    remember(w);
    remember_counts(w);
}

static void world_open(struct world *w, u64 seed)
{
    rng = seed;
    *w = (struct world){0};
    the_world = w;
    w->rk.session = &w->store;
    w->store.failed = &w->rk.base.failed;
    w->rk.base.databases = DBS;
    w->rk.base.now_ms = START;
    w->rk.dbs = w->dbs;
    for (u32 i = 0; i < DBS; i++) {
        w->dbs[i] = &w->db[i];
        w->db[i].index = 1 + i;
        w->db[i].number = i;
        for (u32 id = 0; id < KEYS; id++) {
            struct row *r = &w->key[i][id];
            snprintf(w->name[id], sizeof w->name[id], id % 2 ? "%u" : "{%u", id);
            *r = (struct row){.db = &w->db[i], .key = w->name[id], .key_len = (u32)strlen(w->name[id])};
        }
    }
    end_rows(w);
    w->rk.region = (struct rocks_region){1, 1, 0, ROCKS_SLOTS - 1};
    w->counts = due_shared_new(1, 5);
    assert_non_null(due_open(&w->rk, w->counts));
    remember(w);
    remember_counts(w);
    rk_due_ops(&w->ops);
    w->rk.base.ops = &w->ops;
}

static void world_close(struct world *w)
{
    due_close(w->rk.due);
    due_shared_free(w->counts);
    for (u32 f = 0; f < FAM_COUNT; f++) {
        while (w->store.n[f]) remove_at(&w->store, f, w->store.n[f] - 1);
        mem_free(w->store.row[f]);
    }
    end_batch(&w->store, false);
    mem_free(w->store.batch);
    buf_release(&w->rk.scratch);
}

static void reopen(struct world *w)
{
    w->store.fail_in = 0;
    due_close(w->rk.due);
    due_shared_free(w->counts);
    w->counts = due_shared_new(1, 5);
    assert_non_null(due_open(&w->rk, w->counts));
    for (u32 db = 0; db < DBS; db++)
        for (u32 id = 0; id < KEYS; id++) w->key[db][id].stored.field_due_ms = 0;
    remember(w);
}

/* -- draining ---------------------------------------------------------------------------------------- */

static void offered(void *arg, struct key_ref *ref)
{
    struct world *w = arg;
    struct row *r = row_of(ref);
    i64 now_ms = w->rk.base.now_ms;
    w->offered++;
    bool dead = !alive(r->deadline_ms, now_ms);
    assert_true(r->type != TYPE_NONE && (dead || !alive((i64)r->head, now_ms)));
    if (w->refuse) return;
    if (dead) {
        drop(w, r);
        return;
    }
    touch(w, r);
    if (r->tail) r->tail--;
    else set_field(w, r, below(3) ? 0 : now_ms + 1 + below(100000), below(3));
}

static u32 drain_some(struct world *w, u32 max)
{
    u32 n = w->rk.base.ops->due(&w->rk.base, w->rk.base.now_ms, max, offered, w);
    assert_true(n <= max);
    w->seen += n;
    return n;
}

/* Everything that is due, in one transaction or in many. */
static void drain(struct world *w, bool one_transaction)
{
    u32 rounds = 0;
    do {
        while (drain_some(w, 1 + below(50)))
            if (!one_transaction && below(3) == 0) commit(w);
        if (!one_transaction) commit(w);
        assert_true(++rounds < 100);
    } while (w->rk.base.ops->next_due(&w->rk.base) <= w->rk.base.now_ms && !one_transaction && !w->refuse);
}

static void assert_nothing_late(struct world *w)
{
    i64 now_ms = w->rk.base.now_ms, next = w->rk.base.ops->next_due(&w->rk.base);
    assert_true(next > now_ms);
    for (u32 db = 0; db < DBS; db++) {
        for (u32 id = 0; id < KEYS; id++) {
            struct row *r = &w->key[db][id];
            i64 each[2] = {r->deadline_ms, (i64)r->head};
            for (u32 i = 0; i < 2; i++) {
                if (!each[i]) continue;
                assert_true(each[i] + 64 > now_ms);
                assert_true(next <= each[i] + 64);
            }
        }
    }
}

/* -- checking ------------------------------------------------------------------------------------------ */

/* Whether this bucket, cells included, is stored as it is here. */
static bool stored_alike(struct world *w, const struct due_bucket *b)
{
    char key[26];
    struct store_value v;
    struct buf want = {0};
    key[0] = 'b';
    put_u64(key + 1, 1);
    put_u64(key + 9, b->name.index);
    key[17] = (char)b->name.level;
    put_u64(key + 18, (u64)b->name.bucket);
    due_counts_append(&want, b);
    bool alike = store_get(&w->store, FAM_INFO, bytes_of(key, sizeof key), &v) && bytes_eq(v.b, buf_bytes(&want));
    buf_release(&want);
    return alike;
}

/* After a commit: what is stored is exactly what the rule says it should be. */
static void check(struct world *w)
{
    struct due *d = w->rk.due;
    struct due_counts want;
    struct due_position at;
    struct store_value v;
    u64 buckets = 0;
    due_counts_init(&want, 1);
    bool written = store_get(&w->store, FAM_INFO, bytes_of("p\0\0\0\0\0\0\0\1", 9), &v);
    if (written) assert_true(due_position_read(v.b, &at));
    for (u32 db = 0; db < DBS; db++) {
        u64 count = 0, expires = 0;
        for (u32 id = 0; id < KEYS; id++) {
            struct row *r = &w->key[db][id];
            count += r->type != TYPE_NONE;
            expires += r->deadline_ms != 0;
            struct due_name n = due_name(r);
            i64 each[2] = {r->deadline_ms, (i64)r->head};
            for (u32 i = 0; i < 2; i++) {
                if (!each[i]) continue;
                struct due_place p = due_key_place(d, each[i], &n);
                assert_true(written &&
                            due_place_same(p, due_place_now(&at, each[i], n.index, n.slot, n.key)));
                assert_true(holds(&w->store, FAM_DEADLINE, due_row(d, p, &n)));
                if (i == 0) due_counts_add(&want, n.index, p, each[i], 1);
            }
        }
        assert_true(w->db[db].count == count && w->db[db].expires == expires);
    }
    struct table_iter it = {0};
    for (struct due_bucket *b; (b = due_counts_next(&want, &it, 0)); buckets++)
        assert_true(stored_alike(w, b));
    assert_int_equal(w->store.n[FAM_INFO], buckets + written);
    due_counts_clear(&want);
}

static void add_up(void *arg, const struct due_span *s)
{
    assert_true(s->from_ms < s->to_ms && s->keys > 0);
    *(u64 *)arg += s->keys;
}

/* Within a transaction: the answers are those of after it. */
static void check_answers(struct world *w)
{
    struct key_ref ref;
    for (u32 db = 0; db < DBS; db++) {
        u64 sum = 0;
        w->rk.base.ops->forecast(&w->rk.base, db, add_up, &sum);
        assert_int_equal(sum, w->db[db].expires);
        bool any = w->rk.base.ops->random_volatile(&w->rk.base, db, &rng, &ref);
        assert_int_equal(any, w->db[db].expires > 0);
        if (any) assert_true(row_of(&ref)->deadline_ms == ref.deadline_ms && ref.deadline_ms && ref.db == db);
        if (any) assert_true(w->rk.base.ops->has_deadlines(&w->rk.base, db));
    }
}

/* -- tests -------------------------------------------------------------------------------------------- */

static struct world world; /* too big for the stack */

/* From a millisecond to some months, each order of magnitude as likely. */
static i64 some_ttl(void) { return 1 + (i64)rand_below(&rng, 2ULL << below(34)); }

static void change_one(struct world *w)
{
    struct row *r = &w->key[below(DBS)][below(KEYS)];
    u32 what = below(100);
    i64 at_ms = w->rk.base.now_ms + some_ttl();
    if (what < 50) put(w, r, at_ms);
    else if (what < 60) put(w, r, 0);
    else if (what < 70 && r->type != TYPE_NONE) drop(w, r);
    else if (what < 90) set_field(w, r, at_ms, below(3));
    else if (what < 94) set_field(w, r, 0, 0);
    else if (what < 95) put(w, r, w->rk.base.now_ms - below(100000)); /* as if a dead key was renamed */
    else if (r->deadline_ms) set_deadline(w, r, r->deadline_ms + below(100)); /* mostly the same bucket */
}

/* As row_flush and flush do it. */
static void flush(struct world *w, struct rk_db *db)
{
    struct row **at = &w->rk.touched;
    for (struct row *r; (r = *at);) {
        if (r->db == db) *at = r->next_touched;
        else at = &r->next_touched;
    }
    w->rk.touched_end = at;
    for (u32 id = 0; id < KEYS; id++) {
        struct row *r = &w->key[db - w->db][id];
        *r = (struct row){.db = r->db, .key = r->key, .key_len = r->key_len};
    }
    due_flush(&w->rk, db);
    db->count = db->expires = 0;
}

static void random_life(u64 seed, u32 steps, i64 jump, bool reads_fail)
{
    struct world *w = &world;
    world_open(w, seed);
    for (u32 step = 0; step < steps; step++) {
        u32 what = below(1000);
        if (what < 600) change_one(w);
        else if (what < 700) commit(w);
        else if (what < 760) w->rk.base.now_ms += below(200);
        else if (what < 770) w->rk.base.now_ms += (i64)rand_below(&rng, 10 * MINUTE);
        else if (what < 772) w->rk.base.now_ms += (i64)rand_below(&rng, 10 * DAY);
        else if (what < 774 && jump) w->rk.base.now_ms += (i64)rand_below(&rng, 2 * (u64)jump) - jump;
        else if (what < 900) drain_some(w, 1 + below(40));
        else if (what < 910) drain(w, below(2));
        else if (what < 920 && !reads_fail) check_answers(w);
        else if (what < 925) give_up(w);
        else if (what < 926) flush(w, &w->db[0]);
        else if (what < 927) {
            commit(w);
            reopen(w);
        }
        if (reads_fail && below(50) == 0) w->store.fail_in = 1 + below(30);
        if (w->rk.base.failed) give_up(w);
        if (!reads_fail && step % 100 == 0) {
            commit(w);
            check(w);
        }
    }
    w->store.fail_in = 0;
    drain(w, false);
    if (!jump) assert_nothing_late(w);
    check(w);
    assert_true(w->offered > 100);
    world_close(w);
}

static void test_random_life(void **state)
{
    (void)state;
    for (u64 seed = 1; seed <= 6; seed++) random_life(seed, 20000, 0, false);
}

static void test_clock_steps(void **state)
{
    (void)state;
    for (u64 seed = 11; seed <= 14; seed++) random_life(seed, 20000, HOUR, false);
    for (u64 seed = 15; seed <= 18; seed++) random_life(seed, 20000, 400 * DAY, false);
}

static void test_failing_reads(void **state)
{
    (void)state;
    for (u64 seed = 21; seed <= 26; seed++) random_life(seed, 20000, 0, true);
}

/* Drained in time, nothing is late, whether by one transaction or by many. */
static void test_in_time(void **state)
{
    (void)state;
    struct world *w = &world;
    for (u64 seed = 31; seed <= 34; seed++) {
        world_open(w, seed);
        for (u32 round = 0; round < 300; round++) {
            for (u32 n = below(40); n > 0; n--) change_one(w);
            commit(w);
            i64 next = w->rk.base.ops->next_due(&w->rk.base);
            bool jump = below(2) && next < INT64_MAX;
            i64 now_ms = w->rk.base.now_ms;
            w->rk.base.now_ms = jump ? MAX(next, now_ms) : now_ms + below(2u << below(30));
            drain(w, below(2));
            assert_nothing_late(w);
            for (u32 n = below(10); n > 0; n--) change_one(w);
            if (below(2)) {
                drain(w, true);
                assert_nothing_late(w);
            }
            commit(w);
            check(w);
        }
        world_close(w);
    }
}

/* A key is looked at a handful of times in its life, and leaves nothing behind. */
static void test_one_life(void **state)
{
    (void)state;
    struct world *w = &world;
    world_open(w, 41);
    for (u32 round = 0; round < 3000; round++) {
        struct row *r = &w->key[0][below(KEYS)];
        i64 deadline_ms = w->rk.base.now_ms + some_ttl();
        u64 seen = w->seen;
        put(w, r, deadline_ms);
        commit(w);
        while (r->deadline_ms) {
            w->rk.base.now_ms = w->rk.base.ops->next_due(&w->rk.base);
            drain_some(w, 10);
            commit(w);
        }
        assert_in_range(w->rk.base.now_ms - deadline_ms, 0, 64);
        assert_in_range(w->seen - seen, 1, 8);
        assert_int_equal(w->store.n[FAM_DEADLINE], 0);
        assert_int_equal(w->store.n[FAM_INFO], 1); /* the position */
        assert_true(w->rk.base.ops->next_due(&w->rk.base) == INT64_MAX);
    }
    world_close(w);
}

/* SET k v EX 1000 · DEL k, for ever, and a session whose TTL every request renews. */
static void test_churn_leaves_nothing(void **state)
{
    (void)state;
    struct world *w = &world;
    world_open(w, 42);
    u64 commits = 100000;
    for (u64 n = 0; n < commits; n++) {
        struct row *r = &w->key[0][below(20)];
        if (r->type != TYPE_NONE) drop(w, r);
        else put(w, r, w->rk.base.now_ms + some_ttl());
        put(w, &w->key[1][7], w->rk.base.now_ms + 30 * MINUTE);
        w->rk.base.now_ms += below(20);
        drain_some(w, 10);
        commit(w);
        assert_true(w->store.n[FAM_DEADLINE] <= 21);
    }
    assert_true(w->seen < commits);
    check(w);
    world_close(w);
}

/* A TTL that moves within its bucket is not written at all, but for the count. */
static void test_refresh_is_free(void **state)
{
    (void)state;
    struct world *w = &world;
    world_open(w, 43);
    struct row *r = &w->key[0][1];
    put(w, r, START + HOUR);
    commit(w);
    u32 writes = 0;
    for (u32 n = 0; n < 20000; n++) {
        w->rk.base.now_ms += SECOND;
        drain_some(w, 10);
        commit(w);
        set_deadline(w, r, w->rk.base.now_ms + HOUR);
        write_row(w, r);
        writes += w->store.ops;
        commit(w);
        if (n % 100 == 0) check(w);
    }
    assert_in_range(writes, 10, 200); /* a delete and a put in four minutes, or less */
    world_close(w);
}

/* A key that was offered and refused is offered again after the commit; all counts stay right. */
static void test_left_alone(void **state)
{
    (void)state;
    struct world *w = &world;
    world_open(w, 61);
    for (u32 round = 0; round < 200; round++) {
        for (u32 n = 0; n < 20; n++) change_one(w);
        commit(w);
        w->rk.base.now_ms += (i64)rand_below(&rng, 2ULL << below(24));
        w->refuse = true;
        u64 before = w->offered;
        for (u32 n = 0; n < 3; n++) {
            drain_some(w, UINT32_MAX);
            if (below(2)) check_answers(w);
            commit(w);
            check(w);
        }
        bool some = w->offered > before;
        w->refuse = false;
        before = w->offered;
        drain(w, false);
        if (some) assert_true(w->offered > before);
        assert_nothing_late(w);
        check(w);
    }
    world_close(w);
}

/* A million at one second would take too long here; a few thousand rows in one bucket, in slices. */
static void test_slices(void **state)
{
    (void)state;
    struct world *w = &world;
    world_open(w, 71);
    for (u32 db = 0; db < DBS; db++)
        for (u32 id = 0; id < KEYS; id++) put(w, &w->key[db][id], START + 10000 + id % 3);
    commit(w);
    w->rk.base.now_ms = START + 10100;
    u64 calls = 0;
    for (u32 n; (n = drain_some(w, 7)); calls++) {
        assert_true(n == 7 || w->db[0].count + w->db[1].count == 0);
        if (below(2)) w->rk.base.now_ms += below(3);
        if (below(2)) commit(w);
        if (below(20) == 0) {
            commit(w);
            check(w);
            reopen(w);
        }
    }
    assert_int_equal(w->offered, DBS * KEYS);
    assert_in_range(w->seen, DBS * KEYS, 4 * DBS * KEYS);
    commit(w);
    check(w);
    world_close(w);
}

/* A bucket of four minutes, full of keys that die WIDE_IN into it. Returns when it is due. */
#define WIDE_WIDTH ((i64)1 << DUE_PLACE_SHIFT(2))
#define WIDE_IN (20 * SECOND)
static i64 fill_wide_bucket(struct world *w, u64 seed)
{
    i64 start = (START / WIDE_WIDTH + 2) * WIDE_WIDTH;
    world_open(w, seed);
    for (u32 id = 0; id < KEYS; id++) put(w, &w->key[0][id], start + WIDE_IN + id);
    commit(w);
    return start - WIDE_WIDTH;
}

/* While a wide bucket is drained, keys are filed in the part of it that is still to come. Iterators go on from
 * where the drain is, not from the bucket's start, where only tombstones are. */
static void test_no_wading(void **state UNUSED)
{
    struct world *w = &world;
    i64 due = fill_wide_bucket(w, 73);
    w->rk.base.now_ms = due + 1;
    assert_int_equal(drain_some(w, KEYS / 2), KEYS / 2);
    commit(w);
    const struct due_queue *q = &w->rk.due->queue[DUE_COARSE];
    struct buf low = copy(buf_bytes(&q->low));
    assert_int_equal(q->low_ms, due);
    assert_true(low.n > 16);
    put(w, &w->key[1][0], due + WIDE_WIDTH + WIDE_IN + SECOND);
    commit(w);
    assert_true(bytes_eq(buf_bytes(&low), buf_bytes(&q->low)));
    check(w);
    while (drain_some(w, KEYS)) commit(w);
    commit(w);
    check(w);
    assert_int_equal(w->db[0].count + w->db[1].count, KEYS + 1);
    buf_release(&low);
    world_close(w);
}

/* Many keys have to be filed again: keys that die meanwhile do not wait for them, and none waits for ever. */
static void test_the_dead_come_first(void **state UNUSED)
{
    struct world *w = &world;
    i64 due = fill_wide_bucket(w, 74);
    w->rk.base.now_ms = due - SECOND;
    drain(w, false);
    for (u32 id = 0; id < 100; id++) put(w, &w->key[1][id], due + 500 + id % 7);
    commit(w);
    w->rk.base.now_ms = due + SECOND; /* both are due, and the dead ones by the later rows */
    for (u32 n = 0; n < 10; n++) {
        assert_int_equal(drain_some(w, 20), 20);
        commit(w);
        check(w);
    }
    assert_int_equal(w->db[1].count, 0);
    u64 before = w->seen;
    drain(w, false);
    assert_in_range(w->seen - before, 1, KEYS - 50); /* some of those had their turn among the dead */
    check(w);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_wading),
        cmocka_unit_test(test_the_dead_come_first),
        cmocka_unit_test(test_one_life),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_in_time),
        cmocka_unit_test(test_random_life),
        cmocka_unit_test(test_clock_steps),
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_churn_leaves_nothing),
        cmocka_unit_test(test_refresh_is_free),
        cmocka_unit_test(test_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
