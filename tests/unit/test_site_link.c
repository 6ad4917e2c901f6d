/* Sites that are connected: links that are cut in the middle of a message, backlogs that are too short,
 * and what each side refuses. The sites are in one process; what they send goes through buffers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/memory/memory.h"
#include "resp/request.h"
#include "rounds.h"
#include "site/link.h"
#include "site/write.h"
#include "xstream/xstream.h"

#define SITES 3
#define START_MS 1000000

static u64 seed = 1;

static u32 below(u32 n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (u32)((seed >> 11) % n);
}

/* -- sites and pipes -------------------------------------------------------------------------------- */

struct pipe {
    struct buf sent, arrived; /* of `sent` some has arrived */
    struct request_parser parser;
};

struct ends { /* site `asks` has connected to site `serves` */
    bool up;
    struct site_link asks, serves;
    struct pipe to_server, to_client;
};

static struct world {
    struct engine *e[SITES];
    struct site s[SITES];
    struct site_backlog b[SITES];
    struct ends ends[SITES][SITES];
    u32 full, refused;
    i64 now_ms;
} * w;

static void to_backlog(void *arg, const struct site_effect *e)
{
    struct buf batch = {0};
    site_backlog_gather(&batch, e->dot, e->all);
    site_backlog_add(arg, &batch);
    buf_release(&batch);
}

static void world_new(size_t backlog)
{
    static const u8 gids[] = {1, 2, 3};
    w = calloc(1, sizeof *w);
    w->now_ms = START_MS;
    for (u32 i = 0; i < SITES; i++) {
        w->e[i] = memory_engine_new(2, i + 1);
        w->e[i]->ops->begin(w->e[i], 1);
        site_init(&w->s[i], w->e[i], 2, gids[i]);
        site_found(&w->s[i], gids, SITES);
        site_tick(&w->s[i], START_MS);
        site_backlog_init(&w->b[i], backlog, &w->s[i].clock);
        w->s[i].emit = to_backlog;
        w->s[i].emit_arg = &w->b[i];
    }
}

static void pipe_clear(struct pipe *p)
{
    buf_release(&p->sent);
    buf_release(&p->arrived);
    request_parser_release(&p->parser);
    request_parser_init(&p->parser);
}

static void merge_all(struct ends *x)
{
    while (x->asks.state == LINK_MERGE)
        assert_true(site_link_step(&x->asks, 1 + below(8), &x->to_server.sent));
}

static u32 torn(void)
{
    u32 n = 0;
    for (u32 i = 0; i < SITES; i++) n += w->s[i].torn;
    return n;
}

/* What is being merged is merged, or now and then given up, as by a crash: the site then stays torn. */
static void cut(u32 i, u32 j)
{
    struct ends *x = &w->ends[i][j];
    if (!x->up) return;
    if (torn() > 1 || below(3)) merge_all(x);
    site_link_release(&x->asks);
    site_link_release(&x->serves);
    pipe_clear(&x->to_server);
    pipe_clear(&x->to_client);
    request_parser_release(&x->to_server.parser);
    request_parser_release(&x->to_client.parser);
    x->up = false;
}

static void connect(u32 i, u32 j)
{
    struct ends *x = &w->ends[i][j];
    if (x->up) return;
    x->up = true;
    request_parser_init(&x->to_server.parser);
    request_parser_init(&x->to_client.parser);
    site_link_serve(&x->serves, &w->s[j], &w->b[j]);
    site_link_ask(&x->asks, &w->s[i], &w->b[i], w->s[j].gid, false, &x->to_server.sent);
}

static void world_free(void)
{
    for (u32 i = 0; i < SITES; i++) {
        for (u32 j = 0; j < SITES; j++) cut(i, j);
        site_backlog_release(&w->b[i]);
        site_release(&w->s[i]);
        w->e[i]->ops->close(w->e[i]);
    }
    free(w);
}

