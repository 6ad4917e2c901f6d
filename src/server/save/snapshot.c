/* The job: a snapshot that is written to an RDB file, to the base of an AOF, or to replicas (primary_sync.c).
 *
 * WANTED → WALK → FINISH → none; at any time before FINISH to ABANDON, which waits for the file's worker.
 * From FINISH on the file may be renamed at any moment, on another thread: code that writes the same name has
 * to wait (snapshot_finishing_save). */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cluster/cluster.h"
#include "repl/primary.h"

/* When requests are waiting, a slice is short compared with their cost; when the loop would sleep, a request
 * that arrives meanwhile waits for half of it on average. */
#define SLICE_BUSY_US 75
#define SLICE_IDLE_US 200
#define SLICE_MAX_US 500
#define SLICE_SHARE 8        /* of the time that requests take */
#define STEP_BYTES (8u << 10)
#define RESUME_EVERY_US 5000 /* connections held back for a huge key check whether it has been saved */
#define TELL_EVERY_US 5000000
#define SYNC_PATIENCE_US 10000000 /* writers may be faster than the disk: a rewrite begins after this */

/* -- connections held back ------------------------------------------------------------------- */

void snapshot_resume_all(struct server *s)
{
    struct persistence *p = &s->persist;
    if (!p->holding) return;
    p->holding = false;
    p->turn = true;
    net_resume(&s->net, HOLD_SNAPSHOT);
}

/* -- the end -------------------------------------------------------------------------------------- */

static i64 job_seconds(const struct persistence *p) { return (clock_mono_us() - p->job_us) / 1000000; }

static void save_ended(struct server *s, bool ok)
{
    struct persistence *p = &s->persist;
    p->save_failed = !ok;
    p->save_took_s = job_seconds(p);
    p->save_peak = p->peak;
    if (!ok) {
        log_line(&s->log, LOG_WARNING, "Background saving error: %s", p->file.error);
        return;
    }
    p->dirty_saved = p->dirty_at_moment;
    persistence_note_save(p);
    log_line(&s->log, LOG_NOTICE, "DB saved on disk: %llu keys, %llu bytes (%llu keys ahead of their turn)",
             (unsigned long long)p->progress.keys, (unsigned long long)p->progress.bytes,
             (unsigned long long)p->progress.ahead);
    log_line(&s->log, LOG_NOTICE, "Background saving terminated with success");
}

static void rewrite_ended(struct server *s, bool ok)
{
    struct persistence *p = &s->persist;
    const char *why = p->file.error;
    if (ok) {
        ok = aof_rewrite_end(p->aof, p->rdb_base, p->rdb_base ? p->progress.bytes : 0);
    } else {
        if (*why) log_line(&s->log, LOG_WARNING, "Error writing the AOF's base: %s", why);
        if (p->stage != STAGE_WANTED) aof_rewrite_abandon(p->aof);
    }
    p->rewrite_took_s = job_seconds(p);
    p->rewrite_peak = p->peak;
    log_line(&s->log, ok ? LOG_NOTICE : LOG_WARNING, "Background AOF rewrite terminated with %s",
             ok ? "success" : "error");
    if (ok) log_line(&s->log, LOG_NOTICE, "Background AOF rewrite finished successfully");
    persistence_rewritten(s, ok);
}

/* It comes before anything that is scheduled. */
static void begin_next(struct server *s)
{
    struct persistence *p = &s->persist;
    if (!p->save_next) return;
    p->save_next = false;
    if (s->node.loading || loading_busy(&p->loading)) p->save_scheduled = true;
    else snapshot_want(s, JOB_SAVE);
}

static void job_end(struct server *s, bool ok)
{
    struct persistence *p = &s->persist;
    enum persist_job job = p->job;
    bool killed = p->killed;
    p->job = JOB_NONE;
    p->killed = false;
    if (job == JOB_SYNC) sync_ended(s, ok, killed);
    if (s->shutting_down) return;
    if (job == JOB_SAVE && !killed) save_ended(s, ok);
    if (job == JOB_REWRITE && !killed) rewrite_ended(s, ok);
    begin_next(s);
    snapshot_resume_all(s);
    if (s->stop_signal) server_stop_by_signal(s, s->stop_signal);
}

static void on_file_done(void *arg, bool ok) { job_end(arg, ok); }

static void end_walk(struct persistence *p)
{
    p->progress = saver_progress(p->saver);
    saver_free(p->saver);
    p->saver = NULL;
}

