# SPDX-License-Identifier: BSD-2-Clause
"""A key-value server with clients on bare verbs, without MPI: kv.c. The table at the end is compared, by a checksum; all else is checked as it comes."""
from pathlib import Path

from application import Stepwise

KV = Path(__file__).resolve().parent / 'kv'
CLIENTS = 3


class KeyValue(Stepwise):
    name, package, program = 'key-value server', 'libibverbs1', 'sh'
    ranks = 1 + CLIENTS
    transports = ('verbs',)
    emulated = 0.1

    def argv(self, cwd, transport):
        return [str(KV), str(CLIENTS), str(self.scaled(60000))]


CODES = [KeyValue()]
