/* The rocks engine's gather() against a model: sets and sorted sets next to each other on disk, with rows of
 * others and tombstones between them, changed by the transaction or not, given once or several times. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include <rocksdb/c.h>

#include "base/log.h"
#include "base/rand.h"
#include "engine/rocks/rk.h"
#include "rounds.h"
#include "unit/rocks_helpers.h"

#define KEYS 96
#define MEMBERS 700 /* more than an iterator passes tombstones (STORE_NEAR_SKIPS) */
#define GIVEN 160

static u64 rng;
static char dir[256];
static struct engine *e;
static u64 seq;
static bool has[KEYS][MEMBERS], kept[KEYS][MEMBERS];

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }
static bool is_zset(u32 key) { return key % 3 != 0; }
static double score_of(u32 key, u32 member) { return is_zset(key) ? key * 1000 + member - 0.5 : 1; }

static bytes text_of(char *room, const char *form, u32 i) { return bytes_of(room, (size_t)sprintf(room, form, i)); }

/* Most keys are in one slot, so that they are neighbours; hashes may be in the way. */
static bytes key_of(char *room, u32 key) { return text_of(room, key % 8 ? "{tag}%u" : "key:%u", key); }

static void gather_begin(void) { e->ops->begin(e, 1000); }

static void gather_open(void)
{
    struct rocks_options o = rocks_small(dir, 1);
    e = rocks_must_open(&o);
    gather_begin();
}

static int setup(void **state UNUSED)
{
    const char *seed = getenv("SUITE_SEED");
    rng = seed ? strtoull(seed, NULL, 10) : 11;
    seq = 0;
    memset(has, 0, sizeof has);
    memset(kept, 0, sizeof kept);
    assert_true(folder_make(dir, sizeof dir, "gather"));
    gather_open();
    return 0;
}

static int teardown(void **state UNUSED)
{
    e->ops->abort(e);
    e->ops->close(e);
    folder_remove(dir);
    return 0;
}

static u32 members_of(u32 key)
{
    u32 n = 0;
    for (u32 i = 0; i < MEMBERS; i++) n += has[key][i];
    return n;
}

static bool key_find(u32 key, struct key_ref *ref)
{
    char room[32];
    return e->ops->find(e, 0, key_of(room, key), ref);
}

static void member_put(u32 key, u32 member)
{
    char room[32], name[32];
    struct key_ref ref;
    bytes m = text_of(name, "m%u", member);
    if (!key_find(key, &ref)) e->ops->create(e, 0, key_of(room, key), is_zset(key) ? TYPE_ZSET : TYPE_SET, &ref);
    if (is_zset(key)) e->ops->zset.put(e, &ref, m, score_of(key, member));
    else e->ops->map.put(e, &ref, m, (bytes){"", 0}, false);
    has[key][member] = true;
}

static void member_del(u32 key, u32 member)
{
    char name[32];
    struct key_ref ref;
    bytes m = text_of(name, "m%u", member);
    if (!has[key][member]) return;
    assert_true(key_find(key, &ref));
    if (is_zset(key)) e->ops->zset.del(e, &ref, m);
    else e->ops->map.del(e, &ref, m);
    has[key][member] = false;
    if (members_of(key) == 0) e->ops->drop(e, &ref);
}

/* A hash whose rows may lie between two collections. */
static void hash_put(u32 i, u32 fields)
{
    char room[32], name[32];
    struct key_ref ref;
    bytes key = text_of(room, "{tag}%u:h", i);
    if (!e->ops->find(e, 0, key, &ref)) e->ops->create(e, 0, key, TYPE_HASH, &ref);
    for (u32 f = 0; f < fields; f++) e->ops->map.put(e, &ref, text_of(name, "f%u", f), (bytes){"v", 1}, false);
}

