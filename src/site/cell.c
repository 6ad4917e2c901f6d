#include "site/cell.h"

#include <math.h>

#include "base/alloc.h"
#include "base/num.h"
#include "site/effect.h"
#include "site/place.h"
#include "site/room.h"
#include "xstream/xstream.h"

enum {
    MANY_WRITES = 7,
    COUNTING = 8,
    SHOWN = 16,
    DEADLINES = 32,
    MARKS = 64,
}; /* count and flags; fewer writes than MANY are the count itself */

void site_cell_reset(struct site_cell *c, enum value_type kind, bytes path)
{
    c->kind = kind;
    buf_clear(&c->row);
    site_put_u8(&c->row, (u8)kind);
    buf_append_bytes(&c->row, path);
    buf_clear(&c->text);
    c->n_writes = c->n_incs = 0;
    if (UNLIKELY(!site_ttl_empty(&c->ttl))) site_ttl_reset(&c->ttl);
    c->stored = c->was_live = c->was_untidy = c->was_counting = c->was_timed = false;
}

void site_cell_release(struct site_cell *c)
{
    buf_release(&c->row);
    buf_release(&c->text);
    mem_free(c->writes);
    mem_free(c->incs);
    site_ttl_release(&c->ttl);
    *c = (struct site_cell){0};
}

/* -- what it is ----------------------------------------------------------------------------------- */

bool site_cell_empty(const struct site_cell *c)
{
    return c->n_writes == 0 && c->n_incs == 0 && site_ttl_empty(&c->ttl);
}

bool site_cell_counts(const struct site_cell *c)
{
    for (u32 i = 0; i < c->n_incs; i++)
        if (c->incs[i].hi > c->incs[i].lo) return true;
    return false;
}

bool site_cell_live(const struct site_cell *c) { return c->n_writes > 0 || site_cell_counts(c); }

bool site_cell_is_last_id(const struct site_cell *c)
{
    return c->kind == TYPE_STREAM && bytes_eq(site_cell_path(c), SITE_LAST_ID);
}

bool site_cell_tidy(const struct site_cell *c)
{
    for (u32 i = 0; i < c->n_incs; i++)
        if (c->incs[i].hi <= c->incs[i].lo) return false;
    return c->n_writes <= 1 && site_ttl_tidy(&c->ttl);
}

static bool cell_beats(const struct site_cell *c, const struct site_write *a, const struct site_write *b)
{
    int higher = site_cell_is_last_id(c) ? bytes_cmp(site_cell_text(c, a), site_cell_text(c, b)) : 0;
    if (higher) return higher > 0;
    if (a->stamp != b->stamp) return a->stamp > b->stamp;
    if (a->dot.gid != b->dot.gid) return a->dot.gid < b->dot.gid;
    return a->dot.seq > b->dot.seq;
}

struct site_write *site_cell_winner(const struct site_cell *c)
{
    struct site_write *best = c->n_writes ? c->writes : NULL;
    for (u32 i = 1; i < c->n_writes; i++)
        if (cell_beats(c, &c->writes[i], best)) best = &c->writes[i];
    return best;
}

struct site_inc *site_cell_inc(const struct site_cell *c, u8 gid)
{
    for (u32 i = 0; i < c->n_incs; i++)
        if (c->incs[i].gid == gid) return &c->incs[i];
    return NULL;
}

bool site_cell_value(const struct site_cell *c, struct buf *out)
{
    const struct site_write *w = site_cell_winner(c);
    struct site_num sum = {0};
    bool counts = site_cell_counts(c);
    if (!w && !counts) return false;
    if (!counts || (w && !site_num_parse(site_cell_text(c, w), &sum))) {
        buf_append_bytes(out, site_cell_text(c, w));
        return true;
    }
    for (u32 i = 0; i < c->n_incs; i++)
        if (c->incs[i].hi > c->incs[i].lo)
            sum = site_num_add(sum, site_num_sub(c->incs[i].total, c->incs[i].lo_total));
    if (c->kind == TYPE_ZSET) out->n += num_print_double(buf_reserve(out, 64), (double)site_num_real(sum));
    else site_num_print(out, sum);
    return true;
}

