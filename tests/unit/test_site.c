/* The parts of the site layer that tests/site/replay.c can't reach: damaged and hostile bytes, order of
 * positions, exact numbers, and what the metadata of usual keys takes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/memory/memory.h"
#include "rounds.h"
#include "site/place.h"
#include "site/full.h"
#include "site/state.h"
#include "site/write.h"
#include "xstream/xstream.h"

static u64 seed = 1;

static u32 below(u32 n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (u32)((seed >> 11) % n);
}

/* -- a site whose effects are collected ----------------------------------------------------------- */

#define KEPT 512

struct one {
    struct engine *e;
    struct site s;
    struct buf effects[KEPT];
    u32 n;
};

static void collect(void *arg, const struct site_effect *e)
{
    struct one *o = arg;
    if (o->n < KEPT) buf_append_bytes(&o->effects[o->n++], e->all);
}

static struct one *one_new(u8 gid)
{
    static const u8 gids[] = {1, 2, 3};
    struct one *o = calloc(1, sizeof *o);
    o->e = memory_engine_new(2, 1);
    o->e->ops->begin(o->e, 1);
    site_init(&o->s, o->e, 2, gid);
    site_found(&o->s, gids, 3);
    site_tick(&o->s, 1000000);
    o->s.emit = collect;
    o->s.emit_arg = o;
    return o;
}

static void one_free(struct one *o)
{
    for (u32 i = 0; i < KEPT; i++) buf_release(&o->effects[i]);
    site_release(&o->s);
    o->e->ops->close(o->e);
    free(o);
}

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
    static const char *const names[] = {"a", "b", "c"}, *const paths[] = {"f", "g", "h"},
                             *const numbers[] = {"1", "2.5"};
    static const enum value_type kinds[] = {TYPE_HASH, TYPE_SET, TYPE_ZSET, TYPE_STREAM};
    bytes name = word(names, 3), path = word(paths, 3);
    struct key_ref ref;
    enum value_type kind = s->e->ops->find(s->e, 0, name, &ref) ? ref.type : kinds[below(4)];
    site_expire(s, 0, name, NULL);
    switch (below(8)) {
    case 0: site_write_set(s, 0, name, word(numbers, 2), below(2) ? 0 : site_now(s) + below(2000)); break;
    case 1: site_write_del(s, 0, name); break;
    case 2: site_write_ttl(s, 0, name, below(2) ? 0 : site_now(s) + 1 + below(2000)); break;
    case 3: site_write_flush(s, below(2) ? 0 : SITE_ALL_DBS); break;
    case 4:
        if (!site_counts(kind)) break;
        site_write_add(s, 0, name, kind, kind == TYPE_STRING ? (bytes){"", 0} : path, site_num_of(below(9)));
        break;
    case 5:
        if (kind == TYPE_LIST || !s->e->ops->find(s->e, 0, name, &ref))
            site_write_push(s, 0, name, below(2), &path, 1);
        break;
    default:
        if (kind == TYPE_LIST || kind == TYPE_STRING) break;
        if (kind == TYPE_STREAM) {
            random_stream_write(s, 0, name);
            break;
        }
        site_write_put(s, 0, name, kind,
                       (bytes[]){path, kind == TYPE_SET ? (bytes){"", 0} : word(numbers, 2)}, 1);
    }
    site_tick(s, s->phys_ms + below(100));
}

static void damage(struct buf *b)
{
    for (u32 n = 1 + below(3); n > 0 && b->n; n--) {
        switch (below(4)) {
        case 0: b->n = below((u32)b->n); break;
        case 1: b->p[below((u32)b->n)] = (char)below(256); break;
        case 2: b->p[below((u32)b->n)] ^= (char)(1 << below(8)); break;
        case 3: buf_append_char(b, (char)below(256)); break;
        }
    }
}

static void dump_of(struct one *a, struct buf *head, struct buf dumps[3])
{
    static const char *const names[] = {"a", "b", "c"};
    site_put_snapshot_head(&a->s, head);
    for (u32 i = 0; i < 3; i++) site_put_key(&a->s, 0, bytes_str(names[i]), &dumps[i]);
}

static void release_dump(struct buf *head, struct buf dumps[3])
{
    buf_release(head);
    for (u32 i = 0; i < 3; i++) buf_release(&dumps[i]);
}

