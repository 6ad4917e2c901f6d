/* Options, opening and closing.
 *
 * The options were measured: 1M keys of 38 bytes (P), values of 109, random order, batches of 500, on
 * two cores; see the comments at each. CPU of all threads counts, since the machine's cores are
 * shared with everything else it does. */
#include "engine/rocks/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

const char *const store_family_names[FAM_COUNT] = {
    [FAM_META] = "redis_metadata",
    [FAM_DATA] = "data",
    [FAM_SCORE] = "redis_zset_score",
    [FAM_RANK] = "zset_rank",
    [FAM_FIELD] = "field_deadline",
    [FAM_DEADLINE] = "deadline",
    [FAM_INFO] = "meta_info",
};

/* A family's memtable is `memtable`/8 of the common size. Where nothing is read by its key, only by
 * range, a bloom filter would be of no use. */
static const struct {
    u8 memtable;
    bool bloom;
} shapes[FAM_COUNT] = {
    [FAM_META] = {8, true}, [FAM_DATA] = {8, true}, [FAM_SCORE] = {8, false}, [FAM_RANK] = {4, true},
    [FAM_FIELD] = {4, true}, [FAM_DEADLINE] = {4, false}, [FAM_INFO] = {1, false},
};

#define MB ((u64)1 << 20)
#define BUFFERS 6 /* memtables of a family, full ones included, before its writes have to wait */

struct sizes {
    u64 cache, buffers, memtable;
    u32 threads;
    int files;
};

/* Of the first level below L0; the next ones' are twice as large each. */
static u64 file_size(const struct sizes *z) { return MAX(z->memtable / 2, MB); }

static u64 physical_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (u64)pages * (u64)size : 1024 * MB;
}

/* Sockets and everything else need descriptors, too. And indexes and filters of open files, about 1.2 % of
 * their size, are to take no more than half of the cache. */
static int open_files(const struct sizes *z)
{
    struct rlimit limit;
    u64 most = 65536, in_cache = z->cache / 2 / (4 * file_size(z) / 80);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) most = MIN(most, limit.rlim_cur / 2);
    return (int)MAX(MIN(most, in_cache), 128);
}

static struct sizes sizes_for(const struct rocks_options *o)
{
    u64 memory = physical_memory();
    struct sizes z = {.cache = o->block_cache, .buffers = o->write_buffer, .threads = o->background_threads};
    if (!z.cache) z.cache = MAX(memory / 8, 8 * MB);
    /* More than this makes the log long and saves no work. */
    if (!z.buffers) z.buffers = MAX(MIN(memory / 16, 256 * MB), 16 * MB);
    /* Inserting costs mostly cache misses: 2.6 us into a memtable of 16 MB, 4.1 us into one of 64. */
    z.memtable = MAX(MIN(z.buffers / 8, 16 * MB), MB / 2);
    if (!z.threads) z.threads = (u32)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
    z.threads = MAX(z.threads, 2); /* one to flush, one to compact */
    z.files = open_files(&z);
    return z;
}

/* -- options ------------------------------------------------------------------------ */

