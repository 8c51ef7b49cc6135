/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that block our signal. libc makes threads of its own, for aio_read(3), mq_notify(3) and getaddrinfo_a(3), which block all signals
 * that it lets a program block, and it does so behind the wrappers. What they leave open is SIGSETXID, by which setuid(2) reaches every thread; by it we ask
 * them to stop. A thread that blocks that, too, is just being made or ending (libc), or is the program's own doing.
 *
 * Owns the action of SIGSETXID from the first such thread on: our signal's, copied, and what was there before. That is libc's, which has
 * put it there with the process's first thread and never does again (late_init, nptl/pthread_create.c); what is not queued by us goes to it.
 * Our signal stays in the thread's queue, and is taken out there, or each checkpoint would leave one more.
 */
#include "agent/stop_setxid.h"

#include "agent/agent.h"
#include "agent/libc.h"

#define LONG_NS 10000000u /* of a processor's time: a thousand times what such a call takes around it */

static struct image_sigaction before;

static uint64_t bit(int sig)
{
	return 1ull << (sig - 1);
}

/* Since we were asked first. */
static bool has_run_long(struct stop_thread *t)
{
	struct timespec ran;
	uint64_t ns;

	if (RAW2(SYS_clock_gettime, THREAD_CPU_CLOCK(t->tid), &ran))
		return false;
	ns = (uint64_t)ran.tv_sec * 1000000000u + (uint64_t)ran.tv_nsec;
	if (!t->long_ns)
		t->long_ns = ns + LONG_NS;
	return ns >= t->long_ns;
}

bool stop_setxid_needed(struct stop_thread *t)
{
	const uint64_t blocked = pending_status((uint32_t)t->tid, "SigBlk");

	return (blocked & (bit(agent.signal) | bit(LIBC_SIGNAL_SETXID))) == bit(agent.signal) && (stop_sleeps(t->tid) || has_run_long(t));
}

int stop_setxid_take(void)
{
	struct image_sigaction ours, now;
	int r = (int)RAW4(SYS_rt_sigaction, agent.signal, NULL, &ours, RAW_SIGSET_SIZE);

	if (!r)
		r = (int)RAW4(SYS_rt_sigaction, LIBC_SIGNAL_SETXID, NULL, &now, RAW_SIGSET_SIZE);
	if (r || now.handler == ours.handler)
		return r;
	before = now;
	return (int)RAW4(SYS_rt_sigaction, LIBC_SIGNAL_SETXID, &ours, NULL, RAW_SIGSET_SIZE);
}

void stop_setxid_pass(int sig, siginfo_t *info, void *context)
{
	if (before.handler > 1) /* neither SIG_DFL nor SIG_IGN */
		((void (*)(int, siginfo_t *, void *))before.handler)(sig, info, context);
}

static void take_out(int sig)
{
	const uint64_t set = bit(sig);
	static const struct timespec now;

	while (RAW4(SYS_rt_sigtimedwait, &set, NULL, &now, RAW_SIGSET_SIZE) > 0)
		;
}

void stop_setxid_taken(void)
{
	take_out(agent.signal);
}

void stop_setxid_forget(void)
{
	take_out(LIBC_SIGNAL_SETXID);
}
