#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Commands on another machine, which has this user's files by the same paths.

    far.py serve ADDRESS            there: does what it is asked to until it is told to end
    far.py on ADDRESS COMMAND..     here: stands for a command there, whose output goes to the files that this one's does, and ends as it does

Who asks: far.ask(address, 'kill') ends all that was started there, also what has become a daemon, and returns when it is gone; 'left' names it; 'end' ends the server.
"""
import json
import os
import select
import socket
import subprocess
import sys
import threading

from harness import PR_SET_CHILD_SUBREAPER, descendants, kill_each, read_stat, reap_others, wait_for

PORT = 18000
OWN = 'FERMATA_RUNDIR'  # names a directory that each machine has for itself
children = {}  # whom a thread waits for


def connect(address):
    """When it is up: a machine takes some seconds to begin."""
    def one():
        try:
            return socket.create_connection((address, PORT), 5)
        except OSError:
            return None
    s = wait_for(one, f'nobody serves at {address}', period=0.2)
    s.settimeout(None)
    return s


def ask(address, what):
    with connect(address) as s, s.makefile('rw') as f:
        print(json.dumps({'ask': what}), file=f, flush=True)
        return json.loads(f.readline() or 'null')


def on(address, argv):
    said = {'argv': argv, 'cwd': os.getcwd(), 'env': dict(os.environ), 'out': os.readlink('/proc/self/fd/1'), 'err': os.readlink('/proc/self/fd/2')}
    with connect(address) as s, s.makefile('rw') as f:
        print(json.dumps(said), file=f, flush=True)
        status = json.loads(f.readline() or '125')
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


def run(said, connection):
    """To its end, or until nobody waits for it any more."""
    if OWN in said['env']:
        os.makedirs(said['env'][OWN], 0o700, exist_ok=True)
    with open(said['out'], 'ab') as out, open(said['err'], 'ab') as err:
        child = subprocess.Popen(said['argv'], cwd=said['cwd'], env=said['env'], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    children[child.pid] = child
    watched = os.pidfd_open(child.pid)
    ready = select.select([watched, connection], [], [])[0]
    os.close(watched)
    if watched not in ready:
        child.kill()
    status = child.wait()
    del children[child.pid]
    return status


def kill():
    """All below this process."""
    def gone():
        rest = reap_others(children)
        kill_each(rest)
        return not rest
    wait_for(gone, 'killed processes do not end', 20)


def left():
    return [f'{pid} ({(read_stat(pid) or (0, 0, "?"))[2]})' for pid in descendants()]


def serve_one(connection):
    with connection, connection.makefile('rw') as f:
        said = json.loads(f.readline())
        if said.get('ask') == 'end':
            os._exit(0)
        answer = {'kill': kill, 'left': left}[said['ask']]() if 'ask' in said else run(said, connection)
        try:
            print(json.dumps(answer), file=f, flush=True)
        except OSError:
            pass  # whoever asked is gone


def serve(address):
    import ctypes
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with socket.create_server((address, PORT)) as listener:
        while True:
            threading.Thread(target=serve_one, args=listener.accept()[:1], daemon=True).start()


if __name__ == '__main__':
    if sys.argv[1] == 'serve':
        serve(sys.argv[2])
    else:
        sys.exit(on(sys.argv[2], sys.argv[3:]))
