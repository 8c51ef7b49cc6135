/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gives threads back how they had set themselves to run. A thread may run where it had bound itself, as far as `fermata restart` may; where that is nowhere, wherever that may. What the user
 * has no right to is left out. Both are said, once a process, when its standard error is there: the program runs on as it would on a host that refuses the call.
 *
 * Owns what there is to be said, from RECREATE to the end of the restart.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/macro.h"
#include "base/sys.h"
#include "plugins/schedule/schedule.h"

struct restoring {
	uint8_t here[BEGUN_CPUS_MAX]; /* where `fermata restart` may run */
	size_t here_length;
};

#define IO_THREAD 1 /* IOPRIO_WHO_PROCESS */

enum { CPUS, CLASS, NICE, IO, KINDS };

static struct note {
	uint32_t tid; /* 0: nothing */
	const char *why;
} notes[KINDS];

/* A number may be another process' by now, if the thread was not the program's. */
static bool is_ours(uint32_t tid)
{
	char path[64];

	fm_format(path, sizeof(path), "/proc/self/task/%u", tid);
	return RAW3(SYS_faccessat, AT_FDCWD, path, 0 /* F_OK */) == 0;
}

static void note(int kind, uint32_t tid, const char *why)
{
	if (!notes[kind].tid)
		notes[kind] = (struct note){ tid, why };
}

static void set_cpus(const struct restoring *s, const struct schedule_thread *t, const uint8_t *cpus)
{
	bool any = false, all = true;
	uint8_t mask[BEGUN_CPUS_MAX] = { 0 };

	for (size_t i = 0; i < t->cpus_length && i < BEGUN_CPUS_MAX; i++) {
		mask[i] = cpus[i] & (i < s->here_length ? s->here[i] : 0);
		any |= mask[i] != 0;
		all &= mask[i] == cpus[i];
	}
	if (!any)
		note(CPUS, t->tid, "are none that this restart may use: it may run on any of those");
	else if (RAW3(SYS_sched_setaffinity, t->tid, s->here_length, mask))
		note(CPUS, t->tid, "cannot be set here: it may run on any");
	else if (!all)
		note(CPUS, t->tid, "are not all ones that this restart may use: it has the others");
}

static void set_class(const struct schedule_thread *t)
{
	struct begun_attributes a = { .size = sizeof(a), .policy = t->policy, .flags = t->reset_on_fork & 1, .nice = t->nice, .priority = t->priority,
				      .runtime = t->runtime, .deadline = t->deadline, .period = t->period };

	if (RAW3(SYS_sched_setattr, t->tid, &a, 0))
		note(CLASS, t->tid, "is not allowed here (ulimit -r): it is that of this restart");
}

static void set_nice(const struct schedule_thread *t)
{
	if (RAW3(SYS_setpriority, PRIO_PROCESS, t->tid, t->nice))
		note(NICE, t->tid, "is not allowed here (ulimit -e): it is that of this restart");
}

static void set_io(const struct schedule_thread *t)
{
	if (RAW3(SYS_ioprio_set, IO_THREAD, t->tid, t->io))
		note(IO, t->tid, "is not allowed here: it is that of this restart");
}

static int damaged(void)
{
	return fermata_fail(-EBADMSG, "the record of how threads are scheduled is damaged or of another version");
}

static void set_thread(const struct restoring *s, const struct schedule_thread *t)
{
	if (t->flags & SCHEDULE_CLASS)
		set_class(t);
	if (t->flags & SCHEDULE_NICE)
		set_nice(t);
	if (t->flags & SCHEDULE_IO)
		set_io(t);
	if (t->flags & SCHEDULE_CPUS)
		set_cpus(s, t, (const uint8_t *)(t + 1));
}

int schedule_restore(const void *record, size_t len)
{
	const struct schedule_record *head = record;
	const char *at = (const char *)(head + 1), *end = (const char *)record + len;
	struct restoring s = { .here_length = 0 };
	long n = RAW3(SYS_sched_getaffinity, 0, sizeof(s.here), s.here);

	if (len < sizeof(*head) || head->version != SCHEDULE_RECORD_VERSION)
		return damaged();
	s.here_length = n > 0 ? (size_t)n : 0;
	while (at < end) {
		const struct schedule_thread *t = (const struct schedule_thread *)at;

		if ((size_t)(end - at) < sizeof(*t) || (size_t)(end - at) - sizeof(*t) < t->cpus_length || t->cpus_length % 8)
			return damaged();
		at += sizeof(*t) + t->cpus_length;
		if (is_ours(t->tid))
			set_thread(&s, t);
	}
	return 0;
}

void schedule_restarted(void)
{
	static const char *const what[KINDS] = { "the processors", "the scheduling policy", "the nice value", "the I/O priority" };

	for (int kind = 0; kind < KINDS; kind++)
		if (notes[kind].tid)
			log_warn("process %u: %s of thread %u %s", fermata_pid(), what[kind], notes[kind].tid, notes[kind].why);
	memset(notes, 0, sizeof(notes));
}
