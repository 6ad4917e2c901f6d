/* Functions and transactions: what a failed commit brings back, what is journalled, what a full sync
 * brings; that sets of libraries stay what a simple list of them says; and what the rocks engine keeps. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rand.h"
#include "script/functions.h"
#include "harness.h"
#include "unit/rocks_helpers.h"

static const char *load(struct world *w, const char *name, const char *functions, bool replace)
{
    struct buf code = {0};
    char copy[256], *at = NULL;
    snprintf(copy, sizeof copy, "%s", functions);
    buf_printf(&code, "#!lua name=%s\n", name);
    for (char *f = strtok_r(copy, " ", &at); f; f = strtok_r(NULL, " ", &at))
        buf_printf(&code, "redis.register_function('%s', function() return '%s of %s' end)\n", f, f, name);
    bytes argv[] = {BYTES_LIT("function"), BYTES_LIT("load"), BYTES_LIT("replace"), buf_bytes(&code)};
    if (!replace) argv[2] = argv[3];
    run_argv(w, replace ? 4 : 3, argv);
    buf_clear(&w->text);
    buf_append_char(&w->out, '\0');
    render(&w->text, w->out.p);
    buf_append_char(&w->text, '\0');
    buf_release(&code);
    return w->text.p;
}

#define EXPECT(w, line, want) assert_string_equal(run((w), (line)), (want))

/* -- commits that fail ------------------------------------------------------------------------- */

/* The memory engine never fails; here it says it did. */
static bool commit_not(struct engine *e, u64 seq UNUSED)
{
    if (e->caps.durable) e->ops->abort(e);
    return false;
}

static void fail_commit(struct world *w)
{
    struct engine *e = w->region.eng;
    const struct engine_ops *ops = e->ops;
    struct engine_ops failing = *ops;
    failing.commit = commit_not;
    e->ops = &failing;
    assert_false(region_commit(&w->region));
    e->ops = ops;
    region_begin(&w->region, T0);
}

static void failed_commits_are_undone(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    assert_string_equal(load(&w, "a", "f g", false), "a");
    fail_commit(&w);
    EXPECT(&w, "fcall f 0", "-ERR Function not found");
    load(&w, "a", "f g", false);
    load(&w, "b", "h", false);
    at(&w, 1);
    EXPECT(&w, "fcall F 0", "f of a");
    assert_string_equal(load(&w, "a", "f", true), "a");
    EXPECT(&w, "fcall g 0", "-ERR Function not found");
    EXPECT(&w, "function delete b", "OK");
    fail_commit(&w);
    EXPECT(&w, "fcall g 0", "g of a");
    EXPECT(&w, "fcall h 0", "h of b");
    EXPECT(&w, "function flush", "OK");
    assert_string_equal(load(&w, "c", "f", false), "c");
    fail_commit(&w);
    EXPECT(&w, "fcall f 0", "f of a");
    EXPECT(&w, "function flush", "OK");
    at(&w, 2);
    fail_commit(&w);
    EXPECT(&w, "function stats", "[running_script nil engines [LUA [libraries_count 0 functions_count 0]]]");
    world_close(&w);
}

/* -- the journal ------------------------------------------------------------------------------- */

static void changes_are_journalled(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    load(&w, "a", "f", false);
    assert_int_equal(w.journal.n, 1);
    load(&w, "a", "f", false); /* there is one */
    load(&w, "x-y", "f", false);
    run(&w, "function delete nope");
    run(&w, "function list");
    run(&w, "fcall f 0");
    assert_int_equal(w.journal.n, 1);
    run(&w, "function delete a");
    run(&w, "function flush");
    assert_int_equal(w.journal.n, 3);
    struct world other;
    world_open(&other);
    assert_int_equal(region_apply(&other.region, &other.session, NULL, &w.journal.v[0]), OK);
    EXPECT(&other, "fcall f 0", "f of a");
    assert_int_equal(region_apply(&other.region, &other.session, NULL, &w.journal.v[1]), OK);
    EXPECT(&other, "fcall f 0", "-ERR Function not found");
    world_close(&other);
    world_close(&w);
}

/* -- a full sync ------------------------------------------------------------------------------- */

