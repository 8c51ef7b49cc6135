/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As refuse.c: a program that traces another one from system call to system call, as strace does, while that one calls the kernel and makes children. Each checkpoint is refused, and the tracer sees nothing of
 * that: no stop that is not of a call, of a child's birth or end, or of a signal that the traced one is sent. By the argument it is begun by the tracer (asked), seized (seized), or seized with its children (forks).
 */
#include "feature.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define STEP 4
#define SLEEP_NS 30000000 /* it is found in the middle of a call as a rule */

__attribute__((noreturn)) static void call(int asked, int forks)
{
	if (asked)
		CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0);
	for (long n = 0;; n++) {
		const struct timespec sleep = { .tv_nsec = SLEEP_NS };

		CHECK(nanosleep(&sleep, NULL) == 0);
		if (forks && n % 4 == 0) {
			pid_t pid = fork();
			int status;

			CHECK(pid >= 0);
			if (!pid)
				_exit(7);
			CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		}
	}
}

/* One stop, and on; whether the traced one has called. */
static int stop(pid_t traced, int asked)
{
	int status, sig = 0;
	pid_t pid = waitpid(-1, &status, __WALL);

	CHECK(pid > 0);
	if (!WIFSTOPPED(status)) {
		CHECK(pid != traced && WIFEXITED(status) && WEXITSTATUS(status) == 7);
		return 0;
	}
	if (status >> 16 == 0 && WSTOPSIG(status) != (SIGTRAP | 0x80)) {
		sig = WSTOPSIG(status);
		if (sig != SIGCHLD && !(asked && sig == SIGSTOP))
			feature_fail("process %d stands for signal %d", pid, sig);
		sig = sig == SIGCHLD ? sig : 0;
	}
	CHECK(ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)sig) == 0 || errno == ESRCH);
	return WSTOPSIG(status) == (SIGTRAP | 0x80);
}

int main(int argc, char **argv)
{
	FILE *f = fopen("refused", "w");
	int asked = argc == 2 && strcmp(argv[1], "asked") == 0, forks = argc == 2 && strcmp(argv[1], "forks") == 0, status;
	long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | (forks ? PTRACE_O_TRACEFORK : 0);
	pid_t traced;

	CHECK(argc == 2 && f);
	traced = fork();
	CHECK(traced >= 0);
	if (!traced)
		call(asked, forks);
	if (asked)
		CHECK(waitpid(traced, &status, 0) == traced && WIFSTOPPED(status) && ptrace(PTRACE_SETOPTIONS, traced, NULL, options) == 0 && ptrace(PTRACE_SYSCALL, traced, NULL, NULL) == 0);
	else
		CHECK(ptrace(PTRACE_SEIZE, traced, NULL, options) == 0 && ptrace(PTRACE_INTERRUPT, traced, NULL, NULL) == 0);
	CHECK(fprintf(f, asked ? "from one system call to the next\n" : "by PTRACE_SEIZE, as strace does\n") > 0 && fclose(f) == 0);
	feature_ready();
	do
		for (int calls = 0; calls < STEP;)
			calls += stop(traced, asked);
	while (feature_step());
	CHECK(kill(traced, SIGKILL) == 0);
	while (waitpid(traced, &status, __WALL) == traced && !WIFSIGNALED(status))
		;
	return 0;
}
