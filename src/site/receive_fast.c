/* The fast path for effects of other sites: SET, HSET, SADD, ZADD and INCR of one key, whose author had seen
 * everything that is stored under the name. It does what site_apply() would, and accepts no other effects.
 *
 * An author who had seen the only claim of a key had seen everything in the key: every write makes a claim,
 * which replaces the claims that its author had seen, and what an author had seen includes what the authors
 * of those effects had seen. */
#include "base/num.h"
#include "base/alloc.h"
#include "site/site.h"

/* The clock of an effect: only the gids in use. */
struct receive_clock {
    struct site_dot dots[SITE_GIDS];
    u32 n;
};

/* False: malformed, or it is not covered by `here`. */
static bool receive_get_clock(struct site_reader *r, const struct site_clock *here, struct receive_clock *c)
{
    u8 last = 0;
    c->n = site_get_u8(r);
    for (u32 i = 0; i < c->n; i++) {
        struct site_dot d = c->dots[i] = site_get_dot(r);
        if (d.gid <= last || d.seq == 0 || !site_covers(here, d)) return false;
        last = d.gid;
    }
    return !r->bad;
}

static u64 receive_seq(const struct receive_clock *c, u8 gid)
{
    u32 i = 0;
    while (i < c->n && c->dots[i].gid < gid) i++;
    return i < c->n && c->dots[i].gid == gid ? c->dots[i].seq : 0;
}

/* Whether it is the next effect of a member, and nothing special is in progress at this site. */
static bool receive_is_next(const struct site *s, struct site_dot dot)
{
    return dot.gid && dot.gid != s->gid && dot.seq == s->clock.seq[dot.gid] + 1 && s->members[dot.gid].in &&
           !s->fenced[dot.gid] && !s->torn && !s->walks;
}

/* The same as site_hear() with the clock of a site all of whose effects are here. */
static void receive_hear(struct site *s, struct site_dot dot, const struct receive_clock *context)
{
    site_know(s, dot.gid);
    if (!s->acks[dot.gid]) s->acks[dot.gid] = mem_zalloc(sizeof *s->acks[dot.gid]);
    u64 *acked = s->acks[dot.gid]->seq;
    for (u32 i = 0; i < context->n; i++)
        acked[context->dots[i].gid] = MAX(acked[context->dots[i].gid], context->dots[i].seq);
    acked[dot.gid] = MAX(acked[dot.gid], dot.seq);
}

struct receive {
    struct site *s;
    struct site_effect *e;
    struct receive_clock context;
    struct key_ref ref;
    bool known; /* there is metadata … */
    bytes head; /* … this */
};

static bool receive_saw(const struct receive *f, struct site_dot dot)
{
    return receive_seq(&f->context, dot.gid) >= dot.seq || PLANTED_SITE(f->s, PLANT_FAST_RECEIVE);
}

static bool receive_find(struct receive *f, u32 db, bytes name)
{
    struct engine *e = f->s->e;
    if (db >= f->s->databases) return false;
    e->ops->find(e, db, name, &f->ref);
    f->known = e->ops->companion.head(e, &f->ref, &f->head);
    return true;
}

/* From here on the effect is applied. */
static void receive_accept(struct receive *f)
{
    struct site *s = f->s;
    site_follow_stamp(s, f->e->stamp);
    if (s->emit) s->emit(s->emit_arg, f->e);
}

/* The claim is the effect's. */
static void receive_put_head(struct receive *f, struct site_head *h)
{
    struct buf *to = &f->s->key.scratch;
    h->dot = f->e->dot;
    h->stamp = f->e->stamp;
    buf_clear(to);
    site_put_head(to, h, f->s->position + 1);
    f->s->e->ops->companion.set_head(f->s->e, &f->ref, buf_bytes(to));
}

/* -- SET ------------------------------------------------------------------------------------------- */

static bool receive_is_past(const struct receive *f, i64 deadline_ms)
{
    i64 now_ms = MAX(site_now(f->s), (i64)(f->e->stamp >> 16)); /* or less, if the stamp is too far ahead */
    return deadline_ms && deadline_ms <= now_ms;
}

/* Whether the key is as the author of the SET saw it. */
static bool receive_replaces(const struct receive *f)
{
    struct site_dot old;
    if (!f->known) return !f->ref.entry;
    if (!f->ref.entry || f->ref.type != TYPE_STRING || !site_head_is_set(f->head, &old)) return false;
    return receive_saw(f, old);
}

static bool receive_set(struct receive *f)
{
    struct engine *e = f->s->e;
    char raw[SITE_SET_HEAD_MAX];
    struct site_set set;
    if (!site_get_set(f->e->moves, &set)) return false;
    if (set.at_ms && !site_dot_eq(set.birth, f->e->dot)) return false;
    if (!receive_find(f, set.db, set.name) || receive_is_past(f, set.at_ms)) return false;
    if ((f->ref.entry && receive_is_past(f, f->ref.deadline_ms)) || !receive_replaces(f)) return false;
    receive_accept(f);
    e->ops->str.put(e, set.db, set.name, &f->ref, set.value, set.at_ms);
    e->ops->companion.set_head(e, &f->ref, site_set_head(raw, f->e->dot, f->e->stamp, set.at_ms != 0));
    return true;
}

/* -- elements -------------------------------------------------------------------------------------- */

/* The moves of a write in place, or of the first write to a new key: CLEAR (if it is new) · CLAIM · more. */
struct receive_write {
    struct site_move claim;
    struct site_moves rest;
    bool is_new;
};

