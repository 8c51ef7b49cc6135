/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All registers of a thread that is stopped anywhere: general, x87, vector of every width that the CPU has, masks, and the
 * control words. A loop holds known values in all of them, touches none, and looks.
 */
#include "feature.h"

#include <fenv.h>
#include <pthread.h>

static volatile int stop;

struct vectors {
	uint8_t bytes[32][64];
} __attribute__((aligned(64)));

#define SPIN "mov $300000, %%ecx\n1: dec %%ecx\n jnz 1b\n"
#define EACH16(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15)
#define EACH32(f) EACH16(f) f(16) f(17) f(18) f(19) f(20) f(21) f(22) f(23) f(24) f(25) f(26) f(27) f(28) f(29) \
	f(30) f(31)

static void hold_sse(const struct vectors *in, struct vectors *out)
{
#define LOAD(n) "movdqu " #n "*64(%0), %%xmm" #n "\n"
#define STORE(n) "movdqu %%xmm" #n ", " #n "*64(%1)\n"
	__asm__ volatile(EACH16(LOAD) SPIN EACH16(STORE)::"r"(in), "r"(out)
			 : "ecx", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
			   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#undef LOAD
#undef STORE
}

__attribute__((target("avx"))) static void hold_avx(const struct vectors *in, struct vectors *out)
{
#define LOAD(n) "vmovdqu " #n "*64(%0), %%ymm" #n "\n"
#define STORE(n) "vmovdqu %%ymm" #n ", " #n "*64(%1)\n"
	__asm__ volatile(EACH16(LOAD) SPIN EACH16(STORE) "vzeroupper\n" ::"r"(in), "r"(out)
			 : "ecx", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
			   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#undef LOAD
#undef STORE
}

__attribute__((target("avx512f,avx512bw"))) static void hold_avx512(const struct vectors *in, struct vectors *out)
{
	uint64_t mask_in = 0x0123456789abcdefu, mask_out = 0;
#define LOAD(n) "vmovdqu64 " #n "*64(%0), %%zmm" #n "\n"
#define STORE(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%1)\n"
	__asm__ volatile("kmovq %3, %%k5\n" EACH32(LOAD) SPIN EACH32(STORE) "kmovq %%k5, %2\nvzeroupper\n"
			 : "+r"(in), "+r"(out), "=r"(mask_out)
			 : "r"(mask_in)
			 : "ecx", "memory", "cc", "k5", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
			   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17",
			   "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27",
			   "xmm28", "xmm29", "xmm30", "xmm31");
	CHECK(mask_in == mask_out);
#undef LOAD
#undef STORE
}

static void hold_general(uint64_t seed)
{
	uint64_t out[6];

	__asm__ volatile("lea 1(%1), %%r8\nlea 2(%1), %%r9\nlea 3(%1), %%r10\nlea 4(%1), %%r11\nlea 5(%1), %%r14\n"
			 "lea 6(%1), %%r15\n" SPIN "mov %%r8, (%0)\nmov %%r9, 8(%0)\nmov %%r10, 16(%0)\n"
			 "mov %%r11, 24(%0)\nmov %%r14, 32(%0)\nmov %%r15, 40(%0)\n" ::"r"(out), "r"(seed)
			 : "ecx", "memory", "cc", "r8", "r9", "r10", "r11", "r14", "r15");
	for (uint64_t i = 0; i < 6; i++)
		CHECK(out[i] == seed + i + 1);
}

static void hold_x87(double seed)
{
	double a = 0, b = 0;

	__asm__ volatile("fldl %2\nfldpi\n" SPIN "fstpl %0\nfstpl %1\n" : "=m"(a), "=m"(b) : "m"(seed) : "ecx", "cc");
	CHECK(a > 3.14159 && a < 3.1416 && b == seed);
}

static void hold_vectors(uint64_t seed)
{
	struct vectors in, out;

	pattern_fill(&in, sizeof(in), seed);
	hold_sse(&in, &out);
	for (int i = 0; i < 16; i++)
		CHECK(memcmp(in.bytes[i], out.bytes[i], 16) == 0);
	if (__builtin_cpu_supports("avx")) {
		hold_avx(&in, &out);
		for (int i = 0; i < 16; i++)
			CHECK(memcmp(in.bytes[i], out.bytes[i], 32) == 0);
	}
	if (__builtin_cpu_supports("avx512bw")) {
		hold_avx512(&in, &out);
		CHECK(memcmp(&in, &out, sizeof(in)) == 0);
	}
}

static void *work(void *arg)
{
	uint64_t n = (uintptr_t)arg;
	int rounding = n % 2 ? FE_UPWARD : FE_TOWARDZERO;

	CHECK(fesetround(rounding) == 0);
	for (; !stop; n++) {
		hold_vectors(n);
		hold_general(n);
		hold_x87((double)n);
		CHECK(fegetround() == rounding);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[2];
	uint64_t n = 0;

	for (uintptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
	feature_ready();
	do
		hold_vectors(n++);
	while (feature_step());
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	return 0;
}
