"""Connection and server commands, errors of dispatch, transactions."""
import compare as c
import re

from gen import family
from op import Op

server = family('server', 0.5)
multi = family('multi', 0.3)

# Commands that need at least one argument, for arity errors.
NEED_ARGS = b'''get set strlen append getrange setrange incr incrby mset hset hget hgetall hdel hincrby
lpush lpop llen lrange linsert lmove lmpop sadd srem smembers sinter sinterstore smove spop zadd zscore
zrange zrangestore zunion zunionstore zincrby zmpop zrank pfadd pfcount geoadd geosearch geodist expire
pexpireat ttl persist type rename copy move object bitcount bitop bitfield setbit sort select echo
config client scan hscan swapdb getex setex lcs sintercard zdiff watch touch unlink mget
incrbyfloat hincrbyfloat hrandfield zrandmember srandmember xadd xlen'''.split()
UNKNOWN = [b'FOO', b'nosuch', b'HSETT', b'get2', b'', b'\xff\xfe', b'a b', b'foo\r\nbar', b'x' * 200, b"it's"]
STABLE_CONFIG = [b'maxmemory', b'maxmemory-policy', b'hash-max-listpack-entries', b'hash-max-listpack-value',
                 b'hash-max-ziplist-entries', b'set-max-intset-entries', b'zset-max-listpack-entries',
                 b'zset-max-listpack-value', b'list-max-listpack-size', b'list-compress-depth', b'databases',
                 b'appendonly', b'save', b'timeout', b'hll-sparse-max-bytes', b'nosuchoption',
                 b'proto-max-bulk-len', b'active-expire-effort']
NO_KEYS = [b'PING', b'DBSIZE', b'FLUSHALL', b'MULTI', b'SELECT']


@server.add(2)
def ping(g):
    return [b'PING'] if g.p(0.5) else [b'PING', g.val()]


@server.add(2)
def echo(g):
    return [b'ECHO', g.val()]


@server.add(5)
def arity(g):
    name = g.pick(NEED_ARGS)
    return Op([g.odd_case(name) if g.p(0.3) else name])


@server.add(3, mutate=False)
def unknown(g):
    return [g.pick(UNKNOWN)] + g.some(lambda: g.val()[:200], 4, 0)


@server.add(1, mutate=False)
def unknown_subcommand(g):
    return Op([g.pick((b'CONFIG', b'CLIENT', b'COMMAND', b'OBJECT', b'MEMORY', b'SCRIPT', b'PUBSUB', b'SLOWLOG'))
            if g.p(0.5) else g.pick((b'CONFIG', b'CLIENT', b'OBJECT')),
            g.pick((b'NOSUCH', b'', b'foo bar', b'\x00'))] + g.some(g.member, 2, 0))


@server.add(2, mutate=False)
def config_get(g):
    return [b'CONFIG', g.opt(b'GET')] + g.some(lambda: g.pick(STABLE_CONFIG), 2), c.unordered_pairs


@server.add(1, mutate=False)
def config_bad(g):
    return Op(g.pick(([b'CONFIG', b'SET', b'nosuch', b'1'], [b'CONFIG', b'SET', b'maxmemory', b'abc'],
                   [b'CONFIG', b'SET', b'appendonly', b'maybe'], [b'CONFIG', b'SET', b'maxmemory-policy', b'x'],
                   [b'CONFIG', b'SET', b'hash-max-listpack-entries'], [b'CONFIG', b'GET'],
                   [b'CONFIG', b'SET', b'databases', b'4'], [b'CONFIG', b'RESETSTAT'])))


