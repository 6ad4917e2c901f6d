/* RDB files made by hand: all versions are read, with every policy; damaged, truncated and hostile files are
 * refused with reason and offset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crc64.h"
#include "exec/dataset.h"
#include "exec/harness.h"
#include "unit/rdb_helpers.h"

#define NEVER ((i64)1 << 42) /* a deadline beyond all tests */

/* -- files by hand ----------------------------------------------------------------------------- */

struct made {
    struct buf file;
    struct engine *eng;
    struct loading l;
    struct rdb_policy policy;
};

static void made_begin(struct made *m, const char *version)
{
    *m = (struct made){.eng = memory_engine_new(2, 5)};
    m->policy = loading_policy(&m->l);
    buf_append_str(&m->file, "REDIS");
    buf_append_str(&m->file, version);
}

#define MADE(m, lit) buf_append(&(m)->file, lit, sizeof(lit) - 1)

static void made_end(struct made *m)
{
    buf_append_char(&m->file, (char)RDB_OP_EOF);
    u64 crc = crc64(0, buf_bytes(&m->file));
    buf_append(&m->file, &crc, 8);
}

static err made_load(struct made *m)
{
    return load_file(&m->l, m->eng, T0, buf_bytes(&m->file), &m->policy, 0);
}

static void made_release(struct made *m)
{
    loading_release(&m->l);
    m->eng->ops->close(m->eng);
    buf_release(&m->file);
}

/* Loads, and compares the data of database 0 with the text of dataset.h. */
static void made_check(struct made *m, const char *expected)
{
    struct buf text = {0}, wanted = {0};
    made_end(m);
    err e = made_load(m);
    if (e != OK) print_error("%s\n", m->l.loader.error);
    assert_int_equal(e, OK);
    dataset_dump(m->eng, T0, &text);
    buf_printf(&wanted, "db 0\n%sdb 1\n", expected);
    check_equal(&wanted, &text);
    buf_release(&text);
    buf_release(&wanted);
    made_release(m);
}

static void made_refused(struct made *m, const char *error)
{
    assert_int_equal(made_load(m), ERR_SYNTAX);
    if (!strstr(m->l.loader.error, error)) print_error("got: %s\n", m->l.loader.error);
    assert_non_null(strstr(m->l.loader.error, error));
    made_release(m);
}

/* RDB 5, as of Redis 2.6: seconds, zipmaps are gone but may be there, scores as text. */
static void test_version_5(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0005");
    MADE(&m, "\xfe\x00");
    MADE(&m, "\x00\x01s\x05hello");
    MADE(&m, "\xfd\xff\xff\xff\x7f\x00\x01t\xc0\x85"); /* until 2038, in seconds; -123 */
    MADE(&m, "\xfc\x00\x00\x00\x00\x00\x04\x00\x00\x00\x01u\xc1\x00\x80");
    MADE(&m, "\x01\x01l\x02\x01x\xc2\x00\x00\x00\x80");
    MADE(&m, "\x02\x01m\x02\x01x\xc0\x07");
    MADE(&m, "\x03\x01z\x03\x01x\x03" "1.5\x01y\xff\x01w\xfe");
    MADE(&m, "\x04\x01h\x01\x01" "f\x01v");
    MADE(&m, "\x09\x02hz\x14\x02\x03" "foo\x03\0bar\x01x\x05\0world\xff");
    MADE(&m, "\x0a\x02lz\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\x00\xf3\x02\xf6\xff");
    MADE(&m, "\x0b\x02si\x0c\x02\0\0\0\x02\0\0\0\xff\xff\x07\0");
    MADE(&m, "\x0c\x02zz\x13\x13\0\0\0\x10\0\0\0\x02\0\x00\x01m\x03\x03" "0.5\xff");
    MADE(&m, "\x0d\x03hzl\x11\x11\0\0\0\x0e\0\0\0\x02\0\x00\x01" "f\x03\x01v\xff");
    made_check(&m, "\"h\" hash \"f\"=\"v\"\n"
                   "\"hz\" hash \"foo\"=\"bar\" \"x\"=\"world\"\n"
                   "\"hzl\" hash \"f\"=\"v\"\n"
                   "\"l\" list \"x\" \"-2147483648\"\n"
                   "\"lz\" list \"2\" \"5\"\n"
                   "\"m\" set \"7\" \"x\"\n"
                   "\"s\" string \"hello\"\n"
                   "\"si\" set \"-1\" \"7\"\n"
                   "\"t\"@2147483647000 string \"-123\"\n"
                   "\"u\"@4398046511104 string \"-32768\"\n"
                   "\"z\" zset \"y\"=-inf \"x\"=1.5 \"w\"=inf\n"
                   "\"zz\" zset \"m\"=0.5\n");
}

