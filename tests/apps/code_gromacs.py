# SPDX-License-Identifier: BSD-2-Clause
"""GROMACS: molecular dynamics of water (SPC/E) with PME, four ranks in domains. Compared is its trajectory file: all positions and velocities of each
third of it, to the bit (mdrun -reprod); on another processor to NEAR, since the last bits of its approximate square root (rsqrtps), with which GROMACS begins, are each maker's own."""
import re
import struct
import subprocess
from pathlib import Path

from application import Application, text
from harness import Failure

HERE = Path(__file__).resolve().parent
TOPOLOGY = '''#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
'''
STEPS = 300
NEAR = 0.01  # nm, nm/ps
PARAMETERS = '''
integrator = md
dt = 0.002
nsteps = %d
nstlog = %d
nstenergy = 20
nstxout = %d
nstvout = %d
cutoff-scheme = Verlet
coulombtype = PME
rcoulomb = 0.9
rvdw = 0.9
tcoupl = v-rescale
tc-grps = System
tau-t = 0.5
ref-t = 300
ld-seed = 4711
gen-vel = yes
gen-temp = 300
gen-seed = 4711
'''
MAKE = (['solvate', '-cs', 'spc216', '-box', '3.6', '3.6', '3.6', '-o', 'water.gro', '-p', 'water.top'],
        ['grompp', '-f', 'water.mdp', '-c', 'water.gro', '-p', 'water.top', '-o', 'water.tpr', '-maxwarn', '2'])


class Gromacs(Application):
    name, package, program = 'GROMACS', 'gromacs', 'gmx_mpi'
    told = 'md.log'

    def prepare(self, cwd):
        (cwd / 'water.top').write_text(TOPOLOGY)
        (cwd / 'water.mdp').write_text(PARAMETERS % tuple(map(self.scaled, (STEPS, 20, 100, 100))))
        for command in MAKE:
            made = subprocess.run(['gmx', '-quiet', *command], cwd=cwd, capture_output=True, text=True)
            if made.returncode:
                raise Failure(f'gmx {command[0]}: {made.stderr[-1000:]}')

    def environment(self, cwd, transport):
        env = super().environment(cwd, transport)
        if 'rdtscp' not in Path('/proc/cpuinfo').read_text():
            env['LD_PRELOAD'] = str(HERE / 'hardware_report.so')
        return env

    def argv(self, cwd, transport):
        return ['gmx_mpi', '-quiet', 'mdrun', '-s', 'water.tpr', '-o', 'traj.trr', '-reprod', '-ntomp', '1', '-notunepme', '-dlb', 'no']

    def in_loop(self, cwd):
        return re.search(r'^ +Step +Time\n +[1-9]', text(cwd, 'md.log'), re.M)

    def result(self, cwd):
        return (Path(cwd) / 'traj.trr').read_bytes()

    def is_same(self, result, other):
        """The file is of big-endian numbers of four bytes; those of its headers are equal."""
        numbers = [struct.unpack(f'>{len(said) // 4}f', said) for said in (result, other)]
        return len(result) == len(other) and all(a == b or abs(a - b) < NEAR for a, b in zip(*numbers))

    def seconds(self, cwd):
        return float(re.search(r'^ +Time: +[0-9.]+ +([0-9.]+)', text(cwd, 'md.log'), re.M).group(1))


CODES = [Gromacs()]
