/* Hashes and sets of the memory engine.
 *
 * Small ones are in their entry (map_small.c), others in table form (map_table.h). A hash with a field
 * deadline is always a table. Dead fields are hidden by alive(), and removed only by reap(). */
#include "base/rand.h"
#include "engine/fill.h"
#include "engine/memory/map_small.h"

u64 mem_map_stored(const struct entry *entry)
{
    const struct map_table *t = mem_map_table(entry);
    return t ? t->items.count : map_small_count(entry);
}

u64 mem_map_count(const struct entry *entry, i64 now_ms)
{
    const struct map_table *t = mem_map_table(entry);
    return t ? t->items.count - map_table_dead(t, now_ms) : map_small_count(entry);
}

const char *mem_map_encoding(const struct entry *entry)
{
    const struct map_table *t = mem_map_table(entry);
    if (!t) return entry_is_ints(entry) ? "intset" : "listpack";
    return t->hashtable || entry_type(entry) == TYPE_SET ? "hashtable" : "listpackex";
}

/* The elements move from the entry to a table. */
COLD static struct map_table *mem_map_to_table(struct engine *e, struct key_ref *ref)
{
    struct map_table *t = map_table_new(mem_of(e)->seed);
    struct map_small_walk w;
    char digits[2][NUM_I64_LEN];
    bool set = entry_type(ref->entry) == TYPE_SET;
    bytes field, value;
    map_small_start(ref->entry, &w);
    while (map_small_next(e, ref, &w, &field, &value, digits))
        map_table_add(t, table_hash(&t->items, field), field, set ? NULL : &value, 0);
    mem_set_object(e, ref, t);
    return t;
}

/* -- field deadlines: filing the nearest one -------------------------------------- */

void mem_map_unfile(struct engine *e, u32 db, struct map_table *t)
{
    if (!t || !t->due_ms) return;
    wheel_drop(&mem_db_of(e, db)->fields, t->due_pos, t->due_ms);
    t->due_ms = 0;
}

static void file_at(struct engine *e, struct key_ref *ref, struct map_table *t, i64 due_ms)
{
    struct wheel *w = &mem_db_of(e, ref->db)->fields;
    struct mem_engine *m = mem_of(e);
    if (due_ms == t->due_ms) return;
    t->due_pos = t->due_ms ? wheel_move(w, t->due_pos, ref->hash, t->due_ms, due_ms, m->clock_ms)
                           : mem_file_deadline(m, ref->db, w, ref->hash, due_ms);
    t->due_ms = due_ms;
}

void mem_map_file(struct engine *e, struct key_ref *ref, struct map_table *t)
{
    struct ztree_pos first;
    if (!t || !t->field_due || !ztree_at(t->field_due, 0, &first)) {
        mem_map_unfile(e, ref->db, t);
        return;
    }
    file_at(e, ref, t, (i64)ztree_score(&first));
}

void mem_map_postpone(struct engine *e, struct key_ref *ref, struct map_table *t, i64 until_ms)
{
    file_at(e, ref, t, until_ms);
}

/* -- primitives -------------------------------------------------------------------- */

static void *live_item(struct engine *e, const struct map_table *t, bytes field)
{
    void *item = map_table_find(t, field, table_hash(&t->items, field));
    return item && alive(item_deadline(item), e->now_ms) ? item : NULL;
}

static bool mem_map_get(struct engine *e, struct key_ref *ref, bytes field, bytes *value)
{
    const struct map_table *t = mem_map_table(ref->entry);
    if (!t) return map_small_get(e, ref, field, value);
    void *item = live_item(e, t, field);
    if (item && value) *value = item_value(item);
    return item != NULL;
}

/* Notes when Redis would switch a hash to hashtable. */
static void mem_map_note_limits(struct engine *e, struct map_table *t, u64 count, bytes field, bytes value)
{
    if (!map_small_fits(e, false, count, field, value)) t->hashtable = true;
}