/* A site that has nothing accepts all of its keys, and stores the same. */
static void assert_consistent(struct one *a)
{
    static const char *const names[] = {"a", "b", "c"};
    u8 gid = 4; /* of which it knows nothing */
    while (a->s.clock.seq[gid] || a->s.fenced[gid]) gid++;
    struct one *c = one_new(gid);
    struct buf head = {0}, dumps[3] = {{0}}, other = {0}, again[3] = {{0}};
    struct site_merge m = {0};
    const char *why = "";
    dump_of(a, &head, dumps);
    if (!site_merge_begin(&c->s, &m, buf_bytes(&head), &why)) fail_msg("%s", why);
    for (u32 i = 0; i < 3; i++) {
        if (!site_merge_check(&m, buf_bytes(&dumps[i]), &why)) fail_msg("%s", why);
        site_merge_key(&c->s, &m, 0, bytes_str(names[i]), buf_bytes(&dumps[i]));
    }
    dump_of(c, &other, again);
    for (u32 i = 0; i < 3; i++) assert_true(bytes_eq(buf_bytes(&dumps[i]), buf_bytes(&again[i])));
    site_merge_release(&m);
    release_dump(&head, dumps);
    release_dump(&other, again);
    one_free(c);
}

/* Nothing of a refused message is applied. */
static u64 hash_of(struct one *a)
{
    struct buf head = {0}, dumps[3] = {{0}};
    dump_of(a, &head, dumps);
    u64 h = hash_bytes(buf_bytes(&head), a->s.n_pending);
    for (u32 i = 0; i < 3; i++) h = hash_bytes(buf_bytes(&dumps[i]), h);
    release_dump(&head, dumps);
    return h;
}

/* Whatever arrives, the site refuses it or applies it, and afterwards it can still do everything. */
static void test_damaged_effects(void **state)
{
    (void)state;
    u32 refused = 0, applied = 0;
    for (u32 round = 0; round < ROUNDS(2000); round++) {
        struct one *a = one_new(1), *b = one_new(2);
        for (u32 i = 0; i < 30; i++) random_write(&a->s);
        for (u32 i = 0; i < a->n; i++) {
            const char *why = "";
            struct buf raw = {0};
            buf_append_bytes(&raw, buf_bytes(&a->effects[i]));
            if (below(3)) damage(&raw);
            u64 before = hash_of(b);
            enum site_outcome got = site_receive(&b->s, buf_bytes(&raw), &why);
            if (got != SITE_APPLIED && got != SITE_WAITS) assert_int_equal(hash_of(b), before);
            if (got == SITE_REFUSED) assert_true(*why);
            refused += got == SITE_REFUSED;
            applied += got == SITE_APPLIED;
            assert_int_equal(site_receive(&b->s, buf_bytes(&a->effects[i]), &why) == SITE_REFUSED, 0);
            random_write(&b->s);
            buf_release(&raw);
        }
        assert_consistent(b);
        for (u32 i = 0; i < b->n; i++) { /* what it forwards and makes is accepted */
            struct site_effect e;
            const char *why = "";
            if (!site_effect_parse(buf_bytes(&b->effects[i]), &e, &why)) fail_msg("%s", why);
        }
        one_free(a);
        one_free(b);
    }
    assert_true(refused > 100 && applied > 100);
}

static void test_damaged_snapshots(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    u32 refused = 0, merged = 0;
    for (u32 round = 0; round < ROUNDS(1000); round++) {
        struct one *a = one_new(1), *b = one_new(2);
        struct buf head = {0}, dumps[3] = {{0}};
        struct site_merge m = {0};
        const char *why = "";
        for (u32 i = 0; i < 20; i++) random_write(&a->s), random_write(&b->s);
        dump_of(a, &head, dumps);
        if (below(3) == 0) damage(&head);
        for (u32 i = 0; i < 3; i++)
            if (below(2)) damage(&dumps[i]);
        bool ok = site_merge_begin(&b->s, &m, buf_bytes(&head), &why);
        for (u32 i = 0; i < 3 && ok; i++) ok = site_merge_check(&m, buf_bytes(&dumps[i]), &why);
        for (u32 i = 0; i < 3 && ok; i++)
            site_merge_key(&b->s, &m, 0, bytes_str(names[i]), buf_bytes(&dumps[i]));
        if (ok) site_merge_finish(&b->s, &m);
        refused += !ok;
        merged += ok;
        for (u32 i = 0; i < 10 && ok; i++) random_write(&b->s);
        if (ok) assert_consistent(b);
        site_merge_release(&m);
        release_dump(&head, dumps);
        one_free(a);
        one_free(b);
    }
    assert_true(refused > 10 && merged > 10);
}

