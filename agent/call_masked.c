/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A wait that is to begin again, and that a signal of the program's must end: nanosleep, poll, select, epoll_wait. Between call.c's look at the pending signals and the call's beginning there is a while in which a signal's handler
 * would run, and the call wait on. Who is to wake others after a time, which was over while both stood, sends its signal in that while: as both go on.
 *
 * So the thread does not go on in the call itself but in its kin that takes a signal mask (ppoll, pselect6, epoll_pwait), all signals blocked before it and behind it. A signal that comes before stays pending until the call
 * opens it, and ends it. Behind it the mask is put back: a signal that came at the call's end (a time that is over, a descriptor that is ready) has its handler run there, as behind any call. Then the thread is where
 * it was, with the answer. The code for that is masked.S; what it needs lies on the program's stack, where a signal's frame would.
 *
 * Why none is lost, wherever our own signal comes: before the call and behind it ours is blocked, too. In the call it finds a frame whose mask has all signals blocked, in masked.S: the time that is left is set anew, and the call is made
 * again, atomically as before (call_masked_again). While a handler of the program's runs in the call, ours stops the thread in that handler; its return is to a frame with all blocked, and ours waits until the mask is back.
 * So, unlike with the call itself, its EINTR is never taken for one of ours.
 *
 * A handler that leaves by a jump leaves by the mask that it has, or by that of sigsetjmp; one that changes the mask of its own frame (ucontext's uc_sigmask) has the interrupted call's to change, not that of masked.S, and its change is lost. A thread may be
 * cancelled here, or run a handler that throws: masked.S is unwound as a signal's frame. Within a region nobody waits.
 *
 * Not in this way: calls that are not libc's own (their stack may be of any size); absolute times of CLOCK_REALTIME, which can be set; times of processors; calls that have no such kin: what waits for a socket, a
 * semaphore, a message. A program that sets a filter of system calls for all of its threads while one waits here, must let that call ppoll and its kin: a thread that has one already is not stopped (begun.c).
 */
#include "agent/call_masked.h"

#include <string.h>

#include "agent/arch/x86_64/masked.h"
#include "agent/call_number.h"
#include "agent/wait.h"

#define NS 1000000000u
#define MS 1000000u
#define RED_ZONE 128 /* bytes below the stack pointer that a function may use (System V ABI for x86-64, 3.2.2) */

static uint64_t ns_of(greg_t timespec)
{
	struct timespec t;

	memcpy(&t, (const void *)timespec, sizeof(t));
	return wait_ns(&t);
}

static uint64_t left_ns(const struct arch_masked *m)
{
	const uint64_t now = raw_now_ns();

	return m->deadline_ns > now ? m->deadline_ns - now : 0;
}

/* The time that is left, where the call takes it from: it has @m->deadline_ns. */
static void set_left(ucontext_t *f, const struct arch_masked *m)
{
	const uint64_t ns = left_ns(m);
	const greg_t *g = f->uc_mcontext.gregs;

	if (g[REG_RIP] == (greg_t)arch_masked_epoll_pwait)
		*call_arg(f, 3) = (greg_t)((ns + MS - 1) / MS);
	else
		call_put_time(*call_arg(f, g[REG_RIP] == (greg_t)arch_masked_pselect6 ? 4 : 2), (int64_t[]){ (int64_t)(ns / NS), (int64_t)(ns % NS) });
}

/* Whether there is a call with a mask that waits for what @number does, and that has none yet. */
static bool has_kin(ucontext_t *f, long number)
{
	const uint64_t *set;
	bool absolute;

	switch (number) {
	case SYS_nanosleep:
	case SYS_poll:
	case SYS_epoll_wait:
		return true;
	case SYS_clock_nanosleep:
		absolute = *call_arg(f, 1) & TIMER_ABSTIME;
		return *call_arg(f, 0) == CLOCK_MONOTONIC || (*call_arg(f, 0) == CLOCK_REALTIME && !absolute);
	case SYS_ppoll:
		return !*call_arg(f, 3);
	case SYS_pselect6: /* the address of a set's address and size */
		set = (const uint64_t *)*call_arg(f, 5);
		return !set || !*set;
	default:
		return false;
	}
}

static void as_ppoll(ucontext_t *f, struct arch_masked *m, greg_t limit)
{
	*call_arg(f, 2) = limit;
	*call_arg(f, 3) = (greg_t)&m->mask;
	*call_arg(f, 4) = RAW_SIGSET_SIZE;
	f->uc_mcontext.gregs[REG_RIP] = (greg_t)arch_masked_ppoll;
}

static void as_epoll_pwait(ucontext_t *f, struct arch_masked *m)
{
	*call_arg(f, 4) = (greg_t)&m->mask;
	*call_arg(f, 5) = RAW_SIGSET_SIZE;
	f->uc_mcontext.gregs[REG_RIP] = (greg_t)arch_masked_epoll_pwait;
}

static void as_pselect(ucontext_t *f, struct arch_masked *m)
{
	m->set[0] = (uint64_t)&m->mask;
	m->set[1] = RAW_SIGSET_SIZE;
	*call_arg(f, 5) = (greg_t)m->set;
	f->uc_mcontext.gregs[REG_RIP] = (greg_t)arch_masked_pselect6;
}

/* @asked: the argument that says how long; the next one, where the rest goes. */
static void sleep_as_ppoll(ucontext_t *f, struct arch_masked *m, unsigned int asked, bool absolute)
{
	m->deadline_ns = ns_of(*call_arg(f, asked)) + (absolute ? 0 : raw_now_ns());
	m->rest = absolute ? NULL : (struct timespec *)m->args[asked + 1];
	*call_arg(f, 0) = *call_arg(f, 1) = 0;
	as_ppoll(f, m, (greg_t)&m->left);
}

/* When @ms from now are over, or rather when the wrapper has noted; 0: never, or at once. */
static uint64_t deadline_of_ms(int ms)
{
	if (ms <= 0)
		return 0;
	return fermata_thread.deadline_ns ? fermata_thread.deadline_ns : raw_now_ns() + (uint64_t)ms * MS;
}

static uint64_t deadline_of(greg_t limit)
{
	return limit ? raw_now_ns() + ns_of(limit) : 0;
}

static void become_kin(ucontext_t *f, struct arch_masked *m, long number)
{
	switch (number) {
	case SYS_nanosleep:
		sleep_as_ppoll(f, m, 0, false);
		break;
	case SYS_clock_nanosleep:
		sleep_as_ppoll(f, m, 2, *call_arg(f, 1) & TIMER_ABSTIME);
		break;
	case SYS_poll:
		m->deadline_ns = deadline_of_ms((int)*call_arg(f, 2));
		as_ppoll(f, m, (int)*call_arg(f, 2) < 0 ? 0 : (greg_t)&m->left);
		break;
	case SYS_epoll_wait:
		m->deadline_ns = deadline_of_ms((int)*call_arg(f, 3));
		as_epoll_pwait(f, m);
		break;
	case SYS_ppoll:
		m->deadline_ns = deadline_of(*call_arg(f, 2));
		as_ppoll(f, m, *call_arg(f, 2));
		break;
	default:
		m->deadline_ns = deadline_of(*call_arg(f, 4));
		as_pselect(f, m);
	}
}

bool call_masked(ucontext_t *f, long number, const greg_t args[6])
{
	greg_t *g = f->uc_mcontext.gregs;
	struct arch_masked *m = (struct arch_masked *)(((uint64_t)g[REG_RSP] - RED_ZONE - sizeof(*m)) & ~15ull);

	if (!call_is_of_libc(f) || !has_kin(f, number))
		return false;
	*m = (struct arch_masked){ .pc = (uint64_t)g[REG_RIP], .sp = (uint64_t)g[REG_RSP] };
	memcpy(m->args, args, sizeof(m->args));
	memcpy(&m->mask, &f->uc_sigmask, sizeof(m->mask));
	memset(&f->uc_sigmask, 0xff, sizeof(m->mask));
	become_kin(f, m, number);
	if (m->deadline_ns)
		set_left(f, m);
	g[REG_RSP] = (greg_t)m;
	return true;
}

bool call_masked_again(ucontext_t *f)
{
	greg_t *g = f->uc_mcontext.gregs;
	const struct arch_masked *m = (const void *)g[REG_RSP];

	if ((uint64_t)g[REG_RIP] - (uint64_t)arch_masked_begins >= (uint64_t)(arch_masked_ends - arch_masked_begins))
		return false;
	g[REG_RIP] -= ARCH_MASKED_WAIT_SIZE;
	if (m->deadline_ns)
		set_left(f, m);
	return true;
}