/* Of the database as a whole. */
static rocksdb_options_t *database_options(const struct rocks_options *o, const struct sizes *z)
{
    rocksdb_options_t *opt = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(opt, 1);
    rocksdb_options_set_create_missing_column_families(opt, 1);
    rocksdb_options_set_db_write_buffer_size(opt, z->buffers);
    /* What a restart has to replay, and what the log takes on disk. */
    rocksdb_options_set_max_total_wal_size(opt, MAX(z->buffers / 8, 4 * MB));
    rocksdb_options_set_max_background_jobs(opt, (int)z->threads);
    rocksdb_options_set_max_open_files(opt, z->files);
    /* One writer: nothing to gain from the machinery for many. */
    rocksdb_options_set_allow_concurrent_memtable_write(opt, 0);
    rocksdb_options_set_enable_write_thread_adaptive_yield(opt, 0);
    /* A torn record at the end of the log is where a crash cut it: replay stops there. If families
     * have data from beyond that point, the log is damaged, and opening fails. */
    rocksdb_options_set_wal_recovery_mode(opt, rocksdb_point_in_time_recovery);
    /* The kernel writes as we go, not all at once when somebody syncs. */
    rocksdb_options_set_bytes_per_sync(opt, MB);
    rocksdb_options_set_wal_bytes_per_sync(opt, MB);
    rocksdb_options_compaction_readahead_size(opt, 2 * MB);
    /* Files that an iterator was the last to hold are deleted in the background, not by the loop. */
    rocksdb_options_set_avoid_unnecessary_blocking_io(opt, 1);
    /* Debian's RocksDB is built with its assertions, and one of them ends the process when a line can't be
     * written to the file LOG because the disk is full. So nothing but its heading goes there; what
     * matters comes back as an error, and is in our own log. */
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
    rocksdb_block_based_options_set_block_size(t, 8 << 10);
    rocksdb_block_based_options_set_format_version(t, 5);
    if (shapes[f].bloom) /* the options own it */
        rocksdb_block_based_options_set_filter_policy(t, rocksdb_filterpolicy_create_bloom_full(10));
    if (shapes[f].bloom) /* read by key: a hash in each block finds it 10 % sooner */
        rocksdb_block_based_options_set_data_block_index_type(
            t, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
    /* Indexes and filters count as part of the cache, so that data blocks give way to them, and are held
     * there while their file is open (PIN_METADATA). open_files() bounds what that takes. */
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(t, 1);
    rocksdb_options_set_block_based_table_factory(opt, t);
    rocksdb_block_based_options_destroy(t);
}

/* An option that the C interface knows only as a text; a RocksDB that does not have it does without. */
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

static void set_levels(rocksdb_options_t *opt, const struct rocks_options *o, const struct sizes *z)
{
    int rest = compression_of(o->compression), by_level[STORE_LEVELS] = {0, 0, rest, rest, rest, rest, rest};
    rocksdb_options_set_num_levels(opt, STORE_LEVELS);
    rocksdb_options_set_compression_per_level(opt, by_level, STORE_LEVELS);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(opt, 1);
    /* A compaction keeps what it reads until it is done. Small files, a small first level and a limit on
     * what one compaction takes keep that in bounds: with all of 150 MB in one level, each compaction
     * needed as much again: 2.3 times the live data with 20,000 keys expiring a second. */
    rocksdb_options_set_target_file_size_base(opt, file_size(z));
    rocksdb_options_set_target_file_size_multiplier(opt, 2);
    rocksdb_options_set_max_bytes_for_level_base(opt, 8 * file_size(z));
    rocksdb_options_set_max_compaction_bytes(opt, 4 * file_size(z));
    rocksdb_options_set_level0_file_num_compaction_trigger(opt, 4);
    /* Many files in L0 cost reads a little, and their filters answer for most of them; a stopped write
     * costs everybody. */
    rocksdb_options_set_level0_slowdown_writes_trigger(opt, 32);
    rocksdb_options_set_level0_stop_writes_trigger(opt, 64);
    rocksdb_options_set_soft_pending_compaction_bytes_limit(opt, 128 * 1024 * MB);
    rocksdb_options_set_hard_pending_compaction_bytes_limit(opt, 512 * 1024 * MB);
}

static void set_blobs(rocksdb_options_t *opt, const struct rocks_options *o, rocksdb_cache_t *cache)
{
    rocksdb_options_set_enable_blob_files(opt, 1);
    rocksdb_options_set_min_blob_size(opt, o->blob_size);
    rocksdb_options_set_blob_file_size(opt, 64 * MB);
    rocksdb_options_set_blob_compression_type(opt, compression_of(o->compression));
    rocksdb_options_set_blob_cache(opt, cache);
    /* Compactions move what is alive out of the older half of the blob files, and are started for it
     * when half of what those hold is garbage: overwritten and expired strings cost at most about
     * as much again as the live ones. */
    rocksdb_options_set_enable_blob_gc(opt, 1);
    rocksdb_options_set_blob_gc_age_cutoff(opt, 0.5);
    rocksdb_options_set_blob_gc_force_threshold(opt, 0.5);
    rocksdb_options_set_blob_compaction_readahead_size(opt, 2 * MB);
}

static rocksdb_options_t *family_options(struct store *s, enum family f, const struct rocks_options *o,
                                         const struct sizes *z, const rocksdb_options_t *database)
{
    rocksdb_options_t *opt = rocksdb_options_create_copy((rocksdb_options_t *)database);
    u64 memtable = MAX(z->memtable * shapes[f].memtable / 8, MB / 4);
    rocksdb_options_set_write_buffer_size(opt, memtable);
    rocksdb_options_set_max_write_buffer_number(opt, BUFFERS);
    /* Merging two memtables into one file would save a little work, but 7.8 can lose a manual flush then: a
     * flush already under way clears the request, and one memtable alone is not flushed. */
    rocksdb_options_set_min_write_buffer_number_to_merge(opt, 1);
    if (shapes[f].bloom) { /* reads of keys that are not in it pass a memtable by: 0.7 us for 3.9 */
        rocksdb_options_set_memtable_whole_key_filtering(opt, 1);
        rocksdb_options_set_memtable_prefix_bloom_size_ratio(opt, 0.015);
    }
    set_table(opt, f, s->cache);
    set_levels(opt, o, z);
    if (f == FAM_META && o->blob_size) set_blobs(opt, o, s->cache);
    if (f == FAM_DEADLINE) {
        /* A queue: rows come, and go soon. A file full of tombstones is compacted right away, before
         * anybody has to wade through it, and L0 is not let grow. */
        rocksdb_options_add_compact_on_deletion_collector_factory(opt, 4096, 1024);
        rocksdb_options_set_level0_file_num_compaction_trigger(opt, 2);
    }
    filter_attach(&s->filters, f, opt);
    return with_option(opt, PIN_METADATA);
}

/* -- errors, for people --------------------------------------------------------------- */

static bool says(const char *err, const char *word) { return strstr(err, word) != NULL; }

static const char *advice(const char *err)
{
    if (says(err, "/LOCK") || says(err, "lock hold"))
        return "another process has it open: stop that one, or give this one another directory";
    if (says(err, "Permission denied") || says(err, "Read-only file system") || says(err, "not permitted"))
        return "the directory must be writable by this process";
    if (says(err, "No space left")) return "free some disk space";
    if (says(err, "Corruption") || says(err, "No such file") || says(err, "checksum"))
        return "its files are damaged or missing: restore a backup, or see docs/rocksdb.md on repairing it";
    if (says(err, "Too many open files")) return "raise the limit on open files (ulimit -n)";
    if (says(err, "ot a directory") || says(err, "File exists")) return "the path must be a directory";
    return "see docs/rocksdb.md";
}

static void explain(struct buf *why, const char *dir, char *err)
{
    buf_printf(why, "can't open the RocksDB database in %s: %s (%s)", dir, advice(err), err);
    rocksdb_free(err);
}

/* -- opening --------------------------------------------------------------------------- */

struct names {
    const char **name;
    const rocksdb_options_t **options;
    rocksdb_column_family_handle_t **handle;
    int n;
    char **found; /* as RocksDB listed them; NULL: a new database */
    size_t found_n;
};

static int family_of(const char *name)
{
    for (int f = 0; f < FAM_COUNT; f++)
        if (strcmp(store_family_names[f], name) == 0) return f;
    return -1;
}

static bool exists(const char *dir, const char *file)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", dir, file);
    buf_append_char(&path, 0);
    bool yes = access(path.p, F_OK) == 0;
    buf_release(&path);
    return yes;
}

