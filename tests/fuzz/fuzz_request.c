/* Fuzzes the request parser. However a stream is cut into pieces, the requests
 * and the error must be those of the stream given whole; what request_take takes
 * must be what request_parse parses; and no byte outside of what was given may be
 * read, which is why every piece is an allocation of its own exact size.
 *
 * The input is the stream. It is parsed as of a client that has authenticated
 * and as of one that has not. */
#include "base/alloc.h"
#include "base/hash.h"
#include "base/rand.h"
#include "resp/request.h"

#define MAX_BULK (64 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void log_request(struct buf *log, const struct request_parser *p, const char *start,
                        size_t used)
{
    buf_printf(log, "%zu bytes:", used);
    for (u32 i = 0; i < p->argc; i++) {
        bytes arg = request_arg(p, start, i);
        buf_printf(log, " %zu ", arg.n);
        buf_append_bytes(log, arg);
    }
    buf_append_char(log, '\n');
}

static void log_end(struct buf *log, const struct request_parser *p, err e, size_t at)
{
    if (e == ERR_AGAIN) buf_printf(log, "%zu: more, needs %zu\n", at, request_needed(p));
    else buf_printf(log, "%zu: error %d %s\n", at, e, p->error);
}

#define TAKE_ROOM 16

struct taking {
    bytes argv[TAKE_ROOM];
    u32 argc;
    size_t used; /* 0: not taken */
};

static void check_taking(const struct taking *t, const struct request_parser *p, const char *start, err e,
                         size_t used)
{
    if (!t->used) return;
    CHECK(e == OK && used == t->used && p->argc == t->argc);
    for (u32 i = 0; i < t->argc; i++) {
        bytes arg = request_arg(p, start, i);
        CHECK(arg.p == t->argv[i].p && arg.n == t->argv[i].n);
    }
}

/* Parses the requests in data[*at .. end), which it copies. */
static err parse_piece(struct request_parser *p, const struct request_limits *limits, bytes data,
                       size_t *at, size_t end, struct buf *log)
{
    char *piece = mem_alloc(end - *at);
    size_t start = 0, n = end - *at;
    err e = OK;
    memcpy(piece, data.p + *at, n);
    while (start < n) {
        size_t used = 0;
        bytes in = bytes_of(piece + start, n - start);
        struct taking t = {.used = 0};
        if (p->left == 0) t.used = request_take(limits, in, t.argv, TAKE_ROOM, &t.argc);
        e = request_parse(p, limits, in, &used);
        check_taking(&t, p, piece + start, e, used);
        if (e != OK) break;
        CHECK(used > 0 && used <= n - start);
        log_request(log, p, piece + start, used);
        start += used;
    }
    *at += start;
    mem_free(piece);
    return e == OK ? ERR_AGAIN : e;
}

enum cut { WHOLE, BYTE_BY_BYTE, AT_RANDOM };

static void parse(bytes data, const struct request_limits *limits, enum cut cut, u64 seed,
                  struct buf *log)
{
    struct request_parser p;
    size_t at = 0, end = 0;
    err e = ERR_AGAIN;
    request_parser_init(&p);
    while (e == ERR_AGAIN && end < data.n) {
        size_t step = cut == WHOLE ? data.n : cut == AT_RANDOM ? 1 + rand_below(&seed, 40) : 1;
        end = MIN(data.n, end + step);
        e = parse_piece(&p, limits, data, &at, end, log);
    }
    log_end(log, &p, e, at);
    request_parser_release(&p);
}

static void compare(bytes data, const struct request_limits *limits, enum cut cut,
                    const struct buf *whole)
{
    struct buf log = {0};
    parse(data, limits, cut, hash_bytes(data, (u64)cut), &log);
    CHECK(bytes_eq(buf_bytes(&log), buf_bytes(whole)));
    buf_release(&log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bytes in = bytes_of(data, size);
    for (int unauthenticated = 0; unauthenticated <= 1; unauthenticated++) {
        struct request_limits limits = {.max_bulk = MAX_BULK, .unauthenticated = unauthenticated};
        struct buf whole = {0};
        parse(in, &limits, WHOLE, 0, &whole);
        compare(in, &limits, AT_RANDOM, &whole);
        if (size < 1024) compare(in, &limits, BYTE_BY_BYTE, &whole);
        buf_release(&whole);
    }
    return 0;
}
