# SPDX-License-Identifier: BSD-2-Clause
"""A real sshd on one of several.Hosts, as an ordinary user: keys, port and configuration of its own, and a /etc/passwd of its host's that has that user."""
import shutil
import subprocess
from pathlib import Path

from harness import Skip, wait_for

USER, UID, PORT = 'somebody', 1000, 2022
AS_USER = ['unshare', '--user', f'--map-user={UID}', f'--map-group={UID}']  # for root sshd would do what only a real one may
NAME = 'beta'


class Sshd:
    """On host 1 of @hosts, which is its node name to `ssh -F self.config`. @environment: of what is begun there."""

    def __init__(self, hosts, shell='/bin/sh', environment=()):
        self.server = shutil.which('sshd', path='/usr/sbin:/usr/local/sbin:/usr/bin')
        if not self.server or not shutil.which('ssh') or not shutil.which('ssh-keygen'):
            raise Skip('there is no sshd or no ssh')
        self.hosts, self.job = hosts, hosts.job
        self.folder = self.job.folder / f'ssh-{hosts.name[1]}'
        self.folder.mkdir(mode=0o700)
        for key in 'host_key', 'id':
            subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', self.folder / key], check=True)
        self.config = self.folder / 'config'
        self.write(shell, environment)
        self.on_host('mount', '--bind', self.folder / 'passwd', '/etc/passwd')
        self.start()

    def write(self, shell, environment):
        (self.folder / 'passwd').write_text(f'root:x:0:0::/:/bin/sh\n{USER}:x:{UID}:{UID}::{self.job.cwd}:{shell}\n')
        (self.folder / 'sshd_config').write_text(f'''Port {PORT}
ListenAddress {self.hosts.address[1]}
HostKey {self.folder}/host_key
AuthorizedKeysFile {self.folder}/id.pub
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
{f"SetEnv {' '.join(environment)}" if environment else ''}
''')
        known = ' '.join((self.folder / 'host_key.pub').read_text().split()[:2])
        (self.folder / 'known_hosts').write_text(f'[{self.hosts.address[1]}]:{PORT} {known}\n')
        self.config.write_text(f'''Host {self.hosts.name[1]} {self.hosts.address[1]}
    HostName {self.hosts.address[1]}
    Port {PORT}
    User {USER}
    IdentityFile {self.folder}/id
    IdentitiesOnly yes
    UserKnownHostsFile {self.folder}/known_hosts
    StrictHostKeyChecking yes
    BatchMode yes
''')

    def on_host(self, *argv, n=1):
        subprocess.run([str(a) for a in (*self.hosts.front(n), *argv)], check=True)

    def start(self):
        self.program = self.hosts.start(1, f'sshd-{len(self.job.programs)}', [*AS_USER, self.server, '-D', '-e', '-f', self.folder / 'sshd_config'])
        wait_for(lambda: self.program.ended() or self.listens(), 'sshd does not listen')
        if self.program.ended():
            raise Skip(f'sshd does not run as an ordinary user here: {self.program.err.text().strip()}')

    def listens(self):
        lines = Path(f'/proc/{self.hosts.pid[1]}/net/tcp').read_text().splitlines()
        return any(f[3] == '0A' and f[1].endswith(f':{PORT:04X}') for f in map(str.split, lines[1:]))

    def command(self, *options):
        """ssh, up to the host's name, for a shell."""
        return ' '.join(['ssh', '-F', str(self.config), *options, self.hosts.name[1]])
