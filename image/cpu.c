/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a CPU can do, as far as a program may have built on it: glibc picks its string functions once, at
 * start, by these bits, and a signal frame holds an XSAVE area in this CPU's layout. Without libc state.
 * Owns nothing.
 *
 * Bits that name what only a kernel uses (virtualisation, mitigations, timers) are probed but not compared.
 */
#include <stdbool.h>
#include <string.h>

#include "base/arch/x86_64/cpu.h"
#include "base/log.h"
#include "image/reader.h"
#include "image/writer.h"

#define LEAF(field) offsetof(struct image_cpu, field)

static const struct feature {
	uint16_t field; /* offset in struct image_cpu */
	uint8_t bit;
	char name[21];
} features[] = {
	{ LEAF(leaf1_edx), 8, "cx8" },	       { LEAF(leaf1_edx), 15, "cmov" },
	{ LEAF(leaf1_edx), 23, "mmx" },	       { LEAF(leaf1_edx), 24, "fxsr" },
	{ LEAF(leaf1_edx), 25, "sse" },	       { LEAF(leaf1_edx), 26, "sse2" },
	{ LEAF(leaf1_ecx), 0, "sse3" },	       { LEAF(leaf1_ecx), 1, "pclmulqdq" },
	{ LEAF(leaf1_ecx), 9, "ssse3" },       { LEAF(leaf1_ecx), 12, "fma" },
	{ LEAF(leaf1_ecx), 13, "cx16" },       { LEAF(leaf1_ecx), 19, "sse4.1" },
	{ LEAF(leaf1_ecx), 20, "sse4.2" },     { LEAF(leaf1_ecx), 22, "movbe" },
	{ LEAF(leaf1_ecx), 23, "popcnt" },     { LEAF(leaf1_ecx), 25, "aes" },
	{ LEAF(leaf1_ecx), 27, "osxsave" },    { LEAF(leaf1_ecx), 28, "avx" },
	{ LEAF(leaf1_ecx), 29, "f16c" },       { LEAF(leaf1_ecx), 30, "rdrand" },
	{ LEAF(leaf7_ebx), 0, "fsgsbase" },    { LEAF(leaf7_ebx), 3, "bmi1" },
	{ LEAF(leaf7_ebx), 4, "hle" },	       { LEAF(leaf7_ebx), 5, "avx2" },
	{ LEAF(leaf7_ebx), 8, "bmi2" },	       { LEAF(leaf7_ebx), 9, "erms" },
	{ LEAF(leaf7_ebx), 11, "rtm" },	       { LEAF(leaf7_ebx), 16, "avx512f" },
	{ LEAF(leaf7_ebx), 17, "avx512dq" },   { LEAF(leaf7_ebx), 18, "rdseed" },
	{ LEAF(leaf7_ebx), 19, "adx" },	       { LEAF(leaf7_ebx), 21, "avx512ifma" },
	{ LEAF(leaf7_ebx), 23, "clflushopt" }, { LEAF(leaf7_ebx), 24, "clwb" },
	{ LEAF(leaf7_ebx), 28, "avx512cd" },   { LEAF(leaf7_ebx), 29, "sha" },
	{ LEAF(leaf7_ebx), 30, "avx512bw" },   { LEAF(leaf7_ebx), 31, "avx512vl" },
	{ LEAF(leaf7_ecx), 1, "avx512vbmi" },  { LEAF(leaf7_ecx), 4, "ospke" },
	{ LEAF(leaf7_ecx), 5, "waitpkg" },     { LEAF(leaf7_ecx), 6, "avx512vbmi2" },
	{ LEAF(leaf7_ecx), 8, "gfni" },	       { LEAF(leaf7_ecx), 9, "vaes" },
	{ LEAF(leaf7_ecx), 10, "vpclmulqdq" }, { LEAF(leaf7_ecx), 11, "avx512vnni" },
	{ LEAF(leaf7_ecx), 12, "avx512bitalg" }, { LEAF(leaf7_ecx), 14, "avx512vpopcntdq" },
	{ LEAF(leaf7_ecx), 22, "rdpid" },      { LEAF(leaf7_ecx), 25, "cldemote" },
	{ LEAF(leaf7_ecx), 27, "movdiri" },    { LEAF(leaf7_ecx), 28, "movdir64b" },
	{ LEAF(leaf7_edx), 4, "fsrm" },	       { LEAF(leaf7_edx), 8, "avx512vp2intersect" },
	{ LEAF(leaf7_edx), 14, "serialize" },  { LEAF(leaf7_edx), 22, "amx-bf16" },
	{ LEAF(leaf7_edx), 23, "avx512fp16" }, { LEAF(leaf7_edx), 24, "amx-tile" },
	{ LEAF(leaf7_edx), 25, "amx-int8" },   { LEAF(leaf7_1_eax), 4, "avx-vnni" },
	{ LEAF(leaf7_1_eax), 5, "avx512bf16" }, { LEAF(leaf7_1_eax), 23, "avx-ifma" },
	{ LEAF(leaf81_ecx), 0, "lahf" },       { LEAF(leaf81_ecx), 5, "lzcnt" },
	{ LEAF(leaf81_ecx), 6, "sse4a" },      { LEAF(leaf81_ecx), 8, "prefetchw" },
	{ LEAF(leaf81_ecx), 11, "xop" },       { LEAF(leaf81_ecx), 16, "fma4" },
	{ LEAF(leaf81_ecx), 21, "tbm" },       { LEAF(leaf81_ecx), 29, "monitorx" },
	{ LEAF(leaf81_edx), 27, "rdtscp" },    { LEAF(leaf81_edx), 29, "lm" },
};

