/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that may only write files smaller than its image: it still may after a checkpoint, and no larger ones. */
#include "feature.h"

#include <signal.h>
#include <sys/resource.h>

#define ROOM 65536
#define MEMORY (4 << 20)

int main(void)
{
	struct rlimit limit;
	char *memory = malloc(MEMORY);
	int fd = open("file", O_RDWR | O_CREAT, 0600);

	CHECK(memory && fd >= 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	for (int i = 0; i < MEMORY; i++)
		memory[i] = (char)(i * 2654435761u >> 13); /* that no compression makes small */
	limit.rlim_cur = ROOM;
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	feature_ready();
	do {
		feature_work();
		CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == ROOM);
		CHECK(pwrite(fd, memory, ROOM, 0) == ROOM && pwrite(fd, "x", 1, ROOM) == -1 && errno == EFBIG);
	} while (feature_step());
	return 0;
}
