/* Several engines on one database, each with a range of slots: on one thread, and each on a thread of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>

#include "engine/deadline.h"
#include "engine/rocks/state.h"
#include "unit/rocks_helpers.h"

#define NOW 1700000000000
#define KEYS 2000
#define HALF 8192

static const struct rocks_region all = {1, 1, 0, ROCKS_SLOTS - 1}, low_half = {1, 1, 0, HALF - 1},
                                 high_half = {2, 1, HALF, ROCKS_SLOTS - 1};

static char path[256];
static struct rocks *db;
static struct engine *low, *high; /* high is NULL while low has all slots */
static i64 now_ms;

static void open_db(void)
{
    struct buf why = {0};
    struct rocks_options o = rocks_small(path, 2);
    db = rocks_open(&o, &why);
    assert_non_null(db);
    buf_release(&why);
}

static struct engine *open_region(const struct rocks_region *r)
{
    struct buf why = {0};
    struct engine *e = rocks_region_open(db, r, &why);
    if (!e) print_error("%.*s\n", (int)why.n, why.p);
    assert_non_null(e);
    e->ops->begin(e, now_ms);
    return e;
}

static void close_all(void)
{
    if (low) low->ops->close(low);
    if (high) high->ops->close(high);
    rocks_close(db);
    low = high = NULL;
    db = NULL;
}

static void reopen(void)
{
    bool two = high;
    close_all();
    open_db();
    low = open_region(two ? &low_half : &all);
    if (two) high = open_region(&high_half);
}

static int setup(void **state)
{
    (void)state;
    now_ms = NOW;
    if (!folder_make(path, sizeof path, "regions")) return -1;
    open_db();
    return 0;
}

static int setup_two(void **state)
{
    if (setup(state)) return -1;
    low = open_region(&low_half);
    high = open_region(&high_half);
    return 0;
}

static int setup_one(void **state)
{
    if (setup(state)) return -1;
    low = open_region(&all);
    return 0;
}

/* Everything that was written must agree. */
static int teardown(void **state)
{
    (void)state;
    close_all();
    int code = rocks_check(path);
    folder_remove(path);
    return code;
}

/* -- keys --------------------------------------------------------------------------------------- */

static bytes name(u32 i)
{
    static char text[4][24];
    static u32 turn;
    char *p = text[turn++ % 4];
    return bytes_of(p, (size_t)snprintf(p, sizeof text[0], "key:%u", i));
}

static struct engine *owner(bytes key) { return high && codec_slot(key) >= HALF ? high : low; }

/* Every third one is a hash of two fields. */
static void put_in(struct engine *e, bytes key, u32 i, i64 deadline_ms)
{
    struct key_ref ref;
    bool found = e->ops->find(e, 0, key, &ref);
    if (i % 3) {
        e->ops->str.put(e, 0, key, &ref, key, deadline_ms);
        return;
    }
    if (found) e->ops->drop(e, &ref);
    e->ops->create(e, 0, key, TYPE_HASH, &ref);
    e->ops->map.put(e, &ref, BYTES_LIT("f"), key, false);
    e->ops->map.put(e, &ref, BYTES_LIT("g"), key, false);
    e->ops->set_deadline(e, &ref, deadline_ms);
}

static void put(u32 i, i64 deadline_ms) { put_in(owner(name(i)), name(i), i, deadline_ms); }

static bool has(u32 i)
{
    struct key_ref ref;
    struct engine *e = owner(name(i));
    bytes value = {0};
    struct str_view view;
    if (!e->ops->find(e, 0, name(i), &ref)) return false;
    if (i % 3) e->ops->str.get(e, &ref, &view);
    else assert_true(e->ops->map.get(e, &ref, BYTES_LIT("g"), &value));
    assert_true(bytes_eq(i % 3 ? view.b : value, name(i)));
    return true;
}

static void commit(struct engine *e, i64 at_ms)
{
    assert_true(e->ops->commit(e, e->applied + 1));
    e->ops->begin(e, at_ms);
}

static void tick(i64 at_ms)
{
    now_ms = at_ms;
    commit(low, at_ms);
    if (high) commit(high, at_ms);
}

/* Some with a deadline of seconds to months; every tenth of them at once. */
static i64 deadline_of(u32 i) { return i % 2 ? 0 : NOW + 1000 + (i64)(i % 10) * (i64)(i % 10) * 100000 * (i % 7); }

static void fill(void)
{
    for (u32 i = 0; i < KEYS; i++) {
        put(i, deadline_of(i));
        if (i % 100 == 99) tick(now_ms + 10);
    }
    tick(now_ms);
}

static u32 expected(struct engine *e, i64 at_ms)
{
    u32 n = 0;
    for (u32 i = 0; i < KEYS; i++) n += owner(name(i)) == e && alive(deadline_of(i), at_ms);
    return n;
}

static void count_one(void *arg, struct key_ref *ref)
{
    struct engine *e = ((void **)arg)[0];
    assert_ptr_equal(owner(ref->key), e);
    ++*(u32 *)((void **)arg)[1];
}

