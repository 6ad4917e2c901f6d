/* ZUNION ZINTER ZDIFF, their STORE forms and ZINTERCARD. Inputs may be sets, too:
 * their members weigh 1.
 *
 * Floating-point sums depend on their order, so scores are combined in Redis's:
 * inputs from the smallest to the largest, equally large ones as they were given. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "command/commands.h"
#include "command/collection/zset_list.h"
#include "ds/table.h"

#define MANY_SOURCES 8                  /* from which small ones are gathered, if the engine can */
#define SMALL_SOURCE 128                /* elements of one that is gathered, at the most … */
#define GATHERED_MAX ((size_t)1 << 22)  /* … and of all of them */
#define PREFETCH_AHEAD 4
#define FEW_EACH 8                      /* elements per source, on average, that a union has room for */

enum algebra_op { OP_UNION, OP_INTER, OP_DIFF };
enum aggregate { AGGREGATE_SUM, AGGREGATE_MIN, AGGREGATE_MAX };

struct source {
    struct key_ref ref;
    u64 size; /* 0: absent */
    double weight;
    int at; /* position in the arguments */
    size_t read_at, read_n; /* its elements in algebra.read; none: it is walked over */
};

struct algebra {
    struct ctx *c;
    enum algebra_op op;
    enum aggregate aggregate;
    bool store, count_only, with_scores;
    i64 limit; /* of count_only; 0: none */
    struct source *sources;
    int n;
    struct zlist read; /* elements of small sources, gathered before they are combined */
};

/* -- arguments ------------------------------------------------------------------------ */

static bool open_sources(struct algebra *a, int first)
{
    struct ctx *c = a->c;
    for (int i = 0; i < a->n; i++) {
        struct source *s = &a->sources[i];
        *s = (struct source){.weight = 1, .at = i};
        if (ctx_read(c, c->argv[first + i], TYPE_NONE, &s->ref) != OK) continue;
        if (s->ref.type != TYPE_ZSET && s->ref.type != TYPE_SET) {
            ctx_wrong_type(c);
            return false;
        }
        s->size = c->eng->ops->size(c->eng, &s->ref);
    }
    return true;
}

static bool parse_weights(struct algebra *a, int at)
{
    for (int i = 0; i < a->n; i++) {
        if (num_parse_double(a->c->argv[at + i], &a->sources[i].weight)) continue;
        reply_error(a->c->out, "ERR weight value is not a float");
        return false;
    }
    return true;
}

static bool parse_aggregate(struct algebra *a, bytes name)
{
    if (bytes_is(name, "sum")) a->aggregate = AGGREGATE_SUM;
    else if (bytes_is(name, "min")) a->aggregate = AGGREGATE_MIN;
    else if (bytes_is(name, "max")) a->aggregate = AGGREGATE_MAX;
    else {
        ctx_syntax_error(a->c);
        return false;
    }
    return true;
}

static bool zalgebra_parse_options(struct algebra *a, int at)
{
    struct ctx *c = a->c;
    bool weighs = a->op != OP_DIFF && !a->count_only;
    while (at < c->argc) {
        bytes arg = c->argv[at];
        int behind = c->argc - at - 1;
        if (weighs && behind >= a->n && bytes_is(arg, "weights")) {
            if (!parse_weights(a, at + 1)) return false;
            at += 1 + a->n;
        } else if (weighs && behind >= 1 && bytes_is(arg, "aggregate")) {
            if (!parse_aggregate(a, c->argv[at + 1])) return false;
            at += 2;
        } else if (!a->store && !a->count_only && bytes_is(arg, "withscores")) {
            a->with_scores = true;
            at++;
        } else if (a->count_only && behind >= 1 && bytes_is(arg, "limit")) {
            if (!ctx_int_min(c, c->argv[at + 1], 0, "ERR LIMIT can't be negative", &a->limit))
                return false;
            at += 2;
        } else {
            ctx_syntax_error(c);
            return false;
        }
    }
    return true;
}

/* -- sources ---------------------------------------------------------------------------- */

static int compare_sources(const void *x, const void *y)
{
    const struct source *a = x, *b = y;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    return a->at - b->at;
}

