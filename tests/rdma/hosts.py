# SPDX-License-Identifier: BSD-2-Clause
"""Programs on two hosts that are network namespaces (wire.py), each with softrdma and the same key."""
import os
import shutil
from pathlib import Path

from harness import Failure, Job, Skip, under_test, wait_for
import wire
from two import end_of_rping

KEY = b'0123456789abcdef0123456789abcdef'
PORT = 24576


class Pair:
    """A program on each of two hosts."""

    def __init__(self, options, folder, delay=None, loss=0, ipv6=False):
        self.ipv6 = ipv6
        self.address = wire.ADDRESS6 if ipv6 else wire.ADDRESS
        try:
            self.hosts = wire.Hosts(delay, loss, ipv6)
        except wire.NoHosts as e:
            raise Skip(str(e)) from None
        self.job = Job(options.bin, folder)
        self.shm = [Path(f'/dev/shm/softrdma-host-{os.getpid()}-{n}') for n in (0, 1)]
        self.keys = [folder / f'key-{n}' for n in (0, 1)]
        for n in (0, 1):
            self.keys[n].write_bytes(KEY)
            self.keys[n].chmod(0o600)

    def start(self, n, label, argv, soft=True, **more):
        env = dict(self.job.env, SOFTRDMA_DIR=str(self.shm[n]), SOFTRDMA_KEY=str(self.keys[n]))
        front = [self.job.bin / 'softrdma-run'] if soft else []
        return self.job.start(label, [*self.hosts.front(n), *front, *argv], env=env, **more)

    def ports(self, n):
        """Where somebody listens."""
        lines = ''.join(Path(f'/proc/{self.hosts.pid[n]}/net/{t}').read_text() for t in ('tcp', 'tcp6')).splitlines()
        return {int(f[1].split(':')[1], 16) for f in map(str.split, lines) if f[3] == '0A'}

    def listening(self, n, port):
        return port in self.ports(n)

    def both(self, argv, port=18515):
        """The program at both ends, up to where they have met."""
        server = self.start(0, 'server', argv)
        self.wait([server], lambda: self.listening(0, port), 'the server does not listen')
        client = self.start(1, 'client', [*argv, self.address[0]])
        self.wait([server, client], lambda: client.ended() or not self.listening(0, port), 'the client does not connect')
        return server, client

    @staticmethod
    def wait(programs, condition, what, limit=None):
        def event():
            for p in programs:
                if p.ended() and p.returncode and not end_of_rping(p.args, p.returncode, p.err.text()):
                    raise Failure(f'{p.label} ended with status {p.returncode}')
            return condition()
        return wait_for(event, what, limit)

    def end_well(self, *programs):
        for p in programs:
            self.wait(programs, p.ended, f'{p.label} does not end', 120)
            p.wait_end()
        text = ''.join(p.out.text() + p.err.text() for p in programs)
        for word in ('nvalid data', 'mismatch', 'Failed status', 'softrdma['):
            if word in text:
                raise Failure(f'the programs say: {word}')

    def clean(self):
        self.job.clean()
        self.hosts.clean()
        for path in self.shm:
            shutil.rmtree(path, ignore_errors=True)


def with_pair(options, body, *argv, **more):
    def test(folder):
        pair = Pair(options, folder, **more)
        with under_test(pair.job, pair.clean):
            return body(pair, *argv)
    return test


def inside(pair, n, function):
    """@function(), by a child on host @n."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            fd = os.open(f'/proc/{pair.hosts.pid[n]}/ns/net', os.O_RDONLY)
            if not wire.LIBC.setns(fd, wire.CLONE_NEWNET):
                function()
                status = 0
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise Failure('the stranger could not say what it wanted')
