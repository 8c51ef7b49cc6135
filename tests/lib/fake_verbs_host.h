/* SPDX-License-Identifier: BSD-2-Clause */
/* See fake_verbs_host.c. */
#pragma once

#include <stddef.h>

#include "base/path_map.h"

struct fermata_plugin;

/* Before the fork: how many processes meet at each barrier. */
void fake_host_init(unsigned int processes);
void fake_host_barrier(void);
/* What the plugin said last that the user should read. */
const char *fake_host_failure(void);
/* All processes call it: quiesce, drain until everybody is quiet, then dump. 0 or -errno. */
int fake_host_checkpoint(const struct fermata_plugin *p);
/* All processes call it, after they have dropped their device objects: recreate, reconnect, refill. */
int fake_host_restart(const struct fermata_plugin *p);
extern struct path_map fake_moved; /* what a restart finds elsewhere */
extern int fake_system_answers; /* so many times --rdma is system, then soft */
/* Bytes dumped so far. */
size_t fake_host_sunk(void);
