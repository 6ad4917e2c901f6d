/* The AOF as a whole: which file is appended to, which were loaded, and the steps of a rewrite. After each
 * step the files hold all data, whichever manifest is on disk: the manifest names the new increment before
 * anything is appended to it, and the new base before anything it replaces is removed. */
#include "persist/aof.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "persist/aof_block.h"
#include "persist/aof_folder.h"
#include "persist/aof_load.h"
#include "persist/aof_log.h"
#include "persist/disk_file.h"

struct aof {
    struct aof_options o; /* its strings belong to the folder */
    struct aof_folder folder;
    struct aof_log log;
    struct aof_loader *loader; /* from the first step of loading until aof_start */
    bool broken;               /* the files can't be used */
    bool loaded;               /* … or there are none: memory holds what they hold */
    struct journal *journal;   /* where the log is attached; NULL: not started */
    bool rewriting;
    bool starting; /* the increment is not in the manifest yet: it comes with the base */
    bool unnamed;  /* the same after a failed sync: no write is accepted until then */
    u64 base_seq;  /* of the base being written */
    u64 base_size;
    u64 others_size; /* of all increments but the newest */
    bool unchecked;
};

static bool aof_log_failure(const struct aof *a, const char *what, const char *name)
{
    log_line(a->o.log, LOG_WARNING, "AOF: %s %s: %s", what, name, strerror(errno));
    return false;
}

/* -- loading --------------------------------------------------------------------------------------- */

enum aof_found aof_open(struct aof **out, const struct aof_options *o)
{
    struct aof *a = *out = mem_zalloc(sizeof *a);
    a->o = *o;
    enum aof_found found = aof_folder_open(&a->folder, o);
    a->o.dir = a->folder.dir;
    a->o.filename = a->folder.filename;
    a->o.dirname = NULL; /* folder.path has it */
    aof_log_init(&a->log, o->log, o->loop, o->sync, o->timestamps);
    a->broken = found == AOF_BROKEN;
    a->loaded = found == AOF_NONE;
    return found;
}

static void free_loader(struct aof *a)
{
    if (!a->loader) return;
    aof_loader_release(a->loader);
    mem_free(a->loader);
    a->loader = NULL;
}

void aof_free(struct aof *a)
{
    if (a->journal) journal_detach(a->journal, &a->log.sink);
    free_loader(a);
    aof_log_release(&a->log);
    aof_folder_release(&a->folder);
    mem_free(a);
}

err aof_load_step(struct aof *a, struct region *r, struct server *server, u64 budget)
{
    if (a->broken) return ERR_SYNTAX;
    if (!a->loader) {
        a->loader = mem_alloc(sizeof *a->loader);
        if (!aof_loader_init(a->loader, &a->o, a->folder.path, &a->folder.m)) {
            a->broken = true;
            return ERR_SYNTAX;
        }
    }
    err e = aof_loader_step(a->loader, r, server, budget);
    if (e == ERR_SYNTAX) a->broken = true;
    if (e) return e;
    struct aof_loader *l = a->loader;
    a->loaded = true;
    a->unchecked = l->unchecked;
    a->base_size = l->base_size;
    a->others_size = l->loaded - l->base_size - l->last_size;
    if (l->replay.failures)
        log_line(a->o.log, LOG_WARNING,
                 "%llu commands of the append only file answered with an error, as they must have when they "
                 "were first run; the last one: %s", (ull)l->replay.failures, l->replay.error);
    return OK;
}

void aof_load_progress(const struct aof *a, u64 *loaded, u64 *total)
{
    *loaded = a->loader ? a->loader->loaded : 0;
    *total = a->loader ? a->loader->total : 0;
}

/* -- starting and stopping ------------------------------------------------------------------------- */

