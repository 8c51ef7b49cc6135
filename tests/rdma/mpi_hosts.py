# SPDX-License-Identifier: BSD-2-Clause
"""mpirun on one host, ranks there and on another where it begins them by a real ssh, as one job over softrdma's network: for tests/apps/test-mpi-hosts and test-mpi-hosts.

Open MPI 4.1; each rank checks what it gets (mpi_ring.c), and what comes out at the end is exact. All runs as sshd's ordinary user. Two more hosts, with other names and
addresses, are made where a restart wants them.
"""
import json
import random
from pathlib import Path

from harness import Failure, Job, Skip, pause, under_test, wait_for
import several
from sshd import AS_USER, Sshd
from mpi import OPENIB, OVER_UCX
from two import need

PROGRAM = Path(__file__).resolve().parent / 'mpi_ring.openmpi'
LIMIT = 120
# btl self: btl tcp, unused, would listen on port 1024 of both hosts, which cannot come back on one machine then.
TRANSPORTS = {
    'openib': OPENIB,
    'ucx': [*OVER_UCX, '--mca', 'btl', 'self', '-x', 'UCX_TLS=rc_verbs,ud_verbs,self'],
}
PLACES = ['in_place', 'exchanged', 'together', 'elsewhere']


class Cluster:
    """The job. @ranks: on each of the two hosts."""

    def __init__(self, options, folder, ranks=2):
        need('mpirun.openmpi')
        if not PROGRAM.exists():
            raise Skip(f'{PROGRAM.name} was not built: there is no compiler of that MPI')
        self.ranks = ranks
        self.job = Job(options.bin, folder, options=('--rdma', 'soft'))
        self.others = None
        several.ip('link', 'set', 'lo', 'up')
        for name in 'key', 'softrdma-key':
            (folder / name).write_bytes(b'0123456789abcdef0123456789abcdef')
            (folder / name).chmod(0o600)
        self.job.env.update(FERMATA_KEY=str(folder / 'key'), SOFTRDMA_KEY=str(folder / 'softrdma-key'), TMPDIR=str(folder / 'tmp'))
        self.own = ['/dev/shm', folder / 'tmp']  # where Open MPI has its sessions
        self.own[1].mkdir()
        self.hosts = several.Hosts(self.job, own=self.own)
        self.sshd = self.login(self.hosts)
        self.hosts.start_coordinator('--rdma', 'soft', '--keep', '2')
        self.at = []  # what runs a command where the job's coordinator is

    def login(self, hosts):
        sshd = Sshd(hosts, environment=[f'FERMATA_RUNDIR={self.job.rundir}', f'FERMATA_KEY={self.job.env["FERMATA_KEY"]}',
                                         f'TMPDIR={self.own[1]}'])
        sshd.on_host('mount', '--bind', sshd.folder / 'passwd', '/etc/passwd', n=0)
        return sshd

    def mpirun(self, transport, *more):
        where = ','.join(f'{name}:{self.ranks}' for name in self.hosts.name)
        argv = ['mpirun.openmpi', '--host', where, '-n', 2 * self.ranks, '--mca', 'plm_rsh_agent', 'ssh', '--mca', 'plm_rsh_args', f'-F {self.sshd.config}',
                '--mca', 'oob_tcp_if_include', '10.77.0.0/24', '--mca', 'mpi_yield_when_idle', '1', *transport, *more, PROGRAM, self.job.cwd / 'stop']
        fermata = [*AS_USER, self.job.bin / 'fermata', 'launch', '--job', self.job.name, '--dir', self.job.dir, *self.job.options, '--']
        self.running = self.hosts.start(0, 'mpirun', [*fermata, *argv])

    def go_on(self):
        since = len(self.running.out.text())
        wait_for(lambda: self.running.ended() or 'sum' in self.running.out.text()[since:], 'the ranks do not go on', LIMIT)
        if self.running.ended():
            raise Failure(f'{self.running.label} ended with {self.running.returncode}')

    def finish(self):
        (self.job.cwd / 'stop').touch()
        status = self.running.wait_end(LIMIT)
        if status or f'{2 * self.ranks} ranks are content' not in self.running.out.text():
            raise Failure(f'{self.running.label} ended with status {status}')
        (self.job.cwd / 'stop').unlink()

    # -- checkpoints

    def checkpoint(self):
        program = self.job.start(f'checkpoint-{len(self.job.programs)}', [*self.at, self.job.bin / 'fermata', 'checkpoint', self.job.name])
        if program.wait_end(LIMIT):
            raise Failure(f'fermata checkpoint: status {program.returncode}: {program.err.text()}')
        manifest = json.loads((self.job.dir / str(self.job.newest()) / 'manifest.json').read_text())
        names = [manifest['hosts'][i['host']] for i in manifest['images'] if i['comm'] == PROGRAM.name[:15]]
        found = [names.count(name) for name in self.hosts.name]
        if found != [self.ranks] * 2:
            raise Failure(f'the checkpoint has {found} ranks on the hosts')

    def checkpoint_soon(self, rng):
        self.go_on()
        pause(rng.expovariate(1 / 0.2))
        self.checkpoint()

    # -- restarts

    def restart(self, place):
        """All is killed before, each host's sshd as well."""
        self.job.kill_all()
        getattr(self, place)()
        self.go_on()

    def begin(self, *argv, front=AS_USER):
        label = f'restart-{len(self.job.programs)}'
        self.running = self.job.start(label, [*front, self.job.bin / 'fermata', 'restart', *argv, self.job.dir])

    def file(self, *lines):
        file = self.job.folder / 'where'
        file.write_text(''.join(line + '\n' for line in lines))
        return '--hosts', file

    def by_stand_in(self, *lines):
        """From a machine that is neither: an ssh whose machines are the hosts."""
        ssh = self.job.folder / 'machines'
        ssh.write_text('#!/bin/sh\nhost=$1; shift\ncase $host in\n' + ''.join(
            f'{name}) exec {" ".join([*self.hosts.front(n), *AS_USER])} sh -c "$*" ;;\n' for n, name in enumerate(self.hosts.name)) + 'esac\n')
        ssh.chmod(0o755)
        self.job.env['FERMATA_SSH'] = f'{ssh}'
        self.at = []
        self.begin(*self.file(*lines), front=())

    def in_place(self):
        self.by_stand_in('alpha', 'beta')

    def exchanged(self):
        self.by_stand_in('alpha beta', 'beta alpha')

    def together(self):
        self.at = []
        self.begin()

    def elsewhere(self):
        """On two others, which have nothing in common but files, from one of them by a real ssh to the other."""
        if not self.others:
            self.others = several.Hosts(self.job, own=[*self.own, self.job.rundir], clocks=[700_000, 900_000],
                                        name=['gamma', 'delta'], address=['10.78.0.1', '10.78.0.2'])
            self.others_sshd = self.login(self.others)
        else:
            self.others_sshd.start()
        self.job.env['FERMATA_SSH'] = f'ssh -F {self.others_sshd.config}'
        self.at = [*self.others.front(0), *AS_USER]
        self.begin(*self.file('alpha gamma', 'beta delta'), front=self.at)

    def clean(self):
        self.job.clean()
        for hosts in self.hosts, self.others:
            if hosts:
                hosts.clean()


def with_cluster(options, body, name, **more):
    """@body: (cluster, rng)."""
    def test(folder):
        try:
            cluster = Cluster(options, folder, **more)
        except several.NoHosts as e:
            raise Skip(str(e)) from None
        with under_test(cluster.job, cluster.clean):
            return body(cluster, random.Random(f'{options.seed}/{name}'))
    return test
