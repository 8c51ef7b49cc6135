/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The states of a queue pair: which moves there are, with which attributes, and what a move does.
 *
 *            RESET -> INIT -> RTR -> RTS <-> SQD       from any but RESET: -> ERR; from any: -> RESET
 *                                     |
 *                      (UC, UD) SQE <-'   by itself, when a send fails here; back by its owner
 *
 * The table is that of the InfiniBand specification (vol. 1, 10.3.1 and the table of 11.2.4.2, Modify Queue Pair) as
 * the verbs know it: for each move and transport the attributes that must be given and those that may.
 *
 * State changes are made under sq_lock and rx_lock, so no executor is in the middle of a request then. A queue that is
 * told to drain while its head waits (receiver not ready, peer out of reach) goes on with that one request; when it
 * has ended, whoever executed it says SQ_DRAINED. Dying between the event and the note that it was sent, he leaves it
 * to be sent again by the next.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/export.h"

enum { UD, UC, RC, XRC_SEND, XRC_RECV, TYPES };

static int type_index(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_UD:
		return UD;
	case IBV_QPT_UC:
		return UC;
	case IBV_QPT_XRC_SEND:
		return XRC_SEND;
	case IBV_QPT_XRC_RECV:
		return XRC_RECV;
	default:
		return RC;
	}
}

struct move {
	enum ibv_qp_state from, to;
	int required[TYPES], optional[TYPES];
};

#define CUR IBV_QP_CUR_STATE
#define PKEY IBV_QP_PKEY_INDEX
#define RIGHTS IBV_QP_ACCESS_FLAGS
#define NAMED (PKEY | IBV_QP_PORT | RIGHTS)
#define PATHS (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define MIN_RNR IBV_QP_MIN_RNR_TIMER
#define DEST (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RESPONDS (IBV_QP_MAX_DEST_RD_ATOMIC | MIN_RNR)
#define RETRIES (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define NOTIFY IBV_QP_EN_SQD_ASYNC_NOTIFY
#define MOVES (PATHS | RIGHTS)

static const struct move moves[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT,
	  .required = { PKEY | IBV_QP_PORT | IBV_QP_QKEY, NAMED, NAMED, NAMED, NAMED } },
	{ IBV_QPS_INIT, IBV_QPS_INIT,
	  .optional = { PKEY | IBV_QP_PORT | IBV_QP_QKEY, NAMED, NAMED, NAMED, NAMED } },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
	  .required = { 0, DEST, DEST | RESPONDS, DEST, DEST | RESPONDS },
	  .optional = { PKEY | IBV_QP_QKEY, IBV_QP_ALT_PATH | RIGHTS | PKEY, IBV_QP_ALT_PATH | RIGHTS | PKEY,
			IBV_QP_ALT_PATH | RIGHTS | PKEY, IBV_QP_ALT_PATH | RIGHTS | PKEY } },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
	  .required = { IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN | RETRIES, IBV_QP_SQ_PSN | RETRIES,
			IBV_QP_SQ_PSN | IBV_QP_TIMEOUT },
	  .optional = { CUR | IBV_QP_QKEY, CUR | MOVES, CUR | MOVES | MIN_RNR, CUR | MOVES, CUR | MOVES | MIN_RNR } },
	{ IBV_QPS_RTS, IBV_QPS_RTS,
	  .optional = { CUR | IBV_QP_QKEY, CUR | MOVES, CUR | MOVES | MIN_RNR, CUR | MOVES, CUR | MOVES | MIN_RNR } },
	{ IBV_QPS_RTS, IBV_QPS_SQD,
	  .optional = { NOTIFY, NOTIFY, NOTIFY, NOTIFY, NOTIFY } },
	{ IBV_QPS_SQD, IBV_QPS_RTS,
	  .optional = { CUR | IBV_QP_QKEY, CUR | MOVES, CUR | MOVES | MIN_RNR, CUR | MOVES, CUR | MOVES | MIN_RNR } },
	{ IBV_QPS_SQD, IBV_QPS_SQD,
	  .optional = { PKEY | IBV_QP_QKEY, IBV_QP_AV | MOVES | PKEY,
			IBV_QP_PORT | IBV_QP_AV | RETRIES | RESPONDS | MOVES | PKEY,
			IBV_QP_PORT | IBV_QP_AV | RETRIES | MOVES | PKEY,
			IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | RESPONDS | MOVES | PKEY } },
	{ IBV_QPS_SQE, IBV_QPS_RTS, .optional = { CUR | IBV_QP_QKEY, CUR | RIGHTS } },
};

