/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several short RDMA WRITEs of a posted list in one crossing into the target: the kernel takes 400 ns for the first piece of a
 * call and 140 for each further one.
 *
 * Only requests that go well are taken together: the first of another kind, or with a fault of its own, ends the batch, and
 * is then executed by itself, with all that follows from a fault. Nothing of a request is done before those ahead of it: its pieces
 * come behind theirs in the call, which stops at the first that it cannot write. Only the queue's owner batches: what he leaves behind when he
 * dies, nobody runs again. With sq_lock held, rx_lock meanwhile.
 */
#include <sys/uio.h>

#include "softrdma/engine.h"
#include "softrdma/vm.h"

#define BATCH_BYTES 512u /* the longest that is taken along */
#define TAIL_BYTES 8u

struct batch {
	struct iovec from[SR_BATCH], to[2 * SR_BATCH]; /* a request's last bytes are a piece of their own */
	uint32_t pieces, n;
};

/* Where its data is here, if it is a request that may be taken along. */
static int source(struct sr_run *r, struct sr_wqe *w, struct iovec *ret)
{
	uint64_t va = (uintptr_t)w->sge;

	if (w->opcode != IBV_WR_RDMA_WRITE || !w->length || w->length > BATCH_BYTES)
		return 0;
	if (!(w->flags & IBV_SEND_INLINE) &&
	    (w->nsge != 1 || sr_key_check(r->src->seg, w->sge[0].lkey, w->sge[0].addr, w->length, 0, r->q->pd, &va)))
		return 0;
	*ret = (struct iovec){ (void *)(uintptr_t)va, w->length };
	return 1;
}

static int add(struct sr_run *r, struct sr_shm_qp *d, struct sr_wqe *w, struct batch *b)
{
	uint64_t va, tail = w->length > TAIL_BYTES ? TAIL_BYTES : w->length;

	if (!source(r, w, &b->from[b->n]) || sr_rkey_check(r->dst->seg, w->rkey, w->remote_addr, w->length,
							   IBV_ACCESS_REMOTE_WRITE, d->pd, d->qpn, &va))
		return 0;
	if (w->length > tail)
		b->to[b->pieces++] = (struct iovec){ (void *)(uintptr_t)va, w->length - tail };
	b->to[b->pieces++] = (struct iovec){ (void *)(uintptr_t)(va + w->length - tail), tail };
	b->n++;
	return 1;
}

/* How many of its requests are done. */
static uint32_t move(struct sr_run *r, const struct batch *b)
{
	long got = sr_vm_copy(r->dst->pid, 1, b->from, b->n, b->to, b->pieces);
	uint32_t n = 0;

	for (; n < b->n && got >= (long)b->from[n].iov_len; n++)
		got -= (long)b->from[n].iov_len;
	return n;
}

uint32_t sr_batch_run(struct sr_run *r, uint32_t head, uint32_t tail)
{
	struct sr_shm_qp *q = r->q, *d;
	struct batch b;
	uint32_t n = 0;

	if (!r->mine || q->type != IBV_QPT_RC || !r->dst || r->dst->local || r->dst->no_vm ||
	    !sr_peer_alive_lately(r->ctx, r->dst))
		return 0;
	d = sr_qp_find(r->dst->seg, q->dest_qpn);
	if (!d)
		return 0;
	b.n = b.pieces = 0;
	sr_rx_lock(r->ctx, r->dst, d);
	if (d->established && d->access & IBV_ACCESS_REMOTE_WRITE && sr_responds(q, d))
		while (b.n < SR_BATCH && head != tail && add(r, d, sr_sq_slot(r->src->seg, q, head), &b))
			head++;
	if (b.n > 1)
		n = move(r, &b);
	rlock_release(&d->rx_lock);
	return n;
}
