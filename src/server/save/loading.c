/* Loading at start, and for DEBUG. Nothing is journalled and nothing expires meanwhile. A file that is
 * damaged, or has something we can't store, ends the server: it must not continue with less data than there
 * was. (A full sync's file can be requested again: loading_sync.c.) */
#include "server/save/loading.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/region_site.h"
#include "peers/peers.h"
#include "server/commit.h"

#define SLICE_US 8000
#define STEP_BYTES (64u << 10)
#define ASIDE_SLICE_US 500 /* while clients are served */
#define ASIDE_STEP_BYTES (8u << 10)
#define TELL_EVERY_US 2000000

/* -- an RDB file ------------------------------------------------------------------------------------ */

static i64 loading_read(struct rdb_source *source, void *to, size_t n)
{
    struct rdb_input *in = (struct rdb_input *)(void *)source; /* its first member */
    ssize_t got;
    do got = read(in->fd, to, n);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

/* False: see errno. */
static bool input_open(struct rdb_input *in, const char *path)
{
    struct stat st;
    *in = (struct rdb_input){.source.read = loading_read,
                             .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (in->fd < 0) return false;
    bool known = fstat(in->fd, &st) == 0;
    if (known && S_ISREG(st.st_mode)) {
        in->size = (u64)st.st_size;
        posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        return true;
    }
    int code = !known ? errno : S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    close(in->fd);
    errno = code;
    return false;
}

/* Dead keys are loaded where others still have them. Servers that share the file's history have them, too,
 * and get a DEL; a replica gets a DEL itself; and expiry-stream reports them when they are deleted. */
static bool load_dead(void *arg, u32 db UNUSED, bytes key UNUSED, i64 deadline_ms UNUSED)
{
    const struct server *s = arg;
    const struct config *c = &s->config;
    return c->load_expired || c->expiry_stream.name.n || c->replicaof.n || s->repl.loaded_position >= 0 ||
           s->persist.loading.sync.done || lone_region(s)->site;
}

static void on_aux(void *arg, bytes name, bytes value)
{
    struct server *s = arg;
    i64 n = 0;
    int shown = (int)MIN(value.n, 64u);
    bool number = num_parse_i64(value, &n);
    replication_load_aux(s, name, value);
    if (bytes_is(name, "redis-ver"))
        log_line(&s->log, LOG_NOTICE, "Loading RDB produced by version %.*s", shown, value.p);
    else if (bytes_is(name, "ctime") && number)
        log_line(&s->log, LOG_NOTICE, "RDB age %lld seconds", (long long)MAX(clock_wall_ms() / 1000 - n, 0));
    else if (bytes_is(name, "used-mem") && number && n > 0) {
        log_line(&s->log, LOG_NOTICE, "RDB memory usage when created %.2f Mb", (double)n / (1 << 20));
        s->persist.loading.used_mem = (u64)n;
    }
}

static void on_note(void *arg, const char *text)
{
    log_line(&((struct server *)arg)->log, LOG_WARNING, "%s", text);
}

/* An import that is interrupted starts from the beginning: it may be durable later. */
bool loading_commit(struct server *s, bool last)
{
    bool ok = server_commit(s, last ? COMMIT_LOAD_END : COMMIT_LOAD_PART);
    if (!ok) log_line(&s->log, LOG_WARNING, "The storage engine failed while loading");
    return ok;
}

/* A transaction of the rocks engine is in memory: a long value must not be in one. If it fails, the loader
 * finds its key gone. */
static void loading_commit_chunk(void *arg)
{
    struct server *s = arg;
    if (loading_commit(s, false)) region_begin(lone_region(s), clock_wall_ms());
}

static struct rdb_policy policy_of(struct server *s, bool replace)
{
    return (struct rdb_policy){
        .replace = replace, .skip_unsupported = s->config.rdb_skip_unsupported,
        .checksum = s->config.rdbchecksum && !lone_region(s)->ks.skip_checksums, .load_dead = load_dead,
        .aux = on_aux, .note = on_note, .arg = s, .node = &s->node,
        .site = lone_region(s),
    };
}

static void say_what_is_wrong(struct server *s, const char *path, const struct rdb_loader *l)
{
    bool skippable = strstr(l->error, "does not support");
    log_line(&s->log, LOG_WARNING, "Error loading %s: %s%s", path, l->error,
             skippable ? ". With rdb-skip-unsupported yes it is left out" : "");
}

static void loading_count(struct server *s, const struct rdb_counts *c)
{
    s->persist.loaded_keys = c->loaded;
    s->persist.loaded_dead = c->dead;
    log_line(&s->log, LOG_NOTICE, "Done loading RDB, keys loaded: %llu, keys expired: %llu.",
             (unsigned long long)c->loaded, (unsigned long long)c->dead);
    if (c->empty || c->unsupported)
        log_line(&s->log, LOG_NOTICE, "Keys left out: %llu empty, %llu of unsupported types",
                 (unsigned long long)c->empty, (unsigned long long)c->unsupported);
}

/* -- progress ---------------------------------------------------------------------------------------- */

void loading_progress(const struct server *s, u64 *loaded, u64 *total)
{
    const struct loading *l = &s->persist.loading;
    *loaded = *total = 0;
    if (l->stage == LOADING_AOF) {
        aof_load_progress(s->persist.aof, loaded, total);
    } else if (l->stage == LOADING_RDB) {
        *loaded = rdb_loader_offset(&l->loader);
        *total = l->input.size;
    }
}

i64 loading_eta_s(const struct server *s)
{
    u64 loaded, total;
    loading_progress(s, &loaded, &total);
    if (!loaded) return 1;
    double took = (double)(clock_mono_us() - s->persist.loading.start_us) / 1e6;
    return (i64)(took * (double)(total - MIN(loaded, total)) / (double)loaded);
}

static void loading_log_progress(struct server *s, i64 now_us)
{
    struct loading *l = &s->persist.loading;
    u64 loaded, total;
    if (now_us - l->told_us < TELL_EVERY_US) return;
    l->told_us = now_us;
    loading_progress(s, &loaded, &total);
    log_line(&s->log, LOG_NOTICE, "Loading: %.0f%% (%.1f of %.1f MB), %.1f MB/s, about %lld s left",
             100.0 * (double)loaded / (double)MAX(total, 1u), (double)loaded / 1e6, (double)total / 1e6,
             (double)loaded / (double)(now_us - l->start_us), (long long)loading_eta_s(s));
}

/* -- choosing ---------------------------------------------------------------------------------------- */

static void loading_start(struct server *s, enum loading_stage stage)
{
    struct loading *l = &s->persist.loading;
    l->stage = stage;
    l->start_us = l->told_us = clock_mono_us();
    l->start_s = clock_wall_ms() / 1000;
    l->used_mem = 0;
    s->node.loading = !loading_aside(l);
    if (stage == LOADING_RDB) {
        struct rdb_policy policy = policy_of(s, false);
        if (l->sync.done) policy.db_base = lone_region(s)->eng->databases; /* the staging databases */
        if (lone_region(s)->eng->caps.durable) policy.commit_chunk = loading_commit_chunk;
        rdb_loader_init(&l->loader, &lone_region(s)->ks, &l->input.source, l->input.size, &policy);
    }
}

bool loading_open(struct server *s, const char *path)
{
    struct loading *l = &s->persist.loading;
    snprintf(l->path, sizeof l->path, "%s", path);
    if (!input_open(&l->input, path)) return false;
    loading_start(s, LOADING_RDB);
    return true;
}

static bool loading_finish(struct server *s, bool from_aof);

/* With nothing to load the server is ready at once. */
static bool begin_rdb(struct server *s, const char *path, bool must_exist)
{
    if (loading_open(s, path)) return true;
    if (errno == ENOENT && !must_exist) return loading_finish(s, false);
    log_line(&s->log, LOG_WARNING, "Fatal error loading the DB: %s: %s. Exiting.", path, strerror(errno));
    return false;
}

static bool begin_dump(struct server *s)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", s->config.dir.p, s->config.dbfilename.p);
    return begin_rdb(s, path, false);
}

static bool begin_import(struct server *s)
{
    struct engine *e = lone_region(s)->eng;
    u64 keys = 0;
    if (s->config.import_rdb.n == 0) return loading_finish(s, false);
    for (u32 db = 0; db < e->databases; db++) keys += e->ops->count(e, db);
    if (keys == 0) return begin_rdb(s, s->config.import_rdb.p, true);
    log_line(&s->log, LOG_WARNING,
             "import-rdb %s: the database holds %llu keys already; a file is imported into an empty one "
             "only. If this is what an import that was cut off has left, remove the folder; otherwise start "
             "without import-rdb. Exiting.",
             s->config.import_rdb.p, (unsigned long long)keys);
    return false;
}

/* An AOF that exists but is not loaded may have the data that the user misses. */
static void warn_of_unused_aof(struct server *s)
{
    const struct config *c = &s->config;
    char path[12288], text[256] = "";
    snprintf(path, sizeof path, "%s/%s/%s.manifest", c->dir.p, c->appenddirname.p, c->appendfilename.p);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0) close(fd);
    if (n > 0 && strstr(text, "file ")) /* it lists a file */
        log_line(&s->log, LOG_WARNING,
                 "There is an append only file, %s, which is not loaded: appendonly is no", path);
}