static bool create_increment(struct aof *a, struct aof_increment *inc, u64 before)
{
    char name[AOF_NAME_MAX + 1];
    u64 seq = aof_manifest_next_seq(&a->folder.m, AOF_INCREMENT);
    if (!aof_folder_name(&a->folder, seq, "incr.aof", name)) return false;
    if (!aof_increment_create(inc, a->folder.path, name, seq, before))
        return aof_log_failure(a, "can't create", name);
    return true;
}

/* Removes an increment that no manifest names. */
static void discard_increment(struct aof *a, const struct aof_increment *inc)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", a->folder.path, inc->name);
    (void)unlink(path);
}

/* Creates an increment and adds it to the manifest. */
static bool add_increment(struct aof *a, struct aof_increment *inc, u64 before,
                          const char *point_made)
{
    struct aof_manifest next;
    if (!create_increment(a, inc, before)) return false;
    crash_point(point_made);
    aof_manifest_copy(&next, &a->folder.m);
    aof_manifest_add(&next, AOF_INCREMENT, inc->seq, inc->name);
    if (aof_folder_save(&a->folder, &next)) return true;
    close(inc->fd);
    if (a->folder.in_doubt) aof_log_distrust(&a->log, EIO, "saving the manifest");
    else discard_increment(a, inc);
    return false;
}

/* Opens the newest increment for appending, if it is ours to its end. */
static bool open_increment(struct aof *a, struct aof_increment *inc)
{
    const struct aof_file *last = aof_manifest_last(&a->folder.m);
    const struct aof_loader *l = a->loader;
    if (!l || !l->appendable) {
        if (l) a->others_size += l->last_size;
        return add_increment(a, inc, l ? l->before : 0, "aof-start-2");
    }
    if (!aof_increment_open(inc, a->folder.path, last->name, last->seq, l->last_size, l->before))
        return aof_log_failure(a, "can't open", last->name);
    return true;
}

static void aof_attach(struct aof *a, struct journal *j, const struct aof_increment *inc)
{
    aof_log_switch(&a->log, inc);
    a->journal = j;
    journal_attach(j, &a->log.sink);
}

static void clean(struct aof *a)
{
    if (!a->o.disable_gc) aof_folder_clean(&a->folder, "aof-rewrite-9", "aof-rewrite-10");
}

bool aof_start(struct aof *a, struct journal *j)
{
    struct aof_increment inc;
    if (a->broken || !a->loaded || a->journal) {
        log_line(a->o.log, LOG_WARNING, "AOF: can't append to files that were not loaded");
        return false;
    }
    if (!aof_folder_make(&a->folder) || !aof_folder_lock(&a->folder)) return false;
    crash_point("aof-start-1");
    aof_folder_sweep(&a->folder);
    if (!open_increment(a, &inc)) return false;
    crash_point("aof-start-3");
    free_loader(a);
    aof_attach(a, j, &inc);
    clean(a);
    return true;
}

bool aof_start_rewriting(struct aof *a, struct journal *j)
{
    struct aof_increment inc;
    if (a->journal || !aof_folder_make(&a->folder) || !aof_folder_lock(&a->folder)) return false;
    aof_folder_sweep(&a->folder);
    if (!create_increment(a, &inc, 0)) return false;
    free_loader(a);
    aof_attach(a, j, &inc);
    a->rewriting = a->starting = true;
    a->base_seq = aof_manifest_next_seq(&a->folder.m, AOF_BASE);
    a->others_size = 0;
    return true;
}

static void aof_detach(struct aof *a)
{
    journal_detach(a->journal, &a->log.sink);
    a->journal = NULL;
    a->loaded = false; /* changes from now on are not in the files */
    aof_log_release(&a->log);
}

void aof_stop(struct aof *a)
{
    if (!a->journal) return;
    if (a->rewriting) aof_rewrite_abandon(a);
    if (!a->journal) return; /* not started */
    if (!aof_log_settle(&a->log))
        log_line(a->o.log, LOG_WARNING, "AOF: the latest writes may not be on disk: %s",
                 a->log.refusal);
    aof_detach(a);
}

