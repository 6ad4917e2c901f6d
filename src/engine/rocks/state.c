#include "engine/rocks/state.h"

#include "engine/rocks/keys.h"

#define LAYOUT_KEY BYTES_LIT("v")

static bytes state_key(struct rk *rk, char kind, u64 a, bool has_b, u64 b)
{
    struct buf *k = &rk->scratch;
    buf_clear(k);
    buf_append_char(k, kind);
    append_u64(k, a);
    if (has_b) append_u64(k, b);
    return buf_bytes(k);
}

static bytes index_key(struct rk *rk, u32 number)
{
    struct buf *k = &rk->scratch;
    state_key(rk, 'i', rk->region.prefix, false, 0);
    put_u32(buf_reserve(k, 4), number);
    k->n += 4;
    return buf_bytes(k);
}

static bytes counts_key(struct rk *rk, const struct rk_db *db)
{
    return state_key(rk, 'c', rk->region.prefix, true, db->index);
}

static bytes repl_position_key(struct rk *rk) { return state_key(rk, 'n', rk->region.id, false, 0); }

/* -- a new database ------------------------------------------------------------------------- */

static void write_layout(struct store_session *s)
{
    char raw[4];
    put_u32(raw, STATE_LAYOUT);
    store_put(s, FAM_INFO, LAYOUT_KEY, bytes_of(raw, sizeof raw));
}

static bool family_is_empty(struct store_session *s, enum family f)
{
    struct store_iter *it = store_iter(s, f, (bytes){0}, (bytes){0}, STORE_ONCE);
    store_seek_first(it);
    bool any = store_valid(it);
    store_iter_done(it);
    return !any;
}

bool state_create(struct store *store, struct buf *why)
{
    struct store_value layout;
    bool failed = false;
    struct store_session *s = store_session_open(store, &failed);
    bool there = store_get(s, FAM_INFO, LAYOUT_KEY, &layout);
    if (!there && family_is_empty(s, FAM_META) && family_is_empty(s, FAM_DATA)) write_layout(s);
    store_value_release(&layout);
    bool ok = !failed && store_write(s);
    if (!ok) buf_append_str(why, "the database's own state can't be read or written; see the log");
    store_session_close(s);
    return ok;
}

/* -- versions -------------------------------------------------------------------------------- */

/* Engines of one database share the counter of versions: after a split or a merge a key belongs to another
 * engine. */
u64 state_next_version(struct rk *rk, u64 at_least)
{
    u64 last = atomic_load_explicit(&rk->db->last_version, memory_order_relaxed), next;
    do next = MAX(last + 1, at_least);
    while (!atomic_compare_exchange_weak(&rk->db->last_version, &last, next));
    return rk->last_version = next;
}

void state_raise_version(struct rk *rk, u64 version)
{
    u64 last = atomic_load_explicit(&rk->db->last_version, memory_order_relaxed);
    while (last < version && !atomic_compare_exchange_weak(&rk->db->last_version, &last, version)) {}
}

/* An index that was never used; it has no keys. */
static void renew_index(struct rk *rk, struct rk_db *db)
{
    db->index = CODEC_STAGING | state_next_version(rk, 0);
    db->all_cached = true;
}

/* -- loading -------------------------------------------------------------------------------- */

/* A value of at least n bytes; false if there is none. */
static bool state_load_row(struct rk *rk, bytes key, size_t n, char *out)
{
    struct store_value v;
    if (!store_get(rk->session, FAM_INFO, key, &v)) return false;
    bool fits = v.b.n >= n;
    if (fits) memcpy(out, v.b.p, n);
    store_value_release(&v);
    return fits;
}

/* The last versions of all regions: slots may have moved between them. */
static void load_versions(struct rk *rk)
{
    struct store_iter *it = store_iter(rk->session, FAM_INFO, BYTES_LIT("s"), BYTES_LIT("t"), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it))
        if (store_iter_value(it).n >= 16) state_raise_version(rk, get_u64(store_iter_value(it).p + 8));
    store_iter_done(it);
}

static bool is_default_region(const struct rocks_region *r)
{
    return r->id == 1 && r->prefix == 1 && r->first == 0 && r->last == ROCKS_SLOTS - 1;
}

