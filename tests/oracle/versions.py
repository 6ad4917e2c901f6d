"""What Redis 7.4, which Mayfly follows, answers differently from an older or a newer reference: all of it is here.

With a reference of 7.2 or 7.4 nothing of this applies but `understood` and `intended`."""
import re

from compare import is_aggregate, is_error

OLD_SETS = ('CONFIG', 'SET', 'set-max-listpack-entries', '0')   # of strings: always hash tables, as in 7.0


def kind_of(conn):
    """'old': older than 7.2; 'like': 7.2 or 7.4; 'redis 8': or later; 'valkey'."""
    info = conn.call('INFO', 'server')[1]
    found = re.search(rb'redis_version:(\d+)\.(\d+)', info)
    version = tuple(map(int, found.groups()))
    if b'valkey_version:' in info:
        return 'valkey'
    return 'old' if version < (7, 2) else 'like' if version < (8, 0) else 'redis 8'


# --- what is not sent, because the data would differ afterwards ------------------------------------------------

NEW_WORDS = {b'HSCAN': (b'NOVALUES',), b'XREAD': (b'+',), b'COMMAND': (b'SINTERSTORE',)}   # whose key is OW
NEW_ARITY = {b'ZRANK': lambda n: n > 3, b'ZREVRANK': lambda n: n > 3, b'COMMAND': lambda n: n == 3}
# 7.4 has consumers made by these even if they get nothing, and XSETID may not go below a deleted entry.
NEW_EFFECTS = {b'XREADGROUP', b'XCLAIM', b'XAUTOCLAIM', b'XSETID'}
# Scripts may not call these in 7.0.
NOT_IN_SCRIPTS = {b'BLPOP', b'BRPOP', b'BLMOVE', b'BRPOPLPUSH', b'BZPOPMIN', b'BZPOPMAX', b'WAIT'}
MAKES_CONSUMER = {b'XREADGROUP', b'XCLAIM', b'XAUTOCLAIM'}


def sendable(argv):
    words = {w.upper() for w in argv}
    name = argv[0].upper() if argv else b''
    if name.startswith((b'EVAL', b'FCALL')):
        return not words & (NOT_IN_SCRIPTS | NEW_EFFECTS | set(NEW_ARITY))
    if name in NEW_ARITY and NEW_ARITY[name](len(argv)):
        return False
    return name not in NEW_EFFECTS and not words & set(NEW_WORDS.get(name, ()))


