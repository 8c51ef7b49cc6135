/* SPDX-License-Identifier: BSD-2-Clause */
/* What the CPU says of itself. */
#pragma once

#include <stdint.h>

struct arch_cpuid {
	uint32_t eax, ebx, ecx, edx;
};

static inline struct arch_cpuid arch_cpuid(uint32_t leaf, uint32_t subleaf)
{
	struct arch_cpuid r;

	__asm__ volatile("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx) : "0"(leaf), "2"(subleaf));
	return r;
}

/* XCR0; only where CPUID.1:ECX.OSXSAVE is set. */
static inline uint64_t arch_xcr0(void)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}
