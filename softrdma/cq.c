/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues. The ring lies in the owner's segment: any executor pushes, under the queue's robust lock; the
 * owner pops, under a private one.
 *
 *   push:  write ring[tail]; store its position, tail + 1 (from here on it has happened); store tail + 1;
 *          if armed: count the event and say "waking", in one store; unlock; wake; disarm
 *   arm:   armed; is there one that was not polled and that no event has told of? As above: count, ...
 *   poll:  ring[head] bears the position head + 1? place its data; give the receive slot back; store head + 1
 *
 * A producer that dies before the store of the position has done nothing, after it everything but perhaps the
 * tail, which the next holder of the lock moves, and the waking, which the next one who finds "waking" does too, once too often at worst. Until
 * there is a next one the owner sleeps, as if the death had come before the message.
 *
 * So a program that polls an empty queue and then arms it misses nothing that came in between, as on hardware whose arming names the
 * last completion that was polled; and who arms first and polls then gets no event twice.
 *
 * A send slot is free again when a completion at or after it has been polled, as on hardware.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/device.h"

/* The first completion that was neither polled nor told of; may be the tail. */
static uint32_t cq_untold(struct sr_shm_cq *cq)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed), told = atomic_load(&cq->told);

	return (int32_t)(told - head) > 0 ? told : head;
}

/* Everything before @tail is told by one event, that of who is armed. Under the lock; what is returned is for the wake. */
static uint64_t cq_count(struct sr_shm_cq *cq, uint32_t tail)
{
	uint64_t seen = atomic_load(&cq->notify), told;

	do
		told = (seen & SR_NOTIFY_STATE) == SR_WAKING ? seen : (seen | SR_WAKING) + SR_NOTIFY_EVENT;
	while (!atomic_compare_exchange_weak(&cq->notify, &seen, told));
	/* Later than the event: who dies between has it told twice. */
	atomic_store(&cq->told, tail);
	return told;
}

/*
 * Wakes the owner, if he may sleep. A producer does so after the lock, for the owner, woken at once, completes a send of his own in the
 * same queue, and would wait for us to get on. Who finds SR_WAKING wakes him too: the one who set it may be dead, and one byte too many does no harm.
 */
static void cq_wake(struct sr_context *ctx, struct sr_shm_cq *cq, uint64_t told)
{
	if (cq->channel)
		sr_channel_wake(ctx, (struct sr_seg *)((char *)cq - cq->place), cq->channel - 1);
	atomic_compare_exchange_strong(&cq->notify, &told, told & ~(uint64_t)SR_NOTIFY_STATE);
}

void sr_cq_tell_awake(struct sr_shm_cq *cq, uint32_t tail)
{
	uint64_t told = cq_count(cq, tail);

	atomic_compare_exchange_strong(&cq->notify, &told, told & ~(uint64_t)SR_NOTIFY_STATE);
}

/* Do completions that nobody has been told of call for the event of one who is armed? Lock held. */
static void catch_up(struct sr_context *ctx, struct sr_shm_cq *cq)
{
	uint32_t at, tail = atomic_load(&cq->tail), armed = sr_cq_armed(cq);
	int tell = armed == SR_WAKING; /* perhaps a dead one's */

	for (at = cq_untold(cq); armed && at != tail && !tell; at++)
		tell = armed == SR_ARMED_ANY || sr_cq_slot(cq, at)->flags & SR_CQE_NOTIFIES;
	if (tell && unlikely(cq->mod_count && armed != SR_WAKING))
		tell = sr_moderate_catch_up(cq, tail - cq_untold(cq));
	if (tell)
		cq_wake(ctx, cq, cq_count(cq, tail));
}

void sr_cq_lock(struct sr_context *ctx, struct sr_shm_cq *cq)
{
	uint32_t tail;

	if (likely(!rlock_acquire(ctx, &cq->lock, ctx->self.token)))
		return;
	tail = atomic_load(&cq->tail);
	if (atomic_load(&sr_cq_slot(cq, tail)->position) == tail + 1)
		atomic_store(&cq->tail, tail + 1);
	catch_up(ctx, cq);
}

