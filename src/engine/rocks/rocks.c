/* Opening and closing the rocks engine, and its transactions: one per tick. */
#include "engine/rocks/rocks.h"

#include "engine/rocks/companion.h"
#include "engine/rocks/delta.h"
#include "engine/rocks/type/random_element.h"
#include "engine/rocks/type/elements.h"
#include "engine/rocks/keys.h"
#include "engine/rocks/due/due_counts.h"
#include "engine/rocks/legacy.h"
#include "engine/rocks/recount.h"
#include "engine/rocks/regions.h"
#include "engine/rocks/state.h"
#include "engine/rocks/store/store_folder.h"

#define PREFETCH_AHEAD 256
#define DRAW_COST 200
#define LEGACY_TOGETHER 32 /* legacy strings migrated per transaction */

static bytes key_of_row(const void *item) { return row_key(item); }

/* -- transactions -------------------------------------------------------------------------- */

/* More rows are cached than the region has memory for: it gets more, or evicts. */
static void rk_make_room(struct rk *rk)
{
    cache_take(&rk->row_share, cached_get(&rk->cached.bytes));
    row_sweep(rk, rk->row_share.limit);
}

static void rk_begin(struct engine *e, i64 now_ms)
{
    struct rk *rk = rk_of(e);
    e->now_ms = now_ms;
    if (LIKELY(now_ms)) rk->clock_ms = now_ms;
    if (UNLIKELY(cached_get(&rk->cached.bytes) > rk->row_share.limit)) rk_make_room(rk);
    if (UNLIKELY(rk->legacy) && !store_pressure(rk->store, false)) legacy_step(rk, LEGACY_TOGETHER);
}

/* Tells compactions which dead keys they may drop: those that reclaim should have deleted long ago. None if
 * expiry has to be reported (to replicas, AOF), and none if reclaim keeps up: checking keys makes a
 * compaction read every blob. */
static void publish_clock(struct rk *rk)
{
    i64 grace_ms = rk->compaction_grace_ms;
    bool none = grace_ms == INT64_MAX || rk->base.report_expiry || rk->cleaner_keeps_up;
    store_set_dead(rk->session, none ? 0 : MAX(rk->base.now_ms - grace_ms, 0));
}

static void rk_end(struct rk *rk, bool kept)
{
    row_settle(rk, kept);
    arena_clear(&rk->arena);
    cached_set(&rk->cached.element_bytes, elements_memory(rk->elements));
    rk->base.failed = false;
}

static void rk_give_up(struct rk *rk)
{
    store_discard(rk->session);
    rk_end(rk, false);
    for (u32 i = 0; i < rk_changed(rk); i++) { /* undoes flushes: rows cached as absent are not */
        if (!rk->dbs[i]->flushed) continue;
        row_flush(rk, rk->dbs[i]);
        companion_flush(rk, rk->dbs[i]);
    }
    due_abandon(rk);
    state_abandon(rk);
    legacy_abandon(rk);
    companion_abandon(rk);
}

/* Encodes everything the transaction touched into the batch. Flushes come first, so that writes after a flush
 * survive. */
static void rk_encode(struct rk *rk, u64 seq)
{
    for (u32 i = 0; i < rk_changed(rk); i++)
        if (rk->dbs[i]->flushed) {
            keys_delete_all(rk, rk->dbs[i]);
            slots_flush(rk, rk->dbs[i]);
        }
    row_write_all(rk);
    due_commit(rk);
    bool moved = rk->state_changed || rk->base.repl_position.changed || seq != rk->applied_seq ||
                 rk->cut.pending;
    if (moved || rk->long_strings || !store_batch_empty(rk->session)) state_commit(rk, seq);
    if (UNLIKELY(rk->dropped)) state_forget_region(rk, rk->region.id);
    row_write_long(rk);
}

static bool write_batch(struct rk *rk)
{
    if (LIKELY(!rk->base.relaxed)) return store_write(rk->session);
    store_relax(rk->session, true);
    bool ok = store_write(rk->session);
    store_relax(rk->session, false);
    return ok;
}