static u32 scanned(struct engine *e)
{
    u32 n = 0;
    void *arg[2] = {e, &n};
    for (u64 cursor = 0, first = 1; first || cursor; first = 0)
        cursor = e->ops->scan(e, 0, cursor, 100, count_one, arg);
    return n;
}

static void add_span(void *arg, const struct due_span *s) { *(u64 *)arg += s->keys; }

/* What is counted of an engine is what there is. */
static void check_counts(struct engine *e, i64 at_ms)
{
    const struct rocks_region *r = &rk_of(e)->region;
    u64 sum = 0;
    u32 n = expected(e, at_ms);
    assert_int_equal(e->ops->count(e, 0), n);
    assert_int_equal(scanned(e), n);
    for (u32 slot = r->first; slot <= r->last; slot++) sum += rocks_slot_count(e, 0, (u16)slot);
    assert_int_equal(sum, n);
    u64 rng = 7;
    struct key_ref ref;
    for (u32 i = 0; i < 20 && n; i++) {
        assert_true(e->ops->random(e, 0, &rng, &ref));
        assert_ptr_equal(owner(ref.key), e);
        if (!e->ops->expires(e, 0)) continue;
        assert_true(e->ops->random_volatile(e, 0, &rng, &ref));
        assert_ptr_equal(owner(ref.key), e);
    }
}

static void check_all(i64 at_ms)
{
    u64 forecast = 0, expires = low->ops->expires(low, 0) + (high ? high->ops->expires(high, 0) : 0);
    check_counts(low, at_ms);
    if (high) check_counts(high, at_ms);
    for (u32 i = 0; i < KEYS; i++) assert_int_equal(has(i), alive(deadline_of(i), at_ms));
    low->ops->forecast(low, 0, add_span, &forecast); /* of the node */
    assert_int_equal(forecast, expires);
}

static void expire(void *arg, struct key_ref *ref)
{
    struct engine *e = owner(ref->key);
    assert_false(alive(ref->deadline_ms, *(i64 *)arg));
    e->ops->drop(e, ref);
}

/* Each engine on its own, or all in one pass. */
static void drain(bool together, i64 at_ms)
{
    struct engine *engines[2] = {low, high};
    i64 until_ms[2] = {at_ms, at_ms};
    tick(at_ms);
    for (u32 seen = 1, rounds = 0; seen; rounds++) {
        assert_true(rounds < 10000);
        if (together) {
            seen = rocks_due(engines, until_ms, high ? 2 : 1, 300, expire, &at_ms);
        } else {
            seen = low->ops->due(low, at_ms, 100, expire, &at_ms);
            if (high) seen += high->ops->due(high, at_ms, 100, expire, &at_ms);
        }
        tick(at_ms);
    }
    for (u32 i = 0; i < (high ? 2 : 1); i++) assert_true(engines[i]->ops->next_due(engines[i]) > at_ms);
}

/* -- two engines ------------------------------------------------------------------------------------- */

static void side_by_side(void **state)
{
    (void)state;
    fill();
    check_all(NOW);
    for (u32 i = 0; i < 100; i++) put(KEYS + i, NOW + 5000); /* one is kept, one given up */
    commit(low, now_ms);
    high->ops->abort(high);
    high->ops->begin(high, now_ms);
    for (u32 i = 0; i < 100; i++) assert_int_equal(has(KEYS + i), owner(name(KEYS + i)) == low);
    for (u32 i = 0; i < 100; i++) {
        struct key_ref ref;
        struct engine *e = owner(name(KEYS + i));
        if (e->ops->find(e, 0, name(KEYS + i), &ref)) e->ops->drop(e, &ref);
    }
    tick(now_ms);
    check_all(NOW);
    reopen();
    check_all(NOW);
}

/* Transactions of both that are written together: keys, counts and deadlines are those of both. */
static void commit_together(void **state)
{
    (void)state;
    for (u32 i = 0; i < KEYS; i++) {
        put(i, deadline_of(i));
        if (i % 50 != 49) continue;
        struct engine *both[2] = {low, high};
        u64 seq[2] = {low->applied + 1, high->applied + 2};
        assert_true(low->ops->disk->commit_all(both, seq, 2));
        assert_true(low->applied == seq[0] && high->applied == seq[1]);
        low->ops->begin(low, now_ms);
        high->ops->begin(high, now_ms);
    }
    check_all(NOW);
    reopen();
    check_all(NOW);
    drain(true, NOW + 100000);
    check_all(NOW + 100000);
}

static void due_keys_reach_their_region(void **state)
{
    (void)state;
    fill();
    drain(true, NOW + 100000);
    check_all(NOW + 100000);
    drain(false, NOW + 3000000);
    check_all(NOW + 3000000);
    reopen();
    drain(true, NOW + 300000000);
    check_all(NOW + 300000000);
}

/* A region whose clock is behind keeps its keys, and gets them when its time has come. */
static void by_the_regions_clock(void **state)
{
    (void)state;
    fill();
    i64 at_ms = NOW + 100000, behind_ms = NOW + 500, until_ms[2] = {at_ms, behind_ms};
    struct engine *engines[2] = {low, high};
    for (u32 seen = 1; seen;) {
        seen = rocks_due(engines, until_ms, 2, 300, expire, &at_ms);
        tick(now_ms);
    }
    check_counts(low, at_ms);
    check_counts(high, behind_ms);
    drain(true, at_ms);
    check_all(at_ms);
}

