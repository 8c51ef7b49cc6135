/* SPDX-License-Identifier: BSD-2-Clause */
/* The survivor of a death between two instructions (softrdma_steps.c), and what its queues have to be like afterwards. */
#pragma once

#include "softrdma_util.h"

#define SCENE_SIZE (256u << 10)
#define SCENE_SLOT 8192u
#define SRQ_NUMBER (END_QPS - 1) /* where in an end's name the number of its shared queue stands */

enum scene_flag {
	SHARED = 1, /* receives come from a shared queue */
	KICK = 2,   /* the survivor's own send waits for a receive, and the child runs it */
	LAP = 4,    /* the completion queue goes round before anybody looks at the dead one's queue pair */
	BAD = 8,    /* the request is refused: the queue pair goes into error */
	ADD = 16,   /* a fetch-and-add */
	LIMIT = 32, /* the shared queue's limit is reached */
	XRC = 64,   /* an extended connection: its messages name the shared queue */
	AWAY = 128, /* which is another context's than the target */
};

struct scene {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode op;
	uint32_t len;
	unsigned int flags;
};

extern const struct scene *scene;

struct survivor {
	struct end e; /* its QP 0 is the child's; 1 sends to 2, to see that others go on */
	struct end away; /* where the shared queue is, if it is not with the queue pairs */
	struct ibv_xrcd *domain, *away_domain;
	struct ibv_mr *mr; /* e's buffer, where the receives are */
	struct ibv_srq *srq;
	uint32_t posted, succeeded, flushed, loops; /* receives of the child's QP; of the shared queue: of all */
	uint32_t seen;				    /* bits of the wr_ids that have completed */
	uint32_t sent;				    /* completions of our own send that the child runs */
};

void survivor_open(struct survivor *s);
void survivor_close(struct survivor *s);
/* Everything is posted and armed, and the child is about to begin its call. */
void survivor_meet(struct survivor *s, int sock);
/* The child is dead; @ended: its call had returned. */
void survivor_check(struct survivor *s, int ended);
