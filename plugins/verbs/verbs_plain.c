/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that programs can use but that are not saved yet: queue pairs that are no reliable connections or that share a receive queue, shared
 * receive queues, address handles. They are shadows as the others are, and work is posted and completed as theirs; a checkpoint while one is there
 * is refused. No state.
 */
#include "plugins/verbs/verbs_internal.h"

static const char *kind_of(const struct shadow_qp *qp)
{
	switch (qp->pub.qp_type) {
	case IBV_QPT_UC:
		return "unreliably connected";
	case IBV_QPT_UD:
		return "of datagrams";
	default:
		return "with a shared receive queue";
	}
}

int verbs_plain_quiesce(void)
{
	struct shadow_context *c;
	struct shadow_qp *qp;

	for_each_context(c) {
		const char *device = c->device->pub.name;

		list_each(qp, &c->qps, link)
			if (qp->plain)
				return fermata_fail(-EOPNOTSUPP, "QP 0x%x on %s is %s, which cannot be saved yet", qp->pub.qp_num, device,
						    kind_of(qp));
		if (!list_empty(&c->srqs))
			return fermata_fail(-EOPNOTSUPP, "there is a shared receive queue on %s, which cannot be saved yet", device);
		if (!list_empty(&c->ahs))
			return fermata_fail(-EOPNOTSUPP, "there is an address handle on %s, which cannot be saved yet", device);
	}
	return 0;
}
