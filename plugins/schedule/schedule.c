/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where and how threads run: processors, policy and priority, nice value, I/O priority. This file is the plugin and its part of a checkpoint. A thread that has what the job was begun with
 * (base/begun.h) is not recorded: it will have what `fermata restart` was begun with. No state.
 *
 * The kernel keeps all of this for each thread and lets any thread of the user ask for it, so the threads need not do it themselves. Where a container refuses to tell, it is taken for what
 * the job was begun with. The agent's own threads are not told apart: at a restart nobody has their numbers.
 *
 * Not kept: utilization clamps, autogroup, control group.
 */
#include "plugins/schedule/schedule.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"

static uint32_t number(const char *name)
{
	uint32_t n = 0;

	for (; *name >= '0' && *name <= '9'; name++)
		n = n * 10 + (uint32_t)(*name - '0');
	return n;
}

/* What thread @tid has set itself, its processors in @mask. */
static struct schedule_thread look(uint32_t tid, uint8_t mask[BEGUN_CPUS_MAX])
{
	const struct begun *b = fermata_begun();
	struct schedule_thread t = { .tid = tid };
	struct begun_attributes a = { 0 };
	long n = RAW3(SYS_sched_getaffinity, tid, BEGUN_CPUS_MAX, mask);

	if (n > 0 && begun_cpus(mask, (size_t)n) != b->cpus) {
		t.flags |= SCHEDULE_CPUS;
		t.cpus_length = (uint32_t)n;
	}
	if (RAW4(SYS_sched_getattr, tid, &a, sizeof(a), 0))
		return t;
	t.nice = begun_nice(tid);
	t.io = begun_io(tid, &a);
	t.flags |= (begun_scheduling(&a) != b->scheduling ? SCHEDULE_CLASS : 0) | (t.nice != b->nice ? SCHEDULE_NICE : 0) | (t.io != b->io ? SCHEDULE_IO : 0);
	t.policy = a.policy;
	t.priority = a.priority;
	t.reset_on_fork = a.flags & 1;
	t.runtime = a.runtime;
	t.deadline = a.deadline;
	t.period = a.period;
	return t;
}

static int dump_thread(const char *name, void *sink)
{
	uint8_t mask[BEGUN_CPUS_MAX];
	struct schedule_thread t;
	int r;

	if (number(name) == (uint32_t)raw_gettid())
		return 0;
	t = look(number(name), mask);
	if (!t.flags)
		return 0;
	r = fermata_sink_write(sink, &t, sizeof(t));
	return r ? r : fermata_sink_write(sink, mask, t.cpus_length);
}

static int dump(struct fermata_sink *sink)
{
	const struct schedule_record head = { SCHEDULE_RECORD_VERSION, 0 };
	int r = fermata_sink_write(sink, &head, sizeof(head));

	if (!r)
		r = raw_dir_each("/proc/self/task", dump_thread, sink);
	return r ? fermata_fail(r, "how the threads of process %u are scheduled cannot be told (errno %d)", fermata_pid(), -r) : 0;
}

extern const struct fermata_plugin plugin_schedule;
const struct fermata_plugin plugin_schedule = {
	.api = FERMATA_PLUGIN_API,
	.name = "schedule",
	.dump = dump,
	.recreate = schedule_restore,
	.restarted = schedule_restarted,
};