/* What a damaged key leads a site to write is accepted by others. */
static void merge_and_append(bytes head, bytes dump)
{
    struct one *b = one_new(2);
    struct site_merge m = {0};
    struct site_effect e;
    const char *why = "";
    bytes append[] = {{"", 0}, BYTES_LIT("vw")};
    assert_true(site_merge_begin(&b->s, &m, head, &why));
    if (site_merge_check(&m, dump, &why)) {
        site_merge_key(&b->s, &m, 0, BYTES_LIT("k"), dump);
        site_merge_finish(&b->s, &m);
        site_write_put(&b->s, 0, BYTES_LIT("k"), TYPE_STRING, append, 1);
    }
    for (u32 i = 0; i < b->n; i++)
        if (!site_effect_parse(buf_bytes(&b->effects[i]), &e, &why)) fail_msg("%s", why);
    site_merge_release(&m);
    one_free(b);
}

static void test_every_bit_of_a_key(void **state)
{
    (void)state;
    struct one *a = one_new(1);
    struct buf head = {0}, dump = {0};
    site_write_set(&a->s, 0, BYTES_LIT("k"), BYTES_LIT("v"), 1009000);
    site_write_put(&a->s, 0, BYTES_LIT("k"), TYPE_STRING, (bytes[]){{"", 0}, BYTES_LIT("v")}, 1);
    site_put_snapshot_head(&a->s, &head);
    site_put_key(&a->s, 0, BYTES_LIT("k"), &dump);
    for (size_t bit = 0; bit < dump.n * 8; bit++) {
        dump.p[bit / 8] ^= (char)(1 << bit % 8);
        merge_and_append(buf_bytes(&head), buf_bytes(&dump));
        dump.p[bit / 8] ^= (char)(1 << bit % 8);
    }
    buf_release(&head);
    buf_release(&dump);
    one_free(a);
}

/* Each refusal has its reason. */
static void test_refused(void **state)
{
    (void)state;
    struct one *a = one_new(1), *b = one_new(2);
    const char *why = "";
    struct buf raw = {0}, head = {0};
    struct site_merge m = {0};
    struct site_clock ahead = {0};
    site_write_set(&a->s, 0, BYTES_LIT("k"), BYTES_LIT("v"), 0);
    assert_int_equal(site_receive(&b->s, buf_bytes(&a->effects[0]), &why), SITE_APPLIED);
    assert_int_equal(site_receive(&b->s, buf_bytes(&a->effects[0]), &why), SITE_KNOWN);

    ahead.seq[2] = 6; /* an effect of its own that it never made */
    site_put_effect_head(&raw, (struct site_dot){7, 2}, 1, &ahead);
    assert_int_equal(site_receive(&b->s, buf_bytes(&raw), &why), SITE_REFUSED);
    assert_string_equal(why, "an effect of this site that it has never made");

    buf_clear(&raw); /* a gap in its own numbers */
    site_put_effect_head(&raw, (struct site_dot){7, 3}, 1, &ahead);
    assert_int_equal(site_receive(&b->s, buf_bytes(&raw), &why), SITE_REFUSED);
    assert_string_equal(why, "an effect whose context is not what its site had");

    buf_clear(&raw); /* it depends on effects that are not here */
    ahead.seq[3] = 6;
    site_put_effect_head(&raw, (struct site_dot){7, 3}, 1, &ahead);
    assert_int_equal(site_receive(&b->s, buf_bytes(&raw), &why), SITE_WAITS);

    buf_clear(&raw); /* an expiry beyond what its author had seen */
    ahead = (struct site_clock){0};
    site_put_effect_head(&raw, (struct site_dot){1, 3}, 1, &ahead);
    struct site_move move = {.op = MOVE_CLEAR, .name = BYTES_LIT("k"), .scope = BYTES_LIT("\1\1\1")};
    site_put_move(&raw, &move, false);
    assert_int_equal(site_receive(&b->s, buf_bytes(&raw), &why), SITE_REFUSED);
    assert_string_equal(why, "an effect that refers to what its site can't know");

    site_fence(&a->s, 2, 0); /* b was evicted */
    site_put_snapshot_head(&a->s, &head);
    assert_false(site_merge_begin(&b->s, &m, buf_bytes(&head), &why));
    assert_string_equal(why, "this site was evicted: it has to come back empty, under a new gid");
    site_write_set(&b->s, 0, BYTES_LIT("k"), BYTES_LIT("w"), 0);
    assert_int_equal(site_receive(&a->s, buf_bytes(&b->effects[b->n - 1]), &why), SITE_KNOWN);
    buf_release(&raw);
    buf_release(&head);
    one_free(a);
    one_free(b);
}

