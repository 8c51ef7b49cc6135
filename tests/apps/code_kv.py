# SPDX-License-Identifier: BSD-2-Clause
"""A key-value server with clients on bare verbs, without MPI: kv.c. The table at the end is compared, by a checksum; all else is checked as it comes."""
import re
from pathlib import Path

from application import Application, text

KV = Path(__file__).resolve().parent / 'kv'
CLIENTS = 3


class KeyValue(Application):
    name, package, program = 'key-value server', 'libibverbs1', 'sh'
    ranks = 1 + CLIENTS
    transports = ('verbs',)
    emulated = 0.1

    def argv(self, cwd, transport):
        return [str(KV), str(CLIENTS), str(self.scaled(60000))]

    def in_loop(self, cwd):
        return 'step 1000\n' in text(cwd)

    def result(self, cwd):
        return re.findall(r'^(?:step|result) .*$', text(cwd), re.M)

    def seconds(self, cwd):
        return float(re.search(r'^seconds ([0-9.]+)$', text(cwd), re.M).group(1))


CODES = [KeyValue()]
