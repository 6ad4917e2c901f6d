/* Regions that are sites: what a tick does, what a failed commit takes back, expiry, and what is left after a
 * restart. Sites are connected by links in memory, on both engines. Each has a follower that gets its journal,
 * as a replica or an AOF does: it must have the same data and metadata, byte for byte, at any moment. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "exec/harness.h"
#include "exec/region_site.h"
#include "persist/saver.h"
#include "rounds.h"
#include "site/sync.h"
#include "unit/rdb_helpers.h"
#include "unit/rocks_helpers.h"

#define SITES_MAX 3
#define BACKLOG (1u << 20)
#define DOTS_MAX 4096

static u64 seed = 1;

static u32 below(u32 n) { return (u32)rand_below(&seed, n); }

/* -- sites ------------------------------------------------------------------------------------------- */

struct pipe {
    struct buf sent;
    struct request_parser parser;
};

struct ends { /* site `asks` has connected to site `serves` */
    bool up;
    struct site_link asks, serves;
    struct pipe to_server, to_client;
};

struct place { /* of a site: what survives it */
    char folder[256];
    struct engine *memory;
    struct buf history; /* its journal, as a file of commands … */
    size_t kept;        /* … of which so much was committed */
    u64 sent[DOTS_MAX]; /* a hash of each effect that it ever sent, by number */
};

static struct world *sites[SITES_MAX];
static struct place places[SITES_MAX];
static struct ends ends[SITES_MAX][SITES_MAX];
static u32 count;
static u64 boot;            /* of the machine that sites start on … */
static bool synced;         /* … and whether their commits are */
static const char *refused; /* why the last link ended that was refused */
static bool on_rocks;
static i64 time_ms;

static struct region *region_of(u32 i) { return &sites[i]->region; }
static struct region_site *site_of(u32 i) { return sites[i]->region.site; }

static struct engine *engine_for(u32 i)
{
    struct rocks_options o = rocks_small(places[i].folder, DBS);
    return on_rocks ? rocks_must_open(&o) : memory_engine_new(DBS, i + 1);
}

static void append_records(u32 i)
{
    struct recorder *j = &sites[i]->journal;
    for (size_t k = 0; k < j->n; k++) buf_append_bytes(&places[i].history, buf_bytes(&j->v[k].resp));
    recorder_clear(j);
}

/* Runs a history in a region that follows, as a file (region_replay) or as a primary's stream. */
static void run_history(struct world *to, bytes in, bool as_stream)
{
    struct request_parser p;
    struct request_limits limits = {.max_bulk = INT32_MAX};
    request_parser_init(&p);
    while (in.n) {
        size_t used;
        struct outcome o;
        bytes argv[1024];
        assert_int_equal(request_parse(&p, &limits, in, &used), OK);
        assert_true(p.argc && p.argc <= ARRAY_LEN(argv));
        for (u32 i = 0; i < p.argc; i++) argv[i] = request_arg(&p, in.p, i);
        buf_clear(&to->out);
        struct reply reply = {.out = &to->out, .proto = 2};
        struct request q = {&to->session, NULL, (int)p.argc, argv, &reply};
        bool bracket = bytes_is(argv[0], "multi") || bytes_is(argv[0], "exec");
        if (bytes_is(argv[0], "select")) to->session.db = (u32)(argv[1].p[0] - '0');
        else if (as_stream && !bracket) region_follow(&to->region, &q, &o);
        else if (!bracket) region_replay(&to->region, &q, &o);
        if (!bracket && !bytes_is(argv[0], "select")) {
            if (o.rejected || o.failed)
                print_error("%.*s: %.*s\n", (int)argv[0].n, argv[0].p, (int)to->out.n, to->out.p);
            assert_false(o.rejected || o.failed);
        }
        in = bytes_of(in.p + used, in.n - used);
    }
    request_parser_release(&p);
}

static struct world *follower_new(u8 gid, struct engine *e)
{
    struct world *w = mem_alloc(sizeof *w);
    const char *why;
    world_open_on(w, e);
    w->node.boot = boot;
    w->node.synced = synced;
    journal_detach(&w->region.journal, &w->journal.sink);
    assert_true(region_commit(&w->region));
    assert_true(region_site_follow(&w->region, gid, &why));
    w->region.mode = EXPIRY_REPLICA;
    region_follow_begin(&w->region);
    return w;
}

static void world_drop(struct world *w)
{
    if (w) world_close(w);
    mem_free(w);
}

/* A site that starts: on what its engine has, or from its history. */
static void site_start(u32 i)
{
    const char *why = "";
    u8 gid = (u8)(i + 1), gids[] = {1, 2, 3};
    struct engine *e = engine_for(i);
    struct world *w;
    if (on_rocks || !places[i].kept) {
        w = mem_alloc(sizeof *w);
        world_open_on(w, e);
        w->node.boot = boot;
        w->node.synced = synced;
    } else {
        w = follower_new(gid, e);
        run_history(w, bytes_of(places[i].history.p, places[i].kept), false);
        journal_attach(&w->region.journal, &w->journal.sink);
    }
    assert_true(region_commit(&w->region));
    sites[i] = w;
    if (!region_site_open(&w->region, gid, BACKLOG, &why)) fail_msg("%s", why);
    w->region.mode = EXPIRY_SITE;
    region_begin(&w->region, time_ms);
    if (!w->region.site->fresh) return;
    region_site_found(&w->region, gids, count);
}

