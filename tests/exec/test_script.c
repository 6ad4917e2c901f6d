/* Scripts in a region: replies, one journal record each that replays to the same data, limits of time and
 * memory with a clock of the test's own, and killing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataset.h"
#include "script/script.h"
#include "generate.h"
#include "harness.h"

/* -- replies ----------------------------------------------------------------------------------- */

static void answers(void **state)
{
    (void)state;
    static const struct {
        const char *command, *reply;
    } cases[] = {
        {"eval 'return 1' 0", "1"},
        {"eval 'return {KEYS[1], ARGV[1], #KEYS, #ARGV}' 1 k a", "[k a 1 1]"},
        {"eval 'return redis.call(\"set\", KEYS[1], ARGV[1])' 1 k v", "OK"},
        {"eval 'return redis.call(\"get\", KEYS[1])' 1 k", "v"},
        {"eval 'return {1, 2.9, \"x\", true, false, {ok=\"fine\"}, nil, 5}' 0", "[1 2 x 1 nil fine]"},
        {"eval 'return redis.error_reply(\"MY error\")' 0", "-MY error"},
        {"eval 'return redis.pcall(\"incr\", KEYS[1])' 1 k", "-ERR value is not an integer or out of range"},
        {"eval_ro 'return redis.pcall(\"set\", \"a\", \"b\")' 0",
         "-ERR Write commands are not allowed from read-only scripts."},
        {"evalsha 0123 0", "-NOSCRIPT No matching script. Please use EVAL."},
        {"script load 'return 1'", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"},
        {"evalsha E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0", "1"},
        {"script kill", "-NOTBUSY No scripts in execution right now."},
        {"eval 'return redis.pcall(\"eval\", \"return 1\", 0)' 0",
         "-ERR This Redis command is not allowed from script"},
    };
    struct world w;
    world_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(run(&w, cases[i].command), cases[i].reply);
    world_close(&w);
}

/* -- the journal ------------------------------------------------------------------------------- */

static void one_record_each(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run(&w, "eval 'for i = 1, 3 do redis.call(\"rpush\", \"l\", i) end return redis.call(\"get\", \"x\")' 0");
    assert_int_equal(w.journal.n, 1);
    assert_int_equal(w.journal.v[0].effects, 3);
    run(&w, "eval 'redis.call(\"select\", 2) redis.call(\"set\", \"x\", 1) error(\"half\")' 0");
    assert_int_equal(w.journal.n, 2);
    assert_int_equal(w.journal.v[1].effects, 1);
    assert_int_equal(w.session.db, 0);
    run(&w, "eval 'return redis.call(\"get\", \"x\")' 0");
    run(&w, "eval 'error(1)' 0");
    run(&w, "script load 'return 2'");
    assert_int_equal(w.journal.n, 2);
    run(&w, "multi");
    run(&w, "eval 'return redis.call(\"incr\", \"n\")' 0");
    run(&w, "eval 'return redis.call(\"incr\", \"n\")' 0");
    assert_string_equal(run(&w, "exec"), "[1 2]");
    assert_int_equal(w.journal.n, 3);
    assert_int_equal(w.journal.v[2].effects, 2);
    world_close(&w);
}

/* Any commands at all from within scripts: what the records say makes the same data. */
static void replays(void **state)
{
    (void)state;
    struct world w, copy;
    struct gen g = {.rng = 99, .now_ms = T0, .databases = DBS};
    world_open(&w);
    for (int i = 0; i < 4000; i++) {
        bytes argv[GEN_MAX_ARGS + 3] = {
            BYTES_LIT("eval"), BYTES_LIT("return redis.call(unpack(ARGV))"), BYTES_LIT("0"),
        };
        if (i % 50 == 0) at(&w, i);
        gen_next(&g);
        memcpy(argv + 3, g.argv, (size_t)g.argc * sizeof *argv);
        run_argv(&w, g.argc + 3, argv);
    }
    assert_true(w.journal.n > 500);
    world_open(&copy);
    for (size_t i = 0; i < w.journal.n; i++)
        assert_int_equal(region_apply(&copy.region, &copy.session, NULL, &w.journal.v[i]), OK);
    struct buf ours = {0}, theirs = {0};
    dataset_dump(w.region.eng, now_of(&w), &ours);
    dataset_dump(copy.region.eng, now_of(&w), &theirs);
    assert_true(ours.n > 1000);
    assert_true(bytes_eq(buf_bytes(&ours), buf_bytes(&theirs)));
    buf_release(&ours);
    buf_release(&theirs);
    gen_release(&g);
    world_close(&copy);
    world_close(&w);
}

/* -- limits ------------------------------------------------------------------------------------ */

/* An owner whose clock advances by a millisecond per read, and that does something when it is asked to
 * serve. */
struct owner {
    struct world w;
    i64 us;
    int served;
    const char *then; /* the command of another client, once it has served five times */
    char answer[256];
    bool ends;
};

static i64 owner_clock(void *arg) { return ((struct owner *)arg)->us += 1000; }
static i64 owner_cpu(void *arg UNUSED) { return 0; }
static i64 owner_busy_cpu(void *arg) { return ((struct owner *)arg)->us += 2000000; }
static i64 owner_late_clock(void *arg) { return ((struct owner *)arg)->us += 10000000; }

static void owner_serve(void *arg)
{
    struct owner *o = arg;
    assert_non_null(script_busy_error(&o->w.node));
    if (++o->served < 5) return;
    if (o->ends) o->w.node.script->stopped = o->w.node.script->dropped = true;
    if (!o->then) return;
    struct session other;
    struct buf out = {0};
    struct reply reply = {.out = &out, .proto = 2};
    bytes argv[] = {BYTES_LIT("script"), BYTES_LIT("kill")};
    struct outcome outcome;
    session_init(&other, 2, true);
    struct request get = {&other, NULL, 1, (bytes[]){BYTES_LIT("dbsize")}, &reply};
    region_run(&o->w.region, &get, &outcome);
    assert_true(outcome.rejected && memcmp(out.p, "-BUSY ", 6) == 0);
    buf_clear(&out);
    struct request q = {&other, NULL, 2, argv, &reply};
    region_run(&o->w.region, &q, &outcome);
    snprintf(o->answer, sizeof o->answer, "%.*s", (int)MIN(out.n, 100u), out.p);
    buf_release(&out);
    session_release(&other);
}

static void open_owner(struct owner *o)
{
    *o = (struct owner){0};
    world_open(&o->w);
    o->w.node.owner = o;
    o->w.node.host = (struct script_host){
        .now_us = owner_clock, .serve = owner_serve, .busy_after_ms = 10, .memory = 8u << 20,
    };
}

static void is_killed(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o);
    o.then = "script kill";
    const char *reply = run(&o.w, "eval 'while true do pcall(function() while true do end end) end' 0");
    assert_memory_equal(reply, "-ERR Script killed by user with SCRIPT KILL...", 45);
    assert_string_equal(o.answer, "+OK\r\n");
    assert_int_equal(o.served, 5);
    assert_null(o.w.node.script);
    assert_string_equal(run(&o.w, "eval 'return 7' 0"), "7");
    world_close(&o.w);
}

