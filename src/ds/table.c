/* Linear hashing over cache-line buckets; table.h has pictures.
 *
 * Invariants:
 * (1) buckets == 2^level + split, 0 <= split < 2^level. A hash belongs to bucket hash & (2^(level+1) - 1) if
 *     that is below `buckets`, else to the same number without its top bit.
 * (2) Slot 7 of a bucket may be a link (low bit set) to an overflow bucket; all other non-zero slots are
 *     items. Items are 8-byte aligned user-space pointers below 2^48, which leaves 16 bits for the tag and 3
 *     for marks.
 * (3) The cursor of table_scan is a bucket number that counts with its bits reversed: the high bits change
 *     fastest. So a split or a merge refines or coarsens only places that lie wholly before or wholly after
 *     the cursor. */
#include "ds/table.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rand.h"

#define SLOTS 8
#define SEGMENT_BITS 10
#define SEGMENT (1u << SEGMENT_BITS)
#define ITEM_MASK 0x0000fffffffffff8ULL
#define LINK 1ULL
#define GROW_LOAD 6   /* items per bucket above which a bucket is split */
#define SHRINK_LOAD 2 /* items per bucket below which two are merged */

struct table_bucket {
    u64 slot[SLOTS];
};

static inline u64 make_slot(u64 hash, const void *item)
{
    return (hash & ~0x0000ffffffffffffULL) | (u64)(uintptr_t)item;
}
static inline void *slot_item(u64 s) { return (void *)(uintptr_t)(s & ITEM_MASK); }
static inline bool is_link(u64 s) { return s & LINK; }
static inline bool is_item(u64 s) { return s && !(s & LINK); }
static inline bool tag_matches(u64 s, u64 hash) { return ((s ^ hash) >> 48) == 0 && is_item(s); }

static inline struct table_bucket *overflow_of(const struct table_bucket *b)
{
    u64 s = b->slot[SLOTS - 1];
    return is_link(s) ? slot_item(s) : NULL;
}

static inline struct table_bucket *table_bucket_at(const struct table *t, u64 i)
{
    return &t->segments[i >> SEGMENT_BITS][i & (SEGMENT - 1)];
}

static inline u64 bucket_index(const struct table *t, u64 hash)
{
    u64 i = hash & ((2ULL << t->level) - 1);
    return i < t->buckets ? i : i & ((1ULL << t->level) - 1);
}

static struct table_bucket *alloc_buckets(size_t n)
{
    struct table_bucket *b = mem_alloc_aligned(sizeof *b, n * sizeof *b);
    memset(b, 0, n * sizeof *b);
    return b;
}

void table_init(struct table *t, table_key_fn key_of, u64 seed)
{
    *t = (struct table){.key_of = key_of, .seed = seed};
}

static void first_bucket(struct table *t)
{
    t->segments = mem_zalloc(sizeof *t->segments);
    t->segment_cap = 1;
    t->segments[0] = alloc_buckets(1);
    t->first_cap = 1;
    t->buckets = 1;
}

void table_release(struct table *t)
{
    for (u64 i = 0; i < t->buckets; i++) {
        struct table_bucket *b = overflow_of(table_bucket_at(t, i));
        while (b) {
            struct table_bucket *next = overflow_of(b);
            mem_free(b);
            b = next;
        }
    }
    for (u64 i = 0; i * SEGMENT < t->buckets; i++) mem_free(t->segments[i]);
    mem_free(t->segments);
    table_init(t, t->key_of, t->seed);
}

void *table_find(const struct table *t, bytes key, u64 hash)
{
    if (t->count == 0) return NULL;
    for (const struct table_bucket *b = table_bucket_at(t, bucket_index(t, hash)); b; b = overflow_of(b)) {
        for (int i = 0; i < SLOTS; i++) {
            if (!tag_matches(b->slot[i], hash)) continue;
            void *item = slot_item(b->slot[i]);
            if (bytes_eq(t->key_of(item), key)) return item;
        }
    }
    return NULL;
}

