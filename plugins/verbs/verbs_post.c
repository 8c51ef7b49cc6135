/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The posting half of the data path. Each request is copied whole into the slot of its position before the device gets it
 * (another thread may poll its completion at once), under the queue's lock; the device gets the slot's handle for
 * wr_id. Keys are translated only after a restart, into a copy of the scatter list on the stack.
 *
 * Requests travel to the device in chains of up to BATCH, so a program that posts lists keeps what it gains by them. What the device
 * refuses is not recorded: the head moves over the accepted ones only.
 */
#include "plugins/verbs/verbs_internal.h"

#define BATCH 16
#define BATCH_SGES VERBS_MAX_SGE

void verbs_sges_real(struct ibv_context *context, struct ibv_sge *to, const struct ibv_sge *from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		to[i] = from[i];
		to[i].lkey = verbs_lkey_real(shadow_context(context), from[i].lkey);
	}
}

static inline int copy_inline(struct verbs_ring *r, struct verbs_send *s, const struct ibv_send_wr *wr)
{
	char *to = send_data(s);
	uint32_t length = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		uint32_t n = wr->sg_list[i].length;

		if (n > r->max_inline - length)
			return EINVAL;
		memcpy(to + length, (const void *)(uintptr_t)wr->sg_list[i].addr, n);
		length += n;
	}
	s->inline_length = length;
	return 0;
}

__attribute__((noinline)) int verbs_ring_refresh(struct verbs_ring *r, uint64_t head, uint64_t position)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);

	r->credits = r->capacity - (uint32_t)(head - tail);
	if (unlikely(head - tail > r->capacity)) /* a no-op of ours is in the reserve */
		r->credits = 0;
	return position - head < r->credits;
}

/* Field by field, as the program has just written it: the whole would wait until all of that is in the cache. */
static inline void copy_piece(struct ibv_sge *to, const struct ibv_sge *from)
{
	const volatile struct ibv_sge *f = from;

	to->addr = f->addr;
	to->length = f->length;
	to->lkey = f->lkey;
}

/* Fills the slot; 0 or an errno. */
static inline int record_send(struct verbs_ring *q, struct verbs_send *s, const struct ibv_send_wr *wr)
{
	struct ibv_sge *sges;

	if (unlikely((uint32_t)wr->num_sge > q->max_sge))
		return EINVAL;
	if (unlikely(wr->opcode > IBV_WR_SEND_WITH_INV))
		return EOPNOTSUPP;
	s->wr_id = wr->wr_id;
	s->num_sge = (uint16_t)wr->num_sge;
	s->opcode = (uint8_t)wr->opcode;
	s->slot_flags = 0;
	s->flags = wr->send_flags | q->signal_all;
	s->imm = wr->imm_data;
	s->remote_addr = wr->wr.atomic.remote_addr; /* the first member of wr.rdma too */
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		s->rkey = wr->wr.atomic.rkey;
		s->compare_add = wr->wr.atomic.compare_add;
		s->swap = wr->wr.atomic.swap;
	} else {
		s->rkey = wr->wr.rdma.rkey;
	}
	if (wr->send_flags & IBV_SEND_INLINE)
		return copy_inline(q, s, wr);
	sges = send_data(s);
	for (int i = 0; i < wr->num_sge; i++)
		copy_piece(&sges[i], &wr->sg_list[i]);
	return 0;
}

_Static_assert(offsetof(struct ibv_send_wr, wr.atomic.remote_addr) == offsetof(struct ibv_send_wr, wr.rdma.remote_addr),
	       "one remote address");

/* The device's own objects, of a request that binds a window. */
static void translate_bind(struct ibv_send_wr *wr)
{
	if (wr->bind_mw.mw) {
		wr->bind_mw.rkey = verbs_mw_key_real(shadow_mw(wr->bind_mw.mw), wr->bind_mw.rkey);
		wr->bind_mw.mw = shadow_mw(wr->bind_mw.mw)->real;
	}
	if (wr->bind_mw.bind_info.mr)
		wr->bind_mw.bind_info.mr = shadow_mr(wr->bind_mw.bind_info.mr)->real;
}

