"""ACL: users, their rules and what they may do; AUTH, the ACL file, CONFIG REWRITE, ACL LOG. The random part
compares with redis-server: the same rules, the same user, the same permissions."""
import hashlib
import os
import random
import re
import time

import pytest

import mayfly
import redis_server

WRONGPASS = 'WRONGPASS invalid username-password pair or user is disabled.'
NOAUTH = 'NOAUTH Authentication required.'
NO_KEY = 'NOPERM No permissions to access a key'
NO_CHANNEL = 'NOPERM No permissions to access a channel'


def no_command(name, user='u'):
    return f"NOPERM User {user} has no permissions to run the '{name}' command"


def digest(password):
    return hashlib.sha256(password.encode()).hexdigest()


@pytest.fixture
def acl(server, raw):
    """A connection to the shared server, which has no users but the default one before and after."""
    c = raw(server.port)
    assert c.call('ACL', 'LOG', 'RESET') == b'OK'      # of what other tests were denied
    yield c
    for user in c.call('ACL', 'USERS'):
        if user != b'default':
            c.call('ACL', 'DELUSER', user)
    assert c.call('ACL', 'SETUSER', 'default', 'reset', 'on', 'nopass', '~*', '&*', '+@all') == b'OK'
    assert c.call('ACL', 'LOG', 'RESET') == b'OK'


def logged_in(server, raw, user, password='pw'):
    c = raw(server.port)
    assert c.call('AUTH', user, password) == b'OK'
    return c


def line_of(c, user):
    """Of ACL LIST, without what 7.2 and later say of nearly every user."""
    line = next(x for x in c.call('ACL', 'LIST') if x.split()[1] == user.encode()).decode()
    return line.replace(' sanitize-payload ', ' ')


# -- rules and their canonical form: exact texts of Redis 7.0.15 ------------------------------------------

LINES = [
    ('', 'off resetchannels -@all'),
    ('reset', 'off sanitize-payload resetchannels -@all'),
    ('on nopass skip-sanitize-payload allkeys allchannels allcommands', 'on nopass skip-sanitize-payload ~* &* +@all'),
    ('+get -get +@read', 'off resetchannels -@all +@read'),
    ('+@all -get', 'off resetchannels +@all -get'),
    ('+@all -get +GET', 'off resetchannels +@all'),
    ('+config|get +config -config|set', 'off resetchannels -@all +config -config|set'),
    ('+client|LIST', 'off resetchannels -@all +client|list'),
    ('+client|id -client', 'off resetchannels -@all'),
    ('+select|FOO +select|foo +select|0', 'off resetchannels -@all +select|FOO +select|0'),
    ('+select|0 +select', 'off resetchannels -@all +select'),
    ('+select|0 +@all', 'off resetchannels +@all'),
    ('~a %R~b %W~c %rw~d %R~c ~a &x &y &x', 'off ~a %R~b ~c ~d resetchannels &x &y -@all'),
    ('%R', 'off %R~ resetchannels -@all'),
    ('~x allkeys resetkeys ~y &c allchannels resetchannels', 'off ~y resetchannels -@all'),
    ('(+get ~x) () (-@all) (~* &* +@all)', 'off resetchannels -@all (~x resetchannels -@all +get) '
     '(resetchannels -@all) (resetchannels -@all) (~* &* +@all)'),
    ('(+get ~a) clearselectors', 'off resetchannels -@all'),
    ('on >pw', f'on #{digest("pw")} resetchannels -@all'),
    (f'>a >b >a <a #{digest("c")}', f'off #{digest("b")} #{digest("c")} resetchannels -@all'),
    (f'>a nopass resetpass >b !{digest("b")}', 'off resetchannels -@all'),
    ('nopass >x', f'off #{digest("x")} resetchannels -@all'),
]


@pytest.mark.any_engine
@pytest.mark.parametrize('rules, line', LINES, ids=lambda x: x if '#' not in x else 'passwords')
def test_lines(acl, rules, line):
    assert acl.call('ACL', 'SETUSER', 'u', *rules.split()) == b'OK'
    assert line_of(acl, 'u') == f'user u {line}'.replace(' sanitize-payload ', ' ')


ERRORS = [
    ('%~foo', 'Syntax error'), ('%RR~x', 'Syntax error'), ('%', 'Syntax error'), ('foo', 'Syntax error'),
    ('~a b', 'Syntax error'), ('&a\tb', 'Syntax error'), (')', 'Syntax error'), ('(on)', 'Syntax error'),
    ('|', 'Syntax error'), ('+config|', 'Syntax error'), ('+get|', 'Syntax error'),
    ('+', 'Unknown command or category name in ACL'), ('-', 'Unknown command or category name in ACL'),
    ('+@', 'Unknown command or category name in ACL'), ('-@foo', 'Unknown command or category name in ACL'),
    ('+config|foo', 'Unknown command or category name in ACL'), ('+|get', 'Unknown command or category name in ACL'),
    ('-select|0', 'Unknown command or category name in ACL'), ('(+nope)', 'Unknown command or category name in ACL'),
    ('+config|get|x', 'Allowing first-arg of a subcommand is not supported'),
    ('<nope', 'The password you are trying to remove from the user does not exist'),
    ('#abc', 'The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters'),
    ('!' + 'A' * 64, 'The password hash must be exactly 64 characters and contain only lowercase hexadecimal '
     'characters'),
]


