#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hosts that are network namespaces, and what lies between them.

`Hosts` makes them, in a user namespace of its own (several.enter), so that anybody can. They have their network for themselves and the
rest in common; several.Hosts are more apart. They are joined by a pair of virtual interfaces, or by a
*wire*: a process that carries packets from one to the other with a delay, loses some, and can be cut. (The kernel's own
way, tc netem, is often not there; the wire needs /dev/net/tun alone.)

As a program it is the wire: wire.py PID_A PID_B DELAY_MS LOSS_PERCENT; on its standard input "cut" and "join", and "reset": the next
packet of a connection to or from a context's port becomes a reset, in each direction; "sever": the same, and the wire is cut behind it.
"""
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

from several import ADDRESS, NoHosts, ip

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 1, 0x1000
PORT = 24576
ADDRESS6 = ['fd77::4d:1', 'fd77::4d:2']


class Hosts:
    """Two of them. @delay in ms, @loss in percent: a wire; else virtual interfaces. @ipv6: they have no other addresses. @own_shm: each has a
    /dev/shm of its own."""

    def __init__(self, delay=None, loss=0, ipv6=False, own_shm=False):
        self.holders = []
        self.wire = None
        self.flags = ['-m', '-n'] if own_shm else ['-n']
        inner = ['sh', '-c', 'mount -t tmpfs shm /dev/shm && exec cat'] if own_shm else ['cat']
        for _ in ADDRESS:
            holder = subprocess.Popen(['unshare', *self.flags, *inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.holders.append(holder)
            holder.stdin.write(b'x')
            holder.stdin.flush()
            if not holder.stdout.read(1):  # it is in its namespace
                raise NoHosts('no /dev/shm for a host')
        self.pid = [h.pid for h in self.holders]
        if delay is None:
            ip('link', 'add', 'name', 'cable0', 'type', 'veth', 'peer', 'name', 'cable1')
            for n in (0, 1):
                ip('link', 'set', f'cable{n}', 'netns', self.pid[n])
        else:
            self.start_wire(delay, loss)
        for n in (0, 1):
            if ipv6:
                ip('addr', 'add', f'{ADDRESS6[n]}/64', 'dev', f'cable{n}', 'nodad', inside=self.pid[n])
            else:
                ip('addr', 'add', f'{ADDRESS[n]}/24', 'dev', f'cable{n}', inside=self.pid[n])
            ip('link', 'set', f'cable{n}', 'up', inside=self.pid[n])
            ip('link', 'set', 'lo', 'up', inside=self.pid[n])

    def start_wire(self, delay, loss):
        if not os.access('/dev/net/tun', os.R_OK | os.W_OK):
            raise NoHosts('/dev/net/tun is not there')
        self.wire = subprocess.Popen([sys.executable, __file__, *map(str, self.pid), str(delay), str(loss)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.wire.stdout.readline() != 'ready\n':
            raise NoHosts('the wire does not work')

    def front(self, n):
        """What runs a command on a host."""
        return ['nsenter', '-t', str(self.pid[n]), *self.flags, '--']

    def cut(self, cut=True):
        """Nothing goes through any more, or it does again."""
        if self.wire:
            self.wire.stdin.write('cut\n' if cut else 'join\n')
            self.wire.stdin.flush()
            self.wire.stdout.readline()
        else:
            ip('link', 'set', 'cable1', 'down' if cut else 'up', inside=self.pid[1])

    def reset(self):
        """Breaks a connection, for both ends. A wire only."""
        self.wire.stdin.write('reset\n')
        self.wire.stdin.flush()
        self.wire.stdout.readline()

    def sever(self):
        """A connection breaks for both ends, and nothing goes through any more. A wire only."""
        self.wire.stdin.write('sever\n')
        self.wire.stdin.flush()
        self.wire.stdout.readline()

    def clean(self):
        for process in [*self.holders, self.wire]:
            if process:
                process.kill()
                process.wait()


def tun(pid, name):
    own = os.open('/proc/self/ns/net', os.O_RDONLY)
    there = os.open(f'/proc/{pid}/ns/net', os.O_RDONLY)
    if LIBC.setns(there, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), 'setns')
    fd = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH22x', name.encode(), IFF_TUN | IFF_NO_PI))
    LIBC.setns(own, CLONE_NEWNET)
    os.set_blocking(fd, False)
    return fd


def checksum(data):
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def reset_of(packet):
    """The packet as a reset; None if it is of no connection of ours."""
    head = (packet[0] & 15) * 4
    if packet[0] >> 4 != 4 or packet[9] != 6 or len(packet) < head + 20:
        return None
    source, destination = struct.unpack('!HH', packet[head:head + 4])
    if not any(PORT <= p < PORT + 4096 for p in (source, destination)) or not packet[head + 13] & 16 or packet[head + 13] & 7:
        return None
    tcp = packet[head:head + 12] + struct.pack('!BBHHH', 5 << 4, 4 | 16, 0, 0, 0)
    tcp = tcp[:16] + struct.pack('!H', checksum(packet[12:20] + struct.pack('!HH', 6, 20) + tcp)) + tcp[18:]
    ip_head = packet[:2] + struct.pack('!H', head + 20) + packet[4:10] + bytes(2) + packet[12:head]
    return ip_head[:10] + struct.pack('!H', checksum(ip_head)) + ip_head[12:] + tcp


def carry(fds, delay, loss):
    """Packets in order of their time; the random numbers come from a fixed seed."""
    chance, late, is_cut = random.Random(1), [], False
    count, resets, severed = 0, set(), False
    while True:
        wait = max(0, late[0][0] - time.monotonic()) if late else None
        for fd in select.select([0, *fds], [], [], wait)[0]:
            if fd == 0:
                word = sys.stdin.readline()
                if not word:
                    return
                if word in ('reset\n', 'sever\n'):
                    resets, severed = set(fds), word == 'sever\n'
                else:
                    is_cut = word == 'cut\n'
                print(word, end='', flush=True)
                continue
            for _ in range(64):
                try:
                    packet = os.read(fd, 65536)
                except BlockingIOError:
                    break
                is_reset = fd in resets and reset_of(packet)
                if is_reset:
                    resets.discard(fd)
                    packet = is_reset
                    is_cut |= severed and not resets
                if is_reset or not is_cut and chance.random() * 100 >= loss:
                    count += 1
                    heapq.heappush(late, (time.monotonic() + delay / 1000, count, fds[fd == fds[0]], packet, is_reset))
        while late and late[0][0] <= time.monotonic():
            _, _, to, packet, is_reset = heapq.heappop(late)
            if is_cut and not is_reset:
                continue
            try:
                os.write(to, packet)
            except OSError:
                pass  # its queue is full: lost


def main():
    fds = [tun(int(sys.argv[n + 1]), f'cable{n}') for n in (0, 1)]
    print('ready', flush=True)
    carry(fds, float(sys.argv[3]), float(sys.argv[4]))


if __name__ == '__main__':
    main()
