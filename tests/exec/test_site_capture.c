/* Captured writes: commands run on regions that are sites. A captured region answers as another one, and what
 * it tells others makes them the same. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "command/command.h"
#include "exec/dataset.h"
#include "exec/generate.h"
#include "exec/harness.h"
#include "rounds.h"
#include "site/capture.h"
#include "site/sync.h"
#include "unit/rocks_helpers.h"

/* -- sites ------------------------------------------------------------------------------------------ */

#define SITES 3

struct tsite {
    struct world w;
    struct site_capture c;
    struct buf made; /* effects of this site, each with its length */
    u32 effects, parts; /* how many; of these with MOVE_MORE */
    char folder[256]; /* RocksDB's */
    size_t taken[SITES]; /* how far this site has been given the effects of each */
};

static bool on_rocks;

static struct engine *engine_make(struct tsite *t)
{
    if (!on_rocks) return memory_engine_new(DBS, 7);
    assert_true(folder_make(t->folder, sizeof t->folder, "capture"));
    struct rocks_options o = rocks_small(t->folder, DBS);
    return rocks_must_open(&o);
}

static void keep_made(void *arg, const struct site_effect *e)
{
    struct tsite *t = arg;
    struct site_effect parsed;
    const char *why = "";
    if (e->dot.gid != t->c.site.gid) return;
    if (!site_effect_parse(e->all, &parsed, &why)) fail_msg("%s", why);
    assert_true(site_dot_eq(parsed.dot, e->dot));
    assert_int_equal(parsed.more, e->more);
    assert_memory_equal(&parsed.context, &e->context, sizeof parsed.context);
    site_put_bytes(&t->made, e->all);
    t->effects++;
    t->parts += parsed.more;
}

static void tsite_open(struct tsite *t, u8 gid)
{
    static const u8 gids[] = {1, 2, 3};
    memset(t, 0, sizeof *t);
    world_open_on(&t->w, engine_make(t));
    site_capture_open(&t->c, t->w.region.eng, DBS, gid);
    site_found(&t->c.site, gids, SITES);
    site_tick(&t->c.site, T0);
    t->c.site.emit = keep_made;
    t->c.site.emit_arg = t;
}

static void tsite_close(struct tsite *t)
{
    site_capture_release(&t->c);
    world_close(&t->w);
    if (t->folder[0]) folder_remove(t->folder);
    buf_release(&t->made);
}

/* Commits, and begins a tick at this time. */
static void tsite_at(struct tsite *t, i64 ms)
{
    assert_true(region_commit(&t->w.region));
    site_capture_pause(&t->c, t->c.own);
    site_tick(&t->c.site, T0 + ms);
    site_capture_resume(&t->c);
    region_begin(&t->w.region, site_now(&t->c.site));
}

static const char *reply_text(struct world *w)
{
    buf_append_char(&w->out, '\0');
    buf_clear(&w->text);
    if (w->out.n > 1) render(&w->text, w->out.p);
    buf_append_char(&w->text, '\0');
    return w->text.p;
}

static const char *trun(struct tsite *t, const char *line)
{
    const char *reply = run(&t->w, line);
    site_capture_end(&t->c);
    return reply;
}

/* -- effects travel ------------------------------------------------------------------------------------- */

/* The next effect of a site, or all of them; false: there was none. */
static bool deliver(struct tsite *from, struct tsite *to, u32 from_index, u32 count)
{
    struct site_reader r = site_reader_of(buf_bytes(&from->made));
    const char *why = "";
    r.p += to->taken[from_index];
    if (site_left(&r) == 0) return false;
    site_capture_pause(&to->c, to->c.own);
    for (; count > 0 && site_left(&r); count--) {
        enum site_outcome o = site_receive(&to->c.site, site_get_bytes(&r), &why);
        if (o == SITE_REFUSED) fail_msg("refused: %s", why);
    }
    to->taken[from_index] = (size_t)(r.p - from->made.p);
    site_capture_resume(&to->c);
    return true;
}

static void expire_pass(void *arg, u32 db, bytes name) { site_expire_pass(arg, db, name); }

static void housekeeping(struct tsite *t)
{
    struct site *s = &t->c.site;
    site_capture_pause(&t->c, t->c.own);
    for (u32 db = 0; db < DBS; db++) site_each_key(s, db, expire_pass, s);
    site_find_stable(s);
    for (u32 db = 0; db < DBS; db++) {
        struct buf place = {0};
        while (site_collect_some(s, db, &place, 10)) {}
        buf_release(&place);
    }
    site_capture_resume(&t->c);
}

