/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a thread waits on behalf of an interrupted call (masked.h): entered by sigreturn with the call's registers, all signals blocked and a struct arch_masked at the stack pointer. The number stands in the
 * code, for whoever reads it there. The mask is put back, then the registers, and the thread goes on where it was.
 *
 * It is unwound as a signal's frame is: what lies next is exact, and in the middle of a function.
 */
#define PC 0
#define SP 8
#define ARG(n) (16+8*n)
#define MASK 64
#define LEFT 72
#define REST 88

#define SYS_rt_sigprocmask 14
#define SYS_pselect6 270
#define SYS_ppoll 271
#define SYS_epoll_pwait 281

/* DW_CFA_expression: DWARF register @reg (< 32) lies at the stack pointer plus @at. */
	.macro lies_at reg, at
	.cfi_escape 0x10, \reg, 2, 0x77, \at
	.endm

	.macro wait number
	movl $\number, %eax
	syscall
	.endm

	.text
	.globl arch_masked_begins, arch_masked_ends, arch_masked_ppoll, arch_masked_epoll_pwait, arch_masked_pselect6
	.hidden arch_masked_begins, arch_masked_ends, arch_masked_ppoll, arch_masked_epoll_pwait, arch_masked_pselect6
	.type arch_masked_begins, @function
arch_masked_begins:
	.cfi_startproc
	.cfi_signal_frame
	.cfi_escape 0x0f, 3, 0x77, SP, 0x06 /* DW_CFA_def_cfa_expression: what lies at the stack pointer plus SP */
	lies_at 16, PC
	lies_at 5, ARG(0)
	lies_at 4, ARG(1)
	lies_at 1, ARG(2)
	lies_at 10, ARG(3)
	lies_at 8, ARG(4)
	lies_at 9, ARG(5)
arch_masked_epoll_pwait:
	wait SYS_epoll_pwait
	jmp waited
arch_masked_pselect6:
	wait SYS_pselect6
	jmp waited
arch_masked_ppoll:
	wait SYS_ppoll
waited:
	cmpq $-4, %rax /* EINTR: who asked for the rest is told it */
	jne answered
	movq REST(%rsp), %rdx
	testq %rdx, %rdx
	jz answered
	movq LEFT(%rsp), %rcx
	movq %rcx, (%rdx)
	movq LEFT+8(%rsp), %rcx
	movq %rcx, 8(%rdx)
answered:
	movq %rax, LEFT(%rsp)
	movl $2, %edi /* SIG_SETMASK */
	leaq MASK(%rsp), %rsi
	xorl %edx, %edx
	movl $8, %r10d
	movl $SYS_rt_sigprocmask, %eax
	syscall
	movq LEFT(%rsp), %rax
	movq ARG(0)(%rsp), %rdi
	movq ARG(1)(%rsp), %rsi
	movq ARG(2)(%rsp), %rdx
	movq ARG(3)(%rsp), %r10
	movq ARG(4)(%rsp), %r8
	movq ARG(5)(%rsp), %r9
	movq PC(%rsp), %rcx /* which a system call overwrites, too */
	movq SP(%rsp), %rsp
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rcx
	.cfi_restore 5
	.cfi_restore 4
	.cfi_restore 1
	.cfi_restore 10
	.cfi_restore 8
	.cfi_restore 9
	jmp *%rcx
	.cfi_endproc
arch_masked_ends:
	.size arch_masked_begins, . - arch_masked_begins

	.section .note.GNU-stack, "", @progbits
