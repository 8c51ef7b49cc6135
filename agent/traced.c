/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that another one of the job traces, gdb. What both do at a checkpoint, and in what order, is told in tracer.c.
 *
 * Until its tracer has let go, no thread is sent our signal, which the tracer would be shown. Then each stands in our handler, in traced_hold(), before anything of the program has run: it takes our signal by
 * sigtimedwait there, so is asked to stop, and goes on, as often as attempts need, and its tracer says when it has it again. All that it was given is in the signal: by whom, for which attempt, and the
 * signal mask that it had, which is the frame's again.
 *
 * Held for an attempt that is over (it waits for its tracer) is not held for the next: where SUSPEND overtakes the tracer, it waits for that, too. A thread that is held inside of a wrapper, or of
 * the vdso, cannot be stopped: the attempt fails, and another one finds it elsewhere, unless it is there that its debugger has it stand.
 *
 * A tracer that dies while it holds: the kernel would have let go of the thread, or killed it (PTRACE_O_EXITKILL): so it does here. Between its PTRACE_ATTACH and the stop that this brings no thread of ours
 * runs to see that, and the tracer has not been able to ask the kernel yet: so a child of its tracer, as who is begun in a debugger is, is to be killed with its parent meanwhile (PR_SET_PDEATHSIG).
 *
 * A debugger from outside of the job is its user's own affair: its process is asked to stop as any other.
 *
 * Owns the list of held threads, whose entries are on their stacks; lock: @lock, taken with all signals blocked, or in the watch thread.
 *
 * Sources: proc(5), TracerPid; ptrace(2), signal-delivery-stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>

#include "agent/agent.h"
#include "agent/arch/x86_64/semop.h"
#include "agent/call_thread.h"
#include "agent/region.h"
#include "agent/tracer.h"
#include "base/begun.h"

#define AGENT_NAME "/libfermata.so"
#define CHUNK 4096u

/* Whether @path, a process' maps, has a line with our name; false where it may not be read. */
static bool has_agent(const char *path)
{
	const size_t overlap = sizeof(AGENT_NAME) - 2;
	char text[CHUNK + sizeof(AGENT_NAME)];
	size_t kept = 0;
	bool found = false;
	int fd = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
	long n;

	if (fd < 0)
		return false;
	while (!found && (n = raw_read(fd, text + kept, CHUNK)) > 0) {
		text[kept + (size_t)n] = 0;
		found = strstr(text, AGENT_NAME) != NULL;
		n += (long)kept;
		kept = (size_t)n < overlap ? (size_t)n : overlap;
		memmove(text, text + n - kept, kept);
	}
	raw_close(fd);
	return found;
}

struct held {
	int tid, tracer;
	uint32_t attempt;
	bool spent; /* its stop is over: it waits for its tracer */
	struct held *next;
};

static struct {
	struct lock lock;
	struct held *first;
	_Atomic int deep; /* a held thread that was asked and could not be stopped */
} held;

void traced_forked(void)
{
	held.lock = (struct lock){ 0 };
	held.first = NULL;
}

int traced_deep(void)
{
	return atomic_exchange(&held.deep, 0);
}

static void held_enter(struct held *h)
{
	lock_acquire(&held.lock);
	h->next = held.first;
	held.first = h;
	lock_release(&held.lock);
}

static void held_leave(struct held *h)
{
	struct held **at = &held.first;

	lock_acquire(&held.lock);
	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	lock_release(&held.lock);
}

/* Some thread is held, but not for this attempt: by whom; 0: none is. */
static uint32_t others_held(void)
{
	const struct held *h;
	uint32_t tracer;

	lock_acquire(&held.lock);
	for (h = held.first; h && h->attempt == agent.attempt && !h->spent; h = h->next)
		;
	tracer = h ? (uint32_t)h->tracer : 0;
	lock_release(&held.lock);
	return tracer;
}

struct tracer {
	uint32_t pid, stranger; /* of the job: 0: none; and one that is not */
};

static int ask_task(const char *name, void *arg)
{
	struct tracer *t = arg;
	char path[64];
	uint64_t pid;

	fm_format(path, sizeof(path), "/proc/self/task/%s/status", name);
	pid = begun_number(path, "\nTracerPid:");
	if (!pid || pid == UINT64_MAX || pid == t->stranger)
		return 0;
	fm_format(path, sizeof(path), "/proc/%u/maps", (uint32_t)pid);
	if (pid == t->pid || has_agent(path)) {
		t->pid = (uint32_t)pid;
		return 1;
	}
	t->stranger = (uint32_t)pid;
	return 0;
}

