/* RocksDB's log format, from logs made by hand: what is whole is read, and where it ends, with a cut or a
 * flipped bit at every byte. And the MANIFEST of a real database. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "engine/rocks/rk.h"
#include "engine/rocks/store/store_impl.h"
#include "engine/rocks/wal/wal_manifest.h"
#include "engine/rocks/wal/wal_reader.h"
#include "engine/rocks/wal/wal_verify.h"
#include "unit/rocks_folder.h"

#define LOG_NUMBER 7
#define KEEP_ALL ((size_t)1 << 30)
#define L(s) BYTES_LIT(s)

enum { FULL = 1, FIRST, MIDDLE, LAST, RECYCLED = 4, PREDECESSOR = 130 };

/* -- making a log ----------------------------------------------------------------------------------- */

static void little(struct buf *b, u64 v, u32 n)
{
    for (u32 i = 0; i < n; i++) buf_append_char(b, (char)(v >> 8 * i));
}

static void add_fragment(struct buf *b, int type, bytes data)
{
    struct buf body = {0};
    buf_append_char(&body, (char)type);
    if (type > RECYCLED && type <= RECYCLED + LAST) little(&body, LOG_NUMBER, 4);
    buf_append_bytes(&body, data);
    u32 crc = crc32c(buf_bytes(&body));
    little(b, (crc >> 15 | crc << 17) + 0xa282ead8u, 4);
    little(b, data.n, 2);
    buf_append_bytes(b, buf_bytes(&body));
    buf_release(&body);
}

static void add_record(struct buf *b, bytes data, int recycled)
{
    u32 header = recycled ? 11 : 7;
    for (bool first = true, last = false; !last; first = false) {
        size_t room = WAL_BLOCK - b->n % WAL_BLOCK;
        if (room < header) {
            while (room-- > 0) buf_append_char(b, 0);
            room = WAL_BLOCK;
        }
        size_t n = MIN(data.n, room - header);
        last = n == data.n;
        add_fragment(b, recycled + (first ? (last ? FULL : FIRST) : last ? LAST : MIDDLE), bytes_of(data.p, n));
        data = bytes_of(data.p + n, data.n - n);
    }
}

/* -- reading one -------------------------------------------------------------------------------------- */

struct outcome {
    u32 records;
    enum wal_found end;
    u64 offset, sound; /* where what is bad begins; where the last record ends */
    bool behind, hole, torn;
};

static char file_path[300];

static struct outcome read_log(bytes log)
{
    struct wal_reader r;
    struct outcome o = {0};
    snprintf(file_path, sizeof file_path, "%s/log", path);
    FILE *f = fopen(file_path, "w");
    assert_int_equal(fwrite(log.p, 1, log.n, f), log.n);
    fclose(f);
    assert_true(wal_reader_open(&r, file_path, LOG_NUMBER, KEEP_ALL));
    while ((o.end = wal_reader_next(&r)) == WAL_RECORD) o.records++;
    o.offset = r.offset;
    o.sound = r.end;
    if (o.end == WAL_BAD) o.torn = wal_reader_torn(&r);
    if (o.end == WAL_BAD) o.hole = wal_reader_at_hole(&r);
    if (o.end == WAL_BAD) o.behind = wal_reader_sound_behind(&r);
    wal_reader_close(&r);
    return o;
}

static const u32 sizes[] = {12, 100, 0, 40000, 700, WAL_BLOCK - 7, 24568, 90000, 12};

/* Records of these sizes; `ends` gets where each ends. */
static void make(struct buf *b, int recycled, u64 *ends)
{
    static char data[100000];
    memset(data, 'x', sizeof data);
    for (u32 i = 0; i < ARRAY_LEN(sizes); i++) {
        add_record(b, bytes_of(data, sizes[i]), recycled);
        ends[i] = b->n;
    }
}

static u32 whole_before(const u64 *ends, u64 offset)
{
    u32 n = 0;
    while (n < ARRAY_LEN(sizes) && ends[n] <= offset) n++;
    return n;
}

