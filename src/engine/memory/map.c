/* Hashes and sets of the memory engine.
 *
 * A set of few integers is a sorted array (Redis's intset, with its order);
 * other small ones are one packed blob, big ones a table of items. An item is
 *
 *   u8 kind · [i64 deadline] · length · field · [length · value]
 *
 * in one allocation rounded up to 16; a set's items have no value part. Fields
 * with a deadline are also in `field_due`, ordered by it, so that the live ones
 * can be counted in O(log n) and the dead ones reaped in O(dead). A hash with a
 * field deadline is always in table form. Dead fields are hidden by the one
 * predicate, and taken out only by reap(). */
#include "base/num.h"
#include "base/rand.h"
#include "engine/memory/mem.h"

#define ITEM_DEADLINE 1
#define ITEM_NO_VALUE 2

/* Our own limits for the packed form of sets, whose encoding names say nothing about it. */
#define SET_PACKED_ENTRIES 128
#define SET_PACKED_VALUE 64

/* -- items ------------------------------------------------------------------- */

static bytes item_field(const void *item)
{
    const char *p = item;
    bytes f;
    f.p = length_read(p + (p[0] & ITEM_DEADLINE ? 9 : 1), &f.n);
    return f;
}

static bytes item_value(const void *item)
{
    if (*(const char *)item & ITEM_NO_VALUE) return (bytes){"", 0};
    bytes f = item_field(item), v;
    v.p = length_read(f.p + f.n, &v.n);
    return v;
}

static i64 item_deadline(const void *item)
{
    const char *p = item;
    i64 d = 0;
    if (p[0] & ITEM_DEADLINE) memcpy(&d, p + 1, 8);
    return d;
}

static size_t item_need(bytes field, const bytes *value, i64 deadline_ms)
{
    return 1u + (deadline_ms ? 8 : 0) + length_size(field.n) + field.n +
           (value ? length_size(value->n) + value->n : 0);
}

static void *item_new(bytes field, const bytes *value, i64 deadline_ms)
{
    char *item = mem_alloc(round16(item_need(field, value, deadline_ms))), *p = item;
    *p++ = (char)((deadline_ms ? ITEM_DEADLINE : 0) | (value ? 0 : ITEM_NO_VALUE));
    if (deadline_ms) {
        memcpy(p, &deadline_ms, 8);
        p += 8;
    }
    p = slice_write(p, field);
    if (value) slice_write(p, *value);
    return item;
}

static size_t item_size(const void *item)
{
    bytes v = item_value(item);
    bool has_value = !(*(const char *)item & ITEM_NO_VALUE);
    return round16(item_need(item_field(item), has_value ? &v : NULL, item_deadline(item)));
}

/* -- the struct ---------------------------------------------------------------- */

static struct mem_map *map_of(const struct key_ref *ref) { return entry_object(ref->entry); }
static u32 stride(const struct mem_map *m) { return m->is_set ? 1 : 2; }

struct mem_map *mem_map_new(struct mem_engine *eng, bool is_set)
{
    struct mem_map *m = mem_zalloc(sizeof *m);
    if (!is_set) m->small = packed_new();
    m->is_set = is_set;
    m->all_ints = is_set;
    table_init(&m->big, item_field, eng->seed);
    return m;
}

static void free_item(void *arg UNUSED, void *item) { mem_free(item); }

bool mem_map_free_some(struct mem_map *m, u32 units)
{
    intset_release(&m->ints);
    packed_free(m->small);
    m->small = NULL;
    if (m->field_due) {
        if (!ztree_release_some(m->field_due, units, NULL, NULL)) return false;
        mem_free(m->field_due);
        m->field_due = NULL;
    }
    if (!table_drain(&m->big, units, free_item, NULL)) return false;
    mem_free(m);
    return true;
}

u64 mem_map_stored(struct mem_map *m)
{
    if (m->all_ints) return m->ints.n;
    return m->small ? packed_count(m->small) / stride(m) : m->big.count;
}

static u64 dead_fields(struct mem_map *m, i64 now_ms)
{
    return m->field_due ? ztree_rank_score(m->field_due, (double)now_ms, true) : 0;
}

u64 mem_map_count(struct mem_map *m, i64 now_ms)
{
    return mem_map_stored(m) - dead_fields(m, now_ms);
}

static void due_remove(struct mem_map *m, void *item)
{
    i64 deadline_ms = item_deadline(item);
    if (!deadline_ms) return;
    CHECK(ztree_remove(m->field_due, (double)deadline_ms, item_field(item)));
    if (ztree_count(m->field_due) == 0) {
        ztree_release(m->field_due);
        mem_free(m->field_due);
        m->field_due = NULL;
    }
}

