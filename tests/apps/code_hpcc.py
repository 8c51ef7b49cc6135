# SPDX-License-Identifier: BSD-2-Clause
"""HPC Challenge: HPL, PTRANS, RandomAccess, FFT and the rest, each of which checks itself. Compared are HPL's norms and residuals and whatever else of its
summary is the same from run to run; that all its checks have passed it says itself, with the number of wrong updates that RandomAccess has found."""
import re

from application import Application, text
from harness import Failure

SIZE = 1000
INPUT = '/usr/share/doc/hpcc/examples/_hpccinf.txt'
NUMBERS = ('HPL_N', 'HPL_RnormI', 'HPL_Anorm1', 'HPL_AnormI', 'HPL_Xnorm1', 'HPL_XnormI', 'HPL_BnormI', 'PTRANS_n', 'MPIRandomAccess_N', 'MPIFFT_N')
NONE_WRONG = ('MPIRandomAccess_LCG_Errors', 'MPIRandomAccess_Errors', 'PTRANS_residual')


class Hpcc(Application):
    name, package, program = 'HPC Challenge', 'hpcc', 'hpcc'
    told = 'hpccoutf.txt'
    emulated = 0.1
    compared = "HPL's norms to the bit, its own checks of the rest"

    def prepare(self, cwd):
        with open(INPUT) as f:
            lines = f.read().splitlines(keepends=True)
        lines[5] = f'{SIZE if self.times == 1 else round(SIZE * self.times ** (1 / 3) / 80) * 80} Ns\n'
        (cwd / 'hpccinf.txt').write_text(''.join(lines))

    def argv(self, cwd, transport):
        return ['hpcc']

    def in_loop(self, cwd):
        return 'Begin of' in text(cwd, 'hpccoutf.txt')

    def summary(self, cwd):
        return dict(re.findall(r'^(\w+)=(\S+)$', text(cwd, 'hpccoutf.txt'), re.M))

    def result(self, cwd):
        said = self.summary(cwd)
        if said.get('Success') != '1' or ' 1 tests completed and passed residual checks' not in text(cwd, 'hpccoutf.txt'):
            raise Failure(f'it has not passed its checks: {said}')
        wrong = {key: said[key] for key in NONE_WRONG if float(said[key]) > 1e-9}
        if wrong:
            raise Failure(f'wrong by its own checks: {wrong}')
        return {key: said[key] for key in NUMBERS}

    def seconds(self, cwd):
        return sum(float(value) for key, value in self.summary(cwd).items() if re.search(r'(?i)_(check)?time\d*$', key))  # not the bounds that they have


CODES = [Hpcc()]
