/* The options that RocksDB is opened with.
 *
 * Figures in the comments were measured with 1M keys of 38 bytes (P) and values of 109, in random order,
 * in batches of 500, on two cores. CPU is that of all threads, since they share the cores with the loop. */
#include "engine/rocks/store/store_impl.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/machine.h"

/* A family's memtable is `memtable`/8 of the common size; `level0` files of that size start a compaction. A
 * family that is read only by range, never by key, has no use for a bloom filter.
 *
 * Keys are mostly read by key: filters skip many small files, and many small memtables are cheaper to fill
 * than few large ones (random SETs, 16 at a time: 3.0 us of the loop's CPU each instead of 3.9). Asking 22
 * files that don't have a key costs 0.8 us more than asking 5. Families read by range have to seek in each
 * file, so they have few.
 *
 * Keys have as many files in L0 as disk space allows: random SETs make compactions read a fifth less with 40
 * files than with 32 (decision 028).
 *
 * Deadlines are a queue: rows are deleted soon after they are written. L0 is kept small.
 *
 * The Raft log is a queue, too, of rows that are hardly ever read and are deleted by range. The larger its
 * memtable, the less of it is ever written to a file. */
static const struct {
    u8 memtable, level0;
    bool bloom;
} shapes[FAM_COUNT] = {
    [FAM_META] = {2, 40, true},     [FAM_DATA] = {8, 8, true},    [FAM_SCORE] = {8, 8, false},
    [FAM_RANK] = {4, 8, true},      [FAM_FIELD] = {4, 8, true},   [FAM_STREAM] = {8, 8, true},
    [FAM_DEADLINE] = {4, 2, false}, [FAM_INFO] = {1, 8, false},   [FAM_COMPANION] = {2, 8, true},
    [FAM_RAFT_LOG] = {8, 4, false},
};

#define MB ((u64)1 << 20)
#define NEVER (1 << 30)

static u64 family_memtable(const struct sizes *z, enum family f)
{
    return MAX(z->memtable * shapes[f].memtable / 8, MB / 4);
}

/* The backlogs at which RocksDB would delay or stop writes (store_pressure.c). Many files in L0 cost reads
 * little: their filters rule out most of them. */
struct store_limits store_limits(const struct sizes *z)
{
    struct store_limits l = {
        .budget = z->budget, .pending_soft = 128 * 1024 * MB, .pending_hard = 512 * 1024 * MB};
    u64 active = 0;
    for (int f = 0; f < FAM_COUNT; f++) {
        if (f != FAM_RAFT_LOG) active += family_memtable(z, (enum family)f); /* unused outside cluster mode */
        l.level0[f] = MAX(4u * shapes[f].level0, 32u);
    }
    l.unflushed = MAX(z->buffers - MIN(z->buffers, active), 2 * z->memtable);
    return l;
}

/* File size of the first level below L0; it doubles with each further level. */
static u64 file_size(const struct sizes *z) { return MAX(z->memtable / 2, MB); }

/* Leaves descriptors for sockets and everything else, and keeps the indexes and filters of open files, about
 * 1.2 % of their size, within half of the block cache. */
static int open_files(const struct sizes *z)
{
    struct rlimit limit;
    u64 most = 65536, in_cache = z->cache / 2 / (4 * file_size(z) / 80);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) most = MIN(most, limit.rlim_cur / 2);
    return (int)MAX(MIN(most, in_cache), 128);
}

struct sizes store_sizes(const struct rocks_options *o)
{
    u64 memory = machine_memory();
    struct sizes z = {.cache = o->block_cache, .rows = o->row_cache, .buffers = o->write_buffer,
                      .threads = o->background_threads};
    if (!z.cache) z.cache = MAX(memory / 8, 8 * MB);
    if (!z.rows) z.rows = memory / 16;
    /* More than this makes the WAL long and saves no work. */
    if (!z.buffers) z.buffers = MAX(MIN(memory / 16, 256 * MB), 16 * MB);
    /* Inserting costs mostly cache misses: 4.1 us into a memtable of 64 MB, 2.6 into one of 16, 2.2 into
     * 8. */
    z.memtable = MAX(MIN(z.buffers / 8, 8 * MB), MB / 2);
    if (!z.threads) z.threads = (u32)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
    z.threads = MAX(z.threads, 2); /* one to flush, one to compact */
    z.readahead = MAX(MIN(z.buffers / 128, 2 * MB), 128 * 1024);
    z.files = open_files(&z);
    /* A compaction has buffers for its output, and one for each file it reads. */
    z.budget = z.cache + z.rows + z.buffers + z.threads * (2 * MB + 16 * z.readahead);
    return z;
}

