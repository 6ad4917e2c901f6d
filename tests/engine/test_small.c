/* Small collections of the memory engine: growing out of their entry and, where Redis's encoding returns,
 * back, with deadlines and companions that come and go. A plain model says what is in them, which encoding
 * Redis would have, and that used_memory is what MEMORY USAGE says. The suite's snapshots and companions run
 * with low limits, too. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "ds/listpack.h"
#include "engine/memory/memory.h"
#include "suite.h"
#include "suite_model.h"

#define NAMES 100
#define LONGEST 70

static struct engine *e;
static struct key_ref ref;

static void set_limits(struct engine *eng, i64 entries)
{
    eng->limits.hash_max_listpack_entries = eng->limits.zset_max_listpack_entries = entries;
    eng->limits.set_max_intset_entries = entries / 2;
    eng->limits.set_max_listpack_entries = entries;
}

static struct engine *open_low(u32 databases, u64 seed)
{
    struct engine *eng = memory_engine_new(databases, seed);
    set_limits(eng, 6);
    return eng;
}

/* Numbers of several widths, names, and a few that are longer than a listpack takes. */
static bytes name_of(u32 id, char *buf)
{
    static const i64 scale[] = {1, 30, 3000, 300000000, 30000000000000000};
    if (id < 40) return bytes_of(buf, num_print_i64(buf, (i64)(id - 3) * scale[id % 5]));
    int n = sprintf(buf, "name:%u", id);
    if (id < 97) return bytes_of(buf, (size_t)n);
    memset(buf + n, 'x', (size_t)(LONGEST - n));
    return bytes_of(buf, LONGEST);
}

static bytes name(u32 id)
{
    static char ring[8][LONGEST + 8];
    static u32 turn;
    return name_of(id, ring[turn++ % 8]);
}

static bool is_number(u32 id) { return id < 40; }
static bool is_long(u32 id) { return id >= 97; }

/* -- what it should be -------------------------------------------------------------------------- */

static struct {
    enum value_type type;
    u32 n, id[200];
    u32 value[NAMES]; /* by id */
    const char *encoding;
    u64 pack_bytes;   /* of a list */
    size_t overhead;  /* what used_memory counts beside the key's usage */
    bool exact;       /* … which nothing has changed */
} model;

static u32 model_index(u32 id)
{
    u32 i = 0;
    while (i < model.n && model.id[i] != id) i++;
    return i;
}

static void model_insert(u32 at, u32 id)
{
    memmove(model.id + at + 1, model.id + at, (model.n++ - at) * sizeof model.id[0]);
    model.id[at] = id;
}

static void model_erase(u32 at)
{
    memmove(model.id + at, model.id + at + 1, (--model.n - at) * sizeof model.id[0]);
}

static const char *set_encoding(u32 id)
{
    bool fits = model.n + 1 <= e->limits.set_max_listpack_entries && !is_long(id);
    if (strcmp(model.encoding, "intset") == 0) {
        if (is_number(id) && model.n < e->limits.set_max_intset_entries) return "intset";
        return !is_number(id) && fits ? "listpack" : "hashtable";
    }
    return strcmp(model.encoding, "listpack") == 0 && fits ? "listpack" : "hashtable";
}

static void list_before_growing(u32 id)
{
    if (listpack_exceeds(e->limits.list_max_listpack_size, model.pack_bytes + name(id).n, model.n + 1))
        model.encoding = "quicklist";
    model.pack_bytes += listpack_cost(name(id));
}

static void list_after_shrinking(u32 id)
{
    model.pack_bytes -= listpack_cost(name(id));
    if (listpack_is_half(e->limits.list_max_listpack_size, model.pack_bytes, model.n))
        model.encoding = "listpack";
}

/* -- changes ------------------------------------------------------------------------------------ */

static void put_field(u32 id, u32 value)
{
    bool fresh = model_index(id) == model.n;
    if (is_long(id) || is_long(value) || model.n + fresh > e->limits.hash_max_listpack_entries)
        model.encoding = "hashtable";
    assert_int_equal(e->ops->map.put(e, &ref, name(id), name(value), false), fresh);
    if (fresh) model_insert(model.n, id);
    model.value[id] = value;
}