/* The batch is written, or there was nothing to write. */
static void rk_kept(struct rk *rk, u64 seq, bool written)
{
    due_committed(rk);
    if (!written) {
        rk_end(rk, true);
        return;
    }
    for (u32 i = 0; i < rk_changed(rk); i++) {
        if (!rk->dbs[i]->flushed) continue;
        keys_drop_files(rk, rk->dbs[i]);
        rk->dbs[i]->all_cached = true;
    }
    state_committed(rk, seq);
    if (rk->legacy_ends) rk->legacy = rk->legacy_ends = false;
    rk->base.applied = seq;
    rk_end(rk, true);
    if (UNLIKELY(rk->cut.pending)) regions_cut(rk);
    if (UNLIKELY(rk->move.pending)) regions_moved(rk);
}

static bool rk_commit(struct engine *e, u64 seq)
{
    struct rk *rk = rk_of(e);
    rk_encode(rk, seq);
    publish_clock(rk);
    bool writes = !store_batch_empty(rk->session);
    if (!writes) store_end_tick(rk->session);
    /* A read that failed while encoding leaves the batch incomplete. */
    if (writes && (e->failed || !write_batch(rk))) {
        rk_give_up(rk);
        return false;
    }
    rk_kept(rk, seq, writes);
    return true;
}

static bool rk_commit_all(struct engine *const *e, const u64 *seq, u32 n)
{
    struct store_session *sessions[DISK_TOGETHER] = {NULL};
    bool writes[DISK_TOGETHER], ok = true, relaxed = true;
    CHECK(n <= DISK_TOGETHER && DISK_TOGETHER <= STORE_TOGETHER);
    for (u32 i = 0; i < n; i++) {
        struct rk *rk = rk_of(e[i]);
        rk_encode(rk, seq[i]);
        publish_clock(rk);
        sessions[i] = rk->session;
        writes[i] = !store_batch_empty(rk->session);
        ok &= !writes[i] || !e[i]->failed;
        relaxed &= e[i]->relaxed;
    }
    for (u32 i = 0; i < n; i++) store_relax(sessions[i], relaxed);
    ok = ok && store_write_all(sessions, n);
    for (u32 i = 0; i < n; i++) {
        store_relax(sessions[i], false);
        if (ok) rk_kept(rk_of(e[i]), seq[i], writes[i]);
        else rk_give_up(rk_of(e[i]));
    }
    return ok;
}

static void rk_abort(struct engine *e) { rk_give_up(rk_of(e)); }

static bool has_elements(const struct row *r)
{
    return r->type == TYPE_HASH || r->type == TYPE_SET || r->type == TYPE_ZSET;
}

static void prefetch_elements(struct rk *rk, const struct want *want, u32 n)
{
    struct row *rows[PREFETCH_AHEAD];
    bytes subs[PREFETCH_AHEAD];
    u32 subs_n = 0;
    for (u32 i = 0; i < n; i++) {
        if (!want[i].element.p) continue;
        struct rk_db *db = rk->dbs[want[i].db];
        struct row *r = row_peek(rk, db, want[i].key, row_hash(db, want[i].key));
        if (!r || !has_elements(r)) continue;
        rows[subs_n] = r;
        subs[subs_n++] = want[i].element;
    }
    if (subs_n > 1) delta_prefetch(rk, rows, subs, subs_n);
}

static void rk_prefetch(struct engine *e, const struct want *want, u32 n)
{
    struct rk *rk = rk_of(e);
    row_prefetch(rk, want, n);
    for (u32 i = 0; i < n; i += PREFETCH_AHEAD)
        prefetch_elements(rk, want + i, MIN(n - i, PREFETCH_AHEAD));
}


/* Every transaction migrates some legacy strings. As long as any may be left, reports work to do, so that the
 * loop keeps running transactions. */
static u64 rk_reclaim(struct engine *e, u32 units)
{
    struct rk *rk = rk_of(e);
    return row_lazyfree(rk, units) + (rk->legacy && !rk->legacy_stuck);
}

/* -- what the server asks of a database ------------------------------------------------------- */

static void rk_set_sync(struct engine *e, enum disk_sync sync) { store_set_sync(rk_of(e)->store, sync); }

static void rk_set_grace(struct engine *e, i64 grace_ms) { rk_of(e)->compaction_grace_ms = grace_ms; }

