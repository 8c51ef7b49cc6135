#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Several hosts on one machine, for tests of jobs that stand on more than one.

A host is a set of namespaces: network, node name, processes, System V and POSIX message queues, clocks, mounts. It has what a machine has for
itself: pids from 1 on, a loopback of its own and so its own ports and abstract names, /proc, /dev/shm, a CLOCK_MONOTONIC that
is some days from the other's. Files are common to all, FERMATA_RUNDIR among them unless it is one of @own. What runs on a host can be given a pid, so that pids coincide
on purpose. Two hosts are joined by a cable (a pair of virtual interfaces).

    def main():
        several.enter()                        # the script begins again in a user namespace; NoHosts where that cannot be
        ...
    hosts = several.Hosts(job)
    hosts.start_coordinator()                  # where it sees the processes of all hosts
    hosts.launch(0, 'server', ['prog'], pid=100)
    hosts.launch(1, 'client', ['prog', several.ADDRESS[0]], pid=100)
    ...
    hosts.clean()                              # after job.clean()

As a program it is the first process of a host, or what runs a command on one.
"""
import ctypes
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NAMES = ['alpha', 'beta']
ADDRESS = ['10.77.0.1', '10.77.0.2']
PREFIX = 24
CLOCKS = [200_000, 500_000]  # seconds that a host's CLOCK_MONOTONIC is ahead of this machine's
SYS_CLONE3, SYS_PIDFD_OPEN = 435, 434
NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000 | 0x80  # mounts, UTS, IPC, pids, network, time
MS_NOSUID, MS_NODEV = 2, 4
PASSED_ON = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT]


class NoHosts(Exception):
    pass


def enter():
    """The calling script begins again as root of a user namespace with a network; NoHosts where that cannot be."""
    if os.environ.get('FERMATA_TEST_INSIDE') == str(os.getpid()):
        return
    probe = subprocess.run(['unshare', '-Urn', 'true'], capture_output=True, text=True)
    if probe.returncode:
        raise NoHosts(f'no user namespace with a network: {probe.stderr.strip()}')
    os.environ['FERMATA_TEST_INSIDE'] = str(os.getpid())
    os.execvp('unshare', ['unshare', '-Urn', sys.executable, *sys.argv])


def ip(*argv, inside=None):
    """ip(8), in the network of process @inside."""
    front = ['nsenter', '-t', str(inside), '-n'] if inside else []
    result = subprocess.run([*front, 'ip', *map(str, argv)], capture_output=True, text=True)
    if result.returncode:
        raise NoHosts(f'ip {" ".join(map(str, argv))}: {result.stderr.strip()}')


class Holder(subprocess.Popen):
    """A host's namespaces as long as it lives. @inner: the first process of the host, as this machine sees it."""

    def __init__(self, name, clock, own):
        flags = ['--net', '--uts', '--ipc', '--mount', '--pid', '--time', '--monotonic', str(clock), '--boottime', str(clock)]
        super().__init__(['unshare', *flags, '--fork', '--kill-child', '--mount-proc', sys.executable, __file__, 'first', name, *map(str, own)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        if self.stdout.readline() != 'ready\n':
            raise NoHosts(f'no host: {self.stderr.read().strip()}')
        self.inner = int(Path(f'/proc/{self.pid}/task/{self.pid}/children').read_text().split()[0])


class Seen:
    """A process that only ends with another: for the lists of what a test leaves alone."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        return self.returncode

    def kill(self):
        pass

    def wait(self):
        pass


class Hosts:
    """Two of them, for the programs of @job (harness.Job). @own: directories that each has for itself, empty at first. @name, @address: theirs."""

    def __init__(self, job, own=('/dev/shm',), clocks=CLOCKS, name=NAMES, address=ADDRESS):
        self.job = job
        self.name, self.address = name, address
        self.holders = [Holder(name, clock, own) for name, clock in zip(self.name, clocks)]
        self.pid = [h.inner for h in self.holders]
        job.pumps += [*self.holders, *map(Seen, self.pid)]  # these stay when all else of the job is killed
        ip('link', 'add', 'name', 'cable0', 'type', 'veth', 'peer', 'name', 'cable1')
        for n in (0, 1):
            ip('link', 'set', f'cable{n}', 'netns', self.pid[n])
            ip('addr', 'add', f'{address[n]}/{PREFIX}', 'dev', f'cable{n}', inside=self.pid[n])
            for device in f'cable{n}', 'lo':
                ip('link', 'set', device, 'up', inside=self.pid[n])

    def front(self, n, pid=None):
        """What runs a command on a host: with that pid there, or any."""
        return [sys.executable, __file__, 'on', str(self.pid[n]), str(pid or 0)]

    def start(self, n, label, argv, pid=None, **more):
        return self.job.start(label, [*self.front(n, pid), *argv], **more)

    def launch(self, n, label, argv, pid=None, options=(), **more):
        fermata = [self.job.bin / 'fermata', 'launch', '--job', self.job.name, '--dir', self.job.dir]
        return self.start(n, label, [*fermata, *self.job.options, *options, '--', *argv], pid, **more)

    def command(self, n, *argv, limit=None):
        """A fermata command on a host, to its end: (status, stdout, stderr)."""
        program = self.start(n, f'{argv[0]}-{self.name[n]}-{len(self.job.programs)}', [self.job.bin / 'fermata', *argv], stdout='file')
        program.wait_end(limit)
        return program.returncode, program.out.text(), program.err.text()

    def start_coordinator(self, *options):
        """On neither host, over the socket in FERMATA_RUNDIR, which has to be common to both."""
        status, _, err = self.job.command('coordinator', '--job', self.job.name, '--dir', self.job.dir, *options)
        if status:
            raise NoHosts(f'fermata coordinator: status {status}: {err.strip()}')

    def clean(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


def first(name, *own):
    """The first process of a host: nobody waits for what it inherits."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if LIBC.sethostname(name.encode(), len(name)):
        sys.exit(f'sethostname: {os.strerror(ctypes.get_errno())}')
    for folder in own:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = os.stat(folder).st_mode & 0o7777
        if LIBC.mount(b'own', folder.encode(), b'tmpfs', MS_NOSUID | MS_NODEV, f'mode={mode:o}'.encode()):
            sys.exit(f'mount {folder}: {os.strerror(ctypes.get_errno())}')
    print('ready', flush=True)
    sys.stdin.read()


def clone(pid):
    """A child that has that pid in its namespace: as fork() answers."""
    if not pid:
        return os.fork()
    wanted = ctypes.c_int(pid)
    arguments = ctypes.create_string_buffer(struct.pack('11Q', 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1, 0))
    child = LIBC.syscall(SYS_CLONE3, arguments, len(arguments.raw) - 1)
    if child < 0:
        sys.exit(f'no process with the pid {pid}: {os.strerror(ctypes.get_errno())}')
    return child


def on(holder, pid, *argv):
    """Runs a command on a host and ends as it does. This process stays outside, where a test sees it."""
    folder = os.getcwd()
    fd = LIBC.syscall(SYS_PIDFD_OPEN, int(holder), 0)
    if LIBC.setns(fd, NAMESPACES):
        sys.exit(f'setns: {os.strerror(ctypes.get_errno())}')
    os.close(fd)
    os.chdir(folder)
    child = clone(int(pid))
    if not child:
        os.execvp(argv[0], argv)
    for number in PASSED_ON:
        signal.signal(number, lambda n, _: os.kill(child, n))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:  # as the command was killed
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == '__main__':
    {'first': first, 'on': on}[sys.argv[1]](*sys.argv[2:])
