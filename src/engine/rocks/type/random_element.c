/* A random element, without knowing how many elements lie before it.
 *
 * Names become numbers. A sample of the names shows which symbols occur at which place after the prefix
 * that all names share. That numbers the possible names in the names' order, with as few unused numbers as
 * possible: "member:0" … "member:999999" fill more than half of theirs.
 *
 * A draw takes a random number, moves to the first element at or after it, and from there 0 to RUN - 1
 * elements further. The probability q of meeting an element this way is known: it is the distance to the
 * element RUN places before it. An element after a wide gap would come too often, so it is only accepted
 * with probability (about 1 / n) / q; otherwise there is another draw. Beginning and end are joined, as on
 * a ring.
 *
 * Names of different patterns in one collection share no places. Where trials show that a few elements
 * would come all the time, or most never, the names are partitioned by the symbol after their prefix, and
 * each part is sampled by itself; a part of few elements is counted through. Which part is taken is random,
 * and goes into q. */
#include "engine/rocks/type/random_element.h"

#include "base/alloc.h"
#include "base/rand.h"

#define LOOKS 32     /* places where names are sampled, to learn the symbols */
#define LOOK_RUN 3   /* names sampled at each: neighbours show the symbols of the last places */
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
#define PLACES 24    /* places after the prefix that are sampled */
#define ANY_PLACES 8 /* places that numbering_any makes up */
#define NUMBERS_MAX ((u64)1 << 60)

/* The symbols of a place. */
struct symbols {
    u64 seen[4];   /* a bit for each byte */
    u32 low, high; /* the least and the greatest of them; low > high: none */
    bool ends;     /* some name ends before this place: that is the symbol before all others */
};

/* How names that begin with a prefix become numbers. */
struct numbering {
    bytes prefix;
    u32 places;            /* in use */
    struct symbols place[PLACES];
    u64 width[PLACES + 1]; /* how many numbers the symbols from a place on make */
    u64 low, high;         /* the numbers of the first and the last name */
    char *name;            /* the prefix again, and space for the rest of a name */
};

/* A part of the collection, or all of it. */
struct part {
    bytes first, last; /* names, inclusive */
    enum { UNKNOWN, COUNTED, PARTED, NUMBERED } kind;
    u32 depth;
    u32 count; /* COUNTED: elements; PARTED: parts */
    struct part *parts;
    struct numbering *numbering;
};

/* What was learned is kept for the next draws. It may be out of date: then some elements are a little
 * likelier than others for a while, and new ones at the ends are not drawn yet. */
struct draws {
    struct learned {
        u64 version; /* of the collection; 0: free */
        u32 left;    /* draws until it is learned again */
        struct part all;
        struct arena arena;
    } slot[SLOTS];
    u32 next;
};

/* A draw in progress. */
struct drawing {
    struct rk *rk;
    struct row *row;
    u64 *rng;
    struct arena *arena;
};

/* -- symbols ------------------------------------------------------------------------------ */

static bool symbols_has(const struct symbols *p, u32 b) { return p->seen[b >> 6] >> (b & 63) & 1; }

static void symbols_add(struct symbols *p, u32 b)
{
    p->seen[b >> 6] |= (u64)1 << (b & 63);
    p->low = MIN(p->low, b);
    p->high = MAX(p->high, b);
}

/* How many symbols are less than `b`; 256: all. */
static u32 symbols_rank(const struct symbols *p, u32 b)
{
    u32 n = p->ends, word = b >> 6;
    for (u32 i = 0; i < word; i++) n += (u32)__builtin_popcountll(p->seen[i]);
    if (b & 63) n += (u32)__builtin_popcountll(p->seen[word] << (64 - (b & 63)));
    return n;
}

/* The seen byte that has `rank` seen bytes before it. */
static u32 symbols_byte_at(const struct symbols *p, u64 rank)
{
    u32 b = 0;
    for (u32 n; rank >= (n = (u32)__builtin_popcountll(p->seen[b >> 6])); b += 64) rank -= n;
    for (;; b++)
        if (symbols_has(p, b) && rank-- == 0) return b;
}

/* If symbols of a class were seen, adds those between them; if these are many, the whole class, because the
 * others are hardly missing on purpose. */
