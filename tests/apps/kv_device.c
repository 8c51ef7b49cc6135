/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's side of kv.c: owns what the device has for it, to the end of the process. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv.h"

#define PSN 17
#define DEPTH 16 /* of a reliable queue pair, and of the reads and atomics that it has under way */

void kv_must(int good, const char *what, int line)
{
	if (good)
		return;
	fprintf(stderr, "kv, line %d: %s is false\n", line, what);
	exit(1);
}

/* An IPv4 address, or the first there is: link-local ones are not reached on every network. */
static void choose_gid(struct kv_end *end, const struct ibv_port_attr *port)
{
	static const unsigned char ipv4[12] = { [10] = 0xff, [11] = 0xff };

	end->gid = -1;
	if (port->link_layer != IBV_LINK_LAYER_ETHERNET)
		return;
	end->gid = 0;
	for (int i = 0; i < port->gid_tbl_len && i < 16; i++)
		if (!ibv_query_gid(end->context, 1, i, &end->mine.gid) && !memcmp(end->mine.gid.raw, ipv4, sizeof(ipv4)))
			end->gid = i;
	MUST(!ibv_query_gid(end->context, 1, end->gid, &end->mine.gid));
}

static struct ibv_qp *make_qp(const struct kv_end *end, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = { .qp_type = type, .send_cq = end->sent, .recv_cq = end->received,
					 .cap = { .max_send_wr = DEPTH, .max_recv_wr = type == IBV_QPT_UD ? KV_DATAGRAMS : 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	MUST(qp);
	return qp;
}

static void ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KV_QKEY };

	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = PSN;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static uint32_t room(const struct kv_end *end)
{
	return end->datagram + KV_ROUTE;
}

void kv_again(const struct kv_end *end, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)end->buffer + wr_id * room(end), room(end), end->buffers->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	MUST(!ibv_post_recv(end->datagrams, &wr, &bad));
}

void kv_open(struct kv_end *end, uint32_t datagram)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;
	size_t size;

	MUST(list && list[0]);
	end->context = ibv_open_device(list[0]);
	MUST(end->context);
	ibv_free_device_list(list);
	end->datagram = datagram;
	size = (KV_DATAGRAMS + 1) * (size_t)room(end);
	end->buffer = calloc(1, size);
	end->pd = ibv_alloc_pd(end->context);
	end->channel = ibv_create_comp_channel(end->context);
	end->received = ibv_create_cq(end->context, 2 * KV_DATAGRAMS, NULL, end->channel, 0);
	end->sent = ibv_create_cq(end->context, 4 * DEPTH, NULL, NULL, 0);
	MUST(end->buffer && end->pd && end->channel && end->received && end->sent);
	end->buffers = ibv_reg_mr(end->pd, end->buffer, size, IBV_ACCESS_LOCAL_WRITE);
	MUST(end->buffers && !ibv_query_port(end->context, 1, &port));
	choose_gid(end, &port);
	end->mine.lid = port.lid;
	end->datagrams = make_qp(end, IBV_QPT_UD);
	end->mine.datagrams = end->datagrams->qp_num;
	ready(end->datagrams);
	for (int i = 0; i < KV_DATAGRAMS; i++)
		kv_again(end, (uint64_t)i);
}

struct ibv_qp *kv_reliable(const struct kv_end *end)
{
	return make_qp(end, IBV_QPT_RC);
}

static struct ibv_ah_attr way(const struct kv_end *end, const struct kv_address *other)
{
	struct ibv_ah_attr a = { .dlid = other->lid, .port_num = 1, .is_global = end->gid >= 0 };

	if (a.is_global)
		a.grh = (struct ibv_global_route){ .dgid = other->gid, .sgid_index = (uint8_t)end->gid, .hop_limit = 64 };
	return a;
}

void kv_connect(const struct kv_end *end, struct ibv_qp *qp, const struct kv_address *other)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->reliable, .rq_psn = PSN, .sq_psn = PSN,
				 .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC, .max_rd_atomic = DEPTH,
				 .max_dest_rd_atomic = DEPTH, .min_rnr_timer = 12, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .ah_attr = way(end, other) };

	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

struct ibv_ah *kv_reach(const struct kv_end *end, const struct kv_address *other)
{
	struct ibv_ah_attr a = way(end, other);
	struct ibv_ah *ah = ibv_create_ah(end->pd, &a);

	MUST(ah);
	return ah;
}

static void one(const struct kv_end *end, struct ibv_qp *qp, struct ibv_sge sge, struct ibv_send_wr *wr)
{
	static uint64_t number;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	wr->wr_id = ++number;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	MUST(!ibv_post_send(qp, wr, &bad));
	while (!(n = ibv_poll_cq(end->sent, 1, &wc)))
		sched_yield();
	MUST(n == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == number && wc.qp_num == qp->qp_num);
	MUST(!ibv_poll_cq(end->sent, 1, &wc));
}

void *kv_to_send(const struct kv_end *end)
{
	return end->buffer + KV_DATAGRAMS * (size_t)room(end);
}

void kv_send(const struct kv_end *end, struct ibv_ah *to, uint32_t qpn, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)kv_to_send(end), size, end->buffers->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .wr.ud = { to, qpn, KV_QKEY } };

	one(end, end->datagrams, sge, &wr);
}

const void *kv_next(const struct kv_end *end, struct ibv_wc *ret)
{
	int n = ibv_poll_cq(end->received, 1, ret);

	MUST(n >= 0);
	if (!n)
		return NULL;
	MUST(ret->status == IBV_WC_SUCCESS && ret->wr_id < KV_DATAGRAMS && ret->byte_len > KV_ROUTE);
	return end->buffer + ret->wr_id * room(end) + KV_ROUTE;
}

void kv_operation(const struct kv_end *end, struct ibv_qp *qp, const struct ibv_mr *mr, void *at, uint32_t size, struct ibv_send_wr *wr)
{
	one(end, qp, (struct ibv_sge){ (uintptr_t)at, size, mr->lkey }, wr);
}