bool loading_begin(struct server *s)
{
    if (lone_region(s)->eng->caps.durable) return begin_import(s);
    if (!s->config.appendonly) {
        warn_of_unused_aof(s);
        return begin_dump(s);
    }
    enum aof_found found = persistence_open_aof(s, &s->persist.aof);
    if (found == AOF_NONE) return begin_dump(s);
    if (found == AOF_BROKEN) {
        log_line(&s->log, LOG_WARNING, "Fatal error: the append only file can't be used. Exiting.");
        return false;
    }
    loading_start(s, LOADING_AOF);
    return true;
}

/* -- the end ----------------------------------------------------------------------------------------- */

static void release_input(struct loading *l)
{
    if (l->stage != LOADING_RDB) return;
    rdb_loader_release(&l->loader);
    close(l->input.fd);
}

void loading_release(struct loading *l)
{
    release_input(l);
    l->stage = LOADING_NOTHING;
}

static void ready(struct server *s)
{
    s->persist.loading.stage = LOADING_NOTHING;
    s->node.loading = false;
    replication_decide_expiry(s);
    lone_region(s)->cycle.next_ms = 0; /* for keys that died meanwhile */
    s->node.evictor.unfinished = s->node.evictor.maxmemory;
    replication_start(s, !s->persist.loading.from_aof);
    server_ready(s);
}