void *table_find_hash(const struct table *t, u64 hash, bool (*want)(void *, void *), void *arg)
{
    if (t->count == 0) return NULL;
    for (const struct table_bucket *b = table_bucket_at(t, bucket_index(t, hash)); b; b = overflow_of(b)) {
        for (int i = 0; i < SLOTS; i++) {
            if (!tag_matches(b->slot[i], hash)) continue;
            void *item = slot_item(b->slot[i]);
            if (table_hash(t, t->key_of(item)) == hash && want(arg, item)) return item;
        }
    }
    return NULL;
}

/* gcc regards a function that only prefetches as pure and drops calls to it. The empty asm statement prevents
 * that. */
static inline void fetch_soon(const void *p)
{
    __builtin_prefetch(p);
    __asm__ volatile("" : : "r"(p));
}

void table_prefetch_bucket(const struct table *t, u64 hash)
{
    if (t->count) fetch_soon(table_bucket_at(t, bucket_index(t, hash)));
}

const void *table_prefetch_item(const struct table *t, u64 hash, u32 bytes)
{
    if (t->count == 0) return NULL;
    const struct table_bucket *b = table_bucket_at(t, bucket_index(t, hash));
    for (int i = 0; i < SLOTS; i++) {
        if (tag_matches(b->slot[i], hash)) {
            const char *item = slot_item(b->slot[i]);
            for (u32 at = 0; at < bytes; at += 64) fetch_soon(item + at);
            return item;
        }
    }
    fetch_soon(overflow_of(b));
    return NULL;
}

/* Adds a slot to a bucket's chain, without splitting. */
static void chain_put(struct table *t, struct table_bucket *b, u64 slot)
{
    for (;;) {
        for (int i = 0; i < SLOTS; i++) {
            if (b->slot[i] == 0) {
                b->slot[i] = slot;
                return;
            }
        }
        struct table_bucket *next = overflow_of(b);
        if (!next) {
            next = alloc_buckets(1);
            t->overflow++;
            next->slot[0] = b->slot[SLOTS - 1];
            next->slot[1] = slot;
            b->slot[SLOTS - 1] = (u64)(uintptr_t)next | LINK;
            return;
        }
        b = next;
    }
}

/* Empties a bucket's chain and calls put for each item's slot. */
static void chain_take(struct table *t, struct table_bucket *b,
                       void (*put)(struct table *, u64 slot, void *arg), void *arg)
{
    struct table_bucket old = *b;
    memset(b, 0, sizeof *b);
    for (const struct table_bucket *o = &old; o;) {
        struct table_bucket *next = overflow_of(o);
        for (int i = 0; i < SLOTS; i++) {
            if (is_item(o->slot[i])) put(t, o->slot[i], arg);
        }
        if (o != &old) {
            mem_free((void *)o);
            t->overflow--;
        }
        o = next;
    }
}

static void ensure_room(struct table *t, u64 i)
{
    u64 seg = i >> SEGMENT_BITS;
    if (seg == 0) {
        if (i < t->first_cap) return;
        /* The first segment doubles until it is full: small tables stay small. */
        struct table_bucket *bigger = alloc_buckets(t->first_cap * 2);
        memcpy(bigger, t->segments[0], t->first_cap * sizeof *bigger);
        mem_free(t->segments[0]);
        t->segments[0] = bigger;
        t->first_cap *= 2;
        return;
    }
    if (i & (SEGMENT - 1)) return;
    if (seg >= t->segment_cap) {
        t->segment_cap *= 2;
        t->segments = mem_realloc(t->segments, t->segment_cap * sizeof *t->segments);
    }
    t->segments[seg] = alloc_buckets(SEGMENT);
}

static void put_by_hash(struct table *t, u64 slot, void *arg UNUSED)
{
    u64 hash = table_hash(t, t->key_of(slot_item(slot)));
    chain_put(t, table_bucket_at(t, bucket_index(t, hash)), slot);
}

static void split_one(struct table *t)
{
    u64 from = t->split;
    ensure_room(t, t->buckets);
    t->buckets++;
    if (++t->split == 1ULL << t->level) {
        t->level++;
        t->split = 0;
    }
    struct table_bucket *b = table_bucket_at(t, from);
    for (const struct table_bucket *o = b; o; o = overflow_of(o)) {
        for (int i = 0; i < SLOTS; i++) {
            if (is_item(o->slot[i])) __builtin_prefetch(slot_item(o->slot[i]));
        }
    }
    chain_take(t, b, put_by_hash, NULL);
}

