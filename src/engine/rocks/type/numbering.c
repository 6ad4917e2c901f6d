#include "engine/rocks/type/numbering.h"

#include "base/rand.h"

#define PLACES NUMBERING_PLACES
#define ANY_PLACES 8 /* are made up by numbering_any */
#define MOST ((u64)1 << 60) /* numbers */

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

u64 numbering_number(const struct numbering *d, bytes name)
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

bytes numbering_name(const struct numbering *d, u64 number)
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

struct numbering *numbering_new(bytes first, bytes last, struct arena *arena)
{
    struct numbering *d = arena_alloc(arena, sizeof *d);
    bytes prefix = bytes_of(first.p, common(first, last));
    *d = (struct numbering){.prefix = prefix, .name = arena_alloc(arena, prefix.n + PLACES)};
    memcpy(d->name, prefix.p, prefix.n);
    for (u32 i = 0; i < PLACES; i++) d->place[i].low = 256;
    return d;
}

void numbering_learn(struct numbering *d, bytes name)
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

bytes numbering_any(const struct numbering *d, u64 *rng)
{
    char *out = d->name + d->prefix.n;
    struct symbols all = {.low = 0};
    u32 n = 0;
    for (u32 i = 0; i < PLACES; i++)
        for (u32 word = 0; word < 4; word++) all.seen[word] |= d->place[i].seen[word];
    for (const struct symbols *p = d->place; n < ANY_PLACES && p->low <= p->high; p++) {
        u64 u = rand_next(rng);
        out[n++] = (char)(u & 1 ? p->low + rand_below(&u, p->high - p->low + 1)
                                : byte_at(&all, rand_below(&u, rank_of(&all, 256))));
    }
    return name_with(d, n);
}

/* As many places as make numbers that fit. */
void numbering_end(struct numbering *d, bytes first, bytes last)
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
    u64 low = numbering_number(d, first), high = numbering_number(d, last);
    d->low = low;
    d->high = high;
}

bytes numbering_beyond(const struct numbering *d, bytes name)
{
    size_t n = d->prefix.n;
    if (name.n > n && (u8)name.p[n] == 255) return (bytes){0};
    d->name[n] = (char)(name.n > n ? name.p[n] + 1 : 0); /* a name may be just the prefix */
    return name_with(d, 1);
}
