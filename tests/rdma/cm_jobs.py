# SPDX-License-Identifier: BSD-2-Clause
"""Programs of rdma_cm, rsockets and UCX as jobs: a server and a client, what they do, and what their results say.

A program that is over before all its checkpoints are taken is run again with more to do, and fails the test if it has ended otherwise than well.

Where more to do means more connections, asked for all at once, there is an end to that: a listener has room for 1024 requests that its program has not
got yet, on softrdma as in the kernel, and says REJECTED 28 to the next. A client that asks faster than its server takes passes that by itself,
with no checkpoint near: of 2700 connections of ucmatose on softrdma alone hundreds are rejected, each time. So there are CONNECTIONS at most, and
from there on the moments follow each other faster.
"""
import random
import shutil

from harness import Failure, free_port, under_test, wait_for
from pairs import EndedEarly, await_restarted, checkpoint_in_run
from two import Two, end_of_rping, need

HERE = '127.0.0.1'
CONNECTIONS = 1000  # what fits a listener's backlog, whoever is slow
TRIES = 10
PATIENCE = 300  # s: what polls is slower by orders on a busy machine
COUNT = 'COUNT'  # stands for how much they do
PORT = 'PORT'
UCX = {'UCX_TLS': 'rc_verbs,ud_verbs,self'}


class Case:
    """@unit: what COUNT is at first; each try that was over too soon has three times as much, up to @most. @serves: the server does not end."""

    def __init__(self, server, client, unit, said='', tcp=False, env=None, serves=False, most=None):
        self.server, self.client, self.unit, self.said, self.tcp, self.env, self.serves = server, client, unit, said, tcp, env or {}, serves
        self.most = most


def cases(here):
    def ucx(options, unit, env=UCX):
        return Case(['ucx_perftest', '-p', PORT], ['ucx_perftest', '-p', PORT, here, *options.split(), '-n', COUNT], unit, 'Final:', True, env)

    return {
        'rping': Case(['rping', '-s', '-a', here, '-C', COUNT, '-V', '-S', '4096'], ['rping', '-c', '-a', here, '-C', COUNT, '-V', '-S', '4096'], 2000),
        'ucmatose': Case(['ucmatose', '-C', '20', '-c', COUNT], ['ucmatose', '-C', '20', '-c', COUNT, '-s', here], 60, 'return status 0',
                         most=CONNECTIONS),
        'ucmatose-migrate': Case(['ucmatose', '-m', '-c', COUNT], ['ucmatose', '-m', '-c', COUNT, '-s', here], 100, 'return status 0',
                                 most=CONNECTIONS),
        'udaddy': Case(['udaddy', '-C', '1000', '-c', COUNT], ['udaddy', '-C', '1000', '-c', COUNT, '-s', here], 8, 'return status 0',
                       most=CONNECTIONS),
        'rstream': Case(['rstream', '-T', 'v', '-C', COUNT, '-S', '65536'], ['rstream', '-T', 'v', '-C', COUNT, '-S', '65536', '-s', here], 1000, 'custom'),
        'rstream-blocking': Case(['rstream', '-T', 'b', '-C', COUNT, '-S', '4096'],
                                 ['rstream', '-T', 'b', '-C', COUNT, '-S', '4096', '-s', here], 2000, 'custom'),
        'riostream': Case(['riostream', '-T', 'b', '-S', '4096', '-C', COUNT], ['riostream', '-T', 'b', '-S', '4096', '-C', COUNT, '-s', here], 2000, 'custom'),
        'ib_send_bw-R': Case(['ib_send_bw', '-R', '-F', '-n', COUNT], ['ib_send_bw', '-R', '-F', '-n', COUNT, here], 20000, '#bytes'),
        'ib_write_lat-R': Case(['ib_write_lat', '-R', '-F', '-n', COUNT], ['ib_write_lat', '-R', '-F', '-n', COUNT, here], 20000, '#bytes'),
        'cmtime': Case(['cmtime'], ['cmtime', '-s', here, '-c', COUNT], 200, 'disconnect', serves=True, most=CONNECTIONS),
        'qperf': Case(['qperf', '-lp', PORT], ['qperf', '-lp', PORT, here, '-t', COUNT, '-cm', '1', 'rc_bw'], 2, 'rc_bw', True, serves=True),
        'ucx-rc': ucx('-t tag_lat -s 1024', 2000),
        'ucx-rc-bw-1m': ucx('-t tag_bw -s 1000000', 200),
        'ucx-sleep': ucx('-t tag_lat -E sleep', 1000),
        'ucx-ud': ucx('-t tag_lat -s 1024', 1000, {'UCX_TLS': 'ud_verbs,self'}),
    }


