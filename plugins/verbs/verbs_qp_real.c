/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's queue pairs behind the shadows: their making, and at a restart the walk of a new one to the state in which the old one was, with the
 * newest value of each attribute, and the work that had not been executed. At a restart the program stands still.
 */
#include "plugins/verbs/verbs_internal.h"

/* What the data path needs of the device's object, kept where it looks. */
void verbs_qp_real_set(struct shadow_qp *qp, struct ibv_qp *real)
{
	qp->real = qp->sq.real = qp->rq.real = real;
	qp->sq.translate = qp->rq.translate = verbs_moved ? VERBS_TRANSLATE_KEYS : 0;
	if (qp->init.qp_type == IBV_QPT_UD)
		qp->sq.translate |= VERBS_TRANSLATE_AH;
	if (qp->init.qp_type == IBV_QPT_XRC_SEND)
		qp->sq.translate |= VERBS_TRANSLATE_XRC;
}

/* Asks the device for the queue pair of qp->init; @cap gets what it gave. */
static struct ibv_qp *real_create_ex(struct shadow_qp *qp, struct ibv_qp_cap *cap)
{
	struct ibv_context *real = shadow_context(qp->pub.context)->real;
	struct ibv_qp *(*create)(struct ibv_context *, struct ibv_qp_init_attr_ex *) = VERBS_REAL_OP(real, create_qp_ex);
	struct ibv_qp_init_attr_ex x = { .send_cq = qp->init.send_cq, .recv_cq = qp->init.recv_cq, .srq = qp->init.srq, .cap = qp->init.cap,
					 .qp_type = qp->init.qp_type, .sq_sig_all = qp->init.sq_sig_all, .pd = qp->pub.pd,
					 .xrcd = qp->xrcd, .create_flags = qp->create_flags };
	struct ibv_qp *made;

	if (qp->asked)
		x = *qp->asked;
	x.comp_mask = qp->more; /* without the device's own operations, which are not used: verbs_qp_ex.c */
	x.qp_context = qp;
	x.send_cq = x.send_cq ? shadow_cq(x.send_cq)->real : NULL;
	x.recv_cq = x.recv_cq ? shadow_cq(x.recv_cq)->real : NULL;
	x.srq = x.srq ? shadow_srq(x.srq)->real : NULL;
	x.pd = x.comp_mask & IBV_QP_INIT_ATTR_PD ? shadow_pd(x.pd)->real : NULL;
	x.xrcd = x.comp_mask & IBV_QP_INIT_ATTR_XRCD ? shadow_xrcd(x.xrcd)->real : NULL;
	x.cap.max_send_wr += qp->reserve;
	made = create ? create(real, &x) : verbs_unsupported();
	*cap = x.cap;
	return made;
}

static struct ibv_qp *real_create(struct shadow_qp *qp, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr init = qp->init;
	struct ibv_qp *real;

	if (qp->asked || qp->more)
		return real_create_ex(qp, cap);
	init.qp_context = qp;
	init.send_cq = init.send_cq ? shadow_cq(init.send_cq)->real : NULL;
	init.recv_cq = init.recv_cq ? shadow_cq(init.recv_cq)->real : NULL;
	init.srq = init.srq ? shadow_srq(init.srq)->real : NULL;
	init.cap.max_send_wr += qp->reserve;
	real = verbs_backend.ibv_create_qp(shadow_pd(qp->pub.pd)->real, &init);
	*cap = init.cap;
	return real;
}

static int destroy(void *real)
{
	return verbs_backend.ibv_destroy_qp(real);
}

/* One whose number is none that a peer may still know for another queue pair. */
struct ibv_qp *verbs_qp_create_new(struct shadow_qp *qp, struct ibv_qp_cap *cap)
{
	const struct shadow_device *d = shadow_context(qp->pub.context)->device;
	struct verbs_draws draws = { 0 };
	struct ibv_qp *real;

	do
		real = real_create(qp, cap);
	while (real && verbs_moved && verbs_draws_hold(&draws, verbs_qpn_known(d, real->qp_num), real));
	return verbs_draws_end(&draws, real, destroy);
}

