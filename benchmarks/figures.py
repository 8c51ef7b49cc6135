# SPDX-License-Identifier: BSD-2-Clause
"""How figures are printed, and what counts of several."""
import statistics


def show(name, value, mark=None, ok=None):
    print(f'{name} {value}' + (f' ({mark}, {"ok" if ok else "short"})' if mark else ''), flush=True)


def better_half(values, low=True):
    values = sorted(values, reverse=not low)
    return statistics.mean(values[:max(1, len(values) // 2)])