static bool bring(struct world *w, const char *name, const char *function)
{
    struct buf code = {0}, error = {0};
    buf_printf(&code, "#!lua name=%s\nredis.register_function('%s', function() return 'new' end)", name, function);
    bool ok = functions_load(&w->node, true, buf_bytes(&code), false, 0, NULL, &error);
    assert_int_equal(ok, error.n == 0);
    buf_release(&code);
    buf_release(&error);
    return ok;
}

static void a_sync_brings_its_own(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    load(&w, "a", "f", false);
    at(&w, 1);
    functions_stage(&w.node);
    assert_true(bring(&w, "a", "g"));
    assert_true(bring(&w, "b", "f"));
    assert_false(bring(&w, "c", "F"));
    EXPECT(&w, "fcall f 0", "f of a");
    at(&w, 2);
    functions_adopt(&w.node);
    fail_commit(&w);
    EXPECT(&w, "fcall f 0", "f of a");
    functions_stage(&w.node);
    assert_true(bring(&w, "a", "g"));
    functions_adopt(&w.node);
    at(&w, 3);
    EXPECT(&w, "fcall g 0", "new");
    EXPECT(&w, "fcall f 0", "-ERR Function not found");
    functions_stage(&w.node);
    assert_true(bring(&w, "z", "z"));
    functions_unstage(&w.node);
    EXPECT(&w, "fcall z 0", "-ERR Function not found");
    functions_stage(&w.node); /* left to world_close */
    assert_true(bring(&w, "z", "z"));
    world_close(&w);
}

/* -- against a model --------------------------------------------------------------------------- */

/* A full sync that brings the same libraries. */
static void sync_what_is_there(struct world *w)
{
    struct buf error = {0};
    functions_stage(&w->node);
    const struct function_set *live = functions_live(&w->node);
    for (u32 i = 0; i < live->count; i++)
        assert_true(functions_load(&w->node, true, buf_bytes(&live->libraries[i]->code), false, 0, NULL, &error));
    functions_adopt(&w->node);
}

/* Libraries A to H, each with one function of six names in one of two cases. Some transactions are kept, others are
 * not. `reopen`, where the engine keeps libraries, starts again with what the last commit kept. */
static void compare_with_model(struct world *w, int steps, void (*reopen)(struct world *))
{
    u64 rng = 5;
    int of[8], kept[8]; /* the function each has, and had at the last commit; -1: it is not there */
    for (int i = 0; i < 8; i++) of[i] = kept[i] = -1;
    for (int step = 0; step < steps; step++) {
        int lib = (int)(rand_next(&rng) % 8), f = (int)(rand_next(&rng) % 6);
        bool replace = rand_next(&rng) % 2, upper = rand_next(&rng) % 2, taken = false;
        char name[2] = {(char)('A' + lib), 0}, function[2] = {(char)((upper ? 'U' : 'u') + f), 0}, line[64];
        for (int i = 0; i < 8; i++) taken |= i != lib && of[i] == f;
        if (rand_next(&rng) % 40 == 0) {
            EXPECT(w, "function flush", "OK");
            for (int i = 0; i < 8; i++) of[i] = -1;
        } else if (rand_next(&rng) % 20 == 0) {
            sync_what_is_there(w);
        } else if (rand_next(&rng) % 3 == 0) {
            snprintf(line, sizeof line, "function delete %s", name);
            EXPECT(w, line, of[lib] < 0 ? "-ERR Library not found" : "OK");
            of[lib] = -1;
        } else {
            bool refused = taken || (of[lib] >= 0 && !replace);
            assert_int_equal(load(w, name, function, replace)[0] == '-', refused);
            if (!refused) of[lib] = f;
        }
        if (rand_next(&rng) % 4 == 0) {
            at(w, step);
            memcpy(kept, of, sizeof of);
        } else if (rand_next(&rng) % 6 == 0) {
            fail_commit(w);
            memcpy(of, kept, sizeof of);
        }
        if (reopen && rand_next(&rng) % 100 == 0) {
            reopen(w);
            memcpy(of, kept, sizeof of);
        }
        snprintf(line, sizeof line, "fcall %c 0", 'U' + f);
        int has = -1;
        for (int i = 0; i < 8; i++) has = of[i] == f ? i : has;
        const char *reply = run(w, line);
        assert_int_equal(reply[0] == '-', has < 0);
        if (has >= 0) assert_int_equal(reply[strlen(reply) - 1], 'A' + has);
    }
}