/* -- options ------------------------------------------------------------------------ */

/* Options of the database, not of a family. */
rocksdb_options_t *store_database_options(const struct rocks_options *o, const struct sizes *z)
{
    rocksdb_options_t *opt = rocksdb_options_create();
    rocksdb_options_set_create_missing_column_families(opt, 1);
    rocksdb_options_set_db_write_buffer_size(opt, z->buffers);
    /* Bounds what a restart has to replay, and the disk space of the WAL. */
    rocksdb_options_set_max_total_wal_size(opt, MAX(z->buffers / 8, 4 * MB));
    rocksdb_options_set_max_background_jobs(opt, (int)z->threads);
    rocksdb_options_set_max_open_files(opt, z->files);
    /* There is one writer: concurrent memtable writes would only cost. */
    rocksdb_options_set_allow_concurrent_memtable_write(opt, 0);
    rocksdb_options_set_enable_write_thread_adaptive_yield(opt, 0);
    /* Have the kernel write continuously, not all at once at the next sync. */
    rocksdb_options_set_bytes_per_sync(opt, MB);
    rocksdb_options_set_wal_bytes_per_sync(opt, MB);
    rocksdb_options_compaction_readahead_size(opt, z->readahead);
    /* Delete files in the background when the last iterator that pins them is closed, not on the loop. */
    rocksdb_options_set_avoid_unnecessary_blocking_io(opt, 1);
    /* Debian's RocksDB is built with assertions, and one of them aborts when a line can't be written to the
     * file LOG because the disk is full. So only its header is written there; errors that matter are returned
     * to us, and logged in our own log. */
    rocksdb_options_set_info_log_level(opt, 4 /* FATAL */);
    rocksdb_options_set_stats_dump_period_sec(opt, 0);
    rocksdb_options_set_max_log_file_size(opt, 4 * MB);
    rocksdb_options_set_keep_log_file_num(opt, 2);
    rocksdb_options_set_stats_persist_period_sec(opt, 0);
    rocksdb_options_set_max_manifest_file_size(opt, 64 * MB);
    if (o->rate_limit) {
        rocksdb_ratelimiter_t *limiter = rocksdb_ratelimiter_create((i64)o->rate_limit, 100000, 10);
        rocksdb_options_set_ratelimiter(opt, limiter);
        rocksdb_ratelimiter_destroy(limiter); /* the options share it */
    }
    return opt;
}

static int compression_of(enum rocks_compression c)
{
    switch (c) {
    case ROCKS_LZ4: return rocksdb_lz4_compression;
    case ROCKS_ZSTD: return rocksdb_zstd_compression;
    case ROCKS_SNAPPY: return rocksdb_snappy_compression;
    case ROCKS_PLAIN: break;
    }
    return rocksdb_no_compression;
}

