# SPDX-License-Identifier: BSD-2-Clause
"""OpenSHMEM: stencil.c, built where oshcc is, with oshrun. All numbers of all steps and of all memory at the end are compared, by a checksum."""
from pathlib import Path

from application import Stepwise

STENCIL = Path(__file__).resolve().parent / 'stencil'


class Stencil(Stepwise):
    name, package, program = 'OpenSHMEM', 'openmpi-bin', 'oshrun'
    emulated = 0.15  # it tells each 100 steps
    transports = ('ucx-rc', 'ucx-ud', 'ucx-default')

    def refuses(self):
        return None if STENCIL.exists() else 'libopenmpi-dev is not installed (tools/bootstrap --apps)'

    def command(self, cwd, transport):
        return [word if word != 'mpirun.openmpi' else 'oshrun' for word in super().command(cwd, transport)]

    def argv(self, cwd, transport):
        return [str(STENCIL), str(self.scaled(4000))]


CODES = [Stencil()]
