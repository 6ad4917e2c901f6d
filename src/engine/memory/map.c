/* Hashes and sets of the memory engine.
 *
 * A set of few integers is a sorted array (Redis's intset, with its order); other small ones are one
 * packed blob, big ones a table (map_table.h). A hash with a field deadline is always in table form.
 * Dead fields are hidden by alive(), and removed only by reap(). */
#include "base/num.h"
#include "base/rand.h"
#include "engine/memory/mem.h"

/* -- the struct ---------------------------------------------------------------- */

static struct mem_map *map_of(const struct key_ref *ref) { return entry_object(ref->entry); }
static u32 mem_map_stride(const struct mem_map *m) { return m->is_set ? 1 : 2; }

struct mem_map *mem_map_new(struct mem_engine *eng UNUSED, bool is_set)
{
    struct mem_map *m = mem_alloc(sizeof *m);
    *m = (struct mem_map){.small = is_set ? NULL : packed_new(), .is_set = is_set, .all_ints = is_set};
    return m;
}

bool mem_map_free_some(struct mem_map *m, u32 units)
{
    intset_free(m->ints);
    m->ints = NULL;
    packed_free(m->small);
    m->small = NULL;
    if (m->big && !map_table_free_some(m->big, units)) return false;
    mem_free(m);
    return true;
}

u64 mem_map_stored(struct mem_map *m)
{
    if (m->all_ints) return intset_count(m->ints);
    return m->small ? packed_count(m->small) / mem_map_stride(m) : m->big->items.count;
}

static u64 dead_fields(struct mem_map *m, i64 now_ms) { return m->big ? map_table_dead(m->big, now_ms) : 0; }

u64 mem_map_count(struct mem_map *m, i64 now_ms)
{
    return mem_map_stored(m) - dead_fields(m, now_ms);
}

static void mem_map_add_big(struct mem_map *m, bytes field, bytes value)
{
    map_table_add(m->big, table_hash(&m->big->items, field), field, m->is_set ? NULL : &value, 0);
}

static void mem_map_to_table(struct mem_engine *eng, struct mem_map *m)
{
    packed *p = m->small;
    m->small = NULL;
    m->big = map_table_new(eng->seed);
    for (u32 at = packed_first(p); at != PACKED_END; at = packed_next(p, at)) {
        bytes field = packed_get(p, at), value = {"", 0};
        if (!m->is_set) {
            at = packed_next(p, at);
            value = packed_get(p, at);
        }
        mem_map_add_big(m, field, value);
    }
    packed_free(p);
}

struct mem_map *mem_map_copy(struct mem_engine *eng, struct mem_map *from)
{
    struct mem_map *m = mem_alloc(sizeof *m);
    *m = *from;
    m->ints = intset_copy(from->ints);
    m->small = from->small ? packed_copy(from->small) : NULL;
    m->big = from->big ? map_table_copy(from->big, eng->base.now_ms) : NULL;
    return m;
}

size_t mem_map_memory(struct mem_map *m, u32 samples)
{
    return sizeof *m + mem_size(m->ints) + (m->small ? packed_memory(m->small) : 0) +
           (m->big ? map_table_memory(m->big, samples) : 0);
}

const char *mem_map_encoding(struct engine *e UNUSED, struct mem_map *m)
{
    if (m->is_set && m->all_ints) return "intset";
    if (m->is_set) return m->small ? "listpack" : "hashtable";
    if (m->was_big) return "hashtable";
    return m->small ? "listpack" : "listpackex";
}

/* -- field deadlines: filing the nearest one -------------------------------------- */

