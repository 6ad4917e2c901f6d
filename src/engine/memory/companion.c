/* Companions in the memory engine.
 *
 * One that goes with its key precedes the key's entry (ENTRY_PREFIX bytes, entry.h), so that it is dropped,
 * retained for a snapshot and freed with it. One that stays has an entry of its own, of TYPE_NONE, in
 * mem_db.kept, with the key's name and the prefix; the key's entry, if it exists, then has no prefix.
 *
 *   prefix     0          1                      8                 16
 *             +----------+----------------------+-----------------+
 *             | 0 to 15  | the head, 0 to 15 bytes                |    no rows
 *             | IN_BLOB  |                      | packed *        |    head, then name, value, name, value …
 *             | IN_ROWS  |                      | mem_rows *      |    a bigger one, as a stream
 *             +----------+----------------------+-----------------+
 *
 * A blob's rows are in order. It becomes rows when it grows beyond BLOB_MAX bytes, and stays so. */
#include "engine/memory/mem.h"

#define IN_BLOB 0xfe
#define IN_ROWS 0xff
#define HEAD_INLINE (ENTRY_PREFIX - 1)
#define BLOB_MAX 1024
#define LEAF_BYTES 512 /* of the rows: they are found by name, in no order */

/* -- the prefix -------------------------------------------------------------------------------- */

static u8 mem_companion_form(const char *prefix) { return (u8)prefix[0]; }

static void *mem_companion_object(const char *prefix)
{
    void *p;
    memcpy(&p, prefix + 8, sizeof p);
    return p;
}

static void mem_companion_set_object(char *prefix, u8 form, void *object)
{
    prefix[0] = (char)form;
    memcpy(prefix + 8, &object, sizeof object);
}

static const char *prefix_of(const struct entry *entry) { return (const char *)entry - ENTRY_PREFIX; }

static bytes mem_companion_head(const char *prefix)
{
    switch (mem_companion_form(prefix)) {
    case IN_BLOB: {
        const packed *b = mem_companion_object(prefix);
        return packed_get(b, packed_first(b));
    }
    case IN_ROWS: {
        const struct mem_rows *r = mem_companion_object(prefix);
        return bytes_of(r->head, r->head_bytes);
    }
    default: return bytes_of(prefix + 1, mem_companion_form(prefix));
    }
}

/* The blob for a companion whose head was inline so far, or absent. */
static packed *blob_with_head(bytes head) { return packed_insert(packed_new(), PACKED_END, head); }

static void blob_to_rows(char *prefix)
{
    packed *b = mem_companion_object(prefix);
    struct mem_rows *r = mem_rows_new(LEAF_BYTES);
    mem_rows_set_head(r, mem_companion_head(prefix));
    u32 at = packed_next(b, packed_first(b));
    while (at != PACKED_END) {
        u32 value = packed_next(b, at);
        omap_put(&r->map, packed_get(b, at), packed_get(b, value));
        at = packed_next(b, value);
    }
    packed_free(b);
    mem_companion_set_object(prefix, IN_ROWS, r);
}

/* A blob was changed, and may have moved. */
static void blob_changed(char *prefix, packed *b)
{
    mem_companion_set_object(prefix, IN_BLOB, b);
    if (packed_bytes(b) > BLOB_MAX) blob_to_rows(prefix);
}

static void companion_write_head(char *prefix, bytes head)
{
    char copy[COMPANION_HEAD_MAX]; /* `head` may point into the companion */
    if (head.n) memcpy(copy, head.p, head.n);
    head.p = copy;
    u8 form = mem_companion_form(prefix);
    if (form == IN_ROWS) {
        mem_rows_set_head(mem_companion_object(prefix), head);
    } else if (form == IN_BLOB) {
        packed *b = mem_companion_object(prefix);
        if (packed_overwrite(b, packed_first(b), head)) return;
        blob_changed(prefix, packed_replace(b, packed_first(b), head));
    } else if (head.n <= HEAD_INLINE) {
        prefix[0] = (char)head.n;
        if (head.n) memcpy(prefix + 1, head.p, head.n);
    } else {
        blob_changed(prefix, blob_with_head(head));
    }
}

void mem_companion_discard(struct mem_engine *m, struct entry *entry)
{
    char *prefix = entry_prefix(entry);
    if (mem_companion_form(prefix) == IN_BLOB) packed_free(mem_companion_object(prefix));
    if (mem_companion_form(prefix) == IN_ROWS) mem_rows_discard(m, mem_companion_object(prefix));
    prefix[0] = 0;
}

