/* Random commands out of a table of patterns. The same seed gives the same
 * commands.
 *
 * In a pattern `{a|b|}` stands for one of the alternatives, `<a>` for a repeated
 * one to three times (now and then many more), and `%x` for
 *
 *   k any key · S string · I counter · B bitmap · P HyperLogLog · H hash · L list
 *   T set · Z sorted set · G places · X stream: a key that usually holds that type
 *   m member or field · v value · d database · c count · n integer · f float
 *   s, p a relative time in s or ms · E, A an absolute one · o offset
 *   ( score bound · [ lex bound · i ID of a stream's entry of late */
#ifndef MAYFLY_TESTS_EXEC_GENERATE_H
#define MAYFLY_TESTS_EXEC_GENERATE_H

#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/rand.h"

#define GEN_MAX_ARGS 160

struct gen {
    u64 rng;
    i64 now_ms;
    u32 databases;
    struct buf text;
    int argc;
    size_t ends[GEN_MAX_ARGS];
    bool word; /* a word has been begun, be it empty */
    bytes argv[GEN_MAX_ARGS];
};

struct gen_pattern {
    u32 weight;
    const char *text;
};

static const struct gen_pattern gen_patterns[] = {
    /* strings */
    {6, "SET %S %v"},
    {6, "SET %S %v {EX %s|PX %p|EXAT %E|PXAT %A|KEEPTTL} {GET|}"},
    {4, "SET %k %v {NX|XX} {EX %s|PX %p|KEEPTTL|} {GET|}"},
    {2, "SETNX %S %v"},
    {3, "SETEX %S %s %v"},
    {3, "PSETEX %S %p %v"},
    {2, "GETSET %S %v"},
    {2, "GETDEL %S"},
    {6, "GETEX %S {EX %s|PX %p|EXAT %E|PXAT %A|PERSIST|}"},
    {3, "MSET <%S %v>"},
    {3, "MSETNX <%S %v>"},
    {2, "SETRANGE %S %o %v"},
    {3, "APPEND %S %v"},
    {3, "{INCR|DECR} %I"},
    {3, "{INCRBY|DECRBY} %I %n"},
    {4, "INCRBYFLOAT %I %f"},
    /* bits and HyperLogLogs */
    {3, "SETBIT %B %o {0|1}"},
    {4, "BITFIELD %B <{GET u8 %o|SET {u8|i5} %o %n|INCRBY {i8|u3|i64} %o %n|"
        "OVERFLOW {WRAP|SAT|FAIL}}>"},
    {3, "BITOP {AND|OR|XOR} %B <%B>"},
    {1, "BITOP NOT %B %B"},
    {4, "PFADD %P <%m>"},
    {2, "PFMERGE %P <%P>"},
    {3, "PFCOUNT {%P|%P %P}"},
    /* hashes */
    {6, "{HSET|HMSET} %H <%m %v>"},
    {2, "HSETNX %H %m %v"},
    {4, "HDEL %H <%m>"},
    {3, "HINCRBY %H %m %n"},
    {3, "HINCRBYFLOAT %H %m %f"},
    {6, "{HEXPIRE %H %s|HPEXPIRE %H %p|HEXPIREAT %H %E|HPEXPIREAT %H %A} {NX|XX|GT|LT|} "
        "FIELDS 2 %m %m"},
    {2, "{HEXPIRE %H %s|HPEXPIRE %H %p} FIELDS 1 %m"},
    {3, "HPERSIST %H FIELDS 2 %m %m"},
    {3, "HGETDEL %H FIELDS 2 %m %m"},
    {4, "HGETEX %H {EX %s|PX %p|EXAT %E|PXAT %A|PERSIST|} FIELDS 2 %m %m"},
    {5, "HSETEX %H {FNX|FXX|} {EX %s|PX %p|EXAT %E|PXAT %A|KEEPTTL|} FIELDS 2 %m %v %m %v"},
    /* lists */
    {5, "{LPUSH|RPUSH} %L <%v>"},
    {2, "{LPUSHX|RPUSHX} %L <%v>"},
    {4, "{LPOP|RPOP} %L {%c|}"},
    {2, "LSET %L %n %v"},
    {2, "LINSERT %L {BEFORE|AFTER} %m %v"},
    {2, "LTRIM %L %n %n"},
    {2, "LREM %L %n %m"},
    {3, "LMOVE %L %L {LEFT|RIGHT} {LEFT|RIGHT}"},
    {1, "RPOPLPUSH %L %L"},
    {3, "LMPOP 2 %L %L {LEFT|RIGHT} {COUNT %c|}"},
    /* sets */
    {5, "SADD %T <%m>"},
    {2, "SADD %T <%n>"},
    {3, "SREM %T <%m>"},
    {4, "SPOP %T {%c|}"},
    {3, "SMOVE %T %T %m"},
    {3, "{SINTERSTORE|SUNIONSTORE|SDIFFSTORE} %T <%T>"},
    /* sorted sets and places */
    {5, "ZADD %Z {NX|XX|GT|LT|} {CH|} <%f %m>"},
    {3, "ZADD %Z {NX|XX|GT|LT|} INCR %f %m"},
    {3, "ZINCRBY %Z %f %m"},
    {3, "ZREM %Z <%m>"},
    {4, "{ZPOPMIN|ZPOPMAX} %Z {%c|}"},
    {3, "ZMPOP 2 %Z %Z {MIN|MAX} {COUNT %c|}"},
    {1, "ZREMRANGEBYRANK %Z %n %n"},
    {1, "ZREMRANGEBYSCORE %Z %( %("},
    {1, "ZREMRANGEBYLEX %Z %[ %["},
    {2, "ZRANGESTORE %Z %Z {%n %n|%( %( BYSCORE|%[ %[ BYLEX LIMIT 0 3|0 -1 REV}"},
    {3, "{ZUNIONSTORE|ZINTERSTORE} %Z 2 {%Z|%T} %Z {WEIGHTS %f %f|} {AGGREGATE {SUM|MIN|MAX}|}"},
    {1, "ZDIFFSTORE %Z 2 %Z %Z"},
    {4, "GEOADD %G {NX|XX|} {CH|} <{1.5|13.361|-70} {1.5|38.11|60} %m>"},
    {2, "GEOSEARCHSTORE %G %G FROMLONLAT 13 38 BYRADIUS {200|9000} km {ASC|COUNT 2|} {STOREDIST|}"},
    {1, "GEORADIUS %G 13 38 9000 km {STORE %G|STOREDIST %G|}"},
    {1, "GEORADIUSBYMEMBER %G %m 9000 km {STORE %G|}"},
    /* streams */
    {6, "XADD %X {MAXLEN {~|=|} %c|MINID {~|=|} %i|NOMKSTREAM|} {*|*|%i} <%m %v>"},
    {1, "XTRIM %X {MAXLEN {~|=|} %c|MINID {~|=|} %i}"},
    {2, "XDEL %X <%i>"},
    {1, "XSETID %X %i {ENTRIESADDED 100|} {MAXDELETEDID %i|}"},
    {3, "XGROUP CREATE %X {g|h} {$|0|%i} {MKSTREAM|} {ENTRIESREAD %c|}"},
    {2, "XGROUP {SETID %X {g|h} {$|0|%i}|DESTROY %X h|CREATECONSUMER %X {g|h} %m|DELCONSUMER %X {g|h} {a|b|c}}"},
    {6, "XREADGROUP GROUP {g|h} {a|b|c} {COUNT %c|} {NOACK|} STREAMS %X {>|>|>|0|%i}"},
    {3, "XACK %X {g|h} <%i>"},
    {3, "XCLAIM %X {g|h} {a|b|c} {0|500} <%i> {IDLE %p|TIME %A|} {RETRYCOUNT %c|} {FORCE|} {JUSTID|} {LASTID %i|}"},
    {3, "XAUTOCLAIM %X {g|h} {a|b|c} {0|500} 0 {COUNT 3|} {JUSTID|}"},
    {1, "XREAD STREAMS %X %X 0 %i"},
    /* any key */
    {4, "{DEL|UNLINK} <%k>"},
    {8, "{EXPIRE %k %s|PEXPIRE %k %p|EXPIREAT %k %E|PEXPIREAT %k %A} {NX|XX|GT|LT|XX GT|XX LT|}"},
    {3, "PERSIST %k"},
    {3, "RENAME %k %k"},
    {2, "RENAMENX %k %k"},
    {4, "COPY %k %k {DB %d|} {REPLACE|}"},
    {3, "MOVE %k %d"},
    {3, "SORT {%L|%T|%Z} {BY nosort|BY {s|c}*|} {ALPHA|} {GET # GET s*|} {LIMIT 0 4|} STORE %k"},
    {1, "SWAPDB %d %d"},
    /* reads: they write too, when they find something dead */
    {2, "GET %S"},
    {1, "MGET <%k>"},
    {1, "EXISTS <%k>"},
    {1, "TYPE %k"},
    {1, "{TTL|PTTL|EXPIRETIME|PEXPIRETIME} %k"},
    {2, "HGETALL %H"},
    {1, "HGET %H %m"},
    {1, "HTTL %H FIELDS 1 %m"},
    {1, "HRANDFIELD %H"},
    {1, "LRANGE %L 0 -1"},
    {1, "{SUNION|SINTER|SDIFF} %T %T"},
    {1, "SRANDMEMBER %T"},
    {1, "ZRANGE %Z 0 -1 WITHSCORES"},
    {1, "ZUNION 2 %Z %Z"},
    {1, "SCAN 0 {COUNT 5|}"},
    {1, "RANDOMKEY"},
    {1, "SORT %T BY s* GET c* ALPHA"},
    {1, "TOUCH <%k>"},
    {1, "OBJECT ENCODING %k"},
};

