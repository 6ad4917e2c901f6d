/* Sorted sets and lists of the rocks engine that are bigger than the engine suite's, against sorted
 * arrays: over transactions that are kept or given up, and restarts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rand.h"
#include "engine/rocks/type/ranks.h"
#include "engine/rocks/rk.h"
#include "rounds.h"
#include "unit/rocks_helpers.h"

static u64 rng;
static char dir[256];
static struct engine *e;
static const struct engine_ops *ops;
static struct key_ref ref;
static u64 seq;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* -- sorted sets: the model ------------------------------------------------------------------------ */

struct entry {
    double score;
    u32 id;
};

struct model {
    struct entry *v;
    u32 n, cap;
};

static struct model now, kept;

static bytes name_of(u32 id)
{
    static char ring[8][32];
    static u32 turn;
    char *p = ring[turn++ % 8];
    return bytes_of(p, id ? (size_t)sprintf(p, id % 3 ? "member:%u" : "%u", id) : 0);
}

static bool entry_before(const struct entry *x, double score, bytes member)
{
    if (x->score != score) return x->score < score;
    return bytes_cmp(name_of(x->id), member) < 0;
}

static u32 model_rank(double score, bytes member)
{
    char copy[32]; /* name_of() would overwrite it */
    u32 low = 0, high = now.n;
    if (member.n) memcpy(copy, member.p, member.n);
    member.p = copy;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (entry_before(&now.v[mid], score, member)) low = mid + 1;
        else high = mid;
    }
    return low;
}

static u32 model_find(u32 id)
{
    u32 i = 0;
    while (i < now.n && now.v[i].id != id) i++;
    return i;
}

static void model_insert(double score, u32 id)
{
    u32 at = model_rank(score, name_of(id));
    if (now.n == now.cap) now.v = mem_realloc(now.v, (now.cap = 2 * now.cap + 16) * sizeof *now.v);
    memmove(now.v + at + 1, now.v + at, (now.n++ - at) * sizeof *now.v);
    now.v[at] = (struct entry){score, id};
}

static void model_erase(u32 at, u32 n)
{
    memmove(now.v + at, now.v + at + n, (now.n - at - n) * sizeof *now.v);
    now.n -= n;
}

static void model_copy(struct model *to, const struct model *from)
{
    if (from->n > to->cap) to->v = mem_realloc(to->v, (to->cap = from->n) * sizeof *to->v);
    if (from->n) memcpy(to->v, from->v, from->n * sizeof *to->v);
    to->n = from->n;
}

static void models_release(void)
{
    mem_free(now.v);
    mem_free(kept.v);
    now = kept = (struct model){0};
}

/* -- the engine, and the key under test ------------------------------------------------------------- */

static void open_engine(void)
{
    static const struct log quiet = {.level = LOG_NOTHING};
    struct rocks_options o = {
        .dir = dir, .log = &quiet, .databases = 1, .seed = rand_next(&rng), .background_threads = 2,
        .block_cache = 8 << 20, .row_cache = 1 << 20, .write_buffer = 1 << 20, .sync = DISK_SYNC_NO,
    };
    struct buf why = {0};
    e = rocks_engine_open(&o, &why);
    assert_non_null(e);
    ops = e->ops;
    ops->begin(e, 1000);
    buf_release(&why);
}

static int setup(void **state)
{
    (void)state;
    const char *seed = getenv("SUITE_SEED");
    assert_true(folder_make(dir, sizeof dir, "zset"));
    rng = seed ? strtoull(seed, NULL, 10) : 11;
    models_release();
    open_engine();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ops->commit(e, ++seq);
    ops->close(e);
    assert_int_equal(rocks_check(dir), 0); /* both families, sizes and blocks agree */
    folder_remove(dir);
    return 0;
}

static void find_or_create(enum value_type type)
{
    if (!ops->find(e, 0, BYTES_LIT("key"), &ref)) ops->create(e, 0, BYTES_LIT("key"), type, &ref);
}

