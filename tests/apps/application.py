# SPDX-License-Identifier: BSD-2-Clause
"""What the suite has to know of a code and of a transport; each code is a file code_*.py.

A code is a Debian package as it is. Its output goes to the file "out" in the folder that it runs in, so that it is put back at a restart like
its other files, and a result is compared as a whole.
"""
import importlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from harness import Skip

OPENMPI = ['mpirun.openmpi', '--oversubscribe']
# btl self: btl tcp, unused, would listen on the first free port from 1024 on, which another job's may have by the restart.
OVER_UCX = [*OPENMPI, '--mca', 'pml', 'ucx', '--mca', 'osc', 'ucx', '--mca', 'btl', 'self']
# Ranks of one host would otherwise meet in MPICH's own shared memory; one-sided access there gives NWChem wrong numbers in 4.0.2, with any network.
MPICH = {'MPIR_CVAR_NOLOCAL': '1'}
RC, UD = {'UCX_TLS': 'rc_verbs,ud_verbs:aux,self'}, {'UCX_TLS': 'ud_verbs,self'}


# UCX takes the address in a datagram's header for one of IPv6, but on Mellanox's devices: on others only IPv6 addresses are reached. rxe0's is GID 2.
ROCE = {'UCX_IB_GID_INDEX': '2'}


class Transport:
    """@words: the table's; @command: what starts ranks; @environment: theirs; @rdma: on softrdma, or on the system's device."""

    def __init__(self, name, package, words, command, environment, rdma='soft'):
        self.name, self.package, self.words, self.command, self.environment, self.rdma = name, package, words, command, environment, rdma

    def on_device(self):
        """The same on Soft-RoCE, or None: Debian's btl openib has no connections for RoCE (rdmacm), and what UCX chooses by itself would not be the device."""
        names_device = 'verbs' in self.environment.get('UCX_TLS', self.name)
        return Transport(self.name, self.package, self.words, self.command, {**self.environment, **ROCE}, 'system') if names_device else None


TRANSPORTS = {t.name: t for t in (
    Transport('openib', 'openmpi-bin', 'Open MPI, btl openib',
              [*OPENMPI, '--mca', 'pml', 'ob1', '--mca', 'btl', 'openib,self', '--mca', 'btl_openib_allow_ib', '1'], {}),
    Transport('ucx-rc', 'openmpi-bin', 'Open MPI, pml ucx, rc', OVER_UCX, RC),
    Transport('ucx-ud', 'openmpi-bin', 'Open MPI, pml ucx, ud', OVER_UCX, UD),
    Transport('ucx-default', 'openmpi-bin', 'Open MPI, pml ucx, its own choice', OVER_UCX, {}),
    Transport('mpich-rc', 'mpich', 'MPICH, UCX, rc', ['mpirun.mpich'], {**MPICH, **RC}),
    Transport('mpich-ud', 'mpich', 'MPICH, UCX, ud', ['mpirun.mpich'], {**MPICH, **UD}),
    Transport('verbs', 'libibverbs1', 'verbs', [], {}),
)}


class Application:
    """One code with its input. What a subclass says:

    name, package, program    the table's name, the Debian package, what must be found
    ranks, transports         how many, and over what (names of TRANSPORTS)
    compared                  how its result is, in the table's words
    prepare(cwd)              writes its input
    argv(cwd, transport)      a rank's command
    in_loop(cwd)              whether it has begun with what takes its time
    result(cwd)               what has to be the same, whoever has cut the run; Failure where the code's own check says no
    is_same(result, other)    whether it is, where another processor has gone on with the run
    seconds(cwd)              the code's own figure of that time
    """
    ranks = 4
    transports = ('openib', 'ucx-rc', 'ucx-ud')
    compared = 'to the bit'
    packages = ()  # more that it needs
    told = 'out'  # the file whose length says how far it is
    times = 1  # how many times as long as in the short table it runs
    emulated = 0.2  # the same, in the guest of apps-rxe

    def prepare(self, cwd):
        pass

    def command(self, cwd, transport):
        launcher = [*transport.command, '-n', str(self.ranks)] if transport.command else []
        return ['sh', '-c', 'exec "$@" > out', 'sh', *launcher, *self.argv(cwd, transport)]

    def environment(self, cwd, transport):
        env = {**transport.environment, 'TMPDIR': str(cwd), 'HOME': str(cwd), 'OMP_NUM_THREADS': '1'}
        if os.getuid() == 0:
            env.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
        return env

    def scaled(self, steps):
        return round(steps * self.times)

    def length(self, cwd):
        path = Path(cwd) / self.told
        return path.stat().st_size if path.exists() else 0

    def is_same(self, result, other):
        return result == other

    def need(self, transport):
        for package in (self.package, transport.package, *self.packages):
            if not version(package):
                raise Skip(f'{package} is not installed (tools/bootstrap --apps)')
        if not shutil.which(self.program):
            raise Skip(f'{self.package} has no {self.program}')

    def refuses(self):
        """Why this host cannot run the code at all, or None."""


class Stepwise(Application):
    """A program of our own: it says "step N .." as it goes on, at the end its main loop's "seconds T" and "result ..", what is to be the same."""

    def in_loop(self, cwd):
        return re.search(r'^step .*$', text(cwd), re.M)

    def result(self, cwd):
        return re.findall(r'^(?:step|result) .*$', text(cwd), re.M)

    def seconds(self, cwd):
        return float(re.search(r'^seconds ([0-9.]+)$', text(cwd), re.M).group(1))


class Close:
    """Numbers that are the same when each differs by less than so much."""

    def __init__(self, numbers, difference):
        self.numbers, self.difference = numbers, difference

    def __eq__(self, other):
        return len(self.numbers) == len(other.numbers) and all(abs(a - b) < self.difference for a, b in zip(self.numbers, other.numbers))


def version(package):
    """As installed, without the build number; None: it is not."""
    found = subprocess.run(['dpkg-query', '-W', '-f', '${db:Status-Status} ${Version}', package], capture_output=True, text=True).stdout.split()
    return found[1].split('+b')[0] if found[:1] == ['installed'] else None


def text(cwd, name='out'):
    path = Path(cwd) / name
    return path.read_text(errors='replace') if path.exists() else ''


def cells(wanted, on_device=False):
    """(name, code, transport): code @wanted, or all, over each of its transports."""
    for path in sorted(Path(__file__).resolve().parent.glob('code_*.py')):
        name = path.stem.removeprefix('code_')
        if wanted not in (None, name):
            continue
        for code in importlib.import_module(path.stem).CODES:
            for transport in (TRANSPORTS[over].on_device() if on_device else TRANSPORTS[over] for over in code.transports):
                if transport:
                    yield f'{name}-{transport.name}', code, transport
