/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection keys: pkeys(7). A key is 1..15; bit N of a set: key N. */
#pragma once

#include <stdint.h>

uint32_t keys_taken(void); /* all that nobody could have now: the program's, and the kernel's own */
/* The one of @taken that the kernel has taken for itself, for memory which can only be executed; 0: none. @page: one that nothing else is done with. */
uint32_t keys_execute_only(uint32_t taken, void *page);
uint32_t keys_take_all(void); /* those that it has taken so */
void keys_free(uint32_t keys);
int keys_give(uint64_t start, uint64_t length, uint32_t prot, uint32_t key); /* 0 or -errno */
