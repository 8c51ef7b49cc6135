# SPDX-License-Identifier: BSD-2-Clause
"""Which checkpoint tests there are, and running them."""

SUITES = ['feature', 'rdma', 'fault']


def run(options, suites, total):
    pass