static void tick(enum value_type type)
{
    assert_false(e->failed);
    assert_true(ops->commit(e, ++seq));
    ops->begin(e, 1000);
    find_or_create(type);
}

static void reopen(enum value_type type)
{
    assert_true(ops->commit(e, ++seq));
    ops->close(e);
    open_engine();
    find_or_create(type);
}

static void give_up(enum value_type type)
{
    ops->abort(e);
    ops->begin(e, 1000);
    find_or_create(type);
}

/* -- sorted sets: changing and comparing ------------------------------------------------------------- */

static void put_one(u32 ids)
{
    u32 id = below(ids), at = model_find(id);
    double score = below(10) ? below(2000) - 1000.0 : below(3) - 1.0;
    assert_int_equal(ops->zset.put(e, &ref, name_of(id), score), at == now.n);
    if (at < now.n) model_erase(at, 1);
    model_insert(score, id);
}

static void del_one(void)
{
    u32 at = below(now.n);
    assert_true(ops->zset.del(e, &ref, name_of(now.v[at].id)));
    model_erase(at, 1);
}

static void entry_goes(void *arg, bytes member, bytes value, double score)
{
    struct entry *x = &now.v[(*(u32 *)arg)++];
    assert_true(bytes_eq(member, name_of(x->id)) && score == x->score && value.n == 0);
}

static void erase_some(u32 most)
{
    u32 n = 1 + below(most);
    n = MIN(n, now.n - 1);
    u32 at = below(3) ? below(now.n - n + 1) : below(2) ? 0 : now.n - n, next = at;
    struct entry gone = now.v[at + below(n)];
    ops->zset.erase(e, &ref, at, n, below(2) ? entry_goes : NULL, &next);
    model_erase(at, n);
    if (below(2)) return; /* one comes back, to where it was or next to it */
    gone.score += below(2);
    assert_true(ops->zset.put(e, &ref, name_of(gone.id), gone.score));
    model_insert(gone.score, gone.id);
}

static void compare_walk(u32 at, bool reverse, u32 n, struct zset_iter *it)
{
    bytes member;
    double score;
    for (; n > 0; n--, at += reverse ? -1u : 1) {
        bool more = ops->zset.next(it, &member, &score);
        assert_int_equal(more, at < now.n);
        if (!more) break;
        assert_true(bytes_eq(member, name_of(now.v[at].id)) && score == now.v[at].score);
    }
}

static void compare_places(u32 times)
{
    assert_int_equal(ops->size(e, &ref), now.n);
    while (times-- > 0) {
        struct zset_iter it;
        u64 rank;
        u32 at = below(now.n);
        assert_true(ops->zset.rank(e, &ref, name_of(now.v[at].id), &rank));
        assert_int_equal(rank, at);

        struct zset_seek s = {.by = below(2) ? ZSEEK_RANK : ZSEEK_SCORE, .reverse = below(2)};
        s.rank = below(now.n);
        s.exclusive = s.by == ZSEEK_SCORE && below(2);
        s.score = below(2) ? now.v[below(now.n)].score : below(3000) - 1500.0;
        if (s.by == ZSEEK_SCORE) {
            u32 low = model_rank(s.score, (bytes){"", 0});
            u32 high = model_rank(nextafter(s.score, INFINITY), (bytes){"", 0});
            assert_int_equal(ops->zset.before(e, &ref, &s), s.exclusive ? high : low);
            at = (s.exclusive != s.reverse ? high : low) - s.reverse;
        } else {
            at = (u32)s.rank;
        }
        ops->zset.iter(e, &ref, &s, &it);
        it.passing = below(2);
        compare_walk(at, s.reverse, below(10) ? below(20) : below(600), &it);
    }
}

