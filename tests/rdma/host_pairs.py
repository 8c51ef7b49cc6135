# SPDX-License-Identifier: BSD-2-Clause
"""Pairs of programs on two hosts, or on one of two, as one job over softrdma's network: for test-hosts-jobs."""
import json
import os
import time
from pathlib import Path

from harness import Skip
import pairs
import several
import wire

WINDOW = [Path(__file__).resolve().parent / 'verbs_tail']


class HostsPair(pairs.Pair):
    """The server on the first host, the client on the second. What is restarted comes back on neither: where the test runs."""
    clients_host = 1

    def __init__(self, options, folder, argv, wire_options=None, env=None, **more):
        super().__init__(options, folder, argv, **more)
        self.job.env.update(env or {})
        try:
            wire.ip('link', 'set', 'lo', 'up')
            self.hosts = self.make_hosts(wire_options)
        except wire.NoHosts as e:
            raise Skip(str(e)) from None
        self.slowed = str(wire_options)
        key = folder / 'key'
        key.write_bytes(b'0123456789abcdef0123456789abcdef')
        key.chmod(0o600)
        self.job.env['SOFTRDMA_KEY'] = str(key)

    def make_hosts(self, wire_options):
        hosts = wire.Hosts(own_shm=True, **(wire_options or {}))
        self.job.pumps += [h for h in [*hosts.holders, hosts.wire] if h]  # they stay when all else is killed
        return hosts

    def front(self, n):
        return self.hosts.front(n)

    def clean(self):
        super().clean()
        self.hosts.clean()

    def start(self, amount, under_fermata):
        self.port = 18515
        argv = [*self.argv, '-p', self.port, *amount]
        self.host = 0
        self.server = self.start_one('server', argv, under_fermata)
        self.wait(lambda: self.listening(), 'the server does not listen')
        self.host = self.clients_host
        self.client = self.start_one('client', [*argv, wire.ADDRESS[0]], under_fermata)
        self.running = [self.server, self.client]
        self.wait(lambda: not self.listening(), 'the client does not connect')
        at = self.carried()
        if under_fermata and self.host:
            self.wait(lambda: self.client.ended() or self.carried() > at + 100_000, 'nothing goes over the cable')
        return time.monotonic()

    def start_one(self, label, argv, under_fermata):
        label = f'{label}-{len(self.job.programs)}'
        fermata = ['fermata', 'launch', '--job', self.job.name, '--dir', self.job.dir, '--rdma', 'soft', *self.job_options, '--']
        front = fermata if under_fermata else ['softrdma-run']
        self.running = [self.job.start(label, [*self.front(self.host), self.bin / front[0], *front[1:], *argv])]
        return self.running[0]

    def restart_parts(self, order=(0, 1)):
        """Each program on its host: two commands, which meet at the job's coordinator. The second begins when the first waits."""
        pids = self.pids_of(order)
        self.running = []
        for n in order:
            argv = [*self.hosts.front(n), self.bin / 'fermata', 'restart', '--part', pids[n], self.job.dir]
            self.running.append(self.job.start(f'part-{n}-{len(self.job.programs)}', argv))
            self.wait(lambda: 'RESTORE' in self.job.command('status', self.job.name)[1] or len(self.running) == 2, 'no restart begins')
        pairs.await_restarted(self.job, self.ended)

    def pids(self):
        """The server's and the client's, as the job knows them."""
        manifest = json.loads((self.job.dir / str(self.job.newest()) / 'manifest.json').read_text())
        return sorted(image['pid'] for image in manifest['images'])

    def pids_of(self, order):
        pids = self.pids()
        if len(pids) < len(order):
            raise pairs.EndedEarly('one of the programs had ended at the checkpoint')
        return pids

    def amount_for(self, seconds):
        """verbs_tail has rounds that are as long as the cable is slow: not measured."""
        return ['-n', 20 * self.scale] if self.argv[0] == WINDOW[0] else super().amount_for(seconds)

    def listening(self):
        lines = ''.join(Path(f'/proc/{self.hosts.pid[0]}/net/{t}').read_text() for t in ('tcp', 'tcp6')).splitlines()
        return any(f[3] == '0A' and f[1].endswith(f':{self.port:04X}') for f in map(str.split, lines))

    def carried(self):
        """Bytes that the second host has got over the cable."""
        lines = Path(f'/proc/{self.hosts.pid[1]}/net/dev').read_text().splitlines()
        return next(int(line.split(':')[1].split()[0]) for line in lines if 'cable1' in line)


class TogetherPair(HostsPair):
    """Both on the first host at first."""
    clients_host = 0


class SeveralPair(HostsPair):
    """On hosts that have all of their own (several.py), with the same pid."""

    def make_hosts(self, wire_options):
        return several.Hosts(self.job)

    def start(self, amount, under_fermata):
        if under_fermata:
            self.hosts.start_coordinator('--rdma', 'soft')
        return super().start(amount, under_fermata)

    def front(self, n):
        return self.hosts.front(n, 100)

    def restart_hosts(self, order):
        """Each host's program on the host of that number in @order."""
        self.pids_of(order)
        self.running = []
        for name, n in zip(several.NAMES, order):
            argv = [*self.hosts.front(n), self.bin / 'fermata', 'restart', '--host', name, self.job.dir]
            self.running.append(self.job.start(f'part-{n}-{len(self.job.programs)}', argv))
        pairs.await_restarted(self.job, self.ended)


class LatePair(SeveralPair):
    """The client opens its device, and asks for its server, only when it is told where that is."""
    CLIENT = 'read -r server < meet; exec "$@" $server'

    def begin(self, amount):
        """The server, which listens, and the client, which waits."""
        self.port, self.host = 18515, 0
        argv = [*self.argv, '-p', self.port, *amount]
        self.fifo = self.job.cwd / 'meet'
        if not self.fifo.exists():
            os.mkfifo(self.fifo)
        self.hosts.start_coordinator('--rdma', 'soft')
        server = self.start_one('server', argv, True)
        self.wait(self.listening, 'the server does not listen')
        self.host = 1
        self.running = [server, self.start_one('client', ['sh', '-c', self.CLIENT, 'sh', *argv], True)]
        self.wait(self.client_waits, 'the client does not wait')

    def client_waits(self):
        status, out, _ = self.job.command('status', '--json', self.job.name)
        return status == 0 and len(json.loads(out)['processes']) == 2

    def meet(self, host):
        """The server is there."""
        at = self.carried()
        pairs.tell(self.fifo, several.ADDRESS[host])
        self.wait(lambda: self.ended() or self.carried() > at + 100_000, 'nothing goes over the cable')