static void add_member(u32 id)
{
    bool fresh = model_index(id) == model.n;
    if (fresh) model.encoding = set_encoding(id);
    assert_int_equal(e->ops->map.put(e, &ref, name(id), (bytes){"", 0}, false), fresh);
    if (fresh) model_insert(model.n, id);
}

/* Halves now and then, which an integer can't be. */
static double score_of(u32 value) { return value % 7 ? (double)value - 20 : value / 2.0; }

static void put_score(u32 id, u32 value)
{
    bool fresh = model_index(id) == model.n;
    if (fresh && (is_long(id) || model.n + 1 > e->limits.zset_max_listpack_entries))
        model.encoding = "skiplist";
    assert_int_equal(e->ops->zset.put(e, &ref, name(id), score_of(value)), fresh);
    if (fresh) model_insert(model.n, id);
    model.value[id] = value;
}

static void grow_list(u32 id)
{
    u32 at = below(4) == 0 ? below(model.n + 1) : below(2) ? 0 : model.n;
    if (below(6) == 0 && model.n) {
        at = below(model.n);
        u32 old = model.id[at];
        list_before_growing(id);
        e->ops->seq.set(e, &ref, at, name(id));
        model.id[at] = id;
        list_after_shrinking(old);
        return;
    }
    list_before_growing(id);
    if (at == 0 || at == model.n) e->ops->seq.push(e, &ref, at == 0, name(id));
    else e->ops->seq.insert(e, &ref, at, name(id));
    model_insert(at, id);
}

/* Removes all that are equal to one, as LREM does, in either direction. */
static void erase_walking(u32 id)
{
    struct seq_iter it;
    bytes v;
    bool reverse = below(2);
    u32 left = 1 + below(3), at = reverse ? model.n : 0;
    e->ops->seq.iter(e, &ref, reverse ? model.n - 1 : 0, reverse, &it);
    while (left > 0 && model.n > 1 && e->ops->seq.next(&it, &v)) {
        if (reverse) at--;
        assert_true(bytes_eq(v, name(model.id[at])));
        if (model.id[at] == id || below(10) == 0) {
            u32 gone = model.id[at];
            e->ops->seq.erase_current(&it);
            model_erase(at);
            list_after_shrinking(gone);
            left--;
        } else if (!reverse) {
            at++;
        }
    }
}

static void shrink_list(void)
{
    u32 at = below(model.n), id = model.id[at];
    if (below(4) == 0) {
        erase_walking(id);
        return;
    }
    if (at < model.n / 2) at = below(2) ? 0 : at;
    else at = below(2) ? model.n - 1 : at;
    id = model.id[at];
    struct buf out = {0};
    if (at == 0 || at == model.n - 1) e->ops->seq.pop(e, &ref, at == 0, &out);
    else e->ops->seq.erase(e, &ref, at, 1);
    if (out.n) assert_true(bytes_eq(buf_bytes(&out), name(id)));
    buf_release(&out);
    model_erase(at);
    list_after_shrinking(id);
}

static void shrink(void)
{
    if (model.type == TYPE_LIST) {
        shrink_list();
        return;
    }
    u32 id = model.id[below(model.n)];
    if (model.type == TYPE_ZSET) assert_true(e->ops->zset.del(e, &ref, name(id)));
    else assert_true(e->ops->map.del(e, &ref, name(id)));
    model_erase(model_index(id));
}

static void grow(void)
{
    u32 id = below(below(30) ? 97 : NAMES);
    if (model.type == TYPE_SET && below(3)) id %= 40; /* numbers, mostly */
    switch (model.type) {
    case TYPE_HASH: put_field(id, below(below(30) ? 97 : NAMES)); break;
    case TYPE_SET: add_member(id); break;
    case TYPE_ZSET: put_score(id, below(NAMES)); break;
    default: grow_list(id);
    }
}

/* -- comparing ---------------------------------------------------------------------------------- */

