/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles: shadows, so that a program never holds the device's own. Each keeps what it was made of, in the names that the program knows; a restart makes
 * it again when the names of this life are known. Where a name is several ports now (verbs_fabric.c), the shadow has a handle of the device's to each, and whose queue pair
 * a datagram is for says which.
 */
#include "plugins/verbs/verbs_header.h"

static void more_destroy(struct shadow_ah *ah)
{
	for (unsigned int i = 0; ah->more && i < ah->more->count; i++)
		verbs_backend.ibv_destroy_ah(ah->more->to[i].real);
	fermata_free(ah->more);
	ah->more = NULL;
}

/* Those to the other ports of the name. 0 or -errno. In a device call. */
static int more_create(struct shadow_ah *ah)
{
	uint64_t address = verbs_ah_address(ah);
	uint32_t members[VERBS_HOMES - 1];
	int count = verbs_homes(address, members, VERBS_HOMES - 1);

	if (count <= 0)
		return count;
	ah->more = fermata_alloc(sizeof(*ah->more));
	if (!ah->more)
		return -ENOMEM;
	for (int i = 0; i < count; i++) {
		struct ibv_ah_attr attr = ah->attr;
		struct ibv_ah *real;

		verbs_ah_real(verbs_port_at(ah->pub.context, attr.port_num), &attr, members[i]);
		real = verbs_backend.ibv_create_ah(shadow_pd(ah->pub.pd)->real, &attr);
		if (!real) {
			more_destroy(ah);
			return errno ? -errno : -ENOMEM;
		}
		ah->more->to[i].real = real;
		ah->more->to[i].home = verbs_home(address, members[i]);
		ah->more->count++;
	}
	return 0;
}

struct ibv_ah *verbs_ah_to(const struct shadow_ah *ah, uint32_t member)
{
	uint64_t home = member ? verbs_home(verbs_ah_address(ah), member) : 0;

	for (unsigned int i = 0; home && i < ah->more->count; i++)
		if (ah->more->to[i].home == home)
			return ah->more->to[i].real;
	return ah->real;
}

/* The shadow of the device's new @real, which is NULL if it could not. In a device call. */
static struct ibv_ah *ah_wrap(struct ibv_pd *pd, const struct ibv_ah_attr *attr, struct ibv_ah *real)
{
	struct shadow_ah *ah = real ? fermata_alloc(sizeof(*ah)) : NULL;

	if (real && !ah) {
		verbs_backend.ibv_destroy_ah(real);
		errno = ENOMEM;
	}
	if (!ah)
		return NULL;
	ah->real = real;
	ah->attr = *attr;
	ah->pub = (struct ibv_ah){ .context = pd->context, .pd = pd, .handle = real->handle };
	if (verbs_moved && more_create(ah)) {
		verbs_backend.ibv_destroy_ah(real);
		fermata_free(ah);
		errno = ENOMEM;
		return NULL;
	}
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
		verbs_ah_real(verbs_port_at(pd->context, attr->port_num), &real, 0);
	ah = ah_wrap(pd, attr, verbs_backend.ibv_create_ah(shadow_pd(pd)->real, &real));
	fermata_device_leave();
	return ah;
}

int verbs_ah_recreate(struct shadow_ah *ah)
{
	struct ibv_ah_attr real = ah->attr;

	int r = 0;

	verbs_ah_real(verbs_port_at(ah->pub.context, real.port_num), &real, 0);
	fermata_free(ah->more); /* the handles went with the device */
	ah->more = NULL;
	ah->real = VERBS_DEVICE(verbs_backend.ibv_create_ah(shadow_pd(ah->pub.pd)->real, &real));
	if (ah->real)
		r = VERBS_DEVICE(more_create(ah));
	if (r)
		return fermata_fail(r, "an address handle cannot be made to each of the hosts that LID %u is now (errno %d)", ah->attr.dlid, -r);
	return ah->real ? 0 : fermata_fail(-errno, "an address handle to LID %u cannot be made again (error %d)", ah->attr.dlid, errno);
}

/* After a restart the program's names, in which completion and header are, are no device's. */
static int init_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	if (!verbs_moved)
		return verbs_backend.ibv_init_ah_from_wc(shadow_context(context)->real, port, wc, grh, attr);
	if (port < 1 || port > shadow_context(context)->device->ports) {
		errno = EINVAL;
		return -1;
	}
	*attr = (struct ibv_ah_attr){ .dlid = (uint16_t)wc->slid, .sl = wc->sl, .src_path_bits = wc->dlid_path_bits, .port_num = port,
				      .is_global = !!(wc->wc_flags & IBV_WC_GRH) };
	if (attr->is_global && verbs_header_answer(verbs_port_at(context, port), grh, &attr->grh)) {
		errno = ENOENT;
		return -1;
	}
	return 0;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	VERBS_PASS(ibv_init_ah_from_wc, -1, context, port, wc, grh, attr);
	return VERBS_DEVICE(init_from_wc(context, port, wc, grh, attr));
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	VERBS_PASS(ibv_create_ah_from_wc, NULL, pd, wc, grh, port);
	memset(&attr, 0, sizeof(attr));
	if (VERBS_DEVICE(init_from_wc(pd->context, port, wc, grh, &attr)))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

EXPORT int ibv_destroy_ah(struct ibv_ah *p)
{
	struct shadow_ah *ah = shadow_ah(p);
	int r;

	VERBS_PASS(ibv_destroy_ah, EOPNOTSUPP, p);
	fermata_device_enter();
	r = verbs_backend.ibv_destroy_ah(ah->real);
	if (!r) {
		more_destroy(ah);
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
