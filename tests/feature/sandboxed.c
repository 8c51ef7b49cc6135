/* SPDX-License-Identifier: BSD-2-Clause */
/* Children that let the kernel end them at any call but a few, before they end by themselves: as sshd's do while they authenticate. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "feature.h"

#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void shut_in(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_getpid),
		ALLOW(SYS_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	const struct sock_fprog all = { .len = sizeof(rules) / sizeof(*rules), .filter = rules };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0);
}

/* As its own main(): it is known to those who watch the job by then. */
static int child(int at_once)
{
	char byte = 'x';
	int ends[2];

	CHECK(pipe(ends) == 0);
	shut_in();
	CHECK(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == 'x');
	if (at_once)
		_exit(7);
	return 7;
}

static void expect_end(int at_once)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		execl("/proc/self/exe", "sandboxed", at_once ? "at once" : "in order", (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return child(argv[1][0] == 'a');
	expect_end(0);
	expect_end(1);
	feature_ready();
	while (feature_step())
		;
	expect_end(0);
	expect_end(1);
	return 0;
}
