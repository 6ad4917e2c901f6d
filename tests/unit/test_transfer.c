/* The data of a full sync: however the reads cut it, the file gets what was sent, and the stream the rest. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "repl/transfer.h"

#define MARK "f3a9c0e417b25d8806e1fc94a7d230b58c6e9174"

struct file {
    struct rdb_sink sink;
    struct buf got;
    size_t room;
};

static bool take_piece(struct rdb_sink *sink, bytes piece)
{
    struct file *f = (struct file *)(void *)sink;
    if (f->got.n + piece.n > f->room) return false;
    buf_append_bytes(&f->got, piece);
    return true;
}

static u64 rng;

/* Gives `sent` in pieces of up to `most` bytes, each in a place of its exact size, for the sanitizer to guard.
 * What it came to; *rest: bytes that were not used. */
static err feed(struct transfer *t, struct file *f, bytes sent, size_t most, size_t *rest)
{
    err e = ERR_AGAIN;
    *rest = 0;
    while (e == ERR_AGAIN && sent.n) {
        size_t cut = 1 + rand_below(&rng, most), n = MIN(cut, sent.n), used;
        char *piece = mem_alloc(n);
        memcpy(piece, sent.p, n);
        e = transfer_take(t, bytes_of(piece, n), &f->sink, &used);
        mem_free(piece);
        if (e == ERR_AGAIN) assert_int_equal(used, n);
        sent = bytes_of(sent.p + used, sent.n - used);
    }
    *rest = sent.n;
    return e;
}

/* Bytes in which beginnings of the mark are frequent. */
static void add_noise(struct buf *b, size_t n)
{
    for (size_t end = b->n + n; b->n < end;) {
        size_t part = rand_below(&rng, TRANSFER_MARK - 10); /* never nearly all of it */
        if (rand_below(&rng, 2)) buf_append(b, MARK, MIN(part, end - b->n));
        else buf_append_char(b, (char)rand_below(&rng, 256));
    }
}

static void round_trip(bool marked, size_t size, size_t most, const char *behind)
{
    struct transfer t;
    struct file f = {.sink.write = take_piece, .room = SIZE_MAX};
    struct buf sent = {0}, data = {0};
    size_t rest;
    add_noise(&data, size);
    buf_append_str(&sent, "\n\n\r\n");
    if (marked) buf_append_str(&sent, "$EOF:" MARK "\r\n");
    else buf_printf(&sent, "$%zu\r\n", data.n);
    buf_append_bytes(&sent, buf_bytes(&data));
    if (marked) buf_append_str(&sent, MARK);
    buf_append_str(&sent, behind);
    transfer_init(&t);
    assert_int_equal(feed(&t, &f, buf_bytes(&sent), most, &rest), OK);
    assert_int_equal(rest, strlen(behind));
    assert_int_equal(t.stage, TRANSFER_DONE);
    assert_int_equal(t.received, data.n);
    assert_true(bytes_eq(buf_bytes(&f.got), buf_bytes(&data)));
    buf_release(&sent);
    buf_release(&data);
    buf_release(&f.got);
}

static void cut_anywhere(void **state UNUSED)
{
    for (int i = 0; i < 20000; i++) {
        size_t size = rand_below(&rng, 300), most = 1 + rand_below(&rng, i % 2 ? 400 : 50);
        round_trip(rand_below(&rng, 2), size, most, rand_below(&rng, 2) ? "*1\r\n$4\r\nPING\r\n" : "");
    }
}

static void no_mark(void **state UNUSED)
{
    struct transfer t;
    struct file f = {.sink.write = take_piece, .room = SIZE_MAX};
    struct buf sent = {0};
    size_t rest;
    buf_append_str(&sent, "$EOF:" MARK "\r\n");
    for (int i = 0; i < 1000; i++) buf_append(&sent, MARK, TRANSFER_MARK - 1);
    transfer_init(&t);
    assert_int_equal(feed(&t, &f, buf_bytes(&sent), 100, &rest), ERR_AGAIN);
    assert_int_equal(t.tail_n, TRANSFER_MARK - 1);
    assert_int_equal(f.got.n, 1000 * (TRANSFER_MARK - 1) - t.tail_n);
    buf_release(&sent);
    buf_release(&f.got);
}

static void expect_bad(const char *header)
{
    struct transfer t;
    struct file f = {.sink.write = take_piece, .room = SIZE_MAX};
    size_t rest;
    transfer_init(&t);
    err e = feed(&t, &f, bytes_str(header), 5, &rest);
    if (e != ERR_SYNTAX) fail_msg("accepted: %s", header);
    assert_int_equal(f.got.n, 0);
}

static void bad_headers(void **state UNUSED)
{
    static const char *const bad[] = {
        "$-1\r\n", "$\r\n", "$12x\r\n", "-ERR no\r\n", "+OK\r\n", "$EOF:short\r\n", "$EOF:" MARK "0\r\n",
        "$99999999999999999999\r\n", "$ 5\r\n", "*3\r\n", "$eof:" MARK "\r\n",
    };
    struct buf endless = {0};
    for (u32 i = 0; i < ARRAY_LEN(bad); i++) expect_bad(bad[i]);
    for (int i = 0; i < 2 * TRANSFER_LINE; i++) buf_append_char(&endless, '$');
    buf_append_char(&endless, '\0');
    expect_bad(endless.p);
    buf_release(&endless);
}

static void full_disk(void **state UNUSED)
{
    for (int marked = 0; marked < 2; marked++) {
        struct transfer t;
        struct file f = {.sink.write = take_piece, .room = 100};
        struct buf sent = {0};
        size_t rest;
        buf_append_str(&sent, marked ? "$EOF:" MARK "\r\n" : "$1000\r\n");
        add_noise(&sent, 1000);
        if (marked) buf_append_str(&sent, MARK);
        transfer_init(&t);
        assert_int_equal(feed(&t, &f, buf_bytes(&sent), 50, &rest), ERR_LIMIT);
        buf_release(&sent);
        buf_release(&f.got);
    }
}

static void nothing_at_all(void **state UNUSED)
{
    round_trip(false, 0, 1, "*1\r\n");
    round_trip(true, 0, 1, "*1\r\n");
    round_trip(true, 0, 1000, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_anywhere), cmocka_unit_test(no_mark), cmocka_unit_test(bad_headers),
        cmocka_unit_test(full_disk), cmocka_unit_test(nothing_at_all),
    };
    rng = 42;
    return cmocka_run_group_tests_name("transfer", tests, NULL, NULL);
}
