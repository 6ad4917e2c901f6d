/* The checker's look at meta_info and at the deadline index: what they say must be what the walk over
 * the keys found.
 *
 * Compactions may take keys that are dead by the region's clock, without a word. Such keys are still
 * counted, in their bucket and in their database, until the bucket's visit: that is no fault. */
#include <stdio.h>

#include "engine/rocks/check/check.h"
#include "engine/rocks/companion.h"
#include "engine/rocks/state.h"

/* -- reading meta_info ------------------------------------------------------------------------- */

static struct check_db *db_at(struct check *c, u64 index)
{
    struct check_db *v = (void *)c->dbs.p;
    size_t n = c->dbs.n / sizeof *v;
    while (n-- > 0)
        if (v[n].index == index) return &v[n];
    buf_append(&c->dbs, &(struct check_db){.index = index}, sizeof *v);
    return (struct check_db *)(void *)(c->dbs.p + c->dbs.n) - 1;
}

static void read_counts(struct check *c, u64 index, const char *p)
{
    db_at(c, index)->stored = (struct check_counts){
        .keys = get_u64(p), .expires = get_u64(p + 8),
        .deadlines = (__int128)((unsigned __int128)get_u64(p + 16) << 64 | get_u64(p + 24)),
    };
}

static void add_index(struct check *c, u32 number, u64 index)
{
    struct check_index i = {number, index};
    buf_append(&c->indexes, &i, sizeof i);
}

static bool read_drain(struct check *c, bytes value)
{
    buf_append_bytes(&c->drain_row, value);
    return drain_read(buf_bytes(&c->drain_row), &c->drain);
}

/* What follows the kind and the region in a row's key. */
static bool read_region_row(struct check *c, char kind, bytes key, bytes value)
{
    switch (kind) {
    case 's':
        if (key.n || value.n < 24) return false;
        c->applied = get_u64(value.p);
        c->last_version = get_u64(value.p + 8);
        c->clock_ms = (i64)get_u64(value.p + 16);
        return true;
    case 'i':
        if (key.n != 4 || value.n != 8) return false;
        add_index(c, get_u32(key.p), get_u64(value.p));
        return true;
    case 'c':
        if (key.n != 8 || (value.n != 40 && value.n != 32)) return false; /* 32: of older versions */
        read_counts(c, get_u64(key.p), value.p);
        return true;
    case 'b':
        if (key.n != 17) return false;
        return tally_load(&c->buckets, get_u64(key.p), (u8)key.p[8], (i64)get_u64(key.p + 9), value);
    case 'p': return key.n == 0 && read_drain(c, value);
    case 'n': return key.n == 0 && value.n <= ENGINE_NOTE_MAX;
    case 'f': return value.n <= ENGINE_META_MAX;
    default: return false;
    }
}

static bool read_info_row(struct check *c, bytes key, bytes value)
{
    if (key.n == 1 && key.p[0] == 'v') {
        c->made_here = true;
        return value.n == 4 && get_u32(value.p) == STATE_LAYOUT;
    }
    if (key.n == 1 && key.p[0] == 'l') {
        c->legacy = true;
        buf_append_bytes(&c->legacy_position, value);
        return true;
    }
    if (key.n && key.p[0] == COMPANION_MARK) {
        struct codec_key k;
        bytes p = bytes_of(key.p + 1, key.n - 1);
        check_add_mark(&c->marks, p);
        return codec_key_read(p, &k) && k.rest.n == 0 && value.n == 0;
    }
    if (key.n < 9 || get_u64(key.p + 1) != RK_REGION) return false;
    return read_region_row(c, key.p[0], bytes_of(key.p + 9, key.n - 9), value);
}

/* Each index belongs to one database: the one that was swapped there, or its first. */
static void check_indexes(struct check *c)
{
    const struct check_index *v = (const void *)c->indexes.p;
    size_t n = c->indexes.n / sizeof *v;
    for (size_t i = 0; i < n; i++) {
        bool own = v[i].index == (u64)v[i].number + 1 || v[i].index & CODEC_SPARE, first_is_elsewhere = own;
        for (size_t j = 0; j < n; j++) {
            first_is_elsewhere |= (u64)v[j].number + 1 == v[i].index;
            if (j < i && v[j].index == v[i].index)
                check_problem(c, NULL, "the databases %u and %u have the same index", v[j].number,
                              v[i].number);
        }
        if (!first_is_elsewhere)
            check_problem(c, NULL, "the databases %u and %llu have the same index", v[i].number,
                          LLU(v[i].index) - 1);
    }
}

void check_read_state(struct check *c)
{
    struct buf name = {0};
    struct store_iter *it = store_iter(c->session, FAM_INFO, (bytes){0}, (bytes){0}, STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        if (read_info_row(c, store_key(it), store_iter_value(it))) continue;
        buf_clear(&name);
        check_quote(&name, store_key(it));
        check_problem(c, NULL, "the row %.*s of meta_info can't be decoded", (int)name.n, name.p);
    }
    store_iter_done(it);
    buf_release(&name);
    check_indexes(c);
    if (!c->failed) return;
    check_problem(c, NULL, "meta_info can't be read (a file is damaged)");
    c->failed = c->made_here = false;
    c->damaged = true;
}

/* -- keys with a deadline ------------------------------------------------------------------------ */

