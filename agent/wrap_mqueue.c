/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel does not tell of POSIX message queues: the names of those that nobody has open, and what a notification (mq_notify) carries. The plugin asks for it (plugins/mqueue/).
 * SIGEV_THREAD is ours, as it is for timers (call_thread.c).
 *
 * Owns the two tables. A slot is taken and given back by compare and swap: a program may ask to be notified again in its signal handler.
 */
#include <errno.h>
#include <mqueue.h>
#include <stdarg.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/call_thread.h"
#include "agent/wrap.h"

#define NAMES 256u
#define NOTIFIED 64u

enum { FREE, BUSY, SET };

static struct name {
	_Atomic int state;
	char text[256];
} names[NAMES];

static struct notified {
	_Atomic uint64_t ino; /* of the queue; 0: free */
	struct fermata_mqueue_notify what;
} notified[NOTIFIED];

static _Atomic bool notified_any; /* since the process began: most never ask, and their children need not have the table */
static _Atomic uint32_t names_used; /* slots at or beyond it have never been taken */
static _Atomic bool names_lost;

static struct name *name_find(const char *text)
{
	for (uint32_t i = 0, used = names_used; i < used; i++)
		if (names[i].state == SET && !strcmp(names[i].text, text))
			return &names[i];
	return NULL;
}

static void name_note(const char *text)
{
	if (!agent.active || strlen(text) >= sizeof(names[0].text) || name_find(text))
		return;
	for (uint32_t i = 0; i < NAMES; i++) {
		uint32_t used = names_used;
		int state = FREE;

		if (!atomic_compare_exchange_strong(&names[i].state, &state, BUSY))
			continue;
		memcpy(names[i].text, text, strlen(text) + 1);
		atomic_store(&names[i].state, SET);
		while (used < i + 1 && !atomic_compare_exchange_weak(&names_used, &used, i + 1))
			;
		return;
	}
	names_lost = true;
}

int fermata_mqueue_name(unsigned int nth, const char **ret)
{
	if (names_lost)
		return fermata_fail(-EOPNOTSUPP, "process %u has opened more than %u message queues (mq_open)", agent.pid, NAMES);
	for (uint32_t i = 0, used = names_used; i < used; i++)
		if (names[i].state == SET && !nth--) {
			*ret = names[i].text;
			return 1;
		}
	return 0;
}

void fermata_mqueue_forget(const char *name)
{
	struct name *n = name_find(name);

	if (n)
		atomic_store(&n->state, FREE);
}

int fermata_mqueue_notify_noted(uint64_t ino, struct fermata_mqueue_notify *ret)
{
	for (size_t i = 0; i < NOTIFIED; i++)
		if (notified[i].ino == ino) {
			*ret = notified[i].what;
			return 1;
		}
	return 0;
}

void fermata_mqueue_notify_note(uint64_t ino, const struct fermata_mqueue_notify *what)
{
	struct notified *at = NULL;

	notified_any = true;
	for (size_t i = 0; i < NOTIFIED && !at; i++)
		if (notified[i].ino == ino)
			at = &notified[i];
	for (size_t i = 0; i < NOTIFIED && !at; i++) {
		uint64_t free = 0;

		if (atomic_compare_exchange_strong(&notified[i].ino, &free, ino))
			at = &notified[i];
	}
	if (at) /* else the checkpoint says that it does not know it */
		at->what = *what;
}

void wrap_mqueue_forked(void)
{
	if (notified_any && atomic_exchange(&notified_any, false)) /* first: a signal handler that notes one meanwhile sets it again */
		memset(notified, 0, sizeof(notified));
}

EXPORT mqd_t mq_open(const char *name, int flags, ...)
{
	struct mq_attr *attr;
	mode_t mode;
	va_list ap;
	mqd_t r;

	WRAP_READY(mq_open);
	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	attr = va_arg(ap, struct mq_attr *);
	va_end(ap);
	r = real.mq_open(name, flags, mode, attr);
	if (r >= 0)
		name_note(name + 1);
	return r;
}

/* What a program compiled with _FORTIFY_SOURCE calls for the form without mode. */
EXPORT mqd_t __mq_open_2(const char *name, int flags);
EXPORT mqd_t __mq_open_2(const char *name, int flags)
{
	return mq_open(name, flags, 0, NULL);
}

EXPORT int mq_unlink(const char *name)
{
	int r;

	WRAP_READY(mq_unlink);
	r = real.mq_unlink(name);
	if (!r)
		fermata_mqueue_forget(name + 1);
	return r;
}

static void note_notify(uint64_t ino, const struct sigevent *event)
{
	struct fermata_mqueue_notify what = { event->sigev_notify, event->sigev_signo, (uint64_t)event->sigev_value.sival_ptr };

	fermata_mqueue_notify_note(ino, &what);
}

/* 0 or -1 and errno. */
static int notify_by_thread(mqd_t fd, uint64_t ino, const struct sigevent *event)
{
	struct sigevent made;
	int r = call_thread_message(ino, event, &made);

	if (r) {
		errno = r;
		return -1;
	}
	r = real.mq_notify(fd, &made);
	if (r)
		call_thread_message_failed(&made);
	else
		note_notify(ino, &made);
	return r;
}

EXPORT int mq_notify(mqd_t fd, const struct sigevent *event)
{
	struct stat st;
	int r;

	WRAP_READY(mq_notify);
	if (!agent.active || !event || RAW2(SYS_fstat, fd, &st) < 0)
		return real.mq_notify(fd, event);
	fermata_enter();
	if (event->sigev_notify == SIGEV_THREAD) {
		r = notify_by_thread(fd, st.st_ino, event);
	} else {
		r = real.mq_notify(fd, event);
		if (!r)
			note_notify(st.st_ino, event);
	}
	fermata_leave();
	return r;
}
