/* Opening and closing sessions and views.
 *
 * A view is a read-only session on a RocksDB snapshot. RocksDB keeps what is overwritten or deleted for a
 * snapshot, but compaction filters and dropping files by range bypass it. So filters are told what to keep
 * (filter.h), no files are dropped while a view is open, and no view is opened while files are being dropped
 * (store_space.c). */
#include "engine/rocks/store/store_impl.h"

#include "base/alloc.h"

/* -- the lists: under store.lock -------------------------------------------------------------- */

static void link_session(struct store_session **list, struct store_session *s)
{
    s->next = *list;
    s->at = list;
    if (s->next) s->next->at = &s->next;
    *list = s;
}

static void unlink_session(struct store_session *s)
{
    *s->at = s->next;
    if (s->next) s->next->at = s->at;
}

/* Publishes what all sessions consider dead, without keys that were alive when an open view was opened. */
static void publish_dead(struct store *st)
{
    i64 dead_ms = INT64_MAX;
    bool some = false;
    for (const struct store_session *s = st->sessions; s; s = s->next) {
        if (s->keyless) continue;
        dead_ms = MIN(dead_ms, s->dead_ms);
        some = true;
    }
    if (!some) dead_ms = 0;
    if (st->views) dead_ms = MIN(dead_ms, atomic_load_explicit(&st->filters.dead_ms, memory_order_relaxed));
    atomic_store_explicit(&st->filters.dead_ms, dead_ms, memory_order_relaxed);
}

/* Publishes which orphans a view can still read. */
static void publish_kept(struct store *st)
{
    u64 kept = 0;
    for (const struct store_session *v = st->views; v; v = v->next) kept = MAX(kept, v->last_version);
    atomic_store_explicit(&st->filters.kept_version, kept, memory_order_release);
}

/* -- sessions ---------------------------------------------------------------------------------- */

static struct store_session *new_session(struct store *st, bool *failed)
{
    struct store_session *s = mem_zalloc(sizeof *s);
    s->store = st;
    s->db = st->db;
    memcpy(s->cf, st->cf, sizeof s->cf);
    s->failed = failed;
    s->read = rocksdb_readoptions_create();
    /* Counts this thread's hits in the block cache. RocksDB's statistics would count everything, at a cost
     * for every read. */
    rocksdb_set_perf_level(rocksdb_enable_count);
    s->perf = rocksdb_perfcontext_create();
    return s;
}

static void free_session(struct store_session *s)
{
    store_take_back(s);
    store_drop_idle(s);
    rocksdb_perfcontext_destroy(s->perf);
    rocksdb_readoptions_destroy(s->read);
    if (s->write) rocksdb_writeoptions_destroy(s->write);
    if (s->batch) rocksdb_writebatch_destroy(s->batch);
    buf_release(&s->joined);
    mem_free(s->refusal);
    mem_free(s);
}

static struct store_session *open_session(struct store *st, bool keyless, bool *failed)
{
    struct store_session *s = new_session(st, failed);
    s->keyless = keyless;
    s->write = rocksdb_writeoptions_create();
    s->batch = rocksdb_writebatch_create();
    pthread_mutex_lock(&st->lock);
    link_session(&st->sessions, s);
    publish_dead(st);
    pthread_mutex_unlock(&st->lock);
    return s;
}

struct store_session *store_session_open(struct store *st, bool *failed)
{
    return open_session(st, false, failed);
}

struct store_session *store_log_session_open(struct store *st, bool *failed)
{
    struct store_session *s = open_session(st, true, failed);
    store_relax(s, true); /* store_sync makes it durable */
    return s;
}

void store_session_close(struct store_session *s)
{
    if (!s) return;
    struct store *st = s->store;
    pthread_mutex_lock(&st->lock);
    unlink_session(s);
    publish_dead(st);
    pthread_mutex_unlock(&st->lock);
    free_session(s);
}

struct store *store_of(const struct store_session *s) { return s->store; }

void store_set_dead(struct store_session *s, i64 dead_ms)
{
    if (LIKELY(dead_ms == s->dead_ms)) return;
    pthread_mutex_lock(&s->store->lock);
    s->dead_ms = dead_ms;
    publish_dead(s->store);
    pthread_mutex_unlock(&s->store->lock);
}

/* -- views ------------------------------------------------------------------------------------------ */

/* False: files are being dropped. Before the snapshot is taken: filters may not drop what it will show. */
static bool link_view(struct store *st, struct store_session *v)
{
    pthread_mutex_lock(&st->lock);
    bool quiet = !atomic_load_explicit(&st->drops_pending, memory_order_acquire);
    if (quiet) {
        link_session(&st->views, v);
        publish_kept(st);
        atomic_fetch_add_explicit(&st->views_open, 1, memory_order_release);
    }
    pthread_mutex_unlock(&st->lock);
    return quiet;
}

struct store_session *store_view(struct store *st, u64 last_version, bool *failed)
{
    struct store_session *v = new_session(st, failed);
    v->last_version = last_version;
    if (!link_view(st, v)) {
        free_session(v);
        return NULL;
    }
    v->snapshot = rocksdb_create_snapshot(st->db);
    rocksdb_readoptions_set_snapshot(v->read, v->snapshot);
    return v;
}

void store_view_close(struct store_session *v)
{
    if (!v) return;
    struct store *st = v->store;
    store_take_back(v);
    store_drop_idle(v);
    rocksdb_release_snapshot(st->db, v->snapshot);
    pthread_mutex_lock(&st->lock);
    unlink_session(v);
    publish_kept(st);
    publish_dead(st);
    atomic_fetch_sub_explicit(&st->views_open, 1, memory_order_release);
    pthread_mutex_unlock(&st->lock);
    free_session(v);
    worker_wake(&st->sweeper); /* it can now free what the view kept */
}

void store_age_views(struct store *st)
{
    pthread_mutex_lock(&st->lock);
    for (struct store_session *v = st->views; v; v = v->next)
        atomic_fetch_add_explicit(&v->age, 1, memory_order_relaxed);
    pthread_mutex_unlock(&st->lock);
}
