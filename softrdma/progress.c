/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running a send queue, and who makes a waiting one go on.
 *
 * ibv_post_send runs the queue at once, so when it returns every request is complete unless the queue is stalled. A stalled
 * queue goes on when
 *
 *   the other end posts a receive or gets ready:     it runs the queue itself (sr_kick)
 *   the owner polls any CQ, or waits for an event:   sr_progress
 *   nobody does anything:                            the context's timer makes its channels readable, then sr_progress
 *
 * Stalled QPs are on ctx->stalled under stalled_lock, which is never held while a robust lock is taken.
 */
#include <errno.h>
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

	if (likely(p && p->seg->index == index && (!p->dead || p->apart) &&
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
	uint64_t now = raw_now_ns();

	if (ns && ctx->timer_due > now && ctx->timer_due <= now + ns)
		return;
	if (ctx->timer_due && ctx->timer_due <= now)
		atomic_fetch_add(&ctx->ticks, 1);
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
