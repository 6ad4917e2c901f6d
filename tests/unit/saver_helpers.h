/* A server's data that changes while it is saved, and what the files must hold. */
#ifndef MAYFLY_TESTS_UNIT_SAVER_HELPERS_H
#define MAYFLY_TESTS_UNIT_SAVER_HELPERS_H

#include "exec/dataset.h"
#include "exec/generate.h"
#include "exec/harness.h"
#include "persist/saver.h"
#include "unit/rdb_helpers.h"

/* -- a sink that looks at its pieces -------------------------------------------------------------- */

struct piece_sink {
    struct memory_sink memory;
    bool commands; /* every piece must consist of whole ones */
};

static inline bool piece_sink_write(struct rdb_sink *sink, bytes piece)
{
    struct piece_sink *p = (struct piece_sink *)(void *)sink;
    struct request_limits limits = {.max_bulk = INT32_MAX};
    struct request_parser parser;
    request_parser_init(&parser);
    for (bytes in = piece; p->commands && in.n;) {
        size_t used;
        assert_int_equal(request_parse(&parser, &limits, in, &used), OK);
        in = bytes_of(in.p + used, in.n - used);
    }
    request_parser_release(&parser);
    return memory_sink_write(sink, piece);
}

static inline void piece_sink_init(struct piece_sink *p, bool commands)
{
    memory_sink_init(&p->memory);
    p->memory.sink.write = piece_sink_write;
    p->commands = commands;
}

/* -- a world whose keys are saved ----------------------------------------------------------------- */

struct trial {
    struct world w;
    struct gen g;
    i64 ms;                /* since T0 */
    struct saver_options o;
    struct piece_sink sink;
    struct saver *saver;
    struct buf moment;     /* the data when it began */
};

static inline void trial_open(struct trial *t, struct engine *eng, u64 seed)
{
    *t = (struct trial){.g = {.rng = seed, .databases = DBS}};
    world_open_on(&t->w, eng);
    journal_detach(&t->w.region.journal, &t->w.journal.sink);
    t->o = (struct saver_options){.compress = true, .checksum = true, .redis_version = "7.0.15"};
}

static inline void trial_close(struct trial *t)
{
    saver_free(t->saver);
    world_close(&t->w);
    gen_release(&t->g);
    buf_release(&t->sink.memory.file);
    buf_release(&t->moment);
}

static inline void tick(struct trial *t, i64 ms)
{
    t->ms += ms;
    at(&t->w, t->ms);
}

/* Random commands, some of them on the big keys, in a few ticks; some time passes. */
static inline void live(struct trial *t, u64 commands)
{
    static const char *const on_big[] = {
        "APPEND big-string x", "RPUSH big-list x", "LPOP big-list", "SADD big-set x", "HSET big-hash x y",
        "HDEL big-hash x", "ZADD big-zset 1 x", "PEXPIREAT big-list 1900000000000", "PERSIST big-list",
        "RENAME big-list big-list2", "RENAME big-list2 big-list", "COPY big-set big-set2 REPLACE",
        "DEL big-hash", "SET big-string y", "DEL big-list", "MOVE big-zset 3", "UNLINK big-set2", "SWAPDB 0 1",
        "FLUSHDB", "HPEXPIRE big-hash 50 FIELDS 1 x",
    };
    for (u64 i = 0; i < commands; i++) {
        t->g.now_ms = now_of(&t->w);
        if (gen_below(&t->g, 40) == 0) {
            run(&t->w, on_big[gen_below(&t->g, ARRAY_LEN(on_big) - (gen_below(&t->g, 10) > 0 ? 2 : 0))]);
        } else {
            gen_next(&t->g);
            run_argv(&t->w, t->g.argc, t->g.argv);
        }
        if (gen_below(&t->g, 8) == 0) tick(t, (i64)gen_below(&t->g, 30));
        if (gen_below(&t->g, 8) == 0) region_expire_step(&t->w.region);
        if (gen_below(&t->g, 8) == 0) t->w.region.eng->ops->reclaim(t->w.region.eng, 50);
    }
}

/* Keys that are written in many steps, in two databases. */
static inline void fill_big(struct trial *t)
{
    struct engine *e = t->w.region.eng;
    struct buf space = {0};
    struct key_ref ref;
    for (u32 db = 0; db < 2; db++) {
        fill(e, db, TYPE_LIST, BYTES_LIT("big-list"), 3000, 30);
        fill(e, db, TYPE_SET, BYTES_LIT("big-set"), 1000, 20);
        fill(e, db, TYPE_SET, BYTES_LIT("ints"), 300, 0);
        fill(e, db, TYPE_ZSET, BYTES_LIT("big-zset"), 1000, 20);
        fill(e, db, TYPE_HASH, BYTES_LIT("big-hash"), 1000, 20);
        assert_true(e->ops->find(e, db, BYTES_LIT("big-hash"), &ref));
        for (u64 i = 0; i < 1000; i += 2)
            e->ops->map.set_field_deadline(e, &ref, element(&space, i, 20), T0 + 1 + (i64)(i % 6) * 400);
    }
    put_string(e, "big-string", element(&space, 1, 300000), 0);
    buf_release(&space);
}

static inline void save_begin(struct trial *t)
{
    buf_release(&t->sink.memory.file);
    piece_sink_init(&t->sink, t->o.commands);
    t->saver = saver_begin(&t->w.region.ks, &t->o, &t->sink.memory.sink);
    assert_non_null(t->saver);
    dataset_dump(t->w.region.eng, t->o.with_dead ? 0 : now_of(&t->w), &t->moment);
    t->w.region.eng->ops->begin(t->w.region.eng, now_of(&t->w));
}

/* -- loading: at time 0, so that dead keys and fields in a file would show ---------------------------- */

static inline void load_rdb(bytes file, struct engine *twin, struct buf *notes)
{
    struct loading l = {0};
    struct rdb_policy policy = loading_policy(&l);
    err e = load_file(&l, twin, 0, file, &policy, 0);
    if (e != OK) print_error("%s\n", l.loader.error);
    assert_int_equal(e, OK);
    if (notes) buf_append_bytes(notes, buf_bytes(&l.notes));
    loading_release(&l);
}

static inline void check_saved(bytes file, bool commands, const struct buf *wanted)
{
    struct engine *twin = memory_engine_new(DBS, 99);
    struct buf got = {0};
    if (commands) {
        struct world w;
        struct journal_record record = {.now_ms = 0};
        buf_append_bytes(&record.resp, file);
        world_open_on(&w, twin);
        journal_detach(&w.region.journal, &w.journal.sink);
        assert_int_equal(region_apply(&w.region, &w.session, NULL, &record), OK);
        dataset_dump(twin, 0, &got);
        world_close(&w);
        buf_release(&record.resp);
    } else {
        load_rdb(file, twin, NULL);
        dataset_dump(twin, 0, &got);
        twin->ops->close(twin);
    }
    check_equal(wanted, &got);
    buf_release(&got);
}

/* The snapshot is through: the file holds the moment. */
static inline void save_end(struct trial *t)
{
    assert_false(saver_failed(t->saver));
    assert_int_equal(saver_progress(t->saver).bytes, t->sink.memory.file.n);
    assert_int_equal(saver_progress(t->saver).waiting, 0);
    saver_free(t->saver);
    t->saver = NULL;
    check_saved(buf_bytes(&t->sink.memory.file), t->o.commands, &t->moment);
}

#endif
