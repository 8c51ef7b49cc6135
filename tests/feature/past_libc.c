/* SPDX-License-Identifier: BSD-2-Clause */
/* Children that end past libc, by a system call of their own, so that nobody hears of it but their parent, who waits for them in several ways. */
#include "feature.h"

#include <sys/syscall.h>
#include <sys/wait.h>

enum { MANY = 32 };

static void end(int status)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"((long)SYS_exit_group), "D"((long)status) : "rcx", "r11", "memory");
}

static void wait_for(pid_t pid, int way)
{
	siginfo_t info;
	int status;

	switch (way) {
	case 0:
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
		break;
	case 1:
		CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 3);
		CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED) == 0 && info.si_status == 3);
		break;
	default:
		CHECK(wait4(pid, NULL, 0, NULL) == pid);
	}
}

/* They live over a checkpoint, and end at any moment of the next. */
static pid_t make(unsigned int n)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		usleep(50000 + n * 7919 % 100000);
		end(3);
	}
	return pid;
}

int main(void)
{
	pid_t pids[MANY];
	unsigned int n = 0;

	for (; n < MANY; n++)
		pids[n] = make(n);
	feature_ready();
	do {
		for (int i = 0; i < 4; i++, n++) {
			wait_for(pids[n % MANY], (int)(n % 3));
			pids[n % MANY] = make(n);
		}
	} while (feature_step());
	for (int i = 0; i < MANY; i++)
		wait_for(pids[i], 0);
	return 0;
}