/* Some bytes arrive, and complete messages are taken. False: the link is over. */
static bool carry(struct pipe *p, u32 bytes_max, struct site_link *to, struct buf *answers)
{
    static const struct request_limits limits = {.max_bulk = 512 << 20};
    size_t n = MIN(p->sent.n, bytes_max), used = 0, at = 0;
    bool on = true;
    buf_append(&p->arrived, p->sent.p, n);
    if (n) memmove(p->sent.p, p->sent.p + n, p->sent.n -= n);
    while (on && to->state != LINK_MERGE &&
           request_parse(&p->parser, &limits, bytes_of(p->arrived.p + at, p->arrived.n - at), &used) == OK) {
        bytes argv[8];
        assert_in_range(p->parser.argc, 1, 8);
        for (u32 i = 0; i < p->parser.argc; i++) argv[i] = request_arg(&p->parser, p->arrived.p + at, i);
        w->full += bytes_is(argv[0], "SITE.FULL");
        on = site_link_take(to, argv, p->parser.argc, answers);
        at += used;
    }
    if (at) memmove(p->arrived.p, p->arrived.p + at, p->arrived.n -= at);
    return on;
}

/* One snapshot is merged at a time. */
static bool merging(u32 i)
{
    for (u32 j = 0; j < SITES; j++)
        if (w->ends[i][j].up && w->ends[i][j].asks.state == LINK_MERGE) return true;
    return false;
}

/* Everything that a link does at once; afterwards it may be over. */
static void pump(u32 i, u32 j, u32 bytes_max)
{
    struct ends *x = &w->ends[i][j];
    if (!x->up) return;
    bool merges = x->asks.state == LINK_MERGE, may = merges || !merging(i);
    bool on = carry(&x->to_server, bytes_max, &x->serves, &x->to_client.sent) &&
              site_link_feed(&x->serves, bytes_max, &x->to_client.sent) &&
              (merges || !may || carry(&x->to_client, bytes_max, &x->asks, &x->to_server.sent)) &&
              site_link_step(&x->asks, 1 + below(8), &x->to_server.sent) &&
              site_link_feed(&x->asks, bytes_max, &x->to_server.sent);
    if (on) return;
    w->refused++;
    const char *why = x->serves.why ? x->serves.why : x->asks.why;
    static const char *const fine[] = {
        "it fell behind the backlog", "a full sync of this site is under way", "a full sync was needed",
        SITE_NOT_COMPLETED,
        "a full sync of this site was interrupted"};
    bool is_fine = false;
    for (u32 n = 0; n < ARRAY_LEN(fine); n++) is_fine |= strcmp(why, fine[n]) == 0;
    if (!is_fine) assert_string_equal(why, fine[0]);
    cut(i, j);
}

/* -- what sites do ------------------------------------------------------------------------------------- */

static bytes word(const char *const *words, u32 n) { return bytes_str(words[below(n)]); }

/* XADD of few ids, so that they meet; XDEL; XSETID. */
static void random_stream_write(struct site *s, u32 db, bytes name)
{
    static const u64 parts[] = {1, 2, 256, 257};
    struct buf packed = {0};
    struct key_ref ref;
    char raw[SITE_ID_BYTES];
    bytes id = bytes_of(raw, sizeof raw), field[2] = {BYTES_LIT("f"), BYTES_LIT("v")};
    stream_id_pack(raw, (struct stream_id){parts[below(4)], parts[below(4)]});
    bool there = s->e->ops->find(s->e, db, name, &ref);
    xentry_pack(&packed, field, 1);
    switch (there ? below(6) : 0) {
    case 1: site_write_put(s, db, name, TYPE_STREAM, (bytes[]){SITE_LAST_ID, id}, 1); break;
    case 2: site_write_xcut(s, db, name, &id, 1); break;
    default:
        site_write_put(s, db, name, TYPE_STREAM, (bytes[]){{"", 0}, {"", 0}, id, buf_bytes(&packed)}, 2);
    }
    buf_release(&packed);
}

