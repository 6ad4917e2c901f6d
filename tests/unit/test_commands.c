/* The command table: numbering, the search by name, and where a request's keys are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>

#include "command/command.h"

static const struct command *find(const char *name) { return command_find(bytes_str(name)); }

static void upper(char *to, const char *from)
{
    do *to++ = (char)toupper((unsigned char)*from);
    while (*from++);
}

static void every_name_is_found_in_any_case(void **state)
{
    (void)state;
    for (u32 id = 0; id < command_count(); id++) {
        const struct command *cmd = command_at(id);
        char name[64];
        upper(name, cmd->name);
        assert_int_equal(cmd->id, id);
        char *bar = strchr(name, '|');
        if (!bar) {
            assert_ptr_equal(find(cmd->name), cmd);
            assert_ptr_equal(find(name), cmd);
        } else {
            assert_null(find(cmd->name)); /* no request can be named so */
            *bar = '\0';
            assert_ptr_equal(command_find_sub(find(name), bytes_str(bar + 1)), cmd);
        }
    }
}

/* Guards SUBS() of table.def: a container counts its subcommands, no more and no less. */
static void containers_hold_their_subcommands(void **state)
{
    (void)state;
    for (u32 id = 0; id < command_count(); id++) {
        const struct command *cmd = command_at(id);
        if (strchr(cmd->name, '|')) continue;
        assert_true(cmd->run || cmd->sub_count > 0);
        u32 n = 0, len = (u32)strlen(cmd->name);
        while (id + 1 + n < command_count()) {
            const char *next = command_at(id + 1 + n)->name;
            if (strncmp(next, cmd->name, len) != 0 || next[len] != '|') break;
            n++;
        }
        assert_int_equal(cmd->sub_count, n);
        assert_true(n == 0 || cmd->first_sub == id + 1);
    }
}

/* The oracle leaves out what the server does not know: whatever must not get lost is named here. */
static const char promised[] =
    "ping echo hello auth select quit reset "
    "client|id client|info client|list client|kill client|getname client|setname client|setinfo "
    "client|pause client|unpause client|reply client|no-evict client|no-touch client|unblock "
    "command|count command|info command|docs command|list command|getkeys command|getkeysandflags "
    "config|get config|set config|rewrite config|resetstat info dbsize flushdb flushall swapdb time "
    "role monitor slowlog|get slowlog|len slowlog|reset latency|latest latency|history "
    "latency|graph latency|doctor latency|reset latency|histogram memory|usage memory|stats "
    "memory|doctor memory|purge object|encoding object|freq object|idletime object|refcount debug "
    "shutdown lolwut expiry|chart expiry|forecast expiry|lag save bgsave lastsave bgrewriteaof "
    "del unlink exists type touch keys scan randomkey rename renamenx copy move sort sort_ro expire "
    "pexpire expireat pexpireat ttl pttl expiretime pexpiretime persist "
    "append decr decrby get getdel getex getrange getset incr incrby incrbyfloat lcs mget mset "
    "msetnx psetex set setex setnx setrange strlen substr "
    "setbit getbit bitcount bitpos bitop bitfield bitfield_ro pfadd pfcount pfmerge "
    "hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset "
    "hsetnx hstrlen hvals hexpire hpexpire hexpireat hpexpireat httl hpttl hexpiretime "
    "hpexpiretime hpersist hgetex hsetex hgetdel "
    "lindex linsert llen lmove lmpop lpop lpos lpush lpushx lrange lrem lset ltrim rpop rpoplpush "
    "rpush rpushx "
    "sadd scard sdiff sdiffstore sinter sintercard sinterstore sismember smembers smismember smove "
    "spop srandmember srem sscan sunion sunionstore "
    "zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop "
    "zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem "
    "zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore "
    "zrevrank zscan zscore zunion zunionstore "
    "geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro "
    "geosearch geosearchstore";

static void what_was_promised_is_there(void **state)
{
    (void)state;
    char names[sizeof(promised)];
    memcpy(names, promised, sizeof(promised));
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) {
        char *bar = strchr(name, '|');
        if (bar) *bar = '\0';
        const struct command *cmd = find(name);
        if (!cmd) fail_msg("%s", name);
        if (bar && !command_find_sub(cmd, bytes_str(bar + 1))) fail_msg("%s %s", name, bar + 1);
    }
}

