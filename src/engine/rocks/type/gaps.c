/* Each gap stands for itself: they may overlap, and all that is known is true of each. When there are too
 * many, the one that was of no use for the longest time goes. */
#include "engine/rocks/type/gaps.h"

#include "base/alloc.h"

static bool covers(const struct gap *g, bytes name)
{
    bool begun = bytes_cmp(buf_bytes(&g->from), name) <= 0;
    return begun && (g->endless || bytes_cmp(name, buf_bytes(&g->to)) < 0);
}

struct gap *gaps_find(struct gaps *g, bytes name)
{
    for (u32 i = 0; g && i < g->n; i++) {
        if (!covers(&g->v[i], name)) continue;
        g->v[i].used = ++g->uses;
        return &g->v[i];
    }
    return NULL;
}

static struct gap *place(struct gaps *g)
{
    if (g->n < GAPS_MAX) return &g->v[g->n++];
    struct gap *oldest = &g->v[0];
    for (u32 i = 1; i < GAPS_MAX; i++)
        if (g->v[i].used < oldest->used) oldest = &g->v[i];
    return oldest;
}

static void set(struct buf *b, bytes to)
{
    buf_clear(b);
    buf_append_bytes(b, to);
}

void gaps_note(struct gaps **all, struct gap *known, bytes from, bytes to)
{
    if (!*all) *all = mem_zalloc(sizeof **all);
    if (!known) {
        known = place(*all);
        set(&known->from, from);
    }
    known->used = ++(*all)->uses;
    known->endless = !to.p;
    set(&known->to, to);
}

void gaps_put(struct gaps *g, bytes name)
{
    for (u32 i = 0; g && i < g->n; i++) {
        if (!covers(&g->v[i], name)) continue;
        g->v[i].endless = false;
        set(&g->v[i].to, name);
    }
}

void gaps_free(struct gaps *g)
{
    for (u32 i = 0; g && i < GAPS_MAX; i++) {
        buf_release(&g->v[i].from);
        buf_release(&g->v[i].to);
    }
    mem_free(g);
}
