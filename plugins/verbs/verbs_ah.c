/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles: shadows, so that a program never holds the device's own. Not saved yet (verbs_plain.c). */
#include "plugins/verbs/verbs_internal.h"

/* The shadow of the device's new @real, which is NULL if it could not. In a device call. */
static struct ibv_ah *ah_wrap(struct ibv_pd *pd, struct ibv_ah *real)
{
	struct shadow_ah *ah = real ? fermata_alloc(sizeof(*ah)) : NULL;

	if (real && !ah) {
		verbs_backend.ibv_destroy_ah(real);
		errno = ENOMEM;
	}
	if (!ah)
		return NULL;
	ah->real = real;
	ah->pub = (struct ibv_ah){ .context = pd->context, .pd = pd, .handle = real->handle };
	verbs_list_add(&shadow_context(pd->context)->ahs, &ah->link);
	return &ah->pub;
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah_attr real;
	struct ibv_ah *ah;

	VERBS_PASS(ibv_create_ah, NULL, pd, attr);
	fermata_device_enter();
	real = *attr;
	if (verbs_moved)
		verbs_ah_real(&real);
	ah = ah_wrap(pd, verbs_backend.ibv_create_ah(shadow_pd(pd)->real, &real));
	fermata_device_leave();
	return ah;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	VERBS_PASS(ibv_init_ah_from_wc, -1, context, port, wc, grh, attr);
	return VERBS_DEVICE(verbs_backend.ibv_init_ah_from_wc(shadow_context(context)->real, port, wc, grh, attr));
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah *ah;

	VERBS_PASS(ibv_create_ah_from_wc, NULL, pd, wc, grh, port);
	fermata_device_enter();
	ah = ah_wrap(pd, verbs_backend.ibv_create_ah_from_wc(shadow_pd(pd)->real, wc, grh, port));
	fermata_device_leave();
	return ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *p)
{
	struct shadow_ah *ah = shadow_ah(p);
	int r;

	VERBS_PASS(ibv_destroy_ah, EOPNOTSUPP, p);
	fermata_device_enter();
	r = verbs_backend.ibv_destroy_ah(ah->real);
	if (!r) {
		verbs_list_del(&ah->link);
		fermata_free(ah);
	}
	fermata_device_leave();
	return r;
}

EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6],
				       uint16_t *vid)
{
	VERBS_PASS(ibv_resolve_eth_l2_from_gid, EOPNOTSUPP, context, attr, mac, vid);
	return VERBS_DEVICE(verbs_backend.ibv_resolve_eth_l2_from_gid(shadow_context(context)->real, attr, mac, vid));
}