static void other_names_are_not_found(void **state)
{
    (void)state;
    const bytes names[] = {
        BYTES_LIT(""), BYTES_LIT("g"), BYTES_LIT("ge"), BYTES_LIT("gett"), BYTES_LIT("get\0"),
        BYTES_LIT("get "), BYTES_LIT("\xc7" "et"), BYTES_LIT("g%t"), BYTES_LIT("sort\x7fro"),
        BYTES_LIT("sort?ro"), BYTES_LIT("georadiusbymember_roo"),
        BYTES_LIT("a name much longer than any command's name"),
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) assert_null(command_find(names[i]));
    assert_null(command_find_sub(find("client"), BYTES_LIT("")));
    assert_null(command_find_sub(find("client"), BYTES_LIT("idx")));
    assert_null(command_find_sub(find("get"), BYTES_LIT("id")));
}

/* "at:flags at:flags …" of a request given as words, "-1" if it is invalid. */
static const char *keys_of(const char *request)
{
    static char text[256];
    static char words[256];
    bytes argv[32];
    int argc = 0;
    snprintf(words, sizeof(words), "%s", request);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " ")) argv[argc++] = bytes_str(w);
    const struct command *cmd = command_find(argv[0]);
    if (cmd->sub_count) cmd = command_find_sub(cmd, argv[1]);

    struct key_use keys[32];
    int n = command_keys(cmd, argc, argv, keys, ARRAY_LEN(keys));
    if (n < 0) return "-1";
    text[0] = '\0';
    for (int i = 0, len = 0; i < n; i++) {
        const char *use = keys[i].flags & KEY_RO ? "r" : keys[i].flags & KEY_OW ? "w" : "rw";
        len += snprintf(text + len, sizeof(text) - (size_t)len, "%s%d%s", i ? " " : "",
                        keys[i].at, use);
    }
    return text;
}

static void keys_are_where_the_specs_say(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"ping", ""},
        {"get a", "1r"},
        {"object encoding a", "2r"},
        {"mset a 1 b 2", "1w 3w"},
        {"mget a b c", "1r 2r 3r"},
        {"bitop and d a b", "2w 3r 4r"},
        {"zunion 2 a b weights 1 2", "2r 3r"},
        {"zunionstore d 2 a b", "1w 3r 4r"},
        {"zunion 0 a", ""},
        {"zunion x a", "-1"},
        {"zunion 3 a b", "-1"},
        {"zunion 9223372036854775807 a b", "-1"},
        {"zunion -9223372036854775808 a b", "-1"},
        {"georadius k 1 1 1 m", "1r"},
        {"georadius k 1 1 1 m storedist y STORE x", "1r 9w"}, /* of several the last one counts */
        {"georadius k 1 1 1 m store a store b", "1r 9w"},
        {"georadius k 1 1 1 m count store store store", "1r 9w"},
        {"georadiusbymember k m 1 m store a count 1 asc storedist b", "1r 11w"},
        {"xread count 1 streams a b 0 0", "4r 5r"},
        {"xread streams streams 0", "2r"},
        {"xread other streams a 0", "-1"},
        {"xread streams", "-1"},
        {"xreadgroup group streams block noack streams a >", "6r"},
        {"xreadgroup count 1 group streams nx noack noack streams a >", "9r"},
        {"pfmerge d", "1rw"},
        {"pfmerge d a", "1rw 2r"},
        {"georadius k 1 1 1 m store", "1r"},
        {"georadius k 1 1 1 store x", "1r"},
        {"set a b", "1w"},
        {"set a get", "1w"},
        {"set a b ex 1 GET", "1rw"},
        {"bitfield a", "1r"},
        {"bitfield a overflow sat get u8 0", "1r"},
        {"bitfield a get u8", "1rw"},
        {"bitfield a get u8 0 set u8 0 1", "1rw"},
        {"sort a", "1r"},
        {"sort a by store get store", "1r"},
        {"sort a limit 0 1 store b Store c", "1r 8w"},
        {"sort_ro a store b", "1r"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_string_equal(keys_of(cases[i][0]), cases[i][1]);
    }
}

static void no_more_keys_are_written_than_asked_for(void **state)
{
    (void)state;
    bytes argv[] = {BYTES_LIT("mget"), BYTES_LIT("a"), BYTES_LIT("b"), BYTES_LIT("c")};
    struct key_use keys[2] = {{0}, {.at = 77}};
    assert_int_equal(command_keys(find("mget"), 4, argv, keys, 1), 3);
    assert_int_equal(keys[0].at, 1);
    assert_int_equal(keys[1].at, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_found_in_any_case),
        cmocka_unit_test(containers_hold_their_subcommands),
        cmocka_unit_test(what_was_promised_is_there),
        cmocka_unit_test(other_names_are_not_found),
        cmocka_unit_test(keys_are_where_the_specs_say),
        cmocka_unit_test(no_more_keys_are_written_than_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
