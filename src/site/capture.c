/* Effects and keys of captured writes. The primitives are in capture_value.c, capture_list.c and
 * capture_key.c. */
#include "site/capture_parts.h"

#define EFFECT_HEAD 32 /* bytes: two dots, a stamp, a count */
#define KEPT_MOVES ((size_t)1 << 16) /* bytes of room that stay for the next effect */

/* -- effects ---------------------------------------------------------------------------------------- */

static void capture_emit(struct site_capture *c, struct site_effect *e, bytes all, size_t head)
{
    struct site *s = &c->site;
    e->all = all;
    e->moves = bytes_of(all.p + head, all.n - head);
    if (c->holding && c->emit) c->emit(c->emit_arg, e);
    else if (!c->holding && s->emit) s->emit(s->emit_arg, e);
}

/* Whether the effect that ends now can say that another of its piece follows. */
static bool capture_continues(struct site_capture *c, struct buf *moves)
{
    if (++c->piece >= SITE_PIECE_MAX) {
        c->piece = 0;
        return false;
    }
    site_put_move(moves, &(struct site_move){.op = MOVE_MORE}, false);
    return true;
}

/* An expiry before the first write of a piece does not belong to the piece. */
static void capture_emit_held(struct site_capture *c, bool more)
{
    size_t head = c->held_effect.all.n - c->held_effect.moves.n;
    c->held_effect.more = more && c->piece > 0 && capture_continues(c, &c->held);
    capture_emit(c, &c->held_effect, buf_bytes(&c->held), head);
    buf_clear(&c->held);
}

/* Effects of an expiry within a request: whether one is the last of the piece is known later. */
static void capture_hold(void *arg, const struct site_effect *e)
{
    struct site_capture *c = arg;
    if (c->held.n) capture_emit_held(c, true);
    buf_append_bytes(&c->held, e->all);
    c->held_effect = *e;
}

/* The clocks of other sites change only while the capture is paused. */
static void capture_refresh(struct site_capture *c)
{
    struct site *s = &c->site;
    c->effect.context = s->clock;
    buf_clear(&c->before);
    buf_clear(&c->after);
    c->others = 0;
    for (u32 g = 1; g < s->gids; g++) {
        if (g == s->gid || s->clock.seq[g] == 0) continue;
        site_put_dot(g < s->gid ? &c->before : &c->after, (struct site_dot){s->clock.seq[g], (u8)g});
        c->others++;
    }
    c->current = true;
}

static char *capture_write(char *p, bytes b)
{
    if (b.n) memcpy(p, b.p, b.n);
    return p + b.n;
}

void capture_open_effect(struct site_capture *c)
{
    struct site *s = &c->site;
    struct site_effect *e = &c->effect;
    struct buf *to = &s->moves;
    if (UNLIKELY(c->held.n)) capture_emit_held(c, true);
    if (UNLIKELY(!c->current)) capture_refresh(c);
    u64 own = s->clock.seq[s->gid];
    e->dot = site_next_dot(s);
    e->stamp = s->hlc = site_next_stamp(s);
    e->context.seq[s->gid] = own;
    buf_clear(to);
    char *p = buf_reserve(to, EFFECT_HEAD + c->before.n + c->after.n);
    p = site_write_dot(p, e->dot);
    p = site_write_u64(p, e->stamp);
    *p++ = (char)(c->others + (own > 0));
    p = capture_write(p, buf_bytes(&c->before));
    if (own) p = site_write_dot(p, (struct site_dot){own, s->gid});
    p = capture_write(p, buf_bytes(&c->after));
    c->head = to->n = (size_t)(p - to->p);
    c->open = true;
    c->named = c->made = false;
    c->rems = 0;
}

static void capture_close_effect(struct site_capture *c, bool more)
{
    struct site *s = &c->site;
    c->effect.more = more && capture_continues(c, &s->moves);
    capture_emit(c, &c->effect, buf_bytes(&s->moves), c->head);
    buf_clear(&s->moves);
    c->open = c->named = false;
    c->rems = 0;
    site_note_applied(s, c->effect.dot);
}

void capture_split(struct site_capture *c)
{
    if (c->open) capture_close_effect(c, true);
}

void capture_move(struct site_capture *c, const struct site_key *k, struct site_move *m)
{
    bool removes = m->op == MOVE_REM && m->seen.n == 0;
    if (!c->open) capture_open_effect(c);
    m->db = k->db;
    m->name = buf_bytes(&k->name);
    site_put_move(&c->site.moves, m, c->named);
    c->named = c->made = true;
    c->flows = false;
    if (!removes && m->op != MOVE_CLAIM && m->op != MOVE_KEEP) c->rems = 0;
}