static void add_name(void *arg, u32 db, bytes name)
{
    struct dump_items *l = arg;
    char *copy = mem_alloc(name.n + 1);
    (void)db;
    memcpy(copy, name.p, name.n);
    dump_items_add(l, (struct dump_item){.name = bytes_of(copy, name.n)});
}

/* What shows at a site, and what is kept of it. */
static void state_of(struct tsite *t, bool metadata, struct buf *out)
{
    dataset_dump_as(t->w.region.eng, now_of(&t->w), true, out);
    site_capture_pause(&t->c, t->c.own);
    for (u32 db = 0; metadata && db < DBS; db++) {
        struct dump_items names = {0};
        struct buf dump = {0};
        site_each_key(&t->c.site, db, add_name, &names);
        dump_items_sort(&names);
        for (size_t i = 0; i < names.n; i++) {
            bytes name = names.v[i].name;
            buf_clear(&dump);
            site_put_key(&t->c.site, db, name, &dump);
            bool again = i > 0 && bytes_eq(names.v[i - 1].name, name);
            if (!again && dump.n) {
                buf_printf(out, "%u ", db);
                dump_bytes(out, name);
                dump_bytes(out, buf_bytes(&dump));
                buf_append_char(out, '\n');
            }
        }
        for (size_t i = 0; i < names.n; i++) mem_free((void *)(uintptr_t)names.v[i].name.p);
        mem_free(names.v);
        buf_release(&dump);
    }
    site_capture_resume(&t->c);
    buf_append_char(out, '\0');
}

static void assert_same_text(const struct buf *a, const struct buf *b)
{
    size_t at = 0, line = 0;
    while (at < a->n && at < b->n && a->p[at] == b->p[at]) {
        if (a->p[at] == '\n') line = at + 1;
        at++;
    }
    if (a->n == b->n && at == a->n) return;
    fail_msg("differ at\n  %.300s\n  %.300s", a->p + line, b->p + line);
}

static void assert_same_data(struct world *a, struct world *b, bool shared)
{
    struct buf x = {0}, y = {0};
    dataset_dump_as(a->region.eng, now_of(a), shared, &x);
    dataset_dump_as(b->region.eng, now_of(b), shared, &y);
    buf_append_char(&x, '\0');
    buf_append_char(&y, '\0');
    assert_same_text(&x, &y);
    buf_release(&x);
    buf_release(&y);
}

static void assert_same(struct tsite *a, struct tsite *b, bool metadata)
{
    struct buf x = {0}, y = {0};
    state_of(a, metadata, &x);
    state_of(b, metadata, &y);
    assert_same_text(&x, &y);
    buf_release(&x);
    buf_release(&y);
}

/* -- one site answers as a server without sites -------------------------------------------------------- */

/* The order of keys in a database is chance. */
static bool depends_on_order(bytes name) { return bytes_is(name, "scan") || bytes_is(name, "randomkey"); }

static bool can_be_told(const struct gen *g)
{
    const struct command *cmd = command_find(g->argv[0]);
    if (cmd && cmd->sub_count) cmd = command_find_sub(cmd, g->argv[1]);
    return cmd && !(cmd->flags & CMD_NO_SITE) && !depends_on_order(g->argv[0]);
}

static void gen_told(struct gen *g)
{
    do gen_next(g);
    while (!can_be_told(g));
}

static void show_command(const struct gen *g)
{
    for (int i = 0; i < g->argc; i++) print_message("%.*s ", (int)g->argv[i].n, g->argv[i].p);
    print_message("\n");
}

static void run_both(struct world *plain, struct tsite *t, struct gen *g)
{
    run_argv(plain, g->argc, g->argv);
    run_argv(&t->w, g->argc, g->argv);
    site_capture_end(&t->c);
    if (bytes_eq(buf_bytes(&plain->out), buf_bytes(&t->w.out))) return;
    show_command(g);
    print_message("  %s\n", reply_text(plain));
    fail_msg("captured: %s", reply_text(&t->w));
}

static void same_replies(u64 seed, u32 commands)
{
    struct world plain;
    struct tsite a, b;
    struct gen g = {.rng = seed, .now_ms = T0, .databases = DBS};
    i64 ms = 0;
    tsite_open(&a, 1);
    tsite_open(&b, 2);
    struct tsite nobody = {0};
    world_open_on(&plain, engine_make(&nobody));
    plain.region.eng->gid = 1; /* the same ids of entries */
    for (u32 i = 0; i < commands; i++) {
        gen_told(&g);
        run_both(&plain, &a, &g);
        if (gen_below(&g, 4) == 0) {
            ms += (i64)gen_below(&g, 400);
            g.now_ms = T0 + ms;
            at(&plain, ms);
            tsite_at(&a, ms);
            tsite_at(&b, ms);
        }
        if (gen_below(&g, 3) == 0) deliver(&a, &b, 0, UINT32_MAX);
        if (gen_below(&g, 20) == 0) {
            deliver(&a, &b, 0, UINT32_MAX);
            assert_same_data(&plain, &a.w, false);
            assert_same_data(&plain, &b.w, true);
        }
    }
    assert_true(a.effects > commands / 4);
    gen_release(&g);
    world_close(&plain);
    tsite_close(&a);
    tsite_close(&b);
}

