/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The requester's side of a queue pair that leads to another host. Its send ring is the window:
 *
 *   sq_head            oldest that is not complete
 *   acked, read_done   behind the last one that the other end has executed; behind the last READ or atomic answered
 *   next, next_offset  what is to be sent next; a NAK or a break takes it back
 *   sent               behind the furthest one that was ever begun: what may be acknowledged
 *   sq_tail            behind the last one posted
 *
 * A request is complete when it is before acked and, if it is a READ or an atomic, before read_done. A fault (its own keys, a NAK, the
 * clock) belongs to one number and is told when that has become the oldest.
 *
 * All of it is under the connection's lock; the ring's heads change under sq_lock, too.
 */
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "softrdma/net.h"

#define INTERVAL_MIN_NS NET_MS
#define LOST_NS NET_SECOND
#define LATE_ACK_NS (60 * NET_MS) /* a kernel may keep an acknowledgement back for 40 ms */
#define FOREVER_LOOK_NS (100 * NET_MS) /* timeout 0 */

static struct sr_context *context_of(const struct net_conn *c) { return c->net->ctx; }

static struct sr_wqe *wqe(const struct net_conn *c, const struct net_qp *n, uint32_t number)
{
	return sr_sq_slot(context_of(c)->seg, n->qp->shm, number);
}