/* What follows the first 24 bytes of a row 's'. False: they are not a region's. */
bool state_read_region(bytes value, struct rocks_region *out)
{
    if (value.n == 24) *out = (struct rocks_region){out->id, 1, 0, ROCKS_SLOTS - 1};
    else if (value.n == 36)
        *out = (struct rocks_region){
            out->id, get_u64(value.p + 24), get_u16(value.p + 32), get_u16(value.p + 34),
        };
    else return false;
    return out->first <= out->last && out->last < ROCKS_SLOTS;
}

void state_regions_each(struct store *store, bool (*each)(void *arg, const struct rocks_region *r), void *arg)
{
    bool failed = false, more = true;
    struct store_session *s = store_session_open(store, &failed);
    struct store_iter *it = store_iter(s, FAM_INFO, BYTES_LIT("s"), BYTES_LIT("t"), STORE_ONCE);
    for (store_seek_first(it); more && store_valid(it); store_next(it)) {
        struct rocks_region r = {0};
        bytes key = store_key(it), value = store_iter_value(it);
        if (key.n != 9) continue;
        r.id = get_u64(key.p + 1);
        if (state_read_region(value, &r)) more = each(arg, &r);
    }
    store_iter_done(it);
    store_session_close(s);
}

/* False: the region is stored with other slots than it is opened with. */
static bool load_region(struct rk *rk, struct buf *why)
{
    struct store_value v;
    struct rocks_region stored = {.id = rk->region.id};
    rk->state_changed = false;
    rk->applied_seq = rk->last_version = 0;
    load_versions(rk);
    rk->new_region = !store_get(rk->session, FAM_INFO, state_key(rk, 's', rk->region.id, false, 0), &v);
    if (rk->new_region) return true;
    bool sound = v.b.n >= 24 && state_read_region(v.b, &stored);
    if (sound) {
        rk->applied_seq = get_u64(v.b.p);
        rk->last_version = get_u64(v.b.p + 8);
        rk->clock_ms = (i64)get_u64(v.b.p + 16);
    }
    store_value_release(&v);
    const struct rocks_region *r = &rk->region;
    bool same = stored.prefix == r->prefix && stored.first == r->first && stored.last == r->last;
    if (sound && same) return true;
    buf_printf(why, "region %llu has the slots %u to %u in this database, not %u to %u: a database with "
               "several regions is a cluster node's", (unsigned long long)r->id, stored.first, stored.last,
               r->first, r->last);
    return false;
}

static void load_repl_position(struct rk *rk)
{
    struct store_value v;
    if (!store_get(rk->session, FAM_INFO, repl_position_key(rk), &v)) return;
    if (v.b.n <= ENGINE_REPL_POSITION_MAX) buf_append_bytes(&rk->repl_position, v.b);
    buf_append_bytes(&rk->base.repl_position.text, buf_bytes(&rk->repl_position));
    store_value_release(&v);
}

static void load_indexes(struct rk *rk)
{
    for (u32 i = 0; i < rk_all(rk); i++) {
        char raw[8];
        struct rk_db *db = rk->dbs[i];
        db->number = db->stored_number = i;
        db->all_cached = true; /* until a key is met */
        if (rk_is_staging(rk, db)) renew_index(rk, db);
        else db->index = state_load_row(rk, index_key(rk, i), sizeof raw, raw) ? get_u64(raw) : i + 1;
    }
}

/* The number of an index's database, possibly above `databases`. False: it is a staging one. */
static bool number_of(struct rk *rk, u64 index, u64 *number)
{
    bool found = false, first = !(index & CODEC_STAGING); /* it may be the one its database began with */
    bytes from = state_key(rk, 'i', rk->region.prefix, false, 0);
    struct store_iter *it = store_iter(rk->session, FAM_INFO, from, BYTES_LIT("j"), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        bytes key = store_key(it), value = store_iter_value(it);
        if (key.n != 13 || value.n < 8) continue;
        u32 database = get_u32(key.p + 9);
        first = first && database + 1 != index;
        if (get_u64(value.p) != index) continue;
        found = true;
        *number = database;
    }
    store_iter_done(it);
    if (!found && first) *number = index - 1;
    return found || first;
}

/* -- what a crash has left in spare databases ------------------------------------------------- */

