"""AOF folders and RDB files that were damaged while no server was running: the server starts with all of it, with a
consistent beginning of it where a crash can have cut it off, or not at all, and says why and where."""
import concurrent.futures
import mmap
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import everything
import machine
import mayfly
from everything import look, run, same
from mayfly import Raw, eventually

NAME = 'appendonly.aof'
FOLDER = 'appendonlydir'
MANIFEST = f'{NAME}.manifest'
READY = b'Ready to accept connections'
STEPS = 40                                          # of the history that truncation cuts through
WORKERS = 2


def fast_place():
    return '/dev/shm' if os.access('/dev/shm', os.W_OK) else None


class Place:
    """A working folder, and servers that start on it for as long as it takes to load."""

    def __init__(self, *args, template=None):
        self.own = tempfile.mkdtemp(prefix='mayfly-aof-', dir=fast_place())
        self.dir, self.args = os.path.join(self.own, 'data'), args
        if template:
            self.put_back(template)
        else:
            os.mkdir(self.dir)

    @property
    def socket(self):
        return os.path.join(self.own, 's')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.own, ignore_errors=True)

    def put_back(self, template):
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.copytree(template, self.dir)

    def path(self, name=''):
        return os.path.join(self.dir, name if name.endswith('.rdb') and 'base' not in name else f'{FOLDER}/{name}')

    def server(self, *more, env=None):
        args = [mayfly.BINARY, '--port', '0', '--unixsocket', self.socket, '--dir', self.dir, '--save', '',
                '--appendfsync', 'no', '--enable-debug-command', 'yes', '--enable-protected-configs', 'yes',
                *self.args, *more]
        return subprocess.Popen([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, cwd='/', env={**os.environ, **(env or {})})

    def start(self, *more, then=None, env=None):
        """(exit code, log), or (None, what `then` returns) of a server that loads; it is killed afterwards."""
        proc = self.server(*more, env=env)
        text = b''
        try:
            for line in proc.stdout:
                text += line
                if READY in line:
                    return None, then(Served(self.socket)) if then else text.decode('utf-8', 'replace')
            return proc.wait(), text.decode('utf-8', 'replace')
        finally:
            proc.kill()
            proc.wait()
            proc.stdout.close()

    def files(self):
        """{name: content} of everything there."""
        found = {}
        for folder, _, names in os.walk(self.dir):
            for n in names:
                path = os.path.join(folder, n)
                if os.path.isfile(path):
                    found[os.path.relpath(path, self.dir)] = open(path, 'rb').read()
        return found


class Served:
    """What everything.look() wants of a server."""

    def __init__(self, port):
        self.port = port


def seen(served):
    return look(served, range(4))


# -- a folder with some history ------------------------------------------------------------------------

def first_data():
    for i in range(300):
        yield 'SET', f'string:{i}', f'{i}' * (i % 40 + 1)
        yield 'RPUSH', f'list:{i % 20}', i, 'x' * i
        yield 'HSET', f'hash:{i % 30}', f'field:{i}', f'value {i}'
        yield 'ZADD', f'zset:{i % 10}', i / 3, f'member:{i}'
        yield 'SADD', f'set:{i % 10}', i, f'member:{i % 50}'
    yield 'SET', 'large', everything.noise(20_000)
    for i in range(50):
        yield 'PEXPIREAT', f'string:{i}', everything.FAR + i
    yield 'HPEXPIREAT', 'hash:1', everything.FAR, 'FIELDS', 1, 'field:1'


def more_data(tag):
    yield 'SELECT', 1
    for i in range(150):
        yield 'SET', f'{tag}:{i}', f'{tag} ' * (i % 30)
        yield 'LPUSH', f'{tag}:list', i
        yield 'INCR', f'{tag}:counter'
    yield 'SELECT', 2
    yield 'MSET', *[x for i in range(100) for x in (f'{tag}:m{i}', i)]
    yield 'SELECT', 0
    yield 'SADD', f'{tag}:set', *range(50)
    yield 'SPOP', f'{tag}:set', 10
    yield 'EXPIRE', f'{tag}:set', 100_000
    yield 'DEL', *[f'string:{i}' for i in range(100, 120)]


def step(i):
    """A little change of several keys in one command, whatever its kind."""
    return [('MSET', 'step', i, f'step:{i}', 'x' * (i % 7)), ('RPUSH', 'steps', i, i),
            ('ZADD', 'steps:z', i, f'm{i}', i + 1, 'last'), ('SPOP', 'steps:s', 2)][i % 4]


class History:
    """A folder with a base and three increments, and what it held after each part and each of its last steps."""

    def __init__(self, preamble):
        self.place = Place('--aof-use-rdb-preamble', preamble)
        self.parts, self.states, self.sizes = [], [], []
        self.session(first_data(), ending=self.rewrite)
        self.session(more_data('one'), ending=self.die_while_rewriting)
        self.session(more_data('two'), ending=self.die_while_rewriting)
        self.session(more_data('three'))
        self.session([('SADD', 'steps:s', *range(1000))], ending=self.steps)
        self.data = self.states[-1]
        self.parts.append(self.data)
        self.files = sorted(os.listdir(self.place.path()))
        self.increments = [f for f in self.files if '.incr.' in f]
        self.base = next(f for f in self.files if '.base.' in f)
        assert len(self.increments) == 3, self.files

    def session(self, commands, ending=None):
        proc = self.place.server()
        try:
            for line in proc.stdout:
                if READY in line:
                    break
            else:
                raise AssertionError('it did not start')
            with Raw(self.place.socket) as c:
                run(c, commands)
                self.parts.append(seen(Served(self.place.socket)))
                if ending:
                    ending(c)
        finally:
            proc.send_signal(signal.SIGKILL)
            proc.wait()
            proc.stdout.close()

    @staticmethod
    def rewrite(c):
        assert not isinstance(c.call('BGREWRITEAOF'), mayfly.ReplyError)
        eventually(lambda: b'aof_rewrite_in_progress:0' in c.call('INFO', 'persistence'))
        assert b'aof_rewrites:1' in c.call('INFO', 'persistence')

    @staticmethod
    def die_while_rewriting(c):
        run(c, [('CONFIG', 'SET', 'rdb-key-save-delay', 1_000_000), ('BGREWRITEAOF',)])
        eventually(lambda: b'aof_rewrite_in_progress:1' in c.call('INFO', 'persistence'))

    def steps(self, c):
        """One tick each: what is there after each of them, and how long the file is then."""
        newest = sorted(f for f in os.listdir(self.place.path()) if '.incr.' in f)[-1]
        for i in range(STEPS + 1):
            if i:
                run(c, [step(i)])
            self.states.append(seen(Served(self.place.socket)))
            self.sizes.append(os.path.getsize(self.place.path(newest)))

    def remove(self):
        self.place.__exit__()


@pytest.fixture(scope='module', params=['yes', 'no'], ids=['rdb-base', 'command-base'])
def history(request):
    h = History(request.param)
    yield h
    h.remove()


@pytest.fixture
def place(history):
    with Place(template=history.place.dir) as p:
        yield p


def refused(outcome, *words, code=1):
    """It did not start, and says so; no sanitizer complained."""
    assert outcome[0] == code, f'exit code {outcome[0]}:\n{str(outcome[1])[:3000]}'
    for word in ('Exiting.', *words):
        assert word in outcome[1], f'no "{word}" in:\n{outcome[1]}'
    assert 'AddressSanitizer' not in outcome[1] and 'runtime error' not in outcome[1], outcome[1]


def test_the_folder_is_sound(history, place):
    assert place.start(then=seen) == (None, history.data)
    with Place(template=history.place.dir) as p:
        text = subprocess.run(['redis-check-aof', p.path(MANIFEST)], capture_output=True, check=False).stdout.decode()
        assert 'All AOF files and manifest are valid' in text, text


# -- flipped bits --------------------------------------------------------------------------------------

def flip(path, bit):
    with open(path, 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
        m[bit // 8] ^= 1 << bit % 8


def flip_and_start(place, name, bit, wanted):
    """The server must not start, and must say which file it is and where; a manifest may say as much as before."""
    path = place.path(name)
    flip(path, bit)
    before = open(path, 'rb').read()
    outcome = place.start(then=seen)
    where = f'bit {bit % 8} of byte {bit // 8} of {name}'
    try:
        if outcome[0] is None:
            assert name == MANIFEST, f'{where}: it started'
            same(wanted, outcome[1])
            return 'harmless'
        refused(outcome, name, *(() if name == MANIFEST else ('at offset ',)))
        offset = re.search(r'at offset (\d+)', outcome[1])
        assert not offset or int(offset[1]) <= bit // 8 + 8 or name.endswith('.rdb'), 'the place is behind the damage'
        assert open(path, 'rb').read() == before, 'a refusal changes nothing'
        flip(path, bit)
    except AssertionError as e:
        raise AssertionError(f'{where}: {e}\n{outcome[1]}') from None
    return 'refused'


def in_parallel(template, jobs, do, *args):
    """do(place, job) for every job, by a few workers that each have a place of their own."""
    def work(share):
        results = []
        with Place(*args, template=template) as p:
            for job in share:
                results.append(do(p, job))
                if results[-1] == 'harmless':
                    p.put_back(template)
        return results

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        shares = [pool.submit(work, jobs[i::WORKERS]) for i in range(WORKERS)]
        return [r for s in shares for r in s.result()]


def choose_bits(rng, template, names, n):
    """Half of them anywhere, half of them where lines and headers are."""
    sizes = {f: os.path.getsize(os.path.join(template, f)) for f in names}
    chosen = set()
    while len(chosen) < min(n, sum(sizes.values()) * 8):
        name = rng.choice(list(sizes))
        at = rng.randrange(sizes[name] * 8)
        if rng.random() < 0.5:
            near = rng.choice(lines_of(os.path.join(template, name)))
            at = min(near * 8 + rng.randrange(44 * 8), sizes[name] * 8 - 1)
        chosen.add((name, at))
    return sorted(chosen)


def lines_of(path, cache={}):                                       # pylint: disable=dangerous-default-value
    """Where our lines begin; in a file without any, its ends."""
    if path not in cache:
        data = open(path, 'rb').read()
        cache[path] = [m.start() for m in re.finditer(rb'^#M[IFB]:', data, re.M)] or [0, max(0, len(data) - 44)]
    return cache[path]


def test_flipped_bits_of_an_aof(history, rounds):
    template = history.place.dir
    n = 5000 if rounds.full else 120
    names = [f'{FOLDER}/{f}' for f in history.files]
    jobs = [(os.path.basename(f), bit) for f, bit in choose_bits(rounds.rng, template, names, n)]
    results = in_parallel(template, jobs, lambda p, job: flip_and_start(p, *job, history.data))
    for _ in rounds.run(1, 1):
        rounds.add(flips=len(results), refused=results.count('refused'), harmless=results.count('harmless'))
    assert len(results) == n and results.count('harmless') <= n / 3


@pytest.fixture(scope='module')
def snapshot(history):
    """A folder with a dump.rdb of the same data, and nothing else."""
    folder = tempfile.mkdtemp(prefix='mayfly-rdb-', dir=fast_place())
    with Place(template=history.place.dir) as p:
        def save(served):
            with Raw(served.port) as c:
                return c.call('SAVE')
        assert p.start(then=save) == (None, b'OK')
        shutil.copy(p.path('dump.rdb'), folder)
    yield folder
    shutil.rmtree(folder)


def test_flipped_bits_of_a_snapshot(history, snapshot, rounds):
    n = 5000 if rounds.full else 60
    jobs = choose_bits(rounds.rng, snapshot, ['dump.rdb'], n)
    results = in_parallel(snapshot, jobs, lambda p, job: flip_and_start(p, *job, history.data), '--appendonly', 'no')
    for _ in rounds.run(1, 1):
        rounds.add(flips=len(results), refused=results.count('refused'))
    assert results == ['refused'] * n


# -- truncation ----------------------------------------------------------------------------------------

def cut_and_start(place, template, history, at, always):
    """A consistent beginning, to which one can append; or with aof-load-truncated no, nothing at all."""
    name = history.increments[-1]
    path = place.path(name)
    whole = open(os.path.join(template, FOLDER, name), 'rb').read()
    found = max(i for i, size in enumerate(history.sizes) if size <= at)
    os.truncate(path, at)
    if at not in history.sizes:
        outcome = place.start('--aof-load-truncated', 'no')
        refused(outcome, name, f'at offset {history.sizes[found]}', 'aof-load-truncated yes')
        assert os.path.getsize(path) == at
    state = place.start(then=seen)
    assert state[0] is None, state[1]
    same(history.states[found], state[1])
    assert os.path.getsize(path) == history.sizes[found] and whole.startswith(open(path, 'rb').read())
    if always:
        def write_more(served):
            with Raw(served.port) as c:
                assert c.call('SET', 'after', at) == b'OK'
                return seen(served)
        _, state = place.start(then=write_more)
        assert place.start('--aof-load-truncated', 'no', then=seen) == (None, state)
    with open(path, 'wb') as f:
        f.write(whole)
    return found


def test_truncation_at_every_byte(history, rounds):
    rng, size = rounds.rng, history.sizes[-1]
    first = max(history.sizes[0], size - 2000)
    cuts = list(range(first, size + 1)) if rounds.full else sorted(rng.sample(range(first, size + 1), 60))
    template = history.place.dir
    found = in_parallel(template, cuts, lambda p, at: cut_and_start(p, template, history, at, at % 20 == 0))
    for _ in rounds.run(1, 1):
        rounds.add(cuts=len(cuts), different_states=len(set(found)))
    assert len(set(found)) > 5


def test_truncation_of_other_files(history, rounds):
    """A base, an increment that others follow, a manifest: nothing of them may be missing."""
    rng, template = rounds.rng, history.place.dir
    jobs = []
    for name in [history.base, *history.increments[:-1], MANIFEST]:
        size = os.path.getsize(os.path.join(template, FOLDER, name))
        ends = [size - 1, size - 2, size - 44, 0, 1, 44, 45]
        somewhere = rng.sample(range(size), min(size, 300 if rounds.full else 8))
        jobs += [(name, at) for at in {*ends, *somewhere} if 0 <= at < size]

    def do(p, job):
        name, at = job
        os.truncate(p.path(name), at)
        outcome = p.start(then=seen)
        try:
            if name == MANIFEST and outcome[0] is None:          # whole lines, the last of which is its checksum
                assert open(p.path(name), 'rb').read().endswith(b'\n') and outcome[1] in history.parts
                return 'harmless'
            refused(outcome, name)
        except AssertionError as e:
            raise AssertionError(f'{name} cut at {at}: {e}') from None
        p.put_back(template)
        return 'refused'

    results = in_parallel(template, jobs, do)
    for _ in rounds.run(1, 1):
        rounds.add(cuts=len(results), harmless=results.count('harmless'))


def test_truncation_of_a_snapshot(snapshot, rounds):
    size = os.path.getsize(f'{snapshot}/dump.rdb')
    cuts = [0, 5, 9, 50, size - 1, *rounds.rng.sample(range(size), 20)]
    if rounds.full:
        cuts = [*range(100), *range(size - 2000, size)]

    def do(p, at):
        os.truncate(p.path('dump.rdb'), at)
        refused(p.start(), 'dump.rdb', 'at offset')
        shutil.copy(f'{snapshot}/dump.rdb', p.dir)
        return at

    in_parallel(snapshot, cuts, do, '--appendonly', 'no')
    for _ in rounds.run(1, 1):
        rounds.add(cuts=len(cuts))


# -- files that are not what they should be ------------------------------------------------------------

def append(path, data):
    with open(path, 'ab') as f:
        f.write(data)


def overwrite(path, data):
    with open(path, 'wb') as f:
        f.write(data)


class Damaged:
    """The files of a place by what they are: base, first, second, last (increments), manifest."""

    def __init__(self, place, history):
        self.place = place
        self.names = {'base': history.base, 'first': history.increments[0], 'second': history.increments[1],
                      'last': history.increments[-1], 'manifest': MANIFEST}
        self.folder = f'{place.dir}/{FOLDER}'

    def path(self, which):
        return self.place.path(self.names[which])

    def remove(self, which):
        os.remove(self.path(which))
        return self.path(which)

    def read(self, which):
        return open(self.path(which), 'rb').read()

    def write(self, which, data):
        overwrite(self.path(which), data)

    def append(self, which, data):
        append(self.path(which), data)

    def swap(self, a, b):
        both = self.read(a), self.read(b)
        self.write(b, both[0])
        self.write(a, both[1])

    def blocks(self, which):
        """Its first line, and its blocks."""
        return re.split(rb'(?m)^(?=#MF:)', self.read(which))

    def lines(self, change, checksum=False):
        """Another manifest; without its checksum, if it is to be taken seriously."""
        lines = [x for x in self.read('manifest').decode().splitlines() if checksum or not x.startswith('#')]
        self.write('manifest', ''.join(x + '\n' for x in change(lines)).encode())


MORE_COMMANDS = b'*2\r\n$3\r\nDEL\r\n$1\r\nx\r\n'
DAMAGE = {
    'no base': (lambda d: d.remove('base'), ['{base}', 'No such file', 'manifest names']),
    'no first increment': (lambda d: d.remove('first'), ['{first}', 'No such file']),
    'no last increment': (lambda d: d.remove('last'), ['{last}', 'No such file']),
    'no manifest': (lambda d: d.remove('manifest'), ['{manifest}', 'is missing, but there is']),
    'empty manifest': (lambda d: d.write('manifest', b''), ['{manifest}']),
    'a manifest of zeros': (lambda d: d.write('manifest', bytes(200)), ['{manifest}']),
    'not a manifest': (lambda d: d.write('manifest', everything.noise(300)), ['{manifest}']),
    'an endless line': (lambda d: d.write('manifest', b'file ' + b'x' * 100_000), ['{manifest}']),
    'an endless manifest': (lambda d: d.write('manifest', b'file x seq 1 type h\n' * 100_000), ['{manifest}']),
    'swapped lines': (lambda d: d.lines(lambda x: [x[0], x[2], x[1], x[3]]), ['{manifest}', 'do not rise']),
    'a line is missing': (lambda d: d.lines(lambda x: [x[0], x[1], x[3]]), ['{last}', 'does not follow']),
    'a line is missing, checksum there': (lambda d: d.lines(lambda x: [x[0], *x[2:]], True), ['{manifest}']),
    'another base': (lambda d: d.lines(lambda x: [x[0].replace('seq 1 ', 'seq 7 '), *x[1:]], True), ['{manifest}']),
    'other numbers': (lambda d: d.lines(lambda x: [y.replace('seq ', 'seq 1') for y in x]), ['at offset 0']),
    'a path outside': (lambda d: d.lines(lambda x: [*x, 'file ../dump.rdb seq 9 type i']), ['{manifest}', 'path']),
    'an absolute path': (lambda d: d.lines(lambda x: [*x, 'file /etc/passwd seq 9 type i']), ['{manifest}', 'path']),
    'two bases': (lambda d: d.lines(lambda x: [x[0], x[0], *x[1:]]), ['{manifest}', 'more than one base']),
    'a file named twice': (lambda d: d.lines(lambda x: [*x, x[1][:-1] + 'h']), ['{manifest}', 'named twice']),
    'a number out of range': (lambda d: d.lines(lambda x: [*x, f'file y seq {2**62} type i']), ['{manifest}']),
    'swapped increments': (lambda d: d.swap('first', 'second'), ['{first}', 'at offset 0', 'swapped']),
    'an increment twice': (lambda d: d.write('second', d.read('first')), ['{second}', 'swapped']),
    'an increment as base': (lambda d: d.write('base', d.read('first')), ['{base}', 'at offset 0']),
    'an empty base': (lambda d: d.write('base', b''), ['{base}', 'at offset 0', '0 bytes']),
    'an empty increment': (lambda d: d.write('second', b''), ['{last}', 'does not follow']),
    'an increment of zeros': (lambda d: d.write('second', bytes(8192)), ['{second}']),
    'zeros in the middle': (lambda d: d.append('first', bytes(4096)), ['{first}', 'not the last file']),
    'zeros after the base': (lambda d: d.append('base', bytes(10)), ['{base}']),
    'noise at the end': (lambda d: d.append('last', everything.noise(100)), ['{last}', 'at offset']),
    'a word at the end': (lambda d: d.append('last', b'hello'), ['{last}', 'at offset']),
    'commands at the end': (lambda d: d.append('last', MORE_COMMANDS), ['{last}', 'aof-load-unchecked yes']),
    'a block twice': (lambda d: d.append('last', d.blocks('last')[-1]), ['{last}', 'another block belongs here']),
    'a lost block': (lambda d: d.write('last', b''.join(d.blocks('last')[:3] + d.blocks('last')[4:])),
                     ['{last}', 'another block belongs here']),
    'a lost end': (lambda d: d.write('second', b''.join(d.blocks('second')[:-1])), ['{last}', 'does not follow']),
    'a folder for a file': (lambda d: os.mkdir(d.remove('second')), ['{second}']),
    'a pipe for a file': (lambda d: os.mkfifo(d.remove('second')), ['{second}']),
    'a pipe for the manifest': (lambda d: os.mkfifo(d.remove('manifest')), ['{manifest}']),
    'a folder for the manifest': (lambda d: os.mkdir(d.remove('manifest')), ['{manifest}']),
    'a link to nowhere': (lambda d: os.symlink('/nowhere', d.remove('base')), ['{base}', 'No such file']),
    'the folder is a file': (lambda d: (shutil.rmtree(d.folder), overwrite(d.folder, b'')), [FOLDER]),
    'the folder is a loop': (lambda d: (shutil.rmtree(d.folder), os.symlink(FOLDER, d.folder)), [FOLDER]),
}


@pytest.mark.parametrize('what', DAMAGE)
def test_damage(history, place, what):
    damage, words = DAMAGE[what]
    damaged = Damaged(place, history)
    damage(damaged)
    before = place.files()
    outcome = Patient(place).start()
    refused(outcome, *[w.format(**damaged.names) for w in words])
    assert place.files() == before, 'a refusal changes nothing'


def test_a_snapshot_that_is_none(snapshot):
    with Place('--appendonly', 'no', template=snapshot) as place:
        os.remove(place.path('dump.rdb'))
        os.mkfifo(place.path('dump.rdb'))
        refused(Patient(place).start(), 'dump.rdb')


class Patient:
    """A start that must end by itself, within some seconds."""

    def __init__(self, place):
        self.place = place

    def start(self, *args, seconds=20):
        proc = self.place.server(*args)
        try:
            text = proc.communicate(timeout=seconds)[0].decode('utf-8', 'replace')
            return proc.returncode, text
        except subprocess.TimeoutExpired:
            proc.kill()
            return None, 'it runs: ' + proc.communicate()[0].decode('utf-8', 'replace')


@pytest.mark.parametrize('n', [1, 44, 4096, 100_000])
def test_zeros_after_a_power_cut(history, place, n):
    """The file has grown, and what was to be there has not been written: nothing is lost that had been."""
    path = place.path(history.increments[-1])
    append(path, bytes(n))
    refused(place.start('--aof-load-truncated', 'no'), history.increments[-1], f'at offset {history.sizes[-1]}')
    assert place.start(then=seen) == (None, history.data)
    assert os.path.getsize(path) == history.sizes[-1]
    end = history.sizes[-7]
    with open(path, 'r+b') as f:                                  # a block that is there up to somewhere
        f.seek(end + 60)
        f.write(bytes(history.sizes[-1] - end - 60))
    state = place.start(then=seen)
    assert state[0] is None, state
    same(history.states[-7], state[1])


def test_zeros_in_the_middle_of_the_last(history, place):
    """No crash leaves a hole before something that was written later and synced with it."""
    with open(place.path(history.increments[-1]), 'r+b') as f:
        f.seek(history.sizes[3] + 50)
        f.write(bytes(30))
    refused(place.start(), history.increments[-1], f'at offset {history.sizes[3]}')


def test_leftover_files_do_no_harm(history, place):
    """Files of a rewrite that was cut off, of history, and of other people."""
    last = int(re.search(r'(\d+)\.incr', history.increments[-1])[1])
    for name in (f'temp-{NAME}.base.rdb', 'notes.txt', f'{NAME}.{last + 1}.incr.aof', f'{NAME}.99.base.rdb'):
        overwrite(place.path(name), b'something else')
    assert place.start(then=seen) == (None, history.data)

    def rewritten(served):
        with Raw(served.port) as c:
            History.rewrite(c)
            run(c, [('SET', 'more', 1)])
            return seen(served)
    _, state = place.start(then=rewritten)
    assert place.start(then=seen) == (None, state) and os.path.exists(place.path('notes.txt'))


# -- disks that do not take anything -------------------------------------------------------------------

def fill_disk(path):
    """To the last byte."""
    with open(os.path.join(path, 'filler'), 'wb', buffering=0) as f:
        for size in 1 << 20, 4096, 1:
            try:
                while f.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


class DiskPlace(Place):
    def __init__(self, disk, *args):                              # pylint: disable=super-init-not-called
        self.dir, self.own, self.args = disk.path, disk.place, args


@pytest.fixture
def small(disks):
    return disks(machine.SmallDisk, 4)


def test_full_disk_and_nothing_there(small):
    fill_disk(small.path)
    place = DiskPlace(small)
    refused(place.start(), 'No space left', 'appendonly no')
    assert [f for f in place.files() if 'filler' not in f] == [] or MANIFEST not in str(place.files().keys())
    os.remove(os.path.join(small.path, 'filler'))
    assert place.start(then=seen) == (None, {}), 'with room again it starts as if nothing had been'


def test_full_disk_and_a_folder(small, history):
    """What is there is served; writers are told."""
    shutil.copytree(history.place.path(), os.path.join(small.path, FOLDER))
    fill_disk(small.path)
    place = DiskPlace(small)

    def use(served):
        with Raw(served.port) as c:
            assert seen(served) == history.data
            first, second = c.call('SET', 'big', 'x' * 100_000), c.call('SET', 'k', 'v')
            assert 'MISCONF' in first and 'MISCONF' in second, (first, second)
            assert c.call('GET', 'step') is not None
            os.remove(os.path.join(small.path, 'filler'))
            eventually(lambda: c.call('SET', 'k', 'v') == b'OK')
            return seen(served)
    _, state = place.start(then=use)
    assert isinstance(state, dict), state
    assert state[0, b'k'][2] == b'v' and place.start(then=seen) == (None, state)


@pytest.mark.parametrize('room', [0, 8192])
def test_full_disk_and_a_snapshot(small, history, snapshot, room):
    """The AOF can't be begun: the snapshot stays, and stays all there is."""
    shutil.copy(f'{snapshot}/dump.rdb', small.path)
    fill_disk(small.path)
    if room:
        with open(os.path.join(small.path, 'filler'), 'r+b') as f:
            f.truncate(os.path.getsize(f.name) - room)
    place = DiskPlace(small)
    refused(place.start(), 'No space left', 'dump.rdb', 'appendonly no')
    names = [f for f in place.files() if f.startswith(FOLDER) and f.endswith(('.rdb', '.aof'))]
    assert not names, names
    assert place.start('--appendonly', 'no', then=seen) == (None, history.data)
    os.remove(os.path.join(small.path, 'filler'))
    assert place.start(then=seen) == (None, history.data)
    os.remove(os.path.join(small.path, 'dump.rdb'))
    assert place.start(then=seen) == (None, history.data), 'it is in the AOF now'


def test_full_disk_and_a_folder_of_redis(small):
    """It needs an increment of ours to go on."""
    place = DiskPlace(small)
    os.mkdir(place.path())
    overwrite(place.path(f'{NAME}.1.incr.aof'), b'*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n')
    overwrite(place.path(MANIFEST), f'file {NAME}.1.incr.aof seq 1 type i\n'.encode())
    before = {k: v for k, v in place.files().items() if 'filler' not in k}
    fill_disk(small.path)
    refused(place.start(), 'No space left')
    assert {k: v for k, v in place.files().items() if 'filler' not in k and v} == before
    os.remove(os.path.join(small.path, 'filler'))
    assert {k for _, k in place.start(then=seen)[1]} == {b'k'}


def read_only(disk, yes):
    machine.run('mount', '-o', f'remount,{"ro" if yes else "rw"}', disk.path)


def test_read_only_disk(small, history):
    """Nothing could be appended: the server does not start, unless it need not write."""
    shutil.copytree(history.place.path(), os.path.join(small.path, FOLDER))
    place = DiskPlace(small)
    before = place.files()
    read_only(small, True)
    refused(place.start(), 'Read-only file system')
    read_only(small, False)
    os.truncate(place.path(history.increments[-1]), history.sizes[-1] - 3)
    read_only(small, True)
    refused(place.start(), 'Read-only file system', history.increments[-1])
    read_only(small, False)
    overwrite(place.path(history.increments[-1]), before[f'{FOLDER}/{history.increments[-1]}'])
    assert place.files() == before
    assert place.start(then=seen) == (None, history.data)


def test_time_it_takes(history, place):
    """Damage is found and reported at once, not after a long wait."""
    flip(place.path(history.increments[-1]), 8 * (history.sizes[-1] - 5))

    def refused_at_once():
        began = time.monotonic()
        refused(place.start(), history.increments[-1])
        assert time.monotonic() - began < (30 if mayfly.sanitized() else 5)

    mayfly.in_one_of(5, refused_at_once)
