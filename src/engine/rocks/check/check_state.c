/* Checks that meta_info and the deadline index agree with the keys found by the walk.
 *
 * Each region has its own position in the deadline index, on which the places of its deadlines depend. */
#include <stdio.h>

#include "engine/rocks/check/check.h"
#include "base/alloc.h"
#include "engine/rocks/companion.h"
#include "engine/rocks/state.h"

/* -- reading meta_info ------------------------------------------------------------------------- */

static struct check_db *db_at(struct check *c, u64 index)
{
    struct check_db *v = (void *)c->dbs.p;
    size_t n = c->dbs.n / sizeof *v;
    while (n-- > 0)
        if (v[n].index == index) return &v[n];
    struct check_db db = {
        .index = index, .found = mem_zalloc(ROCKS_SLOTS * sizeof *db.found),
        .stored = mem_zalloc(ROCKS_SLOTS * sizeof *db.stored),
        .stamps = mem_zalloc(ROCKS_SLOTS * sizeof *db.stamps),
    };
    buf_append(&c->dbs, &db, sizeof db);
    return (struct check_db *)(void *)(c->dbs.p + c->dbs.n) - 1;
}

static void see_counts(void *arg, u64 index, u16 slot, u64 stamp, const struct slot_counts *counts)
{
    struct check_db *db = db_at(arg, index);
    if (stamp < db->stamps[slot]) return;
    db->stamps[slot] = stamp;
    db->stored[slot] = *counts;
}

static struct check_region *region_at(struct check *c, u64 id)
{
    struct check_region *v = (void *)c->regions.p;
    size_t n = c->regions.n / sizeof *v;
    while (n-- > 0)
        if (v[n].r.id == id) return &v[n];
    buf_append(&c->regions, &(struct check_region){.r = {.id = id, .last = ROCKS_SLOTS - 1}}, sizeof *v);
    return (struct check_region *)(void *)(c->regions.p + c->regions.n) - 1;
}

static const struct due_position *position_of(const struct check *c, u16 slot)
{
    static const struct due_position start;
    const struct check_region *v = (const void *)c->regions.p;
    for (size_t n = c->regions.n / sizeof *v; n-- > 0;)
        if (v[n].r.prefix == CHECK_PREFIX && slot >= v[n].r.first && slot <= v[n].r.last)
            return &v[n].position;
    return &start;
}

static struct due_place place_at(const struct check *c, const struct check_key *k, i64 deadline_ms)
{
    return due_place_now(position_of(c, k->slot), deadline_ms, k->index, k->slot, k->key);
}

static void add_index(struct check *c, u32 number, u64 index)
{
    struct check_index i = {number, index};
    buf_append(&c->indexes, &i, sizeof i);
}

static bool read_position(struct check_region *r, bytes value)
{
    buf_clear(&r->position_row);
    buf_append_bytes(&r->position_row, value);
    return due_position_read(buf_bytes(&r->position_row), &r->position);
}

static void see_head(struct check *c, struct check_region *r, const struct state_head *head)
{
    c->applied = MAX(c->applied, head->applied);
    c->last_version = MAX(c->last_version, head->version);
    if (head->stamp >= r->stamp) {
        r->stamp = head->stamp;
        r->clock_ms = head->clock_ms;
    }
    c->clock_ms = MAX(c->clock_ms, head->clock_ms);
}

static bool read_region(struct check *c, struct check_region *r, bytes value)
{
    struct state_head head;
    if (!state_read_region(value, &head, &r->r)) return false;
    see_head(c, r, &head);
    return true;
}

static bool read_log(struct check *c, bytes key, bytes value)
{
    struct state_head head;
    bytes changes;
    if (!state_read_log(key, value, &head, &changes)) return false;
    if (key.p[0] == 'e') see_head(c, region_at(c, get_u64(key.p + 1)), &head);
    return slots_read_changes(changes, head.stamp, see_counts, c);
}

static bool read_shared_row(struct check *c, char kind, bytes key, bytes value)
{
    switch (kind) {
    case 'i':
        if (key.n != 4 || value.n != 8) return false;
        add_index(c, get_u32(key.p), get_u64(value.p));
        return true;
    case 'c':
        if (key.n != 8 || value.n) return false;
        db_at(c, get_u64(key.p))->has_row = true;
        return true;
    case 'b':
        if (key.n != 17) return false;
        return due_counts_load(&c->buckets, get_u64(key.p), (u8)key.p[8], (i64)get_u64(key.p + 9), value);
    case 'f': return value.n <= ENGINE_META_MAX;
    case 'w': return key.n && value.n && value.n <= ENGINE_META_MAX;
    case 'm': return key.n && value.n && value.n <= ENGINE_META_MAX;
    default: return false;
    }
}

/* `id` and `key`: what follows the kind in a row's key. A region's id, or a prefix. */
static bool read_region_row(struct check *c, char kind, u64 id, bytes key, bytes value)
{
    switch (kind) {
    case 's': return key.n == 0 && read_region(c, region_at(c, id), value);
    case 'p': return key.n == 0 && read_position(region_at(c, id), value);
    case 'n': return key.n == 0 && value.n <= ENGINE_REPL_POSITION_MAX;
    default: return id == CHECK_PREFIX && read_shared_row(c, kind, key, value);
    }
}

