/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asking all of the program's threads to stand (stop.c), in the watch thread: passes over /proc/self/task until none is left that does not.
 *
 * Why none escapes. A thread can be made only by a thread that runs; the table is read again until one whole pass over
 * /proc/self/task finds nobody who is not stopped; a thread that is being made inherits a mask with all signals blocked
 * from pthread_create and takes the signal as soon as it opens it. A thread that exits meanwhile disappears from the
 * directory, or shows as a zombie (a leader whose process lives on).
 *
 * A thread that has blocked all signals (libc does so while a thread ends) may wait for a lock of libc whose holder stands
 * stopped. So an attempt that does not come to its end soon is given up: slots still ASKED become GONE, those ENTERED are
 * waited for (nothing blocks in between), everybody is let go for a moment, and the next attempt, with another epoch, waits twice as
 * long. Nobody writes to a slot of an attempt that is over. So is one in which a stopped thread holds a lock that a restart may need (libc_state.c).
 *
 * A thread that is still ASKED after a while, asleep, and blocks our signal but not libc's SIGSETXID, is asked by that (stop_setxid.c).
 *
 * One that has put it off, for it is in a region, is asked again then: where a handler has jumped out of the region, that is seen where the thread is by now.
 *
 * Threads of a device's library are passed over (device_thread.c). One that is being made may be asked before it is known as such; it blocks
 * our signal, and its slot becomes GONE.
 */
#include "agent/stop_attempt.h"

#include <errno.h>

#include "agent/device.h"
#include "agent/libc.h"
#include "agent/stop_setxid.h"
#include "agent/stop_table.h"
#include "agent/tracer.h"

#define FIRST_PATIENCE_NS 100000000ull
#define LAST_PATIENCE_NS 12800000000ull

static struct {
	uint32_t epoch;
	bool no_signals; /* in this attempt: the user has as many in queues as the limit lets be */
	int deep;	 /* a thread that is held where it cannot be stopped (traced.c) */
} attempts;

struct pass {
	bool quiet; /* nobody has answered for a while */
	uint32_t asked, waiting;
	int error;
};

static int ask_slot(struct pass *pass, struct stop_thread *t, uint32_t slot)
{
	int r;

	t->by_setxid = false;
	t->long_ns = 0;
	atomic_store(&t->put_off, false);
	stop_slot_set(t, STOP_ASKED);
	call_note(t);
	r = stop_ask(t->tid, slot, attempts.epoch, agent.signal);
	attempts.no_signals |= r == -EAGAIN;
	if (r == -ESRCH)
		stop_slot_set(t, STOP_GONE);
	else if (r < 0)
		return pass->error = r;
	else
		pass->asked++;
	return 0;
}

/* It has not come to its end yet. */
static int pass_waiting(struct pass *pass, struct stop_thread *t, uint32_t slot, enum stop_state state)
{
	if (stop_is_zombie(t->tid)) {
		stop_slot_set(t, STOP_GONE);
		return 0;
	}
	pass->waiting++;
	if (!pass->quiet || state != STOP_ASKED || t->by_setxid)
		return 0;
	if (atomic_exchange(&t->put_off, false)) {
		call_note(t);
		stop_ask(t->tid, slot, attempts.epoch, agent.signal);
		return 0;
	}
	if (!stop_setxid_needed(t))
		return 0;
	t->by_setxid = true;
	if ((pass->error = stop_setxid_take()) == 0)
		stop_ask(t->tid, slot, attempts.epoch, LIBC_SIGNAL_SETXID); /* it may have ended: the next pass sees it */
	return pass->error;
}

