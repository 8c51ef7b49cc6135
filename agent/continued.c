/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A child that was stopped and goes on, and whose parent has not waited for that yet (WCONTINUED). The kernel tells of it once, so after a restart it has to happen once more. Owns the file by which they know of each other. No thread of the
 * program runs then, and neither of the two is told by a signal what it was told before.
 *
 *   parent                                                | child
 *   RECREATE  makes the child's file, if let_run.c has it | ..
 *   .. all phases are over ..                             | .. all phases are over ..
 *   as long as the file is there:                         | the file is there: stops itself
 *     sees that the child is stopped, continues it   ---> | takes the SIGCONT, takes the file away
 *   takes the SIGCHLD (let_run.c)                         | lets the threads go
 *
 * The child is in user space when it takes the file away, so the kernel has sent the parent's SIGCHLD by then (kernel/signal.c, get_signal). The parent looks whether it is stopped before it looks whether the
 * file is there: a stop of the program's own, afterwards, is never taken for this one. Who is to be paused for a debugger does not stop for this. A child whose parent is gone does not stop;
 * if the parent goes while the child is stopped, the kernel continues it.
 *
 * A stop throws away each SIGCONT that waits, and a SIGCONT each stop that does (prepare_signal): those that wait for the process are taken before, and sent again. Not those for one thread alone.
 */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/let_run.h"

#define LIMIT_NS 10000000000u
#define LOOK_AGAIN_NS 200000u

static void path_of(char path[LET_RUN_PATH], uint32_t pid)
{
	let_run_path(path, agent.jobdir, agent.where, pid, LET_RUN_CONTINUED);
}

static bool is_there(const char *path)
{
	return !RAW3(SYS_faccessat, AT_FDCWD, path, 0);
}

/* ---- the parent ---- */

int continued_ask(uint32_t pid)
{
	char path[LET_RUN_PATH];
	long r, fd;

	path_of(path, pid);
	fd = r = raw_create(AT_FDCWD, path, O_WRONLY);
	if (fd >= 0) {
		r = raw_write((int)fd, &agent.pid, sizeof(agent.pid));
		raw_close((int)fd);
	}
	return r < 0 ? fermata_fail((int)r, "%s cannot be made (errno %ld): make room there, or set FERMATA_RUNDIR to another place", path, -r) : 0;
}

/* Continues it if it is stopped. False: it is gone, or ends. */
static bool look(uint32_t pid, const char *path)
{
	siginfo_t info = { 0 };

	if (RAW5(SYS_waitid, P_PID, pid, &info, WSTOPPED | WEXITED | WNOWAIT | WNOHANG | __WALL, NULL) || (info.si_pid && info.si_code != CLD_STOPPED))
		return false;
	if (info.si_pid && is_there(path))
		RAW2(SYS_kill, pid, SIGCONT);
	return true;
}

bool continued_await(uint32_t pid)
{
	const struct timespec nap = { .tv_nsec = LOOK_AGAIN_NS };
	const uint64_t limit = raw_now_ns() + LIMIT_NS;
	char path[LET_RUN_PATH];

	path_of(path, pid);
	while (is_there(path) && raw_now_ns() < limit && look(pid, path))
		RAW2(SYS_nanosleep, &nap, NULL);
	if (!is_there(path))
		return true;
	RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
	return false;
}

/* ---- the child ---- */

static const int lost[] = { SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU };

static bool take(int sig, siginfo_t *ret)
{
	static const struct timespec now;
	const uint64_t set = 1ull << (sig - 1);

	return RAW4(SYS_rt_sigtimedwait, &set, ret, &now, RAW_SIGSET_SIZE) == sig;
}

static void stop_and_go_on(void)
{
	siginfo_t waiting[ARRAY_SIZE(lost)], info;
	bool waits[ARRAY_SIZE(lost)];

	for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
		waits[i] = take(lost[i], &waiting[i]);
	raw_tgkill((int)agent.pid, raw_gettid(), SIGSTOP);
	take(SIGCONT, &info);
	for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
		if (waits[i])
			RAW3(SYS_rt_sigqueueinfo, raw_gettid(), lost[i], &waiting[i]); /* to the process; by its number a thread may not say that the sender was another one */
}

/* Who has asked; 0: nobody has. */
static uint32_t asked_by(const char *path)
{
	uint32_t pid = 0;
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);

	if (fd < 0)
		return 0;
	if (raw_read(fd, &pid, sizeof(pid)) != sizeof(pid))
		pid = 0;
	raw_close(fd);
	return pid;
}

void continued_again(bool pause)
{
	char path[LET_RUN_PATH];
	uint32_t parent;
	int before = 0;

	path_of(path, agent.pid);
	parent = asked_by(path);
	if (!parent)
		return;
	RAW5(SYS_prctl, PR_GET_PDEATHSIG, &before, 0, 0, 0);
	RAW5(SYS_prctl, PR_SET_PDEATHSIG, SIGCONT, 0, 0, 0);
	if (!pause && (uint32_t)raw_getppid() == parent)
		stop_and_go_on();
	RAW5(SYS_prctl, PR_SET_PDEATHSIG, before, 0, 0, 0);
	RAW3(SYS_unlinkat, AT_FDCWD, path, 0);
}
