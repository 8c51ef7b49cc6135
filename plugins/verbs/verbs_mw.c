/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory windows: passed through, and not saved yet. */
#include "plugins/verbs/verbs_internal.h"

struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_pd *real = shadow_pd(pd)->real;
	struct shadow_mw *mw;

	if (!real->context->ops.alloc_mw)
		return verbs_unsupported();
	fermata_device_enter();
	mw = fermata_alloc(sizeof(*mw));
	if (!mw)
		errno = ENOMEM;
	else
		mw->real = real->context->ops.alloc_mw(real, type);
	if (mw && mw->real) {
		mw->pub = (struct ibv_mw){ .context = pd->context, .pd = pd, .rkey = mw->real->rkey,
					   .handle = mw->real->handle, .type = type };
		verbs_unsaved_add(pd->context, UNSAVED_MW, 1);
	} else {
		fermata_free(mw);
		mw = NULL;
	}
	fermata_device_leave();
	return mw ? &mw->pub : NULL;
}

int verbs_dealloc_mw(struct ibv_mw *p)
{
	struct shadow_mw *mw = shadow_mw(p);
	int r = VERBS_DEVICE(mw->real->context->ops.dealloc_mw(mw->real));

	if (!r) {
		verbs_unsaved_add(p->context, UNSAVED_MW, -1);
		fermata_free(mw);
	}
	return r;
}

int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *p, struct ibv_mw_bind *bind)
{
	struct shadow_mw *mw = shadow_mw(p);
	int r = verbs_post_bind(shadow_qp(qp), mw->real, bind);

	p->rkey = mw->real->rkey;
	return r;
}