static void flush_one(void **state)
{
    (void)state;
    fill();
    u64 forecast = 0;
    u32 left = expected(high, NOW);
    low->ops->flush(low, 0);
    put(1, 0); /* after the flush */
    low->ops->abort(low);
    low->ops->begin(low, now_ms);
    check_all(NOW);
    low->ops->flush(low, 0);
    tick(now_ms);
    assert_int_equal(low->ops->count(low, 0), 0);
    assert_int_equal(scanned(low), 0);
    check_counts(high, NOW);
    high->ops->forecast(high, 0, add_span, &forecast);
    assert_int_equal(forecast, high->ops->expires(high, 0));
    reopen();
    assert_int_equal(low->ops->count(low, 0), 0);
    assert_int_equal(high->ops->count(high, 0), left);
    check_counts(high, NOW);
}

static void snapshot_of_one(void **state)
{
    (void)state;
    struct key_ref ref;
    struct engine *of;
    u32 n = 0;
    fill();
    u32 want = expected(high, NOW);
    assert_true(high->ops->snapshot.begin(high, NULL, NULL));
    for (u32 i = 0; i < 200; i++) put(KEYS + i, 0);
    tick(now_ms);
    while (high->ops->snapshot.next(high, &ref, &of)) {
        if (ref.type == TYPE_NONE) continue;
        assert_ptr_equal(owner(ref.key), high);
        n++;
    }
    high->ops->snapshot.end(high);
    assert_int_equal(n, want);
}

static void refused(void **state)
{
    (void)state;
    struct buf why = {0};
    fill();
    high->ops->close(high);
    high = NULL;
    static const struct rocks_region other = {2, 1, 8000, ROCKS_SLOTS - 1}, stranger = {3, 1, HALF, ROCKS_SLOTS - 1};
    assert_null(rocks_region_open(db, &other, &why));
    assert_null(rocks_region_open(db, &stranger, &why));
    assert_null(rocks_region_open(db, &all, &why));
    buf_release(&why);
}

/* -- splitting and joining ---------------------------------------------------------------------------- */

static void split(void)
{
    put(0, deadline_of(0)); /* belongs to the same transaction */
    rocks_split(low, &high_half, 5);
    assert_true(low->ops->commit(low, low->applied + 1));
    low->ops->begin(low, now_ms);
    high = open_region(&high_half);
    assert_int_equal(high->applied, 5);
}

static void count_row(void *arg, bytes name, bytes value, double unused UNUSED)
{
    *(u32 *)arg += bytes_eq(name, BYTES_LIT("merged")) && bytes_eq(value, BYTES_LIT("2"));
}

static u32 merged_rows(void)
{
    u32 n = 0;
    low->ops->meta.each(low, META_CLUSTER, count_row, &n);
    return n;
}

/* Who merges stores in the same transaction what depends on it: with the merge, or not at all. */
static void merge_with_metadata(void **state)
{
    (void)state;
    fill();
    split();
    for (u32 round = 0; round < 2; round++) {
        assert_true(rocks_align(low, high));
        low->ops->begin(low, now_ms);
        low->ops->meta.put(low, META_CLUSTER, BYTES_LIT("merged"), BYTES_LIT("2"));
        if (round == 0) {
            low->ops->abort(low);
            low->ops->begin(low, now_ms);
            reopen();
            assert_int_equal(merged_rows(), 0);
            check_all(NOW);
        }
    }
    assert_true(rocks_merge(low, high, low->applied + 1));
    high = NULL;
    low->ops->begin(low, now_ms);
    reopen();
    assert_int_equal(merged_rows(), 1);
    check_all(NOW);
}

static void split_and_merge(void **state)
{
    (void)state;
    fill();
    check_all(NOW);
    split();
    check_all(NOW);
    reopen();
    check_all(NOW);
    drain(false, NOW + 100000);
    check_all(NOW + 100000);
    low->ops->begin(low, now_ms += 5000000); /* one of them gets ahead */
    while (low->ops->due(low, now_ms, 100, expire, &now_ms)) commit(low, now_ms);
    commit(low, now_ms);
    assert_true(rocks_align(low, high));
    assert_true(rocks_merge(low, high, low->applied + 1));
    high = NULL;
    low->ops->begin(low, now_ms);
    drain(false, now_ms);
    check_all(now_ms);
    reopen();
    check_all(now_ms);
    drain(false, NOW + 900000000);
    check_all(NOW + 900000000);
}

/* A figure of INFO; it must be there. */
static u64 figure(struct engine *e, const char *field)
{
    struct buf text = {0};
    char line[64];
    snprintf(line, sizeof line, "\n%s:", field);
    buf_append_str(&text, "\n");
    e->ops->disk->info(e, &text);
    buf_append_char(&text, '\0');
    const char *at = strstr(text.p, line);
    assert_non_null(at);
    u64 n = strtoull(at + strlen(line), NULL, 10);
    buf_release(&text);
    return n;
}

