/* Hashes and sets of the memory engine.
 *
 * Small ones are in their entry (map_small.c, with field deadlines map_timed.c), others in table form
 * (map_table.h). Dead fields are hidden by alive(), and removed only by reap(). */
#include "base/rand.h"
#include "engine/fill.h"
#include "engine/memory/map_small.h"
#include "engine/memory/map_timed.h"

u64 mem_map_stored(const struct entry *entry)
{
    const struct map_table *t = mem_map_table(entry);
    return t ? t->items.count : map_small_count(entry);
}

u64 mem_map_count(const struct entry *entry, i64 now_ms)
{
    const struct map_table *t = mem_map_table(entry);
    if (t) return t->items.count - map_table_dead(t, now_ms);
    return map_small_count(entry) - (entry_is_timed(entry) ? map_timed_dead(entry, now_ms) : 0);
}

const char *mem_map_encoding(const struct entry *entry)
{
    const struct map_table *t = mem_map_table(entry);
    if (!t && entry_is_timed(entry)) return "listpackex";
    if (!t) return entry_is_ints(entry) ? "intset" : "listpack";
    return t->hashtable || entry_type(entry) == TYPE_SET ? "hashtable" : "listpackex";
}

/* The elements move from the entry to a table. */
COLD static struct map_table *mem_map_to_table(struct engine *e, struct key_ref *ref)
{
    struct map_table *t = map_table_new(mem_of(e)->seed);
    if (entry_is_timed(ref->entry)) {
        struct map_filing filing = mem_map_filing(ref->entry);
        map_timed_to_table(ref->entry, t);
        mem_set_object(e, ref, t);
        mem_map_set_filing(ref->entry, filing);
        return t;
    }
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

struct map_filing mem_map_filing(const struct entry *entry)
{
    const struct map_table *t = mem_map_table(entry);
    struct map_filing f = {0};
    if (t) return (struct map_filing){t->due_ms, t->due_pos};
    if (!entry_is_timed(entry)) return f;
    const char *p = entry_inline(entry).p;
    memcpy(&f.pos, p, sizeof f.pos);
    memcpy(&f.due_ms, p + sizeof f.pos, sizeof f.due_ms);
    return f;
}

void mem_map_set_filing(struct entry *entry, struct map_filing f)
{
    struct map_table *t = mem_map_table(entry);
    if (t) {
        t->due_ms = f.due_ms;
        t->due_pos = f.pos;
    } else if (entry_is_timed(entry)) {
        char *p = (char *)entry_inline(entry).p;
        memcpy(p, &f.pos, sizeof f.pos);
        memcpy(p + sizeof f.pos, &f.due_ms, sizeof f.due_ms);
    }
}

void mem_map_unfile(struct engine *e, u32 db, struct entry *entry)
{
    struct map_filing f = mem_map_filing(entry);
    if (!f.due_ms) return;
    wheel_drop(&mem_db_of(e, db)->fields, f.pos, f.due_ms);
    mem_map_set_filing(entry, (struct map_filing){0});
}

void mem_map_postpone(struct engine *e, struct key_ref *ref, i64 until_ms)
{
    struct wheel *w = &mem_db_of(e, ref->db)->fields;
    struct mem_engine *m = mem_of(e);
    struct map_filing f = mem_map_filing(ref->entry);
    if (until_ms == f.due_ms) return;
    f.pos = f.due_ms ? wheel_move(w, f.pos, ref->hash, f.due_ms, until_ms, m->clock_ms)
                     : mem_file_deadline(m, ref->db, w, ref->hash, until_ms);
    f.due_ms = until_ms;
    mem_map_set_filing(ref->entry, f);
}

static i64 mem_map_nearest(const struct entry *entry) /* deadline; 0: none */
{
    const struct map_table *t = mem_map_table(entry);
    struct ztree_pos first;
    if (!t) return entry_is_timed(entry) ? map_timed_nearest(entry) : 0;
    return t->field_due && ztree_at(t->field_due, 0, &first) ? (i64)ztree_score(&first) : 0;
}

void mem_map_file(struct engine *e, struct key_ref *ref)
{
    i64 due_ms = mem_map_nearest(ref->entry);
    if (due_ms) mem_map_postpone(e, ref, due_ms);
    else mem_map_unfile(e, ref->db, ref->entry);
}

struct entry *mem_map_copied(struct entry *fresh, i64 now_ms)
{
    return entry_is_timed(fresh) ? map_timed_copied(fresh, now_ms) : fresh;
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
    if (deadline_ms) mem_map_file(e, ref);
    return !live;
}

static bool mem_map_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep_deadline)
{
    struct map_table *t = mem_map_table(ref->entry);
    bool added;
    mem_keep(e, ref);
    if (!t && UNLIKELY(entry_is_timed(ref->entry))) {
        if (map_timed_put(e, ref, field, value, keep_deadline, &added)) {
            mem_map_file(e, ref);
            return added;
        }
        t = mem_map_to_table(e, ref); /* which may still be called listpackex: TIMED_MAX */
    } else if (!t) {
        if (map_small_put(e, ref, field, value, &added)) return added;
        t = mem_map_to_table(e, ref);
        t->hashtable = true;
    }
    return mem_map_put_in_table(e, ref, t, field, value, keep_deadline);
}

static bool mem_map_del_timed(struct engine *e, struct key_ref *ref, bytes field)
{
    struct small s = map_timed_of(ref->entry);
    const char *at = map_timed_find(&s, field);
    if (!at || !map_timed_alive(e, &s, at)) return false;
    map_timed_remove(e, ref, at);
    mem_map_file(e, ref);
    return true;
}

