/* Applying an effect: each move removes what the effect's context covers, and adds atoms with the
 * effect's dot. */
#include <stdlib.h>

#include "base/alloc.h"
#include "site/room.h"
#include "site/site.h"

struct apply {
    struct site *s;
    const struct site_effect *e;
    struct site_key *k; /* the key that is loaded; NULL: none */
    struct site_seen_cell *seen; /* of the current CLEAR or FLUSH */
    u32 n_seen, room_seen;
};

void site_save(struct site *s, struct site_key *k, u64 position)
{
    site_key_save(k, position);
    if (k->ref.entry || site_key_empty(k)) return;
    site_put_varint(&s->recent, k->db);
    site_put_bytes(&s->recent, buf_bytes(&k->name));
}

static void apply_save(struct apply *a)
{
    if (a->k) site_save(a->s, a->k, a->s->position + 1);
    a->k = NULL;
}

static struct site_key *apply_load(struct apply *a, u32 db, bytes name)
{
    struct site_key *k = &a->s->key;
    if (a->k && k->db == db && bytes_eq(buf_bytes(&k->name), name)) return k;
    apply_save(a);
    site_key_load(k, a->s->e, db, name);
    return a->k = k;
}

static void apply_claim(struct apply *a, struct site_key *k, const struct site_move *m)
{
    u32 n = 0;
    for (u32 i = 0; i < k->n_claims; i++)
        if (!site_covers(&a->e->context, k->claims[i].dot) && !site_dot_eq(k->claims[i].dot, a->e->dot))
            k->claims[n++] = k->claims[i];
    k->n_claims = n;
    for (u32 i = 0; i < n; i++) a->s->stats.conflicts[SITE_CONFLICT_TYPE] += k->claims[i].type != m->kind;
    site_key_add_claim(k, (struct site_claim){a->e->dot, m->stamp ? m->stamp : a->e->stamp, m->kind});
}

static void apply_put(struct apply *a, struct site_key *k, const struct site_move *m)
{
    struct site_cell *c = site_key_cell(k, m->kind, m->path, &a->s->cell);
    site_cell_remove(c, &a->e->context, m->seen);
    site_cell_write(c, a->e->dot, m->stamp ? m->stamp : a->e->stamp, m->birth.gid ? m->birth : a->e->dot,
                    m->value);
    a->s->stats.conflicts[SITE_CONFLICT_VALUE] += c->n_writes > 1 && m->kind != TYPE_SET;
    site_key_store(k, c);
}

static void apply_add(struct apply *a, struct site_key *k, const struct site_move *m)
{
    struct site_cell *c = site_key_cell(k, m->kind, m->path, &a->s->cell);
    const struct site_inc *old = site_cell_inc(c, a->e->dot.gid);
    struct site_inc inc = {.gid = a->e->dot.gid, .hi = a->e->dot.seq, .total = m->total};
    bool fresh = m->fresh || !old; /* all before it is gone, here, too */
    inc.lo = fresh ? m->prev : old->lo;
    inc.lo_total = fresh ? m->prev_total : old->lo_total;
    if (PLANTED_SITE(a->s, PLANT_COARSE_DEL)) inc.lo = 0, inc.lo_total = site_num_of(0);
    site_cell_add_inc(c, inc);
    site_key_store(k, c);
}

static void apply_rem(struct apply *a, struct site_key *k, const struct site_move *m)
{
    struct site_cell *c = site_key_cell(k, m->kind, m->path, &a->s->cell);
    bool all = PLANTED_SITE(a->s, PLANT_XDEL_ALL) && m->kind == TYPE_STREAM;
    if (site_cell_empty(c)) return;
    site_cell_clear(c, all ? &a->s->clock : &a->e->context, m->seen);
    site_key_store(k, c);
}

/* -- what a CLEAR or FLUSH says about counters, in order ---------------------------------------------- */

static int seen_cmp(const void *pa, const void *pb)
{
    const struct site_seen_cell *a = pa, *b = pb;
    int c = bytes_cmp(a->name, b->name);
    if (a->db != b->db) return a->db < b->db ? -1 : 1;
    if (c) return c;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return bytes_cmp(a->path, b->path);
}