static void link_cut(struct ends *x)
{
    if (!x->up) return;
    site_link_release(&x->asks);
    site_link_release(&x->serves);
    request_parser_release(&x->to_server.parser);
    request_parser_release(&x->to_client.parser);
    buf_release(&x->to_server.sent);
    buf_release(&x->to_client.sent);
    *x = (struct ends){0};
}

static void cut_all(u32 i)
{
    for (u32 j = 0; j < count; j++) {
        link_cut(&ends[i][j]);
        link_cut(&ends[j][i]);
    }
}

static void link_up(u32 i, u32 j)
{
    struct ends *x = &ends[i][j];
    if (x->up || i == j || !sites[i] || !sites[j]) return;
    x->up = true;
    request_parser_init(&x->to_server.parser);
    request_parser_init(&x->to_client.parser);
    site_link_serve(&x->serves, region_site_of(region_of(j)), &site_of(j)->backlog);
    site_link_ask(&x->asks, region_site_of(region_of(i)), &site_of(i)->backlog, (u8)(j + 1), false,
                  &x->to_server.sent);
}

/* Messages of `from` are taken by site `i`. */
static bool carry(struct pipe *from, u32 i, struct site_link *to, struct buf *answers)
{
    static const struct request_limits limits = {.max_bulk = 512 << 20};
    bool on = true;
    size_t at = 0;
    while (on && at < from->sent.n) {
        bytes argv[8];
        size_t used;
        bytes in = bytes_of(from->sent.p + at, from->sent.n - at);
        assert_int_equal(request_parse(&from->parser, &limits, in, &used), OK);
        assert_true(from->parser.argc <= ARRAY_LEN(argv));
        for (u32 k = 0; k < from->parser.argc; k++) argv[k] = request_arg(&from->parser, in.p, k);
        on = region_site_take(region_of(i), to, argv, from->parser.argc, answers);
        while (on && to->state == LINK_MERGE) {
            region_site_enter(region_of(i));
            on = site_link_step(to, 1 + below(100), answers);
            region_site_leave(region_of(i));
        }
        at += used;
    }
    buf_clear(&from->sent);
    return on;
}

/* Every dot means one effect, for ever. */
static void note_sent(u32 i)
{
    struct site_backlog *b = &site_of(i)->backlog;
    struct site_clock none = {0};
    u64 number = b->number;
    bytes raw;
    bool lost;
    while (site_backlog_next(b, &none, &number, &raw, &lost)) {
        struct site_effect e;
        const char *why;
        assert_true(site_effect_parse(raw, &e, &why));
        u64 *had = &places[e.dot.gid - 1].sent[e.dot.seq % DOTS_MAX], is = hash_bytes(raw, 7) | 1;
        assert_true(e.dot.seq < DOTS_MAX);
        if (*had && *had != is)
            fail_msg("dot %u:%llu was used twice", e.dot.gid, (unsigned long long)e.dot.seq);
        *had = is;
    }
}

/* Ends a tick. A commit that fails leaves nothing, and all links of the site break. */
static bool site_commit_tick(u32 i, bool fails)
{
    struct region *r = region_of(i);
    region_end_record(r);
    r->doomed |= fails;
    bool kept = region_commit(r);
    assert_int_equal(kept, !fails);
    if (kept) {
        append_records(i);
        places[i].kept = places[i].history.n;
        note_sent(i);
    } else {
        recorder_clear(&sites[i]->journal);
        r->journal.db = -1;
        cut_all(i);
    }
    region_begin(r, time_ms);
    return kept;
}

static void link_step(u32 i, u32 j)
{
    struct ends *x = &ends[i][j];
    if (!x->up) return;
    struct buf to_client = {0}, to_server = {0};
    bool on = carry(&x->to_server, j, &x->serves, &to_client);
    if (!site_commit_tick(j, false)) return;
    on = on && site_link_feed(&x->serves, 1 << 16, &to_client);
    buf_append_bytes(&x->to_client.sent, buf_bytes(&to_client));
    on = on && carry(&x->to_client, i, &x->asks, &to_server);
    site_commit_tick(i, false);
    on = on && site_link_feed(&x->asks, 1 << 16, &to_server);
    buf_append_bytes(&x->to_server.sent, buf_bytes(&to_server));
    buf_release(&to_client);
    buf_release(&to_server);
    if (!on) {
        const char *why = x->serves.why ? x->serves.why : x->asks.why;
        refused = why;
        link_cut(x);
    }
}

static void all_start(u32 n, bool rocks)
{
    count = n;
    refused = NULL;
    boot = synced = 0;
    on_rocks = rocks;
    time_ms = T0;
    for (u32 i = 0; i < n; i++) {
        places[i] = (struct place){0};
        if (rocks) assert_true(folder_make(places[i].folder, sizeof places[i].folder, "site"));
    }
    for (u32 i = 0; i < n; i++) {
        site_start(i);
        site_commit_tick(i, false);
    }
}

static void all_end(void)
{
    for (u32 i = 0; i < count; i++) {
        cut_all(i);
        world_drop(sites[i]);
        sites[i] = NULL;
        if (on_rocks) folder_remove(places[i].folder);
        buf_release(&places[i].history);
    }
}

static void connect_all(void)
{
    for (u32 i = 0; i < count; i++)
        for (u32 j = 0; j < count; j++) link_up(i, j);
}

static void exchange(u32 rounds)
{
    for (u32 n = 0; n < rounds; n++)
        for (u32 i = 0; i < count; i++)
            for (u32 j = 0; j < count; j++) link_step(i, j);
}

static void to_time(i64 ms)
{
    time_ms = ms;
    for (u32 i = 0; i < count; i++) site_commit_tick(i, false);
}