static const struct gen_pattern gen_rare[] = {{1, "FLUSHDB {ASYNC|SYNC|}"}, {1, "FLUSHALL"}};

/* -- words -------------------------------------------------------------------------- */

static inline u64 gen_below(struct gen *g, u64 n) { return rand_below(&g->rng, n); }

static inline void gen_end_word(struct gen *g)
{
    if (!g->word && g->text.n == (g->argc ? g->ends[g->argc - 1] : 0)) return;
    CHECK(g->argc < GEN_MAX_ARGS);
    g->ends[g->argc++] = g->text.n;
    g->word = false;
}

/* Mostly of the wanted type; sometimes whatever is there. */
static inline void gen_key(struct gen *g, char type)
{
    static const char types[] = "SIBPHLTZGX";
    static const char names[] = "scbphltzgx";
    if (type == 'k' || gen_below(g, 30) == 0) type = types[gen_below(g, sizeof types - 1)];
    char name = names[strchr(types, type) - types];
    buf_printf(&g->text, "%c%d", name, (int)gen_below(g, 6));
}

static inline void gen_member(struct gen *g)
{
    buf_printf(&g->text, "m%d", (int)gen_below(g, gen_below(g, 5) ? 12 : 300));
}

static inline void gen_value(struct gen *g)
{
    switch (gen_below(g, 8)) {
    case 0: break; /* empty */
    case 1: buf_printf(&g->text, "%d", (int)gen_below(g, 2000) - 1000); break;
    case 2: buf_append(&g->text, "a\0b\r\n", 5); break;
    case 3:
        for (u64 n = gen_below(g, 100); n > 0; n--) buf_append_char(&g->text, (char)('a' + n % 26));
        break;
    default: gen_member(g);
    }
}

