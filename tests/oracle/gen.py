"""The seeded generator: value pools, key pools, families, mutation.

Families live in gen_*.py. Each function there takes a Gen and returns a
command (list of bytes), a (command, rule) pair, or an Op.
"""
import random
from bisect import bisect
from itertools import accumulate

from op import Op

# Keys of one type collide often; commands stray to other types' keys at times.
GENERAL = {t: [b'%s%d' % (t.encode(), i) for i in range(12)]
           for t in ('s', 'h', 'l', 't', 'z', 'x')}
GENERAL['p'] = [b'p%d' % i for i in range(5)]
BIG = {t: [b'big_%s%d' % (t.encode(), i) for i in range(2)] for t in 'hltzx'}
# Keys that only their own family writes, because some command is undefined or
# too expensive on arbitrary contents:
#   g geo (scores must be geohashes), zl (lex ranges need equal scores),
#   lcs (quadratic), so_* (numeric only), w_*/wh_* (SORT weights),
#   xa (IDs by the clock), xd (streams restored from the other's dump).
DEDICATED = {
    'g': [b'g%d' % i for i in range(5)],
    'zl': [b'zl%d' % i for i in range(4)],
    'lcs': [b'lcs%d' % i for i in range(5)],
    'xa': [b'xa0'], 'xd': [b'xd%d' % i for i in range(3)],
    'sol': [b'so_l0', b'so_l1'], 'sos': [b'so_s0', b'so_s1'], 'soz': [b'so_z0', b'so_z1'],
}
ODD_KEYS = [b'', b'\x00\xff\r\n', b'nokey', b'nokey2', b'key with space', b'k' * 300, b'{tag}x']
ALL_GENERAL = sum(GENERAL.values(), []) + ODD_KEYS
DELETABLE = ALL_GENERAL + sum(BIG.values(), []) + sum(DEDICATED.values(), [])
KEY_SET = {b'rawkey'} | set(DELETABLE) | {b'w_%d' % i for i in range(20)} | {b'wh_%d' % i for i in range(20)} | {b'so_d'}

I64 = [b'9223372036854775807', b'-9223372036854775808', b'9223372036854775806',
       b'9223372036854775808', b'-9223372036854775809', b'-9223372036854775807',
       b'18446744073709551615', b'18446744073709551616']
NOT_INT = [b'abc', b'', b'1.5', b' 1', b'1 ', b'+1', b'-0', b'00', b'01', b'0x10', b'1e3',
           b'nan', b'--1', b'\x001', b'1\x00']
FLOATS = [b'0', b'1', b'-1', b'1.5', b'-2.25', b'3.0', b'0.1', b'1e5', b'1E-3', b'3.141592653589793',
          b'100', b'7', b'7.0', b'-0', b'-0.0', b'2', b'10', b'1e17', b'123456789012345678', b'5e-324',
          b'1.7976931348623157e308', b'0.30000000000000004', b'4.9', b'12345.678', b'1e21', b'1e-7']
ODD_FLOATS = [b'inf', b'-inf', b'+inf', b'INF', b'infinity', b'-Infinity', b'nan', b'NaN', b'-nan',
              b'1e400', b'-1e400', b'1e-400', b'0x1p3', b'0x10', b' 1', b'1 ', b'', b'abc', b'1.5.5',
              b'1e', b'.5', b'5.', b'+5', b'1,5', b'\x00', b'1\x00', b'9' * 400, b'0' * 300 + b'1']
WORDS = [b'a', b'b', b'c', b'd', b'aa', b'ab', b'foo', b'bar', b'hello', b'hello world', b'A', b'Foo',
         b'zeta', b'x', b'y', b'z']
BINARY = [b'\x00', b'\x00\x01\x02', b'\xff\xfe', b'a\x00b', b'a\x00c', b'\r\n', b'"quoted"', b"it's",
          b'\x80\x81', 'größe'.encode(), b'$5\r\nhello\r\n', b'\x7f', b'tab\there']
SIZED = [bytes([97 + n % 26]) * n for n in
         (11, 12, 20, 21, 43, 44, 45, 62, 63, 64, 65, 66, 100, 127, 128, 129, 254, 255, 300)]
