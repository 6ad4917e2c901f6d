#include "site/write.h"

#include "site/place.h"
#include "xstream/xstream.h"

/* -- moves -------------------------------------------------------------------------------------------- */

static struct site_move move_of(const struct site_key *k, enum site_op op)
{
    return (struct site_move){.op = op, .db = k->db, .name = buf_bytes(&k->name)};
}

static void put_seen_of(struct site_cell *c, enum site_op op, const struct site_key *k,
                        const struct site_clock *scope, struct buf *to)
{
    struct buf seen = {0};
    site_cell_seen(c, scope, &seen);
    if (seen.n)
        site_put_seen_cell(to, op,
                           &(struct site_seen_cell){k->db, buf_bytes(&k->name), c->kind, site_cell_path(c),
                                                    buf_bytes(&seen)});
    buf_release(&seen);
}

/* Counters of all cells of a key. */
static void put_all_seen(struct site *s, struct site_key *k, enum site_op op, const struct site_clock *scope,
                         struct buf *to)
{
    struct buf paths = {0};
    put_seen_of(&k->string, op, k, scope, to);
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES && k->counting; kind++) {
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);)
            put_seen_of(site_key_cell(k, kind, site_get_bytes(&r), &s->cell), op, k, scope, to);
    }
    buf_release(&paths);
}

void site_put_key_seen(struct site *s, struct site_key *k, enum site_op op, struct buf *to)
{
    put_all_seen(s, k, op, NULL, to);
}

void site_move_clear(struct site *s, struct site_key *k, const struct site_clock *scope)
{
    struct site_move m = move_of(k, MOVE_CLEAR);
    struct buf seen = {0}, raw = {0};
    put_all_seen(s, k, MOVE_CLEAR, scope, &seen);
    if (scope) site_put_clock(&raw, scope);
    m.seen = buf_bytes(&seen);
    m.scope = buf_bytes(&raw);
    site_put_move(&s->moves, &m, false);
    buf_release(&seen);
    buf_release(&raw);
}

void site_move_claim(struct site *s, const struct site_key *k, enum value_type kind)
{
    struct site_move m = move_of(k, MOVE_CLAIM);
    m.kind = kind;
    site_put_move(&s->moves, &m, false);
}

void site_move_rem(struct site *s, struct site_key *k, enum value_type kind, bytes path)
{
    struct site_move m = move_of(k, MOVE_REM);
    struct buf seen = {0};
    m.kind = kind;
    m.path = path;
    site_cell_seen(site_key_cell(k, kind, path, &s->cell), NULL, &seen);
    m.seen = buf_bytes(&seen);
    site_put_move(&s->moves, &m, true);
    buf_release(&seen);
}

/* Cells of types that lost end with the next write that saw them. */
static void move_rem_hidden(struct site *s, struct site_key *k, enum value_type shown)
{
    struct buf paths = {0};
    if (shown != TYPE_STRING && site_cell_live(&k->string)) site_move_rem(s, k, TYPE_STRING, (bytes){"", 0});
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES; kind++) {
        if (kind == shown || k->cells[kind].rows == 0) continue;
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
            bytes path = site_get_bytes(&r);
            if (site_cell_live(site_key_cell(k, kind, path, &s->cell))) site_move_rem(s, k, kind, path);
        }
    }
    buf_release(&paths);
}

void site_move_start(struct site *s, struct site_key *k, enum value_type kind)
{
    bool there = site_key_type(k) != TYPE_NONE;
    i64 at_ms = site_key_deadline(k);
    if (!there) site_move_clear(s, k, NULL);
    site_move_claim(s, k, kind);
    if (!there) return;
    move_rem_hidden(s, k, kind);
    if (at_ms == 0) return;
    struct site_move m = move_of(k, MOVE_KEEP);
    m.at_ms = at_ms;
    m.birth = site_key_birth(k);
    site_put_move(&s->moves, &m, true);
}

void site_move_put(struct site *s, struct site_key *k, enum value_type kind, bytes path, bytes value,
                   bool fresh)
{
    struct site_move m = move_of(k, MOVE_PUT);
    struct buf seen = {0};
    m.kind = kind;
    m.path = path;
    m.value = value;
    if (!fresh) {
        site_cell_seen(site_key_cell(k, kind, path, &s->cell), NULL, &seen);
        if (kind == TYPE_STRING) m.birth = site_key_birth(k);
    }
    m.seen = buf_bytes(&seen);
    site_put_move(&s->moves, &m, true);
    buf_release(&seen);
}

