/* The request parser's two ways: request_take must see what request_parse sees, or step aside;
 * and request_parse must not mind where its input is cut. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "resp/request.h"

#define ROOM 16

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

/* Whether the short way takes the request at the start of `in`; if so, the long one agrees. The
 * input is copied to a place of its exact size, for the sanitizer to guard. */
static bool taken(bytes in, const struct request_limits *limits)
{
    struct request_parser p;
    bytes argv[ROOM];
    u32 argc;
    size_t parsed;
    char *copy = mem_alloc(in.n);
    memcpy(copy, in.p, in.n);
    in.p = copy;
    size_t used = request_take(limits, in, argv, ROOM, &argc);
    if (used) {
        request_parser_init(&p);
        assert_int_equal(request_parse(&p, limits, in, &parsed), OK);
        assert_int_equal(parsed, used);
        assert_int_equal(p.argc, argc);
        for (u32 i = 0; i < argc; i++) {
            bytes arg = request_arg(&p, in.p, i);
            assert_ptr_equal(arg.p, argv[i].p);
            assert_int_equal(arg.n, argv[i].n);
        }
        request_parser_release(&p);
    }
    mem_free(copy);
    return used != 0;
}

static const struct request_limits known = {.max_bulk = 1 << 20};
static const struct request_limits stranger = {.max_bulk = 1 << 20, .unauthenticated = true};

static void append_request(struct buf *b, u32 argc, u32 longest)
{
    static const char filler[1000];
    buf_printf(b, "*%u\r\n", argc);
    for (u32 i = 0; i < argc; i++) {
        u32 n = below(longest + 1);
        buf_printf(b, "$%u\r\n", n);
        buf_append(b, filler, n);
        buf_append_str(b, "\r\n");
    }
}

static void test_takes_what_is_ordinary(void **state)
{
    (void)state;
    struct buf b = {0};
    rng = 1;
    for (u32 i = 0; i < 2000; i++) {
        u32 argc = 1 + below(ROOM);
        buf_clear(&b);
        append_request(&b, argc, i % 50 ? 120 : 999);
        size_t n = b.n;
        append_request(&b, 1, 3); /* the next one does not matter */
        assert_true(taken(buf_bytes(&b), &known));
        assert_true(taken(bytes_of(b.p, n), &known));
        assert_int_equal(taken(bytes_of(b.p, n), &stranger), argc <= 10);
        assert_false(taken(bytes_of(b.p, below((u32)n)), &known));
    }
    buf_release(&b);
}

static void test_leaves_the_rest(void **state)
{
    (void)state;
    static const char *const others[] = {
        "",          "PING\r\n",       "*0\r\n\r\n\r\n",     "*-1\r\n\r\n\r\n",  "*01\r\n$1\r\nx\r\n",
        "*\r\n$1\r\nx\r\n", "*1\r\n$-1\r\n\r\n", "*1\r\n$01\r\nx\r\n", "*1\r\n$+1\r\nx\r\n", "*1\r\n+1\r\nxxx\r\n",
        "*1\n$1\r\nx\r\n",  "*1\r\n$\r\n\r\nxx", "*1\r\n$0x\r\nx\r\n", "*17\r\n$1\r\nx\r\n", "*1\r\n$1000\r\nx\r\n",
    };
    struct buf b = {0};
    for (u32 i = 0; i < ARRAY_LEN(others); i++) assert_false(taken(bytes_str(others[i]), &known));
    append_request(&b, ROOM + 1, 3);
    assert_false(taken(buf_bytes(&b), &known));
    buf_clear(&b);
    buf_append_str(&b, "*1\r\n$500\r\n");
    for (u32 i = 0; i < 502; i++) buf_append_char(&b, 'x');
    assert_true(taken(buf_bytes(&b), &known));
    assert_false(taken(buf_bytes(&b), &(struct request_limits){.max_bulk = 499}));
    buf_release(&b);
}

static void test_agrees_on_the_damaged(void **state)
{
    (void)state;
    static const char alphabet[] = "*$0123456789-+\r\n x";
    struct buf b = {0};
    rng = 2;
    for (u32 i = 0; i < 100000; i++) {
        buf_clear(&b);
        append_request(&b, 1 + below(4), 12);
        for (u32 hits = 1 + below(3); hits > 0; hits--)
            b.p[below((u32)b.n)] = alphabet[below(sizeof alphabet - 1)];
        taken(bytes_of(b.p, b.n - below(3)), i % 2 ? &known : &stranger);
    }
    buf_release(&b);
}

/* A request that comes in two pieces, cut anywhere, is as good as one in a piece. */
static void test_any_cut(void **state)
{
    (void)state;
    static const u32 lengths[] = {0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10000, 12345};
    static char filler[12345];
    struct request_parser p;
    struct buf b = {0};
    size_t used;
    request_parser_init(&p);
    for (u32 i = 0; i < ARRAY_LEN(lengths); i++) {
        buf_clear(&b);
        buf_printf(&b, "*2\r\n$%u\r\n", lengths[i]);
        buf_append(&b, filler, lengths[i]);
        buf_append_str(&b, "\r\n$0\r\n\r\n");
        for (size_t cut = 0; cut < b.n; cut++) {
            char *piece = mem_alloc(cut);
            memcpy(piece, b.p, cut);
            assert_int_equal(request_parse(&p, &known, bytes_of(piece, cut), &used), ERR_AGAIN);
            mem_free(piece);
            assert_int_equal(request_parse(&p, &known, buf_bytes(&b), &used), OK);
            assert_int_equal(used, b.n);
            assert_int_equal(p.argc, 2);
            assert_int_equal(request_arg(&p, b.p, 0).n, lengths[i]);
            assert_int_equal(request_arg(&p, b.p, 1).n, 0);
        }
    }
    request_parser_release(&p);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_what_is_ordinary),
        cmocka_unit_test(test_leaves_the_rest),
        cmocka_unit_test(test_agrees_on_the_damaged),
        cmocka_unit_test(test_any_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