/* Half of an extended connection may be told what only the other half has: it does not care. */
static int applicable(enum ibv_qp_type type, int mask)
{
	if (type == IBV_QPT_XRC_SEND)
		return mask & ~RESPONDS;
	if (type == IBV_QPT_XRC_RECV)
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

static int exists(enum ibv_qp_state from, enum ibv_qp_state to, enum ibv_qp_type type)
{
	if (to == IBV_QPS_RESET)
		return 1;
	if (to == IBV_QPS_ERR)
		return from != IBV_QPS_RESET;
	return from != IBV_QPS_SQE || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

static int move_check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int t = type_index(type);
	size_t i;

	mask &= ~IBV_QP_STATE;
	if (!exists(from, to, type))
		return EINVAL;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask ? EINVAL : 0;
	for (i = 0; i < ARRAY_SIZE(moves); i++)
		if (moves[i].from == from && moves[i].to == to)
			return (mask & moves[i].required[t]) == moves[i].required[t] &&
					       !(mask & ~(moves[i].required[t] | moves[i].optional[t]))
				       ? 0
				       : EINVAL;
	return EINVAL;
}

static int values_check(const struct sr_context *ctx, const struct ibv_qp_attr *a, int mask)
{
	if ((mask & IBV_QP_PORT) && !sr_port_is(ctx, a->port_num))
		return EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index >= ctx->pkeys)
		return EINVAL;
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if ((mask & IBV_QP_AV) && sr_ah_check(ctx, &a->ah_attr))
		return EINVAL;
	/* The device does not migrate paths, and says so (IBA 17.2.8). */
	if ((mask & IBV_QP_ALT_PATH) || ((mask & IBV_QP_PATH_MIG_STATE) && a->path_mig_state != IBV_MIG_MIGRATED))
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > SR_MAX_RD_ATOMIC)
		return EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > SR_MAX_RD_ATOMIC)
		return EINVAL;
	if ((mask & IBV_QP_DEST_QPN) && a->dest_qp_num >> 24)
		return EINVAL;
	if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7)
		return EINVAL;
	if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7)
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31)
		return EINVAL;
	if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31)
		return EINVAL;
	return 0;
}

#define KEEP(bit, field)              \
	do {                          \
		if (mask & (bit))     \
			to->field = a->field; \
	} while (0)

static void attr_keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_QKEY, qkey);
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
	KEEP(IBV_QP_PATH_MIG_STATE, path_mig_state);
	KEEP(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
}

/* Both locks held. */
static void shm_apply(struct sr_context *ctx, struct sr_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	struct sr_shm_qp *q = qp->shm;

	q->access = (uint32_t)qp->attr.qp_access_flags;
	q->qkey = qp->attr.qkey;
	q->timeout = qp->attr.timeout;
	q->retry_cnt = qp->attr.retry_cnt;
	q->rnr_retry = qp->attr.rnr_retry;
	q->own_rnr_timer = qp->attr.min_rnr_timer;
	q->dest_rd = qp->attr.max_dest_rd_atomic;
	if (mask & IBV_QP_PORT) {
		q->port = qp->attr.port_num;
		q->site = sr_own_site(ctx, q->port);
	}
	q->pkey = ctx->pkey[qp->attr.pkey_index];
	if (mask & IBV_QP_AV) {
		q->dest_site = sr_site_find(ctx, &qp->attr.ah_attr);
		q->dest_qpn = q->dest_site && !qp->apart ? qp->attr.dest_qp_num : 0;
	}
	if (from == IBV_QPS_RESET)
		atomic_fetch_add(&q->epoch, 1);
	q->draining = SR_DRAINED;
	if (to == IBV_QPS_SQD && from == IBV_QPS_RTS)
		q->draining = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && qp->attr.en_sqd_async_notify ? SR_DRAIN_NOTIFY
												 : SR_DRAIN;
	if (to != IBV_QPS_ERR)
		atomic_store(&q->state, to);
}