static bool receive_get_write(bytes moves, struct receive_write *w)
{
    struct site_moves it = site_moves_of(moves);
    struct site_move m;
    if (!site_moves_next(&it, &m)) return false;
    const char *name = m.name.p;
    w->is_new = m.op == MOVE_CLEAR;
    if (w->is_new && (m.seen.n || m.scope.n || !site_moves_next(&it, &m))) return false;
    if (m.op != MOVE_CLAIM || m.stamp || m.name.p != name) return false;
    w->claim = m;
    w->rest = it;
    return true;
}

/* The next move, if it is about the same key and type. */
static bool receive_next(const struct receive_write *w, struct site_moves *it, enum site_op op,
                         struct site_move *m)
{
    return site_moves_next(it, m) && m->op == op && m->kind == w->claim.kind &&
           m->name.p == w->claim.name.p && m->seen.n == 0 && m->stamp == 0 && m->birth.gid == 0;
}

static bool receive_all_put(const struct receive_write *w)
{
    struct site_moves it = w->rest;
    struct site_move m;
    bool some = false;
    for (; site_left(&it.in); some = true)
        if (!receive_next(w, &it, MOVE_PUT, &m) || !site_value_fits(m.kind, m.path, m.value)) return false;
    return some && !it.in.bad;
}

static void receive_put(struct receive *f, const struct site_move *m)
{
    struct engine *e = f->s->e;
    struct buf *row = &f->s->cell.row;
    char raw[SITE_PLAIN_CELL_MAX];
    double score = 0;
    if (m->kind != TYPE_ZSET) {
        e->ops->map.put(e, &f->ref, m->path, m->value, true);
    } else {
        num_parse_double(m->value, &score);
        e->ops->zset.put(e, &f->ref, m->path, score);
    }
    site_cell_reset(&f->s->cell, m->kind, m->path);
    e->ops->companion.put(e, &f->ref, buf_bytes(row),
                          site_plain_cell(raw, m->kind, f->e->dot, f->e->stamp));
}

/* HSET, SADD, ZADD. */
static bool receive_elements(struct receive *f, const struct receive_write *w)
{
    struct engine *e = f->s->e;
    enum value_type kind = w->claim.kind;
    struct site_head h = {0};
    struct site_move m;
    if ((kind != TYPE_HASH && kind != TYPE_SET && kind != TYPE_ZSET) || !receive_all_put(w)) return false;
    if (!receive_find(f, w->claim.db, w->claim.name)) return false;
    if (w->is_new != !f->known || w->is_new != !f->ref.entry) return false;
    if (!w->is_new && (f->ref.type != kind || !site_get_head(f->head, &h) || !site_head_is_plain(&h, kind) ||
                       h.ttl.gid || h.counted || !receive_saw(f, h.dot)))
        return false;
    receive_accept(f);
    if (w->is_new) e->ops->create(e, w->claim.db, w->claim.name, kind, &f->ref);
    receive_put_head(f, &h);
    for (struct site_moves it = w->rest; site_moves_next(&it, &m);) receive_put(f, &m);
    return true;
}

/* -- increments ------------------------------------------------------------------------------------ */

/* INCR: of a counter that its author has incremented before. */
static bool receive_incr(struct receive *f, const struct receive_write *w)
{
    struct engine *e = f->s->e;
    struct site_moves it = w->rest;
    struct site_counter n;
    struct site_head h;
    struct site_move m;
    struct buf *cell = &f->s->cell.text;
    char text[NUM_I64_LEN];
    i64 by, value;
    u64 seq = f->e->dot.seq;
    if (w->is_new || w->claim.kind != TYPE_STRING || !receive_next(w, &it, MOVE_ADD, &m)) return false;
    if (m.path.n || m.fresh || m.total.real || m.prev >= seq || site_left(&it.in) || it.in.bad) return false;
    if (!receive_find(f, m.db, m.name) || !f->known || !f->ref.entry) return false;
    if (!site_get_head(f->head, &h) || h.ttl.gid || h.counted || h.string != SITE_STRING_CELL) return false;
    if (!site_get_counter(h.cell, TYPE_STRING, f->e->dot.gid, &n) || !receive_saw(f, h.dot)) return false;
    if (f->ref.type != TYPE_STRING || !e->ops->str.get_int(e, &f->ref, &value)) return false;
    if (__builtin_sub_overflow(m.total.i, n.inc.total.i, &by) || __builtin_add_overflow(value, by, &value))
        return false;
    receive_accept(f);
    n.inc.hi = seq;
    n.inc.total = m.total;
    buf_clear(cell);
    site_put_counter(cell, &n);
    h.cell = buf_bytes(cell);
    bytes shown = bytes_of(text, num_print_i64(text, value));
    e->ops->str.put(e, m.db, m.name, &f->ref, shown, 0);
    receive_put_head(f, &h);
    return true;
}

/* -- all of them ----------------------------------------------------------------------------------- */

static bool receive_apply(struct receive *f)
{
    struct receive_write w;
    if (receive_set(f)) return true;
    return receive_get_write(f->e->moves, &w) && (receive_elements(f, &w) || receive_incr(f, &w));
}

bool site_receive_fast(struct site *s, bytes raw, struct site_effect *e)
{
    struct site_reader r = site_reader_of(raw);
    struct receive f;
    f.s = s;
    f.e = e;
    e->dot = site_get_dot(&r);
    e->stamp = site_get_u64(&r);
    if (r.bad || !receive_is_next(s, e->dot)) return false;
    if (!receive_get_clock(&r, &s->clock, &f.context)) return false;
    if (receive_seq(&f.context, e->dot.gid) != e->dot.seq - 1) return false;
    e->all = raw;
    e->moves = bytes_of(r.p, site_left(&r));
    e->more = false;
    if (!receive_apply(&f)) return false;
    site_note_applied(s, e->dot);
    receive_hear(s, e->dot, &f.context);
    if (s->n_pending) site_apply_pending(s);
    return true;
}