/* -- what may come from others -------------------------------------------------------------------- */

bool site_path_fits(enum value_type kind, bytes path)
{
    switch (kind) {
    case TYPE_STRING: return path.n == 0;
    case TYPE_HASH:
    case TYPE_SET:
    case TYPE_ZSET: return true;
    case TYPE_LIST: return site_place_ok(path);
    case TYPE_STREAM: return path.n == 0 || path.n == SITE_ID_BYTES;
    default: return false;
    }
}

bool site_counts(enum value_type kind)
{
    return kind == TYPE_STRING || kind == TYPE_HASH || kind == TYPE_ZSET;
}

bool site_value_fits(enum value_type kind, bytes path, bytes value)
{
    struct site_num n;
    if (kind == TYPE_SET || (kind == TYPE_STREAM && path.n == 0)) return value.n == 0;
    if (kind == TYPE_STREAM)
        return bytes_eq(path, SITE_LAST_ID) ? value.n == SITE_ID_BYTES : xentry_ok(value);
    return kind != TYPE_ZSET || (site_num_parse(value, &n) && !isnan((double)site_num_real(n)));
}

/* -- changing it ------------------------------------------------------------------------------------ */

static void cell_cut(struct site_inc *inc, const struct site_clock *clock, bytes seen)
{
    u64 hi = 0;
    struct site_num total = {0};
    if (clock->seq[inc->gid] >= inc->hi) {
        hi = inc->hi;
        total = inc->total;
    } else {
        struct site_reader r = site_reader_of(seen);
        struct site_seen one;
        while (site_get_seen(&r, &one))
            if (one.gid == inc->gid) {
                hi = one.hi;
                total = one.total;
            }
    }
    if (hi <= inc->lo) return;
    inc->lo = hi;
    inc->lo_total = total;
}

void site_cell_remove(struct site_cell *c, const struct site_clock *clock, bytes seen)
{
    u32 n = 0;
    for (u32 i = 0; i < c->n_writes; i++)
        if (!site_covers(clock, c->writes[i].dot)) c->writes[n++] = c->writes[i];
    c->n_writes = n;
    for (u32 i = 0; i < c->n_incs; i++) cell_cut(&c->incs[i], clock, seen);
}

void site_cell_clear(struct site_cell *c, const struct site_clock *clock, bytes seen)
{
    site_ttl_remove(&c->ttl, clock);
    site_cell_remove(c, clock, seen);
}

/* Not where no stamp decides between two: a member has no value, an entry's id says which it is. */
static bool cell_has_stamps(const struct site_cell *c)
{
    return c->kind != TYPE_SET && c->kind != TYPE_STREAM;
}

void site_cell_write(struct site_cell *c, struct site_dot dot, u64 stamp, struct site_dot birth, bytes value)
{
    if (!cell_has_stamps(c)) stamp = 0;
    site_cell_forget(c, dot);
    c->writes = site_room(c->writes, c->n_writes, &c->room_writes, sizeof *c->writes);
    c->writes[c->n_writes++] = (struct site_write){dot, stamp, birth, false, c->text.n, value.n};
    buf_append_bytes(&c->text, value);
}

void site_cell_add_inc(struct site_cell *c, struct site_inc inc)
{
    struct site_inc *old = site_cell_inc(c, inc.gid);
    if (old) {
        *old = inc;
        return;
    }
    c->incs = site_room(c->incs, c->n_incs, &c->room_incs, sizeof *c->incs);
    u32 at = c->n_incs++;
    for (; at > 0 && c->incs[at - 1].gid > inc.gid; at--) c->incs[at] = c->incs[at - 1];
    c->incs[at] = inc;
}

