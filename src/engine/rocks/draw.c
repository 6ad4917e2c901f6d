/* An element at random, without knowing how many lie before it.
 *
 * Some names are looked at to learn which symbols stand at which place behind the prefix all names
 * share. That makes names into numbers, whose order is the names' order, with as few numbers that
 * are no name as possible: "member:0" … "member:999999" fill more than half of theirs.
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
#include "engine/rocks/draw.h"

#include "base/rand.h"

#define PLACES 24    /* behind the prefix that are looked at */
#define LOOKS 32     /* where names are looked at, to learn the symbols */
#define LOOK_RUN 3   /* and how many at each: neighbours show the symbols of the last places */
#define LOOK_PLACES 8
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
#define MOST ((u64)1 << 60) /* numbers */

/* The symbols of a place. */
struct symbols {
    u64 seen[4];   /* a bit for each byte */
    u32 low, high; /* the least and the greatest of them; low > high: none */
    bool ends;     /* some name ends before this place: that is the symbol before all others */
};

/* How names that begin with a prefix are made into numbers. */
struct numbering {
    bytes prefix;
    u32 places;            /* in use */
    struct symbols place[PLACES];
    u64 width[PLACES + 1]; /* how many numbers the symbols from a place on make */
    u64 low, high;         /* the numbers of the first and the last name */
    char *name;            /* the prefix again, and room to write the rest of a name */
};

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

/* -- symbols ------------------------------------------------------------------------------ */

static bool has(const struct symbols *p, u32 b) { return p->seen[b >> 6] >> (b & 63) & 1; }

static void include(struct symbols *p, u32 b)
{
    p->seen[b >> 6] |= (u64)1 << (b & 63);
    p->low = MIN(p->low, b);
    p->high = MAX(p->high, b);
}

/* How many symbols are less than a byte; with 256: all. */
static u32 rank_of(const struct symbols *p, u32 b)
{
    u32 n = p->ends, word = b >> 6;
    for (u32 i = 0; i < word; i++) n += (u32)__builtin_popcountll(p->seen[i]);
    if (b & 63) n += (u32)__builtin_popcountll(p->seen[word] << (64 - (b & 63)));
    return n;
}

/* The byte that so many bytes seen here are less than. */
static u32 byte_at(const struct symbols *p, u64 rank)
{
    u32 b = 0;
    for (u32 n; rank >= (n = (u32)__builtin_popcountll(p->seen[b >> 6])); b += 64) rank -= n;
    for (;; b++)
        if (has(p, b) && rank-- == 0) return b;
}

/* If symbols of a class were seen: includes what lies between them; and where these are many, the
 * whole class, of which the last ones were hardly left out on purpose. */
static void fill(struct symbols *p, u32 from, u32 to, u32 many)
{
    u32 low = from, high = to;
    while (low <= high && !has(p, low)) low++;
    while (high > low && !has(p, high)) high--;
    if (low > high) return;
    if (high - low + 1 >= many) {
        low = from;
        high = to;
    }
    for (; low <= high; low++) include(p, low);
}

/* What was not seen among a few names may well be there: digits between digits, letters between
 * letters, and where bytes are no text any between others. */
static void fill_gaps(struct symbols *p)
{
    if (p->low < ' ' || p->high >= 127) {
        fill(p, 0, 255, 64);
        return;
    }
    fill(p, '0', '9', 4);
    for (u32 shift = 0; shift <= 'a' - 'A'; shift += 'a' - 'A') {
        fill(p, 'A' + shift, 'F' + shift, 3);
        fill(p, 'A' + shift, 'Z' + shift, 10);
    }
}

/* -- names and numbers ----------------------------------------------------------------------- */

static size_t common(bytes a, bytes b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n]) n++;
    return n;
}

/* A name with a byte not known at its place lies right before the next known one. */
static u64 number_of(const struct numbering *d, bytes name)
{
    size_t n = common(name, d->prefix);
    u64 number = 0;
    if (n < d->prefix.n) return bytes_cmp(name, d->prefix) < 0 ? d->low : d->high;
    for (u32 i = 0; i < d->places && n + i < name.n; i++) {
        u32 b = (u8)name.p[n + i];
        number += rank_of(&d->place[i], b) * d->width[i + 1];
        if (!has(&d->place[i], b)) break;
    }
    return MAX(d->low, MIN(number, d->high));
}

/* The name that is made of the prefix and n bytes that were written behind it. */
static bytes name_with(const struct numbering *d, size_t n) { return bytes_of(d->name, d->prefix.n + n); }