/* The row 'c' of an index, and the counts per slot below it. */
static void delete_counts(struct rk *rk, const struct rk_db *db)
{
    struct buf to = {0};
    bytes from = counts_key(rk, db);
    buf_append_bytes(&to, from);
    codec_after_prefix(&to);
    store_delete(rk->session, FAM_INFO, from);
    store_delete_range(rk->session, FAM_INFO, from, buf_bytes(&to));
    buf_release(&to);
}

static void delete_index(struct rk *rk, u64 index)
{
    struct rk_db db = {.index = index};
    struct buf to = {0};
    keys_delete_all(rk, &db);
    delete_counts(rk, &db);
    bytes buckets = state_key(rk, 'b', rk->region.prefix, true, index);
    buf_append_bytes(&to, buckets);
    codec_after_prefix(&to);
    store_delete_range(rk->session, FAM_INFO, buckets, buf_bytes(&to));
    buf_release(&to);
}

/* All databases that have, or had, keys have counts. If one can't be emptied now, that does no harm: the
 * next start tries again. */
static void empty_staging(struct rk *rk)
{
    struct buf found = {0};
    u64 number;
    bytes from = state_key(rk, 'c', rk->region.prefix, false, 0);
    struct store_iter *it = store_iter(rk->session, FAM_INFO, from, BYTES_LIT("d"), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        bytes key = store_key(it);
        if (key.n != 17) continue;
        u64 index = get_u64(key.p + 9);
        if (!number_of(rk, index, &number)) append_u64(&found, index);
    }
    store_iter_done(it);
    for (size_t at = 0; at < found.n; at += 8) delete_index(rk, get_u64(found.p + at));
    if (!store_batch_empty(rk->session) && store_write(rk->session))
        for (size_t at = 0; at < found.n; at += 8)
            keys_drop_files(rk, &(struct rk_db){.index = get_u64(found.p + at)});
    buf_release(&found);
}

/* Keys are ordered by index, so one seek leads from each database to the next. */
static bool ours_only(struct rk *rk, enum family f, struct buf *why)
{
    struct buf at = {0}, end = {0};
    struct codec_key k;
    u64 stranger = 0, number = 0;
    codec_index_prefix(&at, rk->region.prefix, CODEC_STAGING);
    codec_index_prefix(&end, rk->region.prefix + 1, CODEC_STAGING);
    struct store_iter *it = store_iter(rk->session, f, buf_bytes(&at), buf_bytes(&end), STORE_ONCE);
    store_seek_first(it);
    while (!stranger && store_valid(it) && codec_key_read(store_key(it), &k)) {
        struct rk_db *db = rk_db_of(rk, k.index);
        if (db) db->all_cached = false;
        else if (number_of(rk, k.index, &number)) stranger = k.index;
        buf_clear(&at);
        codec_index_prefix(&at, rk->region.prefix, k.index);
        codec_after_prefix(&at);
        store_seek(it, buf_bytes(&at));
    }
    store_iter_done(it);
    buf_release(&at);
    buf_release(&end);
    if (!stranger) return true;
    buf_printf(why, "database %llu has keys, but there are to be %u databases only, which would hide them: "
               "set 'databases' to %llu or more", (unsigned long long)number, rk->base.databases,
               (unsigned long long)number + 1);
    return false;
}

/* A region without stored state must have no keys: otherwise it was not split off properly, and its counts
 * and the buckets of its deadlines are unknown. */
static bool is_empty_if_new(struct rk *rk, struct buf *why)
{
    if (!rk->new_region || rk_is_whole(rk)) return true;
    bool any = false;
    for (u32 i = 0; i < rk->base.databases && !any; i++) {
        struct buf from = {0}, to = {0};
        keys_range(rk, rk->dbs[i], &from, &to);
        bytes lower = buf_bytes(&from), upper = buf_bytes(&to);
        struct store_iter *it = store_iter(rk->session, FAM_META, lower, upper, STORE_ONCE);
        store_seek_first(it);
        any = store_valid(it);
        store_iter_done(it);
        buf_release(&from);
        buf_release(&to);
    }
    if (any)
        buf_printf(why, "region %llu is not in this database, but its slots (%u to %u) have keys",
                   (unsigned long long)rk->region.id, rk->region.first, rk->region.last);
    return !any;
}

