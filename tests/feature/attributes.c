/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a process and a thread have set for themselves by prctl and its like: orphans come to it, it is told of its parent's end, barriers of memory, huge pages, what a core contains; timer
 * slack, personality, memory policy, news of broken memory of one thread and not of the other; how soon the process is killed where memory runs out. Root gives up
 * capabilities, each thread others.
 */
#include "feature.h"

#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/membarrier.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define FILTER "/proc/self/coredump_filter"
#define OOM "/proc/self/oom_score_adj"
#define SLACK 123456
#ifndef PR_SET_MDWE /* Linux 6.3 */
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif

static volatile int stop;
static pthread_barrier_t started;
static int has_policy, has_mdwe, own_personality, oom, slack, death_signal; /* the last two: as it was begun */
static volatile sig_atomic_t told;

static long barrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

static int policy(void)
{
	unsigned long nodes[16] = { 0 };
	int mode = -1;

	if (syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof(nodes), NULL, 0))
		return -1;
	return mode == MPOL_INTERLEAVE && nodes[0] != 1 ? -1 : mode;
}

struct rights {
	struct __user_cap_data_struct sets[2];
	int boot; /* may what root executes have it? */
};

static struct rights rights(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct rights r = { .boot = geteuid() == 0 && prctl(PR_CAPBSET_READ, CAP_SYS_BOOT, 0, 0, 0) };

	CHECK(syscall(SYS_capget, &h, r.sets) == 0);
	return r;
}

/* Of the calling thread, if it has it: @cap for good, @lowered for the time being; what is left. */
static struct rights give_up(int cap, int lowered)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct rights r = rights();

	r.sets[0].permitted &= ~(1u << cap);
	r.sets[0].effective &= ~(1u << cap | 1u << lowered);
	CHECK(syscall(SYS_capset, &h, r.sets) == 0);
	return rights();
}

static int rights_are(struct rights wanted)
{
	struct rights r = rights();

	return !memcmp(&r, &wanted, sizeof(r));
}

static void *thread(void *arg)
{
	const unsigned long nodes[16] = { 1 };
	const struct rights own = give_up(CAP_SYS_TTY_CONFIG, CAP_AUDIT_WRITE);

	CHECK(prctl(PR_SET_TIMERSLACK, SLACK) == 0 && prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0) == 0);
	own_personality = personality(ADDR_NO_RANDOMIZE) < 0 ? 0 : ADDR_NO_RANDOMIZE; /* a container may refuse it */
	has_policy = syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, nodes, 8 * sizeof(nodes)) == 0;
	pthread_barrier_wait(&started);
	while (!stop) {
		CHECK(prctl(PR_GET_TIMERSLACK) == SLACK && personality(0xffffffff) == own_personality);
		CHECK(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_EARLY);
		CHECK(!has_policy || policy() == MPOL_INTERLEAVE);
		CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
		CHECK(rights_are(own));
		feature_work();
	}
	return arg;
}

/* Its child ends behind it, and comes to us. */
static void orphan_check(void)
{
	int ends[2], status;
	pid_t child, orphan;

	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		orphan = fork();
		if (orphan == 0)
			_exit(9);
		_exit(orphan > 0 && write(ends[1], &orphan, sizeof(orphan)) == sizeof(orphan) ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(ends[0], &orphan, sizeof(orphan)) == sizeof(orphan));
	CHECK(waitpid(orphan, &status, 0) == orphan && WEXITSTATUS(status) == 9);
	CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void on_death(int sig)
{
	told = 1;
}

static void survivor(pid_t parent)
{
	int sig = 0;

	CHECK(signal(SIGUSR2, on_death) != SIG_ERR && prctl(PR_SET_PDEATHSIG, SIGUSR2) == 0);
	while (!told) {
		CHECK(prctl(PR_GET_PDEATHSIG, &sig) == 0 && sig == SIGUSR2);
		CHECK(usleep(1000) == 0 || errno == EINTR);
	}
	while (getppid() == parent) /* the kernel tells of the first of its threads */
		CHECK(usleep(1000) == 0 || errno == EINTR);
	_exit(3);
}

/* A process with a child that outlives it: the child's number. */
static pid_t family(pid_t *ret_parent)
{
	int ends[2];
	pid_t child;

	CHECK(pipe(ends) == 0);
	*ret_parent = fork();
	CHECK(*ret_parent >= 0);
	if (*ret_parent == 0) {
		child = fork();
		if (child == 0)
			survivor(getppid());
		CHECK(write(ends[1], &child, sizeof(child)) == sizeof(child));
		for (;;)
			pause();
	}
	CHECK(read(ends[0], &child, sizeof(child)) == sizeof(child));
	CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
	return child;
}

/* An orphan whose parent had its system calls dispatched, which a fork ends: it stands in no checkpoint's way. */
static pid_t begin_undispatched(void)
{
	static char allow;
	int told[2];
	pid_t pid = -1, parent;

	CHECK(pipe(told) == 0);
	parent = fork();
	CHECK(parent >= 0);
	if (parent == 0) {
		prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &allow);
		pid = fork();
		while (!pid)
			pause();
		_exit(write(told[1], &pid, sizeof(pid)) != sizeof(pid));
	}
	CHECK(read(told[0], &pid, sizeof(pid)) == sizeof(pid) && pid > 0 && waitpid(parent, NULL, 0) == parent);
	CHECK(close(told[0]) == 0 && close(told[1]) == 0);
	return pid;
}

