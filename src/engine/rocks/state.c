#include "engine/rocks/state.h"

#include "engine/rocks/keys.h"

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
    state_key(rk, 'i', RK_REGION, false, 0);
    put_u32(buf_reserve(k, 4), number);
    k->n += 4;
    return buf_bytes(k);
}

static bytes counts_key(struct rk *rk, const struct rk_db *db)
{
    return state_key(rk, 'c', RK_REGION, true, db->index);
}

static bytes note_key(struct rk *rk) { return state_key(rk, 'n', RK_REGION, false, 0); }

/* An index that nobody has had; there are no keys under it. */
static void renew_index(struct rk *rk, struct rk_db *db)
{
    db->index = CODEC_SPARE | ++rk->last_version;
    db->all_cached = true;
}

/* -- loading -------------------------------------------------------------------------------- */

/* A value of at least n bytes; false if there is none. */
static bool load(struct rk *rk, bytes key, size_t n, char *out)
{
    struct store_value v;
    if (!store_get(rk->session, FAM_INFO, key, &v)) return false;
    bool fits = v.b.n >= n;
    if (fits) memcpy(out, v.b.p, n);
    store_value_release(&v);
    return fits;
}

static void load_counts(struct rk *rk, struct rk_db *db)
{
    char raw[40] = {0};
    db->count = db->expires = db->timed_hashes = 0;
    db->deadline_total = 0;
    db->counts_changed = db->flushed = false;
    if (!load(rk, counts_key(rk, db), sizeof raw, raw) && /* older versions did not count hashes */
        !load(rk, counts_key(rk, db), 32, raw)) return;
    db->timed_hashes = get_u64(raw + 32);
    db->count = get_u64(raw);
    db->expires = get_u64(raw + 8);
    db->deadline_total = (__int128)((unsigned __int128)get_u64(raw + 16) << 64 | get_u64(raw + 24));
}

static void load_region(struct rk *rk)
{
    char raw[24];
    rk->state_changed = false;
    rk->applied_seq = rk->last_version = 0;
    if (!load(rk, state_key(rk, 's', RK_REGION, false, 0), sizeof raw, raw)) return;
    rk->applied_seq = get_u64(raw);
    rk->last_version = get_u64(raw + 8);
    rk->clock_ms = (i64)get_u64(raw + 16);
}

static void load_note(struct rk *rk)
{
    struct store_value v;
    if (!store_get(rk->session, FAM_INFO, note_key(rk), &v)) return;
    if (v.b.n <= ENGINE_NOTE_MAX) buf_append_bytes(&rk->note, v.b);
    buf_append_bytes(&rk->base.note.text, buf_bytes(&rk->note));
    store_value_release(&v);
}

static void load_indexes(struct rk *rk)
{
    for (u32 i = 0; i < rk_all(rk); i++) {
        char raw[8];
        struct rk_db *db = rk->dbs[i];
        db->number = db->stored_number = i;
        db->all_cached = true; /* until a key is met */
        if (rk_is_spare(rk, db)) renew_index(rk, db);
        else db->index = load(rk, index_key(rk, i), sizeof raw, raw) ? get_u64(raw) : i + 1;
    }
}