void site_cell_forget(struct site_cell *c, struct site_dot dot)
{
    for (u32 i = 0; i < c->n_writes; i++)
        if (site_dot_eq(c->writes[i].dot, dot)) c->writes[i--] = c->writes[--c->n_writes];
}

void site_cell_collect(struct site_cell *c)
{
    u32 n = 0;
    if (c->n_writes) c->writes[0] = *site_cell_winner(c);
    c->n_writes = MIN(c->n_writes, 1);
    for (u32 i = 0; i < c->n_incs; i++)
        if (c->incs[i].hi > c->incs[i].lo) c->incs[n++] = c->incs[i];
    c->n_incs = n;
    if (site_cell_live(c)) site_ttl_collect(&c->ttl);
    else site_ttl_reset(&c->ttl);
}

void site_cell_seen(const struct site_cell *c, const struct site_clock *scope, struct buf *to)
{
    for (u32 i = 0; i < c->n_incs; i++) {
        const struct site_inc *inc = &c->incs[i];
        if (inc->hi > inc->lo && (!scope || scope->seq[inc->gid] >= inc->hi))
            site_put_seen(to, &(struct site_seen){inc->gid, inc->hi, inc->total});
    }
}

/* -- as bytes ---------------------------------------------------------------------------------------- */

static void cell_put_write(const struct site_cell *c, const struct site_write *w, struct buf *to)
{
    const struct site_dot own = {0};
    site_put_dot(to, w->dot);
    if (cell_has_stamps(c)) site_put_u64(to, w->stamp);
    if (c->kind == TYPE_SET) return;
    if (c->kind == TYPE_STRING)
        site_put_dot(to, site_dot_eq(w->birth, w->dot) ? own : w->birth);
    if (!w->shown) site_put_bytes(to, site_cell_text(c, w));
}

static void cell_put_inc(const struct site_inc *inc, struct buf *to)
{
    site_put_dot(to, (struct site_dot){inc->hi, inc->gid});
    site_put_varint(to, inc->lo);
    site_put_num(to, inc->total);
    site_put_num(to, inc->lo_total);
}

/* Only the winner can be shown. */
void site_cell_encode(const struct site_cell *c, struct buf *to)
{
    const struct site_write *top = site_cell_winner(c);
    bool shown = top && top->shown;
    u8 flags = (u8)((c->n_incs ? COUNTING : 0) | (shown ? SHOWN : 0) | (c->ttl.n_deadlines ? DEADLINES : 0) |
                    (c->ttl.n_marks ? MARKS : 0));
    site_put_u8(to, (u8)(MIN(c->n_writes, MANY_WRITES) | flags));
    if (c->n_writes >= MANY_WRITES) site_put_varint(to, c->n_writes);
    if (top) cell_put_write(c, top, to);
    for (u32 i = 0; i < c->n_writes; i++)
        if (&c->writes[i] != top) cell_put_write(c, &c->writes[i], to);
    if (c->n_incs) site_put_u8(to, (u8)c->n_incs);
    for (u32 i = 0; i < c->n_incs; i++) cell_put_inc(&c->incs[i], to);
    if (flags & DEADLINES) site_put_deadlines(to, &c->ttl);
    if (flags & MARKS) site_put_marks(to, &c->ttl);
}

static void cell_get_write(struct site_cell *c, struct site_reader *r, bool shown)
{
    struct site_write w = {.dot = site_get_dot(r)};
    bytes value = {0};
    w.birth = w.dot;
    if (cell_has_stamps(c)) w.stamp = site_get_u64(r);
    if (c->kind == TYPE_STRING) w.birth = site_get_dot(r);
    if (w.birth.gid == 0) w.birth = w.dot;
    if (c->kind != TYPE_SET && !shown) value = site_get_bytes(r);
    if (r->bad || w.dot.gid == 0) {
        r->bad = true;
        return;
    }
    site_cell_write(c, w.dot, w.stamp, w.birth, value);
    c->writes[c->n_writes - 1].shown = shown;
}

