/* When to save and to rewrite, switching the AOF on and off, and what a tick has to do for durability. */
#include "server/save/persistence.h"

#include <unistd.h>

#include "base/clock.h"
#include "command/commands.h"
#include "server/server.h"

#define SAVE_RETRY_MS 5000     /* after a BGSAVE that failed, as in Redis */
#define REWRITE_PATIENCE 3     /* failures in a row before rewrites become rarer … */
#define REWRITE_DELAY_MAX 60   /* … down to one in so many minutes */

/* -- the AOF, on and off ---------------------------------------------------------------------------- */

static enum aof_sync sync_of(const struct config *c)
{
    switch (c->appendfsync) {
    case DISK_SYNC_ALWAYS: return AOF_SYNC_ALWAYS;
    case DISK_SYNC_NO: return AOF_SYNC_NO;
    default: return AOF_SYNC_EVERYSEC;
    }
}

enum aof_found persistence_open_aof(struct server *s, struct aof **a)
{
    const struct config *c = &s->config;
    return aof_open(a, &(struct aof_options){
        .dir = c->dir.p, .dirname = c->appenddirname.p, .filename = c->appendfilename.p, .log = &s->log,
        .loop = &s->loop, .sync = sync_of(c), .timestamps = c->aof_timestamp_enabled,
        .load_truncated = c->aof_load_truncated, .load_unchecked = c->aof_load_unchecked,
        .skip_unsupported = c->rdb_skip_unsupported, .disable_gc = c->aof_disable_auto_gc,
        .lock = !s->persist.aof, /* else it is locked already: DEBUG LOADAOF */
    });
}

static void begin_appending(struct server *s)
{
    s->persist.appending = true;
    s->persist.flushed_seq = lone_region(s)->journal.seq;
}

static void close_aof(struct server *s)
{
    struct persistence *p = &s->persist;
    if (p->appending) aof_stop(p->aof);
    p->appending = false;
    p->aof_state = AOF_IS_OFF;
    aof_free(p->aof);
    p->aof = NULL;
}

bool persistence_switch_aof(struct server *s)
{
    struct persistence *p = &s->persist;
    if (!p->aof && persistence_open_aof(s, &p->aof) == AOF_BROKEN) {
        log_line(&s->log, LOG_WARNING, "Move the damaged append only file away, and try again");
        aof_free(p->aof);
        p->aof = NULL;
        return false;
    }
    if (p->aof_state != AOF_IS_NEW) return aof_rewrite_begin(p->aof);
    if (!aof_start_rewriting(p->aof, &lone_region(s)->journal)) return false;
    begin_appending(s);
    return true;
}

static void slow_down(struct server *s)
{
    struct persistence *p = &s->persist;
    if (++p->rewrite_failures < REWRITE_PATIENCE) return;
    bool urgent = p->aof_state == AOF_IS_ON && aof_refuses(p->aof); /* no writes until one succeeds */
    bool again = p->rewrite_delay_min && !urgent;
    p->rewrite_delay_min = again ? MIN(2 * p->rewrite_delay_min, REWRITE_DELAY_MAX) : 1;
    p->rewrite_after_ms = clock_mono_ms() + p->rewrite_delay_min * 60000;
    log_line(&s->log, LOG_WARNING, "Background AOF rewrite has repeatedly failed %llu times and triggered "
                                   "the limit, will retry in %lld minutes",
             (unsigned long long)p->rewrite_failures, (long long)p->rewrite_delay_min);
}

static void forgive_failures(struct persistence *p)
{
    p->rewrite_failures = 0;
    p->rewrite_delay_min = p->rewrite_after_ms = 0;
}

/* There may be no AOF: then BGREWRITEAOF made a base only, as in Redis. */
void persistence_rewritten(struct server *s, bool ok)
{
    struct persistence *p = &s->persist;
    p->rewrite_failed = !ok;
    if (ok) forgive_failures(p);
    else slow_down(s);
    if (p->aof_state == AOF_IS_NEW) {
        p->aof_state = ok ? AOF_IS_ON : AOF_IS_NEW;
        p->appending = ok;
        p->rewrite_scheduled = !ok;
        if (p->loading.stage == LOADING_DONE) loading_first_base(s, ok);
    } else if (p->aof_state == AOF_IS_OFF && p->aof) {
        close_aof(s);
    }
}

