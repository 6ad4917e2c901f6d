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

/* -- heads ------------------------------------------------------------------------------------ */

#define HEAD_SIZE 32
#define REGION_SIZE 12 /* prefix and slots */

static void state_append_head(struct buf *out, const struct state_head *h)
{
    append_u64(out, h->applied);
    append_u64(out, h->version);
    append_u64(out, (u64)h->clock_ms);
}

static struct state_head state_read_head(u64 stamp, const char *p)
{
    return (struct state_head){stamp, get_u64(p), get_u64(p + 8), (i64)get_u64(p + 16)};
}

bool state_read_region(bytes value, struct state_head *head, struct rocks_region *out)
{
    const size_t old = HEAD_SIZE - 8;
    const char *p = value.p;
    *out = (struct rocks_region){out->id, 1, 0, ROCKS_SLOTS - 1};
    *head = (struct state_head){0};
    if (value.n == old || value.n == old + REGION_SIZE) *head = state_read_head(0, p);
    else if (value.n == HEAD_SIZE + REGION_SIZE) *head = state_read_head(get_u64(p), p + 8);
    else return false;
    if (value.n == old) return true;
    p += value.n - REGION_SIZE;
    *out = (struct rocks_region){out->id, get_u64(p), get_u16(p + 8), get_u16(p + 10)};
    return out->first <= out->last && out->last < ROCKS_SLOTS;
}

bool state_read_log(bytes key, bytes value, struct state_head *head, bytes *changes)
{
    bool old = key.n == 11 && key.p[0] == 'd';
    size_t size = old ? 8 : HEAD_SIZE - 8;
    if ((!old && key.n != 17) || value.n < size) return false;
    if (old) *head = (struct state_head){.stamp = get_u64(value.p)};
    else *head = state_read_head(get_u64(key.p + 9), value.p);
    *changes = bytes_of(value.p + size, value.n - size);
    return true;
}

static struct store_iter *state_rows_iter(struct store_session *s, bytes prefix)
{
    struct buf to = {0};
    buf_append_bytes(&to, prefix);
    codec_after_prefix(&to);
    struct store_iter *it = store_iter(s, FAM_INFO, prefix, buf_bytes(&to), STORE_ONCE);
    buf_release(&to);
    return it;
}

struct store_iter *state_log_iter(struct rk *rk)
{
    return state_rows_iter(rk->session, state_key(rk, rk->old_log ? 'd' : 'e', rk->region.id, false, 0));
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

static void raise_version(struct rocks *db, u64 version)
{
    u64 last = atomic_load_explicit(&db->last_version, memory_order_relaxed);
    while (last < version && !atomic_compare_exchange_weak(&db->last_version, &last, version)) {}
}

void state_raise_version(struct rk *rk, u64 version) { raise_version(rk->db, version); }

/* An index that was never used; it has no keys. */
static void renew_index(struct rk *rk, struct rk_db *db)
{
    db->index = CODEC_STAGING | state_next_version(rk, 0);
    db->all_cached = true;
}

/* -- opening a database --------------------------------------------------------------------- */

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

/* Also if it has STATE_LAYOUT_BEFORE, so that older builds refuse the database from here on. */
static bool needs_layout(struct store_session *s)
{
    struct store_value layout;
    bool there = store_get(s, FAM_INFO, LAYOUT_KEY, &layout);
    bool before = there && layout.b.n == 4 && get_u32(layout.b.p) == STATE_LAYOUT_BEFORE;
    store_value_release(&layout);
    return before || (!there && family_is_empty(s, FAM_META) && family_is_empty(s, FAM_DATA));
}

/* The last versions of all regions: slots may have moved between them. */
static void state_load_versions(struct rocks *db, struct store_session *s)
{
    struct state_head head;
    struct rocks_region region;
    bytes changes;
    struct store_iter *it = state_rows_iter(s, BYTES_LIT("s"));
    for (store_seek_first(it); store_valid(it); store_next(it))
        if (state_read_region(store_iter_value(it), &head, &region)) raise_version(db, head.version);
    store_iter_done(it);
    it = state_rows_iter(s, BYTES_LIT("e"));
    for (store_seek_first(it); store_valid(it); store_next(it))
        if (state_read_log(store_key(it), store_iter_value(it), &head, &changes))
            raise_version(db, head.version);
    store_iter_done(it);
}

bool state_open(struct rocks *db, struct buf *why)
{
    bool failed = false;
    struct store_session *s = store_session_open(db->store, &failed);
    if (needs_layout(s)) write_layout(s);
    state_load_versions(db, s);
    bool ok = !failed && store_write(s);
    if (!ok) buf_append_str(why, "the database's own state can't be read or written; see the log");
    store_session_close(s);
    return ok;
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
        struct state_head head;
        if (state_read_region(value, &head, &r)) more = each(arg, &r);
    }
    store_iter_done(it);
    store_session_close(s);
}

