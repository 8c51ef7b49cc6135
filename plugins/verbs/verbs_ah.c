/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles: not virtualised yet. */
#include "plugins/verbs/verbs_internal.h"

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	VERBS_PASS(ibv_create_ah, NULL, pd, attr);
	return verbs_unsupported();
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	VERBS_PASS(ibv_init_ah_from_wc, -1, context, port, wc, grh, attr);
	errno = EOPNOTSUPP;
	return -1;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	VERBS_PASS(ibv_create_ah_from_wc, NULL, pd, wc, grh, port);
	return verbs_unsupported();
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	VERBS_PASS(ibv_destroy_ah, EOPNOTSUPP, ah);
	return EOPNOTSUPP;
}

EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6],
				       uint16_t *vid)
{
	VERBS_PASS(ibv_resolve_eth_l2_from_gid, -1, context, attr, mac, vid);
	return -1;
}
