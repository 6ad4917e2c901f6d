"""Many connections at a time: their input shares blocks, their output buffers come from pools."""
import random

import pytest

from mayfly import encode, eventually, sanitized

SIZES = (1, 100, 900, 1100, 4000, 16_300, 17_000, 70_000)       # around the sizes of buffers


def used_memory(c):
    return int(c.call('INFO', 'memory').split(b'used_memory:')[1].split(b'\r\n')[0])


@pytest.mark.parametrize('seed', range(3))
def test_input_of_many_in_one_tick(server, raw, seed):
    """Whole requests, pipelines and pieces of requests, all read in the same tick, in several ticks."""
    rng = random.Random(seed)
    clients = [raw(server.port) for _ in range(120)]
    wanted = [[b'%d.' % i + b'x' * rng.choice(SIZES) for _ in range(rng.choice((1, 1, 2, 5)))]
              for i in range(len(clients))]
    texts = [b''.join(encode('ECHO', value) for value in values) for values in wanted]
    cuts = [sorted(rng.randrange(len(t) + 1) for _ in range(2)) for t in texts]
    with server.raw() as c:
        for first, second in ((0, 1), (1, 2), (2, 3)):
            c.command('DEBUG', 'SLEEP', 0.1)        # so that the parts arrive together
            for client, text, cut in zip(clients, texts, cuts):
                at = (0, *cut, len(text))
                client.send(text[at[first]:at[second]])
            assert c.reply() == b'OK'
    for client, values in zip(clients, wanted):
        assert [client.reply() for _ in values] == values


@pytest.mark.skipif(sanitized(), reason='used_memory is not exact')
def test_buffers_of_busy_connections_are_given_back(server, raw):
    clients = [raw(server.port) for _ in range(400)]
    with server.raw() as c:
        c.call('SET', 'small', 'x' * 100)
        c.call('SET', 'large', 'x' * 10_000)
        for client in clients:
            assert client.call('PING') == b'PONG'

        seen = [0]

        def steady():
            seen.append(used_memory(c))
            return abs(seen[-1] - seen[-2]) < 10_000 and seen[-1]

        before = eventually(steady, pause=1.2)      # buffers are given back once a second
        for key, bytes_each in (('small', 1024), ('large', 16 * 1024)):
            for _ in range(3):      # buffers follow the size of the last replies
                c.command('DEBUG', 'SLEEP', 0.05)
                for client in clients:
                    client.command('GET', key)
                busy = c.reply() and used_memory(c)     # after their tick, with the idle buffers
                for client in clients:
                    assert len(client.reply()) in (100, 10_000)
            assert busy - before < len(clients) * bytes_each * 1.3 + 300_000
        eventually(lambda: used_memory(c) < before + 100_000)
        for client in clients:
            client.close()
        eventually(lambda: used_memory(c) < before - len(clients) * 800)
