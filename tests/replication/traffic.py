"""Random commands of the oracle's generators (seeded), with deadlines from 1 ms to a day in between."""
import threading
import time

# pylint: disable-next=unused-import,multiple-imports
import gen_geo, gen_hash, gen_key, gen_list, gen_set, gen_string, gen_zset, gen_server, gen_stream   # noqa: F401,E401
from gen import DELETABLE, GENERAL, Gen
from mayfly import Raw, encode

FAMILIES = ['string', 'bitmap', 'hll', 'hash', 'list', 'set', 'zset', 'zlex', 'geo', 'key', 'expire', 'sort',
            'stream']
DEADLINES = [1, 2, 5, 20, 100, 100, 500, 1000, 3000, 60_000, 3_600_000, 86_400_000]
LONG = [60_000, 3_600_000, 86_400_000]
BATCH = 40


class Traffic(threading.Thread):
    """some(n) sends so many commands; in a `with` block it runs in the background until either ends."""

    def __init__(self, node, seed, pause=0.002, fields=False, deadlines=DEADLINES, flush=True):
        super().__init__(daemon=True)
        self.node, self.pause, self.fields, self.deadlines = node, pause, fields, deadlines
        self.flush = flush
        self.gen = Gen(str(seed), FAMILIES + (['multi'] if node.kind == 'redis' else []))
        self.over, self.problem, self.sent = threading.Event(), None, 0

    def commands(self):
        """The next few, that belong together."""
        g, r = self.gen, self.gen.random()
        if r < 0.08:
            return [[b'PEXPIRE', g.pick(DELETABLE), b'%d' % g.pick(self.deadlines)]]
        if r < 0.12:
            return [[b'SET', g.pick(GENERAL['s']), g.val(), b'PX', b'%d' % g.pick(self.deadlines)]]
        if r < 0.16 and self.fields:
            return [[b'HPEXPIRE', g.pick(GENERAL['h']), b'%d' % g.pick(self.deadlines), b'FIELDS', b'1', g.member()]]
        op = g.next()
        return [] if op.special else [argv for argv, _ in op.cmds if self.wanted(argv)]

    def wanted(self, argv):
        name = argv[0].upper()
        if name == b'BITFIELD' and self.node.kind == 'redis':   # what fails may grow the string, unknown to replicas
            return not any(a.upper() == b'FAIL' for a in argv)
        words = [a.upper() for a in argv]
        if name == b'XREADGROUP' and self.node.kind == 'redis' and b'STREAMS' in words:
            keys = argv[words.index(b'STREAMS') + 1:]       # reading again what is pending counts, unknown to replicas
            return all(i == b'>' for i in keys[len(keys) // 2:])
        return self.flush or not name.startswith(b'FLUSH')

    def some(self, n=BATCH, c=None):
        if c is None:
            with Raw(self.node.port, 60) as c:          # pylint: disable=redefined-argument-from-local
                return self.some(n, c)
        batch = []
        while len(batch) < n:
            batch += self.commands()
        for i in range(0, len(batch), BATCH):
            part = batch[i:i + BATCH]
            c.send(b''.join(encode(*argv) for argv in part))
            for _ in part:
                c.reply()
        self.sent += n
        return self

    def run(self):
        try:
            with Raw(self.node.port, 60) as c:
                while not self.over.is_set():
                    self.some(c=c)
                    time.sleep(self.pause)
        except Exception as e:  # pylint: disable=broad-except
            self.problem = e

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        self.join()
        if not kind and self.problem and self.node.proc.poll() is None:
            raise self.problem
