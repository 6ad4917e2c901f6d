/* A node with two regions over two memory engines: which region a request runs in, what stays within one, and
 * what concerns both. The lower half of the slots is region a's ("bar": 5061), the upper half region b's
 * ("foo": 12182). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/key_slot.h"
#include "script/functions.h"
#include "exec/multi.h"
#include "exec/node_sums.h"
#include "exec/route.h"
#include "harness.h"

#define HALF (REGION_SLOTS / 2)

struct pair {
    struct node node;
    struct region a, b;
    struct world w; /* its session and buffers only */
    struct session other;
    struct recorder journal_a, journal_b;
};

static void add_region(struct pair *p, struct region *r, struct recorder *j, u32 from)
{
    region_init(r, &p->node, memory_engine_new(DBS, 7 + from), 42 + from);
    region_map_add(&p->node.regions, r, from, from + HALF - 1);
    j->sink.append = recorder_append;
    journal_attach(&r->journal, &j->sink);
}

static void open_pair(struct pair *p)
{
    *p = (struct pair){0};
    node_init(&p->node, 1);
    p->node.cluster_enabled = true;
    add_region(p, &p->a, &p->journal_a, 0);
    add_region(p, &p->b, &p->journal_b, HALF);
    session_init(&p->w.session, 1, true);
    session_init(&p->other, 2, true);
    node_begin(&p->node, T0);
}

static void close_region(struct pair *p, struct region *r, struct recorder *j)
{
    region_map_remove(&p->node.regions, r);
    region_release(r);
    recorder_clear(j);
    mem_free(j->v);
}

static void close_pair(struct pair *p)
{
    multi_end(&p->w.session);
    multi_end(&p->other);
    assert_int_equal(p->node.watching, 0);
    waiting_free(p->w.outcome.waiting);
    close_region(p, &p->a, &p->journal_a);
    close_region(p, &p->b, &p->journal_b);
    assert_null(p->node.regions.first);
    node_release(&p->node);
    session_release(&p->w.session);
    session_release(&p->other);
    buf_release(&p->w.out);
    buf_release(&p->w.text);
}

static const char *run_as(struct pair *p, struct session *session, const char *line)
{
    struct world *w = &p->w;
    struct request_parser parser;
    bytes argv[128];
    request_parser_init(&parser);
    CHECK(request_split_words(&parser, bytes_str(line)) && parser.argc <= ARRAY_LEN(argv));
    for (u32 i = 0; i < parser.argc; i++) argv[i] = request_arg(&parser, line, i);
    buf_clear(&w->out);
    struct reply reply = {.out = &w->out, .proto = 2};
    struct request q = {session, NULL, (int)parser.argc, argv, &reply};
    waiting_free(w->outcome.waiting);
    region_run(p->node.cluster_enabled ? route_request(&p->node, &q) : p->node.regions.first, &q, &w->outcome);
    request_parser_release(&parser);
    buf_append_char(&w->out, '\0');
    buf_clear(&w->text);
    if (w->out.n > 1) render(&w->text, w->out.p);
    buf_append_char(&w->text, '\0');
    return w->text.p;
}

static const char *ask(struct pair *p, const char *line) { return run_as(p, &p->w.session, line); }

static u64 keys_in(struct region *r) { return r->eng->ops->count(r->eng, 0); }

#define CROSSSLOT "-" ROUTE_CROSSSLOT

/* -- the map --------------------------------------------------------------------------------------- */

static void the_only_region_has_all_slots(void **state UNUSED)
{
    struct world w;
    world_open(&w);
    struct region_map *m = &w.node.regions;
    assert_null(m->of_slot); /* a lone server looks nothing up */
    assert_ptr_equal(region_map_at(m, 0), &w.region);
    assert_ptr_equal(region_map_at(m, REGION_SLOTS - 1), &w.region);
    assert_ptr_equal(region_map_only(m), &w.region);
    assert_ptr_equal(w.region.ks.next, &w.region.ks);
    world_close(&w);
}

