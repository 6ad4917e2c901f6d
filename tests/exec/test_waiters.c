/* Who waits for which key, below the server: lines, ready keys, what is left behind. The order of serving is
 * compared with redis-server in tests/scenarios. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness.h"

struct scene {
    struct world w;
    struct buf told; /* "client:reply …" of the clients served */
};

static void open_scene(struct scene *s)
{
    *s = (struct scene){0};
    world_open(&s->w);
}

static void close_scene(struct scene *s)
{
    struct region *r = &s->w.region;
    assert_int_equal(r->waiters.count, 0);
    assert_int_equal(r->waiters.keys.count, 0);
    assert_null(r->ks.watcher);
    world_close(&s->w);
    buf_release(&s->told);
}

static struct waiting *what_waits(struct scene *s, const char *line)
{
    struct world *w = &s->w;
    run(w, line);
    struct waiting *what = w->outcome.waiting;
    assert_non_null(what);
    assert_int_equal(w->out.n, 1); /* no reply (but the end of the text) */
    w->outcome.waiting = NULL;
    return what;
}

/* Somebody waits by this command. */
static struct waiter *waits(struct scene *s, const char *client, const char *line)
{
    struct waiting *what = what_waits(s, line);
    return waiters_add(&s->w.region, s->w.session.db, what, (void *)(uintptr_t)client);
}

static void await_even_gone(struct scene *s)
{
    struct waiting *what = what_waits(s, "BLPOP k 0");
    what->even_gone = true;
    waiters_add(&s->w.region, 0, what, NULL);
}

static bool serve(void *arg, struct waiter *x, bytes key)
{
    struct scene *s = arg;
    struct buf out = {0};
    struct reply reply = {.out = &out, .proto = 2};
    struct session session = s->w.session;
    struct request q = {&session, NULL, x->what->argc, x->what->argv, &reply};
    struct outcome o;
    session.db = x->db;
    bool served = region_retry(&s->w.region, &q, command_find(x->what->argv[0]), key, &o);
    buf_append_char(&out, '\0');
    assert_int_equal(served, out.n > 1);
    if (served) {
        buf_printf(&s->told, "%s%s:", s->told.n ? " " : "", (const char *)x->client);
        render(&s->told, out.p);
    }
    buf_release(&out);
    return served;
}

/* Runs a command, and serves whom it has something for. */
static const char *then(struct scene *s, const char *line)
{
    buf_clear(&s->told);
    run(&s->w, line);
    assert_null(s->w.outcome.waiting);
    waiters_serve(&s->w.region, serve, s);
    assert_false(s->w.node.keys_ready);
    buf_append_char(&s->told, '\0');
    return s->told.p;
}

static void test_lines(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    waits(&s, "a", "BLPOP k j k 0");
    struct waiter *b = waits(&s, "b", "BRPOP j k 0");
    waits(&s, "c", "BLMPOP 0 1 k LEFT COUNT 5");
    waits(&s, "d", "BZPOPMAX k 0");
    assert_int_equal(s.w.region.waiters.keys.count, 2);
    assert_string_equal(then(&s, "SET k v"), "");
    assert_string_equal(then(&s, "DEL k"), "");
    waiters_remove(b);
    assert_string_equal(then(&s, "RPUSH k 1 2 3"), "a:[k 1] c:[k [2 3]]");
    assert_string_equal(then(&s, "ZADD k 1 x 2 y"), "d:[k y 2]");
    close_scene(&s);
}

/* What made a key ready took longer than the key lives. */
static void test_too_late(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    waits(&s, "a", "BRPOP k 0");
    run(&s.w, "RPUSH k x");
    run(&s.w, "PEXPIRE k 100");
    region_advance(&s.w.region, T0 + 99); /* it lives … */
    assert_int_equal(now_of(&s.w), T0 + 99);
    region_advance(&s.w.region, T0); /* … and time does not go back */
    assert_int_equal(now_of(&s.w), T0 + 99);
    region_advance(&s.w.region, T0 + 100);
    assert_string_equal(then(&s, "PING"), "");
    assert_string_equal(run(&s.w, "EXISTS k"), "0");
    assert_string_equal(journal_text(&s.w), "SELECT 0; RPUSH k x | PEXPIREAT k 1700000000100 | DEL k");
    assert_string_equal(then(&s, "RPUSH k y"), "a:[k y]");
    close_scene(&s);
}

