/* The AOF: what is appended is loaded again; every bit of its files matters; a torn end is no damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "aof_helpers.h"
#include "base/rand.h"
#include "persist/aof_block.h"

#define INCR1 "appendonly.aof.1.incr.aof"
#define INCR2 "appendonly.aof.2.incr.aof"
#define BASE1_RDB "appendonly.aof.1.base.rdb"
#define MANIFEST "appendonly.aof.manifest"

/* -- round trips ----------------------------------------------------------------------------------- */

static void test_nothing(void **state UNUSED)
{
    struct aof_folder p;
    struct aof *a;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    assert_int_equal(aof_open(&a, &o), AOF_NONE);
    aof_free(a);
    assert_int_equal(access(path_in(&p, "", (char[256]){0}), F_OK),
                     -1); /* looking makes no folder */
    aof_folder_close(&p);
}

static void test_round_trip(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    for (int timestamps = 0; timestamps < 2; timestamps++) {
        o.timestamps = timestamps;
        writer_open(&wr, &o);
        assert_true(tick(&wr, "set a 1;select 2;rpush l a b c;hset h f v;sadd s x y;zadd z 1 m"));
        assert_true(tick(&wr, "get a"));
        at(&wr.w, 5000);
        assert_true(tick(
            &wr, "select 1;set t v px 100;set u v px 100000;hset h f v;hpexpire h 10 fields 1 f"));
        at(&wr.w, 5200);
        assert_true(tick(&wr, "get t;select 0;spop nothing;select 2;spop s"));
        check_files(&wr, &o);
        writer_close(&wr);
    }
    aof_folder_close(&p);
}

/* A record of more than 16 MB is not copied into the buffer: it is in the file before the tick ends, between what
 * came before and what comes after it. */
static void test_long_record(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    char path[256];
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    for (int timestamps = 0; timestamps < 2; timestamps++) {
        o.timestamps = timestamps;
        writer_open(&wr, &o);
        assert_true(tick(&wr, "set a 1"));
        u64 size = size_of(path_in(&p, INCR1, path));
        run_all(&wr.w, "append a 2");
        assert_int_equal(size_of(path), size);
        set_long(&wr.w, "long");
        assert_true(size_of(path) > size + LONG_VALUE);
        assert_int_equal(aof_facts(wr.a).buffer, 0);
        assert_true(tick(&wr, "append a 3;append long tail"));
        assert_true(tick(&wr, "set dead v px 10"));
        at(&wr.w, 20 + 20 * timestamps);
        set_long(&wr.w, "dead"); /* within MULTI, after a DEL */
        assert_true(tick(&wr, "append dead tail"));
        check_files(&wr, &o);
        writer_close(&wr);
    }
    aof_folder_close(&p);
}

/* Time stands still while loading: what was alive when it was written to is alive, and what has died since is
 * there, and dead. */
static void test_nothing_dies_while_loading(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    struct world w;
    struct aof *a;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a x px 1000;append a y;rename a b;set c z px 1000;persist c"));
    check_files(&wr, &o);
    writer_close(&wr);
    world_open(&w);
    assert_int_equal(aof_open(&a, &o), AOF_FILES);
    assert_int_equal(load_into(a, &w.region, UINT64_MAX), OK);
    assert_string_equal(run(&w, "get b"), "xy");
    assert_int_equal(w.journal.n, 0); /* what is loaded is no news */
    at(&w, 1000);
    assert_string_equal(run(&w, "get b"), "nil");
    assert_string_equal(run(&w, "get c"), "z");
    assert_int_equal(w.journal.n, 1);
    aof_free(a);
    world_close(&w);
    aof_folder_close(&p);
}

