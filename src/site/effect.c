#include "site/effect.h"

#include "site/cell.h"

#define SAME_NAME 0x80 /* of an op: the move is about the key of the move before it */

/* -- counters that were seen ------------------------------------------------------------------------ */

void site_put_seen(struct buf *to, const struct site_seen *one)
{
    site_put_dot(to, (struct site_dot){one->hi, one->gid});
    site_put_num(to, one->total);
}

bool site_get_seen(struct site_reader *r, struct site_seen *out)
{
    if (site_left(r) == 0) return false;
    struct site_dot d = site_get_dot(r);
    out->gid = d.gid;
    out->hi = d.seq;
    out->total = site_get_num(r);
    return !r->bad;
}

static void put_name(struct buf *to, u32 db, bytes name)
{
    site_put_varint(to, db);
    site_put_bytes(to, name);
}

static void get_name(struct site_reader *r, u32 *db, bytes *name)
{
    u64 n = site_get_varint(r);
    if (n > SITE_ALL_DBS) r->bad = true;
    *db = (u32)n;
    *name = site_get_bytes(r);
}

void site_put_seen_cell(struct buf *to, enum site_op op, const struct site_seen_cell *c)
{
    if (op == MOVE_FLUSH) put_name(to, c->db, c->name);
    site_put_u8(to, (u8)c->kind);
    site_put_bytes(to, c->path);
    site_put_bytes(to, c->seen);
}

bool site_get_seen_cell(struct site_reader *r, enum site_op op, struct site_seen_cell *c)
{
    *c = (struct site_seen_cell){0};
    if (site_left(r) == 0) return false;
    if (op == MOVE_FLUSH) get_name(r, &c->db, &c->name);
    c->kind = site_get_u8(r);
    c->path = site_get_bytes(r);
    c->seen = site_get_bytes(r);
    return !r->bad;
}

/* -- moves --------------------------------------------------------------------------------------- */

static bool has_name(enum site_op op) { return op < MOVE_FLUSH; }

static bool has_path(enum site_op op)
{
    return (op >= MOVE_PUT && op <= MOVE_REM) || (op >= MOVE_FIELD_TTL && op <= MOVE_FIELD_EXPIRE);
}

static char *move_write_rest(char *p, const struct site_move *m)
{
    switch (m->op) {
    case MOVE_CLAIM: return site_write_varint(p, m->stamp);
    case MOVE_PUT:
        p = site_write_bytes(p, m->value);
        p = site_write_bytes(p, m->seen);
        p = site_write_varint(p, m->stamp);
        return site_write_dot(p, m->birth);
    case MOVE_ADD:
        *p++ = (char)m->fresh;
        p = site_write_varint(p, m->prev);
        p = site_write_num(p, m->prev_total);
        return site_write_num(p, m->total);
    case MOVE_REM: return site_write_bytes(p, m->seen);
    case MOVE_CLEAR:
        p = site_write_bytes(p, m->seen);
        return site_write_bytes(p, m->scope);
    case MOVE_TTL:
    case MOVE_KEEP:
        p = site_write_varint(p, (u64)m->at_ms);
        return site_write_dot(p, m->birth);
    case MOVE_SPEND:
        p = site_write_bytes(p, m->spent);
        return site_write_bytes(p, m->lost);
    case MOVE_FIELD_TTL:
        *p++ = (char)m->field_ttl;
        return site_write_varint(p, (u64)m->at_ms);
    case MOVE_FIELD_SPEND: return site_write_bytes(p, m->spent);
    case MOVE_FIELD_EXPIRE:
        *p++ = (char)m->shows;
        p = site_write_bytes(p, m->seen);
        return site_write_bytes(p, m->scope);
    case MOVE_FLUSH:
        p = site_write_varint(p, m->db);
        return site_write_bytes(p, m->seen);
    case MOVE_JOIN:
    case MOVE_EVICT: *p++ = (char)m->gid; return p;
    default: return p;
    }
}

#define MOVE_NUMBERS 320 /* bytes of all that is not counted below */

/* A hot path: one reservation. */
void site_put_move(struct buf *to, const struct site_move *m, bool same_name)
{
    bool named = has_name(m->op);
    size_t room = m->name.n + m->path.n + m->value.n + m->seen.n + m->scope.n + m->spent.n + m->lost.n;
    char *p = buf_reserve(to, room + MOVE_NUMBERS);
    *p++ = (char)(m->op | (named && same_name ? SAME_NAME : 0));
    if (named && !same_name) {
        p = site_write_varint(p, m->db);
        p = site_write_bytes(p, m->name);
    }
    if (m->op <= MOVE_REM) *p++ = (char)m->kind;
    if (has_path(m->op)) p = site_write_bytes(p, m->path);
    p = move_write_rest(p, m);
    to->n = (size_t)(p - to->p);
}

/* What is the same in every SET: between name and value (the end of CLEAR, CLAIM, the start of PUT), and
 * after the value. */