/* Which database an index is of, perhaps of a number that we don't have. False: of a spare one. */
static bool number_of(struct rk *rk, u64 index, u64 *number)
{
    bool found = false, first = !(index & CODEC_SPARE); /* it may be the one its database began with */
    bytes from = state_key(rk, 'i', RK_REGION, false, 0);
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

static void delete_index(struct rk *rk, u64 index)
{
    struct rk_db db = {.index = index};
    struct buf to = {0};
    keys_delete_all(rk, &db);
    store_delete(rk->session, FAM_INFO, counts_key(rk, &db));
    bytes buckets = state_key(rk, 'b', RK_REGION, true, index);
    buf_append_bytes(&to, buckets);
    codec_after_prefix(&to);
    store_delete_range(rk->session, FAM_INFO, buckets, buf_bytes(&to));
    buf_release(&to);
}

/* All databases that have, or had, keys have counts. What can't be emptied now is in nobody's way, and has to
 * wait for the next start. */
static void empty_spares(struct rk *rk)
{
    struct buf found = {0};
    u64 number;
    bytes from = state_key(rk, 'c', RK_REGION, false, 0);
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

/* Keys are in the order of their index, so that one seek leads from each database to the next. */
static bool ours_only(struct rk *rk, enum family f, struct buf *why)
{
    struct buf at = {0}, end = {0};
    struct codec_key k;
    u64 stranger = 0, number = 0;
    codec_index_prefix(&at, RK_REGION, CODEC_SPARE);
    codec_index_prefix(&end, RK_REGION + 1, CODEC_SPARE);
    struct store_iter *it = store_iter(rk->session, f, buf_bytes(&at), buf_bytes(&end), STORE_ONCE);
    store_seek_first(it);
    while (!stranger && store_valid(it) && codec_key_read(store_key(it), &k)) {
        struct rk_db *db = rk_db_of(rk, k.index);
        if (db) db->all_cached = false;
        else if (number_of(rk, k.index, &number)) stranger = k.index;
        buf_clear(&at);
        codec_index_prefix(&at, RK_REGION, k.index);
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

bool state_load(struct rk *rk, struct buf *why)
{
    char raw[4];
    bool known = load(rk, BYTES_LIT("v"), sizeof raw, raw);
    if (known && get_u32(raw) != STATE_LAYOUT) {
        buf_printf(why,
                   "the database has layout %u, this version of Mayfly reads layout %d: BGSAVE it with the "
                   "one that made it, then start this one in a new folder with --import-rdb",
                   get_u32(raw), STATE_LAYOUT);
        return false;
    }
    load_region(rk);
    load_note(rk);
    load_indexes(rk);
    empty_spares(rk);
    for (u32 i = 0; i < rk->base.databases; i++) load_counts(rk, rk->dbs[i]);
    rk->new_layout = !known;
    bool ours = ours_only(rk, FAM_META, why);
    if (!rk->base.failed) return ours;
    buf_clear(why);
    buf_append_str(why, "the database's own state can't be read; see the log, and run mayfly-server --check "
                   "on the directory");
    return false;
}

bool state_covers_data(struct rk *rk, struct buf *why) { return ours_only(rk, FAM_DATA, why); }

/* -- writing ---------------------------------------------------------------------------------- */

static void write_counts(struct rk *rk, struct rk_db *db)
{
    char raw[40];
    put_u64(raw, db->count);
    put_u64(raw + 8, db->expires);
    put_u64(raw + 16, (u64)((unsigned __int128)db->deadline_total >> 64));
    put_u64(raw + 24, (u64)db->deadline_total);
    put_u64(raw + 32, db->timed_hashes);
    store_put(rk->session, FAM_INFO, counts_key(rk, db), bytes_of(raw, sizeof raw));
}

static void write_index(struct rk *rk, const struct rk_db *db)
{
    char raw[8];
    put_u64(raw, db->index);
    store_put(rk->session, FAM_INFO, index_key(rk, db->number), bytes_of(raw, sizeof raw));
}

/* Of a spare one there is nothing to be known but that it has keys. */
static void write_database(struct rk *rk, struct rk_db *db)
{
    bool spare = rk_is_spare(rk, db);
    bool empty = db->count == 0 && !db->has_companions;
    if (spare && empty && (db->counts_changed || db->renumbered))
        store_delete(rk->session, FAM_INFO, counts_key(rk, db));
    else if (db->counts_changed || (spare && db->renumbered)) write_counts(rk, db);
    if (db->renumbered && !spare) write_index(rk, db);
}

static void write_note(struct rk *rk)
{
    const struct engine_note *note = &rk->base.note;
    if (LIKELY(!note->changed)) return;
    CHECK(note->text.n <= ENGINE_NOTE_MAX);
    store_put(rk->session, FAM_INFO, note_key(rk), buf_bytes(&note->text));
}

void state_commit(struct rk *rk, u64 seq)
{
    for (u32 i = 0; i < rk_changed(rk); i++) write_database(rk, rk->dbs[i]);
    write_note(rk);
    if (rk->new_layout) {
        char raw[4];
        put_u32(raw, STATE_LAYOUT);
        store_put(rk->session, FAM_INFO, BYTES_LIT("v"), bytes_of(raw, sizeof raw));
    }
    char raw[24];
    put_u64(raw, seq);
    put_u64(raw + 8, rk->last_version);
    put_u64(raw + 16, (u64)rk_clock(rk));
    store_put(rk->session, FAM_INFO, state_key(rk, 's', RK_REGION, false, 0), bytes_of(raw, sizeof raw));
}

static void settle_note(struct rk *rk, bool kept)
{
    struct engine_note *note = &rk->base.note;
    if (LIKELY(!note->changed)) return;
    struct buf *to = kept ? &rk->note : &note->text, *from = kept ? &note->text : &rk->note;
    buf_clear(to);
    buf_append_bytes(to, buf_bytes(from));
    note->changed = false;
}

void state_committed(struct rk *rk, u64 seq)
{
    rk->applied_seq = seq;
    rk->state_changed = rk->new_layout = false;
    if (UNLIKELY(rk->spare_touched)) rk->spare_used = false;
    for (u32 i = 0; i < rk_changed(rk); i++) {
        struct rk_db *db = rk->dbs[i];
        bool emptied = db->flushed || (db->renumbered && !rk->legacy); /* old strings are not counted */
        if (rk_is_spare(rk, db) && db->count == 0 && !db->has_companions && emptied) renew_index(rk, db);
        rk->spare_used |= rk_is_spare(rk, db) && db->count;
        db->counts_changed = db->renumbered = db->flushed = false;
        db->stored_number = i;
    }
    rk->spare_touched = false;
    settle_note(rk, true);
}

/* Versions given out are not taken back: what was handed out once is never handed out again. Nor need they be
 * written: the next batch that has anything to write has them. */
void state_abandon(struct rk *rk)
{
    u32 n = rk_changed(rk);
    struct rk_db **was = mem_alloc(n * sizeof *was);
    memcpy(was, rk->dbs, n * sizeof *was);
    for (u32 i = 0; i < n; i++) { /* databases that were swapped go back */
        struct rk_db *db = was[i];
        rk->dbs[db->stored_number] = db;
        db->number = db->stored_number;
        db->renumbered = false;
        load_counts(rk, db);
    }
    mem_free(was);
    rk->state_changed = rk->spare_touched = false;
    settle_note(rk, false);
}

/* -- metadata rows ---------------------------------------------------------------------------- */

/* They go straight into the batch, which is discarded if the transaction fails: nothing reads a row between
 * its change and the commit. */

static bytes meta_prefix(struct rk *rk, enum meta_kind kind)
{
    static const char letters[] = {[META_FUNCTIONS] = 'f'};
    return state_key(rk, letters[kind], RK_REGION, false, 0);
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
