/* Checks one key: its metadata, and that its elements agree with it.
 *
 * Rows of another version than the metadata's are orphans. That is no error: deleting a collection leaves
 * them to compactions. */
#include <math.h>

#include "engine/rocks/check/check.h"
#include "engine/rocks/type/ranks.h"

static bytes lane_value(const struct check *c, enum family f) { return store_iter_value(c->lane[f]); }

/* -- what is there ------------------------------------------------------------------------- */

/* True if the key is dead and a compaction has dropped its value. */
static bool check_is_stub(const struct check *c, const struct codec_meta *m, bytes raw)
{
    struct buf stub = {0};
    codec_meta_stub(&stub, m);
    bool is = m->deadline_ms && !alive(m->deadline_ms, c->clock_ms) && bytes_eq(buf_bytes(&stub), raw);
    buf_release(&stub);
    return is;
}

static void read_meta(struct check *c, struct check_key *k)
{
    bytes rest;
    k->found = k->told_version = k->stub = false;
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
            k->stub = check_is_stub(c, &m, raw);
            c->emptied += k->stub;
        }
    }
}

/* A legacy string: the key itself, or a leftover if the key has metadata. */
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

/* True if the lane is at a row of the key's current version; *sub: the part after the version. Counts and
 * skips orphans. */
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

/* Lists and sets have their elements and no other rows. */
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
    else if (n == 0 && !k->stub) check_problem(c, k, "it is empty");
    c->elements[k->m.type] += n;
}

static void expect_empty(struct check *c, struct check_key *k, enum family f, const char *what)
{
    if (lane_value(c, f).n) check_problem(c, k, "a row %s has a value", what);
}

/* -- rows of an order ------------------------------------------------------------------------ */

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

/* Reads field deadlines up to this field (p NULL: all); *deadline_ms is this field's, or 0. */
static void take_deadlines(struct check *c, struct check_key *k, bytes field, struct check_pairs *named,
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
        check_add_pair(named, sub, get_u64(value.p));
        c->field_deadlines++;
        if (order == 0) *deadline_ms = (i64)get_u64(value.p);
        else check_tell_pair(c, k, &check_fields, sub, get_u64(value.p), "has a deadline, but is missing");
    }
}

static void check_hash(struct check *c, struct check_key *k)
{
    struct check_pairs named = {0}, ordered = {0};
    i64 nearest_ms = 0, deadline_ms;
    u64 n = 0, number;
    bytes sub, name;
    for (; own_row(c, k, FAM_DATA, &sub); check_next(c, FAM_DATA), n++) {
        take_deadlines(c, k, sub, &named, &deadline_ms);
        if (deadline_ms && (!nearest_ms || deadline_ms < nearest_ms)) nearest_ms = deadline_ms;
    }
    take_deadlines(c, k, (bytes){0}, &named, &deadline_ms);
    expect_size(c, k, n);
    for (; ordered_row(c, k, &number, &name); check_next(c, FAM_SCORE))
        check_add_pair(&ordered, name, number);
    check_same_pairs(c, k, &check_fields, &named, &ordered);
    expect_none(c, k, FAM_RANK, "rank blocks");
    expect_none(c, k, FAM_STREAM, "rows of a stream");
    if (c->failed) return;
    if (!!named.n != k->m.field_deadlines && !k->stub)
        check_problem(c, k, named.n ? "fields have deadlines, but its flags say that none has"
                                    : "its flags say that fields have deadlines, but none has");
    if (nearest_ms) check_fields_filed(c, k, nearest_ms);
}

/* -- sorted sets -------------------------------------------------------------------------------------- */

/* The blocks by which a big sorted set finds ranks, beside a walk over its entries. */
struct blocks {
    struct ranks *ranks;
    const struct ctree_leaf *at; /* NULL: there are none, or a problem with them was reported */
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
    check_own_range(k, &prefix, &after);
    b->ranks = ranks_new(k->m.version);
    ranks_load(b->ranks, c->session, buf_bytes(&prefix), buf_bytes(&after), k->m.size);
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
    check_tell_pair(c, k, &check_members, member, codec_score(score),
                    "is not in the block that ranks count it in");
}

static u64 see_members(struct check *c, struct check_key *k, struct check_pairs *named)
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
            check_tell_pair(c, k, &check_members, sub, number, "has no number as its score");
        check_add_pair(named, sub, number);
    }
    return n;
}

static void check_zset(struct check *c, struct check_key *k)
{
    struct check_pairs named = {0}, ordered = {0};
    struct blocks blocks;
    u64 number;
    bytes name;
    expect_size(c, k, see_members(c, k, &named));
    open_blocks(c, k, &blocks);
    for (; ordered_row(c, k, &number, &name); check_next(c, FAM_SCORE)) {
        check_add_pair(&ordered, name, number);
        see_entry(c, k, &blocks, codec_score_read(number), name);
    }
    ranks_free(blocks.ranks);
    check_same_pairs(c, k, &check_members, &named, &ordered);
    expect_none(c, k, FAM_FIELD, "field deadlines");
    expect_none(c, k, FAM_STREAM, "rows of a stream");
}

/* -- streams ------------------------------------------------------------------------------------------- */

/* The commands know what rows and head mean. Here: the size, the number of entries, is at most that of
 * rows. */
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
    for (int f = FAM_DATA; f <= FAM_STREAM; f++)
        while (own_row(c, k, (enum family)f, &sub)) check_next(c, (enum family)f);
    check_companion(c, k);
}
