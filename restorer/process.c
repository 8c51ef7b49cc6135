/* SPDX-License-Identifier: BSD-2-Clause */
/* Restores what a process has once: the mm's fields, signal actions, umask, interval timers. */
#include <errno.h>
#include <linux/prctl.h>
#include <stddef.h>
#include <sys/time.h>

#include "arch/x86_64/arch.h"
#include "restorer.h"

/* No page of the restorer's own file is mapped any more, so /proc/self/exe may become the program's. */
static void set_mm(struct restorer *r)
{
	const struct image_process *p = &r->plan->process;
	uint32_t exe = r->plan->restart.exe_fd;
	struct prctl_mm_map map = {
		.start_code = p->mm.start_code,
		.end_code = p->mm.end_code,
		.start_data = p->mm.start_data,
		.end_data = p->mm.end_data,
		.start_brk = p->mm.start_brk,
		.brk = p->mm.brk,
		.start_stack = p->mm.start_stack,
		.arg_start = p->mm.arg_start,
		.arg_end = p->mm.arg_end,
		.env_start = p->mm.env_start,
		.env_end = p->mm.env_end,
		.auxv = (__u64 *)(uintptr_t)p->auxv,
		.auxv_size = p->auxv_length,
		.exe_fd = exe,
	};
	int err = (int)RAW5(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0);

	if (err && exe != UINT32_MAX) {
		warn(r, "/proc/self/exe stays the restorer", 0, err);
		map.exe_fd = UINT32_MAX;
		err = (int)RAW5(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0);
	}
	if (err)
		warn(r, "the kernel refuses to set brk and the command line (CONFIG_CHECKPOINT_RESTORE)", 0, err);
	if (exe != UINT32_MAX)
		raw_close((int)exe);
}

static void set_signals(struct restorer *r)
{
	for (int sig = 1; sig <= 64; sig++) {
		int err;

		if (sig == SIGKILL || sig == SIGSTOP)
			continue;
		err = (int)RAW4(SYS_rt_sigaction, sig, &r->signals[sig - 1], NULL, RAW_SIGSET_SIZE);
		if (err)
			fail(r, "setting the action of signal", (uint64_t)sig, err);
	}
}

/* For the agent, which may be an older one: where the hole is, how to reach the coordinator. */
static void leave_word(struct restorer *r)
{
	struct image_restart *to = (struct image_restart *)r->plan->process.restart_info;
	uint64_t room = r->plan->process.restart_info_size;

	if (!to)
		return;
	room = room ? room : offsetof(struct image_restart, capsule);
	arch_copy(to, &r->plan->restart, room < sizeof(*to) ? room : sizeof(*to));
	to->image_fd = (uint32_t)r->image_fd;
	to->exe_fd = UINT32_MAX;
	to->threads_left = 0;
}

void process_restore(struct restorer *r)
{
	const struct image_process *p = &r->plan->process;

	set_mm(r);
	RAW1(SYS_umask, p->umask);
	set_signals(r);
	if (!p->dumpable)
		RAW5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (p->no_new_privs)
		RAW5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	leave_word(r);
}

/* Of the real one what has gone since the checkpoint on the clock that it goes with is taken off; one that is late expires now. */
static uint64_t timer_left_us(const struct image_process *p, int which)
{
	uint64_t value = p->timers[which].value_us, now, gone;
	struct timespec t = { 0 };

	RAW2(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	if (which != ITIMER_REAL || !value || now <= p->monotonic_ns)
		return value;
	gone = (now - p->monotonic_ns) / 1000;
	return value > gone ? value - gone : 1;
}

void process_start_timers(struct restorer *r)
{
	for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++) {
		const struct image_timer *t = &r->plan->process.timers[which];
		uint64_t left = timer_left_us(&r->plan->process, which);
		struct itimerval v = {
			.it_interval = { (time_t)(t->interval_us / 1000000), (suseconds_t)(t->interval_us % 1000000) },
			.it_value = { (time_t)(left / 1000000), (suseconds_t)(left % 1000000) },
		};
		int err = t->value_us ? (int)RAW3(SYS_setitimer, which, &v, NULL) : 0;

		if (err)
			fail(r, "starting interval timer", (uint64_t)which, err);
	}
}
