/* SPDX-License-Identifier: BSD-2-Clause */
/* Symbols of libibverbs that its header declares under other names or not at all. */
#pragma once

#include "softrdma/device.h"

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
/* async.c: for the verbs plugin. */
int softrdma_async_raise(struct ibv_context *context, const struct ibv_async_event *event);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);

/*
 * For who checkpoints the program: how many requests of the send queue are not executed yet. Those that are not signalled say so
 * nowhere else.
 */
uint32_t softrdma_sends_left(struct ibv_qp *qp);
/* How many answers of another host's to its sends said that there is no receive. */
uint32_t softrdma_refusals(struct ibv_qp *qp);
/* How many events of @cq its program has not got yet; and how it is armed behind them: 0, or 1 + solicited_only. */
uint32_t softrdma_events_unread(struct ibv_cq *cq, uint32_t *ret_armed);
/* As ibv_get_cq_event of a channel whose descriptor is non-blocking, whether it is or not. */
int softrdma_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context);
/* Has the first message come to it? With @now it has, in a life before: nobody is told of it (COMM_EST) once more. */
int softrdma_established(struct ibv_qp *qp, int now);
/*
 * Who has @key for the region, from a life before, may use it: for those who cannot tell whose region it is. No region of the context may have it. 0 or -ENOSPC.
 */
int softrdma_key_alias(struct ibv_mr *mr, uint32_t key);
/* Is anything of this context's on its way between hosts at this moment? 1: something; 0: nothing; -1: there is no network. */
int softrdma_on_the_wire(struct ibv_context *context);

/* What the library's destructor calls before and after it looks into contexts, which may not vanish meanwhile. */
void softrdma_exit_bracket(void (*enter)(void), void (*leave)(void));

/* unsupported.c: operations that answer "not supported". */
void sr_unsupported_fill(struct verbs_context *v);
