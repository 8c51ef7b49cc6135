# SPDX-License-Identifier: BSD-2-Clause
"""MPI's one-sided operations and MPI_THREAD_MULTIPLE: windows.c, built where mpicc is. All memory and messages of all blocks are compared, by a checksum."""
from pathlib import Path

from application import Stepwise

HERE = Path(__file__).resolve().parent


class Windows(Stepwise):
    name, program = 'MPI windows, threads', 'mpirun'
    emulated = 0.25

    def __init__(self, mpi, package, transports):
        self.package, self.transports, self.binary = package, transports, HERE / f'windows.{mpi}'

    def refuses(self):
        return None if self.binary.exists() else f'{self.binary.name} is not built: no mpicc (tools/bootstrap --apps)'

    def argv(self, cwd, transport):
        return [str(self.binary), str(self.scaled(20))]


CODES = [Windows('openmpi', 'openmpi-bin', ('ucx-rc', 'ucx-ud')), Windows('mpich', 'mpich', ('mpich-rc', 'mpich-ud'))]
