#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A process and its child that have between them whatever is a number of one host: pipes, loopback ports, abstract names, memory, System V ids.

same_on_hosts.py FILE: a feature program (CONTRIBUTING.md) for two hosts at once. All numbers are the same on both; what goes through bears the host's
name. In each channel there are always some messages under way. FILE is one for both hosts, to which both append.
"""
import ctypes
import mmap
import os
import socket
import sys

PORT = 5757
UNDER_WAY = 5
SIZE = 1000
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
HOST = socket.gethostname().encode()


def message(channel, n):
    return f'{HOST.decode()} {channel} {n} '.encode().ljust(SIZE, b'.')


def stream(make):
    """Two connected ends, by a listener."""
    listener, client = make(), None
    listener.listen()
    client = socket.socket(listener.family)
    client.connect(listener.getsockname())
    return listener, client, listener.accept()[0]


def at_port():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('127.0.0.1', PORT))
    return s


def at_name():
    s = socket.socket(socket.AF_UNIX)
    s.bind('\0same-on-hosts')
    return s


def datagrams():
    a, b = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    a.bind('\0same-a')
    b.bind('\0same-b')
    a.connect('\0same-b')
    b.connect('\0same-a')
    return a, b


def memories():
    """Shared, each of a page: anonymous, in /dev/shm, of System V."""
    anonymous = mmap.mmap(-1, mmap.PAGESIZE)
    fd = os.open('/dev/shm/same-on-hosts', os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, mmap.PAGESIZE)
    named = mmap.mmap(fd, mmap.PAGESIZE)
    segment = LIBC.shmget(0x5757, mmap.PAGESIZE, 0o1600)
    at = LIBC.shmat(segment, None, 0)
    LIBC.shmctl(segment, 0, None)  # IPC_RMID: it goes with who has it
    return [anonymous, named, (ctypes.c_char * mmap.PAGESIZE).from_address(at)]


def check(what, found, wanted):
    if found != wanted:
        sys.exit(f'{what}: {found[:60]!r}, not {wanted[:60]!r}')


def child(sources, sinks, memory, echo):
    """Sends on what it gets, each on its way back, and marks memory."""
    for s in sources:
        s.settimeout(None)
    while True:
        for source, sink in zip(sources, sinks):
            data = receive(source)
            if not data:
                os._exit(0)
            sink(data)
        n = int(data.split()[2])
        for m in memory:
            m[100:200] = message('child', n)[:100]
        echo(b'%8d' % n)


def receive(source):
    """A whole message; b'' at the end."""
    data = b''
    while len(data) < SIZE:
        more = source.recv(SIZE - len(data))
        if not more:
            return b''
        data += more
    return data


class Pipe:
    def __init__(self):
        self.r, self.w = os.pipe()

    def recv(self, n):
        return os.read(self.r, n)

    def settimeout(self, _):
        pass


def main():
    to_pipe, from_pipe, done = Pipe(), Pipe(), Pipe()
    _, tcp, tcp_far = stream(at_port)
    _, unix, unix_far = stream(at_name)
    near, far = datagrams()
    memory = memories()
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if not os.fork():
        os.close(to_pipe.w)
        tcp.close()
        unix.close()
        child([to_pipe, tcp_far, unix_far, far], [lambda d: os.write(from_pipe.w, d), tcp_far.sendall, unix_far.sendall, far.send], memory,
              lambda d: os.write(done.w, d))
    tcp_far.close()
    unix_far.close()
    put = [lambda d: os.write(to_pipe.w, d), tcp.sendall, unix.sendall, near.send]
    get = [from_pipe, tcp, unix, near]
    progress = open('progress', 'ab', buffering=0)  # open all the time: each checkpoint saves as many files
    n = 0
    os.write(1, b'ready\n')
    while not os.path.exists('finish'):
        for channel, p in enumerate(put):
            p(message(channel, n))
        for m in memory:
            m[:100] = message('parent', n)[:100]
        if n >= UNDER_WAY:
            for channel, g in enumerate(get):
                check(f'channel {channel}', receive(g), message(channel, n - UNDER_WAY))
            while int(os.read(done.r, 8)) < n:  # of what was sent just now, too
                pass
            for kind, m in enumerate(memory):
                check(f'memory {kind}', bytes(m[:100]), message('parent', n)[:100])
                check(f'memory {kind}', bytes(m[100:200]), message('child', n)[:100])
        os.write(log, HOST + b'\n')
        progress.write(b'.')
        n += 1
    os.close(to_pipe.w)
    status = os.wait()[1]
    sys.exit(status and f'the child ended with {status}')


main()