static inline void gen_float(struct gen *g)
{
    static const char *const odd[] = {"0", "-0", "inf", "-inf", "1e300", "0.1", "3"};
    if (gen_below(g, 4) == 0) buf_append_str(&g->text, odd[gen_below(g, ARRAY_LEN(odd))]);
    else buf_printf(&g->text, "%.3g", ((double)gen_below(g, 20000) - 10000) / 64);
}

static inline void gen_number(struct gen *g, i64 v) { buf_printf(&g->text, "%lld", (long long)v); }

static inline void gen_word(struct gen *g, char what)
{
    g->word = true;
    switch (what) {
    case 'm': gen_member(g); break;
    case 'v': gen_value(g); break;
    case 'd': gen_number(g, (i64)gen_below(g, g->databases)); break;
    case 'c': gen_number(g, (i64)gen_below(g, 6)); break;
    case 'n': gen_number(g, (i64)gen_below(g, 21) - 10); break;
    case 'o': gen_number(g, (i64)gen_below(g, 90)); break;
    case 'f': gen_float(g); break;
    case 's': gen_number(g, (i64)gen_below(g, 12)); break;
    case 'p': gen_number(g, (i64)gen_below(g, 9000)); break;
    case 'E': gen_number(g, g->now_ms / 1000 + (i64)gen_below(g, 12) - 2); break;
    case 'A': gen_number(g, g->now_ms + (i64)gen_below(g, 10000) - 1500); break;
    case 'i':
        gen_number(g, g->now_ms - (i64)gen_below(g, gen_below(g, 2) ? 3 : 3000));
        buf_append_char(&g->text, '-');
        gen_number(g, (i64)gen_below(g, 3));
        break;
    case '(':
        buf_append_str(&g->text, gen_below(g, 2) ? "(" : "");
        gen_float(g);
        break;
    case '[':
        buf_append_str(&g->text, gen_below(g, 2) ? "(m" : "[m");
        gen_number(g, (i64)gen_below(g, 12));
        break;
    default: gen_key(g, what);
    }
}