void mem_map_unfile(struct engine *e, u32 db, struct mem_map *m)
{
    struct map_table *t = m->big;
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

void mem_map_file(struct engine *e, struct key_ref *ref, struct mem_map *m)
{
    struct map_table *t = m->big;
    struct ztree_pos first;
    if (!t || !t->field_due || !ztree_at(t->field_due, 0, &first)) {
        mem_map_unfile(e, ref->db, m);
        return;
    }
    file_at(e, ref, t, (i64)ztree_score(&first));
}

void mem_map_postpone(struct engine *e, struct key_ref *ref, struct mem_map *m, i64 until_ms)
{
    file_at(e, ref, m->big, until_ms);
}

/* -- primitives -------------------------------------------------------------------- */

static void *live_item(struct engine *e, struct mem_map *m, bytes field)
{
    void *item = map_table_find(m->big, field, table_hash(&m->big->items, field));
    return item && alive(item_deadline(item), e->now_ms) ? item : NULL;
}

static bool mem_map_get(struct engine *e, struct key_ref *ref, bytes field, bytes *value)
{
    struct mem_map *m = map_of(ref);
    if (m->all_ints) {
        i64 number;
        if (value) *value = (bytes){"", 0};
        return num_parse_i64(field, &number) && intset_has(m->ints, number);
    }
    if (m->small) {
        u32 at = packed_find(m->small, field, mem_map_stride(m));
        if (at == PACKED_END) return false;
        if (value) *value = m->is_set ? (bytes){"", 0} : packed_get(m->small, packed_next(m->small, at));
        return true;
    }
    void *item = live_item(e, m, field);
    if (item && value) *value = item_value(item);
    return item != NULL;
}

bool mem_map_fits(const struct engine *e, const struct mem_map *m, u64 count, bytes field, bytes value)
{
    if (m->is_set)
        return (i64)count <= e->limits.set_max_listpack_entries &&
               (i64)field.n <= e->limits.set_max_listpack_value;
    return (i64)count <= e->limits.hash_max_listpack_entries &&
           (i64)MAX(field.n, value.n) <= e->limits.hash_max_listpack_value;
}

/* Whether one more field may still be packed; records when Redis would switch to hashtable. */
static bool stays_small(struct engine *e, struct mem_map *m, bytes field, bytes value, bool fresh)
{
    bool fits = mem_map_fits(e, m, mem_map_stored(m) + fresh, field, value) &&
                (!m->small || packed_bytes(m->small) + field.n + value.n < PACKED_SAFE);
    if (!fits && !m->is_set) m->was_big = true;
    return fits;
}

/* Converts a set of integers to a general form. */
static void leave_ints(struct mem_engine *eng, struct mem_map *m, bool packed)
{
    char digits[NUM_I64_LEN];
    struct intset *old = m->ints;
    u32 n = intset_count(old);
    m->ints = NULL;
    m->all_ints = false;
    if (packed) m->small = packed_new();
    else m->big = map_table_new(eng->seed);
    for (u32 i = 0; i < n; i++) {
        bytes member = bytes_of(digits, num_print_i64(digits, old->v[i]));
        if (m->small) m->small = packed_insert(m->small, PACKED_END, member);
        else mem_map_add_big(m, member, (bytes){"", 0});
    }
    intset_free(old);
}

static bool put_small(struct mem_map *m, u32 at, bytes field, bytes value)
{
    if (at != PACKED_END) {
        if (!m->is_set) m->small = packed_replace(m->small, packed_next(m->small, at), value);
        return false;
    }
    m->small = packed_insert(m->small, PACKED_END, field);
    if (!m->is_set) m->small = packed_insert(m->small, PACKED_END, value);
    return true;
}

static bool mem_map_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep_deadline)
{
    struct mem_map *m = map_of(ref);
    mem_keep(e, ref);
    if (m->all_ints) {
        i64 number;
        bool is_int = num_parse_i64(field, &number);
        if (is_int && intset_has(m->ints, number)) return false;
        bool room = intset_count(m->ints) < e->limits.set_max_intset_entries;
        if (is_int && room) return intset_add(&m->ints, number);
        /* Too many integers become a table directly, as in Redis. */
        leave_ints(mem_of(e), m, !is_int && mem_map_fits(e, m, intset_count(m->ints) + 1u, field, value));
    }
    if (m->small) {
        u32 at = packed_find(m->small, field, mem_map_stride(m));
        if (m->is_set && at != PACKED_END) return false;
        if (stays_small(e, m, field, value, at == PACKED_END)) return put_small(m, at, field, value);
        mem_map_to_table(mem_of(e), m);
    }
    u64 hash = table_hash(&m->big->items, field);
    void *item = map_table_find(m->big, field, hash);
    if (!item) {
        stays_small(e, m, field, value, true);
        map_table_add(m->big, hash, field, m->is_set ? NULL : &value, 0);
        return true;
    }
    if (m->is_set) return false;
    stays_small(e, m, field, value, false);
    i64 deadline_ms = item_deadline(item);
    bool live = alive(deadline_ms, e->now_ms);
    map_table_change(m->big, item, hash, value, live && keep_deadline ? deadline_ms : 0);
    if (deadline_ms) mem_map_file(e, ref, m);
    return !live;
}

static bool mem_map_del(struct engine *e, struct key_ref *ref, bytes field)
{
    struct mem_map *m = map_of(ref);
    mem_keep(e, ref);
    if (m->all_ints) {
        i64 number;
        return num_parse_i64(field, &number) && intset_remove(&m->ints, number);
    }
    if (m->small) {
        u32 at = packed_find(m->small, field, mem_map_stride(m));
        if (at == PACKED_END) return false;
        m->small = packed_erase(m->small, at, mem_map_stride(m));
        return true;
    }
    void *item = live_item(e, m, field);
    if (!item) return false;
    bool had_deadline = item_deadline(item);
    map_table_remove(m->big, item);
    if (had_deadline) mem_map_file(e, ref, m);
    return true;
}

/* An integer member as a slice the caller may keep for the transaction. */
static bytes int_member(struct engine *e, i64 number)
{
    char *digits = arena_alloc(&mem_of(e)->handed_out, NUM_I64_LEN);
    return bytes_of(digits, num_print_i64(digits, number));
}

/* The layout of an iterator's state. */
struct walk {
    u32 small_at; /* packed position, or index of the next integer */
    union {
        struct table_iter big;
        char digits[NUM_I64_LEN]; /* of the last integer, if it.passing */
    };
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct map_iter *)0)->state), "iterator fits");

