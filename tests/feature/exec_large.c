/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that replaces itself again and again, with many arguments that the kernel has to read from disk: an exec takes longer than the agent waits before it asks a
 * thread that blocks its signal by another one (stop_setxid.c). Whoever is asked so in the kernel's half of exec would die of it.
 */
#include "feature.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define PAD_BYTES 131072 /* with its end: what the kernel takes as one argument */
#define PADS 44		 /* and 6 MiB in all */

static void make_pads(void)
{
	static char pad[PAD_BYTES];
	struct rlimit stack;
	int fd = open("pads", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(getrlimit(RLIMIT_STACK, &stack) == 0);
	stack.rlim_cur = stack.rlim_max; /* a quarter of it may be arguments */
	CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
	memset(pad, 'x', PAD_BYTES - 1);
	for (int i = 0; i < PADS; i++)
		CHECK(write(fd, pad, PAD_BYTES) == PAD_BYTES);
	CHECK(fsync(fd) == 0 && close(fd) == 0);
}

/* Not in memory any more. */
static char *map_pads(void)
{
	int fd = open("pads", O_RDONLY);
	char *pads;

	CHECK(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	pads = mmap(NULL, (size_t)PADS * PAD_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(pads != MAP_FAILED && close(fd) == 0);
	CHECK(madvise(pads, (size_t)PADS * PAD_BYTES, MADV_RANDOM) == 0);
	return pads;
}

/* argv: count, pads */
int main(int argc, char **argv)
{
	static char count[16];
	char *next[PADS + 3] = { argv[0], count }, *pads;

	if (argc == 1) {
		make_pads();
		feature_ready();
	} else {
		CHECK(argc == PADS + 2);
		for (int i = 2; i < argc; i++)
			CHECK(strlen(argv[i]) == PAD_BYTES - 1);
		if (!feature_step())
			return 0;
	}
	pads = map_pads();
	for (int i = 0; i < PADS; i++)
		next[2 + i] = pads + i * PAD_BYTES;
	snprintf(count, sizeof(count), "%d", argc > 1 ? atoi(argv[1]) + 1 : 1);
	execv("/proc/self/exe", next);
	feature_fail("execv: %s", strerror(errno));
}
