/* Walking the keyspace: SCAN, KEYS, RANDOMKEY, DBSIZE, and the options that HSCAN, SSCAN and ZSCAN share with
 * SCAN.
 *
 * The engine's walks also return dead keys, which are hidden here. They cannot be deleted during a walk, so
 * SCAN remembers them and looks them up afterwards. */
#include <ctype.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "command/key.h"
#include "command/scan.h"

/* -- options -------------------------------------------------------------------- */

/* As strtoull reads it: after spaces a sign is allowed (and a minus wraps). */
static bool parse_cursor_loosely(bytes s, u64 *out)
{
    u64 v = 0;
    size_t i = 0;
    while (i < s.n && isspace((u8)s.p[i])) i++;
    bool minus = i < s.n && s.p[i] == '-';
    i += minus || (i < s.n && s.p[i] == '+');
    if (i == s.n) return false;
    for (; i < s.n; i++) {
        u8 digit = (u8)(s.p[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit, &v))
            return false;
    }
    *out = minus ? 0 - v : v;
    return true;
}

/* A plain number may not be negative; anything else is read loosely. A NUL ends it. */
static bool parse_cursor(bytes s, u64 *out)
{
    i64 v;
    s.n = strnlen(s.p, s.n);
    if (!num_parse_i64(s, &v)) return parse_cursor_loosely(s, out);
    *out = (u64)v;
    return v >= 0;
}

static bool scan_parse_count(struct ctx *c, bytes arg, u32 *out)
{
    i64 n;
    if (!ctx_int(c, arg, &n)) return false;
    if (n < 1) {
        ctx_syntax_error(c);
        return false;
    }
    *out = (u32)MIN(n, (i64)UINT32_MAX);
    return true;
}

bool scan_parse_cursor(struct ctx *c, bytes arg, struct scan_options *out)
{
    *out = (struct scan_options){.count = 10};
    if (parse_cursor(arg, &out->cursor)) return true;
    reply_error(c->out, "ERR invalid cursor");
    return false;
}