/* -- patterns ------------------------------------------------------------------------ */

/* The end of the group that opens at p. */
static inline const char *gen_group_end(const char *p)
{
    char open = *p, close = open == '{' ? '}' : '>';
    int depth = 0;
    for (;; p++) {
        CHECK(*p);
        depth += (*p == open) - (*p == close);
        if (depth == 0) return p;
    }
}

/* The next `|` that belongs to no inner group, or end. */
static inline const char *gen_bar(const char *p, const char *end)
{
    for (; p < end && *p != '|'; p++)
        if (*p == '{') p = gen_group_end(p);
    return p;
}

static inline void gen_expand(struct gen *g, const char *p, const char *end);

static inline void gen_choice(struct gen *g, const char *p, const char *end)
{
    u64 n = 1;
    for (const char *q = p; (q = gen_bar(q, end)) < end; q++) n++;
    for (u64 skip = gen_below(g, n); skip > 0; skip--) p = gen_bar(p, end) + 1;
    gen_expand(g, p, gen_bar(p, end));
}

static inline void gen_expand(struct gen *g, const char *p, const char *end)
{
    for (; p < end; p++) {
        if (*p == ' ') {
            gen_end_word(g);
        } else if (*p == '{') {
            const char *close = gen_group_end(p);
            gen_choice(g, p + 1, close);
            p = close;
        } else if (*p == '<') {
            const char *close = gen_group_end(p);
            for (u64 n = 1 + gen_below(g, gen_below(g, 40) ? 3 : 40); n > 0; n--) {
                gen_expand(g, p + 1, close);
                gen_end_word(g);
            }
            p = close;
        } else if (*p == '%') {
            gen_word(g, *++p);
        } else {
            buf_append_char(&g->text, *p);
        }
    }
}

static inline const char *gen_pick(struct gen *g)
{
    if (gen_below(g, 3000) == 0) return gen_rare[gen_below(g, ARRAY_LEN(gen_rare))].text;
    u64 total = 0;
    for (size_t i = 0; i < ARRAY_LEN(gen_patterns); i++) total += gen_patterns[i].weight;
    u64 at = gen_below(g, total);
    size_t i = 0;
    while (at >= gen_patterns[i].weight) at -= gen_patterns[i++].weight;
    return gen_patterns[i].text;
}

/* The next command is g->argc words in g->argv, which live until the next call. */
static inline void gen_next(struct gen *g)
{
    const char *pattern = gen_pick(g);
    buf_clear(&g->text);
    g->argc = 0;
    g->word = false;
    gen_expand(g, pattern, pattern + strlen(pattern));
    gen_end_word(g);
    for (int i = 0; i < g->argc; i++) {
        size_t from = i ? g->ends[i - 1] : 0;
        g->argv[i] = bytes_of(g->text.p + from, g->ends[i] - from);
    }
}

static inline void gen_release(struct gen *g) { buf_release(&g->text); }

#endif