/* Cells of streams that nobody can have written are refused. */
static void test_stream_values(void **state)
{
    (void)state;
    static const struct {
        bytes path, value;
        bool good;
    } puts[] = {
        {{"", 0}, {"", 0}, true},
        {{"", 0}, {"x", 1}, false},
        {SITE_LAST_ID, SITE_LAST_ID, true},
        {SITE_LAST_ID, {"123", 3}, false},
        {{"0123456789abcdef", 16}, {"\1\1f\1v", 5}, true},
        {{"0123456789abcdef", 16}, {"\1\0\0", 3}, true},
        {{"0123456789abcdef", 16}, {"\1\1f\2v", 5}, false},
        {{"0123456789abcdef", 16}, {"\1\1f\1vx", 6}, false},
        {{"0123456789abcdef", 16}, {"\0", 1}, false},
        {{"0123456789abcdef", 16}, {"\1", 1}, false},
        {{"0123456789abcdef", 16}, {"", 0}, false},
        {{"0123456789abcdef", 16}, {"\377\377\377\377\377\377\377\377\377\377\1", 11}, false},
        {{"0123456789", 10}, {"\1\1f\1v", 5}, false},
    };
    for (u32 i = 0; i < ARRAY_LEN(puts); i++) {
        struct one *b = one_new(2);
        struct buf raw = {0};
        struct site_clock none = {0};
        const char *why = "";
        site_put_effect_head(&raw, (struct site_dot){1, 1}, 1, &none);
        site_put_move(&raw, &(struct site_move){.op = MOVE_CLAIM, .name = BYTES_LIT("k"), .kind = TYPE_STREAM},
                      false);
        site_put_move(&raw,
                      &(struct site_move){
                          .op = MOVE_PUT, .kind = TYPE_STREAM, .path = puts[i].path, .value = puts[i].value},
                      true);
        assert_int_equal(site_receive(&b->s, buf_bytes(&raw), &why), puts[i].good ? SITE_APPLIED : SITE_REFUSED);
        buf_release(&raw);
        one_free(b);
    }
}

static void assert_restored(struct one *a, bool trail, u64 stable)
{
    struct buf state = {0}, again = {0};
    struct site s;
    site_put_state(&a->s, trail, &state);
    site_init(&s, a->e, 2, 1);
    assert_true(site_get_state(&s, buf_bytes(&state)));
    site_put_state(&s, trail, &again);
    if (trail) assert_true(bytes_eq(buf_bytes(&state), buf_bytes(&again)));
    assert_int_equal(site_now(&s), site_now(&a->s));
    assert_int_equal(site_next_dot(&s).seq, site_next_dot(&a->s).seq);
    assert_true(site_next_stamp(&s) == site_next_stamp(&a->s));
    site_find_stable(&s);
    assert_int_equal(s.stable, stable);
    site_release(&s);
    buf_release(&state);
    buf_release(&again);
}

/* -- effects that belong together ------------------------------------------------------------------ */

static void note_order(void *arg, const struct site_effect *e)
{
    struct buf *order = arg;
    buf_printf(order, " %u.%llu", e->dot.gid, (unsigned long long)e->dot.seq);
}

static void make_piece(struct one *a)
{
    static const struct site_move more = {.op = MOVE_MORE};
    site_put_move(&a->s.moves, &more, false);
    site_write_set(&a->s, 0, BYTES_LIT("x"), BYTES_LIT("1"), 0);
    site_put_move(&a->s.moves, &more, false);
    site_write_set(&a->s, 0, BYTES_LIT("k"), BYTES_LIT("2"), 0);
    site_write_del(&a->s, 0, BYTES_LIT("x"));
}

/* The parts of a piece come in any order, some of them twice. Nothing is seen of it until all are here, and no
 * effect comes between them: not even the expiry of a key that they write to. */
