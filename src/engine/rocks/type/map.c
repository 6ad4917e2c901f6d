/* Hashes and sets of the rocks engine: an element is a row of `data`, P · version · name → value,
 * and a set's values are empty. row->size counts what is stored, dead fields included.
 *
 * Nothing is packed here, but OBJECT ENCODING answers with Redis's name, by the size and the lengths of a few
 * elements. That a collection was bigger once is known only as long as its row is cached; after that, one
 * that shrank may be reported as packed. */
#include "base/num.h"
#include "base/rand.h"
#include "engine/fill.h"
#include "engine/rocks/type/random_element.h"
#include "engine/rocks/type/fields.h"

#define COUNTED 256    /* up to this many elements a random one is found by walking */
#define SCAN_WHOLE 512 /* up to this many elements one SCAN call returns all */
#define DRAWS 32       /* random elements that turn out to be dead, before walking instead */

static bool is_set(const struct row *r) { return r->type == TYPE_SET; }

/* -- walking over what can be seen -------------------------------------------------------- */

struct live_walk {
    struct walk w;
    struct store_iter *beside; /* fields.h */
    bool hides;                /* there are dead ones to pass over */
    bool started;
    u64 size, seen; /* of the collection when it began, and how many came since, dead or alive */
};

static void live_init(struct live_walk *l, struct rk *rk, struct row *r)
{
    *l = (struct live_walk){.w = {.rk = rk, .row = r}, .hides = fields_may_hide(rk, r), .size = r->size};
}

static bool is_live(struct live_walk *l)
{
    return !l->hides || alive(fields_deadline_at(&l->w, &l->beside), l->w.rk->base.now_ms);
}

static void live_done(struct live_walk *l)
{
    walk_done(&l->w);
    if (l->beside) store_iter_done(l->beside);
    l->beside = NULL;
}

/* The command has already sent the size to its client: fewer elements are an error, not the end. */
static void live_end(struct live_walk *l)
{
    if (UNLIKELY(l->seen < l->size && l->w.row->size == l->size))
        store_damaged(l->w.rk->session, "elements of a hash or set are missing");
    live_done(l);
}

static bool live_next(struct live_walk *l)
{
    for (;;) {
        bool more = l->started ? walk_next(&l->w) : walk_start(&l->w, l->w.rk, l->w.row, (bytes){0}, false);
        l->started = true;
        l->seen += more;
        if (more && !is_live(l)) continue;
        if (!more) live_end(l);
        return more;
    }
}

/* Returns the element at the walk's position. A stored one is in the iterator's memory, and copied if it has
 * to outlive the next move. */
static void rk_map_hand_out(const struct walk *w, bool stays, bytes *field, bytes *value)
{
    bool copy = stays && !w->change;
    *field = copy ? delta_keep(w->rk, w->sub) : w->sub;
    if (value) *value = copy ? delta_keep(w->rk, w->value) : w->value;
}

/* -- point reads and writes ----------------------------------------------------------------- */

static bool rk_map_get(struct engine *e, struct key_ref *ref, bytes field, bytes *value)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = delta_at(rk, r, field);
    if (!fields_shows(rk, r, c)) return false;
    if (value) *value = c->value;
    return true;
}

/* No set with more members is packed. */
static i64 set_packed_most(const struct engine_limits *l)
{
    return MAX(l->set_max_intset_entries, l->set_max_listpack_entries);
}

/* Sets row->unpacked where Redis would convert the packed form. */
static void rk_map_judge_size(struct engine *e, struct row *r, bytes field, bytes value)
{
    i64 number;
    const struct engine_limits *l = &e->limits;
    if (r->unpacked) return;
    if (is_set(r))
        r->unpacked = (i64)r->size > set_packed_most(l) ||
                      ((i64)field.n > l->set_max_listpack_value && !num_parse_i64(field, &number));
    else
        r->unpacked = (i64)r->size > l->hash_max_listpack_entries ||
                      (i64)MAX(field.n, value.n) > l->hash_max_listpack_value;
}

static bool rk_map_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep_deadline)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = delta_at(rk, r, field);
    bool fresh = !fields_shows(rk, r, c);
    if (is_set(r)) {
        if (!fresh) return false;
        value = (bytes){"", 0};
    }
    row_touch(rk, r);
    r->size += !c->exists;
    if (r->field_deadlines && c->exists && (fresh || !keep_deadline)) fields_set(rk, r, c, 0);
    delta_put(rk, r, c, value);
    rk_map_judge_size(e, r, field, value);
    return fresh;
}

