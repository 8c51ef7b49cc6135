/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each process of the storm (softrdma_storm.c) does with a partner: numbered messages in both directions, each announced by a word that is
 * written before it, and an addition at a time. What comes is checked as it comes. The processes find each other through the board, in shared memory.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "softrdma_util.h"

#define SURVIVORS 3
#define VICTIMS 4
#define PARTNERS (VICTIMS + SURVIVORS) /* a survivor's: victims first */
#define BITS (1u << 26) /* additions that are told apart */

/* Where two processes meet. Each writes its own half. */
struct cell {
	_Atomic uint32_t here, connected; /* generation of the victim; of the connection */
	_Atomic uint32_t ready;
	struct end_name victim, survivor;
};

struct board {
	struct cell cell[VICTIMS][SURVIVORS];
	struct end_name survivor[SURVIVORS];
	_Atomic uint32_t opened, stop, idle, closed;
	uint64_t sent[SURVIVORS][SURVIVORS], received[SURVIVORS][SURVIVORS]; /* by whom, with whom */
	uint64_t counter[SURVIVORS];
	_Atomic uint64_t messages;
	_Atomic uint8_t added[SURVIVORS][BITS / 8]; /* results of additions that somebody has got */
};

extern struct board *board;

/* One partner: numbered messages in each direction, and an addition at a time. */
struct stream {
	struct end_name other;
	int target; /* the survivor whose counter is there; -1: a victim */
	int up;
	uint32_t generation, sent, waiting, received;
	int adding;
	uint64_t last;
};

struct party {
	struct end e;
	struct stream s[PARTNERS];
	int n, me; /* me: survivor's number, or -1 */
};

/* @me: a survivor's number, or -2 less a victim's. */
void party_open(struct party *p, int partners, int me);
/* Takes what has completed. How many. */
int party_complete(struct party *p);
/* Connects queue pair @q to @qpn of the other. */
void stream_start(struct party *p, int q, const struct end_name *other, uint32_t qpn);
/* The next message, if there is room. */
void stream_send(struct party *p, int q);