void site_move_add(struct site *s, struct site_key *k, enum value_type kind, bytes path,
                   struct site_num delta)
{
    struct site_move m = move_of(k, MOVE_ADD);
    const struct site_inc *inc = site_cell_inc(site_key_cell(k, kind, path, &s->cell), s->gid);
    m.kind = kind;
    m.path = path;
    m.fresh = !(inc && inc->hi > inc->lo);
    m.prev = m.fresh ? s->clock.seq[s->gid] : inc->hi;
    if (!m.fresh) m.prev_total = inc->total;
    m.total = site_num_add(m.prev_total, delta);
    site_put_move(&s->moves, &m, true);
}

void site_move_ttl(struct site *s, const struct site_key *k, i64 at_ms, struct site_dot birth)
{
    struct site_move m = move_of(k, MOVE_TTL);
    m.at_ms = at_ms;
    m.birth = birth;
    site_put_move(&s->moves, &m, false);
}

/* -- writes ------------------------------------------------------------------------------------------- */

/* The key, without what is past its deadline: it shows by a longer one, if at all. */
static struct site_key *write_open(struct site *s, u32 db, bytes name)
{
    struct site_key *k = &s->key;
    bool past = false;
    site_key_load(k, s->e, db, name);
    for (u32 i = 0; i < k->ttl.n_deadlines; i++)
        past |= site_deadline_past(&k->ttl.deadlines[i], site_now(s));
    if (!past) return k;
    site_expire(s, db, name, NULL);
    site_key_load(k, s->e, db, name);
    return k;
}

void site_write_set(struct site *s, u32 db, bytes name, bytes value, i64 at_ms)
{
    struct site_key *k = &s->key;
    site_key_load(k, s->e, db, name);
    site_move_clear(s, k, NULL);
    site_move_claim(s, k, TYPE_STRING);
    site_move_put(s, k, TYPE_STRING, (bytes){"", 0}, value, true);
    if (at_ms) site_move_ttl(s, k, at_ms, site_next_dot(s));
    site_commit(s);
}

/* What a write to a field says about its deadline. */
static void move_field_stays(struct site *s, struct site_key *k, bytes field, bool stays)
{
    struct site_move m = move_of(k, MOVE_FIELD_TTL);
    const struct site_cell *c = site_key_cell(k, TYPE_HASH, field, &s->cell);
    bool keeps = stays && site_cell_live(c);
    m.path = field;
    m.at_ms = keeps ? site_ttl_at(&c->ttl) : 0;
    m.field_ttl = keeps ? FIELD_KEEPS : FIELD_LOSES;
    if (c->ttl.n_deadlines && (m.at_ms || !keeps)) site_put_move(&s->moves, &m, true);
}

static void write_put(struct site *s, u32 db, bytes name, enum value_type kind, const bytes *pairs, u32 n,
                      bool stays)
{
    for (u32 i = 0; i < n && kind == TYPE_HASH; i++) site_expire_field(s, db, name, pairs[2 * i]);
    struct site_key *k = write_open(s, db, name);
    bool fresh = site_key_type(k) == TYPE_NONE;
    site_move_start(s, k, kind);
    for (u32 i = 0; i < n; i++) {
        site_move_put(s, k, kind, pairs[2 * i], pairs[2 * i + 1], fresh);
        if (k->timed && !fresh && kind == TYPE_HASH) move_field_stays(s, k, pairs[2 * i], stays);
    }
}

void site_write_put(struct site *s, u32 db, bytes name, enum value_type kind, const bytes *pairs, u32 n)
{
    write_put(s, db, name, kind, pairs, n, false);
    site_commit(s);
}

static void move_field_ttl(struct site *s, const struct site_key *k, bytes field, i64 at_ms)
{
    struct site_move m = move_of(k, MOVE_FIELD_TTL);
    m.path = field;
    m.at_ms = at_ms;
    site_put_move(&s->moves, &m, false);
}

void site_write_field(struct site *s, u32 db, bytes name, bytes field, bytes value, i64 at_ms)
{
    write_put(s, db, name, TYPE_HASH, (bytes[]){field, value}, 1, at_ms == 0);
    if (at_ms) move_field_ttl(s, &s->key, field, at_ms);
    site_commit(s);
}

void site_write_field_ttl(struct site *s, u32 db, bytes name, const bytes *fields, u32 n, i64 at_ms)
{
    struct site_key *k = &s->key;
    site_key_load(k, s->e, db, name);
    for (u32 i = 0; i < n; i++) move_field_ttl(s, k, fields[i], at_ms);
    site_commit(s);
}