/*
 * The drain's no-op is an RDMA WRITE of no bytes: a queue pair that its program opened for READ alone would answer it with an error. It touches no
 * memory; what may be written is still a matter of the keys.
 */
void verbs_qp_allow_noop(const struct shadow_qp *qp, struct ibv_qp_attr *real, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS && !verbs_qp_is_xrc(qp))
		real->qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
}

/*
 * A partition's place is another one. What one device can have under way, or in a packet, another may not. It is cut at both ends, which are on the same kind of device after a move, and costs speed alone. The
 * program goes on to see what it has asked for (ibv_query_qp).
 */
void verbs_qp_fit(const struct shadow_qp *qp, struct ibv_qp_attr *real, int mask)
{
	const struct shadow_device *d = shadow_context(qp->pub.context)->device;
	const struct verbs_port *port = mask & IBV_QP_PORT ? verbs_port_at(qp->pub.context, real->port_num) : verbs_qp_port(qp);

	if (real->max_dest_rd_atomic > d->reads_in)
		real->max_dest_rd_atomic = d->reads_in;
	if (real->max_rd_atomic > d->reads_out)
		real->max_rd_atomic = d->reads_out;
	if (mask & IBV_QP_PKEY_INDEX)
		real->pkey_index = verbs_pkey_index_real(port, real->pkey_index);
	if (mask & IBV_QP_PATH_MTU && port->real_mtu && (uint32_t)real->path_mtu > port->real_mtu)
		real->path_mtu = (enum ibv_mtu)port->real_mtu;
}

static int modify(struct shadow_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state to, int mask)
{
	int r;

	attr->qp_state = to;
	verbs_qp_allow_noop(qp, attr, mask);
	verbs_qp_fit(qp, attr, mask);
	r = VERBS_DEVICE(verbs_backend.ibv_modify_qp(qp->real, attr, mask | IBV_QP_STATE));
	return r ? fermata_fail(-r, "QP 0x%x cannot be brought to state %d again (error %d)", qp->pub.qp_num, to, r) : 0;
}

int verbs_qp_recreate(struct shadow_context *c, struct shadow_qp *qp)
{
	struct ibv_qp_attr attr = qp->attr;
	struct ibv_qp_cap cap;

	qp->nobody = NULL;
	if (qp->opened) { /* later: verbs_qp_reopen */
		qp->real = NULL;
		return 0;
	}
	fermata_device_enter();
	verbs_qp_real_set(qp, real_create(qp, &cap));
	fermata_device_leave();
	if (!qp->real)
		return fermata_fail(-errno, "QP 0x%x cannot be made again on %s (error %d)", qp->pub.qp_num,
				    c->device->pub.name, errno);
	if (qp->pub.srq && verbs_srq_attach(qp))
		return fermata_fail(-ENOMEM, "no memory for QP 0x%x of a shared receive queue", qp->pub.qp_num);
	if (qp->real_state == IBV_QPS_RESET || !(qp->attr_mask & IBV_QP_PORT))
		return 0;
	return modify(qp, &attr, IBV_QPS_INIT,
		      qp->attr_mask & (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY));
}

#define BREAK_NS 2000000000ull

/*
 * Into SQE nobody can move a queue pair: it goes there by a send that fails. Ours names memory that is none's; its completion is nobody's, and dropped.
 */
