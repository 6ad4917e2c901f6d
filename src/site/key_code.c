/* The head of a key's companion as bytes. In the usual case (one claim of the type that the engine
 * holds, no deadline or one that came with the value, nothing for garbage collection) it is a byte of
 * flags, a dot and a stamp. */
#include "site/key.h"

enum {
    CLAIM_ONE = 1,     /* one, of the type that the engine holds: dot, stamp */
    CLAIM_MANY = 2,    /* count, and for each dot, stamp, type */
    TTL_OWN = 4,       /* one, which came with the string that the claim is about, and is the engine's */
    TTL_ONE = 8,       /* one EXPIRE, which is the engine's: dot */
    TTL_MANY = 12,     /* count, and for each flag, dot, time, birth */
    TTL = 12,          /* the bits of the three */
    PLAIN_STRING = 16, /* it was written by the claim's effect; no cell */
    MARKS = 32,        /* count, and for each dot, clock */
    COUNTS = 64,       /* last, untidy, counting, timed, and rows and live of each type */
    STRING_CELL = 128, /* its cell, at the end */
};

static u8 flags_of_ttl(const struct site_key *k)
{
    if (k->ttl.n_deadlines == 0) return 0;
    const struct site_deadline *d = k->ttl.deadlines;
    bool engine_has_it = k->ref.entry && d->at_ms == k->ref.deadline_ms && d->at_ms;
    if (k->ttl.n_deadlines > 1 || d->kept || !engine_has_it) return TTL_MANY;
    if (d->birth.gid == 0) return TTL_ONE;
    bool own = k->n_claims == 1 && site_dot_eq(d->birth, d->dot) && site_dot_eq(d->dot, k->claims[0].dot);
    return own ? TTL_OWN : TTL_MANY;
}

/* If all cells are visible and need nothing else, their number is the engine's number of elements. A stream
 * has cells that are not entries. */
static bool counts_are_plain(const struct site_key *k)
{
    if (!site_key_tidy(k) || k->counting || k->timed) return false;
    if (k->cells[TYPE_STREAM].rows) return false;
    for (u32 type = 0; type < SITE_TYPES; type++)
        if (k->cells[type].rows != k->cells[type].live) return false;
    return true;
}

bool site_key_plain_string(const struct site_key *k)
{
    const struct site_cell *c = &k->string;
    if (k->n_claims != 1 || c->n_writes != 1 || c->n_incs || !c->writes[0].shown) return false;
    const struct site_write *w = c->writes;
    const struct site_claim *claim = k->claims;
    return claim->type == TYPE_STRING && site_dot_eq(w->dot, claim->dot) && site_dot_eq(w->birth, w->dot) &&
           w->stamp == claim->stamp;
}

static void put_claims(const struct site_key *k, u8 flags, struct buf *to)
{
    if (flags & CLAIM_MANY) site_put_varint(to, k->n_claims);
    for (u32 i = 0; i < k->n_claims; i++) {
        site_put_dot(to, k->claims[i].dot);
        site_put_u64(to, k->claims[i].stamp);
        if (flags & CLAIM_MANY) site_put_u8(to, (u8)k->claims[i].type);
    }
}

static void put_deadlines(const struct site_key *k, u8 flags, struct buf *to)
{
    if ((flags & TTL) == TTL_ONE) site_put_dot(to, k->ttl.deadlines[0].dot);
    if ((flags & TTL) != TTL_MANY) return;
    site_put_deadlines(to, &k->ttl);
}

static void put_counts(const struct site_key *k, struct buf *to)
{
    site_put_varint(to, k->last);
    site_put_varint(to, k->untidy);
    site_put_varint(to, k->counting);
    site_put_varint(to, k->timed);
    for (u32 type = TYPE_HASH; type < SITE_TYPES; type++) {
        site_put_varint(to, k->cells[type].rows);
        site_put_varint(to, k->cells[type].live);
    }
}