static void random_write(struct site *s)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"}, *const paths[] = {"f", "g", "h"},
                             *const values[] = {"1", "2.5", "30"};
    static const enum value_type kinds[] = {TYPE_STRING, TYPE_HASH, TYPE_SET,
                                            TYPE_ZSET,   TYPE_LIST, TYPE_STREAM};
    u32 id = below(5), db = below(2);
    bytes name = bytes_str(names[id]), path = word(paths, 3), value = word(values, 3);
    struct key_ref ref;
    site_expire(s, db, name, NULL);
    enum value_type kind = s->e->ops->find(s->e, db, name, &ref) ? ref.type : kinds[below(6)];
    bool there = ref.entry != NULL;
    switch (below(12)) {
    case 0: site_write_del(s, db, name); return;
    case 1:
    case 2:
        if (there) site_write_ttl(s, db, name, below(3) ? site_now(s) + 1 + below(3000) : 0);
        return;
    case 3:
        if (below(10) == 0) site_write_flush(s, below(2) ? db : SITE_ALL_DBS);
        return;
    case 4: site_write_set(s, db, name, value, below(2) ? 0 : site_now(s) + 1 + below(2000)); return;
    case 5:
        if (there) site_write_copy(s, db, name, db, bytes_str(names[(id + 1) % 5]), below(2));
        return;
    }
    bytes pair[2] = {kind == TYPE_STRING ? (bytes){"", 0} : path, kind == TYPE_SET ? (bytes){"", 0} : value};
    if (kind == TYPE_STREAM) random_stream_write(s, db, name);
    else if (kind == TYPE_LIST) site_write_push(s, db, name, below(2), &value, 1);
    else if (kind == TYPE_SET || below(2)) site_write_put(s, db, name, kind, pair, 1);
    else site_write_add(s, db, name, kind, pair[0], site_num_of(below(9)));
}

/* Several effects that belong together. */
static void random_piece(struct site *s)
{
    for (u32 n = 1 + below(4); n > 0; n--) {
        buf_clear(&s->moves);
        site_put_move(&s->moves, &(struct site_move){.op = MOVE_MORE}, false);
        random_write(s);
    }
    buf_clear(&s->moves); /* the last write may have been none */
    site_write_set(s, 0, BYTES_LIT("a"), BYTES_LIT("5"), 0);
}
/* A site that is torn writes nothing. */
static bool busy(u32 i) { return w->s[i].torn; }

static void expire_pass(void *arg, u32 db, bytes name) { site_expire_pass(arg, db, name); }

static void housekeeping(u32 i)
{
    struct site *s = &w->s[i];
    if (busy(i)) return;
    for (u32 db = 0; db < 2; db++) site_each_key(s, db, expire_pass, s);
    site_find_stable(s);
    for (u32 db = 0; db < 2; db++) {
        struct buf place = {0};
        while (site_collect_some(s, db, &place, 10)) {}
        buf_release(&place);
    }
}

static void next_tick(u32 ms)
{
    w->now_ms += ms;
    for (u32 i = 0; i < SITES; i++) {
        assert_true(w->e[i]->ops->commit(w->e[i], w->e[i]->applied + 1));
        w->e[i]->ops->begin(w->e[i], site_now(&w->s[i]));
        site_tick(&w->s[i], w->now_ms);
    }
}

/* -- they converge -------------------------------------------------------------------------------- */

/* A mesh, or a chain in which the middle one passes everything on. */
static bool connected(u32 i, u32 j, bool mesh) { return i != j && (mesh || i + j != 2); }

static bool quiet(void)
{
    if (torn()) return false;
    for (u32 i = 1; i < SITES; i++)
        if (memcmp(&w->s[0].clock, &w->s[i].clock, sizeof w->s[0].clock) != 0) return false;
    for (u32 i = 0; i < SITES; i++) {
        site_find_stable(&w->s[i]);
        if (w->s[i].stable != w->s[i].position) return false;
    }
    return true;
}

static void settle(void)
{
    for (u32 round = 0; round < 3 || !quiet(); round++) {
        assert_true(round < 200);
        for (u32 i = 0; i < SITES; i++)
            for (u32 j = 0; j < SITES; j++)
                if (i != j) connect(i, j), pump(i, j, 1 << 20);
        for (u32 i = 0; i < SITES; i++) housekeeping(i);
        next_tick(10);
    }
}

struct counted {
    u32 keys;
    u32 site;
};