static void set_table(rocksdb_options_t *opt, enum family f, rocksdb_cache_t *cache)
{
    rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(t, cache);
    rocksdb_block_based_options_set_block_size(t, f == FAM_RAFT_LOG ? 4 << 10 : 8 << 10);
    rocksdb_block_based_options_set_format_version(t, 5);
    if (shapes[f].bloom) /* the options own it */
        rocksdb_block_based_options_set_filter_policy(t, rocksdb_filterpolicy_create_bloom_full(10));
    if (shapes[f].bloom) /* read by key: a hash index in each block makes that 10 % faster */
        rocksdb_block_based_options_set_data_block_index_type(
            t, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
    /* Indexes and filters are charged to the block cache, and pinned there while their file is open
     * (PIN_METADATA). open_files() bounds what that takes. */
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(t, 1);
    rocksdb_options_set_block_based_table_factory(opt, t);
    rocksdb_block_based_options_destroy(t);
}

/* Sets an option that the C interface has only as text. A RocksDB that does not know it ignores it. */
static rocksdb_options_t *with_option(rocksdb_options_t *opt, const char *text)
{
    rocksdb_options_t *with = rocksdb_options_create();
    char *err = NULL;
    rocksdb_get_options_from_string(opt, text, with, &err);
    rocksdb_options_destroy(err ? with : opt);
    if (!err) return with;
    rocksdb_free(err);
    return opt;
}

/* Looking indexes and filters up in the cache would cost each read 0.3 us (of 0.9 when there is no such
 * key). */
#define PIN_METADATA "block_based_table_factory={metadata_cache_options={unpartitioned_pinning=kAll;};}"

static void set_levels(rocksdb_options_t *opt, enum family f, const struct rocks_options *o,
                       const struct sizes *z)
{
    int rest = compression_of(f == FAM_RAFT_LOG ? ROCKS_PLAIN : o->compression);
    int by_level[STORE_LEVELS] = {0, 0, rest, rest, rest, rest, rest};
    rocksdb_options_set_num_levels(opt, STORE_LEVELS);
    rocksdb_options_set_compression_per_level(opt, by_level, STORE_LEVELS);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(opt, 1);
    /* A compaction keeps its input files until it is done. Small files, a small first level and a limit on
     * the size of a compaction bound that. With 1,000,000 keys, 20,000 of them new and expiring per second,
     * files and WAL took at most 1.8 times the live data. L0 is also compacted when it exceeds the first
     * level's size. The more L0 holds, the less often the rest is rewritten: with half this size, compactions
     * cost 18 % more. */
    rocksdb_options_set_target_file_size_base(opt, file_size(z));
    rocksdb_options_set_target_file_size_multiplier(opt, 2);
    rocksdb_options_set_max_bytes_for_level_base(opt, 16 * file_size(z));
    rocksdb_options_set_max_compaction_bytes(opt, 5 * file_size(z));
    rocksdb_options_set_level0_file_num_compaction_trigger(opt, shapes[f].level0);
    /* RocksDB itself delays or stops no write: store_pressure.c. */
    rocksdb_options_set_level0_slowdown_writes_trigger(opt, NEVER);
    rocksdb_options_set_level0_stop_writes_trigger(opt, NEVER);
    rocksdb_options_set_soft_pending_compaction_bytes_limit(opt, 0);
    rocksdb_options_set_hard_pending_compaction_bytes_limit(opt, 0);
}

static void set_blobs(rocksdb_options_t *opt, const struct rocks_options *o, const struct sizes *z,
                      rocksdb_cache_t *cache)
{
    rocksdb_options_set_enable_blob_files(opt, 1);
    rocksdb_options_set_min_blob_size(opt, o->blob_size);
    rocksdb_options_set_blob_file_size(opt, 64 * MB);
    rocksdb_options_set_blob_compression_type(opt, compression_of(o->compression));
    rocksdb_options_set_blob_cache(opt, cache);
    /* Off until there is much garbage (store_space.c). While it is on, each compaction moves live blobs out
     * of the older half of the blob files, whether or not they have garbage: under a write-only load, each
     * compaction of a few small files would copy half of all long strings. */
    rocksdb_options_set_enable_blob_gc(opt, 0);
    rocksdb_options_set_blob_gc_age_cutoff(opt, 0.5);
    rocksdb_options_set_blob_compaction_readahead_size(opt, z->readahead);
}

rocksdb_options_t *store_family_options(struct store *s, enum family f, const struct rocks_options *o,
                                        const struct sizes *z, rocksdb_options_t *database)
{
    rocksdb_options_t *opt = rocksdb_options_create_copy(database);
    rocksdb_options_set_write_buffer_size(opt, family_memtable(z, f));
    rocksdb_options_set_max_write_buffer_number(opt, NEVER); /* their bytes count: store_pressure.c */
    /* Merging two memtables into one file would save a little work, but 7.8 can lose a manual flush then: a
     * flush already under way clears the request, and one memtable alone is not flushed. */
    rocksdb_options_set_min_write_buffer_number_to_merge(opt, 1);
    if (shapes[f].bloom) { /* reads of absent keys skip the memtable: 0.7 us instead of 3.9 */
        rocksdb_options_set_memtable_whole_key_filtering(opt, 1);
        rocksdb_options_set_memtable_prefix_bloom_size_ratio(opt, 0.015);
    }
    set_table(opt, f, s->cache);
    set_levels(opt, f, o, z);
    if (f == FAM_META && o->blob_size) set_blobs(opt, o, z, s->cache);
    if (f == FAM_DEADLINE) /* compact files full of tombstones before iterators have to skip them */
        rocksdb_options_add_compact_on_deletion_collector_factory(opt, 4096, 1024);
    filter_attach(&s->filters, f, opt);
    return with_option(opt, PIN_METADATA);
}

rocksdb_cache_t *store_new_cache(u64 capacity)
{
    rocksdb_lru_cache_options_t *o = rocksdb_lru_cache_options_create();
    rocksdb_lru_cache_options_set_capacity(o, capacity);
    rocksdb_lru_cache_options_set_num_shard_bits(o, capacity >= 256 * MB ? 4 : 2); /* few threads read */
    rocksdb_cache_t *cache = rocksdb_cache_create_lru_opts(o);
    rocksdb_lru_cache_options_destroy(o);
    return cache;
}