static void seen_open(struct apply *a, const struct site_move *m)
{
    struct site_reader r = site_reader_of(m->seen);
    struct site_seen_cell c;
    while (site_get_seen_cell(&r, m->op, &c)) {
        a->seen = site_room(a->seen, a->n_seen, &a->room_seen, sizeof c);
        if (m->op == MOVE_CLEAR) {
            c.db = m->db;
            c.name = m->name;
        }
        a->seen[a->n_seen++] = c;
    }
    if (a->n_seen > 1) qsort(a->seen, a->n_seen, sizeof c, seen_cmp);
}

static bytes seen_of(const struct apply *a, const struct site_key *k, enum value_type kind, bytes path)
{
    struct site_seen_cell want = {k->db, buf_bytes(&k->name), kind, path, {"", 0}};
    if (a->n_seen == 0) return want.seen;
    const struct site_seen_cell *got = bsearch(&want, a->seen, a->n_seen, sizeof want, seen_cmp);
    return got ? got->seen : want.seen;
}

static void clear_cells(struct apply *a, struct site_key *k, enum value_type kind,
                        const struct site_clock *clock)
{
    struct buf paths = {0};
    site_key_paths(k, kind, &paths);
    for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
        bytes path = site_get_bytes(&r);
        struct site_cell *c = site_key_cell(k, kind, path, &a->s->cell);
        site_cell_clear(c, clock, seen_of(a, k, kind, path));
        site_key_store(k, c);
    }
    buf_release(&paths);
}

static void clear_claims(struct site_key *k, const struct site_clock *clock, enum value_type but)
{
    u32 n = 0;
    for (u32 i = 0; i < k->n_claims; i++)
        if (k->claims[i].type == but || !site_covers(clock, k->claims[i].dot)) k->claims[n++] = k->claims[i];
    k->n_claims = n;
}

/* A clear by an author who had seen everything that is here now. */
static bool clear_is_total(const struct apply *a, const struct site_key *k, const struct site_clock *clock)
{
    if (k->counting || k->timed || k->string.n_incs || !site_clock_covers(clock, &a->s->clock)) return false;
    for (u32 i = 0; i < k->n_claims; i++)
        if (site_dot_eq(k->claims[i].dot, a->e->dot)) return false; /* made by this effect, too */
    return true;
}

static void apply_clear(struct apply *a, struct site_key *k, const struct site_move *m)
{
    const struct site_clock *clock = &a->e->context;
    struct site_clock scope;
    if (m->scope.n) {
        bool ours = a->e->dot.gid == a->s->gid;
        a->s->stats.expiries_sent += ours;
        a->s->stats.expiries_suppressed += !ours && site_due(a->s, k);
        struct site_reader r = site_reader_of(m->scope);
        site_get_clock(&r, &scope);
        clock = PLANTED_SITE(a->s, PLANT_EXPIRE_ALL) ? &a->s->clock : &scope;
        site_ttl_add_mark(&k->ttl, a->e->dot, m->scope);
        if (a->e->dot.gid != a->s->gid) site_remember(a->s, k, a->e->dot, clock);
    }
    if (clear_is_total(a, k, clock)) {
        site_key_drop_cells(k);
    } else {
        bytes seen = seen_of(a, k, TYPE_STRING, (bytes){"", 0});
        site_cell_remove(&k->string, clock, seen);
        for (u32 type = TYPE_HASH; type < SITE_TYPES; type++) clear_cells(a, k, type, clock);
    }
    clear_claims(k, clock, TYPE_NONE);
    site_ttl_remove(&k->ttl, clock);
}

