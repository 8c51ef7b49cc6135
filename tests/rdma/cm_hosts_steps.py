# SPDX-License-Identifier: BSD-2-Clause
"""What is under way between two ends of rdma_cm on two hosts when a checkpoint comes, step by step: for test-cm-hosts-jobs."""
import re

from harness import Failure, wait_for
import hosts
from steps import Steps
import wire

HERE = wire.ADDRESS[0]
LIMIT = 3  # seconds that a phase may last


class StepsPair(hosts.Pair):
    """Ends of rdma_cm, under fermata but for those whose label is in @outside."""

    outside = ()

    def start(self, n, label, argv, **more):
        self.job.env['SOFTRDMA_CM_TIMEOUT'] = '60'
        if n in self.outside:
            return super().start(n, label, argv, **more)
        fermata = [self.job.bin / 'fermata', 'launch', '--job', self.job.name, '--dir', self.job.dir, '--rdma', 'soft', '--timeout', LIMIT, '--']
        return super().start(n, label, [*fermata, *argv], soft=False, **more)

    def ends(self):
        server, client = Steps(self, 0), Steps(self, 1)
        server.do('listen 7000 8')
        return server, client

    def connected(self):
        server, client = self.ends()
        client.resolve()
        client.do('connect hello')
        server.expect('CONNECT_REQUEST 0 hello')
        server.do('accept welcome')
        client.expect('CONNECT_RESPONSE 0 welcome')
        client.do('establish')
        server.expect('ESTABLISHED 0')
        return server, client

    def refused(self, said):
        status, _, err = self.job.command('checkpoint', self.job.name)
        if status != 4 or not re.search(said, err):
            raise Failure(f'the checkpoint ended with status {status}: {err}')


def step_each(pair):
    """A checkpoint before each step of a connection's life; nothing else is noticed of it."""
    server, client = pair.ends()
    pair.job.checkpoint()
    client.do(f'resolve {HERE} 7000 2000')
    pair.job.checkpoint()
    client.expect('ADDR_RESOLVED 0')
    client.do('route')
    client.expect('ROUTE_RESOLVED 0')
    client.do('connect hello')
    pair.job.checkpoint()
    server.expect('CONNECT_REQUEST 0 hello')
    pair.job.checkpoint()
    server.do('accept welcome')
    pair.job.checkpoint()
    client.expect('CONNECT_RESPONSE 0 welcome')
    client.do('establish')
    pair.job.checkpoint()
    server.expect('ESTABLISHED 0')
    client.do('disconnect')
    pair.job.checkpoint()
    server.expect('DISCONNECTED 0')
    server.do('disconnect')
    pair.job.checkpoint()
    client.expect('DISCONNECTED 0')
    client.quiet()
    server.quiet()


def step_cut(pair):
    """A message is on its way over a cable that is cut: the checkpoint says so in its time, and can be had when the cable is back."""
    server, client = pair.connected()
    pair.hosts.cut()
    pair.job.checkpoint()  # there is nothing on its way
    client.do('disconnect')
    pair.refused(r'still on its way at .*rdma_cm connection from 10\.77\.0\.2 to port 7000 has 1 messages')
    client.quiet()
    pair.hosts.cut(False)
    server.expect('DISCONNECTED 0')
    pair.job.checkpoint()
    server.do('disconnect')
    client.expect('DISCONNECTED 0')


def step_cut_at_end(pair):
    """One end goes; the other does not hear of it."""
    server, client = pair.connected()
    pair.hosts.cut()
    client.do('destroy')
    pair.refused(r'rdma_cm connection from 10\.77\.0\.2 to port 7000 has its other end outside of the job, or that does not answer')
    server.quiet()
    pair.hosts.cut(False)
    server.expect('DISCONNECTED 0')
    pair.job.checkpoint()


def step_unsaid(pair):
    """A request that has not found its host is no reason to refuse; it is said once, when the cable is back."""
    server, client = pair.ends()
    client.resolve()
    pair.hosts.cut()
    client.do('connect hello')
    for _ in range(3):
        pair.job.checkpoint()
    server.quiet()
    pair.hosts.cut(False)
    server.expect('CONNECT_REQUEST 0 hello')
    pair.job.checkpoint()
    server.do('accept welcome')
    client.expect('CONNECT_RESPONSE 0 welcome')
    server.quiet()


def step_killed(pair):
    """The one that is to hear dies while the checkpoint waits for that: it fails, and who is left goes on."""
    server, client = pair.connected()
    pair.hosts.cut()
    client.do('disconnect')
    command = pair.job.start('checkpoint', [pair.job.bin / 'fermata', 'checkpoint', pair.job.name], stdout='file')
    wait_for(lambda: 'DRAIN' in pair.job.command('status', pair.job.name)[1], 'the checkpoint does not wait')
    server.program.kill()
    status = command.wait_end()
    if status != 4 or not re.search(r'pid \d+ \(cm_steps\)', command.err.text()):
        raise Failure(f'the checkpoint ended with status {status}: {command.err.text()}')
    pair.hosts.cut(False)
    client.expect('DISCONNECTED 0')
    pair.job.checkpoint()


def step_outside(pair):
    """The other end is none of the job's."""
    pair.outside = (0,)
    server, client = pair.connected()
    pair.refused(r'rdma_cm connection to 10\.77\.0\.1, port 7000 has its other end outside of the job')
    client.do('disconnect')
    server.expect('DISCONNECTED 0')
    server.do('disconnect')
    client.expect('DISCONNECTED 0')
    pair.job.checkpoint()


STEPS = {name.removeprefix('step_').replace('_', '-'): body for name, body in list(globals().items()) if name.startswith('step_')}
