#include "site/sync.h"

#include "base/alloc.h"

/* -- a snapshot ----------------------------------------------------------------------------------- */

void site_put_snapshot_head(const struct site *s, struct buf *to)
{
    u32 members = 0, fenced = 0;
    for (u32 g = 1; g < SITE_GIDS; g++) {
        members += s->members[g].in;
        fenced += s->fenced[g];
    }
    site_put_u8(to, s->gid);
    site_put_u64(to, s->hlc);
    site_put_clock(to, &s->clock);
    site_put_u8(to, (u8)members);
    for (u32 g = 1; g < SITE_GIDS; g++) {
        if (!s->members[g].in) continue;
        site_put_u8(to, (u8)g);
        site_put_dot(to, s->members[g].dot);
    }
    site_put_u8(to, (u8)fenced);
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->fenced[g]) site_put_dot(to, (struct site_dot){s->fence[g], (u8)g});
}

static void put_cell(struct site_key *k, struct site_cell *c, struct buf *to)
{
    site_key_read(k, c);
    site_put_u8(to, (u8)c->kind);
    site_put_bytes(to, site_cell_path(c));
    site_cell_encode(c, to);
}

void site_dump_key(struct site *s, struct site_key *k, struct site_cell *cell, u32 db, bytes name,
                   struct buf *to)
{
    struct buf paths = {0};
    site_key_load(k, s->e, db, name);
    if (site_key_empty(k)) return;
    site_put_varint(to, k->n_claims);
    for (u32 i = 0; i < k->n_claims; i++) {
        site_put_dot(to, k->claims[i].dot);
        site_put_u64(to, k->claims[i].stamp);
        site_put_u8(to, (u8)k->claims[i].type);
    }
    site_put_deadlines(to, &k->ttl);
    site_put_marks(to, &k->ttl);
    if (!site_cell_empty(&k->string)) put_cell(k, &k->string, to);
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES; kind++) {
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
            if (kind == TYPE_LIST && k->held == TYPE_LIST) k->walked++;
            put_cell(k, site_key_cell(k, kind, site_get_bytes(&r), cell), to);
        }
    }
    buf_release(&paths);
}

void site_put_key(struct site *s, u32 db, bytes name, struct buf *to)
{
    struct site_key k = {0};
    struct site_cell c = {0};
    size_t before = to->n;
    site_dump_key(s, &k, &c, db, name, to);
    if (to->n == before) buf_append(to, "\0\0\0", 3); /* no claims, deadlines, marks, and no cells */
    site_key_release(&k);
    site_cell_release(&c);
}

/* -- reading one ---------------------------------------------------------------------------------- */

static bool get_head(struct site_reader *r, struct site_merge *m)
{
    *m = (struct site_merge){.gid = site_get_u8(r)};
    m->hlc = site_get_u64(r);
    site_get_clock(r, &m->clock);
    for (u32 n = site_get_u8(r); n > 0 && !r->bad; n--) {
        u8 gid = site_get_u8(r);
        m->members[gid] = (struct site_member){true, site_get_dot(r)};
        if (gid == 0 || !site_covers(&m->clock, m->members[gid].dot)) r->bad = true;
    }
    for (u32 n = site_get_u8(r); n > 0 && !r->bad; n--) {
        struct site_dot d = site_get_dot(r);
        m->fenced[d.gid] = true;
        m->fence[d.gid] = d.seq;
    }
    return !r->bad && site_left(r) == 0 && m->gid != 0;
}

bool site_merge_completes(const struct site *s, const struct site_merge *m)
{
    struct site_clock after = s->clock;
    site_clock_join(&after, &m->clock);
    return !s->torn || site_clock_covers(&after, &s->torn_upto);
}

bool site_merge_open(const struct site *s, struct site_merge *m, bytes head, const char **why)
{
    struct site_reader r = site_reader_of(head);
    *why = "a malformed snapshot";
    if (!get_head(&r, m)) return false;
    *why = "this site was evicted: it has to come back empty, under a new gid";
    if (m->fenced[s->gid]) return false;
    *why = "a snapshot with writes of this site that it has never made";
    if (m->clock.seq[s->gid] > s->clock.seq[s->gid] && !s->doubt) return false;
    *why = SITE_NOT_COMPLETED;
    return site_merge_completes(s, m);
}

