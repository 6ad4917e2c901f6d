#include "site/key.h"

#include "base/alloc.h"
#include "site/room.h"
#include "site/walk.h"

/* -- loading -------------------------------------------------------------------------------------- */

static void key_forget(struct site_key *k)
{
    k->n_claims = 0;
    site_ttl_reset(&k->ttl);
    memset(k->cells, 0, sizeof k->cells);
    k->untidy = k->counting = k->timed = k->last = k->walked = 0;
    k->overflowed = k->restate = false;
    buf_clear(&k->head);
    site_cell_reset(&k->string, TYPE_STRING, (bytes){"", 0});
}

static void key_load_companion(struct site_key *k)
{
    bytes head;
    k->held = k->ref.entry ? k->ref.type : TYPE_NONE;
    if (!k->e->ops->companion.head(k->e, &k->ref, &head)) return;
    k->overflowed = head.n == 0;
    if (k->overflowed) k->e->ops->companion.get(k->e, &k->ref, (bytes){"", 0}, &head);
    else buf_append_bytes(&k->head, head);
    site_key_decode(k, head);
}

static void key_open(struct site_key *k, struct engine *e, u32 db, bytes name)
{
    if (UNLIKELY(k->walks && *k->walks)) site_walk_changes(*k->walks, db, name);
    k->e = e;
    k->db = db;
    if (name.p != k->name.p || name.n != k->name.n) {
        buf_clear(&k->name);
        buf_append_bytes(&k->name, name);
    }
    key_forget(k);
}

void site_key_load(struct site_key *k, struct engine *e, u32 db, bytes name)
{
    key_open(k, e, db, name);
    e->ops->find(e, db, buf_bytes(&k->name), &k->ref);
    key_load_companion(k);
}

void site_key_attach(struct site_key *k, struct engine *e, const struct key_ref *ref)
{
    key_open(k, e, ref->db, ref->key);
    k->ref = *ref;
    key_load_companion(k);
}

void site_key_release(struct site_key *k)
{
    key_forget(k);
    buf_release(&k->name);
    buf_release(&k->head);
    buf_release(&k->scratch);
    site_cell_release(&k->string);
    mem_free(k->claims);
    site_ttl_release(&k->ttl);
    *k = (struct site_key){0};
}

/* -- what shows ----------------------------------------------------------------------------------- */

static bool key_has_live(const struct site_key *k, enum value_type type)
{
    return type == TYPE_STRING ? site_cell_live(&k->string) : k->cells[type].live > 0;
}

static bool claim_beats(const struct site_claim *a, const struct site_claim *b)
{
    if (a->stamp != b->stamp) return a->stamp > b->stamp;
    if (a->dot.gid != b->dot.gid) return a->dot.gid < b->dot.gid;
    return a->dot.seq > b->dot.seq;
}

const struct site_claim *site_key_claim(const struct site_key *k)
{
    const struct site_claim *best = NULL;
    for (u32 i = 0; i < k->n_claims; i++) {
        const struct site_claim *c = &k->claims[i];
        if (key_has_live(k, c->type) && (!best || claim_beats(c, best))) best = c;
    }
    return best;
}

enum value_type site_key_type(const struct site_key *k)
{
    const struct site_claim *c = site_key_claim(k);
    return c ? c->type : TYPE_NONE;
}

static bool key_may_be_string(const struct site_key *k)
{
    enum value_type type = site_key_type(k);
    return type == TYPE_NONE || type == TYPE_STRING;
}

struct site_dot site_key_birth(const struct site_key *k)
{
    const struct site_write *w = key_may_be_string(k) ? site_cell_winner(&k->string) : NULL;
    return w ? w->birth : (struct site_dot){0};
}

const struct site_deadline *site_key_ttl(const struct site_key *k)
{
    const struct site_deadline *best = NULL;
    if (k->ttl.n_deadlines == 0) return NULL;
    bool string = key_may_be_string(k);
    struct site_dot birth = site_key_birth(k);
    for (u32 i = 0; i < k->ttl.n_deadlines; i++) {
        const struct site_deadline *d = &k->ttl.deadlines[i];
        bool counts = d->birth.gid == 0 || (string && (birth.gid == 0 || site_dot_eq(birth, d->birth)));
        if (counts && (!best || site_deadline_beats(d, best))) best = d;
    }
    return best;
}

i64 site_key_deadline(const struct site_key *k)
{
    const struct site_deadline *d = site_key_ttl(k);
    return d ? d->at_ms : 0;
}

bool site_key_empty(const struct site_key *k)
{
    for (u32 type = 0; type < SITE_TYPES; type++)
        if (k->cells[type].rows) return false;
    return k->n_claims == 0 && site_ttl_empty(&k->ttl) && site_cell_empty(&k->string);
}

bool site_key_tidy(const struct site_key *k)
{
    const struct site_claim *top = site_key_claim(k);
    const struct site_deadline *ttl = site_key_ttl(k);
    if (!top || k->n_claims > 1 || k->ttl.n_marks || k->untidy || !site_cell_tidy(&k->string)) return false;
    if (k->ttl.n_deadlines > (ttl && ttl->at_ms)) return false;
    for (u32 type = 0; type < SITE_TYPES; type++)
        if (type != top->type && k->cells[type].rows) return false;
    return top->type == TYPE_STRING || site_cell_empty(&k->string);
}

