# SPDX-License-Identifier: BSD-2-Clause
"""A job under test: launch, checkpoint, kill, restart, and no process left behind.

Each test process owns its descendants: it is their subreaper, so that daemons come to it too, and whatever happened it
ends all of them, by pid, before it goes. Everything waits for an event, up to a limit; LIMIT is generous because
the machine may be slow, and is what a hang costs.
"""
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = float(os.environ.get('FERMATA_TEST_LIMIT', '60'))
PERIOD_MAX = 0.02  # seconds: what is waited for long is looked at less often
PR_SET_CHILD_SUBREAPER = 36


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def file_system(path):
    """Its kind, as stat names it: times of change do not tell on each."""
    return subprocess.run(['stat', '-f', '-c', '%T', path], capture_output=True, text=True).stdout.strip()


def wait_for(condition, what, limit=None, period=0.005):
    """Until @condition() is true; its value. A Failure that says @what after @limit seconds."""
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        elapsed = time.monotonic() - begin
        if elapsed > (limit or LIMIT):
            raise Failure(f'timed out after {limit or LIMIT:.0f} s: {what}')
        time.sleep(max(period, min(elapsed / 10, PERIOD_MAX)))


def pause(seconds):
    """Lets what is under way go on for so long: the moment at which it is met is what is tried."""
    time.sleep(max(0, seconds))


