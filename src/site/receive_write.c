/* The fast path for writes in place of other sites: elements of hashes, sets, sorted sets, lists and streams
 * that are put or removed, and increments (receive_parts.h). */
#include "base/num.h"
#include "site/receive_parts.h"
#include "xstream/xstream.h"

#define WRITE_PUTS_MAX 64
#define WRITE_EXACT ((double)((i64)1 << 53)) /* integers below this are exact in a double */

struct receive_put {
    bytes path, value;
};

/* The moves of such a write: [CLEAR] · CLAIM · [KEEP] · PUT … or ADD or REM. */
struct receive_write {
    u32 db;
    bytes name;
    enum value_type kind;
    bool is_new; /* a CLEAR comes first: the author had no such key */
    bool keeps;  /* it carries a deadline along … */
    i64 at_ms;
    struct site_dot birth;
    enum site_op op; /* of the others … */
    u32 n;
    struct receive_put puts[WRITE_PUTS_MAX]; /* … of which these are the paths and values */
    u64 prev;                                /* ADD */
    struct site_num total;
    bool front;                              /* PUT, REM of a list: at which end */
};

static bool write_get_start(struct site_moves *it, struct receive_write *w)
{
    struct site_move m;
    if (!site_moves_next(it, &m)) return false;
    const char *name = m.name.p;
    w->is_new = m.op == MOVE_CLEAR;
    if (w->is_new && (m.seen.n || m.scope.n || !site_moves_next(it, &m))) return false;
    if (m.op != MOVE_CLAIM || m.stamp || m.name.p != name) return false;
    w->db = m.db;
    w->name = m.name;
    w->kind = m.kind;
    return true;
}

static bool write_get_keep(struct receive_write *w, const struct site_move *m)
{
    bool first = w->n == 0 && !w->keeps && !w->is_new;
    w->keeps = true;
    w->at_ms = m->at_ms;
    w->birth = m->birth;
    return first && m->at_ms;
}

static bool write_get_one(struct receive_write *w, const struct site_move *m)
{
    if (w->n > 0 && (m->op != MOVE_PUT || w->op != MOVE_PUT || w->n == WRITE_PUTS_MAX)) return false;
    if (m->kind != w->kind || m->seen.n || m->stamp || m->birth.gid) return false;
    if (!site_path_fits(m->kind, m->path)) return false;
    if (m->op == MOVE_PUT && !site_value_fits(m->kind, m->path, m->value)) return false;
    if (m->op == MOVE_ADD && (m->fresh || m->total.real)) return false;
    w->op = m->op;
    w->prev = m->prev;
    w->total = m->total;
    w->puts[w->n++] = (struct receive_put){m->path, m->value};
    return m->op == MOVE_PUT || (!w->is_new && (m->op == MOVE_ADD || m->op == MOVE_REM));
}

static bool write_get(bytes moves, struct receive_write *w)
{
    struct site_moves it = site_moves_of(moves);
    struct site_move m;
    if (!write_get_start(&it, w)) return false;
    w->keeps = false;
    w->n = 0;
    while (site_moves_next(&it, &m)) {
        if (m.name.p != w->name.p) return false;
        if (m.op == MOVE_KEEP ? !write_get_keep(w, &m) : !write_get_one(w, &m)) return false;
    }
    return w->n > 0 && !it.in.bad;
}

/* -- the head ----------------------------------------------------------------------------------------- */

/* The name of an element's row. */
static bytes write_row(struct receive *f, const struct receive_write *w, u32 i)
{
    struct buf *row = &f->s->cell.row;
    buf_clear(row);
    site_put_u8(row, (u8)w->kind);
    buf_append_bytes(row, w->puts[i].path);
    return buf_bytes(row);
}

/* The deadline that the write carries along is the key's. */
static bool write_keeps(struct receive *f, const struct receive_write *w, const struct site_head *h)
{
    if (!w->keeps) return !h->ttl.gid;
    return h->ttl.gid && w->at_ms == f->ref.deadline_ms && receive_saw(f, w->birth, 0);
}

static bool write_find(struct receive *f, const struct receive_write *w, struct site_head *h)
{
    *h = (struct site_head){0};
    if (!receive_find(f, w->db, w->name)) return false;
    if (w->is_new) return !f->known && !f->ref.entry;
    u64 bug = w->op == MOVE_PUT ? PLANT_FAST_RECEIVE : w->op == MOVE_REM ? PLANT_FAST_REM : PLANT_FAST_ADD;
    return receive_get_head(f, h, bug) && f->ref.type == w->kind && write_keeps(f, w, h);
}

/* The claim is the effect's, and the deadline it carries along. */
static void write_start(struct receive *f, const struct receive_write *w, struct site_head *h)
{
    struct engine *e = f->s->e;
    receive_accept(f);
    h->dot = f->e->dot;
    h->stamp = f->e->stamp;
    if (!w->keeps || PLANTED_SITE(f->s, PLANT_FAST_KEEP)) return;
    h->at_ms = w->at_ms;
    h->birth = w->birth;
    if (h->keeps) return;
    h->keeps = true;
    if (!h->counted && w->kind != TYPE_STRING)
        h->cells[w->kind].rows = h->cells[w->kind].live = e->ops->size(e, &f->ref);
    h->counted = true;
    e->ops->companion.keep(e, &f->ref, true); /* until it is everywhere */
}

