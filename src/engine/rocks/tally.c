/* Invariant: a bucket without keys is in the list of the changed ones. */
#include "engine/rocks/tally.h"

#include "base/alloc.h"

static bytes name_of(const void *item)
{
    const struct bucket *b = item;
    return bytes_of(&b->name, sizeof b->name);
}

void tally_init(struct tally *t, u64 seed)
{
    *t = (struct tally){0};
    table_init(&t->buckets, name_of, seed);
}

static void free_bucket(void *arg, void *item)
{
    (void)arg;
    mem_free(item);
}

void tally_clear(struct tally *t)
{
    u64 seed = t->buckets.seed;
    table_drain(&t->buckets, UINT32_MAX, free_bucket, NULL);
    table_release(&t->buckets);
    tally_init(t, seed);
}

static struct bucket *bucket_at(struct tally *t, u64 index, u32 level, i64 bucket)
{
    struct bucket_name name = {index, level, bucket};
    bytes key = bytes_of(&name, sizeof name);
    u64 hash = table_hash(&t->buckets, key);
    struct bucket *b = table_find(&t->buckets, key, hash);
    if (LIKELY(b)) return b;
    b = mem_alloc(sizeof *b);
    *b = (struct bucket){.name = name};
    table_insert(&t->buckets, hash, b);
    return b;
}

void tally_add(struct tally *t, u64 index, u32 level, i64 bucket, i64 n, u64 past_start)
{
    struct bucket *b = bucket_at(t, index, level, bucket);
    b->keys += (u64)n;
    b->past_start += past_start;
    if (b->changed) return;
    b->changed = true;
    b->next_changed = t->changed;
    t->changed = b;
}

struct bucket *tally_next(const struct tally *t, struct table_iter *it, u64 index)
{
    struct bucket *b;
    while ((b = table_next(&t->buckets, it)))
        if ((i64)b->keys > 0 && (!index || b->name.index == index)) break;
    return b;
}

void tally_settle(struct tally *t, void (*fn)(void *, const struct bucket *), void *arg)
{
    for (struct bucket *b = t->changed, *next; b; b = next) {
        next = b->next_changed;
        b->changed = false;
        fn(arg, b);
        if (b->keys) continue;
        table_remove(&t->buckets, table_hash(&t->buckets, name_of(b)), b);
        mem_free(b);
    }
    t->changed = NULL;
}