void site_merge_follow(struct site *s, const struct site_merge *m)
{
    if ((i64)(m->hlc >> 16) <= s->phys_ms + s->max_skew_ms) s->hlc = MAX(s->hlc, m->hlc);
}

bool site_merge_begin(struct site *s, struct site_merge *m, bytes head, const char **why)
{
    if (!site_merge_open(s, m, head, why)) return false;
    site_merge_follow(s, m);
    return true;
}

/* A key as the other site has it: claims, deadlines and marks in `o`; cells are read one after the other. */
static void get_atoms(struct site_reader *r, const struct site_clock *theirs, struct site_key *o)
{
    for (u64 n = site_get_varint(r); n > 0 && !r->bad; n--) {
        struct site_claim c = {.dot = site_get_dot(r)};
        c.stamp = site_get_u64(r);
        c.type = site_get_u8(r);
        if (c.type == TYPE_NONE || c.type >= SITE_TYPES || c.dot.gid == 0 || !site_covers(theirs, c.dot))
            r->bad = true;
        site_key_add_claim(o, c);
    }
    site_get_deadlines(r, &o->ttl);
    site_get_marks(r, &o->ttl);
    if (!site_ttl_covered(&o->ttl, theirs)) r->bad = true;
}

static bool cell_fits(const struct site_cell *c, const struct site_clock *theirs)
{
    for (u32 i = 0; i < c->n_writes; i++) {
        const struct site_write *w = &c->writes[i];
        if (w->shown || !site_covers(theirs, w->dot) || !site_covers(theirs, w->birth)) return false;
        if (!site_value_fits(c->kind, site_cell_path(c), site_cell_text(c, w))) return false;
    }
    for (u32 i = 0; i < c->n_incs; i++)
        if (theirs->seq[c->incs[i].gid] < c->incs[i].hi || !site_counts(c->kind)) return false;
    return site_ttl_empty(&c->ttl) || (c->kind == TYPE_HASH && site_ttl_covered(&c->ttl, theirs));
}

/* The next cell of a dump, in the order of rows. False: no more, or r->bad. */
static bool next_cell(struct site_reader *r, const struct site_clock *theirs, struct site_cell *c,
                      struct buf *last)
{
    if (site_left(r) == 0) return false;
    u8 kind = site_get_u8(r);
    bytes path = site_get_bytes(r);
    if (!site_path_fits(kind, path)) r->bad = true;
    if (r->bad) return false;
    site_cell_reset(c, kind, path);
    if (!site_cell_decode(c, r) || !cell_fits(c, theirs) || site_cell_empty(c) ||
        bytes_cmp(buf_bytes(last), buf_bytes(&c->row)) >= 0)
        r->bad = true;
    buf_clear(last);
    buf_append_bytes(last, buf_bytes(&c->row));
    return !r->bad;
}

/* -- merging one key ------------------------------------------------------------------------------ */

struct both {
    struct site *s;
    const struct site_clock *mine, *theirs;
    struct site_key *k, *o;
    struct buf *dots, *fields; /* deadlines that are new here; fields with some that have passed */
    struct site_claim top;     /* what showed here before; no dot: nothing */
};

static void merge_claims(const struct both *b)
{
    struct site_key *k = b->k, *o = b->o;
    u32 n = 0, j;
    for (u32 i = 0; i < k->n_claims; i++) {
        for (j = 0; j < o->n_claims && !site_dot_eq(o->claims[j].dot, k->claims[i].dot);) j++;
        if (j < o->n_claims || !site_covers(b->theirs, k->claims[i].dot)) k->claims[n++] = k->claims[i];
    }
    k->n_claims = n;
    for (j = 0; j < o->n_claims; j++) {
        bool here = site_covers(b->mine, o->claims[j].dot);
        for (u32 i = 0; i < n && !here; i++) here = site_dot_eq(k->claims[i].dot, o->claims[j].dot);
        if (!here) site_key_add_claim(k, o->claims[j]);
    }
}

