"""An operation: one or more commands that belong together.

Shrinking and mutation treat an operation as a unit, so commands whose rule
looks at an earlier reply, or that undo a divergence, stay together.
"""


class Op:
    __slots__ = ('cmds', 'special')

    def __init__(self, *cmds, special=None):
        self.cmds = [c if isinstance(c, tuple) else (c, None) for c in cmds]
        self.special = special      # an object with run(pair) -> Diff or None


def cli(arg):
    """An argument as redis-cli and shells read it."""
    text = arg.decode('latin-1')
    if text and text.isascii() and all(c.isalnum() or c in '._:-+/@%^=,' for c in text):
        return text
    out = ''
    for byte in arg:
        c = chr(byte)
        if c in '"\\':
            out += '\\' + c
        elif 32 <= byte < 127:
            out += c
        else:
            out += '\\x%02x' % byte
    return '"%s"' % out


def cli_line(argv):
    return ' '.join(cli(a) for a in argv)
