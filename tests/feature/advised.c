/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that is locked, and memory with advice that lasts: wiped in a child, not given to a child, left out of cores, huge or not, read in order. What was taken back stays so. Memory whose pages come
 * from chosen nodes. A child has all
 * that comes locked: within the limit, or beyond it where the user may.
 */
#include "feature.h"

#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGE 4096ul
#define LENGTH (8 * PAGE)

enum { PLAIN, LOCKED, LAZY, WIPED, KEPT, APART, UNDUMPED, HUGE, SMALL, INORDER, BOUND, PREFERRED, COUNT };

static const struct {
	int advice, undone;
	char flag[4];
} kinds[COUNT] = {
	[LOCKED] = { 0, 0, " lo" }, [LAZY] = { 0, 0, " lo" }, [WIPED] = { MADV_WIPEONFORK, 0, " wf" }, [KEPT] = { MADV_WIPEONFORK, MADV_KEEPONFORK, "" },
	[APART] = { MADV_DONTFORK, 0, " dc" }, [UNDUMPED] = { MADV_DONTDUMP, 0, " dd" }, [HUGE] = { MADV_HUGEPAGE, 0, " hg" },
	[SMALL] = { MADV_NOHUGEPAGE, 0, " nh" }, [INORDER] = { MADV_SEQUENTIAL, 0, " sr" },
};
static const char *const all_flags[] = { " lo", " lf", " wf", " dc", " dd", " hg", " nh", " mg", " sr", " rr" };
static unsigned char *at[COUNT];
static int refused[COUNT]; /* by this kernel, or a container */
static const int policies[COUNT] = { [BOUND] = MPOL_BIND | MPOL_F_STATIC_NODES, [PREFERRED] = MPOL_PREFERRED };
static const unsigned long nodes[16] = { 1 };

static void make(int kind)
{
	/* A page between them: the kernel shows neighbours of one kind as one. */
	unsigned char *p = mmap(NULL, LENGTH + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && mprotect(p + PAGE, LENGTH, PROT_READ | PROT_WRITE) == 0);
	at[kind] = p + PAGE;
	pattern_fill(at[kind], LENGTH, (uint64_t)kind);
	if (kinds[kind].advice)
		refused[kind] = madvise(at[kind], LENGTH, kinds[kind].advice) != 0;
	if (kinds[kind].undone)
		CHECK(madvise(at[kind], LENGTH, kinds[kind].undone) == 0);
	if (kind == LOCKED)
		CHECK(mlock(at[kind], LENGTH) == 0);
	if (kind == BOUND || kind == PREFERRED)
		refused[kind] = syscall(SYS_mbind, at[kind], LENGTH, policies[kind], nodes, 8 * sizeof(nodes), 0) != 0;
	if (kind == LAZY)
		CHECK(mlock2(at[kind], LENGTH, MLOCK_ONFAULT) == 0);
}

/* The flags of the mapping at @start, as smaps has them; none if a cut comes between, and its line is missed. */
static void flags_of(const void *start, char flags[512])
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	int here = 0;
	char line[512];

	CHECK(f);
	*flags = 0;
	while (fgets(line, sizeof(line), f) && !*flags) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = from == (unsigned long)start;
		else if (here && strncmp(line, "VmFlags:", 8) == 0)
			strcpy(flags, line + 8);
	}
	if (strstr(flags, " ??")) /* locked as it is touched: older kernels have no letters for it */
		memcpy(strstr(flags, " ??"), " lf", 3);
	CHECK(fclose(f) == 0);
}

static int flags_hold(int kind, char flags[512])
{
	int hold;

	flags_of(at[kind], flags);
	hold = *flags != 0;
	for (size_t i = 0; i < sizeof(all_flags) / sizeof(*all_flags); i++)
		hold &= !!strstr(flags, all_flags[i]) == (strcmp(kinds[kind].flag, all_flags[i]) == 0 || (kind == LAZY && strcmp(all_flags[i], " lf") == 0));
	return hold || refused[kind];
}

/* A file of /proc that is being read at the moment of a cut may be of the moment in between: it is read again. */
static void flags_check(int kind)
{
	char flags[512];

	if (!flags_hold(kind, flags) && !flags_hold(kind, flags))
		feature_fail("memory of kind %d has the flags%s", kind, flags);
}

static void nodes_check(int kind)
{
	unsigned long has[16] = { 0 };
	int policy;

	if (refused[BOUND] || refused[PREFERRED])
		return;
	CHECK(syscall(SYS_get_mempolicy, &policy, has, 8 * sizeof(has), at[kind], MPOL_F_ADDR) == 0);
	CHECK(policy == policies[kind] && (policy == MPOL_DEFAULT || !memcmp(has, nodes, sizeof(has))));
}

static int is_zero(const unsigned char *p)
{
	for (size_t i = 0; i < LENGTH; i++)
		if (p[i])
			return 0;
	return 1;
}

static void child_check(void)
{
	unsigned char in[LENGTH / PAGE];
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(is_zero(at[WIPED]) && mincore(at[APART], LENGTH, in) == -1 && errno == ENOMEM);
		CHECK(pattern_holds(at[KEPT], LENGTH, KEPT) && pattern_holds(at[PLAIN], LENGTH, PLAIN) && pattern_holds(at[LOCKED], LENGTH, LOCKED));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static int future_is_locked(void)
{
	unsigned char *p = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char flags[512];

	CHECK(p != MAP_FAILED && mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	flags_of(p + PAGE, flags);
	CHECK(munmap(p, 3 * PAGE) == 0);
	return strstr(flags, " lo") != NULL;
}

/* More than what an ordinary user may have locked. */
static int may_lock(void)
{
	const size_t much = 1ul << 32;
	void *p = mmap(NULL, much, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int may;

	if (p == MAP_FAILED && errno == EAGAIN) /* what comes is to be locked */
		return 0;
	CHECK(p != MAP_FAILED);
	may = mlock2(p, much, MLOCK_ONFAULT) == 0;
	CHECK(munmap(p, much) == 0);
	return may;
}

static void locked_main(int ready, int beyond)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	CHECK(mlockall(MCL_FUTURE) == 0 && write(ready, "", 1) == 1);
	while (!feature_finished()) {
		/* No more after a restart by who may no longer go beyond the limit: that may come between the two questions. */
		CHECK(future_is_locked() || (beyond && !may_lock()) || future_is_locked());
		CHECK(usleep(1000) == 0 || errno == EINTR);
	}
	_exit(0);
}

static pid_t locked_child(void)
{
	int ready[2], beyond = may_lock();
	pid_t pid;
	char c;

	CHECK(pipe(ready) == 0 && (pid = fork()) >= 0);
	if (pid == 0)
		locked_main(ready[1], beyond);
	CHECK(read(ready[0], &c, 1) == 1 && close(ready[0]) == 0 && close(ready[1]) == 0);
	return pid;
}

int main(void)
{
	pid_t child;
	int status;

	for (int kind = 0; kind < COUNT; kind++)
		make(kind);
	child = locked_child();
	feature_ready();
	do {
		for (int kind = 0; kind < COUNT; kind++) {
			flags_check(kind);
			nodes_check(kind);
			CHECK(pattern_holds(at[kind], LENGTH, (uint64_t)kind));
		}
		child_check();
		CHECK(!future_is_locked() || !future_is_locked());
		feature_work();
	} while (feature_step());
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}
