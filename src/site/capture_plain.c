/* Fast paths of captured writes, for keys whose metadata only says who wrote what last (struct site_head).
 * They do what the functions of capture.c do, but read and write only the head and the rows that change. Each
 * returns false, with nothing done, if the key has other metadata. */
#include "base/num.h"
#include "site/capture_parts.h"
#include "site/place.h"

static bool plain_made(const struct site_capture *c, struct site_dot dot)
{
    return c->open && site_dot_eq(dot, c->effect.dot);
}

/* The head of a key that is there. A snapshot that is being sent has to see the key before it changes. */
static bool plain_head(struct site_capture *c, struct key_ref *ref, struct site_head *h)
{
    bytes raw;
    if (UNLIKELY(c->site.walks != NULL) || !c->own->companion.head(c->site.e, ref, &raw)) return false;
    if (!site_get_head(raw, h)) return false;
    return !h->keeps || (h->at_ms == ref->deadline_ms && h->at_ms > site_now(&c->site));
}

static void plain_put_head(struct site_capture *c, struct key_ref *ref, const struct site_head *h)
{
    struct buf *to = &c->key.scratch;
    buf_clear(to);
    site_put_head(to, h, c->site.position + 1);
    c->own->companion.set_head(c->site.e, ref, buf_bytes(to));
}

/* The name of a cell's row, in c->path. */
static void plain_row(struct site_capture *c, enum value_type kind, bytes path)
{
    buf_clear(&c->path);
    site_put_u8(&c->path, (u8)kind);
    buf_append_bytes(&c->path, path);
}

static bool plain_is_named(const struct site_capture *c, const struct key_ref *ref)
{
    return c->key.db == ref->db && bytes_eq(buf_bytes(&c->key.name), ref->key);
}

/* As capture_move(), about a key that is not loaded. */
static void plain_move(struct site_capture *c, const struct key_ref *ref, struct site_move *m)
{
    struct site_key *k = &c->key;
    bool same = c->named && plain_is_named(c, ref);
    if (!same) {
        k->db = ref->db;
        buf_clear(&k->name);
        buf_append_bytes(&k->name, ref->key);
        c->added = false;
    }
    m->db = ref->db;
    m->name = buf_bytes(&k->name);
    site_put_move(&c->site.moves, m, same);
    c->named = c->made = true;
    c->keyed = c->flows = false;
    c->rems = 0;
}

/* As capture_start(). */
static void plain_start(struct site_capture *c, const struct key_ref *ref, struct site_head *h)
{
    struct site_dot dot = capture_dot(c);
    h->stored = plain_made(c, h->dot);
    if (h->stored) return;
    h->dot = dot;
    h->stamp = c->effect.stamp;
    plain_move(c, ref, &(struct site_move){.op = MOVE_CLAIM, .kind = ref->type});
    if (h->keeps && !PLANTED_SITE(&c->site, PLANT_NO_KEEP))
        plain_move(c, ref, &(struct site_move){.op = MOVE_KEEP, .at_ms = h->at_ms, .birth = h->birth});
}

/* -- elements -------------------------------------------------------------------------------------- */

/* The first write in place since a deadline was set. */
static void plain_keep(struct site_capture *c, struct key_ref *ref, struct site_head *h, u64 elements)
{
    h->keeps = h->counted = true;
    h->at_ms = ref->deadline_ms;
    h->cells[ref->type].rows = h->cells[ref->type].live = elements;
    c->own->companion.keep(c->site.e, ref, true); /* until it is everywhere */
}

bool capture_plain_begin(struct site_capture *c, struct key_ref *ref, u64 fresh, struct site_head *h)
{
    bytes raw;
    *h = (struct site_head){.stored = true};
    if (c->flows && c->open && c->named && plain_is_named(c, ref)) return true;
    u64 elements = c->own->size(c->site.e, ref);
    h->stored = false;
    if (!c->own->companion.head(c->site.e, ref, &raw) && elements == fresh) {
        if (UNLIKELY(c->site.walks != NULL)) return false;
        capture_dot(c);
        plain_move(c, ref, &(struct site_move){.op = MOVE_CLEAR});
    } else if (!plain_head(c, ref, h) || !site_head_is_plain(h, ref->type)) {
        if (!PLANTED_SITE(&c->site, PLANT_FAST_PUT) || c->site.walks) return false;
    }
    if (h->ttl.gid && !h->keeps) {
        if (plain_made(c, h->dot) || plain_made(c, h->ttl)) return false;
        if (ref->deadline_ms <= site_now(&c->site)) return false;
        plain_keep(c, ref, h, elements - fresh);
    }
    plain_start(c, ref, h);
    return true;
}

