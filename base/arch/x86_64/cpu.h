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

/* Makes a line of the cache ours before it is written; no more than a hint, also to CPUs that do not know it. */
static inline void arch_prefetch_write(const void *p)
{
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
}

/* XCR0; only where CPUID.1:ECX.OSXSAVE is set. */
static inline uint64_t arch_xcr0(void)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

/* Protection keys are there, and the kernel uses them: pkeys(7). */
static inline int arch_has_keys(void)
{
	return arch_cpuid(0, 0).eax >= 7 && arch_cpuid(7, 0).ecx & 1u << 4; /* OSPKE */
}

/* Lets the calling thread to memory of all keys. */
static inline void arch_keys_open(void)
{
	if (arch_has_keys())
		__asm__ volatile(".byte 0x0f, 0x01, 0xef" : : "a"(0), "c"(0), "d"(0) : "memory"); /* wrpkru */
}
