/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended way to poll: between start_poll and end_poll the queue's poll lock is held and the readers look at
 * the entry at its head, in the ring itself; its place is given back when the next is asked for.
 *
 * Time stamps are CLOCK_MONOTONIC of whoever pushed the completion, in nanoseconds: the device's clock runs at 1 GHz.
 */
#include <errno.h>
#include <time.h>

#include "softrdma/device.h"

#define FLAGS_KNOWN                                                                                                \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define FLAGS_STAMP (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define ATTRS_KNOWN (IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)

static struct sr_cq *sr_cq_of(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct sr_cq, ex);
}

/* Takes the entry at the head, if there is one. */
static int entry_take(struct sr_cq *cq)
{
	uint32_t head = atomic_load_explicit(&cq->shm->head, memory_order_relaxed);
	struct sr_cqe *c = &cq->ring[head & cq->mask];

	if (atomic_load_explicit(&c->position, memory_order_acquire) != head + 1)
		return ENOENT;
	cq->ex.wr_id = sr_cqe_take(sr_context(cq->cq.context), c);
	cq->current = c;
	cq->ex.status = c->status;
	return 0;
}

static void entry_give(struct sr_cq *cq)
{
	if (!cq->current)
		return;
	cq->current = NULL;
	atomic_fetch_add_explicit(&cq->shm->head, 1, memory_order_release);
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct sr_cq *cq = sr_cq_of(ex);
	struct sr_context *ctx = sr_context(ex->context);
	int err;

	if (attr && attr->comp_mask)
		return EINVAL;
	sr_cq_polling(cq);
	if (sr_wants_progress(ctx))
		sr_progress(ctx);
	sr_thread_lock(&cq->poll);
	err = entry_take(cq);
	if (unlikely(atomic_load_explicit(&cq->net, memory_order_relaxed))) {
		if (err) {
			sr_thread_unlock(&cq->poll);
			sr_net_poll(ctx);
			sr_thread_lock(&cq->poll);
			err = entry_take(cq);
		}
		if (!err)
			sr_net_polled(ctx);
	}
	if (err)
		sr_thread_unlock(&cq->poll);
	sr_cq_polled(cq, !err);
	return err;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct sr_cq *cq = sr_cq_of(ex);

	entry_give(cq);
	return entry_take(cq);
}

static void end_poll(struct ibv_cq_ex *ex)
{
	struct sr_cq *cq = sr_cq_of(ex);

	entry_give(cq);
	sr_thread_unlock(&cq->poll);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return 0;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return sr_cq_of(ex)->current->timestamp;
}

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t read_wallclock(struct ibv_cq_ex *ex)
{
	return clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - sr_cq_of(ex)->current->timestamp);
}

static void readers_fill(struct ibv_cq_ex *ex, uint64_t flags)
{
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ex->read_completion_ts = read_completion_ts;
	if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		ex->read_completion_wallclock_ns = read_wallclock;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq *cq;

	if ((attr->wc_flags & ~(uint64_t)FLAGS_KNOWN) ||
	    (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
	    ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~(uint32_t)ATTRS_KNOWN))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->cqe > SR_MAX_CQE) {
		errno = EINVAL;
		return NULL;
	}
	cq = ibv_create_cq(context, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
	if (!cq)
		return NULL;
	if (attr->wc_flags & FLAGS_STAMP)
		sr_cq(cq)->shm->flags |= SR_CQ_STAMPED;
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
		sr_cq(cq)->shm->flags |= SR_CQ_IGNORE_OVERRUN;
	readers_fill(&sr_cq(cq)->ex, attr->wc_flags);
	return &sr_cq(cq)->ex;
}

static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	values->comp_mask = 0;
	if (asked & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	if (asked && clock_gettime(CLOCK_MONOTONIC, &values->raw_clock))
		return EINVAL;
	values->comp_mask = asked;
	return 0;
}

void sr_cq_ex_fill(struct verbs_context *v)
{
	v->create_cq_ex = create_cq_ex;
	v->query_rt_values = query_rt_values;
}
