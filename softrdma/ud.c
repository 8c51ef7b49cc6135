/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unreliable datagrams: the way of one message from its request to the receives of whoever it is for. The executor
 * is always the queue's owner, for such a queue never waits: what finds no queue pair, no receive, or a receive too
 * short, or has the wrong key or partition, is dropped and done (IBA 9.8.3, 10.2.5, 11.6.2).
 *
 * A message is the global route header of 40 bytes and the data; the header is always written, and valid where the
 * completion says so.
 *
 * The target's context is looked up in a table by its index (sr_peer_get); the last one is kept in the private half of
 * the queue pair, under its sq_lock. The lock of only one target is held at a time, the sender's own among them when
 * it sends to itself.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "softrdma/engine.h"

#define BTH_TO_CRC 24 /* BTH, DETH, ICRC: what the header's length counts besides the data */
#define NEXT_HEADER_IBA 0x1b

static void grh_fill(struct sr_run *r, struct op *o, const struct sr_av *av, struct ibv_grh *grh)
{
	uint32_t padded = (uint32_t)ALIGN_UP(o->w->length, 4u);

	grh->version_tclass_flow = htobe32(6u << 28 | av->tclass_flow);
	grh->paylen = htobe16((uint16_t)(padded + BTH_TO_CRC + (o->w->opcode == IBV_WR_SEND_WITH_IMM ? 4u : 0u)));
	grh->next_hdr = NEXT_HEADER_IBA;
	grh->hop_limit = av->hop_limit;
	grh->sgid = r->ctx->port[r->q->port - 1].gid[av->sgid_index];
	memcpy(grh->dgid.raw, av->dgid, sizeof(av->dgid));
}

static void cqe_fill(struct op *o, const struct sr_sender *from, struct sr_cqe *c)
{
	*c = (struct sr_cqe){ .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV, .src_qp = from->qpn,
			      .byte_len = (uint32_t)o->w->length + SR_GRH, .slid = from->slid, .sl = from->sl,
			      .wc_flags = from->routed ? IBV_WC_GRH : 0 };
	if (o->w->opcode == IBV_WR_SEND_WITH_IMM) {
		c->imm = o->w->imm;
		c->wc_flags |= IBV_WC_WITH_IMM;
	}
}

/* rx_lock of o->d held. */
static void receive(struct sr_run *r, struct op *o, const struct sr_sender *from)
{
	uint64_t len = o->w->length + SR_GRH;
	struct pieces there;
	struct sr_rwqe *w;
	struct sr_cqe c;
	uint32_t slot;
	int err;

	w = sr_rq_peek(r, o, &slot);
	if (!w || len > w->length)
		return;
	there.n = 0;
	if (gather(&there, o->to->seg, o->pd, w->sge, w->nsge, len, IBV_ACCESS_LOCAL_WRITE)) {
		sr_receive_fault(r, o, slot, IBV_WC_LOC_PROT_ERR, 0);
		return;
	}
	cqe_fill(o, from, &c);
	err = sr_place(r, o, len, &there, &c);
	if (!err)
		sr_receive_complete(r, o, &c, slot);
	else if (err == -EFAULT && o->from->known)
		sr_receive_fault(r, o, slot, IBV_WC_LOC_PROT_ERR, 0);
}

static int listens(const struct sr_shm_qp *d, const struct sr_sender *from, uint32_t qpn, uint32_t qkey)
{
	uint32_t state = atomic_load_explicit(&d->state, memory_order_relaxed);

	return d->qpn == qpn && d->type == IBV_QPT_UD && d->qkey == qkey && (!from->site || d->site == from->site) &&
	       sr_pkeys_match(from->pkey, d->pkey) &&
	       (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE);
}

void sr_ud_deliver(struct sr_run *r, struct op *o, const struct sr_sender *from, struct sr_peer *to, uint32_t qpn)
{
	o->d = sr_qp_find(to->seg, qpn);
	if (!o->d || !sr_peer_alive_lately(r->ctx, to))
		return;
	r->dst = o->to = to;
	sr_rx_lock(r->ctx, to, o->d);
	if (listens(o->d, from, qpn, o->w->rkey)) {
		o->rq = sr_at(to->seg, o->d->rq);
		o->pd = o->d->pd;
		receive(r, o, from);
	}
	rlock_release(&o->d->rx_lock);
}

static void deliver_members(struct sr_run *r, struct op *o, const struct sr_av *av, const struct sr_sender *from,
			    uint32_t index)
{
	struct sr_peer *p = sr_peer_get(r->ctx, index);
	uint32_t i, number, n = p ? atomic_load(&p->seg->members) : 0;
	struct pieces all = o->local; /* moving uses them up */

	if (p)
		sr_peer_keep(r->ctx, p);
	for (i = 0; i < n; i++) {
		struct sr_member *m = &p->seg->member[i];

		number = atomic_load_explicit(&m->number, memory_order_acquire);
		if (!number || memcmp(m->gid, av->dgid, sizeof(m->gid)))
			continue;
		o->local = all;
		sr_ud_deliver(r, o, from, p, index << SR_QP_BITS | (number - 1));
	}
	o->local = all;
	sr_peer_put(r->ctx, p);
}

static void deliver_group(struct sr_run *r, struct op *o, struct sr_av *av, const struct sr_sender *from)
{
	struct sr_group *g = sr_group_find(r->ctx, av->dgid, &av->group);
	uint32_t word;

	for (word = 0; g && word < SR_MAX_CTX / 64; word++) {
		uint64_t bits = atomic_load(&g->contexts[word]);

		for (; bits; bits &= bits - 1) {
			uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);

			if (index != r->ctx->seg->index || !(r->q->flags & SR_QP_BLOCK_SELF))
				deliver_members(r, o, av, from, index);
		}
	}
}

int sr_ud_send(struct sr_run *r, struct op *o)
{
	struct sr_av *av = sr_wqe_av(r->q, o->w);
	/* A message to a group comes to all ports. */
	const struct sr_sender from = { .qpn = r->q->qpn, .slid = r->ctx->port[r->q->port - 1].lid, .site = av->site,
					.pkey = r->q->pkey, .sl = av->sl, .routed = av->global };
	struct ibv_grh grh;
	struct sr_peer *to;

	if (!av->multicast && !av->site && !r->ctx->net)
		return IBV_WC_SUCCESS;
	grh_fill(r, o, av, &grh);
	o->local.v[0] = (struct iovec){ &grh, SR_GRH };
	if (unlikely(av->host))
		return sr_net_datagram(r, o, &from, av->host);
	if (av->multicast) {
		if (r->ctx->net && sr_net_group_send(r, o, &from, av->dgid))
			return IBV_WC_LOC_PROT_ERR;
		deliver_group(r, o, av, &from);
		return IBV_WC_SUCCESS;
	}
	to = sr_qp_route(r->ctx, r->ctx->qps.object[r->q->number], o->w->target >> SR_QP_BITS);
	if (unlikely(to && to->apart))
		return sr_net_datagram_apart(r, o, &from, to, av);
	if (to && av->site)
		sr_ud_deliver(r, o, &from, to, o->w->target);
	return IBV_WC_SUCCESS;
}
