/* Files that Redis wrote: single files and folders, with preamble and without, torn or hostile. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "aof_helpers.h"
#include "resp/command.h"

#define INCR1 "appendonly.aof.1.incr.aof"
#define MANIFEST "appendonly.aof.manifest"
#define LIST "file appendonly.aof.1.incr.aof seq 1 type i\n"

/* Commands as words, ';' between them, in RESP. A word that begins with '#' is an annotation. */
static void resp_of(struct buf *out, const char *commands)
{
    char copy[1024], *rest = NULL;
    CHECK(snprintf(copy, sizeof copy, "%s", commands) < (int)sizeof copy);
    for (char *c = strtok_r(copy, ";", &rest); c; c = strtok_r(NULL, ";", &rest)) {
        bytes argv[64];
        int argc = 0;
        char *words = NULL;
        if (*c == '#') {
            buf_printf(out, "%s\r\n", c);
            continue;
        }
        for (char *w = strtok_r(c, " ", &words); w; w = strtok_r(NULL, " ", &words))
            argv[argc++] = bytes_str(w);
        resp_write_command(out, argc, argv);
    }
}

static void put(struct aof_folder *p, const char *name, bytes content)
{
    char path[256];
    mkdir(path_in(p, "", path), 0755);
    write_file(path_in(p, name, path), content);
}

static void put_incr(struct aof_folder *p, const char *commands)
{
    struct buf b = {0};
    resp_of(&b, commands);
    put(p, INCR1, buf_bytes(&b));
    put(p, MANIFEST, BYTES_LIT(LIST));
    buf_release(&b);
}

/* The file holds what these commands make. */
static void check_data(const struct aof_options *o, const char *commands)
{
    struct world w;
    struct buf want = {0}, got = {0};
    world_open(&w);
    run_all(&w, commands);
    dump_all(&w.region, &want);
    assert_int_equal(load_dump(o, 10, &got), OK);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.p, want.p, want.n);
    buf_release(&want);
    buf_release(&got);
    world_close(&w);
}

static void refused(struct aof_folder *p, const struct aof_options *o, const char *why)
{
    struct buf got = {0};
    assert_int_equal(load_dump(o, 10, &got), ERR_SYNTAX);
    assert_true(logged(p, why));
    buf_release(&got);
}

static void test_commands(void **state UNUSED)
{
    struct aof_folder p;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    put_incr(
        &p,
        "#TS:1700000000;SELECT 0;set a 1;SELECT 2;MULTI;rpush l a b;#TS:1700000001;hset h f v;EXEC;"
        "SET t v PXAT 99999999999999;PEXPIREAT l 99999999999999;incrby n 5;MULTI;EXEC");
    check_data(&o, "set a 1;select 2;rpush l a b;hset h f v;set t v pxat 99999999999999;"
                   "pexpireat l 99999999999999;incrby n 5");
    put_incr(&p, "set a 1");
    put(&p, MANIFEST,
        BYTES_LIT("file empty seq 1 type b\n"
                  "file appendonly.aof.1.incr.aof seq 1 type i\n"));
    put(&p, "empty", BYTES_LIT(""));
    check_data(&o, "set a 1");
    aof_folder_close(&p);
}

/* What we append to goes to an increment of ours; the foreign one stays as it is. */
static void test_going_on(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    char path[256];
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    put_incr(&p, "select 1;set a 1");
    u64 size = size_of(path_in(&p, INCR1, path));
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set b 2;select 1;append a x"));
    check_files(&wr, &o);
    assert_int_equal(size_of(path_in(&p, INCR1, path)), size);
    assert_int_not_equal(size_of(path_in(&p, "appendonly.aof.2.incr.aof", path)), UINT64_MAX);
    assert_int_equal(aof_facts(wr.a).current_size, size + size_of(path));
    writer_close(&wr);
    writer_open(&wr, &o); /* and is gone on with at the next start */
    assert_true(tick(&wr, "set c 2"));
    assert_int_equal(size_of(path_in(&p, "appendonly.aof.3.incr.aof", path)), UINT64_MAX);
    check_files(&wr, &o);
    assert_true(rewrite(&wr, false));
    check_files(&wr, &o);
    writer_close(&wr);
    aof_folder_close(&p);
}

/* A foreign file cut at every byte: whole commands, whole transactions, and the file ends there. */
static void test_truncation(void **state UNUSED)
{
    static const char *const steps[] = {"set a 1;", "MULTI;set b 2;set c 3;EXEC;", "set d 4"};
    struct aof_folder p;
    struct buf whole = {0}, part = {0}, got = {0}, want = {0};
    char path[256];
    size_t ends[3];
    aof_folder_open(&p);
    p.log.level = LOG_NOTHING;
    struct aof_options o = options_in(&p);
    for (int i = 0; i < 3; i++) {
        resp_of(&whole, steps[i]);
        ends[i] = whole.n;
    }
    put_incr(&p, "");
    path_in(&p, INCR1, path);
    for (size_t n = 0; n < whole.n; n++) {
        size_t keep = 0;
        for (int i = 0; i < 3; i++)
            if (ends[i] <= n) keep = ends[i];
        write_file(path, bytes_of(whole.p, keep));
        assert_int_equal(load_dump(&o, 10, &want), OK);
        write_file(path, bytes_of(whole.p, n));
        o.load_truncated = false;
        assert_int_equal(load_dump(&o, 10, &got), keep == n ? OK : ERR_SYNTAX);
        o.load_truncated = true;
        assert_int_equal(load_dump(&o, 10, &got), OK);
        assert_true(same(&got, &want));
        assert_int_equal(size_of(path), keep);
    }
    buf_release(&whole);
    buf_release(&part);
    buf_release(&got);
    buf_release(&want);
    aof_folder_close(&p);
}

