# SPDX-License-Identifier: BSD-2-Clause
"""Programs that end slowly, as what they hold takes the kernel time to free, and what they leave behind: slow_end.py parent|writer|reader, in a folder of their own.

The one that ends tells its pid in the file ready, and ends when there is a file end; the other goes on until there is a file finish.
"""
import os
import sys
import time


def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.001)


def end():
    """Of what is closed at once, this is freed in front of the other end of a pipe, and behind the agent's connection."""
    big = os.memfd_create('big')
    os.posix_fallocate(big, 0, 1 << 30)
    with open('ready.new', 'w') as f:
        f.write(str(os.getpid()))
    os.rename('ready.new', 'ready')
    wait_for('end')
    os._exit(0)


def parent():
    me = os.getpid()
    if os.fork():
        end()
    wait_for('finish')
    print('child' if os.getppid() == me else 'orphan', flush=True)


def writer():
    os.write(1, b'x' * 1000)
    end()


def reader():
    wait_for('finish')
    print(len(sys.stdin.read()), flush=True)


{'parent': parent, 'writer': writer, 'reader': reader}[sys.argv[1]]()
