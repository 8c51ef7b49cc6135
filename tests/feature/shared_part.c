/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file in memory of which only the beginning is mapped, by one process, and another part by a child; what neither maps is written through the descriptor. Step by step everything gets
 * another content, so that after a restart it has to be that of the checkpoint.
 */
#include "feature.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PAGE 4096l
enum { PAGES = 8, OF_CHILD = 2 };

struct head {
	_Atomic unsigned long step, answered;
};

static char name[32];

static void child_run(struct head *head, int fd)
{
	unsigned long *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, OF_CHILD * PAGE), last = 0;

	CHECK(own != MAP_FAILED && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;; feature_work()) {
		unsigned long step = head->step;

		CHECK(*own == last);
		if (step == last)
			continue;
		*own = last = step;
		head->answered = step;
	}
}

/* Of a page that nobody maps. */
static unsigned long read_page(int fd, int page)
{
	unsigned long v = 0;

	CHECK(pread(fd, &v, sizeof(v), page * PAGE + 40) == sizeof(v));
	return v;
}

static void step_do(struct head *head, int fd, unsigned long step)
{
	head->step = step;
	for (int page = OF_CHILD + 1; page < PAGES; page++) {
		CHECK(read_page(fd, page) == (step == 1 ? 0 : step - 1 + (unsigned long)page));
		step += (unsigned long)page;
		CHECK(pwrite(fd, &step, sizeof(step), page * PAGE + 40) == sizeof(step));
		step -= (unsigned long)page;
	}
	while (head->answered != step)
		feature_work();
}

int main(void)
{
	unsigned long step = 1;
	struct head *head;
	pid_t child;
	int fd;

	snprintf(name, sizeof(name), "/feature-part-%d", getpid());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
	head = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(head != MAP_FAILED);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		child_run(head, fd);
	step_do(head, fd, step++);
	feature_ready();
	do {
		step_do(head, fd, step++);
	} while (feature_step());
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child && shm_unlink(name) == 0);
	return 0;
}
