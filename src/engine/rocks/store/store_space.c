/* Reclaiming disk space.
 *
 * RocksDB compacts when levels grow too large, not because much of their data is dead: after a million keys
 * have expired, the tombstones may stay in a memtable for hours, and the rows below them on disk. So deleted
 * rows and orphans are counted per family, and a family with much garbage is compacted completely (swept): at
 * once when garbage is a quarter of the live rows, and after a quiet time already at a twentieth. A budget of
 * bytes per second bounds the work. Families too large for the budget are left to RocksDB's leveling, which
 * keeps garbage near a tenth by itself.
 *
 * RocksDB deletes a blob file once nothing in it is live. For files with some garbage, its blob garbage
 * collection is turned on when a third of all blob bytes is garbage, and off below a fifth. While it is on,
 * redis_metadata is swept as often as the budget allows; each sweep moves live blobs out of the older half of
 * the files.
 *
 * Space that an open view needs can't be reclaimed. Sweeping continues, but its garbage is counted again when
 * the view is closed, and file ranges are dropped only then.
 *
 * The sweeper runs compactions on its own thread: the loop never waits for one. */
#include "engine/rocks/store/store_impl.h"

#include "base/alloc.h"

#define LOOK_EVERY_MS 1000
#define GARBAGE_WORTH 5000              /* rows of garbage below which a family is not swept */
#define SIZE_WORTH (4u << 20)           /* bytes */
#define BUDGET_PER_LOOK ((i64)24 << 20) /* bytes per second */
#define BUDGET_MAX ((i64)2 << 30)       /* unused budget accumulates up to this */
#define QUIET_LOOKS 3
#define FILES_WORTH (16u << 20)         /* bytes in a range before its files are dropped */

/* -- sweeping -------------------------------------------------------------------------- */

/* The sweeper's own. */
struct outlook {
    i64 budget;             /* bytes that may be rewritten; negative: overdrawn */
    u64 garbage[FAM_COUNT]; /* at the last look */
    u32 quiet[FAM_COUNT];   /* looks since it last grew by much */
    u64 held[FAM_COUNT];    /* swept while a view was open */
    bool blob_gc;           /* collection of garbage in blob files is on */
};

static void compact(struct store *s, enum family f, const bytes *from, const bytes *to)
{
    rocksdb_compactoptions_t *o = rocksdb_compactoptions_create();
    rocksdb_compactoptions_set_exclusive_manual_compaction(o, 0);
    /* Run the filters on the bottommost level, too. */
    rocksdb_compactoptions_set_bottommost_level_compaction(o, 3 /* kForceOptimized: but once */);
    rocksdb_compact_range_cf_opt(s->db, s->cf[f], o, from ? from->p : NULL, from ? from->n : 0,
                                 to ? to->p : NULL, to ? to->n : 0);
    rocksdb_compactoptions_destroy(o);
    atomic_fetch_add_explicit(&s->sweeps, 1, memory_order_relaxed);
}

static bool closing(struct store *s) { return atomic_load_explicit(&s->closing, memory_order_acquire); }
static bool viewed(struct store *s) { return atomic_load_explicit(&s->views_open, memory_order_acquire); }

/* Compacts the range that store_compact_soon asked for. */
static void sweep_wanted(struct store *s, enum family f)
{
    struct sweep w = {0};
    if (viewed(s)) return;
    pthread_mutex_lock(&s->lock);
    if (s->sweep[f].wanted) {
        w = s->sweep[f];
        s->sweep[f] = (struct sweep){0};
    }
    pthread_mutex_unlock(&s->lock);
    if (!w.wanted) return;
    bytes from = buf_bytes(&w.from), to = buf_bytes(&w.to);
    compact(s, f, from.n ? &from : NULL, to.n ? &to : NULL);
    buf_release(&w.from);
    buf_release(&w.to);
}

static void space_count_held(struct store *s, struct outlook *o)
{
    for (int f = 0; f < FAM_COUNT; f++) {
        if (o->held[f]) atomic_fetch_add_explicit(&s->garbage[f], o->held[f], memory_order_relaxed);
        o->held[f] = 0;
    }
}

static void observe(struct store *s, struct outlook *o)
{
    if (!viewed(s)) space_count_held(s, o);
    o->budget = MIN(o->budget + BUDGET_PER_LOOK, BUDGET_MAX);
    for (int f = 0; f < FAM_COUNT; f++) {
        u64 garbage = atomic_load_explicit(&s->garbage[f], memory_order_relaxed);
        bool grew = garbage > o->garbage[f] + o->garbage[f] / 20;
        o->quiet[f] = grew ? 0 : o->quiet[f] + 1;
        o->garbage[f] = garbage;
    }
}