static void change_something(void)
{
    u32 key = below(KEYS), n = below(6), from = below(MEMBERS);
    struct key_ref ref;
    switch (below(12)) {
    case 0: /* from so many on, its tombstones are more than an iterator passes */
        for (u32 i = 0; i < MEMBERS; i++) member_put(key, i);
        break;
    case 1:
        for (u32 i = 0; i < MEMBERS; i++) member_del(key, i);
        break;
    case 2:
        for (u32 i = 1; i < MEMBERS; i++) member_del(key, i);
        break;
    case 3:
        if (!key_find(key, &ref)) break;
        e->ops->drop(e, &ref);
        memset(has[key], 0, sizeof has[key]);
        break;
    case 4: hash_put(key, 1 + below(12)); break;
    default:
        for (u32 i = from; i < from + n && i < MEMBERS; i++) (below(3) ? member_put : member_del)(key, i);
    }
}

/* -- what is gathered ------------------------------------------------------------------------------- */

struct got {
    u32 key[GIVEN];
    bool seen[GIVEN][MEMBERS];
    u32 n[GIVEN];
    u32 last; /* the collection of the last element */
};

static struct got got;

static void take_one(void *arg UNUSED, u32 i, bytes member, double score)
{
    char name[32];
    assert_true(i < GIVEN && member.n > 1 && member.n < sizeof name);
    memcpy(name, member.p, member.n);
    name[member.n] = '\0';
    u32 id = (u32)strtoul(name + 1, NULL, 10);
    assert_true(id < MEMBERS && !got.seen[i][id]);
    assert_true(got.n[i] == 0 || got.last == i); /* those of one come together */
    assert_true(score == score_of(got.key[i], id));
    got.seen[i][id] = true;
    got.n[i]++;
    got.last = i;
}

static void compare_gathered(void)
{
    struct key_ref refs[GIVEN], *given[GIVEN];
    u32 n = 0, want = 1 + below(GIVEN);
    memset(&got, 0, sizeof got);
    for (u32 i = 0; i < want; i++) {
        u32 key = below(KEYS);
        if (!key_find(key, &refs[n])) continue;
        got.key[n] = key;
        given[n] = &refs[n];
        n++;
    }
    e->ops->gather(e, given, n, take_one, NULL);
    assert_false(e->failed);
    for (u32 i = 0; i < n; i++) assert_memory_equal(got.seen[i], has[got.key[i]], sizeof got.seen[i]);
}

static void gather_commit(void)
{
    assert_true(e->ops->commit(e, ++seq));
    memcpy(kept, has, sizeof kept);
    gather_begin();
}

static void gather_give_up(void)
{
    e->ops->abort(e);
    memcpy(has, kept, sizeof has);
    gather_begin();
}

static void test_random(void **state UNUSED)
{
    for (u32 round = ROUNDS(300); round > 0; round--) {
        for (u32 changes = below(20); changes > 0; changes--) change_something();
        if (below(2)) compare_gathered();
        if (below(8)) gather_commit();
        else gather_give_up();
        if (below(30) == 0) {
            e->ops->abort(e);
            e->ops->close(e);
            gather_open();
        }
        compare_gathered();
    }
}

/* Neighbours are read without a seek each, in whatever order they are given. */
static void test_steps_instead_of_seeks(void **state UNUSED)
{
    struct key_ref refs[KEYS], *given[KEYS];
    u32 n = 0;
    for (u32 key = 1; key < KEYS; key += 1 + (key % 8 == 7)) {
        member_put(key, 5);
        member_put(key, 6);
    }
    gather_commit();
    memset(&got, 0, sizeof got);
    for (u32 key = KEYS - 1; key > 0; key--) {
        if (key % 8 == 0) continue;
        assert_true(key_find(key, &refs[n]));
        got.key[n] = key;
        given[n] = &refs[n];
        n++;
    }
    rocksdb_perfcontext_t *perf = rocksdb_perfcontext_create();
    rocksdb_set_perf_level(rocksdb_enable_count);
    rocksdb_perfcontext_reset(perf);
    e->ops->gather(e, given, n, take_one, NULL);
    u64 seeks = rocksdb_perfcontext_metric(perf, rocksdb_seek_on_memtable_count);
    rocksdb_perfcontext_destroy(perf);
    for (u32 i = 0; i < n; i++) assert_int_equal(got.n[i], 2);
    assert_in_range(seeks, 1, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_steps_instead_of_seeks, setup, teardown),
    };
    return cmocka_run_group_tests_name("reading many collections at once", tests, NULL, NULL);
}
