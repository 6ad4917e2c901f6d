/* The checker's look at one key: its metadata, and that its elements are what that says.
 *
 * Rows of another version than the metadata's are orphans, which is no fault: deleting a
 * collection leaves them to the compactions. */
#include <math.h>

#include "base/num.h"
#include "engine/rocks/check.h"
#include "engine/rocks/ranks.h"

/* Pairs of a name and a number, of which two families hold one copy each. */
struct pairs {
    u64 n, sum;
};

static void add_pair(struct pairs *s, bytes name, u64 number)
{
    s->n++;
    s->sum += hash_bytes(name, number);
}

static bytes lane_value(const struct check *c, enum family f) { return store_iter_value(c->lane[f]); }

/* -- what is there ------------------------------------------------------------------------- */

static void read_meta(struct check *c, struct check_key *k)
{
    bytes rest;
    k->found = k->told_version = false;
    k->m = (struct codec_meta){0};
    for (; check_row(c, k, FAM_META, &rest); check_next(c, FAM_META)) {
        struct codec_meta m;
        bytes raw = lane_value(c, FAM_META);
        if (rest.n) {
            check_problem(c, k, "there are %zu bytes after the name of the metadata row", rest.n);
        } else if (!codec_meta_read(raw, &m)) {
            check_problem(c, k, "its metadata can't be decoded (%zu bytes)", raw.n);
        } else {
            k->found = true;
            k->m = m;
            k->m.payload = (bytes){0}; /* it goes with the iterator */
        }
    }
}

/* A string of the old form: the key itself, or what is left behind when there is newer metadata. */
static void see_legacy(struct check *c, const struct check_key *k)
{
    i64 deadline_ms;
    bytes payload;
    if (k->found) {
        c->orphans[FAM_DATA]++;
        return;
    }
    c->legacy_strings++;
    if (!codec_legacy_read(lane_value(c, FAM_DATA), &deadline_ms, &payload))
        check_problem(c, k, "its string of the old form can't be decoded");
    if (c->made_here && !c->legacy)
        check_problem(c, k, "it is a string of the old form, but their migration has ended: nobody reads it");
    else if (c->made_here && bytes_cmp(buf_bytes(&k->p), buf_bytes(&c->legacy_position)) < 0)
        check_problem(c, k, "it is a string of the old form that the migration has left out");
}

static void see_version(struct check *c, struct check_key *k, u64 version)
{
    if (!c->made_here || version <= c->last_version || k->told_version) return;
    k->told_version = true;
    check_problem(c, k, "it has version %llu, but the last one given out was %llu", LLU(version),
                  LLU(c->last_version));
}

/* Whether the lane stands on a row of the key as it is now, and the part of it after the version.
 * Orphans are counted and passed by. */
static bool own_row(struct check *c, struct check_key *k, enum family f, bytes *sub)
{
    bytes rest;
    u64 version;
    for (; check_row(c, k, f, &rest); check_next(c, f)) {
        if (f == FAM_DATA && rest.n == 1 && rest.p[0] == CODEC_LEGACY) {
            see_legacy(c, k);
        } else if (!codec_version_read(rest, &version, sub)) {
            check_problem(c, k, "a row of %s is too short (%zu bytes)", check_family(f), rest.n);
        } else {
            see_version(c, k, version);
            if (k->found && k->m.type != TYPE_STRING && version == k->m.version) return true;
            c->orphans[f]++;
        }
    }
    return false;
}

/* Own rows in a family where this key should have none. */
static void expect_none(struct check *c, struct check_key *k, enum family f, const char *what)
{
    bytes sub;
    u64 n = 0;
    for (; own_row(c, k, f, &sub); check_next(c, f)) n++;
    if (n) check_problem(c, k, "it has %llu %s, which its type has none of", LLU(n), what);
}

/* Lists and sets have their elements, and nothing beside. */
static void expect_nothing_else(struct check *c, struct check_key *k)
{
    expect_none(c, k, FAM_SCORE, "rows of an order");
    expect_none(c, k, FAM_RANK, "rank blocks");
    expect_none(c, k, FAM_FIELD, "field deadlines");
    expect_none(c, k, FAM_STREAM, "rows of a stream");
}

static void expect_size(struct check *c, struct check_key *k, u64 n)
{
    if (c->failed) return; /* not all were seen */
    if (k->m.size != n)
        check_problem(c, k, "its size is stored as %llu, but it has %llu elements",
                      LLU(k->m.size), LLU(n));
    else if (n == 0) check_problem(c, k, "it is empty");
    c->elements[k->m.type] += n;
}

static void expect_empty(struct check *c, struct check_key *k, enum family f, const char *what)
{
    if (lane_value(c, f).n) check_problem(c, k, "a row %s has a value", what);
}

