/* Expiry: each deadline takes effect once, and a deletion removes only what its author had seen. */
#include "base/alloc.h"
#include "site/room.h"
#include "site/site.h"
#include "site/write.h"

#define FIELDS_TOGETHER 64 /* that expire by one effect */

static bool is_past(const struct site *s, const struct site_deadline *d)
{
    return d->at_ms && d->at_ms <= (s->torn ? s->torn_ms : site_now(s));
}

/* A key of a torn site may have atoms that its clock does not cover yet. Our effects can't end them, nor
 * refer to them: others may get them later, and refuse an effect with dots that its author can't know. The
 * full sync that completes the site ends them. */
static bool is_known_here(const struct site *s, struct site_dot dot)
{
    return !s->torn || site_covers(&s->clock, dot);
}

static bool is_past_here(const struct site *s, const struct site_deadline *d)
{
    return is_past(s, d) && is_known_here(s, d->dot);
}

/* Whether our clock covers all increments of a cell. If it does not, we can't compute the total that it
 * covers, and so can't say which part an expiry ends. */
static bool counts_are_known(const struct site *s, const struct site_cell *c)
{
    for (u32 i = 0; i < c->n_incs; i++)
        if (!is_known_here(s, (struct site_dot){c->incs[i].hi, c->incs[i].gid})) return false;
    return true;
}

static bool all_counts_are_known(struct site *s, struct site_key *k)
{
    struct buf paths = {0};
    bool known = !s->torn || PLANTED_SITE(s, PLANT_TORN_COUNTS) || counts_are_known(s, &k->string);
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES && s->torn && k->counting; kind++) {
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); known && site_left(&r);)
            known = counts_are_known(s, site_key_cell(k, kind, site_get_bytes(&r), &s->cell));
    }
    buf_release(&paths);
    return known;
}

bool site_due(const struct site *s, const struct site_key *k)
{
    const struct site_deadline *d = site_key_ttl(k);
    return d && is_past(s, d);
}

/* What a deadline ends. */
static struct site_clock late_scope(const struct site *s, const struct site_late *late, struct site_dot dot)
{
    for (u32 i = 0; late && i < late->n && !PLANTED_SITE(s, PLANT_LATE_ENDS_ALL); i++) {
        if (!site_dot_eq(late->dots[i], dot)) continue;
        struct site_clock scope = *late->clock;
        if (late->piece) scope.seq[dot.gid] = dot.seq;
        return scope;
    }
    return s->clock;
}

/* -- a key that lives on by a longer deadline ----------------------------------------------------- */

/* Whether it lives by an EXPIRE, and not only by the value that shows. */
static bool lives_by_expire(const struct site *s, const struct site_key *k)
{
    for (u32 i = 0; i < k->ttl.n_deadlines; i++) {
        const struct site_deadline *d = &k->ttl.deadlines[i];
        if (!d->kept && d->at_ms && d->birth.gid == 0 && !is_past(s, d)) return true;
    }
    return false;
}

/* A losing string whose own deadline has passed. */
static bool is_lost(const struct site *s, const struct site_key *k, const struct site_write *w)
{
    if (site_dot_eq(w->birth, site_key_birth(k))) return false;
    for (u32 i = 0; i < k->ttl.n_deadlines; i++) {
        const struct site_deadline *d = &k->ttl.deadlines[i];
        if (is_past_here(s, d) && d->birth.gid && site_dot_eq(d->birth, w->birth))
            return is_known_here(s, w->dot);
    }
    return false;
}