static void symbols_fill(struct symbols *p, u32 from, u32 to, u32 many)
{
    u32 low = from, high = to;
    while (low <= high && !symbols_has(p, low)) low++;
    while (high > low && !symbols_has(p, high)) high--;
    if (low > high) return;
    if (high - low + 1 >= many) {
        low = from;
        high = to;
    }
    for (; low <= high; low++) symbols_add(p, low);
}

/* Adds symbols that a small sample may have missed: digits between digits, letters between letters, and in
 * binary names any byte between others. */
static void symbols_fill_gaps(struct symbols *p)
{
    if (p->low < ' ' || p->high >= 127) {
        symbols_fill(p, 0, 255, 64);
        return;
    }
    symbols_fill(p, '0', '9', 4);
    for (u32 shift = 0; shift <= 'a' - 'A'; shift += 'a' - 'A') {
        symbols_fill(p, 'A' + shift, 'F' + shift, 3);
        symbols_fill(p, 'A' + shift, 'Z' + shift, 10);
    }
}

/* -- names and numbers ----------------------------------------------------------------------- */

static size_t common_prefix(bytes a, bytes b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n]) n++;
    return n;
}

/* A name's number, from low to high. A name with an unknown byte at some place lies right before the next
 * known one. */
static u64 numbering_number(const struct numbering *d, bytes name)
{
    size_t n = common_prefix(name, d->prefix);
    u64 number = 0;
    if (n < d->prefix.n) return bytes_cmp(name, d->prefix) < 0 ? d->low : d->high;
    for (u32 i = 0; i < d->places && n + i < name.n; i++) {
        u32 b = (u8)name.p[n + i];
        number += symbols_rank(&d->place[i], b) * d->width[i + 1];
        if (!symbols_has(&d->place[i], b)) break;
    }
    return MAX(d->low, MIN(number, d->high));
}

/* The prefix and the n bytes written after it. */
static bytes numbering_name_with(const struct numbering *d, size_t n)
{
    return bytes_of(d->name, d->prefix.n + n);
}

/* The least name with this number. Names returned here are valid until the next such call. */
static bytes numbering_name(const struct numbering *d, u64 number)
{
    char *out = d->name + d->prefix.n;
    for (u32 i = 0; i < d->places; i++) {
        u64 rank = number / d->width[i + 1];
        number %= d->width[i + 1];
        if (d->place[i].ends && rank-- == 0) return numbering_name_with(d, i);
        out[i] = (char)symbols_byte_at(&d->place[i], rank);
    }
    return numbering_name_with(d, d->places);
}

/* Numbers names from `first` to `last`; nothing is learned yet. It lives in the arena; the prefix is a part
 * of `first`. */
static struct numbering *numbering_new(bytes first, bytes last, struct arena *arena)
{
    struct numbering *d = arena_alloc(arena, sizeof *d);
    bytes prefix = bytes_of(first.p, common_prefix(first, last));
    *d = (struct numbering){.prefix = prefix, .name = arena_alloc(arena, prefix.n + PLACES)};
    memcpy(d->name, prefix.p, prefix.n);
    for (u32 i = 0; i < PLACES; i++) d->place[i].low = 256;
    return d;
}

/* Learns from a name that has the prefix. numbering_end follows; before it there are no numbers. */
static void numbering_learn(struct numbering *d, bytes name)
{
    size_t n = d->prefix.n;
    for (u32 i = 0; i < PLACES; i++) {
        if (n + i >= name.n) {
            d->place[i].ends = true;
            break;
        }
        symbols_add(&d->place[i], (u8)name.p[n + i]);
    }
}

/* A name that may lie anywhere, to look for more to learn: at each place any byte between the least and the
 * greatest seen there, or any byte seen at some place, so that new names are met. */
static bytes numbering_any(const struct numbering *d, u64 *rng)
{
    char *out = d->name + d->prefix.n;
    struct symbols all = {.low = 0};
    u32 n = 0;
    for (u32 i = 0; i < PLACES; i++)
        for (u32 word = 0; word < 4; word++) all.seen[word] |= d->place[i].seen[word];
    for (const struct symbols *p = d->place; n < ANY_PLACES && p->low <= p->high; p++) {
        u64 u = rand_next(rng);
        out[n++] = (char)(u & 1 ? p->low + rand_below(&u, p->high - p->low + 1)
                                : symbols_byte_at(&all, rand_below(&u, symbols_rank(&all, 256))));
    }
    return numbering_name_with(d, n);
}