static void each_slot_has_its_region(void **state UNUSED)
{
    struct pair p;
    struct region *r;
    u32 seen = 0;
    open_pair(&p);
    const struct region_map *m = &p.node.regions;
    assert_ptr_equal(m->first, &p.a);
    assert_ptr_equal(region_map_at(m, 0), &p.a);
    assert_ptr_equal(region_map_at(m, HALF - 1), &p.a);
    assert_ptr_equal(region_map_at(m, HALF), &p.b);
    assert_ptr_equal(region_map_at(m, REGION_SLOTS - 1), &p.b);
    REGIONS_EACH(m, r) seen += r == &p.a ? 1 : 2;
    assert_int_equal(seen, 3);
    assert_ptr_equal(p.a.ks.next, &p.b.ks);
    assert_ptr_equal(p.b.ks.next, &p.a.ks);
    close_pair(&p);
}

static void slots_move_to_a_new_region(void **state UNUSED)
{
    struct world w;
    struct region half;
    world_open(&w);
    region_init(&half, &w.node, memory_engine_new(DBS, 8), 43);
    region_map_add(&w.node.regions, &half, 100, 199);
    assert_ptr_equal(region_map_at(&w.node.regions, 99), &w.region);
    assert_ptr_equal(region_map_at(&w.node.regions, 100), &half);
    assert_ptr_equal(region_map_at(&w.node.regions, 199), &half);
    assert_ptr_equal(region_map_at(&w.node.regions, 200), &w.region);
    region_map_remove(&w.node.regions, &half);
    assert_null(region_map_at(&w.node.regions, 100));
    assert_ptr_equal(region_map_at(&w.node.regions, 200), &w.region);
    assert_ptr_equal(w.region.ks.next, &w.region.ks);
    region_release(&half);
    world_close(&w);
}

/* -- the slot of a request ---------------------------------------------------------------------------- */

static i32 slot_of(const char *line)
{
    struct request_parser parser;
    bytes argv[128];
    request_parser_init(&parser);
    CHECK(request_split_words(&parser, bytes_str(line)) && parser.argc <= ARRAY_LEN(argv));
    for (u32 i = 0; i < parser.argc; i++) argv[i] = request_arg(&parser, line, i);
    i32 slot = route_slot(command_find(argv[0]), (int)parser.argc, argv);
    request_parser_release(&parser);
    return slot;
}

static void a_region_gives_up_slots(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    region_map_keep(&p.node.regions, &p.a, 10, 99);
    assert_null(region_map_at(&p.node.regions, 9));
    assert_ptr_equal(region_map_at(&p.node.regions, 10), &p.a);
    assert_ptr_equal(region_map_at(&p.node.regions, 99), &p.a);
    assert_null(region_map_at(&p.node.regions, 100));
    assert_ptr_equal(region_map_at(&p.node.regions, HALF), &p.b);
    close_pair(&p);
}

static void slots_of_requests(void **state UNUSED)
{
    static const struct {
        const char *line;
        i32 slot;
    } cases[] = {
        {"GET foo", 12182}, {"SET bar 1 EX 10", 5061}, {"MGET foo foo", 12182}, {"MGET foo bar", SLOT_CROSS},
        {"MGET {foo}1 {foo}2 foo", 12182}, {"MSET {bar}1 foo {bar}2 foo", 5061},
        {"MSET {bar}1 foo {foo}2 foo", SLOT_CROSS}, {"RENAME foo bar", SLOT_CROSS},
        {"SORT foo BY bar STORE {foo}2", 12182}, {"SORT foo STORE bar", SLOT_CROSS},
        {"EVAL return 0", SLOT_NONE}, {"EVAL return x foo", SLOT_NONE}, {"EVAL return 1 foo bar", 12182},
        {"EVAL return 2 foo bar", SLOT_CROSS}, {"XREAD COUNT 1 STREAMS foo {foo} 0 0", 12182},
        {"XREAD STREAMS foo bar 0 0", SLOT_CROSS}, {"DBSIZE", SLOT_NONE}, {"MULTI", SLOT_NONE},
        {"WATCH foo bar", SLOT_CROSS}, {"BLPOP foo {foo}1 0", 12182},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        i32 slot = slot_of(cases[i].line);
        if (slot != cases[i].slot) fail_msg("%s: %d", cases[i].line, slot);
    }
}

static void slots_of_many_keys(void **state UNUSED)
{
    struct buf line = {0};
    buf_append_str(&line, "DEL");
    for (int i = 0; i < 100; i++) buf_printf(&line, " {foo}%d", i);
    buf_append_char(&line, '\0');
    assert_int_equal(slot_of(line.p), 12182);
    line.n--;
    buf_append_str(&line, " bar");
    buf_append_char(&line, '\0');
    assert_int_equal(slot_of(line.p), SLOT_CROSS);
    buf_release(&line);
}

