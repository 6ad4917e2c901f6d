/* Captured primitives of strings, hashes, sets and sorted sets. */
#include <math.h>

#include "base/num.h"
#include "site/capture_parts.h"

#define EXACT ((double)((i64)1 << 53)) /* integers below this are exact in a double */

static const bytes nothing = {"", 0};

/* -- what was added --------------------------------------------------------------------------------- */

/* An increment is sent as the difference between the new and the old visible value, so that the sum of all
 * increments is what the command replied. */
static struct site_num value_difference(bytes old, bytes now)
{
    struct site_num a = {0}, b = {0};
    if (old.n && !site_num_parse(old, &a)) a = (struct site_num){0};
    if (!site_num_parse(now, &b)) b = (struct site_num){0};
    return site_num_sub(b, a);
}

static struct site_num score_difference(double old, double now)
{
    long double by = (long double)now - (long double)old;
    if (isnan(by)) by = 0;
    if (fabsl(by) < EXACT && by == (long double)(i64)by) return site_num_of((i64)by);
    return (struct site_num){.real = true, .f = by};
}

/* Scores are doubles, but a cell adds decimal fractions. */
static bool value_is_exact(const struct site_cell *c)
{
    const struct site_write *base = c->kind == TYPE_ZSET ? site_cell_winner(c) : NULL;
    i64 number;
    if (base && !num_parse_i64(site_cell_text(c, base), &number)) return false;
    for (u32 i = 0; i < c->n_incs; i++)
        if (c->incs[i].total.real || c->incs[i].lo_total.real) return false;
    return true;
}

/* Floating-point sums depend on their order: chooses the total so that the cell shows what the command
 * computed, if that is possible. */
static void value_correct(struct site_capture *c, struct site_cell *cell, struct site_inc *inc, bytes want)
{
    struct site_num now, target;
    for (u32 tries = 0; tries < 2 && site_num_parse(want, &target); tries++) {
        buf_clear(&c->value);
        site_cell_add_inc(cell, *inc);
        site_cell_value(cell, &c->value);
        if (bytes_eq(buf_bytes(&c->value), want) || !site_num_parse(buf_bytes(&c->value), &now)) return;
        inc->total = site_num_add(inc->total, site_num_sub(target, now));
    }
}

/* Increases the cell's counter so that it shows `want`. Two increments in one effect can't be distinguished:
 * see apply_add(). */
static void value_add_cell(struct site_capture *c, struct site_key *k, struct site_cell *cell,
                           struct site_num by, bytes want)
{
    struct site *s = &c->site;
    const struct site_inc *old = site_cell_inc(cell, s->gid);
    struct site_move m = {.op = MOVE_ADD, .kind = cell->kind, .path = site_cell_path(cell)};
    struct site_inc inc = {.gid = s->gid, .hi = capture_dot(c).seq};
    m.fresh = !(old && old->hi > old->lo);
    m.prev = m.fresh ? s->clock.seq[s->gid] : old->hi;
    if (!m.fresh) m.prev_total = old->total;
    inc.lo = m.fresh ? m.prev : old->lo;
    inc.lo_total = m.fresh ? m.prev_total : old->lo_total;
    inc.total = site_num_add(m.prev_total, by);
    site_cell_add_inc(cell, inc);
    if (UNLIKELY(!value_is_exact(cell))) {
        value_correct(c, cell, &inc, want);
        site_cell_add_inc(cell, inc);
    }
    m.total = inc.total;
    capture_move(c, k, &m);
}

/* -- strings ---------------------------------------------------------------------------------------- */

typedef void (*put_fn)(struct engine *, u32, bytes, struct key_ref *, bytes, i64);

