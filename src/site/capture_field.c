/* Captured primitives of deadlines of hash fields. A command that writes to a field has what is past its
 * deadline there reaped first, so that a put finds none of it (keyspace_reap_field). */
#include "site/capture_parts.h"

/* -- moves ------------------------------------------------------------------------------------------ */

static void field_move(struct site_capture *c, struct site_key *k, const struct site_cell *cell,
                       enum site_field_ttl what, i64 at_ms)
{
    struct site_move m = {.op = MOVE_FIELD_TTL, .kind = TYPE_HASH, .field_ttl = what, .at_ms = at_ms};
    m.path = site_cell_path(cell);
    capture_move(c, k, &m);
}

void capture_field_ttl(struct site_capture *c, struct site_key *k, struct site_cell *cell, i64 at_ms)
{
    field_move(c, k, cell, FIELD_GETS, at_ms);
    cell->ttl.n_deadlines = 0;
    site_ttl_add(&cell->ttl, (struct site_deadline){.dot = c->effect.dot, .at_ms = at_ms});
}

/* What the effect itself said about it stands, or has to be in an effect before. */
void capture_field_stays(struct site_capture *c, struct site_key *k, struct site_cell *cell, bool stays)
{
    struct site_deadline kept = {.at_ms = site_ttl_at(&cell->ttl), .kept = true};
    bool made = c->open && site_ttl_made(&cell->ttl, c->effect.dot);
    if (cell->ttl.n_deadlines == 0) return;
    if (stays && site_cell_live(cell)) {
        if (made || kept.at_ms == 0) return;
        field_move(c, k, cell, FIELD_KEEPS, kept.at_ms);
        kept.dot = c->effect.dot;
        site_ttl_replace(&cell->ttl, &c->site.clock, kept);
        return;
    }
    if (made) {
        capture_split(c);
        capture_start(c, k, TYPE_HASH);
    }
    if (!PLANTED_SITE(&c->site, PLANT_HSET_STAYS)) field_move(c, k, cell, FIELD_LOSES, 0);
    cell->ttl.n_deadlines = 0;
}

/* -- primitives ------------------------------------------------------------------------------------- */

static void capture_set_field_deadline(struct engine *e, struct key_ref *ref, bytes field, i64 deadline_ms)
{
    struct site_capture *c = capture_enter(e, ref);
    if (!capture_serves(c, ref->db)) {
        c->own->map.set_field_deadline(e, ref, field, deadline_ms);
    } else if (c->own->map.get(e, ref, field, NULL)) {
        struct site_key *k = capture_key(c, ref);
        struct site_cell *cell = site_key_cell(k, TYPE_HASH, field, &c->site.cell);
        capture_field_ttl(c, k, cell, deadline_ms);
        c->own->map.set_field_deadline(e, &k->ref, field, deadline_ms);
        site_key_store(k, cell);
        capture_save(c, k, ref);
    }
    capture_leave(c);
}

/* Of a hash with deadlines. True: the field was past its own. */
static bool field_reap(struct site_capture *c, struct key_ref *ref, bytes field, pair_fn fn, void *arg)
{
    struct site_cell *cell = site_key_cell(&c->key, TYPE_HASH, field, &c->site.cell);
    struct buf one = {0};
    bytes value;
    i64 at_ms;
    bool due = site_field_due(&c->site, cell);
    site_put_bytes(&one, field);
    if (due && fn && ref->entry && c->own->map.stored(c->site.e, ref, field, &value, &at_ms))
        fn(arg, field, value, (double)at_ms);
    capture_expire_fields(c, ref, buf_bytes(&one));
    if (!ref->entry) c->own->create(c->site.e, ref->db, ref->key, TYPE_HASH, ref); /* for what comes now */
    buf_release(&one);
    return due;
}

/* Whether fields have deadlines or marks; then the key is loaded. Usually the head says it all. */
static bool field_has_times(struct site_capture *c, struct key_ref *ref)
{
    struct site_head h;
    bytes raw;
    if (!c->own->companion.head(c->site.e, ref, &raw)) return false;
    return !site_get_head(raw, &h) && capture_key(c, ref)->timed;
}

static bool capture_reap_field(struct engine *e, struct key_ref *ref, bytes field, pair_fn fn, void *arg)
{
    struct site_capture *c = capture_enter(e, ref);
    bool died = false;
    if (!capture_serves(c, ref->db)) died = c->own->map.reap_field(e, ref, field, fn, arg);
    else if (UNLIKELY(field_has_times(c, ref))) died = field_reap(c, ref, field, fn, arg);
    capture_leave(c);
    return died;
}

struct field_reaping {
    struct buf fields;
    pair_fn fn;
    void *arg;
};

static void field_is_due(void *arg, bytes field, bytes value, double deadline_ms)
{
    struct field_reaping *r = arg;
    site_put_bytes(&r->fields, field);
    if (r->fn) r->fn(r->arg, field, value, deadline_ms);
}

static u32 capture_reap(struct engine *e, struct key_ref *ref, u32 max, pair_fn fn, void *arg)
{
    struct site_capture *c = capture_enter(e, ref);
    struct field_reaping r = {.fn = fn, .arg = arg};
    u32 n;
    if (capture_serves(c, ref->db)) {
        n = c->own->map.due(e, ref, e->now_ms, max, field_is_due, &r);
        if (n) capture_expire_fields(c, ref, buf_bytes(&r.fields));
    } else {
        n = c->own->map.reap(e, ref, max, fn, arg);
    }
    buf_release(&r.fields);
    capture_leave(c);
    return n;
}

void capture_field_ops(struct engine_ops *ops)
{
    ops->map.set_field_deadline = capture_set_field_deadline;
    ops->map.reap_field = capture_reap_field;
    ops->map.reap = capture_reap;
}
