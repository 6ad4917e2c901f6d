/* The lines of INFO about the store. Sums come first, under names of their own; then a line for each
 * family, in the form of Redis's cmdstat_: fields joined by commas, levels by colons. */
#include "engine/rocks/store/store_impl.h"

#include <stdio.h>

static void line(struct buf *out, const char *name, u64 value)
{
    buf_printf(out, "%s:%llu\r\n", name, (ull)value);
}

static u64 sum(struct store *s, const char *property)
{
    u64 n = 0;
    for (int f = 0; f < FAM_COUNT; f++) n += store_number(s, (enum family)f, property);
    return n;
}

static u64 whole(struct store *s, const char *property)
{
    uint64_t n = 0;
    return rocksdb_property_int(s->db, property, &n) == 0 ? n : 0;
}

static void space(struct store *s, struct buf *out)
{
    line(out, "sst_bytes", sum(s, "rocksdb.total-sst-files-size"));
    line(out, "live_sst_bytes", sum(s, "rocksdb.live-sst-files-size"));
    line(out, "live_data_bytes", sum(s, "rocksdb.estimate-live-data-size"));
    line(out, "blob_bytes", store_number(s, FAM_META, "rocksdb.total-blob-file-size"));
    line(out, "blob_files", store_number(s, FAM_META, "rocksdb.num-blob-files"));
    line(out, "live_blob_bytes", store_number(s, FAM_META, "rocksdb.live-blob-file-size"));
    line(out, "blob_garbage_bytes", store_number(s, FAM_META, "rocksdb.live-blob-file-garbage-size"));
    line(out, "memtable_bytes", sum(s, "rocksdb.size-all-mem-tables"));
    line(out, "table_reader_bytes", sum(s, "rocksdb.estimate-table-readers-mem"));
}

static void cache(struct store_session *session, struct buf *out)
{
    struct store *s = session->store;
    line(out, "memory_budget", s->limits.budget);
    line(out, "block_cache_capacity", rocksdb_cache_get_capacity(s->cache));
    line(out, "block_cache_usage", rocksdb_cache_get_usage(s->cache));
    line(out, "block_cache_pinned", rocksdb_cache_get_pinned_usage(s->cache));
    line(out, "block_cache_hits", rocksdb_perfcontext_metric(session->perf, rocksdb_block_cache_hit_count));
    line(out, "block_cache_misses", rocksdb_perfcontext_metric(session->perf, rocksdb_block_read_count));
    line(out, "iterators_made", session->iterators_made);
    line(out, "iterators_reused", session->iterators_reused);
}

static void work(struct store *s, struct buf *out)
{
    line(out, "pending_compaction_bytes", sum(s, "rocksdb.estimate-pending-compaction-bytes"));
    line(out, "running_compactions", whole(s, "rocksdb.num-running-compactions"));
    line(out, "running_flushes", whole(s, "rocksdb.num-running-flushes"));
    line(out, "sweeps", atomic_load_explicit(&s->sweeps, memory_order_relaxed));
    u32 pressure = store_pressure(s, false);
    line(out, "write_pressure", pressure * 100 / DISK_PRESSURE_MAX);
    line(out, "write_stalled", pressure == DISK_PRESSURE_MAX);
    line(out, "write_stalls", atomic_load_explicit(&s->stalls, memory_order_relaxed));
    store_trouble_info(s, out);
    line(out, "background_errors", whole(s, "rocksdb.background-errors"));
}

static void log_sync(struct store *s, struct buf *out)
{
    static const char *const modes[] = {"no", "everysec", "always"};
    bool failed = atomic_load_explicit(&s->sync_failed, memory_order_relaxed);
    buf_printf(out, "wal_sync:%s\r\n", modes[atomic_load_explicit(&s->sync, memory_order_relaxed)]);
    buf_printf(out, "wal_last_sync_status:%s\r\n", failed ? "err" : "ok");
    line(out, "wal_syncs", atomic_load_explicit(&s->syncs, memory_order_relaxed));
}

static u64 dropped(struct store *s, enum family f)
{
    return atomic_load_explicit(&s->filters.dropped[f], memory_order_relaxed);
}

static void levels(struct store *s, enum family f, struct buf *out)
{
    rocksdb_column_family_metadata_t *m = rocksdb_get_column_family_metadata_cf(s->db, s->cf[f]);
    size_t n = rocksdb_column_family_metadata_get_level_count(m);
    struct buf sizes = {0};
    for (size_t i = 0; i < n; i++) {
        rocksdb_level_metadata_t *l = rocksdb_column_family_metadata_get_level_metadata(m, i);
        buf_printf(out, "%s%llu", i ? ":" : "level_files=", (ull)rocksdb_level_metadata_get_file_count(l));
        buf_printf(&sizes, "%s%llu", i ? ":" : ",level_bytes=", (ull)rocksdb_level_metadata_get_size(l));
        rocksdb_level_metadata_destroy(l);
    }
    buf_append_bytes(out, buf_bytes(&sizes));
    buf_release(&sizes);
    rocksdb_column_family_metadata_destroy(m);
}

static void family(struct store *s, enum family f, struct buf *out)
{
    buf_printf(out, "family_%s:", store_family_names[f]);
    levels(s, f, out);
    buf_printf(out, ",rows=%llu,memtable_bytes=%llu,memtable_rows=%llu,pending_compaction_bytes=%llu",
               (ull)store_number(s, f, "rocksdb.estimate-num-keys"),
               (ull)store_number(s, f, "rocksdb.size-all-mem-tables"),
               (ull)store_number(s, f, "rocksdb.num-entries-active-mem-table"),
               (ull)store_number(s, f, "rocksdb.estimate-pending-compaction-bytes"));
    buf_printf(out, ",garbage_rows=%llu,dropped=%llu\r\n",
               (ull)atomic_load_explicit(&s->garbage[f], memory_order_relaxed), (ull)dropped(s, f));
}

void store_info(struct store_session *session, struct buf *out)
{
    struct store *s = session->store;
    space(s, out);
    cache(session, out);
    work(s, out);
    log_sync(s, out);
    line(out, "dead_keys_dropped", dropped(s, FAM_META));
    line(out, "orphans_dropped", dropped(s, FAM_DATA) + dropped(s, FAM_SCORE) + dropped(s, FAM_RANK) +
                                     dropped(s, FAM_FIELD) + dropped(s, FAM_STREAM) +
                                     dropped(s, FAM_COMPANION));
    for (int f = 0; f < FAM_COUNT; f++) family(s, (enum family)f, out);
}