static bool rk_map_del(struct engine *e, struct key_ref *ref, bytes field)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = delta_at(rk, r, field);
    if (!fields_shows(rk, r, c)) return false;
    row_touch(rk, r);
    if (r->field_deadlines) fields_set(rk, r, c, 0);
    delta_erase(rk, r, c);
    r->size--;
    return true;
}

/* -- iterators and scans --------------------------------------------------------------------- */

static struct live_walk **rk_map_walk_in(struct map_iter *it) { return (struct live_walk **)it->state; }

static void rk_map_iter(struct engine *e, struct key_ref *ref, struct map_iter *it)
{
    struct rk *rk = rk_of(e);
    it->eng = e;
    it->ref = ref;
    it->passing = false;
    live_init(*rk_map_walk_in(it) = arena_alloc(&rk->arena, sizeof(struct live_walk)), rk, row_of(ref));
}

static bool rk_map_next(struct map_iter *it, bytes *field, bytes *value)
{
    struct live_walk *l = *rk_map_walk_in(it);
    if (!live_next(l)) return false;
    rk_map_hand_out(&l->w, !it->passing, field, value);
    return true;
}

struct scan {
    bool hides;
    struct store_iter *beside;
    pair_fn fn;
    void *arg;
};

static bool rk_map_see(void *arg, struct walk *w)
{
    struct scan *s = arg;
    if (s->hides && !alive(fields_deadline_at(w, &s->beside), w->rk->base.now_ms)) return false;
    s->fn(s->arg, w->sub, w->value, 0);
    return true;
}

static u64 rk_map_scan(struct engine *e, struct key_ref *ref, u64 cursor, u32 count, pair_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    i64 packed = is_set(r) ? set_packed_most(&e->limits) : e->limits.hash_max_listpack_entries;
    struct scan s = {.hides = fields_may_hide(rk, r), .fn = fn, .arg = arg};
    cursor = cursor_scan(rk, r, cursor, count, (u64)MAX(packed, SCAN_WHOLE), rk_map_see, &s);
    if (s.beside) store_iter_done(s.beside);
    return cursor;
}

/* -- drawing ---------------------------------------------------------------------------------- */

static bool draw_counting(struct rk *rk, struct row *r, u64 live, u64 *rng, bytes *field, bytes *value)
{
    struct live_walk l;
    live_init(&l, rk, r);
    bool found = live_next(&l);
    for (u64 n = rand_below(rng, live); n > 0 && found; n--) found = live_next(&l);
    if (found) rk_map_hand_out(&l.w, true, field, value);
    live_done(&l);
    return found;
}

static bool rk_map_random(struct engine *e, struct key_ref *ref, u64 *rng, bytes *field, bytes *value)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    u64 live = rk_map_live(rk, r);
    if (live == 0) return false;
    if (r->size <= COUNTED) return draw_counting(rk, r, live, rng, field, value);
    for (u32 i = 0; i < DRAWS && !e->failed; i++) {
        struct live_walk l;
        live_init(&l, rk, r);
        bool found = draw_element(&l.w, rk, r, rng) && is_live(&l);
        if (found) rk_map_hand_out(&l.w, true, field, value);
        live_done(&l);
        if (found) return true;
    }
    return draw_counting(rk, r, 1, rng, field, value); /* nearly all are dead: the first that is not */
}

/* -- field deadlines ---------------------------------------------------------------------------- */

static bool rk_map_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 *deadline_ms)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = delta_at(rk, r, field);
    *deadline_ms = 0;
    if (!fields_shows(rk, r, c)) return false;
    fields_load(rk, r, c);
    *deadline_ms = c->deadline_ms;
    return true;
}

static void rk_map_set_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = delta_at(rk, r, field);
    if (!fields_shows(rk, r, c)) return;
    row_touch(rk, r);
    fields_set(rk, r, c, deadline_ms);
}

static bool rk_map_stored(struct engine *e, struct key_ref *ref, bytes field, bytes *value, i64 *deadline_ms)
{
    struct rk *rk = rk_of(e);
    struct row *r = row_of(ref);
    struct change *c = delta_at(rk, r, field);
    *deadline_ms = 0;
    if (!c->exists) return false;
    if (UNLIKELY(r->field_deadlines)) fields_load(rk, r, c);
    *value = c->value;
    *deadline_ms = c->deadline_ms;
    return true;
}

static u32 rk_map_due(struct engine *e, struct key_ref *ref, i64 until_ms, u32 max, pair_fn fn, void *arg)
{
    return fields_each_due(rk_of(e), row_of(ref), until_ms, max, fn, arg);
}

static u32 rk_map_reap(struct engine *e, struct key_ref *ref, u32 max, pair_fn fn, void *arg)
{
    return fields_reap(rk_of(e), row_of(ref), max, fn, arg);
}

