/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the library's own. Owns their stacks while they are joined.
 *
 * One is a bare clone, as libc need not know of it: all signals blocked, a zeroed block as thread pointer, which is enough
 * for errno. It is made by the libc's name, as this library's descriptors and mappings are, so that who interposes that sees it and knows
 * that it is a device's.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/thread.h"
#include "softrdma/net.h"

#define STACK (128u << 10)

/* The canary and the guard are the caller's: compiled code reads them there. */
static void *tcb_make(char *at)
{
	uint64_t self = (uintptr_t)at, canary, guard;

	__asm__("movq %%fs:40, %0" : "=r"(canary));
	__asm__("movq %%fs:48, %0" : "=r"(guard));
	memcpy(at, &self, 8);
	memcpy(at + 16, &self, 8);
	memcpy(at + 40, &canary, 8);
	memcpy(at + 48, &guard, 8);
	return at;
}

/* At the stack's far end. */
struct start {
	void (*fn)(void *);
	void *arg;
};

#ifdef BASE_SANITIZED
static int spawn(struct raw_thread *t, struct start *start, void *tcb, char *stack_top)
{
	return raw_thread_spawn_apart(t, tcb, false, start->fn, start->arg, start, (size_t)(stack_top - (char *)start));
}
#else
static int begin(void *arg)
{
	struct start *start = arg;

	start->fn(start->arg);
	return 0;
}

static int spawn(struct raw_thread *t, struct start *start, void *tcb, char *stack_top)
{
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
			  CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	uint64_t all = ~0ull, old;
	int r, err;

	raw_sigprocmask(SIG_SETMASK, &all, &old); /* it begins with our mask */
	r = clone(begin, stack_top, flags, start, &t->tid, tcb, &t->tid);
	err = errno;
	raw_sigprocmask(SIG_SETMASK, &old, NULL);
	if (r >= 0)
		return 0;
	t->tid = 0;
	return -err;
}
#endif

static size_t block_size(void)
{
	return STACK + raw_thread_local_size() + FM_PAGE_SIZE;
}

int net_thread_spawn(struct raw_thread *t, char **ret_stack, void (*fn)(void *), void *arg)
{
	char *stack = sr_memory.map(NULL, block_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err;

	if (stack == MAP_FAILED)
		return -ENOMEM;
	*(struct start *)stack = (struct start){ fn, arg };
	err = spawn(t, (struct start *)stack, tcb_make(stack + block_size() - FM_PAGE_SIZE), stack + STACK);
	if (err)
		sr_memory.unmap(stack, block_size());
	else
		*ret_stack = stack;
	return err;
}

void net_thread_join(struct raw_thread *t, char *stack)
{
	raw_thread_join(t);
	sr_memory.unmap(stack, block_size());
}