static void test_pieces(void **state)
{
    (void)state;
    static const u8 orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (u32 round = 0; round < 6; round++) {
        struct one *a = one_new(1), *b = one_new(2);
        struct buf order = {0};
        struct key_ref ref;
        const char *why = "";
        make_piece(a);
        site_write_set(&b->s, 0, BYTES_LIT("k"), BYTES_LIT("old"), 1000010);
        site_tick(&b->s, 1000020);
        b->s.emit = note_order;
        b->s.emit_arg = &order;
        for (u32 i = 0; i < 3; i++) {
            bytes raw = buf_bytes(&a->effects[orders[round][i]]);
            assert_int_equal(site_receive(&b->s, raw, &why), i < 2 ? SITE_WAITS : SITE_APPLIED);
            assert_int_equal(site_receive(&b->s, raw, &why), i < 2 ? SITE_WAITS : SITE_KNOWN);
            assert_int_equal(b->s.clock.seq[1], i < 2 ? 0 : 3);
        }
        buf_append_char(&order, 0);
        assert_string_equal(order.p, " 2.2 1.1 1.2 1.3");
        assert_false(b->e->ops->find(b->e, 0, BYTES_LIT("x"), &ref));
        assert_true(b->e->ops->find(b->e, 0, BYTES_LIT("k"), &ref));
        assert_int_equal(ref.deadline_ms, 0);
        buf_release(&order);
        one_free(a);
        one_free(b);
    }
}

/* A restart keeps clocks and members. Without the trail garbage waits until all that was here is
 * everywhere. */
static void test_state(void **state)
{
    (void)state;
    struct one *a = one_new(1);
    struct site_clock heard = {0};
    for (u32 i = 0; i < 5; i++) site_write_set(&a->s, 0, BYTES_LIT("k"), BYTES_LIT("v"), 0);
    heard.seq[1] = 3;
    site_hear(&a->s, 2, &heard);
    site_hear(&a->s, 3, &heard);
    assert_restored(a, true, 3);
    assert_restored(a, false, 0);
    heard.seq[1] = 5;
    site_hear(&a->s, 2, &heard);
    site_hear(&a->s, 3, &heard);
    assert_restored(a, true, 5);
    assert_restored(a, false, 5);
    one_free(a);
}

static void test_damaged_state(void **state)
{
    (void)state;
    for (u32 round = 0; round < ROUNDS(1000); round++) {
        struct one *a = one_new(1);
        struct buf raw = {0};
        struct site s;
        for (u32 i = 0; i < 5; i++) random_write(&a->s);
        site_put_state(&a->s, below(2), &raw);
        damage(&raw);
        site_init(&s, a->e, 2, 1);
        if (site_get_state(&s, buf_bytes(&raw))) site_find_stable(&s);
        site_release(&s);
        buf_release(&raw);
        one_free(a);
    }
}

/* A clock far ahead does not move ours. */
static void test_far_ahead(void **state)
{
    (void)state;
    struct one *a = one_new(1), *b = one_new(2);
    const char *why = "";
    site_tick(&a->s, 1000000 + SITE_MAX_SKEW_MS + 1000);
    site_write_set(&a->s, 0, BYTES_LIT("k"), BYTES_LIT("v"), 0);
    assert_int_equal(site_receive(&b->s, buf_bytes(&a->effects[0]), &why), SITE_APPLIED);
    assert_int_equal(site_now(&b->s), 1000000);
    assert_int_equal(b->s.refused_ahead, 1);
    one_free(a);
    one_free(b);
}

/* -- torn sites ----------------------------------------------------------------------------------- */

/* A full sync of key k; if it is interrupted, the site has that key, but not the clock. */
static void full_sync(struct one *from, struct one *to, bool interrupted)
{
    struct site_full f;
    struct buf head = {0}, dump = {0};
    const char *why = "";
    enum site_full_step step = FULL_MORE;
    site_put_snapshot_head(&from->s, &head);
    site_put_key(&from->s, 0, BYTES_LIT("k"), &dump);
    assert_true(site_full_begin(&f, &to->s, buf_bytes(&head), &why));
    assert_true(site_full_key(&f, 0, BYTES_LIT("k"), buf_bytes(&dump), &why));
    assert_true(site_full_start(&f));
    while (step != FULL_FINISHED && !(interrupted && f.state == FULL_MERGING && f.part > 0))
        step = site_full_step(&f, 1, &why);
    assert_int_equal(to->s.torn, interrupted);
    site_full_release(&f);
    buf_release(&head);
    buf_release(&dump);
}

