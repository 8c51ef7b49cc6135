/* SPDX-License-Identifier: BSD-2-Clause */
/* What glibc's setjmp has noted: __jmpbuf[6] is the stack pointer, exclusive-ored with the thread's guard and rotated (PTR_MANGLE of sysdeps/x86_64, since 2.4). */
#pragma once

#include <setjmp.h>
#include <stdint.h>

static inline uint64_t arch_jump_buffer_sp(const struct __jmp_buf_tag *buffer)
{
	uint64_t sp = (uint64_t)buffer->__jmpbuf[6];

	__asm__("rorq $17, %0\n\txorq %%fs:48, %0" : "+r"(sp));
	return sp;
}