void capture_plain_put(struct site_capture *c, struct key_ref *ref, struct site_head *h, bytes path,
                       bytes value, bool is_new)
{
    enum value_type kind = ref->type;
    char raw[SITE_PLAIN_CELL_MAX];
    plain_move(c, ref, &(struct site_move){.op = MOVE_PUT, .kind = kind, .path = path, .value = value});
    plain_row(c, kind, path);
    c->own->companion.put(c->site.e, ref, buf_bytes(&c->path),
                          site_plain_cell(raw, kind, c->effect.dot, c->effect.stamp));
    h->cells[kind].rows += is_new;
    h->cells[kind].live += is_new;
}

void capture_plain_end(struct site_capture *c, struct key_ref *ref, const struct site_head *h)
{
    if (!h->stored || h->counted) plain_put_head(c, ref, h);
    c->flows = !h->counted;
}

bool capture_plain_rem(struct site_capture *c, struct key_ref *ref, bytes path)
{
    struct engine *e = c->site.e;
    const struct companion_ops *ops = &c->own->companion;
    struct site_head h;
    struct site_dot made;
    bytes cell;
    if (!plain_head(c, ref, &h) || !site_head_is_plain(&h, ref->type)) return false;
    if (h.ttl.gid && !h.keeps) return false;
    if (c->own->size(e, ref) < 2) return false; /* the last one: a clear */
    plain_row(c, ref->type, path);
    if (!ops->get(e, ref, buf_bytes(&c->path), &cell) || !site_cell_is_plain(cell, &made)) return false;
    if (plain_made(c, made)) return false;
    plain_start(c, ref, &h);
    plain_move(c, ref, &(struct site_move){.op = MOVE_REM, .kind = ref->type, .path = path});
    ops->del(e, ref, buf_bytes(&c->path));
    h.cells[ref->type].rows--;
    h.cells[ref->type].live--;
    plain_put_head(c, ref, &h);
    return true;
}

/* -- lists ----------------------------------------------------------------------------------------- */

bool capture_plain_push(struct site_capture *c, struct key_ref *ref, bool front, const bytes *v, u32 n)
{
    struct site_head h;
    if (!capture_plain_begin(c, ref, 0, &h)) return false;
    i64 at = front ? -(i64)c->effect.stamp : (i64)c->effect.stamp;
    if (site_list_end(c->site.e, ref, front, &c->seen)) {
        i64 end = site_place_n(buf_bytes(&c->seen));
        at = front ? MIN(at, end - 1) : MAX(at, end + 1);
    }
    for (u32 i = 0; i < n; i++) {
        buf_clear(&c->seen);
        site_put_place(&c->seen, at, c->effect.dot, front ? -(i64)i : (i64)i);
        capture_plain_put(c, ref, &h, buf_bytes(&c->seen), v[i], true);
    }
    capture_plain_end(c, ref, &h);
    return true;
}

bool capture_plain_pop(struct site_capture *c, struct key_ref *ref, bool front)
{
    return site_list_end(c->site.e, ref, front, &c->seen) && capture_plain_rem(c, ref, buf_bytes(&c->seen));
}

/* -- streams --------------------------------------------------------------------------------------- */

bool capture_plain_entry(struct site_capture *c, struct key_ref *ref, bytes path, bytes value)
{
    struct site_head h;
    if (!plain_head(c, ref, &h) || !site_head_is_plain(&h, TYPE_STREAM)) return false;
    if (h.ttl.gid && !h.keeps) return false;
    plain_start(c, ref, &h);
    capture_plain_put(c, ref, &h, path, value, true);
    capture_plain_end(c, ref, &h);
    return true;
}

