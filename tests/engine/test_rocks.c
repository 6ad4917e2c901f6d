/* The engine suite on the rocks engine, and what only a store on disk promises: everything is as it
 * was after a restart, and nothing of a transaction that was given up is left. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/rocks/rocks.h"
#include "suite.h"
#include "suite_model.h"
#include "unit/rocks_helpers.h"

/* -- engines in folders that go with them ---------------------------------------------------- */

#define FOLDERS 4

static struct folder {
    struct engine *e;
    void (*close)(struct engine *);
    char path[256];
} folders[FOLDERS];

static void make_folder(char path[256]) { assert_true(folder_make(path, 256, "engine")); }

static const struct log quiet = {.level = LOG_NOTHING};

static struct engine *open_in(const char *path, u32 databases, u64 seed)
{
    struct buf why = {0};
    struct rocks_options o = {
        .dir = path, .log = &quiet, .databases = databases, .seed = seed, .background_threads = 2,
        .block_cache = 8 << 20, .row_cache = 1 << 20, .write_buffer = 8 << 20, .blob_size = 1000,
        .sync = DISK_SYNC_NO,
    };
    struct engine *e = rocks_engine_open(&o, &why);
    if (!e) print_error("%s: %.*s\n", path, (int)why.n, why.p);
    assert_non_null(e);
    buf_release(&why);
    return e;
}

static void close_and_remove(struct engine *e)
{
    struct folder *f = folders;
    while (f->e != e) f++;
    f->e = NULL;
    f->close(e);
    folder_remove(f->path);
}

/* The engine's table of operations is its own copy, so that close can be replaced. */
static struct engine *open_fresh(u32 databases, u64 seed)
{
    struct folder *f = folders;
    while (f->e) assert_true(++f < folders + FOLDERS);
    make_folder(f->path);
    f->e = open_in(f->path, databases, seed);
    struct engine_ops *ops = (struct engine_ops *)(uintptr_t)f->e->ops;
    f->close = ops->close;
    ops->close = close_and_remove;
    return f->e;
}

/* -- random transactions ------------------------------------------------------------------------ */

static struct world w;

static void one_step(void)
{
    u32 db = below(DBS), id = below(IDS), what = below(1000);
    struct mval *m = &w.key[db][id];
    struct key_ref ref;
    if (below(8) == 0) {
        change_companion(&w, db, id);
    } else if (!world_find(&w, db, id, &ref)) {
        create_value(&w, db, id, 1 + below(6), &ref);
    } else if (what < 800) {
        for (u32 n = 1 + below(10); n > 0 && m->type != TYPE_NONE; n--) change_value(&w, &ref, m, 300);
    } else if (what < 900) {
        change_deadline(&w, &ref, m);
    } else if (what < 940) {
        drop_key(&w, &ref, m);
    } else if (what < 990) {
        rename_key(&w, &ref, m);
    } else if (what < 995) {
        swap_dbs(&w, below(DBS), below(DBS));
    } else if (what < 997) {
        flush_db(&w, below(DBS));
    }
}

static void some_steps(u32 n)
{
    while (n--) {
        one_step();
        if (below(10) == 0) world_tick(&w, below(below(10) ? 100 : 20000));
        if (below(50)) continue;
        if (w.e->databases < DBS) world_tick(&w, 0); /* what is swapped in may have been passed */
        for (u32 db = 0; db < DBS; db++) drain_due(&w, db);
    }
}

static void stray_row(struct key_ref *ref)
{
    switch (below(4)) {
    case 0: w.ops->rows.del(w.e, ref, text(below(300))); return;
    case 1: w.ops->rows.erase(w.e, ref, text(below(300)), text(below(300))); return;
    case 2: w.ops->rows.set_head(w.e, ref, text(1), below(100)); return;
    case 3: w.ops->rows.put(w.e, ref, text(below(300)), text(below(1000))); return;
    }
}