static void check_list(void)
{
    for (u32 reverse = 0; reverse < 2; reverse++) {
        struct seq_iter it;
        bytes v;
        u32 n = 0;
        e->ops->seq.iter(e, &ref, reverse ? model.n - 1 : 0, reverse, &it);
        it.passing = below(2);
        while (e->ops->seq.next(&it, &v)) {
            assert_true(bytes_eq(v, name(model.id[reverse ? model.n - 1 - n : n])));
            n++;
        }
        assert_int_equal(n, model.n);
    }
    u32 at = below(model.n);
    bytes v;
    e->ops->seq.get(e, &ref, at, &v);
    assert_true(bytes_eq(v, name(model.id[at])));
}

static int zset_cmp(u32 a, u32 b)
{
    double x = score_of(model.value[a]), y = score_of(model.value[b]);
    return x != y ? (x > y) - (x < y) : bytes_cmp(name(a), name(b));
}

static u32 rank_of(u32 id)
{
    u32 rank = 0;
    for (u32 i = 0; i < model.n; i++) rank += zset_cmp(model.id[i], id) < 0;
    return rank;
}

static void check_zset(void)
{
    struct zset_iter it;
    struct zset_seek from = {.by = ZSEEK_RANK, .reverse = below(2)};
    bytes v;
    double score;
    u64 rank;
    u32 n = 0;
    from.rank = from.reverse ? model.n - 1 : 0;
    e->ops->zset.iter(e, &ref, &from, &it);
    it.passing = below(2);
    for (; e->ops->zset.next(&it, &v, &score); n++) {
        u32 i = 0;
        while (!bytes_eq(name(model.id[i]), v)) assert_true(++i < model.n);
        assert_true(score == score_of(model.value[model.id[i]]));
        assert_int_equal(rank_of(model.id[i]), from.reverse ? model.n - 1 - n : n);
    }
    assert_int_equal(n, model.n);
    u32 id = below(NAMES), at = model_index(id);
    assert_int_equal(e->ops->zset.rank(e, &ref, name(id), &rank), at < model.n);
    if (at < model.n) assert_int_equal(rank, rank_of(id));
    u64 before = 0;
    for (u32 i = 0; i < model.n; i++) before += score_of(model.value[model.id[i]]) < score_of(id);
    from = (struct zset_seek){.by = ZSEEK_SCORE, .score = score_of(id)};
    assert_int_equal(e->ops->zset.before(e, &ref, &from), before);
}

static void check_map(void)
{
    struct map_iter it;
    bytes f, v;
    u32 n = 0;
    e->ops->map.iter(e, &ref, &it);
    it.passing = below(2);
    for (; e->ops->map.next(&it, &f, &v); n++) {
        u32 i = 0;
        while (!bytes_eq(name(model.id[i]), f)) assert_true(++i < model.n);
        assert_true(model.type == TYPE_SET ? v.n == 0 : bytes_eq(v, name(model.value[model.id[i]])));
    }
    assert_int_equal(n, model.n);
    u32 id = below(NAMES);
    assert_int_equal(e->ops->map.get(e, &ref, name(id), &v), model_index(id) < model.n);
}

static bool in_its_entry(void)
{
    if (model.type == TYPE_LIST) return model.pack_bytes <= 512 && strcmp(model.encoding, "listpack") == 0;
    return strcmp(model.encoding, "hashtable") != 0 && strcmp(model.encoding, "skiplist") != 0;
}

static void check(const struct mem_meter *meter)
{
    assert_string_equal(e->ops->encoding(e, &ref), model.encoding);
    assert_int_equal(e->ops->size(e, &ref), model.n);
    if (in_its_entry() && model.exact)
        assert_int_equal(mem_used(meter) - model.overhead, e->ops->usage(e, &ref, 0));
    if (model.n == 0) return;
    if (model.type == TYPE_LIST) check_list();
    else if (model.type == TYPE_ZSET) check_zset();
    else check_map();
}

/* -- one life ----------------------------------------------------------------------------------- */