/* The blocks count what is there, and after a restart they are those that were stored. */
static void compare_blocks(bool reopened)
{
    struct spot start;
    u64 rank;
    if (now.n > 100) assert_true(ops->zset.rank(e, &ref, name_of(now.v[100].id), &rank)); /* loads them */
    const struct ranks *k = row_of(&ref)->ranks;
    if (now.n > RANKS_FROM) assert_true(k && ranks_kept(k));
    if (now.n < RANKS_UNTIL) assert_true(!k || !ranks_kept(k));
    if (reopened && k) assert_true(!k->wipe && k->changed_n == 0);
    if (!k || !ranks_kept(k)) return;
    ranks_check(k);
    assert_int_equal(k->blocks.count, now.n);
    for (u32 at = 0; at < now.n; at += 1 + below(100)) {
        u32 offset = ranks_at(k, at, &start);
        assert_int_equal(model_rank(start.score, start.member) + offset, at);
    }
}

static void one_change(u32 target)
{
    u32 what = below(100);
    bool grow = now.n < 10 || (now.n < target ? what < 80 : what < 30);
    if (grow) put_one(3 * target);
    else if (below(10)) del_one();
    else erase_some(below(20) ? 10 : 3000);
}

static void test_big(void **state)
{
    (void)state;
    find_or_create(TYPE_ZSET);
    for (u32 round = 0; round < ROUNDS(900); round++) {
        u32 target = round % 300 < 210 ? 5000 : 300;
        for (u32 n = 1 + below(below(10) ? 30 : 500); n > 0; n--) one_change(target);
        if (below(2)) compare_places(3);
        if (below(4) == 0) compare_blocks(false);
        if (below(10) == 0 && kept.n) {
            give_up(TYPE_ZSET);
            model_copy(&now, &kept);
        } else if (below(20) == 0) {
            reopen(TYPE_ZSET);
            compare_blocks(true);
        } else if (below(4)) {
            tick(TYPE_ZSET);
        } else {
            continue;
        }
        model_copy(&kept, &now);
        compare_places(3);
    }
    struct zset_iter it;
    ops->zset.iter(e, &ref, &(struct zset_seek){.by = ZSEEK_RANK}, &it);
    compare_walk(0, false, now.n + 1, &it);
}

/* From nothing to many in one transaction, and by copying. */
static void test_at_once(void **state)
{
    (void)state;
    struct key_ref copy;
    find_or_create(TYPE_ZSET);
    for (u32 n = 0; n < 6000; n++) put_one(100000);
    compare_places(50);
    tick(TYPE_ZSET);
    compare_places(50);
    ops->copy(e, &ref, 0, BYTES_LIT("copy"), &copy);
    ops->drop(e, &ref);
    ref = copy;
    compare_places(50);
    ops->rename(e, &ref, 0, BYTES_LIT("key"));
    compare_places(50);
    compare_blocks(false);
    reopen(TYPE_ZSET);
    compare_blocks(true);
    compare_places(50);
}

/* Fills an empty set with n entries, in order. */
static void fill_sorted(u32 n)
{
    char *names = mem_alloc(n * 32);
    bytes *members = mem_alloc(n * sizeof *members);
    double *scores = mem_alloc(n * sizeof *scores);
    ops->drop(e, &ref);
    find_or_create(TYPE_ZSET);
    now.n = 0;
    for (u32 i = 0; i < n; i++) model_insert(below(2000) / 8, i);
    for (u32 i = 0; i < n; i++) {
        bytes name = name_of(now.v[i].id);
        members[i] = bytes_of(memcpy(names + i * 32, name.p, name.n), name.n);
        scores[i] = now.v[i].score;
    }
    assert_int_equal(ops->zset.fill(e, &ref, members, scores, n), n);
    mem_free(names);
    mem_free(members);
    mem_free(scores);
}

/* All at once and in order, around the sizes at which blocks begin; what follows in the same transaction,
 * and what is left if it is given up. */
