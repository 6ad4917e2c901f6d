/* Cursors: each is the fingerprint of a name; a small cache maps fingerprints back to names.
 *
 * The cache is set-associative; a new entry replaces the least recently used one of its set. It
 * only saves searching for a name, so losing entries is harmless. */
#include "engine/rocks/cursor.h"

#include "engine/rocks/delta.h"

#define SETS 64
#define WAYS 4
#define LONGEST_NAME 16384 /* longer ones are not cached but searched for */
#define SEED 0x6d6179666c79ull /* fixed: a cursor outlives the process */
#define STEPS 10 /* elements visited per requested one, where most are hidden */

struct cursor_hint {
    u64 scope, cursor, used;
    struct buf name;
};

void cursors_release(struct cursors *c)
{
    for (u32 i = 0; c->hints && i < SETS * WAYS; i++) buf_release(&c->hints[i].name);
    mem_free(c->hints);
    *c = (struct cursors){0};
}

u64 cursor_of(bytes name)
{
    u64 print = hash_bytes(name, SEED) >> (64 - CURSOR_BITS);
    return print ? print : 1;
}

static struct cursor_hint *set_of(struct cursors *c, u64 scope, u64 cursor)
{
    return c->hints + hash_fold(scope ^ SEED, cursor | 1) % SETS * WAYS;
}

void cursor_remember(struct cursors *c, u64 scope, u64 cursor, bytes name)
{
    if (name.n > LONGEST_NAME) return;
    if (!c->hints) c->hints = mem_zalloc(SETS * WAYS * sizeof *c->hints);
    struct cursor_hint *set = set_of(c, scope, cursor), *place = set;
    for (u32 i = 0; i < WAYS; i++) {
        if (set[i].used < place->used) place = &set[i];
        if (set[i].cursor != cursor || set[i].scope != scope) continue;
        place = &set[i];
        break;
    }
    place->scope = scope;
    place->cursor = cursor;
    place->used = ++c->clock;
    buf_clear(&place->name);
    buf_append_bytes(&place->name, name);
}

bool cursor_recall(struct cursors *c, u64 scope, u64 cursor, bytes *name)
{
    if (!c->hints) return false;
    struct cursor_hint *set = set_of(c, scope, cursor);
    for (u32 i = 0; i < WAYS; i++) {
        if (!set[i].used || set[i].cursor != cursor || set[i].scope != scope) continue;
        set[i].used = ++c->clock;
        *name = set[i].name.n ? buf_bytes(&set[i].name) : (bytes){"", 0};
        return true;
    }
    return false;
}

/* -- scanning a collection ---------------------------------------------------------------- */

/* Searches from the start for the name of a cursor that is not cached, and moves after it; to the
 * first element if the name was deleted. */
static bool look_for(struct walk *w, struct rk *rk, struct row *r, u64 cursor)
{
    bool more = walk_start(w, rk, r, (bytes){0}, false);
    while (more && cursor_of(w->sub) != cursor) more = walk_next(w);
    if (!more) return walk_start(w, rk, r, (bytes){0}, false);
    cursor_remember(&rk->cursors, r->version, cursor, w->sub);
    return walk_next(w);
}

static bool resume(struct walk *w, struct rk *rk, struct row *r, u64 cursor)
{
    bytes name;
    if (cursor == 0) return walk_start(w, rk, r, (bytes){0}, false);
    if (!cursor_recall(&rk->cursors, r->version, cursor, &name)) return look_for(w, rk, r, cursor);
    if (!walk_start(w, rk, r, name, false)) return false;
    return bytes_eq(w->sub, name) ? walk_next(w) : true;
}

u64 cursor_scan(struct rk *rk, struct row *r, u64 cursor, u32 count, u64 whole, cursor_see see, void *arg)
{
    struct walk w;
    bool all = r->size <= whole;
    u64 seen = 0, steps = (u64)count * STEPS, next = 0;
    bool more = resume(&w, rk, r, all ? 0 : cursor);
    while (more) {
        seen += see(arg, &w);
        bool enough = !all && (seen >= count || --steps == 0);
        if (enough) {
            next = cursor_of(w.sub);
            cursor_remember(&rk->cursors, r->version, next, w.sub);
        }
        more = walk_next(&w);
        if (!enough) continue;
        walk_done(&w);
        return more ? next : 0;
    }
    return 0;
}
