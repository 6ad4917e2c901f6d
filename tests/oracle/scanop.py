"""Iterating the SCAN family to completion on both servers."""
from op import cli_line
from resp import decode, encode, split

MAX_STEPS = 20000


def iterate(pair, conn, head, tail):
    """(error reply, set of items); hashes and sorted sets give pairs."""
    cursor, items = b'0', set()
    paired = head[0].upper() in (b'HSCAN', b'ZSCAN')
    for _ in range(MAX_STEPS):
        conn.send(encode(head + [cursor] + tail))
        raw = split(conn.receive())[0]
        reply = pair.reading(head, raw)
        if reply[0] == '-':
            return reply, items
        cursor = decode(raw)[1][0][1]
        found = reply[1][1][1]
        items.update(zip(found[::2], found[1::2]) if paired else found)
        if cursor == b'0':
            return None, items
    return ('-', b'oracle: iteration did not end'), items


class ScanOp:
    """Both sides must list the same elements; order, chunks and duplicates are free."""

    def __init__(self, head, tail):
        self.head, self.tail = head, tail

    def run(self, pair):
        error_a, a = iterate(pair, pair.a, self.head, self.tail)
        error_b, b = iterate(pair, pair.b, self.head, self.tail)
        if error_a == error_b and a == b:
            return None
        return pair.describe(self.argv(), error_a or ('only here', tuple(sorted(a - b, key=repr))),
                             error_b or ('only here', tuple(sorted(b - a, key=repr))))

    def argv(self):
        return self.head + [b'0'] + self.tail

    def __str__(self):
        return cli_line(self.argv()) + '   (iterated to the end)'
