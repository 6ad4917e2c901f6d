/* Strings of the memory engine. Short ones live inside the entry, integers as
 * eight bytes, long ones in a blob that grows geometrically. */
#include "base/num.h"
#include "engine/memory/mem.h"

#define MAX_INT_DIGITS 20

static bool as_int(bytes v, i64 *out)
{
    return v.n > 0 && v.n <= MAX_INT_DIGITS && ((u8)(v.p[0] - '0') < 10 || v.p[0] == '-') &&
           num_parse_i64(v, out);
}

/* How a value will be stored. */
struct shape {
    enum entry_form form;
    size_t bytes; /* in the entry */
    i64 number;
};

static struct shape shape_of(bytes v, bool may_be_int)
{
    struct shape s = {.form = FORM_INLINE};
    if (may_be_int && as_int(v, &s.number)) s.form = FORM_INT;
    else if (v.n > ENTRY_INLINE_MAX) s.form = FORM_POINTER;
    s.bytes = s.form == FORM_INLINE ? length_size(v.n) + v.n : 8;
    return s;
}

static struct blob *blob_new(bytes v, size_t cap)
{
    struct blob *b = mem_alloc(sizeof *b + cap);
    b->n = v.n;
    b->cap = cap;
    if (v.n) memcpy(b->data, v.p, v.n);
    return b;
}

static void write_value(struct entry *e, const struct shape *s, bytes v)
{
    entry_set_form(e, s->form);
    if (s->form == FORM_INT) entry_set_int(e, s->number);
    else if (s->form == FORM_POINTER) entry_set_object(e, blob_new(v, v.n));
    else slice_write((char *)entry_value(e), v);
}

static bool is_plain(const struct entry *e) /* a string without anything to free */
{
    return entry_type(e) == TYPE_STRING && entry_form(e) != FORM_POINTER;
}

/* Changes the deadline in the wheel and in the entry, which already has room for it. */
static void refile(struct engine *e, struct key_ref *ref, struct entry *fresh, i64 old_ms,
                   wheel_pos old_pos, i64 new_ms)
{
    struct mem_engine *m = mem_of(e);
    struct mem_db *db = mem_db_of(e, ref->db);
    wheel_pos pos = 0;
    if (old_ms && new_ms)
        pos = wheel_move(&db->deadlines, old_pos, ref->hash, old_ms, new_ms, m->clock_ms);
    else if (new_ms) pos = mem_file_deadline(m, ref->db, &db->deadlines, ref->hash, new_ms);
    else if (old_ms) wheel_drop(&db->deadlines, old_pos, old_ms);
    db->deadline_total += (__int128)new_ms - old_ms;
    if (new_ms) entry_set_deadline(fresh, new_ms, pos);
}

static void put_shaped(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes v, struct shape s,
                       i64 deadline_ms)
{
    struct entry *old = ref->entry;
    struct table *keys = &mem_db_of(e, db)->keys;
    i64 old_ms = old ? entry_deadline(old) : 0;
    wheel_pos old_pos = old_ms ? entry_pos(old) : 0;
    struct entry *now = old;

    if (old && is_plain(old) && !old_ms == !deadline_ms &&
        mem_same_room(entry_need(key, old_ms, s.bytes), entry_bytes(old))) {
        mem_keep(e, ref);
        write_value(old, &s, v);
    } else {
        now = entry_new(key, TYPE_STRING, s.form, deadline_ms, s.bytes);
        write_value(now, &s, v);
        if (old && UNLIKELY(entry_has_companion(old))) now = mem_companion_carry(e, ref, now);
        if (old) mem_replace(e, keys, ref->hash, old, now);
        else mem_insert(e, keys, ref->hash, now);
    }
    if (old_ms || deadline_ms) refile(e, ref, now, old_ms, old_pos, deadline_ms);
    entry_set_access(now, e->fresh_access);
    if (old && old != now) mem_discard(e, ref, old);
    mem_ref(ref, db, ref->hash, now);
}

static void mem_str_put(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes v, i64 deadline_ms)
{
    put_shaped(e, db, key, ref, v, shape_of(v, true), deadline_ms);
}

