/* SPDX-License-Identifier: BSD-2-Clause */
/* What the device says of its abilities and limits; its names are in port.c. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "softrdma/device.h"
#include "softrdma/export.h"

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
	const struct sr_context *ctx = sr_context(context);

	*a = (struct ibv_device_attr){
		.fw_ver = FERMATA_VERSION,
		.node_guid = htobe64(sr_device_guid(ctx->device)),
		.sys_image_guid = htobe64(sr_guid()),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffffffffffff000ull,
		.vendor_id = 0x02c9,
		.vendor_part_id = 4099,
		.max_qp = SR_MAX_QP,
		.max_qp_wr = SR_MAX_WR,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SHUTDOWN_PORT |
				    IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC,
		.max_sge = SR_MAX_SGE,
		.max_sge_rd = SR_MAX_SGE,
		.max_cq = SR_MAX_QP,
		.max_cqe = SR_MAX_CQE,
		.max_mr = SR_MAX_MR,
		.max_pd = SR_MAX_PD,
		.max_qp_rd_atom = SR_MAX_RD_ATOMIC,
		.max_res_rd_atom = SR_MAX_RD_ATOMIC * (int)SR_MAX_QP,
		.max_qp_init_rd_atom = SR_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = SR_MAX_SRQ,
		.max_srq_wr = SR_MAX_WR,
		.max_srq_sge = SR_MAX_SGE,
		.max_mw = SR_MAX_MR,
		.max_ah = SR_MAX_AH,
		.max_mcast_grp = SR_MAX_GROUP,
		.max_mcast_qp_attach = SR_MAX_MEMBER,
		.max_total_mcast_qp_attach = SR_MAX_MEMBER,
		.max_pkeys = (uint16_t)ctx->pkeys,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = (uint8_t)ctx->ports,
	};
	return 0;
}

#define ODP_UD (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)
#define ODP_UC (ODP_UD | IBV_ODP_SUPPORT_WRITE)
#define ODP_RC (ODP_UC | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC)

int sr_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex a = {
		.odp_caps = { .general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
			      .per_transport_caps = { .rc_odp_caps = ODP_RC, .uc_odp_caps = ODP_UC,
						      .ud_odp_caps = ODP_UD } },
		.xrc_odp_caps = ODP_RC,
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = 1000000, /* kHz */
		.max_dm_size = SR_MAX_DM,
		.cq_mod_caps = { .max_cq_count = SR_MAX_MODERATION, .max_cq_period = SR_MAX_MODERATION },
		.phys_port_cnt_ex = sr_context(context)->ports,
	};

	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof(struct ibv_device_attr))
		return EINVAL;
	ibv_query_device(context, &a.orig_attr);
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof(a) ? size : sizeof(a));
	return 0;
}

EXPORT uint32_t softrdma_sends_left(struct ibv_qp *ibqp)
{
	const struct sr_shm_qp *q = sr_qp(ibqp)->shm;

	return atomic_load(&q->sq_tail) - atomic_load(&q->sq_head);
}

EXPORT uint32_t softrdma_refusals(struct ibv_qp *ibqp)
{
	return sr_net_refusals(sr_qp(ibqp));
}

EXPORT uint32_t softrdma_events_unread(struct ibv_cq *ibcq, uint32_t *ret_armed)
{
	const struct sr_cq *cq = sr_cq(ibcq);
	uint64_t notify = atomic_load(&cq->shm->notify), state = notify & SR_NOTIFY_STATE;

	*ret_armed = state == SR_ARMED_ANY ? 1 : state == SR_ARMED_SOLICITED ? 2 : 0;
	return (uint32_t)(notify / SR_NOTIFY_EVENT) - cq->taken;
}

EXPORT int softrdma_established(struct ibv_qp *ibqp, int now)
{
	struct sr_shm_qp *q = sr_qp(ibqp)->shm;

	if (now)
		q->established = 1;
	return q->established != 0;
}

EXPORT int softrdma_on_the_wire(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context(context);

	return ctx->net ? !sr_net_idle(ctx) : -1;
}
