/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stopping and releasing the program's threads. Owns our signal, and the epoch of the stop in force. (The threads' slots: stop_table.c; where they sleep: stop_lend.c.)
 *
 * The watch thread queues our signal to each thread with the number of its slot and of this stop (epoch) as the value. The handler
 * runs with all signals blocked, libc's own too, and does one of five things:
 *
 *   - it is not the watch thread's but a tracer's: the thread stands, and takes what follows by itself (traced.c); or a message queue's: it is handed on (call_thread.c);
 *   - the epoch is not the present one (a late signal of an attempt that was given up): return, the interrupted call goes on;
 *   - the thread is between fermata_enter and fermata_leave: note the value, return; leave sends it again to itself;
 *   - the thread is in the vdso (vdso.c), or about to note what it has done (arch/x86_64/semop.h): ASKED -> AGAIN, return; it is asked again when that is seen;
 *   - else: take the slot (ASKED -> ENTERED; late, too, if it is another epoch's by now), note what the kernel knows of the thread,
 *     arch_context_save, say STOPPED, wait until another epoch is in force. What is needed after the wait lies on the thread's own stack: the next stop may have begun by then.
 *
 * While threads run, the numbers of free descriptors are theirs: a shell that moves a pipe to descriptor 3 must not hit a file of
 * /proc that we have open there. So the watch thread does the stopping, whose table of descriptors is its own (thread.c).
 *
 * A stopped thread lends itself (stop_lend.c). It goes back to sleep, and before memory is written stop_await_asleep() looks that each thread of ours sleeps: a word that changed
 * between its summing and its writing, though it be dead stack, would make the image a damaged one.
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
 * A thread that is still ASKED after a while, and blocks our signal but not libc's SIGSETXID, is asked by that (stop_setxid.c).
 *
 * Threads of a device's library are passed over (device_thread.c). One that is being made may be asked before it is known as such; it blocks
 * our signal, and its slot becomes GONE.
 *
 * After a restart every thread comes back from arch_context_save with 1, is counted in stop.arrived (the agent then
 * unmaps the restorer, where no thread can be any more), and waits for the same.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

#include "agent/arch/x86_64/context.h"
#include "agent/arch/x86_64/semop.h"
#include "agent/call_thread.h"
#include "agent/device.h"
#include "agent/libc.h"
#include "agent/stop_lend.h"
#include "agent/stop_setxid.h"
#include "agent/stop_table.h"
#include "agent/tracer.h"
#include "agent/wrap.h"
#include "base/fault.h"

#define FIRST_PATIENCE_NS 100000000ull
#define LAST_PATIENCE_NS 12800000000ull

static struct {
	_Atomic uint32_t in_force; /* epoch of the stop in force; 0: none */
	_Atomic uint32_t events;  /* answers of threads; futex of the watch thread */
	_Atomic uint32_t arrived; /* after a restart */
	uint32_t epoch;
	bool no_signals;	  /* in this attempt: the user has as many in queues as the limit lets be */
	int deep;		  /* a thread that is held where it cannot be stopped (traced.c) */
} stop;

static void wake(_Atomic uint32_t *word)
{
	raw_futex((uint32_t *)word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, 0);
}

static uint32_t epoch_in_force(void)
{
	return atomic_load_explicit(&stop.in_force, memory_order_acquire);
}

static void count_event(void)
{
	atomic_fetch_add(&stop.events, 1);
	wake(&stop.events);
}

/* Takes the slot and stands in it. False: it is another's. */
static bool stand(struct stop_thread *t, uint32_t epoch, ucontext_t *context, struct stop_stay *stay)
{
	bool restarted;

	if (!stop_slot_move(t, epoch, STOP_ASKED, STOP_ENTERED))
		return false;
	stop_record(t, context);
	stay->note = *t;
	restarted = arch_context_save(&t->record.context);
	if (!restarted) {
		stop_slot_set(t, STOP_STOPPED);
		count_event();
	} else {
		pending_restart((uint32_t)stay->note.tid);
		spent_thread_restarted(&stay->note.spent);
		atomic_fetch_add(&stop.arrived, 1);
		wake(&stop.arrived);
	}
	lend_wait(&stop.in_force, epoch);
	stop_drop_rights();
	stay->restarted |= restarted;
	return true;
}

bool stop_stay(const siginfo_t *info, ucontext_t *context, struct stop_stay *stay)
{
	uint64_t value = (uint64_t)info->si_value.sival_ptr;
	uint32_t epoch = (uint32_t)(value >> 32);

	return info->si_code == SI_QUEUE && epoch && epoch_in_force() == epoch && stand(stop_slot_at((uint32_t)value), epoch, context, stay);
}

static void handler(int sig, siginfo_t *info, void *context)
{
	uint64_t value = (uint64_t)info->si_value.sival_ptr;
	uint32_t epoch = (uint32_t)(value >> 32), slot = (uint32_t)value;
	struct stop_stay stay = { .note.call = -1 };
	struct stop_thread *t;

	if (unlikely(sig == LIBC_SIGNAL_SETXID)) {
		if (info->si_code != SI_QUEUE) {
			stop_setxid_pass(sig, info, context);
			return;
		}
		stop_setxid_taken();
	}
	if (unlikely(traced_hold(info, context)))
		return;
	if (unlikely(info->si_code == SI_MESGQ))
		call_thread_message_came(info);
	if (info->si_code != SI_QUEUE || !epoch || epoch_in_force() != epoch) {
		call_continue(context, &stay.note, false);
		return;
	}
	if (fermata_thread.depth) {
		fermata_thread.reserved = epoch;
		fermata_thread.pending = slot + 1;
		return;
	}
	t = stop_slot_at(slot);
	if (unlikely(fault_point(FAULT_AGENT_IN_HANDLER)))
		stop_slot_await_another(t, epoch);
	if (unlikely(vdso_holds((uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]) || arch_semop_is_done(context))) {
		if (stop_slot_move(t, epoch, STOP_ASKED, STOP_AGAIN))
			count_event();
		return;
	}
	stand(t, epoch, context, &stay);
	call_continue(context, &stay.note, stay.restarted);
}

static int ask(int tid, uint32_t slot, uint32_t epoch, int sig)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	info.si_code = SI_QUEUE;
	info.si_pid = (int)agent.pid;
	info.si_value.sival_ptr = (void *)((uint64_t)epoch << 32 | slot);
	return (int)RAW4(SYS_rt_tgsigqueueinfo, agent.pid, tid, sig, &info);
}