def write_pipe(path, data):
    """To a named pipe that a program has open: an error if none has, not a wait."""
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def read_stat(pid):
    """(parent, state, comm) of a process, or None when it is gone. Asked of every process there is, again and again: so without a file object."""
    try:
        fd = os.open(f'/proc/{pid}/stat', os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(fd, 4096).decode(errors='replace')
    except OSError:
        return None
    finally:
        os.close(fd)
    comm, rest = text[text.index('(') + 1:text.rindex(')')], text[text.rindex(')') + 2:].split()
    return int(rest[1]), rest[0], comm


PF_EXITING = 4


def is_exiting(pid, proc='/proc'):
    """Its first thread is on its way out, or gone."""
    try:
        return int(Path(f'{proc}/{pid}/stat').read_text().rpartition(')')[2].split()[6]) & PF_EXITING
    except OSError:
        return True


def has_threads(pid):
    """Its first thread has ended, others have not."""
    try:
        return len(os.listdir(f'/proc/{pid}/task')) > 1
    except OSError:
        return False


def descendants_and_dead():
    """(pids below this process, parents first; those of all that are dead). What a dead one had is still below it, until the kernel has given it to another."""
    parent, dead = {}, set()
    for entry in os.listdir('/proc'):
        stat = read_stat(entry) if entry.isdigit() else None
        if not stat:
            continue
        parent[int(entry)] = stat[0]
        if stat[1] in 'ZX' and not has_threads(entry):
            dead.add(int(entry))
    found = [os.getpid()]
    for pid in found:
        found += [child for child, above in parent.items() if above == pid]
    return found[1:], dead


def descendants():
    """Pids of those that live."""
    pids, dead = descendants_and_dead()
    return [pid for pid in pids if pid not in dead]


def reap_others(kept):
    """Pids below this process that live; it waits for what is dead of them, but for the @kept."""
    pids, dead = descendants_and_dead()
    for pid in dead.intersection(pids) - set(kept):
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass
    return [pid for pid in pids if pid not in dead]


def kill_each(pids):
    """SIGKILL to those that are still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


RESERVED = {}


def reserve_port(port):
    """For this process as long as it lives: another test that looks for one before ours is bound would find the same."""
    if port not in RESERVED:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.bind(f'\0fermata-test-port-{port}')
        except OSError:
            s.close()
            return False
        RESERVED[port] = s
    return True


def free_port(low=22000, high=23999):
    start = os.getpid() * 7 % (high - low)
    for n in range(high - low):
        port = low + (start + n) % (high - low)
        if not reserve_port(port):
            continue
        with socket.socket() as s:
            try:
                s.bind(('', port))
                return port
            except OSError:
                continue
    raise Failure('no free port')


class Output:
    """What a process writes, kept in a file: no pipe that a killed reader could break, nothing lost."""

    def __init__(self, path):
        self.path = path

    def text(self):
        return self.path.read_bytes().decode(errors='replace') if self.path.exists() else ''

    def has_line(self, line):
        """To its end: a program that writes its end apart is in the midst of it else."""
        return re.search(rf'^{re.escape(line)}\r?\n', self.text(), re.M)


class Program(subprocess.Popen):
    """A foreground process of the test; its output is pumped by a helper process (cat), as a pipe would be read.

    @stdout: pipe, file, or tty: a terminal of its own, for input, too.
    """

    def __init__(self, job, label, argv, env=None, stdout='pipe', stdin=subprocess.DEVNULL, cwd=None):
        self.label = label
        self.out = Output(job.folder / f'{label}.out')
        self.err = Output(job.folder / f'{label}.err')
        err = open(self.err.path, 'ab')
        if stdout == 'pipe':
            pump = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=open(self.out.path, 'ab'),
                                    start_new_session=True)
            out = pump.stdin
            job.pumps.append(pump)
        elif stdout == 'tty':
            master, stdin = os.openpty()
            pump = subprocess.Popen(['cat'], stdin=master, stdout=open(self.out.path, 'ab'),
                                    stderr=subprocess.DEVNULL, start_new_session=True)
            os.close(master)
            out = os.fdopen(stdin, 'wb', 0)
            job.pumps.append(pump)
        else:
            pump, out = None, open(self.out.path, 'ab')
        self.pump = pump
        super().__init__([str(a) for a in argv], stdin=stdin, stdout=out, stderr=err, env=env or job.env,
                         cwd=cwd or job.cwd, start_new_session=True)
        out.close()
        err.close()

    def ended(self):
        return self.poll() is not None

    def wait_end(self, limit=None):
        wait_for(self.ended, f'{self.label} has not ended', limit)
        if self.pump:
            wait_for(lambda: self.pump.poll() is not None, f'the output of {self.label} has not ended', 10)
        return self.returncode

    def describe(self):
        text = f'-- {self.label}: {self.args if isinstance(self.args, str) else " ".join(self.args)}\n' \
               f'   status {self.poll()}\n'
        for name, output in (('out', self.out), ('err', self.err)):
            tail = output.text()[-1500:].rstrip()
            if tail:
                text += ''.join(f'   {name}: {line}\n' for line in tail.splitlines())
        return text


class Job:
    """One job in folders of its own. @bin: where the fermata commands are."""

    def __init__(self, binaries, folder, name='job', options=()):
        self.bin = Path(binaries).resolve()
        self.folder = Path(folder)
        self.name = name
        self.options = list(options)
        self.dir = self.folder / 'checkpoints'
        self.cwd = self.folder / 'cwd'
        self.rundir = self.folder / 'run'
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.programs = []
        self.commands = []
        self.pumps = []
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(('FERMATA_JOB', 'XDG_RUNTIME'))}
        self.env.update(FERMATA_RUNDIR=str(self.rundir), HOME=str(self.folder))

    # -- what a user does

    def start(self, label, argv, **more):
        """A program without fermata."""
        program = Program(self, label, argv, **more)
        self.programs.append(program)
        return program

    def launch(self, label, argv, options=(), **more):
        return self.start(label, [self.bin / 'fermata', 'launch', '--job', self.name, '--dir', self.dir, *self.options,
                                  *options, '--', *argv], **more)

    def command(self, *argv, limit=None, env=None):
        """A fermata command to its end: (status, stdout, stderr)."""
        label = f'command-{len(self.commands)}'
        program = Program(self, label, [self.bin / 'fermata', *argv], stdout='file', env=env)
        self.commands.append(program)
        program.wait_end(limit)
        return program.returncode, program.out.text(), program.err.text()

    def checkpoint(self, *options):
        status, out, err = self.command('checkpoint', *options, self.name)
        if status:
            raise Failure(f'fermata checkpoint: status {status}: {(err or out).strip()}')
        return self.newest()

    def newest(self):
        """The newest complete checkpoint's number, 0 if none."""
        numbers = [int(p.name) for p in self.dir.glob('*') if p.name.isdigit() and (p / 'manifest.json').exists()]
        return max(numbers, default=0)

    def steps(self, cwd=None):
        """How many steps a program has said that it has made: none yet, when it was held up since it got ready."""
        try:
            return ((cwd or self.cwd) / 'progress').stat().st_size
        except FileNotFoundError:  # or a restart is putting it back just now
            return 0

    def images(self, number=None):
        folder = self.dir / str(number or self.newest())
        return sorted(folder.glob('*.core'))

    def restart(self, what=None, options=(), **more):
        return self.start(f'restart-{len(self.programs)}', [self.bin / 'fermata', 'restart', *options, what or self.dir],
                          **more)

    def is_running(self):
        """Nothing of a checkpoint or a restart is under way."""
        status, out, _ = self.command('status', '--json', self.name)
        return status == 0 and json.loads(out)['phase'] == 'running'

    # -- what befalls a job

    def kill_all(self):
        """SIGKILL to every process of the job, the coordinator too; the pumps of output stay."""
        def gone():
            rest = self.left()
            kill_each(rest)
            return not rest

        wait_for(gone, 'killed processes do not end', 20)

    def left(self):
        """Processes of the job that still live; the others are reaped."""
        pumps = {p.pid for p in self.pumps}
        for program in [*self.programs, *self.commands]:
            program.poll()
        # A process that has ended may have come back with its pid: not in a capsule, but as one that is ours to wait for.
        kept = {p.pid for p in [*self.programs, *self.commands] if p.returncode is None} | pumps
        return [pid for pid in reap_others(kept) if pid not in pumps]

    def wait_empty(self, limit=20):
        """Everything has ended by itself, the coordinator too."""
        try:
            wait_for(lambda: not self.left(), '', limit)
        except Failure:
            names = [f'{pid} ({(read_stat(pid) or (0, 0, "?"))[2]})' for pid in self.left()]
            raise Failure(f'left behind: {", ".join(names)}') from None

    # -- after a failure

    def describe(self):
        text = ''.join(p.describe() for p in [*self.programs, *self.commands[-2:]])
        pumps = {p.pid for p in self.pumps}
        living = [pid for pid in descendants() if pid not in pumps]
        programs = [pid for pid in living if not (read_stat(pid) or (0, 0, 'fermata'))[2].startswith('fermata')]
        for pid in living:
            text += describe_process(pid, pid in programs[:2])
        return text

    def remove_objects(self):
        """System V and POSIX objects that killed programs have left behind; those that make some say so in a file of the kind's name."""
        libc = ctypes.CDLL(None)
        remove = {'segments': lambda i: libc.shmctl(i, 0, None), 'semaphores': lambda i: libc.semctl(i, 0, 0),
                  'queues': lambda i: libc.msgctl(i, 0, None)}  # 0: IPC_RMID
        for kind, function in remove.items():
            listed = self.cwd / kind
            for number in listed.read_text().split() if listed.exists() else []:
                function(int(number))
        listed = self.cwd / 'names'
        for name in listed.read_text().split() if listed.exists() else []:
            libc.mq_unlink(name.encode())
        listed = self.cwd / 'shm_names'  # and what restarts have put aside of it
        for name in listed.read_text().split() if listed.exists() else []:
            for path in Path('/dev/shm').glob(f'{name}*'):
                path.unlink(missing_ok=True)

    def clean(self):
        self.kill_all()
        self.remove_objects()
        for pump in self.pumps:
            pump.kill()
            pump.wait()


def describe_process(pid, backtraces=False):
    text = f'-- living: {pid} {" ".join(str(x) for x in read_stat(pid) or ())}\n'
    try:
        tasks = sorted(os.listdir(f'/proc/{pid}/task'), key=int)
    except OSError:
        return text
    for tid in tasks[:40]:
        try:
            where = Path(f'/proc/{pid}/task/{tid}/syscall').read_text().strip()
            ran, waited, _ = Path(f'/proc/{pid}/task/{tid}/schedstat').read_text().split()
            state = read_stat(f'{pid}/task/{tid}') or ('', '?', '?')
            text += f'   {tid} {state[1]} {state[2]}: {where}; ran {int(ran) / 1e9:.1f} s, waited for a processor {int(waited) / 1e9:.1f} s\n'
        except OSError:
            continue
    if backtraces or os.environ.get('FERMATA_TEST_GDB'):
        result = subprocess.run(['timeout', '20', 'gdb', '-p', str(pid), '-batch', '-nx', '-ex', 'thread apply all bt 12'],
                                capture_output=True, text=True, stdin=subprocess.DEVNULL)
        text += result.stdout[-6000:]
    return text


@contextlib.contextmanager
def under_test(job, *cleans, seed=None):
    """Around what is done with @job: a failure tells what is to be seen of it, and nothing stays behind."""
    try:
        yield
    except Failure as e:
        raise Failure(f'{e}\n' + (f'seed {seed}\n' if seed is not None else '') + job.describe()) from None
    finally:
        for clean in cleans or (job.clean,):
            clean()


def run_tests(tests, folder, keep=False):
    """Runs (name, function(folder)) pairs; prints one "ok|FAIL|skip NAME SECONDS [TEXT]" block a test.

    The runner reads these: a line that begins with one of the words begins a result, further lines are its text.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would our programs
    failed = 0
    for name, function in tests:
        own = Path(tempfile.mkdtemp(prefix='t', dir=folder))
        begin = time.monotonic()
        status, text = 'ok', ''
        try:
            text = function(own) or ''
        except Skip as e:
            status, text = 'skip', str(e)
        except Failure as e:
            status, text = 'FAIL', str(e)
        except Exception as e:  # a mistake of the test itself is a failure too, not the end of the run
            import traceback
            status, text = 'FAIL', f'{type(e).__name__}: {e}\n{traceback.format_exc(-2)}'
        print(f'{status} {name} {time.monotonic() - begin:.2f} {text}'.replace('\n', '\n  ').rstrip(), flush=True)
        failed += status == 'FAIL'
        if not (keep and status == 'FAIL'):
            subprocess.run(['rm', '-rf', str(own)])
    return 1 if failed else 0


def main_arguments(description):
    import argparse
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument('--bin', required=True, help='where fermata is')
    parser.add_argument('--folder', required=True, help='a folder to work in')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--only', default='')
    parser.add_argument('--keep', action='store_true')
    return parser


sys.dont_write_bytecode = True
