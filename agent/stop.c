/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stopping and releasing the program's threads. Owns our signal, and the epoch of the stop in force. (The threads' slots: stop_table.c; who asks them, and how often: stop_attempt.c; where they sleep: stop_lend.c.)
 *
 * The watch thread queues our signal to each thread with the number of its slot and of this stop (epoch) as the value. The handler
 * runs with all signals blocked, libc's own too, and does one of five things:
 *
 *   - it is not the watch thread's but a tracer's: the thread stands, and takes what follows by itself (traced.c); or a message queue's: it is handed on (call_thread.c);
 *   - the epoch is not the present one (a late signal of an attempt that was given up): return, the interrupted call goes on;
 *   - the thread is in a region (fermata/region.h): note the value, return; leave sends it again to itself, and we, after a while: it may have jumped out where that cannot be seen yet;
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
 * After a restart every thread comes back from arch_context_save with 1, is counted in stop.arrived (the agent then
 * unmaps the restorer, where no thread can be any more), and waits for the same.
 */
#include "agent/agent.h"

#include <errno.h>
#include <string.h>

#include "agent/arch/x86_64/context.h"
#include "agent/arch/x86_64/semop.h"
#include "agent/call_number.h"
#include "agent/call_thread.h"
#include "agent/call_woken.h"
#include "agent/device.h"
#include "agent/libc.h"
#include "agent/region.h"
#include "agent/stop_attempt.h"
#include "agent/stop_lend.h"
#include "agent/stop_setxid.h"
#include "agent/stop_table.h"
#include "agent/tracer.h"
#include "agent/wrap.h"
#include "base/fault.h"

static struct {
	_Atomic uint32_t in_force; /* epoch of the stop in force; 0: none */
	_Atomic uint32_t events;  /* answers of threads; futex of the watch thread */
	_Atomic uint32_t arrived; /* after a restart */
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
	if (restarted)
		rights_restarted(&stay->note.rights);
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
	uint64_t value = (uint64_t)info->si_value.sival_ptr, without;
	uint32_t epoch = (uint32_t)(value >> 32), slot = (uint32_t)value;
	struct stop_stay stay = { .note.call = -1 };
	const bool before_call = call_woken_undo(context);
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
		call_continue(context, &stay.note, false, &without);
		return;
	}
	if (region_holds(context)) {
		fermata_thread.epoch = epoch;
		fermata_thread.pending = slot + 1;
		atomic_store(&stop_slot_at(slot)->put_off, true);
		call_continue(context, &stay.note, false, &without);
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
	if (unlikely(before_call))
		call_is_next(&stay.note, context);
	if (call_continue(context, &stay.note, stay.restarted, &without))
		call_woken(context, without);
}

int stop_ask(int tid, uint32_t slot, uint32_t epoch, int sig)
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
	uint32_t slot = fermata_thread.pending - 1, epoch = fermata_thread.epoch;
	int tid = raw_gettid();

	fermata_thread.pending = 0;
	if (epoch_in_force() == epoch)
		stop_ask(tid, slot, epoch, stop_slot_at(slot)->by_setxid ? LIBC_SIGNAL_SETXID : agent.signal);
}

void stop_begin(uint32_t epoch)
{
	stop.events = stop.arrived = 0;
	atomic_store(&stop.in_force, epoch);
}

uint32_t stop_events(void)
{
	return atomic_load(&stop.events);
}

bool stop_events_await(uint32_t seen, const struct timespec *limit)
{
	return raw_futex((uint32_t *)&stop.events, FUTEX_WAIT_PRIVATE, seen, limit, 0) != -ETIMEDOUT;
}

int stop_lend(int tid, int (*fn)(void *), void *arg)
{
	return lend_run(tid, fn, arg);
}

/* The watch thread last: the one that has lent itself for it wakes it, and goes to sleep after that. What it does then, in memory, has an end before it sleeps again. */
void stop_await_asleep(void)
{
	int probe = libc_probe_tid(); /* it may wait for a lock whose holder stands; then it holds none */
	struct stop_thread *t;

	for (uint32_t i = 0; (t = stop_thread_at(i)); i++)
		if (stop_slot_state(t) == STOP_STOPPED)
			stop_await_one(t->tid);
	if (probe)
		stop_await_one(probe);
	stop_await_one(agent.watch_tid);
}

void stop_release(void)
{
	call_woken_look();
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

void stop_on_signal_stack(bool on)
{
	struct image_sigaction sa;

	if (RAW4(SYS_rt_sigaction, agent.signal, NULL, &sa, RAW_SIGSET_SIZE) || !(sa.flags & SA_ONSTACK) == !on)
		return;
	sa.flags ^= SA_ONSTACK;
	RAW4(SYS_rt_sigaction, agent.signal, &sa, NULL, RAW_SIGSET_SIZE);
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
