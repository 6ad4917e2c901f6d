"""The workloads of clients, and how their histories are checked: registers with TTL, counters, transactions.

A key is used for a few hundred operations only, so that the order of its operations can be searched quickly. Every client also
appends to a list of its own, whose elements must all be there at the end, in order, once.
"""
from linear import ABORTED, UNKNOWN, check, delete, expire, get, incr, put, swap, together

OPS_PER_KEY = 200
ACTIVE = 96         # keys in use at a time
TTLS = 0.15, 0.4, 1.0, 2.5
LIMITER = ("local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end return n")


def ms(seconds):
    return int(seconds * 1000)


class Kind:
    """`weights`: how often which method is called, of clients that write. Groups of keys are judged by themselves."""
    name, weights, changes_members = '', {}, False

    def __init__(self):
        self.methods = {c: [getattr(self, m) for m, n in w.items() for _ in range(n)]
                        for c, w in ((False, self.weights), (True, {'read': 1}))}

    def group(self, client):
        return self.name + str(client.load.done // OPS_PER_KEY + client.rng.randrange(ACTIVE))

    def keys(self, group):
        return [group]

    async def step(self, client):
        await client.rng.choice(self.methods[client.only_reads])(client, self.group(client))

    async def read(self, client, key):
        await client.do(key, get(key), ['GET', key], writes=False)

    async def append(self, client, _):
        """To the client's own list."""
        value, log = client.unique(), client.load.logs.setdefault(f'log{client.number}', {})
        replies = await client.ask(['RPUSH', f'log{client.number}', value])
        log[value] = replies is not UNKNOWN
        client.load.count(replies)

    def final(self, group, at):
        """What a group holds at last, as an operation: its model and its result. `at` has values by key."""
        keys = self.keys(group)
        return together(*map(get, keys)), tuple(at.get(k) for k in keys)

    def judge(self, group, ops, skew):
        return check(ops, self.keys(group), skew=skew, limit=400_000, unique=self.unique(group))

    def unique(self, group):
        """Whether no value is written twice."""
        return True


class Registers(Kind):
    name = 'register'
    weights = {'read': 8, 'set': 2, 'set_ttl': 5, 'set_if': 2, 'delete': 1, 'expire': 1, 'append': 2}

    async def put(self, client, key, ttl, only_if=None):
        value = client.unique()
        command = ['SET', key, value, *(['PX', ms(ttl)] if ttl else []), *([only_if] if only_if else [])]
        await client.do(key, put(key, value, ttl, only_if), command, result=lambda r: r[-1] is not None)

    async def set(self, client, key):
        await self.put(client, key, None)

    async def set_ttl(self, client, key):
        await self.put(client, key, client.rng.choice(TTLS))

    async def set_if(self, client, key):
        await self.put(client, key, client.rng.choice(TTLS), client.rng.choice(('NX', 'NX', 'XX')))

    async def delete(self, client, key):
        await client.do(key, delete(key), ['DEL', key], result=lambda r: r[-1] == 1)

    async def expire(self, client, key):
        ttl = client.rng.choice(TTLS)
        await client.do(key, expire(key, ttl), ['PEXPIRE', key, ms(ttl)], result=lambda r: r[-1] == 1)


class Plain(Registers):
    """Registers without TTL. A read that finds a dead key waits for the region's clock, and all behind it; here reads are
    never in the way of each other."""
    name = 'plain'
    weights = {'read': 8, 'set': 6, 'delete': 1, 'append': 2}


def number(replies):
    return None if replies[-1] is None else int(replies[-1])


class Counters(Kind):
    """Half of them are rate limiters, which start again after their time."""
    name = 'counter'
    weights = {'read': 5, 'count': 9, 'append': 2}

    def limiter(self, key):
        return int(key[len(self.name):]) % 2 == 1

    def unique(self, group):
        return not self.limiter(group)

    async def read(self, client, key):
        await client.do(key, get(key), ['GET', key], result=number, writes=False)

    async def count(self, client, key):
        if self.limiter(key):
            await client.do(key, incr(key, 1.0), ['EVAL', LIMITER, 1, key, 1000])
        else:
            await client.do(key, incr(key), ['INCR', key])

    def final(self, group, at):
        return get(group), int(at[group]) if at.get(group) is not None else None


class Transactions(Kind):
    """Two keys of a slot, {group}a and {group}b, that are written and read together; and a's value is replaced only if it is
    what it was (WATCH)."""
    name = 'pair'
    weights = {'read': 4, 'write_both': 4, 'replace': 4, 'write_one': 1, 'append': 2}

    def keys(self, group):
        return [f'{{{group}}}a', f'{{{group}}}b']

    async def read(self, client, group):
        a, b = self.keys(group)
        if client.follower_reads:
            await client.do(group, together(get(a), get(b)), ['MGET', a, b], result=lambda r: tuple(r[-1]), writes=False)
        else:
            await self.transaction(client, group, together(get(a), get(b)), ['GET', a], ['GET', b], writes=False)

    async def transaction(self, client, group, run, *commands, before=(), writes=True):
        return await client.do(group, run, *before, ['MULTI'], *commands, ['EXEC'], writes=writes,
                               result=lambda r: ABORTED if r[-1] is None else tuple(True if x == 'OK' else x for x in r[-1]))

    async def write_both(self, client, group):
        value, ttl = client.unique(), client.rng.choice((None, None, *TTLS))
        a, b = self.keys(group)
        more = ['PX', ms(ttl)] if ttl else []
        await self.transaction(client, group, together(put(a, value, ttl), put(b, value, ttl)), ['SET', a, value, *more],
                               ['SET', b, value, *more])

    async def write_one(self, client, group):
        value, key = client.unique(), client.rng.choice(self.keys(group))
        await client.do(group, put(key, value), ['SET', key, value], result=lambda r: True)

    async def replace(self, client, group):
        """If it was given up it has not happened, and says nothing about the state: somebody may have written `a` and put it
        back. So that is left out of the history."""
        a, b = self.keys(group)
        await client.connected()
        conn = client.conn
        seen = await client.do(group, get(a), ['WATCH', a], ['GET', a], writes=False)
        if seen is UNKNOWN or client.conn is not conn:
            return
        value = client.unique()
        run = swap(a, seen, together(put(a, value), put(b, value)))
        got = await self.transaction(client, group, run, ['SET', a, value], ['SET', b, value])
        if got is ABORTED:
            history = client.load.history[group]
            history.remove(next(op for op in reversed(history) if op.run is run))


class Members(Registers):
    """The same, while members come and go (see faults.py)."""
    name = 'member'
    changes_members = True


KINDS = {'registers': Registers, 'counters': Counters, 'transactions': Transactions, 'members': Members,
         'plain': Plain}


def judge_logs(logs, lists):
    """What clients appended, {value: whether that is sure}, beside the lists that were read at last: all that was acknowledged
    is there, in order; nothing is there twice, nor what nobody wrote. What is not sure may have happened at any later moment."""
    for name, log in logs.items():
        there = lists.get(name) or []
        acknowledged = [value for value, sure in log.items() if sure]
        lost = set(acknowledged) - set(there)
        if lost:
            yield f'{name}: {len(lost)} acknowledged writes are lost: {sorted(lost)[:10]}'
        elif [value for value in there if log.get(value)] != acknowledged:
            yield f'{name}: acknowledged writes are out of order, or there twice'
        if len(set(there)) != len(there) or not set(there) <= set(log):
            yield f'{name}: holds something twice, or what was refused'


def judge(kind, history, skew):
    """What is wrong with a history, in words."""
    wrong = []
    for group, ops in history.items():
        verdict = kind.judge(group, ops, skew)
        if not verdict.ok:
            wrong.append(f'{group}: {verdict.why}')
    return wrong
