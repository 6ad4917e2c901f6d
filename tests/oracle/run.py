#!/usr/bin/python3
"""Differential oracle: the same random commands to two servers, same replies.

    run.py --server build/mayfly-server --seed 1 --commands 2000000 --resp both

Work is cut into epochs that start from empty servers with a seed of their own;
`--seed S --epoch E` runs just one again.
"""
import argparse
import os
import shutil
import signal
import sys
import time
from collections import Counter, deque

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import dataset                                                          # noqa: E402
import versions                                                         # noqa: E402
import shortttl                                                         # noqa: E402
import gen_geo, gen_hash, gen_key, gen_list, gen_raw, gen_server, gen_set, gen_string, gen_zset   # noqa: E402,E401,F401
import gen_dump, gen_script, gen_stream                                             # noqa: E402,E401,F401
from gen import FAMILIES, Gen                                           # noqa: E402
from op import cli_line                                                 # noqa: E402
from pair import Pair, op_lines                                         # noqa: E402
from resp import ConnectionLost                                         # noqa: E402
from servers import Leader, Server                                      # noqa: E402
from shrink import Shrinker, keys_of                                    # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPTH = 2               # batches sent ahead of the one being compared
SHORT_TTL_EVERY = 8     # one epoch in so many uses short deadlines
COMPANIONS = ('key', 'expire', 'multi', 'scan', 'blocking', 'server', 'protocol')


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--server', default=os.path.join(ROOT, 'build', 'mayfly-server'), help='server under test')
    p.add_argument('--other', default=os.environ.get('ORACLE_REDIS', 'redis-server'),
                   help='reference server (default: $ORACLE_REDIS, or redis-server)')
    p.add_argument('--server-args', default='', help='more arguments for the server under test')
    p.add_argument('--other-args', default='', help='more arguments for the reference')
    p.add_argument('--engine', default='memory', help='storage engine of the server under test: memory, rocksdb; '
                   'or cluster, which is the leader of three nodes')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--commands', type=int, default=0, help='stop after so many commands (default 100000)')
    p.add_argument('--minutes', type=float, default=0, help='stop after so many minutes')
    p.add_argument('--epoch', type=int, default=None, help='run this epoch only')
    p.add_argument('--epoch-size', type=int, default=20000, help='commands per epoch')
    p.add_argument('--check-every', type=int, default=10000, help='compare the dataset every N commands')
    p.add_argument('--batch', type=int, default=200, help='commands per round trip')
    p.add_argument('--resp', choices=('2', '3', 'both'), default='both')
    p.add_argument('--families', default='all', help='comma-separated, "-x" leaves one out: ' + ','.join(sorted(FAMILIES)))
    p.add_argument('--no-swarm', action='store_true', help='always use all families together')
    p.add_argument('--no-short-ttl', action='store_true')
    p.add_argument('--only-short-ttl', action='store_true')
    p.add_argument('--keep-going', action='store_true', help='go on with the next epoch after a difference')
    p.add_argument('--skip-unknown', action='store_true', help="leave out commands the server doesn't know")
    p.add_argument('--skip', default='', help='comma-separated command names to leave out')
    p.add_argument('--loose-order', action='store_true', help='ignore the order of packed hashes and intsets')
    p.add_argument('--no-hll-bytes', action='store_true', help="ignore HyperLogLogs' stored bytes")
    p.add_argument('--shrink-seconds', type=float, default=30)
    p.add_argument('--timeout', type=float, default=30, help='seconds until a missing reply is a difference')
    p.add_argument('--reload', action='store_true', help='after each epoch the server under test has to load what it '
                   'saved, and its AOF, without a change')
    p.add_argument('--stats', action='store_true', help='replies per command: errors, nils (slower)')
    args = p.parse_args()
    if not args.commands and not args.minutes:
        args.commands = 100000
    for name in ('server', 'other'):
        path = shutil.which(getattr(args, name))
        if not path:
            p.error('no such server: ' + getattr(args, name))
        setattr(args, name, path)
    args.families = chosen_families(p, args.families)
    args.on_disk = args.engine != 'memory'
    if args.on_disk:                    # sorted by name on disk, whatever their size
        args.loose_order = True
    return args


