# SPDX-License-Identifier: BSD-2-Clause
"""One program that counts its steps in its working directory, cut and restarted."""
import re

from harness import Failure, Job, wait_for

STEPS = 3


class Stepping:
    def __init__(self, options, folder):
        self.job = Job(options.bin, folder)
        self.running = None

    @property
    def cwd(self):
        return self.job.cwd

    def launch(self, argv, options=()):
        self.running = self.job.launch('program', argv, options, cwd=self.cwd)
        wait_for(lambda: self.running.ended() or self.running.out.has_line('ready'), 'the program does not get ready')
        self.go_on()

    def go_on(self):
        before = self.job.steps(self.cwd)

        def event():
            if self.running.ended():
                raise Failure(f'{self.running.label} ended with status {self.running.returncode}')
            return self.job.steps(self.cwd) >= before + STEPS
        wait_for(event, 'the program does not go on')

    def cut(self, *options):
        self.job.checkpoint(*options)
        self.go_on()
        self.job.kill_all()

    def restart(self, *options):
        self.running = self.job.restart(options=options)
        self.go_on()

    def refuse(self, status, patterns, *options):
        code, out, err = self.job.command('restart', *options, self.job.dir)
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if code != status or not re.search(pattern, err):
                raise Failure(f'status {code}, not {status}, or it does not say /{pattern}/: {out}{err}')

    def finish(self):
        (self.cwd / 'finish').touch()
        if self.running.wait_end():
            raise Failure(f'the program says that something is wrong: status {self.running.returncode}')
        self.job.wait_empty()