static void sets_are_what_they_should_be(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    compare_with_model(&w, 3000, NULL);
    world_close(&w);
}

/* -- what the rocks engine keeps ---------------------------------------------------------------- */

static char folder[256];

static int make_folder(void **state UNUSED) { return folder_make(folder, sizeof folder, "functions") ? 0 : -1; }

static int remove_folder(void **state UNUSED)
{
    folder_remove(folder);
    return 0;
}

static void open_kept(struct world *w)
{
    struct rocks_options o = rocks_small(folder, DBS);
    struct buf error = {0};
    world_open_on(w, rocks_must_open(&o));
    assert_true(functions_recall(&w->node, w->region.eng, &error));
    assert_int_equal(error.n, 0);
}

/* What is not committed is lost. */
static void reopen(struct world *w)
{
    world_close(w);
    assert_int_equal(rocks_check(folder), 0);
    open_kept(w);
}

static void kept_sets_are_what_they_should_be(void **state UNUSED)
{
    struct world w;
    open_kept(&w);
    compare_with_model(&w, 1500, reopen);
    world_close(&w);
}

static void list_name(void *arg, bytes name, bytes value UNUSED, double score UNUSED)
{
    buf_printf(arg, "<%.*s>", (int)name.n, name.p);
}

static void expect_rows(struct world *w, const char *names)
{
    struct engine *e = w->region.eng;
    struct buf found = {0};
    e->ops->meta.each(e, META_FUNCTIONS, list_name, &found);
    buf_append_char(&found, '\0');
    assert_string_equal(found.p, names);
    buf_release(&found);
}

static void replaced_sets_are_kept(void **state UNUSED)
{
    struct world w;
    struct buf dump = {0};
    open_kept(&w);
    load(&w, "a", "f", false);
    load(&w, "b", "g", false);
    at(&w, 1);
    functions_dump(functions_live(&w.node), 0, &dump);
    load(&w, "c", "h", false);
    EXPECT(&w, "function delete a", "OK");
    EXPECT(&w, "function flush", "OK"); /* changes before and after a flush, in one transaction */
    load(&w, "b", "other", false);
    at(&w, 2);
    expect_rows(&w, "<b>");
    bytes restore[] = {BYTES_LIT("function"), BYTES_LIT("restore"), buf_bytes(&dump), BYTES_LIT("replace")};
    load(&w, "d", "i", false);
    run_argv(&w, 4, restore);
    fail_commit(&w);
    expect_rows(&w, "<b>");
    load(&w, "d", "i", false);
    run_argv(&w, 4, restore);
    at(&w, 3);
    expect_rows(&w, "<a><b><d>");
    reopen(&w);
    EXPECT(&w, "fcall g 0", "g of b");
    EXPECT(&w, "fcall other 0", "-ERR Function not found");
    EXPECT(&w, "fcall i 0", "i of d");
    functions_stage(&w.node);
    assert_true(bring(&w, "a", "g"));
    functions_adopt(&w.node);
    at(&w, 4);
    reopen(&w);
    expect_rows(&w, "<a>");
    EXPECT(&w, "fcall g 0", "new");
    buf_release(&dump);
    world_close(&w);
}

static u64 written_by_a_change(struct world *w, int number)
{
    u64 before = w->region.eng->ops->disk->bytes_written(w->region.eng);
    char name[32];
    snprintf(name, sizeof name, "lib%06d", number);
    assert_string_equal(load(w, name, name, false), name);
    at(w, number);
    assert_string_equal(load(w, name, name, true), name);
    at(w, number);
    return w->region.eng->ops->disk->bytes_written(w->region.eng) - before;
}

/* As versions before rows of their own kept libraries: one row with all of them. */
static void put_one_row(struct world *w)
{
    struct engine *e = w->region.eng;
    struct buf dump = {0};
    struct world old;
    world_open(&old);
    load(&old, "a", "f g", false);
    load(&old, "b", "h", false);
    functions_dump(functions_live(&old.node), 0, &dump);
    e->ops->meta.put(e, META_FUNCTIONS, (bytes){0}, buf_bytes(&dump));
    at(w, 1);
    buf_release(&dump);
    world_close(&old);
}

