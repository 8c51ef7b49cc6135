/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything of the public interface that this device does not do, answered aloud: NULL and errno, or the error
 * itself. Each name must be here, for the real library would be called in its place with a context that is not its
 * own.
 */
#include <errno.h>
#include <string.h>

#include "softrdma/export.h"

static void *refuse(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

/* Nothing is pinned: every region is "on demand", and there is nothing to fetch. */
static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
		     uint32_t n)
{
	if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	return n ? 0 : EINVAL;
}

static int refuse_code(void)
{
	return EOPNOTSUPP;
}

/* Operations that all answer the same way, whatever they are asked. */
#define SET(v, field, fn) ((v)->field = (__typeof__((v)->field))(void (*)(void))(fn))

void sr_unsupported_fill(struct verbs_context *v)
{
	v->advise_mr = advise_mr;
	SET(v, alloc_null_mr, refuse);
	SET(v, read_counters, refuse_code);
	SET(v, attach_counters_point_flow, refuse_code);
	SET(v, create_counters, refuse);
	SET(v, destroy_counters, refuse_code);
	SET(v, modify_flow_action_esp, refuse_code);
	SET(v, destroy_flow_action, refuse_code);
	SET(v, create_flow_action_esp, refuse);
	SET(v, modify_qp_rate_limit, refuse_code);
	SET(v, post_srq_ops, refuse_code);
	SET(v, destroy_rwq_ind_table, refuse_code);
	SET(v, create_rwq_ind_table, refuse);
	SET(v, destroy_wq, refuse_code);
	SET(v, modify_wq, refuse_code);
	SET(v, create_wq, refuse);
	SET(v, ibv_destroy_flow, refuse_code);
	SET(v, ibv_create_flow, refuse);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					int access)
{
	return refuse();
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	return refuse();
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	return refuse();
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	return refuse();
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	return refuse();
}

EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

/* Data comes in order, to its last byte. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 1;
}

/* Nothing is pinned, so nothing needs to be kept out of a child. */
EXPORT int ibv_fork_init(void)
{
	return 0;
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}
