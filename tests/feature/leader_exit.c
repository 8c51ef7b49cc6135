/* SPDX-License-Identifier: BSD-2-Clause */
/* The first thread ends by pthread_exit; the process is its other threads. */
#include "feature.h"

#include <pthread.h>

static void *work(void *arg)
{
	pthread_t leader = *(pthread_t *)arg;

	CHECK(pthread_join(leader, NULL) == 0);
	feature_ready();
	while (feature_step())
		feature_work();
	CHECK(gettid() != getpid());
	exit(0);
}

int main(void)
{
	static pthread_t self;
	pthread_t thread;

	self = pthread_self();
	CHECK(pthread_create(&thread, NULL, work, &self) == 0);
	pthread_exit(NULL);
}
