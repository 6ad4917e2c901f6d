/* The table form of hashes and sets. An item with a deadline is in both the table and field_due; one
 * without is in the table only, and field_due is NULL when it would be empty. */
#include "engine/memory/map_table.h"

#include "base/alloc.h"

/* -- items ------------------------------------------------------------------------------------- */

static size_t map_table_item_need(bytes field, const bytes *value, i64 deadline_ms)
{
    return 1u + (deadline_ms ? 8 : 0) + length_size(field.n) + field.n +
           (value ? length_size(value->n) + value->n : 0);
}

static void *map_table_item_new(bytes field, const bytes *value, i64 deadline_ms)
{
    char *item = mem_alloc(round16(map_table_item_need(field, value, deadline_ms))), *p = item;
    *p++ = (char)((deadline_ms ? ITEM_DEADLINE : 0) | (value ? 0 : ITEM_NO_VALUE));
    if (deadline_ms) {
        memcpy(p, &deadline_ms, 8);
        p += 8;
    }
    p = slice_write(p, field);
    if (value) slice_write(p, *value);
    return item;
}

static size_t map_table_item_size(const void *item)
{
    bytes v = item_value(item);
    bool has_value = !(*(const char *)item & ITEM_NO_VALUE);
    return round16(map_table_item_need(item_field(item), has_value ? &v : NULL, item_deadline(item)));
}

/* -- the order by deadline --------------------------------------------------------------------- */

static void map_table_due_remove(struct map_table *t, void *item)
{
    i64 deadline_ms = item_deadline(item);
    if (!deadline_ms) return;
    CHECK(ztree_remove(t->field_due, (double)deadline_ms, item_field(item)));
    if (ztree_count(t->field_due) == 0) {
        ztree_release(t->field_due);
        mem_free(t->field_due);
        t->field_due = NULL;
    }
}

static void map_table_due_insert(struct map_table *t, void *item)
{
    i64 deadline_ms = item_deadline(item);
    if (!deadline_ms) return;
    if (!t->field_due) {
        t->field_due = mem_alloc(sizeof *t->field_due);
        ztree_init(t->field_due, item_field);
    }
    ztree_insert(t->field_due, (double)deadline_ms, item);
}

u64 map_table_dead(const struct map_table *t, i64 now_ms)
{
    return t->field_due ? ztree_rank_score(t->field_due, (double)now_ms, true) : 0;
}

/* -- the table --------------------------------------------------------------------------------- */

struct map_table *map_table_new(u64 seed)
{
    struct map_table *t = mem_zalloc(sizeof *t);
    table_init(&t->items, item_field, seed);
    return t;
}

static void map_table_free_item(void *arg UNUSED, void *item) { mem_free(item); }

bool map_table_free_some(struct map_table *t, u32 units)
{
    if (t->field_due) {
        if (!ztree_release_some(t->field_due, units, NULL, NULL)) return false;
        mem_free(t->field_due);
        t->field_due = NULL;
    }
    if (!table_drain(&t->items, units, map_table_free_item, NULL)) return false;
    mem_free(t);
    return true;
}

struct map_table *map_table_copy(const struct map_table *from, i64 now_ms)
{
    struct map_table *t = map_table_new(from->items.seed);
    struct table_iter it = {0};
    t->hashtable = from->hashtable;
    for (void *item; (item = table_next(&from->items, &it));) {
        bytes field = item_field(item), value = item_value(item);
        i64 deadline_ms = item_deadline(item);
        bool has_value = !(*(const char *)item & ITEM_NO_VALUE);
        if (!alive(deadline_ms, now_ms)) continue;
        map_table_add(t, table_hash(&t->items, field), field, has_value ? &value : NULL, deadline_ms);
    }
    return t;
}

size_t map_table_memory(const struct map_table *t, u32 samples)
{
    size_t n = sizeof *t + table_memory(&t->items);
    if (t->field_due) n += sizeof *t->field_due + ztree_memory(t->field_due);
    u64 seen = 0, sum = 0;
    struct table_iter it = {0};
    for (void *item; (samples == 0 || seen < samples) && (item = table_next(&t->items, &it)); seen++)
        sum += map_table_item_size(item);
    return n + (seen ? (size_t)((double)sum / (double)seen * (double)t->items.count) : 0);
}

void map_table_add(struct map_table *t, u64 hash, bytes field, const bytes *value, i64 deadline_ms)
{
    void *item = map_table_item_new(field, value, deadline_ms);
    table_insert(&t->items, hash, item);
    map_table_due_insert(t, item);
}

void map_table_change(struct map_table *t, void *item, u64 hash, bytes value, i64 deadline_ms)
{
    i64 old_ms = item_deadline(item);
    bytes old = item_value(item), field = item_field(item);
    size_t need = map_table_item_need(field, &value, deadline_ms);
    if (!old_ms == !deadline_ms && round16(need) == map_table_item_size(item) &&
        length_size(old.n) == length_size(value.n)) {
        if (old_ms != deadline_ms) {
            map_table_due_remove(t, item);
            memcpy((char *)item + 1, &deadline_ms, 8);
            map_table_due_insert(t, item);
        }
        char *to = length_write((char *)field.p + field.n, value.n);
        if (value.n) memmove(to, value.p, value.n);
        return;
    }
    void *fresh = map_table_item_new(field, &value, deadline_ms);
    map_table_due_remove(t, item);
    table_replace(&t->items, hash, item, fresh);
    map_table_due_insert(t, fresh);
    mem_free(item);
}

void map_table_remove(struct map_table *t, void *item)
{
    map_table_due_remove(t, item);
    table_remove(&t->items, table_hash(&t->items, item_field(item)), item);
    mem_free(item);
}
