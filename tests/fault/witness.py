"""Commands with a random outcome: the test reads the result at once, and it must not change later."""
import random

import mayfly
from load import Link

DATABASE = 28
LONG = 5_000_000


class Witness:
    """Each command makes one key, new or one that was never looked at, followed by the question what became
    of it. Whatever was answered must be found again, whatever else happens."""

    def __init__(self, seed):
        self.rng = random.Random(f'{seed}/witness')
        self.serial, self.known, self.problem = 0, [], None

    def run(self, port, stop):
        try:
            with Link(port) as link:
                assert link.call('SELECT', DATABASE) == b'OK'
                while not stop.is_set():
                    self.some(link)
        except OSError:
            pass
        except Exception as e:  # pylint: disable=broad-except
            self.problem = e

    def some(self, link):
        pairs = [self.one() for _ in range(self.rng.choice((1, 3, 10)))]
        link.send(b''.join(mayfly.encode(*c) for made, asked in pairs for c in (*made, asked)))
        for made, asked in pairs:
            for _ in made:
                reply = link.reply()
                assert not isinstance(reply, mayfly.ReplyError), (made, reply)
            self.known.append((asked, link.reply()))

    def one(self):
        self.serial += 1
        key, r = f'w:{self.serial}', self.rng
        long = LONG + r.randrange(10**6)
        members = [f'm{i}' for i in range(r.choice((5, 300)))]
        when = ('PEXPIRETIME', key)
        return r.choice((
            ([('SET', key, 'v', 'PX', long)], when),
            ([('SET', key, 'v', 'EX', long // 1000)], when),
            ([('SETEX', key, long // 1000, 'v')], when),
            ([('RPUSH', key, *members), ('PEXPIRE', key, long)], when),
            ([('SET', key, 'v', 'PX', 1), ('GETEX', key, 'EX', long // 1000)], when),
            ([('SET', key, 'v'), ('GETEX', key, 'PX', long)], when),
            ([('HSET', key, 'f', 1, 'g', 2), ('HPEXPIRE', key, long, 'FIELDS', 1, 'f')],
             ('HPEXPIRETIME', key, 'FIELDS', 2, 'f', 'g')),
            ([('HSETEX', key, 'EX', long // 1000, 'FIELDS', 1, 'f', 'v')], ('HPEXPIRETIME', key, 'FIELDS', 1, 'f')),
            ([('SADD', key, *members), ('SPOP', key, len(members) // 2)], ('SMEMBERS', key)),
            ([('SADD', key, *members), ('SPOP', key)], ('SMEMBERS', key)),
            ([('SET', key, '0.1'), ('INCRBYFLOAT', key, r.random())], ('GET', key)),
            ([('HSET', key, 'f', '0.1'), ('HINCRBYFLOAT', key, 'f', r.random())], ('HGET', key, 'f')),
            ([('ZADD', key, 1, 'a'), ('ZINCRBY', key, r.random(), 'a')], ('ZSCORE', key, 'a')),
            ([('PFADD', key, *members)], ('GET', key)),
            ([('SETBIT', key, r.randrange(9999), 1)], ('GET', key)),
        ))

    def check(self, port):
        """Asserts that all answers are the same as before, and starts over. Returns how many."""
        with Link(port) as link:
            assert link.call('SELECT', DATABASE) == b'OK'
            for asked, was in self.known:
                found = link.call(*asked)
                if asked[0] == 'SMEMBERS':
                    found, was = sorted(found), sorted(was)
                assert found == was, (asked, was, found)
            n, self.known = len(self.known), []
            assert link.call('FLUSHDB') == b'OK'
        return n
