# SPDX-License-Identifier: BSD-2-Clause
"""The tables in doc/results.md, of short runs, of long ones and of those on a kernel device: what has been run replaces its rows, the rest stays; each row bears the day it was made."""
import json
import platform
import re
import time
from pathlib import Path

HEAD = '| code | ranks | transport | bare | under fermata, of that | image of a rank | pause | restart | day | result |'
LINE = '|---' * (HEAD.count('|') - 1) + '|'
TABLES = ('short', 'long', 'device')  # in their order there
COLUMNS = ('code', 'ranks', 'transport', 'bare', 'fermata', 'image', 'pause', 'restart', 'day', 'verdict')


def rows_of(results):
    """From what tests have said: a line "row: {..}" each."""
    for _, _, _, text in results:
        for found in re.findall(r'^ *row: (\{.*\})$', text, re.M):
            yield dict(json.loads(found), day=time.strftime('%Y-%m-%d'))


def key(cells):
    """A code is known by its name without the version."""
    return re.sub(r' \S*[0-9]\S*$', '', cells[0]), cells[2]


def machine():
    model = re.search(r'^model name\s*: (.*)$', Path('/proc/cpuinfo').read_text(), re.M)
    cores = Path('/proc/cpuinfo').read_text().count('processor\t')
    return f'{model.group(1) if model else platform.machine()}, {cores} cores, Linux {platform.release()}'


def merged(text, new):
    """@text from a table's head on, with the rows @new."""
    lines = text.splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith('|')), len(lines))
    old = [[c.strip() for c in line.strip('|').split('|')] for line in lines[:count]]
    table = {**{key(cells): cells for cells in old}, **new}
    return ''.join(f'| {" | ".join(cells)} |\n' for _, cells in sorted(table.items())) + ''.join(f'{line}\n' for line in lines[count:])


def update(path, results):
    rows = list(rows_of(results))
    if not rows:
        return
    head = HEAD + '\n' + LINE + '\n'
    before, *tables = path.read_text().split(head)
    text = before
    for name, table in zip(TABLES, tables, strict=True):
        new = {key(cells): cells for cells in ([str(row[c]).replace('|', '/') for c in COLUMNS] for row in rows if row['table'] == name)}
        if name == 'short' and new:
            text = re.sub(r'The last run was on .*$', f'The last run was on {machine()}.', text, flags=re.M)
        text += head + merged(table, new)
    path.write_text(text)