static const char set_middle[] = {0, 0, (char)(MOVE_CLAIM | SAME_NAME), TYPE_STRING, 0,
                                  (char)(MOVE_PUT | SAME_NAME), TYPE_STRING, 0};
static const char set_end[] = {0, 0, 0};

/* A hot path: one reservation, and no decisions. */
void site_put_set(struct buf *to, u32 db, bytes name, bytes value, i64 at_ms, struct site_dot birth)
{
    char *p = buf_reserve(to, name.n + value.n + 64);
    *p++ = MOVE_CLEAR;
    p = site_write_varint(p, db);
    p = site_write_bytes(p, name);
    p = mempcpy(p, set_middle, sizeof set_middle);
    p = site_write_bytes(p, value);
    p = mempcpy(p, set_end, sizeof set_end);
    if (at_ms) {
        *p++ = (char)(MOVE_TTL | SAME_NAME);
        p = site_write_varint(p, (u64)at_ms);
        p = site_write_dot(p, birth);
    }
    to->n = (size_t)(p - to->p);
}

static bool get_these(struct site_reader *r, const char *want, size_t n)
{
    if (site_left(r) < n || memcmp(r->p, want, n) != 0) return false;
    r->p += n;
    return true;
}

bool site_get_set(bytes moves, struct site_set *m)
{
    struct site_reader r = site_reader_of(moves);
    if (site_get_u8(&r) != MOVE_CLEAR) return false;
    get_name(&r, &m->db, &m->name);
    if (!get_these(&r, set_middle, sizeof set_middle)) return false;
    m->value = site_get_bytes(&r);
    if (!get_these(&r, set_end, sizeof set_end)) return false;
    m->at_ms = 0;
    if (site_left(&r) == 0) return true;
    u64 at_ms = site_get_u8(&r) == (MOVE_TTL | SAME_NAME) ? site_get_varint(&r) : 0;
    m->birth = site_get_dot(&r);
    m->at_ms = (i64)at_ms;
    return !r.bad && r.p == r.end && at_ms > 0 && at_ms <= (u64)INT64_MAX;
}

static i64 get_time(struct site_reader *r)
{
    u64 n = site_get_varint(r);
    if (n > (u64)INT64_MAX) r->bad = true;
    return (i64)n;
}

static void get_rest(struct site_reader *r, struct site_move *m)
{
    u64 n;
    switch (m->op) {
    case MOVE_CLAIM: m->stamp = site_get_varint(r); break;
    case MOVE_PUT:
        m->value = site_get_bytes(r);
        m->seen = site_get_bytes(r);
        m->stamp = site_get_varint(r);
        m->birth = site_get_dot(r);
        break;
    case MOVE_ADD:
        m->fresh = site_get_u8(r) != 0;
        m->prev = site_get_varint(r);
        m->prev_total = site_get_num(r);
        m->total = site_get_num(r);
        break;
    case MOVE_REM: m->seen = site_get_bytes(r); break;
    case MOVE_CLEAR:
        m->seen = site_get_bytes(r);
        m->scope = site_get_bytes(r);
        break;
    case MOVE_TTL:
    case MOVE_KEEP:
        m->at_ms = get_time(r);
        m->birth = site_get_dot(r);
        break;
    case MOVE_SPEND:
        m->spent = site_get_bytes(r);
        m->lost = site_get_bytes(r);
        break;
    case MOVE_FIELD_TTL:
        m->field_ttl = site_get_u8(r);
        m->at_ms = get_time(r);
        break;
    case MOVE_FIELD_SPEND: m->spent = site_get_bytes(r); break;
    case MOVE_FIELD_EXPIRE:
        m->shows = site_get_u8(r) != 0;
        m->seen = site_get_bytes(r);
        m->scope = site_get_bytes(r);
        break;
    case MOVE_FLUSH:
        n = site_get_varint(r);
        if (n > SITE_ALL_DBS) r->bad = true;
        m->db = (u32)n;
        m->seen = site_get_bytes(r);
        break;
    case MOVE_JOIN:
    case MOVE_EVICT:
        m->gid = site_get_u8(r);
        if (m->gid == 0) r->bad = true;
        break;
    case MOVE_MORE: break;
    default: r->bad = true;
    }
}

enum site_op site_first_op(bytes moves) { return (u8)moves.p[0] & ~SAME_NAME; }

struct site_moves site_moves_of(bytes moves)
{
    return (struct site_moves){.in = site_reader_of(moves), .db = SITE_ALL_DBS};
}

bool site_moves_next(struct site_moves *it, struct site_move *m)
{
    struct site_reader *r = &it->in;
    if (site_left(r) == 0) return false;
    u8 op = site_get_u8(r);
    *m = (struct site_move){.op = op & ~SAME_NAME};
    if (has_name(m->op)) {
        if (!(op & SAME_NAME)) get_name(r, &it->db, &it->name);
        m->db = it->db;
        m->name = it->name;
        if (it->db == SITE_ALL_DBS) r->bad = true;
    }
    if (m->op <= MOVE_REM) m->kind = site_get_u8(r);
    else if (has_path(m->op)) m->kind = TYPE_HASH;
    if (has_path(m->op)) m->path = site_get_bytes(r);
    get_rest(r, m);
    return !r->bad;
}

