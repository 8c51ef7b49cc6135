/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared memory with a name (shm_open): two processes count in it, what one writes the other sees, it can be opened again by its name at any
 * time, by descriptor and by mapping it is one. Its content is that of the moment: it only grows with the program's own count.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SIZE (20 * 4096u + 100)

struct area {
	uint64_t step, echo, stop;
	unsigned char data[SIZE - 24];
};

static char name[64];
static struct area *area;
static int fd;

static void child(void)
{
	uint64_t seen;

	while (!__atomic_load_n(&area->stop, __ATOMIC_ACQUIRE)) {
		seen = __atomic_load_n(&area->step, __ATOMIC_ACQUIRE);
		__atomic_store_n(&area->echo, seen, __ATOMIC_RELEASE);
	}
	_exit(0);
}

/* By name, as somebody who comes later does. */
static void check_by_name(uint64_t step)
{
	int again = shm_open(name, O_RDWR, 0);
	struct area *second;
	struct stat st;

	CHECK(again >= 0 && fstat(again, &st) == 0 && st.st_size == sizeof(*area) && (st.st_mode & 0777) == 0640);
	second = mmap(NULL, sizeof(*area), PROT_READ, MAP_SHARED, again, 0);
	CHECK(second != MAP_FAILED && close(again) == 0);
	CHECK(second->step == step && pattern_holds(second->data, 20 * 4096, step));
	CHECK(munmap(second, sizeof(*area)) == 0);
}

int main(void)
{
	uint64_t step = 0, value;
	int status;
	pid_t pid;

	snprintf(name, sizeof(name), "/feature-posix-memory-%d", getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && fchmod(fd, 0640) == 0 && ftruncate(fd, sizeof(*area)) == 0);
	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(area != MAP_FAILED);
	pattern_fill(area->data, 20 * 4096, 0);
	CHECK((pid = fork()) >= 0);
	if (pid == 0)
		child();
	feature_ready();
	do {
		feature_work();
		CHECK(area->step == step && pattern_holds(area->data, 20 * 4096, step));
		CHECK(pread(fd, &value, sizeof(value), 0) == (ssize_t)sizeof(value) && value == step);
		check_by_name(step);
		pattern_fill(area->data, 20 * 4096, step + 1);
		__atomic_store_n(&area->step, ++step, __ATOMIC_RELEASE);
		while (__atomic_load_n(&area->echo, __ATOMIC_ACQUIRE) != step)
			feature_work();
	} while (feature_step());
	__atomic_store_n(&area->stop, 1, __ATOMIC_RELEASE);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(shm_unlink(name) == 0);
	return 0;
}
