#include "engine/memory/map_timed.h"

#include "engine/memory/map_small.h"

/* -- reading ------------------------------------------------------------------------------------- */

static u32 map_timed_index(const struct small *s, const char *at)
{
    u32 index = 0;
    for (const char *p = s->p; p != at; p = compact_next(p, true)) index++;
    return index;
}

i64 map_timed_deadline_at(const struct small *s, const char *at)
{
    return map_timed_deadline(s, map_timed_index(s, at));
}

u32 map_timed_dead(const struct entry *entry, i64 now_ms)
{
    struct small s = map_timed_of(entry);
    u32 dead = 0;
    for (u32 i = 0; i < s.count; i++) dead += !alive(map_timed_deadline(&s, i), now_ms);
    return dead;
}

/* The index of the field with the nearest deadline; count: none has one. */
static u32 map_timed_first(const struct small *s)
{
    u32 first = s->count;
    for (u32 i = 0; i < s->count; i++) {
        i64 deadline_ms = map_timed_deadline(s, i);
        if (deadline_ms && (first == s->count || deadline_ms < map_timed_deadline(s, first))) first = i;
    }
    return first;
}

i64 map_timed_nearest(const struct entry *entry)
{
    struct small s = map_timed_of(entry);
    u32 first = map_timed_first(&s);
    return first < s.count ? map_timed_deadline(&s, first) : 0;
}

const char *map_timed_find(const struct small *s, bytes field)
{
    struct compact_item name;
    compact_item_text(&name, field);
    return compact_find(s->p, small_end(s), true, &name);
}

bool map_timed_stored(struct engine *e, const struct key_ref *ref, bytes field, bytes *value,
                      i64 *deadline_ms)
{
    struct small s = map_timed_of(ref->entry);
    const char *at = map_timed_find(&s, field);
    struct compact_slot name, slot;
    if (!at) return false;
    compact_read_pair(at, &name, &slot);
    *value = small_text(e, &slot);
    *deadline_ms = map_timed_deadline_at(&s, at);
    return true;
}

bool map_timed_get(struct engine *e, const struct key_ref *ref, bytes field, bytes *value)
{
    struct small s = map_timed_of(ref->entry);
    const char *at = map_timed_find(&s, field);
    if (!at || !map_timed_alive(e, &s, at)) return false;
    struct compact_slot name, slot;
    compact_read_pair(at, &name, &slot);
    if (value) *value = small_text(e, &slot);
    return true;
}

/* The index of the nearest deadline after (was_ms, was); count: there is none. */
static u32 map_timed_next(const struct small *s, i64 was_ms, u32 was)
{
    u32 best = s->count;
    for (u32 i = 0; i < s->count; i++) {
        i64 at_ms = map_timed_deadline(s, i);
        bool after = at_ms > was_ms || (at_ms == was_ms && i > was);
        if (at_ms && after && (best == s->count || at_ms < map_timed_deadline(s, best))) best = i;
    }
    return best;
}

u32 map_timed_due(const struct entry *entry, i64 until_ms, u32 max, pair_fn fn, void *arg)
{
    struct small s = map_timed_of(entry);
    struct compact_slot name, slot;
    char digits[NUM_I64_LEN];
    i64 at_ms = 0;
    u32 n = 0;
    for (u32 i = 0; n < max; n++) {
        i = map_timed_next(&s, at_ms, i);
        if (i == s.count || alive(map_timed_deadline(&s, i), until_ms)) break;
        at_ms = map_timed_deadline(&s, i);
        compact_read_pair(compact_skip(s.p, true, i), &name, &slot);
        fn(arg, compact_text(&name, digits), (bytes){0}, (double)at_ms);
    }
    return n;
}

/* -- other forms --------------------------------------------------------------------------------- */

static size_t map_timed_value_size(u32 count, u32 bytes)
{
    size_t n = TIMED_HEAD + length_size(count) + bytes + 8 * (size_t)count;
    return length_size(n) + n;
}

/* Writes everything up to the pairs, not filed; returns where they go. */
static char *map_timed_write_head(char *value, u32 count, u32 bytes)
{
    value = length_write(value, TIMED_HEAD + length_size(count) + bytes + 8 * (size_t)count);
    memset(value, 0, TIMED_HEAD);
    return length_write(value + TIMED_HEAD, count);
}

bool map_timed_begin(struct engine *e, struct key_ref *ref)
{
    struct small s = small_of(ref->entry);
    if (s.count > TIMED_MAX) return false;
    struct entry *fresh = entry_resized(ref->entry, FORM_TIMED, map_timed_value_size(s.count, s.bytes));
    char *to = map_timed_write_head((char *)entry_value(fresh), s.count, s.bytes);
    memcpy(to, s.p, s.bytes);
    memset(to + s.bytes, 0, 8 * (size_t)s.count);
    mem_moved(e, ref, fresh);
    return true;
}

void map_timed_to_table(const struct entry *entry, struct map_table *t)
{
    struct small s = map_timed_of(entry);
    const char *at = s.p;
    for (u32 i = 0; i < s.count; i++) {
        char digits[2][NUM_I64_LEN];
        struct compact_slot name, slot;
        at = compact_read_pair(at, &name, &slot);
        bytes field = compact_text(&name, digits[0]), value = compact_text(&slot, digits[1]);
        map_table_add(t, table_hash(&t->items, field), field, &value, map_timed_deadline(&s, i));
    }
}