/* The bytes a sweep rewrites, without blob files. */
static u64 family_size(struct store *s, enum family f)
{
    return store_number(s, f, "rocksdb.total-sst-files-size") +
           store_number(s, f, "rocksdb.size-all-mem-tables");
}

static bool worth_sweeping(struct store *s, enum family f, const struct outlook *o, u64 *size)
{
    u64 garbage = o->garbage[f];
    if (garbage < GARBAGE_WORTH) return false;
    if (f == FAM_RAFT_LOG && o->quiet[f] < QUIET_LOOKS) return false; /* under load RocksDB does it */
    u64 rows = store_number(s, f, "rocksdb.estimate-num-keys");
    if (garbage < rows / 4 && (o->quiet[f] < QUIET_LOOKS || garbage < rows / 20)) return false;
    *size = family_size(s, f);
    return *size >= SIZE_WORTH && (i64)*size <= o->budget;
}

static void set_blob_gc(struct store *s, struct outlook *o, bool on)
{
    const char *name = "enable_blob_garbage_collection", *value = on ? "true" : "false";
    char *err = NULL;
    rocksdb_set_options_cf(s->db, s->cf[FAM_META], 1, &name, &value, &err);
    if (err) rocksdb_free(err); /* it will be tried again in a second */
    else o->blob_gc = on;
}

/* Sweeps redis_metadata while blob garbage collection is on. The blobs a sweep moves are not much more than
 * the garbage it removes, but the keys and short strings it rewrites may be a hundred times as much: hence
 * the budget. A family larger than BUDGET_MAX is swept all the same, because nothing else would reclaim its
 * blobs, and overdraws the budget. */
static void sweep_for_blobs(struct store *s, struct outlook *o)
{
    u64 total = store_number(s, FAM_META, "rocksdb.live-blob-file-size");
    u64 garbage = store_number(s, FAM_META, "rocksdb.live-blob-file-garbage-size");
    bool on = garbage >= SIZE_WORTH && garbage > total / (o->blob_gc ? 5 : 3);
    if (on != o->blob_gc) set_blob_gc(s, o, on);
    if (LIKELY(!o->blob_gc) || viewed(s) || closing(s)) return;
    i64 size = (i64)family_size(s, FAM_META);
    if (MIN(size, BUDGET_MAX) > o->budget) return;
    o->budget -= size;
    compact(s, FAM_META, NULL, NULL);
}

static void flush_all(struct store *s)
{
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    for (int f = 0; f < FAM_COUNT; f++) {
        char *err = NULL;
        rocksdb_flush_cf(s->db, o, s->cf[f], &err);
        if (err) rocksdb_free(err); /* the next write will report it */
    }
    rocksdb_flushoptions_destroy(o);
}

void *store_sweeper(void *arg)
{
    struct store *s = arg;
    struct outlook o = {0};
    while (!closing(s)) {
        worker_wait(&s->sweeper, LOOK_EVERY_MS);
        for (int f = 0; f < FAM_COUNT && !closing(s); f++) sweep_wanted(s, (enum family)f);
        observe(s, &o);
        sweep_for_blobs(s, &o);
        bool tidied = false;
        for (int f = 0; f < FAM_COUNT && !closing(s); f++) {
            u64 size;
            if (!worth_sweeping(s, (enum family)f, &o, &size)) continue;
            o.budget -= (i64)size;
            atomic_fetch_sub_explicit(&s->garbage[f], o.garbage[f], memory_order_relaxed);
            if (viewed(s)) o.held[f] += o.garbage[f];
            o.garbage[f] = 0;
            compact(s, (enum family)f, NULL, NULL);
            tidied |= o.quiet[f] >= QUIET_LOOKS;
        }
        /* A WAL file is deleted once every family has flushed what is in it. */
        if (tidied && !closing(s)) flush_all(s);
    }
    return NULL;
}

void store_compact_soon(struct store_session *session, enum family f, bytes from, bytes to)
{
    struct store *s = session->store;
    if (s->read_only || session->snapshot) return;
    pthread_mutex_lock(&s->lock);
    struct sweep *w = &s->sweep[f];
    /* One range per family: several requests are merged into the range that spans them. Empty: no bound. */
    if (!w->wanted || (w->from.n && bytes_cmp(from, buf_bytes(&w->from)) < 0)) {
        buf_clear(&w->from);
        buf_append_bytes(&w->from, from);
    }
    if (!w->wanted || (w->to.n && (!to.n || bytes_cmp(to, buf_bytes(&w->to)) > 0))) {
        buf_clear(&w->to);
        buf_append_bytes(&w->to, to);
    }
    w->wanted = true;
    pthread_mutex_unlock(&s->lock);
    worker_wake(&s->sweeper);
}