/* What the lower region has read is not read again. What the upper one changed since is not taken from what
 * the lower one had of it before. */
static void cached_across_a_split(void **state)
{
    (void)state;
    fill();
    check_all(NOW);
    split();
    u64 misses = figure(low, "row_cache_misses");
    for (u32 i = 0; i < KEYS; i++)
        if (owner(name(i)) == low) has(i);
    assert_int_equal(figure(low, "row_cache_misses"), misses);
    for (u32 i = 0; i < KEYS; i++) {
        struct key_ref ref;
        struct engine *e = owner(name(i));
        if (e != high || !e->ops->find(e, 0, name(i), &ref)) continue;
        if (i % 2) e->ops->drop(e, &ref);
        else if (i % 3) e->ops->str.put(e, 0, name(i), &ref, BYTES_LIT("new"), 0);
        else e->ops->map.put(e, &ref, BYTES_LIT("f"), BYTES_LIT("new"), true);
    }
    tick(NOW);
    assert_true(rocks_align(low, high));
    assert_true(rocks_merge(low, high, low->applied + 1));
    high = NULL;
    low->ops->begin(low, NOW);
    for (u32 i = 0; i < KEYS; i++) {
        struct key_ref ref;
        bytes value = {0};
        struct str_view view;
        bool found = low->ops->find(low, 0, name(i), &ref), changed = codec_slot(name(i)) >= HALF;
        if (changed && i % 2) {
            assert_false(found);
            continue;
        }
        assert_true(found);
        if (i % 3) low->ops->str.get(low, &ref, &view);
        else assert_true(low->ops->map.get(low, &ref, BYTES_LIT("f"), &value));
        assert_true(bytes_eq(i % 3 ? view.b : value, changed ? BYTES_LIT("new") : name(i)));
    }
}

#define MANY 16
#define PART (ROCKS_SLOTS / MANY)
#define LOTS 40000 /* keys: several times what may be cached */

static void open_many(struct engine **of)
{
    for (u32 i = 0; i < MANY; i++)
        of[i] = open_region(&(struct rocks_region){i + 1, 1, (u16)(i * PART), (u16)(i * PART + PART - 1)});
}

/* Reads or writes every key of the region once, in transactions of a hundred. */
static void use_region(struct engine *e, bool write)
{
    const struct rocks_region of = rocks_region_of(e);
    u32 n = 0;
    for (u32 i = 1; i < LOTS; i += 3) {
        struct key_ref ref;
        u16 slot = codec_slot(name(i));
        if (slot < of.first || slot > of.last) continue;
        if (write) put_in(e, name(i), i, 0);
        else assert_true(e->ops->find(e, 0, name(i), &ref));
        if (++n % 100 == 0) commit(e, NOW);
    }
    commit(e, NOW);
}

/* The caches of all regions together keep to what the database has for them, and those of regions that are used get
 * what those of idle ones have. */
static void one_cache_for_all(void **state)
{
    (void)state;
    struct engine *of[MANY];
    open_many(of);
    u64 most = figure(of[0], "row_cache_max_bytes"), slack = 100 * 512; /* of one transaction */
    assert_true(figure(of[0], "row_cache_max_bytes") + figure(of[0], "element_cache_max_bytes") == 1 << 20);
    for (u32 i = 0; i < MANY; i++) {
        use_region(of[i], true);
        assert_true(figure(of[0], "row_cache_bytes") <= most + slack);
    }
    assert_true(figure(of[0], "row_cache_bytes") > most / 2);
    for (u32 round = 0; round < 60; round++) {
        use_region(of[3], false);
        for (u32 i = 0; i < MANY; i++) of[i]->ops->disk->share_memory(of[i]);
        assert_true(figure(of[0], "row_cache_bytes") <= most + slack);
    }
    u64 misses = figure(of[0], "row_cache_misses"), hits = figure(of[0], "row_cache_hits");
    use_region(of[3], false);
    assert_int_equal(figure(of[5], "row_cache_misses"), misses);
    assert_true(figure(of[5], "row_cache_hits") > hits);
    for (u32 i = 0; i < MANY; i++) {
        assert_int_equal(figure(of[i], "row_cache_misses"), misses); /* also of those that were closed */
        if (i + 1 < MANY) of[i]->ops->close(of[i]);
    }
    of[MANY - 1]->ops->close(of[MANY - 1]);
}

/* It keeps the slots that it had, also those that another engine changes now. */
static void snapshot_across_a_split(void **state)
{
    (void)state;
    struct key_ref ref;
    struct engine *of;
    u32 n = 0;
    fill();
    u32 want = expected(low, NOW);
    assert_true(low->ops->snapshot.begin(low, NULL, NULL));
    assert_false(low->ops->snapshot.begin(low, NULL, NULL)); /* one at a time */
    for (u32 i = 0; i < 100 && low->ops->snapshot.next(low, &ref, &of); i++) n += ref.type != TYPE_NONE;
    split();
    high->ops->flush(high, 0);
    for (u32 i = 0; i < 200; i++) put(i, 0);
    tick(now_ms);
    while (low->ops->snapshot.next(low, &ref, &of)) n += ref.type != TYPE_NONE;
    low->ops->snapshot.end(low);
    assert_int_equal(n, want);
    high->ops->flush(high, 0);
    low->ops->flush(low, 0);
    tick(now_ms);
}