static void test_refused(void **state UNUSED)
{
    struct aof_folder p;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    put_incr(&p, "set a 1;nonsense x y");
    refused(&p, &o, "at offset 27: Unknown command 'nonsense' reading the append only file");
    put_incr(&p, "FUNCTION load x");
    refused(&p, &o, "the command 'FUNCTION' failed: -ERR Missing library metadata");
    put_incr(&p, "FUNCTION nonsense");
    refused(&p, &o, "Unknown command 'FUNCTION' reading the append only file");
    const char *with_stream = "set a 1;xadd s 1-1 f v;xgroup create s g 0;"
                              "xclaim s g c 0 1-1 TIME 5 RETRYCOUNT 2 FORCE JUSTID;set b 2";
    put_incr(&p, with_stream);
    check_data(&o, with_stream);
    put_incr(&p, "set a 1;lpush a x");
    refused(&p, &o, "the command 'lpush' failed: -WRONGTYPE");
    put_incr(&p, "set a");
    refused(&p, &o,
            "the command 'set' is not one that a file may hold, or has not the right number");
    put_incr(&p, "config set maxmemory 1");
    refused(&p, &o, "is not one that a file may hold");
    put_incr(&p, "select 99");
    refused(&p, &o, "the command 'select' failed");
    put_incr(&p, "EXEC");
    refused(&p, &o, "EXEC without MULTI");
    put_incr(&p, "MULTI;MULTI;EXEC;EXEC");
    refused(&p, &o, "MULTI inside of MULTI");
    static const char *const bad[] = {
        "*0\r\n",
        "*-1\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$3\r\nabcde\r\n",
        "*01\r\n$1\r\na\r\n",
        "*1\n$1\na\n",
        "*1\r\n:1\r\n",
        "*99999999999999999999\r\n",
        "*2147483648\r\n",
        "*1\r\n$2147483648\r\n",
        "*x\r\n",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        put(&p, INCR1, bytes_str(bad[i]));
        refused(&p, &o, "there is no command in RESP here");
    }
    put(&p, INCR1, BYTES_LIT("hello"));
    refused(&p, &o, "neither as a file of Mayfly nor as one of Redis");
    /* A count that nothing follows takes no memory. */
    put(&p, INCR1, BYTES_LIT("*2147483647\r\n$2147483647\r\nx"));
    check_data(&o, "");
    aof_folder_close(&p);
}

/* A torn file that is not the last. */
static void test_torn_in_the_middle(void **state UNUSED)
{
    struct aof_folder p;
    struct buf b = {0};
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    resp_of(&b, "set a 1;set b 2");
    put(&p, "one", bytes_of(b.p, b.n - 1));
    put(&p, "two", buf_bytes(&b));
    put(&p, MANIFEST, BYTES_LIT("file one seq 1 type i\nfile two seq 2 type i\n"));
    refused(&p, &o, "is not the last file");
    unlink(path_in(&p, "one", (char[256]){0}));
    refused(&p, &o, "/one, which the manifest names, can't be read: No such file");
    buf_release(&b);
    aof_folder_close(&p);
}

/* A command longer than any window, and one of very many arguments. */
static void test_long_commands(void **state UNUSED)
{
    struct aof_folder p;
    struct buf b = {0}, big = {0};
    struct world w;
    struct aof *a;
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    buf_reserve(&big, 5000000);
    memset(big.p, 'x', big.n = 5000000);
    resp_write_command(&b, 3, (bytes[]){BYTES_LIT("SET"), BYTES_LIT("big"), buf_bytes(&big)});
    buf_printf(&b, "*%d\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n", 300002);
    for (int i = 0; i < 300000; i++) buf_append_str(&b, "$1\r\ne\r\n");
    resp_of(&b, "set last 1");
    put(&p, INCR1, buf_bytes(&b));
    put(&p, MANIFEST, BYTES_LIT(LIST));
    world_open(&w);
    assert_int_equal(aof_open(&a, &o), AOF_FILES);
    assert_int_equal(load_into(a, &w.region, 1), OK);
    assert_string_equal(run(&w, "strlen big"), "5000000");
    assert_string_equal(run(&w, "llen l"), "300000");
    assert_string_equal(run(&w, "get last"), "1");
    u64 loaded, total;
    aof_load_progress(a, &loaded, &total);
    assert_int_equal(loaded, total);
    assert_int_equal(total, b.n);
    aof_free(a);
    world_close(&w);
    buf_release(&b);
    buf_release(&big);
    aof_folder_close(&p);
}

