/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains: nothing but their existence is kept. */
#include "plugins/verbs/verbs_internal.h"

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct shadow_context *c = shadow_context(context);
	struct shadow_pd *pd;

	VERBS_PASS(ibv_alloc_pd, NULL, context);
	fermata_device_enter();
	pd = fermata_alloc(sizeof(*pd));
	if (!pd)
		errno = ENOMEM;
	else
		pd->real = verbs_backend.ibv_alloc_pd(c->real);
	if (pd && pd->real) {
		pd->pub = (struct ibv_pd){ .context = context, .handle = pd->real->handle };
		verbs_list_add(&c->pds, &pd->link);
	} else {
		fermata_free(pd);
		pd = NULL;
	}
	fermata_device_leave();
	return pd ? &pd->pub : NULL;
}

int verbs_pd_recreate(struct shadow_context *c, struct shadow_pd *pd)
{
	pd->real = VERBS_DEVICE(verbs_backend.ibv_alloc_pd(c->real));
	return pd->real ? 0 : fermata_fail(-errno, "a protection domain on %s cannot be made again (error %d)",
					   c->device->pub.name, errno);
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *p)
{
	struct shadow_pd *pd = shadow_pd(p);
	int r;

	VERBS_PASS(ibv_dealloc_pd, EOPNOTSUPP, p);
	fermata_device_enter();
	r = verbs_backend.ibv_dealloc_pd(pd->real);
	if (!r) {
		verbs_list_del(&pd->link);
		fermata_free(pd);
	}
	fermata_device_leave();
	return r;
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	VERBS_PASS(ibv_import_pd, NULL, context, handle);
	return verbs_unsupported();
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	if (fermata_in_device())
		verbs_backend.ibv_unimport_pd(pd);
}