bool capture_made_key(const struct site_capture *c, const struct site_key *k)
{
    struct site_dot dot = c->effect.dot;
    if (!c->open) return false;
    for (u32 i = 0; i < k->n_claims; i++)
        if (site_dot_eq(k->claims[i].dot, dot)) return true;
    return site_ttl_made(&k->ttl, dot);
}

bool capture_made_inc(const struct site_capture *c, const struct site_cell *cell)
{
    if (!c->open) return false;
    const struct site_inc *inc = site_cell_inc(cell, c->site.gid);
    return inc && inc->hi == c->effect.dot.seq;
}

bool capture_made_cell(const struct site_capture *c, const struct site_cell *cell)
{
    if (!c->open) return false;
    for (u32 i = 0; i < cell->n_writes; i++)
        if (site_dot_eq(cell->writes[i].dot, c->effect.dot)) return true;
    return site_ttl_made(&cell->ttl, c->effect.dot) || capture_made_inc(c, cell);
}

/* -- keys ------------------------------------------------------------------------------------------- */

struct site_key *capture_key(struct site_capture *c, const struct key_ref *ref)
{
    struct site_key *k = &c->key;
    if (c->keyed && k->db == ref->db && bytes_eq(buf_bytes(&k->name), ref->key)) {
        k->ref = *ref;
        k->held = ref->entry ? ref->type : TYPE_NONE;
        return k;
    }
    site_key_attach(k, c->site.e, ref);
    c->keyed = true;
    c->added = false;
    c->named = false;
    c->rems = 0;
    return k;
}

static bool capture_is_past(const struct site_capture *c, const struct site_key *k)
{
    for (u32 i = 0; i < k->ttl.n_deadlines; i++)
        if (site_deadline_past(&k->ttl.deadlines[i], site_now(&c->site))) return true;
    return false;
}

struct site_key *capture_live_key(struct site_capture *c, struct key_ref *ref)
{
    struct site_key *k = capture_key(c, ref);
    if (LIKELY(!capture_is_past(c, k)) || (ref->entry && site_due(&c->site, k))) return k;
    bytes name = ref->entry ? buf_bytes(&k->name) : ref->key;
    capture_expire(c, ref->db, buf_bytes(&k->name));
    c->own->find(c->site.e, ref->db, name, ref);
    return capture_key(c, ref);
}

struct site_key *capture_free_key(struct site_capture *c, struct key_ref *ref)
{
    struct site_key *k = capture_key(c, ref);
    return UNLIKELY(!ref->entry && site_due(&c->site, k)) ? capture_live_key(c, ref) : k;
}

/* Expiries are effects of their own, which may be several. */
static void capture_aside(struct site_capture *c)
{
    struct site *s = &c->site;
    capture_split(c);
    c->emit = s->emit;
    c->emit_arg = s->emit_arg;
    c->holding = true;
    s->emit = capture_hold;
    s->emit_arg = c;
}

static void capture_aside_end(struct site_capture *c)
{
    c->site.emit = c->emit;
    c->site.emit_arg = c->emit_arg;
    c->holding = c->keyed = false;
}

void capture_expire(struct site_capture *c, u32 db, bytes name)
{
    capture_aside(c);
    site_expire(&c->site, db, name, NULL);
    capture_aside_end(c);
}

void capture_expire_fields(struct site_capture *c, struct key_ref *ref, bytes fields)
{
    u32 db = ref->db;
    struct site_key *k = capture_key(c, ref);
    capture_aside(c);
    site_expire_fields(&c->site, db, buf_bytes(&k->name), fields, NULL);
    capture_aside_end(c);
    if (!c->own->find(c->site.e, db, buf_bytes(&k->name), ref)) ref->key = buf_bytes(&k->name);
}

/* The key is absent now: if metadata of it is left, site_each_key() has to know. */
void capture_note_gone(struct site_capture *c, const struct site_key *k)
{
    if (site_key_empty(k)) return;
    site_put_varint(&c->site.recent, k->db);
    site_put_bytes(&c->site.recent, buf_bytes(&k->name));
}

void capture_save(struct site_capture *c, struct site_key *k, struct key_ref *ref)
{
    struct site *s = &c->site;
    i64 deadline_ms = site_key_deadline(k);
    if (k->ref.entry && k->n_claims && UNLIKELY(k->ref.deadline_ms != deadline_ms))
        c->own->set_deadline(k->e, &k->ref, deadline_ms);
    site_key_save_companion(k, s->position + 1);
    if (UNLIKELY(!k->ref.entry)) capture_note_gone(c, k);
    *ref = k->ref;
}