static bool near_an_edge(u64 at) { return at % WAL_BLOCK < 20 || at % WAL_BLOCK > WAL_BLOCK - 20; }

static void checksum(void **state)
{
    (void)state;
    assert_true(crc32c(L("")) == 0);
    assert_true(crc32c(L("123456789")) == 0xe3069283);
    char zeros[32] = {0};
    assert_true(crc32c(bytes_of(zeros, 32)) == 0x8a9136aa);
}

static void whole(void **state)
{
    (void)state;
    for (int recycled = 0; recycled <= RECYCLED; recycled += RECYCLED) {
        u64 ends[ARRAY_LEN(sizes)];
        struct buf b = {0};
        make(&b, recycled, ends);
        struct outcome o = read_log(buf_bytes(&b));
        assert_int_equal(o.end, WAL_END);
        assert_int_equal(o.records, ARRAY_LEN(sizes));
        assert_int_equal(o.sound, b.n);
        buf_release(&b);
    }
    struct outcome o = read_log(L(""));
    assert_true(o.end == WAL_END && o.records == 0);
}

/* What is there before the cut is read; the rest is torn, and nothing is behind it. */
static void cut_anywhere(void **state)
{
    (void)state;
    u64 ends[ARRAY_LEN(sizes)];
    struct buf b = {0};
    make(&b, 0, ends);
    for (u64 at = 0; at < b.n; at += near_an_edge(at) ? 1 : 997) {
        struct outcome o = read_log(bytes_of(b.p, at));
        assert_int_equal(o.records, whole_before(ends, at));
        assert_true(o.end == WAL_END || o.end == WAL_BAD);
        if (o.end == WAL_END) assert_true(o.sound == at || at % WAL_BLOCK == 0 || at % WAL_BLOCK > WAL_BLOCK - 7);
        assert_false(o.behind);
    }
    buf_release(&b);
}

/* A flip in the last record leaves nothing sound behind it; any other does. Padding belongs to no record. */
static void flip_anywhere(void **state)
{
    (void)state;
    u64 ends[ARRAY_LEN(sizes)];
    struct buf b = {0};
    make(&b, 0, ends);
    u32 last = ARRAY_LEN(sizes) - 1;
    for (u64 at = 0; at < b.n; at += near_an_edge(at) ? 1 : 1499) {
        b.p[at] ^= (char)(1 << at % 8);
        struct outcome o = read_log(buf_bytes(&b));
        b.p[at] ^= (char)(1 << at % 8);
        if (o.end == WAL_END) {
            assert_int_equal(o.records, ARRAY_LEN(sizes));
            assert_true(at % WAL_BLOCK > WAL_BLOCK - 7);
            continue;
        }
        u32 hit = whole_before(ends, at);
        assert_int_equal(o.records, hit);
        assert_int_equal(o.behind, hit < last);
        assert_false(o.hole);
        assert_true(o.offset <= at && o.sound <= o.offset);
    }
    buf_release(&b);
}

/* A record that is one fragment, cut and flipped at every single byte. */
static void every_byte(void **state)
{
    (void)state;
    struct buf b = {0};
    add_record(&b, L("the first record"), 0);
    u64 first = b.n;
    add_record(&b, L("the second one"), 0);
    u64 second = b.n;
    add_record(&b, L("the last"), 0);
    for (u64 at = 0; at <= b.n; at++) {
        struct outcome o = read_log(bytes_of(b.p, at));
        assert_int_equal(o.records, (at >= first) + (at >= second) + (at >= b.n));
        assert_int_equal(o.end == WAL_END, at == 0 || at == first || at == second || at == b.n);
        assert_int_equal(o.torn, o.end == WAL_BAD);
        assert_false(o.behind);
    }
    for (u64 at = 0; at < b.n; at++) {
        for (u32 bit = 0; bit < 8; bit++) {
            b.p[at] ^= (char)(1 << bit);
            struct outcome o = read_log(buf_bytes(&b));
            b.p[at] ^= (char)(1 << bit);
            assert_int_equal(o.end, WAL_BAD);
            assert_int_equal(o.records, (at >= first) + (at >= second));
            assert_int_equal(o.behind, at < second);
            bool size = at - second >= 4 && at - second <= 6; /* then it may seem to reach beyond the end */
            assert_true(!o.torn || o.behind || size);
        }
    }
    buf_release(&b);
}