/* -- pairs that differ ------------------------------------------------------------------------ */

struct pair_kind {
    enum family named;        /* name → number; FAM_SCORE has number · name → nothing */
    const char *name, *other; /* for people */
    bool number_is_score;
};
static const struct pair_kind members = {FAM_DATA, "member", "row by score", true};
static const struct pair_kind fields = {FAM_FIELD, "field", "row by deadline", false};

static void print_number(const struct pair_kind *kind, u64 number, char out[64])
{
    if (kind->number_is_score) out[num_print_double(out, codec_score_read(number))] = '\0';
    else out[num_print_i64(out, (i64)number)] = '\0';
}

static void tell_pair(struct check *c, const struct check_key *k, const struct pair_kind *kind, bytes name,
                      u64 number, const char *what)
{
    struct buf quoted = {0};
    char text[64];
    check_quote(&quoted, name);
    print_number(kind, number, text);
    check_problem(c, k, "%s %.*s (%s) %s", kind->name, (int)quoted.n, quoted.p, text, what);
    buf_release(&quoted);
}

static void own_range(const struct check_key *k, struct buf *prefix, struct buf *after)
{
    buf_append_bytes(prefix, buf_bytes(&k->p));
    append_u64(prefix, k->m.version);
    buf_append_bytes(after, buf_bytes(prefix));
    codec_after_prefix(after);
}

static struct store_iter *own_rows(struct check *c, const struct check_key *k, enum family f,
                                   struct buf *prefix)
{
    struct buf after = {0};
    own_range(k, prefix, &after);
    struct store_iter *it = store_iter(c->store, f, buf_bytes(prefix), buf_bytes(&after), STORE_ONCE);
    store_seek_first(it);
    buf_release(&after);
    return it;
}

/* Each named one must have its row by number … */
static void find_unordered(struct check *c, const struct check_key *k, const struct pair_kind *kind)
{
    struct buf prefix = {0}, row = {0};
    struct store_iter *it = own_rows(c, k, kind->named, &prefix);
    for (; store_valid(it); store_next(it)) {
        struct store_value v;
        bytes raw = store_key(it), name = bytes_of(raw.p + prefix.n, raw.n - prefix.n);
        bytes number = store_iter_value(it);
        if (number.n != 8) continue; /* told before */
        buf_clear(&row);
        buf_append_bytes(&row, buf_bytes(&prefix));
        buf_append_bytes(&row, number);
        buf_append_bytes(&row, name);
        bool found = store_get(c->store, FAM_SCORE, buf_bytes(&row), &v);
        store_value_release(&v);
        if (!found && !c->failed) tell_pair(c, k, kind, name, get_u64(number.p), "is in no row of the order");
    }
    store_iter_done(it);
    buf_release(&prefix);
    buf_release(&row);
}

/* … and each row by number its named one. */
static void find_unnamed(struct check *c, const struct check_key *k, const struct pair_kind *kind)
{
    struct buf prefix = {0}, row = {0};
    struct store_iter *it = own_rows(c, k, FAM_SCORE, &prefix);
    for (; store_valid(it); store_next(it)) {
        struct store_value v;
        bytes raw = store_key(it), sub = bytes_of(raw.p + prefix.n, raw.n - prefix.n);
        if (sub.n < 8) continue; /* told before */
        bytes name = bytes_of(sub.p + 8, sub.n - 8);
        buf_clear(&row);
        buf_append_bytes(&row, buf_bytes(&prefix));
        buf_append_bytes(&row, name);
        bool found = store_get(c->store, kind->named, buf_bytes(&row), &v);
        bool equal = found && bytes_eq(v.b, bytes_of(sub.p, 8));
        store_value_release(&v);
        if (!equal && !c->failed)
            tell_pair(c, k, kind, name, get_u64(sub.p),
                      found ? "is in the order under another number than its own"
                            : "is in the order, but missing");
    }
    store_iter_done(it);
    buf_release(&prefix);
    buf_release(&row);
}

static void expect_same(struct check *c, struct check_key *k, const struct pair_kind *kind,
                        const struct pairs *named, const struct pairs *ordered)
{
    if (c->failed || (named->n == ordered->n && named->sum == ordered->sum)) return;
    u64 before = c->problems;
    find_unordered(c, k, kind);
    find_unnamed(c, k, kind);
    if (c->problems == before && !c->failed)
        check_problem(c, k, "%llu %ss, but %llu %ss", LLU(named->n), kind->name,
                      LLU(ordered->n), kind->other);
}