@pytest.mark.any_engine
def test_errors(acl):
    """An error changes nothing, whatever came before it."""
    assert acl.call('ACL', 'SETUSER', 'u', 'on', '+get') == b'OK'
    before = line_of(acl, 'u')
    for rule, why in ERRORS:
        assert acl.call('ACL', 'SETUSER', 'u', 'off', '+set', rule) == \
            f"ERR Error in ACL SETUSER modifier '{rule}': {why}"
    after = "Adding a pattern after the * pattern (or the 'all{0}' flag) is not valid and does not have any effect. " \
            "Try 'reset{0}' to start with an empty list of {1}"
    assert acl.call('ACL', 'SETUSER', 'u', '~*', '~x') == \
        "ERR Error in ACL SETUSER modifier '~x': " + after.format('keys', 'patterns')
    assert acl.call('ACL', 'SETUSER', 'u', '&*', '&x') == \
        "ERR Error in ACL SETUSER modifier '&x': " + after.format('channels', 'channels')
    assert acl.call('ACL', 'SETUSER', 'u', '(+get', '+set') == \
        "ERR Unmatched parenthesis in acl selector starting at '(+get'."
    assert line_of(acl, 'u') == before
    assert acl.call('ACL', 'SETUSER', 'a b') == "ERR Usernames can't contain spaces or null characters"
    assert acl.call('ACL', 'SETUSER', 'a\0b') == "ERR Usernames can't contain spaces or null characters"
    assert acl.call('ACL', 'DELUSER', 'u', 'default') == "ERR The 'default' user cannot be removed"
    assert acl.call('ACL', 'USERS') == [b'default', b'u']
    assert acl.call('ACL', 'DELUSER', 'u', 'nobody') == 1
    assert acl.call('ACL', 'GETUSER', 'u') is None


@pytest.mark.any_engine
def test_getuser(acl):
    acl.call('ACL', 'SETUSER', 'u', 'on', '>pw', '~a', '%R~b', '&c', '+get', '(+set', '~x)')
    assert acl.call('ACL', 'GETUSER', 'u') == [
        b'flags', [b'on', b'sanitize-payload'], b'passwords', [digest('pw').encode()], b'commands', b'-@all +get', b'keys', b'~a %R~b',
        b'channels', b'&c', b'selectors', [[b'commands', b'-@all +set', b'keys', b'~x', b'channels', b'']]]
    acl.call('HELLO', 3)
    assert acl.call('ACL', 'GETUSER', 'default')[b'channels'] == b'&*'
    assert acl.call('ACL', 'GETUSER', 'u')[b'selectors'] == [
        {b'commands': b'-@all +set', b'keys': b'~x', b'channels': b''}]


@pytest.mark.any_engine
def test_small_commands(acl):
    assert acl.call('ACL', 'WHOAMI') == b'default'
    assert len(acl.call('ACL', 'GENPASS')) == 64 and len(acl.call('ACL', 'GENPASS', 5)) == 2
    assert acl.call('ACL', 'GENPASS') != acl.call('ACL', 'GENPASS')
    for bits in (0, 4097):
        assert acl.call('ACL', 'GENPASS', bits).startswith('ERR ACL GENPASS argument must be the number of bits')
    assert b'dangerous' in acl.call('ACL', 'CAT') and len(acl.call('ACL', 'CAT')) == 21
    assert b'config|set' in acl.call('ACL', 'CAT', 'DANGEROUS')
    assert acl.call('ACL', 'CAT', 'nope') == "ERR Unknown category 'nope'"
    assert acl.call('ACL', 'NOPE') == "ERR unknown subcommand 'NOPE'. Try ACL HELP."
    for command in (('CAT', 1, 2), ('GENPASS', 1, 2), ('LOG', 1, 2)):
        assert acl.call('ACL', *command) == \
            f"ERR unknown subcommand or wrong number of arguments for '{command[0]}'. Try ACL HELP."
    for command in ('LOAD', 'SAVE'):
        assert acl.call('ACL', command).startswith('ERR This Redis instance is not configured to use an ACL file.')
    assert b'WHOAMI' in acl.call('ACL', 'HELP')


# -- compared with redis-server ------------------------------------------------------------------------------

class Table:
    """A server's commands and categories; expands the rules it prints to the set they stand for."""

    def __init__(self, c):
        self.names = {n.decode() for n in c.call('COMMAND', 'LIST')}
        self.subs = {}
        for n in self.names:
            if '|' in n:
                self.subs.setdefault(n.split('|')[0], set()).add(n)
        self.members = {cat.decode(): {n.decode() for n in c.call('ACL', 'CAT', cat)} for cat in c.call('ACL', 'CAT')}

    def closure(self, names):
        return names | {s for n in names for s in self.subs.get(n, ())}

    def expand(self, rules):
        """(what is allowed, first arguments, whether new commands would be)"""
        allowed, first_args, future = set(), [], rules[0] == '+@all'
        for rule in rules:
            sign, name = rule[0], rule[1:]
            if name == '@all':
                changed = self.names
            elif name[0] == '@':
                changed = self.closure(self.members[name[1:]])
            elif name in self.names:
                changed = self.closure({name})
            else:
                first_args.append(rule)
                continue
            allowed = allowed | changed if sign == '+' else allowed - changed
        return allowed, sorted(first_args), future


COMMANDS = ['get', 'set', 'mget', 'del', 'config', 'config|get', 'config|set', 'client', 'client|id', 'client|kill',
            'select', 'ping', 'flushall', 'acl', 'acl|whoami', 'publish', 'subscribe', 'hset', 'zadd', 'sort',
            'sort_ro', 'object', 'object|freq', 'memory|usage', 'command', 'command|count', 'expire', 'dump', 'info',
            'bitop', 'debug', 'getex', 'lmpop', 'copy', 'auth', 'CONFIG|REWRITE', 'GET', 'cluster',
            'cluster|info', 'migrate', 'readonly', 'MODULE|LOAD', 'pfdebug']
CATEGORIES = ['keyspace', 'read', 'write', 'set', 'sortedset', 'list', 'hash', 'string', 'bitmap', 'hyperloglog',
              'geo', 'pubsub', 'admin', 'fast', 'slow', 'blocking', 'dangerous', 'connection', 'all', 'READ']
