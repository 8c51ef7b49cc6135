/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Signals that wait, for the process and for each thread, with what came with each (value, sender, code). The kernel shows only bits, so they are
 * taken out of their queues and put back, in their order; the copies are part of the image, and a restart queues them from there. Those that
 * are a plugin's own (signal_claim: a timer's) the plugin makes wait again.
 *
 * Signals of the process are the checkpoint thread's to take. Those of a thread only it can take, so it lends itself, and from its own
 * queue first, so as often as that has bits, nothing else is taken. Putting back, too: the kernel lets a thread pass any si_code only to the id that is its own
 * (kernel/signal.c, rt_sigqueueinfo): the checkpoint thread's tid names the process as well as its pid does.
 *
 * Owns the queue. One thread at a time works on it; after a restart each thread only reads it.
 */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/plugins.h"

#define PENDING_MAX 1024
#define TAKES_MAX 65536 /* of a thread, of signals that come as fast as they are taken */

struct waiting {
	uint32_t tid, reserved; /* 0: of the process */
	siginfo_t info;
};

static struct {
	uint32_t count;
	uint64_t mask; /* of the process */
	struct waiting waiting[PENDING_MAX];
} queue;

static char status[4096];

static bool is_claimed(const siginfo_t *info)
{
	for (const struct fermata_plugin *const *p = agent_plugins; *p; p++)
		if ((*p)->signal_claim && (*p)->signal_claim(info))
			return true;
	return false;
}

/* 1: there is none. */
static int take_one(uint32_t tid, uint64_t set)
{
	static const struct timespec now;
	siginfo_t *info = &queue.waiting[queue.count].info;
	int r;

	if (queue.count == PENDING_MAX)
		return -E2BIG;
	do
		r = (int)RAW4(SYS_rt_sigtimedwait, &set, info, &now, RAW_SIGSET_SIZE);
	while (r == -EINTR);
	if (r < 0)
		return r == -EAGAIN ? 1 : r;
	if (!tid && r != agent.signal)
		queue.mask |= 1ull << (r - 1);
	if (!is_claimed(info))
		queue.waiting[queue.count++].tid = tid;
	return 0;
}

uint64_t pending_status_in(const char *path, const char *name)
{
	uint64_t v = 0;
	const char *p;

	if (raw_read_file(path, status, sizeof(status)) < 0)
		return 0;
	p = strstr(status, name);
	if (!p)
		return 0;
	for (p += strlen(name); *p == ':' || *p == '\t'; p++)
		;
	for (; (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f'); p++)
		v = v << 4 | (uint64_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
	return v;
}

uint64_t pending_status(uint32_t tid, const char *name)
{
	char path[64];

	fm_format(path, sizeof(path), "/proc/self/task/%u/status", tid);
	return pending_status_in(tid ? path : "/proc/thread-self/status", name);
}

/* The signals of line @name of thread @tid (0: the caller) but for ours, which ask it to stop. (Ours of the process are of message queues: call_thread.c.) */
static uint64_t mask_of(uint32_t tid, const char *name)
{
	return pending_status(tid, name) & ~(1ull << (agent.signal - 1));
}

static int take_process(uint64_t set)
{
	int r = set ? 0 : 1;

	while (!r)
		r = take_one(0, set);
	if (r == -E2BIG && !(pending_status(0, "ShdPnd") & set))
		r = 0;
	return r < 0 ? r : 0;
}

/* In the thread, which lends itself. */
static int take_own(void *arg)
{
	uint64_t set;
	int r = 0;

	(void)arg;
	for (int i = 0; i < TAKES_MAX && r >= 0 && (set = mask_of(0, "SigPnd")); i++)
		r = take_one((uint32_t)raw_gettid(), set);
	return r < 0 ? r : 0;
}

static int take_thread(struct stop_thread *t)
{
	uint64_t set = mask_of((uint32_t)t->tid, "SigPnd");

	t->record.queued |= set;
	return set ? stop_lend(t->tid, take_own, NULL) : 0;
}

static int give_back(const struct waiting *w)
{
	siginfo_t info = w->info;
	uint32_t self = (uint32_t)raw_gettid();

	return w->tid ? (int)RAW4(SYS_rt_tgsigqueueinfo, agent.pid, self, info.si_signo, &info) :
			(int)RAW3(SYS_rt_sigqueueinfo, self, info.si_signo, &info);
}

/* In the thread itself; 0: of the process. What cannot be put back does not keep the others from it. */
static int give_back_of(uint32_t tid)
{
	int first = 0;

	for (uint32_t i = 0; i < queue.count; i++) {
		int r = queue.waiting[i].tid == tid ? give_back(&queue.waiting[i]) : 0;

		if (r < 0 && !first)
			first = r;
	}
	return first;
}

static int give_back_own(void *arg)
{
	(void)arg;
	return give_back_of((uint32_t)raw_gettid());
}

static bool is_first_of_its_thread(uint32_t at)
{
	for (uint32_t i = 0; i < at; i++)
		if (queue.waiting[i].tid == queue.waiting[at].tid)
			return false;
	return queue.waiting[at].tid != 0;
}

static int failed(int r)
{
	if (r == -E2BIG)
		return fermata_fail(r, "more than %d signals wait for process %u and its threads: let it take some", PENDING_MAX, agent.pid);
	return fermata_fail(r, "signals that wait for process %u cannot be recorded (errno %d)", agent.pid, -r);
}

void pending_begin(void)
{
	queue.count = 0;
	queue.mask = 0;
}

int pending_record(void)
{
	struct stop_thread *t;
	int r;

	pending_begin();
	r = take_process(pending_status(0, "ShdPnd"));
	for (uint32_t i = 0; !r && (t = stop_thread_at(i)); i++)
		if (stop_slot_state(t) == STOP_STOPPED)
			r = take_thread(t);
	return r ? failed(r) : 0;
}

int fermata_signals_take(int tid, int sig)
{
	struct stop_thread *t;
	int r = 0;

	if (!tid)
		r = take_process(1ull << (sig - 1));
	for (uint32_t i = 0; tid && !r && (t = stop_thread_at(i)); i++)
		if (t->tid == tid && stop_slot_state(t) == STOP_STOPPED)
			r = take_thread(t);
	return r ? failed(r) : 0;
}

int pending_give_back(void)
{
	int r = give_back_of(0);

	for (uint32_t i = 0; i < queue.count; i++)
		if (is_first_of_its_thread(i)) {
			int err = stop_lend((int)queue.waiting[i].tid, give_back_own, NULL);

			r = r ? r : err;
		}
	return r ? failed(r) : 0;
}

uint64_t pending_mask(void)
{
	return queue.mask;
}

void pending_restart(uint32_t tid)
{
	if (queue.count && give_back_of(tid))
		log_error("signals that waited for process %u cannot be queued again", agent.pid);
}
