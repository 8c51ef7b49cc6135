/* SPDX-License-Identifier: BSD-2-Clause */
/* What the program has asked of the kernel for its memory: that it is locked, advice, its nodes, its protection keys. */
#pragma once

#include <stdint.h>

void advice_given(int advice); /* MADV_*: by the program, or by a device's library, in whose call this is */
void advice_bound(void); /* mbind is called */
int advice_note(void); /* QUIESCE. 0, or -errno after fermata_fail */
uint32_t advice_execute_only_key(void); /* struct image_process; once noted */
void advice_restarted(void); /* when limits are those of the program again */
