/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opens a device when it has many descriptors, and waits for each write's event by one of those that this makes: the numbers of the device's descriptors lie above all of the program's own,
 * where a restart keeps what it needs itself.
 */
#include <infiniband/verbs.h>
#include <poll.h>

#include "feature.h"

enum { OWN = 633, CHANNELS = 8 }; /* so that the channels lie on both sides of 640 (base/fdpass.h), and at it */

static char memory[64];

static struct ibv_qp *connect_to_itself(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_port_attr port;
	union ibv_gid gid;

	CHECK(qp && ibv_query_port(pd->context, 1, &port) == 0 && ibv_query_gid(pd->context, 1, 0, &gid) == 0);
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	a.ah_attr = (struct ibv_ah_attr){ .dlid = port.lid, .port_num = 1, .is_global = !port.lid };
	a.ah_attr.grh.dgid = gid;
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	return qp;
}

static void write_once(struct ibv_qp *qp, struct ibv_comp_channel *channel, struct ibv_mr *mr, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct pollfd event = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	wr.wr.rdma.remote_addr = (uintptr_t)memory + 32;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_req_notify_cq(qp->send_cq, 0) == 0 && ibv_post_send(qp, &wr, &bad) == 0);
	CHECK(poll(&event, 1, 20000) == 1 && event.revents == POLLIN);
	CHECK(ibv_get_cq_event(channel, &cq, &context) == 0 && cq == qp->send_cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == id);
}

static void fill_descriptors(char **argv)
{
	while (open("/dev/null", O_RDWR) < OWN - 1)
		CHECK(errno != EMFILE);
	execl("/proc/self/exe", argv[0], "filled", (char *)NULL);
	CHECK(!"exec");
}

int main(int argc, char **argv)
{
	struct ibv_comp_channel *channels[CHANNELS];
	struct ibv_qp *qps[CHANNELS];
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	uint64_t n = 0;

	if (argc == 1)
		fill_descriptors(argv);
	list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	ctx = ibv_open_device(list[0]);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	mr = pd ? ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) : NULL;
	CHECK(mr && ctx->async_fd >= OWN);
	for (int i = 0; i < CHANNELS; i++) {
		channels[i] = ibv_create_comp_channel(ctx);
		CHECK(channels[i] && channels[i]->fd >= OWN);
		qps[i] = connect_to_itself(pd, ibv_create_cq(ctx, 4, NULL, channels[i], 0));
	}
	feature_ready();
	while (feature_step()) {
		CHECK(write(OWN - 1, "x", 1) == 1 && fcntl(ctx->async_fd, F_GETFD) >= 0);
		for (int i = 0; i < CHANNELS; i++)
			write_once(qps[i], channels[i], mr, n++);
	}
	return 0;
}
