/* Field deadlines: a transaction's changes on top of the stored ones.
 *
 * Invariants:
 * 1. change.deadline_moved: the transaction changed or removed this field's deadline, or deleted the field.
 *    From then on its stored rows are ignored, even if the old deadline is set again.
 * 2. A stored field whose deadline was not moved has the deadline of its rows; its change record may not have
 *    read them yet (deadline_known).
 * 3. fields.dead, once known, and held_dead are kept exact, as of as_of_ms. They are computed again when the
 *    time is another. */
#include "engine/rocks/type/fields.h"

struct fields {
    bool changed;     /* a deadline was changed */
    bool unsure;      /* the last deadline may be gone: row->field_deadlines has to be recomputed */
    bool dead_known, front_known;
    i64 as_of_ms;
    u64 dead;
    u32 held;         /* moved deadlines of fields that exist … */
    u32 held_dead;    /* … that have passed */
    bytes front;      /* the first stored deadline · field that was not moved; p NULL: none */
};

static void fields_count_held(struct fields *f, const struct row *r, i64 now_ms)
{
    f->as_of_ms = now_ms;
    f->dead_known = false;
    f->held_dead = 0;
    for delta_each(c, r->delta) f->held_dead += c->deadline_moved && !alive(c->deadline_ms, now_ms);
}

static struct fields *fields_of(struct rk *rk, struct row *r)
{
    struct delta *d = delta_of(rk, r);
    if (!d->fields) {
        d->fields = arena_alloc(&rk->arena, sizeof *d->fields);
        *d->fields = (struct fields){.as_of_ms = rk->base.now_ms};
    }
    if (UNLIKELY(d->fields->as_of_ms != rk->base.now_ms)) fields_count_held(d->fields, r, rk->base.now_ms);
    return d->fields;
}

static i64 due_deadline(bytes due) { return (i64)get_u64(due.p); }
static bytes due_field(bytes due) { return bytes_of(due.p + 8, due.n - 8); }

/* -- one field -------------------------------------------------------------------------- */

void fields_load(struct rk *rk, struct row *r, struct change *c)
{
    struct store_value v;
    if (c->deadline_known) return;
    if (c->stored && r->field_deadlines) {
        if (store_get(rk->session, FAM_FIELD, delta_key(rk, r, c->sub), &v)) {
            if (v.b.n == 8) c->stored_deadline_ms = c->deadline_ms = (i64)get_u64(v.b.p);
            store_value_release(&v);
        } else if (rk->base.failed) {
            return;
        }
    }
    c->deadline_known = true;
}

bool fields_shows(struct rk *rk, struct row *r, struct change *c)
{
    if (!c->exists) return false;
    if (LIKELY(!fields_may_hide(rk, r))) return true;
    fields_load(rk, r, c);
    return alive(c->deadline_ms, rk->base.now_ms);
}

static void fields_count(struct rk *rk, struct fields *f, const struct change *c, int by)
{
    bool dead = !alive(c->deadline_ms, rk->base.now_ms);
    if (c->deadline_moved && c->deadline_ms) f->held += (u32)by;
    if (c->deadline_moved && dead) f->held_dead += (u32)by;
    if (dead) f->dead += (u64)by; /* ignored while the count is not known */
}

void fields_set(struct rk *rk, struct row *r, struct change *c, i64 deadline_ms)
{
    fields_load(rk, r, c);
    if (c->deadline_ms == deadline_ms) return;
    struct fields *f = fields_of(rk, r);
    fields_count(rk, f, c, -1);
    c->deadline_ms = deadline_ms;
    c->deadline_moved = true;
    fields_count(rk, f, c, 1);
    f->changed = true;
    if (deadline_ms) r->field_deadlines = true;
    else f->unsure = true;
    delta_touch(r, c);
}

/* -- the stored ones by deadline ------------------------------------------------------------ */

static bytes fields_due_at(const struct row *r, const struct store_iter *it)
{
    bytes key = store_key(it);
    return bytes_of(key.p + r->delta->prefix.n, key.n - r->delta->prefix.n);
}