static bool has_write(const struct site_cell *c, struct site_dot dot)
{
    for (u32 i = 0; i < c->n_writes; i++)
        if (site_dot_eq(c->writes[i].dot, dot)) return true;
    return false;
}

static void merge_incs(const struct both *b, struct site_cell *c, const struct site_cell *oc)
{
    u32 n = 0;
    for (u32 i = 0; i < c->n_incs; i++) {
        struct site_inc x = c->incs[i];
        const struct site_inc *y = site_cell_inc(oc, x.gid);
        if (!y && b->theirs->seq[x.gid] >= x.hi) continue;
        if (y && (y->lo > x.lo || (y->lo == x.lo && y->hi > x.hi))) {
            x.lo = y->lo;
            x.lo_total = y->lo_total;
        }
        if (y && y->hi > x.hi) {
            x.hi = y->hi;
            x.total = y->total;
        }
        c->incs[n++] = x;
    }
    c->n_incs = n;
}

/* Deadlines that are new here may be late (struct site_late). */
static void note_new(const struct both *b, const struct site_ttl *theirs)
{
    for (u32 i = 0; i < theirs->n_deadlines; i++)
        if (!site_covers(b->mine, theirs->deadlines[i].dot)) site_put_dot(b->dots, theirs->deadlines[i].dot);
}

static bool note_past(const struct both *b, const struct site_ttl *t)
{
    i64 now_ms = b->s->torn ? b->s->torn_ms : site_now(b->s);
    for (u32 i = 0; i < t->n_deadlines; i++)
        if (site_deadline_past(&t->deadlines[i], now_ms)) return true;
    return false;
}

/* If there are any that have passed. */
static void note_timed(struct site_merge *m, const struct both *b)
{
    if (!note_past(b, &b->k->ttl) && b->fields->n == 0) return;
    site_put_varint(&m->timed, b->k->db);
    site_put_bytes(&m->timed, buf_bytes(&b->k->name));
    site_put_bytes(&m->timed, buf_bytes(b->dots));
    site_put_bytes(&m->timed, buf_bytes(b->fields));
}

/* Marks of expiries that are new here: of the key, or of a field. */
static void remember_marks(const struct both *b, const struct site_ttl *theirs, struct site_cell *c)
{
    struct site_clock clock;
    for (u32 i = 0; i < theirs->n_marks; i++) {
        if (site_covers(b->mine, theirs->marks[i].dot)) continue;
        struct site_reader r = site_reader_of(buf_bytes(&theirs->marks[i].clock));
        site_get_clock(&r, &clock);
        struct site_dot dot = theirs->marks[i].dot;
        if (c) site_remember_field(b->s, b->k, b->top.dot.gid ? &b->top : NULL, c, dot, &clock);
        else site_remember(b->s, b->k, dot, &clock);
    }
}

static void merge_field(const struct both *b, struct site_cell *c, const struct site_ttl *theirs)
{
    if (site_ttl_empty(&c->ttl) && site_ttl_empty(theirs)) return;
    remember_marks(b, theirs, c);
    note_new(b, theirs);
    site_ttl_merge(&c->ttl, theirs, b->mine, b->theirs);
    if (note_past(b, &c->ttl)) site_put_bytes(b->fields, site_cell_path(c));
}

/* oc is empty if the other site has no such cell. */
static void merge_cell(const struct both *b, struct site_cell *c, const struct site_cell *oc)
{
    struct site_clock had = {0}; /* sites that have a counter here */
    u32 n = 0;
    merge_field(b, c, &oc->ttl);
    for (u32 i = 0; i < c->n_incs; i++) had.seq[c->incs[i].gid] = 1;
    for (u32 i = 0; i < c->n_writes; i++)
        if (has_write(oc, c->writes[i].dot) || !site_covers(b->theirs, c->writes[i].dot))
            c->writes[n++] = c->writes[i];
    c->n_writes = n;
    for (u32 i = 0; i < oc->n_writes; i++) {
        const struct site_write *w = &oc->writes[i];
        bool here = site_covers(b->mine, w->dot) && !PLANTED_SITE(b->s, PLANT_SYNC_REVIVES);
        if (!here && !has_write(c, w->dot))
            site_cell_write(c, w->dot, w->stamp, w->birth, site_cell_text(oc, w));
    }
    merge_incs(b, c, oc);
    for (u32 i = 0; i < oc->n_incs; i++)
        if (!had.seq[oc->incs[i].gid] && b->mine->seq[oc->incs[i].gid] < oc->incs[i].hi)
            site_cell_add_inc(c, oc->incs[i]);
    site_key_store(b->k, c);
}

