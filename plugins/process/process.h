/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this plugin share. */
#pragma once

#include <stdint.h>

/* process_began.c: when this process was first begun, in ticks of CLOCK_BOOTTIME; 0: it is not known. The others: as the plugin's hooks. */
uint64_t process_began(void);
int process_began_recreate(uint64_t was);
int process_began_learn(void);
int process_began_open(const char *path, int flags);