/* Whatever the first has, the others have, byte for byte. */
static void compare_key(void *arg, u32 db, bytes name)
{
    struct counted *c = arg;
    struct buf a = {0}, b = {0};
    char copy[8];
    snprintf(copy, sizeof copy, "%.*s", (int)name.n, name.p);
    site_put_key(&w->s[0], db, bytes_str(copy), &a);
    site_put_key(&w->s[c->site], db, bytes_str(copy), &b);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    struct key_ref ref;
    assert_true(w->e[0]->ops->find(w->e[0], db, bytes_str(copy), &ref)); /* nothing but data is left */
    buf_release(&a);
    buf_release(&b);
    c->keys++;
}

static void assert_equal_sites(void)
{
    for (u32 i = 1; i < SITES; i++) {
        struct counted from_first = {0, i}, from_other = {0, i};
        for (u32 db = 0; db < 2; db++) {
            site_each_key(&w->s[0], db, compare_key, &from_first);
            site_each_key(&w->s[i], db, compare_key, &from_other);
        }
        assert_int_equal(from_first.keys, from_other.keys);
    }
}

static void converge(size_t backlog, bool mesh)
{
    world_new(backlog);
    for (u32 step = 0; step < 150; step++) {
        u32 i = below(SITES), j = below(SITES);
        switch (below(10)) {
        case 0:
        case 1:
            if (!busy(i)) random_write(&w->s[i]);
            break;
        case 2:
            if (!busy(i)) random_piece(&w->s[i]);
            break;
        case 3:
            if (connected(i, j, mesh)) connect(i, j);
            break;
        case 4: cut(i, j); break;
        case 5: housekeeping(i); break;
        case 6: next_tick(below(4) ? below(50) : below(2000)); break;
        default: pump(i, j, 1 + below(400)); break;
        }
    }
    settle();
    assert_equal_sites();
    next_tick(100000); /* no deadline outlives its time */
    settle();
    assert_equal_sites();
}

static void test_converge(void **state)
{
    (void)state;
    u32 full = 0, refused = 0;
    for (u32 round = 0; round < ROUNDS(600); round++) {
        seed = round + 1;
        converge(below(2) ? 300 : 1 << 20, below(2));
        full += w->full;
        refused += w->refused;
        world_free();
    }
    assert_true(full > 50 && refused > 5);
}

/* -- what is refused ------------------------------------------------------------------------------ */

static void say(struct buf *to, const char *what, u32 n, const bytes *args)
{
    buf_printf(to, "*%u\r\n$%zu\r\n%s\r\n", n + 1, strlen(what), what);
    for (u32 i = 0; i < n; i++) {
        buf_printf(to, "$%zu\r\n", args[i].n);
        buf_append_bytes(to, args[i]);
        buf_append_str(to, "\r\n");
    }
}

static void assert_hello_refused(const char *protocol, const char *gid, const struct site_clock *clock,
                                 const char *want)
{
    struct site_link l;
    struct buf raw = {0}, out = {0}, expected = {0};
    struct site_clock before = w->s[0].clock;
    site_put_clock(&raw, clock);
    site_link_serve(&l, &w->s[0], &w->b[0]);
    bytes argv[] = {BYTES_LIT("SITE.HELLO"), bytes_str(protocol), bytes_str(gid), buf_bytes(&raw)};
    assert_false(site_link_take(&l, argv, 4, &out));
    assert_string_equal(l.why, want);
    say(&expected, "SITE.REFUSED", 1, (bytes[]){bytes_str(want)});
    assert_true(bytes_eq(buf_bytes(&out), buf_bytes(&expected)));
    assert_memory_equal(&before, &w->s[0].clock, sizeof before);
    assert_false(site_link_take(&l, argv, 4, &out)); /* it is over */
    site_link_release(&l);
    buf_release(&raw);
    buf_release(&out);
    buf_release(&expected);
}