/* The usual SET: there is nothing under the name, or only another SET, of an earlier effect. */
static bool string_put_fast(struct site_capture *c, struct key_ref *ref, bytes key, bytes value,
                            i64 deadline_ms, put_fn put)
{
    struct engine *e = c->site.e;
    struct site_dot dot = {0};
    char raw[SITE_SET_HEAD_MAX];
    bytes head;
    if (UNLIKELY(c->site.walks != NULL)) return false; /* a snapshot has to see the key first */
    if (PLANTED_SITE(&c->site, PLANT_FAST_SET)) {
        if (ref->entry && ref->type != TYPE_STRING) return false;
    } else if (c->own->companion.head(e, ref, &head)) {
        if (!ref->entry || ref->type != TYPE_STRING || !site_head_is_set(head, &dot)) return false;
        if (c->open && site_dot_eq(dot, c->effect.dot)) return false;
    } else if (ref->entry) {
        return false;
    }
    dot = capture_dot(c);
    site_put_set(&c->site.moves, ref->db, key, value, deadline_ms, dot);
    c->named = c->keyed = false;
    c->made = true;
    c->rems = 0;
    put(e, ref->db, key, ref, value, deadline_ms);
    c->own->companion.set_head(e, ref, site_set_head(raw, dot, c->effect.stamp, deadline_ms != 0));
    return true;
}

static void string_put_plain(struct site_capture *c, struct key_ref *ref, bytes key, bytes value,
                             i64 deadline_ms, put_fn put)
{
    struct site_key *k = capture_free_key(c, ref);
    capture_clear(c, k);
    capture_claim(c, k, TYPE_STRING);
    capture_put_cell(c, k, &k->string, value);
    if (deadline_ms) capture_ttl(c, k, deadline_ms, c->effect.dot);
    put(k->e, k->db, key, &k->ref, value, deadline_ms);
    k->held = TYPE_STRING;
    capture_save(c, k, ref);
}

static void string_start(struct site_capture *c, struct site_key *k)
{
    if (capture_made_inc(c, &k->string)) capture_split(c);
    capture_start(c, k, TYPE_STRING);
}

static void string_put_in_place(struct site_capture *c, struct key_ref *ref, bytes key, bytes value,
                                i64 deadline_ms, put_fn put)
{
    struct site_key *k = capture_live_key(c, ref);
    string_start(c, k);
    capture_put_cell(c, k, &k->string, value);
    put(k->e, k->db, key, &k->ref, value, deadline_ms);
    k->held = TYPE_STRING;
    capture_save(c, k, ref);
}

/* Prepares the addition; afterwards the engine has to show the cell's value. */
static struct site_key *string_add(struct site_capture *c, struct key_ref *ref, struct site_num by,
                                   bytes want)
{
    struct site_key *k = capture_live_key(c, ref);
    struct site_cell *cell = &k->string;
    string_start(c, k);
    site_key_read(k, cell);
    value_add_cell(c, k, cell, by, want);
    return k;
}

static void string_put_sum(struct site_capture *c, struct key_ref *ref, bytes key, bytes value,
                           i64 deadline_ms, put_fn put)
{
    struct str_view view = {.b = nothing};
    if (ref->entry) c->own->str.get(c->site.e, ref, &view);
    struct site_key *k = string_add(c, ref, value_difference(view.b, value), value);
    buf_clear(&c->value);
    if (!value_is_exact(&k->string) && site_cell_value(&k->string, &c->value)) value = buf_bytes(&c->value);
    put(k->e, k->db, key, &k->ref, value, deadline_ms);
    k->held = TYPE_STRING;
    capture_save(c, k, ref);
}

static void value_put(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes value, i64 deadline_ms,
                      bool text)
{
    struct site_capture *c = capture_enter(e, ref);
    enum engine_intent intent = capture_intent(c);
    put_fn put = text ? c->own->str.put_text : c->own->str.put;
    if (!capture_serves(c, db)) put(e, db, key, ref, value, deadline_ms);
    else if (intent == INTENT_ADD) string_put_sum(c, ref, key, value, deadline_ms, put);
    else if (intent == INTENT_IN_PLACE) string_put_in_place(c, ref, key, value, deadline_ms, put);
    else if (!string_put_fast(c, ref, key, value, deadline_ms, put))
        string_put_plain(c, ref, key, value, deadline_ms, put);
    capture_leave(c);
}

static void capture_str_put(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes value,
                            i64 deadline_ms)
{
    value_put(e, db, key, ref, value, deadline_ms, false);
}

static void capture_str_put_text(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes value,
                                 i64 deadline_ms)
{
    value_put(e, db, key, ref, value, deadline_ms, true);
}

