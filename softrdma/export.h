/* SPDX-License-Identifier: BSD-2-Clause */
/* Symbols of libibverbs that its header declares under other names or not at all. */
#pragma once

#include "softrdma/device.h"

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
/* async.c: for the verbs plugin. */
int softrdma_async_raise(struct ibv_context *context, const struct ibv_async_event *event);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);

/* unsupported.c: operations that answer "not supported". */
void sr_unsupported_fill(struct verbs_context *v);
