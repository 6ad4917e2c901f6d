/* Compaction filters. RocksDB makes one object per compaction (or part of one) and calls it from that
 * thread alone, so an object can cache its last lookup without a lock. Rows of one collection are
 * neighbours, so the cached lookup serves nearly all of them. */
#include "engine/rocks/store/filter.h"

#include "base/alloc.h"
#include "engine/rocks/codec.h"

/* A factory: one per family. */
struct source {
    struct filters *fs;
    enum family family;
};

/* One compaction's filter. */
struct judge {
    struct filters *fs;
    enum family family;
    rocksdb_t *db;
    rocksdb_readoptions_t *read;
    u64 dropped;
    /* The collection that was looked up last; or the database. */
    struct buf prefix; /* its P; empty: none yet */
    u64 index;
    enum { UNKNOWN, ABSENT, PRESENT } found;
    u64 version;
    struct buf stub; /* what is left of the dead key seen last */
};

/* -- orphans --------------------------------------------------------------------- */

static rocksdb_column_family_handle_t *head_of(const struct judge *j)
{
    return j->family == FAM_COMPANION ? j->fs->companion : j->fs->meta;
}

static void read_version(struct judge *j, bytes raw)
{
    struct codec_meta meta;
    struct codec_companion companion;
    bool known = j->family == FAM_COMPANION ? codec_companion_read(raw, &companion)
                                            : codec_meta_read(raw, &meta);
    u64 version = !known ? 0 : j->family == FAM_COMPANION ? companion.version : meta.version;
    if (!known) j->found = UNKNOWN;
    else if (version) j->found = PRESENT;
    j->version = version;
}

/* Reads the metadata of prefix, or the head of its companion. A string has no version, nor has a
 * companion without rows: any row below it is an orphan. If the metadata can't be read or decoded, the
 * version is UNKNOWN, and the rows stay. */
static void look_up(struct judge *j)
{
    char *err = NULL;
    rocksdb_pinnableslice_t *pin =
        rocksdb_get_pinned_cf(j->db, j->read, head_of(j), j->prefix.p, j->prefix.n, &err);
    j->found = err ? UNKNOWN : ABSENT;
    if (err) rocksdb_free(err);
    if (!pin) return;
    bytes raw;
    raw.p = rocksdb_pinnableslice_value(pin, &raw.n);
    read_version(j, raw);
    rocksdb_pinnableslice_destroy(pin);
}

static bool filter_orphan(struct judge *j, bytes key)
{
    struct codec_key k;
    u64 version;
    bytes sub;
    if (!codec_key_read(key, &k)) return false;
    if (j->family == FAM_DATA && k.rest.n == 1 && k.rest.p[0] == CODEC_LEGACY) return false;
    if (!codec_version_read(k.rest, &version, &sub)) return false;
    bytes prefix = bytes_of(key.p, key.n - k.rest.n);
    if (!bytes_eq(prefix, buf_bytes(&j->prefix))) {
        buf_clear(&j->prefix);
        buf_append_bytes(&j->prefix, prefix);
        look_up(j);
    }
    bool orphaned = j->found == ABSENT || (j->found == PRESENT && j->version != version);
    /* Must be read after the look-up: if that saw a write made after a view was opened, this read sees the
     * kept_version set before. */
    return orphaned && version > atomic_load_explicit(&j->fs->kept_version, memory_order_acquire);
}

/* -- rows of databases that are no more ------------------------------------------ */

static void look_up_counts(struct judge *j, u64 region)
{
    char key[17], *err = NULL;
    key[0] = 'c';
    put_u64(key + 1, region);
    put_u64(key + 9, j->index);
    rocksdb_pinnableslice_t *pin = rocksdb_get_pinned_cf(j->db, j->read, j->fs->info, key, sizeof key, &err);
    j->found = err ? UNKNOWN : pin ? PRESENT : ABSENT;
    if (err) rocksdb_free(err);
    if (pin) rocksdb_pinnableslice_destroy(pin);
}