/* The remote half of a request, for the device of this life. */
void verbs_remote_real(const struct shadow_qp *qp, struct ibv_send_wr *wr)
{
	struct verbs_owner peer = qp->peer_owner;

	if (qp->sq.translate & VERBS_TRANSLATE_XRC)
		wr->qp_type.xrc.remote_srqn = verbs_srqn_real(wr->qp_type.xrc.remote_srqn, verbs_qp_address(qp), &peer);
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.rkey = verbs_rkey_real(peer, qp->peer_device, wr->wr.atomic.rkey);
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		wr->wr.rdma.rkey = verbs_rkey_real(peer, qp->peer_device, wr->wr.rdma.rkey);
		break;
	case IBV_WR_SEND_WITH_INV:
		wr->invalidate_rkey = verbs_rkey_real(peer, qp->peer_device, wr->invalidate_rkey);
		break;
	case IBV_WR_LOCAL_INV:
		wr->invalidate_rkey = verbs_mw_own_real(qp->pub.context, wr->invalidate_rkey);
		break;
	default:
		break;
	}
}

/* Where a datagram goes, for the device of this life. */
void verbs_ud_real(struct ibv_send_wr *wr)
{
	struct shadow_ah *ah = shadow_ah(wr->wr.ud.ah);
	uint32_t member = 0;

	if (!wr->wr.ud.ah)
		return;
	wr->wr.ud.ah = ah->real;
	if (!verbs_moved)
		return;
	wr->wr.ud.remote_qpn = verbs_qpn_real(wr->wr.ud.remote_qpn, verbs_ah_address(ah), &member);
	if (unlikely(ah->more))
		wr->wr.ud.ah = verbs_ah_to(ah, member);
}

/* Records and prepares one; how many sges of @sges it took, or -errno. */
__attribute__((always_inline)) static inline int prepare_send(struct shadow_qp *qp, uint64_t head, uint64_t position,
								       const struct ibv_send_wr *wr, struct ibv_send_wr *to, struct ibv_sge *sges)
{
	struct verbs_ring *q = &qp->sq;
	int r;

	if (unlikely(position - head >= q->credits) && !verbs_ring_refresh(q, head, position))
		return -ENOMEM;
	r = record_send(q, ring_send(q, position), wr);
	if (unlikely(r))
		return -r;
	memcpy(to, wr, offsetof(struct ibv_send_wr, bind_mw)); /* what is behind it is theirs alone */
	to->wr_id = ring_wr_id(q, position);
	if (unlikely(send_of_window(wr->opcode))) {
		to->bind_mw = wr->bind_mw;
		verbs_mw_post(qp, ring_send(q, position), wr);
		if (wr->opcode == IBV_WR_BIND_MW)
			translate_bind(to);
	}
	if (likely(!q->translate))
		return 0;
	if (q->translate & VERBS_TRANSLATE_AH) {
		ring_send(q, position)->qkey = wr->wr.ud.remote_qkey;
		verbs_ud_real(to);
	}
	if (q->translate & VERBS_TRANSLATE_XRC && !send_of_window(wr->opcode))
		ring_send(q, position)->qkey = wr->qp_type.xrc.remote_srqn;
	if (!(q->translate & VERBS_TRANSLATE_KEYS))
		return 0;
	verbs_remote_real(qp, to);
	if (wr->send_flags & IBV_SEND_INLINE)
		return 0;
	verbs_sges_real(qp->pub.context, sges, wr->sg_list, (uint32_t)wr->num_sge);
	to->sg_list = sges;
	return wr->num_sge;
}

/* How many requests of the chain the device took: those before @bad. */
static int accepted(const struct ibv_send_wr *chain, int n, const struct ibv_send_wr *bad)
{
	for (int i = 0; i < n; i++)
		if (&chain[i] == bad)
			return i;
	return n;
}

/* The device has refused what was prepared from @position on. */
static void unprepare(struct shadow_qp *qp, uint64_t position, const struct ibv_send_wr *chain, int n)
{
	for (int i = 0; i < n; i++)
		if (send_of_window(chain[i].opcode))
			verbs_mw_unpost(qp, ring_send(&qp->sq, position + (uint64_t)i));
}

static inline void advance_send(struct shadow_qp *qp, uint64_t head, const struct ibv_send_wr *chain, int n)
{
	for (int i = 0; i < n; i++)
		if (send_two_sided(chain[i].opcode))
			qp->two_sided++;
	ring_advance(&qp->sq, head, (uint32_t)n);
}

