"""Tests of the test harness: errors that the load's verification must notice."""
import time

import pytest

import mayfly
from load import Link, Load, Sent
from machine import MEMORY


@pytest.fixture
def loaded(machines):
    """A server, and a load that has run on it for a while."""
    m = machines(MEMORY, 'no').start()
    load = Load('harness', clients=2)
    load.start(m.port)
    time.sleep(0.1)
    load.join(ask=True)
    assert load.refusals() == 0
    load.settle(m.port)
    with Link(m.port) as link:
        yield m, load, link


def put(load, link, *commands):
    """Commands of the first client, which it knows about."""
    c = load.clients[0]
    c.selected, c.errors = None, []
    c.send(link, [Sent(0, args) for args in commands])


def settle_fails(m, load):
    with pytest.raises(AssertionError, match='is what the server shows'):
        load.settle(m.port)


def test_sound(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1'), ('DEL', b'x'), ('SET', b'x', b'2'))
    assert load.settle(m.port) == (3, 0)


def test_lost_write(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1'), ('SET', b'x', b'2'))
    link.call('SET', b'x', b'1')
    settle_fails(m, load)


def test_unanswered_write_may_be_missing(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1'), ('SET', b'x', b'2'))
    load.clients[0].history[-1].answered = None
    link.call('SET', b'x', b'1')
    assert load.settle(m.port)[0] == 1


def test_order_within_a_client(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1'), ('SET', b'y', b'1'))
    for s in load.clients[0].history:
        s.answered = None
    link.call('DEL', b'x')                           # the first is missing, the second there
    settle_fails(m, load)


def test_order_across_clients(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1'))
    load.clients.reverse()
    time.sleep(0.001)
    put(load, link, ('SET', b'x', b'1'))             # sent after the other was answered
    load.clients.reverse()
    link.many([('SELECT', load.clients[0].first_db), ('DEL', b'x')])
    with pytest.raises(AssertionError, match='a later command'):
        load.settle(m.port, must=lambda s: False)


def test_resurrection(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1'), ('DEL', b'x'))
    link.call('SET', b'x', b'1')
    settle_fails(m, load)


def test_half_a_command(loaded):
    m, load, link = loaded
    put(load, link, ('SADD', b's', b'a', b'b'))
    link.call('SREM', b's', b'b')
    settle_fails(m, load)


def test_shown_after_its_deadline(loaded):
    m, load, link = loaded
    soon = int(time.time() * 1000) + 30
    put(load, link, ('SET', b'x', b'1', 'PXAT', soon))
    time.sleep(0.1)
    link.call('SET', b'x', b'1')
    settle_fails(m, load)


def test_gone_before_its_deadline(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1', 'PXAT', int(time.time() * 1000) + 60000))
    link.call('DEL', b'x')
    settle_fails(m, load)


def test_a_deadline_that_was_lost(loaded):
    m, load, link = loaded
    put(load, link, ('HSET', b'h', b'a', b'1', b'b', b'2'),
        ('HPEXPIREAT', b'h', int(time.time() * 1000) + 60000, 'FIELDS', 1, b'a'))
    link.call('HPERSIST', b'h', 'FIELDS', 1, b'a')
    settle_fails(m, load)


# -- commands that were refused, and perhaps done all the same -----------------------------------------------

class Liar(Link):
    """Says of the next replies that they were errors."""
    lies = 0

    def reply(self):
        reply = super().reply()
        if not self.lies:
            return reply
        self.lies -= 1
        return mayfly.ReplyError('MISCONF says the liar')


def lie_to(c, link, lies):
    """The client will take the next replies for errors, of which it does not know what they mean."""
    c.doubtful, c.selected, c.errors = ('MISCONF',), None, []
    c.select(link, 0)
    link.lies = lies


def test_refused_and_done(loaded):
    m, load, _ = loaded
    c = load.clients[0]
    with Liar(m.port) as link:
        lie_to(c, link, 2)
        c.send(link, [Sent(0, args) for args in (('SET', b'x', b'1'), ('RPUSH', b'l', b'1'), ('RPUSH', b'l', b'2'))])
    assert [(s.answered is None, s.refused) for s in c.history[-3:]] == [(True, False), (True, False), (False, False)]
    assert load.settle(m.port) == (3, 0)
    with Liar(m.port) as link:
        lie_to(c, link, 1)
        c.send(link, [Sent(0, ('RPUSH', b'l', b'3'))])
        c.select(link, 0)
        link.call('RPOP', b'l')                      # it was not promised, and is lost
    assert load.settle(m.port) == (0, 0)


def test_refused_and_nobody_to_ask(loaded):
    m, load, _ = loaded
    c = load.clients[0]
    with Liar(m.port) as link:
        lie_to(c, link, 2)
        link.many = lambda commands: (_ for _ in ()).throw(ConnectionResetError())
        with pytest.raises(ConnectionResetError):
            c.send(link, [Sent(0, args) for args in (('SET', b'x', b'1'), ('SET', b'y', b'1'))])
    assert load.settle(m.port) == (2, 0)              # they may be there


def test_refused_and_not_done(loaded):
    m, load, link = loaded
    load.clients[0].doubtful = ('OOM',)
    put(load, link, ('SET', b'x', b'1'))
    link.call('CONFIG', 'SET', 'maxmemory', 1)
    put(load, link, ('SET', b'x', b'2'), ('RPUSH', b'l', b'1'))
    link.call('CONFIG', 'SET', 'maxmemory', 0)
    put(load, link, ('SET', b'y', b'1'))
    assert [s.refused for s in load.clients[0].history[-4:]] == [False, True, True, False]
    assert load.settle(m.port)[1] == 0
    put(load, link, ('SET', b'x', b'3'))
    link.many([('SELECT', load.clients[0].first_db), ('SET', b'x', b'2')])
    settle_fails(m, load)


def test_a_command_on_the_dead(loaded):
    m, load, link = loaded
    soon = int(time.time() * 1000) + 30
    put(load, link, ('SET', b'x', b'1', 'PXAT', soon))
    time.sleep(0.2)
    put(load, link, ('DEAD', soon + 50, 'APPEND', b'x', b'2'))
    assert load.settle(m.port)[1] == 0
    link.call('SET', b'x', b'12')                    # as if it had been alive
    settle_fails(m, load)


def test_what_a_snapshot_may_not_have(loaded):
    m, load, link = loaded
    put(load, link, ('SET', b'x', b'1'))
    time.sleep(0.001)
    moment = time.monotonic()
    put(load, link, ('SET', b'x', b'2'))
    with pytest.raises(AssertionError, match='is what the server shows'):
        load.settle(m.port, must=lambda s: False, must_not=lambda s: s.sent > moment)
