/* RDB files in memory: an engine written out, and read into another. */
#ifndef MAYFLY_TESTS_UNIT_RDB_HELPERS_H
#define MAYFLY_TESTS_UNIT_RDB_HELPERS_H

#include <stdio.h>

#include "../exec/dataset.h"
#include "base/rand.h"
#include "persist/rdb_file.h"

/* -- data -------------------------------------------------------------------------------------- */

static inline void check_equal(const struct buf *a, const struct buf *b)
{
    if (a->n == b->n && memcmp(a->p, b->p, a->n) == 0) return;
    size_t at = 0;
    while (at < a->n && at < b->n && a->p[at] == b->p[at]) at++;
    size_t from = at > 200 ? at - 200 : 0;
    fprintf(stderr, "wanted …%.*s\ngot …%.*s\n", (int)MIN(a->n - from, 600u), a->p + from,
            (int)MIN(b->n - from, 600u), b->p + from);
    CHECK(!"the same data");
}

/* Element i of about `size` bytes, or a number if size is 0. */
static inline bytes element(struct buf *space, u64 i, size_t size)
{
    char digits[NUM_I64_LEN];
    size_t n = num_print_i64(digits, (i64)(i * 0x9e3779b9 % 1000003) * (i & 1 ? 1 : -1));
    buf_clear(space);
    buf_append(space, digits, n);
    while (space->n < size) buf_append(space, "abcdefghijk", MIN(size - space->n, 11u));
    return buf_bytes(space);
}

static inline void fill(struct engine *e, u32 db, enum value_type type, bytes key, u64 n, size_t size)
{
    struct key_ref ref;
    struct buf space = {0};
    e->ops->create(e, db, key, type, &ref);
    for (u64 i = 0; i < n; i++) {
        bytes b = element(&space, i, size);
        switch (type) {
        case TYPE_LIST: e->ops->seq.push(e, &ref, false, b); break;
        case TYPE_ZSET: e->ops->zset.put(e, &ref, b, (double)(i % 7) / 4); break;
        case TYPE_HASH: e->ops->map.put(e, &ref, b, b, false); break;
        default: e->ops->map.put(e, &ref, b, (bytes){"", 0}, false);
        }
    }
    buf_release(&space);
}

static inline void put_string(struct engine *e, const char *key, bytes value, i64 deadline_ms)
{
    struct key_ref ref;
    e->ops->find(e, 0, bytes_str(key), &ref);
    e->ops->str.put(e, 0, bytes_str(key), &ref, value, deadline_ms);
}

/* -- a sink and a source ----------------------------------------------------------------------- */

struct memory_sink {
    struct rdb_sink sink;
    struct buf file;
    size_t largest;  /* piece */
    size_t room;     /* fails beyond */
};

static inline bool memory_sink_write(struct rdb_sink *sink, bytes piece)
{
    struct memory_sink *m = (struct memory_sink *)(void *)sink;
    m->largest = MAX(m->largest, piece.n);
    if (m->file.n + piece.n > m->room) return false;
    buf_append_bytes(&m->file, piece);
    return true;
}

static inline void memory_sink_init(struct memory_sink *m)
{
    *m = (struct memory_sink){.sink.write = memory_sink_write, .room = SIZE_MAX};
}

/* Gives odd portions, so that everything is cut somewhere. */
struct memory_source {
    struct rdb_source source;
    bytes left;
    u64 rng; /* 0: as much as is asked for */
};

static inline i64 memory_source_read(struct rdb_source *source, void *to, size_t n)
{
    struct memory_source *m = (struct memory_source *)(void *)source;
    size_t most = m->rng ? (size_t)1 << rand_below(&m->rng, 20) : SIZE_MAX;
    n = MIN(n, MIN(m->left.n, most));
    if (n) memcpy(to, m->left.p, n);
    m->left = bytes_of(m->left.p + n, m->left.n - n);
    return (i64)n;
}

/* -- writing ----------------------------------------------------------------------------------- */

