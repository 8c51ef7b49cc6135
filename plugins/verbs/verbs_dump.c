/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the record of verbs_record.h. */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_record.h"

static int entry(struct fermata_sink *sink, uint32_t kind, const void *data, uint32_t length)
{
	struct verbs_record_entry e = { .kind = kind, .length = length };
	int r = fermata_sink_write(sink, &e, sizeof(e));

	return r ? r : fermata_sink_write(sink, data, length);
}

static int dump_context(struct fermata_sink *sink, struct shadow_context *c)
{
	struct verbs_record_context r = {
		.async_fd = c->ex.context.async_fd,
		.cmd_fd = c->ex.context.cmd_fd,
		.lid = c->device->port[1].virtual_lid,
	};

	memcpy(r.device, c->device->pub.name, sizeof(r.device));
	memcpy(r.gid, &c->device->port[1].virtual_gid[0], sizeof(r.gid));
	return entry(sink, VERBS_RECORD_CONTEXT, &r, sizeof(r));
}

static int dump_mr(struct fermata_sink *sink, const struct shadow_mr *mr)
{
	struct verbs_record_mr r = {
		.address = (uintptr_t)mr->pub.addr,
		.length = mr->pub.length,
		.iova = mr->iova,
		.access = mr->access,
		.lkey = mr->pub.lkey,
		.rkey = mr->pub.rkey,
		.pd = mr->pub.pd->handle,
	};

	return entry(sink, VERBS_RECORD_MR, &r, sizeof(r));
}

static int dump_mw(struct fermata_sink *sink, const struct shadow_mw *mw)
{
	const struct verbs_binding *b = &mw->then;
	struct verbs_record_mw r = {
		.type = mw->pub.type,
		.rkey = mw->key,
		.pd = mw->pub.pd->handle,
	};

	if (verbs_mw_bound(mw, b)) {
		r.bound = 1;
		r.rkey = b->rkey;
		r.address = b->addr;
		r.length = b->length;
		r.access = b->access;
		r.region_lkey = b->mr->pub.lkey;
		r.qp = b->qp ? b->qp->pub.qp_num : 0;
	}
	return entry(sink, VERBS_RECORD_MW, &r, sizeof(r));
}

static int dump_cq(struct fermata_sink *sink, const struct shadow_cq *cq)
{
	struct verbs_record_cq r = {
		.cqe = (uint32_t)cq->pub.cqe,
		.channel_fd = cq->pub.channel ? cq->pub.channel->fd : -1,
		.kept = cq->kept_count,
		.armed = cq->armed,
		.fired = cq->unread,
	};

	return entry(sink, VERBS_RECORD_CQ, &r, sizeof(r));
}

static int dump_qp(struct fermata_sink *sink, const struct shadow_qp *qp)
{
	struct verbs_record_qp r = {
		.number = qp->pub.qp_num,
		.state = qp->real_state,
		.dest_number = qp->attr.dest_qp_num,
		.dest_lid = qp->attr.ah_attr.dlid,
		.port = qp->attr.port_num,
		.max_send_wr = qp->init.cap.max_send_wr,
		.max_recv_wr = qp->init.cap.max_recv_wr,
		.sends_pending = (uint32_t)(atomic_load(&qp->sq.head) - qp->pending),
		.receives_pending = (uint32_t)(atomic_load(&qp->rq.head) - atomic_load(&qp->rq.tail)),
		.two_sided_sent = qp->two_sided,
		.received = qp->received,
	};

	memcpy(r.dest_gid, &qp->attr.ah_attr.grh.dgid, sizeof(r.dest_gid));
	return entry(sink, VERBS_RECORD_QP, &r, sizeof(r));
}

static int dump_srq(struct fermata_sink *sink, const struct shadow_srq *srq)
{
	struct verbs_record_srq r = {
		.max_wr = srq->attr.max_wr,
		.max_sge = srq->attr.max_sge,
		.limit = srq->limit,
		.posted = srq->posted,
	};

	return entry(sink, VERBS_RECORD_SRQ, &r, sizeof(r));
}

static int dump_objects(struct fermata_sink *sink, struct shadow_context *c)
{
	struct shadow_channel *ch;
	struct shadow_mr *mr;
	struct shadow_mw *mw;
	struct shadow_srq *srq;
	struct shadow_cq *cq;
	struct shadow_qp *qp;
	struct shadow_pd *pd;
	int r = dump_context(sink, c);

	list_each(pd, &c->pds, link) {
		struct verbs_record_pd p = { .handle = pd->pub.handle };

		r = r ? r : entry(sink, VERBS_RECORD_PD, &p, sizeof(p));
	}
	list_each(mr, &c->mrs, link)
		r = r ? r : dump_mr(sink, mr);
	list_each(mw, &c->mws, link)
		r = r ? r : dump_mw(sink, mw);
	list_each(ch, &c->channels, link) {
		struct verbs_record_channel p = { .fd = ch->pub.fd };

		r = r ? r : entry(sink, VERBS_RECORD_CHANNEL, &p, sizeof(p));
	}
	list_each(cq, &c->cqs, link)
		r = r ? r : dump_cq(sink, cq);
	list_each(srq, &c->srqs, link)
		r = r ? r : dump_srq(sink, srq);
	list_each(qp, &c->qps, link)
		r = r ? r : dump_qp(sink, qp);
	return r;
}

static uint32_t list_length(const struct list *head)
{
	uint32_t n = 0;

	for (const struct list *l = head->next; l != head; l = l->next)
		n++;
	return n;
}

int verbs_dump(struct fermata_sink *sink)
{
	struct verbs_record head = { .version = VERBS_RECORD_VERSION };
	struct shadow_context *c;
	struct shadow_channel *ch;
	struct shadow_xrcd *x;
	struct shadow_srq *srq;
	struct shadow_dm *dm;
	struct shadow_qp *qp;
	int r = verbs_cm_dump();

	if (r || (list_empty(&verbs_contexts) && verbs_cm_saved(0) < 0))
		return r;
	while (verbs_cm_saved(head.count) >= 0)
		head.count++;
	for_each_context(c) {
		c->regions = list_length(&c->mrs);
		head.count += 1 + list_length(&c->pds) + c->regions + list_length(&c->mws) + list_length(&c->channels) +
			      list_length(&c->cqs) + list_length(&c->srqs) + list_length(&c->qps);
		c->status = raw_fcntl(c->ex.context.async_fd, F_GETFL, 0);
		list_each(ch, &c->channels, link)
			verbs_notify_settle(c, ch);
		r = verbs_mw_settle(c);
		list_each(x, &c->xrcds, link)
			r = r ? r : verbs_xrcd_settle(x);
		list_each(srq, &c->srqs, link)
			r = r ? r : verbs_srq_settle(srq);
		list_each(dm, &c->dms, link)
			r = r ? r : verbs_dm_settle(dm);
		list_each(qp, &c->qps, link)
			verbs_qp_settle(qp);
		r = r ? r : verbs_events_settle(c);
		if (r)
			return r;
	}
	r = fermata_sink_write(sink, &head, sizeof(head));
	for (uint32_t i = 0; !r && verbs_cm_saved(i) >= 0; i++) {
		struct verbs_record_cm p = { .fd = verbs_cm_saved(i) };

		r = entry(sink, VERBS_RECORD_CM, &p, sizeof(p));
	}
	for_each_context(c)
		r = r ? r : dump_objects(sink, c);
	return r;
}
