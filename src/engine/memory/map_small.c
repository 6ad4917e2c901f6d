#include "engine/memory/map_small.h"

#include "base/num.h"
#include "base/rand.h"
#include "ds/intset.h"
#include "engine/memory/map_timed.h"

static bool small_is_set(const struct key_ref *ref) { return entry_type(ref->entry) == TYPE_SET; }

bool map_small_fits(const struct engine *e, bool of_set, u64 count, bytes field, bytes value)
{
    if (of_set)
        return (i64)count <= e->limits.set_max_listpack_entries &&
               (i64)field.n <= e->limits.set_max_listpack_value;
    return (i64)count <= e->limits.hash_max_listpack_entries &&
           (i64)MAX(field.n, value.n) <= e->limits.hash_max_listpack_value;
}

static struct small map_small_of(const struct entry *entry)
{
    return UNLIKELY(entry_is_timed(entry)) ? map_timed_of(entry) : small_of(entry);
}

u32 map_small_count(const struct entry *entry)
{
    return entry_is_ints(entry) ? intset_count(entry_inline(entry)) : map_small_of(entry).count;
}

/* -- integers ------------------------------------------------------------------------------------ */

static bool ints_have(const struct entry *entry, bytes member)
{
    u32 at;
    i64 number;
    return num_parse_i64(member, &number) && intset_find(entry_inline(entry), number, &at);
}

static void ints_insert(struct engine *e, struct key_ref *ref, u32 at, i64 number)
{
    bytes s = entry_inline(ref->entry);
    u32 count = intset_count(s), old = intset_log(s), log = MAX(old, intset_log_of(number));
    size_t n = INTSET_HEAD + ((size_t)(count + 1) << log), place = INTSET_HEAD + ((size_t)at << log);
    char *p;
    if (s.n == 0 || log != old) {
        p = mem_splice(e, ref, s.n, 0, n - s.n) - s.n;
        if (s.n == 0) p[0] = 0;
        intset_widen(p, count, log);
        memmove(p + place + (1u << log), p + place, (size_t)(count - at) << log);
    } else {
        p = mem_splice(e, ref, place, 0, 1u << log) - place;
    }
    intset_write(p, log, at, number);
}

static bool ints_del(struct engine *e, struct key_ref *ref, bytes member)
{
    bytes s = entry_inline(ref->entry);
    u32 at, log = intset_log(s);
    i64 number;
    if (!num_parse_i64(member, &number) || !intset_find(s, number, &at)) return false;
    mem_splice(e, ref, INTSET_HEAD + ((size_t)at << log), 1u << log, 0);
    return true;
}

/* The integers become items. */
COLD static void ints_to_items(struct engine *e, struct key_ref *ref)
{
    bytes s = entry_inline(ref->entry);
    u32 count = intset_count(s);
    char digits[NUM_I64_LEN], *items = mem_alloc(count * (size_t)NUM_I64_LEN), *end = items;
    for (u32 i = 0; i < count; i++) {
        struct compact_item it;
        compact_item_text(&it, bytes_of(digits, num_print_i64(digits, intset_at(s, i))));
        end = compact_write(end, &it, NULL);
    }
    u32 n = (u32)(end - items);
    memcpy(small_replace(e, ref, count, n), items, n);
    mem_free(items);
}

/* Adds a member to integers. False: it can't be one of them; what had to become items has. */
static bool ints_put(struct engine *e, struct key_ref *ref, bytes member, bool *added)
{
    bytes s = entry_inline(ref->entry);
    u32 at, count = intset_count(s);
    i64 number;
    bool is_int = num_parse_i64(member, &number);
    *added = false;
    if (is_int && intset_find(s, number, &at)) return true;
    if (is_int && count < e->limits.set_max_intset_entries) {
        ints_insert(e, ref, at, number);
        return *added = true;
    }
    /* Too many integers become a table directly, as in Redis. */
    if (!is_int && map_small_fits(e, true, count + 1u, member, (bytes){"", 0})) ints_to_items(e, ref);
    return false;
}

