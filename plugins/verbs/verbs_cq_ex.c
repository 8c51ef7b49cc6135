/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended way to poll, over the plain one: start_poll and next_poll take one completion each, which the readers look at until the next. So a queue of this kind is
 * saved as any other. The stamps of one that has them only the device's own readers tell, so each of its completions is
 * taken by start_poll and end_poll of the device, and kept with its stamps. After a restart the device's clock is another's, as after a device's reset; softrdma's goes on.
 *
 * Between start_poll and end_poll the reader's lock is held, as in the device, for the program may poll from several threads.
 */
#include "plugins/verbs/verbs_internal.h"

#define FLAGS_KNOWN (IBV_WC_STANDARD_FLAGS | VERBS_STAMPS)

struct verbs_cq_reader {
	struct lock lock;
	struct ibv_wc wc;
	uint64_t flags; /* enum ibv_create_cq_wc_flags */
	struct verbs_stamps stamps;
};

static struct shadow_cq *cq_of(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct shadow_cq, ex);
}

static struct verbs_cq_reader *reader_of(struct ibv_cq_ex *ex)
{
	return cq_of(ex)->reader;
}

int verbs_cq_take_stamped(struct shadow_cq *cq, struct ibv_wc *wc, struct verbs_stamps *stamps)
{
	struct ibv_cq_ex *real = (struct ibv_cq_ex *)cq->real;
	struct ibv_poll_cq_attr none = { 0 };

	if (ibv_start_poll(real, &none))
		return 0;
	*wc = (struct ibv_wc){ .wr_id = real->wr_id, .status = real->status, .opcode = ibv_wc_read_opcode(real),
			       .vendor_err = ibv_wc_read_vendor_err(real), .byte_len = ibv_wc_read_byte_len(real),
			       .imm_data = ibv_wc_read_imm_data(real), .qp_num = ibv_wc_read_qp_num(real),
			       .src_qp = ibv_wc_read_src_qp(real), .wc_flags = ibv_wc_read_wc_flags(real),
			       .slid = (uint16_t)ibv_wc_read_slid(real), .sl = ibv_wc_read_sl(real),
			       .dlid_path_bits = ibv_wc_read_dlid_path_bits(real) };
	if (cq->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		stamps->completion = ibv_wc_read_completion_ts(real);
	if (cq->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		stamps->wallclock = ibv_wc_read_completion_wallclock_ns(real);
	ibv_end_poll(real);
	return 1;
}

static int poll_stamped(struct shadow_cq *cq, struct verbs_cq_reader *r)
{
	int got, held;

	fermata_device_enter();
	held = verbs_lock_acquire(&cq->lock);
	got = verbs_cq_kept_take(cq, &r->wc, &r->stamps);
	if (!got) {
		do /* one of a queue that is gone is not shown */
			got = verbs_cq_take_stamped(cq, &r->wc, &r->stamps);
		while (got && !verbs_complete(cq, &r->wc, 1));
	}
	verbs_lock_release(&cq->lock, held);
	fermata_device_leave();
	return got;
}

/* 0: there is one, or ENOENT. */
static int take(struct ibv_cq_ex *ex)
{
	struct shadow_cq *cq = cq_of(ex);
	struct verbs_cq_reader *r = cq->reader;
	int got = r->flags & VERBS_STAMPS ? poll_stamped(cq, r) : verbs_poll_cq(&cq->pub, 1, &r->wc);

	if (got <= 0)
		return ENOENT;
	ex->wr_id = r->wc.wr_id;
	ex->status = r->wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int r;

	if (attr && attr->comp_mask)
		return EINVAL;
	lock_acquire(&reader_of(ex)->lock);
	r = take(ex);
	if (r)
		lock_release(&reader_of(ex)->lock);
	return r;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	lock_release(&reader_of(ex)->lock);
}

#define READER(type, name, member)                 \
	static type name(struct ibv_cq_ex *ex)     \
	{                                          \
		return (type)reader_of(ex)->member; \
	}

READER(enum ibv_wc_opcode, read_opcode, wc.opcode)
READER(uint32_t, read_vendor_err, wc.vendor_err)
READER(uint32_t, read_byte_len, wc.byte_len)
READER(__be32, read_imm_data, wc.imm_data)
READER(uint32_t, read_qp_num, wc.qp_num)
READER(uint32_t, read_src_qp, wc.src_qp)
READER(unsigned int, read_wc_flags, wc.wc_flags)
READER(uint32_t, read_slid, wc.slid)
READER(uint8_t, read_sl, wc.sl)
READER(uint8_t, read_dlid_path_bits, wc.dlid_path_bits)
READER(uint64_t, read_stamp, stamps.completion)
READER(uint64_t, read_wallclock, stamps.wallclock)

static void readers_fill(struct ibv_cq_ex *ex)
{
	ex->start_poll = start_poll;
	ex->next_poll = take;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_stamp;
	ex->read_completion_wallclock_ns = read_wallclock;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const int special = attr->wc_flags & VERBS_STAMPS || attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ||
			    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	struct verbs_cq_reader *reader;
	struct ibv_cq *cq;

	if (attr->wc_flags & ~(uint64_t)FLAGS_KNOWN || attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return verbs_unsupported();
	reader = fermata_alloc(sizeof(*reader));
	if (!reader) {
		errno = ENOMEM;
		return NULL;
	}
	reader->flags = attr->wc_flags;
	cq = verbs_cq_create(context, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector, special ? attr : NULL);
	if (!cq) {
		fermata_free(reader);
		return NULL;
	}
	shadow_cq(cq)->reader = reader;
	readers_fill(&shadow_cq(cq)->ex);
	return &shadow_cq(cq)->ex;
}

void verbs_reader_free(struct shadow_cq *cq)
{
	fermata_free(cq->reader);
}

void verbs_cq_ex_fill(struct verbs_context *v)
{
	v->create_cq_ex = create_cq_ex;
	v->modify_cq = verbs_modify_cq;
}