static bool filter_abandoned(struct judge *j, bytes key)
{
    struct codec_due d;
    if (!codec_due_read(key, &d) || !(d.index & CODEC_STAGING)) return false;
    if (d.index != j->index) {
        j->index = d.index;
        look_up_counts(j, d.region);
    }
    return j->found == ABSENT;
}

/* -- the calls of RocksDB ------------------------------------------------------------ */

/* True if the key is dead and has more than a stub; makes the stub. */
static bool judge_dead(struct judge *j, bytes value)
{
    struct codec_meta meta;
    i64 dead_ms = atomic_load_explicit(&j->fs->dead_ms, memory_order_relaxed);
    if (!dead_ms || !codec_meta_read(value, &meta)) return false;
    if (!meta.deadline_ms || meta.deadline_ms > dead_ms) return false;
    buf_clear(&j->stub);
    codec_meta_stub(&j->stub, &meta);
    return !bytes_eq(buf_bytes(&j->stub), value);
}

static unsigned char judge_row(void *arg, int level UNUSED, const char *key, size_t key_n, const char *value,
                               size_t value_n, char **new_value, size_t *new_n, unsigned char *changed)
{
    struct judge *j = arg;
    bool drop = false;
    if (j->family == FAM_META) {
        if (!judge_dead(j, bytes_of(value, value_n))) return false;
        *new_value = j->stub.p; /* RocksDB copies it */
        *new_n = j->stub.n;
        *changed = true;
        j->dropped++;
        return false;
    }
    if (j->db) {
        bytes k = bytes_of(key, key_n);
        drop = j->family == FAM_DEADLINE ? filter_abandoned(j, k) : filter_orphan(j, k);
    }
    j->dropped += drop;
    return drop;
}

static void judge_free(void *arg)
{
    struct judge *j = arg;
    if (j->dropped) {
        atomic_fetch_add_explicit(&j->fs->dropped[j->family], j->dropped, memory_order_relaxed);
        /* Runs before the compaction's output is installed. A failure need not be handled here: RocksDB
         * treats it as a WAL error and stops writing. */
        char *err = NULL;
        if (j->db && !atomic_load_explicit(&j->fs->log_broken, memory_order_acquire))
            rocksdb_flush_wal(j->db, 1, &err);
        if (err) rocksdb_free(err);
    }
    rocksdb_readoptions_destroy(j->read);
    buf_release(&j->prefix);
    buf_release(&j->stub);
    mem_free(j);
}

static const char *filter_name_of(enum family f)
{
    return f == FAM_META ? "mayfly.dead" : f == FAM_DEADLINE ? "mayfly.abandoned" : "mayfly.orphan";
}

static const char *judge_name(void *arg) { return filter_name_of(((struct judge *)arg)->family); }

static rocksdb_compactionfilter_t *new_judge(void *arg, rocksdb_compactionfiltercontext_t *context UNUSED)
{
    struct source *src = arg;
    rocksdb_set_perf_level(rocksdb_disable); /* of the compaction's thread: counting is 7 % of it */
    /* With a filter, a compaction reads the blob of every row: a few small files would make it read all long
     * strings. (The C interface has no filter by key alone.) */
    if (src->family == FAM_META && !atomic_load_explicit(&src->fs->dead_ms, memory_order_relaxed))
        return NULL;
    struct judge *j = mem_zalloc(sizeof *j);
    j->fs = src->fs;
    j->family = src->family;
    j->db = atomic_load_explicit(&src->fs->db, memory_order_acquire);
    j->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_fill_cache(j->read, 0);
    return rocksdb_compactionfilter_create(j, judge_free, judge_row, judge_name);
}

static const char *source_name(void *arg) { return filter_name_of(((struct source *)arg)->family); }

void filter_attach(struct filters *fs, enum family f, rocksdb_options_t *options)
{
    if (f == FAM_INFO || f == FAM_RAFT_LOG) return;
    struct source *src = mem_alloc(sizeof *src);
    *src = (struct source){.fs = fs, .family = f};
    rocksdb_options_set_compaction_filter_factory(
        options, rocksdb_compactionfilterfactory_create(src, mem_free, new_judge, source_name));
}
