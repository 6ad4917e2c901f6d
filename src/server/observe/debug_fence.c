/* DEBUG FENCE: holds replies until they are released or become errors (net/fence.h). In production Raft does
 * that; this is for tests, on a lone server. Data changes at once, and stays changed when a fence fails, as
 * it would if the entry were committed after all. */
#include "net/fence.h"
#include "server/commit.h"
#include "server/observe/debug_parts.h"
#include "server/server.h"

#define FENCE_WROTE "UNCERTAIN leadership was lost; this write may or may not have happened"
#define FENCE_READ "TRYAGAIN leadership was lost"

/* HOLD [<count>] */
static void debug_fence_hold(struct ctx *c)
{
    struct debug_fences *d = &c->server->debug_fences;
    i64 count = 1;
    if (c->argc > 3 && !ctx_int_range(c, c->argv[3], 1, DEBUG_FENCES, &count)) return;
    if (c->server->cluster) {
        reply_error(c->out, "ERR replies wait for the cluster's fences");
        return;
    }
    d->wanted = (u32)count;
    if (!d->count) commit_debug_fences(c->server, d->wanted);
    reply_ok(c->out);
}

static void debug_fence_list(struct ctx *c)
{
    const struct net *n = &c->server->net;
    reply_array(c->out, n->fences.count);
    for (const struct fence *f = fence_first(n); f; f = f->next) {
        reply_array(c->out, 2);
        reply_int(c->out, (i64)f->id);
        reply_int(c->out, fence_segments(f));
    }
}

static struct fence *debug_fence_find(struct ctx *c)
{
    i64 id;
    if (!ctx_int(c, c->argv[3], &id)) return NULL;
    struct fence *f = fence_first(&c->server->net);
    while (f && (f->state != FENCE_OPEN || f->id != (u64)id)) f = f->next;
    if (!f) reply_error(c->out, "ERR no such fence");
    return f;
}

static void debug_fence_end(struct ctx *c, bool passes)
{
    struct fence *f = debug_fence_find(c);
    if (!f) return;
    if (passes) fence_pass(f);
    else commit_fence_failed(c->server, f, FENCE_WROTE, FENCE_READ);
    reply_ok(c->out);
}

void debug_fence(struct ctx *c)
{
    bytes what = c->argv[2];
    if (bytes_is(what, "hold") && c->argc <= 4) {
        debug_fence_hold(c);
    } else if (bytes_is(what, "off") && c->argc == 3) {
        c->server->debug_fences.wanted = 0;
        reply_ok(c->out);
    } else if (bytes_is(what, "list") && c->argc == 3) {
        debug_fence_list(c);
    } else if ((bytes_is(what, "pass") || bytes_is(what, "fail")) && c->argc == 4) {
        debug_fence_end(c, bytes_is(what, "pass"));
    } else {
        ctx_wrong_subcommand(c);
    }
}