static void random_commands(struct writer *wr, u64 *rng, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        char line[200];
        u32 k = (u32)rand_below(rng, 40), v = (u32)rand_below(rng, 1000);
        switch (rand_below(rng, 8)) {
        case 0: snprintf(line, sizeof line, "select %u", k % DBS); break;
        case 1: snprintf(line, sizeof line, "set s%u %u px %u", k, v, 1000 + v); break;
        case 2: snprintf(line, sizeof line, "rpush l%u %u %u", k, v, k); break;
        case 3: snprintf(line, sizeof line, "hset h%u f%u %u g %u", k, v, k, v); break;
        case 4: snprintf(line, sizeof line, "zadd z%u %u m%u", k, k, v); break;
        case 5: snprintf(line, sizeof line, "del s%u l%u", k, v % 40); break;
        case 6: snprintf(line, sizeof line, "spop t%u", k); break;
        default: snprintf(line, sizeof line, "sadd t%u %u", k, v);
        }
        run(&wr->w, line);
        if (rand_below(rng, 5) == 0) assert_true(aof_flush(wr->a, now_of(&wr->w)));
        if (rand_below(rng, 50) == 0) at(&wr->w, now_of(&wr->w) - T0 + 100);
    }
    assert_true(aof_flush(wr->a, now_of(&wr->w)));
}

static void test_restarts_and_rewrites(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    u64 rng = 5;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    for (int round = 0; round < 12; round++) {
        o.sync = (enum aof_sync)(round % 3);
        o.timestamps = round % 2;
        writer_open(&wr, &o);
        random_commands(&wr, &rng, 300);
        check_files(&wr, &o);
        if (round % 3 == 1) { /* a rewrite with changes meanwhile: the base is as of its begin */
            struct buf want = {0};
            assert_true(aof_rewrite_begin(wr.a));
            assert_true(write_base(wr.a, &wr.w.region, round % 2));
            random_commands(&wr, &rng, 100);
            dump_all(&wr.w.region, &want);
            assert_true(aof_rewrite_end(wr.a, round % 2, 0));
            buf_release(&want);
            check_files(&wr, &o);
        }
        if (round % 4 == 2) {
            assert_true(aof_rewrite_begin(wr.a));
            random_commands(&wr, &rng, 50);
            aof_rewrite_abandon(wr.a);
            random_commands(&wr, &rng, 50);
            check_files(&wr, &o);
        }
        struct aof_facts f = aof_facts(wr.a);
        assert_true(f.current_size >= f.base_size && f.buffer == 0 && !f.write_failed &&
                    !f.wants_rewrite);
        writer_close(&wr);
    }
    aof_folder_close(&p);
}

/* The sizes that INFO tells are those of the files. */
static void test_facts(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    char path[256];
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a 1"));
    assert_int_equal(aof_facts(wr.a).current_size, size_of(path_in(&p, INCR1, path)));
    assert_true(rewrite(&wr, true));
    assert_true(tick(&wr, "set b 1"));
    assert_int_equal(aof_facts(wr.a).base_size, size_of(path_in(&p, BASE1_RDB, path)));
    assert_int_equal(aof_facts(wr.a).current_size,
                     size_of(path_in(&p, BASE1_RDB, path)) + size_of(path_in(&p, INCR2, path)));
    assert_int_equal(size_of(path_in(&p, INCR1, path)), UINT64_MAX);
    u64 size = aof_facts(wr.a).current_size;
    writer_close(&wr);
    writer_open(&wr, &o);
    assert_int_equal(aof_facts(wr.a).current_size, size);
    assert_true(aof_rewrite_begin(wr.a));
    assert_int_equal(aof_facts(wr.a).current_size, size + AOF_LINE);
    aof_rewrite_abandon(wr.a);
    writer_close(&wr);
    aof_folder_close(&p);
}

static void test_gc_disabled(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    char path[256];
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    o.disable_gc = true;
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a 1"));
    assert_true(rewrite(&wr, true) && rewrite(&wr, false));
    check_files(&wr, &o);
    assert_int_not_equal(size_of(path_in(&p, INCR1, path)), UINT64_MAX);
    assert_int_not_equal(size_of(path_in(&p, BASE1_RDB, path)), UINT64_MAX);
    writer_close(&wr);
    o.disable_gc = false;
    writer_open(&wr, &o); /* the next start without it cleans up */
    assert_int_equal(size_of(path_in(&p, INCR1, path)), UINT64_MAX);
    assert_int_equal(size_of(path_in(&p, BASE1_RDB, path)), UINT64_MAX);
    check_files(&wr, &o);
    writer_close(&wr);
    aof_folder_close(&p);
}

