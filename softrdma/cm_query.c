/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What librdmacm asks of an id: its addresses, its path, and the attributes that move its QP through INIT, RTR and RTS.
 * librdmacm asks for the path in two forms, the kernel's older one and the wire's (IBA 15.2.5.16). No state of its own.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "softrdma/device.h"

#define PKEY 0xffff
#define RATE_100_GBPS 16

/* A path record as the subnet administrator would send it. */
struct path_record {
	uint64_t service_id;
	uint8_t dgid[16], sgid[16];
	uint16_t dlid, slid;
	uint32_t flow_hop_limit;
	uint8_t tclass, reversible_numpath;
	uint16_t pkey, qos_sl;
	uint8_t mtu, rate, packet_lifetime, preference, reserved[6];
};
_Static_assert(sizeof(struct path_record) == 64, "IBA 15.2.5.16");

#define EXACTLY 0x80 /* selector 2 in the upper two bits */

static uint16_t be16(uint16_t v) { return __builtin_bswap16(v); }

static uint8_t lifetime(const struct cm_id *id)
{
	return id->ack_timeout ? (uint8_t)(id->ack_timeout - 1) : CM_PACKET_LIFETIME;
}

uint8_t cm_ack_timeout(const struct cm_id *id)
{
	return (uint8_t)(lifetime(id) + 1);
}

static int has_path(const struct cm_id *id)
{
	return id->state >= CM_ROUTE_RESOLVED && id->state != CM_LISTENING && id->has_device;
}

/* Only what is known goes to the program, whose struct may be an older, shorter one. */
int cm_query_route(struct cm_id *id, struct rdma_ucm_query_route_resp *r)
{
	struct ib_user_path_rec *p = &r->ib_route[0];
	struct cm_place own;

	memcpy(&r->src_addr, &id->src, sizeof(r->src_addr));
	memcpy(&r->dst_addr, &id->dst, sizeof(r->dst_addr));
	if (!id->has_device)
		return 0;
	cm_place_of(id, &own);
	r->node_guid = __builtin_bswap64(own.guid);
	r->port_num = own.port;
	memcpy(p->sgid, own.gid, 16);
	memcpy(p->dgid, id->conn.remote_gid, 16);
	p->pkey = PKEY;
	r->num_paths = has_path(id);
	if (!r->num_paths)
		return 0;
	p->dlid = be16(id->conn.remote_lid);
	p->slid = be16(own.lid);
	p->reversible = 1;
	p->mtu = own.mtu;
	p->hop_limit = 64;
	p->numb_path = 1;
	p->mtu_selector = p->rate_selector = p->packet_life_time_selector = 2;
	p->rate = RATE_100_GBPS;
	p->packet_life_time = lifetime(id);
	return 0;
}

int cm_query_addr(struct cm_id *id, struct rdma_ucm_query_addr_resp *r)
{
	struct cm_place own;

	r->src_size = (uint16_t)cm_address_len(&id->src);
	r->dst_size = (uint16_t)cm_address_len(&id->dst);
	memcpy(&r->src_addr, &id->src, sizeof(r->src_addr));
	memcpy(&r->dst_addr, &id->dst, sizeof(r->dst_addr));
	if (!id->has_device)
		return 0;
	cm_place_of(id, &own);
	r->node_guid = __builtin_bswap64(own.guid);
	r->port_num = own.port;
	r->pkey = PKEY;
	return 0;
}

static void ib_address(const struct cm_id *id, const union cm_addr *a, const uint8_t gid[16], union cm_addr *to)
{
	if (a->family == AF_IB) {
		*to = *a;
		return;
	}
	to->ib.family = AF_IB;
	to->ib.pkey = PKEY;
	memcpy(to->ib.addr, gid, 16);
	to->ib.sid = __builtin_bswap64((uint64_t)id->ps << 16 | cm_address_port(a));
	to->ib.sid_mask = UINT64_MAX;
}