static void test_fill(void **state UNUSED)
{
    static const u32 sizes[] = {1, 8, 9, 10, 500, RANKS_FROM, RANKS_FROM + 1, 6 * RANKS_FILL,
                                6 * RANKS_FILL + 1, 5000};
    find_or_create(TYPE_ZSET);
    for (u32 i = 0; i < 3 * ARRAY_LEN(sizes); i++) {
        fill_sorted(sizes[i % ARRAY_LEN(sizes)]);
        if (below(3)) compare_places(20);
        compare_blocks(false);
        if (below(2)) for (u32 n = below(300); n > 0; n--) one_change(5000);
        if (below(5) == 0 && kept.n) {
            give_up(TYPE_ZSET);
            model_copy(&now, &kept);
        } else if (below(3)) {
            tick(TYPE_ZSET);
        } else {
            reopen(TYPE_ZSET);
            compare_blocks(true);
        }
        model_copy(&kept, &now);
        compare_places(20);
        compare_blocks(false);
    }
}

/* A member that comes twice, with different scores, is found. */
static void test_fill_twice(void **state UNUSED)
{
    bytes members[3000];
    double scores[3000];
    static char names[3000][16];
    for (u32 i = 0; i < 3000; i++) {
        members[i] = bytes_of(names[i], (size_t)sprintf(names[i], "%u", i == 2500 ? 7 : i));
        scores[i] = i;
    }
    find_or_create(TYPE_ZSET);
    assert_int_equal(ops->zset.fill(e, &ref, members, scores, 3000), 2500);
    ops->drop(e, &ref);
}

/* Entries come at random and go at the ends. */
static void test_queue(void **state)
{
    (void)state;
    find_or_create(TYPE_ZSET);
    for (u32 round = 0; round < ROUNDS(600); round++) {
        for (u32 n = 1 + below(40); n > 0; n--) put_one(1u << 30);
        for (u32 n = below(40); n > 0 && now.n > 2; n--) {
            bool top = below(3) == 0;
            u32 count = 1 + below(2), next = 0;
            struct zset_iter it;
            struct zset_seek s = {.by = ZSEEK_RANK, .reverse = top, .rank = top ? now.n - 1 : 0};
            ops->zset.iter(e, &ref, &s, &it);
            compare_walk(top ? now.n - 1 : 0, top, count, &it);
            ops->zset.erase(e, &ref, top ? now.n - count : 0, count, top ? NULL : entry_goes, &next);
            model_erase(top ? now.n - count : 0, count);
        }
        if (below(10) == 0 && kept.n) {
            give_up(TYPE_ZSET);
            model_copy(&now, &kept);
        }
        if (below(3)) {
            tick(TYPE_ZSET);
            model_copy(&kept, &now);
        }
        struct zset_iter it;
        ops->zset.iter(e, &ref, &(struct zset_seek){.by = ZSEEK_RANK}, &it);
        compare_walk(0, false, now.n + 1, &it);
    }
}

/* Ranges by member, where all scores are the same; part of it stored, part of it not yet. */
static void test_lex(void **state)
{
    (void)state;
    find_or_create(TYPE_ZSET);
    for (u32 n = 0; n < 4000; n++) {
        u32 id = below(20000);
        if (ops->zset.put(e, &ref, name_of(id), 1)) model_insert(1, id);
        if (n == 3000) tick(TYPE_ZSET);
    }
    for (u32 n = 0; n < 2000; n++) {
        char lex[32];
        bytes name = name_of(below(2) ? now.v[below(now.n)].id : below(20000));
        memcpy(lex, name.p, name.n);
        struct zset_seek s = {.by = ZSEEK_LEX, .reverse = below(2), .exclusive = below(2)};
        s.lex = bytes_of(lex, name.n);
        if (below(20) == 0) s.lex_inf = below(2) ? 1 : -1;
        u32 low = model_rank(1, s.lex), high = low;
        if (low < now.n && bytes_eq(name_of(now.v[low].id), s.lex)) high++;
        if (s.lex_inf) low = high = s.lex_inf < 0 ? 0 : now.n;
        assert_int_equal(ops->zset.before(e, &ref, &s), s.exclusive ? high : low);
        struct zset_iter it;
        ops->zset.iter(e, &ref, &s, &it);
        u32 at = s.exclusive != s.reverse ? high : low;
        compare_walk(at - s.reverse, s.reverse, below(10), &it);
    }
}

