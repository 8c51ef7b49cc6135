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

int raw_thread_spawn(struct raw_thread *t, void (*fn)(void *), void *arg, void *stack, size_t stack_size)
{
	const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
				    CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	uint64_t all = ~0ull, old;
	long r;

	raw_sigprocmask(SIG_SETMASK, &all, &old);
	r = arch_thread_clone(flags, (char *)stack + stack_size, &t->tid, &t->tid, fn, arg);
	raw_sigprocmask(SIG_SETMASK, &old, NULL);
	if (r < 0) {
		t->tid = 0;
		return (int)r;
	}
	return 0;
}

void raw_thread_join(struct raw_thread *t)
{
	uint32_t tid;

	while ((tid = __atomic_load_n(&t->tid, __ATOMIC_ACQUIRE)) != 0)
		raw_futex(&t->tid, FUTEX_WAIT, tid, NULL, 0);
}
