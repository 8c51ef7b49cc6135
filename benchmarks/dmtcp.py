# SPDX-License-Identifier: BSD-2-Clause
"""The engine's figures of DMTCP, where dmtcp_launch is on the PATH: the same program, uncompressed images, the same disk.

It neither syncs nor sums its images, and its program stands still for the whole of a checkpoint.
"""
import shutil
import subprocess
import time

from harness import wait_for


def available():
    return shutil.which('dmtcp_launch') is not None


class Dmtcp:
    """One program under a coordinator of its own, in @folder, which is made and removed."""

    def __init__(self, folder, argv):
        self.folder = folder
        (folder / 'images').mkdir(parents=True)
        self.out = folder / 'out'
        self.progress = folder / 'progress'
        with open(self.out, 'w') as out:
            self.begin(['dmtcp_launch', '--no-gzip', '--ckptdir', folder / 'images', *argv], out)
        wait_for(lambda: 'ready' in self.out.read_text(), 'the program does not get ready under dmtcp_launch', 300)

    def begin(self, argv, out=subprocess.DEVNULL):
        port = self.folder / 'port'
        port.unlink(missing_ok=True)
        argv[1:1] = ['--new-coordinator', '--coord-port', '0', '--port-file', port, '-q']
        self.process = subprocess.Popen(argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
        self.port = wait_for(lambda: port.exists() and port.read_text().strip(), 'dmtcp does not tell its port')

    def command(self, *argv):
        subprocess.run(['dmtcp_command', '-p', self.port, *argv], check=True, stdout=subprocess.DEVNULL, timeout=600)

    def checkpoint(self):
        """Seconds."""
        begin = time.monotonic()
        self.command('--bcheckpoint')
        return time.monotonic() - begin

    def end(self):
        self.command('--kill')
        self.process.wait(60)

    def restart(self):
        """Seconds until the program goes on."""
        before = self.progress.stat().st_size
        begin = time.monotonic()
        self.begin(['dmtcp_restart', *(self.folder / 'images').glob('*.dmtcp')])
        wait_for(lambda: self.progress.stat().st_size > before, 'the program does not go on under dmtcp_restart', 120)
        return time.monotonic() - begin

    def clean(self):
        if self.process.poll() is None:
            self.end()
        shutil.rmtree(self.folder)


def figures(folder, argv, rounds):
    """(seconds of each checkpoint, seconds of a restart)"""
    peer = Dmtcp(folder, argv)
    try:
        taken = [peer.checkpoint() for _ in range(rounds)]
        peer.end()
        return taken, peer.restart()
    finally:
        peer.clean()