static void apply_ttl(struct apply *a, struct site_key *k, const struct site_move *m)
{
    bool kept = m->op == MOVE_KEEP;
    u32 n = 0;
    for (u32 i = 0; i < k->ttl.n_deadlines; i++) {
        const struct site_deadline *d = &k->ttl.deadlines[i];
        bool goes = site_covers(&a->e->context, d->dot) && (!kept || d->kept);
        goes |= PLANTED_SITE(a->s, PLANT_PERSIST_ALL) && !kept && m->at_ms == 0;
        goes &= !(PLANTED_SITE(a->s, PLANT_LONGEST_TTL) && d->at_ms > m->at_ms && m->at_ms);
        if (!goes && !site_dot_eq(d->dot, a->e->dot)) k->ttl.deadlines[n++] = *d;
    }
    k->ttl.n_deadlines = n;
    a->s->stats.conflicts[SITE_CONFLICT_DEADLINE] += n > 0 && !kept;
    site_ttl_add(&k->ttl, (struct site_deadline){a->e->dot, m->at_ms, m->birth, kept});
}

static void apply_spend(struct site_key *k, const struct site_move *m)
{
    site_ttl_spend(&k->ttl, m->spent);
    struct site_reader r = site_reader_of(m->lost);
    while (site_left(&r)) site_cell_forget(&k->string, site_get_dot(&r));
}

/* -- hash fields -------------------------------------------------------------------------------------- */

static void apply_field_ttl(struct apply *a, struct site_key *k, const struct site_move *m)
{
    struct site_cell *c = site_key_cell(k, TYPE_HASH, m->path, &a->s->cell);
    struct site_deadline d = {.dot = a->e->dot, .at_ms = m->at_ms, .kept = m->field_ttl == FIELD_KEEPS};
    if (m->field_ttl == FIELD_LOSES) site_ttl_remove(&c->ttl, &a->e->context);
    else if (PLANTED_SITE(a->s, PLANT_FIELD_LAST)) c->ttl.n_deadlines = 0, site_ttl_add(&c->ttl, d);
    else site_ttl_replace(&c->ttl, &a->e->context, d);
    a->s->stats.conflicts[SITE_CONFLICT_DEADLINE] += m->field_ttl == FIELD_GETS && c->ttl.n_deadlines > 1;
    site_key_store(k, c);
}

static void apply_field_spend(struct apply *a, struct site_key *k, const struct site_move *m)
{
    struct site_cell *c = site_key_cell(k, TYPE_HASH, m->path, &a->s->cell);
    site_ttl_spend(&c->ttl, m->spent);
    site_key_store(k, c);
}

static void apply_field_expire(struct apply *a, struct site_key *k, const struct site_move *m)
{
    struct site_cell *c = site_key_cell(k, TYPE_HASH, m->path, &a->s->cell);
    bool ours = a->e->dot.gid == a->s->gid;
    struct site_reader r = site_reader_of(m->scope);
    struct site_clock scope;
    site_get_clock(&r, &scope);
    a->s->stats.expiries_sent += ours;
    a->s->stats.expiries_suppressed += !ours && site_field_due(a->s, c);
    if (!ours) site_remember_field(a->s, k, site_key_claim(k), c, a->e->dot, &scope);
    site_ttl_add_mark(&c->ttl, a->e->dot, m->scope);
    site_cell_clear(c, PLANTED_SITE(a->s, PLANT_FIELD_EXPIRE_ALL) ? &a->s->clock : &scope, m->seen);
    if (m->shows) clear_claims(k, &scope, TYPE_HASH);
    site_key_store(k, c);
}

/* -- keys by the dozen -------------------------------------------------------------------------------- */

#define CHUNK 512 /* keys that are gathered before they are changed */

struct gathered {
    struct buf names;
    u32 n;
};

static void apply_gather(void *arg, struct key_ref *ref)
{
    struct gathered *g = arg;
    site_put_bytes(&g->names, ref->key);
    g->n++;
}

static void each_gathered(struct gathered *g, u32 db, site_name_fn fn, void *arg)
{
    for (struct site_reader r = site_reader_of(buf_bytes(&g->names)); site_left(&r);)
        fn(arg, db, site_get_bytes(&r));
    buf_clear(&g->names);
    g->n = 0;
}

