/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Posting sends, and who makes a waiting queue go on.
 *
 * ibv_post_send copies the requests into the queue's ring and runs it at once, so when it returns every request is
 * complete unless the queue is stalled. A stalled queue goes on when
 *
 *   the other end posts a receive or gets ready:     it runs the queue itself (sr_kick)
 *   the owner polls any CQ, or waits for an event:   sr_progress
 *   nobody does anything:                            the context's timer makes its channels readable, then sr_progress
 *
 * Stalled QPs are on ctx->stalled under stalled_lock, which is never held while a robust lock is taken.
 */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>

#include "base/sys.h"
#include "softrdma/device.h"

/* A dead peer is noticed this soon when nothing else runs the clock. */
#define TICK_MIN_NS 50000ull
#define TICK_MAX_NS 20000000ull

struct sr_peer *sr_qp_peer(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_peer *p = atomic_load(&qp->peer), *none = NULL;

	if (likely(p != NULL))
		return p;
	p = sr_peer_get(ctx, qp->shm->dest_qpn >> SR_QP_BITS);
	/* One that died unseen must not stand in for who has its index now. */
	if (p && !sr_peer_alive(ctx, p)) {
		sr_peer_put(ctx, p);
		p = sr_peer_get(ctx, qp->shm->dest_qpn >> SR_QP_BITS);
	}
	if (p && !atomic_compare_exchange_strong(&qp->peer, &none, p)) {
		sr_peer_put(ctx, p);
		p = none;
	}
	return p;
}

struct sr_peer *sr_qp_route(struct sr_context *ctx, struct sr_qp *qp, uint32_t index)
{
	struct sr_peer *p = atomic_load_explicit(&qp->peer, memory_order_relaxed);

	if (likely(p && p->seg->index == index && !p->dead &&
		   atomic_load_explicit(&p->seg->ready, memory_order_relaxed) == SR_READY))
		return p;
	p = sr_peer_get(ctx, index);
	if (!p)
		return NULL;
	sr_peer_keep(ctx, p);
	sr_peer_put(ctx, atomic_exchange(&qp->peer, p));
	return p;
}

static void flush_sends(struct sr_context *ctx, struct sr_peer *owner, uint32_t qpn)
{
	struct sr_shm_qp *q = sr_qp_find(owner->seg, qpn);
	struct sr_run run = { .ctx = ctx, .src = owner, .q = q };

	if (!q)
		return;
	sr_sq_lock(ctx, owner, q);
	if (q->qpn == qpn && atomic_load(&q->state) == IBV_QPS_ERR)
		sr_run(&run);
	rlock_release(&q->sq_lock);
}

void sr_qp_run_locked(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_run run = { .ctx = ctx, .src = &ctx->self, .q = qp->shm, .mine = 1 };
	int waits;

	if (likely(qp->shm->dest_qpn)) {
		run.dst = sr_qp_peer(ctx, qp);
	} else if (unlikely(qp->net)) {
		sr_net_run_locked(ctx, qp);
		return;
	}
	sr_run(&run);
	waits = atomic_load(&qp->shm->stall) != SR_STALL_NONE;
	rlock_release(&qp->shm->sq_lock);
	if (unlikely(waits))
		sr_stalled_add(ctx, qp);
	if (unlikely(run.failed))
		flush_sends(ctx, run.failed_in, run.failed);
}

void sr_qp_run(struct sr_context *ctx, struct sr_qp *qp)
{
	sr_sq_lock(ctx, &ctx->self, qp->shm);
	sr_qp_run_locked(ctx, qp);
}

void sr_kick(struct sr_context *ctx, struct sr_qp *qp)
{
	struct sr_run run = { .ctx = ctx, .dst = &ctx->self };
	struct sr_shm_qp *q;

	atomic_store(&qp->shm->peer_waits, 0);
	if (unlikely(qp->net)) {
		sr_net_ready(ctx, qp);
		return;
	}
	run.src = sr_qp_peer(ctx, qp);
	q = run.src ? sr_qp_find(run.src->seg, qp->shm->dest_qpn) : NULL;
	if (!q)
		return;
	if (run.src == &ctx->self && ctx->qps.object[q->number]) {
		sr_qp_run(ctx, ctx->qps.object[q->number]);
		return;
	}
	run.q = q;
	sr_sq_lock(ctx, run.src, q);
	if (q->qpn == qp->shm->dest_qpn && q->dest_qpn == qp->shm->qpn && atomic_load(&q->stall) != SR_STALL_NONE)
		sr_run(&run);
	rlock_release(&q->sq_lock);
	if (run.failed)
		flush_sends(ctx, run.failed_in, run.failed);
}

/* ---- stalled queues ---- */

