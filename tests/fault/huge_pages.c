/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts in huge pages of every kind, and in memory of its own: they never differ. Its argument is a directory of a file system of huge pages. */
#include "tests/feature/feature.h"

#include <fcntl.h>
#include <sys/mman.h>

#define SIZE (4ul << 20)
#define AT (SIZE / 2 / sizeof(unsigned int) + 1)

enum { PRIVATE, SHARED, FILE_SHARED, FILE_PRIVATE, MEMFD, KINDS };

static unsigned int *map(int flags, int fd)
{
	void *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static int file(const char *dir, const char *name)
{
	char path[512];
	int fd;

	CHECK(snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path));
	fd = open(path, O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
	return fd;
}

int main(int argc, char **argv)
{
	unsigned int *pages[KINDS], count = 0;
	int memfd = memfd_create("huge", MFD_HUGETLB), closed;

	CHECK(argc > 1 && memfd >= 0 && ftruncate(memfd, SIZE) == 0);
	closed = file(argv[1], "private");
	pages[PRIVATE] = map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	pages[SHARED] = map(MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	pages[FILE_SHARED] = map(MAP_SHARED, file(argv[1], "shared"));
	pages[FILE_PRIVATE] = map(MAP_PRIVATE, closed);
	pages[MEMFD] = map(MAP_SHARED, memfd);
	close(closed);
	feature_ready();
	while (feature_step()) {
		for (int i = 0; i < KINDS; i++)
			CHECK(pages[i][AT] == count);
		count++;
		for (int i = 0; i < KINDS; i++)
			pages[i][AT] = count;
	}
	return 0;
}
