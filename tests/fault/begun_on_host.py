#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A feature program that begins others in every way, with and without an environment, when there is a file "begin". Each goes on until "finish"."""
import ctypes
import os
import subprocess
import sys
import time

LOOP = 'import os, time\nopen("begun-%d" % os.getpid(), "w").close()\nwhile not os.path.exists("finish"): time.sleep(0.01)'
ARGV = [sys.executable, '-c', LOOP]


def begin(function):
    if not os.fork():
        function()
        os._exit(0)


def cleared():
    ctypes.CDLL(None).clearenv()
    os.execv(ARGV[0], ARGV)


def await_file(name):
    while not os.path.exists(name):
        with open('progress', 'ab') as progress:
            progress.write(b'.')
        time.sleep(0.01)


os.write(1, b'ready\n')
await_file('begin')
begin(lambda: exec(LOOP))
begin(lambda: os.execve(ARGV[0], ARGV, {}))
begin(cleared)
subprocess.Popen(ARGV, env={})
ctypes.CDLL(None).system(f"{ARGV[0]} -c '{LOOP}' &".encode())
await_file('finish')