static bool mem_map_put_in_table(struct engine *e, struct key_ref *ref, struct map_table *t, bytes field,
                                 bytes value, bool keep_deadline)
{
    bool set = entry_type(ref->entry) == TYPE_SET;
    u64 hash = table_hash(&t->items, field);
    void *item = map_table_find(t, field, hash);
    if (!set) mem_map_note_limits(e, t, t->items.count + !item, field, value);
    if (!item) {
        map_table_add(t, hash, field, set ? NULL : &value, 0);
        return true;
    }
    if (set) return false;
    i64 deadline_ms = item_deadline(item);
    bool live = alive(deadline_ms, e->now_ms);
    map_table_change(t, item, hash, value, live && keep_deadline ? deadline_ms : 0);
    if (deadline_ms) mem_map_file(e, ref, t);
    return !live;
}

static bool mem_map_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep_deadline)
{
    struct map_table *t = mem_map_table(ref->entry);
    bool added;
    mem_keep(e, ref);
    if (!t) {
        if (map_small_put(e, ref, field, value, &added)) return added;
        t = mem_map_to_table(e, ref);
        t->hashtable = true;
    }
    return mem_map_put_in_table(e, ref, t, field, value, keep_deadline);
}

static bool mem_map_del(struct engine *e, struct key_ref *ref, bytes field)
{
    struct map_table *t = mem_map_table(ref->entry);
    mem_keep(e, ref);
    if (!t) return map_small_del(e, ref, field);
    void *item = live_item(e, t, field);
    if (!item) return false;
    bool had_deadline = item_deadline(item);
    map_table_remove(t, item);
    if (had_deadline) mem_map_file(e, ref, t);
    return true;
}

static u32 mem_map_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    u32 stride = map_stride(ref), done = 0;
    if (n == 0) return 0;
    mem_keep(e, ref);
    if (mem_map_stored(ref->entry) == 0 && !mem_map_table(ref->entry)) {
        done = map_small_fill(e, ref, v, n);
        if (done != UINT32_MAX) return done;
        done = 0;
    }
    while (done < n) {
        u32 some = MIN(n - done, MEM_FILL_TOGETHER * stride);
        const struct map_table *t = mem_map_table(ref->entry);
        if (t) mem_fetch_places(&t->items, v + done, some, stride);
        u32 added = map_fill_each(e, ref, v + done, some);
        done += added;
        if (added < some) break;
    }
    return done;
}

/* The layout of an iterator's state. */
struct walk {
    struct map_small_walk small;
    union {
        struct table_iter big;
        char digits[2][NUM_I64_LEN]; /* of the last integers, if it.passing */
    };
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct map_iter *)0)->state), "iterator fits");

static void mem_map_iter(struct engine *e, struct key_ref *ref, struct map_iter *it)
{
    it->eng = e;
    it->ref = ref;
    it->passing = false;
    struct walk *w = (struct walk *)it->state;
    if (mem_map_table(ref->entry)) w->big = (struct table_iter){0};
    else map_small_start(ref->entry, &w->small);
}

static bool mem_map_next(struct map_iter *it, bytes *field, bytes *value)
{
    const struct map_table *t = mem_map_table(it->ref->entry);
    struct walk *w = (struct walk *)it->state;
    if (!t) return map_small_next(it->eng, it->ref, &w->small, field, value, it->passing ? w->digits : NULL);
    for (void *item; (item = table_next(&t->items, &w->big));) {
        if (!alive(item_deadline(item), it->eng->now_ms)) continue;
        *field = item_field(item);
        if (value) *value = item_value(item);
        return true;
    }
    return false;
}

struct map_scan {
    struct engine *e;
    pair_fn fn;
    void *arg;
    u32 seen;
};

static void mem_map_scan_item(void *arg, void *item)
{
    struct map_scan *s = arg;
    if (!alive(item_deadline(item), s->e->now_ms)) return;
    s->seen++;
    s->fn(s->arg, item_field(item), item_value(item), 0);
}

static u64 mem_map_scan(struct engine *e, struct key_ref *ref, u64 cursor, u32 count, pair_fn fn, void *arg)
{
    const struct map_table *t = mem_map_table(ref->entry);
    if (!t) {
        struct map_iter it;
        bytes f, v;
        mem_map_iter(e, ref, &it);
        while (mem_map_next(&it, &f, &v)) fn(arg, f, v, 0);
        return 0;
    }
    struct map_scan s = {e, fn, arg, 0};
    u64 steps = (u64)count * 10;
    do cursor = table_scan(&t->items, cursor, mem_map_scan_item, &s);
    while (cursor && s.seen < count && --steps);
    return cursor;
}