/* -- elements ----------------------------------------------------------------------------------------- */

/* Elements of a list are put at an end, one after the other. */
static bool write_is_push(struct receive *f, struct receive_write *w)
{
    struct buf *end = &f->s->cell.text;
    int side = 0;
    w->front = false;
    if (PLANTED_SITE(f->s, PLANT_FAST_PUSH)) return true;
    for (u32 i = 1; i < w->n; i++) {
        int c = bytes_cmp(w->puts[i].path, w->puts[i - 1].path);
        if (c == 0 || (side && (c < 0) != (side < 0))) return false;
        side = c;
    }
    if (side >= 0 && (w->is_new || (site_list_end(f->s->e, &f->ref, false, end) &&
                                    bytes_cmp(w->puts[0].path, buf_bytes(end)) > 0)))
        return true;
    w->front = true;
    return side <= 0 && (w->is_new || (site_list_end(f->s->e, &f->ref, true, end) &&
                                       bytes_cmp(w->puts[0].path, buf_bytes(end)) < 0));
}

/* An entry that comes after all others. */
static bool write_is_append(struct receive *f, const struct receive_write *w)
{
    bytes path = w->puts[0].path;
    if (w->is_new || w->n > 1 || path.n != SITE_ID_BYTES) return false;
    struct stream_id last = xstream_head_last(f->s->e->ops->rows.head(f->s->e, &f->ref));
    return stream_id_cmp(stream_id_unpack(path.p), last) > 0;
}

static bool write_append_entry(struct receive *f, const struct receive_put *p)
{
    struct xstream s;
    xstream_open(&s, f->s->e, &f->ref);
    xstream_append(&s, SITE_NODE_LIMITS, stream_id_unpack(p->path.p), p->value);
    xstream_save(&s);
    return true;
}

static bool write_push(struct receive *f, const struct receive_write *w, bytes value)
{
    const struct engine_ops *ops = f->s->e->ops;
    u64 at = w->front ? 0 : ops->size(f->s->e, &f->ref);
    ops->seq.insert(f->s->e, &f->ref, at, value);
    return true;
}

/* Returns whether the element is new. */
static bool write_put_value(struct receive *f, const struct receive_write *w, const struct receive_put *p)
{
    const struct engine_ops *ops = f->s->e->ops;
    double score = 0;
    switch (w->kind) {
    case TYPE_LIST: return write_push(f, w, p->value);
    case TYPE_STREAM: return write_append_entry(f, p);
    case TYPE_ZSET:
        num_parse_double(p->value, &score);
        return ops->zset.put(f->s->e, &f->ref, p->path, score);
    default: return ops->map.put(f->s->e, &f->ref, p->path, p->value, true);
    }
}

static bool write_put(struct receive *f, struct receive_write *w)
{
    struct engine *e = f->s->e;
    char raw[SITE_PLAIN_CELL_MAX];
    struct site_head h;
    if (w->kind == TYPE_STRING || !write_find(f, w, &h) || !site_head_is_plain(&h, w->kind)) return false;
    if (w->kind == TYPE_LIST && !write_is_push(f, w)) return false;
    if (w->kind == TYPE_STREAM && !write_is_append(f, w)) return false;
    write_start(f, w, &h);
    if (w->is_new) e->ops->create(e, w->db, w->name, w->kind, &f->ref);
    if (!h.counted) receive_put_head(f, &h);
    for (u32 i = 0; i < w->n; i++) {
        bool is_new = write_put_value(f, w, &w->puts[i]);
        h.cells[w->kind].rows += is_new;
        h.cells[w->kind].live += is_new;
        e->ops->companion.put(e, &f->ref, write_row(f, w, i),
                              site_plain_cell(raw, w->kind, f->e->dot, f->e->stamp));
    }
    if (h.counted) receive_put_head(f, &h);
    return true;
}

/* Whether this is the first or last element of the list. */
static bool write_is_pop(struct receive *f, struct receive_write *w)
{
    struct buf *end = &f->s->cell.text;
    for (w->front = false;; w->front = true) {
        if (!site_list_end(f->s->e, &f->ref, w->front, end)) return false;
        if (bytes_eq(w->puts[0].path, buf_bytes(end))) return true;
        if (w->front) return false;
    }
}

static void write_del_value(struct receive *f, const struct receive_write *w)
{
    const struct engine_ops *ops = f->s->e->ops;
    u64 last = ops->size(f->s->e, &f->ref) - 1;
    if (w->kind == TYPE_LIST) ops->seq.erase(f->s->e, &f->ref, w->front ? 0 : last, 1);
    else if (w->kind == TYPE_ZSET) ops->zset.del(f->s->e, &f->ref, w->puts[0].path);
    else ops->map.del(f->s->e, &f->ref, w->puts[0].path);
}