size_t mem_companion_memory(const struct entry *entry)
{
    const char *prefix = prefix_of(entry);
    switch (mem_companion_form(prefix)) {
    case IN_BLOB: return ENTRY_PREFIX + packed_memory(mem_companion_object(prefix));
    case IN_ROWS: return ENTRY_PREFIX + mem_rows_memory(mem_companion_object(prefix));
    default: return ENTRY_PREFIX;
    }
}

void mem_companion_prefetch(const struct entry *entry)
{
    if (!entry_has_companion(entry)) return;
    const char *prefix = prefix_of(entry);
    const char *object = mem_companion_form(prefix) >= IN_BLOB ? mem_companion_object(prefix) : prefix;
    __builtin_prefetch(object);
    __builtin_prefetch(object + 64);
    __asm__ volatile("" : : "r"(object)); /* or gcc takes it for a function without effects */
}

/* -- finding and making ------------------------------------------------------------------------ */

/* The entry of a companion that stays; NULL: none. */
static struct entry *find_kept(struct engine *e, const struct key_ref *ref)
{
    const struct table *kept = &mem_db_of(e, ref->db)->kept;
    return kept->count ? table_find(kept, ref->key, ref->hash) : NULL;
}

/* The entry that has the companion as its prefix, the key's or its own; NULL: none. */
static struct entry *mem_companion_find(struct engine *e, const struct key_ref *ref)
{
    struct entry *entry = ref->entry;
    if (entry && entry_has_companion(entry)) return entry;
    return find_kept(e, ref);
}

size_t mem_companion_usage(struct engine *e, struct key_ref *ref)
{
    const struct entry *entry = mem_companion_find(e, ref);
    if (!entry) return 0;
    size_t name = entry == ref->entry ? 0 : entry_size(entry) + sizeof(u64);
    return name + mem_companion_memory(entry);
}

/* Gives the entry of ref an empty prefix, or removes the prefix, whose contents the caller then owns. */
static void move_entry(struct engine *e, struct key_ref *ref, bool prefix)
{
    struct entry *old = ref->entry, *fresh = entry_copy(old, prefix);
    mem_replace(e, &mem_db_of(e, ref->db)->keys, ref->hash, old, fresh);
    mem_ref(ref, ref->db, ref->hash, fresh);
    entry_free(old);
}

static struct entry *kept_new(struct engine *e, const struct key_ref *ref)
{
    struct entry *name = entry_new(ref->key, TYPE_NONE, FORM_INT, false, 8), *entry = entry_copy(name, true);
    entry_free(name);
    mem_insert(e, &mem_db_of(e, ref->db)->kept, ref->hash, entry);
    return entry;
}

/* The prefix of a companion that is about to change, created if absent. A snapshot gets the old one first. */
static char *mem_companion_open(struct engine *e, struct key_ref *ref)
{
    struct entry *entry = mem_companion_find(e, ref);
    if (entry && entry != ref->entry) {
        mem_keep(e, &(struct key_ref){.key = ref->key, .db = ref->db, .hash = ref->hash, .entry = entry});
        return entry_prefix(entry);
    }
    if (!ref->entry) return entry_prefix(kept_new(e, ref));
    mem_keep(e, ref);
    if (!entry) move_entry(e, ref, true);
    return entry_prefix(ref->entry);
}

struct entry *mem_companion_carry(struct engine *e, struct key_ref *ref, struct entry *fresh)
{
    struct entry *with = entry_copy(fresh, true), *old = ref->entry;
    mem_keep(e, ref); /* a snapshot would find it empty */
    memcpy(entry_prefix(with), entry_prefix(old), ENTRY_PREFIX);
    entry_prefix(old)[0] = 0;
    entry_free(fresh);
    return with;
}

static void remove_kept(struct engine *e, const struct key_ref *ref, struct entry *entry)
{
    struct key_ref at = {.key = ref->key, .db = ref->db, .hash = ref->hash, .entry = entry};
    table_remove(&mem_db_of(e, ref->db)->kept, ref->hash, entry);
    mem_discard(e, &at, entry);
}

/* -- primitives: the companion as a whole --------------------------------------------------------- */

static bool mem_companion_get_head(struct engine *e, struct key_ref *ref, bytes *head)
{
    const struct entry *entry = mem_companion_find(e, ref);
    if (entry) *head = mem_companion_head(prefix_of(entry));
    return entry != NULL;
}

static void mem_companion_set_head(struct engine *e, struct key_ref *ref, bytes head)
{
    CHECK(head.n <= COMPANION_HEAD_MAX);
    char copy[COMPANION_HEAD_MAX]; /* `head` may be in the entry, which may move */
    if (head.n) memcpy(copy, head.p, head.n);
    companion_write_head(mem_companion_open(e, ref), bytes_of(copy, head.n));
}

