/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the device says of itself: one active InfiniBand port with a LID, one GID (fe80:: and the GUID) and the
 * default partition key. GUID and LID come from the host's name, so all contexts of a host agree on them.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/utsname.h>

#include "softrdma/device.h"
#include "softrdma/export.h"

#define PORT_ATTR_OLD 48 /* bytes that the exported ibv_query_port may write */
#define WIDTH_4X 2
#define SPEED_EDR 32
#define PHYS_LINK_UP 5

static uint64_t host_hash(void)
{
	struct utsname u;
	uint64_t h = 0xcbf29ce484222325ull;
	const char *s;

	if (uname(&u))
		return h;
	for (s = u.nodename; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

uint64_t sr_guid(void)
{
	return 0x0253524400000000ull | (host_hash() & 0xffffffffu);
}

uint16_t sr_lid(void)
{
	return (uint16_t)(1 + host_hash() % 0xbfff);
}

void sr_port_name(struct sr_context *ctx)
{
	ctx->lid = sr_lid();
	ctx->gid.global.subnet_prefix = htobe64(0xfe80000000000000ull);
	ctx->gid.global.interface_id = htobe64(sr_guid());
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
	*a = (struct ibv_device_attr){
		.fw_ver = FERMATA_VERSION,
		.node_guid = htobe64(sr_guid()),
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
		.max_pd = 1 << 20,
		.max_qp_rd_atom = 16,
		.max_res_rd_atom = 16 * (int)SR_MAX_QP,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = SR_MAX_QP,
		.max_srq_wr = SR_MAX_WR,
		.max_srq_sge = SR_MAX_SGE,
		.max_mw = SR_MAX_MR,
		.max_ah = 1 << 20,
		.max_mcast_grp = SR_MAX_GROUP,
		.max_mcast_qp_attach = SR_MAX_MEMBER,
		.max_total_mcast_qp_attach = SR_MAX_MEMBER,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
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
		.phys_port_cnt_ex = 1,
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

int sr_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	uint16_t lid = sr_context(context)->lid;
	struct ibv_port_attr a = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = 1,
		.max_msg_sz = SR_MAX_MSG,
		.pkey_tbl_len = 1,
		.lid = lid,
		.sm_lid = lid,
		.max_vl_num = 1,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_EDR,
		.phys_state = PHYS_LINK_UP,
		.link_layer = IBV_LINK_LAYER_INFINIBAND,
	};

	if (port != 1)
		return EINVAL;
	memset(attr, 0, len);
	memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return sr_query_port(context, port, (struct ibv_port_attr *)attr, PORT_ATTR_OLD);
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	*gid = sr_context(context)->gid;
	return 0;
}

EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	*type = 0; /* InfiniBand, or RoCE v1 */
	return 0;
}

static void gid_entry(struct ibv_context *context, void *to, size_t size)
{
	struct ibv_gid_entry e = { .port_num = 1, .gid_type = IBV_GID_TYPE_IB };

	ibv_query_gid(context, 1, 0, &e.gid);
	memset(to, 0, size);
	memcpy(to, &e, size < sizeof(e) ? size : sizeof(e));
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	if (port != 1 || flags)
		return EINVAL;
	if (index)
		return ENODATA;
	gid_entry(context, entry, size);
	return 0;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t size)
{
	if (flags || !max)
		return -EINVAL;
	gid_entry(context, entries, size);
	return 1;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (port == 1 && pkey == 0xffff)
		return 0;
	errno = EINVAL;
	return -1;
}
