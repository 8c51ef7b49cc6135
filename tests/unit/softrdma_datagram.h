/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams of an end. */
#pragma once

#include "softrdma_util.h"

#define GRH 40 /* what a datagram's receive has before the data */

/* Of the port that @e is at, or of @gid. */
struct ibv_ah *datagram_address(struct end *e, const union ibv_gid *gid);
/* From the start of the buffer of @e. */
int datagram_post(struct end *e, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t id, uint32_t len);
/* Skips a test that has nothing to see through fermata's plugin, which these tests also run over. */
void device_only(void);
