"""The same conversation with two servers: what each client hears after each step must be equal, byte for byte.

A step is 'a: SUBSCRIBE x', or several requests sent at once, 'a: MULTI | PUBLISH x 1 | EXEC'. After each step every
client sends a PING of its own, and what came before its answer is what the step has brought it: so no step may leave
a client unable to answer (blocked, in MULTI, with CLIENT REPLY OFF).
"""
import re
import shlex

import mayfly

FIRST_ID = 300


class Talker:
    """A client of one of the servers."""

    def __init__(self, server):
        self.raw = server.raw()
        self.id = self.raw.call('CLIENT', 'ID')
        self.seen = b''

    def send(self, requests, ids):
        data = b''
        for request in requests.split(' | '):
            data += mayfly.encode(*(ids.get(w, w) for w in shlex.split(request)))
        self.raw.send(data)

    def heard(self, token):
        """Everything until the answer to a PING."""
        self.raw.command('PING', token)
        end = re.compile(rb'(\*2\r\n\$4\r\npong\r\n)?\$%d\r\n%s\r\n' % (len(token), token))
        while not (found := end.search(self.seen)):
            more = self.raw.sock.recv(1 << 16)
            if not more:
                return self.seen + b'(closed)'
            self.seen += more
        text = self.seen[:found.start()]
        self.seen = self.seen[found.end():]
        return text


class Duo:
    """Both servers, and the clients a, b, c … of each. Numbers of clients are called #a, #b …"""

    def __init__(self, *servers):
        self.servers = servers
        self.clients = [{} for _ in servers]
        self.ids = [{} for _ in servers]
        self.witnesses = [server.raw() for server in servers]
        self.steps = 0
        for server in servers:                         # numbers that can't be taken for counts
            while True:
                with server.raw() as c:
                    if c.call('CLIENT', 'ID') >= FIRST_ID:
                        break

    def close(self):
        for witness in self.witnesses:
            witness.close()
        for clients in self.clients:
            for talker in clients.values():
                talker.raw.close()

    def leave(self, name):
        """A client goes."""
        for server, clients in zip(self.servers, self.clients):
            talker = clients.pop(name)
            talker.raw.close()
            with server.client() as r:
                mayfly.eventually(lambda r=r, n=talker.id: not any(int(c['id']) == n for c in r.client_list()))

    def step(self, step):
        name, requests = step.split(': ', 1)
        self.steps += 1
        heard = []
        for server, clients, ids, witness in zip(self.servers, self.clients, self.ids, self.witnesses):
            if name not in clients:
                clients[name] = Talker(server)
                ids[f'#{name}'] = clients[name].id
            clients[name].send(requests, ids)
            witness.call('PING')                       # once it is answered, the turn of those requests is over
            token = b'step %d' % self.steps
            first = clients[name].heard(token)
            told = {n: (first if n == name else t.heard(token)) for n, t in clients.items()}
            heard.append({n: self.plain(text, ids) for n, text in told.items()})
        assert heard[0] == heard[1], f'{step}\n   ours: {heard[0]}\n theirs: {heard[1]}'
        return heard[0]

    @staticmethod
    def plain(text, ids):
        """Without what differs between servers: numbers of clients, versions, modules (8.0 has one built in)."""
        for name, number in ids.items():
            text = text.replace(b':%d\r\n' % number, b':(%s)\r\n' % name.encode())
        text = re.sub(rb'version\r\n\$\d+\r\n[\d.]+', b'version', text)
        return re.sub(rb'modules\r\n\*1\r\n.*?args\r\n\*0\r\n', rb'modules\r\n*0\r\n', text, flags=re.S)

    def talk(self, steps):
        for step in steps.strip().split('\n'):
            if step.strip() and not mayfly.not_in_a_cluster(step):
                self.step(step.strip())