static void persistence_turn_on(struct server *s)
{
    struct persistence *p = &s->persist;
    p->aof_state = AOF_IS_NEW;
    if (p->job == JOB_NONE) {
        snapshot_want(s, JOB_REWRITE);
        return;
    }
    if (p->job == JOB_REWRITE) {
        log_line(&s->log, LOG_NOTICE, "AOF was enabled but there is already an AOF rewriting in background. "
                                      "Stopping background AOF and starting a rewrite now.");
        snapshot_kill(s);
    } else {
        log_line(&s->log, LOG_NOTICE, "AOF was enabled but there is already another background operation. "
                                      "An AOF background was scheduled to start when possible.");
    }
    p->rewrite_scheduled = true;
}

static void persistence_turn_off(struct server *s)
{
    struct persistence *p = &s->persist;
    if (p->job == JOB_REWRITE) snapshot_kill(s);
    p->rewrite_scheduled = false;
    p->rewrite_failed = false;
    if (p->aof) close_aof(s);
    p->aof_state = AOF_IS_OFF;
}

void persistence_apply_config(struct server *s)
{
    struct persistence *p = &s->persist;
    const struct config *c = &s->config;
    if (!p->started) return;
    if (p->aof) aof_set_options(p->aof, sync_of(c), c->aof_timestamp_enabled);
    if (s->node.loading) return; /* after loading, the AOF follows the configuration of that time */
    if (config_wants_aof(c) && p->aof_state == AOF_IS_OFF) persistence_turn_on(s);
    else if (!config_wants_aof(c) && p->aof_state != AOF_IS_OFF) persistence_turn_off(s);
}

static bool is_empty(struct server *s)
{
    struct engine *e = lone_region(s)->eng;
    for (u32 db = 0; db < e->databases; db++)
        if (e->ops->count(e, db)) return false;
    return true;
}

bool persistence_loaded(struct server *s, bool from_aof)
{
    struct persistence *p = &s->persist;
    p->dirty_saved = lone_region(s)->ks.dirty;
    if (!config_wants_aof(&s->config)) {
        if (p->aof) close_aof(s);
        return true;
    }
    if (!from_aof && !is_empty(s)) {
        log_line(&s->log, LOG_NOTICE, "Writing the base of the append only file from the loaded data");
        p->aof_state = AOF_IS_NEW;
        snapshot_want(s, JOB_REWRITE);
        return true;
    }
    if (!aof_start(p->aof, &lone_region(s)->journal)) return false;
    p->aof_state = AOF_IS_ON;
    begin_appending(s);
    return true;
}

void persistence_replaced(struct server *s, u64 keys)
{
    struct persistence *p = &s->persist;
    lone_region(s)->ks.dirty += keys + 1;
    durable_reset(s);
    if (p->aof_state == AOF_IS_OFF) return;
    if (p->appending) aof_stop(p->aof);
    p->appending = false;
    persistence_turn_on(s);
}

/* -- around a tick --------------------------------------------------------------------------------- */

static const char save_refusal[] =
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. "
    "Commands that may modify the data set are disabled, because this instance is configured to report "
    "errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the "
    "Redis logs for details about the RDB error.";

static const char *refusal(const struct server *s)
{
    const struct persistence *p = &s->persist;
    const struct config *c = &s->config;
    if (UNLIKELY(p->save_failed) && c->stop_writes_on_bgsave_error && c->save.n) return save_refusal;
    return p->aof_state == AOF_IS_ON ? aof_refuses(p->aof) : NULL;
}

void persistence_begin_tick(struct server *s)
{
    struct node *n = &s->node;
    const char *why = refusal(s);
    s->persist.flushed = s->persist.part_failed = false;
    if (!node_engine(n)->caps.durable || !n->refuse_writes) n->refuse_writes = why;
    if (n->evictor.maxmemory) n->evictor.not_counted = persistence_buffers(&s->persist) + primary_buffers(s);
}