/* A whole record, then one that a cut-off FIRST is in front of; records that are RocksDB's own; an old file. */
static void odd_fragments(void **state)
{
    (void)state;
    struct buf b = {0};
    add_record(&b, L("whole"), 0);
    add_fragment(&b, PREDECESSOR, L("a note"));
    add_record(&b, L("whole"), 0);
    struct outcome o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_END && o.records == 2);
    u64 end = b.n;
    add_fragment(&b, FIRST, L("begun"));
    o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_BAD && o.records == 2 && o.offset == end && !o.behind);
    add_record(&b, L("another"), 0);
    o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_BAD && o.records == 2 && o.offset == end && o.behind);
    b.n = end;
    add_fragment(&b, LAST, L("without a beginning"));
    o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_BAD && o.records == 2 && o.offset == end);
    b.n = 0;
    add_record(&b, L("whole"), RECYCLED);
    end = b.n;
    add_record(&b, L("of the log that the file was before"), RECYCLED);
    b.p[end + 7]++;
    u32 crc = crc32c(bytes_of(b.p + end + 6, b.n - end - 6));
    crc = (crc >> 15 | crc << 17) + 0xa282ead8u;
    memcpy(b.p + end, &crc, 4);
    o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_END && o.records == 1);
    buf_release(&b);
}

/* Pages that were never written, in the middle and at the end. */
static void holes(void **state)
{
    (void)state;
    u64 ends[ARRAY_LEN(sizes)];
    struct buf b = {0};
    make(&b, 0, ends);
    memset(b.p + 2 * 4096, 0, 4096);
    struct outcome o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_BAD && o.behind && o.hole);
    memset(b.p + 2 * 4096, 0, b.n - 2 * 4096);
    o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_BAD && !o.behind && o.hole);
    buf_release(&b);
}

/* A sync has written the first half of a page. The next writes fill it and the page after it, but only that one
 * reaches the disk. */
static void hole_in_half_a_page(void **state)
{
    (void)state;
    static char data[1500];
    struct buf b = {0};
    memset(data, 'x', sizeof data);
    add_record(&b, bytes_of(data, 1500), 0);
    u64 synced = b.n;
    for (u32 i = 0; i < 20; i++) add_record(&b, bytes_of(data, 1500), 0);
    memset(b.p + synced, 0, 4096 - synced);
    struct outcome o = read_log(buf_bytes(&b));
    assert_true(o.end == WAL_BAD && o.records == 1 && o.offset == synced);
    assert_true(o.behind && o.hole);
    b.p[synced + 1000] = 'x'; /* something was written there, but not this */
    assert_false(read_log(buf_bytes(&b)).hole);
    buf_release(&b);
}

static void batches(void **state)
{
    (void)state;
    u64 sequence;
    u32 rows;
    assert_false(wal_batch(L("too short"), &sequence, &rows));
    assert_true(wal_batch(L("\x01\x02\0\0\0\0\0\x80\x05\0\0\0rows"), &sequence, &rows));
    assert_true(sequence == 0x8000000000000201 && rows == 5);
}

/* -- the MANIFEST ------------------------------------------------------------------------------------ */

static void put(u32 db, bytes key)
{
    struct key_ref ref;
    e->ops->find(e, db, key, &ref);
    e->ops->str.put(e, db, key, &ref, L("value"), 0);
}

static void flush(struct store *s, enum family f)
{
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
    char *err = NULL;
    rocksdb_flush_cf(s->db, o, s->cf[f], &err);
    assert_null(err);
    rocksdb_flushoptions_destroy(o);
}

