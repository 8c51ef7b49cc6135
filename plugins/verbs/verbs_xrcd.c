/* SPDX-License-Identifier: BSD-2-Clause */
/* Domains of extended connections: passed through, and not saved yet. */
#include "plugins/verbs/verbs_internal.h"

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct ibv_context *real = shadow_context(context)->real;
	struct ibv_xrcd *(*open)(struct ibv_context *, struct ibv_xrcd_init_attr *) = VERBS_REAL_OP(real, open_xrcd);
	struct shadow_xrcd *x;

	if (!open)
		return verbs_unsupported();
	fermata_device_enter();
	x = fermata_alloc(sizeof(*x));
	if (!x)
		errno = ENOMEM;
	else
		x->real = open(real, attr);
	if (x && x->real) {
		x->pub.context = context;
		verbs_unsaved_add(context, UNSAVED_XRCD, 1);
	} else {
		fermata_free(x);
		x = NULL;
	}
	fermata_device_leave();
	return x ? &x->pub : NULL;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct shadow_xrcd *x = shadow_xrcd(xrcd);
	int (*close)(struct ibv_xrcd *) = VERBS_REAL_OP(x->real->context, close_xrcd);
	int r = close ? VERBS_DEVICE(close(x->real)) : EOPNOTSUPP;

	if (!r) {
		verbs_unsaved_add(xrcd->context, UNSAVED_XRCD, -1);
		fermata_free(x);
	}
	return r;
}

void verbs_xrcd_fill(struct verbs_context *v)
{
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
}