/* -- dropping --------------------------------------------------------------------------------------------- */

struct found {
    u64 ids;
    u32 n;
};

static bool note_region(void *arg, const struct rocks_region *r)
{
    struct found *f = arg;
    f->ids |= 1ull << r->id;
    f->n++;
    return true;
}

static u64 stored_regions(void)
{
    struct found f = {0};
    rocks_regions_each(db, note_region, &f);
    return f.ids;
}

/* Its slots are free for another region, which starts with nothing. */
static void drop_one(void **state)
{
    static const struct rocks_region another = {3, 1, HALF, ROCKS_SLOTS - 1};
    (void)state;
    fill();
    u64 kept = low->ops->count(low, 0);
    assert_int_equal(stored_regions(), 1 << 1 | 1 << 2);
    high->ops->meta.put(high, META_CLUSTER, BYTES_LIT("tombstone 2"), BYTES_LIT("7"));
    assert_true(rocks_region_drop(high));
    high->ops->close(high);
    high = NULL;
    assert_int_equal(stored_regions(), 1 << 1);
    assert_int_equal(low->ops->count(low, 0), kept);
    high = open_region(&another);
    assert_int_equal(high->ops->count(high, 0), 0);
    put_in(high, BYTES_LIT("foo"), 1, 0); /* slot 12182 */
    tick(now_ms);
    assert_int_equal(high->ops->count(high, 0), 1);
    high->ops->close(high);
    low->ops->close(low);
    low = high = NULL;
    rocks_close(db);
    open_db();
    low = open_region(&low_half);
    high = open_region(&another);
    assert_int_equal(low->ops->count(low, 0), kept);
    assert_int_equal(high->ops->count(high, 0), 1);
}

/* A region that gets other slots begins empty. */
static void moved(void **state)
{
    static const struct rocks_region after = {1, 1, HALF, ROCKS_SLOTS - 1};
    (void)state;
    fill();
    assert_true(rocks_region_drop(high));
    high->ops->close(high);
    high = NULL;
    rocks_region_move(low, after.first, after.last);
    low->ops->abort(low);
    low->ops->begin(low, now_ms);
    assert_int_equal(rocks_region_of(low).first, 0);
    assert_true(low->ops->count(low, 0) > 0);
    rocks_region_move(low, after.first, after.last);
    tick(now_ms);
    assert_int_equal(rocks_region_of(low).first, HALF);
    assert_int_equal(rocks_region_of(low).last, ROCKS_SLOTS - 1);
    assert_int_equal(low->ops->count(low, 0), 0);
    put_in(low, BYTES_LIT("foo"), 1, now_ms + 1000); /* slot 12182 */
    tick(now_ms);
    assert_true(low->ops->next_due(low) <= now_ms + 1000);
    assert_int_equal(rocks_slot_count(low, 0, 12182), 1);
    close_all();
    open_db();
    low = open_region(&after);
    assert_int_equal(low->ops->count(low, 0), 1);
    assert_int_equal(rocks_slot_count(low, 0, 12182), 1);
}

static void note_row(void *arg, bytes row, bytes value, double score UNUSED)
{
    u32 *n = arg;
    *n += bytes_eq(row, BYTES_LIT("identity")) && bytes_eq(value, BYTES_LIT("me"));
}

/* A region with another prefix has no keys, whatever is in its slots; rows of metadata are the database's. */
static void without_keys(void **state)
{
    static const struct rocks_region home = {0, 0, 0, 0};
    u32 n = 0;
    (void)state;
    fill();
    struct engine *e = open_region(&home);
    assert_int_equal(e->ops->count(e, 0), 0);
    e->ops->meta.put(e, META_CLUSTER, BYTES_LIT("identity"), BYTES_LIT("me"));
    e->ops->flush(e, 0);
    assert_true(e->ops->commit(e, 1));
    e->ops->close(e);
    check_all(NOW);
    low->ops->meta.each(low, META_CLUSTER, note_row, &n);
    assert_int_equal(n, 1);
    assert_int_equal(stored_regions(), 1 << 0 | 1 << 1 | 1 << 2);
}

static void split_given_up(void **state)
{
    (void)state;
    struct buf why = {0};
    fill();
    rocks_split(low, &high_half, 5);
    low->ops->abort(low);
    low->ops->begin(low, now_ms);
    assert_null(rocks_region_open(db, &high_half, &why));
    tick(now_ms);
    check_all(NOW);
    reopen();
    check_all(NOW);
    buf_release(&why);
}

/* -- bytes: the vectors of docs/format.md ----------------------------------------------------------------- */

static void assert_hex(bytes got, const char *want)
{
    struct buf hex = {0};
    for (size_t i = 0; i < got.n; i++) buf_printf(&hex, "%02x", (u8)got.p[i]);
    buf_append_char(&hex, '\0');
    assert_string_equal(hex.p, want);
    buf_release(&hex);
}

