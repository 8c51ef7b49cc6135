# SPDX-License-Identifier: BSD-2-Clause
"""What the suite has to know of a program: how it is run and what has to be the same at its end. Each is one line or more of a programs_*.py.

A recipe runs in a folder of its own, which is part of the job's checkpoints (`--with`): files that a program has made and closed are put back with it.
What it writes to its standard output, and the files that the recipe names, must be those of a run at one go.
"""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness import Skip, free_port


class Recipe:
    """
    name       the test's
    script     what bash runs. $PORT: one that is free; $SOCKETS: a folder of a short name, for sockets of the unix domain, and what programs make for a while
    needs      commands, or files by their whole names, without which it is left out
    files      of the folder, compared at the end; what else it leaves there may differ
    inputs     {name: text}, made before it runs
    prepare    a script that is run before, without fermata: what takes time and is not the matter here
    refused    a pattern of what a checkpoint says that is refused, where each has to be: the program goes on unharmed
    passing    a pattern of the message with which checkpoints are refused at some moments, by what passes by itself
    """

    def __init__(self, name, script, needs=(), files=(), inputs=None, prepare='', refused=None, passing=None):
        self.name, self.script, self.needs, self.files = name, script, needs, files
        self.inputs, self.prepare, self.refused, self.passing = inputs or {}, prepare, refused, passing

    def missing(self):
        return [what for what in self.needs if not (os.path.exists(what) if '/' in what else shutil.which(what))]

    def check_needs(self):
        missing = self.missing()
        if missing:
            raise Skip(f'{" and ".join(missing)}: not installed')

    def environment(self, cwd, env):
        """That of a run in @cwd; two of one recipe do not meet."""
        self.sockets = Path(tempfile.mkdtemp(prefix='fermata-', dir='/tmp'))
        return {**env, 'PORT': str(free_port()), 'SOCKETS': str(self.sockets), 'TMPDIR': str(self.sockets), 'HOME': str(cwd), 'LC_ALL': 'C.UTF-8', 'PYTHONDONTWRITEBYTECODE': '1'}

    def lay_out(self, cwd, env):
        """Makes what it begins with; its command."""
        for name, text in self.inputs.items():
            (cwd / name).write_text(text)
        (cwd / 'script').write_text(self.script)
        if self.prepare:
            subprocess.run(['bash', '-euc', self.prepare], cwd=cwd, env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return ['bash', '-u', 'script']

    def result(self, cwd, said):
        return [said, *((cwd / name).read_bytes() for name in self.files)]

    def clean(self):
        shutil.rmtree(self.sockets, ignore_errors=True)