void site_write_rem(struct site *s, u32 db, bytes name, enum value_type kind, const bytes *paths, u32 n)
{
    struct site_key *k = &s->key;
    site_key_load(k, s->e, db, name);
    if (kind == TYPE_STRING || n == k->cells[kind].live) {
        site_move_clear(s, k, NULL);
    } else {
        write_open(s, db, name);
        site_move_start(s, k, kind);
        for (u32 i = 0; i < n; i++) site_move_rem(s, k, kind, paths[i]);
    }
    site_commit(s);
}

void site_write_add(struct site *s, u32 db, bytes name, enum value_type kind, bytes path,
                    struct site_num delta)
{
    if (kind == TYPE_HASH) site_expire_field(s, db, name, path);
    struct site_key *k = write_open(s, db, name);
    bool there = site_key_type(k) != TYPE_NONE;
    site_move_start(s, k, kind);
    site_move_add(s, k, kind, path, delta);
    if (k->timed && there && kind == TYPE_HASH) move_field_stays(s, k, path, true);
    site_commit(s);
}

void site_write_del(struct site *s, u32 db, bytes name)
{
    struct site_key *k = &s->key;
    site_key_load(k, s->e, db, name);
    site_move_clear(s, k, NULL);
    site_commit(s);
}

void site_write_ttl(struct site *s, u32 db, bytes name, i64 at_ms)
{
    struct site_key *k = &s->key;
    site_key_load(k, s->e, db, name);
    site_move_ttl(s, k, at_ms, (struct site_dot){0});
    site_commit(s);
}

/* -- copying ------------------------------------------------------------------------------------------ */

static void move_copies(struct site *s, struct site_key *from, enum value_type kind, struct site_key *to)
{
    struct buf paths = {0}, value = {0};
    struct site_cell scratch = {0};
    if (kind == TYPE_STRING) {
        site_key_value(from, &from->string, &value);
        site_move_put(s, to, kind, (bytes){"", 0}, buf_bytes(&value), true);
    } else {
        site_key_paths(from, kind, &paths);
    }
    for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
        bytes path = site_get_bytes(&r);
        struct site_cell *c = site_key_cell(from, kind, path, &scratch);
        if (kind == TYPE_LIST) from->walked++;
        if (!site_cell_live(c) || site_field_due(s, c)) continue;
        buf_clear(&value);
        site_key_value(from, c, &value);
        site_move_put(s, to, kind, path, buf_bytes(&value), true);
        if (site_ttl_at(&c->ttl)) move_field_ttl(s, to, path, site_ttl_at(&c->ttl));
    }
    from->walked = 0;
    site_cell_release(&scratch);
    buf_release(&paths);
    buf_release(&value);
}

void site_write_copy(struct site *s, u32 db, bytes name, u32 to_db, bytes to_name, bool move)
{
    struct site_key from = {0}, to = {0};
    site_key_load(&from, s->e, db, name);
    site_key_load(&to, s->e, to_db, to_name);
    enum value_type kind = site_key_type(&from);
    i64 at_ms = site_key_deadline(&from);
    if (move) site_move_clear(s, &from, NULL);
    site_move_clear(s, &to, NULL);
    site_move_claim(s, &to, kind);
    move_copies(s, &from, kind, &to);
    if (at_ms) site_move_ttl(s, &to, at_ms, kind == TYPE_STRING ? site_next_dot(s) : (struct site_dot){0});
    site_key_release(&from);
    site_key_release(&to);
    site_commit(s);
}

struct flush_seen {
    struct site *s;
    struct buf seen;
};

static void flush_see(void *arg, u32 db, bytes name)
{
    struct flush_seen *f = arg;
    site_key_load(&f->s->key, f->s->e, db, name);
    put_all_seen(f->s, &f->s->key, MOVE_FLUSH, NULL, &f->seen);
}

void site_write_flush(struct site *s, u32 db)
{
    struct flush_seen f = {.s = s};
    for (u32 i = 0; i < s->databases; i++)
        if (db == SITE_ALL_DBS || db == i) site_each_key(s, i, flush_see, &f);
    site_put_move(&s->moves, &(struct site_move){.op = MOVE_FLUSH, .db = db, .seen = buf_bytes(&f.seen)},
                  false);
    site_commit(s);
    buf_release(&f.seen);
}

/* -- streams ------------------------------------------------------------------------------------------ */