def consumer_of(argv):
    """XGROUP CREATECONSUMER for every stream such a command names; [] if it has an unusual form."""
    words = [w.upper() for w in argv]
    if words[0] != b'XREADGROUP':
        return [[b'XGROUP', b'CREATECONSUMER', *argv[1:4]]] if len(argv) > 4 else []
    if words.count(b'GROUP') != 1 or words.count(b'STREAMS') != 1 or len(argv) < 7:
        return []
    at, first = words.index(b'GROUP'), words.index(b'STREAMS') + 1
    keys = argv[first:first + (len(argv) - first) // 2]
    return [[b'XGROUP', b'CREATECONSUMER', key, *argv[at + 1:at + 3]] for key in keys] if at < first else []


TYPES = {b'STRING', b'LIST', b'SET', b'ZSET', b'HASH', b'STREAM'}
# What 8.0 reads otherwise than 7.4: bounds of scores that begin with a space, or are hexadecimal, and empty ones.
OTHER_NUMBER = re.compile(rb'\(?(\s.*|[+-]?0x.*|)', re.I | re.S)


def understood(argv, kind):
    """False: a reference that is not old does with it what Mayfly does not want to. After other replies of a pipeline
    it does not answer an AUTH that fails, LSET takes only 32 bits of an index, and RESTORE adds the time to a TTL
    without asking whether the sum fits: what becomes of that depends on the compiler."""
    words = [w.upper() for w in argv]
    if kind == 'redis 8' and words and words[0].startswith((b'Z', b'EVAL', b'FCALL')):
        return not any(OTHER_NUMBER.fullmatch(w) for w in argv[1:])
    if kind == 'valkey' and words[:1] == [b'SCAN'] and b'TYPE' in words:
        return bool(TYPES & set(words))         # others are an error there
    if words[:1] == [b'LSET'] and len(argv) == 4:
        return not re.fullmatch(rb'-?\d{10,}', argv[2])
    if words[:1] == [b'RESTORE'] and b'ABSTTL' not in words and len(argv) > 2:
        return not re.fullmatch(rb'\d{19,}', argv[2])
    return b'AUTH' not in words[:3]


def adapted(op, kind):
    """The operation as a reference can follow it; None: not at all."""
    argvs = [argv for argv, _ in op.cmds] or [getattr(op.special, 'head', [b'']) + getattr(op.special, 'tail', [])]
    if kind == 'valkey' and argvs[0][0].upper() == b'MULTI' and {a[0].upper() for a in argvs[1:]} & {b'MULTI', b'WATCH'}:
        return None                             # which fails the transaction there
    if kind != 'old':
        return op if all(understood(argv, kind) for argv in argvs) else None
    first = [argv for argv, _ in op.cmds[:1]]
    if first and len(op.cmds) == 1 and first[0][0].upper() in MAKES_CONSUMER:
        before = consumer_of(first[0])
        op.cmds = [(argv, None) for argv in before] + op.cmds
        return op if before else None
    return op if all(map(sendable, argvs)) else None


# --- how replies are read ----------------------------------------------------------------------------------------

NEW_FIELDS = (b'inactive', b'active-time', b'seen-time', b'idle')   # the latter two: seen also if it got nothing


def _without(items, names):
    kept, skip = [], False
    for i in items:
        if skip:
            skip = False
        elif i[0] == '$' and i[1] in names:
            skip = True
        else:
            kept.append(i)
    return tuple(kept)


def _number(r):
    """7.0 prints %.17g, 7.4 the shortest digits, and 8.0 also of places."""
    if r[0] not in '$,' or not isinstance(r[1], bytes) or not re.fullmatch(rb'-?\d+(\.\d+)?(e[+-]?\d+)?', r[1]):
        return r
    return r if float(r[1]) == 0 else (r[0], repr(float(r[1])).encode())


# In scripts: 8.0 knows one NaN, and Valkey does not speak of Redis.
SCRIPT_WORDS = [(b'-nan', b'nan'), (b'calling Redis command', b'calling command'),
                (b'Unknown Redis command', b'Unknown command'), (b'this redis lib call', b'this call'),
                (b'Lua redis lib command arguments', b'Command arguments')]
# Which fields of XINFO are not compared; 8.0 and Valkey know better what a group has read, and what not.
LEFT_OUT = {'old': NEW_FIELDS, 'redis 8': (b'lag', b'entries-read'), 'valkey': (b'lag', b'entries-read')}


def _other_words(r):
    if not isinstance(r[1], bytes):
        return r
    text = r[1]
    for ours, theirs in SCRIPT_WORDS:
        text = text.replace(ours, theirs)
    return r[0], text


def is_coordinate(name, text):
    """In the reply of EXEC nothing but their length tells coordinates from other numbers."""
    if name.startswith(b'GEO'):
        return re.fullmatch(rb'-?\d+\.\d+(e-\d+)?', text)
    return name == b'EXEC' and re.fullmatch(rb'-?\d+\.\d{11,}(e-\d+)?', text)


def reading(kind, argv, r):
    """A reply as both can have it: without what only one of them has, its doubles in one form."""
    name = argv[0].upper() if argv else b''
    if kind == 'like':
        return r
    if is_aggregate(r):
        items = _without(r[1], LEFT_OUT[kind]) if name in (b'XINFO', b'EXEC') else r[1]
        return r[0], tuple(reading(kind, argv, i) for i in items)
    if kind != 'old' and name.startswith((b'EVAL', b'FCALL')):
        r = _other_words(r)
    doubles = name.startswith((b'Z', b'BZ', b'GEO', b'EVAL', b'FCALL')) or name == b'EXEC'
    if kind == 'redis 8' and r[0] in '$,' and is_coordinate(name, r[1] or b''):
        return r[0], b'%.15f' % float(r[1])         # ours have 17 digits after the point, theirs 17 in all
    return _number(r) if doubles else r


# --- replies that differ -------------------------------------------------------------------------------------------

TEXTS = [       # command, ours, theirs; None: anything
    (rb'BITCOUNT|BITPOS', rb'ERR (value is not an integer|syntax error)', None),     # also of keys that are not there
    (rb'.*SCAN', rb'ERR invalid cursor', None),
    (rb'.*SCAN', None, rb'ERR invalid cursor'),
    (rb'.*', rb'ERR timeout is out of range', rb'ERR timeout is negative'),
    (rb'XREAD.*', rb'ERR Unbalanced', rb'ERR Unbalanced'),
    (rb'.*SCAN', rb'ERR NOVALUES', rb'ERR syntax error'),
    (rb'LREM|LPOS', rb'ERR value is out of range', None),
    (rb'COMMAND', None, rb'ERR Invalid number of arguments'),
]


def is_short_list(a, b):
    """Lists of 7.0 are always quicklists."""
    return (a[1], b[1]) == (b'listpack', b'quicklist')


def intended(argv, a, b):
    """Where Mayfly differs from 7.4 on purpose: a list that has shrunk is a listpack although Redis has several nodes
    of it, and numbers are read without looking at an old errno (SORT)."""
    name = argv[0].upper() if argv else b''
    if name == b'OBJECT':
        return is_short_list(a, b)
    return name.startswith(b'SORT') and is_error(b) and b[1].startswith(b'ERR One or more scores')


LATER_TEXTS = {     # likewise, of references newer than 7.4
    'redis 8': [
        (rb'XREAD.*', rb'ERR Unbalanced', rb'ERR Unbalanced'),
    ],
    'valkey': [
        (rb'XREAD.*', rb'ERR Unbalanced', rb'ERR Unbalanced'),
        (rb'EVALSHA.*', rb'NOSCRIPT No matching script\.', rb'NOSCRIPT No matching script\.'),
        (rb'MULTI|WATCH', rb'ERR .*MULTI', rb'ERR Command not allowed inside a transaction'),
        (rb'READONLY|READWRITE', rb'ERR This instance has cluster support disabled', None),
        (rb'BITCOUNT', rb'ERR syntax error', None),
    ],
}


def excused(kind, argv, a, b):
    """Whether `a` is what Mayfly answers, on purpose, where a reference of this kind answers `b`."""
    if kind == 'old':
        return differs(TEXTS, argv, a, b)
    if intended(argv, a, b):
        return True
    name = argv[0].upper() if argv else b''
    if kind == 'valkey' and name == b'OBJECT' and (a[0] == b[0] == ':' or {a[1], b[1]} == {b'embstr', b'raw'}):
        return True                                             # it shares no small integers, and embeds more
    if kind == 'redis 8' and [w.upper() for w in argv[:2]] == [b'DEBUG', b'DIGEST-VALUE']:
        return True                                             # over scores as text, which it writes another way
    if kind != 'like' and name == b'HELLO' and is_aggregate(a) and is_aggregate(b):
        return True                                             # a version of its own, and modules
    return kind != 'like' and differs(LATER_TEXTS[kind], argv, a, b)


def differs(texts, argv, a, b):
    """Whether a reference answers `b` where 7.4 answers `a`."""
    name = argv[0].upper() if argv else b''
    if a == b or (name == b'OBJECT' and is_short_list(a, b)):
        return True
    if name in (b'EXEC', b'EVAL', b'EVAL_RO') and is_aggregate(a) and is_aggregate(b):
        return len(a[1]) == len(b[1]) and all(x == y or differs(texts, (b'',), x, y) for x, y in zip(a[1], b[1]))
    def says(r, text):
        return text is None or (is_error(r) and re.match(text, r[1]))
    return any((not name or name.startswith(b'EVAL') or re.fullmatch(command, name)) and says(a, ours)
               and says(b, theirs) for command, ours, theirs in texts)


# --- schedules of several clients (tests/scenarios) ---------------------------------------------------------------

HEARD = [       # ours, theirs: a blocked XREADGROUP is run again in 7.4, and fails as if it had just been sent
    (rb"-(NOGROUP No such key [^\r]*|WRONGTYPE [^\r]*)\r",
     rb'-(UNBLOCKED the stream key|NOGROUP the consumer group|WRONGTYPE |NOGROUP No such key )[^\r]*\r'),
    (rb'-ERR timeout is out of range\r', rb'-ERR timeout is (negative|out of range)\r'),
]


def _replies_first(text):
    """What a client heard in one step, messages after replies: 7.0 sends those that the client's own command causes
    before the reply, or within it, 7.4 after it. What it heard in RESP2 is left as it is: there both are arrays."""
    replies, messages = [], []
    for item in re.split(rb'(?=(?:^|(?<=\r\n))>\d+\r\n)', text):
        head = re.match(rb'>(\d+)\r\n', item)
        end = head.end() if head else 0
        for _ in range(int(head[1]) if head else 0):            # bulk strings and numbers: messages hold nothing else
            bulk = re.compile(rb'\$(\d+)\r\n|[:_][^\r]*\r\n').match(item, end)
            if not bulk:
                return text
            end = bulk.end() + (int(bulk[1]) + 2 if bulk[1] else 0)
        messages.append(item[:end])
        replies.append(item[end:])
    return b''.join(replies + messages)


def heard_alike(ours, theirs):
    """What the clients heard, {name: bytes}."""
    def plain(text, side):
        for texts in HEARD:
            text = re.sub(texts[side], b'-', text)
        return _replies_first(text)
    return ours == theirs or (ours.keys() == theirs.keys() and
                              all(plain(ours[k], 0) == plain(theirs[k], 1) for k in ours))