/* False: the log says why. */
static bool loading_finish(struct server *s, bool from_aof)
{
    struct persistence *p = &s->persist;
    region_begin(lone_region(s), clock_wall_ms());
    s->now_ms = lone_region(s)->ks.now_ms;
    release_input(&p->loading);
    p->loading.stage = LOADING_NOTHING;
    p->loading.from_aof = from_aof;
    if (!persistence_loaded(s, from_aof)) {
        log_line(&s->log, LOG_WARNING, "Fatal error: the append only file can't be written. To run without "
                                       "one, start with --appendonly no. Exiting.");
        return false;
    }
    if (!peers_open(s)) return false; /* what it writes first is in the AOF */
    if (p->aof_state == AOF_IS_NEW) {
        p->loading.stage = LOADING_DONE;
        s->node.loading = true;
    } else {
        ready(s);
    }
    return true;
}

void loading_first_base(struct server *s, bool ok)
{
    if (ok) {
        ready(s);
        return;
    }
    log_line(&s->log, LOG_WARNING,
             "Fatal error: the append only file can't be written; what was loaded is still in %s. To run "
             "without one, start with --appendonly no. Exiting.",
             s->persist.loading.path);
    server_end(s, 1);
}

static void say_loaded(struct server *s)
{
    struct loading *l = &s->persist.loading;
    bool from_aof = l->stage == LOADING_AOF;
    if (!from_aof) loading_count(s, &l->loader.counts);
    if (!from_aof && !l->sync.done) region_site_loaded_old(lone_region(s));
    if (l->sync.done) return; /* loading_sync.c logs the rest */
    log_line(&s->log, LOG_NOTICE, "DB loaded from %s: %.3f seconds", from_aof ? "append only file" : "disk",
             (double)(clock_mono_us() - l->start_us) / 1e6);
}