/* RDB 7: AUX fields, sizes, quicklists. RDB 8: binary scores, 64-bit lengths. */
static void test_versions_7_and_8(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0007");
    MADE(&m, "\xfa\x09redis-ver\x05"
             "3.2.1\xfa\x0aredis-bits\xc0\x40\xfa\x03lua\x08return 1\xfe\x00\xfb\x01\x00");
    MADE(
        &m,
        "\x0e\x01q\x02\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\x00\xf3\x02\xf6\xff"
             "\x0d\x0d\0\0\0\x0a\0\0\0\x01\0\x00\xfd\xff");
    made_end(&m);
    assert_int_equal(made_load(&m), OK);
    buf_append_char(&m.l.notes, '\0');
    assert_string_equal(m.l.notes.p, "redis-ver=3.2.1\nredis-bits=64\nlua=return 1\n");
    made_release(&m);

    made_begin(&m, "0008");
    MADE(&m, "\xfe\x00\xfb\x02\x00");
    MADE(&m, "\x05\x01z\x81\0\0\0\0\0\0\0\x01\x80\0\0\0\x01m\0\0\0\0\0\0\xf8\x3f");
    MADE(&m, "\x00\x01k\x40\x03" "abc");
    made_check(&m, "\"k\" string \"abc\"\n\"z\" zset \"m\"=1.5\n");
}

/* RDB 9 has idle times and frequencies; 10 to 12 the packed forms of Redis 7. */
static void test_versions_9_to_12(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0009");
    MADE(&m, "\xfe\x00\xfc\x00\x00\x00\x00\x00\x04\x00\x00\xf8\x40\xff\x00\x01k\x01v\xf9\x07\x00\x01l\x01w");
    made_end(&m);
    assert_int_equal(made_load(&m), OK);
    struct key_ref ref;
    assert_true(m.eng->ops->find(m.eng, 0, BYTES_LIT("k"), &ref));
    assert_int_equal(access_idle_ms(&m.l.ks, m.eng->ops->access(m.eng, &ref)), 255000);
    assert_true(m.eng->ops->find(m.eng, 0, BYTES_LIT("l"), &ref));
    assert_int_equal(access_idle_ms(&m.l.ks, m.eng->ops->access(m.eng, &ref)), 0);
    made_release(&m);

    made_begin(&m, "0012");
    MADE(&m, "\xfe\x00\xf4\x05\x02\x00\xfb\x05\x00");
    MADE(&m, "\x10\x01h\x0d\x0d\0\0\0\x02\0\x81" "f\x02\x81v\x02\xff");
    MADE(&m, "\x11\x01z\x0c\x0c\0\0\0\x02\0\x81" "m\x02\x07\x01\xff");
    MADE(
        &m,
        "\x12\x01l\x03\x02\x09\x09\0\0\0\x01\0\x05\x01\xff"
             "\x01\x05plain\x02\x0a\x0a\0\0\0\x01\0\xdf\xff\x02\xff");
    MADE(&m, "\x14\x01s\x0c\x0c\0\0\0\x02\0\x81" "m\x02\x07\x01\xff");
    MADE(&m, "\x18\x01t\x00\x00\x00\x00\x00\x04\x00\x00\x02\x00\x01" "a\x01v\x0b\x01" "b\x01w");
    made_check(&m, "\"h\" hash \"f\"=\"v\"\n\"l\" list \"5\" \"plain\" \"-1\"\n\"s\" set \"7\" \"m\"\n"
                   "\"t\" hash \"a\"=\"v\" \"b\"=\"w\"@4398046511114\n\"z\" zset \"m\"=7\n");
}

static void test_lzf(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0006");
    /* one literal, then 20 bytes of one back */
    MADE(&m, "\xfe\x00\x00\x01k\xc3\x05\x15\x00" "a\xe0\x0b\x00");
    made_check(&m, "\"k\" string \"aaaaaaaaaaaaaaaaaaaaa\"\n");
}