static int cq_full(struct sr_shm_cq *cq, uint32_t tail)
{
	if (likely(tail - cq->head_seen < cq->cap))
		return 0;
	cq->head_seen = atomic_load_explicit(&cq->head, memory_order_acquire);
	return tail - cq->head_seen >= cq->cap;
}

/* Is the data so short that the entry is one line of the cache, the one that the poll looks at anyway? */
static int is_short(const struct sr_shm_cq *cq, const struct sr_cqe *cqe)
{
	return cqe->flags & SR_CQE_INLINED && cqe->byte_len <= SR_CQE_SHORT_DATA && !(cq->flags & SR_CQ_STAMPED);
}

/*
 * With the position last, and the tail before armed is looked at. The owner watches the line: it is put together elsewhere, and no
 * locked instruction stands between its stores, or he would have it back before the last.
 */
static void cq_store(struct sr_shm_cq *cq, uint32_t tail, struct sr_cqe *cqe, int notifies)
{
	struct sr_cqe *to = sr_cq_slot(cq, tail);

	cqe->flags |= notifies ? SR_CQE_NOTIFIES : 0;
	if (unlikely(cq->flags & SR_CQ_STAMPED))
		cqe->timestamp = sr_now_ns();
	if (is_short(cq, cqe)) {
		memcpy(cqe, cqe->data, SR_CQE_SHORT_DATA);
		cqe->flags |= SR_CQE_SHORT;
	} else if (cqe->flags & SR_CQE_INLINED) {
		memcpy(to->data, cqe->data, sizeof(to->data));
	}
	memcpy(to, cqe, offsetof(struct sr_cqe, position));
	atomic_store_explicit(&to->position, tail + 1, memory_order_release);
	atomic_store(&cq->tail, tail + 1);
}

/* Does this completion, the newest, call for the event? */
static int is_wanted(struct sr_shm_cq *cq, int notifies)
{
	switch (sr_cq_armed(cq)) {
	case SR_DISARMED:
		return 0;
	case SR_WAKING:
		return 1;
	case SR_ARMED_SOLICITED:
		if (!notifies)
			return 0;
		/* fall through */
	default:
		return likely(!cq->mod_count) || sr_moderate_due(cq);
	}
}

int sr_cq_push(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_cq *cq, struct sr_cqe *cqe,
	       int solicited)
{
	int full, notifies = solicited || cqe->status != IBV_WC_SUCCESS;
	uint64_t told = 0;
	uint32_t tail;

	sr_cq_lock(ctx, cq);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	full = cq_full(cq, tail);
	if (!full) {
		cq_store(cq, tail, cqe, notifies);
		if (unlikely(is_wanted(cq, notifies)))
			told = cq_count(cq, tail + 1);
	}
	rlock_release(&cq->lock);
	if (unlikely(told))
		cq_wake(ctx, cq, told);
	if (likely(!full) || (cq->flags & SR_CQ_IGNORE_OVERRUN))
		return 0;
	if (!atomic_exchange(&cq->overrun, 1))
		sr_async_push(ctx, owner->seg, IBV_EVENT_CQ_ERR, cq->number);
	return -EOVERFLOW;
}

/*
 * Is the completion of request @seq of @qpn in the ring? Asked after a death of who may have held this lock too: the next
 * place may have half an entry, with the position of the one before; that one counts only if it still waits.
 */
int sr_cq_contains(struct sr_context *ctx, struct sr_shm_cq *cq, uint32_t qpn, uint32_t seq, int receive)
{
	uint32_t tail, i, n;
	int found = 0;

	sr_cq_lock(ctx, cq);
	tail = atomic_load(&cq->tail);
	n = tail - atomic_load(&cq->head) > cq->mask ? cq->mask + 1 : cq->mask;
	for (i = 1; i <= n && !found; i++) {
		struct sr_cqe *c = sr_cq_slot(cq, tail - i);

		found = atomic_load(&c->position) == tail - i + 1 && c->qpn == qpn && c->seq == seq &&
			!c->rq_slot == !receive;
	}
	rlock_release(&cq->lock);
	return found;
}