static void mem_companion_drop(struct engine *e, struct key_ref *ref)
{
    struct entry *entry = mem_companion_find(e, ref);
    if (!entry) return;
    if (entry != ref->entry) {
        remove_kept(e, ref, entry);
        return;
    }
    mem_keep(e, ref);
    mem_companion_discard(mem_of(e), entry);
    move_entry(e, ref, false);
}

static bool mem_companion_kept(struct engine *e, struct key_ref *ref)
{
    const struct entry *entry = mem_companion_find(e, ref);
    return entry && entry_type(entry) == TYPE_NONE;
}

static void mem_companion_keep(struct engine *e, struct key_ref *ref, bool stays)
{
    struct entry *entry = mem_companion_find(e, ref);
    if (!entry || (entry_type(entry) == TYPE_NONE) == stays) return;
    if (stays) {
        mem_keep(e, ref);
        memcpy(entry_prefix(kept_new(e, ref)), entry_prefix(entry), ENTRY_PREFIX);
        move_entry(e, ref, false);
    } else if (!ref->entry) {
        remove_kept(e, ref, entry);
    } else {
        char *prefix = mem_companion_open(e, ref); /* a snapshot gets both as they are */
        mem_keep(e, ref);
        move_entry(e, ref, true);
        memcpy(entry_prefix(ref->entry), prefix, ENTRY_PREFIX);
        prefix[0] = 0;
        remove_kept(e, ref, entry);
    }
}

/* -- rows --------------------------------------------------------------------------------------------- */

/* The name of the first row >= name; PACKED_END: none. */
static u32 blob_find(const packed *b, bytes name, bool *equal)
{
    *equal = false;
    u32 at = packed_next(b, packed_first(b));
    for (; at != PACKED_END; at = packed_next(b, packed_next(b, at))) {
        int c = bytes_cmp(packed_get(b, at), name);
        if (c < 0) continue;
        *equal = c == 0;
        break;
    }
    return at;
}

/* The name that equals this one; PACKED_END: none. */
static u32 blob_get(const packed *b, bytes name)
{
    return packed_find(b, packed_next(b, packed_first(b)), name, 2);
}

static bool mem_companion_get(struct engine *e, struct key_ref *ref, bytes name, bytes *value)
{
    const struct entry *entry = mem_companion_find(e, ref);
    if (!entry) return false;
    const char *prefix = prefix_of(entry);
    if (mem_companion_form(prefix) == IN_ROWS)
        return mem_rows_read(e, mem_companion_object(prefix), name, value);
    if (mem_companion_form(prefix) != IN_BLOB) return false;
    const packed *b = mem_companion_object(prefix);
    u32 at = blob_get(b, name);
    if (at != PACKED_END && value) *value = packed_get(b, packed_next(b, at));
    return at != PACKED_END;
}

/* A copy of slices that may be in the companion itself. */
static bytes mem_companion_save(struct engine *e, bytes b)
{
    char *p = arena_alloc(&mem_of(e)->handed_out, b.n ? b.n : 1);
    if (b.n) memcpy(p, b.p, b.n);
    return bytes_of(p, b.n);
}

static void blob_insert(struct engine *e, char *prefix, bytes name, bytes value)
{
    packed *b = mem_companion_object(prefix);
    bool equal;
    u32 at = blob_find(b, name, &equal);
    name = mem_companion_save(e, name);
    value = mem_companion_save(e, value);
    b = packed_insert(b, at, value); /* value first, then the name at the same position */
    if (at == PACKED_END) at = packed_last(b);
    blob_changed(prefix, packed_insert(b, at, name));
}

/* Usually the row exists, with a value of this length. */
static void blob_put(struct engine *e, char *prefix, bytes name, bytes value)
{
    packed *b = mem_companion_object(prefix);
    u32 at = blob_get(b, name);
    if (at == PACKED_END) {
        blob_insert(e, prefix, name, value);
        return;
    }
    at = packed_next(b, at);
    if (packed_overwrite(b, at, value)) return;
    blob_changed(prefix, packed_replace(b, at, mem_companion_save(e, value)));
}

static void mem_companion_put(struct engine *e, struct key_ref *ref, bytes name, bytes value)
{
    char *prefix = mem_companion_open(e, ref);
    bool small = mem_companion_form(prefix) <= HEAD_INLINE, large = name.n + value.n > BLOB_MAX;
    if (small || (large && mem_companion_form(prefix) == IN_BLOB)) { /* it gets another form */
        name = mem_companion_save(e, name);
        value = mem_companion_save(e, value);
        if (small) mem_companion_set_object(prefix, IN_BLOB, blob_with_head(mem_companion_head(prefix)));
        if (large) blob_to_rows(prefix);
    }
    if (mem_companion_form(prefix) == IN_BLOB) blob_put(e, prefix, name, value);
    else omap_put(&((struct mem_rows *)mem_companion_object(prefix))->map, name, value);
}