/* All rows of a key, in order: type · path, each with its length. */
static void all_rows(struct site_key *k, struct buf *out)
{
    struct buf paths = {0};
    if (!site_cell_empty(&k->string)) site_put_bytes(out, buf_bytes(&k->string.row));
    for (u32 kind = TYPE_HASH; kind < SITE_TYPES; kind++) {
        buf_clear(&paths);
        site_key_paths(k, kind, &paths);
        for (struct site_reader r = site_reader_of(buf_bytes(&paths)); site_left(&r);) {
            bytes path = site_get_bytes(&r);
            site_put_varint(out, path.n + 1);
            site_put_u8(out, (u8)kind);
            buf_append_bytes(out, path);
        }
    }
    buf_release(&paths);
}

static struct site_cell *cell_of_row(const struct both *b, bytes row)
{
    return site_key_cell(b->k, row.p[0], bytes_of(row.p + 1, row.n - 1), &b->s->cell);
}

/* Two sorted lists, ours and theirs, side by side. */
static void merge_cells(const struct both *b, struct site_reader *dump)
{
    struct buf rows = {0}, last = {0};
    struct site_cell theirs = {0}, none = {0};
    all_rows(b->k, &rows);
    struct site_reader r = site_reader_of(buf_bytes(&rows));
    bytes row = site_left(&r) ? site_get_bytes(&r) : (bytes){0};
    while (next_cell(dump, b->theirs, &theirs, &last)) {
        while (row.n && bytes_cmp(row, buf_bytes(&theirs.row)) < 0) {
            merge_cell(b, cell_of_row(b, row), &none);
            row = site_left(&r) ? site_get_bytes(&r) : (bytes){0};
        }
        if (row.n && bytes_eq(row, buf_bytes(&theirs.row)))
            row = site_left(&r) ? site_get_bytes(&r) : (bytes){0};
        merge_cell(b, cell_of_row(b, buf_bytes(&theirs.row)), &theirs);
    }
    while (row.n) {
        merge_cell(b, cell_of_row(b, row), &none);
        row = site_left(&r) ? site_get_bytes(&r) : (bytes){0};
    }
    site_cell_release(&theirs);
    buf_release(&rows);
    buf_release(&last);
}

bool site_merge_check(const struct site_merge *m, bytes dump, const char **why)
{
    struct site_key o = {0};
    struct site_cell c = {0};
    struct buf last = {0};
    struct site_reader r = site_reader_of(dump);
    if (dump.n) get_atoms(&r, &m->clock, &o);
    while (next_cell(&r, &m->clock, &c, &last)) {}
    site_key_release(&o);
    site_cell_release(&c);
    buf_release(&last);
    *why = "a malformed key in a snapshot";
    return !r.bad;
}

/* An EXPIRE or PERSIST of ours meets expiries that are new here. */
static bool is_rescued(const struct both *b, const struct site_ttl *ours, const struct site_ttl *theirs)
{
    bool extended = false, expired = false;
    for (u32 i = 0; i < ours->n_deadlines; i++)
        extended |= ours->deadlines[i].dot.gid == b->s->gid && !ours->deadlines[i].kept;
    for (u32 i = 0; i < theirs->n_marks; i++) expired |= !site_covers(b->mine, theirs->marks[i].dot);
    return extended && expired;
}

/* Whether content of the key, or of a field, may have to be written again. */
static bool is_any_rescued(const struct both *b, struct site_reader cells)
{
    struct buf last = {0};
    struct site_cell c = {0};
    bool any = is_rescued(b, &b->k->ttl, &b->o->ttl);
    while (!any && b->k->timed && next_cell(&cells, b->theirs, &c, &last)) {
        if (c.ttl.n_marks == 0) continue;
        any = is_rescued(b, &site_key_cell(b->k, c.kind, site_cell_path(&c), &b->s->cell)->ttl, &c.ttl);
    }
    site_cell_release(&c);
    buf_release(&last);
    return any;
}

