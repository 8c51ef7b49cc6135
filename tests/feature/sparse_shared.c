/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large shared memory of which little is used, without a name and of System V: what is in it stays, and a checkpoint does not fill
 * the rest with pages. A page that only a child has touched is kept, too.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#define PAGE 4096ul
#define SIZE (256ul << 20)
#define EVERY (32ul << 20)
#define BY_CHILD (77 * PAGE)
enum { TOUCHED = SIZE / EVERY + 1 };

static unsigned char *areas[2];

static void fill(void)
{
	pid_t pid;
	int status;

	for (int i = 0; i < 2; i++)
		for (unsigned long at = 0; at < SIZE; at += EVERY)
			pattern_fill(areas[i] + at, PAGE, at + (unsigned long)i);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		pattern_fill(areas[0] + BY_CHILD, PAGE, 5);
		pattern_fill(areas[1] + BY_CHILD, PAGE, 5);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static unsigned long resident(const unsigned char *area)
{
	static unsigned char there[SIZE / PAGE];
	unsigned long n = 0;

	CHECK(mincore((void *)area, SIZE, there) == 0);
	for (unsigned long i = 0; i < SIZE / PAGE; i++)
		n += there[i] & 1;
	return n;
}

static void check(int i, int has_swap)
{
	for (unsigned long at = 0; at < SIZE; at += EVERY)
		CHECK(pattern_holds(areas[i] + at, PAGE, at + (unsigned long)i));
	CHECK(has_swap || resident(areas[i]) == TOUCHED);
}

int main(void)
{
	FILE *f = fopen("segments", "w");
	int id = shmget(IPC_PRIVATE, SIZE, IPC_CREAT | 0600);
	struct sysinfo info;

	CHECK(f && id >= 0 && fprintf(f, "%d\n", id) > 0 && fclose(f) == 0 && sysinfo(&info) == 0);
	areas[0] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	areas[1] = shmat(id, NULL, 0);
	CHECK(areas[0] != MAP_FAILED && areas[1] != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
	fill();
	feature_ready();
	do {
		feature_work();
		check(0, info.totalswap != 0);
		check(1, info.totalswap != 0);
	} while (feature_step());
	CHECK(pattern_holds(areas[0] + BY_CHILD, PAGE, 5) && pattern_holds(areas[1] + BY_CHILD, PAGE, 5));
	return 0;
}
