#include "repl/durable.h"

#include "server/server.h"

bool durable_enabled(const struct server *s)
{
    return node_engine(&s->node)->caps.durable || s->config.appendonly;
}

void durable_reset(struct server *s) { s->durable = (struct durable){0}; }

/* False: no log holds all data, such as an AOF whose first base is not complete. */
static bool ask_log(struct server *s, struct sync_state *state)
{
    const struct persistence *p = &s->persist;
    const struct engine *e = lone_region(s)->eng;
    if (!e->caps.durable && p->aof_state != AOF_IS_ON) return false;
    *state = e->caps.durable ? e->ops->disk->sync_state(e) : aof_sync_state(p->aof);
    return true;
}

static bool durable_move(struct durable *d, struct durable_mark to)
{
    bool moved = to.seq != d->synced.seq || to.position != d->synced.position;
    d->synced = to;
    return moved;
}

/* The log is asked after the mark was committed, so a sync that has not begun yet covers the mark. */
bool durable_look(struct server *s)
{
    struct durable *d = &s->durable;
    struct durable_mark here = {lone_region(s)->committed, s->repl.stream.end};
    struct sync_state log;
    bool moved = false;
    if (!ask_log(s, &log)) {
        durable_reset(s);
        return false;
    }
    if (log.clean) {
        d->waits = false;
        return durable_move(d, here);
    }
    if (d->waits && log.done > d->after) {
        moved = durable_move(d, d->pending);
        d->waits = false;
    }
    if (log.buffered || (d->waits && log.begun != d->after)) return moved;
    d->pending = here;
    d->after = log.begun;
    d->waits = true;
    return moved;
}
