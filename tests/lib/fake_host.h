/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The agent's services for unit tests of descriptors, without an agent: names and barriers between forked processes, and a
 * checkpoint, a "kill" and a "restart" that happen in place. The memory of a process stays as it is, which is what a restart
 * gives; its descriptors are closed and re-created. A name can be resolved only in a phase after the one that asked, as
 * with a coordinator.
 *
 * A test forks one runner with fake_run(); the runner builds state, forks the other members, and each of the @members calls
 * fake_checkpoint() and its kin at the same time. Descriptors from FAKE_RESERVED on are the harness's own.
 */
#pragma once

#include <stdint.h>

#include "base/path_map.h"

#define FAKE_RESERVED 900

#define CHECK(cond)                                                                                     \
	do {                                                                                            \
		if (!(cond))                                                                            \
			fake_die(__FILE__, __LINE__, #cond);                                            \
	} while (0)

_Noreturn void fake_die(const char *file, int line, const char *what);

/* Runs @body in a child with @members members in all; fails the calling test unless it exits 0. */
void fake_run(unsigned int members, void (*body)(void));
/* Forks one more member, which runs @body and exits 0; its pid. fake_reap waits for it and checks. */
int fake_member(void (*body)(void));
void fake_reap(int pid);

void fake_barrier(void);

/* QUIESCE, DRAIN, WRITE with barriers. 0, or the first error of any member; the text of this one is in fake_text. */
int fake_checkpoint(void);
extern void (*fake_before_round)(unsigned int round); /* of the drain; NULL: nothing is to happen */
void fake_resume(void);
/* Closes all that the program had and goes through the restart's phases. 0 or an error as above. */
void fake_kill(void);
int fake_restart(void);
extern char fake_text[512];
extern struct path_map fake_moved; /* what a restart finds elsewhere */

/* The three above in one: the state must have come back. */
void fake_checkpoint_restart(void);
/* Checkpoint, then on. */
void fake_checkpoint_resume(void);
/* Open descriptors below FAKE_RESERVED, to find strays. */
int fake_fd_count(void);