static void one_row_becomes_many(void **state UNUSED)
{
    struct world w;
    open_kept(&w);
    put_one_row(&w);
    reopen(&w);
    EXPECT(&w, "fcall g 0", "g of a");
    EXPECT(&w, "fcall h 0", "h of b");
    EXPECT(&w, "set k v", "OK");
    at(&w, 2);
    expect_rows(&w, "<>"); /* nothing has changed */
    load(&w, "c", "i", false);
    EXPECT(&w, "function delete b", "OK");
    fail_commit(&w);
    expect_rows(&w, "<>");
    EXPECT(&w, "fcall h 0", "h of b");
    load(&w, "c", "i", false);
    EXPECT(&w, "function delete b", "OK");
    at(&w, 3);
    expect_rows(&w, "<a><c>");
    reopen(&w);
    EXPECT(&w, "fcall g 0", "g of a");
    EXPECT(&w, "fcall i 0", "i of c");
    EXPECT(&w, "fcall h 0", "-ERR Function not found");
    world_close(&w);
}

static void one_row_is_replaced_once(void **state UNUSED)
{
    struct world w;
    open_kept(&w);
    put_one_row(&w);
    reopen(&w);
    written_by_a_change(&w, 1);
    u64 later = written_by_a_change(&w, 2);
    assert_int_equal(written_by_a_change(&w, 3), later);
    world_close(&w);
}

/* An older version was started in between. */
static void one_row_beside_others_counts(void **state UNUSED)
{
    struct world w;
    open_kept(&w);
    load(&w, "b", "was", false);
    load(&w, "z", "z", false);
    at(&w, 1);
    put_one_row(&w);
    reopen(&w);
    EXPECT(&w, "fcall h 0", "h of b");
    EXPECT(&w, "fcall z 0", "-ERR Function not found");
    EXPECT(&w, "function delete a", "OK");
    at(&w, 2);
    expect_rows(&w, "<b>");
    reopen(&w);
    EXPECT(&w, "fcall h 0", "h of b");
    EXPECT(&w, "function flush", "OK");
    at(&w, 3);
    expect_rows(&w, "");
    world_close(&w);
}

static void put_row(struct world *w, const char *name, const char *code)
{
    struct engine *e = w->region.eng;
    e->ops->meta.put(e, META_FUNCTIONS, bytes_str(name), bytes_str(code));
    at(w, 1);
}

static void expect_not_recalled(struct world *w, const char *why)
{
    struct buf error = {0};
    assert_false(functions_recall(&w->node, w->region.eng, &error));
    buf_append_char(&error, '\0');
    if (!strstr(error.p, why)) fail_msg("'%s' is not in '%s'", why, error.p);
    assert_false(functions_changed(&w->node));
    buf_release(&error);
}

static void damaged_rows_are_refused(void **state UNUSED)
{
    struct world w;
    open_kept(&w);
    put_row(&w, "b", "#!lua name=a\nredis.register_function('f', function() end)");
    expect_not_recalled(&w, "Library a is kept under another name");
    put_row(&w, "a", "nothing");
    expect_not_recalled(&w, "Missing library metadata");
    put_row(&w, "", "nothing");
    expect_not_recalled(&w, "DUMP payload version or checksum are wrong");
    world_close(&w);
}

static void a_change_writes_what_changed(void **state UNUSED)
{
    struct world w;
    open_kept(&w);
    written_by_a_change(&w, 0); /* and the first rows of a new database */
    u64 first = written_by_a_change(&w, 1);
    assert_in_range(first, 1, 1000);
    for (int i = 2; i < 300; i++) assert_int_equal(written_by_a_change(&w, i), first);
    world_close(&w);
}


#define KEPT(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_commits_are_undone),
        cmocka_unit_test(changes_are_journalled),
        cmocka_unit_test(a_sync_brings_its_own),
        cmocka_unit_test(sets_are_what_they_should_be),
        KEPT(kept_sets_are_what_they_should_be),
        KEPT(replaced_sets_are_kept),
        KEPT(one_row_becomes_many),
        KEPT(one_row_is_replaced_once),
        KEPT(one_row_beside_others_counts),
        KEPT(damaged_rows_are_refused),
        KEPT(a_change_writes_what_changed),
    };
    return cmocka_run_group_tests_name("functions", tests, NULL, NULL);
}
