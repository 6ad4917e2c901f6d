/* An element at random, without knowing how many lie before it.
 *
 * Some names are looked at to learn how they are made, which makes them into numbers: numbering.h.
 *
 * A draw takes a random number, goes to the first element at or after it, and from there 0 to
 * RUN - 1 elements on. The chance q with which an element is met this way is known: it is the
 * distance to the element RUN places before it. So an element after a wide gap, which would come
 * too often, is only taken with the chance (about 1 / n) / q; otherwise there is another draw.
 * Beginning and end are joined, as on a ring.
 *
 * Names of different makes in one collection share no places. Where trials show that a few
 * elements would come all the time, or most never, the names are parted by the symbol behind their
 * prefix, and each part is looked at by itself; a part of few elements is counted through. Which
 * part is taken is left to chance, and goes into q. */
#include "engine/rocks/type/draw.h"

#include "base/rand.h"
#include "engine/rocks/type/numbering.h"

#define LOOKS 32     /* where names are looked at, to learn the symbols */
#define LOOK_RUN 3   /* and how many at each: neighbours show the symbols of the last places */
#define RUN 16
#define FEW 64       /* elements that are counted through */
#define PARTS 64     /* at most */
#define DEPTH 8      /* … of parts in parts */
#define TRIALS 8
#define BAD_TRIALS 3
#define MUCH 0.025   /* … of the chances for one of more than FEW elements */
#define TRIES 24
#define SLOTS 4      /* collections of which something learned is kept … */
#define DRAWS 256    /* … for so many draws */

/* Elements that are drawn from: all, or a part. */
struct part {
    bytes first, last; /* names it reaches from and to */
    enum { UNKNOWN, COUNTED, PARTED, NUMBERED } kind;
    u32 depth;
    u32 count; /* COUNTED: elements; PARTED: parts */
    struct part *parts;
    struct numbering *numbering;
};

/* What was learned is kept for the next draws; it may be out of date, but then some elements are
 * a little likelier than others for a while, and new ones at the ends are not drawn yet. */
struct draws {
    struct learned {
        u64 version; /* of the collection; 0: free */
        u32 left;    /* draws until it is learned anew */
        struct part all;
        struct arena arena;
    } slot[SLOTS];
    u32 next;
};

/* A draw that is going on. */
struct drawing {
    struct rk *rk;
    struct row *row;
    u64 *rng;
    struct arena *arena;
};

/* -- walks within a part ------------------------------------------------------------------------ */

static bool inside(const struct part *p, const struct walk *w)
{
    return w->reverse ? bytes_cmp(w->sub, p->first) >= 0 : bytes_cmp(w->sub, p->last) <= 0;
}

static bool start(const struct part *p, struct walk *w, const struct drawing *g, bytes from, bool reverse)
{
    return walk_start(w, g->rk, g->row, from, reverse) && inside(p, w);
}

/* Takes so many steps on the ring; how often it went round, or -1: there is nothing. */
static int step_on(const struct part *p, struct walk *w, const struct drawing *g, bool more, u32 steps)
{
    bool reverse = w->reverse;
    for (int rounds = 0;; more = walk_next(w) && inside(p, w)) {
        if (!more) {
            walk_done(w);
            if (!start(p, w, g, reverse ? p->last : p->first, reverse)) return -1;
            rounds++;
        }
        if (steps-- == 0) return rounds;
    }
}

/* -- proposals -------------------------------------------------------------------------------------- */

/* Goes to a random element of the ring; its chance is *q. */
static bool propose_numbered(const struct part *p, struct walk *w, const struct drawing *g, double *q)
{
    const struct numbering *d = p->numbering;
    u64 ring = d->high - d->low + 1;
    u32 on = (u32)rand_below(g->rng, RUN);
    bytes from = numbering_name(d, d->low + rand_below(g->rng, ring));
    struct walk back;
    bool more = start(p, &back, g, from, true);
    bool same = more && bytes_eq(back.sub, from); /* it is the first at or after the target, too */
    int rounds_back = step_on(p, &back, g, more, RUN - on - !same);
    if (rounds_back < 0) return false;
    double before = (double)numbering_number(d, back.sub) - (double)rounds_back * (double)ring;
    walk_done(&back);
    more = start(p, w, g, from, false);
    int rounds = step_on(p, w, g, more, on);
    if (rounds < 0) return false;
    *q = ((double)numbering_number(d, w->sub) + (double)rounds * (double)ring - before) / (double)ring / RUN;
    return true;
}

static bool propose_counted(const struct part *p, struct walk *w, const struct drawing *g, double *q)
{
    *q = 1.0 / p->count;
    bool more = start(p, w, g, p->first, false);
    return step_on(p, w, g, more, (u32)rand_below(g->rng, p->count)) >= 0;
}

/* -- learning ------------------------------------------------------------------------------------ */

static bytes keep(const struct drawing *g, bytes b)
{
    return bytes_of(memcpy(arena_alloc(g->arena, MAX(b.n, 1)), b.p, b.n), b.n);
}

static void learn_run(struct part *p, const struct drawing *g, bytes from, bool reverse)
{
    struct walk w;
    bool more = start(p, &w, g, from, reverse);
    for (u32 i = 0; more && i < LOOK_RUN; i++, more = walk_next(&w) && inside(p, &w))
        numbering_learn(p->numbering, w.sub);
    walk_done(&w);
}