/* -- what a site has ------------------------------------------------------------------------------------ */

struct digest {
    struct region *r;
    bool raw; /* companions as they are stored; otherwise what sites have in common */
    struct buf *to;
    struct buf names;
};

static int name_cmp(const void *a, const void *b) { return bytes_cmp(*(const bytes *)a, *(const bytes *)b); }

static void digest_name(void *arg, u32 db UNUSED, bytes name)
{
    struct digest *d = arg;
    site_put_bytes(&d->names, name);
}

static void digest_key(struct digest *d, u32 db, bytes name)
{
    struct engine *e = d->r->eng;
    struct site_log log = {0};
    struct buf from = {0};
    struct key_ref ref;
    site_put_bytes(d->to, name);
    bool there = e->ops->find(e, db, name, &ref);
    if (!there) ref.key = name;
    site_put_u8(d->to, there ? (u8)ref.type : 0);
    site_put_u64(d->to, there ? (u64)ref.deadline_ms : 0);
    while (d->raw && site_log_companion(&log, e, &ref, &from, 1 << 20)) {}
    buf_append_bytes(d->to, buf_bytes(&log.ops));
    site_put_key(region_site_of(d->r), db, name, d->to);
    site_log_release(&log);
    buf_release(&from);
}

/* Data and metadata, in order of names, and the clock. */
static void digest_as(struct region *r, bool raw, struct buf *to)
{
    struct digest d = {.r = r, .raw = raw, .to = to};
    struct site *s = region_site_of(r);
    const struct engine_ops *ops = r->eng->ops;
    buf_clear(to);
    r->eng->ops = r->site->tables.engine;
    site_put_clock(to, &s->clock);
    site_put_varint(to, s->position);
    for (u32 g = 1; g < SITE_GIDS; g++)
        if (s->members[g].in) site_put_dot(to, s->members[g].dot);
    for (u32 db = 0; db < DBS; db++) {
        bytes sorted[4096];
        size_t n = 0;
        buf_clear(&d.names);
        site_each_key(s, db, digest_name, &d);
        for (struct site_reader names = site_reader_of(buf_bytes(&d.names)); site_left(&names);) {
            assert_true(n < ARRAY_LEN(sorted));
            sorted[n++] = site_get_bytes(&names);
        }
        qsort(sorted, n, sizeof *sorted, name_cmp);
        for (size_t i = 0; i < n; i++)
            if (i == 0 || !bytes_eq(sorted[i], sorted[i - 1])) digest_key(&d, db, sorted[i]);
    }
    r->eng->ops = ops;
    buf_release(&d.names);
}

static void digest_of(struct region *r, struct buf *to) { digest_as(r, true, to); }

static void show_bytes(const struct buf *b, size_t from, size_t to)
{
    for (size_t i = from; i < MIN(to, b->n); i++) {
        u8 c = (u8)b->p[i];
        print_error("%02x%c", c, c > 32 && c < 127 ? c : ' ');
    }
    print_error("\n");
}

static void expect_bytes(const struct buf *x, const struct buf *y)
{
    size_t at = 0;
    if (bytes_eq(buf_bytes(x), buf_bytes(y))) return;
    while (at < x->n && at < y->n && x->p[at] == y->p[at]) at++;
    print_error("differs at %zu of %zu, %zu\n", at, x->n, y->n);
    show_bytes(x, at > 60 ? at - 60 : 0, at + 60);
    show_bytes(y, at > 60 ? at - 60 : 0, at + 60);
    fail();
}

static void expect_same(struct region *a, struct region *b, bool raw)
{
    struct buf x = {0}, y = {0};
    digest_as(a, raw, &x);
    digest_as(b, raw, &y);
    expect_bytes(&x, &y);
    buf_release(&x);
    buf_release(&y);
}

/* A follower of a site's whole history has what the site has. */
static void expect_followed(u32 i, bool as_stream)
{
    struct world *w = follower_new((u8)(i + 1), memory_engine_new(DBS, 99));
    run_history(w, bytes_of(places[i].history.p, places[i].kept), as_stream);
    expect_same(region_of(i), &w->region, true);
    world_drop(w);
}

/* -- files --------------------------------------------------------------------------------------------- */

/* A file of a site that is being written while the site goes on. */
struct save {
    u32 site;
    bool commands;
    struct saver *saver;
    struct memory_sink sink;
    struct buf moment; /* what the site had when it began */
};

static bool any_dead(void *arg UNUSED, u32 db UNUSED, bytes key UNUSED, i64 ms UNUSED) { return true; }

static bool save_begin(struct save *s, u32 i, bool commands)
{
    struct saver_options o = {.commands = commands, .with_dead = true, .checksum = true};
    *s = (struct save){.site = i, .commands = commands};
    memory_sink_init(&s->sink);
    digest_of(region_of(i), &s->moment);
    s->saver = saver_begin(&region_of(i)->ks, &o, &s->sink.sink);
    return s->saver != NULL;
}

static void load_rdb(struct world *w, bytes file, u32 db_base)
{
    struct memory_source source = {.source.read = memory_source_read, .left = file};
    struct rdb_policy policy = {
        .load_dead = any_dead, .checksum = true, .site = &w->region, .db_base = db_base};
    struct rdb_loader l;
    rdb_loader_init(&l, &w->region.ks, &source.source, file.n, &policy);
    err e = rdb_loader_step(&l, UINT64_MAX);
    if (e) fail_msg("%s", l.error);
    rdb_loader_release(&l);
}