/* Ours first, then "default" and whatever else is there: RocksDB opens all of them or none. */
static bool list_names(struct names *ns, const char *dir, const rocksdb_options_t *opt, bool read_only,
                       struct buf *why)
{
    char *err = NULL;
    if (exists(dir, "CURRENT")) {
        ns->found = rocksdb_list_column_families(opt, dir, &ns->found_n, &err);
    } else if (read_only) {
        buf_printf(why, "there is no RocksDB database in %s", dir);
        return false;
    }
    if (err) {
        explain(why, dir, err);
        return false;
    }
    size_t most = FAM_COUNT + 1 + ns->found_n;
    ns->name = mem_alloc(most * sizeof *ns->name);
    ns->options = mem_alloc(most * sizeof *ns->options);
    ns->handle = mem_zalloc(most * sizeof *ns->handle);
    for (int f = 0; f < FAM_COUNT; f++) ns->name[ns->n++] = store_family_names[f];
    ns->name[ns->n++] = "default";
    u32 ours = 0;
    for (size_t i = 0; i < ns->found_n; i++) {
        if (family_of(ns->found[i]) >= 0) ours++;
        else if (strcmp(ns->found[i], "default") != 0) ns->name[ns->n++] = ns->found[i];
    }
    if (read_only && ours < FAM_COUNT) {
        buf_printf(why, "the database in %s is not Mayfly's, or an old one: open it with the server once", dir);
        return false;
    }
    return true;
}

