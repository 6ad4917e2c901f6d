"""Runs bench/probe.c and reads what it recorded."""

import array
import os
import subprocess
import tempfile

from .server import child_setup
from .stats import percentile

PING, POLL, TRIGGER = 0, 1, 2
PROBE_LEAD_MS = 500         # time for the probe to start and warm up


def build(source, out_dir):
    """Compiles a program of one file, if it is newer than what was compiled of it."""
    os.makedirs(out_dir, exist_ok=True)
    binary = os.path.join(out_dir, os.path.basename(source).removesuffix(".c"))
    if not os.path.exists(binary) or os.path.getmtime(binary) < os.path.getmtime(source):
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-pthread", "-o", binary, source], check=True)
    return binary


class Trace:
    """The samples of one run: kind, time sent (s from T0), latency (ms), value."""

    def __init__(self, raw):
        self.kind, sent, latency, self.value = raw[0::4], raw[1::4], raw[2::4], raw[3::4]
        self.at = [t / 1e9 for t in sent]
        self.ms = [t / 1e6 for t in latency]

    def latencies(self, first_s=float("-inf"), last_s=float("inf"), kinds=(PING,)):
        return sorted(ms for k, t, ms in zip(self.kind, self.at, self.ms)
                      if k in kinds and first_s <= t < last_s)

    def median_write(self, last_s):
        """Of its SETs before then, in ms. A SET's value is 0, a GET's its length."""
        return percentile(sorted(ms for k, t, ms, v in zip(self.kind, self.at, self.ms, self.value)
                                 if k == PING and v == 0 and t < last_s), 50)

    def longest(self, first_s=float("-inf"), last_s=float("inf")):
        """The longest any request took, the trigger included: another client
        that had asked in that moment would have waited as long."""
        return self.latencies(first_s, last_s, (PING, POLL, TRIGGER))[-1]

    def p999(self, *window):
        return percentile(self.latencies(*window), 99.9)

    def p999_any_moment(self, *window):
        """p99.9 as clients see it that ask at any moment, not only when the
        last answer has come: a request of length L stands for those that would
        have been sent meanwhile and waited L - I, L - 2I, … (I: the usual time
        between two requests)."""
        step = max(percentile(self.latencies(*window), 50), 0.01)
        seen = []
        for ms in self.latencies(*window):
            while ms > 0:
                seen.append(ms)
                ms -= step
        return percentile(sorted(seen), 99.9)

    def trigger(self):
        """(latency in ms, reply) of the triggered command."""
        i = self.kind.index(TRIGGER)
        return self.ms[i], self.value[i]

    def first_poll(self, accept, after_s=0):
        """When (s from T0) DBSIZE first satisfied accept(), or None."""
        for k, t, ms, v in zip(self.kind, self.at, self.ms, self.value):
            if k == POLL and t >= after_s and accept(v):
                return t + ms / 1e3
        return None

    def timeline(self, bin_s=0.01):
        """[(t, longest latency in ms)] per bin. A latency is shown where the
        request was sent."""
        bins = {}
        for t, ms in zip(self.at, self.ms):
            b = int(t // bin_s)
            bins[b] = max(bins.get(b, 0), ms)
        return [(round(b * bin_s, 4), round(ms, 4)) for b, ms in sorted(bins.items())]


class Probe:
    """A probe in flight. Use as a context manager; finish() waits for it."""

    def __init__(self, env, server, t0_ms, first_ms, last_ms, poll_ms=0, trigger=None):
        fd, self.out = tempfile.mkstemp(prefix="bench-probe-")
        os.close(fd)
        argv = [env.tools["probe"], server.port, self.out, t0_ms, first_ms, last_ms, poll_ms]
        if trigger:
            argv += [trigger[0], *trigger[1]]
        self.limit_s = last_ms / 1000 + 120
        self.proc = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True,
                                     preexec_fn=child_setup(env.load_core, env.nice, realtime=True))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.communicate()
        os.unlink(self.out)

    def done(self):
        return self.proc.poll() is not None

    def stop(self):
        """Ends the measuring before its time; finish() then has the samples up to now."""
        self.proc.terminate()

    def finish(self):
        _, err = self.proc.communicate(timeout=self.limit_s)
        if self.proc.returncode:
            raise RuntimeError(err.strip() or f"probe ended with {self.proc.returncode}")
        raw = array.array("q")
        with open(self.out, "rb") as f:
            raw.frombytes(f.read())
        return Trace(raw)