/* Writes integers that are in order; false: they are not. */
static bool ints_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    i64 number, last = 0;
    u32 log = 0;
    if (n > e->limits.set_max_intset_entries) return false;
    for (u32 i = 0; i < n; i++, last = number) {
        if (!num_parse_i64(v[i], &number) || (i > 0 && number <= last)) return false;
        log = MAX(log, intset_log_of(number));
    }
    char *p = mem_splice(e, ref, 0, 0, INTSET_HEAD + ((size_t)n << log));
    p[0] = (char)log;
    for (u32 i = 0; i < n && num_parse_i64(v[i], &number); i++) intset_write(p, log, i, number);
    return true;
}

/* -- elements ------------------------------------------------------------------------------------ */

static const char *map_small_find(const struct small *s, bool pairs, bytes field)
{
    struct compact_item it;
    compact_item_text(&it, field);
    return compact_find(s->p, small_end(s), pairs, &it);
}

bool map_small_get(struct engine *e, struct key_ref *ref, bytes field, bytes *value)
{
    const struct entry *entry = ref->entry;
    bool set = small_is_set(ref);
    if (set && value) *value = (bytes){"", 0};
    if (UNLIKELY(entry_form(entry) != FORM_INLINE))
        return set ? ints_have(entry, field) : map_timed_get(e, ref, field, value);
    struct small s = small_of(entry);
    const char *at = map_small_find(&s, !set, field);
    if (!at || set || !value) return at != NULL;
    struct compact_slot name, slot;
    compact_read_pair(at, &name, &slot);
    *value = small_text(e, &slot);
    return true;
}

bool map_small_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool *added)
{
    bool set = small_is_set(ref);
    if (set && entry_is_ints(ref->entry)) {
        if (ints_put(e, ref, field, added)) return true;
        if (entry_is_ints(ref->entry)) return false;
    }
    struct small s = small_of(ref->entry);
    /* cppcheck-suppress uninitvar ; only its address is taken here */
    struct compact_item name, item, *second = set ? NULL : &item;
    compact_item_text(&name, field);
    const char *at = compact_find(s.p, small_end(&s), !set, &name);
    *added = !at;
    if (at && set) return true;
    if (!map_small_fits(e, set, s.count + !at, field, value) ||
        (u64)s.bytes + field.n + value.n >= SMALL_SAFE)
        return false;
    if (!set) compact_item_text(&item, value);
    u32 old = at ? (u32)(compact_next(at, true) - at) : 0, need = compact_need(&name, second);
    u32 offset = at ? small_offset(&s, at) : s.bytes;
    char *to = old == need ? (char *)at : small_splice(e, ref, offset, old, need, !at);
    compact_write(to, &name, second);
    return true;
}

bool map_small_del(struct engine *e, struct key_ref *ref, bytes field)
{
    bool set = small_is_set(ref);
    if (set && entry_is_ints(ref->entry)) return ints_del(e, ref, field);
    struct small s = small_of(ref->entry);
    const char *at = map_small_find(&s, !set, field);
    if (!at) return false;
    small_splice(e, ref, small_offset(&s, at), (u32)(compact_next(at, !set) - at), 0, -1);
    return true;
}

/* -- walks --------------------------------------------------------------------------------------- */

static bytes map_small_text(struct engine *e, const struct compact_slot *slot, char *digits)
{
    return digits ? compact_text(slot, digits) : small_text(e, slot);
}

static const char *map_small_read(struct engine *e, const struct key_ref *ref, const char *at, bytes *field,
                                  bytes *value, char (*digits)[NUM_I64_LEN])
{
    struct compact_slot name, slot;
    bool set = small_is_set(ref);
    at = set ? compact_read(at, &name) : compact_read_pair(at, &name, &slot);
    *field = map_small_text(e, &name, digits ? digits[0] : NULL);
    if (value) *value = set ? (bytes){"", 0} : map_small_text(e, &slot, digits ? digits[1] : NULL);
    return at;
}

static void ints_read(struct engine *e, const struct key_ref *ref, u32 index, bytes *field, bytes *value,
                      char *digits)
{
    if (!digits) digits = arena_alloc(&mem_of(e)->handed_out, NUM_I64_LEN);
    *field = bytes_of(digits, num_print_i64(digits, intset_at(entry_inline(ref->entry), index)));
    if (value) *value = (bytes){"", 0};
}