/* Where a queue pair leads in a context of this machine whose memory is out of reach; 0: it does not. */
static uint16_t apart_site(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_peer *p;
	uint16_t site;

	if (qp->shm->type == IBV_QPT_UD)
		return 0;
	p = sr_peer_get(ctx, qp->attr.dest_qp_num >> SR_QP_BITS);
	site = p && p->apart ? sr_site_of(ctx, p->seg, &qp->attr.ah_attr) : 0;
	sr_peer_put(ctx, p);
	return site;
}

static void after_ready(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_peer *p = qp->shm->dest_qpn ? sr_qp_peer(ctx, qp) : NULL;
	uint16_t site = p && !p->apart ? 0 : apart_site(ctx, qp);

	if (unlikely(site))
		sr_net_attach_apart(ctx, qp, site);
	else if (!qp->shm->dest_qpn && (ctx->net || (qp->shm->type == IBV_QPT_UD && sr_net_listen_apart(ctx))))
		sr_net_attach(ctx, qp);
}

static void after_move(struct sr_context *ctx, struct sr_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_RTR)
		after_ready(ctx, qp);
	if (to == IBV_QPS_ERR || (to != from && (to == IBV_QPS_SQD || to == IBV_QPS_RTS)))
		sr_qp_run(ctx, qp);
	if (to != IBV_QPS_RESET && atomic_load(&qp->shm->peer_waits) && (qp->shm->dest_qpn || qp->net))
		sr_kick(ctx, qp);
}

static void qp_reset(struct sr_context *ctx, struct sr_qp *qp)
{
	sr_qp_purge(ctx, qp);
	sr_qp_empty(ctx, qp);
	qp->attr = (struct ibv_qp_attr){ 0 };
	qp->apart = 0;
}

/* Both locks held. 0 or what is wrong. */
static int move(struct sr_context *ctx, struct sr_qp *qp, const struct ibv_qp_attr *attr, int mask,
		enum ibv_qp_state from, enum ibv_qp_state to)
{
	int err = (mask & CUR) && attr->cur_qp_state != from ? EINVAL : 0;

	if (!err)
		err = move_check(qp->qp.qp_type, from, to, mask);
	if (!err)
		err = values_check(ctx, attr, mask);
	if (err)
		return err;
	if (to == IBV_QPS_RESET) {
		qp_reset(ctx, qp);
		return 0;
	}
	attr_keep(&qp->attr, attr, mask);
	shm_apply(ctx, qp, from, to, mask);
	if (to == IBV_QPS_ERR)
		sr_rx_fail(ctx, &ctx->self, qp->shm);
	return 0;
}

EXPORT int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct sr_qp *qp = sr_qp(ibqp);
	struct sr_context *ctx = sr_context(ibqp->context);
	enum ibv_qp_state from, to;
	int err;

	if (unlikely(qp->opened)) /* whose attributes its maker keeps */
		return EOPNOTSUPP;
	mask = applicable(ibqp->qp_type, mask);
	if (unlikely(ctx->net) && mask == IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET)
		sr_net_detach(ctx, qp);
	if (unlikely(qp->net) && mask == IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		sr_net_take_in(qp);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTR && ibqp->qp_type != IBV_QPT_XRC_SEND)
		sr_qp_bounce(ctx, qp);
	sr_sq_lock(ctx, &ctx->self, qp->shm);
	sr_rx_lock(ctx, &ctx->self, qp->shm);
	from = atomic_load(&qp->shm->state);
	to = mask & IBV_QP_STATE ? attr->qp_state : from;
	err = move(ctx, qp, attr, mask, from, to);
	rlock_release(&qp->shm->rx_lock);
	rlock_release(&qp->shm->sq_lock);
	if (err)
		return err;
	if (to == IBV_QPS_RESET) {
		sr_stalled_del(ctx, qp);
		sr_peer_put(ctx, atomic_exchange(&qp->peer, NULL));
	}
	ibqp->state = to;
	after_move(ctx, qp, from, to);
	return 0;
}