/* -- appending ------------------------------------------------------------------------------------- */

bool aof_flush(struct aof *a, i64 now_ms) { return !a->journal || aof_log_flush(&a->log, now_ms); }

void aof_cron(struct aof *a, i64 now_ms)
{
    if (a->journal) aof_log_cron(&a->log, now_ms);
}

const char *aof_refuses(const struct aof *a)
{
    return a->journal ? aof_log_refuses(&a->log) : NULL;
}

void aof_set_options(struct aof *a, enum aof_sync sync, bool timestamps)
{
    a->log.sync = sync;
    a->log.timestamps = timestamps;
}

/* -- rewriting ------------------------------------------------------------------------------------- */

bool aof_rewrite_ready(struct aof *a) { return !a->journal || aof_log_nearly_settled(&a->log); }

bool aof_rewrite_begin(struct aof *a)
{
    struct aof_increment inc;
    if (a->broken || a->rewriting) return false;
    a->base_seq = aof_manifest_next_seq(&a->folder.m, AOF_BASE);
    if (!a->journal) {
        a->rewriting = aof_folder_make(&a->folder);
        return a->rewriting;
    }
    /* An increment that has a successor must be whole. After a failed sync it may not be, and only the
     * rewrite itself helps. */
    if (!aof_log_settle(&a->log) && !(a->log.sync_failed && !a->log.buf.n)) {
        log_line(a->o.log, LOG_WARNING, "AOF: no rewrite while appending fails: %s",
                 a->log.refusal);
        return false;
    }
    u64 size = a->log.at.size;
    /* An increment that may have lost its end must stay the last one until the base replaces it. */
    a->unnamed = a->log.sync_failed;
    if (!(a->unnamed ? create_increment(a, &inc, a->log.at.chain)
                     : add_increment(a, &inc, a->log.at.chain, "aof-rewrite-1")))
        return false;
    crash_point("aof-rewrite-2");
    aof_log_switch(&a->log, &inc);
    a->journal->db = -1; /* a file begins with a SELECT */
    a->others_size += size;
    a->rewriting = true;
    log_line(a->o.log, LOG_NOTICE, "Creating AOF incr file %s on background rewrite", inc.name);
    crash_point("aof-rewrite-3");
    return true;
}

static const char *base_ending(bool rdb) { return rdb ? "base.rdb" : "base.aof"; }

void aof_rewrite_paths(const struct aof *a, bool rdb, char temp[4096], char path[4096])
{
    char name[AOF_NAME_MAX + 1] = "";
    (void)!aof_folder_name(&a->folder, a->base_seq, base_ending(rdb), name);
    snprintf(temp, 4096, "%s/temp-%s", a->folder.path, name);
    snprintf(path, 4096, "%s/%s", a->folder.path, name);
}

static bool put_block(struct rdb_sink *sink, bytes piece)
{
    struct aof_base_sink *s = (struct aof_base_sink *)(void *)sink;
    char line[AOF_LINE];
    if (!s->begun) {
        aof_line_print(line, AOF_TAG_BASE, s->seq, 0);
        s->chain = aof_chain_start(line);
        s->begun = true;
        if (!s->to->write(s->to, bytes_of(line, AOF_LINE))) return false;
    }
    if (!piece.n) return true;
    s->chain = aof_chain_next(s->chain, piece);
    aof_line_print(line, AOF_TAG_BLOCK, piece.n, s->chain);
    return s->to->write(s->to, bytes_of(line, AOF_LINE)) && s->to->write(s->to, piece);
}

void aof_base_sink_init(struct aof_base_sink *s, const struct aof *a, struct rdb_sink *to)
{
    *s = (struct aof_base_sink){.sink.write = put_block, .to = to, .seq = a->base_seq};
}

