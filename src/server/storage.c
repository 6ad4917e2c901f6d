#include "server/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/memory/memory.h"
#include "engine/rocks/rocks.h"
#include "script/functions.h"

#define SHARE_TOGETHER 4 /* regions that are asked for memory of caches at once */

static bool wants_rocksdb(const struct server *s) { return s->config.engine == ENGINE_ROCKSDB; }

/* In cluster mode this is region 0, which has no keys: no key has its prefix, 0.
 * The database outlives its engine, because the logs of Raft are there, too. */
static struct engine *open_region(struct server *s, const struct rocks_options *o, struct buf *why)
{
    static const struct rocks_region home = {.id = 0, .prefix = 0, .first = 0, .last = 0};
    s->rocks = rocks_open(o, why);
    struct engine *e = s->rocks ? rocks_region_open(s->rocks, &home, why) : NULL;
    if (!e) rocks_close(s->rocks);
    return e;
}

static struct engine *open_rocks(struct server *s, u64 seed)
{
    const struct config *c = &s->config;
    char dir[4096];
    struct buf why = {0};
    snprintf(dir, sizeof dir, "%s/%s", c->dir.p, STORAGE_FOLDER);
    struct rocks_options o = {
        .dir = dir, .log = &s->log, .seed = seed,
        .databases = c->cluster_enabled ? 1 : (u32)c->databases,
        .block_cache = (u64)c->rocksdb_block_cache_size,
        .row_cache = (u64)c->rocksdb_row_cache_size,
        .write_buffer = (u64)c->rocksdb_write_buffer_size,
        .rate_limit = (u64)c->rocksdb_rate_limit, .blob_size = (u64)c->rocksdb_blob_size,
        .background_threads = (u32)c->rocksdb_background_threads,
        .compression = c->rocksdb_compression, .sync = c->appendfsync,
        .load_damaged = c->rocksdb_load_damaged_log,
    };
    struct engine *e = c->cluster_enabled ? open_region(s, &o, &why) : rocks_engine_open(&o, &why);
    if (e) log_line(&s->log, LOG_NOTICE, "Storage engine: rocksdb, in %s", dir);
    else
        log_line(&s->log, LOG_WARNING, "Can't start with engine rocksdb: %.*s", (int)why.n,
                 why.n ? why.p : "");
    buf_release(&why);
    return e;
}

/* -- data of the other engine ------------------------------------------------------------------ */

static bool file_in(const struct config *c, const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/%s", c->dir.p, name);
    return access(path, F_OK) == 0;
}

static bool rocks_data(const struct config *c, char path[4096])
{
    snprintf(path, 4096, "%s/%s", c->dir.p, STORAGE_FOLDER);
    return rocks_found(path);
}

/* What the memory engine would load: an AOF, of either form, or a snapshot. */
static bool memory_data(const struct config *c, char path[4096])
{
    char manifest[2048];
    snprintf(manifest, sizeof manifest, "%s/%s.manifest", c->appenddirname.p, c->appendfilename.p);
    return file_in(c, manifest, path) || file_in(c, c->appendfilename.p, path) ||
           file_in(c, c->dbfilename.p, path);
}

static void refuse_memory_data(struct server *s, const char *path)
{
    log_line(
        &s->log, LOG_WARNING,
        "Can't start with engine rocksdb: %s holds data of the memory engine, and there is no RocksDB "
        "database in %s/%s yet. To use that data, start with engine memory. To move it to RocksDB, save it "
        "as a snapshot (SAVE) and start once with --engine rocksdb --import-rdb FILE. To start with an "
        "empty database beside it, start once with --engine-start-empty yes",
        path, s->config.dir.p, STORAGE_FOLDER);
}

static void refuse_rocks_data(struct server *s, const char *path)
{
    log_line(&s->log, LOG_WARNING,
             "Can't start with engine memory: %s holds a database of the rocksdb engine, and there is no AOF "
             "and no snapshot in %s. To use that database, start with engine rocksdb. To move it to memory, "
             "export it (SAVE there writes %s) and start again. To start with nothing beside it, start once "
             "with --engine-start-empty yes",
             path, s->config.dir.p, s->config.dbfilename.p);
}

/* Starting without data of this engine, but with data of the other one, is usually a mistake: it is refused
 * unless the configuration says what is meant. */