/* The slow path of fermata_leave: the stop that was put off comes now. */
void fermata_stop_here(void)
{
	uint32_t slot = fermata_thread.pending - 1, epoch = fermata_thread.reserved;
	int tid = raw_gettid();

	fermata_thread.pending = 0;
	if (epoch_in_force() == epoch)
		ask(tid, slot, epoch, stop_slot_at(slot)->by_setxid ? LIBC_SIGNAL_SETXID : agent.signal);
}

struct pass {
	bool quiet; /* nobody has answered for a while */
	uint32_t asked, waiting;
	int error;
};

static int ask_slot(struct pass *pass, struct stop_thread *t, uint32_t slot)
{
	int r;

	t->by_setxid = false;
	stop_slot_set(t, STOP_ASKED);
	call_note(t);
	r = ask(t->tid, slot, stop.epoch, agent.signal);
	stop.no_signals |= r == -EAGAIN;
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
	if (!pass->quiet || state != STOP_ASKED || t->by_setxid || !stop_setxid_needed(t->tid))
		return 0;
	t->by_setxid = true;
	if ((pass->error = stop_setxid_take()) == 0)
		ask(t->tid, slot, stop.epoch, LIBC_SIGNAL_SETXID); /* it may have ended: the next pass sees it */
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
	t = stop_slot_new(tid, stop.epoch, &slot);
	if (!t)
		return pass->error = -ENOMEM;
	return ask_slot(pass, t, slot);
}

/* Of the last attempt. Where it has come to the locks of libc, all threads stood. */
static void name_the_missing(void)
{
	struct stop_thread *t;
	int found = 0;

	if (stop.no_signals)
		found = fermata_fail(-EAGAIN, "no signal can be queued to the threads of process %u: raise the limit of pending signals (ulimit -i)", agent.pid);
	for (uint32_t i = 0; !found && (t = stop_thread_at(i)); i++)
		if (stop_slot_state(t) == STOP_ASKED)
			found = fermata_fail(-ETIMEDOUT, "thread %d does not stop: it sleeps in the kernel and takes no signal", t->tid);
	if (!found)
		libc_name_the_cause();
}

