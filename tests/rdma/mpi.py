# SPDX-License-Identifier: BSD-2-Clause
"""mpirun with its ranks as a job, for programs-mpi and test-mpi: which Open MPI over what, and a run that is cut at random moments."""
import os
import random
from pathlib import Path

from harness import Failure, Skip, pause, wait_for
from two import need

UCX = {'UCX_TLS': 'rc_verbs,ud_verbs,self'}
MPIRUN = ['mpirun.openmpi', '--oversubscribe']
OPENIB = ['--mca', 'pml', 'ob1', '--mca', 'btl', 'openib,self', '--mca', 'btl_openib_allow_ib', '1']
OVER_UCX = ['--mca', 'pml', 'ucx', '--mca', 'osc', 'ucx']


def place(command, program, two, environment):
    """The program's path, and the environment."""
    path = Path(__file__).resolve().parent / program
    need(command[0])
    if not path.exists():
        raise Skip(f'{program} was not built: there is no compiler of that MPI')
    env = {**two.job.env, **environment, 'TMPDIR': str(two.job.cwd), 'HOME': str(two.job.cwd)}
    if os.getuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    return path, env


def cut(options, name, command, ranks, program, environment, cuts):
    """At random moments a checkpoint; then SIGKILL to all, mpirun and its ranks, and a restart. At the end the result is that of a run at one go."""
    def body(two):
        path, env = place(command, program, two, environment)
        rng = random.Random(f'{options.seed}/{name}')
        stop = two.job.cwd / 'stop'
        running = two.start('mpirun', [*command, '-n', str(ranks), path, stop], env=env)
        for _ in range(cuts):
            since = len(running.out.text())
            wait_for(lambda: running.ended() or 'sum' in running.out.text()[since:], 'the ranks do not go on')
            pause(rng.expovariate(1 / 0.2))
            two.job.checkpoint()
            two.job.kill_all()
            running = two.job.restart(env=env)
        wait_for(lambda: running.ended() or 'sum' in running.out.text(), 'the ranks do not go on')
        stop.touch()
        status = running.wait_end(120)
        if status or f'{ranks} ranks are content' not in running.out.text():
            raise Failure(f'mpirun ended with status {status}\n{two.job.describe()}')
    return body
