#include "sim/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { STEPS_MAX = 4000000 };

struct state {
    bool exists;
    u64 value, deadline_ms;
};

struct search {
    struct check_op *ops;
    u32 n, open, least_open; /* open: operations with a reply that are not placed yet */
    bool placed[CHECK_OPS_MAX];
    u64 *seen, seen_cap, seen_n, hash, steps;
};

static u64 check_mix(u64 z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* Runs an operation on the model; false: its reply contradicts the state. */
static bool check_step(const struct check_op *op, struct state *s)
{
    bool replied = op->end_us != UINT64_MAX;
    if (s->exists && s->deadline_ms && s->deadline_ms <= op->time_ms) *s = (struct state){0};
    bool match = op->found == s->exists && (!s->exists || op->found_value == s->value);
    struct state set = {true, op->value, op->ttl_ms ? op->time_ms + op->ttl_ms : 0};
    switch (op->type) {
    case OP_GET: return !replied || match;
    case OP_SET: *s = set; return true;
    case OP_SET_NX:
        if (replied && op->found != !s->exists) return false;
        if (!s->exists) *s = set;
        return true;
    case OP_SET_XX:
        if (replied && op->found != s->exists) return false;
        if (s->exists) *s = set;
        return true;
    case OP_GETSET:
        if (replied && !match) return false;
        *s = set;
        return true;
    case OP_INCR:
        if (!s->exists) *s = (struct state){true, 0, 0};
        s->value++;
        return !replied || op->found_value == s->value;
    case OP_DEL:
        if (replied && op->found != s->exists) return false;
        *s = (struct state){0};
        return true;
    default: return false;
    }
}

/* Whether this set of placed operations with this state was met before. */
static bool check_seen(struct search *x, const struct state *s)
{
    u64 h = check_mix(check_mix(check_mix(x->hash + s->value) + s->deadline_ms) + s->exists + 1) | 1;
    if (x->seen_n * 2 >= x->seen_cap) {
        u64 cap = x->seen_cap ? x->seen_cap * 2 : 1024, *old = x->seen, old_cap = x->seen_cap;
        x->seen = mem_zalloc(cap * sizeof(u64)), x->seen_cap = cap;
        for (u64 i = 0; i < old_cap; i++) {
            if (!old[i]) continue;
            u64 at = old[i] & (cap - 1);
            while (x->seen[at]) at = (at + 1) & (cap - 1);
            x->seen[at] = old[i];
        }
        mem_free(old);
    }
    u64 at = h & (x->seen_cap - 1);
    for (; x->seen[at]; at = (at + 1) & (x->seen_cap - 1))
        if (x->seen[at] == h) return true;
    x->seen[at] = h;
    x->seen_n++;
    return false;
}

static enum check_verdict check_place(struct search *x, struct state s)
{
    if (x->open == 0) return CHECK_OK;
    if (++x->steps > STEPS_MAX) return CHECK_UNDECIDED;
    if (x->open < x->least_open) {
        x->least_open = x->open;
        for (u32 i = 0; i < x->n; i++) x->ops[i].stuck = !x->placed[i];
    }
    u64 first_end = UINT64_MAX; /* whatever started later comes after this one */
    for (u32 i = 0; i < x->n; i++)
        if (!x->placed[i] && x->ops[i].end_us < first_end) first_end = x->ops[i].end_us;
    for (u32 i = 0; i < x->n; i++) {
        const struct check_op *op = &x->ops[i];
        struct state next = s;
        if (x->placed[i] || op->start_us > first_end || !check_step(op, &next)) continue;
        bool replied = op->end_us != UINT64_MAX;
        x->placed[i] = true, x->hash ^= check_mix((i + 1) * 0x9e3779b97f4a7c15ULL), x->open -= replied;
        enum check_verdict v = check_seen(x, &next) ? CHECK_VIOLATION : check_place(x, next);
        if (v != CHECK_VIOLATION) return v;
        x->placed[i] = false, x->hash ^= check_mix((i + 1) * 0x9e3779b97f4a7c15ULL), x->open += replied;
    }
    return CHECK_VIOLATION;
}

static int check_order(const void *a, const void *b)
{
    const struct check_op *x = a, *y = b;
    if (x->hint != y->hint) return x->hint < y->hint ? -1 : 1;
    return x->start_us < y->start_us ? -1 : x->start_us > y->start_us;
}

enum check_verdict check_object(struct check_op *ops, u32 n)
{
    struct search x = {.ops = ops, .n = n};
    qsort(ops, n, sizeof(*ops), check_order);
    for (u32 i = 0; i < n; i++) x.open += ops[i].end_us != UINT64_MAX;
    x.least_open = UINT32_MAX;
    enum check_verdict v = check_place(&x, (struct state){0});
    mem_free(x.seen);
    return v;
}

void check_print(const struct check_op *ops, u32 n)
{
    static const char *const names[] = {"GET", "SET", "SET NX", "SET XX", "GETSET", "INCR", "DEL"};
    for (u32 i = 0; i < n; i++) {
        const struct check_op *o = &ops[i];
        fprintf(stderr, "%c %-7s %10.4f … ", o->stuck ? '*' : ' ', names[o->type], (double)o->start_us / 1e6);
        if (o->end_us == UINT64_MAX) fprintf(stderr, "%10s", "?");
        else fprintf(stderr, "%10.4f", (double)o->end_us / 1e6);
        fprintf(stderr, "  at %llu  value %llu ttl %llu  -> ", (unsigned long long)o->time_ms,
                (unsigned long long)o->value, (unsigned long long)o->ttl_ms);
        if (o->end_us == UINT64_MAX) fprintf(stderr, "no reply\n");
        else fprintf(stderr, "%s %llu\n", o->found ? "yes" : "no", (unsigned long long)o->found_value);
    }
}
