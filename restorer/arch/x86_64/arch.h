/* SPDX-License-Identifier: BSD-2-Clause */
/* What the restorer cannot say in C on x86-64: its entry, a change of stack, a new thread, the jump back. */
#pragma once

#include <linux/sched.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sys.h"
#include "image/record.h"

#define ARCH_SET_GS 0x1001
#define ARCH_SET_FS 0x1002
#define ARCH_USER_END 0x7ffffffff000ul /* of four-level paging: the kernel places nothing above it unasked */

/* The kernel enters with the argument block at the stack pointer; @main gets its address. */
#define ARCH_ENTRY(main)                     \
	__asm__(".text\n"                    \
		".globl _start\n"            \
		".type _start, @function\n"  \
		"_start:\n"                  \
		"	xor %ebp, %ebp\n"    \
		"	mov %rsp, %rdi\n"    \
		"	and $-16, %rsp\n"    \
		"	call " #main "\n"    \
		"	hlt\n")

static inline _Noreturn void arch_call_on_stack(void *fn, void *arg, uint64_t stack_top)
{
	__asm__ volatile("mov %2, %%rsp\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call *%0\n\t"
			 "hlt"
			 :
			 : "r"(fn), "D"(arg), "r"(stack_top)
			 : "memory");
	__builtin_unreachable();
}

/* The child calls @fn(@arg) on its own stack and never comes back. The tid, or -errno. By clone3 where it is to have a tid, which containers refuse. */
static inline long arch_clone(const struct clone_args *args, void (*fn)(void *), void *arg)
{
	int wants_id = args->set_tid_size != 0;
	register void (*child_fn)(void *) __asm__("r12") = fn;
	register void *child_arg __asm__("r13") = arg;
	register uint64_t child_tid __asm__("r10") = args->child_tid;
	register uint64_t tls __asm__("r8") = args->tls;
	long ret;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(ret)
			 : "0"(wants_id ? (long)SYS_clone3 : (long)SYS_clone), "D"(wants_id ? (uint64_t)args : args->flags),
			   "S"(wants_id ? sizeof(*args) : args->stack + args->stack_size), "d"(args->parent_tid), "r"(child_tid), "r"(tls),
			   "r"(child_fn), "r"(child_arg)
			 : "rcx", "r11", "memory");
	return ret;
}

/* Goes on where the image's thread stood: as if its setjmp returned 1. */
static inline _Noreturn void arch_jump(const struct image_context *c)
{
	_Static_assert(offsetof(struct image_context, rip) == 56, "the offsets below");
	__asm__ volatile("mov 0(%0), %%rbx\n\t"
			 "mov 8(%0), %%rbp\n\t"
			 "mov 16(%0), %%r12\n\t"
			 "mov 24(%0), %%r13\n\t"
			 "mov 32(%0), %%r14\n\t"
			 "mov 40(%0), %%r15\n\t"
			 "mov 48(%0), %%rsp\n\t"
			 "mov 56(%0), %%rdx\n\t"
			 "mov $1, %%eax\n\t"
			 "jmp *%%rdx"
			 :
			 : "D"(c)
			 : "memory");
	__builtin_unreachable();
}

static inline int arch_set_fs(uint64_t base)
{
	return (int)RAW2(SYS_arch_prctl, ARCH_SET_FS, base);
}

static inline int arch_set_gs(uint64_t base)
{
	return (int)RAW2(SYS_arch_prctl, ARCH_SET_GS, base);
}

static inline void arch_copy(void *to, const void *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

/* At most PLAN_JUMP_ROOM bytes at the head of a function: mov $to, %r11; jmp *%r11. No argument is in that register. */
static inline void arch_write_jump(void *at, uint64_t to)
{
	uint8_t code[13] = { 0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3 };

	for (int i = 0; i < 8; i++)
		code[2 + i] = (uint8_t)(to >> 8 * i);
	arch_copy(at, code, sizeof(code));
}

static inline void arch_fill(void *to, int c, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(c) : "memory");
}