bool scan_parse_options(struct ctx *c, int from, enum value_type of, struct scan_options *out)
{
    for (int i = from; i < c->argc; i++) {
        bytes name = c->argv[i];
        bool has_value = i + 1 < c->argc;
        if (has_value && bytes_is(name, "count")) {
            if (!scan_parse_count(c, c->argv[++i], &out->count)) return false;
        } else if (has_value && bytes_is(name, "match")) {
            out->match = c->argv[++i];
            /* "*" means everything, even the empty name, which no star matches. */
            out->has_match = !bytes_eq(out->match, BYTES_LIT("*"));
        } else if (has_value && of == TYPE_NONE && bytes_is(name, "type")) {
            out->type = c->argv[++i];
            out->has_type = true;
        } else if (bytes_is(name, "novalues")) {
            out->no_values = true;
            if (of == TYPE_HASH) continue;
            reply_error(c->out, "ERR NOVALUES option can only be used in HSCAN");
            return false;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* -- SCAN ------------------------------------------------------------------------- */

/* Names met by a walk, copied: one after another, each with its length before it. */
struct names {
    struct buf all;
    size_t n;
};

static void names_add(struct names *l, bytes name)
{
    u32 n = (u32)name.n;
    buf_append(&l->all, &n, sizeof n);
    buf_append_bytes(&l->all, name);
    l->n++;
}

/* The name at *at, which moves to the next. */
static bytes names_next(const struct names *l, size_t *at)
{
    u32 n;
    memcpy(&n, l->all.p + *at, sizeof n);
    bytes name = bytes_of(l->all.p + *at + sizeof n, n);
    *at += sizeof n + n;
    return name;
}

struct scan_walk {
    struct keyspace *ks;
    struct scan_options opt;
    struct names found, dead;
};

static void scan_visit(void *arg, struct key_ref *ref)
{
    struct scan_walk *w = arg;
    if (!keyspace_visible(w->ks, ref)) names_add(&w->dead, ref->key);
    else if (scan_matches(&w->opt, ref->key) &&
             (!w->opt.has_type || bytes_is(w->opt.type, type_name(ref->type))))
        names_add(&w->found, ref->key);
}

/* Looking a dead key up deletes it, if the mode says so. As a write lookup: it is not counted as a miss. */
static void send_through_gate(struct ctx *c, struct keyspace *ks, bytes name)
{
    struct key_ref ref;
    keyspace_find(ks, c->db, name, LOOKUP_WRITE, &ref);
}

/* Regions of a node are walked one after the other, in the order of their slots. Their cursors, 0 apart, have
 * the slot in the upper bits; a cursor with nothing below stands for the beginning of a region. */
#define SCAN_SLOT_BITS 32

static struct keyspace *scan_region(struct ctx *c, u64 cursor)
{
    struct keyspace *ks = c->ks, *at = NULL;
    if (LIKELY(ks->next == ks)) return ks;
    KEYSPACES_EACH(c->ks, ks)
        if (!at || ks->first_slot <= cursor >> SCAN_SLOT_BITS) at = ks;
    return at;
}

static u64 scan_regions(struct ctx *c, struct scan_walk *w)
{
    u64 cursor = w->opt.cursor;
    struct keyspace *ks = w->ks = scan_region(c, cursor);
    if (ks != c->ks && cursor == (u64)ks->first_slot << SCAN_SLOT_BITS) cursor = 0;
    u64 next = ks->eng->ops->scan(ks->eng, c->db, cursor, w->opt.count, scan_visit, w);
    return next || ks->next == c->ks ? next : (u64)ks->next->first_slot << SCAN_SLOT_BITS;
}

void cmd_scan(struct ctx *c)
{
    struct scan_walk w = {0};
    size_t at = 0;
    if (!scan_parse_cursor(c, c->argv[1], &w.opt)) return;
    if (!scan_parse_options(c, 2, TYPE_NONE, &w.opt)) return;
    u64 next = scan_regions(c, &w);
    reply_array(c->out, 2);
    reply_bulkf(c->out, "%llu", (unsigned long long)next);
    reply_array(c->out, w.found.n);
    while (at < w.found.all.n) reply_bulk(c->out, names_next(&w.found, &at));
    at = 0;
    while (at < w.dead.all.n) send_through_gate(c, w.ks, names_next(&w.dead, &at));
    buf_release(&w.found.all);
    buf_release(&w.dead.all);
}

/* -- KEYS RANDOMKEY DBSIZE -------------------------------------------------------- */

struct keys_walk {
    struct ctx *c;
    struct keyspace *ks;
    bytes pattern;
    bool all;
    size_t found;
};

static void keys_visit(void *arg, struct key_ref *ref)
{
    struct keys_walk *w = arg;
    if (!keyspace_visible(w->ks, ref)) return; /* only hidden: KEYS takes long enough */
    if (!w->all && !glob_match(w->pattern, ref->key, false)) return;
    reply_bulk(w->c->out, ref->key);
    w->found++;
}

void cmd_keys(struct ctx *c)
{
    struct keys_walk w = {.c = c, .pattern = c->argv[1]};
    w.all = bytes_eq(w.pattern, BYTES_LIT("*"));
    size_t mark = reply_mark(c->out);
    KEYSPACES_EACH(c->ks, w.ks) {
        u64 cursor = 0;
        do {
            cursor = w.ks->eng->ops->scan(w.ks->eng, c->db, cursor, UINT32_MAX, keys_visit, &w);
        } while (cursor != 0);
    }
    reply_array_at(c->out, mark, w.found);
}

#define RANDOMKEY_TRIES 100

struct first_walk {
    struct ctx *c;
    struct keyspace *ks;
    bool found;
};

static void first_visit(void *arg, struct key_ref *ref)
{
    struct first_walk *w = arg;
    if (w->found || !keyspace_visible(w->ks, ref)) return;
    w->found = true;
    reply_bulk(w->c->out, ref->key);
}

/* If random draws find only dead keys: the first live one, or null. */
static void reply_first_visible(struct ctx *c, struct keyspace *ks)
{
    struct first_walk w = {.c = c, .ks = ks};
    u64 cursor = 0;
    do {
        cursor = ks->eng->ops->scan(ks->eng, c->db, cursor, 64, first_visit, &w);
    } while (cursor != 0 && !w.found);
    if (!w.found) reply_null(c->out);
}

/* One of the node's regions, by how many keys each has. */
static struct keyspace *random_region(struct ctx *c)
{
    struct keyspace *ks;
    u64 keys = 0;
    if (LIKELY(c->ks->next == c->ks)) return c->ks;
    KEYSPACES_EACH(c->ks, ks) keys += ks->eng->ops->count(ks->eng, c->db);
    u64 at = keys ? rand_below(&c->rng, keys) : 0;
    KEYSPACES_EACH(c->ks, ks) {
        u64 n = ks->eng->ops->count(ks->eng, c->db);
        if (at < n) return ks;
        at -= n;
    }
    return c->ks;
}

void cmd_randomkey(struct ctx *c)
{
    struct keyspace *ks = random_region(c);
    struct key_ref ref;
    for (int tries = 0; tries < RANDOMKEY_TRIES; tries++) {
        if (!ks->eng->ops->random(ks->eng, c->db, &c->rng, &ref)) {
            reply_null(c->out);
            return;
        }
        if (keyspace_visible(ks, &ref)) {
            reply_bulk(c->out, ref.key);
            return;
        }
        struct buf copy = {0}; /* the lookup may free the engine's copy */
        buf_append_bytes(&copy, ref.key);
        send_through_gate(c, ks, buf_bytes(&copy));
        buf_release(&copy);
    }
    reply_first_visible(c, ks);
}

void cmd_dbsize(struct ctx *c)
{
    struct keyspace *ks;
    u64 keys = 0;
    KEYSPACES_EACH(c->ks, ks) keys += ks->eng->ops->count(ks->eng, c->db);
    reply_int(c->out, (i64)keys);
}