/* A big range goes, and some of it comes back within the transaction. */
static void test_big_cut(void **state)
{
    (void)state;
    struct entry back[40];
    find_or_create(TYPE_ZSET);
    for (u32 round = 0; round < 10; round++) {
        while (now.n < 5000) put_one(100000);
        tick(TYPE_ZSET);
        u32 at = below(1000), n = 2000 + below(1000);
        for (u32 i = 0; i < ARRAY_LEN(back); i++) back[i] = now.v[at + i * 50];
        if (below(2)) put_one(100000);
        ops->zset.erase(e, &ref, at, n, NULL, NULL);
        model_erase(at, n);
        for (u32 i = 0; i < ARRAY_LEN(back); i++) {
            if (i % 3 == 0) back[i].score += i % 2;
            if (model_find(back[i].id) < now.n) continue;
            assert_true(ops->zset.put(e, &ref, name_of(back[i].id), back[i].score));
            model_insert(back[i].score, back[i].id);
        }
        compare_places(20);
        if (below(2)) tick(TYPE_ZSET);
        else reopen(TYPE_ZSET);
        compare_places(20);
        struct zset_iter it;
        ops->zset.iter(e, &ref, &(struct zset_seek){.by = ZSEEK_RANK}, &it);
        compare_walk(0, false, now.n + 1, &it);
    }
}

/* Walks over one set don't disturb each other, nor what is looked up meanwhile. */
static void test_walks_side_by_side(void **state)
{
    (void)state;
    struct zset_iter it[5];
    bytes member, last[5] = {{0}};
    double score;
    u32 at[5];
    find_or_create(TYPE_ZSET);
    for (u32 n = 0; n < 3000; n++) put_one(10000);
    tick(TYPE_ZSET);
    for (u32 n = 0; n < 200; n++) put_one(10000);
    for (u32 i = 0; i < 5; i++) {
        at[i] = below(now.n);
        struct zset_seek s = {.by = ZSEEK_RANK, .reverse = i & 1, .rank = at[i]};
        ops->zset.iter(e, &ref, &s, &it[i]);
    }
    for (u32 n = 0; n < 20000; n++) {
        u32 i = below(5);
        bool more = ops->zset.next(&it[i], &member, &score);
        assert_int_equal(more, at[i] < now.n);
        if (!more) continue;
        assert_true(bytes_eq(member, name_of(now.v[at[i]].id)) && score == now.v[at[i]].score);
        if (last[i].p) assert_true(bytes_eq(last[i], name_of(now.v[i & 1 ? at[i] + 1 : at[i] - 1].id)));
        last[i] = member;
        at[i] += i & 1 ? -1u : 1;
        if (below(100) == 0) compare_places(1);
    }
}

/* -- lists ---------------------------------------------------------------------------------------------- */

static u32 *list, *list_kept, list_n, list_kept_n;
#define LIST_MAX 20000

static void list_move(u32 to, u32 from) { memmove(list + to, list + from, (list_n - from) * sizeof *list); }

static void compare_list(void)
{
    struct seq_iter it;
    bytes value;
    bool reverse = below(2);
    u32 at = below(list_n), n = 0, most = below(10) ? below(100) : list_n;
    assert_int_equal(ops->size(e, &ref), list_n);
    ops->seq.iter(e, &ref, at, reverse, &it);
    it.passing = below(2);
    for (; n < most && ops->seq.next(&it, &value); n++, at += reverse ? -1u : 1)
        assert_true(bytes_eq(value, name_of(list[at])));
    assert_true(n == most || at == (reverse ? -1u : list_n));
    ops->seq.get(e, &ref, at = below(list_n), &value);
    assert_true(bytes_eq(value, name_of(list[at])));
}