/* An element that was written once, and is not the last one. */
static bool write_rem(struct receive *f, struct receive_write *w)
{
    struct engine *e = f->s->e;
    struct site_dot made;
    struct site_head h;
    bytes cell;
    if (w->kind < TYPE_HASH || w->kind == TYPE_STREAM || !write_find(f, w, &h)) return false;
    if (!site_head_is_plain(&h, w->kind) || e->ops->size(e, &f->ref) < 2) return false;
    if (!e->ops->companion.get(e, &f->ref, write_row(f, w, 0), &cell)) return false;
    if (!site_cell_is_plain(cell, &made) || !receive_saw(f, made, PLANT_FAST_REM)) return false;
    if (w->kind == TYPE_LIST && !write_is_pop(f, w)) return false;
    write_start(f, w, &h);
    write_del_value(f, w);
    e->ops->companion.del(e, &f->ref, write_row(f, w, 0));
    h.cells[w->kind].rows--;
    h.cells[w->kind].live--;
    receive_put_head(f, &h);
    return true;
}

/* -- increments --------------------------------------------------------------------------------------- */

/* The counter of a site that has incremented it before. */
static bool write_count(struct receive *f, const struct receive_write *w, struct site_counter *n, i64 *by)
{
    u64 seq = f->e->dot.seq;
    if (w->prev >= seq || __builtin_sub_overflow(w->total.i, n->inc.total.i, by)) return false;
    n->inc.hi = seq;
    n->inc.total = w->total;
    return true;
}

static bool write_incr(struct receive *f, const struct receive_write *w)
{
    struct engine *e = f->s->e;
    struct buf *cell = &f->s->cell.text;
    struct site_counter n;
    struct site_head h;
    char text[NUM_I64_LEN];
    i64 by, value;
    if (!write_find(f, w, &h) || h.string != SITE_STRING_CELL || h.untidy) return false;
    for (u32 type = TYPE_HASH; type < SITE_TYPES; type++)
        if (h.cells[type].rows) return false;
    if (!site_get_counter(h.cell, TYPE_STRING, f->e->dot.gid, &n)) return false;
    if (!write_count(f, w, &n, &by)) return false;
    if (!e->ops->str.get_int(e, &f->ref, &value) || __builtin_add_overflow(value, by, &value)) return false;
    buf_clear(cell);
    site_put_counter(cell, &n);
    h.cell = buf_bytes(cell);
    write_start(f, w, &h);
    bytes shown = bytes_of(text, num_print_i64(text, value));
    e->ops->str.put(e, w->db, w->name, &f->ref, shown, f->ref.deadline_ms);
    receive_put_head(f, &h);
    return true;
}

/* The new value of a field or score; false: it is not an exact integer. */
static bool write_sum(struct receive *f, const struct receive_write *w, i64 by, char text[NUM_I64_LEN],
                      struct receive_put *sum)
{
    struct engine *e = f->s->e;
    double score;
    bytes old;
    i64 value;
    if (w->kind == TYPE_HASH) {
        if (!e->ops->map.get(e, &f->ref, w->puts[0].path, &old) || !num_parse_i64(old, &value)) return false;
    } else {
        if (!e->ops->zset.score(e, &f->ref, w->puts[0].path, &score)) return false;
        if (!(score > -WRITE_EXACT && score < WRITE_EXACT) || score != (double)(i64)score) return false;
        value = (i64)score;
    }
    if (__builtin_add_overflow(value, by, &value)) return false;
    if (w->kind == TYPE_ZSET && (value > (i64)WRITE_EXACT || value < -(i64)WRITE_EXACT)) return false;
    *sum = (struct receive_put){w->puts[0].path, bytes_of(text, num_print_i64(text, value))};
    return true;
}

/* HINCRBY, ZINCRBY. */
static bool write_add(struct receive *f, const struct receive_write *w)
{
    struct engine *e = f->s->e;
    struct buf *cell = &f->s->cell.text;
    struct receive_put sum;
    struct site_counter n;
    struct site_head h;
    char text[NUM_I64_LEN];
    bytes raw;
    i64 by;
    if (!site_counts(w->kind) || !write_find(f, w, &h) || h.string || !h.counting) return false;
    for (u32 type = TYPE_HASH; type < SITE_TYPES; type++)
        if (type != w->kind && h.cells[type].rows) return false;
    if (!e->ops->companion.get(e, &f->ref, write_row(f, w, 0), &raw)) return false;
    if (!site_get_counter(raw, w->kind, f->e->dot.gid, &n) || !write_count(f, w, &n, &by)) return false;
    if (!write_sum(f, w, by, text, &sum)) return false;
    buf_clear(cell);
    site_put_counter(cell, &n);
    write_start(f, w, &h);
    write_put_value(f, w, &sum);
    e->ops->companion.put(e, &f->ref, write_row(f, w, 0), buf_bytes(cell));
    receive_put_head(f, &h);
    return true;
}

bool receive_write(struct receive *f)
{
    struct receive_write w;
    if (!write_get(f->e->moves, &w)) return false;
    if (w.op == MOVE_PUT) return write_put(f, &w);
    if (w.op == MOVE_REM) return write_rem(f, &w);
    return w.kind == TYPE_STRING ? write_incr(f, &w) : write_add(f, &w);
}