/* @ns from now; 0: never. An armed timer is left alone if it comes in time. stalled_lock held. */
static void timer_set(struct sr_context *ctx, uint64_t ns)
{
	struct itimerspec its = { .it_value = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) } };
	uint64_t now = ns ? raw_now_ns() : 0;

	if (ns && ctx->timer_due > now && ctx->timer_due <= now + ns)
		return;
	ctx->timer_due = ns ? now + ns : 0;
	timerfd_settime(ctx->timer_fd, 0, &its, NULL);
}

void sr_stalled_add(struct sr_context *ctx, struct sr_qp *qp)
{
	int first = 0;

	lock_acquire(&ctx->stalled_lock);
	if (!qp->on_stalled) {
		qp->on_stalled = 1;
		list_add_tail(&ctx->stalled, &qp->stalled_link);
		first = !atomic_fetch_add(&ctx->nr_stalled, 1);
		timer_set(ctx, TICK_MIN_NS);
	}
	lock_release(&ctx->stalled_lock);
	if (first)
		sr_channels_wake(ctx);
}

void sr_stalled_del(struct sr_context *ctx, struct sr_qp *qp)
{
	lock_acquire(&ctx->stalled_lock);
	if (qp->on_stalled) {
		qp->on_stalled = 0;
		list_del(&qp->stalled_link);
		if (atomic_fetch_sub(&ctx->nr_stalled, 1) == 1)
			timer_set(ctx, 0);
	}
	lock_release(&ctx->stalled_lock);
}

/* How long its clock says that it may sleep. */
static uint64_t sleep_of(struct sr_qp *qp, uint64_t now)
{
	uint64_t next = atomic_load(&qp->shm->next_try);

	if (next <= now + TICK_MIN_NS)
		return TICK_MIN_NS;
	return next - now < TICK_MAX_NS ? next - now : TICK_MAX_NS;
}

static struct sr_qp *stalled_pop(struct sr_context *ctx, uint32_t *budget)
{
	struct sr_qp *qp = NULL;

	lock_acquire(&ctx->stalled_lock);
	if (*budget && !list_empty(&ctx->stalled)) {
		qp = container_of(ctx->stalled.next, struct sr_qp, stalled_link);
		list_del(&qp->stalled_link);
		list_add_tail(&ctx->stalled, &qp->stalled_link);
		--*budget;
	}
	lock_release(&ctx->stalled_lock);
	return qp;
}

static int is_going(struct sr_qp *qp)
{
	return atomic_load(&qp->shm->stall) == SR_STALL_NONE && !qp->shm->draining;
}

static void flushes_end(struct sr_context *ctx)
{
	uint32_t i;

	lock_acquire(&ctx->lock);
	atomic_store(&ctx->failures, 0);
	for (i = 0; i < ctx->qps.fresh; i++) {
		struct sr_qp *qp = sr_ids_at(&ctx->qps, i);
		uint32_t seen = SR_FAILURE_SEEN;

		if (!qp || !atomic_compare_exchange_strong(&qp->failure, &seen, SR_FAILURE_DONE))
			continue;
		sr_rx_lock(ctx, &ctx->self, qp->shm);
		if (atomic_load(&qp->shm->state) == IBV_QPS_ERR)
			sr_rx_fail(ctx, &ctx->self, qp->shm);
		rlock_release(&qp->shm->rx_lock);
	}
	lock_release(&ctx->lock);
}

void sr_progress(struct sr_context *ctx)
{
	uint32_t budget = atomic_load(&ctx->nr_stalled);
	uint64_t sleep = TICK_MAX_NS, now, s;
	struct sr_qp *qp;

	if (unlikely(atomic_load(&ctx->failures)))
		flushes_end(ctx);
	while ((qp = stalled_pop(ctx, &budget))) {
		if (is_going(qp)) {
			sr_stalled_del(ctx, qp);
			continue;
		}
		sr_qp_run(ctx, qp);
		if (is_going(qp)) {
			sr_stalled_del(ctx, qp);
			continue;
		}
		now = raw_now_ns();
		s = sleep_of(qp, now);
		sleep = s < sleep ? s : sleep;
	}
	lock_acquire(&ctx->stalled_lock);
	if (atomic_load(&ctx->nr_stalled))
		timer_set(ctx, sleep);
	lock_release(&ctx->stalled_lock);
}

/* ---- posting ---- */

static int is_atomic(uint32_t opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

#define OP(op) (1u << (op))
#define SENDS (OP(IBV_WR_SEND) | OP(IBV_WR_SEND_WITH_IMM))
#define WRITES (OP(IBV_WR_RDMA_WRITE) | OP(IBV_WR_RDMA_WRITE_WITH_IMM))
#define WINDOWS (OP(IBV_WR_LOCAL_INV) | OP(IBV_WR_BIND_MW))
#define READS (OP(IBV_WR_RDMA_READ) | OP(IBV_WR_ATOMIC_CMP_AND_SWP) | OP(IBV_WR_ATOMIC_FETCH_AND_ADD))

/* What each transport service has (IBA 9.3.1, table 37 of 9.4). */
uint32_t sr_qp_ops(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_UD:
		return SENDS;
	case IBV_QPT_UC:
		return SENDS | WRITES | WINDOWS;
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return SENDS | WRITES | READS | WINDOWS | OP(IBV_WR_SEND_WITH_INV);
	default:
		return 0;
	}
}