static void state_take_head(struct rk *rk, const struct state_head *h)
{
    rk->applied_seq = h->applied;
    rk->last_version = h->version;
    rk->clock_ms = h->clock_ms;
    rk->slot_log.stamp = h->stamp;
}

/* The last row of the log has the region's state. */
static void state_load_log(struct rk *rk)
{
    struct store_iter *it = state_log_iter(rk);
    for (store_seek_first(it); store_valid(it); store_next(it)) {
        struct state_head head;
        bytes changes;
        if (!state_read_log(store_key(it), store_iter_value(it), &head, &changes)) continue;
        state_take_head(rk, &head);
        rk->slot_log.rows++;
    }
    store_iter_done(it);
}

/* False: the region is stored with other slots than it is opened with. */
static bool load_region(struct rk *rk, struct buf *why)
{
    struct store_value v;
    struct state_head head;
    struct rocks_region stored = {.id = rk->region.id};
    rk->state_changed = false;
    rk->applied_seq = rk->last_version = 0;
    rk->new_region = !store_get(rk->session, FAM_INFO, state_key(rk, 's', rk->region.id, false, 0), &v);
    if (rk->new_region) return true;
    bool sound = state_read_region(v.b, &head, &stored);
    store_value_release(&v);
    if (sound) {
        state_take_head(rk, &head);
        rk->old_log = head.stamp == 0;
        if (!rk->old_log) state_load_log(rk);
    }
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
static void state_empty_staging(struct rk *rk)
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
    u64 unknown = 0, number = 0;
    codec_index_prefix(&at, rk->region.prefix, CODEC_STAGING);
    codec_index_prefix(&end, rk->region.prefix + 1, CODEC_STAGING);
    struct store_iter *it = store_iter(rk->session, f, buf_bytes(&at), buf_bytes(&end), STORE_ONCE);
    store_seek_first(it);
    while (!unknown && store_valid(it) && codec_key_read(store_key(it), &k)) {
        struct rk_db *db = rk_db_of(rk, k.index);
        if (db) db->all_cached = false;
        else if (number_of(rk, k.index, &number)) unknown = k.index;
        buf_clear(&at);
        codec_index_prefix(&at, rk->region.prefix, k.index);
        codec_after_prefix(&at);
        store_seek(it, buf_bytes(&at));
    }
    store_iter_done(it);
    buf_release(&at);
    buf_release(&end);
    if (!unknown) return true;
    buf_printf(why, "database %llu has keys, but there are to be %u databases only, which would hide them: "
               "set 'databases' to %llu or more; for a cluster, which has database 0 only, move or delete "
               "them", (unsigned long long)number, rk->base.databases,
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
    rk->old_layout = layout == STATE_LAYOUT_UNCOUNTED;
    if (rk->base.failed || layout == STATE_LAYOUT || rk->old_layout) return true;
    buf_printf(why,
               "the database has layout %u, this version of Mayfly reads layouts %d to %d: BGSAVE it with "
               "the one that made it, then start this one in a new folder with --import-rdb",
               layout, STATE_LAYOUT_UNCOUNTED, STATE_LAYOUT);
    return false;
}

bool state_load(struct rk *rk, struct buf *why)
{
    if (!know_layout(rk, why) || !load_region(rk, why)) return false;
    load_repl_position(rk);
    load_indexes(rk);
    if (rk->staging) state_empty_staging(rk);
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

static void write_region(struct rk *rk, const struct rocks_region *r, const struct state_head *head)
{
    struct buf value = {0};
    append_u64(&value, head->stamp);
    state_append_head(&value, head);
    append_u64(&value, r->prefix);
    put_u16(buf_reserve(&value, 4), r->first);
    put_u16(value.p + value.n + 2, r->last);
    value.n += 4;
    store_put(rk->session, FAM_INFO, state_key(rk, 's', r->id, false, 0), buf_bytes(&value));
    buf_release(&value);
}

static void state_delete_log(struct rk *rk, char kind, u64 region)
{
    struct buf to = {0};
    bytes from = state_key(rk, kind, region, false, 0);
    buf_append_bytes(&to, from);
    codec_after_prefix(&to);
    store_delete_range(rk->session, FAM_INFO, from, buf_bytes(&to));
    buf_release(&to);
}

/* All counts, and the rows 's' of the region and of one that is split off from it. */
static void state_write_all(struct rk *rk, const struct state_head *head)
{
    struct rocks_region r = rk->region;
    slots_write(rk);
    if (rk->old_log) state_delete_log(rk, 'd', r.id);
    if (rk->cut.pending) {
        struct state_head child = *head;
        child.applied = rk->cut.child_seq;
        write_region(rk, &rk->cut.child, &child);
        r.last = (u16)(rk->cut.child.first - 1);
    }
    if (rk->move.pending) r.first = rk->move.first, r.last = rk->move.last;
    write_region(rk, &r, head);
}

static void state_write_log(struct rk *rk, const struct state_head *head)
{
    char key[17] = "e";
    struct buf *out = &rk->scratch;
    put_u64(key + 1, rk->region.id);
    put_u64(key + 9, head->stamp);
    buf_clear(out);
    state_append_head(out, head);
    slots_append_changes(rk, out);
    store_put(rk->session, FAM_INFO, bytes_of(key, sizeof key), buf_bytes(out));
}

void state_commit(struct rk *rk, u64 seq)
{
    bool all = slots_next(rk);
    struct state_head head = {rk->slot_log.stamp, seq, rk->last_version, rk_clock(rk)};
    if (UNLIKELY(all || rk->slot_log.full)) state_delete_log(rk, 'e', rk->region.id);
    if (UNLIKELY(all)) state_write_all(rk, &head);
    else state_write_log(rk, &head);
    for (u32 i = 0; i < rk_changed(rk); i++) write_database(rk, rk->dbs[i]);
    write_repl_position(rk);
    bool has_keys = rk->region.prefix ==
                    STATE_META_PREFIX; /* the others don't know whether they are counted */
    if (has_keys && (rk->foreign || rk->old_layout)) write_layout(rk->session);
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
    rk->state_changed = rk->foreign = rk->old_layout = rk->old_log = rk->new_region = false;
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
    rk->cut.pending = rk->move.pending = rk->dropped = false;
    rk->state_changed = rk->staging_touched = false;
    settle_repl_position(rk, false);
}

void state_forget_region(struct rk *rk, u64 region)
{
    static const char alone[] = {'s', 'n', 'p'};
    for (u32 i = 0; i < ARRAY_LEN(alone); i++)
        store_delete(rk->session, FAM_INFO, state_key(rk, alone[i], region, false, 0));
    state_delete_log(rk, 'e', region);
    state_delete_log(rk, 'd', region);
}

/* -- metadata rows ---------------------------------------------------------------------------- */

/* They go straight into the batch, which is discarded if the transaction fails: nothing reads a row between
 * its change and the commit. */

static bytes meta_prefix(struct rk *rk, enum meta_kind kind)
{
    static const char letters[] = {[META_FUNCTIONS] = 'f', [META_CLUSTER] = 'm', [META_SITE] = 'w'};
    return state_key(rk, letters[kind], STATE_META_PREFIX, false, 0);
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