struct entry *map_timed_copied(struct entry *fresh, i64 now_ms)
{
    struct small s = map_timed_of(fresh);
    u32 count = s.count - map_timed_dead(fresh, now_ms), bytes = 0;
    const char *at = s.p, *next;
    for (u32 i = 0; i < s.count; i++, at = next) {
        next = compact_next(at, true);
        if (alive(map_timed_deadline(&s, i), now_ms)) bytes += (u32)(next - at);
    }
    struct entry *copy = entry_resized(fresh, FORM_TIMED, map_timed_value_size(count, bytes));
    char *to = map_timed_write_head((char *)entry_value(copy), count, bytes), *deadlines = to + bytes;
    at = s.p;
    for (u32 i = 0; i < s.count; i++, at = next) {
        i64 deadline_ms = map_timed_deadline(&s, i);
        next = compact_next(at, true);
        if (!alive(deadline_ms, now_ms)) continue;
        memcpy(to, at, (size_t)(next - at));
        to += next - at;
        memcpy(deadlines, &deadline_ms, 8);
        deadlines += 8;
    }
    entry_free(fresh);
    return copy;
}

/* -- changing ------------------------------------------------------------------------------------ */

static void map_timed_write_deadline(struct key_ref *ref, u32 index, i64 deadline_ms)
{
    struct small s = map_timed_of(ref->entry);
    memcpy((char *)small_end(&s) + 8 * (size_t)index, &deadline_ms, 8);
}

void map_timed_set_deadline(struct key_ref *ref, const char *at, i64 deadline_ms)
{
    struct small s = map_timed_of(ref->entry);
    map_timed_write_deadline(ref, map_timed_index(&s, at), deadline_ms);
}

/* Deadlines are counted by the number of pairs, so they are added and removed before their pair. */
static void map_timed_add_deadline(struct engine *e, struct key_ref *ref)
{
    memset(mem_splice(e, ref, entry_inline(ref->entry).n, 0, 8), 0, 8);
}

void map_timed_remove(struct engine *e, struct key_ref *ref, const char *at)
{
    struct small s = map_timed_of(ref->entry);
    u32 index = map_timed_index(&s, at), offset = small_offset(&s, at);
    u32 size = (u32)(compact_next(at, true) - at);
    size_t deadline = TIMED_HEAD + length_size(s.count) + s.bytes + 8 * (size_t)index;
    mem_splice(e, ref, deadline, 8, 0);
    small_splice(e, ref, offset, size, 0, -1);
}

bool map_timed_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep, bool *added)
{
    struct small s = map_timed_of(ref->entry);
    struct compact_item name, item;
    compact_item_text(&name, field);
    compact_item_text(&item, value);
    const char *at = compact_find(s.p, small_end(&s), true, &name);
    u32 index = at ? map_timed_index(&s, at) : s.count;
    bool live = at && alive(map_timed_deadline(&s, index), e->now_ms);
    *added = !live;
    if (!map_small_fits(e, false, s.count + !at, field, value) || s.count + !at > TIMED_MAX ||
        (u64)s.bytes + field.n + value.n >= SMALL_SAFE)
        return false;
    u32 old = at ? (u32)(compact_next(at, true) - at) : 0, need = compact_need(&name, &item);
    u32 offset = at ? small_offset(&s, at) : s.bytes;
    if (!at) map_timed_add_deadline(e, ref);
    char *to = old == need ? (char *)at : small_splice(e, ref, offset, old, need, !at);
    compact_write(to, &name, &item);
    if (at && !(live && keep)) map_timed_write_deadline(ref, index, 0);
    return true;
}

static void map_timed_reap_at(struct engine *e, struct key_ref *ref, const char *at, pair_fn fn, void *arg)
{
    char digits[2][NUM_I64_LEN];
    struct small s = map_timed_of(ref->entry);
    struct compact_slot name, slot;
    compact_read_pair(at, &name, &slot);
    i64 deadline_ms = map_timed_deadline_at(&s, at);
    if (fn) fn(arg, compact_text(&name, digits[0]), compact_text(&slot, digits[1]), (double)deadline_ms);
    map_timed_remove(e, ref, at);
}

u32 map_timed_reap(struct engine *e, struct key_ref *ref, u32 max, pair_fn fn, void *arg)
{
    u32 n = 0;
    for (; n < max; n++) {
        struct small s = map_timed_of(ref->entry);
        u32 first = map_timed_first(&s);
        if (first == s.count || alive(map_timed_deadline(&s, first), e->now_ms)) break;
        map_timed_reap_at(e, ref, compact_skip(s.p, true, first), fn, arg);
    }
    return n;
}

bool map_timed_reap_field(struct engine *e, struct key_ref *ref, bytes field, pair_fn fn, void *arg)
{
    struct small s = map_timed_of(ref->entry);
    const char *at = map_timed_find(&s, field);
    if (!at || map_timed_alive(e, &s, at)) return false;
    map_timed_reap_at(e, ref, at, fn, arg);
    return true;
}