/* The least name with this number; until the next call. */
static bytes name_of(const struct numbering *d, u64 number)
{
    char *out = d->name + d->prefix.n;
    for (u32 i = 0; i < d->places; i++) {
        u64 rank = number / d->width[i + 1];
        number %= d->width[i + 1];
        if (d->place[i].ends && rank-- == 0) return name_with(d, i);
        out[i] = (char)byte_at(&d->place[i], rank);
    }
    return name_with(d, d->places);
}

static struct numbering *numbering_new(bytes prefix, struct arena *arena)
{
    struct numbering *d = arena_alloc(arena, sizeof *d);
    *d = (struct numbering){.prefix = prefix, .name = arena_alloc(arena, prefix.n + PLACES)};
    memcpy(d->name, prefix.p, prefix.n);
    for (u32 i = 0; i < PLACES; i++) d->place[i].low = 256;
    return d;
}

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
    bytes from = name_of(d, d->low + rand_below(g->rng, ring));
    struct walk back;
    bool more = start(p, &back, g, from, true);
    bool same = more && bytes_eq(back.sub, from); /* it is the first at or after the target, too */
    int rounds_back = step_on(p, &back, g, more, RUN - on - !same);
    if (rounds_back < 0) return false;
    double before = (double)number_of(d, back.sub) - (double)rounds_back * (double)ring;
    walk_done(&back);
    more = start(p, w, g, from, false);
    int rounds = step_on(p, w, g, more, on);
    if (rounds < 0) return false;
    *q = ((double)number_of(d, w->sub) + (double)rounds * (double)ring - before) / (double)ring / RUN;
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

static void learn_name(struct numbering *d, bytes name)
{
    size_t n = d->prefix.n;
    for (u32 i = 0; i < PLACES; i++) {
        if (n + i >= name.n) {
            d->place[i].ends = true;
            break;
        }
        include(&d->place[i], (u8)name.p[n + i]);
    }
}

static void learn_run(struct part *p, const struct drawing *g, bytes from, bool reverse)
{
    struct walk w;
    bool more = start(p, &w, g, from, reverse);
    for (u32 i = 0; more && i < LOOK_RUN; i++, more = walk_next(&w) && inside(p, &w))
        learn_name(p->numbering, w.sub);
    walk_done(&w);
}

/* At each place any byte between the least and the greatest seen there, or any one seen somewhere,
 * so that new ones are met. */
static bytes any_name(const struct numbering *d, u64 *rng)
{
    char *out = d->name + d->prefix.n;
    struct symbols all = {.low = 0};
    u32 n = 0;
    for (u32 i = 0; i < PLACES; i++)
        for (u32 word = 0; word < 4; word++) all.seen[word] |= d->place[i].seen[word];
    for (const struct symbols *p = d->place; n < LOOK_PLACES && p->low <= p->high; p++) {
        u64 u = rand_next(rng);
        out[n++] = (char)(u & 1 ? p->low + rand_below(&u, p->high - p->low + 1)
                                : byte_at(&all, rand_below(&u, rank_of(&all, 256))));
    }
    return name_with(d, n);
}

/* As many places as make numbers that fit. */
static void number_places(struct numbering *d, bytes first, bytes last)
{
    u64 counts[PLACES], total = 1;
    for (d->places = 0; d->places < PLACES; d->places++) {
        struct symbols *p = &d->place[d->places];
        fill_gaps(p);
        u64 n = rank_of(p, 256);
        if (n == p->ends || total > MOST / n) break;
        counts[d->places] = n;
        total *= n;
    }
    d->width[d->places] = 1;
    for (u32 i = d->places; i > 0; i--) d->width[i - 1] = counts[i - 1] * d->width[i];
    d->high = UINT64_MAX;
    u64 low = number_of(d, first), high = number_of(d, last);
    d->low = low;
    d->high = high;
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

/* Where the part after the one a name is in would begin; p NULL: nowhere. */
static bytes beyond(const struct numbering *d, bytes name)
{
    size_t n = d->prefix.n;
    if (name.n > n && (u8)name.p[n] == 255) return (bytes){0};
    d->name[n] = (char)(name.n > n ? name.p[n] + 1 : 0); /* a name may be just the prefix */
    return name_with(d, 1);
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
        bytes last = p->last, next = {0}, bound = beyond(p->numbering, first);
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
    bytes prefix = bytes_of(p->first.p, common(p->first, p->last));
    struct numbering *d = p->numbering = numbering_new(prefix, g->arena);
    p->kind = NUMBERED;
    learn_run(p, g, p->first, false);
    learn_run(p, g, p->last, true);
    for (u32 i = 0; i < LOOKS; i++) learn_run(p, g, any_name(d, g->rng), false);
    number_places(d, p->first, p->last);
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