/* Metadata that makes the entry move, too. */
static void change_around(void)
{
    bytes head;
    switch (below(4)) {
    case 0: e->ops->set_deadline(e, &ref, below(2) ? 0 : START + 1 + below(1000000)); break;
    case 1: e->ops->companion.set_head(e, &ref, bytes_of("0123456789abcdefghij", below(20))); break;
    case 2: e->ops->companion.drop(e, &ref); break;
    default:
        if (e->ops->companion.head(e, &ref, &head) && head.n) assert_int_equal(head.p[0], '0');
    }
}

static void begin_life(enum value_type type, const struct mem_meter *meter)
{
    static const char *const first[] = {
        [TYPE_HASH] = "listpack", [TYPE_SET] = "intset", [TYPE_ZSET] = "listpack", [TYPE_LIST] = "listpack"};
    memset(&model, 0, sizeof model);
    model.type = type;
    model.encoding = first[type];
    model.pack_bytes = LISTPACK_EMPTY;
    model.exact = below(2);
    set_limits(e, 2 + below(below(4) ? 8 : 60));
    e->limits.list_max_listpack_size = below(2) ? -1 : 2 + (i64)below(40);
    e->ops->create(e, 0, bytes_of("a key of some length", 1 + below(20)), type, &ref);
    model.overhead = mem_used(meter) - e->ops->usage(e, &ref, 0);
}

static void live(enum value_type type)
{
    struct mem_meter meter;
    mem_meter_open(&meter);
    for (u32 life = 0; life < ROUNDS(60); life++) {
        begin_life(type, &meter);
        for (u32 step = 0; step < 300; step++) {
            bool growing = step % 150 < 75;
            if (model.n < 2 || (model.n < 190 && below(10) < (growing ? 8u : 2u))) grow();
            else shrink();
            if (!model.exact && below(8) == 0) change_around();
            check(&meter);
            assert_true(e->ops->commit(e, 0));
            e->ops->begin(e, START);
        }
        e->ops->drop(e, &ref);
        while (e->ops->reclaim(e, 1000)) {}
    }
}

static int setup(void **state)
{
    (void)state;
    bytes v;
    suite_seed();
    e = memory_engine_new(1, 1);
    e->ops->begin(e, START);
    e->ops->create(e, 0, BYTES_LIT("first"), TYPE_HASH, &ref);
    e->ops->map.put(e, &ref, BYTES_LIT("field"), BYTES_LIT("1000"), false);
    e->ops->map.get(e, &ref, BYTES_LIT("field"), &v); /* the engine keeps the memory for texts it makes */
    e->ops->drop(e, &ref);
    assert_true(e->ops->commit(e, 0));
    e->ops->begin(e, START);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    e->ops->close(e);
    return 0;
}

static void test_hash(void **state) { (void)state; live(TYPE_HASH); }
static void test_set(void **state) { (void)state; live(TYPE_SET); }
static void test_zset(void **state) { (void)state; live(TYPE_ZSET); }
static void test_list(void **state) { (void)state; live(TYPE_LIST); }

/* -- hashes with field deadlines ---------------------------------------------------------------- */

#define WHEEL_SLOT_MS 64
#define FIELDS 400 /* more than a small one has */
static struct {
    bool there;
    u32 value;
    i64 deadline_ms;
} fields[FIELDS];
static i64 now_ms;
static const char *timed_encoding;

static bytes field(u32 id)
{
    static char ring[4][16];
    static u32 turn;
    char *buf = ring[turn++ % 4];
    return bytes_of(buf, (size_t)snprintf(buf, sizeof ring[0], id % 3 ? "%u" : "field:%u", id));
}

static bool field_lives(u32 id) { return fields[id].there && alive(fields[id].deadline_ms, now_ms); }

static u32 fields_stored(void)
{
    u32 n = 0;
    for (u32 id = 0; id < FIELDS; id++) n += fields[id].there;
    return n;
}

static void timed_put(u32 id, u32 value, bool keep)
{
    bool fits = fields_stored() + !fields[id].there <= e->limits.hash_max_listpack_entries;
    if (!fits) timed_encoding = "hashtable";
    bool fresh = !field_lives(id);
    assert_int_equal(e->ops->map.put(e, &ref, field(id), field(value), keep), fresh);
    fields[id].there = true;
    fields[id].value = value;
    if (fresh || !keep) fields[id].deadline_ms = 0;
}