static bool merge_key(struct site *s, struct site_merge *m, u32 db, bytes name, bytes dump, bool may_wait)
{
    struct site_key o = {0};
    struct buf dots = {0}, fields = {0};
    struct both b = {.s = s, .mine = &s->clock, .theirs = &m->clock, .k = &s->key, .o = &o};
    struct site_reader r = site_reader_of(dump);
    struct site_clock last = s->clock;
    site_clock_join(&last, &m->clock);
    if (dump.n) get_atoms(&r, &m->clock, &o);
    site_key_load(&s->key, s->e, db, name);
    const struct site_claim *top = site_key_claim(&s->key);
    b.dots = &dots;
    b.fields = &fields;
    if (top) b.top = *top;
    if (may_wait && dump.n && is_any_rescued(&b, r) && !PLANTED_SITE(s, PLANT_TORN_TAKES)) {
        site_key_release(&o);
        return false;
    }
    remember_marks(&b, &o.ttl, NULL);
    note_new(&b, &o.ttl);
    merge_claims(&b);
    site_ttl_merge(&s->key.ttl, &o.ttl, b.mine, b.theirs);
    merge_cells(&b, &r);
    site_save(s, &s->key, site_clock_sum(&last));
    if (dump.n) note_timed(m, &b);
    site_key_release(&o);
    buf_release(&dots);
    buf_release(&fields);
    return true;
}

void site_merge_key(struct site *s, struct site_merge *m, u32 db, bytes name, bytes dump)
{
    (void)merge_key(s, m, db, name, dump, false);
}

bool site_merge_key_early(struct site *s, struct site_merge *m, u32 db, bytes name, bytes dump)
{
    return merge_key(s, m, db, name, dump, true);
}

/* -- the end of it -------------------------------------------------------------------------------- */

static void merge_members(struct site *s, const struct site_merge *m)
{
    bool first = s->position == 0;
    s->n_everywhere = 0;
    for (u32 g = 1; g < SITE_GIDS; g++) {
        struct site_member *a = &s->members[g];
        const struct site_member *b = &m->members[g];
        if (m->fenced[g] && !s->fenced[g]) site_fence(s, (u8)g, m->fence[g]);
        if (m->fenced[g] && s->acks[g]) memset(s->acks[g], 0, sizeof *s->acks[g]);
        struct site_dot dot = b->in ? b->dot : a->dot;
        bool in = a->in || b->in;
        if (b->in) site_know(s, (u8)g);
        if (in && !a->in) in = !site_covers(&s->clock, dot) || first;
        if (in && !b->in) in = !site_covers(&m->clock, dot) && !first;
        *a = (struct site_member){in, dot};
    }
}

static void expire_timed(struct site *s, const struct site_merge *m)
{
    struct site_reader r = site_reader_of(buf_bytes(&m->timed));
    while (site_left(&r)) {
        u32 db = (u32)site_get_varint(&r), n = 0;
        bytes name = site_get_bytes(&r), raw = site_get_bytes(&r), fields = site_get_bytes(&r);
        struct site_dot *dots = mem_alloc((raw.n + 1) * sizeof *dots);
        for (struct site_reader d = site_reader_of(raw); site_left(&d);) dots[n++] = site_get_dot(&d);
        struct site_late late = {dots, n, &m->clock, false};
        site_expire(s, db, name, &late);
        if (fields.n) site_expire_fields(s, db, name, fields, &late);
        mem_free(dots);
    }
}

void site_merge_finish(struct site *s, struct site_merge *m)
{
    merge_members(s, m);
    site_note_merged(s, &m->clock);
    s->torn = false;
    memset(&s->torn_upto, 0, sizeof s->torn_upto);
    expire_timed(s, m);
    site_reassert(s);
    site_hear(s, m->gid, &m->clock);
    site_apply_pending(s);
}

void site_merge_release(struct site_merge *m) { buf_release(&m->timed); }
