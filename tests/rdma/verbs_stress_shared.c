/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared receive queue of a thread. It has as many receives as a connection would have alone, which are given again only when their message has been looked at:
 * so no sender overtakes what its peer has not seen yet, and senders wait often.
 */
#include <stdlib.h>
#include <string.h>

#include "verbs_stress.h"

void shared_post(struct worker *w, uint64_t slot)
{
	uint64_t id = w->pool_next++ * options.depth + slot;
	struct ibv_sge sge = { (uintptr_t)(w->pool + slot * options.largest), options.largest, w->pool_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(w->pool + slot * options.largest, 0, 64 < options.largest ? 64 : options.largest);
	w->pool_ids[slot] = id + 1;
	must(!ibv_post_srq_recv(w->srq, &wr, &bad), "ibv_post_srq_recv");
}

void shared_create(struct worker *w)
{
	struct ibv_srq_init_attr_ex init = { .attr = { .max_wr = options.depth, .max_sge = 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd };
	size_t all = (size_t)options.depth * options.largest;

	if (options.xrc) {
		init.comp_mask |= IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		init.srq_type = IBV_SRQT_XRC;
		init.xrcd = domain;
		init.cq = w->cqs[1];
	}
	w->srq = ibv_create_srq_ex(context, &init);
	must(w->srq != NULL, "ibv_create_srq");
	w->pool = aligned_alloc(4096, (all + 4095) & ~(size_t)4095);
	w->pool_ids = calloc(options.depth, sizeof(*w->pool_ids));
	must(w->pool && w->pool_ids, "memory");
	w->pool_mr = ibv_reg_mr(pd, w->pool, all, IBV_ACCESS_LOCAL_WRITE);
	must(w->pool_mr != NULL, "ibv_reg_mr");
	for (uint64_t i = 0; i < options.depth; i++)
		shared_post(w, i);
}

uint8_t *shared_take(struct worker *w, uint64_t id)
{
	uint64_t slot = id % options.depth;

	if (w->pool_ids[slot] != id + 1)
		wrong("receive %lu of the shared queue completed, in whose place is %lu", (unsigned long)id,
		      (unsigned long)w->pool_ids[slot] - 1);
	w->pool_ids[slot] = 0;
	return w->pool + slot * options.largest;
}

void shared_destroy(struct worker *w)
{
	must(!ibv_destroy_srq(w->srq) && !ibv_dereg_mr(w->pool_mr), "ibv_destroy_srq");
}