static bool admit_engine(struct server *s)
{
    const struct config *c = &s->config;
    char own[4096], other[4096];
    bool owned = wants_rocksdb(s) ? rocks_data(c, own) : memory_data(c, own);
    bool others = wants_rocksdb(s) ? memory_data(c, other) : rocks_data(c, other);
    if (!others || c->engine_start_empty) return true;
    if (owned) {
        if (!wants_rocksdb(s)) /* the other way round it is an export: fine */
            log_line(&s->log, LOG_WARNING,
                     "%s holds a database of the rocksdb engine, which is not used: %s is "
                     "loaded",
                     other, own);
        return true;
    }
    if (wants_rocksdb(s) && c->import_rdb.n) return true;
    if (wants_rocksdb(s)) refuse_memory_data(s, other);
    else refuse_rocks_data(s, other);
    return false;
}

/* -- opening ------------------------------------------------------------------------------------ */

struct engine *storage_open(struct server *s, u64 seed)
{
    if (!admit_engine(s)) return NULL;
    if (wants_rocksdb(s)) return open_rocks(s, seed);
    log_line(&s->log, LOG_NOTICE, "Storage engine: memory");
    return memory_engine_new((u32)s->config.databases, seed);
}

void storage_reopen(struct server *s)
{
    struct region *r = lone_region(s);
    u64 seq = r->eng->applied, seed = rand_next(&r->seeds), reclaimed = r->eng->reclaimed;
    i64 now_ms = r->eng->now_ms;
    u32 access = r->eng->fresh_access;
    r->eng->ops->close(r->eng);
    r->eng = r->ks.eng = open_rocks(s, seed);
    if (!r->eng || r->eng->applied != seq) {
        log_line(&s->log, LOG_WARNING, "DEBUG LOADAOF: the database could not be read as it was. Exiting.");
        exit(1);
    }
    r->eng->reclaimed = reclaimed;
    r->eng->fresh_access = access;
    server_apply_config(s);
    r->eng->ops->begin(r->eng, now_ms);
    functions_flush(&s->node);
    if (!storage_recall(s)) exit(1);
}

bool storage_recall(struct server *s)
{
    struct buf why = {0};
    bool ok = functions_recall(&s->node, node_engine(&s->node), &why);
    if (!ok)
        log_line(&s->log, LOG_WARNING, "Can't start: the functions that are kept with the data can't be "
                                       "loaded: %.*s", (int)why.n, why.p);
    buf_release(&why);
    return ok;
}

bool storage_must_close(const struct server *s)
{
#if MAYFLY_FREE_AT_EXIT /* sanitizer builds, to find leaks */
    return node_engine(&s->node);
#endif
    return node_engine(&s->node)->caps.durable;
}

void storage_apply_config(struct server *s)
{
    const struct config *c = &s->config;
    struct engine *e = node_engine(&s->node);
    if (!e->caps.durable) return;
    s->node.evictor.meter = (struct mem_meter){0}; /* RocksDB's threads free what the loop has allocated */
    e->ops->disk->set_sync(e, c->appendfsync);
    /* The cleaner deletes dead keys first, and reports them as expired. */
    i64 interval_ms = c->ttl_cleanup_interval;
    e->ops->disk->set_grace(e, interval_ms ? interval_ms + DISK_GRACE_MS : 0);
}

/* The regions of a node share the memory of caches: each is asked in turn. */
static void storage_share_memory(struct server *s)
{
    u32 n = 0;
    struct region *r;
    if (LIKELY(s->node.regions.count < 2) || s->node.script) return;
    if (s->storage_turn >= s->node.regions.count) s->storage_turn = 0;
    REGIONS_EACH(&s->node.regions, r) {
        bool asked = n >= s->storage_turn && n < s->storage_turn + SHARE_TOGETHER;
        if (asked && r->eng->caps.durable) r->eng->ops->disk->share_memory(r->eng);
        n++;
    }
    s->storage_turn += SHARE_TOGETHER;
}

void storage_cron(struct server *s)
{
    struct engine *e = node_engine(&s->node);
    if (!e->caps.durable) return;
    e->ops->disk->cron(e);
    storage_share_memory(s);
}

void storage_note_refusal(struct server *s)
{
    struct engine *e = node_engine(&s->node);
    if (e->caps.durable) s->node.refuse_writes = e->ops->disk->refuses_writes(e);
}

/* Runs in a process of its own: with some damaged files RocksDB 7.8 fails an assertion, or worse, and the
 * user should learn what that means. */
int storage_check(const char *dir)
{
    char inner[4096];
    struct stat st;
    int status;
    snprintf(inner, sizeof inner, "%s/%s", dir, STORAGE_FOLDER);
    if (stat(inner, &st) == 0) dir = inner;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) exit(rocks_check(dir));
    if (child < 0 || waitpid(child, &status, 0) != child) return rocks_check(dir);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    printf("%s is damaged: RocksDB itself ended with signal %d on reading it\n", dir, WTERMSIG(status));
    return 1;
}