/* Of each source its elements in `read`. They are apart from the sources, whose order is not the engine's,
 * so that they are small enough for the processor's cache. */
struct gathering {
    struct zlist *read;
    struct { u32 at, n; } *runs;
};

struct source_iter {
    struct engine *eng;
    const struct zpair *read, *read_end; /* what is left of a source that was gathered */
    bool of_set;
    struct map_iter set;
    struct zset_iter zset;
};

static void keep_gathered(void *arg, u32 i, bytes member, double score)
{
    struct gathering *g = arg;
    if (g->runs[i].n++ == 0) g->runs[i].at = (u32)g->read->n; /* those of one come together */
    zlist_add(g->read, member, score);
}

static bool is_small(const struct source *s) { return s->size > 0 && s->size <= SMALL_SOURCE; }

/* Reads small sources all at once, in whatever order the engine likes best. */
static void gather_small(struct algebra *a)
{
    size_t total = 0;
    u32 n = 0;
    if (a->n < MANY_SOURCES || !a->c->eng->ops->gather) return;
    struct gathering g = {.read = &a->read, .runs = mem_zalloc((size_t)a->n * sizeof(*g.runs))};
    struct key_ref **refs = mem_alloc((size_t)a->n * sizeof(*refs));
    for (int i = 0; i < a->n && total < GATHERED_MAX; i++) {
        struct source *s = &a->sources[i];
        if (!is_small(s)) continue;
        total += s->size;
        refs[n++] = &s->ref;
    }
    zlist_reserve(&a->read, total);
    a->c->eng->ops->gather(a->c->eng, refs, n, keep_gathered, &g);
    struct source *s = a->sources;
    for (u32 i = 0; i < n; s++) {
        if (!is_small(s)) continue;
        s->read_at = g.runs[i].at;
        s->read_n = g.runs[i++].n;
    }
    mem_free(refs);
    mem_free(g.runs);
}

static const struct zpair *gathered_first(const struct algebra *a, int i)
{
    return i < a->n && a->sources[i].read_n ? a->read.v + a->sources[i].read_at : NULL;
}

/* Gathered sources are wanted soon: their pairs, then their first members, then the places of those in the
 * table. */
static void source_prefetch(const struct algebra *a, int i, const struct table *seen)
{
    const struct zpair *p;
    if ((p = gathered_first(a, i + 3 * PREFETCH_AHEAD))) __builtin_prefetch(p);
    if ((p = gathered_first(a, i + 2 * PREFETCH_AHEAD))) __builtin_prefetch(p->member.p);
    if ((p = gathered_first(a, i + PREFETCH_AHEAD))) table_prefetch_bucket(seen, table_hash(seen, p->member));
}

static void source_iter(struct algebra *a, struct source *s, struct source_iter *it)
{
    struct zset_seek lowest = {.by = ZSEEK_RANK};
    it->read = s->read_n ? a->read.v + s->read_at : NULL;
    it->read_end = it->read + s->read_n;
    if (it->read) return;
    it->eng = a->c->eng;
    it->of_set = s->ref.type == TYPE_SET;
    if (it->of_set) it->eng->ops->map.iter(it->eng, &s->ref, &it->set);
    else it->eng->ops->zset.iter(it->eng, &s->ref, &lowest, &it->zset);
}

static bool source_next(struct source_iter *it, bytes *member, double *score)
{
    if (it->read) {
        if (it->read == it->read_end) return false;
        *member = it->read->member;
        *score = it->read++->score;
        return true;
    }
    *score = 1;
    return it->of_set ? it->eng->ops->map.next(&it->set, member, NULL)
                      : it->eng->ops->zset.next(&it->zset, member, score);
}

static bool source_find(struct algebra *a, struct source *s, bytes member, double *score)
{
    struct engine *eng = a->c->eng;
    *score = 1;
    if (s->size == 0) return false;
    return s->ref.type == TYPE_SET ? eng->ops->map.get(eng, &s->ref, member, NULL)
                                   : eng->ops->zset.score(eng, &s->ref, member, score);
}

/* -- combining ---------------------------------------------------------------------------- */

/* inf * 0 and inf - inf count as 0. */
static double not_nan(double score) { return isnan(score) ? 0 : score; }

