/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The restart: every shadow gets a new object of the device, in the order in which they depend on each other. Who has none learns the names (verbs_fabric.c).
 *
 *   RECREATE    device, context, TD, XRCD, DM, PD, MR, MW (type 1: bound), channel, CQ, SRQ, QP (to INIT); publish what the old names mean now
 *   PUBLISH     one process puts together what everybody learns (verbs_names_make.c)
 *   RECONNECT   learn everybody's names; arm or raise events; AH; receives; QP to RTR, RTS with the newest attributes, MW of type 2 bound
 *   REFILL      every receive of the job is posted: the sends that were not executed, in their order
 *
 * Queues are armed, and unread events raised again, before anybody sends, so no event is missed (verbs_notify.c).
 */
#include "plugins/verbs/verbs_internal.h"

static int number(int (*hold)(int fd), int fd)
{
	return fd < 0 ? 0 : hold(fd);
}

int verbs_numbers(int (*hold)(int fd))
{
	struct shadow_context *c;
	struct shadow_channel *ch;
	int r = 0;

	for_each_context(c) {
		r = r < 0 ? r : number(hold, c->ex.context.async_fd);
		r = r < 0 ? r : number(hold, c->ex.context.cmd_fd);
		list_each(ch, &c->channels, link)
			r = r < 0 ? r : number(hold, ch->pub.fd);
	}
	return r;
}

static int context_recreate(struct shadow_context *c)
{
	struct shadow_channel *ch;
	struct shadow_mw *mw;
	struct shadow_srq *srq;
	struct shadow_cq *cq;
	struct shadow_qp *qp;
	struct shadow_pd *pd;
	struct shadow_td *td;
	struct shadow_xrcd *x;
	struct shadow_dm *dm;
	int r = verbs_context_recreate(c);

	list_each(td, &c->tds, link)
		r = r ? r : verbs_td_recreate(c, td);
	list_each(x, &c->xrcds, link)
		r = r ? r : verbs_xrcd_recreate(c, x);
	list_each(dm, &c->dms, link)
		r = r ? r : verbs_dm_recreate(c, dm);
	list_each(pd, &c->pds, link)
		r = r ? r : verbs_pd_recreate(c, pd);
	r = r ? r : verbs_mrs_recreate(c);
	list_each(mw, &c->mws, link)
		r = r ? r : verbs_mw_recreate(c, mw);
	r = r ? r : verbs_mw_rebind_all(c);
	list_each(ch, &c->channels, link)
		r = r ? r : verbs_channel_recreate(c, ch);
	list_each(cq, &c->cqs, link)
		r = r ? r : verbs_cq_recreate(c, cq);
	list_each(srq, &c->srqs, link)
		r = r ? r : verbs_srq_recreate(c, srq);
	list_each(qp, &c->qps, link)
		r = r ? r : verbs_qp_recreate(c, qp);
	return r;
}

int verbs_recreate(const void *record, size_t len)
{
	struct shadow_context *c;
	int r;

	verbs_moved = 1;
	verbs_fabric_forget();
	r = verbs_backend_renew(); /* also where no device was looked for yet: rdma_cm's channels may be there, and the first look is still to come */
	if (list_empty(&verbs_devices))
		return r ? r : verbs_fabric_publish();
	r = r ? r : verbs_devices_renew();
	r = r ? r : verbs_lkeys_begin();
	verbs_mw_forget_all();
	for_each_context(c)
		r = r ? r : context_recreate(c);
	verbs_dm_resume();
	return r ? r : verbs_fabric_publish();
}

struct ibv_qp *verbs_loop_create(struct shadow_context *c, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	const struct verbs_port *port = &c->device->port[1];
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = verbs_backend.ibv_create_qp(pd, &init);
	int r;

	if (!qp)
		return NULL;
	r = verbs_backend.ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_256, .dest_qp_num = qp->qp_num,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	a.ah_attr = (struct ibv_ah_attr){ .dlid = port->real_lid, .port_num = 1, .is_global = !port->real_lid };
	a.ah_attr.grh.dgid = port->real_gid[0];
	a.ah_attr.grh.hop_limit = 1;
	r = r ? r : verbs_backend.ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
						IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	r = r ? r : verbs_backend.ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
						IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	if (!r)
		return qp;
	verbs_backend.ibv_destroy_qp(qp);
	return NULL;
}

int verbs_reconnect(void)
{
	struct shadow_context *c;
	struct shadow_srq *srq;
	struct shadow_cq *cq;
	struct shadow_qp *qp;
	struct shadow_ah *ah;
	int r;

	r = verbs_fabric_learn();
	if (!r && verbs_is_tied && !verbs_is_together())
		r = fermata_fail(-EOPNOTSUPP, "process %u was told where others of the job are when hosts of it had been brought to one machine, and could not be told which: it comes back with all of the job on one machine only (no --host, no --part)",
				 fermata_pid());
	for_each_context(c) {
		list_each(cq, &c->cqs, link)
			r = r ? r : verbs_notify_restore(c, cq);
		list_each(ah, &c->ahs, link)
			r = r ? r : verbs_ah_recreate(ah);
		list_each(srq, &c->srqs, link)
			r = r ? r : verbs_srq_refill(srq);
		list_each(qp, &c->qps, link)
			r = r ? r : verbs_qp_reconnect(qp);
		r = r ? r : verbs_events_tell(c);
	}
	return r;
}

int verbs_refill(void)
{
	struct shadow_context *c;
	struct shadow_qp *qp;
	int r = 0;

	for_each_context(c)
		list_each(qp, &c->qps, link)
			r = r ? r : verbs_qp_refill(qp);
	return r;
}