static void joins(void **state UNUSED)
{
    assert_int_equal(route_join(SLOT_NONE, SLOT_NONE), SLOT_NONE);
    assert_int_equal(route_join(SLOT_NONE, 7), 7);
    assert_int_equal(route_join(7, SLOT_NONE), 7);
    assert_int_equal(route_join(7, 7), 7);
    assert_int_equal(route_join(7, 8), SLOT_CROSS);
    assert_int_equal(route_join(SLOT_CROSS, 7), SLOT_CROSS);
    assert_int_equal(route_join(SLOT_CROSS, SLOT_NONE), SLOT_CROSS);
}

/* -- requests ----------------------------------------------------------------------------------------- */

static void requests_reach_the_region_of_their_keys(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    assert_string_equal(ask(&p, "SET bar 1"), "OK");
    assert_ptr_equal(p.w.outcome.region, &p.a);
    assert_true(p.w.outcome.wrote);
    assert_string_equal(ask(&p, "SET foo 2"), "OK");
    assert_ptr_equal(p.w.outcome.region, &p.b);
    assert_string_equal(ask(&p, "GET bar"), "1");
    assert_false(p.w.outcome.wrote);
    assert_string_equal(ask(&p, "GET foo"), "2");
    assert_int_equal(keys_in(&p.a), 1);
    assert_int_equal(keys_in(&p.b), 1);
    assert_int_equal(p.journal_a.n, 1);
    assert_int_equal(p.journal_b.n, 1);
    assert_string_equal(ask(&p, "MGET foo bar"), CROSSSLOT);
    assert_true(p.w.outcome.rejected);
    assert_string_equal(ask(&p, "MGET foo {foo}1"), "[2 nil]");
    assert_string_equal(ask(&p, "GET"), "-ERR wrong number of arguments for 'get' command");
    close_pair(&p);
}

static void slots_that_nobody_has(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    region_map_remove(&p.node.regions, &p.b);
    assert_string_equal(ask(&p, "GET foo"), "-" ROUTE_UNSERVED);
    assert_string_equal(ask(&p, "SET bar 1"), "OK");
    assert_string_equal(ask(&p, "MULTI"), "OK");
    assert_string_equal(ask(&p, "SET foo 1"), "-" ROUTE_UNSERVED);
    assert_string_equal(ask(&p, "EXEC"),
                        "-EXECABORT Transaction discarded because of previous errors.");
    region_map_add(&p.node.regions, &p.b, HALF, REGION_SLOTS - 1);
    close_pair(&p);
}

static void lone_servers_route_nothing(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    p.node.cluster_enabled = false;
    assert_string_equal(ask(&p, "MSET foo 1 bar 2"), "OK");
    assert_int_equal(keys_in(&p.a), 2);
    assert_string_equal(ask(&p, "MULTI"), "OK");
    assert_string_equal(ask(&p, "GET foo"), "QUEUED");
    assert_string_equal(ask(&p, "GET bar"), "QUEUED");
    assert_string_equal(ask(&p, "EXEC"), "[1 2]");
    close_pair(&p);
}

static void what_concerns_all_keys(void **state UNUSED)
{
    struct pair p;
    struct node_sums sums;
    struct forecast f = {.now_ms = T0};
    open_pair(&p);
    ask(&p, "SET foo 1 PX 100");
    ask(&p, "SET bar 1 PX 300");
    ask(&p, "SET {bar}2 1");
    assert_string_equal(ask(&p, "DBSIZE"), "3");
    assert_int_equal(p.w.out.n, 5); /* ":3\r\n" and the end of the text */
    assert_non_null(strstr(ask(&p, "KEYS *"), "foo"));
    assert_non_null(strstr(ask(&p, "KEYS *"), "{bar}2"));
    struct node_db db = node_db(&p.node, 0);
    assert_int_equal(db.keys, 3);
    assert_int_equal(db.expires, 2);
    assert_true(db.mean_deadline > T0 + 199 && db.mean_deadline < T0 + 201);
    node_forecast(&p.node, &f);
    u64 within[FORECAST_HORIZONS];
    forecast_within(&f, within);
    assert_int_equal(within[FORECAST_HORIZONS - 1], 2);
    ask(&p, "GET foo");
    ask(&p, "GET bar");
    ask(&p, "GET nothing");
    node_sum(&p.node, &sums);
    assert_int_equal(sums.stats.hits, 2);
    assert_int_equal(sums.stats.misses, 1);
    size_t before_a = p.journal_a.n, before_b = p.journal_b.n;
    assert_string_equal(ask(&p, "FLUSHALL"), "OK");
    assert_int_equal(keys_in(&p.a) + keys_in(&p.b), 0);
    assert_int_equal(p.journal_a.n, before_a + 1);
    assert_int_equal(p.journal_b.n, before_b + 1);
    assert_non_null(strstr(p.journal_b.v[before_b].resp.p, "flushall"));
    close_pair(&p);
}