KEYS = ['a', 'b', 'ab', 'x1', 'x', '*', 'a*']
REQUESTS = [
    ('GET', 'K'), ('SET', 'K', 'v'), ('SET', 'K', 'v', 'GET'), ('MGET', 'K', 'K', 'K'), ('DEL', 'K', 'K'),
    ('EXISTS', 'K'), ('STRLEN', 'K'), ('COPY', 'K', 'K'), ('RENAME', 'K', 'K'), ('MSET', 'K', 'v', 'K', 'v'),
    ('BITOP', 'AND', 'K', 'K', 'K'), ('SORT', 'K'), ('SORT', 'K', 'STORE', 'K'), ('SORT_RO', 'K', 'BY', 'K'),
    ('LMPOP', '2', 'K', 'K', 'LEFT'), ('ZUNIONSTORE', 'K', '2', 'K', 'K'), ('SINTERCARD', '1', 'K'),
    ('BITFIELD', 'K', 'GET', 'u8', '0'), ('BITFIELD', 'K', 'SET', 'u8', '0', '1'), ('GETEX', 'K'), ('TTL', 'K'),
    ('ZADD', 'K', '1', 'm'), ('LMOVE', 'K', 'K', 'LEFT', 'LEFT'), ('SDIFFSTORE', 'K', 'K'), ('GETDEL', 'K'),
    ('CONFIG', 'GET', 'x'), ('CONFIG', 'SET', 'a', 'b'), ('CLIENT', 'ID'), ('SELECT', '0'), ('SELECT', '1'),
    ('PING',), ('AUTH', 'x'), ('ACL', 'WHOAMI'), ('FLUSHALL',), ('DEBUG', 'SLEEP', '0'), ('DEBUG', 'OBJECT', 'K'),
    ('OBJECT', 'FREQ', 'K'), ('MEMORY', 'USAGE', 'K'), ('PUBLISH', 'K', 'm'), ('SPUBLISH', 'K', 'm'),
    ('SUBSCRIBE', 'K', 'K'), ('PSUBSCRIBE', 'K'), ('UNSUBSCRIBE', 'K'), ('SSUBSCRIBE', 'K'),
    ('GEOADD', 'K', '1', '1', 'm'),
    ('GEORADIUS', 'K', '1', '1', '1', 'm', 'STORE', 'K'), ('EVAL', 'x', '2', 'K', 'K', 'arg'), ('EVAL', 'x', '0'),
    ('XADD', 'K', '*', 'f', 'v'), ('XREAD', 'STREAMS', 'K', 'K', '0', '0'), ('PFCOUNT', 'K'), ('MULTI',),
    ('GET',), ('NOPE', 'K'), ('CONFIG', 'NOPE'), ('LMPOP', 'x', 'K', 'LEFT'), ('ZUNION', '9', 'K'),
]


def random_rule(g, depth=0):
    kind = g.randrange(20 if depth else 26)
    key = g.choice(KEYS)
    if kind < 6:
        return g.choice('+-') + g.choice(COMMANDS)
    if kind < 10:
        return g.choice('+-') + '@' + g.choice(CATEGORIES)
    if kind < 13:
        return g.choice(('~', '~', '%R~', '%W~', '%RW~', '%r~', '%X~', '%~')) + key
    if kind < 15:
        return '&' + key
    if kind < 17:
        return g.choice(('resetkeys', 'resetchannels', 'allkeys', 'allchannels', 'nocommands', 'allcommands'))
    if kind == 17:
        return '+' + g.choice(('select|0', 'select|1', 'debug|sleep', 'get|x', 'config|x', 'nope|x', 'debug|OBJECT'))
    if kind == 18:
        return g.choice(('+nope', '-@nope', '', 'foo', '+config|get|x', '-select|0', '>', '()', '%', '+', '(', 'x)'))
    if kind == 19:
        return g.choice(('+get', '+set', '+@read', '~*', '&*'))
    if kind < 23:
        return '(' + ' '.join(random_rule(g, 1) for _ in range(g.randrange(4))) + ')'
    return g.choice(('on', 'off', 'nopass', 'resetpass', '>pw', '>pw2', '<pw', '#' + 'a' * 64, '!' + 'a' * 64, '#zz',
                     'reset', 'clearselectors', 'sanitize-payload', 'skip-sanitize-payload', 'ON', '<none'))


def selectors_of(table, reply, common):
    """GETUSER's reply (RESP3) with sets of commands instead of rules."""
    def plain(selector):
        keys = selector[b'keys'].replace(b'%RW~*', b'~*') # Redis prints it so, too, but reads it as allkeys
        allowed, first, future = table.expand(selector[b'commands'].decode().split())
        return allowed & common, first, future, keys, selector[b'channels']
    return (sorted(set(reply[b'flags']) - {b'sanitize-payload'}), reply[b'passwords'], plain(reply), [plain(s) for s in reply[b'selectors']])


@pytest.mark.any_engine
@redis_server.needed
@redis_server.until((8, 0), 'commands are in other categories')
@pytest.mark.parametrize('seed', range(3))
def test_like_redis(server_factory, redis_factory, raw, seed):
    ours, theirs = raw(server_factory().port), raw(redis_factory().port)
    both = (ours, theirs)
    for c in both:
        c.call('HELLO', 3)
    tables = [Table(c) for c in both]
    common = tables[0].names & tables[1].names - {'wait'}     # which is @blocking since 7.2
    g = random.Random(seed)
    rounds = 150 if mayfly.sanitized() else 700

    def same(*command):
        a, b = [c.call(*command) for c in both]
        if command[1] == 'DRYRUN' and isinstance(a, bytes):         # 7.2 and later name the user
            a, b = [x.replace(b'User %s has' % command[2].encode(), b'This user has') for x in (a, b)]
        assert a == b, command
        return a

    for _ in range(rounds):
        user = g.choice(('u', 'v'))
        if g.random() < 0.15:
            same('ACL', 'DELUSER', user)
        rules = [random_rule(g) for _ in range(g.randrange(1, 7))]
        same('ACL', 'SETUSER', user, *rules)
        got = [c.call('ACL', 'GETUSER', user) for c in both]
        if not all(got):
            assert got == [None, None]
            continue
        a, b = [selectors_of(t, reply, common) for t, reply in zip(tables, got)]
        assert a == b, (rules, got)
        lines = [next(x for x in c.call('ACL', 'LIST') if x.startswith(b'user %s ' % user.encode())) for c in both]
        kept = [[w for w in x.split() if w.strip(b'()')[:1] not in (b'+', b'-') and w != b'sanitize-payload']
                for x in lines]
        assert [w.replace(b'%RW~*', b'~*') for w in kept[0]] == kept[1], lines
        # What we print makes the same user again.
        assert ours.call('ACL', 'SETUSER', 'copy', 'reset', *lines[0].split()[2:]) == b'OK', lines
        assert line_of(ours, 'copy').split()[2:] == [w for w in lines[0].decode().split()[2:] if w != 'sanitize-payload']
        ours.call('ACL', 'DELUSER', 'copy')
        for request in g.sample(REQUESTS, 10):
            if request[0].lower() not in common and request[0] != 'NOPE':
                continue
            same('ACL', 'DRYRUN', user, *[g.choice(KEYS) if w == 'K' else w for w in request])


