#!/usr/bin/python3
"""Tests of the oracle itself: rules must refuse what is wrong, and a server
that differs on purpose must be caught and its case shortened."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import compare as c                                     # noqa: E402
from op import Op                                       # noqa: E402
from pair import Pair                                   # noqa: E402
from servers import Server                              # noqa: E402
from resp import decode, skip, split                    # noqa: E402

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'run.py')


def bulk(*items):
    return ('*', tuple(('$', i) for i in items))


def group(*earlier):
    return c.Ctx(earlier, earlier)


class Resp(unittest.TestCase):
    def test_split(self):
        parts = [b'+OK\r\n', b'*2\r\n$1\r\na\r\n*1\r\n:5\r\n', b'$-1\r\n', b'*-1\r\n', b'_\r\n',
                 b'%1\r\n+k\r\n,1.5\r\n', b'$4\r\n\r\n\r\n\r\n', b'~0\r\n', b'#t\r\n']
        self.assertEqual(split(b''.join(parts)), parts)
        self.assertEqual(skip(parts[1], 0), len(parts[1]))

    def test_decode(self):
        self.assertEqual(decode(b'*2\r\n$1\r\na\r\n*1\r\n:5\r\n'), ('*', (('$', b'a'), ('*', ((':', 5),)))))


class Rules(unittest.TestCase):
    def test_unordered(self):
        self.assertTrue(c.unordered(None, bulk(b'a', b'b'), bulk(b'b', b'a')))
        self.assertFalse(c.unordered(None, bulk(b'a', b'a'), bulk(b'b', b'a')))
        self.assertFalse(c.unordered(None, bulk(b'a'), ('~', (('$', b'a'),))))
        self.assertFalse(c.unordered(None, ('-', b'ERR x'), ('-', b'ERR y')))

    def test_pairs(self):
        self.assertTrue(c.unordered_pairs(None, bulk(b'f', b'1', b'g', b'2'), bulk(b'g', b'2', b'f', b'1')))
        self.assertFalse(c.unordered_pairs(None, bulk(b'f', b'1', b'g', b'2'), bulk(b'f', b'2', b'g', b'1')))

    def test_packed(self):
        a, b = bulk(b'a', b'b'), bulk(b'b', b'a')
        self.assertFalse(c.packed_order(group(('$', b'intset')), a, b))
        self.assertTrue(c.packed_order(group(('$', b'hashtable')), a, b))

    def test_random(self):
        ctx = group(bulk(b'a', b'b', b'c'))
        self.assertTrue(c.random_pick()(ctx, ('$', b'a'), ('$', b'b')))
        self.assertFalse(c.random_pick()(ctx, ('$', b'x'), ('$', b'b')))
        self.assertFalse(c.random_pick()(ctx, bulk(b'a', b'a'), bulk(b'a', b'b')))
        self.assertTrue(c.random_pick(distinct=False)(ctx, bulk(b'a', b'a'), bulk(b'a', b'b')))
        self.assertFalse(c.random_pick()(ctx, bulk(b'a'), bulk(b'a', b'b')))
        self.assertFalse(c.random_pick()(ctx, ('$', None), ('$', b'b')))

    def test_deadlines(self):
        self.assertTrue(c.near_ms(None, (':', 1000), (':', 1400)))
        self.assertFalse(c.near_ms(None, (':', -1), (':', 5)))
        self.assertFalse(c.near_ms(None, (':', 1000), (':', 900000)))
        far = c.FAR_MS + 5
        self.assertFalse(c.deadline_ms(None, (':', far), (':', far + 1)))

    def test_one_zero(self):
        self.assertEqual(c.one_zero([b'zrange'], ('*', (('$', b'm'), ('$', b'-0')))), bulk(b'm', b'0'))
        self.assertEqual(c.one_zero([b'ZSCORE'], (',', b'-0')), (',', b'0'))
        self.assertEqual(c.one_zero([b'GET'], ('$', b'-0')), ('$', b'-0'))
        scan = [('*', (('$', b'07'), bulk(b'm', score))) for score in (b'1e+17', b'100000000000000000')]
        self.assertEqual(*(c.one_zero([b'ZSCAN'], r) for r in scan))
        self.assertEqual(c.one_zero([b'ZSCAN'], scan[0])[1][0], ('$', b'07'))

    def test_fresh_encoding(self):
        self.assertTrue(c.fresh_encoding([b'OBJECT'], ('$', b'listpack'), ('$', b'hashtable')))
        self.assertFalse(c.fresh_encoding([b'OBJECT'], ('$', b'hashtable'), ('$', b'listpack')))
        self.assertFalse(c.fresh_encoding([b'GET'], ('$', b'int'), ('$', b'raw')))

    def test_later_dbsize(self):
        self.assertTrue(c.later_dbsize([b'dbsize'], (':', 7), (':', 6)))
        self.assertFalse(c.later_dbsize([b'dbsize'], (':', 6), (':', 7)))
        self.assertFalse(c.later_dbsize([b'LLEN'], (':', 7), (':', 6)))

    def test_exec(self):
        rule = c.exec_rule([([b"GET"], None), ([b"KEYS"], c.unordered)])
        same = ('*', (('+', b'OK'), bulk(b'a', b'b')))
        self.assertTrue(rule(c.Ctx(), same, ('*', (('+', b'OK'), bulk(b'b', b'a')))))
        self.assertFalse(rule(c.Ctx(), same, ('*', (('+', b'KO'), bulk(b'b', b'a')))))


class Catches(unittest.TestCase):
    """The same Redis twice, one configured differently."""

    def run_oracle(self, *args):
        return subprocess.run([sys.executable, RUN, '--server', 'redis-server', '--families', 'hash,set,zset,key,expire',
                               '--shrink-seconds', '10', *args], capture_output=True, text=True)

    def test_same(self):
        out = self.run_oracle('--commands', '20000')
        self.assertEqual(out.returncode, 0, out.stdout)
        self.assertRegex(out.stdout.splitlines()[-1], r'^\d+ passed, 0 failed$')

    def test_encoding(self):
        out = self.run_oracle('--commands', '200000', '--server-args', '--set-max-intset-entries 511')
        self.assertEqual(out.returncode, 1)
        self.assertRegex(out.stdout.splitlines()[-1], r'^\d+ passed, 1 failed$')
        short = out.stdout.split('shortest sequence found')[1]
        self.assertIn('SADD', short.upper())
        self.assertLess(len(short.splitlines()), 12)

    def test_missing_command(self):
        out = self.run_oracle('--commands', '200000', '--server-args', '--rename-command PERSIST PERSISTX')
        self.assertEqual(out.returncode, 1)
        self.assertIn('PERSIST', out.stdout)
        out = self.run_oracle('--commands', '30000', '--skip-unknown', '--server-args', '--rename-command PERSIST PERSISTX')
        self.assertEqual(out.returncode, 0, out.stdout)

    def test_crash(self):
        """A server that dies is a difference, and is started again."""
        a, b = Server('a', '/usr/bin/redis-server'), Server('b', '/usr/bin/redis-server')
        pair = Pair(a, b)
        pair.fresh(2)
        a.stop()
        diff = pair.run([Op([b'PING'])])
        self.assertEqual(diff.kind, 'connection lost')
        self.assertIn(b'EXITED', diff.a)
        pair.fresh(2)
        self.assertIsNone(pair.run([Op([b'PING'])]))
        pair.disconnect()
        a.remove()
        b.remove()


if __name__ == '__main__':
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    print('%d passed, %d failed' % (result.testsRun - bad, bad))
    sys.exit(1 if bad else 0)