bool site_effect_key(bytes raw, u32 *db, bytes *name, bytes *element)
{
    struct site_reader r = site_reader_of(raw);
    struct site_move m;
    site_get_dot(&r);
    site_get_u64(&r);
    for (u32 n = site_get_u8(&r); n > 0 && !r.bad; n--) site_get_dot(&r);
    struct site_moves it = site_moves_of(bytes_of(r.p, site_left(&r)));
    if (!has_name(site_get_u8(&r))) return false;
    get_name(&r, db, name);
    if (r.bad || !element) return !r.bad;
    *element = (bytes){0};
    while (!element->n && site_moves_next(&it, &m))
        if (m.path.n) *element = m.path;
    return true;
}

/* -- checking ------------------------------------------------------------------------------------- */

static bool known(const struct site_effect *e, struct site_dot d)
{
    return site_covers(&e->context, d) || site_dot_eq(d, e->dot);
}

static bool seen_fits(const struct site_effect *e, bytes seen)
{
    struct site_reader r = site_reader_of(seen);
    struct site_seen one;
    u8 last = 0;
    while (site_get_seen(&r, &one)) {
        if (one.gid <= last || !site_covers(&e->context, (struct site_dot){one.hi, one.gid})) return false;
        last = one.gid;
    }
    return !r.bad;
}

static bool seen_cells_fit(const struct site_effect *e, const struct site_move *m)
{
    struct site_reader r = site_reader_of(m->seen);
    struct site_seen_cell c;
    while (site_get_seen_cell(&r, m->op, &c))
        if (!site_path_fits(c.kind, c.path) || !seen_fits(e, c.seen)) return false;
    return !r.bad;
}

static bool dots_fit(const struct site_effect *e, bytes dots)
{
    struct site_reader r = site_reader_of(dots);
    while (site_left(&r))
        if (!known(e, site_get_dot(&r))) return false;
    return !r.bad;
}

static bool scope_fits(const struct site_effect *e, bytes scope)
{
    struct site_reader r = site_reader_of(scope);
    struct site_clock clock;
    site_get_clock(&r, &clock);
    return !r.bad && site_left(&r) == 0 && site_clock_covers(&e->context, &clock);
}

static bool move_fits(const struct site_effect *e, const struct site_move *m)
{
    if (!known(e, m->birth)) return false;
    switch (m->op) {
    case MOVE_CLAIM: return m->kind >= TYPE_STRING && m->kind < SITE_TYPES;
    case MOVE_PUT:
        return site_path_fits(m->kind, m->path) && site_value_fits(m->kind, m->path, m->value) &&
               seen_fits(e, m->seen);
    case MOVE_ADD:
        return site_path_fits(m->kind, m->path) && site_counts(m->kind) &&
               site_covers(&e->context, (struct site_dot){m->prev, e->dot.gid});
    case MOVE_REM: return site_path_fits(m->kind, m->path) && seen_fits(e, m->seen);
    case MOVE_CLEAR: return seen_cells_fit(e, m) && (m->scope.n == 0 || scope_fits(e, m->scope));
    case MOVE_FLUSH: return seen_cells_fit(e, m);
    case MOVE_SPEND: return dots_fit(e, m->spent) && dots_fit(e, m->lost);
    case MOVE_FIELD_TTL: return m->field_ttl <= FIELD_LOSES && (m->at_ms || m->field_ttl != FIELD_KEEPS);
    case MOVE_FIELD_SPEND: return dots_fit(e, m->spent);
    case MOVE_FIELD_EXPIRE: return seen_fits(e, m->seen) && scope_fits(e, m->scope);
    default: return true;
    }
}

bool site_effect_parse(bytes raw, struct site_effect *e, const char **why)
{
    struct site_reader r = site_reader_of(raw);
    e->all = raw;
    e->dot = site_get_dot(&r);
    e->stamp = site_get_u64(&r);
    site_get_clock(&r, &e->context);
    e->moves = bytes_of(r.p, site_left(&r));
    *why = "a malformed effect";
    if (r.bad || e->dot.gid == 0 || e->dot.seq == 0) return false;
    *why = "an effect whose context is not what its site had";
    if (e->context.seq[e->dot.gid] != e->dot.seq - 1) return false;
    struct site_moves it = site_moves_of(e->moves);
    struct site_move m;
    *why = "an effect that refers to what its site can't know";
    e->more = false;
    while (site_moves_next(&it, &m)) {
        if (!move_fits(e, &m)) return false;
        e->more |= m.op == MOVE_MORE;
    }
    *why = "a malformed move";
    return !it.in.bad;
}

void site_put_effect_head(struct buf *to, struct site_dot dot, u64 stamp, const struct site_clock *context)
{
    site_put_dot(to, dot);
    site_put_u64(to, stamp);
    site_put_clock(to, context);
}