/* XDEL and XTRIM of the highest entry also write the last id. */
static void move_last_id(struct site *s, struct site_key *k, const bytes *ids, u32 n)
{
    struct xstream x;
    char last[SITE_ID_BYTES];
    bytes raw = bytes_of(last, sizeof last);
    bool top = false;
    xstream_open(&x, k->e, &k->ref);
    stream_id_pack(last, x.last);
    for (u32 i = 0; i < n; i++) top |= bytes_eq(ids[i], raw);
    if (!top || PLANTED_SITE(s, PLANT_LAST_ID)) return;
    const struct site_cell *c = site_key_cell(k, TYPE_STREAM, SITE_LAST_ID, &s->cell);
    const struct site_write *said = site_cell_winner(c);
    if (!said || !bytes_eq(site_cell_text(c, said), raw))
        site_move_put(s, k, TYPE_STREAM, SITE_LAST_ID, raw, false);
}

void site_write_xcut(struct site *s, u32 db, bytes name, const bytes *ids, u32 n)
{
    struct site_key *k = write_open(s, db, name);
    site_move_start(s, k, TYPE_STREAM);
    for (u32 i = 0; i < n; i++) site_move_rem(s, k, TYPE_STREAM, ids[i]);
    if (k->cells[TYPE_STREAM].live == n) /* nothing else keeps it */
        site_move_put(s, k, TYPE_STREAM, (bytes){"", 0}, (bytes){"", 0}, false);
    move_last_id(s, k, ids, n);
    site_commit(s);
}

/* -- lists -------------------------------------------------------------------------------------------- */

void site_list_paths(struct site_key *k, u64 from, u64 count, struct buf *out)
{
    const struct companion_ops *ops = &k->e->ops->companion;
    u64 rows = k->cells[TYPE_LIST].rows;
    bool reverse = from == rows - 1; /* the last one */
    char first = reverse ? TYPE_LIST + 1 : TYPE_LIST;
    struct rows_iter it;
    bytes row;
    if (rows == 0 || from >= rows) return;
    ops->iter(k->e, &k->ref, bytes_of(&first, 1), reverse, &it);
    for (u64 i = reverse ? from : 0; i < from + count && ops->next(&it, &row, NULL);) {
        if (row.p[0] != TYPE_LIST) { /* the first row of the next type, when the walk goes down */
            if (reverse) continue;
            break;
        }
        if (i++ >= from) site_put_bytes(out, bytes_of(row.p + 1, row.n - 1));
        if (reverse) break;
    }
    ops->done(&it);
}

/* n of the first or the last element's first part. */
static i64 end_n(struct site_key *k, bool front)
{
    struct buf path = {0};
    site_list_paths(k, front ? 0 : k->cells[TYPE_LIST].rows - 1, 1, &path);
    struct site_reader r = site_reader_of(buf_bytes(&path));
    i64 n = site_place_n(site_get_bytes(&r));
    buf_release(&path);
    return n;
}

void site_write_push(struct site *s, u32 db, bytes name, bool front, const bytes *values, u32 n)
{
    struct site_key *k = write_open(s, db, name);
    struct site_dot dot = site_next_dot(s);
    i64 stamp = (i64)site_next_stamp(s), at;
    struct buf path = {0};
    bool there = site_key_type(k) == TYPE_LIST;
    if (front) at = MIN(-stamp, there ? end_n(k, true) - 1 : 0);
    else at = MAX(stamp, there ? end_n(k, false) + 1 : 0);
    site_move_start(s, k, TYPE_LIST);
    for (u32 i = 0; i < n; i++) {
        buf_clear(&path);
        site_put_place(&path, at, dot, front ? -(i64)i : (i64)i);
        site_move_put(s, k, TYPE_LIST, buf_bytes(&path), values[i], true);
    }
    site_commit(s);
    buf_release(&path);
}

void site_write_insert(struct site *s, u32 db, bytes name, u64 index, bytes value)
{
    struct site_key *k = write_open(s, db, name);
    struct buf paths = {0}, path = {0};
    bytes before = {"", 0}, after = {"", 0};
    u64 rows = k->cells[TYPE_LIST].rows;
    site_list_paths(k, index ? index - 1 : 0, index && index < rows ? 2 : 1, &paths);
    struct site_reader r = site_reader_of(buf_bytes(&paths));
    if (index) before = site_get_bytes(&r);
    if (index < rows) after = site_get_bytes(&r);
    site_put_place_between(&path, before, after, site_next_dot(s));
    site_move_start(s, k, TYPE_LIST);
    site_move_put(s, k, TYPE_LIST, buf_bytes(&path), value, true);
    site_commit(s);
    buf_release(&paths);
    buf_release(&path);
}
