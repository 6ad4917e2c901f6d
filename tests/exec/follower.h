/* Regions that follow another one, on either engine, fed with the records of its journal as a stream. */
#ifndef MAYFLY_TESTS_EXEC_FOLLOWER_H
#define MAYFLY_TESTS_EXEC_FOLLOWER_H

#include <unistd.h>

#include "dataset.h"
#include "engine/rocks/rocks.h"
#include "harness.h"
#include "unit/rocks_helpers.h"

/* -- engines ----------------------------------------------------------------------------- */

enum kind { MEMORY, ROCKS };

static char folder[] = "/tmp/mayfly-replica-XXXXXX";

static inline struct engine *open_engine(enum kind kind, const char *name)
{
    char dir[128];
    if (kind == MEMORY) return memory_engine_new(DBS, 7);
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    struct rocks_options o = rocks_small(dir, DBS);
    o.write_buffer = 1 << 20;
    o.blob_size = 1000;
    struct engine *e = rocks_must_open(&o);
    e->ops->disk->set_grace(e, INT64_MAX); /* the primary's cycle alone deletes */
    return e;
}

static inline void open_on(struct world *w, enum kind kind, const char *name)
{
    world_open_on(w, open_engine(kind, name));
    struct engine_limits *l = &w->region.eng->limits; /* so that a dozen elements are in their big forms */
    l->hash_max_listpack_entries = l->zset_max_listpack_entries = l->set_max_intset_entries = 8;
}

static inline void close_on(struct world *w, const char *name)
{
    char dir[128];
    world_close(w);
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    folder_remove(dir);
}

static inline void set_role(struct world *w, bool follows)
{
    w->region.mode = follows ? EXPIRY_REPLICA : EXPIRY_ACTIVE;
    w->region.eng->report_expiry = follows;
}

static inline void open_replica(struct world *w, enum kind kind, const char *name)
{
    open_on(w, kind, name);
    set_role(w, true);
}

/* -- the stream -------------------------------------------------------------------------- */

static inline void follow_one(void *arg, int argc, const bytes *argv)
{
    struct world *w = arg;
    buf_clear(&w->out);
    struct reply reply = {.out = &w->out, .proto = 2};
    struct request q = {&w->session, NULL, argc, (bytes *)(void *)argv, &reply};
    region_follow(&w->region, &q, &w->outcome);
    if (w->outcome.rejected != (bytes_is(argv[0], "multi") || bytes_is(argv[0], "exec")))
        fail_msg("%.*s was rejected", (int)argv[0].n, argv[0].p);
    if (w->outcome.failed) fail_msg("%.*s: %.*s", (int)argv[0].n, argv[0].p, (int)w->out.n, w->out.p);
}

/* Applies some records in one transaction; the tick then continues at the same time. */
static inline void follow(struct world *w, const struct journal_record *records, size_t n)
{
    i64 now_ms = now_of(w);
    assert_true(region_commit(&w->region));
    region_follow_begin(&w->region);
    for (size_t i = 0; i < n; i++) record_each(&records[i], follow_one, w);
    assert_true(region_commit(&w->region));
    region_begin(&w->region, now_ms);
}

/* A command of the primary, as words. */
static inline void stream(struct world *w, const char *line)
{
    struct request_parser p;
    bytes argv[32];
    i64 now_ms = now_of(w);
    request_parser_init(&p);
    CHECK(request_split_words(&p, bytes_str(line)) && p.argc && p.argc <= ARRAY_LEN(argv));
    for (u32 i = 0; i < p.argc; i++) argv[i] = request_arg(&p, line, i);
    assert_true(region_commit(&w->region));
    region_follow_begin(&w->region);
    follow_one(w, (int)p.argc, argv);
    assert_true(region_commit(&w->region));
    region_begin(&w->region, now_ms);
    request_parser_release(&p);
}

/* The client's read on the replica must answer this. */
static inline void expect(struct world *w, const char *command, const char *reply)
{
    const char *got = run(w, command);
    if (strcmp(got, reply)) fail_msg("%s: %s, not %s", command, got, reply);
}

/* -- looking at it ----------------------------------------------------------------------- */

/* To the rocks engine a score of -0 is 0. */
static inline void forget_signs_of_zero(struct buf *out)
{
    size_t n = 0;
    for (size_t i = 0; i < out->n; i++) {
        bool zero = i + 2 < out->n && out->p[i] == '-' && out->p[i - 1] == '=' && out->p[i + 1] == '0';
        if (!zero || out->p[i + 2] == '.') out->p[n++] = out->p[i];
    }
    out->n = n;
}

/* All there physically is, or at another time what is alive. */
static inline void dump(struct world *w, i64 now_ms, struct buf *out)
{
    i64 back_ms = now_of(w);
    assert_true(region_commit(&w->region));
    dataset_dump(w->region.eng, now_ms, out);
    forget_signs_of_zero(out);
    region_begin(&w->region, back_ms);
}

/* The payload of a bulk string. */
static inline void keep_payload(const struct world *w, struct buf *out)
{
    const char *end = memchr(w->out.p, '\n', w->out.n);
    buf_clear(out);
    if (w->out.p[0] == '$' && w->out.p[1] != '-') buf_append(out, end + 1, (size_t)strtoll(w->out.p + 1, NULL, 10));
}

static inline void nothing_expired(const struct world *w)
{
    const struct keyspace *ks = &w->region.ks;
    assert_int_equal(ks->stats.expired_keys + ks->stats.expired_fields + ks->stats.lazy_expired, 0);
    assert_int_equal(ks->lag->active.count + ks->lag->lazy.count, 0);
}

static inline void followers_open(void) { CHECK(mkdtemp(folder)); }
static inline void followers_close(void) { folder_remove(folder); }

#endif
