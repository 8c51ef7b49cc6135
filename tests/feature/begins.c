/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When processes were begun, by the ways in which a program asks (open, openat, fopen, and another program): the same all its life, for itself and for a child that stays. One that is begun
 * later has its own moment, and is a zombie of that moment.
 */
#include "feature.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { STARTTIME = 22, TICKS = 100 };

static unsigned long parse(const char *text)
{
	const char *p = strrchr(text, ')');

	for (int field = 2; p && field < STARTTIME; field++)
		p = strchr(p + 1, ' ');
	CHECK(p);
	return strtoul(p, NULL, 10);
}

static unsigned long take(int fd)
{
	char text[2048];
	ssize_t n;

	CHECK(fd >= 0 && (n = read(fd, text, sizeof(text) - 1)) > 0 && close(fd) == 0);
	text[n] = 0;
	return parse(text);
}

static unsigned long take_stream(FILE *f)
{
	char text[2048];

	CHECK(f && fgets(text, sizeof(text), f));
	return parse(text);
}

enum way { OPEN, OPENAT, FOPEN, PROGRAM, WAYS };

static unsigned long ask(pid_t pid, enum way way)
{
	char path[32], command[48];
	unsigned long begun;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	snprintf(command, sizeof(command), "cat %s", path);
	if (way == OPEN || way == OPENAT)
		return take(way == OPEN ? open(path, O_RDONLY) : openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
	f = way == FOPEN ? fopen(path, "re") : popen(command, "r");
	begun = take_stream(f);
	CHECK((way == FOPEN ? fclose(f) : pclose(f)) == 0);
	return begun;
}

/* What is open while a restart comes is the kernel's then: asked again, it is not. */
static void check(pid_t pid, unsigned long begun, int by_program)
{
	for (enum way way = OPEN; way < (by_program ? WAYS : PROGRAM); way++) {
		unsigned long is = ask(pid, way);

		if (is != begun && (is = ask(pid, way)) != begun)
			feature_fail("process %d was begun at %lu, and is said to have been at %lu (way %d)", pid, begun, is, way);
	}
}

static unsigned long now(void)
{
	return feature_now(CLOCK_BOOTTIME) / (1000000000u / TICKS);
}

/* Another one than a process that is there no more, whatever its number. */
static void check_new(void)
{
	unsigned long before = now(), begun;
	pid_t pid = fork();
	char path[32];
	siginfo_t end;

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(0);
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	CHECK(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT) == 0);
	begun = take(open(path, O_RDONLY));
	/* A restart may have been in between: what is a zombie then is made again. */
	CHECK(begun + 1 >= before && begun <= now() && waitpid(pid, NULL, 0) == pid);
}

static unsigned long first(pid_t pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	return take(open(path, O_RDONLY));
}

int main(void)
{
	pid_t self = getpid(), child = fork();
	unsigned long begun, child_begun;
	int step = 0;

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		for (;;)
			pause();
	}
	begun = first(self);
	child_begun = first(child);
	CHECK(begun <= child_begun && child_begun <= now());
	feature_ready();
	do {
		feature_work();
		check(self, begun, step % 16 == 0);
		check(child, child_begun, step % 16 == 8);
		if (step++ % 4 == 0)
			check_new();
	} while (feature_step());
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	return 0;
}
