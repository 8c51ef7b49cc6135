/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker thread as a sanitizer wants it: one of libc's, that its runtime knows of. Only in such a build, which is never loaded into a stranger's
 * process; elsewhere this file is empty.
 */
#include "base/thread.h"

#ifdef BASE_SANITIZED
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "base/sys.h"

struct start {
	struct raw_thread *t;
	bool own_files;
	void (*fn)(void *);
	void *arg;
};

static void *begin(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	if (s.own_files)
		unshare(CLONE_FILES);
	s.fn(s.arg);
	__atomic_store_n(&s.t->tid, 0, __ATOMIC_RELEASE);
	raw_futex(&s.t->tid, FUTEX_WAKE, 1, NULL, 0);
	return NULL;
}

int raw_thread_spawn_apart(struct raw_thread *t, void *tls, bool own_files, void (*fn)(void *), void *arg, void *stack,
			   size_t stack_size)
{
	struct start *s = malloc(sizeof(*s));
	uint64_t all = ~0ull, old;
	pthread_t thread;
	int err;

	if (!s)
		return -ENOMEM;
	*s = (struct start){ .t = t, .own_files = own_files, .fn = fn, .arg = arg };
	t->tid = 1;
	raw_sigprocmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, begin, s);
	raw_sigprocmask(SIG_SETMASK, &old, NULL);
	if (err) {
		t->tid = 0;
		free(s);
		return -err;
	}
	pthread_detach(thread);
	return 0;
}
#endif