/* -- dropping whole files -------------------------------------------------------------------
 *
 * RocksDB takes files out by range, whatever is in them and without a trace in the log. So
 * - the deletion of what they hold must be durable first: the syncer does it, after a sync;
 * - nothing may be put into the range before it is done: such a put waits (store_await_drop). If
 *   the batch that deleted the range put something there as well, compaction has to do the work;
 * - a view would lose what it shows: compaction has to do the work, later;
 * - the range is deleted once more afterwards: a file that goes may hold the first tombstone, and
 *   another that stays, because it reaches beyond the range, rows that were under it. */

static u64 bytes_in(struct store *s, enum family f, bytes from, bytes to)
{
    uint64_t size = 0;
    char *err = NULL;
    rocksdb_approximate_sizes_cf(s->db, s->cf[f], 1, &from.p, &from.n, &to.p, &to.n, &size, &err);
    if (err) rocksdb_free(err);
    return size;
}

static struct file_drop *new_drop(enum family f, bytes from, bytes to)
{
    struct file_drop *d = mem_zalloc(sizeof *d);
    d->family = f;
    buf_append_bytes(&d->from, from);
    buf_append_bytes(&d->to, to);
    return d;
}

static void free_drop(struct file_drop *d)
{
    buf_release(&d->from);
    buf_release(&d->to);
    mem_free(d);
}

/* False: there is a view. */
static bool queue_drop(struct store *s, struct file_drop *d)
{
    pthread_mutex_lock(&s->lock);
    bool queued = !s->views;
    if (queued) {
        *s->drops_end = d;
        s->drops_end = &d->next;
        atomic_fetch_add_explicit(&s->drops_pending, 1, memory_order_release);
    }
    pthread_mutex_unlock(&s->lock);
    return queued;
}

void store_drop_files(struct store_session *session, enum family f, bytes from, bytes to)
{
    struct store *s = session->store;
    u64 size = bytes_in(s, f, from, to);
    if (size >= FILES_WORTH && !session->refilled[f]) {
        struct file_drop *d = new_drop(f, from, to);
        if (queue_drop(s, d)) {
            worker_wake(&s->syncer);
            return;
        }
        free_drop(d);
    }
    if (size >= SIZE_WORTH) store_compact_soon(session, f, from, to);
}

static void run_drop(struct store *s, const struct file_drop *d)
{
    char *err = NULL;
    rocksdb_column_family_handle_t *cf = s->cf[d->family];
    rocksdb_delete_file_in_range_cf(s->db, cf, d->from.p, d->from.n, d->to.p, d->to.n, &err);
    if (!err) {
        rocksdb_writeoptions_t *o = rocksdb_writeoptions_create();
        rocksdb_delete_range_cf(s->db, o, cf, d->from.p, d->from.n, d->to.p, d->to.n, &err);
        rocksdb_writeoptions_destroy(o);
    }
    if (err && s->log) log_line(s->log, LOG_WARNING, "RocksDB: can't drop files: %s", err);
    if (err) rocksdb_free(err);
}

void store_run_drops(struct store *s, u32 n, bool synced)
{
    while (n--) {
        pthread_mutex_lock(&s->lock);
        struct file_drop *d = s->drops;
        pthread_mutex_unlock(&s->lock);
        if (synced) run_drop(s, d); /* else compaction has to do it */
        pthread_mutex_lock(&s->lock);
        s->drops = d->next;
        if (!d->next) s->drops_end = &s->drops;
        atomic_fetch_sub_explicit(&s->drops_pending, 1, memory_order_release);
        pthread_cond_broadcast(&s->dropped);
        pthread_mutex_unlock(&s->lock);
        free_drop(d);
    }
}

bool store_drops_files(const struct store *s)
{
    return atomic_load_explicit(&s->drops_pending, memory_order_relaxed) != 0;
}

static bool in_a_drop(const struct store *s, enum family f, bytes key)
{
    for (const struct file_drop *d = s->drops; d; d = d->next) {
        bool before = bytes_cmp(key, buf_bytes(&d->from)) < 0, after = bytes_cmp(key, buf_bytes(&d->to)) >= 0;
        if (d->family == f && !before && !after) return true;
    }
    return false;
}

void store_await_drop(struct store *s, enum family f, bytes key)
{
    pthread_mutex_lock(&s->lock);
    while (in_a_drop(s, f, key)) pthread_cond_wait(&s->dropped, &s->lock);
    pthread_mutex_unlock(&s->lock);
}
