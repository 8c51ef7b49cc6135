# SPDX-License-Identifier: BSD-2-Clause
"""The group "verbs" of benchmarks/run: many queue pairs, regions and processes."""
import json
import re
import subprocess

from figures import better_half, show
from harness import Failure, wait_for

TURNS = 9
RESTARTS = 5


class ManyObjects:
    """Of a Bench."""

    def verbs(self):
        """Many queue pairs and regions: the calls among them, and what they cost a checkpoint and a restart."""
        self.without = self.verbs_without()
        for queue_pairs, regions, limit_ms in ((1, 1, 1), (64, 64, 5), (4096, 4096, 100), (1, 100000, None)):
            name = f'verbs-{queue_pairs}qp-{regions}mr'
            made, before = self.verbs_post_poll(name, queue_pairs, regions)
            for way in ('idle', 'busy'):
                self.verbs_one(name, [queue_pairs, regions, way], made, before, limit_ms)
        self.verbs_post_poll('verbs-1024qp-1mr', 1024, 1)  # what they touch just fits into a cache of 1 MiB, or does not

        few, many = 16, 64
        each = {n: better_half([self.verbs_together(n, 4000) for _ in range(3)]) / n for n in (few, many)}
        show('verbs-restart-together', f'{each[many] / each[few]:.2f} times as long a process for {many} processes as for {few}, of 4000 regions each '
             f'({1000 * each[few]:.2f} -> {1000 * each[many]:.2f} ms)', 'at most 1.50: n log n', each[many] / each[few] <= 1.5)

    def verbs_together(self, processes, regions):
        """Seconds that their device's objects and names take at a restart."""
        job = self.job()
        one = f'{self.build}/benchmarks/verbs_many 1 {regions} idle > out.$n & '
        try:
            job.launch('together', ['sh', '-c', f'for n in $(seq {processes}); do {one} done; wait'], ['--rdma', 'soft'])
            wait_for(lambda: sum('ready' in p.read_text() for p in job.cwd.glob('out.*')) == processes, 'not all get ready', 120)
            job.checkpoint()
            job.kill_all()
            restarted = job.restart()
            return self.verbs_again(job, restarted)
        finally:
            job.clean()

    def verbs_again(self, job, restarted):
        phases = {}

        def over():
            phases.update(self.status(job).get('restart_phases_ns', {}))
            return restarted.ended() or 'REFILL' in phases
        wait_for(over, 'no restart', 120, 0.2)  # seldom: who asks takes one of the processors
        return sum(ns for phase, ns in phases.items() if phase in ('RECREATE', 'PUBLISH', 'RECONNECT')) / 1e9

    def verbs_without(self):
        """Seconds that the same phases of a restart take where there is no device."""
        job = self.job()
        try:
            running = job.launch('none', [self.build / 'benchmarks/verbs_many', '0', '0', 'idle'], ['--rdma', 'soft'])
            wait_for(lambda: running.out.has_line('ready') or running.ended(), 'it does not get ready', 60)
            job.checkpoint()
            return min(self.verbs_restart(job)[0] for _ in range(RESTARTS))
        finally:
            job.clean()

    def verbs_post_poll(self, name, *amounts):
        """What a post and poll takes more than bare, in turns; the seconds that making the objects takes bare, and what a post and poll takes under fermata."""
        argv, made, bare, under = [self.build / 'benchmarks/verbs_many', *map(str, amounts)], [], [], []
        for _ in range(TURNS):
            took, ns = subprocess.run([self.bin / 'softrdma-run', *argv], capture_output=True, text=True, check=True).stdout.split()
            made.append(float(took))
            bare.append(float(ns))
            job = self.job()
            try:
                run = job.launch('once', argv, ['--rdma', 'soft'])
                if run.wait_end(60):
                    raise Failure(f'{name}: status {run.returncode}: {run.err.text().strip()}')
                under.append(float(run.out.text().split()[1]))
            finally:
                job.clean()
        more = better_half(under) - better_half(bare)
        show(f'{name}-post-poll', f'{more:+.0f} ns, {better_half(under) / better_half(bare):.2f} x bare', 'less than +25', more < 25)
        return min(made), better_half(under)

    def verbs_one(self, name, arguments, made, before, limit_ms):
        job, way = self.job(), arguments[2]
        try:
            running = job.launch('many', [self.build / 'benchmarks/verbs_many', *map(str, arguments)], ['--rdma', 'soft'])
            wait_for(lambda: running.out.has_line('ready') or running.ended(), f'{name} does not get ready', 60)
            drains = []
            for _ in range(5):
                job.checkpoint()
                drains.append(self.status(job)['last']['phases_ns']['DRAIN'] / 1e6)
            drain = better_half(drains)
            show(f'{name}-drain-{way}', f'{drain:.2f} ms', *([f'less than {limit_ms} ms', drain < limit_ms] if limit_ms else []))
            if way == 'busy':
                return
            again, after = zip(*[self.verbs_restart(job) for _ in range(RESTARTS)])
            more = better_half(after) - before
            show(f'{name}-post-poll-restarted', f'{more:+.0f} ns on {before:.0f}', 'within 10', more < 10)
            ratio = (min(again) - self.without) / made
            show(f'{name}-restart', f'{ratio:.2f} of what making them takes bare ({1000 * made:.1f} -> {1000 * min(again):.1f} ms, of which {1000 * self.without:.1f} without any)',
                 'at most 1.30', ratio <= 1.3)
        finally:
            job.clean()

    def verbs_restart(self, job):
        """Seconds that the objects take at a restart, and what a post and poll takes then."""
        finish = job.cwd / 'finish'
        job.kill_all()
        finish.unlink(missing_ok=True)
        # What the killed device has left in memory the next one gives back, whoever it is: no part of making objects.
        subprocess.run([self.bin / 'softrdma-run', 'ibv_devinfo'], env=job.env, capture_output=True, check=True)
        restarted = job.restart()
        seconds = self.verbs_again(job, restarted)
        finish.touch()
        restarted.wait_end(60)
        return seconds, float(re.search(r'^after ([0-9.]+)', restarted.out.text(), re.M).group(1))

    def status(self, job):
        code, out, _ = job.command('status', '--json', job.name)
        return json.loads(out) if code == 0 else {}