/* -- atoms ------------------------------------------------------------------------------------------ */

void site_key_add_claim(struct site_key *k, struct site_claim c)
{
    k->claims = site_room(k->claims, k->n_claims, &k->room_claims, sizeof c);
    k->claims[k->n_claims++] = c;
}

/* -- cells ------------------------------------------------------------------------------------------ */

struct site_cell *site_key_cell(struct site_key *k, enum value_type kind, bytes path, struct site_cell *c)
{
    bytes raw;
    if (kind == TYPE_STRING) return &k->string;
    site_cell_reset(c, kind, path);
    if (k->cells[kind].rows == 0 || !k->e->ops->companion.get(k->e, &k->ref, buf_bytes(&c->row), &raw))
        return c;
    struct site_reader r = site_reader_of(raw);
    site_cell_decode(c, &r);
    c->stored = true;
    c->was_live = site_cell_keeps(c);
    c->was_untidy = !(site_cell_live(c) && site_cell_tidy(c));
    c->was_counting = c->n_incs > 0;
    c->was_timed = !site_ttl_empty(&c->ttl);
    return c;
}

void site_key_read(struct site_key *k, struct site_cell *c)
{
    for (u32 i = 0; i < c->n_writes; i++) {
        struct site_write *w = &c->writes[i];
        if (!w->shown) continue;
        size_t at = c->text.n;
        site_show_get(k, c, &c->text);
        w->at = at;
        w->n = c->text.n - at;
        w->shown = false;
    }
}

bool site_key_value(struct site_key *k, struct site_cell *c, struct buf *out)
{
    const struct site_write *top = site_cell_winner(c);
    if (top && top->shown && !site_cell_counts(c)) return site_show_get(k, c, out);
    site_key_read(k, c);
    return site_cell_value(c, out);
}

/* Writes the cell's value to the engine. Afterwards a winner without increments is stored only there. */
static void key_show(struct site_key *k, struct site_cell *c)
{
    struct site_write *top = site_cell_winner(c);
    struct buf value = {0};
    if (top && top->shown && !site_cell_counts(c)) return;
    site_key_read(k, c); /* what lost, or counts as a base, is kept here from now on */
    site_cell_value(c, &value);
    site_show_put(k, c, buf_bytes(&value));
    if (top && !site_cell_counts(c)) top->shown = true;
    buf_release(&value);
}

static void key_put_row(struct site_key *k, const struct site_cell *c)
{
    buf_clear(&k->scratch);
    site_cell_encode(c, &k->scratch);
    k->e->ops->companion.put(k->e, &k->ref, buf_bytes(&c->row), buf_bytes(&k->scratch));
}

static void key_drop_companion(struct site_key *k)
{
    k->e->ops->companion.drop(k->e, &k->ref);
    buf_clear(&k->head);
}

/* The engine deletes the key and its values, but not the companion. */
static void key_hide_all(struct site_key *k)
{
    k->e->ops->companion.keep(k->e, &k->ref, true);
    if (k->ref.entry) k->e->ops->drop(k->e, &k->ref);
    k->ref.key = buf_bytes(&k->name); /* the engine's copy went with the key */
    k->held = TYPE_NONE;
}

void site_key_store(struct site_key *k, struct site_cell *c)
{
    if (c->kind == TYPE_STRING) return; /* save() does */
    enum value_type kind = c->kind;
    bool live = site_cell_keeps(c), empty = site_cell_empty(c),
         untidy = !empty && !(site_cell_live(c) && site_cell_tidy(c));
    bool last = c->was_live && !live && k->cells[kind].live == 1;
    bool timed = !site_ttl_empty(&c->ttl), deadlines = UNLIKELY(timed | c->was_timed);
    if (k->held == TYPE_STRING && site_cell_empty(&k->string)) key_hide_all(k);
    if (k->held == TYPE_NONE && live && k->cells[kind].live == 0) {
        k->held = kind;
        k->restate = true; /* its last id may have been here before */
    }
    if (k->held == kind && live) {
        key_show(k, c);
        if (deadlines) site_show_deadline(k, c);
    } else if (k->held == kind && c->was_live) {
        if (!last || deadlines) site_show_del(k, c);
        if (last) key_hide_all(k);
    }
    if (site_cell_is_last_id(c)) k->restate = true;
    k->cells[kind].rows += (u64)!empty - (u64)c->stored;
    k->cells[kind].live += (u64)live - (u64)c->was_live;
    k->untidy += (u64)untidy - (u64)c->was_untidy;
    k->counting += (u64)(c->n_incs > 0) - (u64)c->was_counting;
    k->timed += (u64)timed - (u64)c->was_timed;
    if (!empty) key_put_row(k, c);
    else if (c->stored) k->e->ops->companion.del(k->e, &k->ref, buf_bytes(&c->row));
    c->stored = !empty;
    c->was_live = live;
    c->was_untidy = untidy;
    c->was_counting = c->n_incs > 0;
    c->was_timed = timed;
}