static void vectors(void **state)
{
    (void)state;
    struct buf counts = {0};
    struct store_value v;
    slots_append(&counts, &(struct slot_counts){1000, 9, 0});
    assert_hex(buf_bytes(&counts), "a21f09");
    put_in(low, BYTES_LIT("foo"), 1, 0);
    tick(NOW);
    assert_true(store_get(rk_of(low)->session, FAM_INFO, bytes_of("s\0\0\0\0\0\0\0\1", 9), &v));
    assert_hex(bytes_of(v.b.p, 24),
               "000000000000000100000000000000010000000000000002"); /* stamp, sequence, version */
    assert_hex(bytes_of(v.b.p + 24, v.b.n - 24), "0000018bcfe56800000000000000000100003fff");
    store_value_release(&v);
    put_in(low, BYTES_LIT("bar"), 1, 0);
    tick(NOW);
    assert_true(
        store_get(rk_of(low)->session, FAM_INFO, bytes_of("e\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2", 17), &v));
    assert_hex(bytes_of(v.b.p, 24), "000000000000000200000000000000020000018bcfe56800");
    assert_hex(bytes_of(v.b.p + 24, v.b.n - 24), "0000000000000001000113c504");
    store_value_release(&v);
    buf_release(&counts);
}

/* There and back; cut short anywhere, they are refused. */
static void counts_as_bytes(void **state)
{
    (void)state;
    for (u32 i = 0; i < 3000; i++) {
        u32 keys = 1u << i % 32, most = i % 5 ? keys : 0;
        struct slot_counts in = {keys, most, i % 3 ? most / 2 : 0}, out;
        struct buf raw = {0};
        slots_append(&raw, &in);
        bytes b = buf_bytes(&raw);
        assert_true(slots_take(&b, &out) && b.n == 0);
        assert_memory_equal(&in, &out, sizeof in);
        for (size_t n = 0; n < raw.n; n++) {
            b = bytes_of(raw.p, n);
            assert_false(slots_take(&b, &out));
        }
        buf_release(&raw);
    }
}

static u32 rows_from(const char *from, const char *to)
{
    bool failed = false;
    u32 n = 0;
    struct store_session *s = store_session_open(db->store, &failed);
    struct store_iter *it = store_iter(s, FAM_INFO, bytes_of(from, 1), bytes_of(to, 1), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) n++;
    store_iter_done(it);
    store_session_close(s);
    return n;
}

/* The log fills up and starts over, and is read back from wherever it is. Each commit is one row of it. From the 2001st
 * on they change no counts, and those in older rows must outlive their rows. */
static void many_commits(void **state)
{
    (void)state;
    const u32 rows = SLOT_LOG_ROWS / (high ? 2 : 1);
    for (u32 i = 0; i < 3 * rows + 100; i++) {
        put(i % KEYS, deadline_of(i % KEYS));
        tick(now_ms);
        if (i == 9) assert_int_equal(rows_from("e", "f"), high ? 18 : 9); /* the first is the row 's' */
        if (i % rows < 2 || i % rows == rows - 1) reopen();
    }
    assert_true(rows_from("e", "f") <= SLOT_LOG_ROWS);
    check_all(NOW);
    u64 applied = low->applied;
    reopen();
    assert_int_equal(low->applied, applied);
    check_all(NOW);
}

/* -- the layout before -------------------------------------------------------------------------------------- */

static void delete_rows(struct store_session *s, const char *from, const char *to)
{
    store_delete_range(s, FAM_INFO, bytes_of(from, 1), bytes_of(to, 1));
}

/* Layout 2 has one row of counts per database, with a sum of deadlines. Its counts may be too high: compactions used
 * to take dead keys. So may those of buckets. */
static void make_layout_2(void)
{
    bool failed = false;
    struct rk *rk = rk_of(low);
    struct store_session *s = store_session_open(db->store, &failed);
    char counts[40] = {0}, key[17] = "c", bucket[26] = "b", keys[16] = {0}, layout[4];
    delete_rows(s, "c", "d");
    delete_rows(s, "d", "e");
    put_u64(key + 1, 1);
    put_u64(key + 9, 1);
    put_u64(counts, rk->dbs[0]->count + 3);
    put_u64(counts + 8, rk->dbs[0]->expires + 3);
    store_put(s, FAM_INFO, bytes_of(key, sizeof key), bytes_of(counts, sizeof counts));
    put_u64(bucket + 1, 1);
    put_u64(bucket + 9, 1);
    put_u64(bucket + 18, NOW >> 6);
    put_u64(keys, 3);
    store_put(s, FAM_INFO, bytes_of(bucket, sizeof bucket), bytes_of(keys, sizeof keys));
    put_u32(layout, 2);
    store_put(s, FAM_INFO, BYTES_LIT("v"), bytes_of(layout, sizeof layout));
    assert_true(store_write(s));
    store_session_close(s);
}