def chosen_families(parser, text):
    names = [n for n in text.split(',') if n]
    wanted = [n for n in names if not n.startswith('-') and n != 'all'] or sorted(FAMILIES)
    wanted = [n for n in wanted if '-' + n not in names]
    unknown = [n for n in wanted if n not in FAMILIES]
    if unknown or not wanted:
        parser.error('families: ' + ','.join(sorted(FAMILIES)))
    return wanted


class Stats:
    """How each command was answered, to see whether the generators bite."""

    def __init__(self):
        self.seen, self.errors, self.nils, self.messages = Counter(), Counter(), Counter(), {}

    def add(self, argv, reply):
        name = argv[0].upper()
        self.seen[name] += 1
        if reply[:1] == b'-':
            self.errors[name] += 1
            self.messages.setdefault(name, Counter())[reply[:60]] += 1
        elif reply[:3] in (b'$-1', b'*-1', b'*0\r', b'_\r\n', b':0\r'):
            self.nils[name] += 1

    def show(self):
        for name, n in sorted(self.seen.items()):
            top = self.messages.get(name, Counter()).most_common(1)
            print('%-22s %8d  errors %5.1f%%  nil/0 %5.1f%%  %s' % (
                name.decode('latin-1')[:22], n, 100 * self.errors[name] / n, 100 * self.nils[name] / n, top[0] if top else ''))


