/* Opening and closing the database, and saying why it can't be opened.
 *
 * The WAL is verified before RocksDB replays it (wal_verify.h). A torn end, as after a power cut, is logged,
 * and everything before it is used: a state that existed, without a hole. Damage is refused, unless
 * load_damaged is set: then everything from there on is left out and moved to a folder. If tables already
 * contain later writes, the database can't be opened. */
#include "engine/rocks/store/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/rocks/store/store_folder.h"
#include "engine/rocks/wal/wal_verify.h"

const char *const store_family_names[FAM_COUNT] = {
    [FAM_META] = "redis_metadata",
    [FAM_DATA] = "data",
    [FAM_SCORE] = "redis_zset_score",
    [FAM_RANK] = "zset_rank",
    [FAM_FIELD] = "field_deadline",
    [FAM_STREAM] = "redis_stream",
    [FAM_COMPANION] = "companion",
    [FAM_DEADLINE] = "deadline",
    [FAM_RAFT_LOG] = "raft_log",
    [FAM_INFO] = "meta_info",
};

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

/* Our families first, then "default" and any others: RocksDB opens all families or none. */
static bool list_names(struct names *ns, const char *dir, const rocksdb_options_t *opt, bool read_only,
                       bool there, struct buf *why)
{
    char *err = NULL;
    if (there) ns->found = rocksdb_list_column_families(opt, dir, &ns->found_n, &err);
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
        buf_printf(why, "the database in %s is not Mayfly's, or old: open it with the server once", dir);
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

/* RocksDB's error, or NULL. */
static char *try_open(struct store *s, const rocksdb_options_t *database, struct names *ns)
{
    char *err = NULL;
    if (s->read_only)
        s->db = rocksdb_open_for_read_only_column_families(database, s->dir, ns->n, ns->name, ns->options,
                                                           ns->handle, 0, &err);
    else
        s->db = rocksdb_open_column_families(database, s->dir, ns->n, ns->name, ns->options, ns->handle,
                                             &err);
    if (err) s->db = NULL;
    return err;
}

/* A verified WAL may still have a torn record at its end, where RocksDB has to stop. If it could not be
 * verified, RocksDB itself first has to find it sound. */
static char *open_logs(struct store *s, rocksdb_options_t *database, struct names *ns, enum wal_state state)
{
    bool torn = state == WAL_TORN || state == WAL_DAMAGED;
    rocksdb_options_set_wal_recovery_mode(database, torn ? rocksdb_point_in_time_recovery
                                                         : rocksdb_absolute_consistency_recovery);
    char *err = try_open(s, database, ns);
    if (!err || state != WAL_UNKNOWN || !says(err, "Corruption")) return err;
    rocksdb_options_set_wal_recovery_mode(database, rocksdb_point_in_time_recovery);
    char *worse = try_open(s, database, ns);
    if (!worse && s->log)
        log_line(s->log, LOG_WARNING, "RocksDB's log has a torn or damaged record, as after a power cut. "
                 "What came after it is not used. (%s)", err);
    rocksdb_free(err);
    return worse;
}

/* -- logs ------------------------------------------------------------------------------- */

static void refuse_logs(const struct store *s, const struct wal_verdict *v, struct buf *why)
{
    buf_printf(why,
               "RocksDB's logs in %s are damaged: %.*s. Nothing was changed. Restore the folder, or the log, "
               "from a backup. ",
               s->dir, (int)v->text.n, v->text.p);
    if (v->tables_ahead)
        buf_append_str(why,
                       "There is no way to start without it: tables hold a part of what was written after "
                       "it. See docs/rocksdb.md on repairing");
    else
        buf_printf(
            why,
            "To lose everything from there on, start once with --rocksdb-load-damaged-log yes: the logs "
            "are kept in %s/" WAL_ASIDE,
            s->dir);
}

/* Logs which part of the WAL is used and which is not. */
static void say_cut(const struct store *s, const struct wal_verdict *v)
{
    if (!s->log) return;
    bool aside = v->after.n || (v->state == WAL_DAMAGED && v->log_bad);
    log_line(s->log, LOG_WARNING, "RocksDB's log has a %s: %.*s. What came after it is not used%s%s%s",
             v->state == WAL_TORN ? "torn end, as after a power cut" : "damaged part", (int)v->text.n,
             v->text.p, aside ? "; the logs are kept in " : "", aside ? s->dir : "",
             aside ? "/" WAL_ASIDE : "");
}

/* True if the WAL may be replayed; moves the part aside that must not be. */
static bool admit_logs(struct store *s, const struct rocks_options *o, struct wal_verdict *v, struct buf *why)
{
    wal_verify(s->dir, s->log, v);
    switch (v->state) {
    case WAL_SOUND: return true;
    case WAL_UNKNOWN:
        if (s->log)
            log_line(s->log, LOG_WARNING, "RocksDB's logs were not verified: %.*s", (int)v->text.n,
                     v->text.p);
        return true;
    case WAL_TORN:
    case WAL_DAMAGED: break;
    }
    if (v->tables_ahead || (v->state == WAL_DAMAGED && !o->load_damaged)) {
        refuse_logs(s, v, why);
        return false;
    }
    if (s->read_only) return true;
    if (!wal_put_aside(s->dir, v, why)) return false;
    say_cut(s, v);
    return true;
}

/* -- the folder --------------------------------------------------------------------------- */

/* True if the folder may be opened; `there`: it already has a database. */
static bool admit_folder(struct store *s, bool *there, struct buf *why)
{
    enum store_folder found = store_folder_look(s->dir, why);
    *there = found == STORE_FOLDER_DATABASE;
    if (found == STORE_FOLDER_INCOMPLETE) return false;
    if (!*there && s->read_only) {
        buf_printf(why, "there is no RocksDB database in %s", s->dir);
        return false;
    }
    if (found == STORE_FOLDER_INTERRUPTED && s->log)
        log_line(s->log, LOG_WARNING,
                 "The creation of a database in %s was interrupted before it held anything. "
                 "It is created again",
                 s->dir);
    return true;
}

/* Sets s->db and the families, or `why`. */
static void open_database(struct store *s, const struct rocks_options *o, struct buf *why)
{
    bool there;
    struct wal_verdict logs = {.state = WAL_SOUND};
    if (!admit_folder(s, &there, why)) return;
    if (there && !admit_logs(s, o, &logs, why)) {
        wal_verdict_release(&logs);
        return;
    }
    struct sizes z = store_sizes(o);
    struct names ns = {0};
    rocksdb_options_t *database = store_database_options(o, &z), *families[FAM_COUNT] = {0};
    s->cache = store_new_cache(z.cache);
    s->limits = store_limits(&z);
    rocksdb_options_set_create_if_missing(database, !there);
    if (!list_names(&ns, s->dir, database, s->read_only, there, why)) goto out;
    for (int f = 0; f < FAM_COUNT; f++)
        ns.options[f] = families[f] = store_family_options(s, (enum family)f, o, &z, database);
    for (int i = FAM_COUNT; i < ns.n; i++) ns.options[i] = families[FAM_INFO];
    char *err = open_logs(s, database, &ns, logs.state);
    if (err) {
        explain(why, s->dir, err);
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
    wal_verdict_release(&logs);
    release_names(&ns);
}

static void init(struct store *s, const struct rocks_options *o, bool read_only)
{
    s->read_only = read_only;
    s->synced_fd = s->log_watch = s->sync_timer = -1;
    s->log = o->log;
    s->dir = strdup(o->dir);
    s->drops_end = &s->drops;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->trouble, NULL);
    pthread_cond_init(&s->dropped, NULL);
    rocksdb_perfcontext_t *perf = rocksdb_perfcontext_create(); /* of this thread: counts from now on */
    rocksdb_perfcontext_reset(perf);
    rocksdb_perfcontext_destroy(perf);
    store_set_sync(s, o->sync);
}

struct store *store_open(const struct rocks_options *o, bool read_only, struct buf *why)
{
    if (store_folder_in_use(o->dir, why)) return NULL;
    struct store *s = mem_zalloc(sizeof *s);
    init(s, o, read_only);
    open_database(s, o, why);
    bool ok = s->db != NULL;
    if (ok && !read_only) {
        s->filters.meta = s->cf[FAM_META];
        s->filters.companion = s->cf[FAM_COMPANION];
        s->filters.info = s->cf[FAM_INFO];
        atomic_store_explicit(&s->filters.db, s->db, memory_order_release);
        store_synced_begin(s);
        ok = store_start(s);
        if (!ok) buf_printf(why, "can't start a thread: %s", strerror(errno));
    }
    if (ok) return s;
    store_close(s);
    return NULL;
}

static void close_database(struct store *s)
{
    CHECK(!s->sessions && !s->views);
    if (!s->read_only) {
        store_stop(s);
        /* Running filters use the handles: no new one starts from here on, and running ones are waited
         * for. */
        atomic_store_explicit(&s->filters.db, NULL, memory_order_release);
        rocksdb_cancel_all_background_work(s->db, 1);
    }
    for (int f = 0; f < FAM_COUNT; f++) rocksdb_column_family_handle_destroy(s->cf[f]);
    for (size_t i = 0; i < s->others_n; i++) rocksdb_column_family_handle_destroy(s->others[i]);
    rocksdb_close(s->db);
}

void store_close(struct store *s)
{
    if (!s) return;
    if (s->db) close_database(s);
    store_synced_end(s);
    free(s->dir);
    mem_free(s->others);
    if (s->cache) rocksdb_cache_destroy(s->cache);
    for (int f = 0; f < FAM_COUNT; f++) {
        buf_release(&s->sweep[f].from);
        buf_release(&s->sweep[f].to);
    }
    pthread_cond_destroy(&s->dropped);
    pthread_mutex_destroy(&s->trouble);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}
