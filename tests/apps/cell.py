# SPDX-License-Identifier: BSD-2-Clause
"""A code over a transport, run by run: bare, under fermata, cut at random moments, in a chain of restarts, with periodic checkpoints. On the system's device, in a guest
(apps-rxe): restarted there, over softrdma and there again; and left in mid-run, for the host.

Each run has a folder, a job and softrdma memory of its own. A cell goes on after a run that failed, so that the table says all that is known; what it
has measured and what failed is in @row.
"""
import json
import pickle
import random
import shutil
import statistics
import time
from pathlib import Path

from application import version
from harness import Failure, pause, wait_for
from touched import by_pid
from two import Two

LIMIT = 900  # seconds, for a run to its end: everything is slower by orders on a busy machine
CHAIN = 3
LIVES = ('system', 'soft', 'system')
INTERVAL = 4  # seconds; a fast machine is through with some codes before


class EndedEarly(Failure):
    pass


class Run:
    """One run of the code from its beginning; restarts go on with it."""

    def __init__(self, cell, name, fermata=True, options=(), left=None):
        self.cell = cell
        self.two = Two(cell.options, cell.folder / name, fermata)
        self.two.rdma = cell.transport.rdma
        self.job, self.cwd = self.two.job, self.two.job.cwd
        if left:  # its checkpoints, with all that it has written: for a host that does not have this folder
            self.job.dir = left
            self.job.options += ['--with', self.cwd]
        self.job.options += ['--keep', '2', *options]
        cell.code.prepare(self.cwd)
        self.env = {**self.job.env, **cell.code.environment(self.cwd, cell.transport)}
        self.program = self.two.start('run', cell.code.command(self.cwd, cell.transport), env=self.env)

    def wait_loop(self):
        self.wait(lambda: self.cell.code.in_loop(self.cwd), 'does not get into its main loop')

    def wait(self, condition, what):
        wait_for(lambda: self.program.ended() or condition(), f'{self.cell.code.name} {what}', LIMIT, 0.02)
        if self.program.ended() and self.program.returncode:
            self.has_failed()

    def has_failed(self):
        """In the words of the refusal, if it was one."""
        said = [line for line in self.program.err.text().splitlines() if line.startswith('fermata: pid')]
        raise Failure(f'{self.cell.code.name} ended with status {self.program.returncode}' + (f': {said[-1]}' if said else ''))

    def checkpoint(self):
        touched = by_pid(self.two.shm)
        status, out, err = self.job.command('checkpoint', '--json', self.job.name, limit=LIMIT)
        if status:
            if 'is not running' in err:
                self.program.wait_end(LIMIT)
            if self.program.ended() and not self.program.returncode:
                raise EndedEarly('it has ended before the checkpoint')
            raise Failure(f'fermata checkpoint: status {status}: {(err or out).strip()}')
        self.cell.pauses.append(json.loads(out)['pause_ms'] / 1000)
        size, largest = max((image.stat().st_blocks * 512, int(image.stem)) for image in self.job.images())
        self.cell.sizes.append(size)
        if largest in touched:  # else it has begun since
            self.cell.of_touched.append(size / touched[largest])

    def again(self, life=None):
        """SIGKILL to everything, and a restart, over @life; how long until the programs go on."""
        self.job.kill_all()
        begin = time.monotonic()
        self.program = self.job.restart(env=self.env, options=['--rdma', life] if life else [])
        self.wait(self.goes_on, 'is not restarted')
        self.cell.restarts.append(time.monotonic() - begin)

    def goes_on(self):
        status, out, _ = self.job.command('status', '--json', self.job.name)
        return not status and json.loads(out)['phase'] == 'running'

    def finish(self):
        if self.program.wait_end(LIMIT):
            self.has_failed()
        return self.cell.code.result(self.cwd)

    def same(self):
        if self.finish() != self.cell.expected:
            raise Failure('the result is not that of a run at one go')