static void test_chain(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    waits(&s, "a", "BLMOVE x y LEFT RIGHT 0");
    waits(&s, "b", "BLPOP z y 0");
    waits(&s, "c", "BRPOPLPUSH x z 0");
    waits(&s, "d", "BLPOP z 0");
    assert_string_equal(then(&s, "RPUSH x 1 2"), "a:1 c:2 b:[y 1] d:[z 2]");
    close_scene(&s);
}

/* Each of those served has a record of its own, which says what it did. */
static void test_records(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    waits(&s, "a", "BLPOP k 0");
    waits(&s, "b", "BLMOVE k d LEFT RIGHT 0");
    then(&s, "RPUSH k 1 2");
    const char *const words[] = {"RPUSH", "LPOP", "LMOVE"};
    assert_int_equal(s.w.journal.n, ARRAY_LEN(words));
    for (u32 i = 0; i < ARRAY_LEN(words); i++) {
        const struct buf *resp = &s.w.journal.v[i].resp;
        assert_int_equal(s.w.journal.v[i].effects, 1);
        assert_non_null(memmem(resp->p, resp->n, words[i], strlen(words[i])));
    }
    close_scene(&s);
}

/* A client that leaves while its key is ready, and a ready key that no client waits for any more. */
static void test_leaving(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    struct waiter *a = waits(&s, "a", "BLPOP k j 0");
    run(&s.w, "RPUSH k 1");
    assert_true(s.w.node.keys_ready);
    waiters_remove(a);
    assert_int_equal(s.w.region.waiters.keys.count, 1); /* it has its turn yet */
    assert_string_equal(then(&s, "RPUSH j 1"), "");
    waits(&s, "b", "BLPOP other 0");
    assert_string_equal(then(&s, "RPUSH other 1"), "b:[other 1]");
    close_scene(&s);
}

static void test_databases(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    waits(&s, "a", "BLPOP k 0");
    run(&s.w, "SELECT 1");
    waits(&s, "b", "BLPOP k 0");
    run(&s.w, "SELECT 2");
    assert_string_equal(then(&s, "RPUSH k 1"), "");
    assert_string_equal(then(&s, "SWAPDB 2 1"), "b:[k 1]");
    run(&s.w, "SELECT 0");
    assert_string_equal(then(&s, "RPUSH k 2"), "a:[k 2]");
    close_scene(&s);
}

/* What SWAPDB brings may be dead: it is deleted, and the wait continues. */
static void test_swapped_in_dead(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    waits(&s, "a", "BLPOP k 0");
    run(&s.w, "SELECT 1");
    run(&s.w, "RPUSH k 1");
    run(&s.w, "PEXPIRE k 100");
    at(&s.w, 100);
    journal_text(&s.w);
    assert_string_equal(then(&s, "SWAPDB 0 1"), "");
    assert_string_equal(journal_text(&s.w), "SWAPDB 0 1 | SELECT 0; DEL k");
    run(&s.w, "SELECT 0");
    assert_string_equal(then(&s, "RPUSH k 2"), "a:[k 2]");
    close_scene(&s);
}

/* A waiter that wants to hear of deletions runs again. (BLPOP then waits on; XREADGROUP replies an error.) */
static u32 tries;

static bool try_it(void *arg UNUSED, struct waiter *x UNUSED, bytes key UNUSED)
{
    return ++tries == 4;
}

static void test_gone(void **state UNUSED)
{
    struct scene s;
    open_scene(&s);
    await_even_gone(&s);
    await_even_gone(&s);
    tries = 0;
    run(&s.w, "SET k v");
    waiters_serve(&s.w.region, try_it, NULL);
    assert_int_equal(tries, 2);
    run(&s.w, "FLUSHALL");
    waiters_serve(&s.w.region, try_it, NULL);
    assert_int_equal(tries, 4); /* and one of them was answered */
    assert_int_equal(s.w.region.waiters.count, 1);
    run(&s.w, "SET k v PX 5");
    at(&s.w, 10);
    assert_string_equal(run(&s.w, "GET k"), "nil");
    assert_true(s.w.node.keys_ready);
    tries = 3;
    waiters_serve(&s.w.region, try_it, NULL);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_too_late),  cmocka_unit_test(test_chain),
        cmocka_unit_test(test_records), cmocka_unit_test(test_leaving),   cmocka_unit_test(test_databases),
        cmocka_unit_test(test_swapped_in_dead), cmocka_unit_test(test_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
