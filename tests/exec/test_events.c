/* The keyspace events of every command that changes something, and their order. Where Redis
 * 7.0.15 has the command, the events are those it sent (notify-keyspace-events EAn). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "harness.h"

struct events_of {
    const char *before; /* commands separated by ';' */
    const char *command, *events;
};

#define FAR "5000000000000"
#define H "HSET h a 1 b 2 c 3;HPEXPIREAT h " FAR " FIELDS 1 c"

static const struct events_of rows[] = {
    {NULL, "SET k v", "new k, set k"},
    {NULL, "SET k v EX 10", "new k, set k, expire k"},
    {"SET k v", "SET k v", "set k"},
    {NULL, "SETNX k v", "new k, set k"},
    {NULL, "SETEX k 10 v", "new k, set k, expire k"},
    {"SET k v", "GETSET k w", "set k"},
    {"SET k v", "GETDEL k", "del k"},
    {"SET k v", "GETEX k EX 10", "expire k"},
    {"SET k v", "GETEX k PXAT 5", "del k"},
    {"SET k v EX 9", "GETEX k PERSIST", "persist k"},
    {NULL, "MSET a 1 b 2", "new a, set a, new b, set b"},
    {NULL, "MSETNX a 1 b 2", "new a, set a, new b, set b"},
    {NULL, "SETRANGE k 1 x", "new k, setrange k"},
    {NULL, "SETRANGE k 1 ''", ""},
    {NULL, "APPEND k x", "new k, append k"},
    {"SET k v", "APPEND k x", "append k"},
    {NULL, "INCR k", "new k, incrby k"},
    {NULL, "DECRBY k 3", "new k, incrby k"},
    {NULL, "INCRBYFLOAT k 1.5", "new k, incrbyfloat k"},
    {NULL, "SETBIT k 1 1", "new k, setbit k"},
    {NULL, "BITFIELD k SET u8 0 1", "new k, setbit k"},
    {"SET k v", "BITOP NOT d k", "new d, set d"},
    {"SET d x", "BITOP NOT d nokey", "del d"},
    {NULL, "PFADD p a", "new p, pfadd p"},
    {"PFADD p a", "PFADD p a", ""},
    {"PFADD p a;PFADD q b", "PFMERGE d p q", "new d, pfadd d"},
    {"PFADD p a", "PFCOUNT p", ""},
    {NULL, "HSET h f v", "new h, hset h"},
    {"HSET h f v", "HSET h f w", "hset h"},
    {NULL, "HSETNX h f v", "new h, hset h"},
    {NULL, "HINCRBY h f 1", "new h, hincrby h"},
    {NULL, "HINCRBYFLOAT h f 1.5", "new h, hincrbyfloat h"},
    {"HSET h f v g w", "HDEL h f", "hdel h"},
    {"HSET h f v", "HDEL h f", "hdel h, del h"},
    {NULL, "LPUSH l a b", "new l, lpush l"},
    {NULL, "RPUSH l a", "new l, rpush l"},
    {"RPUSH l a", "LPUSHX l b", "lpush l"},
    {"RPUSH l a b", "LPOP l", "lpop l"},
    {"RPUSH l a", "RPOP l", "rpop l, del l"},
    {"RPUSH l a b", "LPOP l 2", "lpop l, del l"},
    {"RPUSH l a b", "LPOP l 0", ""},
    {"RPUSH l a b", "LMPOP 1 l LEFT COUNT 2", "lpop l, del l"},
    {"RPUSH l a b", "LMOVE l d LEFT RIGHT", "new d, rpush d, lpop l"},
    {"RPUSH l a", "LMOVE l d LEFT RIGHT", "new d, rpush d, lpop l, del l"},
    {"RPUSH l a b", "RPOPLPUSH l l", "lpush l, rpop l"},
    {"RPUSH l a", "LSET l 0 b", "lset l"},
    {"RPUSH l a", "LINSERT l BEFORE a b", "linsert l"},
    {"RPUSH l a b c", "LTRIM l 1 1", "ltrim l"},
    {"RPUSH l a b c", "LTRIM l 0 -1", "ltrim l"},
    {"RPUSH l a b c", "LTRIM l 5 9", "ltrim l, del l"},
    {"RPUSH l a b", "LREM l 0 a", "lrem l"},
    {"RPUSH l a", "LREM l 0 a", "lrem l, del l"},
    {NULL, "SADD s a b", "new s, sadd s"},
    {"SADD s a", "SADD s a", ""},
    {"SADD s a b", "SREM s a", "srem s"},
    {"SADD s a", "SREM s a", "srem s, del s"},
    {"SADD s a", "SPOP s", "spop s, del s"},
    {"SADD s a b", "SPOP s 1", "spop s"},
    {"SADD s a b", "SPOP s 5", "spop s, del s"},
    {"SADD s a b", "SMOVE s d a", "srem s, new d, sadd d"},
    {"SADD s a;SADD d a", "SMOVE s d a", "srem s, del s"},
    {"SADD s a", "SMOVE s s a", ""},
    {"SADD s a", "SUNIONSTORE d s", "new d, sunionstore d"},
    {"SADD s a;SET d x", "SINTERSTORE d s", "sinterstore d"},
    {"SADD s a;SET d x", "SDIFFSTORE d s s", "del d"},
    {"SADD s a", "SDIFFSTORE d s s", ""},
    {NULL, "ZADD z 1 a", "new z, zadd z"},
    {"ZADD z 1 a", "ZADD z 1 a", ""},
    {"ZADD z 1 a", "ZADD z 2 a", "zadd z"},
    {"ZADD z 1 a", "ZADD z INCR 2 a", "zincr z"},
    {NULL, "ZINCRBY z 1 a", "new z, zincr z"},
    {"ZADD z 1 a 2 b", "ZREM z a", "zrem z"},
    {"ZADD z 1 a", "ZREM z a", "zrem z, del z"},
    {"ZADD z 1 a 2 b", "ZPOPMIN z", "zpopmin z"},
    {"ZADD z 1 a", "ZPOPMAX z", "zpopmax z, del z"},
    {"ZADD z 1 a", "ZMPOP 1 z MIN", "zpopmin z, del z"},
    {"ZADD z 1 a", "ZREMRANGEBYRANK z 0 -1", "zremrangebyrank z, del z"},
    {"ZADD z 1 a 2 b", "ZREMRANGEBYSCORE z 1 1", "zremrangebyscore z"},
    {"ZADD z 1 a 1 b", "ZREMRANGEBYLEX z [a [a", "zremrangebylex z"},
    {"ZADD z 1 a", "ZRANGESTORE d z 0 -1", "new d, zrangestore d"},
    {"ZADD z 1 a;SET d x", "ZRANGESTORE d z 0 -1", "zrangestore d"},
    {"ZADD z 1 a;SET d x", "ZRANGESTORE d z 5 9", "del d"},
    {"ZADD z 1 a", "ZUNIONSTORE d 1 z", "new d, zunionstore d"},
    {"ZADD z 1 a;SET d x", "ZINTERSTORE d 1 z", "zinterstore d"},
    {"ZADD z 1 a;SET d x", "ZDIFFSTORE d 2 z z", "del d"},
    {NULL, "GEOADD g 1 1 a", "new g, zadd g"},
    {"GEOADD g 1 1 a", "GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 9 km",
     "new d, geosearchstore d"},
    {"GEOADD g 1 1 a", "GEORADIUS g 1 1 9 km STORE d", "new d, georadiusstore d"},
    {"GEOADD g 1 1 a;SET d x", "GEORADIUS g 50 1 9 km STORE d", "del d"},
    {"RPUSH l a", "SORT l ALPHA STORE d", "new d, sortstore d"},
    {"RPUSH l a;SET d x", "SORT l ALPHA STORE d", "sortstore d"},
    {"SET d x", "SORT nokey STORE d", "del d"},
    {"SET k v", "DEL k nokey", "del k"},
    {"SET k v", "UNLINK k", "del k"},
    {"SET k v", "EXPIRE k 10", "expire k"},
    {"SET k v", "EXPIRE k 0", "del k"},
    {"SET k v", "PEXPIREAT k 5", "del k"},
    {"SET k v EX 9", "PERSIST k", "persist k"},
    {"SET k v", "RENAME k d", "new d, rename_from k, rename_to d"},
    {"SET k v;SET d x", "RENAME k d", "new d, rename_from k, rename_to d"},
    {"SET k v", "RENAME k k", ""},
    {"SET k v", "RENAMENX k d", "new d, rename_from k, rename_to d"},
    {"SET k v", "COPY k d", "new d, copy_to d"},
    {"SET k v;SET d x", "COPY k d REPLACE", "new d, copy_to d"},
    {"SET k v", "MOVE k 1", "new k@1, move_from k, move_to k@1"},
    {"SET k v", "FLUSHALL", ""},
    {"SET k v", "SWAPDB 0 1", ""},
    {NULL, "GET k", ""},
    {NULL, "DEL k", ""},
    {NULL, "GETEX k EX 10", ""},
    {NULL, "SET k v GET", "new k, set k"},
    {NULL, "PERSIST k", ""},
    {NULL, "LPOP l", ""},
    {NULL, "COPY k d", ""},
    {NULL, "RENAME k d", ""},
    {NULL, "SORT l", ""},

    /* fields, which Redis has since 7.4 and 8.0 */
    {H, "HPEXPIREAT h " FAR " FIELDS 2 a b", "hexpire h"},
    {H, "HPEXPIREAT h 1 FIELDS 1 a", "hdel h"},
    {H, "HPEXPIREAT h 1 FIELDS 3 a b c", "hdel h, del h"},
    {H, "HPEXPIREAT h 1 XX FIELDS 1 a", ""},
    {H, "HPEXPIREAT h 1 FIELDS 1 nosuch", ""},
    {H, "HPERSIST h FIELDS 2 a c", "hpersist h"},
    {H, "HPERSIST h FIELDS 1 a", ""},
    {H, "HGETDEL h FIELDS 2 a nosuch", "hdel h"},
    {H, "HGETDEL h FIELDS 3 a b c", "hdel h, del h"},
    {H, "HGETDEL h FIELDS 1 nosuch", ""},
    {H, "HGETEX h FIELDS 1 a", ""},
    {H, "HGETEX h EX 10 FIELDS 1 a", "hexpire h"},
    {H, "HGETEX h EX 0 FIELDS 1 a", "hdel h"},
    {H, "HGETEX h PERSIST FIELDS 1 c", "hpersist h"},
    {H, "HSETEX h FIELDS 1 a 2", "hset h"},
    {H, "HSETEX h EX 10 FIELDS 1 a 2", "hset h, hexpire h"},
    {H, "HSETEX h EX 0 FIELDS 1 a 2", "hset h, hdel h"},
    {H, "HSETEX h EX 0 FIELDS 3 a 2 b 2 c 2", "hset h, hdel h, del h"},
    {H, "HSETEX h FNX EX 10 FIELDS 1 a 2", ""},
    {NULL, "HSETEX h FIELDS 1 a 2", "new h, hset h"},
    {H, "HTTL h FIELDS 1 c", ""},
};

