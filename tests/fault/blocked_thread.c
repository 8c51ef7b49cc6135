/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread that blocks every signal, behind libc's back, until there is a file "open"; then it waits in calls that open them. None of these ends
 * by a signal: none is sent. Plain, as a feature program.
 */
#include "../feature/feature.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

static void *work(void *arg)
{
	const uint64_t all = ~0ull;
	sigset_t none;

	sigemptyset(&none);
	CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all)) == 0);
	feature_ready();
	while (access("open", F_OK) != 0)
		syscall(SYS_sched_yield);
	for (int i = 0; i < 4; i++)
		CHECK(ppoll(NULL, 0, &(struct timespec){ 0, 50000000 }, &none) == 0);
	return arg;
}

int main(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	while (feature_step())
		poll(NULL, 0, 5);
	return 0;
}
