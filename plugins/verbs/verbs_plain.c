/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that programs can use but that are not saved yet: queue pairs and shared receive queues of kinds that no constant of verbs.h had when this was written. They are shadows as
 * the others are, and work is posted and completed as theirs; a checkpoint while one is there is refused. No state.
 */
#include "plugins/verbs/verbs_internal.h"

int verbs_plain_quiesce(void)
{
	struct shadow_context *c;
	struct shadow_srq *srq;
	struct shadow_qp *qp;

	for_each_context(c) {
		const char *device = c->device->pub.name;

		list_each(qp, &c->qps, link)
			if (qp->plain || qp->attr_mask & IBV_QP_ALT_PATH)
				return fermata_fail(-EOPNOTSUPP, "QP 0x%x on %s is %s, which cannot be saved yet", qp->pub.qp_num, device,
						    qp->plain ? "of a special kind" : "one with an alternate path");
		list_each(srq, &c->srqs, link)
			if (srq->special)
				return fermata_fail(-EOPNOTSUPP, "there is a shared receive queue of a special kind on %s, which "
						    "cannot be saved yet", device);
	}
	return 0;
}

/* ---- operations of the context that only need the device's object ---- */

static int real_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t n)
{
	struct ibv_pd *real = shadow_pd(pd)->real;
	int (*advise)(struct ibv_pd *, enum ibv_advise_mr_advice, uint32_t, struct ibv_sge *, uint32_t) =
		VERBS_REAL_OP(real->context, advise_mr);
	int r = 0;

	if (!advise)
		return EOPNOTSUPP;
	if (!verbs_moved || !n)
		return advise(real, advice, flags, list, n);
	for (uint32_t i = 0; !r && i < n; i++) {
		struct ibv_sge one;

		verbs_sges_real(pd->context, &one, &list[i], 1);
		r = advise(real, advice, flags, &one, 1);
	}
	return r;
}

static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t n)
{
	return VERBS_DEVICE(real_advise(pd, advice, flags, list, n));
}

static int real_values(struct ibv_context *real, struct ibv_values_ex *values)
{
	int (*query)(struct ibv_context *, struct ibv_values_ex *) = VERBS_REAL_OP(real, query_rt_values);

	return query ? query(real, values) : EOPNOTSUPP;
}

static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	return VERBS_DEVICE(real_values(shadow_context(context)->real, values));
}

void verbs_plain_fill(struct verbs_context *v)
{
	v->create_qp_ex = verbs_create_qp_ex;
	v->create_srq_ex = verbs_create_srq_ex;
	v->get_srq_num = verbs_get_srq_num;
	v->advise_mr = advise_mr;
	v->query_rt_values = query_rt_values;
	verbs_domain_fill(v);
	verbs_xrcd_fill(v);
	verbs_mr_fill(v);
	verbs_dm_fill(v);
	verbs_cq_ex_fill(v);
}
