/* A region to run commands in, with a clock that the test sets and a sink that
 * keeps every journal record. */
#ifndef MAYFLY_TESTS_EXEC_HARNESS_H
#define MAYFLY_TESTS_EXEC_HARNESS_H

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "engine/memory/memory.h"
#include "exec/region.h"
#include "resp/request.h"

#define T0 1700000000000LL
#define DBS 4

/* -- the recording sink ------------------------------------------------------------ */

struct recorder {
    struct journal_sink sink;
    struct journal_record *v;
    size_t n, cap;
};

static inline void recorder_append(struct journal_sink *sink, const struct journal_record *record)
{
    struct recorder *r = (struct recorder *)(void *)sink;
    if (r->n == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 64;
        r->v = mem_realloc(r->v, r->cap * sizeof *r->v);
    }
    struct journal_record *copy = &r->v[r->n++];
    *copy = *record;
    copy->resp = (struct buf){0};
    bytes part[JOURNAL_PARTS];
    journal_parts(record, buf_bytes(&record->resp), part);
    for (int i = 0; i < JOURNAL_PARTS; i++) buf_append_bytes(&copy->resp, part[i]);
    copy->lent = (bytes){0};
}

static inline void recorder_clear(struct recorder *r)
{
    for (size_t i = 0; i < r->n; i++) buf_release(&r->v[i].resp);
    r->n = 0;
}

/* -- the world ---------------------------------------------------------------------- */

struct world {
    struct node node;
    struct region region;
    struct session session;
    struct recorder journal;
    struct outcome outcome; /* of the last command */
    struct buf out;         /* its reply … */
    struct buf text;        /* … and that in readable form */
};

static inline void world_open_on(struct world *w, struct engine *e)
{
    *w = (struct world){0};
    node_init(&w->node, 42);
    region_init(&w->region, &w->node, e, 42);
    region_map_add(&w->node.regions, &w->region, 0, REGION_SLOTS - 1);
    session_init(&w->session, 1, true);
    w->journal.sink.append = recorder_append;
    journal_attach(&w->region.journal, &w->journal.sink);
    region_begin(&w->region, T0);
}

static inline void world_open(struct world *w) { world_open_on(w, memory_engine_new(DBS, 7)); }

static inline void world_close(struct world *w)
{
    waiting_free(w->outcome.waiting);
    region_map_remove(&w->node.regions, &w->region);
    region_release(&w->region);
    node_release(&w->node);
    session_release(&w->session);
    recorder_clear(&w->journal);
    mem_free(w->journal.v);
    buf_release(&w->out);
    buf_release(&w->text);
}

/* The next tick: ms after T0. */
static inline void at(struct world *w, i64 ms)
{
    assert_true(region_commit(&w->region));
    region_begin(&w->region, T0 + ms);
}

static inline i64 now_of(const struct world *w) { return w->region.ks.now_ms; }

static inline void run_argv(struct world *w, int argc, bytes *argv)
{
    buf_clear(&w->out);
    struct reply reply = {.out = &w->out, .proto = w->session.proto};
    struct request q = {&w->session, NULL, argc, argv, &reply};
    waiting_free(w->outcome.waiting); /* it will never be served */
    region_run(&w->region, &q, &w->outcome);
}

/* -- replies (RESP2) in readable form: OK, 1, nil, [a b], -ERR … -------------------------- */

static inline const char *render(struct buf *text, const char *p)
{
    const char *end = strstr(p, "\r\n");
    long n = strtol(p + 1, NULL, 10);
    switch (*p) {
    case '$':
        if (n < 0) {
            buf_append_str(text, "nil");
            return end + 2;
        }
        buf_append(text, end + 2, (size_t)n);
        return end + 2 + n + 2;
    case '*':
        buf_append_str(text, n < 0 ? "nil" : "[");
        p = end + 2;
        for (long i = 0; i < n; i++) {
            if (i) buf_append_char(text, ' ');
            p = render(text, p);
        }
        if (n >= 0) buf_append_char(text, ']');
        return p;
    case '-':
        buf_append(text, p, (size_t)(end - p));
        return end + 2;
    default:
        buf_append(text, p + 1, (size_t)(end - p - 1));
        return end + 2;
    }
}

