/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which protection keys are taken no call tells: one takes all that are left, and gives them back, while the program stands still. Key 0 is everybody's. No state.
 */
#include <errno.h>

#include "agent/keys.h"
#include "base/arch/x86_64/cpu.h"
#include "base/macro.h"
#include "base/sys.h"

#define KEYS 16

uint32_t keys_take_all(void)
{
	uint32_t taken = 0;
	long key;

	while ((key = RAW2(SYS_pkey_alloc, 0, 0)) > 0)
		taken |= 1u << key;
	return taken;
}

void keys_free(uint32_t keys)
{
	for (int key = 1; key < KEYS; key++)
		if (keys & 1u << key)
			RAW1(SYS_pkey_free, key);
}

uint32_t keys_taken(void)
{
	uint32_t left;

	if (!arch_has_keys())
		return 0;
	left = keys_take_all();
	keys_free(left);
	return ~left & ((1u << KEYS) - 2);
}

int keys_give(uint64_t start, uint64_t length, uint32_t prot, uint32_t key)
{
	return (int)RAW4(SYS_pkey_mprotect, start, length, prot, key);
}

/* The kernel lets nobody have its own. */
uint32_t keys_execute_only(uint32_t taken, void *page)
{
	for (uint32_t key = 1; key < KEYS; key++)
		if (taken & 1u << key && keys_give((uint64_t)page, FM_PAGE_SIZE, 0, key) == -EINVAL)
			return key;
	return 0;
}