struct writing {
    struct rdb_job job;
    u64 budget;      /* of a step; 0: all at once */
    u64 steps;
    struct rdb_key_use use;
};

static inline void write_key(void *arg, struct key_ref *ref)
{
    struct writing *w = arg;
    struct rdb_save s;
    if (!rdb_file_wants(&w->job, ref)) return;
    rdb_file_key(&s, &w->job, ref, w->use);
    do w->steps++;
    while (!rdb_save_step(&s, w->budget ? w->budget : RDB_SAVE_ALL));
    rdb_save_release(&s);
}

static inline void write_engine(struct writing *w)
{
    struct engine *e = w->job.eng;
    struct rdb_out *out = w->job.out;
    rdb_file_begin(&w->job);
    rdb_file_aux(out, "redis-ver", BYTES_LIT("7.0.15"));
    rdb_file_aux_int(out, "redis-bits", 64);
    for (u32 db = 0; db < e->databases; db++) {
        if (e->ops->count(e, db) == 0) continue;
        rdb_file_select(out, db);
        rdb_file_sizes(out, e->ops->count(e, db), e->ops->expires(e, db));
        u64 cursor = 0;
        do cursor = e->ops->scan(e, db, cursor, 100, write_key, w);
        while (cursor);
    }
    rdb_file_end(out);
}

/* The engine as a file in sink->file. */
static inline void save_to(struct memory_sink *sink, struct engine *eng, i64 now_ms, enum rdb_field_ttls ttls,
                           u64 budget, size_t compress_max)
{
    struct rdb_out out;
    rdb_out_init(&out, &sink->sink, compress_max);
    struct writing w = {
        .job = {.out = &out, .eng = eng, .now_ms = now_ms, .ttls = ttls}, .budget = budget, .use = {-1, -1},
    };
    write_engine(&w);
    rdb_out_release(&out);
}

/* -- loading ----------------------------------------------------------------------------------- */

struct loading {
    struct keyspace ks;
    struct journal journal;
    struct memory_source source;
    struct rdb_loader loader;
    struct buf notes;
};

static inline void loading_note(void *arg, const char *text)
{
    struct loading *l = arg;
    buf_printf(&l->notes, "%s\n", text);
}

static inline void loading_aux(void *arg, bytes name, bytes value)
{
    struct loading *l = arg;
    buf_printf(&l->notes, "%.*s=%.*s\n", (int)name.n, name.p, (int)value.n, value.p);
}

static inline bool loading_keep(void *arg UNUSED, u32 db UNUSED, bytes key UNUSED, i64 deadline_ms UNUSED)
{
    return true;
}

/* What most tests want: the checksum is looked at, the rest is refused. */
static inline struct rdb_policy loading_policy(struct loading *l)
{
    return (struct rdb_policy){.checksum = true, .note = loading_note, .aux = loading_aux, .arg = l};
}

/* Loads a file into an engine, which the caller closes. */
static inline err load_file(struct loading *l, struct engine *eng, i64 now_ms, bytes file,
                            const struct rdb_policy *policy, u64 rng)
{
    keyspace_init(&l->ks, eng, &l->journal);
    keyspace_begin(&l->ks, now_ms, EXPIRY_ACTIVE);
    l->source = (struct memory_source){.source.read = memory_source_read, .left = file, .rng = rng};
    u64 size = rng & 1 ? RDB_IN_UNKNOWN : file.n;
    rdb_loader_init(&l->loader, &l->ks, &l->source.source, size, policy);
    err e;
    do {
        e = rdb_loader_step(&l->loader, rng ? rand_below(&rng, 10000) + 1 : UINT64_MAX);
        if (!eng->ops->commit(eng, 1)) abort();
        keyspace_begin(&l->ks, now_ms, EXPIRY_ACTIVE);
    } while (e == ERR_AGAIN);
    return e;
}

static inline void loading_release(struct loading *l)
{
    rdb_loader_release(&l->loader);
    journal_release(&l->journal);
    buf_release(&l->notes);
}

#endif
