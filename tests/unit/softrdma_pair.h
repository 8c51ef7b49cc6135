/* SPDX-License-Identifier: BSD-2-Clause */
/* Two ends of one connection in this process, each in a context of its own. */
#pragma once

#include "softrdma_util.h"

struct pair {
	struct end a, b;
};

void pair_open(struct pair *p, size_t size);
void pair_open_as(struct pair *p, enum ibv_qp_type type, size_t size);
/* What b lets a do, and how often a tries when b has no receive. */
void pair_open_with(struct pair *p, size_t size, int access, int rnr_retry);
void pair_close(struct pair *p);

enum ibv_qp_state qp_state_of(struct ibv_qp *qp);
/* The one event of the context: of its queue pair 0. */
void expect_async(struct end *e, enum ibv_event_type type);