/* -- moves, and what they do here --------------------------------------------------------------------- */

static void capture_clear_cells(struct site_capture *c, struct site_key *k)
{
    struct site *s = &c->site;
    struct buf paths = {0};
    enum value_type held = k->held;
    k->held = TYPE_NONE; /* the engine's values stay */
    site_cell_remove(&k->string, &s->clock, (bytes){"", 0});
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES; kind++) {
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
            struct site_cell *cell = site_key_cell(k, kind, site_get_bytes(&r), &s->cell);
            site_cell_clear(cell, &s->clock, (bytes){"", 0});
            site_key_store(k, cell);
        }
    }
    k->held = held;
    buf_release(&paths);
}

void capture_clear_atoms(struct site_capture *c, struct site_key *k)
{
    bool remembers = !PLANTED_SITE(&c->site, PLANT_DEL_FORGETS);
    if (remembers && (k->counting || k->timed || k->string.n_incs)) capture_clear_cells(c, k);
    else site_key_drop_rows(k);
    k->n_claims = k->ttl.n_deadlines = 0;
}

void capture_clear(struct site_capture *c, struct site_key *k)
{
    struct site *s = &c->site;
    if (capture_made_key(c, k)) {
        if (c->rems && c->named) s->moves.n = c->rems; /* so far it only removed: this says it all */
        else capture_split(c);
        c->named = false;
    }
    if (!c->open) capture_open_effect(c);
    site_move_clear(s, k, NULL);
    c->named = true;
    c->flows = false;
    c->rems = 0;
    capture_clear_atoms(c, k);
}

void capture_claim(struct site_capture *c, struct site_key *k, enum value_type kind)
{
    capture_move(c, k, &(struct site_move){.op = MOVE_CLAIM, .kind = kind});
    k->n_claims = 0;
    site_key_add_claim(k, (struct site_claim){c->effect.dot, c->effect.stamp, kind});
}

static void capture_rem(struct site_capture *c, struct site_key *k, struct site_cell *cell)
{
    enum value_type held = k->held;
    struct site_move m = {.op = MOVE_REM, .kind = cell->kind, .path = site_cell_path(cell)};
    buf_clear(&c->seen);
    site_cell_seen(cell, NULL, &c->seen);
    m.seen = buf_bytes(&c->seen);
    capture_move(c, k, &m);
    site_cell_clear(cell, &c->site.clock, (bytes){"", 0});
    k->held = TYPE_NONE; /* the engine's value is the caller's */
    site_key_store(k, cell);
    k->held = held;
}

/* Cells of types that lost end with the next write that saw them. */
static void capture_rem_hidden(struct site_capture *c, struct site_key *k, enum value_type shown)
{
    struct buf paths = {0};
    struct site_cell scratch = {0};
    if (shown != TYPE_STRING && site_cell_live(&k->string)) capture_rem(c, k, &k->string);
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES; kind++) {
        if (kind == shown || k->cells[kind].rows == 0) continue;
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
            struct site_cell *cell = site_key_cell(k, kind, site_get_bytes(&r), &scratch);
            if (site_cell_live(cell)) capture_rem(c, k, cell);
        }
    }
    site_cell_release(&scratch);
    buf_release(&paths);
}

/* A write in place keeps the deadline, unless this effect has already set it. */
static void capture_keep(struct site_capture *c, struct site_key *k, i64 at_ms, struct site_dot birth)
{
    if (site_ttl_made(&k->ttl, c->effect.dot)) return;
    capture_move(c, k, &(struct site_move){.op = MOVE_KEEP, .at_ms = at_ms, .birth = birth});
    site_ttl_replace(&k->ttl, &c->site.clock, (struct site_deadline){c->effect.dot, at_ms, birth, true});
}

void capture_start(struct site_capture *c, struct site_key *k, enum value_type kind)
{
    bool there = site_key_type(k) != TYPE_NONE, made = capture_made_key(c, k);
    if (made && there && k->n_claims == 1 && k->claims[0].type == kind &&
        site_dot_eq(k->claims[0].dot, c->effect.dot))
        return; /* the effect began this before */
    i64 at_ms = site_key_deadline(k);
    struct site_dot birth = site_key_birth(k);
    if (!there) capture_clear(c, k);
    if (!c->open) capture_open_effect(c);
    size_t start = c->site.moves.n;
    if (there && !made) c->named = false; /* so that the name goes with what may be taken back */
    capture_claim(c, k, kind);
    if (!there) return;
    if (!made) c->rems = start;
    capture_rem_hidden(c, k, kind);
    if (at_ms && !PLANTED_SITE(&c->site, PLANT_NO_KEEP)) capture_keep(c, k, at_ms, birth);
}

