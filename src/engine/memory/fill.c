/* Filling collections of the memory engine with many elements at once, when data is loaded.
 *
 * A collection that is empty, and small enough to be packed, is packed with one allocation; nothing is
 * moved, and names are compared only if a small filter can't tell them apart. Any other gets its elements
 * one by one, but their buckets are prefetched, so that cache misses overlap. */
#include "base/num.h"
#include "engine/fill.h"
#include "engine/memory/mem.h"

#define TOGETHER 16 /* buckets prefetched at a time */

/* -- names that come twice -------------------------------------------------------------------- */

#define FILTER_WORDS 512

/* The index of a name of v[0], v[stride] … that occurs twice, or n. */
static u32 find_twice(const bytes *v, u32 n, u32 stride)
{
    u64 filter[FILTER_WORDS];
    u32 words = 1;
    while (words < FILTER_WORDS && words < n / stride) words *= 2; /* 64 bits for each, at best */
    memset(filter, 0, words * sizeof *filter);
    for (u32 i = 0; i < n; i += stride) {
        u64 hash = hash_bytes(v[i], 0), bit = 1ULL << (hash >> 58), *word = &filter[hash & (words - 1)];
        if (UNLIKELY(*word & bit)) {
            for (u32 k = 0; k < i; k += stride)
                if (bytes_eq(v[k], v[i])) return i;
        }
        *word |= bit;
    }
    return n;
}

static void fetch_places(const struct table *t, const bytes *v, u32 n, u32 stride)
{
    for (u32 i = 0; i < n; i += stride) table_prefetch_bucket(t, table_hash(t, v[i]));
}

/* -- hashes and sets --------------------------------------------------------------------------- */

static bool fit_packed(const struct engine *e, const struct mem_map *m, const bytes *v, u32 n, u32 stride)
{
    size_t bytes = 0;
    for (u32 i = 0; i < n; i += stride) {
        if (!mem_map_fits(e, m, n / stride, v[i], v[i + stride - 1])) return false;
        bytes += packed_cost(v[i].n) + packed_cost(v[i + stride - 1].n);
    }
    return bytes < PACKED_SAFE;
}

static u32 fill_packed(struct mem_map *m, const bytes *v, u32 n, u32 stride)
{
    u32 twice = find_twice(v, n, stride);
    if (!m->small) m->small = packed_new();
    if (twice == n) m->small = packed_extend(m->small, v, n);
    return twice;
}

/* Adds members to a set of integers as long as they are integers; returns how many. */
static u32 fill_ints(struct engine *e, struct mem_map *m, const bytes *v, u32 n)
{
    i64 number;
    u32 i = 0, have = intset_count(m->ints);
    u32 room = (u32)MIN(MAX(e->limits.set_max_intset_entries - (i64)have, 0), (i64)n);
    if (room == n && num_parse_i64(v[0], &number)) intset_reserve(&m->ints, have + n);
    while (i < room && num_parse_i64(v[i], &number) && intset_add(&m->ints, number)) i++;
    return i;
}

u32 mem_map_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    struct mem_map *m = entry_object(ref->entry);
    if (n == 0) return 0;
    mem_keep(e, ref);
    u32 stride = map_stride(ref), done = m->all_ints ? fill_ints(e, m, v, n) : 0;
    if (done == n) return n;
    if (mem_map_stored(m) == 0 && (m->small || m->all_ints) && fit_packed(e, m, v, n, stride)) {
        m->all_ints = false;
        intset_free(m->ints);
        m->ints = NULL;
        return fill_packed(m, v, n, stride);
    }
    while (done < n) {
        u32 some = MIN(n - done, TOGETHER * stride);
        if (m->big) fetch_places(&m->big->items, v + done, some, stride);
        u32 added = map_fill_each(e, ref, v + done, some);
        done += added;
        if (added < some) break;
    }
    return done;
}

/* -- sorted sets ------------------------------------------------------------------------------- */

static bool in_order(const bytes *members, const double *scores, u32 n)
{
    for (u32 i = 1; i < n; i++) {
        if (scores[i] > scores[i - 1]) continue;
        if (scores[i] < scores[i - 1] || bytes_cmp(members[i], members[i - 1]) <= 0) return false;
    }
    return true;
}

static bool fit_packed_zset(const struct engine *e, const bytes *members, u32 n)
{
    size_t bytes = 0;
    if ((i64)n > e->limits.zset_max_listpack_entries) return false;
    for (u32 i = 0; i < n; i++) {
        if ((i64)members[i].n > e->limits.zset_max_listpack_value) return false;
        bytes += packed_cost(members[i].n) + packed_cost(sizeof(double));
    }
    return bytes < PACKED_SAFE;
}

static packed *pack_pairs(packed *p, const bytes *members, const double *scores, u32 n)
{
    bytes v[2 * 128];
    while (n > 0) {
        u32 some = MIN(n, ARRAY_LEN(v) / 2);
        for (u32 i = 0; i < some; i++) {
            v[2 * i] = members[i];
            v[2 * i + 1] = bytes_of(&scores[i], sizeof scores[i]);
        }
        p = packed_extend(p, v, 2 * some);
        members += some;
        scores += some;
        n -= some;
    }
    return p;
}

u32 mem_zset_fill(struct engine *e, struct key_ref *ref, const bytes *members, const double *scores, u32 n)
{
    struct mem_zset *z = entry_object(ref->entry);
    mem_keep(e, ref);
    bool packs = mem_zset_count(z) == 0 && z->small && fit_packed_zset(e, members, n);
    if (packs && in_order(members, scores, n)) {
        u32 twice = find_twice(members, n, 1);
        if (twice == n) z->small = pack_pairs(z->small, members, scores, n);
        return twice;
    }
    u32 done = 0;
    while (done < n) {
        u32 some = MIN(n - done, TOGETHER);
        if (z->big) fetch_places(&z->big->items, members + done, some, 1);
        u32 added = zset_fill_each(e, ref, members + done, scores + done, some);
        done += added;
        if (added < some) break;
    }
    return done;
}
