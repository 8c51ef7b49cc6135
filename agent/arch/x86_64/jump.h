/* SPDX-License-Identifier: BSD-2-Clause */
/* A jump to anywhere, for the beginning of a function. */
#pragma once

#include <stdint.h>
#include <string.h>

#define ARCH_JUMP_SIZE 12

/* mov $to, %rax; jmp *%rax */
static inline void arch_jump_make(unsigned char code[ARCH_JUMP_SIZE], const void *to)
{
	uint64_t address = (uint64_t)to;

	code[0] = 0x48;
	code[1] = 0xb8;
	memcpy(code + 2, &address, 8);
	code[10] = 0xff;
	code[11] = 0xe0;
}