static bool mem_map_del(struct engine *e, struct key_ref *ref, bytes field)
{
    struct map_table *t = mem_map_table(ref->entry);
    mem_keep(e, ref);
    if (!t && UNLIKELY(entry_is_timed(ref->entry))) return mem_map_del_timed(e, ref, field);
    if (!t) return map_small_del(e, ref, field);
    void *item = live_item(e, t, field);
    if (!item) return false;
    bool had_deadline = item_deadline(item);
    map_table_remove(t, item);
    if (had_deadline) mem_map_file(e, ref);
    return true;
}

static u32 mem_map_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    u32 stride = map_stride(ref), done = 0;
    if (n == 0) return 0;
    mem_keep(e, ref);
    if (mem_map_stored(ref->entry) == 0 && !mem_map_table(ref->entry) && !entry_is_timed(ref->entry)) {
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

static bool map_small_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    if (!entry_is_timed(ref->entry)) return map_small_get(e, ref, field, NULL);
    struct small s = map_timed_of(ref->entry);
    const char *at = map_timed_find(&s, field);
    if (!at || !map_timed_alive(e, &s, at)) return false;
    *deadline_ms = map_timed_deadline_at(&s, at);
    return true;
}

static bool mem_map_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    const struct map_table *t = mem_map_table(ref->entry);
    *deadline_ms = 0;
    if (!t) return map_small_deadline(e, ref, field, deadline_ms);
    void *item = live_item(e, t, field);
    if (item) *deadline_ms = item_deadline(item);
    return item != NULL;
}

/* Of a hash in its entry. */
static void mem_map_set_small_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    struct small s = map_timed_of(ref->entry);
    const char *at = map_timed_find(&s, field);
    if (!at || !map_timed_alive(e, &s, at)) return;
    map_timed_set_deadline(ref, at, deadline_ms);
    mem_map_file(e, ref);
}

static void mem_map_set_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    struct map_table *t = mem_map_table(ref->entry);
    mem_keep(e, ref);
    if (!t && !entry_is_timed(ref->entry)) {
        if (!deadline_ms || !map_small_get(e, ref, field, NULL)) return;
        if (!map_timed_begin(e, ref)) t = mem_map_to_table(e, ref);
    }
    if (!t) {
        mem_map_set_small_deadline(e, ref, field, deadline_ms);
        return;
    }
    void *item = live_item(e, t, field);
    if (!item) return;
    map_table_change(t, item, table_hash(&t->items, field), item_value(item), deadline_ms);
    mem_map_file(e, ref);
}

static bool mem_map_stored_field(struct engine *e, struct key_ref *ref, bytes field, bytes *value,
                                 i64 *deadline_ms)
{
    const struct map_table *t = mem_map_table(ref->entry);
    *deadline_ms = 0;
    if (!t && UNLIKELY(entry_is_timed(ref->entry)))
        return map_timed_stored(e, ref, field, value, deadline_ms);
    if (!t) return map_small_get(e, ref, field, value);
    void *item = map_table_find(t, field, table_hash(&t->items, field));
    if (!item) return false;
    *value = item_value(item);
    *deadline_ms = item_deadline(item);
    return true;
}

static u32 mem_map_due(struct engine *e UNUSED, struct key_ref *ref, i64 until_ms, u32 max, pair_fn fn,
                       void *arg)
{
    const struct map_table *t = mem_map_table(ref->entry);
    struct ztree_pos at;
    u32 n = 0;
    if (!t) return entry_is_timed(ref->entry) ? map_timed_due(ref->entry, until_ms, max, fn, arg) : 0;
    for (; n < max && t->field_due && ztree_at(t->field_due, n, &at); n++) {
        void *item = ztree_item(&at);
        if (alive(item_deadline(item), until_ms)) break;
        fn(arg, item_field(item), (bytes){0}, (double)item_deadline(item));
    }
    return n;
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
    if (!t && entry_is_timed(ref->entry)) n = map_timed_reap(e, ref, max, fn, arg);
    while (n < max && t && t->field_due && ztree_at(t->field_due, 0, &first)) {
        void *item = ztree_item(&first);
        if (alive(item_deadline(item), e->now_ms)) break;
        reap_item(t, item, fn, arg);
        n++;
    }
    mem_map_file(e, ref);
    return n;
}

static bool mem_map_reap_field(struct engine *e, struct key_ref *ref, bytes field, pair_fn fn, void *arg)
{
    struct map_table *t = mem_map_table(ref->entry);
    if (!t && UNLIKELY(entry_is_timed(ref->entry))) {
        mem_keep(e, ref);
        bool dead = map_timed_reap_field(e, ref, field, fn, arg);
        if (dead) mem_map_file(e, ref);
        return dead;
    }
    if (LIKELY(!t || !t->field_due)) return false;
    mem_keep(e, ref);
    void *item = map_table_find(t, field, table_hash(&t->items, field));
    if (!item || alive(item_deadline(item), e->now_ms)) return false;
    reap_item(t, item, fn, arg);
    mem_map_file(e, ref);
    return true;
}

static u64 mem_map_dead_fields(struct engine *e, struct key_ref *ref)
{
    const struct map_table *t = mem_map_table(ref->entry);
    if (t) return map_table_dead(t, e->now_ms);
    return entry_is_timed(ref->entry) ? map_timed_dead(ref->entry, e->now_ms) : 0;
}

static bool mem_map_has_field_deadlines(struct engine *e UNUSED, struct key_ref *ref)
{
    const struct map_table *t = mem_map_table(ref->entry);
    return t ? t->field_due != NULL : entry_is_timed(ref->entry) && map_timed_nearest(ref->entry);
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
    .stored = mem_map_stored_field,
    .reap = mem_map_reap,
    .reap_field = mem_map_reap_field,
    .due = mem_map_due,
    .has_field_deadlines = mem_map_has_field_deadlines,
    .dead_fields = mem_map_dead_fields,
};
