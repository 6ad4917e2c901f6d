/* Loading the file of a full sync into staging databases, which replace the current data at the end.
 *
 * Everything goes into the staging databases, committed in chunks. The last transaction swaps them in, drops
 * the old data and stores the new position. So a crash leaves either the old data (and remains in staging
 * databases, which the next start drops) or the new data with its position.
 *
 * The AOF keeps the old data until the swap. After it nothing more is appended, and a new AOF is started
 * (persistence_replaced). Until its first base is complete a start loads the old files, and so the old data,
 * never a mixture. */
#include "server/save/loading.h"

#include <errno.h>

#include "base/clock.h"
#include "exec/region_site.h"
#include "server/server.h"

static void loading_sync_flush(struct server *s, u32 from)
{
    struct engine *e = lone_region(s)->eng;
    for (u32 db = from; db < from + e->databases; db++) region_engine_ops(e)->flush(e, db);
}

static void flush_staging(struct server *s) { loading_sync_flush(s, lone_region(s)->eng->databases); }

static bool empty_staging(struct server *s)
{
    region_begin(lone_region(s), clock_wall_ms());
    flush_staging(s);
    return loading_commit(s, false);
}

static bool drops_old_first(const struct server *s, const struct sync_plan *plan)
{
    return !plan->keep_old && s->config.engine == ENGINE_MEMORY; /* otherwise both would be in memory */
}

static bool loading_sync_prepare(struct server *s)
{
    if (!empty_staging(s)) return false;
    if (!drops_old_first(s, &s->persist.loading.sync)) return true;
    region_begin(lone_region(s), clock_wall_ms());
    region_flushing_all(lone_region(s));
    loading_sync_flush(s, 0);
    region_site_emptied(lone_region(s));
    functions_flush(&s->node);
    return loading_commit(s, false);
}

void loading_sync(struct server *s, const char *path, bool keep_old, void (*adopt)(struct server *),
                  void (*done)(struct server *, bool ok))
{
    struct loading *l = &s->persist.loading;
    CHECK(l->stage == LOADING_NOTHING);
    snapshot_kill(s); /* a snapshot of the old data */
    l->sync = (struct sync_plan){.keep_old = keep_old, .adopt = adopt, .done = done};
    s->persist.turn = true;
    functions_stage(&s->node);
    if (loading_open(s, path) && loading_sync_prepare(s)) return;
    if (!loading_busy(l)) log_line(&s->log, LOG_WARNING, "Can't open %s: %s", path, strerror(errno));
    loading_sync_end(s, false);
}

void loading_sync_swap(struct server *s)
{
    struct engine *e = lone_region(s)->eng;
    for (u32 db = 0; db < e->databases; db++) e->ops->swap(e, db, db + e->databases);
    region_replaced_all(lone_region(s));
    flush_staging(s);
    functions_adopt(&s->node);
    region_site_adopt_staged(lone_region(s), true);
    s->persist.loading.sync.adopt(s);
}

static void loading_sync_finish(struct server *s, bool ok)
{
    struct loading *l = &s->persist.loading;
    bool replaced = ok || (drops_old_first(s, &l->sync) && loading_busy(l));
    u64 keys = loading_busy(l) ? l->loader.counts.loaded : 0;
    loading_release(l);
    l->sync = (struct sync_plan){0};
    s->node.loading = false;
    functions_unstage(&s->node);
    if (!ok) {
        (void)!empty_staging(s); /* the next sync drops what remains */
        region_site_adopt_staged(lone_region(s), false);
    }
    if (replaced) persistence_replaced(s, keys);
    persistence_apply_config(s);
}

void loading_sync_end(struct server *s, bool ok)
{
    void (*done)(struct server *, bool) = s->persist.loading.sync.done;
    loading_sync_finish(s, ok);
    done(s, ok);
}

void loading_sync_stop(struct server *s)
{
    if (s->persist.loading.sync.done) loading_sync_finish(s, false);
}
