# SPDX-License-Identifier: BSD-2-Clause
"""A server and a client, two programs or more, each under softrdma-run or under fermata."""
import os
import shutil
from pathlib import Path

from harness import Failure, Job, Skip, under_test, wait_for
from pairs import listening


# libfabric's rxm throws away what has come and was not looked at, completions of its sends too, when it hears of the disconnection, for which it asks every 10 ms: a
# process that waits for a processor then, at its end, misses the last message, or takes the last one that it sent for flushed. So it asks seldom: a server as often as
# it has to for its clients, a client not again after it has connected, until it ends.
RXM_SERVER, RXM_CLIENT = ('FI_OFI_RXM_CM_PROGRESS_INTERVAL', '1000000'), ['env', 'FI_OFI_RXM_CM_PROGRESS_INTERVAL=2000000000']


def in_read(pid):
    """Where raccept waits. riostream sets its listener's options, which connections inherit, between rlisten and that."""
    return Path(f'/proc/{pid}/syscall').read_text().split()[0] == '0'


def end_of_rping(argv, status, said):
    """Its main thread gives the channel back as it ends; where its other one asks for an event just then, that one ends the process."""
    return 'rping' in map(str, argv) and status == 255 and 'rdma_get_cm_event: ' in said


def cm_listens(shm):
    """A listener's name is there a moment before it listens: the kernel says when (__SO_ACCEPTCON)."""
    sockets = (line.split() for line in Path('/proc/net/unix').read_text().splitlines()[1:])
    return any(len(s) == 8 and s[7].startswith(f'{shm}/cm-') and int(s[3], 16) & 0x10000 for s in sockets)


class Two:
    """A server and its client, under fermata or not; shared memory of their own."""
    rdma = 'soft'

    def __init__(self, options, folder, under_fermata):
        self.job = Job(options.bin, folder)
        self.under_fermata = under_fermata
        self.shm = Path(f'/dev/shm/softrdma-cm-{os.getuid()}-{os.getpid()}')
        self.job.env['SOFTRDMA_DIR'] = str(self.shm)

    def start(self, label, argv, **more):
        if self.under_fermata:
            return self.job.launch(label, argv, options=['--rdma', self.rdma], **more)
        front = [self.job.bin / 'softrdma-run'] if self.rdma == 'soft' else []
        return self.job.start(label, [*front, *argv], **more)

    def cm_listens(self):
        return cm_listens(self.shm)

    def has_group(self):
        try:
            return any(any(file.read_bytes()) for file in self.shm.glob('groups-*'))
        except FileNotFoundError:
            return False

    def server(self, argv, tcp_port=None, until=None, **more):
        program = self.start('server', argv, **more)

        def ready():
            if program.ended():
                raise Failure(f'the server ended with status {program.returncode}')
            listens = listening(tcp_port) if tcp_port else (until or self.cm_listens)()
            return listens and (argv[0] != 'riostream' or in_read(program.pid))

        wait_for(ready, 'the server does not listen')
        return program

    def end_well(self, *programs):
        for program in programs:
            status = program.wait_end(300)  # what polls is slower by orders on a busy machine
            if status and not end_of_rping(program.args, status, program.err.text()):
                raise Failure(f'{program.label} ended with status {status}')

    def clean(self):
        self.job.clean()
        shutil.rmtree(self.shm, ignore_errors=True)


def with_two(options, body, under_fermata):
    def test(folder):
        two = Two(options, folder, under_fermata)
        with under_test(two.job, two.clean):
            return body(two)
    return test


def need(program):
    if not shutil.which(program):
        raise Skip(f'{program} is not installed')
