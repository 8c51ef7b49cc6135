# SPDX-License-Identifier: BSD-2-Clause
"""Slurm on one machine, of any user: munged, slurmctld and a slurmd for each of two nodes, in a folder of their own."""
import os
import pwd
import shutil
import socket
import subprocess

from harness import Failure, Skip, free_port, wait_for

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'scontrol', 'squeue')
PATH = '/usr/sbin:/sbin'


def find(name):
    return shutil.which(name) or shutil.which(name, path=PATH)


CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
JobRequeue=1
InactiveLimit=0
KillWait=30
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} State=UNKNOWN
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} State=UNKNOWN
PartitionName=all Nodes=one,two Default=YES MaxTime=60 State=UP
"""


class Slurm:
    def __init__(self, job):
        missing = [p for p in PROGRAMS if not find(p)]
        if missing:
            raise Skip(f'{missing[0]} is not installed: tools/bootstrap --apps installs it')
        self.job = job
        self.folder = job.folder / 'slurm'
        for part in ('', 'state', 'spool-one', 'spool-two'):
            (self.folder / part).mkdir(mode=0o755)
        user = pwd.getpwuid(os.geteuid()).pw_name
        ports = [free_port(low, low + 600) for low in (22000, 22600, 23200)]
        (self.folder / 'slurm.conf').write_text(CONFIG.format(host=socket.gethostname(), user=user, folder=self.folder, ports=ports))
        (self.folder / 'key').write_bytes(os.urandom(128))
        (self.folder / 'key').chmod(0o600)
        self.env = {**job.env, 'SLURM_CONF': str(self.folder / 'slurm.conf')}
        self.daemons = {}

    def daemon(self, label, name, *argv):
        self.daemons[label] = self.job.start(label, [find(name), *argv], env=self.env, stdout='file')

    def start(self):
        f = self.folder
        self.daemon('munged', 'munged', '--foreground', '--force', f'--key-file={f}/key', f'--socket={f}/munge', f'--pid-file={f}/munged.pid',
                    f'--seed-file={f}/seed', f'--log-file={f}/munged.log')
        wait_for(lambda: (f / 'munge').exists() or self.daemons['munged'].ended(), 'munged does not listen')
        self.daemon('slurmctld', 'slurmctld', '-D', '-f', f / 'slurm.conf')
        for node in ('one', 'two'):
            self.daemon(node, 'slurmd', '-D', '-N', node, '-f', f / 'slurm.conf')
        wait_for(lambda: self.says('scontrol', 'show', 'nodes').count('State=IDLE') == 2 or self.dead(), 'the nodes are not ready', 120, 0.2)
        if self.dead():
            raise Failure(f'{self.dead()} has ended')

    def dead(self):
        return [n for n, d in self.daemons.items() if d.ended()]

    def says(self, *argv):
        result = subprocess.run(argv, cwd=self.job.cwd, env=self.env, capture_output=True, text=True)
        return result.stdout + result.stderr

    def submit(self, *argv):
        """The number of the batch job."""
        said = self.says('sbatch', '--parsable', *map(str, argv))
        if not said.strip().isdigit():
            raise Failure(f'sbatch: {said}')
        return said.strip()

    def show(self, number):
        """What scontrol says of it."""
        return dict(word.split('=', 1) for word in self.says('scontrol', 'show', 'job', number).split() if '=' in word)
