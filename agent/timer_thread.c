/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers that call a function in a new thread (SIGEV_THREAD). libc's own helper thread has all signals blocked for good, ours too, and
 * its timers' kernel numbers are its secret. So the helper is one of ours: a thread of the program like libc's, made with the first such timer,
 * to which the kernel sends each of them
 * (SIGEV_THREAD_ID, with the signal that libc has reserved for it); it differs in leaving our signal open. What timer_create gives the program is
 * then the kernel's number, with which all other calls of libc work.
 *
 * Owns the list of such timers and the helper, under a lock that no signal handler takes: timer_create and timer_delete may not be called there.
 * The signal's value names its entry, which is looked for: a timer that is deleted may have a signal under way.
 */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/libc.h"
#include "agent/timer_thread.h"
#include "agent/wrap.h"
#include "base/lock.h"

#define SIGNAL_TIMER 32 /* glibc's SIGTIMER: nobody else can use it */
#define HELPER_STACK 65536

struct called {
	struct called *next;
	int id;
	void (*function)(union sigval);
	union sigval value;
	pthread_attr_t attr;
};

static struct {
	struct lock lock;
	struct called *first;
	_Atomic uint32_t helper; /* its tid; 0: none. Futex of who makes it */
} calls;

/* In these threads all of the program's signals are blocked, as in libc's. */
static uint64_t set_mask(uint64_t open)
{
	uint64_t mask = ~(open | 1ull << (agent.signal - 1) | 1ull << (LIBC_SIGNAL_SETXID - 1)), old = 0;

	raw_sigprocmask(SIG_SETMASK, &mask, &old);
	return old;
}

/* The thread of one expiration. The copy is its own. */
static void *call(void *arg)
{
	struct called c = *(struct called *)arg;

	fermata_free(arg);
	set_mask(1ull << (SIGNAL_TIMER - 1)); /* it is libc's SIGCANCEL as well */
	c.function(c.value);
	return NULL;
}

static struct called *copy_of(const void *entry)
{
	struct called *c, *copy = NULL;

	lock_acquire(&calls.lock);
	for (c = calls.first; c && c != entry; c = c->next)
		;
	if (c)
		copy = fermata_alloc(sizeof(*copy));
	if (copy)
		*copy = *c;
	lock_release(&calls.lock);
	return copy;
}

static void *help(void *arg)
{
	const uint64_t set = 1ull << (SIGNAL_TIMER - 1);
	pthread_t thread;
	siginfo_t info;

	(void)arg;
	set_mask(0); /* libc has opened SIGNAL_TIMER */
	atomic_store(&calls.helper, (uint32_t)raw_gettid());
	raw_futex((uint32_t *)&calls.helper, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	for (;;) {
		long r = RAW4(SYS_rt_sigtimedwait, &set, &info, NULL, RAW_SIGSET_SIZE);
		struct called *c = r == SIGNAL_TIMER && info.si_code == SI_TIMER ? copy_of(info.si_value.sival_ptr) : NULL;

		if (c && real.pthread_create(&thread, &c->attr, call, c))
			fermata_free(c);
	}
	return NULL;
}

/* Under the lock. */
static int helper_make(void)
{
	pthread_attr_t attr;
	uint64_t old;
	pthread_t thread;
	int r;

	if (atomic_load(&calls.helper))
		return 0;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, HELPER_STACK);
	old = set_mask(0);
	r = real.pthread_create(&thread, &attr, help, NULL);
	raw_sigprocmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	while (!r && !atomic_load(&calls.helper))
		raw_futex((uint32_t *)&calls.helper, FUTEX_WAIT_PRIVATE, 0, NULL, 0);
	return r;
}

/* All but a stack of the program's choice, which several threads could not share, and processors. */
static void attr_copy(pthread_attr_t *to, const pthread_attr_t *from)
{
	struct sched_param param;
	size_t size;
	int word;

	pthread_attr_init(to);
	pthread_attr_setdetachstate(to, PTHREAD_CREATE_DETACHED);
	if (!from)
		return;
	if (!pthread_attr_getstacksize(from, &size))
		pthread_attr_setstacksize(to, size);
	if (!pthread_attr_getguardsize(from, &size))
		pthread_attr_setguardsize(to, size);
	if (!pthread_attr_getinheritsched(from, &word))
		pthread_attr_setinheritsched(to, word);
	if (!pthread_attr_getschedpolicy(from, &word))
		pthread_attr_setschedpolicy(to, word);
	if (!pthread_attr_getschedparam(from, &param))
		pthread_attr_setschedparam(to, &param);
}

static int create(clockid_t clock, struct called *c)
{
	struct sigevent event;

	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_THREAD_ID;
	event.sigev_signo = SIGNAL_TIMER;
	event.sigev_value.sival_ptr = c;
	event._sigev_un._tid = (int)atomic_load(&calls.helper);
	return (int)-RAW3(SYS_timer_create, clock, &event, &c->id);
}

int timer_thread_create(clockid_t clock, const struct sigevent *event, timer_t *ret)
{
	struct called *c = fermata_alloc(sizeof(*c));
	int err;

	if (!c)
		return EAGAIN;
	c->function = event->sigev_notify_function;
	c->value = event->sigev_value;
	attr_copy(&c->attr, event->sigev_notify_attributes);
	lock_acquire(&calls.lock);
	err = helper_make();
	if (!err)
		err = create(clock, c);
	if (!err) {
		c->next = calls.first;
		calls.first = c;
		*ret = (timer_t)(intptr_t)c->id;
	}
	lock_release(&calls.lock);
	if (err)
		fermata_free(c);
	return err;
}

void timer_thread_deleted(int id)
{
	struct called **at, *gone = NULL;

	lock_acquire(&calls.lock);
	for (at = &calls.first; *at && (*at)->id != id; at = &(*at)->next)
		;
	if (*at) {
		gone = *at;
		*at = gone->next;
	}
	lock_release(&calls.lock);
	fermata_free(gone);
}

void timer_thread_forked(void)
{
	memset(&calls, 0, sizeof(calls));
}
