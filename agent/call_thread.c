/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Timers and message queues that call a function in a new thread (SIGEV_THREAD). libc's own helper threads have all signals blocked for good, ours too, and
 * its timers' kernel numbers, and what it has registered for a queue, are its secret. So the helper is one of ours: a thread of the program like libc's, made with the first such timer
 * or registration, to which the kernel sends each timer
 * (SIGEV_THREAD_ID, with the signal that libc has reserved for it); it differs in leaving our signal open. What timer_create gives the program is
 * then the kernel's number, with which all other calls of libc work.
 *
 * A message queue can only send to the process, to any thread that has the signal open: so it sends ours, and the handler hands it on to the helper (call_thread_message_came). A registration
 * is for one message, and its entry for one call. That of a registration which the program has taken back, or lost with the descriptor, nobody calls: a new one of the same queue removes it, when there are
 * some, for the last may have its signal on its way.
 *
 * Owns the list of all these and the helper, under a lock that no signal handler takes: timer_create, timer_delete and mq_notify may not be called there.
 * The signal's value names its entry, which is looked for: a timer that is deleted may have a signal under way.
 */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/call_thread.h"
#include "agent/libc.h"
#include "agent/wrap.h"
#include "base/lock.h"

#define SIGNAL_TIMER LIBC_SIGNAL_CANCEL /* glibc's SIGTIMER: nobody else can use it */
#define HELPER_STACK 65536
#define REGISTERED_MAX 8 /* entries of one queue; all but the last have come, or never will */

struct called {
	struct called *next;
	int id;	      /* of a timer */
	uint64_t ino; /* of a message queue; 0: of a timer */
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

/* The thread of one call. The copy is its own. */
static void *call(void *arg)
{
	struct called c = *(struct called *)arg;

	fermata_free(arg);
	set_mask(1ull << (LIBC_SIGNAL_CANCEL - 1));
	c.function(c.value);
	return NULL;
}

/* For one call: a timer's entry stays, a queue's was for this. */
static struct called *take(const void *entry)
{
	struct called **at, *c, *taken = NULL;

	lock_acquire(&calls.lock);
	for (at = &calls.first; *at && *at != entry; at = &(*at)->next)
		;
	c = *at;
	if (c && c->ino) {
		*at = c->next;
		taken = c;
	} else if (c) {
		taken = fermata_alloc(sizeof(*taken));
		if (taken)
			*taken = *c;
	}
	lock_release(&calls.lock);
	return taken;
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
		struct called *c = r == SIGNAL_TIMER && (info.si_code == SI_TIMER || info.si_code == SI_MESGQ) ? take(info.si_value.sival_ptr) : NULL;

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

static struct called *called_new(const struct sigevent *event)
{
	struct called *c = fermata_alloc(sizeof(*c));

	if (!c)
		return NULL;
	*c = (struct called){ .function = event->sigev_notify_function, .value = event->sigev_value, .id = -1 };
	attr_copy(&c->attr, event->sigev_notify_attributes);
	return c;
}

static void add(struct called *c)
{
	c->next = calls.first;
	calls.first = c;
}

int call_thread_timer(clockid_t clock, const struct sigevent *event, timer_t *ret)
{
	struct called *c = called_new(event);
	int err;

	if (!c)
		return EAGAIN;
	lock_acquire(&calls.lock);
	err = helper_make();
	if (!err)
		err = create(clock, c);
	if (!err) {
		add(c);
		*ret = (timer_t)(intptr_t)c->id;
	}
	lock_release(&calls.lock);
	if (err)
		fermata_free(c);
	return err;
}

/* Of this queue, the one behind the first REGISTERED_MAX; NULL: there are no more. */
static struct called *oldest_taken(uint64_t ino)
{
	struct called **at, *c;
	int count = 0;

	for (at = &calls.first; *at; at = &(*at)->next)
		if ((*at)->ino == ino && ++count > REGISTERED_MAX)
			break;
	c = *at;
	if (c)
		*at = c->next;
	return c;
}

int call_thread_message(uint64_t ino, const struct sigevent *event, struct sigevent *ret)
{
	struct called *c = called_new(event), *old = NULL;
	int err;

	if (!c)
		return ENOMEM;
	c->ino = ino;
	lock_acquire(&calls.lock);
	err = helper_make();
	if (!err) {
		add(c);
		old = oldest_taken(ino);
	}
	lock_release(&calls.lock);
	fermata_free(err ? c : old);
	if (err)
		return err;
	memset(ret, 0, sizeof(*ret));
	ret->sigev_notify = SIGEV_SIGNAL;
	ret->sigev_signo = agent.signal;
	ret->sigev_value.sival_ptr = c;
	return 0;
}

void call_thread_message_failed(const struct sigevent *made)
{
	fermata_free(take(made->sigev_value.sival_ptr));
}

void call_thread_message_came(siginfo_t *info)
{
	info->si_signo = SIGNAL_TIMER;
	RAW4(SYS_rt_tgsigqueueinfo, agent.pid, atomic_load(&calls.helper), SIGNAL_TIMER, info);
}

void call_thread_timer_deleted(int id)
{
	struct called **at, *gone = NULL;

	lock_acquire(&calls.lock);
	for (at = &calls.first; *at && ((*at)->ino || (*at)->id != id); at = &(*at)->next)
		;
	if (*at) {
		gone = *at;
		*at = gone->next;
	}
	lock_release(&calls.lock);
	fermata_free(gone);
}

void call_thread_forked(void)
{
	memset(&calls, 0, sizeof(calls));
}
