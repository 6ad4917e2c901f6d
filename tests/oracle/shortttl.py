"""Short deadlines: set them, let them pass on both sides, then look.

Each key gets one deadline of 1..30 ms per round and isn't touched again until
it passed; so no reply depends on which server was faster.
"""
from gen import GENERAL
from op import Op
from pair import SleepOp

KEYS_PER_ROUND = 25
OPS_PER_ROUND = 250
PAST_ALL = 0.04         # longer than any deadline given here
CREATE = {'s': [b'SET'], 'h': [b'HSET'], 'l': [b'RPUSH'], 't': [b'SADD'], 'z': [b'ZADD'], 'p': [b'PFADD']}


def create(g, kind, key):
    if kind == 'h':
        return [b'HSET', key, g.member(), g.val(), g.member(), g.val()]
    if kind == 'z':
        return [b'ZADD', key, b'1', g.member(), b'2', g.member()]
    if kind == 'p':
        return [b'PFADD', key, g.member()]
    if kind == 'x':
        return [b'XADD', key, b'1-*', g.member(), g.val()]
    return CREATE[kind] + [key, g.val()]


def short(g, kind, key):
    """Creates a key, unless it exists, and gives it a short deadline."""
    ms = g.num(1, 30)
    r = g.random()
    if kind == 's' and r < 0.6:
        return Op(g.pick(([b'SET', key, g.val(), b'PX', ms], [b'PSETEX', key, ms, g.val()],
                          [b'SET', key, g.val(), b'PX', ms, b'GET'])))
    if kind == 's' and r < 0.7:
        return Op([b'SET', key, g.val()], [b'GETEX', key, b'PX', ms])
    return Op(create(g, kind, key), [b'PEXPIRE', key, ms])


def rounds(g, count):
    """All operations of an epoch of short deadlines."""
    pools = [(kind, key) for kind, keys in GENERAL.items() for key in keys]
    for i in range(count):
        # Without the active cycle only the lookup decides what is seen.
        yield Op([b'DEBUG', b'SET-ACTIVE-EXPIRE', b'0' if g.p(0.5) else b'1'])
        for kind, key in g.rng.sample(pools, KEYS_PER_ROUND):
            yield short(g, kind, key)
        yield Op(special=SleepOp(PAST_ALL))
        for _ in range(OPS_PER_ROUND):
            op = g.next()
            if not counts_keys(op):
                yield op


def counts_keys(op):
    """DBSIZE counts keys that are expired but not yet deleted: that's a race."""
    return any(a.upper() == b'DBSIZE' for argv, _ in op.cmds for a in argv[:1])