/* An iterator at the first well-formed row from a position on. */
static struct store_iter *due_iter(struct rk *rk, struct row *r, bytes from)
{
    bytes prefix = delta_prefix(rk, r);
    struct store_iter *it = store_iter(rk->session, FAM_SCORE, prefix, delta_after(rk, r), 0);
    store_seek(it, delta_key(rk, r, from));
    while (store_valid(it) && fields_due_at(r, it).n < 8) store_next(it);
    return it;
}

static bool fields_moved(const struct row *r, bytes due)
{
    const struct change *c = delta_peek(r, due_field(due));
    return c && c->deadline_moved;
}

/* Finds the front (see fields_front) from a position on. */
static bytes find_front(struct rk *rk, struct row *r, bytes from)
{
    bytes found = {0};
    struct store_iter *it = due_iter(rk, r, from);
    if (from.n == 0 && store_valid(it)) { /* cache the very first */
        buf_append_bytes(&r->value, fields_due_at(r, it));
        if (!r->stored.field_due_ms) r->stored.field_due_ms = due_deadline(fields_due_at(r, it));
    }
    while (store_valid(it) && fields_moved(r, fields_due_at(r, it))) store_next(it);
    if (store_valid(it)) found = delta_keep(rk, fields_due_at(r, it));
    store_iter_done(it);
    return found;
}

/* The first stored row whose field's deadline was not moved; p NULL: none. */
static bytes fields_front(struct rk *rk, struct row *r)
{
    struct fields *f = fields_of(rk, r);
    if (!f->front_known && row_has_base(r)) {
        bytes first = buf_bytes(&r->value);
        f->front = first.n && !fields_moved(r, first) ? delta_keep(rk, first) : find_front(rk, r, first);
    } else if (f->front.p && fields_moved(r, f->front)) {
        f->front = find_front(rk, r, f->front);
    }
    f->front_known = !rk->base.failed;
    return f->front;
}

/* -- counting ---------------------------------------------------------------------------------- */

/* The number of stored fields that are dead: those counted before plus those that died since. */
static u64 stored_dead(struct rk *rk, struct row *r)
{
    i64 now_ms = rk->base.now_ms;
    if (!row_has_base(r)) return 0;
    if (r->value.n == 0) fields_front(rk, r);
    if (r->value.n == 0 || alive(due_deadline(buf_bytes(&r->value)), now_ms)) return 0;
    char since[8];
    bool again = r->dead_at_ms && r->dead_at_ms <= now_ms;
    put_u64(since, (u64)r->dead_at_ms + 1);
    u64 n = again ? r->dead : 0;
    struct store_iter *it = due_iter(rk, r, again ? bytes_of(since, 8) : buf_bytes(&r->value));
    for (; store_valid(it) && !alive(due_deadline(fields_due_at(r, it)), now_ms); store_next(it)) n++;
    store_iter_done(it);
    r->dead = n;
    r->dead_at_ms = rk->base.failed ? 0 : now_ms;
    return n;
}

bool fields_may_hide(struct rk *rk, struct row *r)
{
    if (LIKELY(!r->field_deadlines)) return false;
    bool untouched = !r->delta || !r->delta->fields;
    if (untouched && r->value.n) return !alive(due_deadline(buf_bytes(&r->value)), rk->base.now_ms);
    if (fields_of(rk, r)->held_dead > 0) return true;
    bytes first = fields_front(rk, r);
    return first.p && !alive(due_deadline(first), rk->base.now_ms);
}

u64 fields_dead(struct rk *rk, struct row *r)
{
    i64 now_ms = rk->base.now_ms;
    if (!fields_may_hide(rk, r)) return 0;
    struct fields *f = fields_of(rk, r);
    if (f->dead_known) return f->dead;
    u64 n = stored_dead(rk, r);
    for delta_each(c, r->delta) {
        if (!c->deadline_moved) continue;
        n -= !alive(c->stored_deadline_ms, now_ms);
        n += !alive(c->deadline_ms, now_ms);
    }
    f->dead = n;
    f->dead_known = !rk->base.failed;
    return n;
}

/* The nearest moved deadline; ties are ordered by field, as in the stored order. */
static const struct change *nearest_moved(const struct row *r)
{
    const struct change *best = NULL;
    for delta_each(c, r->delta) {
        if (!c->deadline_moved || !c->deadline_ms) continue;
        bool before = !best || c->deadline_ms < best->deadline_ms ||
                      (c->deadline_ms == best->deadline_ms && bytes_cmp(c->sub, best->sub) < 0);
        if (before) best = c;
    }
    return best;
}

