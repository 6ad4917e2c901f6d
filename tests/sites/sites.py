"""Sites of active-active replication: processes, and proxies between them that can be cut."""
import random
import time

import mayfly
from mayfly import eventually
from proxy import Proxy


def value_of(text):
    """What INFO says of something: a number, a dict of fields, or else a text. redis-py 6 makes lists of texts with commas."""
    fields = [field.partition('=') for field in text.split(',')]
    if all(equals for _, equals, _ in fields):
        return {name: value_of(value) for name, _, value in fields}
    return int(text) if text.isdecimal() else text


class Site(mayfly.Server):
    """A site. `r` is a client of it."""

    def __init__(self, gid, *args, **options):
        self.gid, self.r = gid, None
        super().__init__('--site-id', gid, *args, name=f'site{gid}', **options)

    def start(self, wait=True, stdin=None):
        super().start(wait, stdin)
        if self.r:
            self.r.close()
        self.r = self.client(decode_responses=True, encoding_errors='surrogateescape')

    def do(self, *words):
        return self.r.execute_command(*words)

    @property
    def facts(self):
        lines = (line.partition(':') for line in self.do('INFO sites').splitlines())
        return {name: value_of(value) for name, colon, value in lines if colon}

    @property
    def clock(self):
        """How many effects of each site it has."""
        return {int(gid): seq for gid, seq in (self.facts['site_clock'] or {}).items()}

    def is_member(self):
        return self.facts['site_state'] == 'member'

    def links_up(self):
        return self.facts['site_links_up']

    def remove(self):
        if self.r:
            self.r.close()
        super().remove()


class Group:
    """Sites 1 to n, each of which asks each other over a proxy: links[a, b] is that of a, which asks b."""

    def __init__(self, n, *args, start=None):
        self.sites, self.links, self.args = [], {}, args
        self.start_site = start or Site
        try:
            for _ in range(n):
                self.join()
            self.settle()
        except BaseException:
            self.close()
            raise

    def __getitem__(self, gid):
        return next(s for s in self.sites if s.gid == gid)

    def join(self, gid=None, wait=True):
        """A new site, with links to and from all others."""
        gid = gid or len(self.sites) + 1
        others = list(self.sites)
        peers = [a for s in others for a in ('--site-peer', s.gid, '127.0.0.1', self.link(gid, s))]
        new = self.start_site(gid, *peers, *self.args)
        self.sites.append(new)
        for s in others:
            s.do('PEEROF', gid, '127.0.0.1', self.link(s.gid, new))
        if wait:
            eventually(new.is_member)
        return new

    def restart(self, gid, how):
        """PEEROF is forgotten by a server without a configuration file."""
        self[gid].restart(how)
        self.connect(gid)

    def connect(self, gid):
        for (asks, serves), p in self.links.items():
            if asks == gid and serves > gid:
                self[gid].do('PEEROF', serves, '127.0.0.1', p.port)

    def link(self, asks, serves):
        self.links[asks, serves.gid] = Proxy(serves)
        return self.links[asks, serves.gid].port

    def cut(self, a, b):
        """Neither has any more of the other."""
        for key in (a, b), (b, a):
            self.links[key].cut()

    def restore(self):
        for p in self.links.values():
            p.restore()

    def settle(self):
        """All links are up, and all have everything."""
        eventually(lambda: all(s.links_up() == len(self.sites) - 1 for s in self.sites))
        self.agree()

    def agree(self):
        """Waits until all sites have the same effects; all have the same data then, with the same deadlines."""
        eventually(lambda: all(s.clock == self.sites[0].clock for s in self.sites))
        views = [view(s) for s in self.sites]
        now = int(time.time() * 1000)           # what has died while we looked is there for some of them
        views = [{k: (living(v, now), at) for k, (v, at) in each.items() if at == -1 or at > now} for each in views]
        views = [{k: v for k, v in each.items() if v[0] != {}} for each in views]
        for s, each in zip(self.sites[1:], views[1:]):
            differs = [(k, views[0].get(k), each.get(k)) for k in {*views[0], *each} if views[0].get(k) != each.get(k)]
            assert not differs, f'sites {self.sites[0].gid} and {s.gid}: {len(differs)} keys differ: {differs[:5]}'
        return views[0]

    def close(self):
        for p in self.links.values():
            p.close()
        for s in self.sites:
            s.remove()

    def check(self):
        for s in self.sites:
            if s.proc.poll() is None:
                assert s.stop() == 0, s.log
            s.check()


