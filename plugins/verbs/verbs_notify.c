/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Arming of completion queues, and what becomes of their events at a checkpoint. No state but in the queues, under their locks.
 *
 * A program sleeps only after it has armed its queue, and an event that it then does not get is one that it waits for until something else happens, which may
 * be never. So of events there may be one too many, for an empty queue, as hardware gives them as well; one too few is a hang.
 *
 * Completions that were kept. The drain, and a queue pair that is destroyed, take completions out of the device's queue. Who polls and then arms relies on it that
 * what has come in between is told when he arms, for he sleeps next (UCX does; softrdma, as HCAs do, looks for what was not polled):
 *
 *      program:  polls: nothing                                arms, sleeps
 *      peer:                      sends
 *      drain:                            keeps its completion
 *
 * To the device the queue is empty then. So arming a queue that has kept completions raises its event here, unless the program has read one since they came
 * (`untold`): that one has told it of them.
 *
 * Over a restart. Each arming fires at most one event, and a queue can be armed again while its event stands unread in the channel. So what has to come back is
 * how many are unread, and whether it is armed behind them. softrdma tells both. Of another device only this is known: `armings`, of which no event was read
 * yet; whether something has come since the first of them (`since_armed`; the drain has polled all); and whether the channel is readable, if only for another queue.
 * From that as many are taken to be unread as can be, and the queue to be armed when it can be; two unread ones of a queue count as all.
 * A completion that moderation holds back is told at once. An event that only a no-op of the drain has fired (`hush`) is none.
 *
 * An event is raised by a completion of our own: a queue pair of ours, connected to itself, writes nothing to itself. That works on every device and
 * leaves nothing behind.
 */
#include "plugins/verbs/verbs_internal.h"

#define RAISE_NS 2000000000ull

/* Arms the device's queue and fires its event. 0 or an errno. Under cq->lock, or the program stands still. */
static int raise_event(struct shadow_context *c, struct shadow_cq *cq)
{
	struct ibv_send_wr wr = { .wr_id = VERBS_OWN, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_pd *pd = verbs_backend.ibv_alloc_pd(c->real);
	struct ibv_qp *qp = pd ? verbs_loop_create(c, pd, cq->real) : NULL;
	uint64_t until = raw_now_ns() + RAISE_NS;
	int r = qp ? 0 : EIO;

	if (!r && (cq->real->context->ops.req_notify_cq(cq->real, 0) ||
		   cq->real->context->ops.post_send(qp, &wr, &bad)))
		r = EIO;
	while (!r && !verbs_cq_keep(cq))
		if (raw_now_ns() > until)
			r = ETIMEDOUT;
	if (qp)
		verbs_backend.ibv_destroy_qp(qp);
	if (pd)
		verbs_backend.ibv_dealloc_pd(pd);
	return r;
}

/* The program has armed its queue: @told, and what it has kept is told. */
static void note_arming(struct shadow_cq *cq, uint32_t kind, uint32_t told)
{
	if (!cq->armed)
		cq->since_armed = cq->hush = 0;
	if (cq->armed != 1) /* an arming for all completions stays one */
		cq->armed = kind;
	cq->armings++;
	cq->since_armed |= told;
}

int verbs_req_notify_cq(struct ibv_cq *p, int solicited_only)
{
	struct shadow_cq *cq = shadow_cq(p);
	int r, held, told;

	fermata_device_enter();
	held = verbs_lock_acquire(&cq->lock);
	told = unlikely(cq->untold) && cq->kept_count && p->channel;
	r = told ? raise_event(shadow_context(p->context), cq) : cq->real->context->ops.req_notify_cq(cq->real, solicited_only);
	if (!r) {
		note_arming(cq, 1 + (uint32_t)!!solicited_only, (uint32_t)told);
		cq->untold = 0;
	}
	verbs_lock_release(&cq->lock, held);
	fermata_device_leave();
	return r;
}

/* 1: nothing but a completion of our own fired the event; it is armed again and the event was not. */
static int only_ours(struct shadow_cq *cq)
{
	int ours = 0;

	if (!cq->since_armed && verbs_cq_keep(cq) >= 0 && !cq->kept_count) {
		cq->real->context->ops.req_notify_cq(cq->real, cq->armed == 2);
		ours = verbs_cq_keep(cq) >= 0 && !cq->kept_count; /* what came in between has fired nothing */
	}
	cq->hush = 0;
	return ours;
}

int verbs_notify_taken(struct shadow_cq *cq)
{
	int held = verbs_lock_acquire(&cq->lock), ours = unlikely(cq->hush) && only_ours(cq);

	if (!ours) {
		cq->armings -= cq->armings != 0;
		if (!cq->armings)
			cq->armed = 0;
		cq->untold = 0;
		cq->unacked++;
	}
	verbs_lock_release(&cq->lock, held);
	return !ours;
}

/* ---- checkpoint ---- */

static void settle(struct shadow_cq *cq, int readable)
{
	cq->unread = 0;
	cq->waits = cq->armed;
	if (!cq->armed || (cq->hush && !cq->since_armed))
		return;
	if (verbs_backend.softrdma_events_unread) {
		cq->unread = VERBS_DEVICE(verbs_backend.softrdma_events_unread(cq->real, &cq->waits));
	} else if (readable && cq->since_armed) {
		cq->unread = cq->armings > 1 ? 2 : 1;
		cq->waits = cq->armings > 1 ? cq->armed : 0;
	}
	if (cq->waits && cq->kept_count && cq->moderation.attr_mask) {
		cq->unread++;
		cq->waits = 0;
	}
}

void verbs_notify_settle(struct shadow_context *c, struct shadow_channel *ch)
{
	int readable = verbs_channel_readable(ch->pub.fd);
	struct shadow_cq *cq;

	ch->status = raw_fcntl(ch->pub.fd, F_GETFL, 0);
	list_each(cq, &c->cqs, link)
		if (cq->pub.channel == &ch->pub)
			settle(cq, readable);
}

/* ---- restart ---- */

int verbs_notify_restore(struct shadow_context *c, struct shadow_cq *cq)
{
	uint32_t since = cq->since_armed, untold = cq->untold;
	int r = 0;

	if (!cq->pub.channel)
		return 0;
	fermata_device_enter();
	for (uint32_t i = 0; i < cq->unread && !r; i++)
		r = raise_event(c, cq);
	if (!r && cq->waits)
		r = cq->real->context->ops.req_notify_cq(cq->real, cq->waits == 2);
	fermata_device_leave();
	cq->armed = cq->waits ? cq->waits : cq->unread != 0;
	cq->armings = cq->unread + (cq->waits != 0);
	cq->since_armed = since;
	cq->untold = untold;
	return r ? fermata_fail(-r, "the event of the completion queue on channel fd %d cannot be %s again", cq->pub.channel->fd,
				cq->unread ? "raised" : "armed") : 0;
}