static double zalgebra_combine(enum aggregate how, double total, double score)
{
    switch (how) {
    case AGGREGATE_MIN: return score < total ? score : total;
    case AGGREGATE_MAX: return score > total ? score : total;
    default: return not_nan(total + score);
    }
}

static bytes pair_key(const void *item) { return ((const struct zpair *)item)->member; }

/* Any order in which the same key comes together. */
static int zalgebra_by_key(const void *x, const void *y)
{
    const struct key_ref *a = &((const struct source *)x)->ref, *b = &((const struct source *)y)->ref;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return bytes_cmp(a->key, b->key);
}

/* The most members a union can have. A source given again brings none; counted again, it
 * would let a short request ask for any amount of memory. May reorder the sources. */
static size_t union_bound(struct algebra *a)
{
    size_t total = 0;
    for (int i = 0; i < a->n; i++) total += a->sources[i].size;
    if (total <= (size_t)a->n * FEW_EACH) return total; /* no more than the request is long */
    total = 0;
    qsort(a->sources, (size_t)a->n, sizeof(*a->sources), zalgebra_by_key);
    for (int i = 0; i < a->n; i++)
        if (i == 0 || zalgebra_by_key(&a->sources[i], &a->sources[i - 1]) != 0) total += a->sources[i].size;
    return total;
}

static void sort_sources(struct algebra *a)
{
    int i = 1;
    while (i < a->n && compare_sources(&a->sources[i - 1], &a->sources[i]) < 0) i++;
    if (i < a->n) qsort(a->sources, (size_t)a->n, sizeof(*a->sources), compare_sources);
}

/* `out` has room for all: the table points at the pairs, which must not move. */
static void zalgebra_unite(struct algebra *a, struct zlist *out)
{
    struct table seen;
    table_init(&seen, pair_key, a->c->seed);
    table_reserve(&seen, out->cap);
    for (int i = 0; i < a->n; i++) {
        struct source *s = &a->sources[i];
        struct source_iter it;
        bytes member;
        double score;
        source_prefetch(a, i, &seen);
        if (s->size == 0) continue;
        source_iter(a, s, &it);
        while (source_next(&it, &member, &score)) {
            u64 hash = table_hash(&seen, member);
            struct zpair *p = table_find(&seen, member, hash);
            score = not_nan(s->weight * score);
            if (p) p->score = zalgebra_combine(a->aggregate, p->score, score);
            else table_insert(&seen, hash, zlist_add(out, member, score));
        }
    }
    table_release(&seen);
}

/* The combined score of a member of the first source, if all others have it. */
static bool in_all(struct algebra *a, bytes member, double *score)
{
    double total = not_nan(a->sources[0].weight * *score), other;
    for (int i = 1; i < a->n; i++) {
        if (!source_find(a, &a->sources[i], member, &other)) return false;
        total = zalgebra_combine(a->aggregate, total, other * a->sources[i].weight);
    }
    *score = total;
    return true;
}

static bool in_no_other(struct algebra *a, bytes member)
{
    double score;
    for (int i = 1; i < a->n; i++)
        if (source_find(a, &a->sources[i], member, &score)) return false;
    return true;
}

/* Intersection and difference by lookups: which members of the first source stay.
 * Returns how many; a limit stops it. `out` may be NULL. */
static i64 sift(struct algebra *a, struct zlist *out)
{
    struct source_iter it;
    bytes member;
    double score;
    i64 n = 0;
    if (a->sources[0].size == 0) return 0;
    source_iter(a, &a->sources[0], &it);
    while (source_next(&it, &member, &score)) {
        if (!(a->op == OP_DIFF ? in_no_other(a, member) : in_all(a, member, &score))) continue;
        n++;
        if (out) zlist_add(out, member, score);
        if (n == a->limit) break;
    }
    return n;
}

