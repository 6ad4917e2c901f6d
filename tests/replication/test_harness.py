"""The comparison finds what differs."""
import pytest

from datasets import compare, same


@pytest.mark.parametrize('change', [
    ('SET', 'a', 2), ('DEL', 'a'), ('SET', 'b', 1), ('PEXPIREAT', 't', 4_102_444_800_001), ('PERSIST', 't'),
    ('RPUSH', 'l', 'x'), ('ZADD', 'z', 1, 'm'), ('HSET', 'h', 'f', 2), ('SWAPDB', 0, 9), ('RENAME', 'l', 'm'),
], ids=lambda c: '-'.join(map(str, c[:2])))
def test_differences_are_found(change, node):
    both = node('redis'), node('redis')
    for n in both:
        for command in ('SET', 'a', 1), ('SET', 't', 1, 'PXAT', 4_102_444_800_000), ('RPUSH', 'l', 'y'), \
                       ('HSET', 'h', 'f', 1), ('ZADD', 'z', 0, 'm'):
            n.call(*command)
    assert same(*both) >= 5
    both[1].call(*change)
    with pytest.raises(AssertionError):
        compare(*both)
