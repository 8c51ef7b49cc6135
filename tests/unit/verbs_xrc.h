/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects of extended connections of this process's end (verbs_pair.h); what cannot be made ends the process. */
#pragma once

#include "verbs_pair.h"

#define XRC_ROOM 256u /* of a receive */

struct ibv_xrcd *xrc_domain(struct ibv_context *ctx, int fd);
/* It completes on e.rcq. */
struct ibv_srq *xrc_srq(struct ibv_xrcd *domain, uint32_t *ret_number);
/* Both in INIT. */
struct ibv_qp *xrc_target(struct ibv_xrcd *domain);
struct ibv_qp *xrc_initiator(void);
struct ibv_qp *xrc_handle(struct ibv_xrcd *domain, uint32_t number);
/* Receive @id lies at @id times XRC_ROOM. */
void xrc_receive(struct ibv_srq *srq, uint64_t id);
/* 64 inline bytes that tell @id; @to, @rkey: remote memory. */
void xrc_post(struct ibv_qp *qp, uint32_t srqn, uint64_t id, enum ibv_wr_opcode op, unsigned int flags, uint64_t to, uint32_t rkey);
/* Receive @receive has what was sent as @id to @target. */
void xrc_got(uint64_t receive, uint32_t target, uint64_t id);
enum ibv_qp_state xrc_state(struct ibv_qp *qp);