class Cell:
    def __init__(self, options, folder, name, code, transport):
        self.options, self.folder, self.name, self.code, self.transport = options, folder, name, code, transport
        self.rng = random.Random(f'{options.seed}/{code.name}/{transport.name}')
        self.pauses, self.sizes, self.of_touched, self.restarts, self.failures = [], [], [], [], []
        self.bare, self.under = [], []  # seconds of the runs without fermata, and of those under it, in pairs
        self.expected = None
        self.lengths = None  # of what it tells, as its main loop begins and at the end
        self.periodic, self.periodic_cost = 0, None  # how many checkpoints; seconds each

    def step(self, name, body, **more):
        """One run, from which @body takes what it wants. A failure says which run it was, and all that is known of it."""
        run = None
        try:
            run = Run(self, name, **more)
            return body(run)
        except EndedEarly:
            raise
        except Exception as e:
            what = str(e) if isinstance(e, Failure) else f'{type(e).__name__}: {e}'
            self.failures.append((name, what, run.two.job.describe() + text_tail(run.cwd) if run else ''))
        finally:
            if run:
                run.two.clean()
                if not (self.options.keep and self.failures):
                    shutil.rmtree(run.job.folder, ignore_errors=True)
        return None

    def uncut(self, run):
        run.wait_loop()
        begin = self.code.length(run.cwd)
        result = run.finish()
        return result, self.code.seconds(run.cwd), (begin, self.code.length(run.cwd))

    def checkpoint_at(self, run, share):
        """At @share of its main loop, as far as what it tells shows, and a random moment later."""
        begin, end = self.lengths
        run.wait_loop()
        run.wait(lambda: self.code.length(run.cwd) >= begin + share * (end - begin), f'does not get to {100 * share:.0f} %')
        pause(self.rng.expovariate(1 / 0.1))
        run.checkpoint()

    def cut(self, run, shares):
        for n, share in enumerate(shares):
            self.checkpoint_at(run, share)
            run.again(LIVES[n] if self.options.device else None)
        run.same()

    def leave(self, run, shares):
        """Killed in mid-run; what another host needs to go on with it and to judge it."""
        self.checkpoint_at(run, shares[0])
        run.job.kill_all()
        told = {'name': self.name, 'job': run.job.name, 'cwd': str(run.cwd), 'shm': str(run.two.shm), 'row': self.row()}
        (run.job.dir / 'left.json').write_text(json.dumps(told))
        (run.job.dir / 'expected').write_bytes(pickle.dumps(self.expected))

    def cut_at(self, name, shares, body=None, **more):
        """Earlier, if it has ended by then."""
        for attempt in range(4):
            try:
                self.step(name + (f'.{attempt}' if attempt else ''), lambda run: (body or self.cut)(run, shares), **more)
                return
            except EndedEarly:
                shares = [share / 2 for share in shares]
        self.failures.append((name, 'it has always ended before the checkpoint', ''))

    def with_interval(self, run):
        begin = time.monotonic()
        run.same()
        return run.job.newest(), time.monotonic() - begin, self.code.seconds(run.cwd)

    def pair(self, number):
        """A run bare and one under fermata, one after the other. What the first says is what all have to say."""
        bare = self.step(f'bare-{number}', self.uncut, fermata=False)
        if not bare:
            return
        if number == 1:
            self.expected, _, self.lengths = bare
        under = self.step(f'fermata-{number}', self.uncut)
        for name, said in (('bare', bare), ('fermata', under)):
            if said and said[0] != self.expected:
                self.failures.append((f'{name}-{number}', 'the result is not the first one', ''))
        if under:
            self.bare.append(bare[1])
            self.under.append(under[1])

    def run_on_device(self):
        self.pair(1)
        if not self.bare:
            return
        self.cut_at('lives', sorted(self.rng.uniform(0, 0.9) for _ in LIVES))
        if not self.failures:
            self.cut_at('leave', [self.rng.uniform(0, 0.9)], self.leave, left=Path(self.options.device) / self.name)

    def run(self):
        if self.options.device:
            self.run_on_device()
            return
        for n in range(self.options.pairs):
            self.pair(n + 1)
            if not self.bare:
                return
        for n in range(self.options.moments):
            self.cut_at(f'moment-{n + 1}', [self.rng.uniform(0, 0.9)])
        if self.options.short:
            return
        self.cut_at('chain', sorted(self.rng.uniform(0, 0.9) for _ in range(CHAIN)))
        interval = max(1, min(INTERVAL, int(min(self.bare) / 3)))
        self.periodic, took, seconds = self.step('periodic', self.with_interval, options=['--interval', interval]) or (0, 0, 0)
        if self.periodic and self.code.times > 1:
            self.periodic_cost = (seconds - statistics.median(self.under)) / self.periodic
        if not self.periodic and not self.failures and took > 2 * interval:
            self.failures.append(('periodic', f'no checkpoint was taken in {took:.0f} s', ''))

    def verdict(self):
        if self.failures:
            return '; '.join(f'**{name}: {" ".join(what.split())[:300]}**' for name, what, _ in self.failures)
        if self.options.device:
            return f'same, {self.code.compared}: cut and restarted on rxe0, over softrdma, on rxe0'
        cost = '' if self.periodic_cost is None else f' at {self.periodic_cost:.2f} s each'
        more = '' if self.options.short else f', chain of {CHAIN}, {self.periodic or "too short for a"} periodic{cost}'
        return f'same, {self.code.compared}: {self.options.moments} moments{more}'

    def row(self):
        """For the table: strings by their names."""
        def middle(values, form):
            return form.format(statistics.median(values)) if values else ''
        table = 'device' if self.options.device else 'long' if self.code.times > 1 else 'short'
        return {'table': table, 'code': f'{self.code.name} {version(self.code.package)}', 'ranks': str(self.code.ranks), 'transport': self.transport.words,
                'bare': middle(self.bare, '{:.1f} s'), 'fermata': middle([under / bare for bare, under in zip(self.bare, self.under)], '{:.3f}' if len(self.bare) > 1 else '{:.2f}'),
                'image': middle([s / (1 << 20) for s in self.sizes], '{:.0f} MiB') + middle(self.of_touched, ', {:.2f}'), 'pause': middle(self.pauses, '{:.2f} s'),
                'restart': middle(self.restarts, '{:.2f} s'), 'verdict': self.verdict()}


def text_tail(cwd):
    path = cwd / 'out'
    return f'-- out\n{path.read_bytes()[-1500:].decode(errors="replace")}\n' if path.exists() else ''
