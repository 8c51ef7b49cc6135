/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals that wait for the process, with what came with each (value, sender, code). The kernel shows only bits, so they are taken out by
 * the checkpoint thread and queued again at once, in their order; the copies are part of the image, and a restart
 * queues them from there. Signals for one thread are kept as bits alone (dump.c): the restorer sends those again.
 *
 * The kernel lets a thread pass any si_code only to the id that is its own (kernel/signal.c, rt_sigqueueinfo): the checkpoint thread's
 * tid names the process as well as its pid does.
 */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"

#define PENDING_MAX 256

static struct {
	uint32_t count;
	siginfo_t info[PENDING_MAX];
} queue;

static int take(uint64_t set)
{
	static const struct timespec now;

	for (;;) {
		siginfo_t *info = &queue.info[queue.count];
		int r = (int)RAW4(SYS_rt_sigtimedwait, &set, queue.count < PENDING_MAX ? info : NULL, &now, RAW_SIGSET_SIZE);

		if (r == -EAGAIN)
			return 0;
		if (r == -EINTR)
			continue;
		if (r < 0)
			return r;
		if (queue.count++ == PENDING_MAX)
			return -E2BIG;
	}
}

static int give_back(void)
{
	int first = 0;

	for (uint32_t i = 0; i < queue.count; i++) {
		int r = (int)RAW3(SYS_rt_sigqueueinfo, raw_gettid(), queue.info[i].si_signo, &queue.info[i]);

		if (r < 0 && !first)
			first = r;
	}
	return first;
}

int pending_record(uint64_t set)
{
	int r, back;

	queue.count = 0;
	if (!set)
		return 0;
	r = take(set);
	if (queue.count > PENDING_MAX)
		queue.count = PENDING_MAX;
	back = give_back();
	if (r == -E2BIG)
		return fermata_fail(r, "more than %d signals wait for process %u: let it take some", PENDING_MAX, agent.pid);
	r = r ? r : back;
	return r ? fermata_fail(r, "signals that wait for process %u cannot be recorded (errno %d)", agent.pid, -r) : 0;
}

void pending_restart(void)
{
	if (give_back())
		log_error("signals that waited for process %u cannot be queued again", agent.pid);
	queue.count = 0;
}