static void each_region_expires_by_its_own_clock(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    ask(&p, "SET foo 1 PX 100");
    ask(&p, "SET bar 1 PX 100");
    assert_true(region_commit(&p.a) && region_commit(&p.b));
    region_begin(&p.a, T0 + 2000);
    region_begin(&p.b, T0 + 50);
    assert_string_equal(ask(&p, "EXISTS bar"), "0");
    assert_string_equal(ask(&p, "EXISTS foo"), "1");
    struct region *r;
    REGIONS_EACH(&p.node.regions, r) while (region_expire_step(r)) {}
    assert_int_equal(keys_in(&p.a), 0);
    assert_int_equal(keys_in(&p.b), 1);
    assert_true(region_commit(&p.a) && region_commit(&p.b));
    assert_true(node_settled(&p.node));
    assert_int_equal(node_begin(&p.node, T0 + 2000), T0 + 2000);
    REGIONS_EACH(&p.node.regions, r) while (region_expire_step(r)) {}
    assert_int_equal(keys_in(&p.b), 0);
    assert_false(node_settled(&p.node));
    close_pair(&p);
}

/* -- transactions --------------------------------------------------------------------------------------- */

static void transactions_stay_within_a_slot(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    assert_string_equal(ask(&p, "MULTI"), "OK");
    assert_string_equal(ask(&p, "SET foo 1"), "QUEUED");
    assert_string_equal(ask(&p, "DBSIZE"), "QUEUED"); /* without keys: it fits any slot */
    assert_string_equal(ask(&p, "INCR {foo}n"), "QUEUED");
    assert_string_equal(ask(&p, "EXEC"), "[OK 1 1]");
    assert_ptr_equal(p.w.outcome.region, &p.b);
    assert_int_equal(p.journal_b.n, 1);
    assert_int_equal(p.journal_a.n, 0);

    assert_string_equal(ask(&p, "MULTI"), "OK");
    assert_string_equal(ask(&p, "SET foo 2"), "QUEUED");
    assert_string_equal(ask(&p, "SET bar 2"), "QUEUED");
    assert_string_equal(ask(&p, "EXEC"), CROSSSLOT);
    assert_string_equal(ask(&p, "EXEC"), "-ERR EXEC without MULTI");
    assert_string_equal(ask(&p, "GET foo"), "1");
    assert_string_equal(ask(&p, "GET bar"), "nil");

    assert_string_equal(ask(&p, "MULTI"), "OK");
    assert_string_equal(ask(&p, "MGET foo bar"), CROSSSLOT);
    assert_string_equal(ask(&p, "EXEC"),
                        "-EXECABORT Transaction discarded because of previous errors.");
    assert_string_equal(ask(&p, "MULTI"), "OK");
    assert_string_equal(ask(&p, "EXEC"), "[]");
    close_pair(&p);
}

static void watches_span_regions_and_do_not_leak(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    for (int round = 0; round < 2; round++) {
        assert_string_equal(ask(&p, "WATCH foo"), "OK");
        assert_string_equal(ask(&p, "WATCH bar"), "OK");
        assert_int_equal(p.node.watching, 1);
        assert_int_equal(p.a.watches.keys.count, 1);
        assert_int_equal(p.b.watches.keys.count, 1);
        assert_string_equal(ask(&p, "MULTI"), "OK");
        assert_string_equal(ask(&p, "SET {foo}1 1"), "QUEUED");
        run_as(&p, &p.other, round ? "SET bar changed" : "SET {bar}2 unwatched");
        if (round) assert_int_equal(p.b.watches.keys.count, 0); /* one change ends all its watches */
        assert_string_equal(ask(&p, "EXEC"), round ? "nil" : "[OK]");
        assert_int_equal(p.node.watching, 0);
        assert_int_equal(p.a.watches.keys.count + p.b.watches.keys.count, 0);
    }
    run_as(&p, &p.other, "SET foo 1");
    run_as(&p, &p.other, "SET bar 1");
    assert_null(p.a.ks.watcher);
    assert_null(p.b.ks.watcher);
    close_pair(&p);
}

