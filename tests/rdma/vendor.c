/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stands in for libmlx5 and libefa, with a device of theirs: it knows one as they do, by a word behind the public struct. Of such a device each
 * call says yes, and that is the end: what a program would do then goes past verbs. Of another one it says no. No state.
 */
#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/rdma/vendor.h"

#define EXPORT __attribute__((visibility("default")))

static bool is_ours(struct ibv_device *device);
EXPORT struct vendor vendor = { is_ours };

static bool is_ours(struct ibv_device *device)
{
	return ((const void *const *)(const void *)device)[VENDOR_WORD] == &vendor;
}

static int refuse(struct ibv_device *device, const char *call)
{
	if (!is_ours(device))
		return EOPNOTSUPP;
	dprintf(2, "vendor: %s finds a device of its own\n", call);
	abort();
}

static void *refuse_object(struct ibv_device *device, const char *call)
{
	errno = refuse(device, call);
	return NULL;
}

EXPORT bool mlx5dv_is_supported(struct ibv_device *device)
{
	return is_ours(device);
}

EXPORT struct ibv_context *mlx5dv_open_device(struct ibv_device *device, struct mlx5dv_context_attr *attr)
{
	return refuse_object(device, __func__);
}

EXPORT int mlx5dv_query_device(struct ibv_context *context, struct mlx5dv_context *attr)
{
	return refuse(context->device, __func__);
}

EXPORT struct ibv_cq_ex *mlx5dv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr, struct mlx5dv_cq_init_attr *more)
{
	return refuse_object(context->device, __func__);
}

EXPORT struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr, struct mlx5dv_qp_init_attr *more)
{
	return refuse_object(context->device, __func__);
}

EXPORT int mlx5dv_init_obj(struct mlx5dv_obj *object, uint64_t type)
{
	return refuse(object->qp.in->context->device, __func__);
}

EXPORT int efadv_query_device(struct ibv_context *context, struct efadv_device_attr *attr, uint32_t length)
{
	return refuse(context->device, __func__);
}

EXPORT struct ibv_cq_ex *efadv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr, struct efadv_cq_init_attr *more, uint32_t length)
{
	return refuse_object(context->device, __func__);
}
