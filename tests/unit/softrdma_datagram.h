/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable queue pairs on both ends, and datagrams from one. */
#pragma once

#include "softrdma_util.h"

#define GRH 40 /* what a datagram's receive has before the data */

/* Both ends in this process, each in a context of its own. */
struct pair {
	struct end a, b;
};

void pair_open(struct pair *p, enum ibv_qp_type type, size_t size);
void pair_close(struct pair *p);
enum ibv_qp_state qp_state_of(struct ibv_qp *qp);

/* Of the port that @e is at, or of @gid. */
struct ibv_ah *datagram_address(struct end *e, const union ibv_gid *gid);
/* From the start of the buffer of @e. */
int datagram_post(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t id, uint32_t len);
/* Skips a test that has nothing to see through fermata's plugin, which these tests also run over. */
void device_only(void);