static const char *const states[] = {
	[0] = "x87",	     [1] = "sse",	 [2] = "avx",	  [3] = "bndregs",   [4] = "bndcsr",
	[5] = "opmask",	     [6] = "zmm-hi256",	 [7] = "hi16-zmm", [9] = "pkru",     [11] = "cet-user",
	[17] = "amx-tilecfg", [18] = "amx-tiledata",
};

static void probe_names(struct image_cpu *cpu, uint32_t max_extended)
{
	struct arch_cpuid id = arch_cpuid(0, 0);

	memcpy(cpu->vendor, &id.ebx, 4);
	memcpy(cpu->vendor + 4, &id.edx, 4);
	memcpy(cpu->vendor + 8, &id.ecx, 4);
	if (max_extended < 0x80000004u)
		return;
	for (uint32_t i = 0; i < 3; i++) {
		id = arch_cpuid(0x80000002u + i, 0);
		memcpy(cpu->model + 16 * i, &id, 16);
	}
	cpu->model[sizeof(cpu->model) - 1] = 0;
	for (size_t n = strlen(cpu->model); n && cpu->model[n - 1] == ' '; n--)
		cpu->model[n - 1] = 0;
}

uint32_t image_cpu_xsave_size(void)
{
	return arch_cpuid(1, 0).ecx & 1u << 27 /* OSXSAVE */ ? arch_cpuid(13, 0).ebx : 0;
}

static void probe_xsave(struct image_cpu *cpu)
{
	cpu->xsave_size = image_cpu_xsave_size();
	if (!cpu->xsave_size)
		return;
	cpu->xcr0 = arch_xcr0();
	for (uint32_t i = 2; i < ARRAY_SIZE(cpu->xsave_offset); i++) {
		struct arch_cpuid id = arch_cpuid(13, i);

		if (id.eax && !(id.ecx & 1)) /* ECX bit 0: a supervisor's state, which the standard format lacks */
			cpu->xsave_offset[i] = id.ebx;
	}
}

void image_cpu_probe(struct image_cpu *ret)
{
	uint32_t max = arch_cpuid(0, 0).eax, max_extended = arch_cpuid(0x80000000u, 0).eax;
	struct arch_cpuid id = arch_cpuid(1, 0);

	memset(ret, 0, sizeof(*ret));
	probe_names(ret, max_extended);
	ret->leaf1_ecx = id.ecx;
	ret->leaf1_edx = id.edx;
	if (max >= 7) {
		id = arch_cpuid(7, 0);
		ret->leaf7_ebx = id.ebx;
		ret->leaf7_ecx = id.ecx;
		ret->leaf7_edx = id.edx;
		if (id.eax >= 1)
			ret->leaf7_1_eax = arch_cpuid(7, 1).eax;
	}
	if (max_extended >= 0x80000001u) {
		id = arch_cpuid(0x80000001u, 0);
		ret->leaf81_ecx = id.ecx;
		ret->leaf81_edx = id.edx;
	}
	if (max >= 13)
		probe_xsave(ret);
}

struct names {
	char *buf;
	size_t size, length;
	int count;
};

static void names_add(struct names *n, const char *prefix, const char *name)
{
	if (n->length < n->size)
		n->length += fm_format(n->buf + n->length, n->size - n->length, "%s%s%s", n->count ? ", " : "", prefix, name);
	n->count++;
}

static void names_add_states(struct names *n, const struct image_cpu *image, const struct image_cpu *host)
{
	char other[16];

	for (unsigned int i = 0; i < 32; i++) {
		bool moved = image->xsave_offset[i] != host->xsave_offset[i];

		if (!(image->xcr0 >> i & 1))
			continue;
		fm_format(other, sizeof(other), "%u", i);
		if (!(host->xcr0 >> i & 1))
			names_add(n, "xsave state ", i < ARRAY_SIZE(states) && states[i] ? states[i] : other);
		else if (moved)
			names_add(n, "xsave layout of ", i < ARRAY_SIZE(states) && states[i] ? states[i] : other);
	}
	/*
	 * The kernel restores no more than FP and SSE from a signal frame whose area is larger than its own.
	 */
	if (!n->count && image->xsave_size > host->xsave_size) {
		fm_format(other, sizeof(other), "%u", image->xsave_size);
		names_add(n, "xsave area of bytes: ", other);
	}
}

static bool has(const struct image_cpu *cpu, const struct feature *f)
{
	uint32_t word;

	memcpy(&word, (const char *)cpu + f->field, sizeof(word));
	return word >> f->bit & 1;
}

int image_cpu_missing(const struct image_cpu *image, const struct image_cpu *host, char *ret, size_t size)
{
	struct names n = { .buf = ret, .size = size };

	if (size)
		ret[0] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(features); i++)
		if (has(image, &features[i]) && !has(host, &features[i]))
			names_add(&n, "", features[i].name);
	names_add_states(&n, image, host);
	return n.count;
}