void capture_ttl(struct site_capture *c, struct site_key *k, i64 at_ms, struct site_dot birth)
{
    capture_move(c, k, &(struct site_move){.op = MOVE_TTL, .at_ms = at_ms, .birth = birth});
    k->ttl.n_deadlines = 0;
    site_ttl_add(&k->ttl, (struct site_deadline){c->effect.dot, at_ms, birth, false});
}

void capture_put_cell(struct site_capture *c, struct site_key *k, struct site_cell *cell, bytes value)
{
    struct site_move m = {.op = MOVE_PUT, .kind = cell->kind, .path = site_cell_path(cell), .value = value};
    buf_clear(&c->seen);
    site_cell_seen(cell, NULL, &c->seen);
    m.seen = buf_bytes(&c->seen);
    if (cell->kind == TYPE_STRING && !PLANTED_SITE(&c->site, PLANT_NO_BIRTH)) m.birth = site_key_birth(k);
    capture_move(c, k, &m);
    if (cell->n_writes | cell->n_incs) site_cell_remove(cell, &c->site.clock, (bytes){"", 0});
    bool last_id = site_cell_is_last_id(cell); /* no value of the engine */
    site_cell_write(cell, c->effect.dot, c->effect.stamp, m.birth.gid ? m.birth : c->effect.dot,
                    last_id ? value : (bytes){"", 0});
    cell->writes[cell->n_writes - 1].shown = !last_id;
    site_key_store(k, cell);
}

void capture_rem_cell(struct site_capture *c, struct site_key *k, struct site_cell *cell)
{
    if (k->cells[cell->kind].live == 1) {
        capture_clear(c, k);
        return;
    }
    if (capture_made_cell(c, cell)) capture_split(c);
    capture_start(c, k, cell->kind);
    capture_rem(c, k, cell);
}

/* -- its life ---------------------------------------------------------------------------------------- */

/* Bytes that the caller could still change are final now. */
void capture_settle(struct site_capture *c, struct key_ref *ref)
{
    struct key_ref *moved = c->erased.n && ref && ref->entry && capture_serves(c, ref->db) ? ref : NULL;
    struct buf name = {0};
    if (c->text) capture_settle_text(c);
    if (moved) buf_append_bytes(&name, moved->key);
    if (c->erased.n) capture_settle_erased(c);
    if (moved && !c->own->find(c->site.e, moved->db, buf_bytes(&name), moved))
        moved->key = buf_bytes(&c->key.name);
    buf_release(&name);
}

void site_capture_open(struct site_capture *c, struct engine *e, u32 databases, u8 gid)
{
    *c = (struct site_capture){.own = e->ops, .ops = *e->ops};
    site_init(&c->site, e, databases, gid);
    c->key.walks = &c->site.walks;
    capture_value_ops(&c->ops);
    capture_list_ops(&c->ops);
    capture_key_ops(&c->ops);
    capture_stream_ops(&c->ops);
    capture_field_ops(&c->ops);
    e->intent = INTENT_WRITE;
    e->captured = true;
    e->ops = &c->ops;
}

void site_capture_release(struct site_capture *c)
{
    c->site.e->ops = c->own;
    c->site.e->captured = false;
    c->site.e->gid = 0;
    site_key_release(&c->key);
    buf_release(&c->before);
    buf_release(&c->after);
    buf_release(&c->held);
    buf_release(&c->erased);
    buf_release(&c->seen);
    buf_release(&c->path);
    buf_release(&c->value);
    site_release(&c->site);
}

void site_capture_end(struct site_capture *c)
{
    struct site *s = &c->site;
    s->e->intent = INTENT_WRITE;
    if (UNLIKELY(c->text || c->erased.n)) {
        s->e->ops = c->own;
        capture_settle(c, NULL);
        capture_leave(c);
    }
    if (c->open) capture_close_effect(c, false);
    else if (UNLIKELY(c->held.n)) capture_emit_held(c, false);
    if (UNLIKELY(s->moves.cap > KEPT_MOVES)) buf_release(&s->moves);
    c->keyed = c->cut = false;
    c->piece = 0;
}

void site_capture_pause(struct site_capture *c, const struct engine_ops *ops)
{
    site_capture_end(c);
    c->paused = true;
    c->site.e->ops = ops;
}

void site_capture_resume(struct site_capture *c)
{
    c->paused = c->current = false;
    capture_leave(c);
}