void site_key_encode(const struct site_key *k, struct buf *to)
{
    bool one = k->n_claims == 1 && k->claims[0].type == k->held;
    u8 flags = k->n_claims == 0 ? 0 : one ? CLAIM_ONE : CLAIM_MANY;
    flags |= flags_of_ttl(k);
    if (!site_cell_empty(&k->string)) flags |= site_key_plain_string(k) ? PLAIN_STRING : STRING_CELL;
    flags |= (k->ttl.n_marks ? MARKS : 0) | (counts_are_plain(k) ? 0 : COUNTS);
    site_put_u8(to, flags);
    put_claims(k, flags, to);
    put_deadlines(k, flags, to);
    if (flags & MARKS) site_put_marks(to, &k->ttl);
    if (flags & COUNTS) put_counts(k, to);
    if (flags & STRING_CELL) site_cell_encode(&k->string, to);
}

static void get_claims(struct site_key *k, u8 flags, struct site_reader *r)
{
    for (u64 n = flags & CLAIM_ONE ? 1 : flags & CLAIM_MANY ? site_get_varint(r) : 0; n > 0 && !r->bad; n--) {
        struct site_claim c = {.dot = site_get_dot(r), .type = k->held};
        c.stamp = site_get_u64(r);
        if (flags & CLAIM_MANY) c.type = site_get_u8(r);
        site_key_add_claim(k, c);
    }
}

static void get_deadlines(struct site_key *k, u8 flags, struct site_reader *r)
{
    struct site_deadline d = {.at_ms = k->ref.deadline_ms};
    if ((flags & TTL) == TTL_OWN) {
        d.dot = d.birth = k->n_claims ? k->claims[0].dot : (struct site_dot){0};
        site_ttl_add(&k->ttl, d);
    } else if ((flags & TTL) == TTL_ONE) {
        d.dot = site_get_dot(r);
        site_ttl_add(&k->ttl, d);
    } else if ((flags & TTL) == TTL_MANY) {
        site_get_deadlines(r, &k->ttl);
    }
}

static void get_counts(struct site_key *k, struct site_reader *r)
{
    k->last = site_get_varint(r);
    k->untidy = site_get_varint(r);
    k->counting = site_get_varint(r);
    k->timed = site_get_varint(r);
    for (u32 type = TYPE_HASH; type < SITE_TYPES; type++) {
        k->cells[type].rows = site_get_varint(r);
        k->cells[type].live = site_get_varint(r);
    }
}

void site_key_decode(struct site_key *k, bytes head)
{
    struct site_reader r = site_reader_of(head);
    u8 flags = site_get_u8(&r);
    get_claims(k, flags, &r);
    get_deadlines(k, flags, &r);
    if (flags & MARKS) site_get_marks(&r, &k->ttl);
    if (flags & COUNTS) {
        get_counts(k, &r);
    } else if (k->held != TYPE_NONE && k->held != TYPE_STRING && k->held != TYPE_STREAM) {
        k->cells[k->held].rows = k->cells[k->held].live = k->e->ops->size(k->e, &k->ref);
    }
    if (flags & PLAIN_STRING && k->n_claims == 1) {
        site_cell_write(&k->string, k->claims[0].dot, k->claims[0].stamp, k->claims[0].dot, (bytes){"", 0});
        k->string.writes[0].shown = true;
    }
    if (flags & STRING_CELL) site_cell_decode(&k->string, &r);
}

/* -- heads of the usual kinds ------------------------------------------------------------------------- */

/* What an EXPIRE said, and the same carried along by the last write. */
static bool head_get_kept(struct site_reader *r, struct site_head *h)
{
    if (site_get_varint(r) != 2 || site_get_u8(r) != 0) return false;
    h->ttl = site_get_dot(r);
    h->at_ms = (i64)site_get_varint(r);
    h->ttl_birth = site_get_dot(r);
    if (site_get_u8(r) != 1 || !site_dot_eq(site_get_dot(r), h->dot)) return false;
    h->keeps = (i64)site_get_varint(r) == h->at_ms && h->at_ms > 0;
    h->birth = site_get_dot(r);
    return h->keeps;
}

/* False: fields have deadlines. */
static bool head_get_counts(struct site_reader *r, struct site_head *h)
{
    site_get_varint(r);
    h->untidy = site_get_varint(r);
    h->counting = site_get_varint(r);
    u64 timed = site_get_varint(r);
    for (u32 type = TYPE_HASH; type < SITE_TYPES; type++) {
        h->cells[type].rows = site_get_varint(r);
        h->cells[type].live = site_get_varint(r);
    }
    return timed == 0;
}