CASES = cases(HERE)


class Job(Two):
    """A case's two programs under fermata."""

    def __init__(self, options, folder, case):
        super().__init__(options, folder, True)
        self.case, self.count, self.running = case, case.unit, []
        self.until = None  # whether the server is ready; None: it listens
        self.pause = 0.1  # between two moments, in the mean
        self.earlier = 0  # programs, of tries that were over too soon
        self.env = {**self.job.env, **case.env}

    def words(self, argv):
        return [self.count if w is COUNT else self.port if w is PORT else w for w in argv]

    def begin(self):
        need(self.case.server[0])
        self.port = free_port()
        self.running = [self.server(self.words(self.case.server), self.port if self.case.tcp else None, self.until, env=self.env)]

    def connect(self, front=()):
        self.joined = False
        self.client = self.start('client', [*front, *self.words(self.case.client)], env=self.env)
        self.running.append(self.client)

    def ended(self):
        return any(p.ended() for p in self.running)

    def checkpoint(self):
        """The first is of both programs: what was taken before the client has joined the job could not bring it back, and its server would wait for ever."""
        wait_for(self.both_taken, 'the client does not join the job', period=0)

    def both_taken(self):
        checkpoint_in_run(self.job, self.ended, self.ended_well)
        self.joined = self.joined or len(self.job.images()) > 1
        return self.joined

    def ended_well(self):
        """Whoever has ended."""
        for program in self.running:
            if program.ended() and program.returncode and not end_of_rping(self.case.server, program.returncode, self.errors()):
                raise Failure(f'{program.label} ended with status {program.returncode}')

    def kill(self):
        self.job.kill_all()
        shutil.rmtree(self.shm, ignore_errors=True)

    def kill_and_restart(self, *options):
        self.kill()
        self.running = [self.job.restart(options=options)]
        await_restarted(self.job, self.ended)

    def again(self):
        self.job.kill_all()
        for program in self.job.programs[self.earlier:]:  # the next ones' files have the same names
            program.out.path.unlink(missing_ok=True)
            program.err.path.unlink(missing_ok=True)
        self.earlier = len(self.job.programs)
        shutil.rmtree(self.shm, ignore_errors=True)
        shutil.rmtree(self.job.dir, ignore_errors=True)
        if self.case.most and self.count * 3 > self.case.most:
            self.pause /= 3
        else:
            self.count *= 3

    def said(self):
        return self.case.said in ''.join(p.out.text() for p in self.job.programs[self.earlier:])

    def errors(self):
        return ''.join(p.err.text() for p in self.job.programs[self.earlier:])

    def finish(self):
        if self.case.serves:
            wait_for(self.said_or_failed, 'the client does not tell its result', PATIENCE)
        else:
            for program in self.running:
                program.wait_end(PATIENCE)
                self.ended_well()
        if not self.said():
            raise Failure(f'the client does not say "{self.case.said}"')
        self.job.kill_all()

    def said_or_failed(self):
        self.ended_well()
        return self.said()


def with_job(options, case, body, kind=Job):
    def test(folder):
        job = kind(options, folder, case)
        with under_test(job.job, job.clean, seed=options.seed):
            rng = random.Random(f'{options.seed}/{case.client}/{body.__name__}')
            for _ in range(TRIES - 1):
                try:
                    return body(job, rng)
                except EndedEarly:
                    job.again()
            return body(job, rng)
    return test