static void give_up_file(struct server *s)
{
    s->persist.stage = STAGE_ABANDON;
    if (s->persist.no_file) job_end(s, false);
    else disk_file_abandon(&s->persist.file, on_file_done, s);
}

/* A new AOF is given up; one that is on continues. */
static void abandon_rewrite(struct persistence *p)
{
    aof_rewrite_abandon(p->aof);
    if (p->aof_state != AOF_IS_ON) p->appending = false;
}

void snapshot_kill(struct server *s)
{
    struct persistence *p = &s->persist;
    if (p->job == JOB_NONE || p->stage == STAGE_ABANDON) return;
    if (p->stage == STAGE_WANTED) {
        p->job = JOB_NONE;
        return;
    }
    if (p->job == JOB_REWRITE) {
        p->killed = true; /* even if its file is renamed: no manifest will name it */
        abandon_rewrite(p);
    }
    if (p->stage == STAGE_FINISH) return;
    p->killed = true;
    end_walk(p);
    give_up_file(s);
    snapshot_resume_all(s);
}

void snapshot_restart(struct server *s)
{
    struct persistence *p = &s->persist;
    bool again = p->job == JOB_SAVE && p->stage == STAGE_WALK;
    snapshot_kill(s);
    p->save_next |= again;
}

/* -- the beginning ---------------------------------------------------------------------------------- */

static void save_position(void *arg, struct rdb_out *out)
{
    struct server *s = arg;
    if (s->cluster) cluster_save_aux(s, out);
    else replication_save_aux(s, out);
}

/* With the replication position all keys are saved that servers of the same history may still have, dead ones
 * included: a server that continues from there sends them DELs, or gets them. */
static struct saver_options options_of(struct server *s)
{
    const struct config *c = &s->config;
    return (struct saver_options){
        .with_dead = expiry_follows(lone_region(s)->mode) || s->repl.streaming || lone_region(s)->site,
        .stored = s->cluster != NULL, /* what a majority has not got yet must not be in it */
        .aux = save_position,
        .arg = s,
        .compress = c->rdbcompression,
        .checksum = c->rdbchecksum,
        .keep_use = true,
        .redis_version = REDIS_VERSION,
        .mayfly_version = MAYFLY_VERSION,
        .functions = functions_live(&s->node),
    };
}

#define PATH_ROOM 8192 /* enough for a folder of 4096 bytes and a name */

static void dump_paths(const struct server *s, bool background, char temp[PATH_ROOM], char path[PATH_ROOM])
{
    const struct config *c = &s->config;
    snprintf(temp, PATH_ROOM, "%s/temp-%s%d.rdb", c->dir.p, background ? "bg-" : "", (int)getpid());
    snprintf(path, PATH_ROOM, "%s/%s", c->dir.p, c->dbfilename.p);
}

/* Whether it is the name of a temporary file, as above, of a process that has ended (or had our pid). */
static bool is_left_over(const char *name)
{
    int pid = 0, end = 0;
    if (sscanf(name, "temp-bg-%d.rdb%n", &pid, &end) != 1 || !end) sscanf(name, "temp-%d.rdb%n", &pid, &end);
    if (!end) sscanf(name, "temp-sync-%*u-%d.rdb%n", &pid, &end); /* received from a primary */
    if (!end) sscanf(name, "temp-sen%*1[dt]-%d.rdb%n", &pid, &end); /* to be sent to replicas */
    if (pid <= 0 || !end || name[end]) return false;
    return pid == (int)getpid() || (kill(pid, 0) != 0 && errno == ESRCH);
}

void snapshot_sweep(struct server *s)
{
    DIR *dir = opendir(s->config.dir.p);
    if (!dir) return;
    for (struct dirent *d; (d = readdir(dir));) {
        if (!is_left_over(d->d_name)) continue;
        log_line(&s->log, LOG_NOTICE, "Removing %s, which was not finished", d->d_name);
        (void)unlinkat(dirfd(dir), d->d_name, 0);
    }
    closedir(dir);
}

static bool begin_save(struct server *s)
{
    char temp[PATH_ROOM], path[PATH_ROOM];
    dump_paths(s, true, temp, path);
    return disk_file_open(&s->persist.file, &s->loop, temp, path);
}