bool fields_any(struct rk *rk, struct row *r)
{
    struct fields *f = r->delta ? r->delta->fields : NULL;
    if (!f || !f->unsure || f->held > 0) return r->field_deadlines;
    bool any = fields_front(rk, r).p != NULL;
    if (rk->base.failed) return true;
    f->unsure = false;
    return r->field_deadlines = any;
}

i64 fields_nearest(struct rk *rk, struct row *r)
{
    if (!fields_any(rk, r)) return 0;
    bytes stored = fields_front(rk, r);
    const struct change *c = nearest_moved(r);
    if (!c) return stored.p ? due_deadline(stored) : 0;
    return stored.p ? MIN(due_deadline(stored), c->deadline_ms) : c->deadline_ms;
}

/* -- reaping ----------------------------------------------------------------------------------- */

/* A row by deadline whose field is missing, which no crash can cause, is deleted silently. */
static void fields_reap_change(struct rk *rk, struct row *r, struct change *c, pair_fn fn, void *arg)
{
    bool stray = !c->exists;
    if (!stray && fn) fn(arg, c->sub, c->value, (double)c->deadline_ms);
    row_touch(rk, r);
    fields_set(rk, r, c, 0);
    delta_erase(rk, r, c);
    r->size -= !stray;
}

u32 fields_each_due(struct rk *rk, struct row *r, i64 until_ms, u32 max, pair_fn fn, void *arg)
{
    u32 n = 0;
    bytes first = fields_any(rk, r) ? fields_front(rk, r) : (bytes){0};
    if (first.p) {
        struct store_iter *it = due_iter(rk, r, first);
        for (; n < max && store_valid(it); store_next(it)) {
            bytes due = fields_due_at(r, it);
            if (alive(due_deadline(due), until_ms)) break;
            if (fields_moved(r, due)) continue;
            fn(arg, due_field(due), (bytes){0}, (double)due_deadline(due));
            n++;
        }
        store_iter_done(it);
    }
    for delta_each(c, r->delta) {
        if (n == max) break;
        if (!c->exists || !c->deadline_moved || alive(c->deadline_ms, until_ms)) continue;
        fn(arg, c->sub, (bytes){0}, (double)c->deadline_ms);
        n++;
    }
    return n;
}

u32 fields_reap(struct rk *rk, struct row *r, u32 max, pair_fn fn, void *arg)
{
    u32 n = 0;
    bytes first;
    if (!fields_may_hide(rk, r)) return 0;
    if ((first = fields_front(rk, r)).p) {
        struct store_iter *it = due_iter(rk, r, first);
        for (; n < max && store_valid(it); store_next(it)) {
            i64 deadline_ms = due_deadline(fields_due_at(r, it));
            if (alive(deadline_ms, rk->base.now_ms)) break;
            struct change *c = delta_at(rk, r, due_field(fields_due_at(r, it)));
            if (rk->base.failed) break;
            if (c->deadline_moved) continue;
            c->stored_deadline_ms = c->deadline_ms = deadline_ms;
            c->deadline_known = true;
            fields_reap_change(rk, r, c, fn, arg);
            n++;
        }
        store_iter_done(it);
    }
    for delta_each(c, r->delta) {
        if (n == max || fields_of(rk, r)->held_dead == 0) break;
        if (!c->deadline_moved || alive(c->deadline_ms, rk->base.now_ms)) continue;
        fields_reap_change(rk, r, c, fn, arg);
        n++;
    }
    return n;
}

bool fields_reap_one(struct rk *rk, struct row *r, bytes field, pair_fn fn, void *arg)
{
    if (LIKELY(!fields_may_hide(rk, r))) return false;
    struct change *c = delta_at(rk, r, field);
    if (!c->exists || fields_shows(rk, r, c)) return false;
    fields_reap_change(rk, r, c, fn, arg);
    return true;
}

/* -- beside a walk ----------------------------------------------------------------------------- */