static bool rk_map_reap_field(struct engine *e, struct key_ref *ref, bytes field, pair_fn fn, void *arg)
{
    return fields_reap_one(rk_of(e), row_of(ref), field, fn, arg);
}

static bool rk_map_has_field_deadlines(struct engine *e, struct key_ref *ref)
{
    return fields_any(rk_of(e), row_of(ref));
}

static u64 rk_map_dead_fields(struct engine *e, struct key_ref *ref)
{
    return fields_dead(rk_of(e), row_of(ref));
}

const struct map_ops rk_map_ops = {
    .get = rk_map_get,
    .put = rk_map_put,
    .fill = map_fill_each,
    .del = rk_map_del,
    .iter = rk_map_iter,
    .next = rk_map_next,
    .scan = rk_map_scan,
    .random = rk_map_random,
    .field_deadline = rk_map_field_deadline,
    .set_field_deadline = rk_map_set_field_deadline,
    .stored = rk_map_stored,
    .reap = rk_map_reap,
    .reap_field = rk_map_reap_field,
    .due = rk_map_due,
    .has_field_deadlines = rk_map_has_field_deadlines,
    .dead_fields = rk_map_dead_fields,
};

/* -- the collection as a whole --------------------------------------------------------------------- */

u64 rk_map_live(struct rk *rk, struct row *r)
{
    u64 dead = fields_dead(rk, r);
    return r->size - MIN(dead, r->size);
}

/* What the elements of a collection are, as far as its encoding depends on it. */
struct element_kinds {
    bool all_ints; /* names */
    i64 longest;   /* name or value */
};

static struct element_kinds look_at_elements(struct rk *rk, struct row *r)
{
    struct element_kinds k = {.all_ints = true};
    struct walk w;
    i64 number;
    for (bool more = walk_start(&w, rk, r, (bytes){0}, false); more; more = walk_next(&w)) {
        k.all_ints = k.all_ints && num_parse_i64(w.sub, &number);
        k.longest = MAX(k.longest, (i64)MAX(w.sub.n, w.value.n));
    }
    walk_done(&w);
    return k;
}

/* The packed encoding Redis would have for these elements, or NULL. Looks at no more elements than a packed
 * collection may have. */
static const char *packed_name(struct rk *rk, struct row *r)
{
    const struct engine_limits *l = &rk->base.limits;
    i64 size = (i64)r->size;
    if (r->unpacked || size > (is_set(r) ? set_packed_most(l) : l->hash_max_listpack_entries)) return NULL;
    struct element_kinds k = look_at_elements(rk, r);
    if (!is_set(r)) {
        if (k.longest > l->hash_max_listpack_value) return NULL;
        return fields_any(rk, r) ? "listpackex" : "listpack";
    }
    if (k.all_ints) return size <= l->set_max_intset_entries ? "intset" : NULL;
    bool packed = size <= l->set_max_listpack_entries && k.longest <= l->set_max_listpack_value;
    return packed ? "listpack" : NULL;
}

const char *rk_map_encoding(struct rk *rk, struct row *r)
{
    const char *packed = packed_name(rk, r);
    if (!packed) r->unpacked = true;
    return packed ? packed : "hashtable";
}

/* A renamed hash keeps its dead fields (dead_too): they still have to be reaped and reported. */
void rk_map_copy(struct rk *rk, struct row *from, struct row *to, bool dead_too)
{
    struct live_walk l;
    row_touch(rk, to);
    to->unpacked = from->unpacked;
    live_init(&l, rk, from);
    if (dead_too) l.hides = false;
    while (live_next(&l)) {
        struct change *c = delta_new(rk, to, l.w.sub);
        delta_put(rk, to, c, l.w.value);
        to->size++;
        if (!from->field_deadlines) continue;
        i64 deadline_ms = fields_deadline_at(&l.w, &l.beside);
        if (deadline_ms) fields_set(rk, to, c, deadline_ms);
    }
}

/* Writes in the order of names: RocksDB inserts neighbours faster. */
void rk_map_commit(struct rk *rk, struct row *r)
{
    if (r->delta && r->delta->touched) {
        u32 n;
        bytes prefix = delta_prefix(rk, r);
        struct change **ordered = delta_ordered(rk, r, &n);
        for (u32 i = 0; i < n; i++) {
            struct change *c = ordered[i];
            if (c->put) store_put2(rk->session, FAM_DATA, prefix, c->sub, c->value);
            else if (!c->exists && c->stored) store_delete2(rk->session, FAM_DATA, prefix, c->sub);
            fields_write(rk, r, c);
        }
    }
    if (!is_set(r)) fields_commit(rk, r);
}
