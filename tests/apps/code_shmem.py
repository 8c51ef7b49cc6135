# SPDX-License-Identifier: BSD-2-Clause
"""OpenSHMEM: stencil.c, built where oshcc is, with oshrun. All numbers of all steps and of all memory at the end are compared, by a checksum."""
import re
from pathlib import Path

from application import Application, text

STENCIL = Path(__file__).resolve().parent / 'stencil'


class Stencil(Application):
    name, package, program = 'OpenSHMEM', 'openmpi-bin', 'oshrun'
    emulated = 0.6  # it tells each 100 steps
    transports = ('ucx-rc', 'ucx-ud', 'ucx-default')

    def refuses(self):
        return None if STENCIL.exists() else 'libopenmpi-dev is not installed (tools/bootstrap --apps)'

    def command(self, cwd, transport):
        return [word if word != 'mpirun.openmpi' else 'oshrun' for word in super().command(cwd, transport)]

    def argv(self, cwd, transport):
        return [str(STENCIL), str(self.scaled(1000))]

    def in_loop(self, cwd):
        return 'step 100 ' in text(cwd)

    def result(self, cwd):
        return re.findall(r'^(?:step|result) .*$', text(cwd), re.M)

    def seconds(self, cwd):
        return float(re.search(r'^seconds ([0-9.]+)$', text(cwd), re.M).group(1))


CODES = [Stencil()]