static void watched_keys_die_by_their_regions_clock(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    ask(&p, "SET bar 1 PX 100");
    ask(&p, "WATCH bar");
    ask(&p, "MULTI");
    ask(&p, "SET foo 1");
    region_begin(&p.b, T0 + 2000);
    assert_string_equal(ask(&p, "EXEC"), "[OK]");
    ask(&p, "WATCH bar");
    ask(&p, "MULTI");
    ask(&p, "SET foo 2");
    region_begin(&p.a, T0 + 2000);
    assert_string_equal(ask(&p, "EXEC"), "nil");
    close_pair(&p);
}

/* -- scripts --------------------------------------------------------------------------------------------- */

#define SETS "\"return redis.call('set', KEYS[1], ARGV[1])\""

static void scripts_stay_within_a_slot(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    assert_string_equal(ask(&p, "EVAL " SETS " 1 foo 1"), "OK");
    assert_ptr_equal(p.w.outcome.region, &p.b);
    assert_string_equal(ask(&p, "EVAL " SETS " 1 bar 2"), "OK"); /* the same cached script */
    assert_int_equal(p.node.scripts->cached, 1);
    assert_int_equal(keys_in(&p.a), 1);
    assert_int_equal(keys_in(&p.b), 1);
    assert_string_equal(ask(&p, "EVAL " SETS " 2 foo bar"), CROSSSLOT);
    assert_non_null(strstr(ask(&p, "EVAL \"return redis.call('get', 'bar')\" 1 foo"), "non local key"));
    assert_non_null(strstr(ask(&p, "EVAL \"return redis.call('get', '{x}1')\" 1 foo"), "same slot"));
    assert_non_null(strstr(ask(&p, "EVAL \"return redis.call('mget', 'foo', 'bar')\" 1 foo"), "same slot"));
    assert_string_equal(ask(&p, "EVAL \"return redis.call('get', 'bar')\" 0"), "2");
    assert_non_null(strstr(ask(&p, "EVAL \"return redis.call('get', 'foo')\" 0"), "non local key"));
    const char *two = "EVAL \"redis.call('get', 'bar') return redis.call('get', 'hello')\" 0";
    assert_non_null(strstr(ask(&p, two), "same slot"));
    assert_string_equal(ask(&p, "EVAL \"return redis.call('dbsize')\" 1 foo"), "2");
    close_pair(&p);
}

static void functions_are_the_nodes(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    assert_string_equal(ask(&p, "FUNCTION LOAD \"#!lua name=l\\nredis.register_function('f', function(k, a) "
                                "return redis.call('incr', k[1]) end)\""), "l");
    assert_true(functions_changed(&p.node));
    assert_true(region_commit(&p.b));
    assert_true(functions_changed(&p.node)); /* the first region keeps them */
    assert_true(region_commit(&p.a));
    assert_false(functions_changed(&p.node));
    node_begin(&p.node, T0);
    assert_string_equal(ask(&p, "FCALL f 1 foo"), "1");
    assert_string_equal(ask(&p, "FCALL f 1 bar"), "1");
    assert_string_equal(ask(&p, "FCALL f 2 foo bar"), CROSSSLOT);
    assert_int_equal(keys_in(&p.a), 1);
    assert_int_equal(keys_in(&p.b), 1);
    close_pair(&p);
}

/* -- waiting for keys ---------------------------------------------------------------------------------------- */

static bool serve_it(void *arg, struct waiter *x, bytes key)
{
    struct pair *p = arg;
    struct buf out = {0};
    struct reply reply = {.out = &out, .proto = 2};
    struct request q = {&p->other, NULL, x->what->argc, x->what->argv, &reply};
    struct outcome o;
    bool served = region_retry(x->region, &q, command_find(x->what->argv[0]), key, &o);
    assert_true(o.wrote == served);
    buf_release(&out);
    return served;
}

