# SPDX-License-Identifier: BSD-2-Clause
"""Programs that end slowly, as what they hold takes the kernel time to free, and what they leave behind: slow_end.py parent|killer|heavy|writer|reader, in a folder of their own.

The one that ends tells its pid in the file ready, and ends when there is a file end; the other goes on until there is a file finish.
"""
import os
import signal
import sys
import time


def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.001)


def tell_ready():
    with open('ready.new', 'w') as f:
        f.write(str(os.getpid()))
    os.rename('ready.new', 'ready')


def end():
    """Of what is closed at once, this is freed in front of the other end of a pipe, and behind the agent's connection."""
    big = os.memfd_create('big')
    os.posix_fallocate(big, 0, 1 << 30)
    tell_ready()
    wait_for('end')
    os._exit(0)


def parent():
    me = os.getpid()
    if os.fork():
        end()
    wait_for('finish')
    print('child' if os.getppid() == me else 'orphan', flush=True)


def heavy():
    held = bytearray(b'x') * (1 << 30)
    tell_ready()
    wait_for('finish')
    sys.exit(len(held) & 1)


def killer():
    """Ends the other one when that stands in a checkpoint and this one, whose agent hangs (agent-before-suspend), does not yet."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    child = os.posix_spawn(sys.executable, [sys.executable, sys.argv[0], 'heavy'], {k: v for k, v in os.environ.items() if k != 'FERMATA_FAULT'})
    wait_for('end')
    os.kill(child, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGCONT)
    os.waitpid(child, 0)
    wait_for('finish')
    print('killed', flush=True)


def writer():
    os.write(1, b'x' * 1000)
    end()


def reader():
    wait_for('finish')
    print(len(sys.stdin.read()), flush=True)


{'parent': parent, 'killer': killer, 'heavy': heavy, 'writer': writer, 'reader': reader}[sys.argv[1]]()