/* -- old single files ------------------------------------------------------------------------------ */

static void put_old(struct aof_folder *p, bytes content)
{
    char path[256];
    snprintf(path, sizeof path, "%s/" FILENAME, p->dir);
    write_file(path, content);
}

static void check_upgrade(struct aof_folder *p, bool torn_end)
{
    struct writer wr;
    char path[256];
    struct aof_options o = options_in(p);
    check_data(&o, torn_end ? "set a 1" : "set a 1;set b 2");
    assert_true(logged(p, "Successfully migrated an old-style AOF file"));
    assert_int_not_equal(size_of(path_in(p, FILENAME, path)), UINT64_MAX);
    snprintf(path, sizeof path, "%s/" FILENAME, p->dir);
    assert_int_equal(size_of(path), UINT64_MAX);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set c 3"));
    check_files(&wr, &o);
    assert_true(rewrite(&wr, true));
    check_files(&wr, &o);
    assert_int_equal(size_of(path_in(p, FILENAME, path)), UINT64_MAX);
    assert_int_not_equal(size_of(path_in(p, "appendonly.aof.2.base.rdb", path)), UINT64_MAX);
    put_old(p, BYTES_LIT("*1\r\n$4\r\njunk\r\n")); /* comes too late */
    check_files(&wr, &o);
    assert_true(logged(p, "is not used"));
    writer_close(&wr);
}

static void test_upgrade(void **state UNUSED)
{
    struct aof_folder p;
    struct buf b = {0};
    resp_of(&b, "SELECT 0;set a 1;set b 2");
    for (int torn = 0; torn < 2; torn++) {
        aof_folder_open(&p);
        put_old(&p, bytes_of(b.p, b.n - (size_t)torn));
        check_upgrade(&p, torn);
        aof_folder_close(&p);
    }
    aof_folder_open(&p); /* one that was interrupted after its manifest was written */
    put_old(&p, buf_bytes(&b));
    put(&p, MANIFEST, BYTES_LIT("file " FILENAME " seq 1 type b\n"));
    check_upgrade(&p, false);
    aof_folder_close(&p);
    buf_release(&b);
}

/* An old file with RDB preamble, as aof-use-rdb-preamble of Redis 4 to 6 has it. */
static void test_preamble(void **state UNUSED)
{
    struct aof_folder p, q;
    struct writer wr;
    struct buf b = {0};
    char path[256];
    aof_folder_open(&q);
    struct aof_options oq = options_in(&q);
    writer_open(&wr, &oq);
    assert_true(tick(&wr, "set a 0"));
    assert_true(rewrite(&wr, true));
    assert_true(read_file(path_in(&q, "appendonly.aof.1.base.rdb", path), &b));
    writer_close(&wr);
    aof_folder_close(&q);
    resp_of(&b, "SELECT 0;incr a;set b 2");
    for (int torn = 0; torn < 2; torn++) {
        aof_folder_open(&p);
        put_old(&p, bytes_of(b.p, b.n - (size_t)torn));
        check_upgrade(&p, torn);
        aof_folder_close(&p);
    }
    aof_folder_open(&p); /* a torn preamble can't be helped */
    struct aof_options o = options_in(&p);
    put_old(&p, bytes_of(b.p, 20));
    refused(&p, &o, "Bad file format reading the append only file " FILENAME);
    aof_folder_close(&p);
    buf_release(&b);
}

/* -- Redis appended to a file of ours -------------------------------------------------------------- */

static void test_unchecked(void **state UNUSED)
{
    struct aof_folder p;
    struct writer wr;
    struct buf b = {0}, more = {0};
    char path[256];
    aof_folder_open(&p);
    struct aof_options o = options_in(&p);
    writer_open(&wr, &o);
    assert_true(tick(&wr, "set a 1"));
    writer_close(&wr);
    assert_true(read_file(path_in(&p, INCR1, path), &b));
    resp_of(&b, "SELECT 0;set b 2");
    write_file(path, buf_bytes(&b));
    refused(&p, &o, "commands without checksums follow");
    o.load_unchecked = true;
    check_data(&o, "set a 1;set b 2");
    writer_open(&wr, &o);
    assert_true(aof_facts(wr.a).wants_rewrite);
    assert_true(tick(&wr, "set c 3"));
    check_files(&wr, &o);
    assert_true(rewrite(&wr, true));
    assert_false(aof_facts(wr.a).wants_rewrite);
    o.load_unchecked = false;
    check_files(&wr, &o);
    writer_close(&wr);
    buf_release(&b);
    buf_release(&more);
    aof_folder_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_going_on),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_torn_in_the_middle),
        cmocka_unit_test(test_long_commands),
        cmocka_unit_test(test_upgrade),
        cmocka_unit_test(test_preamble),
        cmocka_unit_test(test_unchecked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
