/* Captured primitives of whole keys and databases. */
#include "base/num.h"
#include "site/capture_parts.h"
#include "site/place.h"

static const bytes empty = {"", 0};

/* -- deleting --------------------------------------------------------------------------------------- */

/* Deletes the key's value, and the metadata that is not needed any more. */
static void key_del(struct site_capture *c, struct key_ref *ref)
{
    if (LIKELY(capture_plain_drop(c, ref))) return;
    struct site_key *k = capture_key(c, ref);
    if (k->n_claims | k->ttl.n_deadlines) capture_clear(c, k);
    capture_save(c, k, ref);
    c->own->drop(c->site.e, ref);
    capture_note_gone(c, k);
    c->keyed = false;
}

static void capture_drop(struct engine *e, struct key_ref *ref)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db)) {
        bool dead = ref->deadline_ms && ref->deadline_ms <= site_now(&c->site);
        if (dead && !PLANTED_SITE(&c->site, PLANT_DEAD_DEL)) {
            struct site_key *k = capture_key(c, ref);
            capture_expire(c, k->db, buf_bytes(&k->name));
            c->own->find(e, k->db, buf_bytes(&k->name), ref);
        }
        if (ref->entry) key_del(c, ref);
    } else {
        c->own->drop(e, ref);
    }
    capture_leave(c);
}

/* -- deadlines -------------------------------------------------------------------------------------- */

static void capture_set_deadline(struct engine *e, struct key_ref *ref, i64 deadline_ms)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db)) {
        if (capture_plain_ttl(c, ref, deadline_ms)) {
            capture_leave(c);
            return;
        }
        struct site_key *k = capture_key(c, ref);
        capture_ttl(c, k, deadline_ms, (struct site_dot){0});
        c->own->set_deadline(e, &k->ref, deadline_ms);
        capture_save(c, k, ref);
    } else {
        c->own->set_deadline(e, ref, deadline_ms);
    }
    capture_leave(c);
}

/* -- keys that come from elsewhere -------------------------------------------------------------------- */

static void gather_map(struct site_capture *c, struct key_ref *ref, struct buf *out)
{
    struct map_iter it;
    bytes field, value;
    c->own->map.iter(c->site.e, ref, &it);
    while (c->own->map.next(&it, &field, &value)) {
        site_put_bytes(out, field);
        site_put_bytes(out, ref->type == TYPE_HASH ? value : empty);
    }
}

static void gather_zset(struct site_capture *c, struct key_ref *ref, struct buf *out)
{
    struct zset_iter it;
    bytes member;
    double score;
    char text[64];
    c->own->zset.iter(c->site.e, ref, &(struct zset_seek){.by = ZSEEK_RANK}, &it);
    while (c->own->zset.next(&it, &member, &score)) {
        site_put_bytes(out, member);
        site_put_bytes(out, bytes_of(text, num_print_double(text, score)));
    }
}

static void gather_list(struct site_capture *c, struct key_ref *ref, struct buf *out)
{
    struct seq_iter it;
    bytes value;
    struct buf path = {0};
    c->own->seq.iter(c->site.e, ref, 0, false, &it);
    for (i64 i = 0; c->own->seq.next(&it, &value); i++) {
        buf_clear(&path);
        site_put_place(&path, (i64)c->effect.stamp, c->effect.dot, i);
        site_put_bytes(out, buf_bytes(&path));
        site_put_bytes(out, value);
    }
    buf_release(&path);
}

static void gather_string(struct site_capture *c, struct key_ref *ref, struct buf *out)
{
    struct str_view view;
    c->own->str.get(c->site.e, ref, &view);
    site_put_bytes(out, empty);
    site_put_bytes(out, view.b);
}

/* Path and value of each cell. */
static void key_gather(struct site_capture *c, struct key_ref *ref, struct buf *out)
{
    switch (ref->type) {
    case TYPE_STRING: gather_string(c, ref, out); return;
    case TYPE_LIST: gather_list(c, ref, out); return;
    case TYPE_ZSET: gather_zset(c, ref, out); return;
    case TYPE_STREAM: capture_gather_stream(c, ref, out); return;
    default: gather_map(c, ref, out);
    }
}

/* Fields that are past their deadlines have not come along. */
static void key_adopt_fields(struct site_capture *c, struct site_key *k)
{
    const struct map_ops *map = &c->own->map;
    struct map_iter it;
    struct buf timed = {0};
    bytes field;
    i64 at_ms;
    map->reap(k->e, &k->ref, UINT32_MAX, NULL, NULL);
    map->iter(k->e, &k->ref, &it);
    while (map->next(&it, &field, NULL)) site_put_bytes(&timed, field);
    for (struct site_reader r = site_reader_of(buf_bytes(&timed)); site_left(&r);) {
        field = site_get_bytes(&r);
        if (!map->field_deadline(k->e, &k->ref, field, &at_ms) || at_ms == 0) continue;
        struct site_cell *cell = site_key_cell(k, TYPE_HASH, field, &c->site.cell);
        capture_field_ttl(c, k, cell, at_ms);
        site_key_store(k, cell);
    }
    buf_release(&timed);
}

/* The engine's key is new under its name: all it has is written by this effect. What was left under the name
 * goes. */