static void due_insert(struct mem_map *m, void *item)
{
    i64 deadline_ms = item_deadline(item);
    if (!deadline_ms) return;
    if (!m->field_due) {
        m->field_due = mem_alloc(sizeof *m->field_due);
        ztree_init(m->field_due, item_field);
    }
    ztree_insert(m->field_due, (double)deadline_ms, item);
}

static void to_table(struct mem_map *m)
{
    packed *p = m->small;
    m->small = NULL;
    for (u32 at = packed_first(p); at != PACKED_END; at = packed_next(p, at)) {
        bytes field = packed_get(p, at), value = {"", 0};
        if (!m->is_set) {
            at = packed_next(p, at);
            value = packed_get(p, at);
        }
        table_insert(&m->big, table_hash(&m->big, field), item_new(field, m->is_set ? NULL : &value, 0));
    }
    packed_free(p);
}

struct mem_map *mem_map_copy(struct mem_engine *eng, struct mem_map *from)
{
    struct mem_map *m = mem_map_new(eng, from->is_set);
    m->all_ints = from->all_ints;
    m->was_big = from->was_big;
    packed_free(m->small);
    m->small = from->small ? packed_copy(from->small) : NULL;
    intset_copy(&m->ints, &from->ints);
    struct table_iter it = {0};
    for (void *item; (item = table_next(&from->big, &it));) {
        bytes v = item_value(item), f = item_field(item);
        i64 deadline_ms = item_deadline(item);
        if (!alive(deadline_ms, eng->base.now_ms)) continue;
        void *twin = item_new(f, m->is_set ? NULL : &v, deadline_ms);
        table_insert(&m->big, table_hash(&m->big, f), twin);
        due_insert(m, twin);
    }
    return m;
}

size_t mem_map_memory(struct mem_map *m, u32 samples)
{
    size_t n = sizeof *m + (m->small ? packed_memory(m->small) : 0) + table_memory(&m->big) +
               mem_size(m->ints.v);
    if (m->field_due) n += sizeof *m->field_due + ztree_memory(m->field_due);
    u64 seen = 0, sum = 0;
    struct table_iter it = {0};
    for (void *item; (samples == 0 || seen < samples) && (item = table_next(&m->big, &it)); seen++)
        sum += item_size(item);
    return n + (seen ? (size_t)((double)sum / (double)seen * (double)m->big.count) : 0);
}

const char *mem_map_encoding(struct engine *e UNUSED, struct mem_map *m)
{
    if (m->is_set) return m->all_ints ? "intset" : "hashtable";
    if (m->was_big) return "hashtable";
    return m->small ? "listpack" : "listpackex";
}

/* -- field deadlines: filing the nearest one -------------------------------------- */

void mem_map_unfile(struct engine *e, u32 db, struct mem_map *m)
{
    if (!m->due_ms) return;
    wheel_drop(&mem_db_of(e, db)->fields, m->due_pos, m->due_ms);
    m->due_ms = 0;
}

void mem_map_file(struct engine *e, struct key_ref *ref, struct mem_map *m)
{
    struct wheel *w = &mem_db_of(e, ref->db)->fields;
    struct ztree_pos first;
    if (!m->field_due || !ztree_at(m->field_due, 0, &first)) {
        mem_map_unfile(e, ref->db, m);
        return;
    }
    i64 due_ms = (i64)ztree_score(&first);
    if (due_ms == m->due_ms) return;
    m->due_pos = m->due_ms ? wheel_move(w, m->due_pos, ref->hash, m->due_ms, due_ms, e->now_ms)
                           : wheel_add(w, ref->hash, due_ms, e->now_ms);
    m->due_ms = due_ms;
}

/* -- primitives -------------------------------------------------------------------- */

static void *live_item(struct engine *e, struct mem_map *m, bytes field)
{
    void *item = table_find(&m->big, field, table_hash(&m->big, field));
    return item && alive(item_deadline(item), e->now_ms) ? item : NULL;
}

static bool map_get(struct engine *e, struct key_ref *ref, bytes field, bytes *value)
{
    struct mem_map *m = map_of(ref);
    if (m->all_ints) {
        i64 number;
        if (value) *value = (bytes){"", 0};
        return num_parse_i64(field, &number) && intset_has(&m->ints, number);
    }
    if (m->small) {
        u32 at = packed_find(m->small, field, stride(m));
        if (at == PACKED_END) return false;
        if (value) *value = m->is_set ? (bytes){"", 0} : packed_get(m->small, packed_next(m->small, at));
        return true;
    }
    void *item = live_item(e, m, field);
    if (item && value) *value = item_value(item);
    return item != NULL;
}

