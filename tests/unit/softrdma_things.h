/* SPDX-License-Identifier: BSD-2-Clause */
/* One of everything that a context has, made step by step as far as it goes, for tests of what happens when it does not. */
#pragma once

#include "softrdma_util.h"

#define THINGS_SIZE 65536u
#define THINGS 13

struct things {
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp[2], *ud;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	int joined;
	union ibv_gid group;
	char *buf;
};

struct ibv_qp *things_qp(struct things *t, enum ibv_qp_type type, struct ibv_srq *srq);
/* As far as it goes. The step that failed, or THINGS; *ret_err says why. */
int things_make(struct things *t, int *ret_err);
void things_unmake(struct things *t);
/* A message from QP 0 to itself. */
void things_message(struct things *t);
/* Runs @fn in a child, so that a signal is seen; 77 is passed on. */
int in_child(void (*fn)(void));
