/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tens of thousands of regions, of which each lets in its own word of memory and no other: writes go from one to another, by the keys that the program has had from the beginning, and to and
 * from some that are registered meanwhile, and may have what the device calls an older one now.
 */
#include "feature.h"

#include <infiniband/verbs.h>

#define REGIONS 30000u
#define WORDS 512u
#define WRITES 64u

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *regions[REGIONS];
static uint64_t words[WORDS];
static uint64_t number;

static struct ibv_mr *region(uint32_t word)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, &words[word % WORDS], sizeof(*words), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	CHECK(mr);
	return mr;
}

static void connect_to_itself(struct ibv_context *context)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_port_attr port;
	union ibv_gid gid;

	CHECK(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid));
	qp = ibv_create_qp(pd, &init);
	CHECK(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				     .ah_attr = { .grh = { .dgid = gid, .hop_limit = 1 }, .dlid = port.lid, .is_global = 1, .port_num = 1 } };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void write_through(const struct ibv_mr *from, const struct ibv_mr *to)
{
	uint64_t *source = from->addr, *target = to->addr;
	struct ibv_sge sge = { (uintptr_t)source, sizeof(*source), from->lkey };
	struct ibv_send_wr wr = { .wr_id = ++number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { (uintptr_t)target, to->rkey } }, *bad;
	struct ibv_wc wc;
	int n;

	*source = number;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.wr_id == number);
	if (wc.status)
		feature_fail("a write from the region with key 0x%x to that with 0x%x: %s", from->lkey, to->rkey, ibv_wc_status_str(wc.status));
	CHECK(*(volatile uint64_t *)target == number);
}

/* Its keys are none that the program has already. */
static void check_new(const struct ibv_mr *mr)
{
	for (uint32_t i = 0; i < REGIONS; i++)
		CHECK(regions[i]->lkey != mr->lkey && regions[i]->rkey != mr->rkey);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	uint32_t at = 0;

	if (!list || !list[0])
		feature_skip("no RDMA device");
	context = ibv_open_device(list[0]);
	CHECK(context && (pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 8, NULL, NULL, 0)));
	connect_to_itself(context);
	for (uint32_t i = 0; i < REGIONS; i++)
		regions[i] = region(i);
	feature_ready();
	do {
		struct ibv_mr *newer = region(at + 1);

		check_new(newer);
		for (uint32_t i = 0; i < WRITES; i++, at += 7919)
			write_through(regions[at % REGIONS], regions[(at + 7919) % REGIONS]);
		write_through(newer, regions[at % REGIONS]);
		write_through(regions[at % REGIONS], newer);
		CHECK(!ibv_dereg_mr(newer));
	} while (feature_step());
	return 0;
}