static void release_names(struct names *ns)
{
    if (ns->found) rocksdb_list_column_families_destroy(ns->found, ns->found_n);
    mem_free(ns->name);
    mem_free(ns->options);
    mem_free(ns->handle);
}

/* RocksDB takes no lock for reading only. */
static bool in_use(const char *dir, struct buf *why)
{
    struct buf path = {0};
    buf_printf(&path, "%s/LOCK", dir);
    buf_append_char(&path, 0);
    int fd = open(path.p, O_RDONLY | O_CLOEXEC);
    buf_release(&path);
    if (fd < 0) return false;
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    bool held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    if (held) buf_printf(why, "process %d has the RocksDB database in %s open", (int)lock.l_pid, dir);
    return held;
}

static rocksdb_cache_t *new_cache(u64 capacity)
{
    rocksdb_lru_cache_options_t *o = rocksdb_lru_cache_options_create();
    rocksdb_lru_cache_options_set_capacity(o, capacity);
    rocksdb_lru_cache_options_set_num_shard_bits(o, capacity >= 256 * MB ? 4 : 2); /* few threads read */
    rocksdb_cache_t *cache = rocksdb_cache_create_lru_opts(o);
    rocksdb_lru_cache_options_destroy(o);
    return cache;
}

/* Sets s->db and the families, or `why`. */
static void open_database(struct store *s, const struct rocks_options *o, struct buf *why)
{
    struct sizes z = sizes_for(o);
    struct names ns = {0};
    rocksdb_options_t *database = database_options(o, &z), *families[FAM_COUNT] = {0};
    s->cache = new_cache(z.cache);
    if (!list_names(&ns, o->dir, database, s->read_only, why)) goto out;
    for (int f = 0; f < FAM_COUNT; f++)
        ns.options[f] = families[f] = family_options(s, (enum family)f, o, &z, database);
    for (int i = FAM_COUNT; i < ns.n; i++) ns.options[i] = families[FAM_INFO];
    char *err = NULL;
    if (s->read_only)
        s->db = rocksdb_open_for_read_only_column_families(database, o->dir, ns.n, ns.name, ns.options, ns.handle,
                                                           0, &err);
    else
        s->db = rocksdb_open_column_families(database, o->dir, ns.n, ns.name, ns.options, ns.handle, &err);
    if (err) {
        s->db = NULL;
        explain(why, o->dir, err);
        goto out;
    }
    memcpy(s->cf, ns.handle, sizeof s->cf);
    s->others_n = (size_t)ns.n - FAM_COUNT;
    s->others = mem_alloc(s->others_n * sizeof *s->others);
    memcpy(s->others, ns.handle + FAM_COUNT, s->others_n * sizeof *s->others);
out:
    for (int f = 0; f < FAM_COUNT; f++)
        if (families[f]) rocksdb_options_destroy(families[f]);
    rocksdb_options_destroy(database);
    release_names(&ns);
}