static void waiters_hear_of_their_region_only(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    assert_string_equal(run_as(&p, &p.other, "BLPOP foo bar 0"), CROSSSLOT);
    assert_string_equal(run_as(&p, &p.other, "BLPOP foo {foo}1 0"), "");
    assert_ptr_equal(p.w.outcome.region, &p.b);
    waiters_add(p.w.outcome.region, 0, p.w.outcome.waiting, NULL);
    p.w.outcome.waiting = NULL;
    assert_null(p.a.ks.watcher);
    assert_string_equal(ask(&p, "RPUSH bar 1"), "1");
    assert_int_equal(p.node.keys_ready, 0);
    assert_string_equal(ask(&p, "RPUSH {foo}1 1"), "1");
    assert_int_equal(p.node.keys_ready, 1);
    waiters_serve(&p.a, serve_it, &p);
    assert_int_equal(p.node.keys_ready, 1);
    waiters_serve(&p.b, serve_it, &p);
    assert_int_equal(p.node.keys_ready, 0);
    assert_int_equal(p.b.waiters.count, 0);
    assert_int_equal(keys_in(&p.b), 0);
    close_pair(&p);
}

/* As when a split takes keys to another region: here the key was there before. */
static void a_waiter_moves_with_its_keys(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    ask(&p, "BLPOP foo 0");
    struct waiter *w = waiters_add(&p.a, 0, p.w.outcome.waiting, NULL);
    p.w.outcome.waiting = NULL;
    ask(&p, "RPUSH foo x"); /* foo is b's */
    assert_int_equal(p.node.keys_ready, 0);
    w = waiters_move(w, &p.b);
    assert_ptr_equal(w->region, &p.b);
    assert_int_equal(p.a.waiters.count, 0);
    assert_int_equal(p.a.waiters.keys.count, 0);
    assert_int_equal(p.a.listeners, 0);
    ask(&p, "RPUSH foo y");
    assert_int_equal(p.node.keys_ready, 1);
    waiters_serve(&p.b, serve_it, &p);
    assert_int_equal(p.node.keys_ready, 0);
    assert_int_equal(p.b.waiters.count, 0);
    close_pair(&p);
}

/* The region may have another leader, or be split: changes are made elsewhere. */
static void watched_keys_of_a_distrusted_region_have_changed(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    ask(&p, "WATCH absent");
    ask(&p, "WATCH foo");
    watch_distrust(&p.a.watches, 0);
    watch_distrust(&p.b.watches, 0);
    ask(&p, "MULTI");
    ask(&p, "SET foo v");
    assert_string_equal(ask(&p, "EXEC"), "nil");
    close_pair(&p);
}

static void flushing_reaches_all_waiters_and_watches(void **state UNUSED)
{
    struct pair p;
    open_pair(&p);
    ask(&p, "SET bar 1");
    ask(&p, "SET foo 1");
    ask(&p, "WATCH foo");
    run_as(&p, &p.other, "FLUSHALL"); /* runs in region a */
    ask(&p, "MULTI");
    ask(&p, "GET foo");
    assert_string_equal(ask(&p, "EXEC"), "nil");
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_only_region_has_all_slots),
        cmocka_unit_test(each_slot_has_its_region),
        cmocka_unit_test(slots_move_to_a_new_region),
        cmocka_unit_test(a_region_gives_up_slots),
        cmocka_unit_test(slots_of_requests),
        cmocka_unit_test(slots_of_many_keys),
        cmocka_unit_test(joins),
        cmocka_unit_test(requests_reach_the_region_of_their_keys),
        cmocka_unit_test(slots_that_nobody_has),
        cmocka_unit_test(lone_servers_route_nothing),
        cmocka_unit_test(what_concerns_all_keys),
        cmocka_unit_test(each_region_expires_by_its_own_clock),
        cmocka_unit_test(transactions_stay_within_a_slot),
        cmocka_unit_test(watches_span_regions_and_do_not_leak),
        cmocka_unit_test(watched_keys_die_by_their_regions_clock),
        cmocka_unit_test(scripts_stay_within_a_slot),
        cmocka_unit_test(functions_are_the_nodes),
        cmocka_unit_test(waiters_hear_of_their_region_only),
        cmocka_unit_test(a_waiter_moves_with_its_keys),
        cmocka_unit_test(watched_keys_of_a_distrusted_region_have_changed),
        cmocka_unit_test(flushing_reaches_all_waiters_and_watches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
