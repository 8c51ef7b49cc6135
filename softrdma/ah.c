/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address handles: an address as the program said it, and what the engine needs of it. Each post copies that into
 * the request (IBA 10.4.2.1 lets a program end a handle as soon as the requests that named it are complete; here
 * that is when the post returns).
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "softrdma/export.h"

/* On Ethernet every address is a GID (IBA, annex A16.4). */
int sr_ah_check(const struct sr_context *ctx, const struct ibv_ah_attr *a)
{
	if (!sr_port_is(ctx, a->port_num) || a->sl > 15)
		return EINVAL;
	if (!a->is_global)
		return ctx->ethernet ? EINVAL : 0;
	return a->grh.sgid_index < ctx->port[a->port_num - 1].gids ? 0 : EINVAL;
}

static void av_fill(struct sr_context *ctx, struct sr_av *av, const struct ibv_ah_attr *a)
{
	av->dlid = a->dlid;
	av->sl = a->sl;
	av->global = a->is_global != 0;
	av->multicast = av->global && sr_gid_is_group(a->grh.dgid.raw);
	av->site = av->multicast ? 0 : sr_site_find(ctx, a);
	if (!av->multicast && !av->site)
		av->host = sr_host_find(ctx, a, &av->site);
	av->sgid_index = av->global ? a->grh.sgid_index : 0;
	av->hop_limit = av->global ? a->grh.hop_limit : 0;
	if (!av->global)
		return;
	memcpy(av->dgid, a->grh.dgid.raw, sizeof(av->dgid));
	av->sgid_index = a->grh.sgid_index;
	av->tclass_flow = (uint32_t)a->grh.traffic_class << 20 | (a->grh.flow_label & 0xfffff);
}

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct sr_context *ctx = sr_context(pd->context);
	struct sr_ah *ah;
	int err = sr_ah_check(ctx, attr);

	if (!err && attr->is_global && sr_gid_is_group(attr->grh.dgid.raw))
		err = -sr_groups_map(ctx);
	if (!err)
		err = -sr_count(&ctx->ahs, SR_MAX_AH);
	ah = err ? NULL : arena_alloc(&ctx->arena, sizeof(*ah));
	if (!ah) {
		if (!err)
			atomic_fetch_sub(&ctx->ahs, 1);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	ah->ah = (struct ibv_ah){ .context = pd->context, .pd = pd };
	av_fill(ctx, &ah->av, attr);
	atomic_fetch_add(&sr_pd(pd)->users, 1);
	return &ah->ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct sr_context *ctx = sr_context(ah->context);

	atomic_fetch_sub(&sr_pd(ah->pd)->users, 1);
	atomic_fetch_sub(&ctx->ahs, 1);
	arena_free(&ctx->arena, sr_ah(ah));
	return 0;
}

static int gid_index(const struct sr_port *p, const union ibv_gid *gid)
{
	int i;

	for (i = 0; i < p->gids; i++)
		if (!memcmp(&p->gid[i], gid, sizeof(*gid)))
			return i;
	return -1;
}

/* The address of who sent @wc (IBA 11.2.2.3); the header comes with the datagram. */
EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	const struct sr_context *ctx = sr_context(context);
	int own;
	uint32_t flow;

	if (!sr_port_is(ctx, port)) {
		errno = EINVAL;
		return -1;
	}
	*attr = (struct ibv_ah_attr){ .dlid = (uint16_t)wc->slid, .sl = wc->sl, .src_path_bits = wc->dlid_path_bits,
				      .port_num = port };
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	own = sr_gid_is_group(grh->dgid.raw) ? 0 : gid_index(&ctx->port[port - 1], &grh->dgid);
	if (own < 0) {
		errno = ENOENT;
		return -1;
	}
	flow = be32toh(grh->version_tclass_flow);
	attr->is_global = 1;
	attr->grh = (struct ibv_global_route){ .dgid = grh->sgid, .flow_label = flow & 0xfffff, .hop_limit = 0xff,
					       .sgid_index = (uint8_t)own,
					       .traffic_class = (uint8_t)(flow >> 20) };
	return 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
