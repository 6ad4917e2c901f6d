/* Views: a RocksDB snapshot with iterators of its own.
 *
 * RocksDB keeps for a snapshot what is overwritten or deleted, but three things are done behind its back:
 * the compaction filters are told what to leave (filter.h), files are not dropped by range while a view is
 * open, and none is opened while some are (store_space.c). */
#include "engine/rocks/store/store_impl.h"

#include "base/alloc.h"

struct store *store_view(struct store *s, u64 last_version, bool *failed)
{
    CHECK(!s->view && !s->of);
    if (atomic_load_explicit(&s->drops_pending, memory_order_acquire)) return NULL;
    struct store *v = mem_zalloc(sizeof *v);
    v->db = s->db;
    memcpy(v->cf, s->cf, sizeof v->cf);
    v->read_only = true;
    v->failed = failed;
    v->log = s->log;
    v->of = s;
    s->view = v;
    atomic_store_explicit(&s->viewed, true, memory_order_release);
    atomic_store_explicit(&s->filters.kept_version, last_version, memory_order_release);
    v->snapshot = rocksdb_create_snapshot(s->db);
    v->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_snapshot(v->read, v->snapshot);
    return v;
}

void store_view_close(struct store *v)
{
    if (!v) return;
    struct store *s = v->of;
    store_take_back(v);
    store_drop_idle(v);
    rocksdb_readoptions_destroy(v->read);
    rocksdb_release_snapshot(v->db, v->snapshot);
    atomic_store_explicit(&s->filters.kept_version, 0, memory_order_release);
    atomic_store_explicit(&s->viewed, false, memory_order_release);
    s->view = NULL;
    worker_wake(&s->sweeper); /* what it could not give back meanwhile */
    mem_free(v);
}
