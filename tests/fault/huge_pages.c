/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts in huge pages of every kind, and in memory of its own: they never differ. Its argument is a directory of a file system of huge pages, for files. Of its System V
 * segments one is attached, once more read only, and its size is not that of its pages; the other one is attached to look at it.
 */
#include "tests/feature/feature.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define SIZE (4ul << 20)
#define AT (SIZE / 2 / sizeof(unsigned int) + 1)
#define SEGMENT (SIZE - 100000)

enum { SYSV, PRIVATE, SHARED, MEMFD, FILE_SHARED, FILE_PRIVATE, KINDS };

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

static unsigned int *attach(int id, int flags)
{
	void *p = shmat(id, NULL, flags);

	CHECK(p != (void *)-1);
	return p;
}

static int segment(void)
{
	int id = shmget(IPC_PRIVATE, SEGMENT, SHM_HUGETLB | IPC_CREAT | 0600);

	CHECK(id >= 0);
	return id;
}

static void map_memory(unsigned int **pages)
{
	int memfd = memfd_create("huge", MFD_HUGETLB);

	CHECK(memfd >= 0 && ftruncate(memfd, SIZE) == 0);
	pages[PRIVATE] = map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	pages[SHARED] = map(MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1);
	pages[MEMFD] = map(MAP_SHARED, memfd);
}

static void map_files(unsigned int **pages, const char *dir)
{
	int closed = file(dir, "private");

	pages[FILE_SHARED] = map(MAP_SHARED, file(dir, "shared"));
	pages[FILE_PRIVATE] = map(MAP_PRIVATE, closed);
	close(closed);
}

static unsigned int look(int id)
{
	unsigned int *pages = attach(id, 0), seen = pages[AT]++;

	CHECK(shmdt(pages) == 0);
	return seen;
}

int main(int argc, char **argv)
{
	unsigned int *pages[KINDS], *read_only, count = 0;
	int kinds = argc > 1 ? KINDS : FILE_SHARED, id = segment(), other = segment();

	pages[SYSV] = attach(id, 0);
	read_only = attach(id, SHM_RDONLY);
	map_memory(pages);
	if (argc > 1)
		map_files(pages, argv[1]);
	feature_ready();
	while (feature_step()) {
		for (int i = 0; i < kinds; i++)
			CHECK(pages[i][AT] == count);
		CHECK(read_only[AT] == count && read_only[SEGMENT / sizeof(count) + 1] == count && look(other) == count);
		count++;
		for (int i = 0; i < kinds; i++)
			pages[i][AT] = count;
		pages[SYSV][SEGMENT / sizeof(count) + 1] = count; /* to the page's end it reaches */
	}
	CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmctl(other, IPC_RMID, NULL) == 0);
	return 0;
}
