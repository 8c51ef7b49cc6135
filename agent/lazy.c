/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The room that the dynamic linker takes on the stack for the CPU's extended state (XSAVE), in each call that it binds late. glibc (2.26 and later)
 * asks the CPU once, at start. A CPU that a job is restarted on may have more states than the one before, and then writes more: beyond
 * that room, over the caller's frame. So the number is made what this CPU needs.
 *
 * It is a word of _rtld_global_ro, whose place differs between versions: it is found by what stands there, the number as glibc reckons it for XSAVE
 * and behind it, since 2.27, the same in 32 bits; with XSAVEC the first of them is the smaller. Where it is not found, or twice,
 * nothing is done.
 *
 * Owns the word's address: written by the constructor. A thread that is stopped within the few instructions between the taking of the room and the
 * storing of the state is not looked after.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>

#include "agent/agent.h"
#include "image/writer.h"

#define BEFORE_STATE 64u /* glibc's STATE_SAVE_OFFSET: integer registers */
#define LEGACY 576u	 /* the least that is stored: x87, SSE and the header */

static uint64_t *word;

static uint64_t room_needed(void)
{
	uint64_t size = image_cpu_xsave_size();

	return size ? ALIGN_UP(size + BEFORE_STATE, (uint64_t)64) : 0;
}

static bool is_room(const uint64_t *at, uint64_t full)
{
	return at[1] << 32 >> 32 == full && at[0] <= full && at[0] >= LEGACY && at[0] % 64 == 0;
}

void lazy_init(void)
{
	uint64_t full = room_needed(), *at = dlsym(RTLD_DEFAULT, "_rtld_global_ro");
	const ElfW(Sym) *symbol;
	Dl_info info;
	size_t n;

	if (!at || !full || !dladdr1(at, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
		return;
	n = symbol->st_size / sizeof(*at);
	for (size_t i = 0; i + 1 < n; i++) {
		if (!is_room(&at[i], full))
			continue;
		if (word) {
			word = NULL;
			return;
		}
		word = &at[i];
	}
}

/* Before any thread of the program goes on. */
void lazy_restarted(void)
{
	uint64_t full = room_needed(), page = ALIGN_DOWN((uint64_t)word, (uint64_t)FM_PAGE_SIZE);

	if (!word || *word >= full)
		return;
	if (raw_mprotect((void *)page, FM_PAGE_SIZE, PROT_READ | PROT_WRITE)) {
		log_warn("process %u: calls that are bound late would overrun their stack on this CPU", agent.pid);
		return;
	}
	*word = full;
	raw_mprotect((void *)page, FM_PAGE_SIZE, PROT_READ); /* it stands in what is read-only after relocation */
}
