# SPDX-License-Identifier: BSD-2-Clause
"""Python: mpi4py, numpy and h5py with HDF5's parallel files, in heat.py. All numbers of all steps, and the content of the file, are compared by their hashes."""
from pathlib import Path

from application import Stepwise


class Heat(Stepwise):
    name, package, program = 'mpi4py, h5py', 'python3-mpi4py', 'python3'
    packages = ('python3-h5py-mpi', 'python3-numpy')
    emulated = 0.05
    transports = ('openib', 'ucx-rc', 'ucx-ud', 'ucx-default')

    def argv(self, cwd, transport):
        return ['python3', str(Path(__file__).resolve().parent / 'heat.py'), str(self.scaled(4000)), '256']


CODES = [Heat()]