/* No checksum: 0, or before version 5 nothing at all. */
/* Redis has no -0 in a small sorted set: it is packed as a number. */
static void test_minus_zero(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0010");
    MADE(&m, "\x05\x01z\x03\x01x\0\0\0\0\0\0\0\x80\x01w\0\0\0\0\0\0\0\x80\x01y\0\0\0\0\0\0\xf0\x3f");
    made_check(&m, "\"z\" zset \"w\"=0 \"x\"=0 \"y\"=1\n");
    made_begin(&m, "0010");
    m.eng->limits.zset_max_listpack_entries = 0;
    MADE(&m, "\x05\x01z\x01\x01x\0\0\0\0\0\0\0\x80");
    made_check(&m, "\"z\" zset \"x\"=-0\n");
}

/* A file that announces more keys than it can hold costs no memory for them. */
static void test_too_many_announced(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\xfb\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x01k\x01v");
    MADE(&m, "\xfe\x01\xfb\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00");
    MADE(&m, "\xfe\x00\xfb\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00");
    made_check(&m, "\"k\" string \"v\"\n");
}

static void test_without_checksum(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0");
    assert_int_equal(made_load(&m), OK);
    made_release(&m);
    made_begin(&m, "0003");
    MADE(&m, "\xfe\x00\x00\x01k\x01v\xff");
    assert_int_equal(made_load(&m), OK);
    made_release(&m);
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x00\x01k\x01v\xff" "ignored!");
    m.policy.checksum = false;
    assert_int_equal(made_load(&m), OK);
    made_release(&m);
}

/* -- policies ---------------------------------------------------------------------------------- */

static void made_with_dead(struct made *m)
{
    made_begin(m, "0012");
    MADE(m, "\xfe\x00\xfc\x01\x00\x00\x00\x00\x00\x00\x00\x00\x04" "dead\x01v");
    MADE(m, "\xfc\x01\x00\x00\x00\x00\x00\x00\x00\x0f\x06stream\x00\x00\x00\x00\x00");
    MADE(m, "\x00\x04live\x01v");
    MADE(m, "\x18\x04half\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01" "a\x01v\x05\x01" "b\x01w");
    MADE(m, "\x18\x04gone\x01\x00\x00\x00\x00\x00\x00\x00\x01\x05\x01" "b\x01w");
}

static bool keep_none(void *arg UNUSED, u32 db UNUSED, bytes key UNUSED, i64 deadline_ms UNUSED) { return false; }

static void test_dead_keys(void **state UNUSED)
{
    struct made m;
    for (int asked = 0; asked < 2; asked++) {
        made_with_dead(&m);
        m.policy.load_dead = asked ? keep_none : NULL;
        m.policy.skip_unsupported = true;
        made_end(&m);
        assert_int_equal(made_load(&m), OK);
        assert_int_equal(m.l.loader.counts.loaded, 2);
        assert_int_equal(m.l.loader.counts.dead, 3);
        assert_int_equal(m.l.loader.counts.unsupported, 0); /* it was dead */
        made_release(&m);
    }

    made_with_dead(&m);
    m.policy.load_dead = loading_keep;
    m.policy.skip_unsupported = true;
    made_end(&m);
    assert_int_equal(made_load(&m), OK);
    assert_int_equal(m.l.loader.counts.loaded, 5);
    struct buf text = {0};
    dataset_dump(m.eng, 0, &text); /* when nothing is dead */
    buf_append_char(&text, '\0');
    assert_string_equal(text.p, "db 0\n\"dead\"@1 string \"v\"\n\"gone\" hash \"b\"=\"w\"@5\n"
                                "\"half\" hash \"a\"=\"v\" \"b\"=\"w\"@5\n\"live\" string \"v\"\n\"stream\"@1 stream 0-0 0-0 0-0 added 0\n"
                                "db 1\n");
    buf_release(&text);
    made_release(&m);
}

/* Everything that only a later version, or a module, could make use of. */
static void made_with_strangers(struct made *m)
{
    made_begin(m, "0012");
    MADE(m, "\xf5\x0f#!lua name=lib\n"); /* a function library */
    MADE(m, "\xf7\x81\x31\xa9\x4c\x96\xdc\xa3\x04\x01\x02\x02\x05\x03"
            "abc\x04\0\0\0\0\0\0\0\0\x03\0\0\0\0\x01\x07\x00");
    MADE(m, "\xfe\x00");
    MADE(m, "\x07\x03mod\x81\x31\xa9\x4c\x96\xdc\xa3\x04\x01\x02\x05\x05\x03" "abc\x00");
    MADE(m, "\x00\x04last\x01v");
}

