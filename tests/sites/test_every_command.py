"""Every write command, at a site: its outcome reaches the other site, or it is refused with a message."""
import os
import re

import pytest
import redis

import mayfly
from mayfly import eventually

# What is there before: a string s, a counter n, a hash h, sets a and b, a sorted set z, a list l, a stream x,
# a hash e whose field has a deadline.
BEFORE = """SET s hello | SET n 5 | HSET h f v g 2 | SADD a 1 2 3 | SADD b 2 3 4 | ZADD z 1 a 2 b 3 c | RPUSH l a b c d
XADD x 1-1 f v | XADD x 2-1 f v | PFADD p a b | SET t v EX 1000 | HSETEX e EX 1000 FIELDS 1 f v | GEOADD g 13.4 52.5 berlin""".replace('\n', '|')

EXAMPLES = """append s x | bitfield s SET u8 0 65 | bitop NOT d s | blmove l d LEFT RIGHT 1 | blmpop 1 1 l LEFT | blpop l 1 | brpop l 1
brpoplpush l d 1 | bzmpop 1 1 z MIN | bzpopmax z 1 | bzpopmin z 1 | copy s d | decr n | decrby n 3 | del h | expire s 500
expireat s 4000000000 | flushall | flushdb | geoadd g 2.3 48.8 paris | georadius g 13 52 900 km STORE d
georadiusbymember g berlin 9 km STORE d | geosearchstore d g FROMMEMBER berlin BYRADIUS 9 km ASC | getdel s | getex s EX 900 | getset s w
hdel h f | hexpire h 900 FIELDS 1 f | hexpireat h 4000000000 FIELDS 1 f | hpexpire h 900000 FIELDS 1 f
hpexpireat h 4000000000000 FIELDS 2 f g | hgetex h EX 900 FIELDS 1 f | hsetex h EX 900 FIELDS 1 f v | hpersist e FIELDS 1 f
hgetdel h FIELDS 1 f | hincrby h g 4 | hincrbyfloat h g 1.5 | hmset h a b | hset h f w | hsetnx h new v | incr n
incrby n 7 | incrbyfloat n 1.25 | linsert l BEFORE b x | lmove l d LEFT LEFT | lmpop 1 l RIGHT COUNT 2 | lpop l 2 | lpush l y z
lpushx l y | lrem l 1 b | lset l 1 q | ltrim l 1 2 | move s 3 | mset k1 v k2 v | msetnx k3 v k4 v | persist t | pexpire s 400000
pexpireat s 4000000000000 | pfadd p c d | pfmerge q p | psetex s 90000 v | rename s d | renamenx s d | rpop l | rpoplpush l d
rpush l e | rpushx l e | sadd a 9 | sdiffstore d a b | set s new | setbit s 5 1 | setex s 100 v | setnx new v | setrange s 2 zz
sinterstore d a b | smove a b 1 | sort a STORE d | spop a | srem a 1 | sunionstore d a b | unlink s | xadd x 3-1 f w | xdel x 1-1
xsetid x 9-9 | xtrim x MAXLEN 1 | zadd z 9 d | zdiffstore d 1 z | zincrby z 2.5 a | zinterstore d 1 z | zmpop 1 z MAX
zpopmax z | zpopmin z 2 | zrangestore d z 0 1 | zrem z a | zremrangebylex z - + | zremrangebyrank z 0 0 | zremrangebyscore z 1 2
zunionstore d 2 z z""".replace('\n', ' | ')

REFUSED = 'swapdb 0 1'

# Groups are a site's own; the others need something that an example line can't say, and have tests of their own or are
# made of commands that are here.
ELSEWHERE = 'xack xautoclaim xclaim xreadgroup restore restore-asking migrate pfdebug'.split()


def lines(text):
    return [line.split() for line in text.split(' | ')]


def test_all_are_here(site):
    """No write command is without an example; and the document tells of each."""
    s = site(1)
    with s.raw() as c:
        every = {name.decode() for name, _, flags, *_ in (e[:7] for e in c.call('COMMAND')) if b'write' in flags}
    named = {words[0] for words in lines(EXAMPLES) + lines(REFUSED)} | set(ELSEWHERE)
    assert every - named == set() and named - every == set()
    with open(os.path.join(mayfly.ROOT, 'docs', 'sites.md'), encoding='utf-8') as f:
        told = set(re.findall(r'`([a-z-]+)`', f.read()))
    assert every - told == set()


def test_each_reaches_the_other_site(group):
    g = group(2)
    a, b = g.sites
    for words in lines(EXAMPLES):
        for each in BEFORE.split('|'):
            a.do(*each.split())
        g.agree()
        before = a.clock[1]
        with a.raw() as c:
            answer = c.call(*words)
        assert not isinstance(answer, mayfly.ReplyError), (words, answer)
        assert a.clock[1] > before, words
        g.agree()
        a.r.flushall()
        with b.client(db=3) as other:
            eventually(lambda other=other: other.dbsize() == 0 and b.r.dbsize() == 0)


@pytest.mark.parametrize('words', lines(REFUSED), ids=lambda w: w[0])
def test_refused(site, words):
    s = site(1)
    s.r.hset('h', 'f', 'v')
    before = s.clock
    with pytest.raises(redis.ResponseError, match='not supported with active-active replication'):
        s.do(*words)
    with pytest.raises(redis.ResponseError, match='not supported with active-active replication'):
        s.r.eval('return redis.call(unpack(ARGV))', 0, *words)
    assert s.clock == before and s.r.hget('h', 'f') == 'v'


def test_dumps_and_groups(group):
    g = group(2)
    a, b = g.sites
    a.r.rpush('l', 'a', 'b')
    with a.client() as raw:
        a_dump = raw.dump('l')
        raw.restore('copy', 100_000, a_dump)
    a.do('XADD', 'x', '1-1', 'f', 'v')
    g.agree()
    assert b.r.lrange('copy', 0, -1) == ['a', 'b'] and b.r.pttl('copy') > 0
    for s in g.sites:
        s.do('XGROUP', 'CREATE', 'x', 'workers', 0)
        got = s.do('XREADGROUP', 'GROUP', 'workers', 'w', 'STREAMS', 'x', '>')
        assert len(got) == 1                    # each site delivers it
        assert s.do('XACK', 'x', 'workers', '1-1') == 1
    g.agree()
