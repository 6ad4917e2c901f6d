/* Functions and transactions: what a failed commit brings back, what is journalled, what a full sync
 * brings; and that sets of libraries stay what a simple list of them says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rand.h"
#include "exec/functions.h"
#include "harness.h"

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

static bool commit_not(struct engine *e UNUSED, u64 seq UNUSED) { return false; }

/* The memory engine never fails; here it says it did. */
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
    bool ok = functions_load(&w->region, true, buf_bytes(&code), false, 0, NULL, &error);
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
    functions_stage(&w.region);
    assert_true(bring(&w, "a", "g"));
    assert_true(bring(&w, "b", "f"));
    assert_false(bring(&w, "c", "F"));
    EXPECT(&w, "fcall f 0", "f of a");
    at(&w, 2);
    functions_adopt(&w.region);
    fail_commit(&w);
    EXPECT(&w, "fcall f 0", "f of a");
    functions_stage(&w.region);
    assert_true(bring(&w, "a", "g"));
    functions_adopt(&w.region);
    at(&w, 3);
    EXPECT(&w, "fcall g 0", "new");
    EXPECT(&w, "fcall f 0", "-ERR Function not found");
    functions_stage(&w.region);
    assert_true(bring(&w, "z", "z"));
    functions_unstage(&w.region);
    EXPECT(&w, "fcall z 0", "-ERR Function not found");
    functions_stage(&w.region); /* left to world_close */
    assert_true(bring(&w, "z", "z"));
    world_close(&w);
}

/* -- against a model --------------------------------------------------------------------------- */

/* Libraries A to H, each with one function of six names in one of two cases. Some transactions are kept, others are
 * not. */
static void sets_are_what_they_should_be(void **state UNUSED)
{
    struct world w;
    u64 rng = 5;
    int of[8], kept[8]; /* the function each has, and had at the last commit; -1: it is not there */
    world_open(&w);
    for (int i = 0; i < 8; i++) of[i] = kept[i] = -1;
    for (int step = 0; step < 3000; step++) {
        int lib = (int)(rand_next(&rng) % 8), f = (int)(rand_next(&rng) % 6);
        bool replace = rand_next(&rng) % 2, upper = rand_next(&rng) % 2, taken = false;
        char name[2] = {(char)('A' + lib), 0}, function[2] = {(char)((upper ? 'U' : 'u') + f), 0}, line[64];
        for (int i = 0; i < 8; i++) taken |= i != lib && of[i] == f;
        if (rand_next(&rng) % 40 == 0) {
            EXPECT(&w, "function flush", "OK");
            for (int i = 0; i < 8; i++) of[i] = -1;
        } else if (rand_next(&rng) % 3 == 0) {
            snprintf(line, sizeof line, "function delete %s", name);
            EXPECT(&w, line, of[lib] < 0 ? "-ERR Library not found" : "OK");
            of[lib] = -1;
        } else {
            bool refused = taken || (of[lib] >= 0 && !replace);
            assert_int_equal(load(&w, name, function, replace)[0] == '-', refused);
            if (!refused) of[lib] = f;
        }
        if (rand_next(&rng) % 4 == 0) {
            at(&w, step);
            memcpy(kept, of, sizeof of);
        } else if (rand_next(&rng) % 6 == 0) {
            fail_commit(&w);
            memcpy(of, kept, sizeof of);
        }
        snprintf(line, sizeof line, "fcall %c 0", 'U' + f);
        int has = -1;
        for (int i = 0; i < 8; i++) has = of[i] == f ? i : has;
        const char *reply = run(&w, line);
        assert_int_equal(reply[0] == '-', has < 0);
        if (has >= 0) assert_int_equal(reply[strlen(reply) - 1], 'A' + has);
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_commits_are_undone),
        cmocka_unit_test(changes_are_journalled),
        cmocka_unit_test(a_sync_brings_its_own),
        cmocka_unit_test(sets_are_what_they_should_be),
    };
    return cmocka_run_group_tests_name("functions", tests, NULL, NULL);
}
