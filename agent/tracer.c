/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that traces others of the job, gdb: it and they are checkpointed together, and go on as tracer and traced. Owns the list of what it traces over a checkpoint.
 *
 * A traced thread shows each signal to its tracer first, ours too, which would tell its user of it. So the order is turned around:
 *
 *   tracer                                             traced
 *   SUSPEND: stops its own threads                     SUSPEND: waits until none of its threads is traced (traced_await)
 *     each traced thread is made to stand (tracee_stand)
 *     all at once are let go, into our handler  ------>  stand there (traced_hold), are stopped as any other
 *   .. QUIESCE to WRITE, or a restart ..
 *   RESUME: takes each again (tracee_take_again)  <----- the held go back to their program under its eyes
 *     releases its own threads
 *
 * First all stand, then all go: a thread that runs may make another, which is traced too, so the list is read until it has nothing new. A process that is not settled, between fork or
 * exec and its agent's start, cannot be held: -EAGAIN, a moment later it is. So is it with one that is not of the job, but for longer.
 *
 * RESUME is an attempt's end, too, in whatever it failed: what has been let go is taken again, what only stands is put back.
 *
 * tracer_take_again() waits for the traced process to be released by its own RESUME, which waits for nobody. A process that is traced and traces (a debugger that is
 * debugged) waits for its tracer in SUSPEND before it lets go itself; in RESUME its tracing thread is on its way through its own handler only when it has taken its own again: the tracer's waiting thread sees to no
 * order but that one.
 *
 * The watch thread of a traced process is born untraced. Who attaches to a process by all that /proc lists (gdb -p) has that, too, and a restart makes another one in its place, of another number, which its tracer
 * would not know: it is refused by its name.
 *
 * One thread is lent: a process that traces by several is refused.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

#include "agent/tracer.h"
#include "base/begun.h"

#define TRACEES_MAX 4096u

static struct {
	struct tracee *all; /* TRACEES_MAX, mapped when first needed */
	uint32_t count;
} tracees;

static int number_of(const char *name)
{
	int n = 0;

	while (*name >= '0' && *name <= '9')
		n = n * 10 + *name++ - '0';
	return *name ? 0 : n;
}

/* TracerPid is the number of the thread that traces. */
static bool is_ours(const char *status)
{
	uint64_t tracer = begun_number(status, "\nTracerPid:");
	char path[64];

	if (!tracer || tracer == UINT64_MAX)
		return false;
	fm_format(path, sizeof(path), "/proc/self/task/%u", (uint32_t)tracer);
	return tracer == agent.pid || RAW3(SYS_faccessat, AT_FDCWD, path, 0 /* F_OK */) == 0;
}

bool tracer_has(int tid)
{
	for (uint32_t i = 0; i < tracees.count; i++)
		if (tracees.all[i].tid == tid)
			return true;
	return false;
}

struct process {
	int pid;
	bool settled; /* it has a watch thread */
};

static bool is_watch_thread(int pid, int tid)
{
	char path[64], comm[32];

	fm_format(path, sizeof(path), "/proc/%d/task/%d/comm", pid, tid);
	return tid != pid && raw_read_file(path, comm, sizeof(comm)) > 0 && !strncmp(comm, AGENT_THREAD_NAME, sizeof(AGENT_THREAD_NAME) - 1);
}

static int take_task(const char *name, void *arg)
{
	struct process *p = arg;
	int tid = number_of(name);
	char path[64];
	bool ours;

	fm_format(path, sizeof(path), "/proc/%d/task/%d/status", p->pid, tid);
	if (!tid)
		return 0;
	ours = is_ours(path);
	if (is_watch_thread(p->pid, tid)) {
		p->settled = true;
		if (ours)
			return fermata_fail(-EOPNOTSUPP, "process %u has attached to process %d, to our thread in it, too: a checkpoint can be taken when it has let go, or of a program that its debugger has begun (gdb PROG)",
					    agent.pid, p->pid);
		return 0;
	}
	if (!ours || tracer_has(tid))
		return 0;
	if (tracees.count == TRACEES_MAX)
		return fermata_fail(-E2BIG, "process %u traces more than %u threads", agent.pid, TRACEES_MAX);
	memset(&tracees.all[tracees.count], 0, sizeof(tracees.all[0]));
	tracees.all[tracees.count].pid = p->pid;
	tracees.all[tracees.count++].tid = tid;
	return 0;
}