static int break_sends(struct shadow_qp *qp)
{
	struct shadow_cq *cq = shadow_cq(qp->pub.send_cq);
	struct ibv_sge none = { 0, 8, 0 };
	struct ibv_send_wr wr = { .wr_id = VERBS_OWN, .opcode = IBV_WR_SEND, .sg_list = &none, .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	uint64_t until = raw_now_ns() + BREAK_NS;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { 0 };
	int r = qp->pub.qp_type == IBV_QPT_UD ? verbs_datagram_noop(qp, &wr) : 0;

	if (!r)
		r = VERBS_DEVICE(qp->real->context->ops.post_send(qp->real, &wr, &bad));
	cq->hush = 1;
	while (!r && verbs_cq_keep(cq) >= 0) {
		r = VERBS_DEVICE(verbs_backend.ibv_query_qp(qp->real, &attr, IBV_QP_STATE, &init));
		if (attr.qp_state == IBV_QPS_SQE)
			return verbs_cq_keep(cq) < 0 ? -ENOMEM : 0;
		if (raw_now_ns() > until)
			break;
	}
	return fermata_fail(-EIO, "QP 0x%x cannot be brought to state SQE again (error %d)", qp->pub.qp_num, r);
}

/* Everybody's names are known: connect, and give back the receives in their order. */
int verbs_qp_reconnect(struct shadow_qp *qp)
{
	const int connects = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	const int responds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	enum ibv_qp_type type = qp->pub.qp_type;
	int rtr = (type == IBV_QPT_UD ? 0 : connects) | (type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV ? responds : 0);
	int rts = IBV_QP_SQ_PSN | (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND ? retries : 0) |
		  (type == IBV_QPT_XRC_RECV ? qp->attr_mask & IBV_QP_TIMEOUT : 0);
	struct ibv_qp_attr attr = qp->attr;
	int r = 0;

	if (qp->opened) {
		verbs_qp_reopen(qp);
		return 0;
	}
	r = verbs_groups_join(qp);
	if (r || qp->real_state == IBV_QPS_RESET)
		return r;
	if (qp->real_state == IBV_QPS_ERR) { /* what is posted after that is flushed, as it was going to be */
		r = modify(qp, &attr, IBV_QPS_ERR, 0);
		if (r)
			return r;
	}
	for (uint64_t at = atomic_load(&qp->rq.tail); !r && at < atomic_load(&qp->rq.head); at++) {
		r = verbs_repost_receive(qp, at);
		if (r)
			return fermata_fail(-r, "QP 0x%x: receive %d cannot be posted again (error %d)", qp->pub.qp_num,
					    (int)(at - atomic_load(&qp->rq.tail)), r);
	}
	if (!verbs_qp_connected(qp->real_state))
		return 0;
	verbs_peer_real(qp, &attr, rtr, 1);
	r = modify(qp, &attr, IBV_QPS_RTR, rtr);
	if (!r && (qp->established || qp->received) && verbs_backend.softrdma_established)
		VERBS_DEVICE(verbs_backend.softrdma_established(qp->real, 1));
	if (!r && qp->real_state != IBV_QPS_RTR)
		r = modify(qp, &attr, IBV_QPS_RTS, rts);
	if (!r && qp->windows)
		r = verbs_mw_rebind_qp(qp);
	if (!r && qp->real_state == IBV_QPS_SQD) /* that it has drained was told in the former life, or is among the events */
		r = modify(qp, &attr, IBV_QPS_SQD, 0);
	if (!r && qp->real_state == IBV_QPS_SQE)
		r = break_sends(qp);
	return r;
}

/* At the dump. */
void verbs_qp_settle(struct shadow_qp *qp)
{
	if (qp->real && !qp->opened && verbs_backend.softrdma_established)
		qp->established = VERBS_DEVICE(verbs_backend.softrdma_established(qp->real, 0)) != 0;
}

/* Everybody is connected: the sends that were not executed, in their order. */
int verbs_qp_refill(struct shadow_qp *qp)
{
	uint64_t head = atomic_load(&qp->sq.head);

	if (atomic_load(&qp->sq.windows) && qp->pending > atomic_load(&qp->sq.tail))
		verbs_mw_retire(qp, qp->pending - 1, 1);
	atomic_store(&qp->sq.tail, qp->pending);
	for (uint64_t at = qp->pending; at < head; at++) {
		int r;

		r = verbs_repost_send(qp, at);
		if (r)
			return fermata_fail(-r, "QP 0x%x: send %d cannot be posted again (error %d)", qp->pub.qp_num,
					    (int)(at - qp->pending), r);
	}
	return 0;
}