static const char *rk_refuses_writes(struct engine *e) { return store_refuses_writes(rk_of(e)->session); }
static u32 rk_write_pressure(struct engine *e, bool measure)
{
    return store_pressure(rk_of(e)->store, measure);
}
static u64 rk_bytes_written(const struct engine *e) { return store_written(((const struct rk *)e)->store); }

static struct sync_state rk_sync_state(const struct engine *e)
{
    return store_sync_state(((const struct rk *)e)->store);
}

static void rk_cron(struct engine *e)
{
    struct rk *rk = rk_of(e);
    rk->cleaner_keeps_up = rk->compaction_grace_ms &&
                           e->ops->next_due(e) > rk->clock_ms - rk->compaction_grace_ms;
    store_drop_idle(rk->session);
    store_cron(rk->store);
}

/* An open transaction that has changed something, or will, keeps all rows. */
static void rk_share_memory(struct engine *e)
{
    struct rk *rk = rk_of(e);
    if (rk->touched || rk->open) return;
    u64 uses = cached_get(&rk->cached.hits) + cached_get(&rk->cached.misses);
    u64 wanted = cache_asked(&rk->row_share, cached_get(&rk->cached.bytes), uses);
    row_sweep(rk, wanted);
    cache_gave(&rk->row_share, cached_get(&rk->cached.bytes), wanted);
    elements_share(rk->elements, uses);
    cached_set(&rk->cached.element_bytes, elements_memory(rk->elements));
}

static void rk_rest(struct engine *e)
{
    struct rk *rk = rk_of(e);
    if (rk->touched || rk->open) return;
    arena_release(&rk->arena);
    buf_release(&rk->scratch);
    due_rest(rk->due);
    store_rest(rk->session);
}

/* The caches of all engines of the database. */
static void rk_cached_info(struct rocks *db, struct buf *out)
{
    pthread_mutex_lock(&db->lock);
    u64 rows = 0, bytes = 0, element_bytes = 0, hits = db->hits, misses = db->misses, together = db->together;
    for (const struct rk *rk = db->engines; rk; rk = rk->next_engine) {
        const struct rk_cached *c = &rk->cached;
        rows += cached_get(&c->rows);
        bytes += cached_get(&c->bytes);
        hits += cached_get(&c->hits);
        misses += cached_get(&c->misses);
        together += cached_get(&c->together);
        element_bytes += cached_get(&c->element_bytes);
    }
    pthread_mutex_unlock(&db->lock);
    buf_printf(out, "row_cache_rows:%llu\r\nrow_cache_bytes:%llu\r\nrow_cache_max_bytes:%llu\r\n"
               "row_cache_hits:%llu\r\nrow_cache_misses:%llu\r\nrow_cache_misses_together:%llu\r\n"
               "element_cache_bytes:%llu\r\nelement_cache_max_bytes:%llu\r\n",
               (unsigned long long)rows, (unsigned long long)bytes, (unsigned long long)db->rows.total,
               (unsigned long long)hits, (unsigned long long)misses, (unsigned long long)together,
               (unsigned long long)element_bytes, (unsigned long long)db->elements.total);
}

static void rk_info(struct engine *e, struct buf *out)
{
    struct rk *rk = rk_of(e);
    rk_cached_info(rk->db, out);
    buf_printf(out, "applied_sequence:%llu\r\n", (unsigned long long)rk->applied_seq);
    legacy_info(rk, out);
    store_info(rk->session, out);
}

static const struct disk_ops rk_disk_ops = {
    .set_sync = rk_set_sync, .set_grace = rk_set_grace, .refuses_writes = rk_refuses_writes,
    .write_pressure = rk_write_pressure, .bytes_written = rk_bytes_written, .sync_state = rk_sync_state,
    .commit_all = rk_commit_all, .cron = rk_cron, .share_memory = rk_share_memory, .rest = rk_rest,
    .info = rk_info,
};

/* -- opening and closing --------------------------------------------------------------------- */

static void rk_link(struct rk *rk)
{
    struct rocks *db = rk->db;
    pthread_mutex_lock(&db->lock);
    if ((rk->next_engine = db->engines)) db->engines->engine_link = &rk->next_engine;
    rk->engine_link = &db->engines;
    db->engines = rk;
    pthread_mutex_unlock(&db->lock);
}