/* -- data that did not come from the files --------------------------------------------------------- */

static void test_start_rewriting(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    struct buf got = {0}, before = {0};
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set old 1"));
    dump_all(&wr.w.region, &before);
    aof_stop(wr.a); /* appendonly no */
    run_all(&wr.w, "set a 1;set b 2");
    for (int round = 0; round < 2; round++) {
        assert_true(aof_start_rewriting(wr.a, &wr.w.region.journal));
        assert_true(write_base(wr.a, &wr.w.region, true));
        assert_true(tick(&wr, "set c 3;append c x"));
        assert_int_equal(load_dump(&o, 100, &got), OK); /* a crash now leaves the files of before */
        assert_true(same(&got, &before));
        if (round == 0) {
            aof_rewrite_abandon(wr.a);
            assert_true(tick(&wr, "set d 4")); /* not recorded */
            assert_int_equal(load_dump(&o, 100, &got), OK);
            assert_true(same(&got, &before));
        }
    }
    assert_true(aof_rewrite_end(wr.a, true, 0));
    check_files(&wr, &o);
    assert_true(tick(&wr, "set e 5"));
    check_files(&wr, &o);
    buf_release(&got);
    buf_release(&before);
    writer_close(&wr);
    aof_folder_close(&p);
}

/* -- damage ---------------------------------------------------------------------------------------- */

/* A base, two increments, and MULTI, deadlines, timestamps in them. */
static void make_small(struct aof_folder *p, struct aof_options *o, bool rdb, struct buf *dump)
{
    struct writer wr;
    aof_folder_open(p);
    p->log.level = LOG_NOTHING;
    *o = options_in(p);
    o->timestamps = true;
    writer_open(&wr, o);
    assert_true(tick(&wr, "set a 1;rpush l x y"));
    assert_true(rewrite(&wr, rdb));
    assert_true(tick(&wr, "append a 2;select 1;hset h f v"));
    assert_true(aof_rewrite_begin(wr.a));
    aof_rewrite_abandon(wr.a);
    assert_true(tick(&wr, "set k v px 5000;sadd s 1 2 3;smove s t 2"));
    at(&wr.w, 6000);
    assert_true(tick(&wr, "set a b;get k"));
    assert_true(tick(&wr, "incr n;getdel n"));
    dump_all(&wr.w.region, dump);
    writer_close(&wr);
}