static void timed_set_deadline(u32 id, i64 deadline_ms)
{
    e->ops->map.set_field_deadline(e, &ref, field(id), deadline_ms);
    if (!field_lives(id)) return;
    fields[id].deadline_ms = deadline_ms;
    if (deadline_ms && strcmp(timed_encoding, "listpack") == 0) timed_encoding = "listpackex";
}

static u32 field_id(bytes name)
{
    u32 id = 0;
    while (!bytes_eq(field(id), name)) assert_true(++id < FIELDS);
    return id;
}

struct reaping {
    i64 last_ms;
    u32 hashes;
};

static void timed_reaped(void *arg, bytes name, bytes value, double deadline_ms)
{
    struct reaping *r = arg;
    u32 id = field_id(name);
    assert_true(fields[id].there && !field_lives(id) && bytes_eq(value, field(fields[id].value)));
    assert_true((i64)deadline_ms == fields[id].deadline_ms && (i64)deadline_ms >= r->last_ms);
    r->last_ms = (i64)deadline_ms;
    fields[id].there = false;
}

static void timed_due(void *arg, struct key_ref *due)
{
    struct reaping *r = arg;
    u32 dead = (u32)e->ops->map.dead_fields(e, due), some = 1 + below(dead);
    r->hashes++;
    assert_true(dead > 0);
    assert_int_equal(e->ops->map.reap(e, due, some, timed_reaped, r), some);
    ref = *due;
}

/* Dead fields are reported as due, at the latest when the wheel's slot has passed, and reaped a few at a time,
 * the earliest first. */
static void timed_advance(u32 ms)
{
    struct reaping r = {0};
    u32 dead = 0;
    assert_true(e->ops->commit(e, 0));
    e->ops->begin(e, now_ms += ms);
    for (u32 id = 0; id < FIELDS; id++) dead += fields[id].there && !field_lives(id);
    assert_int_equal(e->ops->map.dead_fields(e, &ref), dead);
    if (below(2)) return;
    while (e->ops->due(e, now_ms, 10, timed_due, &r)) {}
    for (u32 id = 0; id < FIELDS; id++)
        assert_false(fields[id].there && !alive(fields[id].deadline_ms, now_ms - WHEEL_SLOT_MS));
    e->ops->map.reap(e, &ref, FIELDS, timed_reaped, &r);
    assert_int_equal(e->ops->map.dead_fields(e, &ref), 0);
}

static void timed_move(void)
{
    struct key_ref from = ref;
    bytes key = below(2) ? BYTES_LIT("one name") : BYTES_LIT("another");
    if (bytes_eq(key, ref.key)) return;
    if (below(2)) {
        e->ops->rename(e, &ref, 0, key);
        return;
    }
    e->ops->copy(e, &from, 0, key, &ref); /* without dead fields */
    e->ops->drop(e, &from);
    for (u32 id = 0; id < FIELDS; id++) fields[id].there = field_lives(id);
}

static void timed_change(void)
{
    u32 id = below(FIELDS), what = below(100);
    if (what < 45) timed_put(id, below(FIELDS), below(2));
    else if (what < 70) timed_set_deadline(id, below(5) ? now_ms + 1 + below(200) : 0);
    else if (what < 90) {
        assert_int_equal(e->ops->map.del(e, &ref, field(id)), field_lives(id));
        if (field_lives(id)) fields[id].there = false;
    } else if (what < 95) {
        struct reaping r = {0};
        bool dead = fields[id].there && !field_lives(id);
        assert_int_equal(e->ops->map.reap_field(e, &ref, field(id), timed_reaped, &r), dead);
    } else if (what < 97) timed_move();
    else if (what < 99) change_around();
    else timed_advance(below(100));
}