/* 0 when all stand, -EAGAIN when @limit has passed. */
static int attempt(uint64_t limit)
{
	struct timespec nap = { 0, 2000000 };
	bool quiet = false;

	stop.epoch = stop.epoch + 1 < TRACER_HOLD ? stop.epoch + 1 : 1;
	stop_table_clear();
	stop.no_signals = false;
	stop.events = stop.arrived = 0;
	atomic_store(&stop.in_force, stop.epoch);
	for (;;) {
		uint32_t seen = atomic_load(&stop.events);
		struct pass pass = { .quiet = quiet };
		int r = raw_dir_each("/proc/self/task", pass_task, &pass);

		if (r < 0)
			return r;
		if (!pass.asked && !pass.waiting)
			return libc_probe() ? 0 : -EAGAIN;
		stop.deep = traced_deep();
		if (stop.deep)
			return -EBUSY;
		if (raw_now_ns() > limit)
			return -EAGAIN;
		quiet = raw_futex((uint32_t *)&stop.events, FUTEX_WAIT_PRIVATE, seen, &nap, 0) == -ETIMEDOUT;
	}
}

/* After this no handler writes to a slot. */
static void give_up(void)
{
	struct stop_thread *t;

	libc_probe_release();
	for (uint32_t i = 0; (t = stop_thread_at(i)); i++) {
		stop_slot_move(t, stop.epoch, STOP_ASKED, STOP_GONE);
		while (stop_slot_state(t) == STOP_ENTERED)
			RAW0(SYS_sched_yield);
	}
	stop_release();
}

int stop_all(uint32_t timeout_ms)
{
	uint64_t now = raw_now_ns(), limit = now + (uint64_t)timeout_ms * 1000000u, patience = FIRST_PATIENCE_NS;
	struct timespec breath = { 0, 1000000 };
	int r;

	agent.drop_rights = false;
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
		r = fermata_fail(-EBUSY, "thread %d, which is traced, stands where it cannot be stopped, inside of a call", stop.deep);
	give_up();
	return r == -EAGAIN ? -ETIMEDOUT : r == -EBUSY ? -EAGAIN : r;
}

int stop_lend(int tid, int (*fn)(void *), void *arg)
{
	return lend_run(tid, fn, arg);
}

void stop_await_asleep(void)
{
	int probe = libc_probe_tid(); /* it may wait for a lock whose holder stands; then it holds none */
	struct stop_thread *t;

	stop_await_one(agent.watch_tid);
	if (probe)
		stop_await_one(probe);
	for (uint32_t i = 0; (t = stop_thread_at(i)); i++)
		if (stop_slot_state(t) == STOP_STOPPED)
			stop_await_one(t->tid);
}

void stop_release(void)
{
	lend_end(&stop.in_force);
}

void stop_await_restarted(void)
{
	uint32_t want = stop_count(), have;

	while ((have = atomic_load(&stop.arrived)) < want)
		raw_futex((uint32_t *)&stop.arrived, FUTEX_WAIT_PRIVATE, have, NULL, 0);
}

/* In the child of a fork: what the parent's other threads were at is not the child's. */
void stop_forked(void)
{
	atomic_store(&stop.in_force, 0);
	stop_table_clear();
}

/*
 * libc's sigaction sets the restorer, but lets nobody block the two signals that it has for itself; blocked they are, or a stopped thread would be cancelled, and
 * leave, or be asked twice.
 */
static int mask_all(void)
{
	struct image_sigaction sa;
	int r = (int)RAW4(SYS_rt_sigaction, agent.signal, NULL, &sa, RAW_SIGSET_SIZE);

	sa.mask = ~0ull;
	return r ? r : (int)RAW4(SYS_rt_sigaction, agent.signal, &sa, NULL, RAW_SIGSET_SIZE);
}

int stop_init(void)
{
	/* hidden behind wrap_signal.c, so the real ones are called */
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
	const uint64_t left = 1ull << (agent.signal - 1) | 1ull << (LIBC_SIGNAL_SETXID - 1); /* blocked over an exec */
	int r;

	if (real.sigaction(agent.signal, &sa, NULL))
		return -errno;
	if ((r = mask_all()) < 0)
		return r;
	stop_setxid_forget();
	return raw_sigprocmask(SIG_UNBLOCK, &left, NULL); /* libc's own would leave SIGSETXID out */
}