/* Those that the engine's walk over remaining companions may miss. */
static void each_recent(struct site *s, u32 db, site_name_fn fn, void *arg)
{
    struct buf recent = s->recent; /* fn may add to it */
    s->recent = (struct buf){0};
    for (struct site_reader r = site_reader_of(buf_bytes(&recent)); site_left(&r);) {
        u64 of = site_get_varint(&r);
        bytes name = site_get_bytes(&r);
        struct key_ref ref;
        bytes head;
        bool stays = of == db && !s->e->ops->find(s->e, db, name, &ref);
        if (stays && s->e->ops->companion.head(s->e, &ref, &head)) fn(arg, db, name);
    }
    buf_append_bytes(&s->recent, buf_bytes(&recent));
    buf_release(&recent);
}

void site_each_key(struct site *s, u32 db, site_name_fn fn, void *arg)
{
    struct gathered g = {0};
    struct buf place = {0};
    u64 cursor = 0;
    bool more;
    each_recent(s, db, fn, arg);
    do {
        more = s->e->ops->companion.each_kept(s->e, db, &place, CHUNK, apply_gather, &g);
        each_gathered(&g, db, fn, arg);
    } while (more);
    do {
        cursor = s->e->ops->scan(s->e, db, cursor, CHUNK, apply_gather, &g);
        each_gathered(&g, db, fn, arg);
    } while (cursor);
    buf_release(&g.names);
    buf_release(&place);
}

struct flush {
    struct apply *a;
    const struct site_move *m;
};

static void apply_flush_key(void *arg, u32 db, bytes name)
{
    struct flush *f = arg;
    apply_clear(f->a, apply_load(f->a, db, name), f->m);
    apply_save(f->a);
}

static void apply_flush(struct apply *a, const struct site_move *m)
{
    struct flush f = {a, m};
    apply_save(a);
    for (u32 db = 0; db < a->s->databases; db++)
        if (m->db == SITE_ALL_DBS || m->db == db) site_each_key(a->s, db, apply_flush_key, &f);
}

/* -- the effect --------------------------------------------------------------------------------------- */

static void apply_member(struct apply *a, const struct site_move *m)
{
    struct site *s = a->s;
    site_know(s, m->gid);
    s->n_everywhere = 0;
    s->members[m->gid] = (struct site_member){m->op == MOVE_JOIN, a->e->dot};
    if (m->op == MOVE_JOIN) return;
    if (s->acks[m->gid]) memset(s->acks[m->gid], 0, sizeof *s->acks[m->gid]);
    site_fence(s, m->gid, a->e->context.seq[m->gid]);
}

static void apply_move(struct apply *a, const struct site_move *m)
{
    if (m->op == MOVE_FLUSH) {
        apply_flush(a, m);
        return;
    }
    if (m->op >= MOVE_JOIN) {
        if (m->op != MOVE_MORE) apply_member(a, m);
        return;
    }
    struct site_key *k = apply_load(a, m->db, m->name);
    switch (m->op) {
    case MOVE_CLAIM: apply_claim(a, k, m); return;
    case MOVE_PUT: apply_put(a, k, m); return;
    case MOVE_ADD: apply_add(a, k, m); return;
    case MOVE_REM: apply_rem(a, k, m); return;
    case MOVE_CLEAR: apply_clear(a, k, m); return;
    case MOVE_TTL:
    case MOVE_KEEP: apply_ttl(a, k, m); return;
    case MOVE_SPEND: apply_spend(k, m); return;
    case MOVE_FIELD_TTL: apply_field_ttl(a, k, m); return;
    case MOVE_FIELD_SPEND: apply_field_spend(a, k, m); return;
    case MOVE_FIELD_EXPIRE: apply_field_expire(a, k, m); return;
    default: return;
    }
}

void site_apply(struct site *s, const struct site_effect *e)
{
    struct apply a = {.s = s, .e = e};
    struct site_moves it = site_moves_of(e->moves);
    struct site_move m;
    if (s->emit) s->emit(s->emit_arg, e);
    while (site_moves_next(&it, &m)) {
        a.n_seen = 0;
        if (m.op == MOVE_CLEAR || m.op == MOVE_FLUSH) seen_open(&a, &m);
        apply_move(&a, &m);
    }
    apply_save(&a);
    mem_free(a.seen);
    site_note_applied(s, e->dot);
}
