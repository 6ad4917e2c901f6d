/* Numbers that come from a client: however large, they cost neither memory nor time that the
 * data does not justify. Runs with little memory and a deadline. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/resource.h>
#include <unistd.h>

#include "harness.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMITED 0 /* their shadow memory needs all there is */
#else
#define LIMITED 1
#endif

#define MAX64 "9223372036854775807"
#define MIN64 "-9223372036854775808"
#define OUT_OF_RANGE "-ERR value is out of range"
#define TOO_LONG "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
#define BAD_BIT "-ERR bit offset is not an integer or out of range"

#define STRING "SET k abc"
#define HASH "HSET k a 1"
#define LIST "RPUSH k a b c"
#define SET "SADD k a"
#define ZSET "ZADD k 1 a 1 b 1 c"
#define SADD "SADD %s m%d"
#define ZADD "ZADD %s 1 m%d"

static const struct {
    const char *before, *command, *reply;
} extremes[] = {
    {STRING, "GETRANGE k " MIN64 " " MAX64, "abc"},
    {STRING, "GETRANGE k " MAX64 " " MAX64, ""},
    {STRING, "SETRANGE k " MAX64 " x", TOO_LONG},
    {STRING, "SETRANGE k 536870912 x", TOO_LONG},
    {STRING, "SETRANGE k " MAX64 " ''", "3"},
    {STRING, "SETBIT k 4294967296 1", BAD_BIT},
    {STRING, "GETBIT k 4294967295", "0"},
    {STRING, "BITCOUNT k " MIN64 " " MAX64, "10"},
    {STRING, "BITCOUNT k " MIN64 " " MAX64 " BIT", "10"},
    {STRING, "BITPOS k 1 " MIN64 " " MAX64 " BIT", "1"},
    {STRING, "BITFIELD k GET u8 " MAX64, BAD_BIT},
    {STRING, "BITFIELD k SET u8 #" MAX64 " 1", BAD_BIT},
    {STRING, "BITFIELD k INCRBY i64 4294967296 1", BAD_BIT},
    {STRING, "BITFIELD_RO k GET i64 4294967295", "[0]"},
    {STRING, "LCS k k MINMATCHLEN " MAX64 " IDX", "[matches [] len 3]"},
    {STRING, "COPY k d DB " MAX64, "-ERR value is out of range, value must between "
                                 "-2147483648 and 2147483647"},
    {STRING, "MOVE k 4294967297", "-ERR value is out of range, value must between "
                                  "-2147483648 and 2147483647"},
    {STRING, "SCAN 0 COUNT " MAX64, "[0 [k]]"},
    {STRING, "EXPIRE k " MAX64, "-ERR invalid expire time in 'expire' command"},
    {STRING, "PEXPIREAT k " MAX64, "1"},

    {LIST, "LPOP k " MAX64, "[a b c]"},
    {LIST, "RPOP k " MAX64, "[c b a]"},
    {LIST, "LMPOP 1 k LEFT COUNT " MAX64, "[k [a b c]]"},
    {LIST, "LMPOP " MAX64 " k LEFT", "-ERR syntax error"},
    {LIST, "LRANGE k " MIN64 " " MAX64, "[a b c]"},
    {LIST, "LRANGE k " MAX64 " " MIN64, "[]"},
    {LIST, "LTRIM k " MIN64 " " MAX64, "OK"},
    {LIST, "LTRIM k " MAX64 " " MAX64, "OK"},
    {LIST, "LINDEX k " MAX64, "nil"},
    {LIST, "LINDEX k " MIN64, "nil"},
    {LIST, "LSET k " MIN64 " x", "-ERR index out of range"},
    {LIST, "LREM k " MIN64 " a", "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"},
    {LIST, "LREM k " MAX64 " a", "1"},
    {LIST, "LPOS k b RANK " MAX64 " COUNT " MAX64 " MAXLEN " MAX64, "[]"},
    {LIST, "LPOS k b COUNT " MAX64 " MAXLEN " MAX64, "[1]"},
    {LIST, "SORT k ALPHA LIMIT " MAX64 " " MAX64, "[]"},
    {LIST, "SORT k ALPHA LIMIT " MIN64 " " MAX64, "[a b c]"},
    {LIST, "SORT k BY nosort LIMIT 1 " MAX64, "[b c]"},
    {LIST, "SORT k BY nosort DESC LIMIT " MIN64 " " MIN64, "[c b a]"},

    {SET, "SPOP k " MAX64, "[a]"},
    {SET, "SRANDMEMBER k " MAX64, "[a]"},
    {SET, "SRANDMEMBER k -" MAX64, OUT_OF_RANGE},
    {SET, "SSCAN k 0 COUNT " MAX64, "[0 [a]]"},
    {SET, "SINTERCARD " MAX64 " k", "-ERR Number of keys can't be greater than number of args"},
    {SET, "SINTERCARD 1 k LIMIT " MAX64, "1"},

    {ZSET, "ZRANGE k " MIN64 " " MAX64, "[a b c]"},
    {ZSET, "ZRANGE k " MAX64 " " MIN64, "[]"},
    {ZSET, "ZRANGE k 0 9 BYSCORE LIMIT " MAX64 " " MAX64, "[]"},
    {ZSET, "ZRANGE k - + BYLEX LIMIT " MAX64 " " MAX64, "[]"},
    {ZSET, "ZRANGE k 0 9 BYSCORE LIMIT 1 " MAX64, "[b c]"},
    {ZSET, "ZRANGE k 0 9 BYSCORE LIMIT " MIN64 " " MAX64, "[]"},
    {ZSET, "ZRANGESTORE d k - + BYLEX LIMIT 1 " MAX64, "2"},
    {ZSET, "ZRANGESTORE d k 0 9 BYSCORE LIMIT " MAX64 " " MAX64, "0"},
    {ZSET, "ZREMRANGEBYRANK k " MIN64 " " MAX64, "3"},
    {ZSET, "ZPOPMIN k " MAX64, "[a 1 b 1 c 1]"},
    {ZSET, "ZMPOP 1 k MAX COUNT " MAX64, "[k [[c 1] [b 1] [a 1]]]"},
    {ZSET, "ZRANDMEMBER k -" MAX64, OUT_OF_RANGE},
    {ZSET, "ZRANDMEMBER k " MAX64, "[c b a]"},
    {ZSET, "ZUNION " MAX64 " k", "-ERR syntax error"},
    {ZSET, "ZINTERCARD 1 k LIMIT " MAX64, "3"},
    {ZSET, "ZSCAN k 0 COUNT " MAX64, "[0 [a 1 b 1 c 1]]"},
    {"GEOADD k 1 1 a", "GEOSEARCH k FROMLONLAT 1 1 BYRADIUS 1 km COUNT " MAX64, "[a]"},

    {HASH, "HRANDFIELD k " MAX64, "[a]"},
    {HASH, "HRANDFIELD k -" MAX64, OUT_OF_RANGE},
    {HASH, "HRANDFIELD k -" MAX64 " WITHVALUES", OUT_OF_RANGE},
    {HASH, "HSCAN k 0 COUNT " MAX64, "[0 [a 1]]"},
    {HASH, "HINCRBY k a " MAX64, "-ERR increment or decrement would overflow"},
    {HASH, "HTTL k FIELDS " MAX64 " a",
     "-ERR The `numfields` parameter must match the number of arguments"},
    {HASH, "HSETEX k FIELDS 2147483647 a 1",
     "-ERR wrong number of arguments for 'hsetex' command"},
};