/* Anything but a counter of this site that has no deadline. */
static void string_set_sum(struct site_capture *c, struct key_ref *ref, i64 old, i64 value)
{
    char text[NUM_I64_LEN];
    bytes want = bytes_of(text, num_print_i64(text, value));
    struct site_key *k = string_add(c, ref, site_num_sub(site_num_of(value), site_num_of(old)), want);
    if (value_is_exact(&k->string)) {
        c->own->str.set_int(k->e, &k->ref, value);
    } else {
        buf_clear(&c->value);
        site_cell_value(&k->string, &c->value);
        c->own->str.put(k->e, k->db, buf_bytes(&k->name), &k->ref, buf_bytes(&c->value), k->ref.deadline_ms);
    }
    capture_save(c, k, ref);
}

static void capture_set_int(struct engine *e, struct key_ref *ref, i64 value)
{
    struct site_capture *c = capture_enter(e, ref);
    i64 old = 0, by;
    bool serves = capture_serves(c, ref->db);
    capture_intent(c);
    if (serves) c->own->str.get_int(e, ref, &old);
    bool plain = serves && !__builtin_sub_overflow(value, old, &by) && capture_plain_incr(c, ref, by);
    if (plain || !serves) c->own->str.set_int(e, ref, value);
    else string_set_sum(c, ref, old, value);
    capture_leave(c);
}

/* The new bytes are known at the next primitive. */
static char *capture_edit(struct engine *e, struct key_ref *ref, size_t new_len)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db)) {
        struct site_key *k = capture_live_key(c, ref);
        string_start(c, k);
        c->birth = site_key_birth(k);
        struct site_dot birth = c->birth.gid ? c->birth : c->effect.dot;
        buf_clear(&c->seen);
        site_cell_seen(&k->string, NULL, &c->seen);
        site_cell_remove(&k->string, &c->site.clock, nothing);
        site_cell_write(&k->string, c->effect.dot, c->effect.stamp, birth, nothing);
        k->string.writes[k->string.n_writes - 1].shown = true;
        capture_save(c, k, ref);
        c->text = true;
    }
    char *p = c->own->str.edit(e, ref, new_len);
    capture_leave(c);
    return p;
}

void capture_settle_text(struct site_capture *c)
{
    struct site_key *k = &c->key;
    struct key_ref ref;
    struct str_view view;
    c->text = false;
    if (!c->own->find(c->site.e, k->db, buf_bytes(&k->name), &ref) || ref.type != TYPE_STRING) return;
    c->own->str.get(c->site.e, &ref, &view);
    capture_move(c, k, &(struct site_move){.op = MOVE_PUT,
                                           .kind = TYPE_STRING,
                                           .path = nothing,
                                           .value = view.b,
                                           .seen = buf_bytes(&c->seen),
                                           .birth = c->birth});
}

/* -- hashes and sets ---------------------------------------------------------------------------------- */

/* The cell of a field that is about to be put. */
static struct site_cell *value_cell(struct site_capture *c, struct site_key *k, enum value_type kind,
                                    bytes path)
{
    capture_start(c, k, kind);
    struct site_cell *cell = site_key_cell(k, kind, path, &c->site.cell);
    if (LIKELY(!capture_made_inc(c, cell))) return cell;
    capture_split(c);
    capture_start(c, k, kind);
    return site_key_cell(k, kind, path, &c->site.cell);
}

static bool map_put(struct site_capture *c, struct key_ref *ref, bytes field, bytes value, bool keep)
{
    struct site_head h;
    bool plain = capture_plain_begin(c, ref, 0, &h), is_new;
    if (LIKELY(plain)) {
        is_new = c->own->map.put(c->site.e, ref, field, value, keep);
        capture_plain_put(c, ref, &h, field, value, is_new);
        capture_plain_end(c, ref, &h);
        return is_new;
    }
    struct site_key *k = capture_live_key(c, ref);
    struct site_cell *cell = value_cell(c, k, ref->type, field);
    capture_field_stays(c, k, cell, keep);
    is_new = c->own->map.put(k->e, &k->ref, field, value, keep);
    capture_put_cell(c, k, cell, value);
    capture_save(c, k, ref);
    return is_new;
}

