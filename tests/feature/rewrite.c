/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that is rewritten in place, as a data base does it: each transaction notes a page in a journal file, which it makes and removes, then writes
 * the page anew. The program remembers which version of each page the file has: an older one or a newer one is wrong.
 */
#include "feature.h"

#include <sys/stat.h>

enum { PAGES = 64 };
#define PAGE 4096ul

static uint64_t version[PAGES], seed;

static void page_check(int fd, unsigned int n)
{
	unsigned char page[PAGE];

	CHECK(pread(fd, page, PAGE, (off_t)(n * PAGE)) == (ssize_t)PAGE);
	CHECK(pattern_holds(page, PAGE, version[n] * PAGES + n));
}

static void transaction(int fd)
{
	unsigned char page[PAGE];
	unsigned int n = (unsigned int)((seed = seed * CHAIN_A + CHAIN_C) >> 58);
	int journal = open("data-journal", O_RDWR | O_CREAT | O_TRUNC, 0600);

	CHECK(journal >= 0 && pread(fd, page, PAGE, (off_t)(n * PAGE)) == (ssize_t)PAGE);
	CHECK(write(journal, page, PAGE) == (ssize_t)PAGE);
	version[n]++;
	pattern_fill(page, PAGE, version[n] * PAGES + n);
	CHECK(pwrite(fd, page, PAGE, (off_t)(n * PAGE)) == (ssize_t)PAGE);
	CHECK(pread(journal, page, PAGE, 0) == (ssize_t)PAGE && pattern_holds(page, PAGE, (version[n] - 1) * PAGES + n));
	CHECK(close(journal) == 0);
	CHECK(unlink("data-journal") == 0 || errno == ENOENT); /* closed, it is no file of a checkpoint: gone, if this is a restart's unlink */
}

int main(void)
{
	int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	unsigned char page[PAGE];
	struct stat st;

	CHECK(fd >= 0);
	for (unsigned int n = 0; n < PAGES; n++) {
		pattern_fill(page, PAGE, n);
		CHECK(write(fd, page, PAGE) == (ssize_t)PAGE);
	}
	feature_ready();
	do {
		feature_work();
		for (int i = 0; i < 8; i++)
			transaction(fd);
		for (unsigned int n = 0; n < PAGES; n++)
			page_check(fd, n);
		CHECK(fstat(fd, &st) == 0 && st.st_size == (off_t)(PAGES * PAGE));
	} while (feature_step());
	return 0;
}