static void mem_str_put_text(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes v,
                             i64 deadline_ms)
{
    put_shaped(e, db, key, ref, v, shape_of(v, false), deadline_ms);
}

static void mem_str_get(struct engine *e UNUSED, struct key_ref *ref, struct str_view *out)
{
    const struct entry *en = ref->entry;
    switch (entry_form(en)) {
    case FORM_INT:
        out->b = bytes_of(out->num, num_print_i64(out->num, entry_int(en)));
        return;
    case FORM_POINTER: {
        const struct blob *b = entry_object(en);
        out->b = bytes_of(b->data, b->n);
        return;
    }
    default:
        out->b = entry_inline(en);
    }
}

static size_t mem_str_length(struct engine *e, struct key_ref *ref)
{
    struct str_view v;
    mem_str_get(e, ref, &v);
    return v.b.n;
}

static bool mem_str_get_int(struct engine *e, struct key_ref *ref, i64 *out)
{
    const struct entry *en = ref->entry;
    if (LIKELY(entry_form(en) == FORM_INT)) {
        *out = entry_int(en);
        return true;
    }
    struct str_view v;
    mem_str_get(e, ref, &v);
    return num_parse_i64(v.b, out);
}

static void mem_str_set_int(struct engine *e, struct key_ref *ref, i64 value)
{
    struct entry *en = ref->entry;
    mem_keep(e, ref);
    entry_set_access(en, e->fresh_access);
    if (LIKELY(entry_form(en) == FORM_INT)) {
        entry_set_int(en, value);
        return;
    }
    char text[NUM_I64_LEN];
    mem_str_put(e, ref->db, ref->key, ref, bytes_of(text, num_print_i64(text, value)), ref->deadline_ms);
}

/* Room for a string that grows: it is likely to grow again. */
static size_t with_room(size_t n) { return n + MIN(n, 1024u * 1024); }

static char *edit_blob(struct blob **at, size_t new_len)
{
    struct blob *b = *at;
    if (new_len > b->cap || new_len < b->cap / 4) {
        b->cap = new_len > b->cap ? with_room(new_len) : new_len;
        *at = b = mem_realloc(b, sizeof *b + b->cap);
    }
    if (new_len > b->n) memset(b->data + b->n, 0, new_len - b->n);
    b->n = new_len;
    return b->data;
}

static char *mem_str_edit(struct engine *e, struct key_ref *ref, size_t new_len)
{
    struct entry *en = ref->entry;
    mem_keep(e, ref);
    entry_set_access(en, e->fresh_access);
    if (entry_form(en) == FORM_POINTER) {
        struct blob *b = entry_object(en);
        char *data = edit_blob(&b, new_len);
        entry_set_object(en, b);
        return data;
    }
    struct str_view old;
    mem_str_get(e, ref, &old);
    struct entry *fresh;
    char *data;
    if (new_len > ENTRY_INLINE_MAX) {
        fresh = entry_resized(en, FORM_POINTER, 8);
        /* SETRANGE, SETBIT … of a new key have all of it. */
        size_t cap = old.b.n ? with_room(new_len) : new_len;
        struct blob *b = blob_new(bytes_of(old.b.p, MIN(old.b.n, new_len)), cap);
        data = edit_blob(&b, new_len);
        entry_set_object(fresh, b);
    } else {
        size_t keep = MIN(old.b.n, new_len);
        fresh = entry_resized(en, FORM_EDITED, length_size(new_len) + new_len);
        data = length_write((char *)entry_value(fresh), new_len);
        memcpy(data, old.b.p, keep);
        memset(data + keep, 0, new_len - keep);
    }
    bool companion = entry_has_companion(en);
    mem_moved(e, ref, fresh);
    if (UNLIKELY(companion) && new_len <= ENTRY_INLINE_MAX) return (char *)entry_inline(ref->entry).p;
    return data;
}

const struct str_ops mem_str_ops = {
    .put = mem_str_put,
    .put_text = mem_str_put_text,
    .get = mem_str_get,
    .length = mem_str_length,
    .get_int = mem_str_get_int,
    .set_int = mem_str_set_int,
    .edit = mem_str_edit,
};