static bool map_add(struct site_capture *c, struct key_ref *ref, bytes field, bytes value)
{
    bytes old = nothing;
    bool is_new = !c->own->map.get(c->site.e, ref, field, &old);
    struct site_num by = value_difference(old, value);
    if (!by.real && capture_plain_add(c, ref, field, by.i))
        return c->own->map.put(c->site.e, ref, field, value, true);
    struct site_key *k = capture_live_key(c, ref);
    struct site_cell *cell = value_cell(c, k, TYPE_HASH, field);
    capture_field_stays(c, k, cell, true);
    site_key_read(k, cell);
    value_add_cell(c, k, cell, by, value);
    site_key_store(k, cell); /* the engine gets the sum, too */
    capture_save(c, k, ref);
    return is_new;
}

static bool capture_map_put(struct engine *e, struct key_ref *ref, bytes field, bytes value, bool keep)
{
    struct site_capture *c = capture_enter(e, ref);
    enum engine_intent intent = capture_intent(c);
    bool is_new;
    if (!capture_serves(c, ref->db)) {
        is_new = c->own->map.put(e, ref, field, value, keep);
    } else if (intent == INTENT_ADD) {
        is_new = map_add(c, ref, field, value);
    } else {
        is_new = map_put(c, ref, field, value, keep);
    }
    capture_leave(c);
    return is_new;
}

/* Elements that were all new: members, or fields and values in turn. */
static void value_fill(struct site_capture *c, struct key_ref *ref, const bytes *v, const double *scores,
                       u32 n)
{
    char text[64];
    u32 step = ref->type == TYPE_HASH ? 2 : 1;
    struct site_head h;
    bool plain = capture_plain_begin(c, ref, n, &h);
    struct site_key *k = plain ? NULL : capture_live_key(c, ref);
    for (u32 i = 0; i < n; i++) {
        bytes path = v[i * step], value = step == 2 ? v[i * step + 1] : nothing;
        if (scores) value = bytes_of(text, num_print_double(text, scores[i]));
        if (plain) {
            capture_plain_put(c, ref, &h, path, value, true);
            continue;
        }
        struct site_cell *cell = value_cell(c, k, ref->type, path);
        capture_field_stays(c, k, cell, false);
        capture_put_cell(c, k, cell, value);
    }
    if (plain) capture_plain_end(c, ref, &h);
    else capture_save(c, k, ref);
}

static u32 capture_map_fill(struct engine *e, struct key_ref *ref, const bytes *v, u32 n)
{
    struct site_capture *c = capture_enter(e, ref);
    bool serves = capture_serves(c, ref->db);
    if (serves) capture_live_key(c, ref); /* as it is before */
    u32 added = c->own->map.fill(e, ref, v, n);
    if (added == n && n && serves) value_fill(c, ref, v, NULL, n);
    capture_leave(c);
    return added;
}

/* Metadata of an element that goes; false: there is none. */
static bool value_rem(struct site_capture *c, struct key_ref *ref, bytes path)
{
    if (capture_plain_rem(c, ref, path)) return true;
    struct site_key *k = capture_live_key(c, ref);
    struct site_cell *cell = site_key_cell(k, ref->type, path, &c->site.cell);
    if (!site_cell_live(cell)) return false;
    capture_rem_cell(c, k, cell);
    capture_save(c, k, ref);
    return true;
}

static bool capture_map_del(struct engine *e, struct key_ref *ref, bytes field)
{
    struct site_capture *c = capture_enter(e, ref);
    bool hidden = ref->type == TYPE_HASH && c->own->map.has_field_deadlines(e, ref) &&
                  !c->own->map.get(e, ref, field, NULL);
    if (capture_serves(c, ref->db) && !hidden) value_rem(c, ref, field);
    bool there = c->own->map.del(e, ref, field);
    capture_leave(c);
    return there;
}

/* -- sorted sets ------------------------------------------------------------------------------------- */

static bool zset_add(struct site_capture *c, struct key_ref *ref, bytes member, double score)
{
    char text[64];
    double old = 0;
    bool is_new = !c->own->zset.score(c->site.e, ref, member, &old);
    struct site_num by = score_difference(is_new ? 0 : old, score);
    if (!by.real && capture_plain_add(c, ref, member, by.i))
        return c->own->zset.put(c->site.e, ref, member, score);
    struct site_key *k = capture_live_key(c, ref);
    struct site_cell *cell = value_cell(c, k, TYPE_ZSET, member);
    site_key_read(k, cell);
    bytes want = bytes_of(text, num_print_double(text, score));
    value_add_cell(c, k, cell, by, want);
    site_key_store(k, cell);
    capture_save(c, k, ref);
    return is_new;
}

