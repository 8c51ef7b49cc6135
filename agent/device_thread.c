/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that a device's library makes inside a device call, by libc's clone or pthread_create (device_pthread.c), and what such a thread
 * makes in turn. They are the device's, as its descriptors and mappings are: not stopped, not saved, not restored, and nowhere counted
 * as the program's. Owns the table of them and the wrapper of clone. What is not made by these names is not known here.
 *
 * While the image is written. Such a thread runs all the time, as the firmware of an adapter does, and it is the device's matter that
 * nothing of the program's memory is written by it: once the drain is over nothing is under way. Its stack and TLS are mappings made
 * in a device call, so they are not in the image. What it writes to in here is told to the image's writer (device_threads_live, device_live).
 * All of it happens "inside the device's library": a flag in its thread-local state says so for good, and what it opens and maps is noted.
 *
 * A checkpoint while one is being made, or ends. The maker is in a device call, where no thread is stopped, and returns when the new
 * thread stands in the table; the one who stops may see it in /proc before, and asks it: that signal is never taken, and forgotten as soon as the
 * thread is in the table (stop.c). When it ends, by whatever call, the kernel itself strikes it from the table (the word is a robust futex of
 * the thread), and this before its number is free: no thread of the program is taken for one of these. Struck, it is for a moment a thread
 * with all signals blocked that ends, as the program's are.
 *
 * Debuggers. It is born untraced: a debugger in the job would hold it, and could be given no other for it after a restart.
 *
 * Signals. It is born with all of them blocked: one for the process goes to a thread of the program, or waits.
 *
 * fork: the child has none of them, and the table is emptied. exec and the process's end take them along, as the kernel does. libc does not
 * know them: the program's last pthread_exit ends the process, and fork thinks it single-threaded. A process whose last thread
 * has ended otherwise ends when the next checkpoint finds none (phase.c).
 *
 * Restart. The device is made again in RECREATE, after all threads of all processes have got their old numbers, so whatever number such
 * a thread gets then, nobody needs it; the next image does not have it, so the next restart has the same order. It is made by the checkpoint
 * thread, which has no thread state of libc: clone needs none.
 *
 * A thread that shares its maker's thread pointer (no CLONE_SETTLS) has no such flag: it may make no descriptors and no mappings.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/device.h"
#include "agent/wrap.h"
#include "base/arch/x86_64/cpu.h"

#define ROOM 2048u
#define BEING_MADE 0x80000000u

/* The thread's robust list has one element, @word. */
struct entry {
	_Atomic uint32_t word; /* 0, or FUTEX_OWNER_DIED: free; BEING_MADE; else the thread's number */
	struct robust_list link;
	struct robust_list_head head;
};

/* On the maker's stack, until @begun. */
struct start {
	struct entry *entry;
	int (*fn)(void *);
	void *arg;
	bool own_tls;
	_Atomic uint32_t begun;
};

static struct {
	_Atomic uint32_t top; /* no entry in use from here on */
	struct entry entries[ROOM];
} threads;

static struct entry *entry_take(void)
{
	for (uint32_t i = 0; i < ROOM; i++) {
		struct entry *e = &threads.entries[i];
		uint32_t word = atomic_load(&e->word), top = atomic_load(&threads.top);

		if ((word && word != FUTEX_OWNER_DIED) || !atomic_compare_exchange_strong(&e->word, &word, BEING_MADE))
			continue;
		while (top <= i && !atomic_compare_exchange_weak(&threads.top, &top, i + 1))
			;
		return e;
	}
	return NULL;
}

/* In the new thread. 0 if the kernel will strike it from the table. */
static int entry_bind(struct entry *e)
{
	e->link.next = &e->head.list;
	e->head = (struct robust_list_head){
		.list.next = &e->link,
		.futex_offset = (long)offsetof(struct entry, word) - (long)offsetof(struct entry, link),
	};
	return (int)RAW2(SYS_set_robust_list, &e->head, sizeof(e->head));
}

