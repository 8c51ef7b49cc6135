/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * long arch_semop(int id, struct sembuf *ops, size_t n, const struct timespec *timeout): semtimedop, and behind it the thread is in a region, as by fermata_enter_open. Between the
 * two there is one instruction, arch_semop_done.
 */
	.text
	.globl arch_semop
	.hidden arch_semop
	.type arch_semop, @function
arch_semop:
	.cfi_startproc
	movq %rcx, %r10
	movq fermata_thread@gottpoff(%rip), %r8
	movl $220, %eax
	syscall
	.globl arch_semop_done
	.hidden arch_semop_done
arch_semop_done:
	incl %fs:(%r8)
	ret
	.cfi_endproc
	.size arch_semop, . - arch_semop

	.section .note.GNU-stack, "", @progbits