/* The rows of FAM_SCORE: number · name. */
static bool ordered_row(struct check *c, struct check_key *k, u64 *number, bytes *name)
{
    bytes sub;
    for (; own_row(c, k, FAM_SCORE, &sub); check_next(c, FAM_SCORE)) {
        if (sub.n >= 8) {
            *number = get_u64(sub.p);
            *name = bytes_of(sub.p + 8, sub.n - 8);
            expect_empty(c, k, FAM_SCORE, "of the order");
            return true;
        }
        check_problem(c, k, "a row of the order is too short");
    }
    return false;
}

/* -- lists ---------------------------------------------------------------------------------------- */

static void check_list(struct check *c, struct check_key *k)
{
    u64 expected = k->m.head, n = 0, index;
    bool told = false;
    bytes sub;
    if (k->m.head > k->m.tail || k->m.tail - k->m.head != k->m.size)
        check_problem(c, k, "its size is %llu, but it reaches from %llx to %llx", LLU(k->m.size),
                      LLU(k->m.head), LLU(k->m.tail));
    for (; own_row(c, k, FAM_DATA, &sub); check_next(c, FAM_DATA), n++) {
        index = sub.n == 8 ? get_u64(sub.p) : 0;
        if (sub.n != 8) check_problem(c, k, "an element's index has %zu bytes", sub.n);
        else if (index < k->m.head || index >= k->m.tail)
            check_problem(c, k, "there is an element %llx outside of its ends", LLU(index));
        else if (index != expected && !told) {
            told = true;
            check_problem(c, k, "there is a hole before its element number %llu",
                          LLU(index - k->m.head));
        }
        expected = index + 1;
    }
    if (!told && !c->failed && n && expected < k->m.tail)
        check_problem(c, k, "elements are missing at its tail");
    expect_size(c, k, n);
    expect_nothing_else(c, k);
}

/* -- hashes and sets --------------------------------------------------------------------------------- */

static void check_set(struct check *c, struct check_key *k)
{
    bytes sub;
    u64 n = 0;
    for (; own_row(c, k, FAM_DATA, &sub); check_next(c, FAM_DATA), n++)
        expect_empty(c, k, FAM_DATA, "of a member");
    expect_size(c, k, n);
    expect_nothing_else(c, k);
}

/* Passes field deadlines up to this field (p NULL: all); *deadline_ms is this field's, or 0. */
static void take_deadlines(struct check *c, struct check_key *k, bytes field, struct pairs *named,
                           i64 *deadline_ms)
{
    bytes sub;
    *deadline_ms = 0;
    for (; own_row(c, k, FAM_FIELD, &sub); check_next(c, FAM_FIELD)) {
        int order = field.p ? bytes_cmp(sub, field) : -1;
        if (order > 0) return;
        bytes value = lane_value(c, FAM_FIELD);
        if (value.n != 8) {
            check_problem(c, k, "a field's deadline has %zu bytes", value.n);
            continue;
        }
        add_pair(named, sub, get_u64(value.p));
        c->field_deadlines++;
        if (order == 0) *deadline_ms = (i64)get_u64(value.p);
        else tell_pair(c, k, &fields, sub, get_u64(value.p), "has a deadline, but is missing");
    }
}

static void check_hash(struct check *c, struct check_key *k)
{
    struct pairs named = {0}, ordered = {0};
    i64 nearest_ms = 0, deadline_ms;
    u64 n = 0, number;
    bytes sub, name;
    for (; own_row(c, k, FAM_DATA, &sub); check_next(c, FAM_DATA), n++) {
        take_deadlines(c, k, sub, &named, &deadline_ms);
        if (deadline_ms && (!nearest_ms || deadline_ms < nearest_ms)) nearest_ms = deadline_ms;
    }
    take_deadlines(c, k, (bytes){0}, &named, &deadline_ms);
    expect_size(c, k, n);
    for (; ordered_row(c, k, &number, &name); check_next(c, FAM_SCORE)) add_pair(&ordered, name, number);
    expect_same(c, k, &fields, &named, &ordered);
    expect_none(c, k, FAM_RANK, "rank blocks");
    expect_none(c, k, FAM_STREAM, "rows of a stream");
    if (c->failed) return;
    if (!!named.n != k->m.field_deadlines)
        check_problem(c, k, named.n ? "fields have deadlines, but its flags say that none has"
                                    : "its flags say that fields have deadlines, but none has");
    if (nearest_ms) check_fields_filed(c, k, nearest_ms);
}

/* -- sorted sets -------------------------------------------------------------------------------------- */

/* The blocks by which a big sorted set finds ranks, beside a walk over its entries. */
struct blocks {
    struct ranks *ranks;
    const struct ctree_leaf *at; /* NULL: there are none, or nothing is to be said of them any more */
    u32 left;                    /* entries of this block that are still to come */
    struct spot start, next;     /* where it begins, and where the one after it does */
};

