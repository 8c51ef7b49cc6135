/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files in memory of which only the beginning is mapped, by one process, and another part by a child; what neither maps is written through the descriptor: a file with a name, a memfd, and a file
 * whose name is gone. Step by step everything gets another content, so that after a restart it has to be that of the checkpoint. What was never written stays a hole.
 */
#include "feature.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PAGE 4096l
enum { PAGES = 8, OF_CHILD = 2, HOLE = PAGES, SIZE = 600 * 4096 + 100 };
enum kind { NAMED, MEMFD, DELETED, KINDS };

struct head {
	_Atomic unsigned long step, answered;
};

struct object {
	struct head *head; /* mapped by the parent, before the fork: by both */
	int fd;
};

static char name[32];

static void child_run(const struct object *objects)
{
	unsigned long *own[KINDS], last[KINDS] = { 0 };

	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (int k = 0; k < KINDS; k++) {
		own[k] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, objects[k].fd, OF_CHILD * PAGE);
		CHECK(own[k] != MAP_FAILED);
	}
	for (;; feature_work())
		for (int k = 0; k < KINDS; k++) {
			unsigned long step = objects[k].head->step;

			CHECK(*own[k] == last[k]);
			if (step == last[k])
				continue;
			*own[k] = last[k] = step;
			objects[k].head->answered = step;
		}
}

/* Of a page that nobody maps. */
static unsigned long read_page(int fd, int page)
{
	unsigned long v = 0;

	CHECK(pread(fd, &v, sizeof(v), page * PAGE + 40) == sizeof(v));
	return v;
}

static void step_do(const struct object *o, unsigned long step)
{
	o->head->step = step;
	for (int page = OF_CHILD + 1; page < PAGES; page++) {
		unsigned long value = step + (unsigned long)page;

		CHECK(read_page(o->fd, page) == (step == 1 ? 0 : value - 1));
		CHECK(pwrite(o->fd, &value, sizeof(value), page * PAGE + 40) == sizeof(value));
	}
	while (o->head->answered != step)
		feature_work();
}

static struct object make(enum kind kind)
{
	struct object o;

	o.fd = kind == MEMFD ? memfd_create("part", 0) : shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(o.fd >= 0 && ftruncate(o.fd, SIZE) == 0 && (kind != DELETED || shm_unlink(name) == 0));
	o.head = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, o.fd, 0);
	CHECK(o.head != MAP_FAILED);
	return o;
}

static void check_hole(const struct object *o)
{
	struct stat st;

	CHECK(lseek(o->fd, HOLE * PAGE, SEEK_DATA) < 0 && fstat(o->fd, &st) == 0 && st.st_size == SIZE && st.st_blocks * 512 <= HOLE * PAGE);
}

int main(void)
{
	struct object objects[KINDS];
	unsigned long step = 1;
	FILE *f = fopen("shm_names", "w"); /* for who cleans up behind a program that was killed */
	pid_t child;

	CHECK(f);
	snprintf(name, sizeof(name), "/feature-part-%d", getpid());
	CHECK(fprintf(f, "%s\n", name + 1) > 0 && fclose(f) == 0);
	for (int k = KINDS - 1; k >= 0; k--)
		objects[k] = make(k);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		child_run(objects);
	for (int k = 0; k < KINDS; k++)
		step_do(&objects[k], step);
	feature_ready();
	do {
		step++;
		for (int k = 0; k < KINDS; k++)
			step_do(&objects[k], step);
	} while (feature_step());
	for (int k = MEMFD; k < KINDS; k++)
		check_hole(&objects[k]);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child && shm_unlink(name) == 0);
	return 0;
}