static void key_adopt(struct site_capture *c, struct key_ref *ref)
{
    struct buf cells = {0};
    i64 deadline_ms = ref->deadline_ms;
    struct site_key *k = capture_key(c, ref);
    capture_clear(c, k);
    capture_claim(c, k, ref->type);
    key_gather(c, &k->ref, &cells);
    for (struct site_reader r = site_reader_of(buf_bytes(&cells)); site_left(&r);) {
        bytes path = site_get_bytes(&r), value = site_get_bytes(&r);
        capture_put_cell(c, k, site_key_cell(k, ref->type, path, &c->site.cell), value);
    }
    bool timed = ref->type == TYPE_HASH && c->own->map.has_field_deadlines(k->e, &k->ref);
    if (UNLIKELY(timed)) key_adopt_fields(c, k);
    struct site_dot birth = ref->type == TYPE_STRING ? c->effect.dot : (struct site_dot){0};
    if (deadline_ms) capture_ttl(c, k, deadline_ms, birth);
    capture_save(c, k, ref);
    buf_release(&cells);
}

/* Before a free name is used: expires metadata under that name that is past its deadline. */
static void key_make_way(struct site_capture *c, u32 db, bytes key)
{
    struct key_ref ref;
    if (!capture_serves(c, db)) return;
    if (!c->own->find(c->site.e, db, key, &ref)) capture_free_key(c, &ref);
}

/* Whether nothing of the companion outlives the key. */
static bool key_goes_at_once(const struct site_key *k)
{
    return !k->counting && !k->timed && !k->string.n_incs && !k->ttl.n_marks;
}

static void capture_copy(struct engine *e, struct key_ref *ref, u32 db, bytes key, struct key_ref *out)
{
    struct site_capture *c = capture_enter(e, ref);
    key_make_way(c, db, key);
    c->own->copy(e, ref, db, key, out);
    if (capture_serves(c, db)) key_adopt(c, out);
    capture_leave(c);
}

/* Like a copy and a deletion, except that the engine moves the value if nothing else is left behind. */
static void key_move(struct site_capture *c, struct key_ref *ref, u32 db, bytes key)
{
    struct engine *e = c->site.e;
    struct key_ref made;
    struct site_key *k = capture_key(c, ref);
    if (key_goes_at_once(k)) {
        capture_clear(c, k);
        capture_save(c, k, ref);
        c->own->rename(e, ref, db, key);
    } else {
        c->own->copy(e, ref, db, key, &made);
        key_del(c, ref);
        *ref = made;
    }
    c->keyed = false;
}

static void capture_rename(struct engine *e, struct key_ref *ref, u32 db, bytes key)
{
    struct site_capture *c = capture_enter(e, ref);
    key_make_way(c, db, key);
    if (capture_serves(c, ref->db)) key_move(c, ref, db, key);
    else c->own->rename(e, ref, db, key);
    if (capture_serves(c, db)) key_adopt(c, ref);
    capture_leave(c);
}

/* -- databases -------------------------------------------------------------------------------------- */

struct key_flush {
    struct site_capture *c;
    struct buf seen;
    bool remains; /* of some key something has to stay until it is garbage */
};

static void flush_look(void *arg, u32 db, bytes name)
{
    struct key_flush *f = arg;
    struct site *s = &f->c->site;
    site_key_load(&s->key, s->e, db, name);
    if (key_goes_at_once(&s->key)) return;
    site_put_key_seen(s, &s->key, MOVE_FLUSH, &f->seen);
    f->remains = true;
}

static void capture_flush_key(void *arg, u32 db, bytes name)
{
    struct key_flush *f = arg;
    struct site_key *k = &f->c->key;
    site_key_load(k, f->c->site.e, db, name);
    struct key_ref ref = k->ref;
    capture_clear_atoms(f->c, k);
    capture_save(f->c, k, &ref);
    if (!ref.entry) return;
    f->c->own->drop(f->c->site.e, &ref);
    capture_note_gone(f->c, k);
}

/* O(1) for the engine, unless counters or marks of expiry have to stay; but all keys are looked at. */
static void flush_served(struct site_capture *c, u32 db)
{
    struct site *s = &c->site;
    struct key_flush f = {.c = c};
    if (c->made) capture_split(c);
    c->keyed = c->named = false;
    site_each_key(s, db, flush_look, &f);
    capture_dot(c);
    site_put_move(&s->moves, &(struct site_move){.op = MOVE_FLUSH, .db = db, .seen = buf_bytes(&f.seen)},
                  false);
    c->rems = 0;
    if (f.remains) site_each_key(s, db, capture_flush_key, &f);
    else c->own->flush(s->e, db);
    c->keyed = false;
    buf_release(&f.seen);
}

static void capture_flush(struct engine *e, u32 db)
{
    struct site_capture *c = capture_enter(e, NULL);
    if (capture_serves(c, db)) flush_served(c, db);
    else c->own->flush(e, db);
    capture_leave(c);
}

/* Refused before: see capture.h. */
static void capture_swap(struct engine *e, u32 a, u32 b)
{
    struct site_capture *c = capture_enter(e, NULL);
    if (!capture_serves(c, a) && !capture_serves(c, b)) c->own->swap(e, a, b);
    else e->failed = true;
    capture_leave(c);
}

void capture_key_ops(struct engine_ops *ops)
{
    ops->drop = capture_drop;
    ops->set_deadline = capture_set_deadline;
    ops->rename = capture_rename;
    ops->copy = capture_copy;
    ops->flush = capture_flush;
    ops->swap = capture_swap;
}
