/* The table form of hashes and sets. Its items are
 *
 *   u8 kind · [i64 deadline] · length · field · [length · value]
 *
 * in one allocation rounded up to 16; a set's have no value part. Those with a deadline are also in
 * `field_due`, ordered by it, so that the live ones can be counted in O(log n) and the dead ones
 * reaped in O(dead). */
#ifndef MAYFLY_ENGINE_MEMORY_MAP_TABLE_H
#define MAYFLY_ENGINE_MEMORY_MAP_TABLE_H

#include "ds/table.h"
#include "ds/wheel.h"
#include "ds/ztree.h"
#include "engine/memory/entry.h"

struct map_table {
    struct table items;
    struct ztree *field_due;   /* items with a deadline, by it; NULL when no field has one */
    wheel_pos due_pos;         /* struct map_filing */
    i64 due_ms;
    bool hashtable;            /* of a hash: OBJECT ENCODING has once been hashtable, and stays so */
};

#define ITEM_DEADLINE 1
#define ITEM_NO_VALUE 2

static inline bytes item_field(const void *item)
{
    const char *p = item;
    bytes f;
    f.p = length_read(p + (p[0] & ITEM_DEADLINE ? 9 : 1), &f.n);
    return f;
}

static inline bytes item_value(const void *item)
{
    if (*(const char *)item & ITEM_NO_VALUE) return (bytes){"", 0};
    bytes f = item_field(item), v;
    v.p = length_read(f.p + f.n, &v.n);
    return v;
}

static inline i64 item_deadline(const void *item)
{
    const char *p = item;
    i64 d = 0;
    if (p[0] & ITEM_DEADLINE) memcpy(&d, p + 1, 8);
    return d;
}

struct map_table *map_table_new(u64 seed);
struct map_table *map_table_copy(const struct map_table *from, i64 now_ms); /* the live fields */
bool map_table_free_some(struct map_table *t, u32 units); /* true: the struct itself was freed */
size_t map_table_memory(const struct map_table *t, u32 samples);
u64 map_table_dead(const struct map_table *t, i64 now_ms); /* fields */

/* The item of a field, dead or alive, or NULL. */
static inline void *map_table_find(const struct map_table *t, bytes field, u64 hash)
{
    return table_find(&t->items, field, hash);
}

/* Adds a field that is absent; value NULL: a set's member. */
void map_table_add(struct map_table *t, u64 hash, bytes field, const bytes *value, i64 deadline_ms);

/* Sets value and deadline of an item, in place if they fit. The value may be the item's own. */
void map_table_change(struct map_table *t, void *item, u64 hash, bytes value, i64 deadline_ms);
void map_table_remove(struct map_table *t, void *item);

#endif
