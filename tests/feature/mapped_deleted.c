/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps files that have no name any more, as those of a library or program that was replaced while it ran, and looks at a page of each mapping a step: what it has never
 * looked at before holds what the file held, also where no cache has it. One mapping reaches behind its file's end, one has no rights for now. And /dev/zero, which is
 * memory by another name.
 */
#include "feature.h"

#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 300, ENTRIES = PAGE / sizeof(uint32_t) };
enum { READ_ONLY, WRITTEN, SHARED, LATER, OF_MEMFD, MAPPINGS };

static uint32_t *mapped[MAPPINGS];

static uint32_t entry(unsigned int mapping, unsigned int page)
{
	return (mapping + 1) * 1000003u + page * 7919u;
}

static void fill(int fd, unsigned int mapping)
{
	uint32_t page[ENTRIES];

	for (unsigned int i = 0; i < PAGES; i++) {
		for (unsigned int k = 0; k < ENTRIES; k++)
			page[k] = entry(mapping, i) + k;
		CHECK(write(fd, page, sizeof(page)) == sizeof(page));
	}
}

/* On the disk alone, as far as that is to be had. */
static int deleted_file(unsigned int mapping)
{
	int fd = open("deleted", O_RDWR | O_CREAT | O_EXCL, 0600);

	CHECK(fd >= 0);
	fill(fd, mapping);
	CHECK(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && unlink("deleted") == 0);
	return fd;
}

static void map(unsigned int mapping, int fd, int prot, int flags)
{
	mapped[mapping] = mmap(NULL, (PAGES + 3) * PAGE, prot, flags, fd, 0);
	CHECK(mapped[mapping] != MAP_FAILED && madvise(mapped[mapping], PAGES * PAGE, MADV_RANDOM) == 0);
	close(fd);
}

static void check(unsigned int mapping, unsigned int page)
{
	const uint32_t *at = mapped[mapping] + page * ENTRIES, want = entry(mapping, page);

	for (unsigned int k = 0; k < ENTRIES; k += ENTRIES - 1)
		if (at[k] != want + k)
			feature_fail("mapping %u, page %u, entry %u: %u, not %u", mapping, page, k, at[k], want + k);
}

int main(void)
{
	int memfd = memfd_create("private", 0), zero = open("/dev/zero", O_RDWR);
	uint32_t *zeros = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
	unsigned int steps = 0;

	CHECK(memfd >= 0 && zero >= 0 && zeros != MAP_FAILED && close(zero) == 0);
	map(READ_ONLY, deleted_file(READ_ONLY), PROT_READ, MAP_PRIVATE);
	map(WRITTEN, deleted_file(WRITTEN), PROT_READ | PROT_WRITE, MAP_PRIVATE);
	map(SHARED, deleted_file(SHARED), PROT_READ | PROT_WRITE, MAP_SHARED);
	map(LATER, deleted_file(LATER), PROT_NONE, MAP_PRIVATE);
	fill(memfd, OF_MEMFD);
	map(OF_MEMFD, memfd, PROT_READ, MAP_PRIVATE);
	feature_ready();
	while (feature_step()) {
		unsigned int page = steps++ % PAGES;

		check(READ_ONLY, page);
		check(WRITTEN, page);
		check(SHARED, page);
		check(OF_MEMFD, page);
		CHECK(zeros[page * ENTRIES] == (steps - 1) / PAGES && !zeros[page * ENTRIES + 1]);
		zeros[page * ENTRIES]++;
		mapped[WRITTEN][page * ENTRIES + 1] = steps;
		mapped[SHARED][page * ENTRIES + 1] = steps;
	}
	CHECK(mprotect(mapped[LATER], PAGES * PAGE, PROT_READ) == 0);
	for (unsigned int i = 0; i < MAPPINGS; i++)
		for (unsigned int page = 0; page < PAGES; page++)
			check(i, page);
	return 0;
}
