/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ptrace. Owns the notes of what the kernel does not tell of a traced thread: its options, whether it was seized, how it was let run last. A thread
 * that is traced because its maker is inherits them when its tracer asks for its number. Notes of threads that have ended stay until their number is noted again; when all
 * are taken, the oldest goes.
 *
 * And the events of stops that a checkpoint had to make again: their kind comes from here, when the tracer is told of them, and their message.
 *
 * Notes change between fermata_enter and fermata_leave, so the checkpoint finds them whole; a lock keeps several tracing threads apart, of whom only one may be.
 */
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "agent/agent.h"
#include "agent/tracer.h"
#include "agent/wrap.h"

#define NOTES 4096u
#define EVENTS 1024u

static struct {
	struct lock lock;
	int tracer;
	uint32_t made, events_left; /* notes so far; events in use */
	struct ptrace_note notes[NOTES];
	struct ptrace_event events[EVENTS];
} traced;

int ptrace_tracer(void)
{
	return traced.tracer;
}

void ptrace_tracer_forget(void)
{
	traced.tracer = 0;
}

void wrap_ptrace_forked(void)
{
	if (traced.made || traced.tracer) /* many pages else that need not be touched */
		memset(&traced, 0, sizeof(traced));
}

static struct ptrace_note *find(int tid)
{
	for (uint32_t i = 0; i < NOTES && i < traced.made; i++)
		if (traced.notes[i].tid == tid)
			return &traced.notes[i];
	return NULL;
}

static struct ptrace_note *find_or_make(int tid)
{
	struct ptrace_note *n = find(tid);

	if (n)
		return n;
	n = &traced.notes[traced.made++ % NOTES];
	*n = (struct ptrace_note){ .tid = tid, .resumed = PTRACE_CONT };
	return n;
}

/* One whose birth its tracer has not asked about has what its process' first thread has, as the kernel gives it what its maker has. A process of which
 * nothing is known was made by one of those that are: it is seized if they are. */
void ptrace_note_of(int pid, int tid, struct ptrace_note *ret)
{
	const struct ptrace_note *n = find(tid);

	*ret = (struct ptrace_note){ .tid = tid, .resumed = PTRACE_CONT };
	if (!n && (n = find(pid)) != NULL) {
		ret->seized = n->seized;
		ret->options = n->options;
	} else if (n) {
		*ret = *n;
	} else if (traced.made) {
		ret->seized = traced.notes[(traced.made - 1) % NOTES].seized;
	}
}

static struct ptrace_event *event_of(int tid)
{
	for (uint32_t i = 0; traced.events_left && i < EVENTS; i++)
		if (traced.events[i].tid == tid)
			return &traced.events[i];
	return NULL;
}

static void event_forget(int tid)
{
	struct ptrace_event *e = event_of(tid);

	if (!e)
		return;
	e->tid = 0;
	traced.events_left--;
}

void ptrace_event_kept(struct tracee *t)
{
	const struct ptrace_event *e = event_of(t->tid);

	if (!e)
		return;
	t->message = e->message;
	if (e->unread)
		t->event = e->event;
}

void ptrace_event_keep(const struct tracee *t)
{
	event_forget(t->tid);
	for (uint32_t i = 0; i < EVENTS; i++)
		if (!traced.events[i].tid) {
			traced.events[i] = (struct ptrace_event){ t->tid, t->unread, t->event, t->message };
			traced.events_left++;
			return;
		}
}

int ptrace_told(int tid, int status)
{
	struct ptrace_event *e;

	if (likely(!traced.events_left) || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP || status >> 16)
		return status;
	fermata_enter();
	lock_acquire(&traced.lock);
	e = event_of(tid);
	if (e && e->unread) {
		status |= (int)(e->event << 16);
		e->unread = false;
	}
	lock_release(&traced.lock);
	fermata_leave();
	return status;
}

static void note_attached(int tid, bool seized, uint32_t options)
{
	struct ptrace_note *n = find_or_make(tid);

	n->seized = seized;
	n->options = options;
	n->resumed = PTRACE_CONT;
}

static void note_born(int maker, unsigned long tid)
{
	struct ptrace_note *n;

	if (!tid || tid > INT32_MAX)
		return;
	n = find(maker);
	if (n)
		note_attached((int)tid, n->seized, n->options);
}

/* What a request changes of what is noted. */
enum matter { NOTHING, ATTACHED, SEIZED, OPTIONS, BORN, RESUMED, DETACHED };

static enum matter matter_of(int request)
{
	switch (request) {
	case PTRACE_ATTACH:
		return ATTACHED;
	case PTRACE_SEIZE:
		return SEIZED;
	case PTRACE_SETOPTIONS:
		return OPTIONS;
	case PTRACE_GETEVENTMSG:
		return BORN;
	case PTRACE_CONT:
	case PTRACE_SYSCALL:
	case PTRACE_SINGLESTEP:
	case PTRACE_SINGLEBLOCK:
	case PTRACE_SYSEMU:
	case PTRACE_SYSEMU_SINGLESTEP:
	case PTRACE_LISTEN:
		return RESUMED;
	case PTRACE_DETACH:
		return DETACHED;
	default:
		return NOTHING;
	}
}

static void note(enum matter matter, int request, int tid, void *data)
{
	if (matter == ATTACHED || matter == SEIZED)
		note_attached(tid, matter == SEIZED, matter == SEIZED ? (uint32_t)(uintptr_t)data : 0);
	else if (matter == OPTIONS)
		find_or_make(tid)->options = (uint32_t)(uintptr_t)data;
	else if (matter == BORN)
		note_born(tid, *(unsigned long *)data);
	else if (matter == RESUMED)
		find_or_make(tid)->resumed = request;
	if (matter == RESUMED || matter == DETACHED)
		event_forget(tid);
}

static long noted(enum matter matter, int request, int tid, void *addr, void *data)
{
	struct ptrace_event *e;
	long r;

	fermata_enter();
	lock_acquire(&traced.lock);
	e = matter == BORN ? event_of(tid) : NULL;
	if (e) {
		*(unsigned long *)data = e->message;
		r = 0;
	} else {
		r = real.ptrace((enum __ptrace_request)request, tid, addr, data);
	}
	if (r >= 0) {
		traced.tracer = traced.tracer && traced.tracer != raw_gettid() ? -1 : raw_gettid();
		note(matter, request, tid, data);
	}
	lock_release(&traced.lock);
	fermata_leave();
	return r;
}

EXPORT long ptrace(enum __ptrace_request request, ...)
{
	enum matter matter = matter_of((int)request);
	void *addr, *data;
	va_list ap;
	int tid;

	va_start(ap, request);
	tid = va_arg(ap, int);
	addr = va_arg(ap, void *);
	data = va_arg(ap, void *);
	va_end(ap);
	WRAP_READY(ptrace);
	if (!agent.active || matter == NOTHING)
		return real.ptrace(request, tid, addr, data);
	return noted(matter, (int)request, tid, addr, data);
}
