/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps a file privately, in four ways, and fails if one of them ever shows anything else than what it held at first, or than what was written there: read only; writable, with one
 * page written to; without any rights until the end; and the last pages alone, with one behind the end of the file.
 */
#include "tests/feature/feature.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 40, SIZE = PAGES * PAGE + 100, WRITTEN = 17 * PAGE + 5, LAST = 38 * PAGE };

static unsigned char *map(int fd, int prot, size_t length, long offset)
{
	void *p = mmap(NULL, length, prot, MAP_PRIVATE, fd, offset);

	CHECK(p != MAP_FAILED);
	return p;
}

int main(int argc, char **argv)
{
	unsigned char *held = malloc(SIZE), *read_only, *writable, *later, *tail;
	int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;

	CHECK(fd >= 0 && held && read(fd, held, SIZE) == SIZE);
	read_only = map(fd, PROT_READ, SIZE, 0);
	writable = map(fd, PROT_READ | PROT_WRITE, SIZE, 0);
	later = map(fd, PROT_NONE, SIZE, 0);
	tail = map(fd, PROT_READ, 4 * PAGE, LAST);
	close(fd);
	writable[WRITTEN] = 'W';
	feature_ready();
	while (feature_step()) {
		CHECK(!memcmp(read_only, held, SIZE) && !memcmp(tail, held + LAST, SIZE - LAST));
		CHECK(!memcmp(writable, held, WRITTEN) && writable[WRITTEN] == 'W' && !memcmp(writable + WRITTEN + 1, held + WRITTEN + 1, SIZE - WRITTEN - 1));
	}
	CHECK(mprotect(later, SIZE, PROT_READ) == 0 && !memcmp(later, held, SIZE));
	return 0;
}