static void rk_unlink(struct rk *rk)
{
    struct rocks *db = rk->db;
    if (!rk->engine_link) return;
    pthread_mutex_lock(&db->lock);
    if ((*rk->engine_link = rk->next_engine)) rk->next_engine->engine_link = rk->engine_link;
    db->hits += cached_get(&rk->cached.hits);
    db->misses += cached_get(&rk->cached.misses);
    db->together += cached_get(&rk->cached.together);
    pthread_mutex_unlock(&db->lock);
}

static void rk_close(struct engine *e)
{
    struct rk *rk = rk_of(e);
    rk_unlink(rk);
    if (rk->view) rk_snapshot_ops.end(e);
    if (rk->session) {
        rk_end(rk, false);
        for (u32 i = 0; i < rk_all(rk); i++) {
            row_flush(rk, rk->dbs[i]);
            companion_flush(rk, rk->dbs[i]);
        }
        while (rk->lazyfree) row_lazyfree(rk, UINT32_MAX);
    }
    if (rk->due) due_close(rk->due);
    store_session_close(rk->session);
    slots_release(rk);
    for (u32 i = 0; i < rk_all(rk); i++) {
        companion_release(rk->dbs[i]);
        table_release(&rk->dbs[i]->rows);
        mem_free(rk->dbs[i]);
    }
    cursors_release(&rk->cursors);
    draws_free(rk->draws);
    elements_free(rk->elements);
    cache_share_release(&rk->row_share);
    mem_free(rk->dbs);
    arena_release(&rk->arena);
    buf_release(&rk->scratch);
    buf_release(&rk->legacy_position);
    buf_release(&rk->repl_position);
    buf_release(&e->repl_position.text);
    if (rk->owns_db) rocks_close(rk->db);
    mem_free(rk);
}

static void rk_fill_ops(struct engine_ops *ops)
{
    *ops = (struct engine_ops){
        .name = "rocksdb", .close = rk_close, .begin = rk_begin, .commit = rk_commit, .abort = rk_abort,
        .prefetch = rk_prefetch, .gather = rk_gather, .reclaim = rk_reclaim, .snapshot = rk_snapshot_ops,
        .str = rk_str_ops, .map = rk_map_ops, .seq = rk_seq_ops, .zset = rk_zset_ops,
        .rows = rk_rows_ops, .meta = rk_meta_ops, .companion = rk_companion_ops, .disk = &rk_disk_ops,
    };
    rk_key_ops(ops);
    rk_due_ops(ops);
}

static struct rk *rk_new(struct rocks *db, const struct rocks_region *region)
{
    static const struct engine_limits redis_defaults = {
        .hash_max_listpack_entries = 128, .hash_max_listpack_value = 64,
        .zset_max_listpack_entries = 128, .zset_max_listpack_value = 64,
        .set_max_intset_entries = 512, .set_max_listpack_entries = 128, .set_max_listpack_value = 64,
        .list_max_listpack_size = -2,
    };
    const struct rocks_options *o = &db->options;
    struct rk *rk = mem_zalloc(sizeof *rk);
    rk->db = db;
    rk->store = db->store;
    rk->region = *region;
    rk->base.ops = &db->ops;
    rk->base.limits = redis_defaults;
    rk->base.databases = o->databases;
    rk->base.caps.durable = true;
    rk->base.caps.reads_only = true;
    rk->base.caps.due_again = true;
    rk->base.caps.value_copies = 2; /* the batch's and the memtable's */
    rk->base.caps.draw_cost = DRAW_COST;
    rk->base.caps.prefetch_ahead = PREFETCH_AHEAD;
    rk->base.caps.prefetch_elements = true;
    rk->log = o->log;
    cache_share_init(&rk->row_share, &db->rows);
    rk->elements = elements_new(&db->elements, o->seed);
    rk->compaction_grace_ms = DISK_GRACE_MS;
    rk->touched_end = &rk->touched;
    rk->staging = rk_is_whole(rk) ? o->databases : 0; /* a full sync replaces everything */
    rk->dbs = mem_alloc(rk_all(rk) * sizeof(struct rk_db *));
    for (u32 i = 0; i < rk_all(rk); i++) {
        rk->dbs[i] = mem_zalloc(sizeof **rk->dbs);
        table_init(&rk->dbs[i]->rows, key_of_row, o->seed);
    }
    return rk;
}