LARGE = [b'L' * 2000, b'M' * 4090, b'N' * 8192, b'q' * 8000, b'R' * 9000]
OPTION_JUNK = [b'', b'foo', b'-1', b'0', b'NX', b'XX', b'LIMIT', b'COUNT', b'WITHSCORES', b'GET', b'\x00']
NASTY = I64 + NOT_INT + ODD_FLOATS + BINARY + [b'0', b'1', b'-1', b'2', b'(1', b'[a', b'-', b'+', b'*']
SMALL = [b'%d' % i for i in range(-3, 15)]
NUMBERS = [b'%d' % i for i in range(-20, 400)]


class Family:
    def __init__(self, name, weight):
        self.name, self.weight, self.entries = name, weight, []

    def add(self, weight=1, mutate=True):
        def register(fn):
            self.entries.append((weight, fn, mutate))
            return fn
        return register


FAMILIES = {}


def family(name, weight=1.0):
    FAMILIES[name] = Family(name, weight)
    return FAMILIES[name]


GROUPS = ('multi', 'protocol', 'scan', 'blocking', 'script')


def choices(families):
    """(cumulative weights, functions) of these families together."""
    table = []
    for name in families:
        fam = FAMILIES[name]
        total = sum(w for w, _, _ in fam.entries)
        table += [(fam.weight * w / total, fn, mutate) for w, fn, mutate in fam.entries]
    return list(accumulate(w for w, _, _ in table)), [(fn, mutate) for _, fn, mutate in table]