static void note(void *arg, u32 class, const char *event, u32 db, bytes key)
{
    struct buf *seen = arg;
    (void)class;
    if (seen->n) buf_append_str(seen, ", ");
    buf_printf(seen, "%s %.*s", event, (int)key.n, key.p);
    if (db) buf_printf(seen, "@%u", db);
}

static void commands_tell_their_events(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf seen = {0};
        struct world w;
        world_open(&w);
        if (rows[i].before) run_all(&w, rows[i].before);
        w.region.ks.on_event = note;
        w.region.ks.on_event_arg = &seen;
        w.region.ks.event_mask = ~(u32)NOTIFY_MISS;
        run(&w, rows[i].command);
        buf_append_char(&seen, '\0');
        if (strcmp(seen.p, rows[i].events) != 0) fail_msg("%s: %s", rows[i].command, seen.p);
        buf_release(&seen);
        world_close(&w);
    }
}

/* What dies tells so, too, before the command that met it. */
static void the_dead_tell_theirs(void **state)
{
    (void)state;
    struct buf seen = {0};
    struct world w;
    world_open(&w);
    run_all(&w, "SET k v PX 1000;HSET h f 1 g 2;HPEXPIRE h 1000 FIELDS 1 f");
    run_all(&w, "HSET hollow f 1;HPEXPIRE hollow 1000 FIELDS 1 f;SET c v PX 1000");
    w.region.ks.on_event = note;
    w.region.ks.on_event_arg = &seen;
    w.region.ks.event_mask = ~(u32)NOTIFY_MISS;
    at(&w, 1000);
    run(&w, "SET k w");
    run(&w, "HLEN hollow");
    assert_memory_equal(seen.p, "expired k, new k, set k, hexpired hollow, del hollow", seen.n);
    buf_clear(&seen);
    at(&w, 1100);
    each_step(&w);
    buf_append_char(&seen, '\0');
    assert_non_null(strstr(seen.p, "hexpired h"));
    assert_non_null(strstr(seen.p, "expired c"));
    buf_release(&seen);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_tell_their_events),
        cmocka_unit_test(the_dead_tell_theirs),
    };
    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
