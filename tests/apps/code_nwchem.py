# SPDX-License-Identifier: BSD-2-Clause
"""NWChem: energy and gradient of two water molecules by Hartree-Fock, then MP2, with its Global Arrays and ARMCI over MPI's one-sided operations and a
scratch file a rank (in the guest of apps-rxe with a smaller basis). Work is dealt out as ranks ask for it, so sums differ in their last digits from run to run: its energies
are compared to nine decimals, gradients to six. At length: the vibrations of both, too, for which it moves each atom each way."""
import re

from application import Application, Close, text
from harness import Failure

INPUT = '''
start water
scratch_dir .
permanent_dir .
geometry units angstroms noautosym
 O 0.0 0.0 0.1173
 H 0.0 0.7572 -0.4692
 H 0.0 -0.7572 -0.4692
 O 2.9 0.1 0.1
 H 3.4 0.8 -0.2
 H 3.3 -0.7 -0.3
end
basis
 * library aug-cc-pvdz
end
scf
 singlet; rhf; semidirect memsize 0 filesize 30000000
end
task scf gradient
task mp2 energy
'''
VIBRATIONS = 'task scf freq numerical\n'


class Nwchem(Application):
    name, package, program = 'NWChem', 'nwchem-openmpi', 'nwchem.openmpi'
    ranks = 2
    compared = 'energies to nine decimals'

    def __init__(self, mpi='openmpi', transports=('openib', 'ucx-rc', 'ucx-ud')):
        self.package, self.program, self.transports = f'nwchem-{mpi}', f'nwchem.{mpi}', transports
        self.packages = ('nwchem-data',)

    def prepare(self, cwd):
        (cwd / 'water.nw').write_text(INPUT.replace('aug-', '') if self.times < 1 else INPUT if self.times == 1 else INPUT + VIBRATIONS)

    def argv(self, cwd, transport):
        return [self.program, 'water.nw']

    def in_loop(self, cwd):
        return 'Quadratically convergent ROHF' in text(cwd)

    def result(self, cwd):
        out = text(cwd)
        energies = re.findall(r'(Total (?:SCF|MP2) energy) +=? *(-[0-9.]+)', out)
        gradients = re.findall(r'^ +[1-6] [OH] +((?:-?[0-9.]+ +){5}-?[0-9.]+) *$', out, re.M)
        if len(energies) < 3 or len(gradients) < 6 or (self.times > 1 and 'P.Frequency' not in out):
            raise Failure('it has not said all its energies and gradients')
        return [what for what, _ in energies], Close([float(e) for _, e in energies], 1e-9), Close([float(x) for g in gradients for x in g.split()], 1.5e-6)

    def seconds(self, cwd):
        return float(re.search(r'^ *Total times .*wall: +([0-9.]+)s', text(cwd), re.M).group(1))


CODES = [Nwchem(), Nwchem('mpich', ('mpich-rc', 'mpich-ud'))]