static void test_same_replies(void **state)
{
    (void)state;
    for (u32 round = 0; round < ROUNDS(40); round++) same_replies(round + 1, 600);
}

/* -- three sites become the same -------------------------------------------------------------------------- */

static void run_piece(struct tsite *t, struct gen *g)
{
    bool together = gen_below(g, 4) == 0;
    if (together) run(&t->w, "MULTI");
    for (u64 n = together ? 1 + gen_below(g, 5) : 1; n > 0; n--) {
        gen_told(g);
        run_argv(&t->w, g->argc, g->argv);
        site_capture_end(&t->c);
    }
    if (together) run(&t->w, "EXEC");
    site_capture_end(&t->c);
}

static bool tsites_quiet(struct tsite *t)
{
    for (u32 i = 0; i < SITES; i++)
        for (u32 j = 0; j < SITES; j++)
            if (i != j && t[i].taken[j] < t[j].made.n) return false;
    return true;
}

/* All that was made arrives everywhere; then what is past its deadline goes, and garbage, of which that of an
 * open transaction may be collected by the next one only. */
static void tsites_settle(struct tsite *t, i64 *ms)
{
    u32 quiet = 0;
    for (u32 round = 0; quiet < 3; round++) {
        assert_true(round < 100);

        for (u32 i = 0; i < SITES; i++)
            for (u32 j = 0; j < SITES; j++)
                if (i != j) deliver(&t[j], &t[i], j, UINT32_MAX);
        for (u32 i = 0; i < SITES; i++)
            for (u32 j = 0; j < SITES; j++)
                if (i != j) site_hear(&t[i].c.site, t[j].c.site.gid, &t[j].c.site.clock);
        for (u32 i = 0; i < SITES; i++) housekeeping(&t[i]);
        quiet = tsites_quiet(t) ? quiet + 1 : 0;
        *ms += 1000;
        for (u32 i = 0; i < SITES; i++) tsite_at(&t[i], *ms);
    }
}

static void converge(u64 seed, u32 steps)
{
    struct tsite t[SITES];
    struct gen g = {.rng = seed, .now_ms = T0, .databases = DBS};
    i64 ms = 0;
    for (u32 i = 0; i < SITES; i++) tsite_open(&t[i], (u8)(i + 1));
    for (u32 step = 0; step < steps; step++) {
        u32 i = (u32)gen_below(&g, SITES), j = (u32)gen_below(&g, SITES);
        switch (gen_below(&g, 8)) {
        case 0:
        case 1:
            if (i != j) deliver(&t[j], &t[i], j, 1 + (u32)gen_below(&g, 10));
            break;
        case 2: housekeeping(&t[i]); break;
        case 3:
            ms += (i64)gen_below(&g, gen_below(&g, 5) ? 300 : 3000);
            g.now_ms = T0 + ms;
            for (u32 k = 0; k < SITES; k++) tsite_at(&t[k], ms);
            break;
        default: run_piece(&t[i], &g);
        }
    }
    tsites_settle(t, &ms);
    for (u32 i = 1; i < SITES; i++) assert_same(&t[0], &t[i], true);
    ms += 20000;
    for (u32 i = 0; i < SITES; i++) tsite_at(&t[i], ms);
    tsites_settle(t, &ms);
    for (u32 i = 1; i < SITES; i++) assert_same(&t[0], &t[i], true);
    for (u32 i = 0; i < SITES; i++) tsite_close(&t[i]);
    gen_release(&g);
}

static void test_converge(void **state)
{
    (void)state;
    for (u32 round = 0; round < ROUNDS(on_rocks ? 40 : 200); round++) converge(round + 1, 400);
}

/* -- pieces, refusals, failures ---------------------------------------------------------------------- */

