# SPDX-License-Identifier: BSD-2-Clause
"""A job with a directory of `launch --with`, for test-with and test-clone."""
import os
import re
import stat
from pathlib import Path

from harness import Failure, Job, under_test, wait_for


class Scene:
    """tree_writer in a directory that holds some things more; `data` is that directory."""

    def __init__(self, options, folder):
        self.job = Job(options.bin, folder)
        self.program = Path(options.bin).parent.parent / 'tests/fault/tree_writer'
        self.data = self.job.cwd / 'data'
        self.data.mkdir()

    def launch(self, *arguments, options=(), with_='data', **more):
        running = self.job.launch('program', [self.program, *map(str, arguments)], ['--with', with_, *options], **more)
        wait_for(lambda: running.out.has_line('ready') or running.ended(), 'the program does not get ready')
        return running

    def go_on(self, steps=20):
        before = self.job.steps()
        wait_for(lambda: self.job.steps() > before + steps, 'the program does not go on')

    def cut(self, *arguments, options=()):
        """A checkpoint, after which the program has gone on; then everything is killed."""
        self.launch(*arguments, options=options)
        self.go_on()
        self.job.checkpoint()
        self.go_on()
        self.job.kill_all()

    def expect(self, status, pattern, *argv, env=None):
        code, out, err = self.job.command(*argv, env=env)
        if code != status or not re.search(pattern, out + err):
            raise Failure(f'fermata {argv[0]}: status {code}, not {status}, or it does not say /{pattern}/: {out}{err}')
        return out

    def finish(self, *options):
        """A restart that works to the end; what it has said."""
        running = self.job.restart(options=options)
        (self.job.cwd / 'finish').touch()
        if running.wait_end():
            raise Failure(f'the restarted program says that something is wrong: status {running.returncode}')
        self.job.wait_empty()
        rest = [p for p in self.job.cwd.rglob('.fermata-restoring*')]
        if rest:
            raise Failure(f'left behind: {rest}')
        return running.err.text()


def look(path):
    """All that a restart has to bring back of it."""
    st = path.lstat()
    what = [stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode) if not path.is_symlink() else None, st.st_mtime_ns]
    if path.is_symlink():
        what.append(os.readlink(path))
    elif path.is_file():
        what += [path.read_bytes(), st.st_nlink]
    return what


def make(options, function):
    def test(folder):
        scene = Scene(options, folder)
        with under_test(scene.job):
            return function(scene)
    return test
