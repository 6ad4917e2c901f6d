"""Scripts: any other command from within one, several of them, and values that become replies."""
from gen import family

script = family('script', 0.35)

CALL = b'return redis.call(unpack(ARGV))'
PCALL = b'return redis.pcall(unpack(ARGV))'
CAUGHT = b'local ok, e = pcall(redis.call, unpack(ARGV)) return {tostring(ok), e}'
# Each command behind the number of its words.
SEVERAL = b'''local out, at = {}, 1
while ARGV[at] do
    local n = math.max(tonumber(ARGV[at]) or 1, 1)
    local r = redis.pcall(unpack(ARGV, at + 1, at + n))
    out[#out + 1] = r == nil and 'nil' or r
    at = at + n + 1
end
return out'''
SHEBANG = [b'', b'', b'', b'#!lua\n', b'#!lua flags=no-writes\n', b'#!lua flags=allow-oom,allow-stale\n']
EVALS = (b'EVAL', b'EVAL', b'EVAL', b'EVAL_RO')
STRANGE = [b'1.5', b'-1.5', b'1e15', b'1e300', b'2^53', b'-2^63', b'0/0', b'1/0', b'-0.0', b'3.99', b'0x10', b'-7']
FIELDS = (b'err', b'ok', b'double', b'map', b'set', b'big_number', b'verbatim_string', b'format', b'string', b'x')


# Commands whose replies are the same everywhere, byte for byte, and leave nothing behind that only a rule of their own
# could compare (SORT changes Redis's encoding of a sorted set; DBSIZE counts the dead differently on disk; a map in
# RESP3 becomes a table of Lua, whose order is not specified).
SURE = set(b'''APPEND GET SET SETNX GETSET GETDEL GETRANGE SETRANGE STRLEN INCR INCRBY DECR DECRBY INCRBYFLOAT MSET MGET MSETNX
SETBIT GETBIT BITCOUNT BITPOS HSET HGET HDEL HMGET HLEN HEXISTS HINCRBY HINCRBYFLOAT HSETNX HSTRLEN LPUSH RPUSH LPUSHX
RPUSHX LPOP RPOP LLEN LRANGE LINDEX LSET LREM LTRIM LINSERT LPOS LMOVE RPOPLPUSH LMPOP BLPOP BRPOP BLMOVE BLMPOP SADD SREM
SCARD SISMEMBER SMISMEMBER SMOVE ZADD ZREM ZSCORE ZMSCORE ZINCRBY ZCARD ZCOUNT ZLEXCOUNT ZRANK ZREVRANK ZRANGE
ZRANGEBYSCORE ZPOPMIN ZPOPMAX DEL UNLINK EXISTS TYPE RENAME RENAMENX PERSIST XADD XLEN XRANGE XREVRANGE XDEL XTRIM XACK
PING ECHO SELECT MULTI EXEC SUBSCRIBE AUTH'''.split())


def exact(g):
    while True:
        argv, rule = g.plain()
        if rule is None and len(argv) < 1000 and argv[0].upper() in SURE:
            return argv


def quoted(text):
    return b'"' + b''.join(b'\\%03d' % c if c < 32 or c > 126 or c in b'"\\' else bytes([c]) for c in text) + b'"'


def value(g, depth=0):
    """Something a script may return, as Lua writes it. Tables have one named field at most: the order of more is
    not specified."""
    r = g.random()
    if r < 0.25:
        return quoted(g.val()[:40])
    if r < 0.45:
        return g.num(-1000, 1000) if r < 0.35 else g.pick(STRANGE)
    if r < 0.55:
        return g.pick((b'true', b'false', b'nil', b'function() end'))
    if depth > 3:
        return b'{}'
    items = [value(g, depth + 1) for _ in range(g.n(4))]
    if g.p(0.5):
        items.append(g.pick(FIELDS) + b' = ' + value(g, depth + 1))
    return b'{' + b', '.join(items) + b'}'


@script.add(4, mutate=False)
def one(g):
    resp3 = g.pick((b'', b'', b'redis.setresp(3) '))
    text = g.pick(SHEBANG) + resp3 + g.pick((CALL, PCALL, CAUGHT))
    return [g.pick(EVALS), text, b'0'] + exact(g)


@script.add(4, mutate=False)
def several(g):
    argv = [g.pick(EVALS), g.pick(SHEBANG) + SEVERAL, b'0']
    for _ in range(1 + g.n(5)):
        command = exact(g)
        argv += [b'%d' % len(command)] + command
    return argv


@script.add(3, mutate=False)
def returned(g):
    resp3 = g.pick((b'', b'', b'redis.setresp(3) '))
    return [b'EVAL', resp3 + b'return ' + value(g), b'0']


@script.add(1)
def malformed(g):
    return [g.pick((b'EVAL', b'EVAL_RO', b'EVALSHA', b'EVALSHA_RO')), g.pick((b'return ' + g.val(), g.val(), CALL)),
            g.count()] + g.some(g.val, 3, 0)


@script.add(1)
def about(g):
    return g.pick(([b'SCRIPT', b'EXISTS', b'e0e1f9fabfc9d4800c877a703b823ac0578ff8db'],
                   [b'SCRIPT', b'LOAD', b'return 1'], [b'SCRIPT', b'LOAD', g.val()], [b'SCRIPT', b'KILL'],
                   [b'SCRIPT', b'FLUSH'], [b'EVALSHA', b'e0e1f9fabfc9d4800c877a703b823ac0578ff8db', b'0']))
