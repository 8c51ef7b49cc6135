/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared memory without a name, by descriptor and by mapping at once, in two processes: a deleted file of /dev/shm and a memfd. What is
 * written through the one is read through the other, and the child opens it anew through its parent's descriptor.
 */
#include "feature.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SIZE (3 * 4096 + 100)

static int fds[2];
static _Atomic uint32_t *maps[2];

static void *map(int fd)
{
	void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void make(void)
{
	char name[40];

	snprintf(name, sizeof(name), "/feature-deleted-%d", getpid());
	CHECK((fds[0] = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0 && shm_unlink(name) == 0);
	CHECK((fds[1] = memfd_create("feature", MFD_CLOEXEC)) >= 0);
	for (int i = 0; i < 2; i++) {
		CHECK(ftruncate(fds[i], SIZE) == 0);
		maps[i] = map(fds[i]);
		CHECK(pwrite(fds[i], "tail", 4, SIZE - 4) == 4 && lseek(fds[i], 77, SEEK_SET) == 77);
	}
}

static void check(int i, uint32_t n)
{
	struct stat st;
	char text[8];
	uint32_t v;

	CHECK(pwrite(fds[i], &n, 4, 4096) == 4 && maps[i][1024] == n);
	maps[i][1025] = n + 1;
	CHECK(pread(fds[i], &v, 4, 4100) == 4 && v == n + 1);
	CHECK(fstat(fds[i], &st) == 0 && st.st_size == SIZE && st.st_nlink == 0);
	CHECK(pread(fds[i], text, 8, SIZE - 4) == 4 && memcmp(text, "tail", 4) == 0 && lseek(fds[i], 0, SEEK_CUR) == 77);
}

/* Answers each number in the first word by the second. */
static void child(void)
{
	char path[40];

	while (!atomic_load(&maps[0][2]))
		for (int i = 0; i < 2; i++) {
			uint32_t *again;
			int fd;

			if (maps[i][0] == maps[i][1])
				continue;
			snprintf(path, sizeof(path), "/proc/%d/fd/%d", getppid(), fds[i]);
			CHECK((fd = open(path, O_RDWR)) >= 0);
			again = map(fd);
			again[1] = maps[i][0];
			CHECK(munmap(again, SIZE) == 0 && close(fd) == 0);
		}
	_exit(0);
}

int main(void)
{
	uint32_t n = 0;
	int status;
	pid_t pid;

	make();
	CHECK((pid = fork()) >= 0);
	if (!pid)
		child();
	feature_ready();
	do {
		feature_work();
		for (int i = 0; i < 2; i++) {
			check(i, ++n);
			maps[i][0] = n;
			while (maps[i][1] != n)
				CHECK(waitpid(pid, &status, WNOHANG) == 0);
		}
	} while (feature_step());
	maps[0][2] = 1;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	return 0;
}