/* Before the AOF is on, nothing in it was promised to clients: this is a rewrite that failed, to be tried
 * again. */
static bool flush_failed(struct server *s)
{
    if (s->persist.aof_state != AOF_IS_NEW) return false;
    snapshot_kill(s);
    persistence_rewritten(s, false);
    return true;
}

bool persistence_log(struct server *s)
{
    struct persistence *p = &s->persist;
    u64 seq = lone_region(s)->journal.seq;
    if (!p->appending || seq == p->flushed_seq) return true;
    p->flushed_seq = seq;
    if (UNLIKELY(p->flush_sleep_us)) usleep((useconds_t)p->flush_sleep_us);
    return aof_flush(p->aof, s->tick_us / 1000) || flush_failed(s);
}

void persistence_after_flushall(struct server *s)
{
    struct persistence *p = &s->persist;
    p->flushed = false;
    if (p->job == JOB_SAVE) snapshot_kill(s);
    if (s->config.save.n && !snapshot_save_now(s))
        log_line(&s->log, LOG_WARNING, "FLUSHALL: the file still has the previous data");
}

/* -- when to save and to rewrite --------------------------------------------------------------------- */

void persistence_note_save(struct persistence *p)
{
    p->last_save_s = clock_wall_ms() / 1000;
    p->saved_ms = clock_mono_ms();
}

u64 persistence_dirty(const struct server *s)
{
    const struct region *r;
    u64 n = 0;
    REGIONS_EACH(&s->node.regions, r) n += r->ks.dirty;
    return n;
}

static bool save_may_try(const struct persistence *p, i64 now_ms)
{
    return !p->save_failed || now_ms - p->tried_ms > SAVE_RETRY_MS;
}

static bool save_point_reached(struct server *s, i64 now_ms)
{
    const struct persistence *p = &s->persist;
    u64 dirty = persistence_dirty(s), changes = dirty - MIN(dirty, p->dirty_saved);
    for (u32 i = 0; i < s->config.save.n; i++) {
        const struct save_point *sp = &s->config.save.v[i];
        if (changes < (u64)sp->changes || (now_ms - p->saved_ms) / 1000 <= sp->seconds) continue;
        log_line(&s->log, LOG_NOTICE, "%lld changes in %lld seconds. Saving...", (long long)sp->changes,
                 (long long)sp->seconds);
        return true;
    }
    return false;
}

static bool aof_wants_rewrite(struct server *s)
{
    const struct persistence *p = &s->persist;
    const struct config *c = &s->config;
    if (p->aof_state != AOF_IS_ON) return false;
    struct aof_facts f = aof_facts(p->aof);
    if (f.wants_rewrite) {
        log_line(&s->log, LOG_NOTICE,
                 "Starting automatic rewriting of AOF: its files are not to be relied upon");
        return true;
    }
    if (!c->auto_aof_rewrite_percentage || f.current_size <= (u64)c->auto_aof_rewrite_min_size) return false;
    double growth = (double)f.current_size * 100 / (double)MAX(f.base_size, 1u) - 100;
    if (growth < (double)c->auto_aof_rewrite_percentage) return false;
    log_line(&s->log, LOG_NOTICE, "Starting automatic rewriting of AOF on %.0f%% growth", growth);
    return true;
}

void persistence_cron(struct server *s)
{
    struct persistence *p = &s->persist;
    i64 now_ms = clock_mono_ms();
    if (p->appending) aof_cron(p->aof, now_ms);
    if (s->node.loading || loading_busy(&p->loading) || p->job != JOB_NONE) return;
    bool rewrite_may = now_ms >= p->rewrite_after_ms;
    if (p->rewrite_scheduled && rewrite_may) snapshot_want(s, JOB_REWRITE);
    else if (save_may_try(p, now_ms) && save_point_reached(s, now_ms)) snapshot_want(s, JOB_SAVE);
    else if (rewrite_may && aof_wants_rewrite(s)) snapshot_want(s, JOB_REWRITE);
    else if (p->save_scheduled && save_may_try(p, now_ms)) snapshot_want(s, JOB_SAVE);
}