void table_reserve(struct table *t, u64 items)
{
    if (t->buckets == 0 && items > 0) first_bucket(t);
    while (t->buckets * GROW_LOAD < items) split_one(t);
}

static void put_into(struct table *t, u64 slot, void *arg) { chain_put(t, arg, slot); }

static void merge_one(struct table *t)
{
    if (t->split == 0) {
        t->level--;
        t->split = 1ULL << t->level;
    }
    t->split--;
    u64 last = t->buckets - 1;
    chain_take(t, table_bucket_at(t, last), put_into, table_bucket_at(t, t->split));
    t->buckets--;
    u64 seg = last >> SEGMENT_BITS;
    if (seg > 0) {
        if ((last & (SEGMENT - 1)) == 0) mem_free(t->segments[seg]);
    } else if (t->buckets * 4 <= t->first_cap) {
        struct table_bucket *smaller = alloc_buckets(t->first_cap / 2);
        memcpy(smaller, t->segments[0], t->buckets * sizeof *smaller);
        mem_free(t->segments[0]);
        t->segments[0] = smaller;
        t->first_cap /= 2;
    }
}

void table_insert(struct table *t, u64 hash, void *item)
{
    CHECK(((uintptr_t)item & ~ITEM_MASK) == 0);
    if (t->buckets == 0) first_bucket(t);
    chain_put(t, table_bucket_at(t, bucket_index(t, hash)), make_slot(hash, item));
    t->count++;
    if (t->count > t->buckets * GROW_LOAD) split_one(t);
}

static u64 *table_slot_of(const struct table *t, u64 hash, const void *item, struct table_bucket **in)
{
    u64 want = make_slot(hash, item);
    for (struct table_bucket *b = table_bucket_at(t, bucket_index(t, hash)); b; b = overflow_of(b)) {
        for (int i = 0; i < SLOTS; i++) {
            if (b->slot[i] == want) {
                *in = b;
                return &b->slot[i];
            }
        }
    }
    CHECK(!"item is in the table");
    return NULL;
}

/* Moves one item from the overflow bucket after b into the free slot, so that chains shorten as early as
 * possible. */
static void fill_hole(struct table *t, struct table_bucket *b, u64 *hole)
{
    struct table_bucket *o = overflow_of(b);
    if (!o || overflow_of(o)) return;
    int items = 0, last = -1;
    for (int i = 0; i < SLOTS; i++) {
        if (o->slot[i]) {
            items++;
            last = i;
        }
    }
    if (items) {
        *hole = o->slot[last];
        o->slot[last] = 0;
        items--;
    }
    if (items == 0) {
        b->slot[SLOTS - 1] = 0;
        mem_free(o);
        t->overflow--;
    }
}

void table_remove(struct table *t, u64 hash, const void *item)
{
    struct table_bucket *b;
    u64 *slot = table_slot_of(t, hash, item, &b);
    *slot = 0;
    t->count--;
    if (overflow_of(b)) {
        fill_hole(t, b, slot);
    } else {
        /* The free slot may be in the overflow bucket itself, which may be empty now. */
        struct table_bucket *first = table_bucket_at(t, bucket_index(t, hash));
        if (b != first && overflow_of(first) == b) {
            bool empty = true;
            for (int i = 0; i < SLOTS; i++) empty &= b->slot[i] == 0;
            if (empty) {
                first->slot[SLOTS - 1] = 0;
                mem_free(b);
                t->overflow--;
            }
        }
    }
    if (t->count == 0) table_release(t);
    else if (t->buckets > 1 && t->count < t->buckets * SHRINK_LOAD) merge_one(t);
}

void table_replace(struct table *t, u64 hash, const void *item, void *by)
{
    struct table_bucket *b;
    CHECK(((uintptr_t)by & ~ITEM_MASK) == 0);
    *table_slot_of(t, hash, item, &b) = make_slot(hash, by);
}

static u64 reverse_bits(u64 v)
{
    v = ((v >> 1) & 0x5555555555555555ULL) | ((v & 0x5555555555555555ULL) << 1);
    v = ((v >> 2) & 0x3333333333333333ULL) | ((v & 0x3333333333333333ULL) << 2);
    v = ((v >> 4) & 0x0f0f0f0f0f0f0f0fULL) | ((v & 0x0f0f0f0f0f0f0f0fULL) << 4);
    return __builtin_bswap64(v);
}