/* Read while the database is open, it says of logs and sequence numbers what RocksDB says. */
static void manifest_of_a_database(void **state)
{
    (void)state;
    struct wal_manifest m;
    u64 last_first = 0;
    for (u32 run = 0; run < 3; run++) {
        open_engine(2);
        struct store *s = rk_of(e)->store;
        for (u32 i = 0; i < 20; i++) {
            char key[16];
            snprintf(key, sizeof key, "%u", i);
            put(0, bytes_str(key));
            tick(NOW);
            if (i % 3 == 0) flush(s, i % 2 ? FAM_META : FAM_INFO);
            assert_true(wal_manifest_read(path, &m));
            assert_true(m.first_log >= store_number(s, FAM_META, "rocksdb.min-log-number-to-keep"));
            assert_true(m.first_log <= store_newest_log(s));
            assert_true(m.last_sequence <= rocksdb_get_latest_sequence_number(s->db));
            assert_true(m.in_tables <= m.last_sequence);
        }
        assert_true(m.in_tables > 0 && m.first_log > last_first);
        last_first = m.first_log;
    }
}

/* -- verdicts ---------------------------------------------------------------------------------------- */

static void write_some(u32 from, u32 n)
{
    for (u32 i = from; i < from + n; i++) {
        char key[16];
        snprintf(key, sizeof key, "%u", i);
        put(0, bytes_str(key));
        tick(NOW);
    }
}

/* The first log that is needed has lost all, and a later one is there: as after a power cut, the note being older. */
static void lose_first_log(struct wal_verdict *v, struct wal_manifest *m)
{
    char from[300], to[300];
    assert_true(wal_manifest_read(path, m));
    snprintf(from, sizeof from, "%s/%06llu.log", path, (unsigned long long)m->first_log);
    snprintf(to, sizeof to, "%s/%06llu.log", path, (unsigned long long)m->first_log + 1000);
    assert_int_equal(rename(from, to), 0);
    FILE *f = fopen(from, "w");
    fclose(f);
    int fd = wal_synced_open(path);
    struct wal_synced synced = {.manifest = m->number, .first_log = m->first_log - 1};
    assert_true(wal_synced_write(fd, &synced));
    close(fd);
    wal_verify(path, NULL, v);
}

/* If no table has anything of that log, there is a state without it; if one has, there is none. */
static void first_log_lost(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        struct wal_verdict v;
        struct wal_manifest m;
        open_engine(2);
        struct store *s = rk_of(e)->store;
        write_some(0, 5);
        for (int f = 0; f < FAM_COUNT; f++) flush(s, (enum family)f);
        write_some(5, 5);
        if (ahead) flush(s, FAM_META);
        write_some(10, 5);
        close_engine();
        lose_first_log(&v, &m);
        assert_int_equal(m.flushed_log > m.first_log, ahead);
        assert_int_equal(v.state, WAL_TORN);
        assert_int_equal(v.tables_ahead, ahead);
        wal_verdict_release(&v);
        teardown(state);
        setup(state);
    }
}

static void manifest_that_is_none(void **state)
{
    (void)state;
    struct wal_manifest m;
    assert_false(wal_manifest_read(path, &m));
    open_engine(2);
    put(0, L("k"));
    tick(NOW);
    close_engine();
    assert_true(wal_manifest_read(path, &m));
    struct buf b = {0};
    add_record(&b, L("\x63"), 0); /* a tag that there is none of */
    char name[300];
    snprintf(name, sizeof name, "%s/MANIFEST-000999", path);
    FILE *f = fopen(name, "w");
    assert_int_equal(fwrite(b.p, 1, b.n, f), b.n);
    fclose(f);
    snprintf(name, sizeof name, "%s/CURRENT", path);
    f = fopen(name, "w");
    fputs("MANIFEST-000999\n", f);
    fclose(f);
    assert_false(wal_manifest_read(path, &m));
    buf_release(&b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(checksum), TEST(whole), TEST(cut_anywhere), TEST(flip_anywhere), TEST(every_byte), TEST(odd_fragments),
        TEST(holes),
        TEST(hole_in_half_a_page), TEST(batches), TEST(manifest_of_a_database), TEST(manifest_that_is_none),
        TEST(first_log_lost),
    };
    return cmocka_run_group_tests_name("RocksDB's logs", tests, NULL, NULL);
}
