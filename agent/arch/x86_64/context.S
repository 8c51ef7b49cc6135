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

	.section .note.GNU-stack, "", @progbits