@server.add(1, mutate=False)
def client(g):
    return Op(g.pick(([b'CLIENT', b'GETNAME'], [b'CLIENT', b'SETNAME', b'oracle'], [b'CLIENT', b'SETNAME', b''],
                   [b'CLIENT', b'SETNAME', b'a b'], [b'CLIENT', b'SETNAME', b'x\ny'], [b'CLIENT', b'NO-EVICT', b'on'],
                   [b'CLIENT', b'NO-EVICT', b'off'], [b'CLIENT', b'NO-EVICT', b'x'], [b'CLIENT', b'SETNAME'],
                   [b'CLIENT', b'REPLY', b'x'], [b'CLIENT', b'KILL', b'1.2.3.4:5'], [b'CLIENT', b'UNBLOCK', b'999999'],
                   [b'CLIENT', b'PAUSE', b'abc'], [b'CLIENT', b'GETREDIR'])))


@server.add(0.5, mutate=False)
def client_id(g):
    return Op(([b'CLIENT', b'ID'], c.same_type))


@server.add(0.5, mutate=False)
def hello_bad(g):
    return Op(g.pick(([b'HELLO', b'9'], [b'HELLO', b'abc'], [b'HELLO', b'1'], [b'HELLO', b'2', b'FOO'],
                   [b'HELLO', b'3', b'AUTH', b'x'], [b'HELLO', b'3', b'SETNAME'], [b'HELLO', b'3', b'SETNAME', b'a b'],
                   [b'HELLO', b'99999999999999999999'], [b'HELLO', b'4', b'SETNAME', b'x'])))


@server.add(0.3, mutate=False)
def hello_same(g):
    return Op(([b'HELLO'], c.hello))


@server.add(0.3, mutate=False)
def hello_switch(g):
    back = b'3' if g.resp == 3 else b'2'
    return Op(([b'HELLO', b'2'], c.hello), [b'GET', g.key('s')], [b'ZSCORE', g.key('z'), g.member()],
              ([b'HELLO', b'3', b'SETNAME', b'oracle'], c.hello), [b'GET', g.key('s')],
              [b'ZRANGE', g.key('z'), b'0', b'3', b'WITHSCORES'],
              [b'HMGET', g.key('h'), g.member()], [b'SISMEMBER', g.key('t'), g.member()],
              ([b'CONFIG', b'GET', b'maxmemory'], None), ([b'HELLO', back], c.hello))


@server.add(0.2, mutate=False)
def reset(g):
    cmds = [[b'CLIENT', b'SETNAME', b'before'], [b'SELECT', b'3'], [b'RESET'],
            [b'CLIENT', b'GETNAME'], [b'GET', g.key('s')]]
    if g.p(0.3):
        cmds.insert(2, [b'MULTI'])
    if g.resp == 3:
        cmds.append(([b'HELLO', b'3'], c.hello))
    return Op(*cmds)


@server.add(0.05, mutate=False)
def auth(g):
    return Op(g.pick(([b'AUTH', b'x'], [b'AUTH', b'nobody', b'x'], [b'AUTH', b'default', b'x'], [b'AUTH', b'a', b'b', b'c'])))


def guessed_number(arg):
    """What Redis reads as a number of keys as atoi does ("2x", "1\\0", more than fits an int); we call it invalid."""
    if re.fullmatch(rb'-?(0|[1-9][0-9]*)', arg):
        return abs(int(arg)) >= 1 << 31
    return re.match(rb'\s*[+-]?[0-9]', arg) is not None


def keys_differ(argv):
    """Keys that Redis finds elsewhere than the command itself does, and XCLAIM's, which it says are not read."""
    name, words = argv[0].upper(), [a.upper() for a in argv]
    if name == b'PFMERGE':
        return len(argv) == 2
    if name in (b'GEORADIUS', b'GEORADIUSBYMEMBER'):
        return words.count(b'STORE') + words.count(b'STOREDIST') + words.count(b'COUNT') > 1
    if name in (b'XREAD', b'XREADGROUP'):
        options, at, start = {b'GROUP': 3, b'COUNT': 2, b'BLOCK': 2, b'NOACK': 1}, 1, 1 if name == b'XREAD' else 4
        while at < len(words) and words[at] in options:
            at += options[words[at]]
        return words[at:at + 1] != [b'STREAMS'] or at < start or words.index(b'STREAMS', start) != at
    return name in (b'XCLAIM', b'XAUTOCLAIM', b'PFDEBUG')