/* Of a region: no head in the row 's', and the counts of the log in rows 'd'. */
static void make_layout_3(struct store_session *s, const struct rocks_region *r)
{
    struct rk *rk = rk_of(r->id == 1 ? low : high);
    struct buf old = {0};
    char key[11] = "s", row[36];
    u16 position = 0;
    put_u64(key + 1, r->id);
    put_u64(row, rk->applied_seq);
    put_u64(row + 8, rk->last_version);
    put_u64(row + 16, (u64)now_ms);
    put_u64(row + 24, r->prefix);
    put_u16(row + 32, r->first);
    put_u16(row + 34, r->last);
    store_put(s, FAM_INFO, bytes_of(key, 9), bytes_of(row, r->first || r->last < ROCKS_SLOTS - 1 ? 36 : 24));
    struct store_iter *it = state_log_iter(rk);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        bytes name = store_key(it), value = store_iter_value(it);
        if (value.n == 24) continue;
        key[0] = 'd';
        put_u16(key + 9, position++);
        buf_clear(&old);
        buf_append(&old, name.p + 9, 8);
        buf_append(&old, value.p + 24, value.n - 24);
        store_put(s, FAM_INFO, bytes_of(key, sizeof key), buf_bytes(&old));
    }
    store_iter_done(it);
    buf_release(&old);
}

static void upgrade_3(void **state)
{
    (void)state;
    bool failed = false;
    char layout[4];
    fill();
    for (u32 i = 0; i < 400; i++) {
        put(i % 200, i < 200 ? 0 : deadline_of(i % 200));
        tick(now_ms);
    }
    u64 applied = low->applied;
    struct store_session *s = store_session_open(db->store, &failed);
    make_layout_3(s, high ? &low_half : &all);
    if (high) make_layout_3(s, &high_half);
    delete_rows(s, "e", "f");
    put_u32(layout, 3);
    store_put(s, FAM_INFO, BYTES_LIT("v"), bytes_of(layout, sizeof layout));
    assert_true(store_write(s));
    store_session_close(s);
    reopen(); /* and nothing is written but the number of the layout */
    assert_int_equal(low->applied, applied);
    check_all(NOW);
    assert_true(rows_from("d", "e") > 100);
    reopen();
    assert_int_equal(low->applied, applied);
    put(1, deadline_of(1));
    put(2, deadline_of(2));
    tick(now_ms);
    check_all(NOW);
    assert_int_equal(rows_from("d", "e"), 0);
    reopen();
    check_all(NOW);
}

static void upgrade(void **state)
{
    (void)state;
    struct buf why = {0};
    fill();
    drain(false, NOW + 100000);
    make_layout_2();
    close_all();
    assert_int_equal(rocks_check(path), 2);
    open_db();
    assert_null(rocks_region_open(db, &low_half, &why)); /* only as a whole */
    buf_clear(&why);
    low = open_region(&all);
    check_all(NOW + 100000);
    u64 applied = low->applied;
    assert_true(applied > 0);
    reopen();
    assert_int_equal(low->applied, applied);
    check_all(NOW + 100000);
    drain(false, NOW + 300000000);
    check_all(NOW + 300000000);
    buf_release(&why);
}

/* -- made elsewhere ---------------------------------------------------------------------------------------- */

/* The layout is known before any region writes: one that is opened meanwhile must not take the database for one
 * without. */
static void layout_is_there_first(void **state)
{
    (void)state;
    bool failed = false;
    struct store_value v;
    struct store_session *s = store_session_open(db->store, &failed);
    assert_true(store_get(s, FAM_INFO, BYTES_LIT("v"), &v));
    store_value_release(&v);
    store_session_close(s);
}

/* A database with keys and without a layout is counted as a whole: a part of it is refused, and changes nothing. */
static void made_elsewhere(void **state)
{
    (void)state;
    bool failed = false;
    struct buf why = {0};
    fill();
    struct store_session *s = store_session_open(db->store, &failed);
    store_delete_range(s, FAM_INFO, BYTES_LIT("a"), BYTES_LIT("z"));
    store_delete_range(s, FAM_DEADLINE, bytes_of("\0", 1), bytes_of("\xff", 1));
    assert_true(store_write(s));
    store_session_close(s);
    close_all();
    open_db();
    assert_null(rocks_region_open(db, &(struct rocks_region){2, 1, HALF, HALF}, &why));
    s = store_session_open(db->store, &failed);
    struct store_iter *it = store_iter(s, FAM_INFO, (bytes){0}, (bytes){0}, STORE_ONCE);
    store_seek_first(it);
    assert_false(store_valid(it));
    store_iter_done(it);
    store_session_close(s);
    low = open_region(&all);
    check_all(NOW);
    buf_release(&why);
}

/* -- a thread each ----------------------------------------------------------------------------------------- */

#define ROUNDS 200

struct worker {
    pthread_t thread;
    struct rocks_region region;
    u64 keys, expires; /* at the end */
    bool ok;
};

static bool in_region(const struct rocks_region *r, bytes key)
{
    return codec_slot(key) >= r->first && codec_slot(key) <= r->last;
}

static void drop_due(void *arg, struct key_ref *ref)
{
    struct engine *e = arg;
    assert_true(in_region(&rk_of(e)->region, ref->key));
    e->ops->drop(e, ref);
}