bool rocks_found(const char *dir)
{
    enum store_folder found = store_folder_look(dir, NULL);
    return found == STORE_FOLDER_DATABASE || found == STORE_FOLDER_INCOMPLETE;
}

struct rocks *rocks_open(const struct rocks_options *o, struct buf *why)
{
    struct store *store = store_open(o, false, why);
    if (!store) return NULL;
    struct rocks *db = mem_zalloc(sizeof *db);
    db->store = store;
    rk_fill_ops(&db->ops);
    db->options = *o;
    db->options.dir = NULL; /* the caller's */
    u64 budget = store_sizes(o).rows;
    cache_budget_init(&db->elements, budget / 3);
    cache_budget_init(&db->rows, budget - budget / 3);
    pthread_mutex_init(&db->lock, NULL);
    if (state_open(db, why)) return db;
    rocks_close(db);
    return NULL;
}

void rocks_close(struct rocks *db)
{
    if (!db) return;
    store_close(db->store);
    due_shared_free(db->counts);
    pthread_mutex_destroy(&db->lock);
    mem_free(db);
}

static struct due_shared *rk_counts(struct rocks *db, u64 prefix)
{
    pthread_mutex_lock(&db->lock);
    struct due_shared *c = db->counts;
    while (c && c->prefix != prefix) c = c->next;
    if (!c) {
        c = due_shared_new(prefix, db->options.seed);
        c->next = db->counts;
        db->counts = c;
    }
    pthread_mutex_unlock(&db->lock);
    return c;
}

/* Legacy strings and an older layout are migrated only by an engine that has all slots. */
static bool rk_load(struct rk *rk, struct buf *why)
{
    if (!state_load(rk, why)) return false;
    if (!due_open(rk, rk_counts(rk->db, rk->region.prefix))) {
        buf_append_str(why, "the deadline index can't be read; run mayfly-server --check on the directory");
        return false;
    }
    if (rk->old_layout && !rk_is_whole(rk)) {
        buf_append_str(why, "the database has an older layout: start a lone server with it once");
        return false;
    }
    if (rk->old_layout && !recount_upgrade(rk)) {
        buf_append_str(why, "the keys of the database could not be counted; see the log");
        return false;
    }
    if (!legacy_open(rk, why)) return false;
    if (!rk->legacy || rk_is_whole(rk)) return true;
    buf_append_str(why, "the database has strings of an older format: start a lone server with it, until "
                   "INFO says legacy_migration:done");
    return false;
}

struct engine *rocks_region_open(struct rocks *db, const struct rocks_region *region, struct buf *why)
{
    CHECK(region->first <= region->last && region->last < ROCKS_SLOTS);
    struct rk *rk = rk_new(db, region);
    rk->session = store_session_open(rk->store, &rk->base.failed);
    companion_open_all(rk);
    if (!rk_load(rk, why)) {
        rk_close(&rk->base);
        return NULL;
    }
    elements_begin(rk->elements, atomic_load(&db->last_version));
    rk_link(rk);
    store_rest(rk->session); /* many may be opened, and then have nothing to do */
    rk->base.applied = rk->applied_seq;
    return &rk->base;
}

struct rocks_region rocks_region_of(struct engine *e) { return rk_of(e)->region; }

void rocks_regions_each(struct rocks *db, bool (*each)(void *arg, const struct rocks_region *r), void *arg)
{
    state_regions_each(db->store, each, arg);
}

struct engine *rocks_engine_open(const struct rocks_options *o, struct buf *why)
{
    static const struct rocks_region lone = {1, 1, 0, ROCKS_SLOTS - 1};
    struct rocks *db = rocks_open(o, why);
    struct engine *e = db ? rocks_region_open(db, &lone, why) : NULL;
    if (e) rk_of(e)->owns_db = true;
    else rocks_close(db);
    return e;
}
