/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of /proc that have been read to their ends, and say more since: who has seen the end of one reads no rest of a line. */
#include "feature.h"

#include <sys/mman.h>
#include <sys/prctl.h>

enum { MAPPINGS = 64 };

static const char *const paths[] = { "/proc/self/maps", "/proc/self/smaps", "/proc/self/stat", "/proc/self/status", "/proc/self/environ", "/proc/thread-self/comm", "/proc/version" };

enum { COUNT = sizeof(paths) / sizeof(paths[0]) };

static void grow(void)
{
	for (int i = 0; i < MAPPINGS; i++)
		CHECK(mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	CHECK(prctl(PR_SET_NAME, "a longer name", 0, 0, 0) == 0);
}

int main(void)
{
	static char text[1 << 20];
	int fds[COUNT], half;

	CHECK(prctl(PR_SET_NAME, "short", 0, 0, 0) == 0);
	for (int i = 0; i < COUNT; i++) {
		CHECK((fds[i] = open(paths[i], O_RDONLY)) >= 0);
		while (read(fds[i], text, sizeof(text)) > 0)
			;
	}
	CHECK((half = open("/proc/version", O_RDONLY)) >= 0 && read(half, text, 5) == 5);
	grow();
	feature_ready();
	do {
		for (int i = 0; i < COUNT; i++)
			CHECK(read(fds[i], text, sizeof(text)) == 0);
		feature_work();
	} while (feature_step());
	CHECK(lseek(half, 0, SEEK_CUR) == 5 && read(half, text, 9) == 9 && !memcmp(text, " version ", 9)); /* "Linux version .." */
	for (int i = 0; i < COUNT; i++)
		CHECK(lseek(fds[i], 0, SEEK_SET) == 0 && read(fds[i], text, sizeof(text)) > 0);
	return 0;
}