/* From here on records go to the new increment: the caller takes the snapshot before anything else. */
static bool begin_rewrite(struct server *s)
{
    struct persistence *p = &s->persist;
    char temp[4096], path[4096];
    p->file.error[0] = '\0';
    p->rdb_base = s->config.aof_use_rdb_preamble;
    if (!persistence_switch_aof(s)) return false;
    aof_rewrite_paths(p->aof, p->rdb_base, temp, path);
    if (disk_file_open(&p->file, &s->loop, temp, path)) return true;
    aof_rewrite_abandon(p->aof);
    return false;
}

/* The engine can't take a snapshot at the moment. */
static void try_later(struct server *s)
{
    struct persistence *p = &s->persist;
    if (p->job == JOB_SAVE) p->save_scheduled = true;
    if (p->job == JOB_REWRITE) p->rewrite_scheduled = true;
    if (p->job == JOB_REWRITE) abandon_rewrite(p);
    p->killed = true;
    give_up_file(s);
}

/* Opens the job's file. False: file.error says why. */
static bool open_target(struct server *s)
{
    struct persistence *p = &s->persist;
    bool ok = p->job == JOB_SAVE ? begin_save(s) : p->job == JOB_REWRITE ? begin_rewrite(s) : sync_open(s);
    p->no_file = p->job == JOB_SYNC && !s->repl.sync->disk;
    return ok;
}

static struct rdb_sink *target_of(struct server *s, const struct saver_options *o)
{
    struct persistence *p = &s->persist;
    if (p->job == JOB_SYNC) return sync_sink(s);
    if (!o->commands) return &p->file.sink;
    aof_base_sink_init(&p->base_sink, p->aof, &p->file.sink);
    return &p->base_sink.sink;
}

static void note_begin(struct server *s)
{
    struct persistence *p = &s->persist;
    p->stage = STAGE_WALK;
    if (p->job == JOB_SYNC) {
        sync_begun(s);
        return;
    }
    if (p->job == JOB_SAVE) p->saves++;
    else p->rewrites++;
    log_line(&s->log, LOG_NOTICE, p->job == JOB_SAVE ? "Background saving started"
                                                     : "Background append only file rewriting started");
}

static struct saver *begin_saver(struct server *s, const struct saver_options *o, struct rdb_sink *sink)
{
    if (!s->cluster) return saver_begin(&lone_region(s)->ks, o, sink);
    struct keyspace **all;
    u32 n = cluster_saved(s, &all);
    struct saver *saver = n ? saver_begin_all(all, n, o, sink) : NULL;
    mem_free(all);
    return saver;
}

static void job_begin(struct server *s)
{
    struct persistence *p = &s->persist;
    bool rewrites = p->job == JOB_REWRITE;
    p->job_us = p->resumed_us = p->told_us = clock_mono_us();
    p->progress = (struct saver_progress){0};
    p->peak = 0;
    p->dirty_at_moment = persistence_dirty(s);
    if (!open_target(s)) {
        job_end(s, false);
        return;
    }
    struct saver_options o = options_of(s);
    o.commands = rewrites && !p->rdb_base;
    o.aof_base = rewrites && p->rdb_base;
    o.checksum |= rewrites;
    if (rewrites) o.aux = NULL;
    p->saver = begin_saver(s, &o, target_of(s, &o));
    if (p->saver) note_begin(s);
    else try_later(s);
}

void snapshot_want(struct server *s, enum persist_job job)
{
    struct persistence *p = &s->persist;
    CHECK(p->job == JOB_NONE);
    p->job = job;
    p->stage = STAGE_WANTED;
    p->killed = false;
    p->job_us = clock_mono_us();
    if (job == JOB_SAVE) {
        p->save_scheduled = false;
        p->tried_ms = clock_mono_ms();
    }
    if (job == JOB_REWRITE) p->rewrite_scheduled = false;
}

/* -- slices --------------------------------------------------------------------------------------- */

static i64 slice_us(const struct server *s)
{
    if (s->tick_took_us < 0) return SLICE_IDLE_US;
    return MIN(MAX(s->tick_took_us / SLICE_SHARE, SLICE_BUSY_US), SLICE_MAX_US);
}

static void snapshot_log_progress(struct server *s, i64 now_us)
{
    struct persistence *p = &s->persist;
    struct saver_progress g = saver_progress(p->saver);
    p->told_us = now_us;
    double seconds = (double)(now_us - p->job_us) / 1e6;
    double share = (double)g.keys / (double)MAX(g.keys_total, 1u);
    const char *what = p->job == JOB_SAVE ? "Saving" : p->job == JOB_SYNC ? "Full sync" : "Rewriting the AOF";
    log_line(&s->log, LOG_NOTICE, "%s: %.0f%% (%llu of %llu keys), %.1f MB/s, about %.0f s left",
             what, 100 * share, (unsigned long long)g.keys,
             (unsigned long long)g.keys_total, (double)g.bytes / 1e6 / seconds,
             share > 0 ? seconds / share - seconds : 0);
}

