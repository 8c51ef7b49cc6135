/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pthread_create inside a device call, and join, detach and exit of what it has made. Owns the blocks that those threads stand on.
 *
 * A thread of libc's own would be a part of the program: its descriptor lies on its stack, in a list that libc walks, and it is counted. Neither
 * could be taken out again at a restart, when the thread is not there any more. So libc is not asked: the thread is a bare clone
 * on a mapping of the device's,
 *
 *   | guard | stack | initial-exec TLS (zero) | tcb: libc's struct pthread, zero but for its pointers and number ... struct block |
 *
 * whose pthread_t is, as libc's is, the address of the tcb. There pthread_self, mutexes, condition variables, semaphores, keys and what depends on
 * the locale work. Not there: cancellation, robust mutexes, cleanup handlers and destructors at its end, dlopen, TLS of libraries loaded
 * later. The program's malloc is nothing for it, whatever it was made by: its image is being written.
 *
 * A detached thread cannot unmap what it stands on: the next pthread_create does. Lock: @lock, over the list.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/device.h"
#include "agent/libc.h"
#include "agent/wrap.h"
#include "base/thread.h"

#define STACK_DEFAULT (1u << 20)
#define TCB FM_PAGE_SIZE
#define FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_CHILD_SETTID | \
	       CLONE_CHILD_CLEARTID)

struct block {
	uint32_t tid; /* the kernel clears it, last of all */
	bool detached;
	char *start;
	size_t size;
	void *(*fn)(void *);
	void *arg, *result;
	struct block *next;
};

static struct {
	struct lock lock;
	struct block *first;
} pthreads;

static struct block *block_of(pthread_t thread)
{
	return (struct block *)(thread + TCB - sizeof(struct block));
}

static char *tcb_of(const struct block *b)
{
	return b->start + b->size - TCB;
}

static void block_free(struct block *b)
{
	struct block copy = *b;

	device_making_begin();
	device_range_remove((uint64_t)copy.start, copy.size);
	raw_munmap(copy.start, copy.size);
	device_making_end();
}

/* Takes a block out of the list: that of @thread, or, with 0, of a detached thread that has ended. NULL: none. */
static struct block *list_take(pthread_t thread)
{
	struct block **at, *b;

	lock_acquire(&pthreads.lock);
	for (at = &pthreads.first; (b = *at); at = &b->next)
		if (thread ? b == block_of(thread) : __atomic_load_n(&b->detached, __ATOMIC_ACQUIRE) && !__atomic_load_n(&b->tid, __ATOMIC_ACQUIRE))
			break;
	if (b)
		*at = b->next;
	lock_release(&pthreads.lock);
	return b;
}

static void list_put(struct block *b)
{
	lock_acquire(&pthreads.lock);
	b->next = pthreads.first;
	pthreads.first = b;
	lock_release(&pthreads.lock);
}

static struct block *block_make(size_t stack)
{
	size_t size = FM_PAGE_SIZE + ALIGN_UP(stack, (size_t)FM_PAGE_SIZE) + raw_thread_local_size() + TCB;
	struct block *b;
	char *p;

	device_making_begin();
	p = raw_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!raw_is_error(p))
		device_range_add((uint64_t)p, size);
	device_making_end();
	if (raw_is_error(p))
		return NULL;
	raw_mprotect(p, FM_PAGE_SIZE, PROT_NONE);
	b = block_of((pthread_t)(p + size - TCB));
	b->start = p;
	b->size = size;
	return b;
}

static int thread_main(void *arg)
{
	struct block *b = arg;

	libc_thread_number(tcb_of(b));
	b->result = b->fn(b->arg);
	return 0;
}

static int block_run(struct block *b)
{
	char *tcb = tcb_of(b);

	thread_tcb_fill(tcb);
	b->tid = 1; /* until the kernel says */
	list_put(b);
	if (device_thread_make(thread_main, tcb - raw_thread_local_size(), FLAGS, b, NULL, tcb, (int *)&b->tid) >= 0)
		return 0;
	list_take((pthread_t)tcb);
	return EAGAIN;
}

static int create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	size_t stack = STACK_DEFAULT;
	int detached = PTHREAD_CREATE_JOINABLE, r;
	struct block *b;

	while ((b = list_take(0)))
		block_free(b);
	if (attr) {
		pthread_attr_getstacksize(attr, &stack);
		pthread_attr_getdetachstate(attr, &detached);
	}
	b = block_make(stack);
	if (!b)
		return EAGAIN;
	b->fn = fn;
	b->arg = arg;
	b->detached = detached == PTHREAD_CREATE_DETACHED;
	*ret = (pthread_t)tcb_of(b);
	r = block_run(b);
	if (r)
		block_free(b);
	return r;
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	WRAP_READY(pthread_create);
	return unlikely(fermata_in_device()) ? create(thread, attr, fn, arg) : real.pthread_create(thread, attr, fn, arg);
}

/* NULL: it is none of ours. */
static struct block *list_find(pthread_t thread)
{
	struct block *b;

	lock_acquire(&pthreads.lock);
	for (b = pthreads.first; b && b != block_of(thread); b = b->next)
		;
	lock_release(&pthreads.lock);
	return b;
}

EXPORT int pthread_join(pthread_t thread, void **ret)
{
	struct block *b;
	uint32_t tid;

	WRAP_READY(pthread_join);
	if (likely(!fermata_in_device()) || !(b = list_find(thread)))
		return real.pthread_join(thread, ret);
	while ((tid = __atomic_load_n(&b->tid, __ATOMIC_ACQUIRE)))
		raw_futex(&b->tid, FUTEX_WAIT, tid, NULL, 0);
	if (ret)
		*ret = b->result;
	block_free(list_take(thread));
	return 0;
}

EXPORT int pthread_detach(pthread_t thread)
{
	struct block *b;

	WRAP_READY(pthread_detach);
	if (likely(!fermata_in_device()) || !(b = list_find(thread)))
		return real.pthread_detach(thread);
	__atomic_store_n(&b->detached, true, __ATOMIC_RELEASE);
	return 0;
}

EXPORT void pthread_exit(void *result)
{
	struct block *b;

	WRAP_READY(pthread_exit);
	if (unlikely(fermata_thread.device_depth & DEVICE_THREAD) && (b = list_find((pthread_t)__builtin_thread_pointer()))) {
		b->result = result;
		raw_exit_thread(0);
	}
	real.pthread_exit(result);
	__builtin_unreachable();
}

void device_pthreads_forget(void)
{
	memset(&pthreads, 0, sizeof(pthreads));
}

struct image_range device_pthreads_live(void)
{
	return (struct image_range){ (uint64_t)&pthreads, (uint64_t)(&pthreads + 1) };
}
