/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs plugin over softrdma, without an agent: two processes call the plugin's hooks where the agent would
 * (tests/lib/fake_verbs_host.c). A restart is simulated by closing every object of the device behind the shadows' backs: the plugin
 * must make all of it again from what it kept, under new numbers and keys, for softrdma draws them at random.
 */
#pragma once

#include "plugins/verbs/verbs_internal.h"
#include "softrdma_util.h"
#include "tests/lib/fake_verbs_host.h"

#define SIZE (1u << 20)

/* This process's end of the pair. */
extern struct end e;

/* Runs @a and @b as two processes; both must return 0. */
void pair_run(int (*a)(int), int (*b)(int));
/* In each: opens its end and connects it; closes it, when the other is through, too. */
void pair_begin(int sock, int qps);
int pair_over(void);

/* By both at once. */
void pair_checkpoint(void);
void pair_restart(void);
