# SPDX-License-Identifier: BSD-2-Clause
# Heat that spreads over a plane, in stripes a rank, with halos sent and received and the largest change of all ranks each step. Twenty
# times the plane goes into a file of HDF5 that all ranks write together. The last line is what is to be the same from run to run.
import hashlib
import sys
import time

import h5py
import numpy
from mpi4py import MPI

steps, size = int(sys.argv[1]), int(sys.argv[2])
world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
rows, every = size // ranks, steps // 20
up, down = rank - 1 if rank else MPI.PROC_NULL, rank + 1 if rank + 1 < ranks else MPI.PROC_NULL
plane = numpy.zeros((rows + 2, size))
plane[1:-1] = numpy.random.default_rng(4711 + rank).random((rows, size))
file = h5py.File('heat.h5', 'w', driver='mpio', comm=world)
kept = file.create_dataset('plane', (20, size, size), dtype='f8')
changes = hashlib.sha256()
begin = time.time()
for step in range(steps):
    world.Sendrecv(plane[1], up, 0, plane[-1], down, 0)
    world.Sendrecv(plane[-2], down, 1, plane[0], up, 1)
    new = plane.copy()
    new[1:-1, 1:-1] = plane[1:-1, 1:-1] + 0.2 * (plane[:-2, 1:-1] + plane[2:, 1:-1] + plane[1:-1, :-2] + plane[1:-1, 2:] - 4 * plane[1:-1, 1:-1])
    change = world.allreduce(float(numpy.abs(new - plane).max()), MPI.MAX)
    changes.update(change.hex().encode())
    plane = new
    if step % every == every - 1:
        with kept.collective:
            kept[step // every, rank * rows:(rank + 1) * rows] = plane[1:-1]
        if not rank:
            print('step', step + 1, change.hex(), flush=True)
file.close()
whole = world.gather(plane[1:-1].tobytes())
if not rank:
    with h5py.File('heat.h5', 'r', driver='mpio', comm=MPI.COMM_SELF) as file:
        written = hashlib.sha256(file['plane'][:].tobytes()).hexdigest()
    print(f'seconds {time.time() - begin:.2f}')
    print('result', changes.hexdigest(), hashlib.sha256(b''.join(whole)).hexdigest(), written)