static int thread_main(void *arg)
{
	struct start *start = arg;
	struct entry *e = start->entry;
	int (*fn)(void *) = start->fn;
	int bound, r;

	arg = start->arg;
	arch_keys_open(); /* for an adapter there are none */
	if (start->own_tls)
		fermata_thread.device_depth = DEVICE_THREAD;
	bound = entry_bind(e);
	atomic_store(&e->word, (uint32_t)raw_gettid());
	atomic_store(&start->begun, 1);
	raw_futex((uint32_t *)&start->begun, FUTEX_WAKE_PRIVATE, 1, NULL, 0);
	r = fn(arg);
	if (bound)
		atomic_store(&e->word, 0);
	return r;
}

int device_thread_make(int (*fn)(void *), void *stack, int flags, void *arg, int *parent_tid, void *tls, int *child_tid)
{
	struct start start = { entry_take(), fn, arg, (flags & CLONE_SETTLS) != 0, 0 };
	uint64_t all = ~0ull, old;
	int r;

	if (!start.entry) {
		errno = EAGAIN;
		return -1;
	}
	raw_sigprocmask(SIG_SETMASK, &all, &old);
	r = real.clone(thread_main, stack, flags | CLONE_UNTRACED, &start, parent_tid, tls, child_tid);
	raw_sigprocmask(SIG_SETMASK, &old, NULL);
	if (r < 0)
		atomic_store(&start.entry->word, 0);
	while (r >= 0 && !atomic_load(&start.begun))
		raw_futex((uint32_t *)&start.begun, FUTEX_WAIT_PRIVATE, 0, NULL, 0);
	return r;
}

EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	int *parent_tid, *child_tid;
	va_list ap;
	void *tls;

	va_start(ap, arg);
	parent_tid = va_arg(ap, int *);
	tls = va_arg(ap, void *);
	child_tid = va_arg(ap, int *);
	va_end(ap);
	WRAP_READY(clone);
	if (unlikely(fermata_in_device()) && flags & CLONE_THREAD)
		return device_thread_make(fn, stack, flags, arg, parent_tid, tls, child_tid);
	return real.clone(fn, stack, flags, arg, parent_tid, tls, child_tid);
}

bool device_owns_thread(int tid)
{
	uint32_t top = atomic_load(&threads.top);

	for (uint32_t i = 0; i < top; i++)
		if (atomic_load(&threads.entries[i].word) == (uint32_t)tid)
			return true;
	return false;
}

unsigned int device_threads_count(void)
{
	uint32_t top = atomic_load(&threads.top);
	unsigned int n = 0;

	for (uint32_t i = 0; i < top; i++) {
		uint32_t word = atomic_load(&threads.entries[i].word);

		n += word && word != FUTEX_OWNER_DIED;
	}
	return n;
}

/* The first thread is a zombie, and what it ended with is the last field of proc_pid_stat(5): the status that the process would have had. */
static int leader_status(void)
{
	char buf[1024], *p;
	uint32_t status = 0;

	if (raw_read_file("/proc/self/stat", buf, sizeof(buf)) < 0 || !(p = strrchr(buf, ' ')))
		return 0;
	while (*++p >= '0' && *p <= '9')
		status = status * 10 + (uint32_t)(*p - '0');
	return status >> 8 & 0xff;
}

void device_threads_let_go(void)
{
	if (device_threads_count())
		raw_exit_group(leader_status());
	raw_exit_thread(0);
}

void device_threads_forget(void)
{
	for (uint32_t i = 0; i < ROOM; i++) /* to the end: @top may have been written before what was going on then */
		if (atomic_load(&threads.entries[i].word))
			threads.entries[i] = (struct entry){ 0 };
	atomic_store(&threads.top, 0);
	device_pthreads_forget();
}

struct image_range device_threads_live(void)
{
	return (struct image_range){ (uint64_t)&threads, (uint64_t)(&threads + 1) };
}
