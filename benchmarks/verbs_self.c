/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue pair connected to itself. Owns nothing. */
#include "verbs_self.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void self_must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

struct ibv_context *self_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	self_must(context != NULL, "no device");
	return context;
}

static void connect_to_itself(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_port_attr port;
	union ibv_gid gid;

	self_must(!ibv_query_port(qp->context, 1, &port) && !ibv_query_gid(qp->context, 1, 0, &gid), "the port");
	self_must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
				  .ah_attr = { .dlid = port.lid, .port_num = 1, .is_global = !port.lid, .grh = { .dgid = gid, .hop_limit = 1 } } };
	self_must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				  .max_rd_atomic = 1 };
	self_must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

struct ibv_qp *self_qp(struct ibv_pd *pd, struct ibv_cq *cq, const struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr init = { .cap = *cap, .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	self_must(qp != NULL, "ibv_create_qp");
	connect_to_itself(qp);
	return qp;
}

double self_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void self_write(struct ibv_qp *qp, const struct ibv_mr *mr, char *at)
{
	struct ibv_sge sge = { (uintptr_t)at, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)at + 64;
	wr.wr.rdma.rkey = mr->rkey;
	self_must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

void self_poll(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc;

	while (n) {
		int got = ibv_poll_cq(cq, 1, &wc);

		self_must(got >= 0 && (!got || !wc.status), "completion");
		n -= got;
	}
}
