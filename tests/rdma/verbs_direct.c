/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asks the vendors' libraries for direct verbs as UCX, NCCL and libfabric do, of every object that they ask with: the device, its context, a queue pair. The
 * answer has to be no, before and after a restart; verbs_alone.c, which calls this, then does with plain verbs. VERBS_DIRECT: the libraries, instead of libmlx5 and libefa.
 */
#include "tests/rdma/verbs_alone.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *libraries[4];
static int count;

static void wrong(const char *what)
{
	printf("wrong: %s is offered\n", what);
	exit(1);
}

static void load(void)
{
	const char *named = getenv("VERBS_DIRECT");
	char *names = strdup(named ? named : "libmlx5.so.1:libefa.so.1"), *rest = names, *name;

	while ((name = strsep(&rest, ":")) && count < 4) {
		libraries[count] = dlopen(name, RTLD_NOW | RTLD_LOCAL);
		if (libraries[count])
			count++;
		else
			printf("without %s: %s\n", name, dlerror());
	}
	free(names);
	if (!count)
		exit(77);
}

/* In @library: @name, if it has that. */
#define FIND(library, name) __typeof__(&name) ask_##name = (__typeof__(&name))dlsym(library, #name)

static void ask_mlx5(void *library, struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp *qp)
{
	struct ibv_qp_init_attr_ex of_qp = {
		.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct mlx5dv_qp_init_attr of_mlx5_qp = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS };
	struct mlx5dv_cq_init_attr of_mlx5_cq = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_FLAGS };
	struct mlx5dv_context_attr of_context = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_cq_init_attr_ex of_cq = { .cqe = 4 };
	struct mlx5dv_context told = { 0 };
	struct mlx5dv_qp inside = { 0 };
	struct mlx5dv_obj object = { .qp = { .in = qp, .out = &inside } };
	FIND(library, mlx5dv_is_supported);
	FIND(library, mlx5dv_open_device);
	FIND(library, mlx5dv_query_device);
	FIND(library, mlx5dv_create_cq);
	FIND(library, mlx5dv_create_qp);
	FIND(library, mlx5dv_init_obj);

	if (!ask_mlx5dv_is_supported)
		return;
	if (ask_mlx5dv_is_supported(context->device))
		wrong("mlx5dv_is_supported");
	if (ask_mlx5dv_open_device(context->device, &of_context))
		wrong("mlx5dv_open_device");
	if (ask_mlx5dv_query_device(context, &told) != EOPNOTSUPP)
		wrong("mlx5dv_query_device");
	if (ask_mlx5dv_create_cq(context, &of_cq, &of_mlx5_cq))
		wrong("mlx5dv_create_cq");
	if (ask_mlx5dv_create_qp(context, &of_qp, &of_mlx5_qp))
		wrong("mlx5dv_create_qp");
	if (!ask_mlx5dv_init_obj(&object, MLX5DV_OBJ_QP))
		wrong("mlx5dv_init_obj");
}

static void ask_efa(void *library, struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex of_cq = { .cqe = 4 };
	struct efadv_cq_init_attr of_efa_cq = { 0 };
	struct efadv_device_attr told = { 0 };
	FIND(library, efadv_query_device);
	FIND(library, efadv_create_cq);

	if (!ask_efadv_query_device)
		return;
	if (ask_efadv_query_device(context, &told, sizeof(told)) != EOPNOTSUPP)
		wrong("efadv_query_device");
	if (ask_efadv_create_cq(context, &of_cq, &of_efa_cq, sizeof(of_efa_cq)))
		wrong("efadv_create_cq");
}

void verbs_also(struct ibv_context *context, struct ibv_pd *pd, struct ibv_qp *qp)
{
	if (!count)
		load();
	for (int i = 0; i < count; i++) {
		ask_mlx5(libraries[i], context, pd, qp);
		ask_efa(libraries[i], context);
	}
}