static void test_strangers(void **state UNUSED)
{
    struct made m;
    made_with_strangers(&m);
    m.policy.skip_unsupported = true;
    made_end(&m);
    err e = made_load(&m);
    if (e != OK) print_error("%s\n", m.l.loader.error);
    assert_int_equal(e, OK);
    assert_int_equal(m.l.loader.counts.unsupported, 1);
    assert_int_equal(m.l.loader.counts.functions, 1);
    assert_int_equal(m.l.loader.counts.module_aux, 1);
    assert_int_equal(m.l.loader.counts.loaded, 1);
    buf_append_char(&m.l.notes, '\0');
    assert_non_null(strstr(m.l.notes.p, "the key \"mod\" of database 0: it holds a module value"));
    assert_non_null(strstr(m.l.notes.p, "#!lua name=lib"));
    made_release(&m);

    made_with_strangers(&m);
    made_end(&m);
    made_refused(&m, "a library of functions can't be loaded: Mayfly does not support them here");
    made_begin(&m, "0009");
    MADE(&m, "\xf7\x81\x31\xa9\x4c\x96\xdc\xa3\x04\x01\x02\x02\x00");
    made_end(&m);
    made_refused(&m, "data of the module type MalMltyjB");
    made_begin(&m, "0008");
    m.policy.skip_unsupported = true;
    MADE(&m, "\x06\x01k\x00");
    made_end(&m);
    made_refused(&m, "release candidates");
}

static void test_keys_that_are_there(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x00\x01k\x01v\x01\x01k\x01\x01x");
    made_end(&m);
    made_refused(&m, "the key \"k\" comes twice");
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x01\x01k\x01\x01x\x00\x01k\x01v");
    made_end(&m);
    made_refused(&m, "the key \"k\" comes twice");
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x00\x01k\x01v\x01\x01k\x01\x01x\x00\x01l\x01v\x00\x01l\x01w");
    m.policy.replace = true;
    made_check(&m, "\"k\" list \"x\"\n\"l\" string \"w\"\n");
}

/* An AOF with an RDB preamble: reading stops where the log begins. */
static void test_tail(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x00\x01k\x01v");
    made_end(&m);
    size_t end = m.file.n;
    buf_append_str(&m.file, "*1\r\n$4\r\nPING\r\n");
    m.policy.tail = true;
    assert_int_equal(made_load(&m), OK);
    assert_int_equal(rdb_loader_offset(&m.l.loader), end);
    made_release(&m);
}

static void test_empty_collections(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x01\x01l\x00\x10\x01h\x07\x07\0\0\0\0\0\xff\x00\x01k\x01v");
    made_end(&m);
    assert_int_equal(made_load(&m), OK);
    assert_int_equal(m.l.loader.counts.empty, 2);
    assert_int_equal(m.eng->ops->count(m.eng, 0), 1);
    made_release(&m);
}

static u64 chunks;

static void commit_chunk(void *arg)
{
    struct made *m = arg;
    assert_true(m->eng->ops->commit(m->eng, 1));
    m->eng->ops->begin(m->eng, T0);
    chunks++;
}

static void test_commit_chunk(void **state UNUSED)
{
    struct made m;
    struct memory_sink sink;
    struct buf before = {0}, after = {0};
    struct engine *e = memory_engine_new(2, 1);
    e->ops->begin(e, T0);
    fill(e, 0, TYPE_SET, BYTES_LIT("set"), 100000, 64);
    dataset_dump(e, T0, &before);
    memory_sink_init(&sink);
    save_to(&sink, e, T0, RDB_TTLS_AUX, 0, 0);
    made_begin(&m, "");
    m.policy = (struct rdb_policy){.commit_chunk = commit_chunk, .arg = &m};
    buf_clear(&m.file);
    buf_append_bytes(&m.file, buf_bytes(&sink.file));
    chunks = 0;
    assert_int_equal(made_load(&m), OK);
    assert_true(chunks >= 5);
    dataset_dump(m.eng, T0, &after);
    check_equal(&before, &after);
    made_release(&m);
    e->ops->close(e);
    buf_release(&sink.file);
    buf_release(&before);
    buf_release(&after);
}

/* -- damage ------------------------------------------------------------------------------------ */