/* Uses as many places as make numbers that fit. */
static void numbering_end(struct numbering *d, bytes first, bytes last)
{
    u64 counts[PLACES], total = 1;
    for (d->places = 0; d->places < PLACES; d->places++) {
        struct symbols *p = &d->place[d->places];
        symbols_fill_gaps(p);
        u64 n = symbols_rank(p, 256);
        if (n == p->ends || total > NUMBERS_MAX / n) break;
        counts[d->places] = n;
        total *= n;
    }
    d->width[d->places] = 1;
    for (u32 i = d->places; i > 0; i--) d->width[i - 1] = counts[i - 1] * d->width[i];
    d->high = UINT64_MAX;
    u64 low = numbering_number(d, first), high = numbering_number(d, last);
    d->low = low;
    d->high = high;
}

/* The least name with a greater symbol after the prefix than this one; p NULL: none. */
static bytes numbering_beyond(const struct numbering *d, bytes name)
{
    size_t n = d->prefix.n;
    if (name.n > n && (u8)name.p[n] == 255) return (bytes){0};
    d->name[n] = (char)(name.n > n ? name.p[n] + 1 : 0); /* a name may be just the prefix */
    return numbering_name_with(d, 1);
}

/* -- walks within a part ------------------------------------------------------------------------ */

static bool part_contains(const struct part *p, const struct walk *w)
{
    return w->reverse ? bytes_cmp(w->sub, p->first) >= 0 : bytes_cmp(w->sub, p->last) <= 0;
}

static bool part_start(const struct part *p, struct walk *w, const struct drawing *g, bytes from,
                       bool reverse)
{
    return walk_start(w, g->rk, g->row, from, reverse) && part_contains(p, w);
}

/* Takes `steps` steps on the ring. Returns how often it went round; -1: the part is empty. */
static int part_step(const struct part *p, struct walk *w, const struct drawing *g, bool more, u32 steps)
{
    bool reverse = w->reverse;
    for (int rounds = 0;; more = walk_next(w) && part_contains(p, w)) {
        if (!more) {
            walk_done(w);
            if (!part_start(p, w, g, reverse ? p->last : p->first, reverse)) return -1;
            rounds++;
        }
        if (steps-- == 0) return rounds;
    }
}

/* -- proposals -------------------------------------------------------------------------------------- */

/* Moves to a random element of the ring; *q is its probability. */
static bool part_propose_numbered(const struct part *p, struct walk *w, const struct drawing *g, double *q)
{
    const struct numbering *d = p->numbering;
    u64 ring = d->high - d->low + 1;
    u32 on = (u32)rand_below(g->rng, RUN);
    bytes from = numbering_name(d, d->low + rand_below(g->rng, ring));
    struct walk back;
    bool more = part_start(p, &back, g, from, true);
    bool same = more && bytes_eq(back.sub, from); /* it is the first at or after the target, too */
    int rounds_back = part_step(p, &back, g, more, RUN - on - !same);
    if (rounds_back < 0) return false;
    double before = (double)numbering_number(d, back.sub) - (double)rounds_back * (double)ring;
    walk_done(&back);
    more = part_start(p, w, g, from, false);
    int rounds = part_step(p, w, g, more, on);
    if (rounds < 0) return false;
    *q = ((double)numbering_number(d, w->sub) + (double)rounds * (double)ring - before) / (double)ring / RUN;
    return true;
}

static bool part_propose_counted(const struct part *p, struct walk *w, const struct drawing *g, double *q)
{
    *q = 1.0 / p->count;
    bool more = part_start(p, w, g, p->first, false);
    return part_step(p, w, g, more, (u32)rand_below(g->rng, p->count)) >= 0;
}

/* -- learning ------------------------------------------------------------------------------------ */

static bytes draw_keep(const struct drawing *g, bytes b)
{
    return bytes_of(memcpy(arena_alloc(g->arena, MAX(b.n, 1)), b.p, b.n), b.n);
}

static void part_learn_run(struct part *p, const struct drawing *g, bytes from, bool reverse)
{
    struct walk w;
    bool more = part_start(p, &w, g, from, reverse);
    for (u32 i = 0; more && i < LOOK_RUN; i++, more = walk_next(&w) && part_contains(p, &w))
        numbering_learn(p->numbering, w.sub);
    walk_done(&w);
}

