/* SPDX-License-Identifier: BSD-2-Clause */
/* The first thread's stack grows, deeper with each step, up to 6 MiB; another thread's is used to its end. */
#include "feature.h"

#include <pthread.h>

static volatile int stop;

__attribute__((noinline)) static uint64_t descend(uint64_t depth)
{
	volatile unsigned char frame[1024];

	frame[0] = (unsigned char)depth;
	frame[1023] = (unsigned char)(depth >> 8);
	if (depth == 0)
		return 0;
	return descend(depth - 1) + 1 + (frame[0] != (unsigned char)depth) * 1000000 +
	       (frame[1023] != (unsigned char)(depth >> 8)) * 1000000;
}

static void *work(void *arg)
{
	while (!stop)
		CHECK(descend(1000) == 1000);
	return arg;
}

int main(void)
{
	uint64_t depth = 10;
	pthread_attr_t attr;
	pthread_t thread;

	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 2u << 20) == 0);
	CHECK(pthread_create(&thread, &attr, work, NULL) == 0);
	feature_ready();
	do {
		CHECK(descend(depth) == depth);
		depth = depth < 5500 ? depth + 40 : depth;
		feature_work();
	} while (feature_step());
	CHECK(descend(5500) == 5500);
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