static void timed_check(void)
{
    struct map_iter it;
    bytes f, v;
    u32 n = 0, live = 0, timed = 0;
    u64 rng = below(1000);
    for (u32 id = 0; id < FIELDS; id++) {
        live += field_lives(id);
        timed += fields[id].there && fields[id].deadline_ms;
    }
    assert_string_equal(e->ops->encoding(e, &ref), timed_encoding);
    assert_int_equal(e->ops->size(e, &ref), live);
    assert_int_equal(e->ops->map.has_field_deadlines(e, &ref), timed > 0);
    e->ops->map.iter(e, &ref, &it);
    it.passing = below(2);
    for (; e->ops->map.next(&it, &f, &v); n++) {
        u32 id = field_id(f);
        assert_true(field_lives(id) && bytes_eq(v, field(fields[id].value)));
    }
    assert_int_equal(n, live);
    assert_int_equal(e->ops->map.random(e, &ref, &rng, &f, &v), live > 0);
    if (live) assert_true(field_lives(field_id(f)));
    u32 id = below(FIELDS);
    i64 deadline_ms;
    assert_int_equal(e->ops->map.get(e, &ref, field(id), &v), field_lives(id));
    assert_int_equal(e->ops->map.field_deadline(e, &ref, field(id), &deadline_ms), field_lives(id));
    assert_int_equal(deadline_ms, field_lives(id) ? fields[id].deadline_ms : 0);
}

/* From the entry to the table, because of Redis's limit or of ours, and everything in between. */
static void test_timed(void **state)
{
    (void)state;
    now_ms = START;
    for (u32 life = 0; life < ROUNDS(20); life++) {
        memset(fields, 0, sizeof fields);
        set_limits(e, below(2) ? 10 + below(50) : FIELDS);
        timed_encoding = "listpack";
        e->ops->create(e, 0, BYTES_LIT("one name"), TYPE_HASH, &ref);
        for (u32 step = 0; step < 1200; step++) {
            timed_change();
            if (step % 4 == 0) timed_check();
        }
        e->ops->drop(e, &ref);
        assert_int_equal(e->ops->timed_hashes(e, 0), 0);
        while (e->ops->reclaim(e, 1000)) {}
    }
}

/* -- sizes -------------------------------------------------------------------------------------- */

static void assert_usage(size_t entry) { assert_int_equal(e->ops->usage(e, &ref, 0), entry + sizeof(u64)); }

/* The entries of 13-byte keys that bench/run.py --only memory measures. */
static void test_sizes(void **state)
{
    (void)state;
    e->ops->create(e, 0, BYTES_LIT("list:00000001"), TYPE_LIST, &ref);
    for (u32 i = 0; i < 5; i++) e->ops->seq.push(e, &ref, false, BYTES_LIT("item-1"));
    assert_usage(64);
    e->ops->create(e, 0, BYTES_LIT("sets:00000001"), TYPE_SET, &ref);
    for (u32 i = 0; i < 5; i++)
        e->ops->map.put(e, &ref, bytes_of(&"item-1item-2"[i], 6), (bytes){"", 0}, false);
    assert_usage(64);
    e->ops->create(e, 0, BYTES_LIT("ints:00000001"), TYPE_SET, &ref);
    for (u32 i = 0; i < 5; i++) e->ops->map.put(e, &ref, name(10 + 5 * i), (bytes){"", 0}, false);
    assert_usage(32);
    e->ops->create(e, 0, BYTES_LIT("zset:00000001"), TYPE_ZSET, &ref);
    for (u32 i = 0; i < 5; i++) e->ops->zset.put(e, &ref, bytes_of(&"item-1item-2"[i], 6), 10 * i);
    assert_usage(64);
    e->ops->create(e, 0, BYTES_LIT("hash:00000001"), TYPE_HASH, &ref);
    for (u32 i = 0; i < 4; i++)
        e->ops->map.put(e, &ref, bytes_of(&"abcdefgh"[i], 5), BYTES_LIT("value"), false);
    assert_usage(64);
    e->ops->map.set_field_deadline(e, &ref, BYTES_LIT("abcde"), START + 1000);
    assert_usage(112);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hash, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_timed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
    };
    int failed = cmocka_run_group_tests_name("small collections", tests, NULL, NULL);
    return failed + snapshot_suite(open_low) + companion_suite(open_low);
}
