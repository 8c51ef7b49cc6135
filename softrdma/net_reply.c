/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the other end says to a queue pair's requests: that they are executed (ACK), refused (NAK), or may be sent again (READY), and
 * the data of READs and atomics. An answer to a life that is over, or to a number that is, means nothing.
 *
 * After a NAK, or a connection that broke, the requester goes back to what was not acknowledged. Under the connection's lock.
 *
 * The last acknowledgement and a disconnect. Who has got all that it wants says so in another way, by rdma_cm or by a socket, and this program moves its
 * queue pair to ERR then: what is not complete ends as flushed. An adapter acknowledges as it completes a receive, and takes in at once what comes; here an ACK
 * may wait for half a millisecond to go with a request, and then in the socket until somebody reads. So
 *
 *   the other end   a queue pair that is moved to ERR, or destroyed, first says what it owes (net_pump). librdmacm does one or the other before it disconnects
 *   this end        a queue pair that is moved to ERR first hears what is there (sr_net_take_in)
 *
 *      b: receives, to ERR: ACK ---- data's TCP ----> in a's socket ------------------> a, to ERR: heard, complete; the rest flushed
 *      b:                   disconnect -- another TCP connection --> a is told
 *
 * The two connections have their own clocks: where the ACK's packet is lost, and the disconnect's is not, the send ends as flushed, as where a real one is lost.
 */
#include "base/sys.h"
#include "softrdma/net_request.h"

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
	net_complete(c, n);
}

/* Counts anew the READs and atomics that were sent before @number and are not answered. sq_lock held. */
static void recount(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	uint32_t i = atomic_load(&n->qp->shm->sq_head);

	n->reads = n->atomics = 0;
	for (; net_before(i, number); i++)
		if (!net_before(i, n->read_done))
			net_under_way_count(n, net_wqe(c, n, i), 1);
}

void net_request_rewind(struct net_conn *c, struct net_qp *n, uint32_t number)
{
	struct sr_context *ctx = net_ctx(c);

	if (n->unreliable) {
		/* The message that was cut off is lost. */
		n->next += n->next_offset ? 1 : 0;
		n->next_offset = 0;
		n->acked = n->next;
		net_complete(c, n);
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

	n->refusals++;
	net_request_rewind(c, n, number);
	if (q->rnr_retry != 7 && n->rnr_tries >= q->rnr_retry) {
		net_fault_set(n, number, IBV_WC_RNR_RETRY_EXC_ERR);
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

/* The fault that is known ends the queue pair before anything that is said of @number could. */
static int is_behind_fault(const struct net_qp *n, uint32_t number)
{
	return n->fault && !net_before(number, n->fault_at);
}

/* A READ or an atomic that is executed, but not answered: that may still be refused. */
static int is_owed(const struct net_conn *c, const struct net_qp *n, uint32_t number)
{
	return !net_before(number, atomic_load(&n->qp->shm->sq_head)) && !net_before(number, n->read_done) &&
	       net_is_answered(net_wqe(c, n, number));
}

void net_refused(struct net_conn *c, const struct net_frame *f)
{
	uint32_t number;
	struct net_qp *n = answered(c, f, &number);

	if (!n || is_behind_fault(n, number) || !net_before(number, n->sent) || (net_before(number, n->acked) && !is_owed(c, n, number)))
		return;
	/* Nobody is there who could have executed what was before. */
	if (f->status != NET_ABSENT && net_before(n->acked, number))
		n->acked = number;
	if (f->status == NET_ABSENT) {
		net_request_rewind(c, n, net_before(number, n->acked) ? number : n->acked);
		n->wait = NET_WAITS_ABSENT;
	} else if (f->status == NET_RNR) {
		not_ready(c, n, number, f->imm);
	} else {
		net_fault_set(n, number, status_of(f->status));
	}
	net_complete(c, n);
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

	if (!n || is_behind_fault(n, number))
		return NULL;
	head = atomic_load(&n->qp->shm->sq_head);
	if (net_before(number, head) || net_before(number, n->read_done) || !net_before(number, n->next))
		return NULL;
	w = net_wqe(c, n, number);
	if (!net_is_answered(w) || w->length != f->total)
		return NULL;
	if (!f->offset)
		n->read_offset = 0;
	if (f->offset != n->read_offset)
		return NULL;
	status = net_local_pieces(c, n, w, &all);
	if (!status)
		return n;
	net_data_fault(c, n, f, (enum ibv_wc_status)status);
	return NULL;
}

void net_data_fault(struct net_conn *c, struct net_qp *n, const struct net_frame *f, enum ibv_wc_status status)
{
	uint32_t number = n->base + f->seq;

	if (net_before(n->acked, number))
		n->acked = number;
	net_fault_set(n, number, status);
	net_complete(c, n);
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
	net_under_way_count(n, net_wqe(c, n, number), -1u);
	if (!net_before(number, n->acked))
		n->acked = number + 1;
	net_complete(c, n);
}