/* Whether one more field may still be packed; remembers when Redis would say hashtable. */
static bool stays_small(struct engine *e, struct mem_map *m, bytes field, bytes value, bool fresh)
{
    i64 count = (i64)mem_map_stored(m) + fresh;
    if (m->is_set) return count <= SET_PACKED_ENTRIES && field.n <= SET_PACKED_VALUE;
    bool fits = count <= e->limits.hash_max_listpack_entries &&
                (i64)MAX(field.n, value.n) <= e->limits.hash_max_listpack_value &&
                (!m->small || packed_bytes(m->small) + field.n + value.n < PACKED_SAFE);
    if (!fits) m->was_big = true;
    return fits;
}

/* The integers as members of the general forms. */
static void leave_ints(struct mem_map *m)
{
    char digits[NUM_I64_LEN];
    struct intset old = m->ints;
    m->ints = (struct intset){0};
    m->all_ints = false;
    if (old.n <= SET_PACKED_ENTRIES) m->small = packed_new();
    for (u32 i = 0; i < old.n; i++) {
        bytes member = bytes_of(digits, num_print_i64(digits, old.v[i]));
        if (m->small) m->small = packed_insert(m->small, PACKED_END, member);
        else table_insert(&m->big, table_hash(&m->big, member), item_new(member, NULL, 0));
    }
    intset_release(&old);
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

/* Gives an item another value or deadline, in place if it fits. The value may be its own. */
static void *item_change(struct mem_map *m, void *item, u64 hash, bytes value, i64 deadline_ms)
{
    i64 old_ms = item_deadline(item);
    bytes old = item_value(item), field = item_field(item);
    size_t need = item_need(field, &value, deadline_ms);
    if (!old_ms == !deadline_ms && round16(need) == item_size(item) &&
        length_size(old.n) == length_size(value.n)) {
        if (old_ms != deadline_ms) {
            due_remove(m, item);
            memcpy((char *)item + 1, &deadline_ms, 8);
            due_insert(m, item);
        }
        char *to = length_write((char *)field.p + field.n, value.n);
        if (value.n) memmove(to, value.p, value.n);
        return item;
    }
    void *fresh = item_new(field, &value, deadline_ms);
    due_remove(m, item);
    table_replace(&m->big, hash, item, fresh);
    due_insert(m, fresh);
    mem_free(item);
    return fresh;
}

static bool map_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep_deadline)
{
    struct mem_map *m = map_of(ref);
    if (m->all_ints) {
        i64 number;
        bool is_int = num_parse_i64(field, &number);
        if (is_int && intset_has(&m->ints, number)) return false;
        if (is_int && m->ints.n < e->limits.set_max_intset_entries) return intset_add(&m->ints, number);
        leave_ints(m);
    }
    if (m->small) {
        u32 at = packed_find(m->small, field, stride(m));
        if (m->is_set && at != PACKED_END) return false;
        if (stays_small(e, m, field, value, at == PACKED_END)) return put_small(m, at, field, value);
        to_table(m);
    }
    u64 hash = table_hash(&m->big, field);
    void *item = table_find(&m->big, field, hash);
    if (!item) {
        stays_small(e, m, field, value, true);
        table_insert(&m->big, hash, item_new(field, m->is_set ? NULL : &value, 0));
        return true;
    }
    if (m->is_set) return false;
    stays_small(e, m, field, value, false);
    i64 deadline_ms = item_deadline(item);
    bool live = alive(deadline_ms, e->now_ms);
    item_change(m, item, hash, value, live && keep_deadline ? deadline_ms : 0);
    if (deadline_ms) mem_map_file(e, ref, m);
    return !live;
}

static void item_remove(struct mem_map *m, void *item)
{
    due_remove(m, item);
    table_remove(&m->big, table_hash(&m->big, item_field(item)), item);
    mem_free(item);
}

static bool map_del(struct engine *e, struct key_ref *ref, bytes field)
{
    struct mem_map *m = map_of(ref);
    if (m->all_ints) {
        i64 number;
        return num_parse_i64(field, &number) && intset_remove(&m->ints, number);
    }
    if (m->small) {
        u32 at = packed_find(m->small, field, stride(m));
        if (at == PACKED_END) return false;
        m->small = packed_erase(m->small, at, stride(m));
        return true;
    }
    void *item = live_item(e, m, field);
    if (!item) return false;
    bool had_deadline = item_deadline(item);
    item_remove(m, item);
    if (had_deadline) mem_map_file(e, ref, m);
    return true;
}

/* An integer member as a slice the caller may keep for the transaction. */
static bytes int_member(struct engine *e, i64 number)
{
    char *digits = arena_alloc(&mem_of(e)->handed_out, NUM_I64_LEN);
    return bytes_of(digits, num_print_i64(digits, number));
}

/* What an iterator keeps in its state, which is never read or written as what it is declared. */
struct walk {
    u32 small_at; /* packed position, or index of the next integer */
    struct table_iter big;
};
_Static_assert(sizeof(struct walk) <= sizeof(((struct map_iter *)0)->state), "iterator fits");

