# SPDX-License-Identifier: BSD-2-Clause
"""Many processes, and many threads: what a checkpoint and a restart of them take, beside DMTCP where it is installed; and what the agent adds to a process."""
import re
import time
from pathlib import Path

import dmtcp
from figures import better_half, show
from harness import Failure, wait_for

PROCESSES, THREADS = [1, 16, 128, 512], [1, 16, 256]
ROUNDS = 3
RESIDENT_KIB = 2048


class ManyProcesses:
    """Mixed into Bench: its group "many"."""

    def many(self):
        self.resident()
        for n in PROCESSES:
            self.many_one(f'{n}-processes', [n, 0])
        for n in THREADS:
            self.many_one(f'{n}-threads', [1, n])

    def many_one(self, name, amounts):
        argv = [self.build / 'benchmarks/bench_many', *map(str, amounts)]
        ours = self.many_ours(argv)
        theirs = self.many_theirs(argv) if dmtcp.available() else (None, None)
        for what, mine, peer in zip(('checkpoint', 'restart'), ours, theirs):
            if peer is None:
                show(f'{what}-{name}', f'{1000 * mine:.0f} ms')
            else:
                show(f'{what}-{name}', f'{mine / peer:.2f} of DMTCP, {1000 * mine:.0f} ms beside {1000 * peer:.0f} ms', 'below 1.00', mine < peer)

    def many_ours(self, argv):
        """Seconds of a checkpoint, and of a restart until all go on."""
        job = self.job()
        taken, back = [], []
        try:
            running = job.launch('many', argv)
            wait_for(lambda: running.out.has_line('ready') or running.ended(), 'the program does not get ready', 300)
            for _ in range(ROUNDS):
                begin = time.monotonic()
                status, _, err = job.command('checkpoint', job.name, limit=600)
                taken.append(time.monotonic() - begin)
                if status:
                    raise Failure(f'checkpoint: {err}')
            for _ in range(ROUNDS):
                job.kill_all()
                back.append(self.many_restart(job))
        finally:
            job.clean()
        return better_half(taken), better_half(back)

    def many_restart(self, job):
        progress = job.cwd / 'progress'
        before = progress.stat().st_size
        begin = time.monotonic()
        running = job.restart()
        wait_for(lambda: progress.stat().st_size > before or running.ended(), 'no restart', 600)
        if running.ended():
            raise Failure(f'restart: status {running.returncode}: {running.err.text()}')
        return time.monotonic() - begin

    def many_theirs(self, argv):
        peer = dmtcp.Dmtcp(self.folder / 'dmtcp', argv)
        try:
            taken, back = [peer.checkpoint() for _ in range(ROUNDS)], []
            for _ in range(ROUNDS):
                peer.end()
                back.append(peer.restart())
            return better_half(taken), better_half(back)
        finally:
            peer.clean()

    def resident(self):
        """What is resident of a small program: bare, and under fermata."""
        found = []
        for fermata in False, True:
            job = self.job()
            try:
                running = (job.launch if fermata else job.start)('resident', [self.build / 'benchmarks/bench_many', '1', '0'])
                wait_for(lambda: running.out.has_line('ready') or running.ended(), 'the program does not get ready')
                rollup = Path(f'/proc/{running.pid}/smaps_rollup').read_text()
                found.append({k: int(v) for k, v in re.findall(r'^(Rss|Private_Dirty): +(\d+)', rollup, re.M)})
            finally:
                job.clean()
        added = found[1]['Rss'] - found[0]['Rss']
        show('resident-added', f"{added} KiB, {found[1]['Private_Dirty'] - found[0]['Private_Dirty']} KiB of them written", f'below {RESIDENT_KIB} KiB', added < RESIDENT_KIB)