static bool mem_companion_del(struct engine *e, struct key_ref *ref, bytes name)
{
    if (!mem_companion_get(e, ref, name, NULL)) return false;
    char *prefix = mem_companion_open(e, ref);
    if (mem_companion_form(prefix) == IN_ROWS)
        return omap_del(&((struct mem_rows *)mem_companion_object(prefix))->map, name);
    packed *b = mem_companion_object(prefix);
    mem_companion_set_object(prefix, IN_BLOB, packed_erase(b, blob_get(b, name), 2));
    return true;
}

/* -- walks ----------------------------------------------------------------------------------------------- */

/* The iterator's state for a blob; for rows it is that of rows.c. */
struct blob_walk {
    const packed *blob;
    u32 at; /* the next name; PACKED_END: none */
};
#define WALK_KIND 7 /* index in the state that says which; the state of rows.c is shorter */
enum { WALK_ROWS, WALK_BLOB };

static u32 blob_seek(const packed *b, bytes from, bool reverse)
{
    bool equal;
    u32 at = blob_find(b, from, &equal);
    if (!reverse || equal) return at;
    u32 value = at == PACKED_END ? packed_last(b) : packed_prev(b, at);
    return value == packed_first(b) ? PACKED_END : packed_prev(b, value);
}

static void mem_companion_iter(struct engine *e, struct key_ref *ref, bytes from, bool reverse,
                               struct rows_iter *it)
{
    const struct entry *entry = mem_companion_find(e, ref);
    const char *prefix = entry ? prefix_of(entry) : NULL;
    *it = (struct rows_iter){.eng = e, .ref = ref, .reverse = reverse};
    if (prefix && mem_companion_form(prefix) == IN_ROWS) {
        mem_rows_seek(e, mem_companion_object(prefix), from, reverse, it);
        it->state[WALK_KIND] = WALK_ROWS;
        return;
    }
    struct blob_walk *w = (struct blob_walk *)it->state;
    it->state[WALK_KIND] = WALK_BLOB;
    w->at = PACKED_END;
    if (!prefix || mem_companion_form(prefix) != IN_BLOB) return;
    w->blob = mem_companion_object(prefix);
    w->at = blob_seek(w->blob, from, reverse);
}

static bool mem_companion_next(struct rows_iter *it, bytes *name, bytes *value)
{
    if (it->state[WALK_KIND] == WALK_ROWS) return mem_rows_ops.next(it, name, value);
    struct blob_walk *w = (struct blob_walk *)it->state;
    if (w->at == PACKED_END) return false;
    u32 of_value = packed_next(w->blob, w->at);
    *name = packed_get(w->blob, w->at);
    if (value) *value = packed_get(w->blob, of_value);
    if (!it->reverse) {
        w->at = packed_next(w->blob, of_value);
    } else {
        u32 before = packed_prev(w->blob, w->at);
        w->at = before == packed_first(w->blob) ? PACKED_END : packed_prev(w->blob, before);
    }
    return true;
}

static void mem_companion_done(struct rows_iter *it)
{
    if (it->state[WALK_KIND] == WALK_ROWS) mem_rows_ops.done(it);
    else ((struct blob_walk *)it->state)->at = PACKED_END;
}

struct kept_walk {
    struct engine *e;
    key_fn fn;
    void *arg;
    u32 db, seen;
};

static void give_kept(void *arg, void *item)
{
    struct kept_walk *w = arg;
    struct key_ref ref;
    w->e->ops->find(w->e, w->db, entry_key(item), &ref);
    w->seen++;
    w->fn(w->arg, &ref);
}

/* `place` is the table's cursor. */
static bool mem_companion_each_kept(struct engine *e, u32 db, struct buf *place, u32 count, key_fn fn,
                                    void *arg)
{
    struct kept_walk w = {e, fn, arg, db, 0};
    u64 cursor = 0;
    if (place->n == sizeof cursor) memcpy(&cursor, place->p, sizeof cursor);
    do {
        cursor = table_scan(&mem_db_of(e, db)->kept, cursor, give_kept, &w);
    } while (cursor && w.seen < count);
    buf_clear(place);
    buf_append(place, (const char *)&cursor, sizeof cursor);
    return cursor != 0;
}

const struct companion_ops mem_companion_ops = {
    .head = mem_companion_get_head,
    .set_head = mem_companion_set_head,
    .put = mem_companion_put,
    .get = mem_companion_get,
    .del = mem_companion_del,
    .iter = mem_companion_iter,
    .next = mem_companion_next,
    .done = mem_companion_done,
    .drop = mem_companion_drop,
    .keep = mem_companion_keep,
    .kept = mem_companion_kept,
    .each_kept = mem_companion_each_kept,
};