/* One entry of /proc/self/task. */
static int pass_task(const char *name, void *arg)
{
	struct pass *pass = arg;
	struct stop_thread *t;
	uint32_t slot;
	int tid = 0;

	while (*name >= '0' && *name <= '9')
		tid = tid * 10 + *name++ - '0';
	if (tid == agent.watch_tid || tid == libc_probe_tid())
		return 0;
	t = stop_slot_find(tid, &slot);
	if (device_owns_thread(tid)) {
		if (t)
			stop_slot_set(t, STOP_GONE);
		return 0;
	}
	if (t) {
		enum stop_state state = stop_slot_state(t);

		if (state == STOP_AGAIN)
			return ask_slot(pass, t, slot);
		return state == STOP_ASKED || state == STOP_ENTERED ? pass_waiting(pass, t, slot, state) : 0;
	}
	if (stop_is_zombie(tid))
		return 0;
	t = stop_slot_new(tid, attempts.epoch, &slot);
	if (!t)
		return pass->error = -ENOMEM;
	return ask_slot(pass, t, slot);
}

static const char *why_not(const struct stop_thread *t)
{
	if (t->put_off)
		return "it does not come out of a call that a checkpoint must not cut in two";
	if (pending_status((uint32_t)t->tid, "SigBlk") >> (agent.signal - 1) & 1)
		return "it takes no signal, for it has blocked them";
	return "it sleeps in the kernel and takes no signal";
}

/* Of the last attempt. Where it has come to the locks of libc, all threads stood. */
static void name_the_missing(void)
{
	struct stop_thread *t;
	int found = 0;

	if (attempts.no_signals)
		found = fermata_fail(-EAGAIN, "no signal can be queued to the threads of process %u: raise the limit of pending signals (ulimit -i)", agent.pid);
	for (uint32_t i = 0; !found && (t = stop_thread_at(i)); i++)
		if (stop_slot_state(t) == STOP_ASKED)
			found = fermata_fail(-ETIMEDOUT, "thread %d does not stop: %s", t->tid, why_not(t));
	if (!found)
		libc_name_the_cause();
}

/* 0 when all stand, -EAGAIN when @limit has passed. */
static int attempt(uint64_t limit)
{
	struct timespec nap = { 0, 2000000 };
	bool quiet = false;

	attempts.epoch = attempts.epoch + 1 < TRACER_HOLD ? attempts.epoch + 1 : 1;
	stop_table_clear();
	attempts.no_signals = false;
	stop_begin(attempts.epoch);
	for (;;) {
		uint32_t seen = stop_events();
		struct pass pass = { .quiet = quiet };
		int r = raw_dir_each("/proc/self/task", pass_task, &pass);

		if (r < 0)
			return r;
		let_run_asked(true);
		if (!pass.asked && !pass.waiting)
			return libc_probe() ? 0 : -EAGAIN;
		attempts.deep = traced_deep();
		if (attempts.deep)
			return -EBUSY;
		if (raw_now_ns() > limit)
			return -EAGAIN;
		quiet = !stop_events_await(seen, &nap);
	}
}

/* After this no handler writes to a slot. */
static void give_up(void)
{
	struct stop_thread *t;

	libc_probe_release();
	for (uint32_t i = 0; (t = stop_thread_at(i)); i++) {
		stop_slot_move(t, attempts.epoch, STOP_ASKED, STOP_GONE);
		while (stop_slot_state(t) == STOP_ENTERED)
			RAW0(SYS_sched_yield);
	}
	let_run_through();
	stop_release();
}

int stop_all(uint32_t timeout_ms)
{
	uint64_t now = raw_now_ns(), limit = now + (uint64_t)timeout_ms * 1000000u, patience = FIRST_PATIENCE_NS;
	struct timespec breath = { 0, 1000000 };
	int r;

	libc_probe_begin();
	for (;; patience += patience < LAST_PATIENCE_NS ? patience : 0) {
		r = attempt(now + patience < limit ? now + patience : limit);
		if (!r)
			return 0;
		now = raw_now_ns();
		if (r != -EAGAIN || now > limit)
			break;
		give_up();
		RAW2(SYS_nanosleep, &breath, NULL);
		libc_probe_again();
		now = raw_now_ns();
	}
	if (r == -EAGAIN)
		name_the_missing();
	if (r == -EBUSY)
		r = fermata_fail(-EBUSY, "thread %d, which is traced, stands where it cannot be stopped, inside of a call", attempts.deep);
	give_up();
	return r == -EAGAIN ? -ETIMEDOUT : r == -EBUSY ? -EAGAIN : r;
}