/* Records the base's size and the sum of its end in the manifest. */
static bool look_at_base(struct aof *a, const char *path, struct aof_manifest *next)
{
    char *tail = mem_alloc(AOF_TAIL);
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fstat(fd, &st) == 0;
    if (ok) {
        size_t n = MIN((u64)st.st_size, AOF_TAIL);
        next->base_known = true;
        next->base_size = (u64)st.st_size;
        ok = pread(fd, tail, n, st.st_size - (off_t)n) == (ssize_t)n;
        if (ok) next->base_tail = aof_tail_sum(bytes_of(tail, n));
    }
    if (!ok) aof_log_failure(a, "can't read the base", path);
    if (fd >= 0) close(fd);
    mem_free(tail);
    return ok;
}

/* The next manifest, with the base in it. */
static bool plan_end(struct aof *a, bool rdb, u64 base_bytes, struct aof_manifest *next)
{
    char temp[4096], path[4096];
    aof_rewrite_paths(a, rdb, temp, path);
    aof_manifest_copy(next, &a->folder.m);
    bool named = !a->starting && !a->unnamed;
    aof_manifest_retire(next, a->journal && named ? a->log.at.seq : 0);
    aof_manifest_add(next, AOF_BASE, a->base_seq, strrchr(path, '/') + 1);
    if (!named) aof_manifest_add(next, AOF_INCREMENT, a->log.at.seq, a->log.at.name);
    bool ok = look_at_base(a, path, next);
    if (ok && rdb && base_bytes && next->base_size != base_bytes) {
        log_line(a->o.log, LOG_WARNING, "AOF: the base %s has %llu bytes, not %llu", path,
                 (unsigned long long)next->base_size, (unsigned long long)base_bytes);
        ok = false;
    }
    if (!ok) aof_manifest_release(next);
    return ok;
}

static bool save_end(struct aof *a, struct aof_manifest *next)
{
    u64 size = next->base_size;
    if (!aof_folder_save(&a->folder, next)) {
        if (a->folder.in_doubt) aof_log_distrust(&a->log, EIO, "saving the manifest");
        return false;
    }
    a->base_size = size;
    return true;
}

static void discard_base(struct aof *a, bool rdb)
{
    char temp[4096], path[4096];
    aof_rewrite_paths(a, rdb, temp, path);
    (void)unlink(path);
}

bool aof_rewrite_end(struct aof *a, bool rdb, u64 base_bytes)
{
    struct aof_manifest next;
    bool ok = a->rewriting && plan_end(a, rdb, base_bytes, &next);
    if (ok) crash_point("aof-rewrite-7");
    if (!ok || !save_end(a, &next)) {
        if (a->rewriting && !a->folder.in_doubt) discard_base(a, rdb);
        aof_rewrite_abandon(a);
        return false;
    }
    crash_point("aof-rewrite-8");
    a->rewriting = a->starting = a->unnamed = false;
    a->others_size = 0;
    a->unchecked = false;
    aof_log_heal(&a->log);
    clean(a);
    return true;
}

void aof_rewrite_abandon(struct aof *a)
{
    if (!a->rewriting) return;
    a->rewriting = false;
    if (!a->starting) return;
    a->starting = false;
    if (!a->folder.in_doubt) discard_increment(a, &a->log.at);
    aof_detach(a);
}

struct aof_facts aof_facts(const struct aof *a)
{
    const struct aof_log *l = &a->log;
    return (struct aof_facts){
        .base_size = a->base_size,
        .current_size = a->base_size + a->others_size + (l->at.fd >= 0 ? l->at.size : 0),
        .buffer = l->buf.n,
        .pending_sync = l->job != NULL,
        .delayed_sync = l->delayed,
        .write_failed = l->write_failed || l->sync_failed,
        .wants_rewrite = l->sync_failed || a->unchecked,
    };
}

struct sync_state aof_sync_state(const struct aof *a) { return aof_log_sync_state(&a->log); }