static void walk_and_erase(void)
{
    struct seq_iter it;
    bytes value;
    bool reverse = below(2);
    u32 at = below(2) ? below(list_n) : reverse ? list_n - 1 : 0, odds = 1 + below(below(2) ? 3 : 300);
    ops->seq.iter(e, &ref, at, reverse, &it);
    for (u32 n = below(2000); n > 0 && list_n > 3 && ops->seq.next(&it, &value); n--) {
        assert_true(bytes_eq(value, name_of(list[at])));
        if (below(odds) == 0) {
            ops->seq.erase_current(&it);
            list_move(at, at + 1);
            list_n--;
            at -= reverse;
        } else {
            at += reverse ? -1u : 1;
        }
    }
}

static void change_list(void)
{
    u32 id = below(100000), at = below(list_n + 1), n;
    struct buf out = {0};
    bool front = below(2);
    switch (list_n < 10 ? 0 : below(14)) {
    case 0: case 1: case 2: case 3:
        for (n = list_n < LIST_MAX - 300 ? below(200) + 5 : 0; n > 0; n--) {
            ops->seq.push(e, &ref, front, name_of(id));
            list_n++;
            if (front) memmove(list + 1, list, (list_n - 1) * sizeof *list);
            list[front ? 0 : list_n - 1] = id;
        }
        break;
    case 4: case 5: case 6:
        ops->seq.pop(e, &ref, front, &out);
        assert_true(bytes_eq(buf_bytes(&out), name_of(list[front ? 0 : list_n - 1])));
        if (front) list_move(0, 1);
        list_n--;
        buf_release(&out);
        break;
    case 7: case 8:
        ops->seq.set(e, &ref, at = below(list_n), name_of(id));
        list[at] = id;
        break;
    case 9: case 10:
        ops->seq.insert(e, &ref, at, name_of(id));
        memmove(list + at + 1, list + at, (list_n++ - at) * sizeof *list);
        list[at] = id;
        break;
    case 11: case 12:
        n = below(below(4) ? 10 : 2000);
        n = MIN(n, list_n - 1);
        at = below(3) ? below(list_n - n + 1) : below(2) ? 0 : list_n - n;
        ops->seq.erase(e, &ref, at, n);
        list_move(at, at + n);
        list_n -= n;
        break;
    case 13: walk_and_erase(); break;
    }
}

static void test_list(void **state)
{
    (void)state;
    struct key_ref copy;
    list = mem_zalloc(LIST_MAX * sizeof *list);
    list_kept = mem_zalloc(LIST_MAX * sizeof *list);
    find_or_create(TYPE_LIST);
    for (u32 round = 0; round < ROUNDS(900); round++) {
        for (u32 n = 1 + below(20); n > 0; n--) change_list();
        if (below(2)) compare_list();
        if (below(50) == 0) {
            ops->copy(e, &ref, 0, BYTES_LIT("copy"), &copy);
            ops->drop(e, &ref);
            ref = copy;
            compare_list();
            ops->rename(e, &ref, 0, BYTES_LIT("key"));
            compare_list();
        }
        if (below(10) == 0 && list_kept_n) {
            give_up(TYPE_LIST);
            memcpy(list, list_kept, (list_n = list_kept_n) * sizeof *list);
        } else if (below(20) == 0) {
            reopen(TYPE_LIST);
        } else if (below(4)) {
            tick(TYPE_LIST);
        } else {
            continue;
        }
        memcpy(list_kept, list, (list_kept_n = list_n) * sizeof *list);
        compare_list();
    }
    mem_free(list);
    mem_free(list_kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_big, setup, teardown),
        cmocka_unit_test_setup_teardown(test_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fill_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_queue, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lex, setup, teardown),
        cmocka_unit_test_setup_teardown(test_big_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(test_walks_side_by_side, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
    };
    return cmocka_run_group_tests_name("sorted sets and lists on disk", tests, NULL, NULL);
}