static void is_not_killed_when_it_wrote(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o);
    o.then = "script kill";
    const char *reply = run(&o.w, "eval 'redis.call(\"set\", \"a\", 1) for i = 1, 3e6 do end return 5' 0");
    assert_string_equal(reply, "5");
    assert_memory_equal(o.answer, "-UNKILLABLE ", 12);
    assert_int_equal(o.w.journal.n, 1);
    assert_int_equal(o.w.journal.v[0].effects, 1);
    world_close(&o.w);
}

/* The server ends: nothing of what the script has done goes anywhere. */
static void is_stopped(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o);
    o.ends = true;
    const char *reply =
        run(&o.w, "eval 'redis.call(\"set\", \"a\", 1) while true do pcall(loadstring, \"x\") end' 0");
    assert_memory_equal(reply, "-ERR the server is shutting down", 32);
    assert_int_equal(o.w.journal.n, 0);
    world_close(&o.w);
}

/* A process that had no turn for seconds has not compiled for seconds. */
static void compiling_is_limited_by_cpu_time(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o);
    o.w.node.host.busy_after_ms = 0;
    o.w.node.host.now_us = owner_late_clock;
    o.w.node.host.cpu_us = owner_cpu;
    assert_string_equal(run(&o.w, "eval 'return 7' 0"), "7");
    o.w.node.host.cpu_us = owner_busy_cpu;
    assert_non_null(strstr(run(&o.w, "eval 'return 8' 0"), "it takes too long to compile"));
    assert_string_equal(run(&o.w, "eval 'return 7' 0"), "7"); /* compiled before */
    world_close(&o.w);
}

