/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues: not virtualised yet; a program sees a device without them. */
#include "plugins/verbs/verbs_internal.h"

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	VERBS_PASS(ibv_create_srq, NULL, pd, attr);
	return verbs_unsupported();
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	VERBS_PASS(ibv_modify_srq, EOPNOTSUPP, srq, attr, mask);
	return EOPNOTSUPP;
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	VERBS_PASS(ibv_query_srq, EOPNOTSUPP, srq, attr);
	return EOPNOTSUPP;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	VERBS_PASS(ibv_destroy_srq, EOPNOTSUPP, srq);
	return EOPNOTSUPP;
}

int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	*bad = wr;
	return EOPNOTSUPP;
}