/* How many elements there are, as far as that is soon known. */
static u32 count_few(const struct part *p, const struct drawing *g)
{
    struct walk w;
    u32 n = 0;
    bool more = start(p, &w, g, p->first, false);
    for (; more && n <= FEW; more = walk_next(&w) && inside(p, &w)) n++;
    walk_done(&w);
    return n;
}

/* Whether proposals come from all over: not a few elements all the time, and none out of nowhere. */
static bool proves_good(const struct part *p, const struct drawing *g)
{
    u32 bad = 0;
    for (u32 i = 0; i < TRIALS; i++) {
        struct walk w = {0};
        double q;
        if (!propose_numbered(p, &w, g, &q)) return true;
        walk_done(&w);
        bad += q <= 0 || q > MUCH;
    }
    return bad < BAD_TRIALS;
}

/* The last element before a bound, and the first at or after it. False: there is none after it. */
static bool look_around(const struct part *p, const struct drawing *g, bytes bound, bytes *last, bytes *next)
{
    struct walk w;
    bool more = start(p, &w, g, bound, false);
    if (more) *next = keep(g, w.sub);
    walk_done(&w);
    if (!more) return false;
    bool before = start(p, &w, g, bound, true);
    if (before && bytes_eq(w.sub, *next)) before = walk_next(&w);
    if (before) *last = keep(g, w.sub);
    walk_done(&w);
    return before;
}

static void make_parts(struct part *p, const struct drawing *g)
{
    struct part found[PARTS];
    bytes first = p->first;
    u32 n = 0;
    for (bool more = true; more;) {
        bytes last = p->last, next = {0}, bound = numbering_beyond(p->numbering, first);
        more = bound.p && n + 1 < PARTS && look_around(p, g, bound, &last, &next);
        found[n++] = (struct part){.first = first, .last = more ? last : p->last, .depth = p->depth + 1};
        first = next;
    }
    if (n == 1) return;
    p->kind = PARTED;
    p->count = n;
    p->parts = memcpy(arena_alloc(g->arena, n * sizeof *found), found, n * sizeof *found);
}

static void learn(struct part *p, const struct drawing *g)
{
    p->count = count_few(p, g);
    if (p->count <= FEW) {
        p->count = MAX(p->count, 1);
        p->kind = COUNTED;
        return;
    }
    struct numbering *d = p->numbering = numbering_new(p->first, p->last, g->arena);
    p->kind = NUMBERED;
    learn_run(p, g, p->first, false);
    learn_run(p, g, p->last, true);
    for (u32 i = 0; i < LOOKS; i++) learn_run(p, g, numbering_any(d, g->rng), false);
    numbering_end(d, p->first, p->last);
    if (p->depth < DEPTH && !proves_good(p, g)) make_parts(p, g);
}

/* -- drawing -------------------------------------------------------------------------------------- */

static bool propose(struct part *p, struct walk *w, const struct drawing *g, double *q)
{
    double parts = 1;
    for (;; p = &p->parts[rand_below(g->rng, p->count)]) {
        if (p->kind == UNKNOWN) learn(p, g);
        if (p->kind != PARTED) break;
        parts *= p->count;
    }
    bool found = (p->kind == COUNTED ? propose_counted : propose_numbered)(p, w, g, q);
    *q /= parts;
    return found;
}

static bytes name_at_end(const struct drawing *g, bool reverse)
{
    struct walk w;
    bytes name = {0};
    if (walk_start(&w, g->rk, g->row, (bytes){0}, reverse)) name = keep(g, w.sub);
    walk_done(&w);
    return name;
}

/* What is known of the collection; NULL: it is empty. */
static struct learned *recall(struct drawing *g)
{
    struct rk *rk = g->rk;
    if (!rk->draws) rk->draws = mem_zalloc(sizeof *rk->draws);
    struct learned *l = rk->draws->slot, *end = l + SLOTS;
    while (l < end && (l->version != g->row->version || l->left == 0)) l++;
    bool known = l < end;
    if (!known) l = &rk->draws->slot[rk->draws->next++ % SLOTS];
    g->arena = &l->arena;
    if (known) return l;
    arena_clear(&l->arena);
    *l = (struct learned){.version = g->row->version, .left = DRAWS, .arena = l->arena};
    l->all.first = name_at_end(g, false);
    l->all.last = name_at_end(g, true);
    if (l->all.first.p && l->all.last.p) return l;
    l->left = 0;
    return NULL;
}

bool draw_element(struct walk *w, struct rk *rk, struct row *r, u64 *rng)
{
    struct drawing g = {.rk = rk, .row = r, .rng = rng};
    struct learned *l = recall(&g);
    *w = (struct walk){.rk = rk, .row = r};
    if (!l) return false;
    l->left--;
    for (u32 i = 0; i < TRIES; i++) {
        double q = 0, chance = (double)(rand_next(rng) >> 11) * 0x1p-53;
        bool found = propose(&l->all, w, &g, &q);
        if (found && (i == TRIES - 1 || chance * q * (double)r->size < 0.5)) return true;
        walk_done(w);
    }
    l->left = 0; /* too much has changed since it was learned */
    return false;
}

void draws_free(struct draws *d)
{
    for (u32 i = 0; d && i < SLOTS; i++) arena_release(&d->slot[i].arena);
    mem_free(d);
}