static void take_from(struct one *to, struct one *from, u32 i)
{
    const char *why = "";
    if (site_receive(&to->s, buf_bytes(&from->effects[i]), &why) > SITE_KNOWN) fail_msg("%s", why);
}

/* Site 1 is torn: it has a losing SET … PX of site 2 that its clock does not cover. Before it is made complete
 * it spends deadlines that have passed. It must not name that one: site 3, whose clock is behind, gets the SET
 * after the effect that would end it. */
static void test_torn_spends_what_it_knows(void **state)
{
    (void)state;
    struct one *a = one_new(1), *b = one_new(2), *c = one_new(3);
    struct buf x = {0}, y = {0};
    bytes k = BYTES_LIT("k");
    site_write_set(&c->s, 0, k, BYTES_LIT("y"), 1000050);
    site_write_set(&b->s, 0, k, BYTES_LIT("w"), 1000100);
    site_tick(&a->s, 1000010);
    site_write_set(&a->s, 0, k, BYTES_LIT("v"), 0);
    take_from(a, c, 0);
    full_sync(b, a, true);
    site_tick(&a->s, 1000200 + SITE_MAX_SKEW_MS);
    full_sync(b, a, false);
    for (u32 i = 0; i < 2; i++) take_from(c, a, i);
    site_write_del(&c->s, 0, k);
    take_from(c, b, 0);
    site_write_ttl(&c->s, 0, k, 0); /* PERSIST */
    for (u32 i = 2; i < a->n; i++) take_from(c, a, i);
    for (u32 i = 0; i < c->n; i++) take_from(a, c, i);
    for (u32 i = 0; i < a->n; i++) take_from(c, a, i);
    assert_memory_equal(&a->s.clock, &c->s.clock, sizeof a->s.clock);
    site_put_key(&a->s, 0, k, &x);
    site_put_key(&c->s, 0, k, &y);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.p, y.p, x.n);
    buf_release(&x);
    buf_release(&y);
    one_free(a);
    one_free(b);
    one_free(c);
}

/* Site 1 has expired a key that site 2 had made persistent. Site 2 hears of it by a full sync. */
static void test_torn_keeps_what_it_extends(void **state)
{
    (void)state;
    struct one *a = one_new(1), *b = one_new(2);
    struct key_ref ref;
    bytes k = BYTES_LIT("k");
    site_write_set(&b->s, 0, k, BYTES_LIT("v"), 0);
    site_write_ttl(&b->s, 0, k, 1000100);
    take_from(a, b, 0);
    take_from(a, b, 1);
    site_write_ttl(&b->s, 0, k, 0);
    site_tick(&a->s, 1000200);
    site_expire(&a->s, 0, k, NULL);
    assert_false(a->e->ops->find(a->e, 0, k, &ref));
    full_sync(a, b, true);
    site_forget_after(&b->s); /* as a process that starts again */
    full_sync(a, b, false);
    assert_true(b->e->ops->find(b->e, 0, k, &ref));
    for (u32 i = 2; i < b->n; i++) take_from(a, b, i);
    assert_true(a->e->ops->find(a->e, 0, k, &ref));
    one_free(a);
    one_free(b);
}

/* -- positions ------------------------------------------------------------------------------------ */

#define PLACES 400

static int by_bytes(const void *a, const void *b) { return bytes_cmp(buf_bytes(a), buf_bytes(b)); }

/* Inserting between two neighbours puts a position between them. */
static void test_places(void **state)
{
    (void)state;
    for (u32 round = 0; round < ROUNDS(20); round++) {
        struct buf v[PLACES + 1] = {{0}};
        u32 n = 0;
        for (; n < 5; n++)
            site_put_place(&v[n], (i64)below(3) - 1, (struct site_dot){n + 1, 1}, (i64)below(600) - 300);
        qsort(v, n, sizeof v[0], by_bytes);
        for (; n < PLACES; n++) {
            struct buf fresh = {0};
            u32 at = below(4) ? below(n + 1) : n / 2;
            bytes before = at ? buf_bytes(&v[at - 1]) : (bytes){"", 0},
                  after = at < n ? buf_bytes(&v[at]) : (bytes){"", 0};
            site_put_place_between(&fresh, before, after, (struct site_dot){n + 1, (u8)(1 + below(3))});
            assert_true(site_place_ok(buf_bytes(&fresh)));
            assert_true(at == 0 || bytes_cmp(before, buf_bytes(&fresh)) < 0);
            assert_true(at == n || bytes_cmp(buf_bytes(&fresh), after) < 0);
            memmove(&v[at + 1], &v[at], (n - at) * sizeof v[0]);
            v[at] = fresh;
        }
        for (u32 i = 0; i < n; i++) buf_release(&v[i]);
    }
}