static void test_refusals(void **state UNUSED)
{
    static const struct {
        const char *version;
        bytes body;
        const char *error;
    } bad[] = {
        {"0013", BYTES_LIT(""), "version 13 of RDB is not supported"},
        {"0000", BYTES_LIT(""), "version 0 of RDB is not supported"},
        {"00x1", BYTES_LIT(""), "at offset 8: this is not an RDB file"},
        {"0010", BYTES_LIT("\xfe\x02"), "a database 2, and only 2 are configured"},
        {"0010", BYTES_LIT("\xfe\xc0"), "at offset 11: a number where its encoding"},
        {"0010", BYTES_LIT("\xf0"), "240 is neither an opcode nor a type"},
        {"0010", BYTES_LIT("\x08"), "8 is neither an opcode nor a type"},
        {"0010", BYTES_LIT("\x00\x01k\x3fv"), "a string of 63 bytes where"},
        {"0010", BYTES_LIT("\x00\x01k\x80\xff\xff\xff\xff"), "a string of 4294967295 bytes where"},
        {"0010", BYTES_LIT("\x00\x01k\x81\xff\xff\xff\xff\xff\xff\xff\xff"),
         "a string of 18446744073709551615 bytes where"},
        {"0010", BYTES_LIT("\x00\x01k\x82"), "0x82 begins no length"},
        {"0010", BYTES_LIT("\x00\x01k\xc5"), "a string of unknown encoding 5"},
        {"0010", BYTES_LIT("\x00\x01k\xc3\x04\x80\0\0\x10\0vvvv"),
         "4 compressed bytes cannot stand for 4096"},
        {"0010", BYTES_LIT("\x00\x01k\xc3\x03\x20\xff\xff\xff"), "a compressed string is damaged"},
        {"0010", BYTES_LIT("\x02\x01k\x02\x01m\x01m"), "the member \"m\" comes twice"},
        {"0010", BYTES_LIT("\x02\x01k\x02\xc0\x01\x01\x31"), "the member \"1\" comes twice"},
        {"0010", BYTES_LIT("\x04\x01k\x02\x01m\x01v\x01m\x01w"), "the field \"m\" comes twice"},
        {"0010", BYTES_LIT("\x05\x01k\x01\x01m\0\0\0\0\0\0\xf8\x7f"), "a score that is not a number"},
        {"0010", BYTES_LIT("\x03\x01k\x01\x01m\xfd"), "a score that is not a number"},
        {"0010", BYTES_LIT("\x03\x01k\x01\x01m\x02zz"), "a score that is not a number"},
        {"0010",
         BYTES_LIT("\x11\x01k\x10\x10\0\0\0\x04\0\x81"
                   "a\x02\x05\x01\x81"
                   "b\x02\x04\x01\xff"),
         "not in the order of its scores"},
        {"0010",
         BYTES_LIT("\x10\x01k\x0a\x0a\0\0\0\x01\0\x81"
                   "f\x02\xff"),
         "its last element is half there"},
        {"0010", BYTES_LIT("\x12\x01k\x01\x07\x01x"), "a list's node is of unknown form 7"},
        {"0010", BYTES_LIT("\x0b\x01k\x0c\x02\0\0\0\x02\0\0\0\x07\0\x07\0"),
         "an intset is damaged: its integers are not in order"},
        {"0010", BYTES_LIT("\xfc\x00\x00\x00\x00\x00\x04\x00\x00"), "that no key follows"},
        {"0010", BYTES_LIT("\xf9\x05\xfe\x01"), "that no key follows"},
        {"0010", BYTES_LIT("\xff\0\0\0\0\0\0\0\0"), "there are bytes after the end"},
        {"0010", BYTES_LIT("\xf6\x01x"), "a function of Redis 7.0's release candidates"},
        {"0012",
         BYTES_LIT("\x18\x01k\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x01"
                   "f\x01v"),
         "nearest deadline is out of range"},
        {"0012",
         BYTES_LIT("\x16\x01k\x01\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x01"
                   "f\x01v"),
         "deadline is out of range"},
        {"0010",
         BYTES_LIT("\x04\x01k\x01\x01m\x01v\xfa\x10mayfly-field-ttl"
                   "\x0f\x0f\0\0\0\x02\0\x81g\x02\xf2\xff\xff\x0f\x04\xff"),
         "a deadline is of a field that isn't there"},
        {"0010", BYTES_LIT("\x00\x01k\x01v\xfa\x10mayfly-field-ttl\x07\x07\0\0\0\0\0\xff"),
         "follow a key that is not a hash"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct made m;
        made_begin(&m, bad[i].version);
        buf_append_bytes(&m.file, bad[i].body);
        made_end(&m);
        made_refused(&m, bad[i].error);
    }
}

static void test_where(void **state UNUSED)
{
    struct made m;
    made_begin(&m, "0010");
    MADE(&m, "\xfe\x00\x00\x03one\x01v\x00\x03two\xc9");
    made_end(&m);
    assert_int_equal(made_load(&m), ERR_SYNTAX);
    assert_string_equal(
        m.l.loader.error,
        "at offset 24: a string of unknown encoding 9 (the last key was \"two\" of database 0)");
    made_release(&m);
    made_begin(&m, "0010");
    m.file.n = 3;
    made_refused(&m, "at offset 3: unexpected end");
}

/* A file with everything in it that we write. */
static void small_file(struct memory_sink *sink, enum rdb_field_ttls ttls)
{
    struct engine *e = memory_engine_new(2, 1);
    struct key_ref ref;
    e->limits.hash_max_listpack_entries = e->limits.zset_max_listpack_entries =
        e->limits.set_max_intset_entries = 4;
    e->ops->begin(e, T0);
    put_string(e, "a", BYTES_LIT("12345"), NEVER);
    put_string(e, "b", BYTES_LIT("hello hello hello hello hello"), 0);
    put_string(e, "c", BYTES_LIT("short"), 0);
    static const enum value_type types[] = {TYPE_LIST, TYPE_SET, TYPE_ZSET, TYPE_HASH};
    for (u32 i = 0; i < 4; i++) {
        fill(e, 0, types[i], bytes_of("ABCD" + i, 1), 3, 0);
        fill(e, 1, types[i], bytes_of("EFGH" + i, 1), 6, 12);
    }
    struct buf space = {0};
    for (u32 db = 0; db < 2; db++) {
        assert_true(e->ops->find(e, db, bytes_of(db ? "H" : "D", 1), &ref));
        e->ops->map.set_field_deadline(e, &ref, element(&space, 1, db ? 12 : 0), NEVER);
    }
    buf_release(&space);
    memory_sink_init(sink);
    save_to(sink, e, T0, ttls, 0, SIZE_MAX);
    e->ops->close(e);
}

static err load_bytes(bytes file)
{
    struct loading l = {0};
    struct rdb_policy policy = loading_policy(&l);
    struct engine *e = memory_engine_new(2, 1);
    char *exact = mem_alloc(MAX(file.n, 1));
    memcpy(exact, file.p, file.n);
    err result = load_file(&l, e, T0, bytes_of(exact, file.n), &policy, 0);
    assert_true(result == OK || strlen(l.loader.error) > 10);
    loading_release(&l);
    e->ops->close(e);
    mem_free(exact);
    return result;
}

static void test_every_truncation(void **state UNUSED)
{
    for (int ttls = 0; ttls < 2; ttls++) {
        struct memory_sink sink;
        small_file(&sink, ttls);
        assert_int_equal(load_bytes(buf_bytes(&sink.file)), OK);
        for (size_t n = 0; n < sink.file.n; n++)
            assert_int_equal(load_bytes(bytes_of(sink.file.p, n)), ERR_SYNTAX);
        buf_release(&sink.file);
    }
}

static void test_every_flip(void **state UNUSED)
{
    for (int ttls = 0; ttls < 2; ttls++) {
        struct memory_sink sink;
        small_file(&sink, ttls);
        for (size_t bit = 0; bit < 8 * sink.file.n; bit++) {
            sink.file.p[bit / 8] ^= (char)(1 << bit % 8);
            assert_int_equal(load_bytes(buf_bytes(&sink.file)), ERR_SYNTAX);
            sink.file.p[bit / 8] ^= (char)(1 << bit % 8);
        }
        buf_release(&sink.file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_5),
        cmocka_unit_test(test_versions_7_and_8),
        cmocka_unit_test(test_versions_9_to_12),
        cmocka_unit_test(test_lzf),
        cmocka_unit_test(test_minus_zero),
        cmocka_unit_test(test_too_many_announced),
        cmocka_unit_test(test_without_checksum),
        cmocka_unit_test(test_dead_keys),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_keys_that_are_there),
        cmocka_unit_test(test_tail),
        cmocka_unit_test(test_empty_collections),
        cmocka_unit_test(test_commit_chunk),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_flip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