/* A thread that is traced shows in the leader's status, too: debuggers trace all, and who is traced once is asked for once more. */
static bool may_be_traced(void)
{
	uint64_t tracer = begun_number("/proc/self/status", "\nTracerPid:");

	return (tracer && tracer != UINT64_MAX) || held.first;
}

static int name_tracer(uint32_t pid)
{
	char path[64], name[32] = "";

	fm_format(path, sizeof(path), "/proc/%u/comm", pid);
	if (raw_read_file(path, name, sizeof(name)) > 0)
		name[strcspn(name, "\n")] = 0;
	return fermata_fail(-ETIMEDOUT, "process %u is traced by process %u (%s), which does not let go of it: it has to be of this job, and to answer", agent.pid, pid, name);
}

/* The attempt has failed meanwhile, or the link is gone. */
static bool is_over(void)
{
	struct pollfd p = { .fd = agent.link.fd, .events = POLLIN };

	return RAW3(SYS_poll, &p, 1, 1) > 0;
}

int traced_await(uint64_t limit)
{
	struct tracer t = { 0 };

	traced_deep();
	if (!may_be_traced())
		return 0;
	while (raw_dir_each("/proc/self/task", ask_task, &t) > 0 || (t.pid = others_held()) != 0) {
		if (is_over())
			return fermata_fail(-ECANCELED, "process %u has not been let go by its tracer in time", agent.pid);
		if (raw_now_ns() > limit)
			return name_tracer(t.pid);
	}
	return 0;
}

static bool is_of(const siginfo_t *info, uint32_t what)
{
	return info->si_code == SI_QUEUE && (uint64_t)info->si_value.sival_ptr >> 32 == what;
}

/* The next of our signals, which are blocked here; false: none for a while. */
static bool take(siginfo_t *ret)
{
	const struct timespec wait = { 0, 100000000 };
	const uint64_t ours = 1ull << (agent.signal - 1);

	return RAW4(SYS_rt_sigtimedwait, &ours, ret, &wait, RAW_SIGSET_SIZE) > 0;
}

static bool is_deep(const ucontext_t *frame)
{
	return region_holds(frame) || vdso_holds((uint64_t)frame->uc_mcontext.gregs[REG_RIP]) || arch_semop_is_done(frame);
}

/* Who dies with its tracer does so with its parent, too, if that is the same; what it had for that, or -1: nothing is changed. */
static int die_with(int tracer)
{
	int old = 0;

	if (raw_getppid() != tracer || RAW5(SYS_prctl, PR_GET_PDEATHSIG, &old, 0, 0, 0) < 0 || RAW5(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -1;
	if (raw_getppid() != tracer)
		RAW2(SYS_kill, agent.pid, SIGKILL);
	return old;
}

static void hold(siginfo_t *info, ucontext_t *frame)
{
	const uint32_t attempt = (uint32_t)(uint64_t)info->si_value.sival_ptr;
	const uint64_t mask = (uint32_t)info->si_errno | (uint64_t)info->si_uid << 32;
	struct held me = { raw_gettid(), info->si_pid, attempt & ~TRACER_KILLS, false, NULL };
	struct stop_stay stay = { .note.call = -1 };
	uint64_t without;
	const int death_signal = attempt & TRACER_KILLS ? die_with(me.tracer) : -1;

	memcpy(&frame->uc_sigmask, &mask, sizeof(mask));
	held_enter(&me);
	for (;;) {
		if (!take(info)) {
			if (RAW2(SYS_kill, me.tracer, 0) != -ESRCH)
				continue;
			if (attempt & TRACER_KILLS)
				RAW2(SYS_kill, agent.pid, SIGKILL);
			break;
		}
		if (is_of(info, TRACER_LET_GO))
			break;
		if (info->si_code == SI_MESGQ)
			call_thread_message_came(info);
		else if (is_deep(frame))
			atomic_store(&held.deep, me.tid);
		else
			me.spent |= stop_stay(info, frame, &stay);
	}
	held_leave(&me);
	if (death_signal >= 0)
		RAW5(SYS_prctl, PR_SET_PDEATHSIG, death_signal, 0, 0, 0);
	call_continue(frame, &stay.note, stay.restarted, &without);
}

bool traced_hold(siginfo_t *info, ucontext_t *frame)
{
	if (!is_of(info, TRACER_HOLD))
		return false;
	hold(info, frame);
	return true;
}
