/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What has been used never becomes less: processor time of the process, of each thread, as it asks itself and as others ask; what getrusage and times count, of the process, its thread and its children.
 * A child begins with nothing. All of it is asked for without a pause, so at every moment of the calls, too.
 */
#include "feature.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/wait.h>

enum { USAGES = 3, CHILD_MS = 30 };

struct seen {
	uint64_t process, thread, own, other, clock, elapsed, usage[USAGES], faults[USAGES], peak, user, system, children;
};

static pthread_t main_thread, second_thread;
static _Atomic int over;

static uint64_t us_of(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000u + (uint64_t)t->tv_usec;
}

#define GROWS(is, was)                                                                                      \
	do {                                                                                                \
		uint64_t now = (is);                                                                        \
                                                                                                            \
		if (now < (was))                                                                            \
			feature_fail("%s: %lu, and %lu before", #is, (unsigned long)now, (unsigned long)(was)); \
		(was) = now;                                                                                \
	} while (0)

static uint64_t clock_of(pthread_t t)
{
	clockid_t id;

	CHECK(pthread_getcpuclockid(t, &id) == 0);
	return feature_now(id);
}

static void check_usage(struct seen *s)
{
	static const int who[USAGES] = { RUSAGE_SELF, RUSAGE_CHILDREN, RUSAGE_THREAD };
	struct rusage u;

	for (int i = 0; i < USAGES; i++) {
		CHECK(getrusage(who[i], &u) == 0);
		GROWS(us_of(&u.ru_utime) + us_of(&u.ru_stime), s->usage[i]);
		GROWS((uint64_t)u.ru_minflt + (uint64_t)u.ru_nvcsw, s->faults[i]);
		if (i == 0)
			GROWS((uint64_t)u.ru_maxrss, s->peak);
	}
}

static void check(struct seen *s, pthread_t other)
{
	struct tms t;

	GROWS(feature_now(CLOCK_THREAD_CPUTIME_ID), s->thread);
	GROWS(feature_now(CLOCK_PROCESS_CPUTIME_ID), s->process);
	CHECK(s->thread <= s->process + 1000000);
	GROWS(clock_of(pthread_self()), s->own);
	GROWS(clock_of(other), s->other);
	GROWS((uint64_t)clock(), s->clock);
	GROWS((uint64_t)times(&t), s->elapsed);
	GROWS((uint64_t)t.tms_utime, s->user);
	GROWS((uint64_t)t.tms_stime, s->system);
	GROWS((uint64_t)(t.tms_cutime + t.tms_cstime), s->children);
	check_usage(s);
}

static void *second(void *arg)
{
	struct seen seen = { 0 };

	(void)arg;
	while (!over)
		check(&seen, main_thread);
	return NULL;
}

static void use(uint64_t ms)
{
	while (feature_now(CLOCK_PROCESS_CPUTIME_ID) < ms * 1000000u)
		;
}

static void check_child(void)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(feature_now(CLOCK_PROCESS_CPUTIME_ID) < 20000000 && feature_now(CLOCK_THREAD_CPUTIME_ID) < 20000000);
		use(CHILD_MS);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	struct seen seen = { 0 };

	main_thread = pthread_self();
	use(300);
	check_child();
	CHECK(pthread_create(&second_thread, NULL, second, NULL) == 0);
	feature_ready();
	do {
		check(&seen, second_thread);
		CHECK(seen.process >= 300000000 && seen.usage[0] >= 250000 && seen.usage[1] >= CHILD_MS * 500 && seen.thread >= 200000000);
		feature_work();
	} while (feature_step());
	check_child();
	over = 1;
	CHECK(pthread_join(second_thread, NULL) == 0);
	return 0;
}