static void init(struct store *s, const struct rocks_options *o, bool read_only, bool *failed)
{
    s->read_only = read_only;
    s->failed = failed;
    s->log = o->log;
    s->dir = strdup(o->dir);
    s->drops_end = &s->drops;
    s->read = rocksdb_readoptions_create();
    s->write = rocksdb_writeoptions_create();
    s->batch = rocksdb_writebatch_create();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->dropped, NULL);
    /* Counts what the loop's own reads find in the block cache; RocksDB's statistics would count
     * everything, and cost every read its share. */
    rocksdb_set_perf_level(rocksdb_enable_count);
    s->perf = rocksdb_perfcontext_create();
    rocksdb_perfcontext_reset(s->perf);
    store_set_sync(s, o->sync);
}

struct store *store_open(const struct rocks_options *o, bool read_only, bool *failed, struct buf *why)
{
    if (read_only && in_use(o->dir, why)) return NULL;
    struct store *s = mem_zalloc(sizeof *s);
    init(s, o, read_only, failed);
    open_database(s, o, why);
    bool ok = s->db != NULL;
    if (ok && !read_only) {
        s->filters.meta = s->cf[FAM_META];
        atomic_store_explicit(&s->filters.db, s->db, memory_order_release);
        ok = store_start(s);
        if (!ok) buf_printf(why, "can't start a thread: %s", strerror(errno));
    }
    if (ok) return s;
    store_close(s);
    return NULL;
}

static void close_database(struct store *s)
{
    store_take_back(s);
    store_drop_idle(s);
    if (!s->read_only) {
        store_stop(s);
        /* Filters at work hold the handles: none is started any more, and those that run are waited for. */
        atomic_store_explicit(&s->filters.db, NULL, memory_order_release);
        rocksdb_cancel_all_background_work(s->db, 1);
    }
    for (int f = 0; f < FAM_COUNT; f++) rocksdb_column_family_handle_destroy(s->cf[f]);
    for (size_t i = 0; i < s->others_n; i++) rocksdb_column_family_handle_destroy(s->others[i]);
    rocksdb_close(s->db);
}

void store_set_dead(struct store *s, i64 dead_ms)
{
    atomic_store_explicit(&s->filters.dead_ms, dead_ms, memory_order_relaxed);
}

/* RocksDB's C interface has no way to change a limiter at work. */
void store_set_rate_limit(struct store *s, u64 bytes_per_second)
{
    if (s->log)
        log_line(s->log, LOG_NOTICE, "RocksDB: a rate limit of %llu bytes/s will count from the next start on",
                 (unsigned long long)bytes_per_second);
}

void store_close(struct store *s)
{
    if (!s) return;
    if (s->db) close_database(s);
    free(s->dir);
    mem_free(s->others);
    if (s->cache) rocksdb_cache_destroy(s->cache);
    rocksdb_perfcontext_destroy(s->perf);
    rocksdb_readoptions_destroy(s->read);
    rocksdb_writeoptions_destroy(s->write);
    rocksdb_writebatch_destroy(s->batch);
    buf_release(&s->joined);
    for (int f = 0; f < FAM_COUNT; f++) {
        buf_release(&s->sweep[f].from);
        buf_release(&s->sweep[f].to);
    }
    pthread_cond_destroy(&s->dropped);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}
