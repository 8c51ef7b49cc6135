/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that come and go: three threads make, ask, change and end every kind of verbs object, without a pause, so that nearly each moment is in the midst of that.
 * Next to those that go each has some that stay. What a call answers has to be right for an object that is there: its numbers, its state, its bytes.
 */
#include "feature.h"

#include <infiniband/verbs.h>
#include <pthread.h>

#define THREADS 3
#define WORDS 16u

struct worker {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *datagrams;
	struct ibv_dm *dm; /* WORDS words, each of them @written */
	uint32_t written, seed;
	union ibv_gid gid;
	uint16_t lid;
	_Alignas(4096) char memory[8192];
};

static struct worker workers[THREADS];
static __thread unsigned long rounds[1 << 10]; /* a program's thread-local memory, which the agent's threads have none of: libc looks for it there (agent/libc_state.c) */
static struct ibv_device *device;

static void device_memory_stays(struct worker *w)
{
	uint32_t words[WORDS];

	CHECK(!ibv_memcpy_from_dm(words, w->dm, 0, sizeof(words)));
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK(words[i] == w->written);
	w->written++;
	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = w->written;
	CHECK(!ibv_memcpy_to_dm(w->dm, 0, words, sizeof(words)));
}

static void device_memory(struct worker *w)
{
	struct ibv_alloc_dm_attr attr = { .length = sizeof(uint64_t) };
	struct ibv_dm *dm = ibv_alloc_dm(w->context, &attr);
	uint64_t in = 0x1122334455667788, out = 0;
	struct ibv_mr *mr;

	CHECK(dm);
	CHECK(!ibv_memcpy_to_dm(dm, 0, &in, sizeof(in)));
	mr = ibv_reg_dm_mr(w->pd, dm, 0, sizeof(in), IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->lkey);
	CHECK(!ibv_memcpy_from_dm(&out, dm, 0, sizeof(out)) && in == out);
	CHECK(!ibv_dereg_mr(mr) && !ibv_free_dm(dm));
}

static void domains(struct worker *w)
{
	struct ibv_td_init_attr none = { 0 };
	struct ibv_td *td = ibv_alloc_td(w->context, &none);
	struct ibv_parent_domain_init_attr attr = { .pd = w->pd, .td = td };
	struct ibv_xrcd_init_attr x = { IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(w->context, &x);
	struct ibv_pd *pd, *parent;

	CHECK(td && xrcd);
	parent = ibv_alloc_parent_domain(w->context, &attr);
	pd = ibv_alloc_pd(w->context);
	CHECK(parent && pd);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_dealloc_pd(parent) && !ibv_dealloc_td(td) && !ibv_close_xrcd(xrcd));
}

static void regions(struct worker *w)
{
	struct ibv_mr *mr = ibv_reg_mr(w->pd, w->memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(w->pd, IBV_MW_TYPE_1);
	struct ibv_sge all = { (uintptr_t)w->memory, 4096, mr ? mr->lkey : 0 };

	CHECK(mr && mr->addr == w->memory && mw && mw->rkey != mr->rkey);
	CHECK(!ibv_advise_mr(w->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &all, 1));
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, w->memory + 4096, 4096, 0));
	CHECK(mr->addr == w->memory + 4096);
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
}

static void completions(struct worker *w)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(w->context);
	struct ibv_cq *cq = ibv_create_cq(w->context, 10, w, channel, 0);
	struct ibv_modify_cq_attr moderation = { IBV_CQ_ATTR_MODERATE, { 4, 10 } };
	struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *ex = ibv_create_cq_ex(w->context, &attr);
	struct ibv_wc wc;

	CHECK(channel && cq && ex && cq->cq_context == w && cq->cqe >= 10);
	CHECK(!ibv_modify_cq(cq, &moderation));
	CHECK(!ibv_req_notify_cq(cq, 0) && !ibv_poll_cq(cq, 1, &wc));
	CHECK(!ibv_resize_cq(cq, 40) && cq->cqe >= 40);
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
}