/* Runs a command written as words (quotes as in redis-cli); the answer lives
 * until the next one. */
static inline const char *run(struct world *w, const char *line)
{
    struct request_parser p;
    bytes argv[128];
    request_parser_init(&p);
    CHECK(request_split_words(&p, bytes_str(line)) && p.argc && p.argc <= ARRAY_LEN(argv));
    for (u32 i = 0; i < p.argc; i++) argv[i] = request_arg(&p, line, i);
    run_argv(w, (int)p.argc, argv);
    request_parser_release(&p);
    buf_append_char(&w->out, '\0');
    buf_clear(&w->text);
    if (w->out.n > 1) render(&w->text, w->out.p);
    buf_append_char(&w->text, '\0');
    return w->text.p;
}

/* Commands separated by ';', none of which may fail. */
static inline void run_all(struct world *w, const char *commands)
{
    char copy[256], *rest = NULL;
    CHECK(snprintf(copy, sizeof copy, "%s", commands) < (int)sizeof copy);
    for (char *c = strtok_r(copy, ";", &rest); c; c = strtok_r(NULL, ";", &rest)) {
        const char *reply = run(w, c);
        bool good = w->out.p[0] != '-';
        if (!good) fprintf(stderr, "%s: %s\n", c, reply);
        CHECK(good);
    }
}

static inline u64 count_of(struct world *w, u32 db)
{
    return w->region.eng->ops->count(w->region.eng, db);
}

/* The active cycle until it finds nothing more to do. */
static inline void each_step(struct world *w)
{
    while (region_expire_step(&w->region)) {}
}

/* How dead keys are reclaimed in the background. */
enum reclaim { BY_INDEX, BY_SAMPLES, OFF };

static inline void set_reclaim(struct world *w, enum reclaim how)
{
    w->region.cycle.source = how == BY_SAMPLES ? EXPIRE_SAMPLE : EXPIRE_INDEX;
    w->region.cycle.enabled = how != OFF;
}

/* -- reading records ------------------------------------------------------------------- */

typedef void (*effect_fn)(void *arg, int argc, const bytes *argv);

/* Calls fn for every command of a record, SELECT, MULTI and EXEC included. */
static inline void record_each(const struct journal_record *record, effect_fn fn, void *arg)
{
    struct request_parser p;
    struct request_limits limits = {.max_bulk = INT32_MAX};
    bytes in = buf_bytes(&record->resp);
    struct buf space = {0};
    request_parser_init(&p);
    while (in.n) {
        size_t used;
        CHECK(request_parse(&p, &limits, in, &used) == OK);
        buf_clear(&space);
        bytes *argv = (bytes *)(void *)buf_reserve(&space, p.argc * sizeof *argv);
        for (u32 i = 0; i < p.argc; i++) argv[i] = request_arg(&p, in.p, i);
        fn(arg, (int)p.argc, argv);
        in = bytes_of(in.p + used, in.n - used);
    }
    buf_release(&space);
    request_parser_release(&p);
}

static inline void effect_text(void *arg, int argc, const bytes *argv)
{
    struct buf *text = arg;
    if (text->n) buf_append_str(text, "; ");
    for (int i = 0; i < argc; i++) {
        if (i) buf_append_char(text, ' ');
        buf_append_bytes(text, argv[i]);
    }
}

/* A record as "MULTI; DEL k; SET k v; EXEC". */
static inline void record_text(const struct journal_record *record, struct buf *text)
{
    record_each(record, effect_text, text);
}

/* What the commands since the last call left in the journal, one line per record. */
static inline const char *journal_text(struct world *w)
{
    buf_clear(&w->text);
    for (size_t i = 0; i < w->journal.n; i++) {
        struct buf line = {0};
        record_text(&w->journal.v[i], &line);
        if (i) buf_append_str(&w->text, " | ");
        buf_append_bytes(&w->text, buf_bytes(&line));
        buf_release(&line);
    }
    recorder_clear(&w->journal);
    buf_append_char(&w->text, '\0');
    return w->text.p;
}

#endif