/* The bucket at a cursor; advances the cursor: invariant (3). */
static const struct table_bucket *scan_step(const struct table *t, u64 *cursor)
{
    u64 small = (1ULL << t->level) - 1, large = (2ULL << t->level) - 1;
    u64 mask = (*cursor & small) < t->split ? large : small;
    const struct table_bucket *b = table_bucket_at(t, *cursor & mask);
    *cursor = reverse_bits(reverse_bits(*cursor | ~mask) + 1);
    return b;
}

u64 table_scan(const struct table *t, u64 cursor, table_fn fn, void *arg)
{
    if (t->count == 0) return 0;
    for (const struct table_bucket *b = scan_step(t, &cursor); b; b = overflow_of(b)) {
        for (int i = 0; i < SLOTS; i++) {
            if (is_item(b->slot[i])) fn(arg, slot_item(b->slot[i]));
        }
    }
    return cursor;
}

void table_scan_ahead(const struct table *t, u64 cursor, u32 bytes)
{
    if (t->count == 0) return;
    scan_step(t, &cursor);
    const struct table_bucket *b = scan_step(t, &cursor);
    for (int i = 0; i < SLOTS; i++) {
        const char *item = slot_item(b->slot[i]); /* or a link, or NULL: a prefetch never faults */
        for (u32 at = 0; at < bytes; at += 64) fetch_soon(item + at);
    }
    fetch_soon(scan_step(t, &cursor));
}

static u64 chain_count(const struct table_bucket *b)
{
    u64 n = 0;
    for (; b; b = overflow_of(b)) {
        for (int i = 0; i < SLOTS; i++) n += is_item(b->slot[i]);
    }
    return n;
}

static void *chain_item(const struct table_bucket *b, u64 n)
{
    for (;; b = overflow_of(b)) {
        for (int i = 0; i < SLOTS; i++) {
            if (is_item(b->slot[i]) && n-- == 0) return slot_item(b->slot[i]);
        }
    }
}

void *table_random(const struct table *t, u64 *rng)
{
    if (t->count == 0) return NULL;
    for (;;) {
        /* Draws a bucket, and an index among more items than a bucket is likely to have. An index beyond its
         * items is drawn again, so that a bucket is chosen in proportion to its items. */
        const struct table_bucket *b = table_bucket_at(t, rand_below(rng, t->buckets));
        u64 n = chain_count(b), place = rand_below(rng, MAX(n, 2 * SLOTS));
        if (place < n) return chain_item(b, place);
    }
}

void *table_next(const struct table *t, struct table_iter *it)
{
    for (;;) {
        if (!it->at) {
            if (t->count == 0 || it->bucket >= t->buckets) return NULL;
            it->at = table_bucket_at(t, it->bucket++);
            it->slot = 0;
        }
        while (it->slot < SLOTS) {
            u64 s = it->at->slot[it->slot++];
            if (is_item(s)) return slot_item(s);
        }
        it->at = overflow_of(it->at);
        it->slot = 0;
    }
}

struct drain {
    table_fn fn;
    void *arg;
    u32 taken;
};

static void drain_item(struct table *t, u64 slot, void *arg)
{
    struct drain *d = arg;
    t->count--;
    d->taken++;
    d->fn(d->arg, slot_item(slot));
}

bool table_drain(struct table *t, u32 max, table_fn fn, void *arg)
{
    struct drain d = {fn, arg, 0};
    while (t->count && d.taken < max) {
        chain_take(t, table_bucket_at(t, t->buckets - 1), drain_item, &d);
        if (t->count && t->buckets > 1) merge_one(t);
    }
    if (t->count == 0) table_release(t);
    return t->count == 0;
}

size_t table_memory(const struct table *t)
{
    if (t->buckets == 0) return 0;
    u64 segs = (t->buckets + SEGMENT - 1) >> SEGMENT_BITS;
    u64 cap = segs == 1 ? t->first_cap : segs * SEGMENT;
    return (cap + t->overflow) * sizeof(struct table_bucket) + t->segment_cap * sizeof(void *);
}