/* The number of elements, counted up to FEW + 1. */
static u32 part_count_few(const struct part *p, const struct drawing *g)
{
    struct walk w;
    u32 n = 0;
    bool more = part_start(p, &w, g, p->first, false);
    for (; more && n <= FEW; more = walk_next(&w) && part_contains(p, &w)) n++;
    walk_done(&w);
    return n;
}

/* Whether proposals are spread over the part: no element comes much too often. */
static bool part_is_even(const struct part *p, const struct drawing *g)
{
    u32 bad = 0;
    for (u32 i = 0; i < TRIALS; i++) {
        struct walk w = {0};
        double q;
        if (!part_propose_numbered(p, &w, g, &q)) return true;
        walk_done(&w);
        bad += q <= 0 || q > MUCH;
    }
    return bad < BAD_TRIALS;
}

/* The last element before a bound, and the first at or after it. False: there is none after it. */
static bool part_look_around(const struct part *p, const struct drawing *g, bytes bound, bytes *last,
                             bytes *next)
{
    struct walk w;
    bool more = part_start(p, &w, g, bound, false);
    if (more) *next = draw_keep(g, w.sub);
    walk_done(&w);
    if (!more) return false;
    bool before = part_start(p, &w, g, bound, true);
    if (before && bytes_eq(w.sub, *next)) before = walk_next(&w);
    if (before) *last = draw_keep(g, w.sub);
    walk_done(&w);
    return before;
}

static void part_split(struct part *p, const struct drawing *g)
{
    struct part found[PARTS];
    bytes first = p->first;
    u32 n = 0;
    for (bool more = true; more;) {
        bytes last = p->last, next = {0}, bound = numbering_beyond(p->numbering, first);
        more = bound.p && n + 1 < PARTS && part_look_around(p, g, bound, &last, &next);
        found[n++] = (struct part){.first = first, .last = more ? last : p->last, .depth = p->depth + 1};
        first = next;
    }
    if (n == 1) return;
    p->kind = PARTED;
    p->count = n;
    p->parts = memcpy(arena_alloc(g->arena, n * sizeof *found), found, n * sizeof *found);
}

static void part_learn(struct part *p, const struct drawing *g)
{
    p->count = part_count_few(p, g);
    if (p->count <= FEW) {
        p->count = MAX(p->count, 1);
        p->kind = COUNTED;
        return;
    }
    struct numbering *d = p->numbering = numbering_new(p->first, p->last, g->arena);
    p->kind = NUMBERED;
    part_learn_run(p, g, p->first, false);
    part_learn_run(p, g, p->last, true);
    for (u32 i = 0; i < LOOKS; i++) part_learn_run(p, g, numbering_any(d, g->rng), false);
    numbering_end(d, p->first, p->last);
    if (p->depth < DEPTH && !part_is_even(p, g)) part_split(p, g);
}

/* -- drawing -------------------------------------------------------------------------------------- */

static bool part_propose(struct part *p, struct walk *w, const struct drawing *g, double *q)
{
    double parts = 1;
    for (;; p = &p->parts[rand_below(g->rng, p->count)]) {
        if (p->kind == UNKNOWN) part_learn(p, g);
        if (p->kind != PARTED) break;
        parts *= p->count;
    }
    bool found = (p->kind == COUNTED ? part_propose_counted : part_propose_numbered)(p, w, g, q);
    *q /= parts;
    return found;
}

static bytes draw_end_name(const struct drawing *g, bool reverse)
{
    struct walk w;
    bytes name = {0};
    if (walk_start(&w, g->rk, g->row, (bytes){0}, reverse)) name = draw_keep(g, w.sub);
    walk_done(&w);
    return name;
}

/* What was learned about the collection, or a slot to learn it; NULL: it is empty. */
static struct learned *draw_recall(struct drawing *g)
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
    l->all.first = draw_end_name(g, false);
    l->all.last = draw_end_name(g, true);
    if (l->all.first.p && l->all.last.p) return l;
    l->left = 0;
    return NULL;
}

bool draw_element(struct walk *w, struct rk *rk, struct row *r, u64 *rng)
{
    struct drawing g = {.rk = rk, .row = r, .rng = rng};
    struct learned *l = draw_recall(&g);
    *w = (struct walk){.rk = rk, .row = r};
    if (!l) return false;
    l->left--;
    for (u32 i = 0; i < TRIES; i++) {
        double q = 0, chance = (double)(rand_next(rng) >> 11) * 0x1p-53;
        bool found = part_propose(&l->all, w, &g, &q);
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