class Oracle:
    def __init__(self, args):
        self.args = args
        extra = args.server_args.split()
        self.in_cluster = args.engine == 'cluster'
        one = ['--databases', '1'] if self.in_cluster else []
        if args.engine == 'rocksdb':
            extra += ['--engine', args.engine]
        aof = ['--appendonly', 'yes', '--appendfsync', 'no'] if args.reload and args.engine == 'memory' else []
        self.stats = Stats() if args.stats else None
        # Redis ends timed-out blocking commands on its timer: 100 ms each at hz 10.
        self.other = Server('other', args.other, ['--hz', '100'] + args.other_args.split() + aof + one)
        conn = self.other.connect()
        self.kind = versions.kind_of(conn)
        conn.close()
        self.server = (Leader if self.in_cluster else Server)('server', args.server, extra + aof + one)
        self.pair = self.new_pair(self.stats)
        self.checker = self.new_pair(None)      # so that dataset checks leave SELECT, MULTI … alone
        self.passed = self.failed = self.dataset_commands = 0
        self.started = time.time()
        self.signatures = Counter()
        self.skipped = {n.upper().encode() for n in args.skip.split(',') if n}
        if self.in_cluster:
            self.skipped |= {b'ASKING', b'READONLY', b'READWRITE', b'CLUSTER', b'MOVE', b'SWAPDB'}

    def new_pair(self, stats):
        a = self.args
        pair = Pair(self.server, self.other, a.loose_order, a.no_hll_bytes, a.timeout, stats,
                    on_disk=a.on_disk)
        pair.kind = self.kind
        pair.databases = 1 if self.in_cluster else dataset.DATABASES
        return pair

    # --- what to run -----------------------------------------------------------
    def plan(self, epoch):
        """(generator, RESP version, short deadlines?) of an epoch."""
        a = self.args
        g = Gen('%d/%d' % (a.seed, epoch), a.families)
        # A few families alone get deeper than all of them together.
        if not a.no_swarm and g.p(0.4) and len(a.families) > 3:
            data = [f for f in a.families if f not in COMPANIONS] or a.families
            some = g.rng.sample(data, min(len(data), 1 + g.n(3)))
            some += [f for f in a.families if f in COMPANIONS and g.p(0.5)]
            g = Gen('%d/%d/s' % (a.seed, epoch), some)
        g.resp = {'2': 2, '3': 3}.get(a.resp, 2 + epoch % 2)
        short = a.only_short_ttl or (not a.no_short_ttl and epoch % SHORT_TTL_EVERY == SHORT_TTL_EVERY - 1)
        return g, g.resp, short

    def operations(self, g, short):
        if short:
            return shortttl.rounds(g, 15)
        return iter(g.next, None)

    def wanted(self, op):
        if not self.skipped:
            return True
        if self.in_cluster and any(b'SELECT' in argv[1:] for argv, _ in op.cmds):
            return False        # by a script, which returns the error's text
        argvs = [argv for argv, _ in op.cmds] or [getattr(op.special, 'head', [b''])]
        return not any(name.upper() in self.skipped for argv in argvs for name in self.names_in(argv))

    @staticmethod
    def names_in(argv):
        """The commands an argv speaks of: itself, a subcommand, what COMMAND GETKEYS asks about."""
        names = [argv[0], b' '.join(argv[:2])]
        return names + [argv[2], b' '.join(argv[2:4])] if names[0].upper() == b'COMMAND' and argv[2:] else names

    def time_is_up(self):
        a = self.args
        return ((a.commands and self.passed >= a.commands) or
                (a.minutes and time.time() - self.started > a.minutes * 60))

    # --- running ---------------------------------------------------------------
    def run(self):
        if self.args.skip_unknown:
            self.find_unknown()
        epoch = self.args.epoch or 0
        while not self.time_is_up():
            if not self.run_epoch(epoch) and not self.args.keep_going:
                break
            if self.args.epoch is not None:
                break
            epoch += 1

    def run_epoch(self, epoch):
        g, self.resp, self.short = self.plan(epoch)
        self.epoch, self.history = epoch, []
        self.pair.fresh(self.resp)
        self.checker.connect(self.resp)
        diff = self.stream(self.operations(g, self.short)) or self.check_dataset()
        if diff:
            self.report(diff)
        return not diff and self.reload_agrees() and self.members_agree()

    def members_agree(self):
        """The nodes of a cluster have the same data. A follower is told a moment later; and keys may die meanwhile."""
        deadline = time.time() + self.args.timeout
        while self.in_cluster and len(set(self.server.digests())) > 1:
            if time.time() > deadline:
                self.failed += 1
                print('epoch %d: the nodes differ: %r' % (self.epoch, self.server.digests()))
                return False
            time.sleep(0.05)
        return True

    def reload_agrees(self):
        if not self.args.reload or self.short:
            return True
        conn = self.server.connect(self.args.timeout)
        try:
            for how in (b'RELOAD', b'LOADAOF') if self.args.engine == 'memory' else (b'RELOAD',):
                before, reply, after = dataset.digest(conn), conn.call(b'DEBUG', how), dataset.digest(conn)
                if reply == ('+', b'OK') and before == after:
                    continue
                self.failed += 1
                print('epoch %d: DEBUG %s answered %r, and changed %r'
                      % (self.epoch, how.decode(), reply, sorted(set(before.items()) ^ set(after.items()))[:10]))
                return False
        finally:
            conn.close()
        return True

    def batches(self, ops):
        """Lists of operations; one with a special operation stands alone."""
        batch, size, total = [], 0, 0
        for op in ops:
            op = versions.adapted(op, self.kind)
            if not op or not self.wanted(op):
                continue
            if op.special:
                if batch:
                    yield batch
                yield [op]
                batch, size = [], 0
                continue
            batch.append(op)
            size += len(op.cmds)
            if size >= self.args.batch:
                total += size
                yield batch
                batch, size = [], 0
                if total >= self.args.epoch_size:
                    return
        if batch:
            yield batch

    def stream(self, ops):
        """Runs until the epoch ends or a difference shows. DEPTH batches are
        under way, so that neither the generator nor the servers wait."""
        under_way, since_check = deque(), 0
        for batch in self.batches(ops):
            if self.time_is_up():
                break
            if batch[0].special:
                diff = self.drain(under_way) or self.record(batch, self.pair.run_batch(batch))
            else:
                diff = self.pair.guard(batch, self.pair.begin)
                under_way.append(batch)
                if diff:        # an earlier batch broke the connection: find it
                    diff = self.drain(under_way) or diff
                elif len(under_way) > DEPTH:
                    diff = self.finish(under_way)
            if diff:
                return diff
            since_check += sum(len(op.cmds) for op in batch)
            if since_check >= self.args.check_every:
                since_check = 0
                diff = self.drain(under_way) or self.check_dataset()
                if diff:
                    return diff
        return self.drain(under_way)

    def finish(self, under_way):
        batch = under_way.popleft()
        return self.record(batch, self.pair.guard(batch, self.pair.finish))

    def drain(self, under_way):
        while under_way:
            diff = self.finish(under_way)
            if diff:
                return diff
        return None

    def record(self, batch, diff):
        """Adds a finished batch, up to its difference, to the history."""
        self.history += batch[:diff.index + 1] if diff else batch
        if not diff:
            self.passed += sum(len(op.cmds) for op in batch) or 1
        return diff

    def check_dataset(self):
        try:
            count, diff, op = dataset.check(self.checker, not self.short)
        except ConnectionLost as e:
            return self.checker.guard([None], lambda _: (_ for _ in ()).throw(e))
        self.dataset_commands += count
        if diff:
            self.history.append(op)
        return diff

    # --- reporting -------------------------------------------------------------
    def report(self, diff):
        self.failed += 1
        signature = diff.signature()
        self.signatures[signature] += 1
        if self.signatures[signature] > 1:      # one report each; the rest is counted
            return
        index = sum(len(op.cmds) or 1 for op in self.history)
        print('\nDIFFERENCE (%s): seed %d, epoch %d, RESP%d, command %d of the epoch%s'
              % (diff.kind, self.args.seed, self.epoch, self.resp, index, ', short deadlines' if self.short else ''))
        self.show(diff)
        keys = keys_of(self.history[-1]) if self.history else set()
        recent = [op for op in self.history[:-1] if keys & keys_of(op)][-20:]
        print('last operations on %s:' % ', '.join(sorted(map(repr, keys))))
        for op in recent:
            for line in op_lines(op):
                print('    ' + line[:200])
        self.show_shrunk(signature)
        sys.stdout.flush()

    @staticmethod
    def show(diff):
        print('  command: ' + cli_line(diff.argv)[:2000])
        same = len(os.path.commonprefix([diff.a, diff.b]))
        # Of long replies show where they part.
        start = 0 if max(len(diff.a), len(diff.b)) < 600 else max(0, same - 100)
        where = '' if start == 0 else ' (from byte %d on, first difference at %d)' % (start, same)
        print('  server:  %r%s' % (diff.a[start:start + 600], where))
        print('  other:   %r' % diff.b[start:start + 600])

    def show_shrunk(self, signature):
        shrinker = Shrinker(self.pair, self.resp, signature, self.args.shrink_seconds)
        ops = shrinker.shrink(self.history)
        if ops is None:
            print('did not fail again when replayed (timing, or state from before this epoch)')
            return
        print('shortest sequence found (redis-cli lines, empty servers%s):' % (', after HELLO 3' if self.resp == 3 else ''))
        for op in ops:
            for line in op_lines(op):
                print('    ' + line[:4000])
        self.show(shrinker.last)

    def find_unknown(self):
        """Leaves out the commands of the reference that the server has no COMMAND INFO for."""
        ours, theirs = self.server.connect(5), self.other.connect(5)
        names = sorted(name for _, name in theirs.call('COMMAND', 'LIST')[1])
        facts = ours.call('COMMAND', 'INFO', *names)[1]
        ours.close()
        theirs.close()
        unknown = [name.upper().replace(b'|', b' ') for name, fact in zip(names, facts) if not fact[1]]
        if unknown:
            print('left out, unknown to the server: ' + ', '.join(n.decode() for n in unknown))
        self.skipped.update(unknown)

    def summary(self):
        seconds = time.time() - self.started
        if self.stats:
            self.stats.show()
        if self.signatures:
            print('differences by command: ' + ', '.join('%s %d' % i for i in self.signatures.most_common()))
        print('seed %d: %d commands and %d dataset reads in %.1f s (%.0f/s)'
              % (self.args.seed, self.passed, self.dataset_commands, seconds,
                 (self.passed + self.dataset_commands) / seconds))
        print('%d passed, %d failed' % (self.passed + self.dataset_commands, self.failed))


def main():
    # So that "timeout" and CI leave neither servers nor directories behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    oracle = Oracle(arguments())
    try:
        oracle.run()
    except KeyboardInterrupt:
        print('interrupted')
    oracle.summary()
    return 1 if oracle.failed else 0


if __name__ == '__main__':
    sys.exit(main())