static void loading_fail(struct server *s)
{
    const struct loading *l = &s->persist.loading;
    if (l->stage == LOADING_RDB) say_what_is_wrong(s, l->path, &l->loader);
    if (l->sync.done) {
        loading_sync_end(s, false);
        return;
    }
    log_line(&s->log, LOG_WARNING, "Fatal error loading the DB, check server logs. Exiting.");
    server_end(s, 1);
}

/* -- slices ------------------------------------------------------------------------------------------- */

static err load_some(struct server *s)
{
    struct persistence *p = &s->persist;
    u64 bytes = loading_aside(&p->loading) ? ASIDE_STEP_BYTES : STEP_BYTES;
    if (p->loading.stage == LOADING_AOF) return aof_load_step(p->aof, lone_region(s), s, bytes);
    return rdb_loader_step(&p->loading.loader, s->config.key_load_delay > 0 ? 1 : bytes);
}

/* key-load-delay: for tests that look at a server that is loading. */
static bool loading_too_fast(const struct server *s, i64 now_us)
{
    const struct loading *l = &s->persist.loading;
    i64 delay_us = s->config.key_load_delay;
    if (LIKELY(delay_us <= 0) || l->stage != LOADING_RDB) return false;
    return l->loader.counts.loaded >= (u64)((now_us - l->start_us) / delay_us);
}

bool loading_step(struct server *s)
{
    struct loading *l = &s->persist.loading;
    i64 now_us = clock_mono_us(), until_us = now_us + (loading_aside(l) ? ASIDE_SLICE_US : SLICE_US);
    err e = ERR_AGAIN;
    if (s->shutting_down || server_holds(s, HOLD_STORAGE)) return false; /* there will be another turn */
    region_begin(lone_region(s), clock_wall_ms());
    while (e == ERR_AGAIN && now_us < until_us && !loading_too_fast(s, now_us)) {
        e = load_some(s);
        now_us = clock_mono_us();
    }
    if (e == ERR_AGAIN) loading_log_progress(s, now_us);
    if (e == OK && l->sync.done) loading_sync_swap(s);
    if ((e != OK && e != ERR_AGAIN) || !loading_commit(s, e == OK)) {
        loading_fail(s);
        return false;
    }
    if (e == ERR_AGAIN) return !loading_too_fast(s, now_us);
    say_loaded(s);
    if (l->sync.done) loading_sync_end(s, true);
    else if (!loading_finish(s, l->stage == LOADING_AOF)) server_end(s, 1);
    return true;
}

/* -- at once --------------------------------------------------------------------------------- */

bool loading_rdb_now(struct server *s, bool replace)
{
    struct rdb_input in;
    struct rdb_policy policy = policy_of(s, replace);
    struct rdb_loader *l;
    char path[8192];
    err e;
    snprintf(path, sizeof path, "%s/%s", s->config.dir.p, s->config.dbfilename.p);
    if (!input_open(&in, path)) {
        log_line(&s->log, LOG_WARNING, "Error loading %s: %s", path, strerror(errno));
        return false;
    }
    l = mem_alloc(sizeof *l);
    rdb_loader_init(l, &lone_region(s)->ks, &in.source, in.size, &policy);
    do e = rdb_loader_step(l, STEP_BYTES);
    while (e == ERR_AGAIN);
    if (e) say_what_is_wrong(s, path, l);
    else loading_count(s, &l->counts);
    rdb_loader_release(l);
    mem_free(l);
    close(in.fd);
    return e == OK;
}

bool loading_aof_now(struct server *s)
{
    struct journal_sink *sinks = lone_region(s)->journal.sinks;
    i64 now_ms = lone_region(s)->ks.now_ms;
    struct aof *a;
    err e = ERR_SYNTAX;
    if (persistence_open_aof(s, &a) == AOF_FILES) {
        lone_region(s)->journal.sinks = NULL; /* what is loaded is there already */
        do e = aof_load_step(a, lone_region(s), s, STEP_BYTES);
        while (e == ERR_AGAIN);
        lone_region(s)->journal.sinks = sinks;
        keyspace_begin(&lone_region(s)->ks, now_ms, lone_region(s)->mode);
    }
    aof_free(a);
    return e == OK;
}
