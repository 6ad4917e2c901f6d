/* A primary's stream, cut anywhere: every command is found once, in order, and none of a block before its end. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "repl/inbox.h"

#define MAX_BULK (1 << 20)

static u64 rng;

static u64 below(u64 n) { return rand_below(&rng, n); }

static err put(struct inbox *b, const void *p, size_t n)
{
    size_t room;
    char *to = inbox_room(b, n, &room);
    assert_true(room >= n);
    memcpy(to, p, n);
    return inbox_took(b, n, MAX_BULK);
}

static err put_str(struct inbox *b, const char *s) { return put(b, s, strlen(s)); }

static void add_arg(struct buf *out, bytes arg)
{
    buf_printf(out, "$%zu\r\n", arg.n);
    buf_append_bytes(out, arg);
    buf_append_str(out, "\r\n");
}

static void add_command(struct buf *out, const char *name, u32 args)
{
    struct buf arg = {0};
    buf_printf(out, "*%u\r\n", args + 1);
    add_arg(out, bytes_str(name));
    for (u32 i = 0; i < args; i++) {
        size_t n = below(20) ? below(30) : below(5000);
        buf_clear(&arg);
        while (arg.n < n) buf_append_char(&arg, (char)below(256));
        add_arg(out, buf_bytes(&arg));
    }
    buf_release(&arg);
}

/* What is ready says the same again, as it was sent. */
static void say_again(const struct inbox *b, struct buf *out)
{
    for (u32 i = 0; i < b->ready; i++) {
        const struct inbox_command *c = &b->commands[i];
        if (!c->argc) buf_append_str(out, "\n");
        else buf_printf(out, "*%u\r\n", c->argc);
        for (u32 j = 0; j < c->argc; j++) add_arg(out, inbox_arg(b, c, j));
    }
}

/* Every block in the stream is atomic: a ready part never ends between MULTI and EXEC. */
static void check_blocks(const struct inbox *b)
{
    bool open = false;
    for (u32 i = 0; i < b->ready; i++) {
        const struct inbox_command *c = &b->commands[i];
        if (c->argc && bytes_is(inbox_arg(b, c, 0), "multi")) open = true;
        if (c->argc && bytes_is(inbox_arg(b, c, 0), "exec")) open = false;
    }
    assert_false(open);
}

static void make_stream(struct buf *sent)
{
    while (sent->n < 200000) {
        u64 kind = below(20);
        if (kind == 0) {
            add_command(sent, "MULTI", 0);
            for (u64 n = below(8); n; n--) add_command(sent, "SET", 2);
            add_command(sent, "exec", 0);
        } else if (kind == 1) {
            buf_append_str(sent, "\n");
        } else if (kind == 2) {
            add_command(sent, "DEL", 100); /* more than are taken at once */
        } else {
            add_command(sent, "SET", (u32)below(5));
        }
    }
}

static void cut_anywhere(void **state UNUSED)
{
    for (int round = 0; round < 60; round++) {
        struct inbox b;
        struct buf sent = {0}, said = {0}, raw = {0};
        size_t most = (size_t)1 << (4 + below(14));
        make_stream(&sent);
        inbox_init(&b);
        for (size_t at = 0; at < sent.n;) {
            size_t cut = 1 + below(most), n = MIN(cut, sent.n - at);
            assert_int_equal(put(&b, sent.p + at, n), OK);
            at += n;
            check_blocks(&b);
            assert_true(raw.n + b.in.n == at);
            if (below(4) == 0 && at < sent.n) continue; /* applied later */
            say_again(&b, &said);
            buf_append_bytes(&raw, inbox_ready(&b));
            inbox_applied(&b);
        }
        assert_int_equal(b.in.n, 0);
        assert_true(bytes_eq(buf_bytes(&raw), buf_bytes(&sent)));
        assert_true(bytes_eq(buf_bytes(&said), buf_bytes(&sent)));
        inbox_release(&b);
        buf_release(&sent);
        buf_release(&said);
        buf_release(&raw);
    }
}

