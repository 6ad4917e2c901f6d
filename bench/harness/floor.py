"""The floor: bench/bare.c, a server that only receives and sends."""

import contextlib
import socket
import subprocess
import time

from .server import START_LIMIT_S, Server, child_setup, free_port


@contextlib.contextmanager
def bare(env, value_bytes):
    """Answers every request with a value of that size; 0: with +OK."""
    port = free_port()
    proc = subprocess.Popen([env.tools["bare"], str(port), str(value_bytes)], stdin=subprocess.DEVNULL,
                            preexec_fn=child_setup(env.server_core, env.nice))
    try:
        server = Server("bare", proc, port, None)
        wait_for(server)
        yield server
    finally:
        proc.kill()
        proc.wait()


def wait_for(server):
    end = time.monotonic() + START_LIMIT_S
    while True:
        server.check_alive()
        try:
            socket.create_connection(("127.0.0.1", server.port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
