/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A signal's handler that jumps out of whatever the signal has interrupted, as who limits the time of a computation does: mostly out of the middle of a call that asks for clocks. In turns by
 * siglongjmp; by the same from the alternate stack; and by a jump of its own, as languages with their own runtime do. Handlers that jump within themselves are no matter.
 */
#include "feature.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

static sigjmp_buf where;
static void *own[5];
static volatile uint64_t jumps;

static void jump_within(void)
{
	jmp_buf here;

	if (!setjmp(here))
		longjmp(here, 1);
}

static void on_alarm(int sig)
{
	jump_within();
	if (sig == SIGALRM)
		siglongjmp(where, 1);
	__builtin_longjmp(own, 1);
}

static void ask(void)
{
	struct rusage u;
	struct stat st;

	CHECK(clock() != (clock_t)-1 && getrusage(RUSAGE_SELF, &u) == 0 && feature_now(CLOCK_THREAD_CPUTIME_ID) > 0 && stat("/", &st) == 0);
}

__attribute__((noreturn)) static void ask_on(int timer, uint64_t us)
{
	struct itimerval once = { { 0, 0 }, { 0, (suseconds_t)us } };

	CHECK(setitimer(timer, &once, NULL) == 0);
	for (;;)
		ask();
}

__attribute__((noinline)) static void ask_until(uint64_t us)
{
	if (!sigsetjmp(where, 1))
		ask_on(ITIMER_REAL, us);
	jumps++;
}

__attribute__((noinline)) static void ask_until_own(uint64_t us)
{
	if (!__builtin_setjmp(own))
		ask_on(ITIMER_PROF, us);
	jumps++;
}

int main(void)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_NODEFER };
	static char room[65536];
	const stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) };

	CHECK(sigaltstack(&stack, NULL) == 0);
	feature_ready();
	do {
		for (uint64_t i = 0; i < 100; i++) {
			sa.sa_flags = SA_NODEFER | (i & 1 ? SA_ONSTACK : 0);
			CHECK(sigaction(SIGALRM, &sa, NULL) == 0 && sigaction(SIGPROF, &sa, NULL) == 0);
			ask_until(50 + i);
			if (i % 20 == 0)
				ask_until_own(50 + i);
		}
		feature_work();
	} while (feature_step());
	CHECK(jumps >= 105);
	return 0;
}