# What users of changing rights really run, alone, within MULTI or by a script.
TRIED = [
    ('GET', 'K'), ('SET', 'K', '1'), ('DEL', 'K', 'K'), ('MGET', 'K', 'K'), ('COPY', 'K', 'K', 'REPLACE'), ('EXISTS', 'K'),
    ('GETDEL', 'K'), ('LMPOP', '2', 'K', 'K', 'LEFT'), ('PUBLISH', 'K', 'm'), ('CONFIG', 'GET', 'port-'), ('SELECT', '0'),
    ('OBJECT', 'FREQ', 'nosuch'), ('ACL', 'WHOAMI'), ('SORT', 'nosuch', 'BY', 'w*', 'GET', 'v*'), ('OBJECT', 'ENCODING', 'K'),
    ('GET',), ('NOPE', 'K'), ('EVAL', 'return 1', '1', 'K'), ('UNSUBSCRIBE', 'K'),
]
BY_SCRIPT = "local r = redis.pcall(unpack(ARGV)) return type(r) == 'table' and r['err'] or r"


def without_command(reply):
    """Of a script's denial."""
    if isinstance(reply, list):
        return [without_command(x) for x in reply]
    return re.sub(rb"^(ERR ACL failure in script: .* run the )'.*'", rb"\1''", reply) if isinstance(reply, bytes) else reply


def logged(c):
    """ACL LOG (RESP3) without what differs: ages, numbers, addresses."""
    kept = []
    for entry in c.call('ACL', 'LOG', 50):
        client = dict(word.split(b'=', 1) for word in entry.pop(b'client-info').split())
        assert entry.pop(b'age-seconds') >= 0
        for field in b'entry-id', b'timestamp-created', b'timestamp-last-updated':      # not of 7.0
            entry.pop(field, None)
        kept.append((entry, [client[k] for k in (b'cmd', b'user', b'multi', b'db')]))
    return kept


@pytest.mark.any_engine
@redis_server.needed
@pytest.mark.parametrize('seed', range(3))
def test_denials_like_redis(server_factory, redis_factory, raw, seed):
    servers = server_factory(), redis_factory()
    admins = [raw(s.port) for s in servers]
    g = random.Random(seed)

    def same(pair, *command):
        a, b = [c.call(*command) for c in pair]
        assert without_command(a) == without_command(redis_server.in_new_words(b)), command
        return a

    same(admins, 'ACL', 'SETUSER', 'u', 'on', '>pw', '+@all')
    for c in admins:
        c.call('HELLO', 3)
    users = [logged_in(s, raw, 'u') for s in servers]
    queued = 0
    for step in range(150 if mayfly.sanitized() else 700):
        if step % 10 == 0:
            base = ('resetkeys', 'resetchannels', '+@all') if g.random() < 0.8 else ()
            same(admins, 'ACL', 'SETUSER', 'u', *base, *(random_rule(g, 1) for _ in range(g.randrange(1, 5))), '+acl')
        tried = [g.choice(KEYS) if w == 'K' else w for w in g.choice(TRIED)]
        kind = g.randrange(10)
        if kind == 0 or queued > 3:
            tried = [g.choice(('EXEC', 'DISCARD')) if queued else 'MULTI']
            same(users, *tried)
            queued = 1 if tried == ['MULTI'] else 0
        elif kind < 4:
            same(users, 'EVAL', BY_SCRIPT, 0, *tried)
        else:
            same(users, *tried)
        queued += queued > 0
        if step % 40 == 39:
            assert logged(admins[0]) == logged(admins[1])
            same(admins, 'ACL', 'LOG', 'RESET')
    same(users, 'AUTH', 'u', 'wrong')
    same(users, 'HELLO', '3', 'AUTH', 'nobody', 'wrong')
    assert logged(admins[0]) == logged(admins[1])
    same(admins, 'ACL', 'DELUSER', 'u')
    assert [c.closed() for c in users] == [True, True]


@pytest.mark.any_engine
@redis_server.needed
def test_categories_like_redis(server_factory, redis_factory, raw):
    ours, theirs = [Table(raw(s.port)) for s in (server_factory(), redis_factory())]
    common = ours.names & theirs.names
    for category, names in theirs.members.items():
        newer = {'wait'} if category == 'blocking' else set()       # there since 7.2
        assert (ours.members[category] - newer) & common == (names - newer) & common, category


# -- what users may do ---------------------------------------------------------------------------------------

