/* Events, network, command line. */
#include "sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"

enum { CALM_US = 20000000 };

/* Bugs by name, in the order of their bits (raft/plant.h, sim.h). */
static const char *const PLANTS[] = {"send-before-persist",
                                     "skip-epoch-check",
                                     "read-unconfirmed",
                                     "expire-by-wall-clock",
                                     "reclaim-ahead",
                                     "no-fence",
                                     NULL,
                                     "overlap",
                                     "reuse-peer-id",
                                     "stale-map",
                                     "merge-no-fence",
                                     "merge-early",
                                     "merge-no-catch-up",
                                     "merge-rollback",
                                     "merge-no-tombstone",
                                     "merge-untold",
                                     "sleep-behind",
                                     "never-wake"};

void sim_fail(struct sim *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fprintf(stderr, "VIOLATION at %.4f s: ", (double)s->now_us / 1e6);
    vfprintf(stderr, format, ap);
    fprintf(stderr, "\nreplay: sim --seed %llu --seconds %llu --nodes %u --trace",
            (unsigned long long)s->seed, (unsigned long long)(s->end_us / 1000000), s->nodes_n);
    if (s->regions) fprintf(stderr, " --regions");
    for (u32 k = 0; k < sizeof(PLANTS) / sizeof(*PLANTS); k++)
        if (s->plant >> k & 1 && PLANTS[k]) fprintf(stderr, " --plant %s", PLANTS[k]);
    fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

void sim_trace(struct sim *s, const char *format, ...)
{
    va_list ap;
    if (!s->trace) return;
    va_start(ap, format);
    fprintf(stderr, "%10.4f ", (double)s->now_us / 1e6);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
}

u64 sim_below(struct sim *s, u64 n) { return rand_below(&s->rng, n); }
bool sim_chance(struct sim *s, u32 percent) { return percent && sim_below(s, 100) < percent; }
u64 sim_true_ms(const struct sim *s) { return s->now_us / 1000; }

static bool event_before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

void sim_post(struct sim *s, struct event e)
{
    if (s->heap_n == s->heap_cap) {
        s->heap_cap = s->heap_cap ? s->heap_cap * 2 : 256;
        s->heap = mem_realloc(s->heap, s->heap_cap * sizeof(*s->heap));
    }
    e.seq = ++s->seq;
    u32 i = s->heap_n++;
    for (; i && event_before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static struct event sim_next(struct sim *s)
{
    struct event first = s->heap[0], last = s->heap[--s->heap_n];
    u32 i = 0;
    for (;;) {
        u32 child = 2 * i + 1;
        if (child >= s->heap_n) break;
        if (child + 1 < s->heap_n && event_before(&s->heap[child + 1], &s->heap[child])) child++;
        if (!event_before(&s->heap[child], &last)) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return first;
}

void sim_send(struct sim *s, u64 from, u64 to, enum event_type type, bytes data, u64 a, u64 delay_us)
{
    if (to == 0 || to > s->nodes_n) sim_fail(s, "a message to nobody");
    s->messages++;
    u32 copies = 1 + (type == EV_MESSAGE && sim_chance(s, s->duplicate_percent));
    if (s->cut[from][to] || sim_chance(s, to == s->lossy ? 80 : s->loss_percent)) return;
    for (u32 i = 0; i < copies; i++) {
        char *copy = mem_alloc(data.n + 1);
        if (data.n) memcpy(copy, data.p, data.n);
        u64 delay = delay_us + 100 + sim_below(s, 1500);
        if (sim_chance(s, s->slow_percent)) delay += sim_below(s, 700000);
        sim_post(s, (struct event){.at_us = s->now_us + delay,
                                   .type = type,
                                   .node = (u32)to,
                                   .a = a,
                                   .b = from,
                                   .data = copy,
                                   .size = data.n});
    }
}

static void sim_backlog(struct node *n, const struct event *e)
{
    if (n->backlog_n == n->backlog_cap) {
        n->backlog_cap = n->backlog_cap ? n->backlog_cap * 2 : 64;
        n->backlog = mem_realloc(n->backlog, n->backlog_cap * sizeof(*n->backlog));
    }
    n->backlog[n->backlog_n++] = *e;
}

static void sim_resume(struct sim *s, struct node *n)
{
    if (!n->paused) return;
    n->paused = false;
    u32 n_events = n->backlog_n;
    n->backlog_n = 0;
    for (u32 i = 0; i < n_events; i++) {
        n->backlog[i].at_us = s->now_us;
        sim_post(s, n->backlog[i]);
    }
}

/* What a member does again and again; ticks go on during a pause, but a paused
 * member misses them. */
static void sim_repeat(struct sim *s, const struct event *e)
{
    struct event again = *e;
    if (e->type == EV_TICK) again.at_us += TICK_US;
    else if (e->type == EV_FLUSH) again.at_us += 200000 + sim_below(s, 3000000);
    else return;
    sim_post(s, again);
}

static void sim_node_event(struct sim *s, struct event *e)
{
    struct node *n = &s->node[e->node];
    bool to_process = n->alive && (!e->incarnation || e->incarnation == n->incarnation);
    if (to_process && n->paused) {
        if (e->type == EV_TICK || e->type == EV_FLUSH) sim_repeat(s, e);
        else {
            sim_backlog(n, e);
            return;
        }
    } else if (to_process && !((e->type == EV_MESSAGE || e->type == EV_BEAT) && s->cut[e->b][e->node])) {
        sim_repeat(s, e);
        node_event(n, e);
    }
    mem_free(e->data);
}

static void sim_event(struct sim *s, struct event *e)
{
    switch (e->type) {
    case EV_CLIENT:
    case EV_REPLY: client_event(s, e); break;
    case EV_FAULT:
        if (!s->calm) fault_event(s, e->a);
        break;
    case EV_OPERATOR: operator_event(s); break;
    case EV_RESTART:
        if (!s->node[e->node].alive && !s->node[e->node].retired) node_start(s, e->node);
        break;
    case EV_RESUME:
        if (e->incarnation == s->node[e->node].incarnation) sim_resume(s, &s->node[e->node]);
        break;
    default: sim_node_event(s, e);
    }
}

void sim_run_until(struct sim *s, u64 end_us)
{
    while (s->heap[0].at_us < end_us) {
        struct event e = sim_next(s);
        s->now_us = e.at_us;
        sim_event(s, &e);
    }
    s->now_us = end_us;
}

static void sim_calm_down(struct sim *s)
{
    s->calm = true;
    fault_heal(s);
    for (u32 i = 1; i <= s->nodes_n; i++) {
        if (s->node[i].retired) continue;
        if (!s->node[i].alive) node_start(s, i);
        sim_resume(s, &s->node[i]);
    }
}

static void sim_free(struct sim *s)
{
    for (u32 i = 1; i <= s->nodes_n; i++) node_free(&s->node[i]);
    for (u32 i = 0; i < s->heap_n; i++) mem_free(s->heap[i].data);
    for (u32 i = 0; i < s->objects_n; i++) mem_free(s->objects[i].ops);
    mem_free(s->heap);
    mem_free(s->ops);
    mem_free(s->objects);
    verify_free(s);
    mem_free(s);
}

struct options {
    u64 seed, seeds, seconds;
    u32 nodes, plant;
    bool trace, verbose;
    bool regions; /* every run has splits, merges, members that move and nodes that die for good */
};

/* Region 1 begins with all slots, on some of the nodes. */
static void sim_found(struct sim *s)
{
    struct raft_applied at = {.index = RAFT_FIRST_INDEX, .term = RAFT_FIRST_TERM, .epoch = {1, 1}};
    at.clock_ms = START_MS - 1000000;
    at.slots.last = RAFT_SLOTS - 1;
    for (u32 i = 1; i <= s->voters_first; i++) at.conf.voters[at.conf.voters_n++] = peer_of(i, 0);
    s->regions_n = 1, s->next_region = 2;
    for (u32 i = 1; i <= s->nodes_n; i++) {
        node_start(s, i);
        if (i > s->voters_first) continue;
        struct member *m = node_make(&s->node[i], 1, peer_of(i, 0));
        m->at = at;
        verify_applied(m);
        node_open(m);
    }
}

static void sim_print(const struct sim *s)
{
    printf(
        "seed %llu: %llu operations, %llu replies, %llu messages, %llu regions, %llu merges begun, %llu merged, "
        "%llu rolled back, %llu waited, %llu crashes, %llu snapshots, %llu "
        "refused, %llu children overtaken, %llu void, %llu times asleep, %llu deaths told, %llu changes of members, %llu destroyed, %llu new nodes, %llu dead, hash %016llx\n",
        (unsigned long long)s->seed, (unsigned long long)s->ops_n, (unsigned long long)s->replies,
        (unsigned long long)s->messages, (unsigned long long)s->regions_n,
        (unsigned long long)s->merges_begun, (unsigned long long)s->merged,
        (unsigned long long)s->rolled_back, (unsigned long long)s->waited, (unsigned long long)s->crashes,
        (unsigned long long)s->snapshots, (unsigned long long)s->refused_snapshots,
        (unsigned long long)s->overtaken, (unsigned long long)s->voids, (unsigned long long)s->sleeps, (unsigned long long)s->told,
        (unsigned long long)s->conf_changes, (unsigned long long)s->destroyed,
        (unsigned long long)s->replaced, (unsigned long long)s->killed,
        (unsigned long long)(s->rng ^ s->seq));
}

static void sim_run(const struct options *o, u64 seed)
{
    struct sim *s = mem_zalloc(sizeof(*s));
    s->seed = seed, s->rng = seed * 0x9e3779b97f4a7c15ULL + 1, s->nodes_n = o->nodes, s->plant = o->plant,
    s->trace = o->trace, s->regions = o->regions;
    s->end_us = o->seconds * 1000000;
    fault_choose(s);
    sim_found(s);
    clients_start(s);
    sim_post(s, (struct event){.at_us = 3000000, .type = EV_FAULT});
    if (s->scheduled) sim_post(s, (struct event){.at_us = 1000000, .type = EV_OPERATOR});
    sim_run_until(s, s->end_us);
    sim_calm_down(s);
    sim_run_until(s, s->end_us + CALM_US);
    verify_end(s);
    operator_check(s);
    hush_run(s);
    if (o->verbose) sim_print(s);
    sim_free(s);
}

static u32 option_plant(int argc, char **argv, int *i)
{
    for (u32 k = 0; *i + 1 < argc && k < sizeof(PLANTS) / sizeof(*PLANTS); k++)
        if (PLANTS[k] && !strcmp(argv[*i + 1], PLANTS[k])) {
            ++*i;
            return 1u << k;
        }
    fprintf(stderr, "sim: --plant needs one of:");
    for (u32 k = 0; k < sizeof(PLANTS) / sizeof(*PLANTS); k++)
        if (PLANTS[k]) fprintf(stderr, " %s", PLANTS[k]);
    fprintf(stderr, "\n");
    exit(2);
}

static u64 option_number(int argc, char **argv, int *i)
{
    if (*i + 1 >= argc) {
        fprintf(stderr, "sim: %s needs a number\n", argv[*i]);
        exit(2);
    }
    return strtoull(argv[++*i], NULL, 10);
}

int main(int argc, char **argv)
{
    struct options o = {.seed = 1, .seeds = 1, .seconds = 300, .nodes = 5};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seed")) o.seed = option_number(argc, argv, &i);
        else if (!strcmp(argv[i], "--seeds")) o.seeds = option_number(argc, argv, &i);
        else if (!strcmp(argv[i], "--seconds")) o.seconds = option_number(argc, argv, &i);
        else if (!strcmp(argv[i], "--nodes")) o.nodes = (u32)option_number(argc, argv, &i);
        else if (!strcmp(argv[i], "--plant")) o.plant |= option_plant(argc, argv, &i);
        else if (!strcmp(argv[i], "--regions")) o.regions = true;
        else if (!strcmp(argv[i], "--trace")) o.trace = true;
        else if (!strcmp(argv[i], "--verbose")) o.verbose = true;
        else {
            fprintf(stderr, "usage: sim [--seed N] [--seeds N] [--seconds S] "
                            "[--nodes N] [--regions] [--plant BUG] [--trace] "
                            "[--verbose]\n");
            return 2;
        }
    }
    if (o.nodes < 1 || o.nodes > NODES_MAX) return 2;
    for (u64 i = 0; i < o.seeds; i++) sim_run(&o, o.seed + i);
    double cpu = (double)clock() / CLOCKS_PER_SEC;
    printf("%llu seeds from %llu, %llu s of %u nodes each: no violation, %.0f "
           "simulated seconds per CPU second\n",
           (unsigned long long)o.seeds, (unsigned long long)o.seed, (unsigned long long)o.seconds, o.nodes,
           (double)(o.seeds * (o.seconds + CALM_US / 1000000)) / cpu);
    return 0;
}
