# SPDX-License-Identifier: BSD-2-Clause
"""One end of rdma_cm that is told each step, and tells each event (cm_steps.c)."""
import subprocess
from pathlib import Path

from harness import Failure, wait_for
import wire

STEPS = Path(__file__).resolve().parent / 'cm_steps'


class Steps:
    """On host @n: what it is told to do, and the events that it tells."""

    def __init__(self, pair, n, *argv):
        self.pair, self.seen = pair, 0
        self.program = pair.start(n, f'steps-{n}-{len(pair.job.programs)}', [STEPS, *argv], stdin=subprocess.PIPE)

    def line(self, limit=None):
        """The next line that it says."""
        def there():
            lines = self.program.out.text().split('\n')
            if len(lines) <= self.seen + 1 and self.program.ended():
                raise Failure(f'{self.program.label} ended with status {self.program.returncode}')
            return len(lines) > self.seen + 1 and lines
        lines = wait_for(there, f'{self.program.label} says no more', limit)
        self.seen += 1
        return lines[self.seen - 1].rstrip()

    def do(self, command):
        self.program.stdin.write(f'{command}\n'.encode())
        self.program.stdin.flush()
        answer = self.line()
        if answer != 'ok':
            raise Failure(f'{command}: {answer}')

    def expect(self, *events, limit=None):
        """One of these comes."""
        said = self.line(limit)
        if said not in events:
            raise Failure(f'{self.program.label}: "{said}" instead of "{events[0]}"')

    def quiet(self):
        lines = self.program.out.text().split('\n')
        if len(lines) > self.seen + 1:
            raise Failure(f'{self.program.label}: "{lines[self.seen]}" instead of nothing')

    def resolve(self, address=wire.ADDRESS[0], port=7000):
        self.do(f'resolve {address} {port} 2000')
        self.expect('ADDR_RESOLVED 0')
        self.do('route')
        self.expect('ROUTE_RESOLVED 0')