static void test_hello_refused(void **state)
{
    (void)state;
    struct site_clock none = {0}, ahead = {0};
    ahead.seq[1] = 5;
    world_new(1 << 20);
    assert_hello_refused("2", "2", &none, "it speaks another version of the protocol");
    assert_hello_refused("1", "1", &none, "it has the gid of this site");
    assert_hello_refused("1", "9", &none, "it is no member: SITE JOIN admits a new site");
    assert_hello_refused("1", "256", &none, "a malformed SITE.HELLO");
    assert_hello_refused("1", "2", &ahead, "it has writes of this site that this site has never made");
    site_admit(&w->s[0], 7);
    assert_hello_refused("1", "7", &none, "not all members know of it yet: it has to try again");
    site_fence(&w->s[0], 3, 0);
    site_evict(&w->s[0], 3);
    assert_hello_refused("1", "3", &none, "it was evicted: it has to come back empty, under a new gid");
    world_free();
}

/* Site 1 has asked site 2, and gets this. */
static void assert_answer_refused(u32 n, const bytes *argv, const char *want)
{
    struct site_link l;
    struct buf out = {0};
    struct site_clock before = w->s[0].clock;
    site_link_ask(&l, &w->s[0], &w->b[0], 2, false, &out);
    for (u32 i = 0; i < n; i++) {
        bytes message[4];
        u32 words = 0;
        for (; words < 4 && argv[i * 4 + words].p; words++) message[words] = argv[i * 4 + words];
        bool on = site_link_take(&l, message, words, &out);
        assert_int_equal(on, i + 1 < n);
    }
    assert_string_equal(l.why, want);
    assert_memory_equal(&before, &w->s[0].clock, sizeof before);
    site_link_release(&l);
    buf_release(&out);
}

static void test_answer_refused(void **state)
{
    (void)state;
    struct site_clock clock = {0};
    struct buf none = {0}, ahead = {0}, gap = {0}, stranger = {0}, head = {0};
    world_new(1 << 20);
    site_put_clock(&none, &clock);
    clock.seq[1] = 9;
    site_put_clock(&ahead, &clock);
    clock = (struct site_clock){0};
    site_put_effect_head(&stranger, (struct site_dot){1, 9}, 1, &clock);
    clock.seq[2] = 4;
    site_put_effect_head(&gap, (struct site_dot){5, 2}, 1, &clock);
    site_put_snapshot_head(&w->s[1], &head);
    const bytes go = BYTES_LIT("SITE.CONTINUE"), two = BYTES_LIT("2"), effect = BYTES_LIT("SITE.EFFECT");
    const bytes junk = BYTES_LIT("junk"), full = BYTES_LIT("SITE.FULL"), key = BYTES_LIT("SITE.KEY");
    assert_answer_refused(1, (bytes[]){go, BYTES_LIT("3"), buf_bytes(&none), {0}},
                          "it is another site than the one that was asked for");
    assert_answer_refused(1, (bytes[]){go, two, buf_bytes(&ahead), {0}},
                          "it has writes of this site that this site has never made");
    assert_answer_refused(1, (bytes[]){effect, buf_bytes(&gap), {0}, {0}}, "a message that was not expected");
    assert_answer_refused(2, (bytes[]){go, two, buf_bytes(&none), {0}, effect, buf_bytes(&gap), {0}, {0}},
                          "a gap: an effect that depends on others which did not come");
    assert_answer_refused(2,
                          (bytes[]){go, two, buf_bytes(&none), {0}, effect, buf_bytes(&stranger), {0}, {0}},
                          "an effect of a site that is no member");
    assert_answer_refused(2, (bytes[]){go, two, buf_bytes(&none), {0}, effect, junk, {0}, {0}},
                          "a malformed effect");
    assert_answer_refused(
        2, (bytes[]){full, buf_bytes(&head), {0}, {0}, BYTES_LIT("SITE.CLOCK"), junk, {0}, {0}},
        "a message that was not expected");
    assert_answer_refused(1, (bytes[]){full, junk, {0}, {0}}, "a malformed snapshot");
    assert_answer_refused(
        2, (bytes[]){full, buf_bytes(&head), {0}, {0}, key, BYTES_LIT("0"), junk, junk},
        "a malformed key in a snapshot");
    world_free();
    buf_release(&none);
    buf_release(&ahead);
    buf_release(&gap);
    buf_release(&stranger);
    buf_release(&head);
}

