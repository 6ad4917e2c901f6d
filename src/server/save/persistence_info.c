/* INFO persistence: Redis's fields in its order, then ours. */
#include "base/clock.h"
#include "server/server.h"

typedef long long ll;

u64 persistence_buffers(const struct persistence *p)
{
    u64 n = p->aof ? aof_facts(p->aof).buffer : 0;
    if (p->job != JOB_NONE && p->stage != STAGE_WANTED && !p->no_file) n += disk_file_waiting(&p->file);
    if (p->saver) n += saver_progress(p->saver).waiting;
    return n;
}

static i64 running_s(const struct persistence *p, enum persist_job job)
{
    return snapshot_active(p, job) ? (clock_mono_us() - p->job_us) / 1000000 : -1;
}

/* A full sync of replicas counts as a save, too, as in Redis. */
static bool saves(const struct persistence *p)
{
    return snapshot_active(p, JOB_SAVE) || snapshot_active(p, JOB_SYNC);
}

static const char *status(bool failed) { return failed ? "err" : "ok"; }

static double share_of(u64 part, u64 whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

/* There is no copy on write: a snapshot needs buffers, and dropped values that are not written yet. */
static void info_snapshot(const struct server *s, const struct saver_progress *g, struct buf *b)
{
    const struct persistence *p = &s->persist;
    bool on = p->job != JOB_NONE && p->stage != STAGE_ABANDON;
    u64 size = on ? persistence_buffers(p) + lone_region(s)->eng->held : 0;
    buf_printf(b,
               "async_loading:%d\r\ncurrent_cow_peak:%llu\r\ncurrent_cow_size:%llu\r\n"
               "current_cow_size_age:0\r\ncurrent_fork_perc:%.2f\r\ncurrent_save_keys_processed:%llu\r\n"
               "current_save_keys_total:%llu\r\n",
               loading_aside(&p->loading), on ? (ull)p->peak : 0, (ull)size,
               share_of(g->keys, g->keys_total), (ull)g->keys, (ull)g->keys_total);
}

static void info_rdb(const struct server *s, struct buf *b)
{
    const struct persistence *p = &s->persist;
    u64 dirty = persistence_dirty(s);
    buf_printf(b,
               "rdb_changes_since_last_save:%llu\r\nrdb_bgsave_in_progress:%d\r\nrdb_last_save_time:%lld\r\n"
               "rdb_last_bgsave_status:%s\r\nrdb_last_bgsave_time_sec:%lld\r\n"
               "rdb_current_bgsave_time_sec:%lld\r\nrdb_saves:%llu\r\nrdb_last_cow_size:%llu\r\n"
               "rdb_last_load_keys_expired:%llu\r\n"
               "rdb_last_load_keys_loaded:%llu\r\n",
               (ull)(dirty - MIN(dirty, p->dirty_saved)), saves(p), (ll)p->last_save_s,
               status(p->save_failed), (ll)p->save_took_s,
               (ll)running_s(p, snapshot_active(p, JOB_SYNC) ? JOB_SYNC : JOB_SAVE), (ull)p->saves,
               (ull)p->save_peak, (ull)p->loaded_dead, (ull)p->loaded_keys);
}

static void info_aof(const struct persistence *p, struct buf *b)
{
    bool on = p->aof_state != AOF_IS_OFF;
    struct aof_facts f = on && p->aof ? aof_facts(p->aof) : (struct aof_facts){0};
    buf_printf(b,
               "aof_enabled:%d\r\naof_rewrite_in_progress:%d\r\naof_rewrite_scheduled:%d\r\n"
               "aof_last_rewrite_time_sec:%lld\r\naof_current_rewrite_time_sec:%lld\r\n"
               "aof_last_bgrewrite_status:%s\r\naof_rewrites:%llu\r\n"
               "aof_rewrites_consecutive_failures:%llu\r\naof_last_write_status:%s\r\n"
               "aof_last_cow_size:%llu\r\nmodule_fork_in_progress:0\r\n"
               "module_fork_last_cow_size:0\r\n",
               on, snapshot_active(p, JOB_REWRITE), p->rewrite_scheduled, (ll)p->rewrite_took_s,
               (ll)running_s(p, JOB_REWRITE), status(p->rewrite_failed), (ull)p->rewrites,
               (ull)p->rewrite_failures, status(f.write_failed), (ull)p->rewrite_peak);
    if (!on) return;
    buf_printf(b,
               "aof_current_size:%llu\r\naof_base_size:%llu\r\naof_pending_rewrite:%d\r\n"
               "aof_buffer_length:%llu\r\naof_pending_bio_fsync:%llu\r\naof_delayed_fsync:%llu\r\n",
               (ull)f.current_size, (ull)f.base_size, p->aof_state == AOF_IS_NEW, (ull)f.buffer,
               (ull)f.pending_sync, (ull)f.delayed_sync);
}

static void info_loading(const struct server *s, struct buf *b)
{
    const struct loading *l = &s->persist.loading;
    u64 loaded, total;
    loading_progress(s, &loaded, &total);
    buf_printf(b,
               "loading_start_time:%lld\r\nloading_total_bytes:%llu\r\nloading_rdb_used_mem:%llu\r\n"
               "loading_loaded_bytes:%llu\r\nloading_loaded_perc:%.2f\r\nloading_eta_seconds:%lld\r\n",
               (ll)l->start_s, (ull)total, (ull)l->used_mem, (ull)loaded, share_of(loaded, total),
               (ll)loading_eta_s(s));
}

static i64 save_eta_s(const struct persistence *p, const struct saver_progress *g)
{
    if (!p->saver || !g->keys) return -1;
    double took = (double)(clock_mono_us() - p->job_us) / 1e6;
    return (i64)(took * (double)(g->keys_total - MIN(g->keys, g->keys_total)) / (double)g->keys);
}

void persistence_info(struct server *s, struct buf *b)
{
    const struct persistence *p = &s->persist;
    struct saver_progress g = {0};
    if (p->saver) g = saver_progress(p->saver);
    else if (p->job != JOB_NONE) g = p->progress;
    buf_printf(b, "loading:%d\r\n", s->node.loading);
    info_snapshot(s, &g, b);
    info_rdb(s, b);
    info_aof(p, b);
    if (s->node.loading || loading_busy(&p->loading)) info_loading(s, b);
    buf_printf(b,
               "current_save_bytes:%llu\r\ncurrent_save_keys_ahead:%llu\r\n"
               "current_save_eta_seconds:%lld\r\n",
               (ull)g.bytes, (ull)g.ahead, (ll)save_eta_s(p, &g));
}