/* As a full sync does: into the staging databases, which then change places with what there was. */
static void load_as_sync(struct world *w, bytes file)
{
    const struct engine_ops *ops = region_engine_ops(w->region.eng);
    struct engine *e = w->region.eng;
    run_all(w, "SET old 1;SET a 2");
    load_rdb(w, file, DBS);
    for (u32 db = 0; db < DBS; db++) e->ops->swap(e, db, db + DBS);
    for (u32 db = DBS; db < 2 * DBS; db++) ops->flush(e, db);
    region_site_adopt_staged(&w->region, true);
}

static void save_check(struct save *s, u32 how)
{
    struct buf got = {0};
    struct world *w = follower_new((u8)(s->site + 1), memory_engine_new(DBS, 5));
    bytes file = buf_bytes(&s->sink.file);
    if (s->commands) run_history(w, file, false);
    else if (how) load_as_sync(w, file);
    else load_rdb(w, file, 0);
    digest_of(&w->region, &got);
    expect_bytes(&s->moment, &got);
    world_drop(w);
    buf_release(&got);
    buf_release(&s->moment);
    buf_release(&s->sink.file);
    s->saver = NULL;
}

static void save_end(struct save *s, u32 how)
{
    while (!saver_step(s->saver, 1000)) {}
    assert_false(saver_failed(s->saver));
    saver_free(s->saver);
    save_check(s, how);
}

/* SAVE. */
static void save_now(u32 i)
{
    struct saver_options o = {.with_dead = true, .checksum = true};
    struct save s = {.site = i};
    memory_sink_init(&s.sink);
    digest_of(region_of(i), &s.moment);
    assert_true(saver_save_now(&region_of(i)->ks, &o, &s.sink.sink));
    save_check(&s, below(2));
}

/* -- tests ------------------------------------------------------------------------------------------------- */

static void expect(u32 i, const char *command, const char *reply)
{
    const char *got = run(sites[i], command);
    if (strcmp(got, reply) != 0) fail_msg("site %u, %s: %s, not %s", i + 1, command, got, reply);
}

static void test_writes_reach_others(bool rocks)
{
    all_start(2, rocks);
    connect_all();
    exchange(3);
    expect(0, "SET k v PX 1000", "OK");
    expect(0, "HSET h f 1", "1");
    expect(0, "RPUSH l a b c", "3");
    assert_int_equal(site_of(0)->backlog.n, 0); /* not before the commit */
    site_commit_tick(0, false);
    assert_int_equal(site_of(0)->backlog.n, 3);
    exchange(3);
    expect(1, "GET k", "v");
    expect(1, "PTTL k", "1000");
    expect(1, "HGET h f", "1");
    expect(1, "LRANGE l 0 -1", "[a b c]");
    expect_followed(0, false);
    expect_followed(1, true);
    all_end();
}

static void test_a_failed_commit_takes_all_back(bool rocks)
{
    struct buf before = {0}, after = {0};
    if (!rocks) return; /* nothing fails in memory */
    all_start(2, rocks);
    connect_all();
    exchange(3);
    expect(0, "SET k v", "OK");
    site_commit_tick(0, false);
    expect(1, "SET other v", "OK");
    site_commit_tick(1, false);
    digest_of(region_of(0), &before);
    u64 lost = site_of(0)->lost, n = site_of(0)->backlog.n;
    expect(0, "SET k w", "OK");
    expect(0, "SET k2 w", "OK");
    carry(&ends[0][1].to_client, 0, &ends[0][1].asks, &ends[0][1].to_server.sent);
    site_commit_tick(0, true);
    digest_of(region_of(0), &after);
    assert_true(bytes_eq(buf_bytes(&before), buf_bytes(&after)));
    assert_int_equal(site_of(0)->lost, lost + 1);
    assert_int_equal(site_of(0)->backlog.n, n);
    expect(0, "GET k", "v");
    expect(0, "SET k x", "OK");
    site_commit_tick(0, false);
    connect_all();
    exchange(4);
    expect(1, "GET k", "x");
    expect(0, "GET other", "v");
    expect_followed(0, false);
    all_end();
    buf_release(&before);
    buf_release(&after);
}

static u64 keys_of(u32 i) { return region_of(i)->eng->ops->count(region_of(i)->eng, 0); }

#define DUE 128 /* when the memory engine offers what is due at 100: the end of its bucket */

static void test_the_owner_deletes_first(bool rocks)
{
    all_start(2, rocks);
    connect_all();
    expect(0, "SET mine v PX 100", "OK");
    site_commit_tick(0, false);
    exchange(3);
    to_time(T0 + 100);
    expect(0, "GET mine", "nil"); /* hidden on both sites at once */
    expect(1, "GET mine", "nil");
    assert_int_equal(keys_of(0), 1);
    to_time(T0 + DUE);
    while (region_expire_step(region_of(1))) {}
    assert_int_equal(keys_of(1), 1); /* it is not the owner */
    i64 next = region_site_next_due(region_of(1));
    assert_true(next > T0 + DUE && next <= T0 + 600);
    while (region_expire_step(region_of(0))) {}
    assert_int_equal(keys_of(0), 0);
    assert_int_equal(region_of(0)->ks.stats.expired_keys, 1);
    site_commit_tick(0, false);
    exchange(3);
    assert_int_equal(keys_of(1), 0);
    assert_int_equal(region_of(1)->ks.stats.expired_keys, 1); /* it is an expiry there, too */
    expect_followed(0, false);
    expect_followed(1, false);
    all_end();
}

