/* Intersection, union and difference of sets, replied or stored.
 *
 * A result is collected as slices of the sets' own members and copied only when
 * the destination is also a source, whose members vanish when it is replaced. */
#include <stdlib.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "command/collection/map.h"
#include "command/collection/members.h"

#define MANY_SOURCES 8 /* that a union gathers, if the engine can */

/* -- sources ----------------------------------------------------------------------- */

struct source {
    struct key_ref ref;
    u64 size;
};

struct sources {
    struct source *v; /* the sets that exist, in the order given */
    int n;
    int missing;
    bool first_missing;
};

static void sources_release(struct sources *s) { mem_free(s->v); }

/* False: a key holds another type, and the error has been replied. */
static bool sources_find(struct ctx *c, int keys, const bytes *key, struct sources *s)
{
    *s = (struct sources){.v = mem_alloc((size_t)keys * sizeof(*s->v))};
    for (int i = 0; i < keys; i++) {
        struct source *src = &s->v[s->n];
        err e = ctx_read(c, key[i], TYPE_SET, &src->ref);
        if (e == ERR_TYPE) {
            sources_release(s);
            return false;
        }
        if (e == OK) {
            src->size = map_size(c, &src->ref);
            s->n++;
        } else {
            s->missing++;
            if (i == 0) s->first_missing = true;
        }
    }
    return true;
}

static bool same_set(const struct source *a, const struct source *b)
{
    return bytes_eq(a->ref.key, b->ref.key);
}

static int smaller_first(const void *a, const void *b)
{
    u64 x = ((const struct source *)a)->size, y = ((const struct source *)b)->size;
    return (x > y) - (x < y);
}

static int larger_first(const void *a, const void *b) { return smaller_first(b, a); }

static u64 total_size(const struct sources *s)
{
    u64 total = 0;
    for (int i = 0; i < s->n; i++) total += s->v[i].size;
    return total;
}

/* -- SINTER SINTERSTORE SINTERCARD ------------------------------------------------- */

static bool in_all_others(struct ctx *c, struct sources *s, bytes member)
{
    for (int i = 1; i < s->n; i++)
        if (!same_set(&s->v[i], &s->v[0]) && !map_has(c, &s->v[i].ref, member)) return false;
    return true;
}

/* Sorted by size, the first set holds all candidates and the next ones are the
 * likeliest to lack one. Counts up to limit (0: all); out may be NULL. */
static u64 intersect(struct ctx *c, struct sources *s, u64 limit, struct members *out)
{
    struct map_iter it;
    bytes member;
    u64 found = 0;
    if (s->missing) return 0;
    qsort(s->v, (size_t)s->n, sizeof(*s->v), smaller_first);
    if (out) members_init(out, s->v[0].size, c->seed);
    map_iter(c, &s->v[0].ref, &it);
    while (map_next(c, &it, &member, NULL)) {
        if (!in_all_others(c, s, member)) continue;
        if (out) members_push(out, member);
        if (++found == limit) break;
    }
    return found;
}

static void do_intersect(struct ctx *c, struct sources *s, struct members *out)
{
    intersect(c, s, 0, out);
}

/* -- SUNION SUNIONSTORE ------------------------------------------------------------ */

static int source_by_name(const void *a, const void *b)
{
    return bytes_cmp(((const struct source *)a)->ref.key, ((const struct source *)b)->ref.key);
}

/* A set given again adds nothing. Counted again, it would let a short request ask for any amount of
 * memory. */
static void sources_drop_repeats(struct sources *s)
{
    int kept = 0;
    qsort(s->v, (size_t)s->n, sizeof(*s->v), source_by_name);
    for (int i = 0; i < s->n; i++)
        if (kept == 0 || !same_set(&s->v[i], &s->v[kept - 1])) s->v[kept++] = s->v[i];
    s->n = kept;
}

static void union_add(void *out, u32 i UNUSED, bytes member, double score UNUSED)
{
    members_add(out, member);
}

static void gather_union(struct ctx *c, struct sources *s, struct members *out)
{
    struct key_ref **refs = mem_alloc((size_t)s->n * sizeof(*refs));
    for (int i = 0; i < s->n; i++) refs[i] = &s->v[i].ref;
    c->eng->ops->gather(c->eng, refs, (u32)s->n, union_add, out);
    mem_free(refs);
}

static void do_union(struct ctx *c, struct sources *s, struct members *out)
{
    struct map_iter it;
    bytes member;
    sources_drop_repeats(s);
    members_init(out, total_size(s), rand_next(&c->rng));
    if (s->n >= MANY_SOURCES && c->eng->ops->gather) {
        gather_union(c, s, out);
        return;
    }
    for (int i = 0; i < s->n; i++) {
        map_iter(c, &s->v[i].ref, &it);
        while (map_next(c, &it, &member, NULL)) members_add(out, member);
    }
}

/* -- SDIFF SDIFFSTORE -------------------------------------------------------------- */

static bool in_any_other(struct ctx *c, struct sources *s, bytes member)
{
    for (int i = 1; i < s->n; i++)
        if (map_has(c, &s->v[i].ref, member)) return true;
    return false;
}

