/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sites, and where addresses lead to. A site is a port of this host as a number: its link layer, device and port; 0 is none.
 * Requests lead from site to site: a queue pair is not found at another port than its own. No state.
 */
#include <endian.h>
#include <string.h>

#include "softrdma/name.h"

static uint16_t site_of(const struct sr_context *ctx, uint32_t device, uint32_t port)
{
	return (uint16_t)((ctx->ethernet ? 0x100u : 0u) + 1 + device * SR_MAX_PORTS + port - 1);
}

uint16_t sr_own_site(const struct sr_context *ctx, uint32_t port)
{
	return site_of(ctx, ctx->device, port);
}

static int address_is(struct sr_port *p, const uint8_t ip[16])
{
	return !memcmp(p->gid[0].raw, ip, sizeof(p->gid[0].raw));
}

static int gid_leads(const struct sr_context *ctx, const struct sr_host *h, const union ibv_gid *gid, uint32_t device,
		     uint32_t port)
{
	uint64_t id = be64toh(gid->global.interface_id);

	if (be64toh(gid->global.subnet_prefix) != SR_SUBNET)
		return 0;
	if (ctx->ethernet)
		return id == sr_name_mac_id(h, device, port);
	return !((id ^ sr_name_port_guid(h, device, port)) & ((1ull << SR_ALIAS_SHIFT) - 1)) &&
	       (id ^ sr_name_port_guid(h, device, port)) >> SR_ALIAS_SHIFT < SR_MAX_GIDS;
}

static uint16_t site_on(const struct sr_context *ctx, const struct sr_host *h, const struct ibv_ah_attr *a)
{
	struct sr_port wanted = { .gid[0] = a->grh.dgid };
	uint32_t d, p;

	for (d = 0; d < SR_MAX_DEVICES; d++)
		for (p = 1; p <= SR_MAX_PORTS; p++)
			if (a->is_global ? gid_leads(ctx, h, &a->grh.dgid, d, p) : a->dlid == sr_name_lid(h, d, p))
				return site_of(ctx, d, p);
	if (ctx->ethernet && a->is_global && sr_name_addresses(h, address_is, &wanted))
		return site_of(ctx, 0, 1);
	return 0;
}

/* Where the address leads to on this host; 0: elsewhere, or nowhere. */
uint16_t sr_site_find(const struct sr_context *ctx, const struct ibv_ah_attr *a)
{
	return site_on(ctx, &ctx->host, a);
}

uint16_t sr_site_of(const struct sr_context *ctx, const struct sr_seg *seg, const struct ibv_ah_attr *a)
{
	struct sr_host h = ctx->host;

	h.name = seg->host_name;
	h.address = seg->host_address;
	h.mask = seg->host_mask;
	return site_on(ctx, &h, a);
}

/* The host that it would be, whose name is then looked for as that of this one is. */
uint32_t sr_host_find(const struct sr_context *ctx, const struct ibv_ah_attr *a, uint16_t *ret_site)
{
	struct sr_host h = ctx->host;
	uint64_t id = be64toh(a->grh.dgid.global.interface_id);

	if (!h.address)
		return 0;
	if (!a->is_global)
		h.address = (h.address & h.mask) | ((a->dlid - 1u) & ((1u << SR_LID_HOST_BITS) - 1));
	else if (ctx->ethernet && be64toh(a->grh.dgid.global.subnet_prefix) == SR_SUBNET) /* a MAC's, with ff:fe in its middle */
		h.address = (uint32_t)(id >> 40 & 0xff) << 24 | (uint32_t)(id & 0xffffff);
	else
		h.address = (uint32_t)id;
	*ret_site = site_on(ctx, &h, a);
	return *ret_site ? h.address : 0;
}