static void a_block_waits(void **state UNUSED)
{
    struct inbox b;
    inbox_init(&b);
    assert_int_equal(put_str(&b, "*1\r\n$4\r\nPING\r\n*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\n"), OK);
    assert_int_equal(b.count, 3);
    assert_int_equal(b.ready, 1);
    inbox_applied(&b);
    assert_int_equal(b.count, 2);
    assert_int_equal(b.ready, 0);
    inbox_applied(&b);
    assert_int_equal(b.count, 2);
    assert_int_equal(put_str(&b, "*1\r\n$4\r\nEXEC\r\n*1\r\n$4\r\nPI"), OK);
    assert_int_equal(b.ready, 3);
    assert_true(bytes_is(inbox_arg(&b, &b.commands[1], 1), "a"));
    inbox_applied(&b);
    assert_int_equal(b.in.n, strlen("*1\r\n$4\r\nPI"));
    assert_int_equal(put_str(&b, "NG\r\n"), OK);
    assert_int_equal(b.ready, 1);
    assert_int_equal(b.commands[0].begin, 0);
    inbox_release(&b);
}

static void expect_bad(const char *text, const char *why)
{
    struct inbox b;
    inbox_init(&b);
    assert_int_equal(put_str(&b, "*1\r\n$4\r\nPING\r\n"), OK);
    assert_int_equal(put_str(&b, text), ERR_SYNTAX);
    assert_string_equal(b.parser.error, why);
    inbox_release(&b);
}

static void nonsense(void **state UNUSED)
{
    expect_bad("SET a b\r\n", "Master using the inline protocol. Desync?");
    expect_bad("*1\r\nPING\r\n", "expected '$', got 'P'");
    expect_bad("*x\r\n", "invalid multibulk length");
    expect_bad("*2\r\n$99999999999\r\n", "invalid bulk length");
    expect_bad("*1\r\n$-5\r\n", "invalid bulk length");
}

/* A length that is only claimed takes no memory. */
static void claims(void **state UNUSED)
{
    struct inbox b;
    inbox_init(&b);
    assert_int_equal(put_str(&b, "*2000000000\r\n$1048576\r\nabc"), OK);
    assert_true(b.in.cap < 100000);
    assert_true(b.parser.cap <= 1024);
    inbox_release(&b);
}

/* A stream that has only said that it is alive. */
static void empty_lines(void **state UNUSED)
{
    struct inbox b;
    inbox_init(&b);
    assert_int_equal(put_str(&b, "\r\n\r\n"), OK);
    assert_int_equal(b.ready, 2);
    assert_int_equal(inbox_ready(&b).n, 4);
    inbox_applied(&b);
    assert_int_equal(b.in.n, 0);
    inbox_release(&b);
}

/* What a big command took is not kept. */
static void big_and_gone(void **state UNUSED)
{
    struct inbox b;
    struct buf sent = {0};
    inbox_init(&b);
    for (int i = 0; i < 100; i++) {
        buf_printf(&sent, "*2\r\n$3\r\nDEL\r\n$%d\r\n", 100000);
        memset(buf_reserve(&sent, 100000), 'x', 100000);
        sent.n += 100000;
        buf_append_str(&sent, "\r\n");
    }
    assert_int_equal(put(&b, sent.p, sent.n), OK);
    assert_int_equal(b.ready, 100);
    inbox_applied(&b);
    assert_int_equal(b.in.cap, 0);
    buf_release(&sent);
    inbox_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_anywhere), cmocka_unit_test(a_block_waits), cmocka_unit_test(nonsense),
        cmocka_unit_test(claims), cmocka_unit_test(big_and_gone), cmocka_unit_test(empty_lines),
    };
    rng = 7;
    return cmocka_run_group_tests_name("inbox", tests, NULL, NULL);
}