static void map_iter(struct engine *e, struct key_ref *ref, struct map_iter *it)
{
    struct mem_map *m = map_of(ref);
    it->eng = e;
    it->ref = ref;
    *(struct walk *)it->state = (struct walk){.small_at = m->small ? packed_first(m->small) : 0};
}

static bool map_next(struct map_iter *it, bytes *field, bytes *value)
{
    struct mem_map *m = map_of(it->ref);
    struct walk *w = (struct walk *)it->state;
    if (m->all_ints) {
        if (w->small_at == m->ints.n) return false;
        *field = int_member(it->eng, m->ints.v[w->small_at++]);
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
    for (void *item; (item = table_next(&m->big, &w->big));) {
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

static void scan_item(void *arg, void *item)
{
    struct map_scan *s = arg;
    if (!alive(item_deadline(item), s->e->now_ms)) return;
    s->seen++;
    s->fn(s->arg, item_field(item), item_value(item), 0);
}

static u64 map_scan(struct engine *e, struct key_ref *ref, u64 cursor, u32 count, pair_fn fn, void *arg)
{
    struct mem_map *m = map_of(ref);
    if (m->small || m->all_ints) {
        struct map_iter it;
        bytes f, v;
        map_iter(e, ref, &it);
        while (map_next(&it, &f, &v)) fn(arg, f, v, 0);
        return 0;
    }
    struct map_scan s = {e, fn, arg, 0};
    u64 steps = (u64)count * 10;
    do cursor = table_scan(&m->big, cursor, scan_item, &s);
    while (cursor && s.seen < count && --steps);
    return cursor;
}

static bool map_random(struct engine *e, struct key_ref *ref, u64 *rng, bytes *field, bytes *value)
{
    struct mem_map *m = map_of(ref);
    u64 n = mem_map_count(m, e->now_ms);
    if (n == 0) return false;
    if (m->all_ints) {
        *field = int_member(e, m->ints.v[rand_below(rng, n)]);
        if (value) *value = (bytes){"", 0};
        return true;
    }
    if (m->small) {
        u32 at = packed_at(m->small, (i64)(rand_below(rng, n) * stride(m)));
        *field = packed_get(m->small, at);
        if (value) *value = m->is_set ? (bytes){"", 0} : packed_get(m->small, packed_next(m->small, at));
        return true;
    }
    void *item = table_random(&m->big, rng);
    for (int tries = 0; tries < 100 && !alive(item_deadline(item), e->now_ms); tries++)
        item = table_random(&m->big, rng);
    if (!alive(item_deadline(item), e->now_ms)) {
        /* Nearly all are dead: walk to a live one. */
        struct map_iter it;
        map_iter(e, ref, &it);
        return map_next(&it, field, value);
    }
    *field = item_field(item);
    if (value) *value = item_value(item);
    return true;
}

static bool map_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    struct mem_map *m = map_of(ref);
    *deadline_ms = 0;
    if (m->small) return packed_find(m->small, field, stride(m)) != PACKED_END;
    void *item = live_item(e, m, field);
    if (item) *deadline_ms = item_deadline(item);
    return item != NULL;
}

static void map_set_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    struct mem_map *m = map_of(ref);
    if (m->small && deadline_ms) to_table(m);
    if (m->small) return;
    void *item = live_item(e, m, field);
    if (!item) return;
    item_change(m, item, table_hash(&m->big, field), item_value(item), deadline_ms);
    mem_map_file(e, ref, m);
}

static u32 map_reap(struct engine *e, struct key_ref *ref, u32 max, pair_fn fn, void *arg)
{
    struct mem_map *m = map_of(ref);
    struct ztree_pos first;
    u32 n = 0;
    while (n < max && m->field_due && ztree_at(m->field_due, 0, &first)) {
        void *item = ztree_item(&first);
        if (alive(item_deadline(item), e->now_ms)) break;
        if (fn) fn(arg, item_field(item), item_value(item), (double)item_deadline(item));
        item_remove(m, item);
        n++;
    }
    mem_map_file(e, ref, m);
    return n;
}

static u64 map_dead_fields(struct engine *e, struct key_ref *ref) { return dead_fields(map_of(ref), e->now_ms); }

static bool map_has_field_deadlines(struct engine *e UNUSED, struct key_ref *ref)
{
    return map_of(ref)->field_due != NULL;
}

const struct map_ops mem_map_ops = {
    .get = map_get, .put = map_put, .del = map_del, .iter = map_iter, .next = map_next,
    .scan = map_scan, .random = map_random, .field_deadline = map_field_deadline,
    .set_field_deadline = map_set_field_deadline, .reap = map_reap,
    .has_field_deadlines = map_has_field_deadlines, .dead_fields = map_dead_fields,
};
