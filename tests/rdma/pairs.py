# SPDX-License-Identifier: BSD-2-Clause
"""A server and a client that speak verbs, as one job, on softrdma: the programs of ibverbs-utils and perftest."""
import errno
import math
import os
import re
import shutil
import time
from pathlib import Path

from harness import Failure, Job, free_port, wait_for


PACE = {}  # by kind of pair and program: seconds that an exchange takes
FIRST = 100


class EndedEarly(Failure):
    """The programs were through before all was done to them: to be tried again with more exchanges."""


def checkpoint_in_run(job, ended, ended_well):
    """A checkpoint that counts only if nobody has ended by then. @ended: whether somebody has; @ended_well: fails if not all who have ended well."""
    failure = None
    try:
        job.checkpoint()
    except Failure as e:
        failure = e
        try:
            wait_for(ended, '', 10)
        except Failure:
            raise e from None
    if ended():
        ended_well()
        raise EndedEarly(str(failure or 'the programs ended before all checkpoints were taken')) from None


def await_restarted(job, ended):
    wait_for(lambda: ended() or job.command('status', job.name)[0] == 0, 'the job does not come back', period=0.02)


def tell(fifo, text):
    """A line to whoever waits to open that to read."""
    def told():
        try:
            fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as e:
            if e.errno != errno.ENXIO:
                raise
            return False
        os.write(fd, f'{text}\n'.encode())
        os.close(fd)
        return True
    wait_for(told, f'nobody waits for {fifo.name}')


class Pair:
    """@argv: the program and its options but for port, count and host."""

    def __init__(self, options, folder, argv, data_checked=False, job_options=()):
        self.options, self.folder, self.argv, self.data_checked = options, folder, list(argv), data_checked
        self.bin = Path(options.bin).resolve()
        self.job = Job(options.bin, folder, name=f'pair-{os.getpid()}')
        self.job_options = list(job_options)
        self.shm = Path(f'/dev/shm/softrdma-test-{os.getuid()}-{os.getpid()}')
        self.job.env['SOFTRDMA_DIR'] = str(self.shm)
        self.running = []
        self.scale = 1
        self.slowed = ''  # by what, where programs of this kind are
        self.fault = {}  # by label: where one of them fails

    def clean(self):
        self.job.clean()
        shutil.rmtree(self.shm, ignore_errors=True)

    def start(self, amount, under_fermata):
        """Both programs, up to where they have met; the moment of that. @amount: options that say how much they do."""
        self.port = free_port()
        argv = [*self.argv, '-p', self.port, *amount]
        self.server = self.start_one('server', argv, under_fermata)
        self.wait(lambda: listening(self.port), 'the server does not listen')
        self.client = self.start_one('client', [*argv, 'localhost'], under_fermata)
        self.running = [self.server, self.client]
        self.wait(lambda: not listening(self.port), 'the client does not connect')
        return time.monotonic()

    def start_one(self, label, argv, under_fermata):
        fault = self.fault.get(label)
        label = f'{label}-{len(self.job.programs)}'
        if under_fermata:
            env = {**self.job.env, 'FERMATA_FAULT': fault} if fault else None
            self.running = [self.job.launch(label, argv, options=['--rdma', 'soft', *self.job_options], env=env)]
        else:
            self.running = [self.job.start(label, [self.bin / 'softrdma-run', *argv])]
        return self.running[0]

    def wait(self, condition, what):
        def event():
            self.ended_well()
            return condition()
        wait_for(event, what)

    def ended(self):
        return any(p.ended() for p in self.running)

    def checkpoint(self):
        """One in mid-run."""
        checkpoint_in_run(self.job, self.ended, self.ended_well)

    def ended_well(self):
        """Whoever has ended."""
        for program in self.running:
            if program.ended() and program.returncode and not self.may_end_so(program):
                raise Failure(f'{program.label} ended with status {program.returncode}')

    def may_end_so(self, program):
        return False

    def again(self):
        """Everything from the beginning, with more exchanges."""
        self.job.kill_all()
        shutil.rmtree(self.shm, ignore_errors=True)
        shutil.rmtree(self.job.dir, ignore_errors=True)
        self.scale *= 3

    def amount_for(self, seconds):
        """Options for a run that takes about that long.

        perftest can be told so (an interval timer ends it). Others count: what an exchange takes is measured on softrdma
        alone, once for all tests of a program, and is a guess on a busy machine, where programs that poll are slower by orders.
        """
        if str(self.argv[0]).startswith('ib_') and '-e' not in self.argv:  # perftest has no time limit with events
            return ['-D', max(1, math.ceil(seconds * self.scale)), '-f', 0]
        key = (type(self), self.slowed, *self.argv)
        if key not in PACE or self.scale > 1:
            PACE[key] = self.pace()
        return ['-n', max(FIRST, int(self.scale * seconds / PACE[key]))]

    def pace(self):
        """Seconds an exchange."""
        start_up, told = self.measure(FIRST)
        count, took = FIRST, start_up if told else 0
        while took <= 0.1 and count <= 100_000_000:
            count *= min(32, max(4, int(0.15 / max(took, 0.001))))
            took = self.measure(count)[0] - (0 if told else start_up)
        return max(took, 1e-6) / count

    def measure(self, count):
        """What so many exchanges take, and whether the program tells it: else its beginning and its end are in it."""
        begin = time.monotonic()
        self.start(['-n', count], False)
        self.finish()
        told = re.findall(r'= ([\d.]+) usec/iter', ''.join(p.out.text() for p in self.running))
        return (max(map(float, told)) * count / 1e6, True) if told else (time.monotonic() - begin, False)

    def kill(self):
        """SIGKILL to all; softrdma's shared memory is gone too."""
        self.job.kill_all()
        shutil.rmtree(self.shm, ignore_errors=True)

    def restart(self, options=()):
        self.running = [self.job.restart(options=options)]
        await_restarted(self.job, self.ended)

    def finish(self, limit=300):
        for program in self.running:
            program.wait_end(limit)
            self.ended_well()
        self.check_output()
        self.job.wait_empty()

    def check_output(self):
        check_text(self.argv, ''.join(p.out.text() for p in self.running))


def check_text(argv, text):
    """What the two programs of @argv have said: no mistake of theirs, and that they have come to their end."""
    wrong = re.search(r'.*(invalid data|mismatch|wrong|Failed status|Couldn.t|error).*', text, re.I)
    if wrong:
        raise Failure(f'the program says: {wrong.group(0).strip()}')
    if 'xsrq_pingpong' in str(argv[0]):  # it has no figures to tell
        if not re.search(r'^success', text, re.M):
            raise Failure('neither of the two programs told its success')
    elif 'pingpong' in str(argv[0]):
        found = len(re.findall(r'bytes in .* seconds', text))
        if found != 2:
            raise Failure(f'{found} of the two programs told their result')
    elif str(argv[0]).startswith('ib_') and not re.search(r'^\s*\d+\s+\d+\s+[\d.]+', text, re.M):
        raise Failure('no result was told')


def listening(port):
    """Whether somebody listens on a TCP port."""
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == '0A' and int(fields[1].split(':')[1], 16) == port:
                return True
    return False


def name_of(argv):
    """A test's name: the program and its options, in one word."""
    return re.sub(r'[^a-zA-Z0-9_.]+', '-', ' '.join([Path(argv[0]).name, *map(str, argv[1:])])).strip('-')