/* Looks every member of the first set up in the others, the largest first: it is the likeliest to have it. */
static void subtract_by_lookup(struct ctx *c, struct sources *s, struct members *out)
{
    struct map_iter it;
    bytes member;
    qsort(s->v + 1, (size_t)s->n - 1, sizeof(*s->v), larger_first);
    map_iter(c, &s->v[0].ref, &it);
    while (map_next(c, &it, &member, NULL))
        if (!in_any_other(c, s, member)) members_push(out, member);
}

/* Collects the first set and removes the members of all the others. */
static void subtract_by_removal(struct ctx *c, struct sources *s, struct members *out)
{
    struct map_iter it;
    bytes member;
    map_iter(c, &s->v[0].ref, &it);
    while (map_next(c, &it, &member, NULL)) members_add(out, member);
    for (int i = 1; i < s->n && out->live > 0; i++) {
        map_iter(c, &s->v[i].ref, &it);
        while (map_next(c, &it, &member, NULL)) members_take(out, member);
    }
}

/* The lookups cost first × sets in the worst case but usually end early, which
 * halves their price; the removal costs the sum of all sizes. */
static void do_subtract(struct ctx *c, struct sources *s, struct members *out)
{
    if (s->first_missing) return;
    for (int i = 1; i < s->n; i++)
        if (same_set(&s->v[i], &s->v[0])) return;
    u64 first = s->v[0].size;
    members_init(out, first, rand_next(&c->rng));
    if (first * (u64)s->n / 2 <= total_size(s)) subtract_by_lookup(c, s, out);
    else subtract_by_removal(c, s, out);
}

/* -- replying, storing ------------------------------------------------------------- */

typedef void (*algebra_fn)(struct ctx *c, struct sources *s, struct members *out);

static void reply_result(struct ctx *c, algebra_fn compute)
{
    struct sources s;
    struct members m = {0};
    if (!sources_find(c, c->argc - 1, c->argv + 1, &s)) return;
    compute(c, &s, &m);
    reply_set(c->out, m.live);
    for (u64 i = 0; i < m.n; i++)
        if (!m.v[i].gone) reply_bulk(c->out, m.v[i].name);
    members_release(&m);
    sources_release(&s);
}

static bool is_source(struct ctx *c, bytes key)
{
    for (int i = 2; i < c->argc; i++)
        if (bytes_eq(c->argv[i], key)) return true;
    return false;
}

/* Members that SDIFF removed again are added and deleted: Redis builds its result that way, and OBJECT
 * ENCODING depends on what a set once had. */
static void put_members(struct ctx *c, bytes key, const struct members *m)
{
    struct key_ref ref;
    ctx_replace(c, key, TYPE_SET, &ref);
    for (u64 i = 0; i < m->n; i++) map_put(c, &ref, m->v[i].name, bytes_of("", 0));
    for (u64 i = 0; m->live < m->n && i < m->n; i++)
        if (m->v[i].gone) map_del(c, &ref, m->v[i].name);
}

static void replace_set(struct ctx *c, bytes key, struct members *m, const char *event)
{
    struct key_ref old;
    if (is_source(c, key)) members_own(m);
    if (m->live > 0) {
        put_members(c, key, m);
        ctx_changed(c, key, NOTIFY_SET, event);
    } else if (ctx_write(c, key, TYPE_NONE, &old) == OK) {
        ctx_drop(c, &old);
        ctx_changed(c, key, NOTIFY_GENERIC, "del");
    }
}

static void store_result(struct ctx *c, algebra_fn compute, const char *event)
{
    struct sources s;
    struct members m = {0};
    if (!sources_find(c, c->argc - 2, c->argv + 2, &s)) return;
    compute(c, &s, &m);
    replace_set(c, c->argv[1], &m, event);
    reply_int(c->out, (i64)m.live);
    members_release(&m);
    sources_release(&s);
}

void cmd_sinter(struct ctx *c) { reply_result(c, do_intersect); }
void cmd_sunion(struct ctx *c) { reply_result(c, do_union); }
void cmd_sdiff(struct ctx *c) { reply_result(c, do_subtract); }
void cmd_sinterstore(struct ctx *c) { store_result(c, do_intersect, "sinterstore"); }
void cmd_sunionstore(struct ctx *c) { store_result(c, do_union, "sunionstore"); }
void cmd_sdiffstore(struct ctx *c) { store_result(c, do_subtract, "sdiffstore"); }

/* -- SINTERCARD -------------------------------------------------------------------- */

static bool sintercard_parse_limit(struct ctx *c, int from, i64 *limit)
{
    *limit = 0;
    for (int i = from; i < c->argc; i += 2) {
        if (!bytes_is(c->argv[i], "limit") || i + 1 == c->argc) {
            ctx_syntax_error(c);
            return false;
        }
        if (!ctx_int_min(c, c->argv[i + 1], 0, "ERR LIMIT can't be negative", limit)) return false;
    }
    return true;
}

void cmd_sintercard(struct ctx *c)
{
    struct sources s;
    i64 keys, limit;
    if (!ctx_int_min(c, c->argv[1], 1, "ERR numkeys should be greater than 0", &keys)) return;
    if (keys > c->argc - 2) {
        reply_error(c->out, "ERR Number of keys can't be greater than number of args");
        return;
    }
    if (!sintercard_parse_limit(c, 2 + (int)keys, &limit)) return;
    if (!sources_find(c, (int)keys, c->argv + 2, &s)) return;
    reply_int(c->out, (i64)intersect(c, &s, (u64)limit, NULL));
    sources_release(&s);
}