static bool takes_more(const struct server *s)
{
    const struct persistence *p = &s->persist;
    if (p->job == JOB_SYNC) return sync_takes_more(s);
    return !disk_file_full(&p->file) || p->file.error[0]; /* after a failure it fails at once */
}

/* rdb-key-save-delay: for tests that look at a snapshot in progress. */
static bool snapshot_too_fast(const struct server *s, i64 now_us)
{
    i64 delay_us = s->config.rdb_key_save_delay;
    if (LIKELY(delay_us <= 0)) return false;
    return saver_progress(s->persist.saver).keys >= (u64)((now_us - s->persist.job_us) / delay_us);
}

/* Everything was written, or it has failed. */
static void end_of_walk(struct server *s)
{
    struct persistence *p = &s->persist;
    bool failed = saver_failed(p->saver);
    end_walk(p);
    snapshot_resume_all(s);
    if (failed) {
        if (!p->file.error[0]) snprintf(p->file.error, sizeof p->file.error, "the data could not be read");
        give_up_file(s);
        return;
    }
    p->stage = STAGE_FINISH;
    if (p->no_file) job_end(s, true);
    else disk_file_finish(&p->file, on_file_done, s);
}

static bool snapshot_walk(struct server *s)
{
    struct persistence *p = &s->persist;
    i64 start_us = clock_mono_us(), now_us = start_us;
    i64 until_us = start_us + slice_us(s);
    u64 step = s->config.rdb_key_save_delay > 0 ? 1 : STEP_BYTES;
    bool done = false;
    while (!done && now_us < until_us && takes_more(s) && !snapshot_too_fast(s, now_us)) {
        done = saver_step(p->saver, step);
        now_us = clock_mono_us();
    }
    if (p->job == JOB_SYNC) sync_walked(s, done && !saver_failed(p->saver));
    p->peak = MAX(p->peak, persistence_buffers(p) + lone_region(s)->eng->held);
    if (now_us - p->told_us > TELL_EVERY_US) snapshot_log_progress(s, now_us);
    if (now_us - p->resumed_us > RESUME_EVERY_US) {
        p->resumed_us = now_us;
        snapshot_resume_all(s);
    }
    if (!done) return takes_more(s) && !snapshot_too_fast(s, now_us);
    end_of_walk(s);
    return false;
}

/* A rewrite syncs the AOF when it begins; if much is unsynced, a background sync comes first. */
static bool may_begin(const struct server *s)
{
    const struct persistence *p = &s->persist;
    if (p->job != JOB_REWRITE || !p->aof || clock_mono_us() - p->job_us > SYNC_PATIENCE_US) return true;
    return aof_rewrite_ready(p->aof);
}

/* Called between ticks: everything before is committed, and written to the AOF. If it waits for the disk, it
 * is called again when the disk's worker wakes the loop. */
bool snapshot_work(struct server *s)
{
    struct persistence *p = &s->persist;
    if (p->job == JOB_NONE) return false;
    if (p->stage == STAGE_WANTED && may_begin(s)) job_begin(s);
    return p->job != JOB_NONE && p->stage == STAGE_WALK && snapshot_walk(s);
}

/* -- at once --------------------------------------------------------------------------------- */

static void note_result(void *arg, bool ok) { *(bool *)arg = ok; }

bool snapshot_save_now(struct server *s)
{
    struct persistence *p = &s->persist;
    struct disk_file f;
    struct saver_options o = options_of(s);
    char temp[PATH_ROOM], path[PATH_ROOM];
    bool ok = false;
    dump_paths(s, false, temp, path);
    if (disk_file_open(&f, NULL, temp, path)) {
        bool whole = saver_save_now(&lone_region(s)->ks, &o, &f.sink);
        (whole ? disk_file_finish : disk_file_abandon)(&f, note_result, &ok);
    }
    if (!ok) {
        log_line(&s->log, LOG_WARNING, "Error saving DB on disk: %s",
                 f.error[0] ? f.error : "the data could not be read");
        return false;
    }
    p->dirty_saved = persistence_dirty(s);
    persistence_note_save(p);
    p->save_failed = false;
    log_line(&s->log, LOG_NOTICE, "DB saved on disk");
    return true;
}
