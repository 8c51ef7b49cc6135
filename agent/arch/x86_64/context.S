/* SPDX-License-Identifier: BSD-2-Clause */
	.text
	.globl arch_context_save
	.hidden arch_context_save
	.type arch_context_save, @function
arch_context_save:	/* layout: struct image_context */
	.cfi_startproc
	movq %rbx, 0(%rdi)
	movq %rbp, 8(%rdi)
	movq %r12, 16(%rdi)
	movq %r13, 24(%rdi)
	movq %r14, 32(%rdi)
	movq %r15, 40(%rdi)
	leaq 8(%rsp), %rax
	movq %rax, 48(%rdi)
	movq (%rsp), %rax
	movq %rax, 56(%rdi)
	xorl %eax, %eax
	ret
	.cfi_endproc
	.size arch_context_save, . - arch_context_save

	.globl arch_clone
	.hidden arch_clone
	.type arch_clone, @function
arch_clone:		/* rdi flags, rsi stack, rdx tls, rcx fn, r8 arg */
	.cfi_startproc
	subq $16, %rsi
	movq %rcx, 0(%rsi)
	movq %r8, 8(%rsi)
	movq %rdx, %r8		/* tls is the fifth argument */
	xorl %edx, %edx
	xorl %r10d, %r10d
	movl $56, %eax		/* SYS_clone */
	syscall
	testq %rax, %rax
	jz 1f
	ret
1:	.cfi_undefined rip
	xorl %ebp, %ebp
	popq %rax
	popq %rdi
	call *%rax
	movl $60, %eax		/* SYS_exit */
	xorl %edi, %edi
	syscall
	hlt
	.cfi_endproc
	.size arch_clone, . - arch_clone
	.section .note.GNU-stack, "", @progbits