/* What a transaction does arrives in one piece, however its effects had to be cut. */
static void test_pieces(void **state)
{
    (void)state;
    struct tsite a, b;
    struct key_ref ref;
    tsite_open(&a, 1);
    tsite_open(&b, 2);
    assert_string_equal(trun(&a, "SET k 1"), "OK");
    assert_int_equal(a.effects, 1);
    assert_string_equal(trun(&a, "MSET x 1 y 2 z 3"), "OK");
    assert_int_equal(a.effects, 2); /* no part of it has to see another */
    trun(&a, "MULTI"), trun(&a, "SET k 2"), trun(&a, "INCR n"), trun(&a, "DEL k"), trun(&a, "SET k 3");
    assert_string_equal(trun(&a, "EXEC"), "[OK 1 1 OK]");
    assert_int_equal(a.effects, 4); /* DEL has to see the SET before it */
    assert_int_equal(a.parts, 1);
    deliver(&a, &b, 0, 3);
    assert_string_equal(run(&b.w, "GET k"), "1"); /* the last part is missing */
    assert_string_equal(run(&b.w, "GET n"), "nil");
    deliver(&a, &b, 0, 1);
    assert_string_equal(run(&b.w, "GET k"), "3");
    assert_string_equal(run(&b.w, "GET n"), "1");
    assert_string_equal(trun(&a, "EVAL 'for i = 1, 3 do redis.call(\"SET\", \"e\", i) redis.call(\"DEL\", \"e\") end' 0"), "nil");
    assert_int_equal(a.parts, 4); /* … each SET after a DEL joins its effect */
    deliver(&a, &b, 0, UINT32_MAX);
    assert_false(b.w.region.eng->ops->find(b.w.region.eng, 0, BYTES_LIT("e"), &ref));
    assert_same_data(&a.w, &b.w, true);
    tsite_close(&a);
    tsite_close(&b);
}

/* A piece has an end, or who receives it could not hold it. */
static void test_long_piece(void **state)
{
    (void)state;
    struct tsite a, b;
    tsite_open(&a, 1);
    tsite_open(&b, 2);
    trun(&a, "EVAL 'for i = 1, 5000 do redis.call(\"SET\", \"e\", i) end' 0");
    assert_int_equal(a.effects, 5000);
    assert_int_equal(a.parts, 4998);
    deliver(&a, &b, 0, SITE_PIECE_MAX);
    assert_string_equal(run(&b.w, "GET e"), "4096");
    deliver(&a, &b, 0, UINT32_MAX);
    assert_string_equal(run(&b.w, "GET e"), "5000");
    tsite_close(&a);
    tsite_close(&b);
}

/* What can't be told is refused before anything changes; where there are no sites it is not. */
static void test_refused(void **state)
{
    (void)state;
    struct tsite a;
    tsite_open(&a, 1);
    trun(&a, "HSET h f v");
    assert_string_equal(trun(&a, "SWAPDB 0 1"), "-" REGION_NO_SITE);
    trun(&a, "MULTI");
    assert_string_equal(trun(&a, "SWAPDB 0 1"), "-" REGION_NO_SITE);
    trun(&a, "EXEC");
    assert_non_null(strstr(trun(&a, "EVAL 'return redis.call(\"SWAPDB\", 0, 1)' 0"), "not supported"));
    assert_int_equal(a.effects, 1);
    assert_string_equal(trun(&a, "HGET h f"), "v");
    struct world plain;
    world_open(&plain);
    assert_string_equal(run(&plain, "SWAPDB 0 1"), "OK");
    world_close(&plain);
    tsite_close(&a);
}

/* LREM removes while it walks; what follows in the same transaction finds the list as it is then. */
static void test_lrem(void **state)
{
    (void)state;
    struct tsite a, b;
    tsite_open(&a, 1);
    tsite_open(&b, 2);
    trun(&a, "RPUSH l x a x b x c"), trun(&a, "RPUSH m y y");
    trun(&a, "MULTI"), trun(&a, "LREM l -2 x"), trun(&a, "RPUSH l d"), trun(&a, "LREM m 0 y"), trun(&a, "SET m 1");
    assert_string_equal(trun(&a, "EXEC"), "[2 5 2 OK]");
    deliver(&a, &b, 0, UINT32_MAX);
    assert_string_equal(run(&b.w, "LRANGE l 0 -1"), "[x a b c d]");
    assert_string_equal(run(&b.w, "GET m"), "1");
    assert_same(&a, &b, true);
    tsite_close(&a);
    tsite_close(&b);
}

/* -- streams ---------------------------------------------------------------------------------------------- */

struct pair {
    struct tsite a, b;
};

static void said(struct tsite *t, const char *command, const char *want)
{
    run(&t->w, command);
    site_capture_end(&t->c);
    assert_string_equal(reply_text(&t->w), want);
}