/* A third site comes in later, with a snapshot. */
static void test_join(void **state)
{
    (void)state;
    static const u8 gids[] = {1, 2};
    world_new(1 << 20);
    for (u32 i = 0; i < SITES; i++) memset(w->s[i].members, 0, sizeof w->s[i].members);
    for (u32 i = 0; i < 2; i++) site_found(&w->s[i], gids, 2);
    for (u32 i = 0; i < 40; i++) random_write(&w->s[i % 2]);
    site_admit(&w->s[0], 3);
    for (u32 round = 0; round < 3; round++) {
        connect(0, 1), connect(1, 0);
        pump(0, 1, 1 << 20), pump(1, 0, 1 << 20);
    }
    assert_true(site_may_start(&w->s[0], 3));
    connect(2, 0);
    for (u32 round = 0; round < 60; round++) pump(2, 0, 1 << 20);
    assert_false(torn());
    assert_int_equal(w->full, 1);
    assert_true(w->s[2].members[1].in && w->s[2].members[2].in && w->s[2].members[3].in);
    for (u32 i = 0; i < 40; i++) random_write(&w->s[i % 3]);
    settle();
    assert_equal_sites();
    world_free();
}

static void pump_often(u32 i, u32 j)
{
    for (u32 n = 0; n < 8; n++) pump(i, j, 1 << 20);
    assert_int_equal(w->ends[i][j].asks.state, LINK_STREAM);
}

/* An effect is not sent to its author, nor to who has told that it has it. */
static void test_no_echo(void **state UNUSED)
{
    world_new(1 << 20);
    for (u32 i = 0; i < SITES; i++)
        for (u32 j = 0; j < SITES; j++)
            if (i != j) connect(i, j);
    for (u32 i = 0; i < SITES; i++)
        for (u32 j = 0; j < SITES; j++)
            if (i != j) pump_often(i, j);
    for (u32 n = 0; n < 10; n++) site_write_put(&w->s[0], 0, BYTES_LIT("key"), TYPE_HASH, (bytes[]){BYTES_LIT("f"), BYTES_LIT("v")}, 1);
    pump_often(1, 0);
    pump_often(2, 0);
    pump_often(2, 1); /* site 2's clock reaches site 1 with what site 1 then has to send */
    pump_often(0, 1);
    assert_int_equal(w->ends[1][0].asks.effects, 10);
    assert_int_equal(w->ends[2][0].asks.effects, 10);
    assert_int_equal(w->ends[0][1].asks.effects, 0);
    for (u32 n = 0; n < 10; n++) site_write_put(&w->s[0], 0, BYTES_LIT("key"), TYPE_HASH, (bytes[]){BYTES_LIT("f"), BYTES_LIT("v")}, 1);
    pump_often(2, 0);
    pump_often(2, 1); /* now site 2 is ahead of site 1, and says so */
    pump_often(1, 0);
    u64 before = w->ends[2][1].asks.effects;
    pump_often(2, 1);
    assert_int_equal(w->ends[2][1].asks.effects, before);
    assert_int_equal(w->ends[2][0].asks.effects, 20);
    world_free();
}

/* Site 1 is torn: it has a key of site 3 that its clock does not cover. A link that is still open brings the
 * effect of which the key is: it must not be applied on top of that. */
static void test_torn_takes_no_effects(void **state UNUSED)
{
    struct site_full f;
    struct buf head = {0}, dump = {0};
    struct site_clock before;
    const char *why = "";
    world_new(1 << 20);
    connect(0, 2);
    connect(1, 2);
    for (u32 n = 0; n < 3; n++) pump(0, 2, 1 << 20);
    assert_int_equal(w->ends[0][2].asks.state, LINK_STREAM);
    site_write_set(&w->s[2], 0, BYTES_LIT("a"), BYTES_LIT("v"), 0);
    for (u32 n = 0; n < 3; n++) pump(1, 2, 1 << 20);
    site_put_snapshot_head(&w->s[1], &head);
    site_put_key(&w->s[1], 0, BYTES_LIT("a"), &dump);
    assert_true(site_full_begin(&f, &w->s[0], buf_bytes(&head), &why));
    assert_true(site_full_key(&f, 0, BYTES_LIT("a"), buf_bytes(&dump), &why));
    assert_true(site_full_start(&f));
    while (f.state != FULL_MERGING || f.part == 0) assert_int_equal(site_full_step(&f, 1, &why), FULL_MORE);
    site_full_release(&f);
    assert_true(w->s[0].torn);
    before = w->s[0].clock;
    pump(0, 2, 1 << 20);
    assert_false(w->ends[0][2].up);
    assert_memory_equal(&before, &w->s[0].clock, sizeof before);
    settle();
    assert_equal_sites();
    buf_release(&head);
    buf_release(&dump);
    world_free();
}