static struct site_inc cell_get_inc(struct site_reader *r)
{
    struct site_dot hi = site_get_dot(r);
    struct site_inc inc = {.gid = hi.gid, .hi = hi.seq, .lo = site_get_varint(r)};
    inc.total = site_get_num(r);
    inc.lo_total = site_get_num(r);
    if (hi.gid == 0 || inc.lo > inc.hi) r->bad = true;
    return inc;
}

bool site_cell_decode(struct site_cell *c, struct site_reader *r)
{
    u8 flags = site_get_u8(r);
    u64 n = flags & MANY_WRITES;
    if (n == MANY_WRITES) n = site_get_varint(r);
    if (n >= SITE_GIDS) r->bad = true; /* those of one site replace each other */
    for (u64 i = 0; i < n && !r->bad; i++) cell_get_write(c, r, i == 0 && (flags & SHOWN));
    for (u32 i = flags & COUNTING ? site_get_u8(r) : 0; i > 0 && !r->bad; i--) {
        struct site_inc inc = cell_get_inc(r);
        if (!r->bad) site_cell_add_inc(c, inc);
    }
    if (flags & DEADLINES) site_get_deadlines(r, &c->ttl);
    if (flags & MARKS) site_get_marks(r, &c->ttl);
    return !r->bad;
}

/* -- cells of the usual kinds -------------------------------------------------------------------------- */

bytes site_plain_cell(char raw[SITE_PLAIN_CELL_MAX], enum value_type kind, struct site_dot dot, u64 stamp)
{
    raw[0] = 1 | SHOWN;
    char *p = site_write_dot(raw + 1, dot);
    if (kind == TYPE_SET || kind == TYPE_STREAM) return bytes_of(raw, (size_t)(p - raw));
    return bytes_of(raw, (size_t)(site_write_u64(p, stamp) - raw));
}

bool site_cell_is_plain(bytes cell, struct site_dot *dot)
{
    struct site_reader r = site_reader_of(cell);
    if (site_get_u8(&r) != (1 | SHOWN)) return false;
    *dot = site_get_dot(&r);
    return !r.bad;
}

/* Steps over the write that increments are added to. Scores are doubles: only integers add up as decimal
 * numbers do. */
static bool counter_skip_base(struct site_reader *r, enum value_type kind)
{
    i64 number;
    site_get_dot(r);
    site_get_u64(r);
    if (kind == TYPE_STRING) site_get_dot(r);
    bytes base = site_get_bytes(r);
    return kind != TYPE_ZSET || num_parse_i64(base, &number);
}

bool site_get_counter(bytes cell, enum value_type kind, u8 gid, struct site_counter *out)
{
    struct site_reader r = site_reader_of(cell);
    u8 flags = site_get_u8(&r);
    bool found = false;
    if ((flags & ~1) != COUNTING) return false; /* one write that does not show, or none */
    if (flags & 1 && !counter_skip_base(&r, kind)) return false;
    for (u32 n = site_get_u8(&r); n > 0 && !r.bad; n--) {
        const char *start = r.p;
        struct site_inc inc = cell_get_inc(&r);
        if (inc.total.real || inc.lo_total.real) return false;
        if (inc.gid != gid) continue;
        found = inc.hi > inc.lo;
        *out = (struct site_counter){bytes_of(cell.p, (size_t)(start - cell.p)),
                                     bytes_of(r.p, (size_t)(cell.p + cell.n - r.p)), inc};
    }
    return found && !r.bad;
}

void site_put_counter(struct buf *to, const struct site_counter *c)
{
    buf_append_bytes(to, c->before);
    cell_put_inc(&c->inc, to);
    buf_append_bytes(to, c->after);
}