/* -- life --------------------------------------------------------------------------------------------- */

static void persistence_on_busy(uv_idle_t *h UNUSED) {} /* while it is active the loop does not sleep */

static void persistence_on_prepare(uv_prepare_t *h)
{
    struct server *s = h->data;
    struct persistence *p = &s->persist;
    bool more = loading_busy(&p->loading) ? loading_step(s) : snapshot_work(s);
    if (more || p->turn) uv_idle_start(&p->busy, persistence_on_busy);
    else uv_idle_stop(&p->busy);
    p->turn = false;
}

bool persistence_start(struct server *s)
{
    struct persistence *p = &s->persist;
    p->save_took_s = p->rewrite_took_s = -1;
    persistence_note_save(p);
    uv_prepare_init(&s->loop, &p->prepare);
    uv_idle_init(&s->loop, &p->busy);
    p->prepare.data = s;
    uv_prepare_start(&p->prepare, persistence_on_prepare);
    p->started = p->turn = true;
    snapshot_sweep(s);
    return loading_begin(s);
}

/* The job's worker, and a sync of the AOF, end with the loop. */
void persistence_stop(struct server *s)
{
    struct persistence *p = &s->persist;
    snapshot_kill(s);
    if (p->appending) aof_stop(p->aof);
    p->appending = false;
}

void persistence_release(struct server *s)
{
    struct persistence *p = &s->persist;
    if (p->aof) aof_free(p->aof);
    p->aof = NULL;
    loading_release(&p->loading);
}

/* -- shutdown ---------------------------------------------------------------------------------------- */

static const char *or_what(bool anyway) { return anyway ? ". Exit anyway." : ", can't exit."; }

static bool aof_may_end(struct server *s, bool force, bool nosave)
{
    struct persistence *p = &s->persist;
    if (p->aof_state == AOF_IS_NEW) {
        log_line(&s->log, LOG_WARNING, "Writing initial AOF%s", or_what(force));
        return force;
    }
    if (p->aof_state != AOF_IS_ON) return true;
    p->flushed_seq = lone_region(s)->journal.seq;
    if (aof_flush(p->aof, clock_mono_ms()) && !aof_refuses(p->aof)) return true;
    bool anyway = force || nosave;
    log_line(&s->log, LOG_WARNING, "Error writing the append only file%s", or_what(anyway));
    return anyway;
}

static bool save_at_end(struct server *s, bool force)
{
    log_line(&s->log, LOG_NOTICE, "Saving the final RDB snapshot before exiting.");
    if (snapshot_save_now(s)) return true;
    log_line(&s->log, LOG_WARNING, "Error trying to save the DB%s", or_what(force));
    return force;
}

bool persistence_shutdown(struct server *s, u32 how)
{
    struct persistence *p = &s->persist;
    bool force = how & SHUTDOWN_FORCE, nosave = how & SHUTDOWN_NOSAVE;
    bool saves = how & SHUTDOWN_SAVE || (s->config.save.n && !nosave);
    saves = saves && region_map_slotted(&s->node.regions) <= 1; /* a file has the data of one */
    if (s->node.loading) return true; /* part of the data must not replace all of it */
    if (!aof_may_end(s, force, nosave)) return false;
    if (p->job == JOB_SAVE && p->stage != STAGE_FINISH) {
        log_line(&s->log, LOG_WARNING, "There is a background save in progress. Giving it up!");
        snapshot_kill(s);
    }
    if (saves && !save_at_end(s, force)) return false;
    if (p->job == JOB_REWRITE) {
        log_line(&s->log, LOG_WARNING, "There is an AOF rewrite in progress. Giving it up!");
        snapshot_kill(s);
    }
    if (p->appending) {
        log_line(&s->log, LOG_NOTICE, "Calling fsync() on the AOF file.");
        aof_stop(p->aof);
        p->appending = false;
    }
    return true;
}
