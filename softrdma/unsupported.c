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

static int refuse_code(void)
{
	return EOPNOTSUPP;
}

/* Operations that all answer the same way, whatever they are asked. */
#define SET(v, field, fn) ((v)->field = (__typeof__((v)->field))(void (*)(void))(fn))

void sr_unsupported_fill(struct verbs_context *v)
{
	SET(v, advise_mr, refuse_code);
	SET(v, alloc_null_mr, refuse);
	SET(v, read_counters, refuse_code);
	SET(v, attach_counters_point_flow, refuse_code);
	SET(v, create_counters, refuse);
	SET(v, destroy_counters, refuse_code);
	SET(v, reg_dm_mr, refuse);
	SET(v, alloc_dm, refuse);
	SET(v, free_dm, refuse_code);
	SET(v, modify_flow_action_esp, refuse_code);
	SET(v, destroy_flow_action, refuse_code);
	SET(v, create_flow_action_esp, refuse);
	SET(v, modify_qp_rate_limit, refuse_code);
	SET(v, alloc_parent_domain, refuse);
	SET(v, dealloc_td, refuse_code);
	SET(v, alloc_td, refuse);
	SET(v, modify_cq, refuse_code);
	SET(v, post_srq_ops, refuse_code);
	SET(v, destroy_rwq_ind_table, refuse_code);
	SET(v, create_rwq_ind_table, refuse);
	SET(v, destroy_wq, refuse_code);
	SET(v, modify_wq, refuse_code);
	SET(v, create_wq, refuse);
	SET(v, query_rt_values, refuse_code);
	SET(v, create_cq_ex, refuse);
	SET(v, ibv_destroy_flow, refuse_code);
	SET(v, ibv_create_flow, refuse);
	SET(v, open_qp, refuse);
	SET(v, get_srq_num, refuse_code);
	SET(v, open_xrcd, refuse);
	SET(v, close_xrcd, refuse_code);
	SET(v, context.ops.alloc_mw, refuse);
	SET(v, context.ops.bind_mw, refuse_code);
	SET(v, context.ops.dealloc_mw, refuse_code);
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
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

EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6],
				       uint16_t *vid)
{
	return EOPNOTSUPP;
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