bool site_get_head(bytes raw, struct site_head *h)
{
    struct site_reader r = site_reader_of(raw);
    u8 flags = site_get_u8(&r);
    if ((flags & (CLAIM_ONE | CLAIM_MANY | MARKS)) != CLAIM_ONE) return false;
    *h = (struct site_head){.dot = site_get_dot(&r)};
    h->stamp = site_get_u64(&r);
    if (flags & PLAIN_STRING) h->string = SITE_STRING_SET;
    if (flags & STRING_CELL) h->string = SITE_STRING_CELL;
    h->counted = (flags & COUNTS) != 0;
    if ((flags & TTL) == TTL_OWN) h->ttl = h->ttl_birth = h->dot;
    if ((flags & TTL) == TTL_ONE) h->ttl = site_get_dot(&r);
    if ((flags & TTL) == TTL_MANY && !head_get_kept(&r, h)) return false;
    if (h->counted && !head_get_counts(&r, h)) return false;
    h->cell = bytes_of(r.p, site_left(&r));
    return !r.bad;
}

static void head_put_kept(const struct site_head *h, struct buf *to)
{
    site_put_varint(to, 2);
    site_put_u8(to, 0);
    site_put_dot(to, h->ttl);
    site_put_varint(to, (u64)h->at_ms);
    site_put_dot(to, h->ttl_birth);
    site_put_u8(to, 1);
    site_put_dot(to, h->dot);
    site_put_varint(to, (u64)h->at_ms);
    site_put_dot(to, h->birth);
}

static void head_put_counts(const struct site_head *h, u64 last, struct buf *to)
{
    site_put_varint(to, last);
    site_put_varint(to, h->untidy);
    site_put_varint(to, h->counting);
    site_put_varint(to, 0); /* fields with deadlines */
    for (u32 type = TYPE_HASH; type < SITE_TYPES; type++) {
        site_put_varint(to, h->cells[type].rows);
        site_put_varint(to, h->cells[type].live);
    }
}

static u8 head_flags(const struct site_head *h)
{
    const u8 strings[] = {0, PLAIN_STRING, STRING_CELL};
    u8 ttl = h->keeps ? TTL_MANY : h->ttl.gid == 0 ? 0 : h->ttl_birth.gid ? TTL_OWN : TTL_ONE;
    return (u8)(CLAIM_ONE | strings[h->string] | ttl | (h->counted ? COUNTS : 0));
}

void site_put_head(struct buf *to, const struct site_head *h, u64 last)
{
    u8 flags = head_flags(h);
    site_put_u8(to, flags);
    site_put_dot(to, h->dot);
    site_put_u64(to, h->stamp);
    if ((flags & TTL) == TTL_ONE) site_put_dot(to, h->ttl);
    if ((flags & TTL) == TTL_MANY) head_put_kept(h, to);
    if (h->counted) head_put_counts(h, last, to);
    buf_append_bytes(to, h->cell);
}

bool site_head_is_plain(const struct site_head *h, enum value_type kind)
{
    if (h->string || h->untidy || h->counting) return false;
    for (u32 type = TYPE_HASH; h->counted && type < SITE_TYPES; type++)
        if (h->cells[type].rows != h->cells[type].live || (type != kind && h->cells[type].rows)) return false;
    return true;
}

bool site_head_is_set(bytes head, struct site_dot *dot)
{
    struct site_reader r = site_reader_of(head);
    u8 flags = site_get_u8(&r);
    if ((flags & ~TTL_OWN) != (CLAIM_ONE | PLAIN_STRING)) return false;
    *dot = site_get_dot(&r);
    return !r.bad;
}

bytes site_set_head(char raw[SITE_SET_HEAD_MAX], struct site_dot dot, u64 stamp, bool deadline)
{
    raw[0] = CLAIM_ONE | PLAIN_STRING;
    if (deadline) raw[0] |= TTL_OWN;
    char *p = site_write_dot(raw + 1, dot);
    return bytes_of(raw, (size_t)(site_write_u64(p, stamp) - raw));
}