static void test_others_delete_after_a_while(bool rocks)
{
    all_start(2, rocks);
    connect_all();
    for (u32 i = 0; i < 200; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET k%u v PX 100", i);
        expect(0, line, "OK");
    }
    site_commit_tick(0, false);
    exchange(3);
    cut_all(0); /* the owner can't say that it has expired them */
    to_time(T0 + DUE);
    for (u32 i = 0; i < 100; i++) {
        region_expire_step(region_of(1));
        site_commit_tick(1, false);
    }
    assert_int_equal(keys_of(1), 200);
    to_time(T0 + 599);
    for (u32 i = 0; i < 100; i++) region_expire_step(region_of(1));
    assert_int_equal(keys_of(1), 200);
    to_time(T0 + 600);
    assert_true(region_site_next_due(region_of(1)) <= T0 + 600);
    for (u32 i = 0; i < 100; i++) {
        region_expire_step(region_of(1));
        site_commit_tick(1, false);
    }
    assert_int_equal(keys_of(1), 0);
    assert_int_equal(region_of(1)->ks.stats.expired_keys, 200);
    expect_followed(1, true);
    all_end();
}

/* The engine has handed the key out as due when another site's extension comes. */
static void test_an_extension_is_filed_anew(bool rocks)
{
    all_start(2, rocks);
    connect_all();
    expect(0, "SET k v PX 100", "OK");
    site_commit_tick(0, false);
    exchange(3);
    cut_all(0);
    time_ms = T0 + 99;
    site_commit_tick(0, false);
    expect(0, "PEXPIRE k 1000", "1"); /* before its deadline */
    site_commit_tick(0, false);
    time_ms = T0 + DUE;
    site_commit_tick(1, false);
    region_expire_step(region_of(1));
    region_expire_step(region_of(1));
    site_commit_tick(1, false);
    expect(1, "EXISTS k", "0");
    connect_all();
    exchange(4);
    expect(1, "PEXPIRETIME k", "1700000001099");
    time_ms = T0 + 700; /* it is not remembered as late any more */
    site_commit_tick(1, false);
    for (u32 i = 0; i < 10; i++) region_expire_step(region_of(1));
    assert_int_equal(keys_of(1), 1);
    time_ms = T0 + 1700;
    site_commit_tick(1, false);
    cut_all(0);
    for (u32 i = 0; i < 10 && keys_of(1); i++) {
        region_expire_step(region_of(1));
        site_commit_tick(1, false);
    }
    assert_int_equal(keys_of(1), 0);
    all_end();
}

static u32 heard;
static void on_event(void *arg UNUSED, u32 class UNUSED, const char *event UNUSED, u32 db UNUSED,
                     bytes key UNUSED)
{
    heard++;
}

static void test_clients_hear_of_others(bool rocks)
{
    all_start(2, rocks);
    connect_all();
    exchange(3);
    heard = 0;
    region_of(1)->ks.on_event = on_event;
    region_of(1)->ks.event_mask = NOTIFY_STRING | NOTIFY_LIST | NOTIFY_EXPIRED | NOTIFY_GENERIC;
    expect(1, "WATCH k", "OK");
    expect(0, "SET k v", "OK");
    expect(0, "RPUSH l a", "1");
    site_commit_tick(0, false);
    exchange(3);
    assert_int_equal(heard, 2);
    expect(1, "MULTI", "OK");
    expect(1, "PING", "QUEUED");
    expect(1, "EXEC", "nil");
    all_end();
}

static void restart(u32 i)
{
    cut_all(i);
    world_drop(sites[i]);
    sites[i] = NULL;
    site_start(i);
    site_commit_tick(i, false);
}

static void test_a_restart_continues(bool rocks)
{
    struct buf before = {0}, after = {0};
    all_start(2, rocks);
    connect_all();
    expect(0, "SET k v PX 100000", "OK");
    expect(0, "HSET h f 1 g 2", "2");
    site_commit_tick(0, false);
    exchange(3);
    expect(1, "SET k2 v", "OK");
    expect(1, "DEL h", "1");
    site_commit_tick(1, false);
    exchange(3);
    digest_of(region_of(0), &before);
    u64 hlc = region_site_of(region_of(0))->hlc;
    restart(0);
    digest_of(region_of(0), &after);
    assert_true(bytes_eq(buf_bytes(&before), buf_bytes(&after)));
    assert_true(region_site_of(region_of(0))->hlc >= hlc);
    assert_false(site_of(0)->fresh);
    assert_false(site_of(0)->capture.site.doubt); /* the process ended, not the machine */
    expect(0, "SET k3 v", "OK");
    site_commit_tick(0, false);
    connect_all();
    exchange(4);
    expect(1, "GET k3", "v");
    all_end();
    buf_release(&before);
    buf_release(&after);
}

static u32 companions_of(struct region *r)
{
    struct engine *e = r->eng;
    struct buf names = {0}, place = {0};
    struct digest d = {.r = r};
    u32 n = 0;
    for (u32 db = 0; db < DBS; db++) {
        static const char *const all[] = {"s", "t", "h", "l", "e", "z", "n", "gone", "k"};
        for (u32 i = 0; i < ARRAY_LEN(all); i++) {
            struct key_ref ref;
            bytes head;
            if (!e->ops->find(e, db, bytes_str(all[i]), &ref)) ref.key = bytes_str(all[i]);
            n += e->ops->companion.head(e, &ref, &head);
        }
    }
    buf_release(&names);
    buf_release(&place);
    buf_release(&d.names);
    return n;
}

static const char doubts[] =
    "-SITEDOUBT this site may have lost writes that others have: it waits for the clocks of "
    "all members (SITE INFO says for which; SITE TRUST, if they are gone and nothing was lost)";