/* Puts the data of a short message where its receive says. */
static void place(struct sr_context *ctx, struct sr_rq *rq, uint32_t pd, const char *from, const struct sr_cqe *c)
{
	struct sr_rwqe *w = sr_rq_slot(rq->shm, c->rq_slot - 1);
	uint32_t left = c->byte_len, i;
	uint64_t va;

	for (i = 0; left && i < w->nsge; i++) {
		uint32_t n = w->sge[i].length < left ? w->sge[i].length : left;

		if (!sr_key_check(ctx->seg, w->sge[i].lkey, w->sge[i].addr, n, IBV_ACCESS_LOCAL_WRITE, pd, &va))
			memcpy((void *)(uintptr_t)va, from, n);
		from += n;
		left -= n;
	}
}

static uint64_t wr_id_of(struct sr_rq *rq, const struct sr_cqe *c)
{
	return c->flags & SR_CQE_SHORT ? sr_rq_slot(rq->shm, c->rq_slot - 1)->wr_id : c->wr_id;
}

static const char *inlined(const struct sr_cqe *c)
{
	return c->flags & SR_CQE_SHORT ? (const char *)c : c->data;
}

/* A receive of an SRQ of extended connections: the queue pair may be another context's. */
static uint64_t take_shared(struct sr_context *ctx, const struct sr_cqe *c)
{
	struct sr_srq *srq = ctx->srqs.object[c->number];
	uint64_t wr_id;

	if (!srq)
		return 0;
	wr_id = wr_id_of(&srq->rq, c);
	if (c->flags & SR_CQE_INLINED)
		place(ctx, &srq->rq, srq->rq.shm->pd, inlined(c), c);
	sr_rq_give(&srq->rq, c);
	return wr_id;
}

/* Of a flush the dead may have done a part only: when the poll is over, we see to the rest. */
static void failure_seen(struct sr_context *ctx, struct sr_qp *qp)
{
	if (atomic_load(&qp->failure) == SR_FAILURE_NONE) {
		atomic_store(&qp->failure, SR_FAILURE_SEEN);
		atomic_store(&ctx->failures, 1);
	}
}

uint64_t sr_cqe_take(struct sr_context *ctx, const struct sr_cqe *c)
{
	struct sr_qp *qp;
	uint64_t wr_id;

	if (unlikely(c->flags & SR_CQE_SRQ))
		return take_shared(ctx, c);
	qp = ctx->qps.object[c->number];
	if (!qp)
		return c->wr_id;
	if (!c->rq_slot) {
		atomic_store_explicit(&qp->shm->sq_freed, c->seq + 1, memory_order_release);
		return c->wr_id;
	}
	wr_id = wr_id_of(qp->rq, c);
	if (c->flags & SR_CQE_INLINED) {
		place(ctx, qp->rq, qp->shm->pd, inlined(c), c);
	} else if (c->bounce) {
		place(ctx, qp->rq, qp->shm->pd, (char *)sr_at(ctx->seg, qp->shm->bounce) +
		      (c->bounce - 1u) * SR_BOUNCE_UNIT, c);
		atomic_store_explicit(&qp->shm->bounce_tail, c->bounce_end, memory_order_release);
	}
	sr_rq_give(qp->rq, c);
	if (unlikely(c->status != IBV_WC_SUCCESS))
		failure_seen(ctx, qp);
	return wr_id;
}

static void wc_fill(const struct sr_cqe *c, uint64_t wr_id, struct ibv_wc *wc)
{
	wc->wr_id = wr_id;
	wc->status = c->status;
	wc->opcode = c->opcode;
	wc->vendor_err = 0;
	wc->byte_len = c->byte_len;
	wc->imm_data = c->imm;
	wc->qp_num = c->qpn;
	wc->src_qp = c->src_qp;
	wc->wc_flags = c->wc_flags;
	wc->pkey_index = 0;
	wc->slid = c->slid;
	wc->sl = c->sl;
	wc->dlid_path_bits = 0;
}