static void spend(struct site *s, const struct site_key *k)
{
    struct buf spent = {0}, lost = {0};
    for (u32 i = 0; i < k->ttl.n_deadlines; i++)
        if (PLANTED_SITE(s, PLANT_TORN_SPENDS) ? is_past(s, &k->ttl.deadlines[i])
                                               : is_past_here(s, &k->ttl.deadlines[i]))
            site_put_dot(&spent, k->ttl.deadlines[i].dot);
    for (u32 i = 0; i < k->string.n_writes && !lives_by_expire(s, k); i++)
        if (is_lost(s, k, &k->string.writes[i])) site_put_dot(&lost, k->string.writes[i].dot);
    site_put_move(&s->moves,
                  &(struct site_move){.op = MOVE_SPEND,
                                      .db = k->db,
                                      .name = buf_bytes(&k->name),
                                      .spent = buf_bytes(&spent),
                                      .lost = buf_bytes(&lost)},
                  false);
    site_commit(s);
    buf_release(&spent);
    buf_release(&lost);
}

bool site_expire(struct site *s, u32 db, bytes name, const struct site_late *late)
{
    struct site_key k = {0};
    while (!s->doubt) {
        bool past = false;
        site_key_load(&k, s->e, db, name);
        for (u32 i = 0; i < k.ttl.n_deadlines; i++)
            past |= is_past_here(s, &k.ttl.deadlines[i]);
        if (!past || !all_counts_are_known(s, &k)) break;
        if (!site_due(s, &k) || !is_known_here(s, site_key_ttl(&k)->dot)) {
            spend(s, &k);
            break;
        }
        struct site_clock scope = late_scope(s, late, site_key_ttl(&k)->dot);
        site_move_clear(s, &k, &scope);
        site_commit(s); /* and again, by the next deadline, if that ends more */
    }
    bool timed = k.timed > 0;
    site_key_release(&k);
    return timed;
}

/* -- hash fields ---------------------------------------------------------------------------------- */

bool site_field_due(const struct site *s, const struct site_cell *c)
{
    const struct site_deadline *d = site_ttl_longest(&c->ttl);
    return d && is_past(s, d);
}

/* The moves that end what is past its deadline in a field, and otherwise spend those deadlines. */
static void move_field_end(struct site *s, struct site_key *k, struct site_cell *c,
                           const struct site_late *late)
{
    struct site_move m = {.op = MOVE_FIELD_SPEND, .db = k->db, .name = buf_bytes(&k->name)};
    struct buf past = {0}, seen = {0}, raw = {0};
    for (u32 i = 0; i < c->ttl.n_deadlines; i++) {
        const struct site_deadline *d = &c->ttl.deadlines[i];
        if (is_past_here(s, d) && counts_are_known(s, c)) site_put_dot(&past, d->dot);
    }
    m.path = site_cell_path(c);
    m.spent = buf_bytes(&past);
    const struct site_deadline *top = site_ttl_longest(&c->ttl);
    if (past.n && is_past_here(s, top)) {
        struct site_clock scope = late_scope(s, late, top->dot);
        m.op = MOVE_FIELD_EXPIRE;
        m.shows = site_key_type(k) == TYPE_HASH;
        site_cell_seen(c, &scope, &seen);
        m.seen = buf_bytes(&seen);
        site_put_clock(&raw, &scope);
        m.scope = buf_bytes(&raw);
    }
    if (past.n) site_put_move(&s->moves, &m, s->moves.n > 0);
    buf_release(&past);
    buf_release(&seen);
    buf_release(&raw);
}

void site_expire_fields(struct site *s, u32 db, bytes name, bytes fields, const struct site_late *late)
{
    struct site_key k = {0};
    struct site_cell c = {0};
    while (!s->doubt) {
        site_key_load(&k, s->e, db, name);
        for (struct site_reader r = site_reader_of(fields); k.timed && site_left(&r);)
            move_field_end(s, &k, site_key_cell(&k, TYPE_HASH, site_get_bytes(&r), &c), late);
        if (s->moves.n == 0) break;
        site_commit(s); /* and again, by the next deadlines, if these end more */
    }
    site_key_release(&k);
    site_cell_release(&c);
}

void site_expire_field(struct site *s, u32 db, bytes name, bytes field)
{
    struct buf one = {0};
    site_put_bytes(&one, field);
    site_expire_fields(s, db, name, buf_bytes(&one), NULL);
    buf_release(&one);
}