class Gen:
    def __init__(self, seed, families):
        self.rng = random.Random(seed)
        self.random = self.rng.random
        self.table = choices(families)
        # What plain() draws from: families of single commands.
        self.plain_table = choices([f for f in families if f not in GROUPS] or ['string'])

    # --- small helpers: randrange and choice are several times slower -------
    def n(self, limit):
        return int(self.random() * limit)

    def p(self, probability):
        return self.random() < probability

    def pick(self, seq):
        return seq[int(self.random() * len(seq))]

    def num(self, low, high):
        return b'%d' % (low + int(self.random() * (high - low + 1)))

    def some(self, fn, high, low=1):
        return [fn() for _ in range(low + int(self.random() * (high - low + 1)))]

    # --- arguments ---------------------------------------------------------
    def key(self, kind, cross=0.05):
        """A key of this kind, at times one of another type or an odd one."""
        r = self.random()
        if r < cross:
            return self.pick(ALL_GENERAL)
        if r > 0.98 and kind in BIG:
            return self.pick(BIG[kind])
        # Skewed: a few keys live long and grow, the others stay small or missing.
        pool, r = GENERAL[kind], self.random()
        return pool[int(r * r * r * len(pool))]

    def dest(self, kind):
        """A key that gets overwritten: strays rarely, or all types would mix."""
        return self.key(kind, 0.01)

    def any_key(self):
        return self.pick(ALL_GENERAL)

    def own(self, kind, cross=0.03):
        """A key of a dedicated pool, or a key of some unrelated type."""
        if self.random() < cross:
            return self.pick(GENERAL[self.pick('hlt')])
        return self.pick(DEDICATED[kind])

    def val(self):
        r = self.random()
        if r < 0.30:
            return self.pick(NUMBERS)
        if r < 0.55:
            return self.pick(WORDS)
        if r < 0.65:
            return self.pick(SIZED)
        if r < 0.72:
            return self.pick(BINARY)
        if r < 0.76:
            return self.pick(I64)
        if r < 0.82:
            return self.pick(FLOATS)
        if r < 0.84:
            return b''
        if r < 0.845:
            return self.pick(LARGE)
        return b'v%d' % self.n(5000)

    def member(self):
        """Collides often: the members of hashes, sets and sorted sets."""
        r = self.random()
        if r < 0.50:
            return b'm%d' % self.n(20)
        if r < 0.70:
            return self.pick(NUMBERS) if r < 0.54 else self.pick(SMALL)
        if r < 0.985:
            return self.pick(WORDS)
        return self.val()

    def intset_member(self):
        r = self.random()
        if r < 0.9:
            return self.num(-20, 60)
        if r < 0.97:
            return b'%d' % self.pick((32767, 32768, -32768, -32769, 2147483647, 2147483648,
                                      -2147483649, 9223372036854775807, -9223372036854775808))
        return self.member()

    def integer(self):
        r = self.random()
        if r < 0.80:
            return self.num(-100, 1000)
        if r < 0.92:
            return self.pick(I64)
        return self.pick(NOT_INT)

    def index(self):
        r = self.random()
        if r < 0.93:
            return self.num(-12, 12)
        if r < 0.96:
            return self.num(-300, 300)
        if r < 0.98:
            return self.pick(I64)
        return self.pick(NOT_INT)

    def count(self):
        """A small count, sometimes zero, negative or not a number."""
        r = self.random()
        if r < 0.88:
            return self.num(0, 6)
        if r < 0.93:
            return self.num(7, 300)
        if r < 0.96:
            return self.num(-5, -1)
        if r < 0.98:
            return self.pick(I64)
        return self.pick(NOT_INT)

    def score(self):
        r = self.random()
        if r < 0.60:
            return self.num(-10, 30)
        if r < 0.95:
            return self.pick(FLOATS)
        return self.pick(ODD_FLOATS)

    def float(self):
        return self.pick(FLOATS) if self.random() < 0.85 else self.pick(ODD_FLOATS)

    def opt(self, token):
        """An option, sometimes in odd case or misspelt."""
        r = self.random()
        if r < 0.80:
            return token
        if r < 0.99:
            return token.lower() if r < 0.9 else self.odd_case(token)
        return token + b'X'

    def odd_case(self, token):
        return bytes(c ^ 32 if (65 <= c <= 90 or 97 <= c <= 122) and self.random() < 0.5 else c
                     for c in token)

    def options(self, *choices, p=0.3):
        """Each choice (a token or a list of tokens) appears with probability p."""
        out = []
        for c in choices:
            if self.random() < p:
                c = c() if callable(c) else c
                if isinstance(c, bytes):
                    out.append(self.opt(c))
                else:
                    out.append(self.opt(c[0]))
                    out += c[1:]
        if len(out) > 1 and self.random() < 0.2:
            self.rng.shuffle(out)
        return out

    # Deadlines: relative ones are long and random, so that the few ms between
    # the two servers can't decide a command (GT, LT); absolute ones lie beyond
    # compare.FAR_MS so that they can be compared exactly.
    def rel_s(self):
        return self.num(10_000, 1_500_000_000) if self.random() < 0.85 else self.bad_rel()

    def rel_ms(self):
        return self.num(10_000_000, 1_500_000_000_000) if self.random() < 0.85 else self.bad_rel_ms()

    def bad_rel_ms(self):
        bad = self.bad_rel()
        # As milliseconds this one is valid, and far enough to look absolute.
        return bad if bad != b'9223372036854775' else b'-5'

    def bad_rel(self):
        return self.pick((b'0', b'-1', b'-1000', b'9223372036854775807', b'9223372036854775',
                          b'-9223372036854775808', b'-9223372036854775', b'abc', b'1.5', b'',
                          b'9223372036854775808'))

    def abs_s(self):
        return self.num(4_100_000_000, 40_000_000_000)

    def abs_ms(self):
        return self.num(4_100_000_000_000, 40_000_000_000_000)

    def bad_abs(self):
        """Invalid deadlines; none of them is valid but past."""
        return self.pick((b'0', b'-1', b'abc', b'1.5', b'', b'9223372036854775808',
                          b'-9223372036854775808'))

    # --- the stream ----------------------------------------------------------
    def next(self, table=None):
        cumulative, functions = table or self.table
        fn, mutate = functions[bisect(cumulative, self.random() * cumulative[-1])]
        made = fn(self)
        if isinstance(made, list):
            return Op((self.mutate(made, mutate), None))
        if isinstance(made, tuple):
            return Op((self.mutate(made[0], mutate), made[1]))
        if self.random() < 0.05:
            for argv, _ in made.cmds:
                argv[0] = self.odd_case(argv[0])
        return made

    def mutate(self, argv, deep):
        r = self.random()
        if r > 0.12:
            return argv
        if r > 0.03:
            argv[0] = argv[0].lower() if r > 0.06 else self.odd_case(argv[0])
        elif r > 0.02:
            argv.append(self.pick(OPTION_JUNK))
        elif r > 0.01:
            if len(argv) > 1:
                argv.pop()
        elif deep and len(argv) > 1:
            i = 1 + self.n(len(argv) - 1)
            argv[i] = self.any_key() if i == 1 else self.pick(NASTY)
        return argv

    def plain(self):
        """A single command and its rule, for use inside MULTI."""
        while True:
            op = self.next(self.plain_table)
            if op.special is None and len(op.cmds) == 1:
                return op.cmds[0]