static inline int ring_poll(struct sr_context *ctx, struct sr_cq *cq, int n, struct ibv_wc *wc)
{
	struct sr_shm_cq *shm = cq->shm;
	struct sr_cqe *c;
	uint32_t head;
	int got = 0;

	sr_thread_lock(&cq->poll);
	head = atomic_load_explicit(&shm->head, memory_order_relaxed);
	while (got < n) {
		c = &cq->ring[head & cq->mask];
		if (atomic_load_explicit(&c->position, memory_order_acquire) != head + 1)
			break;
		wc_fill(c, sr_cqe_take(ctx, c), &wc[got]);
		got++;
		atomic_store_explicit(&shm->head, ++head, memory_order_release);
	}
	sr_thread_unlock(&cq->poll);
	return got;
}

int sr_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct sr_cq *cq = sr_cq(ibcq);
	struct sr_context *ctx = sr_context(ibcq->context);
	int got;

	sr_cq_polling(cq);
	if (unlikely(sr_wants_progress(ctx)))
		sr_progress(ctx);
	got = ring_poll(ctx, cq, n, wc);
	if (unlikely(atomic_load_explicit(&cq->net, memory_order_relaxed))) {
		if (!got) {
			sr_net_poll(ctx);
			got = ring_poll(ctx, cq, n, wc);
		}
		if (got)
			sr_net_polled(ctx);
	}
	sr_cq_polled(cq, got);
	if (unlikely(!got && atomic_load_explicit(&cq->shm->overrun, memory_order_relaxed)))
		return -1;
	return got;
}

void sr_cq_catch_up(struct sr_context *ctx, struct sr_shm_cq *cq)
{
	sr_cq_lock(ctx, cq);
	catch_up(ctx, cq);
	rlock_release(&cq->lock);
}

int sr_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct sr_context *ctx = sr_context(ibcq->context);
	struct sr_shm_cq *shm = sr_cq(ibcq)->shm;
	uint64_t seen = atomic_load(&shm->notify), want;
	uint32_t untold;

	if (unlikely(shm->mod_count))
		sr_moderate_arm(sr_cq(ibcq));
	do {
		if (solicited_only && (seen & SR_NOTIFY_STATE) == SR_ARMED_ANY)
			break;
		want = (seen & ~(uint64_t)SR_NOTIFY_STATE) | (solicited_only ? SR_ARMED_SOLICITED : SR_ARMED_ANY);
	} while (!atomic_compare_exchange_weak(&shm->notify, &seen, want));
	/* A producer moves the tail before it looks whether we are armed: one of us sees the other. */
	untold = cq_untold(shm);
	if (atomic_load(&shm->tail) != untold || atomic_load(&sr_cq_slot(shm, untold)->position) == untold + 1)
		sr_cq_catch_up(ctx, shm);
	return 0;
}

/* Takes the completions of a queue pair, or with SR_CQE_SRQ of a shared queue, that is being ended out of the ring. */
void sr_cq_purge(struct sr_context *ctx, struct sr_cq *cq, uint32_t number, uint32_t flag, struct sr_rq *rq)
{
	struct sr_shm_cq *shm = cq->shm;
	uint32_t head, tail, from, to;

	sr_thread_lock(&cq->poll);
	sr_cq_lock(ctx, shm);
	head = atomic_load(&shm->head);
	tail = atomic_load(&shm->tail);
	for (from = to = tail; from != head; from--) {
		struct sr_cqe *c = sr_cq_slot(shm, from - 1);

		if (c->number == number && (c->flags & SR_CQE_SRQ) == flag) {
			if (c->rq_slot)
				sr_rq_give(rq, c);
			continue;
		}
		if (--to == from - 1)
			continue;
		memcpy(sr_cq_slot(shm, to), c, sizeof(*c));
		atomic_store(&sr_cq_slot(shm, to)->position, to + 1);
	}
	atomic_store(&shm->head, to);
	rlock_release(&shm->lock);
	sr_thread_unlock(&cq->poll);
}
