/* SPDX-License-Identifier: BSD-2-Clause */
/* clone(2) of a thread that calls @fn(@arg) on a new stack and then ends. */
#pragma once

#include <stdint.h>

/* The new thread's id, or -errno. @tls counts with CLONE_SETTLS; else the caller's thread pointer is shared. */
static inline long arch_thread_clone(unsigned long flags, void *stack_top, uint32_t *parent_tid, uint32_t *child_tid,
				     void *tls, void (*fn)(void *), void *arg)
{
	void **sp = (void **)((uintptr_t)stack_top & ~(uintptr_t)15);
	register uint32_t *r10 __asm__("r10") = child_tid;
	register void *r8 __asm__("r8") = tls;
	long ret;

	*--sp = arg;
	*--sp = (void *)fn;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "pop %%rax\n\t"
			 "pop %%rdi\n\t"
			 "call *%%rax\n\t"
			 "xor %%edi, %%edi\n\t"
			 "mov $60, %%eax\n\t" /* exit */
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(ret)
			 : "0"(56L /* clone */), "D"(flags), "S"(sp), "d"(parent_tid), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return ret;
}