/* Posts up to BATCH requests from *@wr on, which it moves over those accepted. 0 or an errno. */
static int post_send_batch(struct shadow_qp *qp, struct ibv_send_wr **wr)
{
	struct ibv_send_wr chain[BATCH], *bad = NULL, *w = *wr;
	struct ibv_sge sges[BATCH_SGES];
	uint64_t head = ring_begin(&qp->sq);
	int n = 0, used = 0, r = 0, refused = 0;

	while (w && n < BATCH && used + w->num_sge <= BATCH_SGES) {
		r = prepare_send(qp, head, head + (uint64_t)n, w, &chain[n], &sges[used]);
		if (r < 0)
			break;
		used += r;
		if (n)
			chain[n - 1].next = &chain[n];
		chain[n++].next = NULL;
		w = w->next;
	}
	if (n) {
		refused = qp->sq.real->context->ops.post_send(qp->sq.real, chain, &bad);
		if (refused) {
			int all = n;

			n = accepted(chain, n, bad);
			unprepare(qp, head + (uint64_t)n, &chain[n], all - n);
		}
		advance_send(qp, head, chain, n);
	}
	if (!refused && r >= 0 && !n) /* more pieces than any device takes */
		return EINVAL;
	while (n--)
		*wr = (*wr)->next;
	return refused ? refused : r < 0 ? -r : 0;
}

/* The common case, one request: its copy and nothing else. */
__attribute__((always_inline)) static inline int post_send_one(struct shadow_qp *qp, struct ibv_send_wr *wr)
{
	uint64_t head = ring_begin(&qp->sq);
	struct ibv_sge sges[BATCH_SGES];
	struct ibv_send_wr one, *bad = NULL;
	int r = prepare_send(qp, head, head, wr, &one, sges);

	if (unlikely(r < 0))
		return -r;
	r = qp->sq.real->context->ops.post_send(qp->sq.real, &one, &bad);
	if (likely(!r))
		advance_send(qp, head, &one, 1);
	else
		unprepare(qp, head, &one, 1);
	return r;
}

int verbs_post_room(struct shadow_qp *qp, uint32_t n)
{
	uint64_t head;
	int held, room;

	fermata_device_enter();
	held = verbs_lock_acquire(&qp->sq.lock);
	head = atomic_load_explicit(&qp->sq.head, memory_order_relaxed);
	room = qp->sq.credits >= n || verbs_ring_refresh(&qp->sq, head, head + n - 1);
	verbs_lock_release(&qp->sq.lock, held);
	fermata_device_leave();
	return room ? 0 : ENOMEM;
}

int verbs_post_send(struct ibv_qp *p, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct shadow_qp *qp = shadow_qp(p);
	int r = 0, held;

	fermata_device_enter();
	held = verbs_lock_acquire(&qp->sq.lock);
	if (likely(wr && !wr->next && (uint32_t)wr->num_sge <= BATCH_SGES))
		r = post_send_one(qp, wr);
	else
		while (wr && !r)
			r = post_send_batch(qp, &wr);
	verbs_lock_release(&qp->sq.lock, held);
	fermata_device_leave();
	if (unlikely(r))
		*bad = wr;
	return r;
}

static int post_recv_one(struct shadow_qp *qp, const struct ibv_recv_wr *wr)
{
	struct verbs_ring *q = &qp->rq;
	uint64_t head = ring_begin(q);
	struct verbs_receive *slot = ring_receive(q, head);
	struct ibv_recv_wr one = { .num_sge = wr->num_sge, .sg_list = wr->sg_list }, *bad;
	struct ibv_sge sges[BATCH_SGES];
	int r;

	if (unlikely(!q->credits) && !verbs_ring_refresh(q, head, head))
		return qp->pub.srq || !qp->pub.recv_cq ? EINVAL : ENOMEM; /* it has no such queue */
	if (unlikely((uint32_t)wr->num_sge > q->max_sge || wr->num_sge > BATCH_SGES))
		return EINVAL;
	slot->wr_id = wr->wr_id;
	slot->num_sge = (uint32_t)wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		copy_piece(&slot->sge[i], &wr->sg_list[i]);
	if (unlikely(q->translate)) {
		verbs_sges_real(qp->pub.context, sges, wr->sg_list, slot->num_sge);
		one.sg_list = sges;
	}
	one.wr_id = ring_wr_id(q, head);
	r = q->real->context->ops.post_recv(q->real, &one, &bad);
	if (likely(!r))
		ring_advance(q, head, 1);
	return r;
}

int verbs_post_recv(struct ibv_qp *p, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct shadow_qp *qp = shadow_qp(p);
	int r = 0, held;

	fermata_device_enter();
	held = verbs_lock_acquire(&qp->rq.lock);
	while (wr) {
		r = post_recv_one(qp, wr);
		if (unlikely(r)) {
			*bad = wr;
			break;
		}
		wr = wr->next;
	}
	verbs_lock_release(&qp->rq.lock, held);
	fermata_device_leave();
	return r;
}