def test_permissions(acl, server, raw):
    acl.call('ACL', 'SETUSER', 'u', 'on', '>pw', '+@all', '-flushall', '-config', '+config|get', '~a*', '%R~r*',
             '%W~w*', '&news.*', '(+get ~z)')
    c = logged_in(server, raw, 'u')
    assert c.call('ACL', 'WHOAMI') == b'u'
    assert c.call('SET', 'a', 1) == b'OK' and c.call('GET', 'a') == b'1'
    assert c.call('GET', 'b') == NO_KEY and c.call('MGET', 'a', 'b') == NO_KEY
    assert c.call('GET', 'r') is None and c.call('SET', 'r', 1) == NO_KEY
    assert c.call('SET', 'w', 1) == b'OK' and c.call('GET', 'w') == NO_KEY and c.call('SET', 'w', 1, 'GET') == NO_KEY
    assert c.call('EXISTS', 'w', 'r') == 1, 'neither reads nor writes a value'
    assert c.call('COPY', 'r', 'w2') == 0 and c.call('COPY', 'w', 'a') == NO_KEY
    assert c.call('GET', 'z') is None and c.call('SET', 'z', 1) == NO_KEY
    assert c.call('FLUSHALL') == no_command('flushall')
    assert c.call('CONFIG', 'GET', 'port')[0] == b'port'
    assert c.call('CONFIG', 'SET', 'hz', 1) == no_command('config|set')
    assert c.call('SORT', 'a', 'BY', 'x*') == 'ERR BY option of SORT denied due to insufficient ACL permissions.'
    assert c.call('SORT', 'a', 'GET', '#') == 'ERR GET option of SORT denied due to insufficient ACL permissions.'
    assert c.call('SORT', 'al', 'BY', 'nosort', 'STORE', 'b') == NO_KEY
    assert c.call('SORT', 'al', 'BY', 'nosort') == []
    assert c.call('PUBLISH', 'news.x', 'm') == 0 and c.call('PUBLISH', 'old', 'm') == NO_CHANNEL
    assert c.call('PSUBSCRIBE', 'news.x') == NO_CHANNEL, 'a pattern must be one of the user\'s, literally'
    assert c.call('SUBSCRIBE', 'news.x', 'old') == NO_CHANNEL and c.call('UNSUBSCRIBE', 'old')[0] == b'unsubscribe'
    assert c.call('NOPE').startswith('ERR unknown command') and c.call('GET').startswith('ERR wrong number')
    # A change counts at once, also for who is logged in already.
    acl.call('ACL', 'SETUSER', 'u', '~*', '-get', 'clearselectors')
    assert c.call('GET', 'b') == no_command('get') and c.call('MGET', 'b') == [None]
    assert c.call('SORT', 'al', 'BY', 'x*', 'GET', 'y*') == []
    acl.call('ACL', 'SETUSER', 'u', 'nocommands', '+select|0')
    assert c.call('SELECT', 0) == b'OK' and c.call('SELECT', 1) == no_command('select')
    assert c.call('AUTH', 'u', 'pw') == b'OK' and c.call('PING') == no_command('ping')
    assert c.call('RESET') == b'RESET' and c.call('ACL', 'WHOAMI') == b'default'


# Each with a key that is named like a keyword, or an option that is given twice, in front of what it really uses.
DISGUISED = [
    ('GEORADIUS', 'pub:g', 1, 1, 100, 'km', 'STORE', 'pub:d', 'STORE', 'secret'),
    ('GEORADIUS', 'pub:g', 1, 1, 100, 'km', 'STOREDIST', 'pub:d', 'STOREDIST', 'secret'),
    ('GEORADIUSBYMEMBER', 'pub:g', 'm', 100, 'km', 'STORE', 'pub:d', 'STORE', 'secret'),
    ('SORT', 'pub:l', 'STORE', 'pub:d', 'STORE', 'secret'),
    ('XREADGROUP', 'COUNT', 1, 'GROUP', 'STREAMS', 'pub:x', 'noack', 'noack', 'STREAMS', 'secret', '>'),
    ('PFMERGE', 'secret'),
    ('MEMORY', 'USAGE', 'secret'),
    ('BITOP', 'NOT', 'pub:b', 'secret'),
    ('LMPOP', 2, 'pub:l', 'secret', 'LEFT'),
    ('SINTERCARD', 2, 'pub:t', 'secret', 'LIMIT', 1),
    ('SET', 'secret', 'x', 'GET'),
]


@pytest.mark.any_engine
@pytest.mark.parametrize('command', DISGUISED, ids=lambda c: ' '.join(map(str, c[:2])))
def test_keys_in_disguise(acl, server, raw, command):
    acl.call('FLUSHALL')
    acl.call('ACL', 'SETUSER', 'u', 'on', '>pw', '+@all', '~pub:*')
    acl.call('GEOADD', 'pub:g', 1, 1, 'm')
    acl.call('SET', 'secret', 'safe')
    c = logged_in(server, raw, 'u')
    assert c.call(*command) == NO_KEY
    assert b'secret' in acl.call('ACL', 'DRYRUN', 'u', *command)
    assert b'secret' in acl.call('COMMAND', 'GETKEYS', *command)
    denied = c.call('EVAL', "return redis.pcall(unpack(ARGV))['err']", 0, *command).decode()
    assert denied == 'ERR ACL failure in script: No permissions to access a key'
    assert c.call('MULTI') == b'OK' and c.call(*command) == NO_KEY and c.call('DISCARD') == b'OK'
    assert acl.call('GET', 'secret') == b'safe' and acl.call('EXISTS', 'pub:d') == 0


