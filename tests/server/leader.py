"""MAYFLY_ENGINE=cluster: the tests of a lone server, on the leader of a cluster of three nodes. What the tests see is a
server like any other; the two followers are behind it, and have to end up with the same data."""
import time

import redis

from cluster_args import CLUSTER, port_with_bus
from mayfly import PATIENCE, Server, eventually


class Leader(Server):
    """The first node of a cluster, which leads it. The tests' arguments are its own, but for what all nodes have to have."""
    followers = ()

    def __init__(self, *args, port=None, wait=True, **options):
        self.password = args[args.index('--requirepass') + 1] if '--requirepass' in args else None
        super().__init__(*CLUSTER, '--cluster-init', 'yes', *args, port=port or port_with_bus(), wait=wait, **options)
        shared = args[args.index('--expiry-stream'):][:2] if '--expiry-stream' in args else ()
        join = [*CLUSTER, '--cluster-join', f'127.0.0.1:{self.port}', '--enable-debug-command', 'yes', *shared]
        self.followers = [Server(*join, port=port_with_bus(), wait=False, name='follower') for _ in range(2)] if wait else ()
        eventually(self.settled, 90, 0.05)

    def settled(self):
        """Whether all three vote."""
        regions = [f.region() for f in map(Member, self.followers)]
        return all(r.get('voters') == 3 and not r['joint'] for r in regions)

    def start(self, wait=True, stdin=None):
        super().start(wait, stdin)
        if self.followers:
            eventually(self.leads_again, 90, 0.1)

    def leads_again(self):
        """After a restart others lead: it takes the leadership back."""
        me = Member(self)
        try:
            if me.region().get('role') == 'leader':
                return me.region('meta').get('role') == 'leader' # it follows
            me.call('CLUSTER', 'FAILOVER')
        except redis.ResponseError as e:
            assert 'to a replica' in str(e) or 'Master is down' in str(e), e
        return False

    def agrees(self):
        """Followers apply an entry when they hear that it is committed. Where keys die so often that no two nodes can be
        looked at between two deaths, they are made to stay first: the test is over."""
        if not self.followers or self.equal_within(3):
            return
        Member(self).call('EVAL', "for _, k in ipairs(redis.call('KEYS', '*')) do redis.call('PERSIST', k) end", 0)
        assert self.equal_within(PATIENCE), f'the nodes differ: {list(self.digests())}'

    def equal_within(self, seconds):
        end = time.monotonic() + seconds
        while len(set(self.digests())) > 1:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def digests(self):
        """Of the leader only if it can be asked."""
        for member in map(Member, (self, *self.followers)):
            try:
                yield member.call('DEBUG', 'DIGEST')
            except (redis.ResponseError, redis.AuthenticationError):
                assert member.server is self

    def remove(self):
        for s in (*self.followers, super()):
            s.remove()

    def check(self):
        for s in (*self.followers, super()):
            s.check()


class Member:
    """Questions to one of the nodes."""

    def __init__(self, server):
        self.server = server

    def call(self, *command):
        with self.server.client(password=getattr(self.server, 'password', None), decode_responses=True) as c:
            return c.execute_command(*command)

    def region(self, name='region1'):
        """What INFO says of region 1, or of region 0 ('meta'); {}: nothing yet."""
        try:
            return self.call('INFO', 'cluster').get(name, {})
        except redis.ConnectionError:
            return {}
