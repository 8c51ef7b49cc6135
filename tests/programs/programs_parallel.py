# SPDX-License-Identifier: BSD-2-Clause
"""Parallel programs without RDMA: OpenMP, Open MPI and MPICH over TCP and shared memory with mpirun in the job, Fortran's coarrays over Open MPI; other memory allocators; Fortran's scratch files."""
from recipe import Recipe

OPENMP = r'''
#include <stdio.h>
#include <omp.h>
int main(void)
{
	static double a[200000];
	double sum = 0;
	for (int step = 0; step < 300; step++) {
#pragma omp parallel for schedule(dynamic, 5000)
		for (int i = 0; i < 200000; i++)
			a[i] = a[i] * 0.5 + (i * 7 + step) % 101;
#pragma omp parallel sections
		{
#pragma omp section
			a[0] += 1;
#pragma omp section
			a[1] += 2;
		}
	}
	for (int i = 0; i < 200000; i++)
		sum += a[i];
	printf("%.6f\n", sum);
	return 0;
}
'''

MPI = r'''
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	int rank, size, rounds = atoi(argv[1]);
	static double out[4096], in[4096];
	double total = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int r = 0; r < rounds; r++) {
		int n = r % 7 ? 1 + r % 64 : 4096;
		double all;
		for (int i = 0; i < n; i++)
			out[i] = (r * 31 + i * 7 + rank) % 1009;
		MPI_Sendrecv(out, n, MPI_DOUBLE, (rank + 1) % size, r, in, n, MPI_DOUBLE, (rank + size - 1) % size, r, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < n; i++)
			if (in[i] != (r * 31 + i * 7 + (rank + size - 1) % size) % 1009)
				MPI_Abort(MPI_COMM_WORLD, 3);
		MPI_Allreduce(&in[0], &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		total += all;
	}
	if (!rank)
		printf("%d ranks: %.1f\n", size, total);
	MPI_Finalize();
	return 0;
}
'''

ALLOCATE = r'''
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *churn(void *arg)
{
	unsigned long seed = (unsigned long)arg, sum = 0;
	unsigned char *kept[512] = { 0 };
	size_t size[512] = { 0 };
	for (int i = 0; i < 700000; i++) {
		unsigned at = (seed = seed * 6364136223846793005ul + 1442695040888963407ul) >> 55;
		for (size_t k = 0; kept[at] && k < size[at]; k += 64)
			if (kept[at][k] != (unsigned char)at)
				abort();
		sum += size[at];
		free(kept[at]);
		size[at] = seed >> 40 & (i % 1000 ? 1023 : 262143);
		kept[at] = malloc(size[at] + 1);
		memset(kept[at], (int)at, size[at] + 1);
	}
	return (void *)sum;
}
int main(void)
{
	pthread_t t[4];
	void *sum;
	for (unsigned long n = 0; n < 4; n++)
		pthread_create(&t[n], NULL, churn, (void *)(n + 1));
	for (int n = 0; n < 4; n++) {
		pthread_join(t[n], &sum);
		printf("%lu\n", (unsigned long)sum);
	}
	return 0;
}
'''

OPENMPI = 'mpirun.openmpi --oversubscribe -n 4 --mca pml ob1 --mca btl {} --mca btl_tcp_port_min_v4 $((PORT + 2000)) ./program {}'
PREPARE_OPENMPI = 'mpicc.openmpi -O2 program.c -o program'
MPICH_HEADER = '/usr/include/x86_64-linux-gnu/mpich/mpi.h'


def with_allocator(name, library):
    path = f'/usr/lib/x86_64-linux-gnu/{library}'
    return Recipe(name, f'LD_PRELOAD={path} ./program', needs=['gcc', path], inputs={'program.c': ALLOCATE}, prepare='gcc -O2 program.c -o program -pthread')


# A file of 128 MiB that nobody else sees, and that is gone with the program.
SCRATCH = r'''
program scratch
  implicit none
  integer :: i, j, k
  real(8) :: v(8192), s
  open(10, status='scratch', form='unformatted', access='direct', recl=65536)
  open(11, status='scratch', form='formatted')
  do k = 1, 6
     do i = 1, 2000
        do j = 1, 8192
           v(j) = sin(dble(i * k) + j * 1d-3)
        end do
        write(10, rec=i) v
        if (mod(i, 100) == 0) write(11, '(i0,1x,e25.17)') i, v(1)
     end do
     s = 0
     do i = 2000, 1, -1
        read(10, rec=i) v
        s = s + sum(v) / i
     end do
     print '(i0,1x,e25.17)', k, s
  end do
  rewind(11)
  s = 0
  do i = 1, 120
     read(11, *) j, v(1)
     s = s + v(1) * j
  end do
  print '(e25.17)', s
end program
'''

