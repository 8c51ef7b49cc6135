/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files whose mode does not let their owner open them as they are open: made to be read only and written by who has made them (git's objects), or narrowed since. One that two processes have
 * opened apart, one that is mapped, one without any permission, a named pipe.
 */
#include "feature.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int made, shared, hidden, fifo;
static uint64_t *mapped, steps;

static void child_main(int fd)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	while (!feature_finished()) {
		CHECK(pwrite(fd, "child", 5, 4096) == 5);
		feature_work();
	}
	_exit(0);
}

static pid_t open_all(void)
{
	int fd = open("mapped", O_RDWR | O_CREAT, 0600);
	int ready[2];
	pid_t child;
	char c;

	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
	mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(mapped != MAP_FAILED && fchmod(fd, 0400) == 0 && close(fd) == 0);
	CHECK((made = open("made", O_RDWR | O_CREAT | O_EXCL, 0444)) >= 0);
	CHECK((hidden = open("hidden", O_RDWR | O_CREAT | O_EXCL, 0)) >= 0);
	CHECK(mkfifo("fifo", 0600) == 0 && (fifo = open("fifo", O_RDWR)) >= 0 && fchmod(fifo, 0200) == 0);
	CHECK((shared = open("shared", O_RDWR | O_CREAT, 0600)) >= 0 && pwrite(shared, "child", 5, 4096) == 5);
	CHECK(pipe(ready) == 0 && (child = fork()) >= 0);
	if (child == 0) {
		CHECK((fd = open("shared", O_WRONLY)) >= 0 && chmod("shared", 0440) == 0 && write(ready[1], "", 1) == 1);
		child_main(fd);
	}
	CHECK(read(ready[0], &c, 1) == 1 && close(ready[0]) == 0 && close(ready[1]) == 0);
	return child;
}

static void mode_check(int fd, const char *name, mode_t mode)
{
	struct stat st, named;

	CHECK(fstat(fd, &st) == 0 && stat(name, &named) == 0);
	CHECK((st.st_mode & 07777) == mode && (named.st_mode & 07777) == mode);
}

/* What was written last is there; then the next. */
static void number_check(int fd)
{
	uint64_t n = UINT64_MAX;

	CHECK(pread(fd, &n, sizeof(n), 0) == sizeof(n) && n == steps);
	n++;
	CHECK(pwrite(fd, &n, sizeof(n), 0) == sizeof(n));
}

static void all_check(void)
{
	struct stat st;
	char text[8];

	number_check(made);
	number_check(hidden);
	number_check(shared);
	CHECK(*mapped == steps);
	++*mapped;
	steps++;
	CHECK(pread(shared, text, 5, 4096) == 5 && !memcmp(text, "child", 5));
	CHECK(write(fifo, "x", 1) == 1 && read(fifo, text, 1) == 1 && *text == 'x');
	mode_check(made, "made", 0444);
	mode_check(hidden, "hidden", 0);
	mode_check(shared, "shared", 0440);
	mode_check(fifo, "fifo", 0200);
	CHECK(stat("mapped", &st) == 0 && (st.st_mode & 07777) == 0400);
}

int main(void)
{
	const uint64_t zero = 0;
	pid_t child;
	int status;

	umask(0);
	child = open_all();
	CHECK(write(made, &zero, 8) == 8 && write(hidden, &zero, 8) == 8 && pwrite(shared, &zero, 8, 0) == 8);
	feature_ready();
	do {
		all_check();
		feature_work();
	} while (feature_step());
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