def test_transactions_and_scripts(acl, server, raw):
    acl.call('ACL', 'SETUSER', 'u', 'on', '>pw', '+@all', '-incr', '~a*', '&a*')
    c = logged_in(server, raw, 'u')
    assert c.call('MULTI') == b'OK'
    assert c.call('SET', 'b', 1) == NO_KEY and c.call('SET', 'a', 1) == b'QUEUED'
    assert c.call('EXEC') == 'EXECABORT Transaction discarded because of previous errors.'
    c.call('MULTI')
    for command in (('SET', 'a', 1), ('GET', 'a2'), ('PUBLISH', 'ab', 'm'), ('DEL', 'a')):
        assert c.call(*command) == b'QUEUED'
    acl.call('ACL', 'SETUSER', 'u', 'resetkeys', '%W~a', 'resetchannels', '-del')
    changed = 'NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. ' \
              'This command is no longer allowed for the following reason: no permission to '
    assert c.call('EXEC') == [b'OK', changed + 'touch the specified keys',
                              changed + 'access one of the channels used as arguments',
                              changed + 'execute the command or subcommand']
    acl.call('ACL', 'SETUSER', 'u', '~a*', '+del')
    call = "return redis.pcall(unpack(ARGV))['err']"
    for command, denial in ((('GET', 'b'), NO_KEY), (('INCR', 'a'), no_command('incr')), (('PUBLISH', 'x', 'm'), NO_CHANNEL)):
        assert c.call('EVAL', call, 0, *command).decode() == denial.replace('NOPERM', 'ERR ACL failure in script:')
    assert c.call('EVAL', "return redis.call('SET', 'a', 'x')", 0) == b'OK'
    assert c.call('EVAL', 'return 1', 1, 'b') == NO_KEY
    check = 'return redis.acl_check_cmd(unpack(ARGV))'
    assert c.call('EVAL', check, 0, 'GET', 'a') == 1 and c.call('EVAL', check, 0, 'GET', 'b') is None
    assert c.call('EVAL', check, 0, 'SET') == 1, 'too few arguments: there is nothing to deny'
    contexts = [(dict(zip(e[::2], e[1::2]))) for e in acl.call('ACL', 'LOG', 20)]
    assert [(e[b'context'], e[b'reason'], e[b'object']) for e in contexts] == [
        (b'toplevel', b'key', b'b'), (b'lua', b'channel', b'x'), (b'lua', b'command', b'incr'), (b'lua', b'key', b'b'),
        (b'multi', b'command', b'del'), (b'multi', b'channel', b'ab'), (b'multi', b'key', b'a2'),
        (b'multi', b'key', b'b')]


@pytest.mark.any_engine
def test_log(acl, server, raw):
    acl.call('ACL', 'SETUSER', 'u', 'on', '>pw', '+get', '~a')
    c = logged_in(server, raw, 'u')
    for _ in range(3):
        c.call('GET', 'b')
    c.call('SET', 'a', 1)
    assert c.call('AUTH', 'nobody', 'x') == WRONGPASS
    c.call('GET', 'b')
    log = [dict(zip(e[::2], e[1::2])) for e in acl.call('ACL', 'LOG')]
    assert [(e[b'count'], e[b'reason'], e[b'object'], e[b'username']) for e in log] == [
        (4, b'key', b'b', b'u'), (1, b'auth', b'AUTH', b'nobody'), (1, b'command', b'set', b'u')]
    assert all(0 <= float(e[b'age-seconds']) < 60 and e[b'context'] == b'toplevel' for e in log)
    assert b' user=u ' in log[0][b'client-info'] and b'cmd=' in log[0][b'client-info']
    assert list(log[0]) == [b'count', b'reason', b'context', b'object', b'username', b'age-seconds', b'client-info',
                            b'entry-id', b'timestamp-created', b'timestamp-last-updated']
    assert len(acl.call('ACL', 'LOG', 1)) == 1 and acl.call('ACL', 'LOG', 0) == [] and acl.call('ACL', 'LOG', -1) == []
    acl.call('CONFIG', 'SET', 'acllog-max-len', 2)
    assert [e[7] for e in acl.call('ACL', 'LOG')] == [b'b', b'AUTH']
    for i in range(5):
        c.call('GET', f'c{i}' + 'x' * 5000)
    assert [e[7][:2] for e in acl.call('ACL', 'LOG')] == [b'c4', b'c3']
    assert len(acl.call('ACL', 'LOG')[0][7]) == 4096, 'what clients choose is cut'
    acl.call('CONFIG', 'SET', 'acllog-max-len', 128)
    assert acl.call('ACL', 'LOG', 'RESET') == b'OK' and acl.call('ACL', 'LOG') == []


# -- logging in -----------------------------------------------------------------------------------------------

@pytest.mark.any_engine
def test_auth(acl, server, raw):
    acl.call('ACL', 'SETUSER', 'u', 'on', '>one', '>two', '+@all', '~*')
    acl.call('ACL', 'SETUSER', 'off', '>pw', '+@all')
    acl.call('ACL', 'SETUSER', 'any', 'on', 'nopass', '+acl|whoami')
    c = raw(server.port)
    assert c.call('AUTH', 'off', 'pw') == WRONGPASS and c.call('AUTH', 'u', 'three') == WRONGPASS
    assert c.call('ACL', 'WHOAMI') == b'default'
    assert c.call('AUTH', 'u', 'two') == b'OK' and c.call('AUTH', 'u', 'x') == WRONGPASS
    assert c.call('ACL', 'WHOAMI') == b'u', 'a failure leaves one who one was'
    assert b' user=u ' in c.call('CLIENT', 'INFO')
    assert c.call('AUTH', 'any', 'whatever') == b'OK' and c.call('ACL', 'WHOAMI') == b'any'
    assert c.call('HELLO', 3, 'AUTH', 'u', 'one')[b'proto'] == 3 and c.call('ACL', 'WHOAMI') == b'u'
    acl.call('ACL', 'SETUSER', 'u', 'off')
    assert c.call('PING') == b'PONG', 'off: nobody else gets in'
    assert acl.call('CLIENT', 'KILL', 'USER', 'nobody') == "ERR No such user 'nobody'"
    assert acl.call('CLIENT', 'KILL', 'USER', 'u') == 1 and c.closed()


