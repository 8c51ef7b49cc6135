/* SPDX-License-Identifier: BSD-2-Clause */
/* The x86-64 system call instruction: nothing else stands between us and the kernel. */
#pragma once

static inline long arch_syscall6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

static inline void arch_cpu_relax(void)
{
	__builtin_ia32_pause();
}