static unsigned int core_filter(void)
{
	unsigned int v = 0;
	FILE *f = fopen(FILTER, "r");

	CHECK(f && fscanf(f, "%x", &v) == 1 && fclose(f) == 0);
	return v;
}

static int oom_adjustment(void)
{
	FILE *f = fopen(OOM, "r");
	int v = 0;

	CHECK(f && fscanf(f, "%d", &v) == 1 && fclose(f) == 0);
	return v;
}

static void set_own(void)
{
	FILE *f = fopen(FILTER, "w"), *adjust = fopen(OOM, "w");

	CHECK(f && fputs("0x1b", f) > 0 && fclose(f) == 0);
	oom = oom_adjustment() < 1000 ? oom_adjustment() + 1 : 1000;
	CHECK(adjust && fprintf(adjust, "%d", oom) > 0 && fclose(adjust) == 0);
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	CHECK(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0);
	CHECK(prctl(PR_GET_PDEATHSIG, &death_signal) == 0);
	slack = prctl(PR_GET_TIMERSLACK);
	syscall(SYS_keyctl, KEYCTL_GET_PERSISTENT, -1, KEY_SPEC_PROCESS_KEYRING); /* as Kerberos does, where the kernel has it: it stands in no checkpoint's way */
	has_mdwe = prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0;
	prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT, 0, 0, 0); /* root's alone */
}

static void own_check(void)
{
	int sig = -1, subreaper = 0;

	CHECK(prctl(PR_GET_CHILD_SUBREAPER, &subreaper) == 0 && subreaper == 1 && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
	CHECK(prctl(PR_GET_PDEATHSIG, &sig) == 0 && sig == death_signal);
	CHECK(prctl(PR_GET_TIMERSLACK) == slack && personality(0xffffffff) == 0);
	CHECK(!has_policy || policy() == MPOL_DEFAULT);
	CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
	CHECK(barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) == -1 && errno == EPERM); /* never registered for */
	CHECK(oom_adjustment() == oom && prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == PR_MCE_KILL_DEFAULT);
	CHECK(core_filter() == 0x1b && (!has_mdwe || prctl(PR_GET_MDWE, 0, 0, 0, 0) == 1));
}

int main(void)
{
	pid_t parent, child, undispatched;
	struct rights own;
	pthread_t t;
	int status;

	set_own();
	undispatched = begin_undispatched();
	child = family(&parent);
	CHECK(pthread_barrier_init(&started, NULL, 2) == 0 && pthread_create(&t, NULL, thread, NULL) == 0);
	pthread_barrier_wait(&started);
	own = give_up(CAP_SYS_BOOT, CAP_LEASE);
	feature_ready();
	do {
		own_check();
		CHECK(rights_are(own));
		orphan_check();
		feature_work();
	} while (feature_step());
	stop = 1;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(kill(undispatched, SIGKILL) == 0 && waitpid(undispatched, NULL, 0) == undispatched);
	CHECK(kill(parent, SIGKILL) == 0 && waitpid(parent, &status, 0) == parent);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
	return 0;
}