@pytest.mark.any_engine
def test_default_user_and_requirepass(server_factory, raw):
    s = server_factory('--requirepass', 'old')
    admin, stranger = raw(s.port), raw(s.port)
    assert stranger.call('PING') == NOAUTH
    assert admin.call('AUTH', 'old') == b'OK'
    assert line_of(admin, 'default') == f'user default on #{digest("old")} ~* &* +@all'
    assert admin.call('ACL', 'SETUSER', 'default', '>new') == b'OK', 'a second password'
    assert raw(s.port).call('AUTH', 'new') == b'OK' and raw(s.port).call('AUTH', 'old') == b'OK'
    assert admin.call('CONFIG', 'GET', 'requirepass') == [b'requirepass', b'old']
    assert admin.call('CONFIG', 'SET', 'requirepass', 'third') == b'OK'
    assert raw(s.port).call('AUTH', 'new') == WRONGPASS and raw(s.port).call('AUTH', 'third') == b'OK'
    admin.call('ACL', 'SETUSER', 'default', 'nopass')
    assert stranger.call('PING') == b'PONG' and raw(s.port).call('PING') == b'PONG'
    assert stranger.call('AUTH', 'third').startswith('ERR AUTH <password> called without any password configured')
    assert stranger.call('SET', 'k', 'x' * 20000) == b'OK', 'no stranger, no limits of one'
    admin.call('CONFIG', 'SET', 'requirepass', 'third')
    assert stranger.call('PING') == b'PONG', 'it is what it was: nothing to do'
    admin.call('CONFIG', 'SET', 'requirepass', 'fourth')
    assert stranger.call('PING') == NOAUTH, 'it never said who it is'
    assert admin.call('PING') == b'PONG'
    admin.call('CONFIG', 'SET', 'requirepass', '')
    assert stranger.call('PING') == b'PONG'
    admin.call('ACL', 'SETUSER', 'other', 'on', 'nopass', '+@all')
    admin.call('ACL', 'SETUSER', 'default', 'off')
    assert stranger.call('PING') == NOAUTH and raw(s.port).call('PING') == NOAUTH
    assert stranger.call('AUTH', 'other', 'x') == b'OK' and stranger.call('PING') == b'PONG'


@pytest.mark.any_engine
def test_removed_users_and_lost_channels(acl, server, raw):
    acl.call('ACL', 'SETUSER', 'u', 'on', '>pw', '+@all', '&a*', '&p*')
    gone, other = logged_in(server, raw, 'u'), raw(server.port)
    hears, pattern, idle = [logged_in(server, raw, 'u') for _ in range(3)]
    hears.call('SUBSCRIBE', 'ab')
    pattern.call('PSUBSCRIBE', 'p*')
    acl.call('ACL', 'SETUSER', 'u', 'resetchannels', '&p*', '&ab')
    assert other.call('PUBLISH', 'ab', 'm') == 1, 'a narrower pattern that still covers what it hears'
    acl.call('ACL', 'SETUSER', 'u', 'resetchannels', '&p*')
    assert hears.reply()[2] == b'm' and hears.closed()
    assert other.call('PUBLISH', 'px', 'm') == 1 and pattern.reply()[3] == b'm'
    acl.call('ACL', 'SETUSER', 'u', '(&p*)', 'resetchannels')
    assert other.call('PUBLISH', 'px', 'm') == 1, 'by another selector'
    assert idle.call('PING') == b'PONG'
    assert pattern.reply()[3] == b'm'
    assert gone.call('ACL', 'DELUSER', 'u') == 1, 'who removes itself is told'
    for c in (gone, pattern, idle):
        assert c.closed()


@pytest.mark.any_engine
def test_slow_down_reaches_named_users(server_factory, raw):
    """Also where the default user has no password, those of others can't be guessed quickly."""
    server = server_factory()
    acl = raw(server.port)
    acl.call('ACL', 'SETUSER', 'u', 'on', '>secret', '+@all')
    c = raw(server.port)
    start = time.monotonic()
    c.send(b''.join(mayfly.encode('AUTH', 'u', f'guess{i}') for i in range(20)))
    for _ in range(20):
        assert c.reply() == WRONGPASS
    assert time.monotonic() - start > 0.8, 'nine at once, then about five a second'
    hello = raw(server.port)
    assert hello.call('HELLO', 3)[b'proto'] == 3, 'who tries no password does not wait'
    assert acl.call('AUTH', 'u', 'secret') == b'OK', 'waits, but gets in'


# -- files ------------------------------------------------------------------------------------------------------

def write(path, text):
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


@pytest.mark.any_engine
def test_acl_file(server_factory, raw, tmp_path):
    path = tmp_path / 'users.acl'
    write(path, 'user al on >x ~a* +@read\n\n  user default on nopass ~* &* +@all  \nuser bo on nopass +@all &c\n')
    s = server_factory('--aclfile', path)
    admin, al, bo, hears = [raw(s.port) for _ in range(4)]
    assert al.call('AUTH', 'al', 'x') == b'OK' and bo.call('AUTH', 'bo', '') == b'OK'
    assert hears.call('AUTH', 'bo', '') == b'OK' and hears.call('SUBSCRIBE', 'c')
    assert admin.call('ACL', 'USERS') == [b'al', b'bo', b'default']
    before = admin.call('ACL', 'LIST')
    warning = 'WARNING: ACL errors detected, no change to the previously active ACL rules was performed'
    keyword = f'{path}:1 should start with user keyword followed by the username. '
    for text, why in [
            ('foo bar\n', keyword), ('user\n', keyword), ('# no comments\n', keyword),
            ('user a on foo bar\nuser b +zip -zap\n', f"{path}:1: Syntax error. {path}:2: Error in applying operation "
             f"'+zip': Unknown command or category name in ACL. {path}:2: Error in applying operation '-zap': Unknown "
             "command or category name in ACL. "),
            ('user a on\nuser a off\n', "WARNING: Duplicate user 'a' found on line 2. "),
            ('user a (+get\n', f'{path}:1: Unmatched parenthesis in selector definition.')]:
        write(path, text)
        assert admin.call('ACL', 'LOAD') == f'ERR {why}{warning}'
        assert admin.call('ACL', 'LIST') == before
    write(path, 'user al on >y ~b* +@read (+set ~c)\nuser bo on nopass +@all\nuser new on nopass\n')
    assert admin.call('ACL', 'LOAD') == b'OK'
    assert al.call('GET', 'a') == NO_KEY and al.call('SET', 'c', 1) == b'OK', 'it stays, and has its new rules'
    assert hears.closed() and bo.call('PING') == b'PONG', 'only who heard what it may not'
    assert admin.call('ACL', 'USERS') == [b'al', b'bo', b'default', b'new'], 'there is always a default user'
    write(path, 'user bo on nopass +@all')
    assert bo.call('ACL', 'LOAD') == b'OK'
    assert al.closed() and bo.call('ACL', 'WHOAMI') == b'bo'
    write(path, 'user default on nopass ~* &* +@all')
    assert bo.call('ACL', 'LOAD') == b'OK' and bo.closed()
    admin.call('ACL', 'SETUSER', 'x', 'on', '>pw', '%R~k', '&c', '+@all', '-get', '(+get ~z)')
    lines = admin.call('ACL', 'LIST')
    assert admin.call('ACL', 'SAVE') == b'OK'
    assert path.read_bytes().splitlines() == lines
    s.restart()
    assert raw(s.port).call('ACL', 'LIST') == lines
    admin = raw(s.port)
    os.remove(path)
    assert admin.call('ACL', 'LOAD') == f"ERR Error loading ACLs, opening file '{path}': No such file or directory"
    os.mkdir(path)
    assert admin.call('ACL', 'SAVE').startswith('ERR There was an error trying to save the ACLs.')
    assert os.listdir(tmp_path) == ['users.acl'], 'no temporary file is left'
    os.rmdir(path)
    assert admin.call('ACL', 'SAVE') == b'OK' and admin.call('ACL', 'LOAD') == b'OK'


