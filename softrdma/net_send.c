/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a queue pair's requests become on their way to another host: one frame after the other, in order, each with a fragment of the
 * message; and what is done here alone (bind, local invalidation) in its turn. A fault of the request's own memory is noted here and told
 * by net_request.c.
 *
 * Under the connection's lock and the queue's sq_lock.
 */
#include <errno.h>

#include "base/sys.h"
#include "softrdma/net_request.h"

int net_local_pieces(struct net_conn *c, struct net_qp *n, struct sr_wqe *w, struct pieces *p)
{
	struct sr_run r = net_run_of(c, n);
	struct op o = { .w = w };
	int status = sr_local_prepare(&r, &o);

	*p = o.local;
	return status;
}

int net_request_pieces(struct net_conn *c, struct net_qp *n, uint32_t number, uint32_t offset, uint32_t length,
		       struct pieces *p)
{
	struct pieces all;

	if (net_local_pieces(c, n, net_wqe(c, n, number), &all))
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
	return !net_is_answered(w) || n->reads + n->atomics < reads_limit(n);
}

static void frame_fill(const struct net_qp *n, const struct sr_wqe *w, uint32_t length, struct net_frame *f)
{
	int answered = net_is_answered(w), first = !n->next_offset, last = answered || n->next_offset + length == w->length;

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

static void advance(struct net_qp *n, const struct sr_wqe *w, const struct net_frame *f)
{
	n->next_offset += f->length;
	if (!net_before(n->next, n->sent))
		n->sent = n->next + 1;
	if (!(f->flags & NET_LAST))
		return;
	net_under_way_count(n, w, 1);
	n->next_offset = 0;
	n->next++;
}

/* What has been put into the buffer from @number's frame at @at on has not left yet, and shall not. */
static void take_back(struct net_conn *c, struct net_qp *n, uint32_t number, const char *at)
{
	c->out_end = (uint32_t)(at - c->out);
	c->source = NET_FROM_NOTHING;
	n->next = number;
	n->next_offset = 0;
	net_fault_set(n, number, IBV_WC_LOC_PROT_ERR);
}

int net_request_gather(struct net_conn *c, struct net_qp *n)
{
	uint32_t number;
	char *to;

	if (net_gather_run(c, &number, &to))
		return 1;
	take_back(c, n, number, to - sizeof(struct net_frame));
	return 0;
}

static int fragment_put(struct net_conn *c, struct net_qp *n, const struct sr_wqe *w, const struct pieces *all)
{
	uint32_t left = (uint32_t)w->length - n->next_offset;
	uint32_t length = net_is_answered(w) ? 0 : left < NET_PAYLOAD_MAX ? left : NET_PAYLOAD_MAX;
	int apart = length > NET_SMALL;
	struct net_frame f;
	struct pieces p;
	char *to;

	net_cut(all, n->next_offset, apart ? 0 : length, &p);
	if (!net_gather_has_room(&c->gather, p.n) && !net_request_gather(c, n))
		return 0;
	frame_fill(n, w, length, &f);
	to = net_frame_put(c, &f, apart ? 0 : length);
	if (!to)
		return -EAGAIN;
	if (apart) {
		c->source = NET_FROM_REQUEST;
		c->source_qp = n;
		c->source_number = n->next;
		c->source_offset = n->next_offset;
		c->source_left = length;
	} else if (w->flags & IBV_SEND_INLINE) {
		net_copy_known(to, &p);
	} else if (length) {
		net_gather_add(&c->gather, n->next, to, &p);
	}
	advance(n, w, &f);
	return 1;
}

/* What is done here alone waits for all before it, and all behind it waits. */
static int local_operation(struct net_conn *c, struct net_qp *n, struct sr_wqe *w)
{
	struct sr_shm_qp *q = n->qp->shm;
	struct sr_run r = net_run_of(c, n);
	int status;

	if (atomic_load(&q->sq_head) != n->next)
		return 0;
	status = sr_window_request(&r, w);
	if (status) {
		net_fault_set(n, n->next, (enum ibv_wc_status)status);
		return 0;
	}
	/* Its number is one that the other end never hears of. */
	n->next++;
	n->base++;
	n->sent = n->acked = n->read_done = n->next;
	if (sr_complete(&r, w, n->next - 1, IBV_WC_SUCCESS, 0))
		sr_fatal(&r);
	if (n->next == atomic_load(&q->sq_tail))
		net_busy_end(n);
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
	if ((state != IBV_QPS_RTS && !(state == IBV_QPS_SQD && net_before(n->next, n->sent))) || n->wait != NET_GOES || net_is_stopped(n) ||
	    n->next == atomic_load(&q->sq_tail))
		return 0;
	w = net_wqe(c, n, n->next);
	if (sr_is_local_request(w))
		return local_operation(c, n, w);
	if (!n->next_offset && !may_begin(n, w))
		return 0;
	status = net_local_pieces(c, n, w, &all);
	if (status) {
		net_fault_set(n, n->next, (enum ibv_wc_status)status);
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
	net_complete(c, n);
}