/* Difference by removal: collects the first source and takes out what the others have. */
static void zalgebra_subtract(struct algebra *a, struct zlist *out)
{
    struct table left;
    struct source_iter it;
    bytes member;
    double score;
    size_t kept = 0;
    zlist_reserve(out, a->sources[0].size); /* the table points at the pairs */
    table_init(&left, pair_key, a->c->seed);
    source_iter(a, &a->sources[0], &it);
    while (source_next(&it, &member, &score))
        table_insert(&left, table_hash(&left, member), zlist_add(out, member, score));
    for (int i = 1; i < a->n && left.count > 0; i++) {
        if (a->sources[i].size == 0) continue;
        source_iter(a, &a->sources[i], &it);
        while (source_next(&it, &member, &score)) {
            u64 hash = table_hash(&left, member);
            struct zpair *p = table_find(&left, member, hash);
            if (!p) continue;
            table_remove(&left, hash, p);
            p->score = NAN; /* which no member has: it is gone */
        }
    }
    table_release(&left);
    for (size_t i = 0; i < out->n; i++)
        if (!isnan(out->v[i].score)) out->v[kept++] = out->v[i];
    out->n = kept;
}

/* As in SDIFF: lookups cost first × sources but usually end early, which halves their
 * price; removal costs the sum of all sizes. */
static void differ(struct algebra *a, struct zlist *out)
{
    u64 total = 0, first = a->sources[0].size;
    for (int i = 0; i < a->n; i++) total += a->sources[i].size;
    if (first * (u64)a->n / 2 <= total) sift(a, out);
    else zalgebra_subtract(a, out);
}

static void zalgebra_answer(struct algebra *a)
{
    static const char *const events[] = {"zunionstore", "zinterstore", "zdiffstore"};
    struct zlist result = {0};
    if (a->op == OP_UNION) zlist_reserve(&result, union_bound(a));
    if (a->op == OP_UNION) gather_small(a);
    if (a->op != OP_DIFF) sort_sources(a);
    if (a->count_only) {
        reply_int(a->c->out, sift(a, NULL));
        return;
    }
    if (a->op == OP_UNION) zalgebra_unite(a, &result);
    else if (a->op == OP_DIFF) differ(a, &result);
    else sift(a, &result);
    zlist_sort(&result);
    if (a->store) zlist_store(a->c, a->c->argv[1], &result, events[a->op]);
    else zlist_reply(a->c, &result, a->with_scores);
    zlist_release(&result);
    zlist_release(&a->read);
}

/* numkeys is at argv[numkeys_at], the keys and the options follow. */
static void zalgebra_run(struct algebra a, int numkeys_at)
{
    struct ctx *c = a.c;
    i64 n;
    if (!ctx_int(c, c->argv[numkeys_at], &n)) return;
    if (n < 1) {
        reply_errorf(c->out, "ERR at least 1 input key is needed for '%s' command", c->cmd->name);
        return;
    }
    if (n > c->argc - (numkeys_at + 1)) {
        ctx_syntax_error(c);
        return;
    }
    struct source few[4];
    a.n = (int)n;
    a.sources = (size_t)n <= ARRAY_LEN(few) ? few : mem_alloc((size_t)n * sizeof(*a.sources));
    int first = numkeys_at + 1;
    if (open_sources(&a, first) && zalgebra_parse_options(&a, first + a.n)) zalgebra_answer(&a);
    if (a.sources != few) mem_free(a.sources);
}

void cmd_zunion(struct ctx *c) { zalgebra_run((struct algebra){.c = c, .op = OP_UNION}, 1); }
void cmd_zinter(struct ctx *c) { zalgebra_run((struct algebra){.c = c, .op = OP_INTER}, 1); }
void cmd_zdiff(struct ctx *c) { zalgebra_run((struct algebra){.c = c, .op = OP_DIFF}, 1); }

void cmd_zunionstore(struct ctx *c)
{
    zalgebra_run((struct algebra){.c = c, .op = OP_UNION, .store = true}, 2);
}

void cmd_zinterstore(struct ctx *c)
{
    zalgebra_run((struct algebra){.c = c, .op = OP_INTER, .store = true}, 2);
}

void cmd_zdiffstore(struct ctx *c)
{
    zalgebra_run((struct algebra){.c = c, .op = OP_DIFF, .store = true}, 2);
}

void cmd_zintercard(struct ctx *c)
{
    zalgebra_run((struct algebra){.c = c, .op = OP_INTER, .count_only = true}, 1);
}