def with_file(server_factory, conf, wait=True):
    """The harness gives its options first, but a file has to come before them."""
    s = server_factory(wait=False)
    s.proc.kill()
    s.proc.wait()
    s.args.insert(1, str(conf))
    s.start(wait)
    return s


@pytest.mark.any_engine
def test_users_in_the_configuration(server_factory, raw, tmp_path):
    conf = tmp_path / 'mayfly.conf'
    write(conf, '# first\nuser al on >x ~a* "+@read" (+set ~b*)\n# second\nuser bo off nopass\n')
    s = with_file(server_factory, conf)
    c = raw(s.port)
    al = f'user al on sanitize-payload #{digest("x")} ~a* resetchannels -@all +@read (~b* resetchannels -@all +set)'
    assert c.call('ACL', 'LIST') == [al.encode(), b'user bo off nopass sanitize-payload resetchannels -@all',
                                     b'user default on nopass sanitize-payload ~* &* +@all']
    c.call('ACL', 'DELUSER', 'bo')
    assert c.call('CONFIG', 'REWRITE') == b'OK'
    lines = conf.read_text().splitlines()
    assert lines[:3] == ['# first', al, '# second']
    assert [x for x in lines if x.startswith('user ')] == [al]
    c.call('CONFIG', 'SET', 'requirepass', 'secret')
    c.call('CONFIG', 'REWRITE')
    assert not any(x.startswith('user default') for x in conf.read_text().splitlines()), 'requirepass says it'
    c.call('ACL', 'SETUSER', 'default', '-debug')
    c.call('ACL', 'SETUSER', 'cy', 'on', '+get', '+select|0')
    users = c.call('ACL', 'LIST')
    assert c.call('CONFIG', 'REWRITE') == b'OK'
    s.restart()
    c = raw(s.port)
    assert c.call('AUTH', 'secret') == b'OK'
    assert c.call('ACL', 'LIST') == users


@pytest.mark.any_engine
@pytest.mark.parametrize('lines, why', [
    ('user a +foo', "Error in user declaration '+foo': Unknown command or category name in ACL"),
    ('user a on\nuser a off', "Error in user declaration 'a': Duplicate user found. A user can only be defined once "
     'in config files'),
    ('user "a b" on', 'Spaces not allowed in ACL usernames'),
    ('user a (+get', "Error in user declaration '(+get': Unmatched parenthesis"),
    ('user', 'Bad directive or wrong number of arguments'),
    ('aclfile /nowhere/at/all', "Error loading ACLs, opening file '/nowhere/at/all': No such file or directory"),
    ('user a on\naclfile /nowhere', 'Use either, not both'),
])
def test_bad_configurations(server_factory, tmp_path, lines, why):
    conf = tmp_path / 'bad.conf'
    write(conf, lines + '\n')
    s = with_file(server_factory, conf, wait=False)
    assert s.proc.wait(mayfly.PATIENCE) == 1
    assert why in s.log


@pytest.mark.any_engine
def test_pubsub_default_and_renamed_commands(server_factory, raw):
    s = server_factory('--acl-pubsub-default', 'allchannels', '--rename-command', 'GET', 'FETCH')
    c = raw(s.port)
    c.call('ACL', 'SETUSER', 'u', 'on', 'nopass', '+get', '~*', '(+set)')
    assert line_of(c, 'u') == 'user u on nopass ~* &* -@all +get (&* -@all +set)'
    assert c.call('ACL', 'SETUSER', 'u', '+fetch').endswith('Unknown command or category name in ACL')
    assert c.call('ACL', 'DRYRUN', 'u', 'FETCH', 'k') == b'OK'
    assert c.call('ACL', 'DRYRUN', 'u', 'GET', 'k') == "ERR Command 'GET' not found"
    c.call('AUTH', 'u', '')
    assert c.call('FETCH', 'k') is None and c.call('SET', 'k', 1) == NO_KEY


@pytest.mark.lone('nodes of a cluster replicate by Raft')
@redis_server.needed
@pytest.mark.any_engine
def test_replication_as_a_user(server_factory, redis_factory, raw):
    """masteruser logs in; what the primary then sends is not checked against anybody's rules."""
    primary = server_factory('--repl-diskless-sync-delay', 0)
    c = raw(primary.port)
    c.call('ACL', 'SETUSER', 'repl', 'on', '>pw', '+psync', '+replconf', '+ping')
    c.call('SET', 'k', 1)
    options = ('--replicaof', f'127.0.0.1 {primary.port}', '--masteruser', 'repl', '--masterauth', 'pw')
    for replica in (server_factory(*options), redis_factory(*options)):
        seen = raw(replica.port)
        mayfly.eventually(lambda x=seen: x.call('GET', 'k') == b'1')
    ours = server_factory('--masteruser', 'repl', '--masterauth', 'pw')
    d = raw(ours.port)
    d.call('ACL', 'SETUSER', 'default', '-set', '-del')
    d.call('REPLICAOF', '127.0.0.1', primary.port)
    c.call('SET', 'k', 2)
    mayfly.eventually(lambda: d.call('GET', 'k') == b'2')