static void stray_companion(struct key_ref *ref)
{
    switch (below(5)) {
    case 0: w.ops->companion.set_head(w.e, ref, text(below(60))); return;
    case 1: w.ops->companion.put(w.e, ref, text(below(12)), text(below(60))); return;
    case 2: w.ops->companion.del(w.e, ref, text(below(12))); return;
    case 3: w.ops->companion.keep(w.e, ref, below(2)); return;
    case 4: w.ops->companion.drop(w.e, ref); return;
    }
}

/* Whatever it may be, it must leave no trace: none of it is done to the model. */
static void stray_step(void)
{
    u32 db = below(DBS), id = below(IDS);
    struct key_ref ref;
    bool found = w.ops->find(w.e, db, text(id), &ref);
    if (below(4) == 0) stray_companion(&ref);
    if (!found) {
        if (below(2)) w.ops->str.put(w.e, db, text(id), &ref, text(below(1000)), w.now_ms + below(5000));
        return;
    }
    switch (below(12)) {
    case 0: w.ops->flush(w.e, db); return;
    case 1: w.ops->swap(w.e, db, below(DBS)); return;
    case 2: case 3: w.ops->drop(w.e, &ref); return;
    case 4: case 5: w.ops->set_deadline(w.e, &ref, below(2) ? 0 : w.now_ms + below(5000)); return;
    case 6: w.ops->str.put(w.e, db, text(id), &ref, text(below(1000)), 0); return;
    }
    for (u32 n = below(20); n > 0; n--) {
        switch (ref.type) {
        case TYPE_STRING: w.ops->str.edit(w.e, &ref, below(100)); break;
        case TYPE_LIST: w.ops->seq.push(w.e, &ref, below(2), text(below(1000))); break;
        case TYPE_ZSET: w.ops->zset.put(w.e, &ref, text(below(1000)), below(100)); break;
        case TYPE_STREAM: stray_row(&ref); break;
        case TYPE_HASH: case TYPE_SET:
            w.ops->map.put(w.e, &ref, text(below(300)), text(ref.type == TYPE_SET ? 0 : below(9)), false);
            break;
        default: break;
        }
    }
}

/* -- tests ------------------------------------------------------------------------------------------ */

/* What was in staging databases is gone after a start. */
static void reopen_often(u32 databases)
{
    char path[256];
    make_folder(path);
    suite_rng = 7;
    world_open(&w, open_in(path, databases, 1));
    for (u32 round = 0; round < ROUNDS(30); round++) {
        some_steps(below(1000));
        world_tick(&w, 0);
        w.ops->close(w.e);
        assert_int_equal(rocks_check(path), 0);
        w.e = open_in(path, databases, round); /* another seed: nothing stored may depend on it */
        w.ops = w.e->ops;
        for (u32 db = databases; db < DBS; db++)
            for (u32 id = 0; id < IDS; id++) {
                mval_clear(&w.key[db][id]);
                mval_clear(&w.companion[db][id]);
            }
        assert_int_equal(w.e->applied, w.seq);
        w.ops->begin(w.e, w.now_ms);
        check_world(&w);
        world_tick(&w, below(10000));
        for (u32 db = 0; db < DBS; db++) drain_due(&w, db);
        check_world(&w);
    }
    world_close(&w);
    folder_remove(path);
}

static void test_reopen(void **state)
{
    (void)state;
    reopen_often(DBS);
}

static void test_reopen_with_staging(void **state)
{
    (void)state;
    reopen_often(DBS - 1);
}

static void abort_often(u32 databases)
{
    suite_rng = 8;
    world_open(&w, open_fresh(databases, 1));
    for (u32 round = 0; round < ROUNDS(60); round++) {
        some_steps(50);
        world_tick(&w, 0);
        for (u32 n = below(100); n > 0; n--) stray_step();
        w.ops->abort(w.e);
        w.ops->begin(w.e, w.now_ms);
        check_world(&w);
    }
    world_close(&w);
}

static void test_abort(void **state)
{
    (void)state;
    abort_often(DBS);
}

