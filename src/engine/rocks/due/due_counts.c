/* Invariant: a bucket without keys is in the list `changed`, and due_counts_settle frees it. */
#include "engine/rocks/due/due_counts.h"

#include "base/alloc.h"

static bytes due_counts_name_of(const void *item)
{
    const struct due_bucket *b = item;
    return bytes_of(&b->name, sizeof b->name);
}

void due_counts_init(struct due_counts *t, u64 seed)
{
    *t = (struct due_counts){0};
    table_init(&t->buckets, due_counts_name_of, seed);
}

static void free_bucket(void *arg, void *item)
{
    (void)arg;
    mem_free(item);
}

void due_counts_clear(struct due_counts *t)
{
    u64 seed = t->buckets.seed;
    table_drain(&t->buckets, UINT32_MAX, free_bucket, NULL);
    table_release(&t->buckets);
    due_counts_init(t, seed);
}

static struct due_bucket *due_bucket_at(struct due_counts *t, u64 index, u32 level, i64 bucket)
{
    struct due_bucket_name name = {index, level, bucket};
    bytes key = bytes_of(&name, sizeof name);
    u64 hash = table_hash(&t->buckets, key);
    struct due_bucket *b = table_find(&t->buckets, key, hash);
    if (LIKELY(b)) return b;
    b = mem_alloc(sizeof *b);
    *b = (struct due_bucket){.name = name};
    table_insert(&t->buckets, hash, b);
    return b;
}

static void mark_changed(struct due_counts *t, struct due_bucket *b)
{
    if (b->changed) return;
    b->changed = true;
    b->next_changed = t->changed;
    t->changed = b;
}

void due_counts_add(struct due_counts *t, u64 index, struct due_place p, i64 deadline_ms, int n)
{
    struct due_bucket *b = due_bucket_at(t, index, p.level, p.bucket);
    u64 past_start = (u64)deadline_ms - (u64)due_bucket_start(p.level, p.bucket);
    b->keys += (u64)(i64)n;
    b->past_start += n > 0 ? past_start : -past_start;
    due_cell_count(due_cell_of(b->cell, p.level, deadline_ms), p.level, deadline_ms, n);
    mark_changed(t, b);
}

void due_counts_empty(struct due_counts *t, struct due_bucket *b)
{
    b->keys = b->past_start = 0;
    memset(b->cell, 0, sizeof b->cell);
    mark_changed(t, b);
}

void due_counts_copy(struct due_counts *t, const struct due_bucket *b)
{
    struct due_bucket *to = due_bucket_at(t, b->name.index, (u32)b->name.level, b->name.bucket);
    to->keys = b->keys;
    to->past_start = b->past_start;
    memcpy(to->cell, b->cell, sizeof to->cell);
    mark_changed(t, to);
}

struct due_shared *due_shared_new(u64 prefix, u64 seed)
{
    struct due_shared *c = mem_zalloc(sizeof *c);
    pthread_mutexattr_t how;
    c->prefix = prefix;
    pthread_mutexattr_init(&how);
    pthread_mutexattr_settype(&how, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->lock, &how);
    pthread_mutexattr_destroy(&how);
    due_counts_init(&c->counts, seed);
    return c;
}

void due_shared_free(struct due_shared *c)
{
    for (struct due_shared *next; c; c = next) {
        next = c->next;
        due_counts_clear(&c->counts);
        pthread_mutex_destroy(&c->lock);
        mem_free(c);
    }
}

/* -- as stored ------------------------------------------------------------------------------ */

/* Hot: every changed bucket is written with all its cells, so the bytes go to a local array first. */
void due_counts_append(struct buf *out, const struct due_bucket *b)
{
    char raw[24 + DUE_CELLS * 2 * 5], *p = raw + 24;
    u64 used = 0;
    for (u32 i = 0; i < DUE_CELLS; i++) {
        const struct due_cell *c = &b->cell[i];
        if (c->keys <= 0) continue;
        used |= 1ull << i;
        p = codec_put_varint(p, (u32)c->keys);
        p = codec_put_varint(p, c->past);
    }
    put_u64(raw, b->keys);
    put_u64(raw + 8, b->past_start);
    put_u64(raw + 16, used);
    buf_append(out, raw, (size_t)(p - raw));
}

static void spread_evenly(struct due_bucket *b)
{
    u32 unit = due_unit_shift((u32)b->name.level);
    u32 half = (1u << (DUE_CELL_SHIFT(b->name.level) - unit)) / 2;
    for (u32 i = 0; i < DUE_CELLS; i++) {
        i32 keys = (i32)(b->keys * (i + 1) / DUE_CELLS - b->keys * i / DUE_CELLS);
        b->cell[i] = (struct due_cell){keys, (u32)keys * half};
    }
}

static bool read_cells(struct due_bucket *b, bytes raw)
{
    u64 used = get_u64(raw.p), keys, past;
    raw = bytes_of(raw.p + 8, raw.n - 8);
    for (; used; used &= used - 1) {
        if (!codec_take_varint(&raw, &keys) || !codec_take_varint(&raw, &past)) return false;
        if (keys > INT32_MAX || past > UINT32_MAX) return false;
        b->cell[__builtin_ctzll(used)] = (struct due_cell){(i32)keys, (u32)past};
    }
    return raw.n == 0;
}

bool due_counts_load(struct due_counts *t, u64 index, u32 level, i64 bucket, bytes value)
{
    if (level >= DUE_PLACE_LEVELS || (value.n != 16 && value.n < 24)) return false;
    struct due_bucket *b = due_bucket_at(t, index, level, bucket);
    b->keys = get_u64(value.p);
    b->past_start = get_u64(value.p + 8);
    mark_changed(t, b);
    if (value.n > 16) return read_cells(b, bytes_of(value.p + 16, value.n - 16));
    spread_evenly(b);
    return true;
}

struct due_bucket *due_counts_next(const struct due_counts *t, struct table_iter *it, u64 index)
{
    struct due_bucket *b;
    while ((b = table_next(&t->buckets, it)))
        if ((i64)b->keys > 0 && (!index || b->name.index == index)) break;
    return b;
}

void due_counts_settle(struct due_counts *t, void (*fn)(void *, const struct due_bucket *), void *arg)
{
    for (struct due_bucket *b = t->changed, *next; b; b = next) {
        next = b->next_changed;
        b->changed = false;
        fn(arg, b);
        if (b->keys) continue;
        table_remove(&t->buckets, table_hash(&t->buckets, due_counts_name_of(b)), b);
        mem_free(b);
    }
    t->changed = NULL;
}