@server.add(1.5, mutate=False)
def getkeys(g):
    if g.p(0.9):
        argv = g.plain()[0]
        if keys_differ(argv):
            argv = [b'GET', b'k']
    else:
        argv = g.pick(([g.pick(NO_KEYS)], [g.pick(UNKNOWN)], [g.pick(NEED_ARGS)]))
    argv = [b'2' if guessed_number(a) else a for a in argv]
    if g.p(0.6):
        return [b'COMMAND', g.opt(b'GETKEYS')] + argv
    return [b'COMMAND', g.opt(b'GETKEYSANDFLAGS')] + argv, c.deep_unordered


@server.add(0.3, mutate=False)
def misc(g):
    return Op(g.pick(([b'LOLWUT', b'VERSION', b'abc'], [b'TIME', b'x'], [b'WAIT', b'0', b'0'], [b'WAIT', b'abc', b'0'],
                   [b'READONLY'], [b'UNWATCH'], [b'DISCARD'], [b'EXEC'], [b'DEBUG', b'NOSUCH'], [b'MEMORY', b'USAGE'],
                   [b'PUBLISH', b'ch', b'm'], [b'PUBSUB', b'NUMPAT'], [b'PUBSUB', b'CHANNELS'], [b'PUBSUB', b'NUMSUB', b'a'],
                   [b'SLOWLOG', b'GET', b'abc'], [b'SCRIPT', b'EXISTS', b'abc'], [b'EVALSHA', b'abc', b'0'],
                   [b'ASKING'], [b'READWRITE'], [b'CLUSTER', b'INFO'], [b'CLUSTER', b'HELP'], [b'CLUSTER'],
                   [b'CLUSTER', b'NOSUCH'], [b'CLUSTER', b'NODES', b'x'], [b'PFSELFTEST', b'x'], [b'SUBSCRIBE'], [b'REPLICAOF', b'x'])))


# --- transactions -------------------------------------------------------------------

@multi.add(5, mutate=False)
def transaction(g):
    inner = [g.plain() for _ in range(g.n(6))]
    inner = [(argv, rule) for argv, rule in inner if argv[0].upper() not in NOT_QUEUED]
    last = ([b'EXEC'], c.exec_rule(inner)) if g.p(0.9) else ([b'DISCARD'], None)
    watch = [[b'WATCH', g.any_key()]] if g.p(0.2) else []
    # A queued command answers QUEUED or an error, the same on both sides.
    return Op(*watch, [b'MULTI'], *[argv for argv, _ in inner], last)


# These act at once, or leave the transaction.
NOT_QUEUED = {b'EXEC', b'DISCARD', b'MULTI', b'WATCH', b'RESET', b'QUIT', b'HELLO', b'SELECT'}


@multi.add(2, mutate=False)
def watched(g):
    k = g.key('s')
    touch = g.pick(([b'SET', k, b'1'], [b'DEL', k], [b'GET', k], [b'EXPIRE', k, b'100000'], [b'APPEND', k, b''],
                    [b'INCR', k], [b'UNWATCH'], [b'FLUSHDB'] if g.p(0.05) else [b'PERSIST', k], [b'TOUCH', k],
                    [b'SETRANGE', k, b'0', b''], [b'HSET', g.key('h'), b'a', b'b'],
                    [b'RENAME', k, g.key('s')], [b'SETNX', k, b'v']))
    return Op([b'WATCH', k, g.any_key()], touch, [b'MULTI'], [b'GET', k], [b'SET', k, g.val()], [b'EXEC'])


@multi.add(1, mutate=False)
def broken(g):
    bad = g.pick(([b'NOSUCH'], [b'GET'], [b'MULTI'], [b'WATCH', b'x'], [b'SET', b'a'], [b'EXEC', b'x'],
                  [b'UNWATCH'], [b'DISCARD', b'x'], [b'SELECT', b'99']))
    return Op([b'MULTI'], [b'SET', g.key('s'), g.val()], bad, [b'INCR', g.key('s')], [b'EXEC'])
