# SPDX-License-Identifier: BSD-2-Clause
"""What is done to a pair of programs that speak verbs, on one host (test-jobs) or on two (test-hosts-jobs)."""
import random
import time

from harness import pause, under_test
from pairs import EndedEarly, Pair

SECONDS = 1  # what a run takes without checkpoints


def with_pair(options, argv, body, kind=Pair, **more):
    def test(folder):
        pair = kind(options, folder, argv, **more)
        with under_test(pair.job, pair.clean, seed=options.seed):
            while True:
                try:
                    return body(pair, random.Random(f'{options.seed}/{argv}/{body.__name__}'))
                except EndedEarly:
                    if pair.scale > 100:
                        raise
                    pair.again()
    return test


def checkpoint_begin(pair):
    """As pair.checkpoint(), not waited for: the command."""
    return pair.job.start(f'checkpoint-{len(pair.job.programs)}', [pair.bin / 'fermata', 'checkpoint', pair.job.name], stdout='file')


def in_mid_run(pair, seconds=SECONDS):
    """Starts both; returns when they have met. The run takes at least @seconds from there."""
    pair.start(pair.amount_for(seconds), True)


def body_run(pair, rng):
    in_mid_run(pair)
    pause(rng.uniform(0, 0.3 * SECONDS))
    pair.checkpoint()
    pause(rng.uniform(0, 0.2 * SECONDS))
    pair.checkpoint()
    pair.kill()
    pair.restart()
    pair.finish()


def body_continue(pair, rng):
    in_mid_run(pair)
    for _ in range(2):
        pause(rng.uniform(0, 0.3 * SECONDS))
        pair.checkpoint()
    pair.finish()


def chain(rounds):
    def body_chain(pair, rng):
        in_mid_run(pair, 1 + 0.1 * rounds)
        for _ in range(rounds):
            pause(rng.uniform(0, 0.1))
            pair.checkpoint()
            pair.kill()
            pair.restart()
        pair.finish()
        return f'{rounds} restarts'
    return body_chain


def often(seconds):
    def body_often(pair, rng):
        in_mid_run(pair, 1.5 * seconds)
        begin, taken = time.monotonic(), 0
        while time.monotonic() - begin < seconds:
            pair.checkpoint()
            taken += 1
            pause(begin + 0.05 * taken - time.monotonic())
        pair.finish()
        return f'{taken} checkpoints in {time.monotonic() - begin:.1f} s'
    return body_often


def moments(count, per_run=5):
    """@count random moments of a program: checkpoints, and after half of them SIGKILL and restart."""
    def body_moments(pair, rng):
        taken = 0
        while taken < count:
            in_mid_run(pair)
            for _ in range(min(per_run, count - taken)):
                pause(rng.expovariate(1 / 0.15))
                try:
                    pair.checkpoint()
                except EndedEarly:
                    break
                taken += 1
                if rng.random() < 0.5:
                    pair.kill()
                    pair.restart()
            pair.finish()
        return f'{taken} moments'
    return body_moments