static bool mem_map_random(struct engine *e, struct key_ref *ref, u64 *rng, bytes *field, bytes *value)
{
    const struct map_table *t = mem_map_table(ref->entry);
    if (mem_map_count(ref->entry, e->now_ms) == 0) return false;
    if (!t) {
        map_small_random(e, ref, rng, field, value);
        return true;
    }
    void *item = table_random(&t->items, rng);
    for (int tries = 0; tries < 100 && !alive(item_deadline(item), e->now_ms); tries++)
        item = table_random(&t->items, rng);
    if (!alive(item_deadline(item), e->now_ms)) {
        /* Nearly all fields are dead: search for a live one. */
        struct map_iter it;
        mem_map_iter(e, ref, &it);
        return mem_map_next(&it, field, value);
    }
    *field = item_field(item);
    if (value) *value = item_value(item);
    return true;
}

static bool mem_map_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    const struct map_table *t = mem_map_table(ref->entry);
    *deadline_ms = 0;
    if (!t) return map_small_get(e, ref, field, NULL);
    void *item = live_item(e, t, field);
    if (item) *deadline_ms = item_deadline(item);
    return item != NULL;
}

static void mem_map_set_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    struct map_table *t = mem_map_table(ref->entry);
    mem_keep(e, ref);
    if (!t && deadline_ms) t = mem_map_to_table(e, ref);
    if (!t) return;
    void *item = live_item(e, t, field);
    if (!item) return;
    map_table_change(t, item, table_hash(&t->items, field), item_value(item), deadline_ms);
    mem_map_file(e, ref, t);
}

static void reap_item(struct map_table *t, void *item, pair_fn fn, void *arg)
{
    if (fn) fn(arg, item_field(item), item_value(item), (double)item_deadline(item));
    map_table_remove(t, item);
}

static u32 mem_map_reap(struct engine *e, struct key_ref *ref, u32 max, pair_fn fn, void *arg)
{
    struct map_table *t = mem_map_table(ref->entry);
    struct ztree_pos first;
    u32 n = 0;
    mem_keep(e, ref);
    while (n < max && t && t->field_due && ztree_at(t->field_due, 0, &first)) {
        void *item = ztree_item(&first);
        if (alive(item_deadline(item), e->now_ms)) break;
        reap_item(t, item, fn, arg);
        n++;
    }
    mem_map_file(e, ref, t);
    return n;
}

static bool mem_map_reap_field(struct engine *e, struct key_ref *ref, bytes field, pair_fn fn, void *arg)
{
    struct map_table *t = mem_map_table(ref->entry);
    if (LIKELY(!t || !t->field_due)) return false;
    mem_keep(e, ref);
    void *item = map_table_find(t, field, table_hash(&t->items, field));
    if (!item || alive(item_deadline(item), e->now_ms)) return false;
    reap_item(t, item, fn, arg);
    mem_map_file(e, ref, t);
    return true;
}

static u64 mem_map_dead_fields(struct engine *e, struct key_ref *ref)
{
    const struct map_table *t = mem_map_table(ref->entry);
    return t ? map_table_dead(t, e->now_ms) : 0;
}

static bool mem_map_has_field_deadlines(struct engine *e UNUSED, struct key_ref *ref)
{
    const struct map_table *t = mem_map_table(ref->entry);
    return t && t->field_due;
}

const struct map_ops mem_map_ops = {
    .get = mem_map_get,
    .put = mem_map_put,
    .fill = mem_map_fill,
    .del = mem_map_del,
    .iter = mem_map_iter,
    .next = mem_map_next,
    .scan = mem_map_scan,
    .random = mem_map_random,
    .field_deadline = mem_map_field_deadline,
    .set_field_deadline = mem_map_set_field_deadline,
    .reap = mem_map_reap,
    .reap_field = mem_map_reap_field,
    .has_field_deadlines = mem_map_has_field_deadlines,
    .dead_fields = mem_map_dead_fields,
};