static void gather_field(void *arg, bytes field, bytes value UNUSED, double deadline_ms UNUSED)
{
    site_put_bytes(arg, field);
}

/* Some of those that show and whose deadline was until then. False: there was none. */
static bool expire_fields_until(struct site *s, u32 db, bytes name, i64 until_ms)
{
    struct key_ref ref;
    struct buf fields = {0};
    if (s->e->ops->find(s->e, db, name, &ref) && ref.type == TYPE_HASH)
        s->e->ops->map.due(s->e, &ref, until_ms, FIELDS_TOGETHER, gather_field, &fields);
    bool any = fields.n > 0;
    if (any) site_expire_fields(s, db, name, buf_bytes(&fields), NULL);
    buf_release(&fields);
    return any;
}

void site_expire_due_fields(struct site *s, u32 db, bytes name)
{
    u64 before;
    do before = s->position;
    while (expire_fields_until(s, db, name, s->torn ? s->torn_ms : site_now(s)) && s->position > before);
}

/* -- the pass ------------------------------------------------------------------------------------- */

void site_expire_pass(struct site *s, u32 db, bytes name)
{
    struct site_key k = {0};
    site_key_load(&k, s->e, db, name);
    const struct site_claim *top = site_key_claim(&k);
    i64 wait_ms = top && top->dot.gid != s->gid ? s->expire_delay_ms : 0;
    if (PLANTED_SITE(s, PLANT_NO_DELAY)) wait_ms = 0;
    bool now = !site_due(s, &k) || (top && site_key_deadline(&k) + wait_ms <= site_now(s));
    bool timed = k.timed > 0;
    site_key_release(&k);
    if (now) site_expire(s, db, name, NULL);
    if (timed) expire_fields_until(s, db, name, site_now(s) - wait_ms);
}

/* -- an expiry meets an extension that it had not seen -------------------------------------------- */

struct site_after {
    struct site_dot dot; /* of the expiry */
    u32 db;
    struct buf name;
    struct site_clock scope;
    enum value_type kind;
    u64 claim_stamp;
    struct buf puts; /* a PUT for each cell that showed before the expiry, and its deadline */
    bool of_field;   /* the expiry was that of a field: the only one in `puts` */
};

/* An EXPIRE or PERSIST of ours that the expiry had not seen, which holds. */
static bool extends(const struct site *s, const struct site_ttl *t, const struct site_clock *scope)
{
    for (u32 i = 0; i < t->n_deadlines; i++) {
        const struct site_deadline *d = &t->deadlines[i];
        if (d->dot.gid == s->gid && !d->kept && !site_covers(scope, d->dot) && !is_past(s, d)) return true;
    }
    return false;
}

static void remember_cell(struct site_after *a, struct site_key *k, struct site_cell *c)
{
    const struct site_write *top = site_cell_winner(c);
    struct site_move m = {.op = MOVE_PUT, .db = k->db, .name = buf_bytes(&a->name), .kind = c->kind};
    struct buf value = {0};
    m.path = site_cell_path(c);
    m.stamp = top && c->kind != TYPE_SET ? top->stamp : a->claim_stamp;
    if (top && c->kind == TYPE_STRING) m.birth = top->birth;
    site_key_value(k, c, &value);
    m.value = buf_bytes(&value);
    site_put_move(&a->puts, &m, false);
    buf_release(&value);
    m.at_ms = a->of_field ? 0 : site_ttl_at(&c->ttl);
    m.op = MOVE_FIELD_TTL;
    m.field_ttl = FIELD_KEEPS;
    if (m.at_ms) site_put_move(&a->puts, &m, true);
}

static struct site_after *remember(struct site *s, const struct site_key *k, const struct site_claim *top,
                                   struct site_dot dot, const struct site_clock *scope)
{
    s->after = site_room(s->after, s->n_after, &s->room_after, sizeof *s->after);
    struct site_after *a = &s->after[s->n_after++];
    *a = (struct site_after){
        .dot = dot, .db = k->db, .scope = *scope, .kind = top->type, .claim_stamp = top->stamp};
    buf_append_bytes(&a->name, buf_bytes(&k->name));
    return a;
}