int cm_query_gid(struct cm_id *id, struct rdma_ucm_query_addr_resp *r)
{
	union cm_addr src = { 0 }, dst = { 0 };
	struct cm_place own = { .port = 0 };

	cm_query_addr(id, r);
	if (id->has_device)
		cm_place_of(id, &own);
	ib_address(id, &id->src, own.gid, &src);
	ib_address(id, &id->dst, id->conn.remote_gid, &dst);
	memcpy(&r->src_addr, &src, sizeof(r->src_addr));
	memcpy(&r->dst_addr, &dst, sizeof(r->dst_addr));
	r->src_size = r->dst_size = sizeof(struct cm_sockaddr_ib);
	return 0;
}

int cm_query_path(struct cm_id *id, struct rdma_ucm_query_path_resp *r, size_t room)
{
	struct path_record p = {
		.dlid = be16(id->conn.remote_lid),
		.flow_hop_limit = __builtin_bswap32(64),
		.reversible_numpath = 0x81,
		.pkey = PKEY,
		.rate = EXACTLY | RATE_100_GBPS,
		.packet_lifetime = EXACTLY | lifetime(id),
	};
	struct cm_place own;

	r->num_paths = 0;
	if (!has_path(id) || room < sizeof(*r) + sizeof(r->path_data[0]))
		return 0;
	cm_place_of(id, &own);
	p.slid = be16(own.lid);
	p.mtu = (uint8_t)(EXACTLY | own.mtu);
	memcpy(p.dgid, id->conn.remote_gid, 16);
	memcpy(p.sgid, own.gid, 16);
	r->num_paths = 1;
	r->path_data[0].flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
	r->path_data[0].reserved = 0;
	memcpy(r->path_data[0].path_rec, &p, sizeof(p));
	return 0;
}

/* ---- attributes of the QP ---- */

static void attr_init(struct cm_id *id, struct ib_uverbs_qp_attr *a)
{
	struct cm_place own;

	cm_place_of(id, &own);
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	a->port_num = own.port;
	if (id->qp_type == IBV_QPT_UD) {
		a->qp_attr_mask |= IBV_QP_QKEY;
		a->qkey = id->ps == RDMA_PS_IPOIB ? CM_QKEY_IPOIB : CM_QKEY;
		return;
	}
	a->qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
	/* Before there is a connection nobody may write; as it is made, its parameters say what may be done. */
	if (id->state < CM_REQ_SENT)
		return;
	a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (id->conn.responder_resources)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
}

static int attr_rtr(struct cm_id *id, struct ib_uverbs_qp_attr *a)
{
	struct cm_place own;

	if (id->state < CM_REP_RCVD)
		return -EINVAL;
	cm_place_of(id, &own);
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	cm_ah_fill(id, &a->ah_attr, id->conn.remote_lid, id->conn.remote_gid);
	a->path_mtu = id->conn.mtu < own.mtu ? id->conn.mtu : own.mtu; /* another life's port */
	a->dest_qp_num = id->conn.remote_qpn;
	a->rq_psn = id->conn.remote_psn;
	if (id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_RECV) {
		a->qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		a->max_dest_rd_atomic = id->conn.responder_resources;
	}
	return 0;
}

static int attr_rts(struct cm_id *id, struct ib_uverbs_qp_attr *a)
{
	int requester = id->qp_type == IBV_QPT_RC || id->qp_type == IBV_QPT_XRC_SEND;

	if (id->state < CM_REP_RCVD)
		return -EINVAL;
	a->qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	a->sq_psn = id->conn.psn;
	if (requester) {
		a->qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		a->retry_cnt = id->conn.retry_count;
		a->rnr_retry = id->conn.rnr_retry_count;
		a->max_rd_atomic = id->conn.initiator_depth;
	}
	if (requester || id->qp_type == IBV_QPT_XRC_RECV) {
		a->qp_attr_mask |= IBV_QP_TIMEOUT;
		a->timeout = cm_ack_timeout(id);
	}
	return 0;
}

int cm_init_qp_attr(struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *a)
{
	if (!id->has_device)
		return -ENODEV;
	a->qp_state = state;
	if (id->qp_type == IBV_QPT_UD || state == IBV_QPS_INIT) {
		attr_init(id, a);
		return 0;
	}
	if (state == IBV_QPS_RTR)
		return attr_rtr(id, a);
	return state == IBV_QPS_RTS ? attr_rts(id, a) : -EINVAL;
}
