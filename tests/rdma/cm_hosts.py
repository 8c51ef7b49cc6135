# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose two programs stand on two hosts, or on one of two, and meet by rdma_cm: for test-cm-hosts-jobs."""
import json
import os
from pathlib import Path

from harness import Skip, wait_for
from cm_jobs import COUNT, PORT, Case, Job, cases, need
from pairs import EndedEarly, await_restarted
import hosts
from two import RXM_CLIENT, RXM_SERVER, in_read
import several
import wire

HERE = wire.ADDRESS[0]
CM_PORTS = set(range(28672, 32768))
DATA_PORTS = set(range(24576, 28672))
RSPRELOAD = '/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so'
SOCKETS = Path(__file__).resolve().parent / 'plain_sockets'
CASES = cases(HERE)
CASES['rspreload'] = Case([SOCKETS, PORT], [SOCKETS, PORT, HERE, COUNT], 200, env={'LD_PRELOAD': RSPRELOAD})
for kind, provider in (('msg', 'verbs'), ('rdm', 'verbs;ofi_rxm')):
    CASES[f'fi_pingpong-{kind}'] = Case(['fi_pingpong', '-I', COUNT, '-p', provider, '-e', kind, '-S', '4096', '-B', PORT],
                                        [*RXM_CLIENT, 'fi_pingpong', '-I', COUNT, '-p', provider, '-e', kind, '-S', '4096', '-P', PORT, HERE], 2000, '4k ', tcp=True,
                                        env=dict([RXM_SERVER]))
for name in ('rping', 'udaddy'):
    CASES[f'{name}-ipv6'] = cases(wire.ADDRESS6[0])[name]
    CASES[f'{name}-roce'] = cases(HERE)[name]
    CASES[f'{name}-roce'].env = {'SOFTRDMA_LINK': 'roce'}
# udaddy's server is at IPv4's "any" address unless it is told.
CASES['udaddy-ipv6'].server = [*CASES['udaddy-ipv6'].server, '-b', wire.ADDRESS6[0]]
CASES['rping-turns'] = Case(['rping', '-s', '-P', '-a', HERE], ['rping', '-c', '-a', HERE, '-C', '10', '-V'], 1, serves=True)


def established(pid, ports):
    """Connections of TCP on a host, to or from one of the ports: whoever of the two has asked."""
    lines = [line for table in ('tcp', 'tcp6') for line in Path(f'/proc/{pid}/net/{table}').read_text().splitlines()[1:]]
    return [f for f in map(str.split, lines) if f[3] == '01' and not ports.isdisjoint(int(f[n].split(':')[1], 16) for n in (1, 2))]


def listening(pid):
    lines = ''.join(Path(f'/proc/{pid}/net/{t}').read_text() for t in ('tcp', 'tcp6')).splitlines()
    return {int(f[1].split(':')[1], 16) for f in map(str.split, lines) if f[3] == '0A'}


class HostsJob(Job):
    """The server on the first host, the client on the second. What is restarted as a whole comes back on neither: where the test runs."""
    clients_host = 1

    def __init__(self, options, folder, case, **wire_options):
        if case.env.get('LD_PRELOAD') and not os.path.exists(RSPRELOAD):
            raise Skip('librspreload is not installed')
        super().__init__(options, folder, case)
        try:
            wire.ip('link', 'set', 'lo', 'up')
            self.hosts = self.make_hosts(**wire_options)
        except wire.NoHosts as e:
            raise Skip(str(e)) from None
        key = folder / 'key'
        key.write_bytes(hosts.KEY)
        key.chmod(0o600)
        self.env['SOFTRDMA_KEY'] = str(key)
        (folder / 'hosts').write_text(f'{HERE} localhost\n')
        # libfabric's verbs provider has its servers at "localhost", whatever device there is: so that means the cable's address.
        self.named = ['unshare', '-m', 'sh', '-c', 'mount --bind "$0" /etc/hosts && exec "$@"', folder / 'hosts']

    def make_hosts(self, **wire_options):
        hosts = wire.Hosts(own_shm=True, **wire_options)
        self.job.pumps += [h for h in [*hosts.holders, hosts.wire] if h]  # they stay when all else is killed
        return hosts

    def front(self, n):
        return self.hosts.front(n)

    def start(self, label, argv, **more):
        n = 0 if label == 'server' else self.clients_host
        front = [*self.front(n), *(self.named if 'fi_pingpong' in argv and n == 0 else [])]
        return self.job.start(f'{label}-{len(self.job.programs)}', [*front, *self.launched(), *argv], **more)

    def launched(self):
        return [self.job.bin / 'fermata', 'launch', '--job', self.job.name, '--dir', self.job.dir, '--rdma', 'soft', '--']

    def begin(self):
        need(str(self.case.server[0]))
        self.port = 18515
        server = self.start('server', self.words(self.case.server), env=self.env)
        self.running = [server]

        def ready():
            self.ended_well()
            ports = listening(self.hosts.pid[0])
            there = self.port in ports if self.case.tcp else bool(ports & CM_PORTS)
            return there and (self.case.server[0] != 'riostream' or in_read(server.pid))
        wait_for(ready, 'the server does not listen')

    def connect(self, front=()):
        """Programs that meet by TCP first have to have met: an address of a host that has gone is nobody's, but to rdma_cm."""
        super().connect(front)
        if self.case.tcp:
            wait_for(lambda: established(self.hosts.pid[0], {self.port}) or self.ended(), 'the client does not connect')

    def parts(self, order):
        """The commands that bring the programs back on the hosts of these numbers. The second one begins when the first waits."""
        manifest = json.loads((self.job.dir / str(self.job.newest()) / 'manifest.json').read_text())
        pids, parts = sorted(image['pid'] for image in manifest['images']), []
        for pid, n in zip(pids, order):
            argv = [*self.hosts.front(n), self.job.bin / 'fermata', 'restart', '--part', pid, self.job.dir]
            parts.append(self.job.start(f'part-{n}-{len(self.job.programs)}', argv))
            wait_for(lambda: len(parts) == 2 or parts[0].ended() or 'RESTORE' in self.job.command('status', self.job.name)[1], 'no restart begins')
        return parts

    def restart_parts(self, order):
        if len(self.job.images()) < 2:
            raise EndedEarly('one of the programs had ended at the checkpoint')
        self.kill()
        self.running = self.parts(order)
        await_restarted(self.job, self.ended)

    def clean(self):
        super().clean()
        self.hosts.clean()


class TogetherJob(HostsJob):
    """Both on the first host."""
    clients_host = 0


class SeveralJob(HostsJob):
    """On hosts that have all of their own (several.py), with the same pid."""

    def make_hosts(self, **wire_options):
        return several.Hosts(self.job)

    def begin(self):
        self.hosts.start_coordinator('--rdma', 'soft')
        super().begin()

    def front(self, n):
        return self.hosts.front(n, 100)

    def parts(self, order):
        parts = []
        for name, n in zip(several.NAMES, order):
            argv = [*self.hosts.front(n), self.job.bin / 'fermata', 'restart', '--host', name, self.job.dir]
            parts.append(self.job.start(f'part-{n}-{len(self.job.programs)}', argv))
        return parts