static bool views_its_keys(struct engine *e)
{
    struct key_ref ref;
    struct engine *of;
    bool own = true;
    if (!e->ops->snapshot.begin(e, NULL, NULL)) return true; /* files are being dropped */
    while (e->ops->snapshot.next(e, &ref, &of))
        own &= ref.type == TYPE_NONE || in_region(&rk_of(e)->region, ref.key);
    e->ops->snapshot.end(e);
    return own;
}

static void work_round(struct worker *w, struct engine *e, u32 n)
{
    char text[24];
    i64 at_ms = NOW + (i64)n * 50;
    u64 forecast = 0, rng = n;
    struct key_ref ref;
    e->ops->begin(e, at_ms);
    if (n % 50 == 40) e->ops->flush(e, 0);
    for (u32 i = 0; i < 20; i++) {
        bytes key = bytes_of(text, (size_t)snprintf(text, sizeof text, "%u:%u", n, i));
        if (in_region(&w->region, key)) put_in(e, key, n, i % 2 ? at_ms + 1 + (i64)i * 40 : 0);
    }
    e->ops->due(e, at_ms, 50, drop_due, e);
    e->ops->forecast(e, 0, add_span, &forecast);
    if (e->ops->random_volatile(e, 0, &rng, &ref)) w->ok &= in_region(&w->region, ref.key);
    if (n % 7 == 3) e->ops->abort(e);
    else w->ok &= e->ops->commit(e, n + 1);
    if (n % 20 == 0) e->ops->disk->cron(e);
    if (n % 20 == 10) w->ok &= views_its_keys(e);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct buf why = {0};
    struct engine *e = rocks_region_open(db, &w->region, &why);
    w->ok = e;
    for (u32 n = 0; n < ROUNDS && w->ok; n++) work_round(w, e, n);
    if (w->ok) {
        w->keys = e->ops->count(e, 0);
        w->expires = e->ops->expires(e, 0);
    }
    if (e) e->ops->close(e);
    buf_release(&why);
    return NULL;
}

/* Both are opened, write, drain, flush and are viewed at the same time, and each has what it would have alone. */
static void a_thread_each(void **state)
{
    (void)state;
    struct worker w[2] = {{.region = low_half}, {.region = high_half}};
    for (u32 i = 0; i < 2; i++) assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    for (u32 i = 0; i < 2; i++) pthread_join(w[i].thread, NULL);
    assert_true(w[0].ok && w[1].ok);
    u64 forecast = 0;
    now_ms = NOW + ROUNDS * 50;
    low = open_region(&low_half);
    high = open_region(&high_half);
    struct engine *engines[2] = {low, high};
    for (u32 i = 0; i < 2; i++) {
        struct engine *e = engines[i];
        assert_int_equal(e->ops->count(e, 0), w[i].keys);
        assert_int_equal(e->ops->expires(e, 0), w[i].expires);
        assert_int_equal(scanned(e), w[i].keys);
    }
    low->ops->forecast(low, 0, add_span, &forecast);
    assert_int_equal(forecast, w[0].expires + w[1].expires);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(side_by_side, setup_two, teardown),
        cmocka_unit_test_setup_teardown(commit_together, setup_two, teardown),
        cmocka_unit_test_setup_teardown(due_keys_reach_their_region, setup_two, teardown),
        cmocka_unit_test_setup_teardown(by_the_regions_clock, setup_two, teardown),
        cmocka_unit_test_setup_teardown(flush_one, setup_two, teardown),
        cmocka_unit_test_setup_teardown(snapshot_of_one, setup_two, teardown),
        cmocka_unit_test_setup_teardown(refused, setup_two, teardown),
        cmocka_unit_test_setup_teardown(split_and_merge, setup_one, teardown),
        cmocka_unit_test_setup_teardown(one_cache_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(cached_across_a_split, setup_one, teardown),
        cmocka_unit_test_setup_teardown(snapshot_across_a_split, setup_one, teardown),
        cmocka_unit_test_setup_teardown(drop_one, setup_two, teardown),
        cmocka_unit_test_setup_teardown(moved, setup_two, teardown),
        cmocka_unit_test_setup_teardown(without_keys, setup_two, teardown),
        cmocka_unit_test_setup_teardown(split_given_up, setup_one, teardown),
        cmocka_unit_test_setup_teardown(merge_with_metadata, setup_one, teardown),
        cmocka_unit_test_setup_teardown(vectors, setup_one, teardown),
        cmocka_unit_test(counts_as_bytes),
        cmocka_unit_test_setup_teardown(many_commits, setup_one, teardown),
        cmocka_unit_test_setup_teardown(many_commits, setup_two, teardown),
        cmocka_unit_test_setup_teardown(upgrade, setup_one, teardown),
        cmocka_unit_test_setup_teardown(upgrade_3, setup_one, teardown),
        cmocka_unit_test_setup_teardown(upgrade_3, setup_two, teardown),
        cmocka_unit_test_setup_teardown(layout_is_there_first, setup, teardown),
        cmocka_unit_test_setup_teardown(made_elsewhere, setup_one, teardown),
        cmocka_unit_test_setup_teardown(a_thread_each, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