static int is_answered(const struct sr_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static struct sr_run run_of(const struct net_conn *c, const struct net_qp *n)
{
	struct sr_context *ctx = context_of(c);

	return (struct sr_run){ .ctx = ctx, .src = &ctx->self, .q = n->qp->shm, .mine = 1 };
}

static uint64_t interval_of(const struct net_qp *n)
{
	uint32_t t = n->qp->shm->timeout;
	uint64_t ns = 4096ull << t % 32;

	if (!t)
		return FOREVER_LOOK_NS;
	return ns < INTERVAL_MIN_NS ? INTERVAL_MIN_NS : ns;
}

/* ---- beginning and ending ---- */

/* A fault ends it when all before that is complete: what a break took with it of that is still sent. */
static int is_stopped(const struct net_qp *n)
{
	return n->fault && !net_before(n->next, n->fault_at);
}

static void busy_end(struct net_qp *n)
{
	list_del(&n->busy_link);
}

void net_request_start(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;
	uint32_t tail = atomic_load(&q->sq_tail), state = atomic_load(&q->state);

	if (atomic_load(&q->sq_head) == tail || (state != IBV_QPS_RTS && state != IBV_QPS_SQD))
		return;
	if (list_empty(&n->busy_link)) {
		n->progress_ns = net_now();
		n->tries = 0;
		list_add_tail(&c->busy, &n->busy_link);
		if (!n->unreliable)
			net_timer_set(c->net, n->progress_ns + interval_of(n));
		else
			net_timer_set(c->net, n->progress_ns + LOST_NS);
	}
	if (n->wait == NET_GOES && !is_stopped(n) && n->next != tail && list_empty(&n->send_link))
		list_add_tail(&c->sending, &n->send_link);
}

/* Its queue is in error, or ends: it sends nothing more. sq_lock held. */
void net_stop(struct net_conn *c, struct net_qp *n)
{
	if (c->source == NET_FROM_REQUEST)
		net_spill(c, n);
	list_del(&n->send_link);
	busy_end(n);
}

/* sq_lock held. */
static void flush(struct net_conn *c, struct net_qp *n)
{
	struct sr_run r = run_of(c, n);

	net_stop(c, n);
	sr_run(&r);
	n->next = n->acked = n->sent = atomic_load(&n->qp->shm->sq_head);
	n->next_offset = n->reads = n->atomics = n->fault = 0;
}

void net_flush(struct net_conn *c, struct net_qp *n)
{
	struct sr_context *ctx = context_of(c);

	sr_sq_lock(ctx, &ctx->self, n->qp->shm);
	if (atomic_load(&n->qp->shm->state) == IBV_QPS_ERR)
		flush(c, n);
	rlock_release(&n->qp->shm->sq_lock);
}

static int is_complete(const struct net_conn *c, const struct net_qp *n, uint32_t number)
{
	if (!net_before(number, n->acked))
		return 0;
	return n->unreliable || !is_answered(wqe(c, n, number)) || net_before(number, n->read_done);
}

static void one_complete(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	struct sr_wqe *w = wqe(c, n, number);
	struct sr_run r = run_of(c, n);

	if (c->source == NET_FROM_REQUEST && c->source_qp == n && c->source_number == number)
		net_spill(c, n);
	if (sr_complete(&r, w, number, IBV_WC_SUCCESS, is_answered(w) ? (uint32_t)w->length : 0))
		sr_fatal(&r);
}

/* sq_lock held. */
static void fault_tell(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	struct sr_run r = run_of(c, n);

	if (c->source == NET_FROM_REQUEST)
		net_spill(c, n);
	if (sr_complete(&r, wqe(c, n, number), number, (int)n->fault, 0))
		sr_fatal(&r);
	else
		sr_fail(&r);
	flush(c, n);
}

/* Is there a request that was begun and is not complete? A NAK or a break takes next back, not that. */
static int has_begun(const struct net_qp *n)
{
	return net_before(atomic_load(&n->qp->shm->sq_head), n->sent);
}

static void drained(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;
	struct sr_run r = run_of(c, n);

	if (q->draining && !has_begun(n))
		sr_drained(&r);
}

/* Completes what can be, in order. sq_lock held. */
static void complete_locked(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;
	uint32_t head = atomic_load(&q->sq_head), first = head;

	while (head != atomic_load(&q->sq_tail) && is_complete(c, n, head))
		one_complete(c, n, head++);
	if (net_before(n->next, head)) {
		n->next = head;
		n->next_offset = 0;
	}
	if (head != first) {
		n->progress_ns = net_now();
		n->tries = n->rnr_tries = 0;
	}
	if (atomic_load(&q->state) == IBV_QPS_ERR) {
		flush(c, n);
		return;
	}
	if (n->fault && head == n->fault_at) {
		fault_tell(c, n, head);
		return;
	}
	if (head == atomic_load(&q->sq_tail))
		busy_end(n);
	if (q->draining)
		drained(c, n);
}

static void complete(struct net_conn *c, struct net_qp *n)
{
	struct sr_context *ctx = context_of(c);

	sr_sq_lock(ctx, &ctx->self, n->qp->shm);
	complete_locked(c, n);
	rlock_release(&n->qp->shm->sq_lock);
	net_request_start(c, n);
}

void net_request_run(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;

	if (atomic_load(&q->state) == IBV_QPS_ERR || atomic_load(&q->state) == IBV_QPS_SQE)
		flush(c, n);
	else if (q->draining)
		drained(c, n);
	net_request_start(c, n);
}

static void fault_set(struct net_qp *n, uint32_t number, enum ibv_wc_status status)
{
	n->fault = status;
	n->fault_at = number;
}

void net_request_fault(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	fault_set(n, number, IBV_WC_LOC_PROT_ERR);
	complete(c, n);
}

/* ---- sending ---- */

/* 0, or the status that the request fails with. */
static int local_pieces(struct net_conn *c, struct net_qp *n, struct sr_wqe *w, struct pieces *p)
{
	struct sr_run r = run_of(c, n);
	struct op o = { .w = w };
	int status = sr_local_prepare(&r, &o);

	*p = o.local;
	return status;
}

int net_request_pieces(struct net_conn *c, struct net_qp *n, uint32_t number, uint32_t offset, uint32_t length,
		       struct pieces *p)
{
	struct pieces all;

	if (local_pieces(c, n, wqe(c, n, number), &all))
		return -1;
	net_cut(&all, offset, length, p);
	return 0;
}

static uint32_t reads_limit(const struct net_qp *n)
{
	uint32_t limit = n->qp->attr.max_rd_atomic;

	return !limit ? 1 : limit > NET_READS ? NET_READS : limit;
}

/*
 * The other end reads what a READ asks for when it has room to send it. So that no later request overtakes that, a READ is
 * followed by READs alone until it is answered, as if each other request bore a fence.
 */
static int may_begin(const struct net_qp *n, const struct sr_wqe *w)
{
	if (w->flags & IBV_SEND_FENCE)
		return !n->reads && !n->atomics;
	if (w->opcode != IBV_WR_RDMA_READ && n->reads)
		return 0;
	return !is_answered(w) || n->reads + n->atomics < reads_limit(n);
}

static void frame_fill(const struct net_qp *n, const struct sr_wqe *w, uint32_t length, struct net_frame *f)
{
	int answered = is_answered(w), first = !n->next_offset, last = answered || n->next_offset + length == w->length;

	*f = (struct net_frame){ .type = NET_REQUEST, .opcode = (uint8_t)w->opcode, .length = length,
				 .to = n->dest_qpn, .from = n->qpn, .life = n->life, .seq = n->next - n->base,
				 .offset = n->next_offset, .total = (uint32_t)w->length, .address = w->remote_addr,
				 .rkey = w->rkey, .imm = w->imm, .target = w->target,
				 .site = n->dest_site, .pkey = n->qp->shm->pkey };
	f->flags = (uint8_t)((first ? NET_FIRST : 0) | (last ? NET_LAST : 0) | (n->unreliable ? NET_UNRELIABLE : 0));
	if (w->flags & IBV_SEND_SOLICITED && !answered)
		f->flags |= NET_SOLICITED;
	if (answered && w->opcode != IBV_WR_RDMA_READ) {
		f->compare = w->compare_add;
		f->swap = w->swap;
	}
}

static void under_way_count(struct net_qp *n, const struct sr_wqe *w, uint32_t one)
{
	if (w->opcode == IBV_WR_RDMA_READ)
		n->reads += one;
	else if (is_answered(w))
		n->atomics += one;
}

static void advance(struct net_qp *n, const struct sr_wqe *w, const struct net_frame *f)
{
	n->next_offset += f->length;
	if (!net_before(n->next, n->sent))
		n->sent = n->next + 1;
	if (!(f->flags & NET_LAST))
		return;
	under_way_count(n, w, 1);
	n->next_offset = 0;
	n->next++;
}

static int fragment_put(struct net_conn *c, struct net_qp *n, const struct sr_wqe *w, const struct pieces *all)
{
	uint32_t left = (uint32_t)w->length - n->next_offset;
	uint32_t length = is_answered(w) ? 0 : left < NET_PAYLOAD_MAX ? left : NET_PAYLOAD_MAX;
	struct net_frame f;
	struct pieces p;

	frame_fill(n, w, length, &f);
	if (length > NET_SMALL) {
		if (net_frame_put(c, &f, NULL))
			return -EAGAIN;
		c->source = NET_FROM_REQUEST;
		c->source_qp = n;
		c->source_number = n->next;
		c->source_offset = n->next_offset;
		c->source_left = length;
	} else {
		net_cut(all, n->next_offset, length, &p);
		if (net_frame_put(c, &f, &p))
			return -EAGAIN;
	}
	advance(n, w, &f);
	return 1;
}

/* What is done here alone waits for all before it, and all behind it waits. */
static int local_operation(struct net_conn *c, struct net_qp *n, struct sr_wqe *w)
{
	struct sr_shm_qp *q = n->qp->shm;
	struct sr_run r = run_of(c, n);
	int status;

	if (atomic_load(&q->sq_head) != n->next)
		return 0;
	status = sr_window_request(&r, w);
	if (status) {
		fault_set(n, n->next, (enum ibv_wc_status)status);
		return 0;
	}
	/* Its number is one that the other end never hears of. */
	n->next++;
	n->base++;
	n->sent = n->acked = n->read_done = n->next;
	if (sr_complete(&r, w, n->next - 1, IBV_WC_SUCCESS, 0))
		sr_fatal(&r);
	if (n->next == atomic_load(&q->sq_tail))
		busy_end(n);
	return 1;
}

int net_request_stage(struct net_conn *c, struct net_qp *n)
{
	struct sr_shm_qp *q = n->qp->shm;
	uint32_t state = atomic_load(&q->state);
	struct pieces all;
	struct sr_wqe *w;
	int status;

	/* What was begun goes on in SQD. */
	if ((state != IBV_QPS_RTS && !(state == IBV_QPS_SQD && net_before(n->next, n->sent))) || n->wait != NET_GOES || is_stopped(n) ||
	    n->next == atomic_load(&q->sq_tail))
		return 0;
	w = wqe(c, n, n->next);
	if (sr_is_local_request(w))
		return local_operation(c, n, w);
	if (!n->next_offset && !may_begin(n, w))
		return 0;
	status = local_pieces(c, n, w, &all);
	if (status) {
		fault_set(n, n->next, (enum ibv_wc_status)status);
		return 0;
	}
	return fragment_put(c, n, w, &all);
}

/* Something of it has left, or a fault was found: what that completes. */
void net_request_sent(struct net_conn *c, struct net_qp *n)
{
	if (!n->unreliable && !n->fault)
		return;
	/* Nobody answers: done is what the socket has taken. */
	if (n->unreliable)
		n->acked = c->source == NET_FROM_REQUEST && c->source_qp == n ? c->source_number : n->next;
	complete(c, n);
}

/* ---- answers ---- */

/* The queue pair that an answer is for, and the number that it speaks of; NULL: of no meaning now. */
static struct net_qp *answered(struct net_conn *c, const struct net_frame *f, uint32_t *ret_number)
{
	struct net_qp *n = net_qp_find(c, f->to);

	if (!n || n->unreliable || f->from != n->dest_qpn || f->life != n->life)
		return NULL;
	*ret_number = n->base + f->seq;
	return n;
}

void net_acked(struct net_conn *c, const struct net_frame *f)
{
	uint32_t number;
	struct net_qp *n = answered(c, f, &number);

	if (!n || net_before(number, n->acked) || !net_before(number, n->sent))
		return;
	n->acked = number + 1;
	complete(c, n);
}

/* Counts anew the READs and atomics that were sent before @number and are not answered. sq_lock held. */
static void recount(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	uint32_t i = atomic_load(&n->qp->shm->sq_head);

	n->reads = n->atomics = 0;
	for (; net_before(i, number); i++)
		if (!net_before(i, n->read_done))
			under_way_count(n, wqe(c, n, i), 1);
}

void net_request_rewind(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	struct sr_context *ctx = context_of(c);

	if (n->unreliable) {
		/* The message that was cut off is lost. */
		n->next += n->next_offset ? 1 : 0;
		n->next_offset = 0;
		n->acked = n->next;
		complete(c, n);
		return;
	}
	sr_sq_lock(ctx, &ctx->self, n->qp->shm);
	if (net_before(number, n->next) || n->next_offset) {
		n->next = number;
		n->next_offset = 0;
		recount(c, n, number);
	}
	rlock_release(&n->qp->shm->sq_lock);
}

/* What a break took with it is sent again. */
void net_request_again(struct net_conn *c, struct net_qp *n)
{
	n->read_offset = 0;
	if (n->wait == NET_WAITS_ABSENT)
		n->wait = NET_GOES;
	net_request_rewind(c, n, atomic_load(&n->qp->shm->sq_head));
	net_request_start(c, n);
}

static void not_ready(struct net_conn *c, struct net_qp *n, uint32_t number, uint32_t timer)
{
	struct sr_shm_qp *q = n->qp->shm;

	net_request_rewind(c, n, number);
	if (q->rnr_retry != 7 && n->rnr_tries >= q->rnr_retry) {
		fault_set(n, number, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	n->rnr_tries++;
	n->wait = NET_WAITS_RNR;
	n->resume_ns = net_now() + sr_rnr_ns(timer);
	net_timer_set(c->net, n->resume_ns);
}

static enum ibv_wc_status status_of(uint32_t nak)
{
	switch (nak) {
	case NET_INVALID_REQUEST:
		return IBV_WC_REM_INV_REQ_ERR;
	case NET_REMOTE_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	default:
		return IBV_WC_REM_OP_ERR;
	}
}

void net_refused(struct net_conn *c, const struct net_frame *f)
{
	uint32_t number;
	struct net_qp *n = answered(c, f, &number);

	if (!n || n->fault || net_before(number, n->acked) || !net_before(number, n->sent))
		return;
	/* Nobody is there who could have executed what was before. */
	if (f->status != NET_ABSENT)
		n->acked = number;
	if (f->status == NET_ABSENT) {
		net_request_rewind(c, n, n->acked);
		n->wait = NET_WAITS_ABSENT;
	} else if (f->status == NET_RNR) {
		not_ready(c, n, number, f->imm);
	} else {
		fault_set(n, number, status_of(f->status));
	}
	complete(c, n);
}

void net_resumed(struct net_conn *c, const struct net_frame *f)
{
	struct net_qp *n = net_qp_find(c, f->to);

	if (!n || f->from != n->dest_qpn || n->wait == NET_GOES)
		return;
	/* The timer's try it was not. */
	if (n->wait == NET_WAITS_RNR && n->rnr_tries)
		n->rnr_tries--;
	n->wait = NET_GOES;
	n->progress_ns = net_now();
	net_request_start(c, n);
}

/* ---- data ---- */

struct net_qp *net_data_accept(struct net_conn *c, const struct net_frame *f)
{
	uint32_t number, head;
	struct net_qp *n = answered(c, f, &number);
	struct pieces all;
	struct sr_wqe *w;
	int status;

	if (!n || n->fault)
		return NULL;
	head = atomic_load(&n->qp->shm->sq_head);
	if (net_before(number, head) || net_before(number, n->read_done) || !net_before(number, n->next))
		return NULL;
	w = wqe(c, n, number);
	if (!is_answered(w) || w->length != f->total)
		return NULL;
	if (!f->offset)
		n->read_offset = 0;
	if (f->offset != n->read_offset)
		return NULL;
	status = local_pieces(c, n, w, &all);
	if (status) {
		fault_set(n, number, (enum ibv_wc_status)status);
		n->acked = net_before(n->acked, number) ? number : n->acked;
		complete(c, n);
		return NULL;
	}
	return n;
}

int net_data_pieces(struct net_conn *c, struct net_qp *n, const struct net_frame *f, uint32_t offset, uint32_t length,
		    struct pieces *p)
{
	return net_request_pieces(c, n, n->base + f->seq, f->offset + offset, length, p);
}

void net_data_done(struct net_conn *c, struct net_qp *n, const struct net_frame *f)
{
	uint32_t number = n->base + f->seq;

	n->read_offset += f->length;
	n->progress_ns = net_now();
	n->tries = 0;
	if (!(f->flags & NET_LAST))
		return;
	n->read_offset = 0;
	n->read_done = number + 1;
	under_way_count(n, wqe(c, n, number), -1u);
	if (!net_before(number, n->acked))
		n->acked = number + 1;
	complete(c, n);
}

/* ---- the clock ---- */

static void ping(struct net_conn *c)
{
	const struct net_frame f = { .type = NET_PING };

	net_frame_put(c, &f, NULL);
}

static void exceeded(struct net_conn *c, struct net_qp *n, int answers)
{
	fault_set(n, atomic_load(&n->qp->shm->sq_head), IBV_WC_RETRY_EXC_ERR);
	complete(c, n);
	if (!answers && c->state == NET_UP) /* the next one begins with a new connection */
		net_conn_break(c, NULL);
}

/* What cannot be sent for a while is lost. */
static uint64_t unreliable_clock(struct net_conn *c, struct net_qp *n, uint64_t now)
{
	if (c->state == NET_UP)
		return 0;
	if (now < n->progress_ns + LOST_NS)
		return n->progress_ns + LOST_NS;
	list_del(&n->send_link);
	n->next = atomic_load(&n->qp->shm->sq_tail);
	n->acked = n->next;
	n->next_offset = 0;
	complete(c, n);
	return 0;
}

/* A queue that was told to drain holds what it has not begun. */
static int under_way(const struct net_qp *n)
{
	const struct sr_shm_qp *q = n->qp->shm;

	return atomic_load(&q->state) == IBV_QPS_RTS || has_begun(n);
}

uint64_t net_request_clock(struct net_conn *c, struct net_qp *n, uint64_t now)
{
	struct sr_shm_qp *q = n->qp->shm;
	uint64_t interval = interval_of(n);
	int answers;

	if (n->unreliable)
		return unreliable_clock(c, n, now);
	if (!under_way(n)) {
		busy_end(n);
		return 0;
	}
	if (n->wait == NET_WAITS_RNR) {
		if (now < n->resume_ns)
			return n->resume_ns;
		n->wait = NET_GOES;
		n->progress_ns = now;
		net_request_start(c, n);
	}
	if (now < n->progress_ns + interval)
		return n->progress_ns + interval;
	n->progress_ns = now;
	answers = net_host_answers(c, interval < LATE_ACK_NS ? LATE_ACK_NS : interval);
	if (answers && n->wait == NET_GOES)
		n->tries = 0;
	else if (q->timeout ? ++n->tries > q->retry_cnt : c->refused) {
		exceeded(c, n, answers);
		return 0;
	}
	n->wait = NET_GOES;
	net_request_start(c, n);
	ping(c);
	return now + interval;
}