static bool know_layout(struct rk *rk, struct buf *why)
{
    char raw[4];
    rk->foreign = !state_load_row(rk, LAYOUT_KEY, sizeof raw, raw);
    u32 layout = rk->foreign ? STATE_LAYOUT : get_u32(raw);
    rk->old_layout = layout == STATE_LAYOUT_BEFORE;
    if (rk->base.failed || layout == STATE_LAYOUT || layout == STATE_LAYOUT_BEFORE) return true;
    buf_printf(why,
               "the database has layout %u, this version of Mayfly reads layouts %d and %d: BGSAVE it with "
               "the one that made it, then start this one in a new folder with --import-rdb",
               layout, STATE_LAYOUT_BEFORE, STATE_LAYOUT);
    return false;
}

bool state_load(struct rk *rk, struct buf *why)
{
    if (!know_layout(rk, why) || !load_region(rk, why)) return false;
    load_repl_position(rk);
    load_indexes(rk);
    if (rk->staging) empty_staging(rk);
    if (!rk->old_layout) slots_load(rk);
    bool ours = ours_only(rk, FAM_META, why) && is_empty_if_new(rk, why);
    if (!rk->base.failed) return ours;
    buf_clear(why);
    buf_append_str(why, "the database's own state can't be read; see the log, and run mayfly-server --check "
                   "on the directory");
    return false;
}

bool state_covers_data(struct rk *rk, struct buf *why) { return ours_only(rk, FAM_DATA, why); }

/* -- writing ---------------------------------------------------------------------------------- */

static void write_index(struct rk *rk, const struct rk_db *db)
{
    char raw[8];
    put_u64(raw, db->index);
    store_put(rk->session, FAM_INFO, index_key(rk, db->number), bytes_of(raw, sizeof raw));
}

static bool is_staging_emptied(const struct rk *rk, const struct rk_db *db)
{
    bool empty = db->count == 0 && !db->has_companions;
    return rk_is_staging(rk, db) && empty && (db->slots.changed || db->flushed || db->renumbered);
}

/* Of a staging database only this is stored: that it has keys or companions. */
static bool needs_row(const struct rk *rk, const struct rk_db *db)
{
    return db->slots.v || (rk_is_staging(rk, db) && (db->renumbered || db->has_companions));
}

static void write_database(struct rk *rk, struct rk_db *db)
{
    if (UNLIKELY(is_staging_emptied(rk, db))) delete_counts(rk, db);
    else if (UNLIKELY(!db->has_row && needs_row(rk, db)))
        store_put(rk->session, FAM_INFO, counts_key(rk, db), (bytes){0});
    if (db->renumbered && !rk_is_staging(rk, db)) write_index(rk, db);
}

static void write_repl_position(struct rk *rk)
{
    const struct engine_repl_position *position = &rk->base.repl_position;
    if (LIKELY(!position->changed)) return;
    CHECK(position->text.n <= ENGINE_REPL_POSITION_MAX);
    store_put(rk->session, FAM_INFO, repl_position_key(rk), buf_bytes(&position->text));
}

/* A lone server's slots are not stored. */
static void write_region(struct rk *rk, const struct rocks_region *r, u64 seq)
{
    char raw[36];
    put_u64(raw, seq);
    put_u64(raw + 8, rk->last_version);
    put_u64(raw + 16, (u64)rk_clock(rk));
    put_u64(raw + 24, r->prefix);
    put_u16(raw + 32, r->first);
    put_u16(raw + 34, r->last);
    store_put(rk->session, FAM_INFO, state_key(rk, 's', r->id, false, 0),
              bytes_of(raw, is_default_region(r) ? 24 : sizeof raw));
}

void state_commit(struct rk *rk, u64 seq)
{
    slots_write(rk);
    for (u32 i = 0; i < rk_changed(rk); i++) write_database(rk, rk->dbs[i]);
    write_repl_position(rk);
    if (rk->foreign || rk->old_layout) write_layout(rk->session);
    struct rocks_region r = rk->region;
    if (UNLIKELY(rk->cut.pending)) {
        write_region(rk, &rk->cut.child, rk->cut.child_seq);
        r.last = (u16)(rk->cut.child.first - 1);
    }
    write_region(rk, &r, seq);
}

static void settle_repl_position(struct rk *rk, bool kept)
{
    struct engine_repl_position *position = &rk->base.repl_position;
    if (LIKELY(!position->changed)) return;
    struct buf *to = kept ? &rk->repl_position : &position->text,
               *from = kept ? &position->text : &rk->repl_position;
    buf_clear(to);
    buf_append_bytes(to, buf_bytes(from));
    position->changed = false;
}

