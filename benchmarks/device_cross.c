/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel takes to move bytes into another process's private memory, without any device: softrdma cannot be faster there. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_time.h"
#include "device.h"

#define COPIES_MAX 501
#define ROUNDS 2001

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(1);
	}
}

double device_cross(size_t size)
{
	size_t copies = bench_repeats(size, COPIES_MAX), i;
	double took[COPIES_MAX];
	char *buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte;
	struct iovec v = { buf, size };
	int ready[2];
	pid_t pid;

	must(buf != MAP_FAILED && !pipe(ready), "memory");
	pid = fork();
	memset(buf, 1, size); /* each its own */
	if (!pid) {
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
		must(write(ready[1], "", 1) == 1, "pipe");
		pause();
	}
	must(read(ready[0], &byte, 1) == 1, "pipe");
	for (i = 0; i < copies; i++) {
		double start = bench_now();

		must(process_vm_writev(pid, &v, 1, &v, 1, 0) == (ssize_t)size, "process_vm_writev");
		took[i] = bench_now() - start;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	munmap(buf, size);
	return bench_median(took, copies);
}

/* The other's memory, where our own copy of the page lies too. */
static int memory_of(int sock)
{
	pid_t me = getpid(), other = 0;
	char path[32];
	int fd;

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	must(write(sock, &me, sizeof(me)) == sizeof(me) && read(sock, &other, sizeof(other)) == sizeof(other), "exchange of pids");
	snprintf(path, sizeof(path), "/proc/%d/mem", other);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	must(fd >= 0, path);
	return fd;
}

static void poke(int fd, volatile uint64_t *at, uint64_t value)
{
	must(pwrite(fd, &value, sizeof(value), (off_t)(uintptr_t)at) == sizeof(value), "pwrite");
}

double device_poke(void)
{
	volatile uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double took[ROUNDS];
	int sock[2], fd;
	uint64_t i;
	pid_t pid;

	must(page != MAP_FAILED && !socketpair(AF_UNIX, SOCK_STREAM, 0, sock), "memory");
	pid = device_fork();
	*page = 0;
	fd = memory_of(sock[!pid]);
	for (i = 1; i <= ROUNDS; i++) {
		double start = bench_now();

		if (pid)
			poke(fd, page, i);
		while (*page != i)
			;
		if (!pid)
			poke(fd, page, i);
		took[i - 1] = bench_now() - start;
	}
	if (!pid)
		_exit(0);
	device_wait();
	close(fd);
	close(sock[0]);
	close(sock[1]);
	munmap((void *)page, 4096);
	return bench_median(took, ROUNDS) / 2;
}