bool capture_plain_only_entries(struct site_capture *c, struct key_ref *ref)
{
    struct site_head h;
    return c->named && plain_is_named(c, ref) && !c->cut && plain_head(c, ref, &h) && h.counted &&
           site_head_is_plain(&h, TYPE_STREAM);
}

/* -- increments ------------------------------------------------------------------------------------ */

/* The counter grows, by an effect that has not made it grow before. */
static bool plain_count(struct site_capture *c, const struct key_ref *ref, bytes path, struct site_head *h,
                        struct site_counter *n, i64 by)
{
    struct site_inc *inc = &n->inc;
    struct site_move m = {
        .op = MOVE_ADD, .kind = ref->type, .path = path, .prev = inc->hi, .prev_total = inc->total};
    if (c->open && inc->hi == c->effect.dot.seq) return false;
    if (__builtin_add_overflow(inc->total.i, by, &m.total.i)) return false;
    plain_start(c, ref, h);
    inc->hi = c->effect.dot.seq;
    inc->total = m.total;
    plain_move(c, ref, &m);
    return true;
}

bool capture_plain_incr(struct site_capture *c, struct key_ref *ref, i64 by)
{
    struct site_counter n;
    struct site_head h;
    struct buf *cell = &c->seen;
    if (!plain_head(c, ref, &h) || ref->type != TYPE_STRING || h.string != SITE_STRING_CELL) return false;
    if ((h.ttl.gid && !h.keeps) || h.untidy) return false;
    for (u32 type = TYPE_HASH; h.counted && type < SITE_TYPES; type++)
        if (h.cells[type].rows) return false;
    if (!site_get_counter(h.cell, TYPE_STRING, c->site.gid, &n)) return false;
    if (!plain_count(c, ref, (bytes){"", 0}, &h, &n, by)) return false;
    buf_clear(cell);
    site_put_counter(cell, &n);
    h.cell = buf_bytes(cell);
    plain_put_head(c, ref, &h);
    return true;
}

/* An element's: HINCRBY, ZINCRBY. */
bool capture_plain_add(struct site_capture *c, struct key_ref *ref, bytes path, i64 by)
{
    struct engine *e = c->site.e;
    const struct companion_ops *ops = &c->own->companion;
    struct site_counter n;
    struct site_head h;
    bytes cell;
    if (!plain_head(c, ref, &h) || h.string || !h.counting || (h.ttl.gid && !h.keeps)) return false;
    for (u32 type = TYPE_HASH; type < SITE_TYPES; type++)
        if (type != ref->type && h.cells[type].rows) return false;
    plain_row(c, ref->type, path);
    if (!ops->get(e, ref, buf_bytes(&c->path), &cell)) return false;
    if (!site_get_counter(cell, ref->type, c->site.gid, &n) || !plain_count(c, ref, path, &h, &n, by))
        return false;
    buf_clear(&c->seen);
    site_put_counter(&c->seen, &n);
    ops->put(e, ref, buf_bytes(&c->path), buf_bytes(&c->seen));
    plain_put_head(c, ref, &h);
    return true;
}

/* -- whole keys ------------------------------------------------------------------------------------ */

bool capture_plain_ttl(struct site_capture *c, struct key_ref *ref, i64 at_ms)
{
    struct site_head h;
    if (at_ms == 0 || !plain_head(c, ref, &h) || h.counted) return false;
    h.ttl = capture_dot(c);
    h.ttl_birth = (struct site_dot){0};
    plain_move(c, ref, &(struct site_move){.op = MOVE_TTL, .at_ms = at_ms});
    buf_clear(&c->seen);
    buf_append_bytes(&c->seen, h.cell);
    h.cell = buf_bytes(&c->seen);
    c->own->set_deadline(c->site.e, ref, at_ms);
    plain_put_head(c, ref, &h);
    return true;
}

bool capture_plain_drop(struct site_capture *c, struct key_ref *ref)
{
    struct site_head h;
    if (!plain_head(c, ref, &h) || h.counted || h.string == SITE_STRING_CELL) return false;
    if (plain_made(c, h.dot) || plain_made(c, h.ttl)) return false;
    capture_dot(c);
    plain_move(c, ref, &(struct site_move){.op = MOVE_CLEAR});
    c->own->drop(c->site.e, ref);
    return true;
}