/* Numbers sort as their positions do, whatever their sign and length. */
static void test_place_order(void **state)
{
    (void)state;
    static const i64 numbers[] = {INT64_MIN + 1, -65537, -65536, -257, -256,  -255,     -2, -1, 0, 1,
                                  127,           128,    255,    256,  65536, INT64_MAX};
    struct buf last = {0}, next = {0};
    for (u32 i = 0; i < ARRAY_LEN(numbers); i++) {
        buf_clear(&next);
        site_put_place(&next, 1, (struct site_dot){5, 1}, numbers[i]);
        if (i) assert_true(bytes_cmp(buf_bytes(&last), buf_bytes(&next)) < 0);
        struct buf other = last;
        last = next;
        next = other;
    }
    buf_release(&last);
    buf_release(&next);
}

/* -- numbers -------------------------------------------------------------------------------------- */

static struct site_num num(const char *text)
{
    struct site_num n;
    assert_true(site_num_parse(bytes_str(text), &n));
    return n;
}

static void assert_sum(const char *a, const char *b, const char *want)
{
    struct buf raw = {0}, text = {0};
    site_put_num(&raw, site_num_add(num(a), num(b)));
    struct site_reader r = site_reader_of(buf_bytes(&raw));
    site_num_print(&text, site_get_num(&r));
    buf_append_char(&text, 0);
    assert_false(r.bad);
    assert_string_equal(text.p, want);
    buf_release(&raw);
    buf_release(&text);
}

static void test_numbers(void **state)
{
    (void)state;
    assert_sum("1", "-3", "-2");
    assert_sum("0.1", "0.2", "0.3"); /* as INCRBYFLOAT */
    assert_sum("1.5", "1.5", "3");
    assert_sum("9223372036854775807", "-9223372036854775808", "-1");
    assert_sum("9223372036854775807", "1", "9223372036854775808");
}

/* -- what it takes -------------------------------------------------------------------------------- */

static size_t head_of(struct one *a, const char *name)
{
    struct key_ref ref;
    bytes head = {0};
    assert_true(a->e->ops->find(a->e, 0, bytes_str(name), &ref));
    assert_true(a->e->ops->companion.head(a->e, &ref, &head));
    assert_false(a->e->ops->companion.kept(a->e, &ref));
    return head.n;
}

/* Heads of up to 15 bytes take no allocation of their own. Here sequence numbers take 2 bytes. */
static void test_sizes(void **state)
{
    (void)state;
    struct one *a = one_new(1);
    bytes field[2] = {BYTES_LIT("f"), BYTES_LIT("v")};
    for (u32 i = 0; i < 200; i++) site_write_set(&a->s, 0, BYTES_LIT("k"), BYTES_LIT("v"), 0);
    assert_int_equal(head_of(a, "k"), 1 + 1 + 2 + 8);
    site_write_set(&a->s, 0, BYTES_LIT("k"), BYTES_LIT("v"), 2000000);
    assert_int_equal(head_of(a, "k"), 1 + 1 + 2 + 8);
    site_write_ttl(&a->s, 0, BYTES_LIT("k"), 3000000);
    assert_int_equal(head_of(a, "k"), 1 + 1 + 2 + 8 + 1 + 2);
    site_write_put(&a->s, 0, BYTES_LIT("h"), TYPE_HASH, field, 1);
    assert_int_equal(head_of(a, "h"), 1 + 1 + 2 + 8);
    one_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_effects),
        cmocka_unit_test(test_damaged_snapshots),
        cmocka_unit_test(test_every_bit_of_a_key),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_damaged_state),
        cmocka_unit_test(test_far_ahead),
        cmocka_unit_test(test_torn_spends_what_it_knows),
        cmocka_unit_test(test_torn_keeps_what_it_extends),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_place_order),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_stream_values),
    };
    return cmocka_run_group_tests_name("site", tests, NULL, NULL);
}