void map_small_start(const struct entry *entry, struct map_small_walk *w)
{
    *w = (struct map_small_walk){.index = 0};
    if (entry_is_ints(entry)) return;
    struct small s = map_small_of(entry);
    w->at = s.p;
    w->end = small_end(&s); /* of FORM_TIMED: where its deadlines begin */
}

COLD static bool map_small_next_timed(struct engine *e, const struct key_ref *ref, struct map_small_walk *w,
                                      bytes *field, bytes *value, char (*digits)[NUM_I64_LEN])
{
    struct small s = map_timed_of(ref->entry);
    const char *end = small_end(&s) + 8 * (size_t)s.count;
    while (w->deadline != end) {
        i64 deadline_ms;
        memcpy(&deadline_ms, w->deadline, 8);
        w->deadline += 8;
        bool live = alive(deadline_ms, e->now_ms);
        w->at = live ? map_small_read(e, ref, w->at, field, value, digits) : compact_next(w->at, true);
        if (live) return true;
    }
    return false;
}

bool map_small_next(struct engine *e, const struct key_ref *ref, struct map_small_walk *w, bytes *field,
                    bytes *value, char (*digits)[NUM_I64_LEN])
{
    if (!w->end) {
        if (w->index == intset_count(entry_inline(ref->entry))) return false;
        ints_read(e, ref, (u32)w->index++, field, value, digits ? digits[0] : NULL);
        return true;
    }
    if (UNLIKELY(entry_form(ref->entry) == FORM_TIMED))
        return map_small_next_timed(e, ref, w, field, value, digits);
    if (w->at == w->end) return false;
    w->at = map_small_read(e, ref, w->at, field, value, digits);
    return true;
}

static void map_small_random_timed(struct engine *e, const struct key_ref *ref, u64 *rng, bytes *field,
                                   bytes *value)
{
    u32 live = map_small_count(ref->entry) - map_timed_dead(ref->entry, e->now_ms);
    struct map_small_walk w;
    map_small_start(ref->entry, &w);
    for (u64 left = rand_below(rng, live) + 1; left > 0; left--)
        map_small_next_timed(e, ref, &w, field, value, NULL);
}

void map_small_random(struct engine *e, const struct key_ref *ref, u64 *rng, bytes *field, bytes *value)
{
    if (UNLIKELY(entry_is_timed(ref->entry))) {
        map_small_random_timed(e, ref, rng, field, value);
        return;
    }
    u32 index = (u32)rand_below(rng, map_small_count(ref->entry));
    if (entry_is_ints(ref->entry)) {
        ints_read(e, ref, index, field, value, NULL);
        return;
    }
    struct small s = small_of(ref->entry);
    map_small_read(e, ref, compact_skip(s.p, !small_is_set(ref), index), field, value, NULL);
}

/* -- filling ------------------------------------------------------------------------------------- */

static void map_small_items(struct compact_item it[2], const bytes *v, u32 stride)
{
    compact_item_text(&it[0], v[0]);
    if (stride == 2) compact_item_text(&it[1], v[1]);
}

u32 map_small_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    bool set = small_is_set(ref);
    u32 stride = set ? 1 : 2;
    u64 need = 0;
    i64 number;
    if (set && entry_is_ints(ref->entry) && num_parse_i64(v[0], &number))
        return ints_fill(e, ref, v, n) ? n : UINT32_MAX;
    struct compact_item it[2], *second = set ? NULL : &it[1];
    for (u32 i = 0; i < n; i += stride) {
        if (!map_small_fits(e, set, n / stride, v[i], v[i + stride - 1])) return UINT32_MAX;
        map_small_items(it, v + i, stride);
        need += compact_need(&it[0], second);
    }
    if (need >= SMALL_SAFE) return UINT32_MAX;
    u32 twice = mem_find_twice(v, n, stride);
    if (twice < n) return twice;
    char *to = small_replace(e, ref, n / stride, (u32)need);
    for (u32 i = 0; i < n; i += stride) {
        map_small_items(it, v + i, stride);
        to = compact_write(to, &it[0], second);
    }
    return n;
}
