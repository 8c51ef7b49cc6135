/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows: not virtualised yet. */
#include "plugins/verbs/verbs_internal.h"

struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return verbs_unsupported();
}

int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return EOPNOTSUPP;
}

int verbs_dealloc_mw(struct ibv_mw *mw)
{
	return EOPNOTSUPP;
}
