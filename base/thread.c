/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Worker threads by raw clone. Owns nothing: the caller gives the stack and the futex word. The kernel
 * clears the word and wakes its waiters when the thread has left user space for good (CLONE_CHILD_CLEARTID),
 * so that after a join the stack may go. That wake is not a private one, hence neither is the wait.
 */
#include "base/thread.h"

#include <sched.h>

#include "base/arch/x86_64/thread.h"
#include "base/sys.h"

static int spawn(struct raw_thread *t, unsigned long flags, void *tls, void (*fn)(void *), void *arg, char *stack_top)
{
	uint64_t all = ~0ull, old;
	long r;

	flags |= CLONE_UNTRACED | CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	raw_sigprocmask(SIG_SETMASK, &all, &old); /* the new thread begins with our mask */
	r = arch_thread_clone(flags, stack_top, &t->tid, &t->tid, tls, fn, arg);
	raw_sigprocmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		t->tid = 0;
		return (int)r;
	}
	return 0;
}

int raw_thread_spawn(struct raw_thread *t, void (*fn)(void *), void *arg, void *stack, size_t stack_size)
{
	return spawn(t, CLONE_FILES | CLONE_SYSVSEM, NULL, fn, arg, (char *)stack + stack_size);
}

#ifndef BASE_SANITIZED
int raw_thread_spawn_apart(struct raw_thread *t, void *tls, bool own_files, void (*fn)(void *), void *arg, void *stack,
			   size_t stack_size)
{
	return spawn(t, (tls ? CLONE_SETTLS : 0) | (own_files ? 0 : CLONE_FILES | CLONE_SYSVSEM), tls, fn, arg, (char *)stack + stack_size);
}
#endif

void raw_thread_join(struct raw_thread *t)
{
	uint32_t tid;

	while ((tid = __atomic_load_n(&t->tid, __ATOMIC_ACQUIRE)) != 0)
		raw_futex(&t->tid, FUTEX_WAIT, tid, NULL, 0);
}