static void flip_all(const struct aof_options *o, const char *path, const struct buf *want)
{
    struct buf file = {0}, got = {0};
    u32 refused = 0, taken = 0;
    assert_true(read_file(path, &file));
    for (size_t bit = 0; bit < file.n * 8; bit++) {
        file.p[bit / 8] ^= (char)(1 << bit % 8);
        write_file(path, buf_bytes(&file));
        if (load_dump(o, UINT64_MAX, &got)) {
            refused++;
        } else {
            taken++;
            if (!same(&got, want)) fail_msg("bit %zu of %s: other data, silently", bit, path);
        }
        file.p[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(size_of(path), file.n); /* nor was anything cut off */
    }
    write_file(path, buf_bytes(&file));
    if (!strstr(path, "manifest")) assert_int_equal(taken, 0);
    assert_true(refused > file.n * 8 * 9 / 10);
    buf_release(&file);
    buf_release(&got);
}

static void test_every_bit(void **state UNUSED)
{
    static const char *const names[] = {INCR2, "appendonly.aof.3.incr.aof", MANIFEST};
    struct aof_folder p;
    struct aof_options o;
    struct buf want = {0}, got = {0};
    char path[256];
    for (int rdb = 0; rdb < 2; rdb++) {
        make_small(&p, &o, rdb, &want);
        flip_all(&o, path_in(&p, rdb ? BASE1_RDB : "appendonly.aof.1.base.aof", path), &want);
        for (size_t i = 0; rdb && i < ARRAY_LEN(names); i++)
            flip_all(&o, path_in(&p, names[i], path), &want);
        assert_int_equal(load_dump(&o, 1, &got), OK);
        assert_true(same(&got, &want));
        aof_folder_close(&p);
    }
    buf_release(&want);
    buf_release(&got);
}

/* Blocks left out, doubled or exchanged; files exchanged, shortened or left out. */
static void test_pieces(void **state UNUSED)
{
    struct aof_folder p;
    struct aof_options o;
    struct buf want = {0}, got = {0}, second = {0}, third = {0}, text = {0}, changed = {0};
    char path2[256], path3[256], manifest[256], base[256];
    make_small(&p, &o, true, &want);
    path_in(&p, INCR2, path2);
    path_in(&p, "appendonly.aof.3.incr.aof", path3);
    path_in(&p, MANIFEST, manifest);
    path_in(&p, BASE1_RDB, base);
    assert_true(read_file(path2, &second) && read_file(path3, &third) &&
                read_file(manifest, &text));

    /* The blocks of the last file. */
    size_t at[64], n = 0;
    for (size_t i = AOF_LINE; i < third.n; n++) {
        u64 length, chain;
        assert_true(aof_line_parse(third.p + i, AOF_TAG_BLOCK, &length, &chain));
        at[n] = i;
        i += AOF_LINE + length;
    }
    at[n] = third.n;
    assert_true(n >= 2);
    for (size_t i = 0; i < n; i++) {
        bytes block = bytes_of(third.p + at[i], at[i + 1] - at[i]);
        for (int twice = 0; twice < 2; twice++) {
            buf_clear(&changed);
            buf_append(&changed, third.p, at[i]);
            if (twice) buf_append_bytes(&changed, block);
            if (twice) buf_append_bytes(&changed, block);
            buf_append(&changed, third.p + at[i + 1], third.n - at[i + 1]);
            write_file(path3, buf_bytes(&changed));
            err e = load_dump(&o, 1000, &got);
            bool cut_at_block = !twice &&
                                i + 1 == n; /* the last one: as if it had never been written */
            assert_int_equal(e, cut_at_block ? OK : ERR_SYNTAX);
        }
    }
    write_file(path3, buf_bytes(&second)); /* exchanged */
    assert_int_equal(load_dump(&o, 1000, &got), ERR_SYNTAX);
    write_file(path3, buf_bytes(&third));
    for (size_t cut = 0; cut < second.n; cut++) { /* not the last file: its end must not miss */
        write_file(path2, bytes_of(second.p, cut));
        assert_int_equal(load_dump(&o, 1000, &got), ERR_SYNTAX);
    }
    unlink(path2);
    assert_int_equal(load_dump(&o, 1000, &got), ERR_SYNTAX);
    write_file(path2, buf_bytes(&second));
    unlink(base);
    assert_int_equal(load_dump(&o, 1000, &got), ERR_SYNTAX);
    write_file(base, BYTES_LIT(""));
    assert_int_equal(load_dump(&o, 1000, &got), ERR_SYNTAX);

    struct aof_folder q; /* a base that is right, and of the same size, but of another AOF */
    struct writer wr;
    aof_folder_open(&q);
    struct aof_options oq = options_in(&q);
    writer_open(&wr, &oq);
    assert_true(tick(&wr, "set a 2;rpush l x y"));
    assert_true(rewrite(&wr, true));
    writer_close(&wr);
    buf_clear(&changed);
    assert_true(read_file(path_in(&q, BASE1_RDB, path3), &changed));
    write_file(base, buf_bytes(&changed));
    p.log.level = LOG_NOTICE;
    assert_int_equal(load_dump(&o, 1000, &got), ERR_SYNTAX);
    assert_true(logged(&p, "its end is not that of the file the manifest speaks of"));
    aof_folder_close(&q);

    buf_release(&changed);
    buf_release(&second);
    buf_release(&third);
    buf_release(&text);
    buf_release(&want);
    buf_release(&got);
    aof_folder_close(&p);
}

/* The last file cut at every byte: what it held up to a block, and the file ends there; or a refusal. Zero
 * bytes instead of the rest, behind the first line, are the same. */
static void test_truncation(void **state UNUSED)
{
    struct aof_folder p;
    struct aof_options o;
    struct buf want = {0}, got = {0}, last = {0}, cut = {0}, zeros = {0};
    char path[256];
    u64 sizes = 0, before = 0;
    make_small(&p, &o, true, &want);
    path_in(&p, "appendonly.aof.3.incr.aof", path);
    assert_true(read_file(path, &last));
    for (size_t n = 0; n < last.n; n++) {
        write_file(path, bytes_of(last.p, n));
        o.load_truncated = false;
        err refused = load_dump(&o, 1000, &got);
        assert_int_equal(size_of(path), n);
        o.load_truncated = true;
        assert_int_equal(load_dump(&o, 1000, &cut), OK);
        u64 kept = size_of(path);
        assert_true(kept <= n && kept >= before);
        assert_int_equal(refused, kept == n ? OK : ERR_SYNTAX);
        if (kept != before) sizes++;
        before = kept;

        buf_clear(&zeros);
        buf_append(&zeros, last.p, n);
        while (zeros.n < last.n + 5000) buf_append_char(&zeros, '\0');
        write_file(path, buf_bytes(&zeros));
        err e = load_dump(&o, 1000, &got);
        if (n <
            AOF_LINE) { /* the first line is on disk before anything else: this is no torn end */
            assert_int_equal(e, ERR_SYNTAX);
            continue;
        }
        assert_int_equal(e, OK);
        assert_int_equal(size_of(path), kept);
        assert_true(same(&got, &cut));
    }
    assert_true(sizes >= 3); /* first line, and the blocks but the last */
    buf_release(&want);
    buf_release(&got);
    buf_release(&last);
    buf_release(&cut);
    buf_release(&zeros);
    aof_folder_close(&p);
}

/* After a torn end was cut off, appending continues. */
static void test_append_after_cut(void **state UNUSED)
{
    struct aof_folder p;
    struct aof_options o;
    struct writer wr;
    struct buf want = {0};
    char path[256];
    make_small(&p, &o, true, &want);
    p.log.level = LOG_NOTICE;
    path_in(&p, "appendonly.aof.3.incr.aof", path);
    u64 size = size_of(path);
    assert_int_equal(truncate(path, (off_t)size - 1), 0);
    writer_open(&wr, &o);
    assert_true(logged(&p, "were cut off"));
    assert_true(tick(&wr, "set after 1"));
    check_files(&wr, &o);
    writer_close(&wr);
    assert_int_equal(truncate(path, AOF_LINE / 2),
                     0); /* of the first line itself: it is no longer ours */
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set after 2"));
    check_files(&wr, &o);
    writer_close(&wr);
    buf_release(&want);
    aof_folder_close(&p);
}

static void test_lost_manifest(void **state UNUSED)
{
    struct aof_folder p;
    struct aof_options o;
    struct buf want = {0}, got = {0};
    char path[256];
    make_small(&p, &o, true, &want);
    p.log.level = LOG_NOTICE;
    unlink(path_in(&p, MANIFEST, path));
    assert_int_equal(load_dump(&o, 1000, &got), ERR_SYNTAX);
    assert_true(logged(&p, "is missing, but there is appendonly.aof."));
    buf_release(&want);
    buf_release(&got);
    aof_folder_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_long_record),
        cmocka_unit_test(test_nothing_dies_while_loading),
        cmocka_unit_test(test_restarts_and_rewrites),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_gc_disabled),
        cmocka_unit_test(test_start_rewriting),
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_append_after_cut),
        cmocka_unit_test(test_lost_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
