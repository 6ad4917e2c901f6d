"""A replica that only writes down what it is sent, and when."""
import threading

from mayfly import Raw, encode
from nodes import now_ms

DELETES = (b'DEL', b'UNLINK')


class Recorder(threading.Thread):
    """`stream` is [(time in ms, command as a list)], of all databases."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.link = Raw(node.port, 60)
        self.stream, self.stopping, self.problem = [], threading.Event(), None
        assert self.link.call('REPLCONF', 'listening-port', 1) == b'OK'
        self.link.command('PSYNC', '?', -1)                   # without "capa eof": the length comes first
        word, self.id, offset = self.line().split()
        assert word == b'+FULLRESYNC', word
        self.offset = int(offset)
        head = self.line()
        assert head[:1] == b'$', head
        self.rdb = self.link.exactly(int(head[1:]))
        self.start()
        threading.Thread(target=self.acknowledge, daemon=True).start()

    def line(self):
        """The next one, without the new lines that only say that the primary lives."""
        while (line := self.link.file.readline()) == b'\n':
            pass
        return line[:-2]

    def run(self):
        try:
            while True:
                command = self.link.reply()
                self.stream.append((now_ms(), command))
                self.offset += len(encode(*command))
        except Exception as e:                                # pylint: disable=broad-except
            if not self.stopping.is_set():
                self.problem = e

    def acknowledge(self):
        while not self.stopping.wait(0.2):
            try:
                self.link.command('REPLCONF', 'ACK', self.offset)
            except OSError:
                return

    def close(self):
        self.stopping.set()
        self.link.sock.shutdown(2)
        self.join()
        self.link.close()

    def deleted(self):
        """(time, key) of all that DEL and UNLINK took."""
        return [(at, key) for at, command in self.stream if command[0].upper() in DELETES for key in command[1:]]
