/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the kernel's vdso is. No thread is stopped in it: a restart on another kernel could not let it go on there, for the
 * data that its code reads is laid out otherwise. Its functions are short and sleep nowhere, so a thread that is met in one is asked
 * again.
 *
 * Owns the range: written by the constructor and, after a restart, before any thread goes on.
 */
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include "agent/agent.h"

static uint64_t start, end;

static void range_set(uint64_t at)
{
	const ElfW(Ehdr) *e = (const void *)at;
	const ElfW(Phdr) *p = (const void *)(at + e->e_phoff);

	start = end = at;
	for (unsigned int i = 0; i < e->e_phnum; i++)
		if (p[i].p_type == PT_LOAD)
			end = at + ALIGN_UP(p[i].p_vaddr + p[i].p_memsz, (uint64_t)FM_PAGE_SIZE);
}

void vdso_init(void)
{
	uint64_t at = getauxval(AT_SYSINFO_EHDR);

	if (at)
		range_set(at);
}

void vdso_restarted(uint64_t at)
{
	range_set(at);
}

bool vdso_holds(uint64_t pc)
{
	return pc >= start && pc < end;
}
