# SPDX-License-Identifier: BSD-2-Clause
"""LAMMPS: a melting Lennard-Jones crystal, as in its benchmark "lj". Compared are the positions and velocities of all atoms at the end, with 16
digits, and what it has told of each twentieth of them."""
import re
from pathlib import Path

from application import Application, text

STEPS = 200
INPUT = '''
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 20 0 20 0 20
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 1.44 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
thermo %d
thermo_modify format float %%.17g flush yes
run %d
write_data final
'''
STEP = re.compile(r'^ +[0-9]+( +[-0-9.e+]+){5} *$', re.M)


class Lammps(Application):
    name, package, program = 'LAMMPS', 'lammps', 'lmp'

    def prepare(self, cwd):
        (cwd / 'in.melt').write_text(INPUT % (self.scaled(10), self.scaled(STEPS)))

    def argv(self, cwd, transport):
        return ['lmp', '-in', 'in.melt']

    def in_loop(self, cwd):
        return len(STEP.findall(text(cwd))) > 1

    def result(self, cwd):
        return (Path(cwd) / 'final').read_bytes(), [m.group(0) for m in STEP.finditer(text(cwd))]

    def seconds(self, cwd):
        return float(re.search(r'^Loop time of ([0-9.]+)', text(cwd), re.M).group(1))


CODES = [Lammps()]