static int wr_check(struct sr_qp *qp, const struct ibv_send_wr *wr)
{
	struct sr_shm_qp *q = qp->shm;
	uint64_t len = 0;
	int i;

	if (unlikely(wr->opcode > 31 || !(qp->ops & OP(wr->opcode))))
		return wr->opcode > IBV_WR_SEND_WITH_INV ? EOPNOTSUPP : EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE) {
		if (OP(wr->opcode) & READS)
			return EINVAL;
		for (i = 0; i < wr->num_sge; i++)
			len += wr->sg_list[i].length;
		if (len > qp->cap.max_inline_data)
			return EINVAL;
	}
	if (unlikely(q->type == IBV_QPT_UD && !wr->wr.ud.ah))
		return EINVAL;
	if (atomic_load_explicit(&q->sq_tail, memory_order_relaxed) -
	    atomic_load_explicit(&q->sq_freed, memory_order_acquire) >= q->sq_cap)
		return ENOMEM;
	return 0;
}

static void wqe_data(struct sr_wqe *w, const struct ibv_send_wr *wr)
{
	char *to = (char *)w->sge;
	int i;

	w->length = 0;
	w->nsge = (uint32_t)wr->num_sge;
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (wr->send_flags & IBV_SEND_INLINE)
			memcpy(to + w->length, (void *)(uintptr_t)s->addr, s->length);
		else
			w->sge[i] = (struct sr_sge){ s->addr, s->length, s->lkey };
		w->length += s->length;
	}
}

/* A datagram's address. A key whose highest bit is set stands for the queue pair's own (IBA 10.2.5). */
void sr_wqe_address(struct sr_context *ctx, struct sr_qp *qp, struct sr_wqe *w, struct ibv_ah *ibah, uint32_t qpn,
		    uint32_t qkey)
{
	struct sr_ah *ah = sr_ah(ibah);

	if (ah->av.multicast)
		sr_group_find(ctx, ah->av.dgid, &ah->av.group);
	*sr_wqe_av(qp->shm, w) = ah->av;
	w->target = qpn;
	w->rkey = qkey >> 31 ? qp->shm->qkey : qkey;
}

/* Where it goes, by its operation. */
static void wqe_target(struct sr_context *ctx, struct sr_qp *qp, struct sr_wqe *w, const struct ibv_send_wr *wr)
{
	if (is_atomic(wr->opcode)) {
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
	} else if (unlikely(qp->shm->type == IBV_QPT_UD)) {
		sr_wqe_address(ctx, qp, w, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	} else if (unlikely(wr->opcode == IBV_WR_BIND_MW)) {
		sr_wqe_bind(w, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	} else {
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
	if (unlikely(qp->shm->type == IBV_QPT_XRC_SEND))
		w->target = wr->qp_type.xrc.remote_srqn;
}

static int post_one(struct sr_context *ctx, struct sr_qp *qp, const struct ibv_send_wr *wr, enum ibv_mw_type window)
{
	uint32_t tail = atomic_load_explicit(&qp->shm->sq_tail, memory_order_relaxed);
	struct sr_wqe *w = sr_sq_slot(ctx->seg, qp->shm, tail);
	int err = wr_check(qp, wr);

	if (!err && unlikely(wr->opcode == IBV_WR_BIND_MW))
		err = sr_bind_check(qp, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info, window);
	if (err)
		return err;
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags;
	w->imm = wr->imm_data;
	wqe_target(ctx, qp, w, wr);
	wqe_data(w, wr);
	atomic_store_explicit(&qp->shm->sq_tail, tail + 1, memory_order_release);
	return 0;
}

int sr_qp_sends(const struct sr_qp *qp)
{
	uint32_t state = atomic_load_explicit(&qp->shm->state, memory_order_acquire);

	return state == IBV_QPS_RTS || state == IBV_QPS_ERR || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

static int post_list(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, enum ibv_mw_type window)
{
	struct sr_qp *qp = sr_qp(ibqp);
	struct sr_context *ctx = sr_context(ibqp->context);
	int err = 0;

	if (unlikely(!sr_qp_sends(qp))) {
		*bad = wr;
		return EINVAL;
	}
	sr_sq_lock(ctx, &ctx->self, qp->shm);
	for (; wr; wr = wr->next) {
		err = post_one(ctx, qp, wr, window);
		if (unlikely(err)) {
			*bad = wr;
			break;
		}
	}
	sr_qp_run_locked(ctx, qp);
	return err;
}

int sr_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return post_list(qp, wr, bad, IBV_MW_TYPE_2);
}

int sr_post_bind(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return post_list(qp, wr, &bad, IBV_MW_TYPE_1);
}