/* -- damaged messages ---------------------------------------------------------------------------- */

struct hashed {
    struct site *s;
    u64 sum;
};

static void hash_key(void *arg, u32 db, bytes name)
{
    struct hashed *x = arg;
    struct buf raw = {0};
    site_put_key(x->s, db, name, &raw);
    x->sum += hash_bytes(buf_bytes(&raw), hash_bytes(name, db + 1)); /* in any order */
    buf_release(&raw);
}

/* All that a site has, but for what it knows of the clocks of others. */
static u64 hash_of(struct site *s)
{
    struct hashed x = {s, s->n_pending + s->torn};
    struct buf head = {0};
    for (u32 db = 0; db < 2; db++) site_each_key(s, db, hash_key, &x);
    site_put_snapshot_head(s, &head);
    u64 h = hash_bytes(buf_bytes(&head), x.sum);
    buf_release(&head);
    return h;
}

static void damage(struct buf *b)
{
    switch (below(6)) {
    case 0: b->n = b->n ? below((u32)b->n) : 0; return;
    case 1: buf_append_char(b, (char)below(256)); return;
    case 2: memset(buf_reserve(b, 9), 0xff, 9), b->n += 9; return; /* a huge number */
    }
    for (u32 n = 1 + below(3); n > 0 && b->n; n--) {
        char *at = &b->p[below((u32)b->n)];
        *at = below(3) ? (char)(*at ^ 1 << below(8)) : (char)below(256);
    }
}

/* Gives a message to a link, with one argument damaged. What is refused ends the link, with a reason, and
 * changes nothing. */
static bool take_damaged(struct site_link *l, bytes *argv, u32 argc, struct buf *out, u32 *refused)
{
    struct buf arg = {0};
    struct site *s = l->s;
    u32 i = below(argc), argc_now = below(40) ? argc : 1 + below(8);
    u64 before = hash_of(s);
    buf_append_bytes(&arg, argv[i]);
    damage(&arg);
    argv[i] = buf_bytes(&arg);
    for (u32 k = argc; k < argc_now; k++) argv[k] = BYTES_LIT("1");
    bool on = site_link_take(l, argv, argc_now, out);
    if (!on) {
        assert_int_equal(hash_of(s), before);
        assert_int_equal(l->state, LINK_OVER);
        assert_true(l->why && *l->why);
        ++*refused;
    }
    buf_release(&arg);
    return on;
}

/* Site 2 asks site 1; of what site 1 sends one message is damaged, and site 2 takes all of it. */
static u32 a_damaged_link(void)
{
    static const struct request_limits limits = {.max_bulk = 512 << 20};
    struct site_link *asks = &w->ends[1][0].asks, *serves = &w->ends[1][0].serves;
    struct pipe *to_server = &w->ends[1][0].to_server, *p = &w->ends[1][0].to_client;
    struct buf ignored = {0};
    u32 refused = 0, n = 0, at_message = below(12);
    size_t used, at = 0;
    bool on = true;
    connect(1, 0);
    assert_true(carry(to_server, UINT32_MAX, serves, &p->sent));
    while (serves->walk || serves->next < serves->backlog->number + serves->backlog->n)
        assert_true(site_link_feed(serves, 1 << 20, &p->sent));
    for (; on && asks->state != LINK_MERGE && at < p->sent.n; at += used, n++) {
        bytes argv[8];
        bytes rest = bytes_of(p->sent.p + at, p->sent.n - at);
        assert_int_equal(request_parse(&p->parser, &limits, rest, &used), OK);
        for (u32 i = 0; i < p->parser.argc; i++) argv[i] = request_arg(&p->parser, p->sent.p + at, i);
        on = n == at_message ? take_damaged(asks, argv, p->parser.argc, &ignored, &refused)
                             : site_link_take(asks, argv, p->parser.argc, &ignored);
    }
    while (on && asks->state == LINK_MERGE) on = site_link_step(asks, 1 + below(8), &ignored);
    assert_true(on || (asks->why && *asks->why));
    cut(1, 0);
    buf_release(&ignored);
    return refused;
}