static void test_a_power_cut_leaves_a_doubt(bool rocks)
{
    all_start(3, rocks);
    connect_all();
    exchange(3);
    boot = 1;
    restart(0);
    assert_true(site_of(0)->capture.site.doubt);
    expect(0, "SET k v", doubts);
    expect(0, "GET k", "nil");
    link_up(0, 1);
    exchange(2);
    expect(0, "SET k v", doubts); /* site 3 may have more of it */
    link_up(2, 0);
    exchange(2);
    expect(0, "SET k v", "OK");
    site_commit_tick(0, false);
    synced = true;
    restart(0); /* on the same machine; commits are synced from now on */
    assert_false(site_of(0)->capture.site.doubt);
    boot = 2;
    restart(0);
    assert_false(site_of(0)->capture.site.doubt);
    assert_null(refused);
    all_end();
}

/* What others have comes back, and its numbers are not used again. */
static void test_what_was_lost_comes_back(bool rocks)
{
    if (rocks) return; /* its database can't be cut off here */
    all_start(2, rocks);
    connect_all();
    exchange(3);
    expect(0, "SET k v", "OK");
    expect(0, "EXPIRE n 5", "0");
    site_commit_tick(0, false);
    size_t kept = places[0].kept;
    expect(0, "SET k w", "OK");
    expect(0, "INCR n", "1");
    site_commit_tick(0, false);
    exchange(3);
    expect(1, "GET k", "w");
    places[0].kept = places[0].history.n = kept; /* the end of the AOF was not on disk */
    boot = 1;
    restart(0);
    expect(0, "GET k", "v");
    expect(0, "SET k x", doubts);
    connect_all();
    exchange(3);
    assert_null(refused);
    expect(0, "GET k", "w");
    expect(0, "INCR n", "2");
    site_commit_tick(0, false);
    exchange(3);
    expect(1, "GET n", "2");
    all_end();
}

/* What it did not get of the site, others may have. */
static void test_a_replica_takes_the_place_of_a_site(bool rocks)
{
    const char *why = "";
    all_start(2, rocks);
    connect_all();
    expect(0, "SET k v PX 5000", "OK");
    expect(0, "INCR n", "1");
    site_commit_tick(0, false);
    exchange(3);
    cut_all(0);
    struct world *w = follower_new(1, memory_engine_new(DBS, 4));
    run_history(w, bytes_of(places[0].history.p, places[0].kept), true);
    journal_attach(&w->region.journal, &w->journal.sink);
    assert_true(region_commit(&w->region));
    world_drop(sites[0]);
    sites[0] = w;
    region_site_take_place(&w->region, false, 7);
    assert_true(region_site_open(&w->region, 1, BACKLOG, &why));
    w->region.mode = EXPIRY_SITE;
    region_begin(&w->region, time_ms);
    w->session.db = 0;
    expect(0, "INCR n", doubts);
    connect_all();
    exchange(3);
    expect(0, "INCR n", "2");
    expect(1, "INCR n", "2");
    site_commit_tick(0, false);
    site_commit_tick(1, false);
    exchange(4);
    expect(0, "GET n", "3");
    expect(1, "GET n", "3");
    expect(1, "PTTL k", "5000");
    assert_null(refused);
    all_end();
}

static void test_an_old_file_leaves_a_doubt(bool rocks)
{
    struct saver_options o = {.with_dead = true};
    struct memory_sink sink;
    const char *why;
    if (rocks) return;
    all_start(2, rocks);
    expect(0, "SET k v", "OK");
    site_commit_tick(0, false);
    memory_sink_init(&sink);
    assert_true(saver_save_now(&region_of(0)->ks, &o, &sink.sink));
    struct world *w = follower_new(1, memory_engine_new(DBS, 3));
    load_rdb(w, buf_bytes(&sink.file), 0);
    region_site_loaded_old(&w->region);
    assert_true(region_commit(&w->region));
    assert_true(region_site_open(&w->region, 1, BACKLOG, &why));
    assert_true(w->region.site->capture.site.doubt);
    world_drop(w);
    w = follower_new(2, memory_engine_new(DBS, 3)); /* and it is not that of another site */
    struct memory_source source = {.source.read = memory_source_read, .left = buf_bytes(&sink.file)};
    struct rdb_policy policy = {.load_dead = any_dead, .site = &w->region};
    struct rdb_loader l;
    rdb_loader_init(&l, &w->region.ks, &source.source, sink.file.n, &policy);
    assert_int_equal(rdb_loader_step(&l, UINT64_MAX), ERR_SYNTAX);
    rdb_loader_release(&l);
    world_drop(w);
    buf_release(&sink.file);
    all_end();
}

static void test_without_site_id(bool rocks)
{
    struct world *w = mem_alloc(sizeof *w);
    u8 gid;
    all_start(2, rocks);
    run_all(sites[0], "SET k v;HSET h f 1");
    site_commit_tick(0, false);
    world_open_on(w, memory_engine_new(DBS, 3)); /* loads the journal as a plain server */
    journal_detach(&w->region.journal, &w->journal.sink);
    run_history(w, bytes_of(places[0].history.p, places[0].kept), false);
    assert_true(region_site_was_here(&w->region, &gid));
    assert_int_equal(gid, 1);
    assert_string_equal(run(w, "GET k"), "v");
    assert_int_equal(companions_of(&w->region), 0);
    world_drop(w);
    all_end();
}