void state_committed(struct rk *rk, u64 seq)
{
    rk->applied_seq = seq;
    rk->state_changed = rk->foreign = rk->old_layout = rk->new_region = false;
    if (UNLIKELY(rk->staging_touched)) rk->staging_used = false;
    for (u32 i = 0; i < rk_changed(rk); i++) {
        struct rk_db *db = rk->dbs[i];
        bool emptied = db->flushed || (db->renumbered && !rk->legacy); /* old strings are not counted */
        db->has_row = !is_staging_emptied(rk, db) && (db->has_row || needs_row(rk, db));
        if (rk_is_staging(rk, db) && db->count == 0 && !db->has_companions && emptied) renew_index(rk, db);
        rk->staging_used |= rk_is_staging(rk, db) && db->count;
        db->renumbered = db->flushed = false;
        db->stored_number = i;
    }
    slots_committed(rk);
    rk->staging_touched = false;
    settle_repl_position(rk, true);
}

/* Versions are never given out twice, so those of an aborted transaction are skipped. They need not be
 * written now: the next batch contains them. */
void state_abandon(struct rk *rk)
{
    u32 n = rk_changed(rk);
    struct rk_db **was = mem_alloc(n * sizeof *was);
    memcpy(was, rk->dbs, n * sizeof *was);
    for (u32 i = 0; i < n; i++) { /* undoes swaps */
        struct rk_db *db = was[i];
        rk->dbs[db->stored_number] = db;
        db->number = db->stored_number;
        db->renumbered = db->flushed = false;
    }
    mem_free(was);
    slots_abandon(rk);
    rk->cut.pending = false;
    rk->state_changed = rk->staging_touched = false;
    settle_repl_position(rk, false);
}

void state_forget_region(struct rk *rk, u64 region)
{
    static const char alone[] = {'s', 'n', 'p'};
    struct buf to = {0};
    for (u32 i = 0; i < ARRAY_LEN(alone); i++)
        store_delete(rk->session, FAM_INFO, state_key(rk, alone[i], region, false, 0));
    bytes log = state_key(rk, 'd', region, false, 0);
    buf_append_bytes(&to, log);
    codec_after_prefix(&to);
    store_delete_range(rk->session, FAM_INFO, log, buf_bytes(&to));
    buf_release(&to);
}

/* -- metadata rows ---------------------------------------------------------------------------- */

/* They go straight into the batch, which is discarded if the transaction fails: nothing reads a row between
 * its change and the commit. */

static bytes meta_prefix(struct rk *rk, enum meta_kind kind)
{
    static const char letters[] = {[META_FUNCTIONS] = 'f', [META_CLUSTER] = 'm'};
    return state_key(rk, letters[kind], rk->region.prefix, false, 0);
}

static void meta_put(struct engine *e, enum meta_kind kind, bytes name, bytes value)
{
    struct rk *rk = rk_of(e);
    CHECK(value.n <= ENGINE_META_MAX);
    store_put2(rk->session, FAM_INFO, meta_prefix(rk, kind), name, value);
}

static void meta_del(struct engine *e, enum meta_kind kind, bytes name)
{
    struct rk *rk = rk_of(e);
    store_delete2(rk->session, FAM_INFO, meta_prefix(rk, kind), name);
}

static void meta_each(struct engine *e, enum meta_kind kind, pair_fn fn, void *arg)
{
    struct rk *rk = rk_of(e);
    struct buf from = {0}, to = {0};
    buf_append_bytes(&from, meta_prefix(rk, kind)); /* fn may use the scratch buffer */
    buf_append_bytes(&to, buf_bytes(&from));
    codec_after_prefix(&to);
    struct store_iter *it = store_iter(rk->session, FAM_INFO, buf_bytes(&from), buf_bytes(&to), STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        bytes key = store_key(it);
        fn(arg, bytes_of(key.p + from.n, key.n - from.n), store_iter_value(it), 0);
    }
    store_iter_done(it);
    buf_release(&from);
    buf_release(&to);
}

const struct meta_ops rk_meta_ops = {.put = meta_put, .del = meta_del, .each = meta_each};
