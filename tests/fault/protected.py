# SPDX-License-Identifier: BSD-2-Clause
"""A job with which a process stays: launched, brought back, and what is expected of it."""
import json
import re
import signal
import sys

sys.dont_write_bytecode = True
from harness import Failure, Job, main_arguments, run_tests, under_test, wait_for  # noqa: E402

PYTHON = '/usr/bin/python3'
ON_SIGNAL = ['--on-signal', 'USR1']
# Counts until it is told to finish; says which signals it gets.
COUNTER = '''
import os, signal, sys
for name in ('TERM', 'USR2', 'CONT'):
    signal.signal(getattr(signal, 'SIG' + name), lambda number, frame, name=name: (print('got', name, flush=True), name == 'TERM' and sys.exit(3)))
print('ready', flush=True)
while not os.path.exists('finish'):
    with open('progress', 'ab') as f:
        f.write(b'.')
sys.exit(42)
'''


class Protected:
    def __init__(self, options, folder):
        self.job = Job(options.bin, folder)

    def launch(self, code=COUNTER, options=ON_SIGNAL, label='program', **more):
        running = self.job.launch(label, [PYTHON, '-c', code], options, **more)
        wait_for(lambda: running.out.has_line('ready') or running.ended(), 'the program does not get ready')
        return running

    def goes_on(self, running):
        before = self.job.steps()
        wait_for(lambda: self.job.steps() > before + 2 or running.ended(), 'the program does not go on')
        if running.ended():
            raise Failure(f'{running.label}: status {running.returncode}')

    def restart(self, *options):
        running = self.job.restart(options=options)
        wait_for(lambda: self.status() or running.ended(), 'the job does not come back')
        self.goes_on(running)
        return running

    def status(self):
        """What the coordinator says of the job when it runs, else None."""
        code, out, _ = self.job.command('status', '--json', self.job.name)
        status = json.loads(out) if not code else {}
        return status if status.get('phase') == 'running' and status['processes'] else None

    def program(self):
        return self.status()['processes'][0]['pid']

    def finish(self, running, status=42):
        (self.job.cwd / 'finish').touch()
        self.ends(running, status)

    def ends(self, running, status):
        if running.wait_end() != status:
            raise Failure(f'{running.label} ended with {running.returncode}, not {status}')

    def says(self, running, pattern):
        wait_for(lambda: re.search(pattern, running.err.text()), f'{running.label} does not say "{pattern}"')

    def requeued(self, running, number):
        """The signal brings a checkpoint, the end of all, and 99."""
        running.send_signal(signal.SIGUSR1)
        self.ends(running, 99)
        self.says(running, rf'is ended at checkpoint {number}, to be requeued: fermata restart {self.job.dir}/{number}')
        if self.job.newest() != number:
            raise Failure(f'the newest checkpoint is {self.job.newest()}, not {number}')
        self.job.wait_empty()


def make(options, function):
    def test(folder):
        protected = Protected(options, folder)
        with under_test(protected.job):
            return function(protected)
    return test


def main(description, functions):
    """Those whose names begin with test_."""
    options = main_arguments(description).parse_args()
    tests = [(f'protect-{name[5:].replace("_", "-")}', make(options, function)) for name, function in list(functions.items())
             if name.startswith('test_')]
    return run_tests([t for t in tests if options.only.removeprefix('fault/') in t[0]], options.folder, options.keep)
