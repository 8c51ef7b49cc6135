/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mappings of a file: private, with pages written and pages left as in the file; shared, seen through the file too; one
 * whose descriptor is closed, one whose end lies beyond the end of the file.
 */
#include "feature.h"

#include <sys/mman.h>

enum { PAGES = 16 };
#define PAGE 4096ul

int main(void)
{
	unsigned char *private_map, *shared, *short_map, buf[PAGE];
	int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int short_fd = open("short", O_RDWR | O_CREAT | O_TRUNC, 0600);
	uint64_t n = 0;

	CHECK(fd >= 0 && short_fd >= 0);
	for (uint64_t i = 0; i < PAGES; i++) {
		pattern_fill(buf, PAGE, i);
		CHECK(write(fd, buf, PAGE) == (ssize_t)PAGE);
	}
	CHECK(write(short_fd, "end", 3) == 3);
	private_map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)((PAGES - 1) * PAGE));
	short_map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, short_fd, 0);
	CHECK(private_map != MAP_FAILED && shared != MAP_FAILED && short_map != MAP_FAILED);
	CHECK(close(short_fd) == 0);
	for (uint64_t i = 0; i < PAGES; i += 2)
		pattern_fill(private_map + i * PAGE, PAGE, 1000 + i);
	feature_ready();
	do {
		feature_work();
		for (uint64_t i = 0; i < PAGES - 1; i++)
			CHECK(pattern_holds(private_map + i * PAGE, PAGE, i % 2 ? i : 1000 + i));
		pattern_fill(shared, PAGE, ++n);
		CHECK(pread(fd, buf, PAGE, (off_t)((PAGES - 1) * PAGE)) == (ssize_t)PAGE);
		CHECK(pattern_holds(buf, PAGE, n));
		CHECK(memcmp(short_map, "end\0\0", 5) == 0);
	} while (feature_step());
	CHECK(pread(fd, buf, PAGE, 0) == (ssize_t)PAGE);
	CHECK(pattern_holds(buf, PAGE, 0));
	return 0;
}