i64 fields_deadline_at(struct walk *w, struct store_iter **beside)
{
    struct rk *rk = w->rk;
    if (w->change) {
        fields_load(rk, w->row, w->change);
        return w->change->deadline_ms;
    }
    bytes prefix = delta_prefix(rk, w->row);
    if (!*beside) {
        *beside = store_iter(rk->session, FAM_FIELD, prefix, delta_after(rk, w->row), 0);
        store_seek(*beside, delta_key(rk, w->row, w->sub));
    }
    for (struct store_iter *it = *beside; store_valid(it); store_next(it)) {
        bytes key = store_key(it), value = store_iter_value(it);
        int cmp = bytes_cmp(bytes_of(key.p + prefix.n, key.n - prefix.n), w->sub);
        if (cmp >= 0) return cmp == 0 && value.n == 8 ? (i64)get_u64(value.p) : 0;
    }
    return 0;
}

/* -- committing -------------------------------------------------------------------------------- */

/* deadline · field, in the transaction's memory. */
static bytes due_of(struct rk *rk, const struct change *c, i64 deadline_ms)
{
    char *p = arena_alloc(&rk->arena, 8 + c->sub.n);
    put_u64(p, (u64)deadline_ms);
    if (c->sub.n) memcpy(p + 8, c->sub.p, c->sub.n);
    return bytes_of(p, 8 + c->sub.n);
}

void fields_write(struct rk *rk, struct row *r, const struct change *c)
{
    i64 old_ms = c->stored_deadline_ms, new_ms = c->deadline_ms;
    if (!c->deadline_moved || old_ms == new_ms) return;
    bytes prefix = delta_prefix(rk, r);
    char coded[8];
    put_u64(coded, (u64)new_ms);
    if (old_ms) store_delete2(rk->session, FAM_SCORE, prefix, due_of(rk, c, old_ms));
    if (new_ms) {
        store_put2(rk->session, FAM_SCORE, prefix, due_of(rk, c, new_ms), (bytes){"", 0});
        store_put2(rk->session, FAM_FIELD, prefix, c->sub, bytes_of(coded, 8));
    } else {
        store_delete2(rk->session, FAM_FIELD, prefix, c->sub);
    }
}

/* The first row by deadline after this commit; p NULL: none. */
static bytes first_of_all(struct rk *rk, struct row *r)
{
    bytes stored = fields_front(rk, r);
    const struct change *c = nearest_moved(r);
    if (!c) return stored;
    bytes fresh = due_of(rk, c, c->deadline_ms);
    return !stored.p || bytes_cmp(fresh, stored) < 0 ? fresh : stored;
}

/* Updates the row's count of dead fields for the state after this commit. */
static void recount(struct rk *rk, struct row *r)
{
    struct fields *f = fields_of(rk, r);
    if (f->dead_known) {
        r->dead = f->dead;
        r->dead_at_ms = rk->base.now_ms;
        return;
    }
    for delta_each(c, r->delta) {
        if (!r->dead_at_ms) break;
        if (!c->deadline_moved) continue;
        r->dead -= !alive(c->stored_deadline_ms, r->dead_at_ms);
        r->dead += !alive(c->deadline_ms, r->dead_at_ms);
    }
}

/* A hash that replaced another is always filed: row_write.c has removed the other from the index. */
static void file_under(struct rk *rk, struct row *r, i64 due_ms)
{
    i64 filed_ms = row_has_base(r) ? r->stored.field_due_ms : 0;
    if (filed_ms && filed_ms != due_ms) due_forget_fields(rk, r);
    if (due_ms && filed_ms != due_ms) due_file_fields(rk, r, due_ms);
    r->stored.field_due_ms = due_ms;
}

void fields_commit(struct rk *rk, struct row *r)
{
    struct fields *f = r->delta ? r->delta->fields : NULL;
    if (f && f->changed && fields_any(rk, r)) {
        bytes first = first_of_all(rk, r);
        if (!first.p) return; /* a read failed */
        file_under(rk, r, due_deadline(first));
        buf_clear(&r->value);
        buf_append_bytes(&r->value, first);
        recount(rk, r);
    }
    if (r->field_deadlines) return;
    file_under(rk, r, 0);
    buf_release(&r->value);
    r->dead = 0;
    r->dead_at_ms = 0;
}