static bool is_filed(struct check *c, const struct check_key *k, i64 deadline_ms, struct place *at)
{
    struct buf row = {0};
    struct store_value v;
    bool failed_before = c->failed;
    *at = place_now(&c->drain, deadline_ms, k->index, k->slot, k->key);
    codec_due(&row, &(struct codec_due){RK_REGION, at->due_ms, at->level, k->index, k->slot, k->key});
    bool found = store_get(c->session, FAM_DEADLINE, buf_bytes(&row), &v);
    store_value_release(&v);
    buf_release(&row);
    c->due_damaged |= c->failed && !failed_before;
    c->failed = failed_before;
    return found;
}

static void expect_filed(struct check *c, const struct check_key *k, i64 deadline_ms, const char *what)
{
    struct place at;
    bool found = is_filed(c, k, deadline_ms, &at);
    c->due_used += found;
    if (!found && !c->due_damaged)
        check_problem(c, k, "%s %lld is not in the deadline index (level %u, due %lld)", what,
                      LLD(deadline_ms), at.level, LLD(at.due_ms));
}

void check_count_key(struct check *c, const struct check_key *k)
{
    i64 deadline_ms = k->m.deadline_ms;
    struct check_db *db = db_at(c, k->index);
    u32 number;
    c->spare_keys += !check_number(c, k->index, &number);
    db->found.keys++;
    if (deadline_ms == 0) return;
    db->found.expires++;
    db->found.deadlines += deadline_ms;
    c->with_deadline++;
    c->dead += !alive(deadline_ms, c->clock_ms);
    if (!c->made_here) return;
    expect_filed(c, k, deadline_ms, "its deadline");
    struct place at = place_now(&c->drain, deadline_ms, k->index, k->slot, k->key);
    tally_count(&c->buckets, k->index, at, deadline_ms, -1);
}

void check_fields_filed(struct check *c, const struct check_key *k, i64 nearest_ms)
{
    if (!c->made_here) return;
    struct place own = place_now(&c->drain, k->m.deadline_ms, k->index, k->slot, k->key);
    struct place at = place_now(&c->drain, nearest_ms, k->index, k->slot, k->key);
    bool shared = k->m.deadline_ms && own.due_ms == at.due_ms && own.level == at.level;
    if (!shared) expect_filed(c, k, nearest_ms, "its nearest field deadline");
}

/* -- the index itself -------------------------------------------------------------------------------- */

static void check_due_row(struct check *c, bytes raw, bytes value)
{
    struct codec_due d;
    struct buf name = {0};
    bool decoded = codec_due_read(raw, &d);
    if (decoded) check_quote(&name, d.key);
    else check_quote(&name, raw);
    const char *wrong = NULL;
    if (!decoded || d.region != RK_REGION || d.level >= PLACE_LEVELS || value.n) wrong = "can't be decoded";
    else if (d.slot != codec_slot(d.key)) wrong = "has the wrong slot";
    else if (d.due_ms < c->drain.low_ms) wrong = "lies before the place from which the index is read";
    if (wrong)
        check_problem(c, NULL, "the row of the deadline index for %.*s %s", (int)name.n, name.p, wrong);
    buf_release(&name);
}

void check_due_rows(struct check *c)
{
    struct store_iter *it = store_iter(c->session, FAM_DEADLINE, (bytes){0}, (bytes){0}, STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        c->due_rows++;
        check_due_row(c, store_key(it), store_iter_value(it));
    }
    store_iter_done(it);
    c->due_damaged |= c->failed;
    if (c->due_damaged)
        check_problem(c, NULL, "the deadline index can't be read (a file is damaged)");
    c->failed = false;
}

/* -- counts --------------------------------------------------------------------------------------------- */

/* A bucket as stored less what was found. */
static void check_bucket(void *arg, const struct bucket *b)
{
    struct check *c = arg;
    char text[CHECK_DB_TEXT];
    i64 start = bucket_start((u32)b->name.level, b->name.bucket);
    if (b->keys == 0 && b->past_start == 0) return;
    if ((i64)b->keys > 0 && start <= c->clock_ms) {
        struct check_db *db = db_at(c, b->name.index);
        c->taken += b->keys;
        db->found.keys += b->keys;
        db->found.expires += b->keys;
        db->found.deadlines += (__int128)start * b->keys + b->past_start;
        return;
    }
    check_problem(c, NULL, "database %s: the deadlines from %lld to %lld are counted as %lld more keys (%lld "
                  "ms more in sum) than there are", check_database(c, b->name.index, text), LLD(start),
                  LLD(bucket_end(b)), LLD(b->keys), LLD(b->past_start));
}

static void check_db_counts(struct check *c, const struct check_db *db)
{
    char text[CHECK_DB_TEXT];
    const char *number = check_database(c, db->index, text);
    const struct check_counts *f = &db->found, *s = &db->stored;
    if (f->keys != s->keys)
        check_problem(c, NULL, "database %s: %llu keys are counted, but there are %llu", number,
                      LLU(s->keys), LLU(f->keys));
    if (f->expires != s->expires)
        check_problem(c, NULL, "database %s: %llu keys with a deadline are counted, but there are %llu",
                      number, LLU(s->expires), LLU(f->expires));
    else if (f->deadlines != s->deadlines)
        check_problem(c, NULL, "database %s: the sum of the deadlines is off by %lld ms", number,
                      LLD(s->deadlines - f->deadlines));
}

void check_counts(struct check *c)
{
    if (!c->made_here) return;
    if (c->damaged) {
        puts("Because of the damage, counts were not compared.");
        return;
    }
    tally_settle(&c->buckets, check_bucket, c);
    for (size_t at = 0; at < c->dbs.n; at += sizeof(struct check_db))
        check_db_counts(c, (const struct check_db *)(void *)(c->dbs.p + at));
}