void site_key_drop_cells(struct site_key *k)
{
    site_key_drop_rows(k);
    if (k->held != TYPE_STRING) key_hide_all(k);
}

void site_key_drop_rows(struct site_key *k)
{
    bool rows = false;
    for (u32 type = 0; type < SITE_TYPES; type++) rows |= k->cells[type].rows > 0;
    if (rows) key_drop_companion(k);
    memset(k->cells, 0, sizeof k->cells);
    k->untidy = k->counting = k->timed = 0;
    k->string.n_writes = k->string.n_incs = 0;
}

void site_key_paths(struct site_key *k, enum value_type kind, struct buf *out)
{
    const struct companion_ops *ops = &k->e->ops->companion;
    char first = (char)kind;
    struct rows_iter it;
    bytes row;
    if (k->cells[kind].rows == 0) return;
    ops->iter(k->e, &k->ref, bytes_of(&first, 1), false, &it);
    while (ops->next(&it, &row, NULL)) {
        if (row.p[0] != first) break;
        site_put_bytes(out, bytes_of(row.p + 1, row.n - 1));
    }
    ops->done(&it);
}

/* -- saving ----------------------------------------------------------------------------------------- */

/* The type that the engine holds is no longer the one that shows: its values go into the rows. */
static void key_hide(struct site_key *k)
{
    struct buf paths = {0};
    struct site_cell scratch = {0};
    site_key_read(k, &k->string);
    if (k->held != TYPE_STRING) site_key_paths(k, k->held, &paths);
    for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
        struct site_cell *c = site_key_cell(k, k->held, site_get_bytes(&r), &scratch);
        k->walked++;
        site_key_read(k, c);
        key_put_row(k, c);
    }
    k->walked = 0;
    key_hide_all(k);
    site_cell_release(&scratch);
    buf_release(&paths);
}

/* The engine shows the cells of a type that were hidden. */
static void key_unhide(struct site_key *k, enum value_type type)
{
    struct buf paths = {0};
    struct site_cell scratch = {0};
    k->held = type;
    k->restate = true;
    site_key_paths(k, type, &paths);
    for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
        struct site_cell *c = site_key_cell(k, type, site_get_bytes(&r), &scratch);
        if (!c->was_live) continue;
        c->was_live = false; /* as far as the engine is concerned */
        k->walked++;
        key_show(k, c);
        if (c->was_timed) site_show_deadline(k, c);
        key_put_row(k, c);
    }
    k->walked = 0;
    site_cell_release(&scratch);
    buf_release(&paths);
}

static void key_save_string(struct site_key *k, enum value_type type, i64 deadline_ms)
{
    struct site_cell *c = &k->string;
    struct site_write *top = site_cell_winner(c);
    if (type != TYPE_STRING || (top && top->shown && !site_cell_counts(c))) return;
    struct buf value = {0};
    site_key_value(k, c, &value);
    k->e->ops->str.put(k->e, k->db, buf_bytes(&k->name), &k->ref, buf_bytes(&value), deadline_ms);
    k->held = TYPE_STRING;
    if (top && !site_cell_counts(c)) top->shown = true;
    buf_release(&value);
}

static void key_put_head(struct site_key *k, bytes head)
{
    const struct companion_ops *ops = &k->e->ops->companion;
    bool fits = head.n <= COMPANION_HEAD_MAX;
    ops->set_head(k->e, &k->ref, fits ? head : (bytes){"", 0});
    if (!fits) ops->put(k->e, &k->ref, (bytes){"", 0}, head);
    else if (k->overflowed) ops->del(k->e, &k->ref, (bytes){"", 0});
    k->overflowed = !fits;
    buf_clear(&k->head);
    if (fits) buf_append_bytes(&k->head, head);
}

static void key_save_companion(struct site_key *k)
{
    const struct companion_ops *ops = &k->e->ops->companion;
    buf_clear(&k->scratch);
    site_key_encode(k, &k->scratch);
    if (!bytes_eq(buf_bytes(&k->scratch), buf_bytes(&k->head))) key_put_head(k, buf_bytes(&k->scratch));
    ops->keep(k->e, &k->ref, !site_key_tidy(k));
}

void site_key_save_companion(struct site_key *k, u64 position)
{
    if (position) k->last = position;
    if (site_key_empty(k)) key_drop_companion(k);
    else key_save_companion(k);
}

void site_key_save(struct site_key *k, u64 position)
{
    enum value_type type = site_key_type(k);
    i64 deadline_ms = site_key_deadline(k);
    if (k->held != TYPE_NONE && k->held != type) key_hide(k);
    if (type != TYPE_STRING && type != TYPE_NONE && k->held != type) key_unhide(k, type);
    if (k->held == TYPE_STREAM && k->restate) site_show_last_id(k);
    key_save_string(k, type, deadline_ms);
    if (k->ref.entry && k->ref.deadline_ms != deadline_ms)
        k->e->ops->set_deadline(k->e, &k->ref, deadline_ms);
    site_key_save_companion(k, position);
}