static void test_abort_with_staging(void **state)
{
    (void)state;
    abort_often(DBS - 1);
}

/* Writes transactions, each of a value and a companion that agree, and says after each that it is kept. */
static void write_until_killed(const char *path, int told)
{
    struct engine *e = open_in(path, 1, 1);
    for (u32 i = 1;; i++) {
        struct key_ref ref;
        char number[4];
        memcpy(number, &i, sizeof number);
        e->ops->begin(e, START + i);
        e->ops->find(e, 0, BYTES_LIT("k"), &ref);
        e->ops->str.put(e, 0, BYTES_LIT("k"), &ref, bytes_of(number, sizeof number), 0);
        e->ops->companion.set_head(e, &ref, bytes_of(number, sizeof number));
        e->ops->companion.put(e, &ref, BYTES_LIT("row"), bytes_of(number, sizeof number));
        if (!e->ops->commit(e, i) || write(told, "", 1) != 1) _exit(1);
    }
}

/* A crash keeps both or neither. */
static void test_companion_crash(void **state)
{
    (void)state;
    char path[256], byte;
    int pipes[2];
    make_folder(path);
    assert_int_equal(pipe(pipes), 0);
    for (u32 round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) write_until_killed(path, pipes[1]);
        for (u32 n = 0; n < 20 + 10 * round; n++) assert_int_equal(read(pipes[0], &byte, 1), 1);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        struct engine *e = open_in(path, 1, 1);
        struct key_ref ref;
        struct str_view v;
        bytes head, row;
        e->ops->begin(e, START);
        assert_true(e->ops->find(e, 0, BYTES_LIT("k"), &ref));
        e->ops->str.get(e, &ref, &v);
        assert_true(e->ops->companion.head(e, &ref, &head) && bytes_eq(head, v.b));
        assert_true(e->ops->companion.get(e, &ref, BYTES_LIT("row"), &row) && bytes_eq(row, v.b));
        e->ops->close(e);
        assert_int_equal(rocks_check(path), 0);
    }
    close(pipes[0]);
    close(pipes[1]);
    folder_remove(path);
}

/* Scores are stored in an order-preserving form that has one zero. */
static void test_negative_zero(void **state)
{
    (void)state;
    struct engine *e = open_fresh(1, 1);
    struct key_ref ref;
    double score = 1;
    e->ops->begin(e, START);
    e->ops->create(e, 0, BYTES_LIT("z"), TYPE_ZSET, &ref);
    assert_true(e->ops->zset.put(e, &ref, BYTES_LIT("a"), -0.0));
    assert_true(e->ops->zset.score(e, &ref, BYTES_LIT("a"), &score));
    assert_true(score == 0 && !signbit(score));
    assert_true(e->ops->commit(e, 1));
    e->ops->begin(e, START);
    assert_true(e->ops->find(e, 0, BYTES_LIT("z"), &ref));
    assert_true(e->ops->zset.score(e, &ref, BYTES_LIT("a"), &score));
    assert_true(score == 0 && !signbit(score));
    e->ops->close(e);
}

static void test_refused(void **state)
{
    (void)state;
    struct buf why = {0};
    char path[256];
    make_folder(path);
    struct engine *e = open_in(path, 1, 1);
    struct rocks_options o = {.dir = path, .log = &quiet, .databases = 1};
    assert_null(rocks_engine_open(&o, &why)); /* a second one at a time */
    assert_true(why.n > 0);
    e->ops->close(e);
    buf_clear(&why);
    o.dir = "/proc/nothing/here";
    assert_null(rocks_engine_open(&o, &why));
    assert_true(why.n > 0);
    buf_release(&why);
    folder_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reopen),
        cmocka_unit_test(test_reopen_with_staging),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_with_staging),
        cmocka_unit_test(test_companion_crash),
        cmocka_unit_test(test_negative_zero),
        cmocka_unit_test(test_refused),
    };
    int failed = engine_suite(open_fresh);
    return failed + cmocka_run_group_tests_name("rocks engine", tests, NULL, NULL);
}