struct copied {
    struct site *from, *to;
    struct site_merge m;
};

static void copy_key(void *arg, u32 db, bytes name)
{
    struct copied *x = arg;
    struct buf dump = {0};
    const char *why = "";
    site_put_key(x->from, db, name, &dump);
    if (!site_merge_check(&x->m, buf_bytes(&dump), &why)) fail_msg("%s", why);
    site_merge_key(x->to, &x->m, db, name, buf_bytes(&dump));
    buf_release(&dump);
}

static void compare_copy(void *arg, u32 db, bytes name)
{
    struct copied *x = arg;
    struct buf a = {0}, b = {0};
    site_put_key(x->from, db, name, &a);
    site_put_key(x->to, db, name, &b);
    assert_true(bytes_eq(buf_bytes(&a), buf_bytes(&b)));
    buf_release(&a);
    buf_release(&b);
}

/* A site that has nothing accepts a full sync of this one, and then has the same bytes. */
static void assert_can_be_sent(struct site *s)
{
    struct engine *e = memory_engine_new(2, 9);
    struct site fresh;
    struct copied x = {.from = s, .to = &fresh};
    struct buf head = {0};
    const char *why = "";
    u8 gid = 4; /* of which it knows nothing */
    while (s->clock.seq[gid] || s->fenced[gid]) gid++;
    e->ops->begin(e, 1);
    site_init(&fresh, e, 2, gid);
    site_put_snapshot_head(s, &head);
    if (!site_merge_begin(&fresh, &x.m, buf_bytes(&head), &why)) fail_msg("%s", why);
    for (u32 db = 0; db < 2; db++) site_each_key(s, db, copy_key, &x);
    for (u32 db = 0; db < 2; db++) {
        site_each_key(s, db, compare_copy, &x);
        site_each_key(&fresh, db, compare_copy, &x);
    }
    site_merge_release(&x.m);
    buf_release(&head);
    site_release(&fresh);
    e->ops->close(e);
}

/* What it forwards and makes is accepted by others. */
static void assert_backlog_is_sound(struct site_backlog *b)
{
    struct site_clock nothing = {0};
    struct site_effect e;
    const char *why = "";
    bytes raw;
    bool lost = false;
    for (u64 next = b->number; site_backlog_next(b, &nothing, &next, &raw, &lost);)
        if (!site_effect_parse(raw, &e, &why)) fail_msg("%s", why);
    assert_false(lost);
}

static void test_damaged_messages(void **state)
{
    (void)state;
    u32 refused = 0;
    for (u32 round = 0; round < ROUNDS(1000); round++) {
        seed = round + 1;
        world_new(below(2) ? 300 : 1 << 20);
        for (u32 n = 0; n < 10; n++) random_write(&w->s[0]), random_write(&w->s[1]);
        refused += a_damaged_link();
        for (u32 n = 0; n < 10 && !busy(1) && w->s[1].members[2].in; n++) random_write(&w->s[1]);
        housekeeping(1);
        next_tick(1);
        if (!busy(1)) assert_can_be_sent(&w->s[1]);
        assert_backlog_is_sound(&w->b[1]);
        world_free();
    }
    assert_true(refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_converge),
        cmocka_unit_test(test_hello_refused),
        cmocka_unit_test(test_answer_refused),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_no_echo),
        cmocka_unit_test(test_torn_takes_no_effects),
        cmocka_unit_test(test_damaged_messages),
    };
    return cmocka_run_group_tests_name("site links", tests, NULL, NULL);
}
