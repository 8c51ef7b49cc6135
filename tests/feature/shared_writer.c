/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that two processes write to only through shared mappings, its descriptor closed. What they find there is what they have written:
 * each keeps a copy of its half in memory of its own. The middle of the file is a hole.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PAGE 4096ul
#define LAST (64ul << 20) /* of the second half */

static void *map(int fd, off_t at)
{
	void *p = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);

	CHECK(p != MAP_FAILED);
	return p;
}

static void turn(unsigned char *half, unsigned char *mine, uint64_t *n)
{
	size_t at = (*n % 8) * PAGE;

	CHECK(memcmp(half, mine, 8 * PAGE) == 0);
	++*n;
	pattern_fill(half + at, PAGE, *n);
	pattern_fill(mine + at, PAGE, *n);
}

int main(void)
{
	int fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600), status;
	static unsigned char mine[8 * PAGE];
	unsigned char *half;
	struct stat st;
	uint64_t n = 0;
	pid_t child;

	CHECK(fd >= 0 && ftruncate(fd, (off_t)(LAST + 8 * PAGE)) == 0 && (child = fork()) >= 0);
	half = map(fd, child ? 0 : (off_t)LAST);
	CHECK(close(fd) == 0);
	if (child == 0) {
		while (!feature_finished()) {
			feature_work();
			turn(half, mine, &n);
		}
		_exit(0);
	}
	feature_ready();
	do {
		feature_work();
		turn(half, mine, &n);
	} while (feature_step());
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(stat("shared", &st) == 0 && st.st_size == (off_t)(LAST + 8 * PAGE) && st.st_blocks * 512 < 1 << 20);
	return 0;
}