COARRAYS = r'''
program ring
  implicit none
  integer, parameter :: n = 20000
  real(8) :: a(n)[*]
  real(8) :: s
  integer :: me, i, k, left
  me = this_image()
  left = me - 1
  if (left == 0) left = num_images()
  a = me
  sync all
  do i = 1, 600
     do k = 1, n, 4000
        a(k:k+3999) = a(k:k+3999) * 0.5d0 + a(k:k+3999)[left] * 0.25d0 + sin(a(k:k+3999))
        sync all
     end do
  end do
  s = sum(a)
  call co_sum(s)
  if (me == 1) print '(i0)', int(s)
end program
'''

CP2K = r'''
cat > in <<'EOF'
&GLOBAL
 PROJECT w
 RUN_TYPE MD
 PRINT_LEVEL LOW
&END
&FORCE_EVAL
 METHOD Quickstep
 &DFT
  BASIS_SET_FILE_NAME BASIS_SET
  POTENTIAL_FILE_NAME GTH_POTENTIALS
  &MGRID
   CUTOFF 120
  &END
  &SCF
   EPS_SCF 1e-5
   SCF_GUESS ATOMIC
  &END
  &XC
   &XC_FUNCTIONAL PADE
   &END
  &END
 &END
 &SUBSYS
  &CELL
   ABC 5 5 5
  &END
  &COORD
   O 0 0 0
   H 0.76 0.59 0
   H -0.76 0.59 0
  &END
  &KIND H
   BASIS_SET DZV-GTH-PADE
   POTENTIAL GTH-PADE-q1
  &END
  &KIND O
   BASIS_SET DZVP-GTH-PADE
   POTENTIAL GTH-PADE-q6
  &END
 &END
&END
&MOTION
 &MD
  ENSEMBLE NVE
  STEPS 6
  TIMESTEP 0.5
  TEMPERATURE 300
 &END
&END
EOF
export CP2K_DATA_DIR=/usr/share/cp2k OMP_NUM_THREADS=1
mpirun.openmpi --oversubscribe --mca pml ob1 --mca btl vader,self -n 2 cp2k.popt -i in > log 2>&1 || { tail log; exit 1; }
grep -E "Total FORCE_EVAL|ENERGY\| Total" log
tail -2 w-1.ener | awk '{print $1,$3,$5,$6}'
'''

PROGRAMS = [
    Recipe('fortran-scratch', './program', needs=['gfortran'], inputs={'program.f90': SCRATCH}, prepare='gfortran -O2 program.f90 -o program'),
    Recipe('coarrays', 'mpirun.openmpi --oversubscribe -n 3 --mca pml ob1 --mca btl vader,self --mca osc rdma,pt2pt ./program', needs=['caf.openmpi', 'mpirun.openmpi'],
           inputs={'program.f90': COARRAYS}, prepare='caf.openmpi -O2 program.f90 -o program'),
    Recipe('openmp', 'OMP_NUM_THREADS=4 ./program', needs=['gcc'], inputs={'program.c': OPENMP}, prepare='gcc -O2 -fopenmp program.c -o program'),
    Recipe('openmpi-tcp', OPENMPI.format('tcp,self', 6000), needs=['mpirun.openmpi', 'mpicc.openmpi'], inputs={'program.c': MPI}, prepare=PREPARE_OPENMPI),
    Recipe('openmpi-shm', OPENMPI.format('vader,self', 6000), needs=['mpirun.openmpi', 'mpicc.openmpi'], inputs={'program.c': MPI}, prepare=PREPARE_OPENMPI),
    Recipe('mpich-shm', 'UCX_TLS=posix,sysv,cma,self mpirun.mpich -n 4 ./program 6000', needs=['mpirun.mpich', MPICH_HEADER], inputs={'program.c': MPI}, prepare='mpicc.mpich -O2 program.c -o program'),
    Recipe('cp2k', CP2K, needs=['mpirun.openmpi', 'cp2k.popt']),
    with_allocator('jemalloc', 'libjemalloc.so.2'),
    with_allocator('tcmalloc', 'libtcmalloc_minimal.so.4'),
]