/* o->us after the script's start, however often it is asked. */
static i64 owner_elapsed(void *arg)
{
    const struct owner *o = arg;
    const struct script_run *run = o->w.node.script;
    return 1000000 + (run && run->start_us ? o->us : 0);
}

/* Whether TIME moves in a script that has run for so long. The time of day is real: it moves for certain while a
 * script asks for it many times. */
static const char *time_of_a_script(struct owner *o, i64 busy_after_ms, i64 elapsed_us, int calls)
{
    char line[256];
    o->w.node.host.busy_after_ms = busy_after_ms;
    o->us = elapsed_us;
    snprintf(line, sizeof line,
             "eval 'local function now() return table.concat(redis.call(\"time\"), \".\") end local t = now() "
             "for i = 1, %d do if now() ~= t then return \"moves\" end end return \"stands still\"' 0", calls);
    return run(&o->w, line);
}

static void time_moves_when_a_script_takes_long(void **state)
{
    (void)state;
    struct owner o;
    open_owner(&o);
    o.w.node.host.now_us = owner_elapsed;
    o.w.node.host.serve = NULL;
    assert_string_equal(time_of_a_script(&o, 0, 0, 2000), "stands still");
    assert_string_equal(time_of_a_script(&o, 0, 4999999, 2000), "stands still");
    assert_string_equal(time_of_a_script(&o, 0, 5000000, 10000000), "moves"); /* no threshold: Redis's default */
    assert_string_equal(time_of_a_script(&o, 7000, 6999999, 2000), "stands still");
    assert_string_equal(time_of_a_script(&o, 7000, 7000000, 10000000), "moves");
    world_close(&o.w);
}

static void memory_is_limited(void **state)
{
    (void)state;
    static const char *const bombs[] = {
        "eval 'return #string.rep(\"x\", 1e8)' 0",
        "eval 'local t = {} while true do t[#t + 1] = {} end' 0",
        "eval 'local s = \"x\" while true do s = s .. s end' 0",
    };
    struct owner o;
    open_owner(&o);
    o.w.node.host.busy_after_ms = 0;
    for (size_t i = 0; i < ARRAY_LEN(bombs); i++) {
        assert_non_null(strstr(run(&o.w, bombs[i]), "not enough memory"));
        assert_true(o.w.node.scripts->vm.used < 64u << 20);
    }
    assert_string_equal(run(&o.w, "eval 'collectgarbage() return redis.call(\"echo\", \"x\")' 0"), "x");
    assert_true(o.w.node.scripts->vm.used < 2u << 20);
    run(&o.w, "script flush");
    assert_null(o.w.node.scripts);
    world_close(&o.w);
}

/* The same seed gives the same numbers. */
static void chance_is_an_input(void **state)
{
    (void)state;
    struct world a, b;
    char first[64];
    world_open(&a);
    world_open(&b);
    snprintf(first, sizeof first, "%s", run(&a, "eval 'return math.random(2^30)' 0"));
    assert_string_equal(run(&b, "eval 'return math.random(2^30)' 0"), first);
    assert_string_not_equal(run(&b, "eval 'return math.random(2^30)' 0"), first);
    world_close(&a);
    world_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers), cmocka_unit_test(one_record_each), cmocka_unit_test(replays),
        cmocka_unit_test(is_killed), cmocka_unit_test(is_not_killed_when_it_wrote),
        cmocka_unit_test(is_stopped), cmocka_unit_test(compiling_is_limited_by_cpu_time),
        cmocka_unit_test(time_moves_when_a_script_takes_long), cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(chance_is_an_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
