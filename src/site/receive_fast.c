/* The fast path for effects of other sites: the usual writes to one key, whose author had seen everything
 * that is stored under the name. It does what site_apply() would, and accepts no other effects. Here are SET,
 * DEL and EXPIRE; writes in place are in receive_write.c. */
#include "base/alloc.h"
#include "site/receive_parts.h"

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

bool receive_saw(const struct receive *f, struct site_dot dot, u64 bug UNUSED)
{
    return receive_seq(&f->context, dot.gid) >= dot.seq || PLANTED_SITE(f->s, bug);
}

bool receive_find(struct receive *f, u32 db, bytes name)
{
    struct engine *e = f->s->e;
    if (db >= f->s->databases) return false;
    e->ops->find(e, db, name, &f->ref);
    f->known = e->ops->companion.head(e, &f->ref, &f->head);
    return true;
}

void receive_accept(struct receive *f)
{
    struct site *s = f->s;
    site_follow_stamp(s, f->e->stamp);
    if (s->emit) s->emit(s->emit_arg, f->e);
}

void receive_put_head(struct receive *f, const struct site_head *h)
{
    struct buf *to = &f->s->key.scratch;
    buf_clear(to);
    site_put_head(to, h, f->s->position + 1);
    f->s->e->ops->companion.set_head(f->s->e, &f->ref, buf_bytes(to));
}

bool receive_is_past(const struct receive *f, i64 deadline_ms)
{
    i64 now_ms = MAX(site_now(f->s), (i64)(f->e->stamp >> 16)); /* or less, if the stamp is too far ahead */
    return deadline_ms && deadline_ms <= now_ms;
}

bool receive_get_head(struct receive *f, struct site_head *h, u64 bug)
{
    if (!f->known || !f->ref.entry || !site_get_head(f->head, h)) return false;
    if (receive_is_past(f, f->ref.deadline_ms) || (h->keeps && h->at_ms != f->ref.deadline_ms)) return false;
    return receive_saw(f, h->dot, bug) && receive_saw(f, h->ttl, bug);
}

/* -- SET ------------------------------------------------------------------------------------------- */

/* Whether the key is as the author of the SET saw it. */
static bool receive_replaces(const struct receive *f)
{
    struct site_dot old;
    if (!f->known) return !f->ref.entry;
    if (!f->ref.entry || f->ref.type != TYPE_STRING || !site_head_is_set(f->head, &old)) return false;
    return receive_saw(f, old, PLANT_FAST_RECEIVE);
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

/* -- DEL and EXPIRE -------------------------------------------------------------------------------- */

static bool receive_del(struct receive *f, const struct site_move *m)
{
    struct site_head h;
    if (m->seen.n || m->scope.n || !receive_get_head(f, &h, PLANT_FAST_DEL)) return false;
    if (h.counted || h.string == SITE_STRING_CELL) return false;
    receive_accept(f);
    f->s->e->ops->drop(f->s->e, &f->ref);
    return true;
}

static bool receive_expire(struct receive *f, const struct site_move *m)
{
    struct engine *e = f->s->e;
    struct buf *cell = &f->s->cell.text;
    struct site_head h;
    if (m->at_ms == 0 || m->birth.gid || receive_is_past(f, m->at_ms)) return false;
    if (!receive_get_head(f, &h, PLANT_FAST_EXPIRE) || h.counted) return false;
    receive_accept(f);
    h.ttl = f->e->dot;
    h.ttl_birth = (struct site_dot){0};
    buf_clear(cell); /* the head may move */
    buf_append_bytes(cell, h.cell);
    h.cell = buf_bytes(cell);
    if (f->ref.deadline_ms != m->at_ms) e->ops->set_deadline(e, &f->ref, m->at_ms);
    receive_put_head(f, &h);
    return true;
}

/* An effect of one move. */
static bool receive_key(struct receive *f)
{
    struct site_moves it = site_moves_of(f->e->moves);
    struct site_move m;
    if (!site_moves_next(&it, &m) || site_left(&it.in) || !receive_find(f, m.db, m.name)) return false;
    return m.op == MOVE_CLEAR ? receive_del(f, &m) : receive_expire(f, &m);
}

/* -- all of them ----------------------------------------------------------------------------------- */

static bool receive_apply(struct receive *f)
{
    switch (f->e->moves.n ? site_first_op(f->e->moves) : 0) {
    case MOVE_CLEAR: return receive_set(f) || receive_write(f) || receive_key(f);
    case MOVE_CLAIM: return receive_write(f);
    case MOVE_TTL: return receive_key(f);
    default: return false;
    }
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