static bool zset_put(struct site_capture *c, struct key_ref *ref, bytes member, double score)
{
    char text[64];
    bytes value = bytes_of(text, num_print_double(text, score));
    struct site_head h;
    bool plain = capture_plain_begin(c, ref, 0, &h), is_new;
    if (LIKELY(plain)) {
        is_new = c->own->zset.put(c->site.e, ref, member, score);
        capture_plain_put(c, ref, &h, member, value, is_new);
        capture_plain_end(c, ref, &h);
        return is_new;
    }
    struct site_key *k = capture_live_key(c, ref);
    struct site_cell *cell = value_cell(c, k, TYPE_ZSET, member);
    is_new = c->own->zset.put(k->e, &k->ref, member, score);
    capture_put_cell(c, k, cell, value);
    capture_save(c, k, ref);
    return is_new;
}

static bool capture_zset_put(struct engine *e, struct key_ref *ref, bytes member, double score)
{
    struct site_capture *c = capture_enter(e, ref);
    enum engine_intent intent = capture_intent(c);
    bool is_new;
    if (!capture_serves(c, ref->db)) is_new = c->own->zset.put(e, ref, member, score);
    else if (intent == INTENT_ADD) is_new = zset_add(c, ref, member, score);
    else is_new = zset_put(c, ref, member, score);
    capture_leave(c);
    return is_new;
}

static u32 capture_zset_fill(struct engine *e, struct key_ref *ref, const bytes *members,
                             const double *scores, u32 n)
{
    struct site_capture *c = capture_enter(e, ref);
    bool serves = capture_serves(c, ref->db);
    if (serves) capture_live_key(c, ref);
    u32 added = c->own->zset.fill(e, ref, members, scores, n);
    if (added == n && n && serves) value_fill(c, ref, members, scores, n);
    capture_leave(c);
    return added;
}

static bool capture_zset_del(struct engine *e, struct key_ref *ref, bytes member)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db)) value_rem(c, ref, member);
    bool there = c->own->zset.del(e, ref, member);
    capture_leave(c);
    return there;
}

/* The members of some ranks, each with its length. */
static void zset_members(struct site_capture *c, struct key_ref *ref, u64 from, u64 count, struct buf *out)
{
    const struct zset_seek seek = {.by = ZSEEK_RANK, .rank = from};
    struct zset_iter it;
    bytes member;
    double score;
    c->own->zset.iter(c->site.e, ref, &seek, &it);
    for (; count > 0 && c->own->zset.next(&it, &member, &score); count--) site_put_bytes(out, member);
}

static void zset_rem_ranks(struct site_capture *c, struct key_ref *ref, u64 from, u64 count)
{
    struct site_key *k = capture_live_key(c, ref);
    if (count >= k->cells[TYPE_ZSET].live) {
        capture_clear(c, k);
        capture_save(c, k, ref);
        return;
    }
    buf_clear(&c->value);
    zset_members(c, ref, from, count, &c->value);
    for (struct site_reader r = site_reader_of(buf_bytes(&c->value)); site_left(&r);)
        value_rem(c, ref, site_get_bytes(&r));
}

static void capture_zset_erase(struct engine *e, struct key_ref *ref, u64 from, u64 count, pair_fn fn,
                               void *arg)
{
    struct site_capture *c = capture_enter(e, ref);
    if (capture_serves(c, ref->db) && count) zset_rem_ranks(c, ref, from, count);
    c->own->zset.erase(e, ref, from, count, fn, arg);
    capture_leave(c);
}

void capture_value_ops(struct engine_ops *ops)
{
    ops->str.put = capture_str_put;
    ops->str.put_text = capture_str_put_text;
    ops->str.set_int = capture_set_int;
    ops->str.edit = capture_edit;
    ops->map.put = capture_map_put;
    ops->map.fill = capture_map_fill;
    ops->map.del = capture_map_del;
    ops->zset.put = capture_zset_put;
    ops->zset.fill = capture_zset_fill;
    ops->zset.del = capture_zset_del;
    ops->zset.erase = capture_zset_erase;
}
