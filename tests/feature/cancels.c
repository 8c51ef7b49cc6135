/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that are cancelled in a call that they wait in, by one who takes no signal meanwhile: where a stop comes, the thread stands already
 * when it is cancelled. Its cleanup handler runs once, and it ends cancelled.
 */
#include "feature.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#define LONG_ENOUGH_NS 10000000u /* if no stop comes */

static volatile pid_t waiter;
static int quiet[2], cleaned;

static void cleanup(void *arg)
{
	cleaned++;
}

static void *wait_for_ever(void *arg)
{
	char c;

	pthread_cleanup_push(cleanup, NULL);
	waiter = (pid_t)syscall(SYS_gettid);
	CHECK(read(quiet[0], &c, 1) == 1); /* nobody writes */
	pthread_cleanup_pop(0);
	return arg;
}

/* The text after @name in a file of the thread's in /proc. */
static void look(const char *file, const char *name, char *ret, size_t size)
{
	char path[64], text[4096];
	const char *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/%s", waiter, file);
	CHECK((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0);
	CHECK((n = read(fd, text, sizeof(text) - 1)) > 0);
	close(fd);
	text[n] = 0;
	CHECK((p = strstr(text, name)) != NULL);
	snprintf(ret, size, "%s", p + strlen(name));
}

static int is_in_read(void)
{
	char call[16];

	if (!waiter)
		return 0;
	look("syscall", "", call, sizeof(call));
	return !strncmp(call, "0 ", 2);
}

static int blocks_hangup(void)
{
	char mask[32];

	look("status", "SigBlk:", mask, sizeof(mask));
	return strtoull(mask, NULL, 16) & 1;
}

static void cancel_one(void)
{
	const uint64_t all = ~0ull, none = 0;
	pthread_t thread;
	uint64_t until;
	void *result;

	waiter = 0;
	CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
	while (!is_in_read())
		sched_yield();
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all));
	until = feature_now(CLOCK_MONOTONIC) + LONG_ENOUGH_NS;
	while (!blocks_hangup() && feature_now(CLOCK_MONOTONIC) < until)
		;
	CHECK(pthread_cancel(thread) == 0);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

int main(void)
{
	int n = 0;

	CHECK(pipe(quiet) == 0);
	feature_ready();
	do {
		cancel_one();
		CHECK(cleaned == ++n);
	} while (feature_step());
	return 0;
}