static bool read_info_row(struct check *c, bytes key, bytes value)
{
    if (key.n == 1 && key.p[0] == 'v') {
        c->made_here = true;
        return value.n == 4 && (get_u32(value.p) == STATE_LAYOUT || get_u32(value.p) == STATE_LAYOUT_BEFORE);
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
    if (key.n < 9) return false;
    if (key.p[0] == 'c' && key.n == 19) return slots_read_base(key, value, see_counts, c);
    if (key.p[0] == 'd' || key.p[0] == 'e') return read_log(c, key, value);
    return read_region_row(c, key.p[0], get_u64(key.p + 1), bytes_of(key.p + 9, key.n - 9), value);
}

/* Each index belongs to one database: the one that was swapped there, or its first. */
static void check_indexes(struct check *c)
{
    const struct check_index *v = (const void *)c->indexes.p;
    size_t n = c->indexes.n / sizeof *v;
    for (size_t i = 0; i < n; i++) {
        bool own = v[i].index == (u64)v[i].number + 1 || v[i].index & CODEC_STAGING, first_is_elsewhere = own;
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

bool check_layout(struct check *c)
{
    struct store_value v;
    bool found = store_get(c->session, FAM_INFO, BYTES_LIT("v"), &v);
    bool older = found && v.b.n == 4 && get_u32(v.b.p) == STATE_LAYOUT_UNCOUNTED;
    store_value_release(&v);
    if (older)
        printf("Can't check it: it has layout %d, which this version upgrades when it is started. Start it "
               "once, then check.\n",
               STATE_LAYOUT_UNCOUNTED);
    return !older;
}

void check_release_state(struct check *c)
{
    struct check_db *db = (void *)c->dbs.p;
    for (size_t i = 0; i < c->dbs.n / sizeof *db; i++) {
        mem_free(db[i].found);
        mem_free(db[i].stored);
        mem_free(db[i].stamps);
    }
    struct check_region *region = (void *)c->regions.p;
    for (size_t i = 0; i < c->regions.n / sizeof *region; i++) buf_release(&region[i].position_row);
    buf_release(&c->regions);
    buf_release(&c->indexes);
    buf_release(&c->dbs);
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

static bool is_filed(struct check *c, const struct check_key *k, i64 deadline_ms, struct due_place *at)
{
    struct buf row = {0};
    struct store_value v;
    bool failed_before = c->failed;
    *at = place_at(c, k, deadline_ms);
    codec_due(&row, &(struct codec_due){CHECK_PREFIX, at->due_ms, at->level, k->index, k->slot, k->key});
    bool found = store_get(c->session, FAM_DEADLINE, buf_bytes(&row), &v);
    store_value_release(&v);
    buf_release(&row);
    c->due_damaged |= c->failed && !failed_before;
    c->failed = failed_before;
    return found;
}

static void expect_filed(struct check *c, const struct check_key *k, i64 deadline_ms, const char *what)
{
    struct due_place at;
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
    c->staging_keys += !check_number(c, k->index, &number);
    if (k->slot >= ROCKS_SLOTS) return;
    db->found[k->slot].keys++;
    db->found[k->slot].timed += k->m.field_deadlines;
    if (deadline_ms == 0) return;
    db->found[k->slot].expires++;
    c->with_deadline++;
    c->dead += !alive(deadline_ms, c->clock_ms);
    if (!c->made_here) return;
    expect_filed(c, k, deadline_ms, "its deadline");
    struct due_place at = place_at(c, k, deadline_ms);
    due_counts_add(&c->buckets, k->index, at, deadline_ms, -1);
}

void check_fields_filed(struct check *c, const struct check_key *k, i64 nearest_ms)
{
    if (!c->made_here) return;
    struct due_place own = place_at(c, k, k->m.deadline_ms), at = place_at(c, k, nearest_ms);
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
    if (!decoded || d.region != CHECK_PREFIX || d.level >= DUE_PLACE_LEVELS || value.n)
        wrong = "can't be decoded";
    else if (d.slot != codec_slot(d.key)) wrong = "has the wrong slot";
    else if (d.due_ms < position_of(c, d.slot)->low_ms)
        wrong = "lies before the place from which the index is read";
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

/* Reports a bucket whose stored counts differ from those found. */
static void check_bucket(void *arg, const struct due_bucket *b)
{
    struct check *c = arg;
    char text[CHECK_DB_TEXT];
    i64 start = due_bucket_start((u32)b->name.level, b->name.bucket);
    if (b->keys == 0 && b->past_start == 0) return;
    check_problem(c, NULL,
                  "database %s: the deadlines from %lld to %lld are counted as %lld more keys (%lld "
                  "ms more in sum) than there are",
                  check_database(c, b->name.index, text), LLD(start), LLD(due_bucket_end(b)), LLD(b->keys),
                  LLD(b->past_start));
}

static void check_slot_counts(struct check *c, const struct check_db *db, u32 slot)
{
    char text[CHECK_DB_TEXT];
    const char *number = check_database(c, db->index, text);
    static const struct slot_counts none;
    const struct slot_counts *f = &db->found[slot], *s = db->has_row ? &db->stored[slot] : &none;
    if (f->keys != s->keys)
        check_problem(c, NULL, "database %s, slot %u: %u keys are counted, but there are %u", number, slot,
                      s->keys, f->keys);
    if (f->expires != s->expires)
        check_problem(c, NULL, "database %s, slot %u: %u keys with a deadline are counted, but there are %u",
                      number, slot, s->expires, f->expires);
    if (f->timed != s->timed)
        check_problem(c, NULL, "database %s, slot %u: %u hashes with field deadlines are counted, but there "
                      "are %u", number, slot, s->timed, f->timed);
}

void check_counts(struct check *c)
{
    if (!c->made_here) return;
    if (c->damaged) {
        puts("Because of the damage, counts were not compared.");
        return;
    }
    due_counts_settle(&c->buckets, check_bucket, c);
    for (size_t at = 0; at < c->dbs.n; at += sizeof(struct check_db))
        for (u32 slot = 0; slot < ROCKS_SLOTS; slot++)
            check_slot_counts(c, (const struct check_db *)(void *)(c->dbs.p + at), slot);
}