static void exchange(struct pair *p)
{
    deliver(&p->a, &p->b, 0, UINT32_MAX);
    deliver(&p->b, &p->a, 1, UINT32_MAX);
    assert_same(&p->a, &p->b, false);
}

/* What tells others the last id, and that a stream is there. */
static void test_streams(void **state)
{
    (void)state;
    struct pair p;
    tsite_open(&p.a, 1);
    tsite_open(&p.b, 2);
    said(&p.a, "XADD k 5-1 f v", "5-1");
    said(&p.a, "XADD k 5-* f v", "5-257");
    said(&p.a, "XDEL k 5-257", "1");
    exchange(&p);
    said(&p.b, "XADD k 5-* f v", "5-258"); /* after the one that is gone */
    said(&p.b, "XSETID k 9-0", "OK");
    exchange(&p);
    said(&p.a, "XDEL k 5-258", "1");
    said(&p.a, "XSETID k 5-258", "OK"); /* lower, and no entry has it */
    exchange(&p);
    said(&p.a, "XSETID k 9-0", "OK");
    said(&p.a, "XADD k 9-1 f v", "9-1");
    said(&p.a, "XSETID k 20-0", "OK");
    said(&p.a, "XSETID k 9-1", "OK"); /* lower, and an entry has it */
    exchange(&p);
    said(&p.b, "XADD k 9-* f v", "9-2");

    said(&p.a, "XADD s 5-1 f v", "5-1"); /* survives a DEL, and is emptied */
    exchange(&p);
    said(&p.a, "DEL s", "1");
    said(&p.b, "XTRIM s MAXLEN 0", "1");
    exchange(&p);
    said(&p.b, "EXISTS s", "0");
    said(&p.a, "XADD s 5-1 f v", "5-1");
    exchange(&p);
    said(&p.a, "DEL s", "1");
    said(&p.b, "XADD s 5-2 f v", "5-2");
    exchange(&p);
    said(&p.a, "MULTI", "OK");
    run(&p.a.w, "XDEL s 5-2");
    said(&p.a, "EXEC", "[1]");
    exchange(&p);
    said(&p.b, "EXISTS s", "1");
    said(&p.b, "XLEN s", "0");

    said(&p.b, "XADD w 5-1 f v", "5-1"); /* an expiry takes it, the site that extended it writes it again */
    said(&p.b, "PEXPIRE w 1000", "1");
    exchange(&p);
    said(&p.b, "PERSIST w", "1");
    said(&p.b, "XADD w 5-2 f v", "5-2");
    tsite_at(&p.a, 5000);
    housekeeping(&p.a);
    deliver(&p.a, &p.b, 0, UINT32_MAX);
    deliver(&p.b, &p.a, 1, 2);
    said(&p.a, "DEL w", "1"); /* has not seen that */
    exchange(&p);
    said(&p.b, "XDEL w 5-1", "1");
    exchange(&p);
    said(&p.a, "EXISTS w", "1");

    said(&p.a, "XGROUP CREATE g all 0 MKSTREAM", "OK"); /* a group is its site's own, the stream is everybody's */
    exchange(&p);
    said(&p.b, "XADD g 5-1 f v", "5-1");
    said(&p.b, "XINFO GROUPS g", "[]");
    exchange(&p);
    said(&p.a, "XREADGROUP GROUP all me COUNT 5 STREAMS g >", "[[g [[5-1 [f v]]]]]");
    u32 before = p.a.effects;
    said(&p.a, "XACK g all 5-1", "1");
    assert_int_equal(p.a.effects, before);
    said(&p.b, "RENAME g h", "OK");
    said(&p.b, "COPY h i", "1");
    exchange(&p);
    said(&p.a, "XINFO GROUPS h", "[]");
    tsite_close(&p.a);
    tsite_close(&p.b);
}

static int memory(void **state)
{
    (void)state;
    on_rocks = false;
    return 0;
}

static int rocks(void **state)
{
    (void)state;
    on_rocks = true;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_replies, memory),
        cmocka_unit_test_setup(test_same_replies, rocks),
        cmocka_unit_test_setup(test_converge, memory),
        cmocka_unit_test_setup(test_converge, rocks),
        cmocka_unit_test_setup(test_pieces, memory),
        cmocka_unit_test_setup(test_long_piece, memory),
        cmocka_unit_test_setup(test_refused, memory),
        cmocka_unit_test_setup(test_lrem, memory),
        cmocka_unit_test_setup(test_lrem, rocks),
        cmocka_unit_test_setup(test_streams, memory),
        cmocka_unit_test_setup(test_streams, rocks),
    };
    return cmocka_run_group_tests_name("site capture", tests, NULL, NULL);
}