READ = {'string': ('GET',), 'hash': ('HGETALL',), 'set': ('SMEMBERS',), 'list': ('LRANGE', 0, -1),
        'zset': ('ZRANGE', 0, -1, 'WITHSCORES'), 'stream': ('XRANGE', '-', '+'), 'none': ('GET',)}


def living(value, now):
    """A hash without the fields that have died since it was read."""
    return {f: v for f, v in value.items() if v[1] == -1 or v[1] > now} if isinstance(value, dict) else value


def view(site):
    """What clients see of each key, with its deadline; of each field of a hash, too."""
    r = site.r
    keys = sorted(r.scan_iter(count=1000))
    kinds = piped(r, [('TYPE', k) for k in keys])
    values = piped(r, [(READ[kind][0], k, *READ[kind][1:]) for k, kind in zip(keys, kinds)])
    deadlines = piped(r, [('PEXPIRETIME', k) for k in keys])
    hashes = [i for i, kind in enumerate(kinds) if kind == 'hash' and values[i]]
    fields = piped(r, [('HPEXPIRETIME', keys[i], 'FIELDS', len(values[i]), *values[i]) for i in hashes])
    for i, each in zip(hashes, fields):
        values[i] = {f: (v, at) for (f, v), at in zip(values[i].items(), each or ())}
    return {k: (value, deadline) for k, value, deadline in zip(keys, values, deadlines)}


def piped(r, commands):
    replies = []
    for i in range(0, len(commands), 1000):
        with r.pipeline(transaction=False) as p:
            for words in commands[i:i + 1000]:
                p.execute_command(*words)
            replies += p.execute(raise_on_error=False)
    return replies


FORMS = """SET k v|SET k v PX 60000|SET k v KEEPTTL|APPEND k v|INCR n|INCRBY n 5|DEL k|DEL h|EXPIRE k 50|EXPIRE h 70|PERSIST k
HSET h f v|HSET h f v g w|HINCRBY h c 3|HDEL h f|HEXPIRE h 40 FIELDS 2 f c|HPEXPIRE h 300 FIELDS 1 g|HPERSIST h FIELDS 2 f c
HSETEX h EX 60 FIELDS 1 f v|HSETEX h KEEPTTL FIELDS 1 g v|SADD s f|SREM s f|SADD s f g|ZADD z 5 f|ZINCRBY z 2 f|ZREM z f
RPUSH l v|LPUSH l v|LPOP l|RPOP l|LSET l 0 v|LREM l 1 v|RENAME k k2|EXPIRE n 90|GETSET k v|SETRANGE k 2 xy
XADD x * f v|XADD x MAXLEN 3 * f v|XTRIM x MAXLEN 1|COPY k h|SETBIT k 9 1|PFADD p v""".replace(
    '\n', '|').split('|')


def traffic(rng, n):
    """Writes to a few keys of all types."""
    for _ in range(n):
        words = rng.choice(FORMS).split()
        words[1] += str(rng.randrange(4))
        if words[0] in ('RENAME', 'COPY'):
            words[2] += str(rng.randrange(4))
        yield [w if w != 'v' else f'v{rng.randrange(50)}' for w in words]


def write(site, rng, n):
    """Errors (no such key, an empty list) don't matter."""
    with site.r.pipeline(transaction=False) as p:
        for words in traffic(rng, n):
            p.execute_command(*words)
        p.execute(raise_on_error=False)


def rng_of(seed):
    return random.Random(seed)