static void enter_block(struct blocks *b, const struct ctree_leaf *leaf)
{
    b->at = leaf;
    if (!leaf) return;
    b->left = ranks_start((const struct block *)leaf, &b->start);
    b->next = SPOT_END;
    if (leaf->next) ranks_start((const struct block *)leaf->next, &b->next);
}

static void open_blocks(struct check *c, struct check_key *k, struct blocks *b)
{
    struct buf prefix = {0}, after = {0};
    own_range(k, &prefix, &after);
    b->ranks = ranks_new(k->m.version);
    ranks_load(b->ranks, c->store, buf_bytes(&prefix), buf_bytes(&after), k->m.size);
    if (b->ranks->wipe && !c->failed)
        check_problem(c, k, "its blocks, which ranks are counted by, don't add up to its size");
    enter_block(b, b->ranks->blocks.head);
    buf_release(&prefix);
    buf_release(&after);
}

static void see_entry(struct check *c, struct check_key *k, struct blocks *b, double score, bytes member)
{
    if (!b->at) return;
    if (b->left == 0) enter_block(b, b->at->next);
    bool inside = b->at && !before_spot(score, member, &b->start) && before_spot(score, member, &b->next);
    b->left--;
    if (inside) return;
    b->at = NULL;
    tell_pair(c, k, &members, member, codec_score(score), "is not in the block that ranks count it in");
}

static u64 check_members(struct check *c, struct check_key *k, struct pairs *named)
{
    u64 n = 0;
    bytes sub;
    for (; own_row(c, k, FAM_DATA, &sub); check_next(c, FAM_DATA), n++) {
        bytes value = lane_value(c, FAM_DATA);
        if (value.n != 8) {
            check_problem(c, k, "a member's score has %zu bytes", value.n);
            continue;
        }
        u64 number = get_u64(value.p);
        if (isnan(codec_score_read(number)))
            tell_pair(c, k, &members, sub, number, "has no number as its score");
        add_pair(named, sub, number);
    }
    return n;
}

static void check_zset(struct check *c, struct check_key *k)
{
    struct pairs named = {0}, ordered = {0};
    struct blocks blocks;
    u64 number;
    bytes name;
    expect_size(c, k, check_members(c, k, &named));
    open_blocks(c, k, &blocks);
    for (; ordered_row(c, k, &number, &name); check_next(c, FAM_SCORE)) {
        add_pair(&ordered, name, number);
        see_entry(c, k, &blocks, codec_score_read(number), name);
    }
    ranks_free(blocks.ranks);
    expect_same(c, k, &members, &named, &ordered);
    expect_none(c, k, FAM_FIELD, "field deadlines");
    expect_none(c, k, FAM_STREAM, "rows of a stream");
}

/* -- streams ------------------------------------------------------------------------------------------- */

/* What its rows and its head mean is the commands' to know; but its size counts some of the rows. */
static void check_stream(struct check *c, struct check_key *k)
{
    bytes sub;
    u64 n = 0;
    for (; own_row(c, k, FAM_STREAM, &sub); check_next(c, FAM_STREAM)) n++;
    if (!c->failed && k->m.size > n)
        check_problem(c, k, "its size is stored as %llu, but it has %llu rows", LLU(k->m.size), LLU(n));
    c->elements[TYPE_STREAM] += n;
    expect_none(c, k, FAM_DATA, "elements");
    expect_none(c, k, FAM_SCORE, "rows of an order");
    expect_none(c, k, FAM_RANK, "rank blocks");
    expect_none(c, k, FAM_FIELD, "field deadlines");
}

/* -- a key --------------------------------------------------------------------------------------------- */

void check_key(struct check *c, struct check_key *k)
{
    bytes sub;
    read_meta(c, k);
    if (k->found) {
        c->keys[k->m.type]++;
        if (k->slot != codec_slot(k->key))
            check_problem(c, k, "it is stored in slot %u, but belongs to %u", k->slot, codec_slot(k->key));
        if (k->m.deadline_ms < 0)
            check_problem(c, k, "its deadline is negative: %lld", LLD(k->m.deadline_ms));
        check_count_key(c, k);
    }
    switch (k->m.type) {
    case TYPE_HASH: check_hash(c, k); break;
    case TYPE_LIST: check_list(c, k); break;
    case TYPE_SET: check_set(c, k); break;
    case TYPE_ZSET: check_zset(c, k); break;
    case TYPE_STREAM: check_stream(c, k); break;
    case TYPE_STRING:
    case TYPE_NONE: break;
    }
    for (int f = FAM_DATA; f < CHECK_LANES; f++)
        while (own_row(c, k, (enum family)f, &sub)) check_next(c, (enum family)f);
}