static void extremes_are_harmless(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(extremes); i++) {
        struct world w;
        world_open(&w);
        run_all(&w, extremes[i].before);
        const char *got = run(&w, extremes[i].command);
        if (strcmp(got, extremes[i].reply) != 0) fail_msg("%s: %s", extremes[i].command, got);
        world_close(&w);
    }
}

/* -- the same key many times ---------------------------------------------------------- */

enum { MEMBERS = 10000, TIMES = LIMITED ? 3000 : 30 };

/* Fills k, and one of its members into l; then runs a command that ends in TIMES times `key`,
 * and whose reply must begin with `first`. */
static void check_repeated(const char *add, const char *const *words, const char *key,
                           const char *first)
{
    struct world w;
    char line[64];
    int argc = 0;
    bytes *argv = mem_alloc((TIMES + 4) * sizeof *argv);
    world_open(&w);
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(line, sizeof line, add, "k", i);
        run_all(&w, line);
    }
    snprintf(line, sizeof line, add, "l", 5);
    run_all(&w, line);
    for (; *words; words++) argv[argc++] = bytes_str(*words);
    for (int i = 0; i < TIMES; i++) argv[argc++] = bytes_str(key);
    run_argv(&w, argc, argv);
    assert_memory_equal(w.out.p, first, strlen(first));
    world_close(&w);
    mem_free(argv);
}

/* A key given again adds nothing to the result, so it must not add to the memory set aside. */
static void repeated_keys_cost_no_memory(void **state)
{
    (void)state;
    char times[16];
    snprintf(times, sizeof times, "%d", TIMES);
    check_repeated(SADD, (const char *[]){"SUNION", NULL}, "k", "*10000\r\n");
    check_repeated(SADD, (const char *[]){"SUNIONSTORE", "d", NULL}, "k", ":10000\r\n");
    check_repeated(ZADD, (const char *[]){"ZUNION", times, NULL}, "k", "*10000\r\n");
    check_repeated(ZADD, (const char *[]){"ZUNIONSTORE", "d", times, NULL}, "k", ":10000\r\n");
}

/* Many small sets out of a big one: the sum of their sizes, not the product. */
static void differences_add_up(void **state)
{
    (void)state;
    char times[16];
    snprintf(times, sizeof times, "%d", TIMES + 1);
    check_repeated(SADD, (const char *[]){"SDIFF", "k", NULL}, "l", "*9999\r\n");
    check_repeated(ZADD, (const char *[]){"ZDIFF", times, "k", NULL}, "l", "*9999\r\n");
    check_repeated(ZADD, (const char *[]){"ZDIFFSTORE", "d", times, "k", NULL}, "l", ":9999\r\n");
    check_repeated(ZADD, (const char *[]){"ZDIFF", times, "k", NULL}, "k", "*0\r\n");
}

/* -- little memory, little time --------------------------------------------------------- */

static int setup(void **state)
{
    (void)state;
    struct rlimit limit = {512 << 20, RLIM_INFINITY};
    if (LIMITED && setrlimit(RLIMIT_AS, &limit) != 0) return -1;
    alarm(120);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extremes_are_harmless),
        cmocka_unit_test(repeated_keys_cost_no_memory),
        cmocka_unit_test(differences_add_up),
    };
    return cmocka_run_group_tests_name("bounds", tests, setup, NULL);
}
