/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Entered by sigreturn with the call's registers, but for
 *	rsp	ARCH_WOKEN_BELOW lower
 *	rax	where the thread goes on
 *	rcx	address of the word that is ARCH_WOKEN_NONE unless a signal's frame has come there
 *	r11	number of the call
 * and left with what the call answers, or -EINTR: as behind a system call, which has overwritten rcx and r11, too. No handler of a signal changes what lies in the red zone.
 *
 * It is unwound as a signal's frame is: what lies next is exact, and in the middle of a function.
 */
#include "agent/arch/x86_64/woken.h"

#define PC -ARCH_WOKEN_RED_ZONE
#define EINTR 4

	.text
	.globl arch_woken_begins, arch_woken_calls, arch_woken_called, arch_woken_leaves
	.hidden arch_woken_begins, arch_woken_calls, arch_woken_called, arch_woken_leaves
	.type arch_woken_begins, @function
	.balign 64
arch_woken_begins:
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa %rsp, ARCH_WOKEN_BELOW
	.cfi_register %rip, %rax
	movq %rax, PC(%rsp)
	.cfi_offset %rip, PC - ARCH_WOKEN_BELOW
	movq %r11, %rax
	cmpq $ARCH_WOKEN_NONE, (%rcx)
	jne ended
arch_woken_calls:
	syscall
arch_woken_called:
	nop /* here is only who comes out of the call */
back:
	movq PC(%rsp), %rcx
	.cfi_remember_state
	.cfi_register %rip, %rcx
	leaq ARCH_WOKEN_BELOW(%rsp), %rsp
	.cfi_def_cfa_offset 0
arch_woken_leaves:
	jmp *%rcx
ended:
	.cfi_restore_state
	movq $-EINTR, %rax
	jmp back
	.cfi_endproc
	.size arch_woken_begins, . - arch_woken_begins

	.section .note.GNU-stack, "", @progbits