void site_remember_field(struct site *s, struct site_key *k, const struct site_claim *top,
                         struct site_cell *c, struct site_dot dot, const struct site_clock *scope)
{
    bool shows = top && top->type == TYPE_HASH && site_cell_live(c);
    if (!shows || !extends(s, &c->ttl, scope)) return;
    struct site_after *a = remember(s, k, top, dot, scope);
    a->of_field = true;
    remember_cell(a, k, c);
}

void site_remember(struct site *s, struct site_key *k, struct site_dot dot, const struct site_clock *scope)
{
    const struct site_claim *top = site_key_claim(k);
    struct site_cell scratch = {0};
    struct buf paths = {0};
    if (!top || !extends(s, &k->ttl, scope)) return;
    struct site_after *a = remember(s, k, top, dot, scope);
    if (top->type == TYPE_STRING) remember_cell(a, k, &k->string);
    else site_key_paths(k, top->type, &paths);
    for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
        struct site_cell *c = site_key_cell(k, top->type, site_get_bytes(&r), &scratch);
        if (site_cell_live(c)) remember_cell(a, k, c);
    }
    site_cell_release(&scratch);
    buf_release(&paths);
}

/* Those of the moves whose cells don't show any more. */
static void put_missing(struct site *s, struct site_key *k, const struct site_after *a, struct buf *to)
{
    struct site_moves it = site_moves_of(buf_bytes(&a->puts));
    struct site_move m;
    bool missing = false;
    while (site_moves_next(&it, &m)) {
        if (m.op == MOVE_PUT) {
            const struct site_cell *c = site_key_cell(k, m.kind, m.path, &s->cell);
            missing = !site_cell_live(c) && (!a->of_field || extends(s, &c->ttl, &a->scope));
        }
        if (missing) site_put_move(to, &m, true);
    }
}

/* With the old stamps, so that nothing newer loses. */
static void write_again(struct site *s, const struct site_after *a)
{
    struct site_key k = {0};
    struct buf puts = {0};
    struct site_move claim = {.op = MOVE_CLAIM,
                              .db = a->db,
                              .name = buf_bytes(&a->name),
                              .kind = a->kind,
                              .stamp = a->claim_stamp};
    site_key_load(&k, s->e, a->db, buf_bytes(&a->name));
    enum value_type type = site_key_type(&k);
    if ((type == TYPE_NONE || type == a->kind) && (a->of_field || extends(s, &k.ttl, &a->scope)))
        put_missing(s, &k, a, &puts);
    for (u32 i = 0; i < k.n_claims; i++) claim.stamp = MAX(claim.stamp, k.claims[i].stamp);
    site_key_release(&k);
    if (puts.n) {
        site_put_move(&s->moves, &claim, false);
        buf_append_bytes(&s->moves, buf_bytes(&puts));
        site_commit(s);
    }
    buf_release(&puts);
}

static void release_after(struct site *s, u32 at)
{
    buf_release(&s->after[at].name);
    buf_release(&s->after[at].puts);
    memmove(s->after + at, s->after + at + 1, (--s->n_after - at) * sizeof *s->after);
}

void site_reassert(struct site *s)
{
    if (s->doubt) return;
    for (; s->n_after; release_after(s, 0))
        if (!PLANTED_SITE(s, PLANT_NO_REASSERT)) write_again(s, &s->after[0]);
}

void site_forget_reasserted(struct site *s, const struct site_clock *seen)
{
    for (u32 i = s->n_after; i-- > 0;)
        if (site_covers(seen, s->after[i].dot)) release_after(s, i);
}

void site_forget_after(struct site *s)
{
    while (s->n_after) release_after(s, s->n_after - 1);
}
