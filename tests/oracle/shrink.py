"""Finds a short sequence of operations that still shows a difference."""
import time

from gen import KEY_SET
from op import Op


def keys_of(op):
    if op.special:
        argv = getattr(op.special, 'head', [])
        return {a for a in argv[1:] if a in KEY_SET}
    return {a for argv, _ in op.cmds for a in argv[1:] if a in KEY_SET}


def related(history, keys):
    """Operations that touch these keys, those they were made from, and SELECTs."""
    keys, out = set(keys), []
    for op in reversed(history):
        mine = keys_of(op)
        if mine & keys:
            if len(mine) < 5:
                keys |= mine
            out.append(op)
        elif not op.special and op.cmds[0][0][0].upper() in (b'SELECT', b'FLUSHDB', b'FLUSHALL', b'SWAPDB'):
            out.append(op)
        elif op.special and not mine:
            out.append(op)
    return out[::-1]


class Shrinker:
    def __init__(self, pair, resp, signature, seconds):
        self.pair, self.resp, self.signature = pair, resp, signature
        self.deadline = time.time() + seconds
        self.last = None

    def fails(self, ops):
        """The operations up to the difference if there is one of the same kind."""
        self.pair.fresh(self.resp)
        diff = self.pair.run(ops)
        if diff is None or diff.signature() != self.signature:
            return None
        self.last = diff
        return ops[:diff.index + 1]

    def shrink(self, history):
        """A shorter failing sequence, or None when it doesn't fail again."""
        current = self.fails(related(history, keys_of(history[-1]))) or self.fails(history)
        if current is None:
            return None
        size = max(1, len(current) // 2)
        while time.time() < self.deadline:
            smaller = self.sweep(current, size)
            if smaller is not None:
                current = smaller
                size = max(1, min(size, len(current) // 2))
            elif size == 1:
                break
            else:
                size = max(1, size // 2)
        return self.shrink_arguments(current)

    def sweep(self, ops, size):
        """Removes every chunk of this size that isn't needed; None if none."""
        removed, start = False, len(ops) - 1 - size
        while start > -size and time.time() < self.deadline:
            low = max(0, start)
            kept = self.fails(ops[:low] + ops[start + size:])
            if kept is not None:
                ops, removed = kept, True
                start = min(start, len(ops) - 1)
            start -= size
        return ops if removed else None

    def shrink_arguments(self, ops):
        """Drops arguments from the end of long commands, in halves."""
        for i in range(len(ops)):
            if ops[i].special or len(ops[i].cmds) > 1:
                continue
            ops = self.shorten(ops, i)
            if i >= len(ops) - 1:
                break
        self.fails(ops)         # leaves self.last describing the final sequence
        return ops

    def shorten(self, ops, i):
        argv, rule = ops[i].cmds[0]
        size = len(argv) // 2
        while size >= 1 and time.time() < self.deadline:
            end = len(argv)
            while end > 2 and time.time() < self.deadline:
                low = max(2, end - size)
                shorter = argv[:low] + argv[end:]
                kept = self.fails(ops[:i] + [Op((shorter, rule))] + ops[i + 1:])
                if kept is not None and len(kept) > i:
                    argv, ops = shorter, kept
                end = low
            size //= 2
        return ops
