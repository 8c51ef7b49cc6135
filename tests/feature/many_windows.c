/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One shared object that is mapped by more windows than a process may have descriptors: page by page, in reverse, so that the kernel cannot join two of them; by three
 * processes, of which the last one writes to another object that is mapped between pages of it. What the children find through their windows is compared in each step.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>

#define PAGE 4096l
enum { WINDOWS = 21000, LIMIT = 256, CHILDREN = 2, USED = 64 /* pages that are written to */ };

struct head {
	_Atomic unsigned long step, answered[CHILDREN];
};

static struct head *head;
static char *reversed; /* window I is page WINDOWS - 1 - I */

static unsigned long *word(char *windows, int page)
{
	return (unsigned long *)(windows + (WINDOWS - 1 - page) * PAGE);
}

static int used(int k)
{
	return k * (WINDOWS / USED);
}

static char *map_reversed(int fd)
{
	char *at = mmap(NULL, WINDOWS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(at != MAP_FAILED);
	for (int page = 0; page < WINDOWS; page++)
		CHECK(mmap(word(at, page), PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, page * PAGE) != MAP_FAILED);
	return at;
}

/* Windows on two objects by turns. */
static char *map_mixed(int fd, int other)
{
	char *at = mmap(NULL, 2 * LIMIT * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(at != MAP_FAILED);
	for (int i = 0; i < 2 * LIMIT; i++)
		CHECK(mmap(at + i * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, i % 2 ? other : fd, i * PAGE) != MAP_FAILED);
	return at;
}

static void child_run(int which, char *mixed)
{
	unsigned long last = 0;

	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;; feature_work()) {
		unsigned long step = head->step;

		if (step == last)
			continue;
		for (int k = 0; k < USED; k++)
			CHECK(*word(reversed, used(k)) == step + (unsigned long)k);
		for (int i = 1; which && i < 2 * LIMIT; i += 2) {
			CHECK(*(unsigned long *)(mixed + i * PAGE) == last);
			*(unsigned long *)(mixed + i * PAGE) = step;
		}
		head->answered[which] = last = step;
	}
}

static void step_do(unsigned long step)
{
	for (int k = 0; k < USED; k++) {
		CHECK(*word(reversed, used(k)) == (step == 1 ? 0 : step - 1 + (unsigned long)k));
		*word(reversed, used(k)) = step + (unsigned long)k;
	}
	head->step = step;
	for (int c = 0; c < CHILDREN; c++)
		while (head->answered[c] != step)
			feature_work();
}

int main(void)
{
	struct rlimit limit;
	int fd = memfd_create("windows", 0), other = memfd_create("other", 0);
	unsigned long step = 1;
	pid_t child[CHILDREN];
	char *mixed;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = LIMIT;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	CHECK(fd >= 0 && other >= 0 && ftruncate(fd, WINDOWS * PAGE) == 0 && ftruncate(other, WINDOWS * PAGE) == 0);
	reversed = map_reversed(fd);
	mixed = map_mixed(fd, other);
	head = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(head != MAP_FAILED && close(fd) == 0 && close(other) == 0);
	for (int c = 0; c < CHILDREN; c++) {
		child[c] = fork();
		CHECK(child[c] >= 0);
		if (child[c] == 0)
			child_run(c, mixed);
	}
	step_do(step);
	feature_ready();
	do
		step_do(++step);
	while (feature_step());
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == LIMIT);
	for (int c = 0; c < CHILDREN; c++)
		CHECK(kill(child[c], SIGKILL) == 0 && waitpid(child[c], NULL, 0) == child[c]);
	return 0;
}