static void queues(struct worker *w)
{
	struct ibv_srq_init_attr some = { .attr = { 8, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(w->pd, &some);
	struct ibv_qp_init_attr init = { .send_cq = w->cq, .recv_cq = w->cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_READ };
	struct ibv_srq_attr has = { .srq_limit = 3 };
	struct ibv_qp *qp = ibv_create_qp(w->pd, &init);

	CHECK(srq && qp);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	memset(&attr, 0, sizeof(attr));
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, &init));
	CHECK(attr.qp_state == IBV_QPS_INIT && attr.qp_access_flags == IBV_ACCESS_REMOTE_READ && init.srq == srq && qp->state == IBV_QPS_INIT);
	CHECK(!ibv_modify_srq(srq, &has, IBV_SRQ_LIMIT) && !ibv_query_srq(srq, &has) && has.srq_limit == 3);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
}

static void datagrams(struct worker *w)
{
	struct ibv_ah_attr where = { .grh = { .dgid = w->gid, .hop_limit = 1 }, .dlid = w->lid, .is_global = 1, .port_num = 1 };
	union ibv_gid group = { .raw = { 0xff, 0x12, 0xff, 0xff, [14] = 1, [15] = (uint8_t)(1 + (w - workers)) } };
	struct ibv_ah *ah = ibv_create_ah(w->pd, &where);

	CHECK(ah);
	CHECK(!ibv_attach_mcast(w->datagrams, &group, 0xc001) && !ibv_detach_mcast(w->datagrams, &group, 0xc001));
	CHECK(!ibv_destroy_ah(ah));
}

static void device_asked(struct worker *w)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	union ibv_gid gid;

	CHECK(context);
	CHECK(!ibv_query_gid(context, 1, 0, &gid) && !memcmp(&gid, &w->gid, sizeof(gid)));
	CHECK(!ibv_query_port(context, 1, &port) && port.lid == w->lid);
	CHECK(!ibv_query_device_ex(context, NULL, &attr) && attr.orig_attr.phys_port_cnt);
	CHECK(!ibv_close_device(context));
}

static void begin(struct worker *w)
{
	struct ibv_alloc_dm_attr attr = { .length = WORDS * 4 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	uint32_t zeros[WORDS] = { 0 };
	struct ibv_port_attr port;

	w->context = ibv_open_device(device);
	CHECK(w->context && !ibv_query_port(w->context, 1, &port) && !ibv_query_gid(w->context, 1, 0, &w->gid));
	w->lid = port.lid;
	w->seed = (uint32_t)(w - workers);
	w->pd = ibv_alloc_pd(w->context);
	w->cq = ibv_create_cq(w->context, 100, NULL, NULL, 0);
	w->dm = ibv_alloc_dm(w->context, &attr);
	CHECK(w->pd && w->cq && w->dm && !ibv_memcpy_to_dm(w->dm, 0, zeros, sizeof(zeros)));
	init.send_cq = init.recv_cq = w->cq;
	w->datagrams = ibv_create_qp(w->pd, &init);
	CHECK(w->datagrams && !ibv_modify_qp(w->datagrams, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
}

static void round_of(struct worker *w)
{
	static void (*const kinds[])(struct worker *) = { device_memory, domains, regions, completions, queues, datagrams, device_asked };

	w->seed = w->seed * 1664525u + 1013904223u;
	kinds[(w->seed >> 16) % 7](w);
	device_memory_stays(w);
	rounds[w->seed % (1 << 10)]++;
}

static void *work(void *w)
{
	unsigned long made = 0;

	for (; !feature_finished(); made++)
		round_of(w);
	for (size_t i = 0; i < 1 << 10; i++)
		made -= rounds[i];
	CHECK(!made);
	return NULL;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	pthread_t threads[THREADS];

	if (!list || !list[0])
		feature_skip("no RDMA device");
	device = list[0];
	for (int i = 0; i < THREADS; i++)
		begin(&workers[i]);
	for (int i = 1; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, &workers[i]));
	feature_ready();
	do
		round_of(&workers[0]);
	while (feature_step());
	for (int i = 1; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	return 0;
}
