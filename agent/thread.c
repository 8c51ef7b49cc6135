/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checkpoint thread: how it is made and what it stands on.
 *
 * It is a bare clone. libc does not know it: `__libc_single_threaded` stays true, the program's last pthread_exit ends
 * the process. Its thread pointer names the end of a zeroed block:
 *
 *   | initial-exec TLS of all libraries (zero) ... | tcb: self pointer at 0 and 16, canary at 40, guard at 48 |
 *
 * which is enough for our own TLS words and for errno; any libc function with more thread state would fail there.
 * All signals are blocked in it: a signal for the process always goes to a thread of the program.
 */
#include "agent/agent.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "agent/arch/x86_64/context.h"

#define THREAD_STACK (256u << 10)
#define THREAD_TLS (64u << 10)
#define THREAD_TCB 4096u

#define THREAD_FLAGS                                                                                   \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS)

static char *thread_block; /* guard page, stack, TLS; kept for the life of the process */

static void thread_body(void *arg)
{
	uint64_t all = ~0ull;

	(void)arg;
	raw_sigprocmask(SIG_SETMASK, &all, NULL);
	agent.thread_tid = raw_gettid();
	agent_loop();
}

/* Copies the stack canary and the pointer guard of the calling thread: code compiled with them reads them there. */
static void tcb_fill(char *tcb)
{
	uint64_t canary, guard, self = (uint64_t)tcb;

	__asm__("movq %%fs:40, %0" : "=r"(canary));
	__asm__("movq %%fs:48, %0" : "=r"(guard));
	memcpy(tcb, &self, sizeof(self));
	memcpy(tcb + 16, &self, sizeof(self));
	memcpy(tcb + 40, &canary, 8);
	memcpy(tcb + 48, &guard, 8);
}

int agent_thread_start(void)
{
	size_t len = FM_PAGE_SIZE + THREAD_STACK + THREAD_TLS + THREAD_TCB;
	uint64_t all = ~0ull, old;
	char *tcb;
	long tid;

	if (!thread_block) {
		char *p = raw_mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (raw_is_error(p))
			return (int)(long)p;
		raw_mprotect(p, FM_PAGE_SIZE, PROT_NONE);
		thread_block = p;
	}
	tcb = thread_block + FM_PAGE_SIZE + THREAD_STACK + THREAD_TLS;
	memset(tcb - THREAD_TLS, 0, THREAD_TLS);
	tcb_fill(tcb);
	agent.thread_fs = (uint64_t)tcb;
	raw_sigprocmask(SIG_SETMASK, &all, &old); /* the new thread begins with our mask */
	tid = arch_clone(THREAD_FLAGS, thread_block + FM_PAGE_SIZE + THREAD_STACK, tcb, thread_body, NULL);
	raw_sigprocmask(SIG_SETMASK, &old, NULL);
	if (tid < 0)
		return (int)tid;
	agent.thread_tid = (int)tid;
	return 0;
}
