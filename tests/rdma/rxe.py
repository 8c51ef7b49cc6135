# SPDX-License-Identifier: BSD-2-Clause
"""Verbs programs on a kernel RDMA device: which, and a pair of them. Used in the guest (rxe-inside) and on its host (rxe-suite)."""
import tempfile
from pathlib import Path

from pairs import Pair, check_text, name_of

HERE = Path(__file__).resolve().parent
ADDRESS = '10.77.0.1'  # rxe0's
FAR = '10.77.0.2'  # of the other host's, where there are two (rxe-hosts)
RC, UC, UD = (['-d', 'rxe0', '-g', '1', '-c', '-s', '1024'] for _ in range(3))
TIMED = ['-D', '2', '-f', '0']  # perftest ends by itself after that many seconds
PERF = ['-d', 'rxe0', '-x', '1', '-F']
# verbs_windows is not here: rxe of Linux 6.1 does not say in a completion that a peer has invalidated a window.
# (program and options, how much): messages of the guest cost tens of microseconds, and milliseconds on a busy machine.
PROGRAMS = [
    (['ibv_rc_pingpong', *RC], ['-n', '2500']),
    (['ibv_rc_pingpong', *RC, '-e'], ['-n', '2000']),
    (['ibv_uc_pingpong', *UC], ['-n', '2500']),
    (['ibv_ud_pingpong', *UD], ['-n', '2500']),
    (['ibv_srq_pingpong', *RC, '-q', '4'], ['-n', '3000']),
    (['ib_send_lat', *PERF], TIMED),
    (['ib_write_lat', *PERF], TIMED),
    (['ib_read_lat', *PERF], TIMED),
    (['ib_atomic_lat', *PERF], TIMED),
    (['ib_send_bw', *PERF, '-s', '4096', '-q', '2'], TIMED),
    (['ib_write_bw', *PERF, '-s', '4096'], TIMED),
    (['ib_read_bw', *PERF, '-s', '4096'], TIMED),
    (['ib_send_lat', *PERF, '-c', 'UD'], TIMED),
    (['ib_write_bw', *PERF, '-s', '1024', '-c', 'UC'], TIMED),
    ([HERE / 'verbs_stress', '-r', '1', '-g', '1', '-q', '3', '-s', '4096', '-e'], ['-n', '300']),
    ([HERE / 'verbs_stress', '-r', '1', '-g', '1', '-q', '4', '-s', '4096', '-S'], ['-n', '300']),
    ([HERE / 'verbs_unreliable', '-r', '1', '-q', '2', '-s', '4096'], ['-n', '600']),
    ([HERE / 'verbs_unreliable', '-r', '1', '-q', '2', '-U', '-s', '2000'], ['-n', '600']),
]
ALONE = [HERE / 'verbs_direct', '-g', '1', '-n', '4000']  # in a process of its own
SPLIT = PROGRAMS[:5]  # those that keep no connection of TCP
BACK = [(PROGRAMS[i][0], ['-n', '6000']) for i in (0, 3, 4)]  # softrdma has them done soon
HOSTS = [PROGRAMS[i] for i in (0, 3, 4, 8, 10, 14, 16, 17)]
# Of connections that lose nothing, and whose two ends part by TCP: rxe takes a count of 7 retries for no limit, so who polls for the acknowledgement of its last message, which was
# lost, polls for ever if the other one is gone (the pingpongs, ib_write_lat; without fermata too).
LOSSY = [PROGRAMS[i] for i in (5, 8, 9, 10, 14, 15)]
CM = ['rping', '-a', ADDRESS, '-S', '1000', '-V']  # it parts by rdma_cm
AS_ROOT = [PROGRAMS[i] for i in (1, 3, 4, 9, 14, 17)]


def short_name(argv):
    return name_of([a for a in argv if a not in ('-d', 'rxe0', '-F')])


class GuestPair(Pair):
    """On the system's device; what the programs say goes into files. The coordinator's directory is in the guest: a shared folder has no sockets."""

    def __init__(self, options, folder, argv):
        super().__init__(options, folder, argv)
        self.job.env['FERMATA_RUNDIR'] = tempfile.mkdtemp(prefix='run')

    def start_one(self, label, argv, under_fermata):
        label = f'{label}-{len(self.job.programs)}'
        launch = self.job.launch if under_fermata else self.job.start
        more = {'options': ['--rdma', 'system']} if under_fermata else {}
        self.running = [launch(label, argv, stdout='file', **more)]
        return self.running[0]

    def check_output(self):
        check_text(self.argv, ''.join(p.out.text() for p in (self.server, self.client)))
