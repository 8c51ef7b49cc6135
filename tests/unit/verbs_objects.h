/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every kind of object and every state that a program can have at a checkpoint, each alone: either it comes back right from a restart, or the
 * checkpoint is refused, and says its name. Nothing is neither. Each case runs in a process of its own, a queue pair connected to itself in it.
 */
#pragma once

#include "verbs_pair.h"

struct object {
	const char *name;
	const char *refused; /* a word of the refusal; NULL: it is saved */
	void (*make)(void);
	void (*check)(void); /* after the restart, or after the refusal */
	void (*unmake)(void); /* then a checkpoint is refused no more */
};

/* Each file's end with one without a name. */
extern const struct object memory_objects[], window_objects[], queue_objects[], datagram_objects[], cm_objects[], other_objects[], xrc_objects[];

/* One queue pair, connected to itself. */
void connected(enum ibv_qp_type type);
void send_works(void);
/* Ends queue pair 0. */
void qp_unmake(void);