static void test_keys_of_before(bool rocks)
{
    u8 gid;
    const char *why = "";
    count = 0;
    on_rocks = rocks;
    time_ms = T0;
    places[0] = places[1] = (struct place){0};
    if (rocks) {
        assert_true(folder_make(places[0].folder, sizeof places[0].folder, "site"));
        assert_true(folder_make(places[1].folder, sizeof places[1].folder, "site"));
    }
    count = 1;
    sites[0] = mem_alloc(sizeof *sites[0]);
    world_open_on(sites[0], engine_for(0));
    run_all(sites[0],
            "SET s v;SET t 5 PX 9000;HSET h a 1 b 2;RPUSH l a b c;SADD e x y;ZADD z 1 m 2 n;SET n 7");
    run_all(sites[0], "XADD st 1-1 f v;XADD st 5-5 f w;XADD st 9-9 f x;XDEL st 9-9");
    at(sites[0], 1);
    assert_false(region_site_was_here(region_of(0), &gid));
    assert_true(region_commit(region_of(0)));
    assert_true(region_site_open(region_of(0), 1, BACKLOG, &why));
    assert_true(site_of(0)->fresh);
    region_of(0)->mode = EXPIRY_SITE;
    region_begin(region_of(0), time_ms);
    region_site_found(region_of(0), (u8[]){1, 2}, 2);
    site_commit_tick(0, false);
    assert_int_equal(region_site_of(region_of(0))->clock.seq[1], 1);
    count = 2;
    site_start(1);
    site_commit_tick(1, false);
    connect_all();
    exchange(4);
    expect(1, "GET s", "v");
    expect(1, "PEXPIRETIME t", "1700000009000");
    expect(1, "LRANGE l 0 -1", "[a b c]");
    expect(1, "ZRANGE z 0 -1 WITHSCORES", "[m 1 n 2]");
    expect(1, "SMISMEMBER e x y", "[1 1]");
    expect(1, "HMGET h a b", "[1 2]");
    expect(1, "XRANGE st - +", "[[1-1 [f v]] [5-5 [f w]]]");
    expect(1, "XADD st 7-1 f v",
           "-ERR The ID specified in XADD is equal or smaller than the target stream top item");
    if (rocks) restart(0);
    expect(0, "GET s", "v");
    if (rocks) {
        assert_true(region_site_was_here(region_of(0), &gid));
        assert_int_equal(gid, 1);
    }
    all_end();
}

static void test_forgetting(bool rocks)
{
    struct buf place = {0};
    const char *why;
    u32 db = 0;
    u8 gid;
    all_start(2, rocks);
    connect_all();
    exchange(3);
    cut_all(0);
    run_all(sites[0], "SET s v;HSET h a 1;RPUSH l a b;SET gone 1;DEL gone");
    site_commit_tick(0, false);
    assert_true(companions_of(region_of(0)) >= 3);
    assert_true(region_commit(region_of(0)));
    region_site_close(region_of(0));
    region_of(0)->mode = EXPIRY_ACTIVE;
    region_begin(region_of(0), time_ms);
    assert_int_equal(region_site_was_here(region_of(0), &gid), rocks);
    assert_true(region_site_forget_some(region_of(0), &place, &db));
    at(sites[0], 1);
    if (rocks) { /* interrupted: there may be keys without metadata */
        assert_false(region_site_follow(region_of(0), 1, &why));
        assert_non_null(strstr(why, "site-drop-metadata was interrupted"));
    }
    while (region_site_forget_some(region_of(0), &place, &db)) at(sites[0], 1);
    run_all(sites[0], "SET n 1;HSET h b 2");
    at(sites[0], 1);
    assert_int_equal(companions_of(region_of(0)), 0);
    assert_false(region_site_was_here(region_of(0), &gid));
    expect(0, "GET s", "v");
    expect(0, "LRANGE l 0 -1", "[a b]");
    buf_release(&place);
    append_records(0); /* a site that starts from its journal adopts all of it */
    struct world *w = follower_new(1, memory_engine_new(DBS, 3));
    run_history(w, buf_bytes(&places[0].history), false);
    assert_int_equal(companions_of(&w->region), 0);
    assert_true(region_commit(&w->region));
    assert_true(region_site_open(&w->region, 1, BACKLOG, &why));
    assert_true(w->region.site->fresh);
    assert_int_equal(companions_of(&w->region), 4);
    world_drop(w);
    all_end();
}

/* -- at random -------------------------------------------------------------------------------------------- */

static void random_command(u32 i)
{
    static const char *const forms[] = {
        "SET %c %u",        "SET %c %u PX 300", "DEL %c",
        "PEXPIRE %c 400",   "HSET %c f%u 1",    "RPUSH %c x%u",
        "LPUSH %c y%u",     "SET %c %u",        "INCRBY %c %u",
        "SADD %c m%u",      "SREM %c m%u",      "ZADD %c 1 m%u",
        "ZINCRBY %c 2 m%u", "ZREM %c m%u",      "HDEL %c f%u",
        "HINCRBY %c f%u 3", "LPOP %c",          "LINSERT %c BEFORE x1 z%u",
        "LSET %c 1 w%u",    "LREM %c 1 x%u",    "APPEND %c %u",
        "PERSIST %c",       "RENAME %c r",      "COPY %c q REPLACE",
        "XADD st%c * f %u", "SETRANGE %c 2 %u", "RPOP %c",
        "GETDEL %c",        "FLUSHDB",
    };
    char line[128];
    u32 form = below(ARRAY_LEN(forms));
    if (strcmp(forms[form], "FLUSHDB") == 0 && below(8)) return;
    snprintf(line, sizeof line, forms[form], 'a' + (int)below(6), below(3));
    sites[i]->session.db = below(10) ? 0 : 1;
    bool multi = below(8) == 0;
    if (multi) run(sites[i], "MULTI");
    run(sites[i], line);
    if (multi) {
        run(sites[i], "SET a 9");
        run(sites[i], "DEL a");
        run(sites[i], "HSET b f0 7");
        run(sites[i], "EXEC");
    }
}

