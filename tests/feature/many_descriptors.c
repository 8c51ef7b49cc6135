/* SPDX-License-Identifier: BSD-2-Clause */
/* 10,000 descriptors: files at an offset each, duplicates, event counters with a value each, ends of pipes and of sockets. */
#include "feature.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define FILES 3000
#define COPIES 3000
#define COUNTERS 3000
#define PAIRS 500 /* half of them pipes */

static int files[FILES], copies[COPIES], counters[COUNTERS], ends[PAIRS][2];

static void make(void)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = FILES + COPIES + COUNTERS + 2 * PAIRS + 300; /* what fermata has its own in, too */
	if (limit.rlim_cur > limit.rlim_max)
		feature_skip("a user may not have 10,000 descriptors here (ulimit -Hn)");
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int i = 0; i < FILES; i++) {
		CHECK((files[i] = open("file", O_RDWR | O_CREAT | (i % 2 ? O_APPEND : O_CLOEXEC), 0600)) >= 0);
		CHECK(i || ftruncate(files[0], FILES) == 0);
		CHECK(lseek(files[i], i, SEEK_SET) == i);
	}
	for (int i = 0; i < COPIES; i++)
		CHECK((copies[i] = dup(files[i % 10])) >= 0);
	for (int i = 0; i < COUNTERS; i++)
		CHECK((counters[i] = eventfd((unsigned int)i, EFD_NONBLOCK)) >= 0);
	for (int i = 0; i < PAIRS; i++)
		CHECK((i % 2 ? pipe(ends[i]) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i])) == 0);
}

static void check(int i)
{
	uint64_t n;
	char c = 'a';

	CHECK(lseek(files[i % FILES], 0, SEEK_CUR) == i % FILES);
	CHECK(fcntl(files[i % FILES], F_GETFD) == (i % FILES % 2 ? 0 : FD_CLOEXEC));
	CHECK(lseek(copies[i % COPIES], 0, SEEK_CUR) == i % COPIES % 10);
	if (i % COUNTERS) {
		CHECK(read(counters[i % COUNTERS], &n, 8) == 8 && n == (uint64_t)(i % COUNTERS));
		CHECK(write(counters[i % COUNTERS], &n, 8) == 8);
	}
	CHECK(write(ends[i % PAIRS][1], &c, 1) == 1 && read(ends[i % PAIRS][0], &c, 1) == 1);
}

int main(void)
{
	int step = 0;

	make();
	feature_ready();
	do {
		feature_work();
		for (int i = 0; i < 100; i++)
			check(step++);
	} while (feature_step());
	for (int i = 0; i < FILES; i++)
		check(i);
	return 0;
}
