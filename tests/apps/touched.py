# SPDX-License-Identifier: BSD-2-Clause
"""How much memory a process has touched, as the kernel tells: what an image of it can at best be as large as."""
import re
from pathlib import Path

from harness import descendants

PAGE = 4096
MAPPING = re.compile(r'^([0-9a-f]+)-[0-9a-f]+ (\S+) ([0-9a-f]+) \S+ \d+ *(.*)$')


def touched(pid, provider):
    """Bytes: private memory, changed pages of files among it; its share of shared memory, but that under @provider, the device's; a page of each program and library, its head."""
    total, of_file, shared, path = 0, False, False, ''
    for line in Path(f'/proc/{pid}/smaps').read_text().splitlines():
        found = MAPPING.match(line)
        if found:
            _, rights, offset, path = found.groups()
            shared = 's' in rights
            of_file = not shared and path.startswith('/') and not int(offset, 16) and 'r' in rights
            continue
        name, value = line.split(':')
        if shared and name == 'Pss' and re.match(r'/(dev/(shm|zero)|memfd|SYSV)', path) and not path.startswith(str(provider)):
            total += int(value.split()[0]) * 1024
        elif not shared and name in ('Anonymous', 'Swap'):
            total += int(value.split()[0]) * 1024
        elif of_file and name == 'Rss' and value.split()[0] != '0':
            total += PAGE
    return total


def by_pid(provider):
    """Of all processes below this one: {pid as the process itself has it: bytes}."""
    found = {}
    for pid in descendants():
        try:
            own = int(re.search(r'^NSpid:.*?(\d+)$', Path(f'/proc/{pid}/status').read_text(), re.M).group(1))
            found[own] = touched(pid, provider)
        except (OSError, AttributeError):
            continue  # it has ended
    return found
