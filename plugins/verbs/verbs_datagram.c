/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams after a restart: what comes in names its sender by the fabric's names of this life, in the completion and in the global route header
 * before its data. The program is told the names that it knows, so what it compares, keeps and answers to stays right. No state.
 *
 * Also the datagram to nobody that closes an unsignalled tail in the drain: to a number that no queue pair has, at our own port, which drops it.
 */
#include "plugins/verbs/verbs_header.h"

/* @size bytes between @data and the head of a receive, in pieces. */
static void head_copy(struct ibv_context *context, const struct ibv_sge *sge, uint32_t n, char *data, size_t size, int write)
{
	for (uint32_t i = 0; i < n && size; i++) {
		size_t part = sge[i].length < size ? sge[i].length : size;
		char *there = verbs_memory_at(context, sge[i].lkey, sge[i].addr);

		if (write)
			memcpy(there, data, part);
		else
			memcpy(data, there, part);
		data += part;
		size -= part;
	}
}

void verbs_datagram_virtual(const struct shadow_qp *qp, struct ibv_wc *wc, const struct ibv_sge *sge, uint32_t n)
{
	const struct verbs_port *port = verbs_qp_port(qp);
	int routed = wc->wc_flags & IBV_WC_GRH;
	char bytes[VERBS_HEADER] = { 0 };
	struct verbs_header h;
	union ibv_gid from;

	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (!routed) {
		verbs_sender_virtual(port, &wc->src_qp, &wc->slid, NULL);
		return;
	}
	head_copy(qp->pub.context, sge, n, bytes, sizeof(bytes), 0);
	verbs_header_read(bytes, &h);
	from = h.from;
	verbs_sender_virtual(port, &wc->src_qp, &wc->slid, &from);
	if (!verbs_header_is_virtual(port, &h))
		h.from = from;
	verbs_header_virtual(port, &h);
	verbs_header_write(&h, bytes);
	head_copy(qp->pub.context, sge, n, bytes, sizeof(bytes), 1);
}

/* Of the port that @qp is on; kept, for the device needs it until the datagram has completed. */
static struct ibv_ah *to_nobody(struct shadow_qp *qp)
{
	const struct verbs_port *port = verbs_qp_port(qp);
	struct ibv_ah_attr a = { .dlid = port->real_lid, .port_num = qp->attr.port_num, .is_global = !port->real_lid };

	a.grh.dgid = port->real_gid[0];
	a.grh.hop_limit = 1;
	if (!qp->nobody)
		qp->nobody = VERBS_DEVICE(verbs_backend.ibv_create_ah(shadow_pd(qp->pub.pd)->real, &a));
	return qp->nobody;
}

int verbs_datagram_noop(struct shadow_qp *qp, struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_SEND;
	wr->wr.ud.ah = to_nobody(qp);
	wr->wr.ud.remote_qpn = VERBS_NOBODY;
	return wr->wr.ud.ah ? 0 : ENOMEM;
}

/* ---- multicast ---- */

EXPORT int ibv_attach_mcast(struct ibv_qp *p, const union ibv_gid *gid, uint16_t lid)
{
	struct verbs_group *g;
	int r = ENOMEM;

	VERBS_PASS(ibv_attach_mcast, EOPNOTSUPP, p, gid, lid);
	fermata_device_enter();
	g = fermata_alloc(sizeof(*g));
	if (g)
		r = verbs_backend.ibv_attach_mcast(shadow_qp(p)->real, gid, lid);
	if (!r) {
		g->gid = *gid;
		g->lid = lid;
		verbs_list_add(&shadow_qp(p)->groups, &g->link);
	} else {
		fermata_free(g);
	}
	fermata_device_leave();
	return r;
}

static void group_forget(struct verbs_group *g)
{
	verbs_list_del(&g->link);
	fermata_free(g);
}

EXPORT int ibv_detach_mcast(struct ibv_qp *p, const union ibv_gid *gid, uint16_t lid)
{
	struct verbs_group *g;
	int r;

	VERBS_PASS(ibv_detach_mcast, EOPNOTSUPP, p, gid, lid);
	fermata_device_enter();
	r = verbs_backend.ibv_detach_mcast(shadow_qp(p)->real, gid, lid);
	if (!r) {
		list_each_safe(g, &shadow_qp(p)->groups, link)
			if (g->lid == lid && !memcmp(&g->gid, gid, sizeof(*gid))) {
				group_forget(g);
				break; /* a device may count */
			}
	}
	fermata_device_leave();
	return r;
}

void verbs_groups_forget(struct shadow_qp *qp)
{
	struct verbs_group *g;

	list_each_safe(g, &qp->groups, link)
		group_forget(g);
}

int verbs_groups_join(struct shadow_qp *qp)
{
	struct verbs_group *g;
	int r = 0;

	list_each(g, &qp->groups, link)
		r = r ? r : VERBS_DEVICE(verbs_backend.ibv_attach_mcast(qp->real, &g->gid, g->lid));
	return r ? fermata_fail(-r, "QP 0x%x cannot join its multicast group again (error %d)", qp->pub.qp_num, r) : 0;
}