static void mem_map_iter(struct engine *e, struct key_ref *ref, struct map_iter *it)
{
    struct mem_map *m = map_of(ref);
    it->eng = e;
    it->ref = ref;
    it->passing = false;
    *(struct walk *)it->state = (struct walk){.small_at = m->small ? packed_first(m->small) : 0};
}

static bool mem_map_next(struct map_iter *it, bytes *field, bytes *value)
{
    struct mem_map *m = map_of(it->ref);
    struct walk *w = (struct walk *)it->state;
    if (m->all_ints) {
        if (w->small_at == intset_count(m->ints)) return false;
        i64 number = m->ints->v[w->small_at++];
        if (it->passing) *field = bytes_of(w->digits, num_print_i64(w->digits, number));
        else *field = int_member(it->eng, number);
        if (value) *value = (bytes){"", 0};
        return true;
    }
    if (m->small) {
        u32 at = w->small_at;
        if (at == PACKED_END) return false;
        *field = packed_get(m->small, at);
        if (!m->is_set) {
            at = packed_next(m->small, at);
            if (value) *value = packed_get(m->small, at);
        } else if (value) {
            *value = (bytes){"", 0};
        }
        w->small_at = packed_next(m->small, at);
        return true;
    }
    for (void *item; (item = table_next(&m->big->items, &w->big));) {
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
    struct mem_map *m = map_of(ref);
    if (m->small || m->all_ints) {
        struct map_iter it;
        bytes f, v;
        mem_map_iter(e, ref, &it);
        while (mem_map_next(&it, &f, &v)) fn(arg, f, v, 0);
        return 0;
    }
    struct map_scan s = {e, fn, arg, 0};
    u64 steps = (u64)count * 10;
    do cursor = table_scan(&m->big->items, cursor, mem_map_scan_item, &s);
    while (cursor && s.seen < count && --steps);
    return cursor;
}

static bool mem_map_random(struct engine *e, struct key_ref *ref, u64 *rng, bytes *field, bytes *value)
{
    struct mem_map *m = map_of(ref);
    u64 n = mem_map_count(m, e->now_ms);
    if (n == 0) return false;
    if (m->all_ints) {
        *field = int_member(e, m->ints->v[rand_below(rng, n)]);
        if (value) *value = (bytes){"", 0};
        return true;
    }
    if (m->small) {
        u32 at = packed_at(m->small, (i64)(rand_below(rng, n) * mem_map_stride(m)));
        *field = packed_get(m->small, at);
        if (value) *value = m->is_set ? (bytes){"", 0} : packed_get(m->small, packed_next(m->small, at));
        return true;
    }
    void *item = table_random(&m->big->items, rng);
    for (int tries = 0; tries < 100 && !alive(item_deadline(item), e->now_ms); tries++)
        item = table_random(&m->big->items, rng);
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
    struct mem_map *m = map_of(ref);
    *deadline_ms = 0;
    if (m->small) return packed_find(m->small, field, mem_map_stride(m)) != PACKED_END;
    void *item = live_item(e, m, field);
    if (item) *deadline_ms = item_deadline(item);
    return item != NULL;
}

static void mem_map_set_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    struct mem_map *m = map_of(ref);
    mem_keep(e, ref);
    if (m->small && deadline_ms) mem_map_to_table(mem_of(e), m);
    if (m->small) return;
    void *item = live_item(e, m, field);
    if (!item) return;
    map_table_change(m->big, item, table_hash(&m->big->items, field), item_value(item), deadline_ms);
    mem_map_file(e, ref, m);
}

static void reap_item(struct map_table *t, void *item, pair_fn fn, void *arg)
{
    if (fn) fn(arg, item_field(item), item_value(item), (double)item_deadline(item));
    map_table_remove(t, item);
}

static u32 mem_map_reap(struct engine *e, struct key_ref *ref, u32 max, pair_fn fn, void *arg)
{
    struct mem_map *m = map_of(ref);
    struct map_table *t = m->big;
    struct ztree_pos first;
    u32 n = 0;
    mem_keep(e, ref);
    while (n < max && t && t->field_due && ztree_at(t->field_due, 0, &first)) {
        void *item = ztree_item(&first);
        if (alive(item_deadline(item), e->now_ms)) break;
        reap_item(t, item, fn, arg);
        n++;
    }
    mem_map_file(e, ref, m);
    return n;
}

static bool mem_map_reap_field(struct engine *e, struct key_ref *ref, bytes field, pair_fn fn, void *arg)
{
    struct mem_map *m = map_of(ref);
    struct map_table *t = m->big;
    if (LIKELY(!t || !t->field_due)) return false;
    mem_keep(e, ref);
    void *item = map_table_find(t, field, table_hash(&t->items, field));
    if (!item || alive(item_deadline(item), e->now_ms)) return false;
    reap_item(t, item, fn, arg);
    mem_map_file(e, ref, m);
    return true;
}

static u64 mem_map_dead_fields(struct engine *e, struct key_ref *ref)
{
    return dead_fields(map_of(ref), e->now_ms);
}

static bool mem_map_has_field_deadlines(struct engine *e UNUSED, struct key_ref *ref)
{
    const struct mem_map *m = map_of(ref);
    return m->big && m->big->field_due;
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