static void random_tick(u32 i)
{
    struct buf before = {0}, after = {0};
    bool fails = on_rocks && below(6) == 0;
    if (fails) digest_of(region_of(i), &before);
    for (u32 n = below(4); n > 0; n--) random_command(i);
    if (below(3) == 0) region_expire_step(region_of(i));
    if (below(4) == 0) region_site_collect(region_of(i), 10);
    site_commit_tick(i, fails);
    if (fails) {
        digest_of(region_of(i), &after);
        expect_bytes(&before, &after);
    }
    buf_release(&before);
    buf_release(&after);
}

static void converge(void)
{
    for (u32 n = 0; n < 12; n++) {
        time_ms += 700;
        for (u32 i = 0; i < count; i++) {
            site_commit_tick(i, false);
            while (region_expire_step(region_of(i))) {}
            site_commit_tick(i, false);
        }
        connect_all();
        exchange(4);
        for (u32 i = 0; i < count; i++) {
            while (region_site_collect(region_of(i), 100)) {}
            site_commit_tick(i, false);
        }
    }
}

static void one_history(u64 from, bool rocks)
{
    struct save save = {0};
    seed = from;
    all_start(2 + below(2), rocks);
    for (u32 n = 0; n < 60; n++) {
        u32 i = below(count), j = below(count);
        time_ms += below(80);
        random_tick(i);
        if (below(3) == 0) link_up(i, j);
        if (below(12) == 0) cut_all(i);
        if (below(2)) exchange(1);
        if (below(25) == 0 && !save.saver) {
            struct buf before = {0}, after = {0};
            digest_of(region_of(i), &before);
            run(sites[i], "SET a lost"); /* of a tick that does not end */
            restart(i);
            digest_of(region_of(i), &after);
            assert_true(bytes_eq(buf_bytes(&before), buf_bytes(&after)));
            buf_release(&before);
            buf_release(&after);
        }
        if (below(10) == 0) expect_followed(i, below(2));
        if (below(12) == 0) save_now(i);
        if (!save.saver && below(12) == 0 && save_begin(&save, i, below(3) == 0)) continue;
        if (save.saver && below(3) == 0) saver_step(save.saver, 300);
        if (save.saver && below(8) == 0) save_end(&save, below(2));
    }
    if (save.saver) save_end(&save, 0);
    converge();
    static const char *const fine[] = {"it fell behind the backlog", "a full sync of this site is under way",
                                       "a full sync was needed",
                                       SITE_NOT_COMPLETED};
    bool is_fine = !refused;
    for (u32 n = 0; n < ARRAY_LEN(fine); n++) is_fine |= refused && strcmp(refused, fine[n]) == 0;
    if (!is_fine) fail_msg("%s", refused);
    for (u32 i = 1; i < count; i++) expect_same(region_of(0), region_of(i), false);
    for (u32 i = 0; i < count; i++) expect_followed(i, true);
    all_end();
}

static void test_random(bool rocks)
{
    u64 first = getenv("MAYFLY_SEED") ? strtoull(getenv("MAYFLY_SEED"), NULL, 10) : 1;
    u64 n = getenv("MAYFLY_SEED") ? 1 : ROUNDS(rocks ? 20 : 120);
    for (u64 s = first; s < first + n; s++) {
        print_message("seed %llu\n", (unsigned long long)s);
        one_history(s, rocks);
    }
}

#define BOTH(name)                                                  \
    static void name##_memory(void **state UNUSED) { name(false); } \
    static void name##_rocks(void **state UNUSED) { name(true); }
BOTH(test_writes_reach_others)
BOTH(test_a_failed_commit_takes_all_back)
BOTH(test_the_owner_deletes_first)
BOTH(test_others_delete_after_a_while)
BOTH(test_an_extension_is_filed_anew)
BOTH(test_clients_hear_of_others)
BOTH(test_a_restart_continues)
BOTH(test_a_power_cut_leaves_a_doubt)
BOTH(test_what_was_lost_comes_back)
BOTH(test_a_replica_takes_the_place_of_a_site)
BOTH(test_an_old_file_leaves_a_doubt)
BOTH(test_without_site_id)
BOTH(test_keys_of_before)
BOTH(test_forgetting)
BOTH(test_random)

#define ON_BOTH(name) cmocka_unit_test(name##_memory), cmocka_unit_test(name##_rocks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_BOTH(test_writes_reach_others),
        ON_BOTH(test_a_failed_commit_takes_all_back),
        ON_BOTH(test_the_owner_deletes_first),
        ON_BOTH(test_others_delete_after_a_while),
        ON_BOTH(test_an_extension_is_filed_anew),
        ON_BOTH(test_clients_hear_of_others),
        ON_BOTH(test_a_restart_continues),
        ON_BOTH(test_a_power_cut_leaves_a_doubt),
        ON_BOTH(test_what_was_lost_comes_back),
        ON_BOTH(test_a_replica_takes_the_place_of_a_site),
        ON_BOTH(test_an_old_file_leaves_a_doubt),
        ON_BOTH(test_without_site_id),
        ON_BOTH(test_keys_of_before),
        ON_BOTH(test_forgetting),
        ON_BOTH(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