static int refuse_unsettled(int pid)
{
	return fermata_fail(-EAGAIN, "process %d, which process %u traces, is beginning, or ending, or not of the job", pid, agent.pid);
}

static int take_process(const char *name, void *arg)
{
	struct process p = { .pid = number_of(name) };
	char path[64];
	int r;

	(void)arg;
	fm_format(path, sizeof(path), "/proc/%d/status", p.pid);
	if (!p.pid || !is_ours(path))
		return 0;
	fm_format(path, sizeof(path), "/proc/%d/task", p.pid);
	r = raw_dir_each(path, take_task, &p);
	if (r < 0 || p.settled || raw_process_state(p.pid) == 'Z')
		return r == -ENOENT ? 0 : r;
	return refuse_unsettled(p.pid);
}

/* In the thread that traces. */
static int stand_all(void *arg)
{
	int r = 0;

	(void)arg;
	for (uint32_t i = 0; i < tracees.count && !r; i++)
		if (!tracees.all[i].seen && !tracees.all[i].gone)
			r = tracee_stand(&tracees.all[i]);
	return r;
}

static int hold_all(void *arg)
{
	int r = 0;

	for (uint32_t i = 0; i < tracees.count && !r; i++)
		if (tracees.all[i].seen && !tracees.all[i].gone)
			r = tracee_hold(&tracees.all[i], *(uint32_t *)arg);
	return r;
}

static int take_all_again(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; i < tracees.count; i++) {
		const struct tracee *t = &tracees.all[i];
		int r = tracee_take_again(&tracees.all[i]);

		if (r)
			log_error("process %u cannot trace thread %d of process %d again (errno %d)", agent.pid, t->tid, t->pid, -r);
	}
	return 0;
}

static bool stands(int tid)
{
	struct stop_thread *t;

	for (uint32_t i = 0; (t = stop_thread_at(i)); i++)
		if (t->tid == tid)
			return stop_slot_state(t) == STOP_STOPPED;
	return false;
}

static int room_make(void)
{
	void *p;

	if (tracees.all)
		return 0;
	p = raw_mmap(NULL, TRACEES_MAX * sizeof(struct tracee), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw_is_error(p))
		return fermata_fail((int)(long)p, "process %u has no memory for what it traces", agent.pid);
	tracees.all = p;
	return 0;
}

/* Until there is none that has not been made to stand. */
static int list_all(int tracer)
{
	uint32_t before;
	int r;

	do {
		before = tracees.count;
		r = raw_dir_each("/proc", take_process, NULL);
		if (r || tracees.count == before)
			return r;
		if (tracer < 0)
			return fermata_fail(-EOPNOTSUPP, "process %u traces others from several threads: a checkpoint can be taken when it has let go", agent.pid);
		if (!stands(tracer)) /* it ends, and lets go of all */
			return fermata_fail(-EAGAIN, "thread %d of process %u, which traces others, is ending", tracer, agent.pid);
		r = stop_lend(tracer, stand_all, NULL);
	} while (!r);
	return r;
}

/* A child that has asked to be traced, and its tracer has not come to it yet: it knows of nobody. */
static int refuse_beginning(const uint32_t *children, uint32_t count)
{
	char path[64];

	for (uint32_t i = 0; i < count; i++) {
		fm_format(path, sizeof(path), "/proc/%u/status", children[i]);
		if (is_ours(path))
			return refuse_unsettled((int)children[i]);
	}
	return 0;
}

int tracer_let_go(const uint32_t *children, uint32_t count)
{
	int tracer = ptrace_tracer(), r;

	if (!tracer)
		return refuse_beginning(children, count);
	if (tracees.count)
		return 0;
	r = room_make();
	if (!r)
		r = list_all(tracer);
	if (!r && !tracees.count)
		ptrace_tracer_forget();
	return r || !tracees.count ? r : stop_lend(tracer, hold_all, &agent.attempt);
}

void tracer_take_again(void)
{
	if (tracees.count && stands(ptrace_tracer())) /* else none has been touched */
		stop_lend(ptrace_tracer(), take_all_again, NULL);
	tracees.count = 0;
}
