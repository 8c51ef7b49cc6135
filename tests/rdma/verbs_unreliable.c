/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_stress for transports that may lose messages: on softrdma they lose none that finds a receive, and this program always has one. Two processes
 * over TCP make some connections (UC) or pairs of datagram queue pairs (UD). On each, one side sends a numbered sequence of messages that both can
 * compute, half of them with an immediate; on UC a RDMA WRITE that they follow comes before every third. The other acknowledges them with messages of its own, and no more
 * are sent than it has receives for. Each side checks every byte, length and immediate, that each number comes once and in order, that each
 * signalled send completes once; of a datagram, that its sender's number, LID and the address in its route header are what the sender said.
 *
 *   verbs_unreliable [-p port] [-q connections] [-s largest message] [-n messages a connection] [-d depth] [-e] [-r seed] [-U] [host]
 *
 * -U: datagrams; -e sleeps for completion events. Status 0: all was right; 1: what was wrong is told; 77: there is no device.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_stress.h"

#define ROUTE 40 /* bytes before the data of a datagram's receive */
#define WRITTEN 256
#define ACK (1ull << 62) /* in the wr_id */
#define WRITE (1ull << 61)
#define QKEY 0x1234567

struct options options = { .port = 18700, .qps = 2, .largest = 1024, .depth = 8, .seed = 1, .threads = 1, .count = 1000 };

struct head {
	uint64_t number; /* of an acknowledgement: messages seen */
	uint32_t size;	 /* with this; 0: acknowledgement */
	uint32_t seed;
};

/* One of the sequence's pairs, in this process. */
static struct flow {
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	struct address mine, other;
	uint8_t *send, *receive, *written;
	int source; /* it sends the messages, and gets the acknowledgements */
	uint64_t posted, completed, acked;
	uint64_t seen, told; /* of the other side's */
	uint64_t acks_posted, acks_completed;
	uint64_t receives_posted, receives;
} flows[QPS_MAX];

static uint32_t room(void)
{
	return options.largest + (options.datagrams ? ROUTE : 0);
}

static uint32_t size_at(uint64_t number)
{
	uint32_t least = sizeof(struct head);

	return least + (uint32_t)((number * 2654435761u + options.seed) % (options.largest - least + 1));
}

static int signaled(uint64_t number)
{
	return number % (options.depth / 2) == options.depth / 2 - 1 || number + 1 == options.count;
}

static int after_write(uint64_t number)
{
	return !options.datagrams && number % 3 == 0;
}

static void receive_give(struct flow *f)
{
	uint8_t *at = f->receive + f->receives_posted % options.depth * room();
	struct ibv_sge sge = { (uintptr_t)at, room(), f->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = f->receives_posted, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(at, 0, 64);
	must(!ibv_post_recv(f->qp, &wr, &bad), "ibv_post_recv");
	f->receives_posted++;
}

/* ---- set-up ---- */

static void flow_memory(struct flow *f)
{
	size_t part = (size_t)options.depth * (options.largest + ROUTE), all = 2 * part + (size_t)options.depth * WRITTEN + 4096;

	f->send = aligned_alloc(4096, (all + 4095) & ~(size_t)4095);
	must(f->send != NULL, "memory");
	f->receive = f->send + part + 64; /* acknowledgements lie between */
	f->written = f->receive + part;
	f->mr = ibv_reg_mr(pd, f->send, all, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(f->mr != NULL, "ibv_reg_mr");
}

static void flow_create(struct flow *f, uint32_t q)
{
	struct ibv_qp_init_attr init = { .send_cq = workers[0].cqs[q % CQS], .recv_cq = workers[0].cqs[(q + 1) % CQS],
					 .qp_type = options.datagrams ? IBV_QPT_UD : IBV_QPT_UC,
					 .cap = { .max_send_wr = 3 * options.depth, .max_recv_wr = options.depth, .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_port_attr port;
	union ibv_gid gid;

	flow_memory(f);
	f->source = (int)(q % 2) == me();
	f->qp = ibv_create_qp(pd, &init);
	must(f->qp != NULL, "ibv_create_qp");
	must(!ibv_modify_qp(f->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (options.datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), "INIT");
	must(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid), "ibv_query_port");
	f->mine = (struct address){ .qpn = f->qp->qp_num, .rkey = f->mr->rkey, .lid = port.lid, .written = (uintptr_t)f->written };
	memcpy(f->mine.gid, &gid, 16);
	while (f->receives_posted < options.depth)
		receive_give(f);
}

static void flow_connect(struct flow *f)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = f->other.qpn };

	a.ah_attr = (struct ibv_ah_attr){ .dlid = f->other.lid, .port_num = 1, .is_global = options.datagrams || !f->other.lid };
	memcpy(&a.ah_attr.grh.dgid, f->other.gid, 16);
	a.ah_attr.grh.hop_limit = 1;
	must(!ibv_modify_qp(f->qp, &a, IBV_QP_STATE | (options.datagrams ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)), "RTR");
	if (options.datagrams)
		f->ah = ibv_create_ah(pd, &a.ah_attr);
	must(!options.datagrams || f->ah, "ibv_create_ah");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
	must(!ibv_modify_qp(f->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
}

/* ---- the run ---- */

static void send_one(struct flow *f, uint64_t id, enum ibv_wr_opcode opcode, uint8_t *from, uint32_t size, uint32_t imm, int signal, uint64_t to)
{
	struct ibv_sge sge = { (uintptr_t)from, size, f->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .imm_data = htonl(imm),
				  .send_flags = signal ? IBV_SEND_SIGNALED : 0 }, *bad;

	if (options.datagrams) {
		wr.wr.ud.ah = f->ah;
		wr.wr.ud.remote_qpn = f->other.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else {
		wr.wr.rdma.remote_addr = to;
		wr.wr.rdma.rkey = f->other.rkey;
	}
	must(!ibv_post_send(f->qp, &wr, &bad), "ibv_post_send");
}

static void message_post(struct flow *f)
{
	uint64_t k = f->posted++, slot = k % options.depth;
	uint8_t *from = f->send + slot * options.largest;
	struct head h = { .number = k, .size = size_at(k), .seed = (uint8_t)(k * 31 + options.seed) };

	memcpy(from, &h, sizeof(h));
	fill(from + sizeof(h), h.size - (uint32_t)sizeof(h), (uint8_t)h.seed);
	if (after_write(k))
		send_one(f, WRITE | k, IBV_WR_RDMA_WRITE, from, h.size < WRITTEN ? h.size : WRITTEN, 0, 0, f->other.written + slot * WRITTEN);
	send_one(f, k, k % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, from, h.size, (uint32_t)k, signaled(k), 0);
}

static void ack_post(struct flow *f)
{
	struct head *h = (struct head *)(f->receive - 64);

	if (f->acks_posted != f->acks_completed || f->told == f->seen || (f->seen - f->told < options.depth / 2 && f->seen < options.count))
		return;
	*h = (struct head){ .number = f->seen };
	f->told = f->seen;
	send_one(f, ACK | f->acks_posted++, IBV_WR_SEND, (uint8_t *)h, sizeof(*h), 0, 1, 0);
}

static void sent(struct flow *f, uint32_t q, uint64_t id)
{
	if (id & ACK) {
		if ((id & ~ACK) != f->acks_completed++)
			wrong("flow %u: acknowledgement %lu completed, expected %lu", q, (unsigned long)(id & ~ACK), (unsigned long)f->acks_completed - 1);
		return;
	}
	while (f->completed < f->posted && !signaled(f->completed))
		f->completed++;
	if (id != f->completed || f->completed >= f->posted)
		wrong("flow %u: send %lx completed, expected %lu", q, (unsigned long)id, (unsigned long)f->completed);
	f->completed++;
}

static void datagram_check(struct flow *f, uint32_t q, const uint8_t *at, const struct ibv_wc *wc)
{
	const struct ibv_grh *grh = (const struct ibv_grh *)at;

	if (wc->src_qp != f->other.qpn || wc->slid != f->other.lid)
		wrong("flow %u: a datagram of QP 0x%x at LID %u, not 0x%x at %u", q, wc->src_qp, wc->slid, f->other.qpn, f->other.lid);
	if (!(wc->wc_flags & IBV_WC_GRH) || memcmp(&grh->sgid, f->other.gid, 16) || memcmp(&grh->dgid, f->mine.gid, 16))
		wrong("flow %u: a datagram's route header has other addresses", q);
}

static void message_check(struct flow *f, uint32_t q, const uint8_t *at, const struct head *h, const struct ibv_wc *wc)
{
	uint64_t k = f->seen++, slot = k % options.depth;
	uint32_t size = size_at(k);

	if (f->source || h->number != k || h->size != size || wc->byte_len != size + room() - options.largest)
		wrong("flow %u: message %lu of %u bytes, expected %lu of %u", q, (unsigned long)h->number, wc->byte_len, (unsigned long)k, size);
	if (!!(wc->wc_flags & IBV_WC_WITH_IMM) != (int)(k % 2) || (k % 2 && ntohl(wc->imm_data) != (uint32_t)k))
		wrong("flow %u, message %lu: immediate %u", q, (unsigned long)k, ntohl(wc->imm_data));
	check(at + sizeof(*h), size - (uint32_t)sizeof(*h), (uint8_t)(k * 31 + options.seed), "message", q, k);
	if (after_write(k) && memcmp(f->written + slot * WRITTEN, at, size < WRITTEN ? size : WRITTEN))
		wrong("flow %u, message %lu: what was written before it is not there", q, (unsigned long)k);
}

static void received(struct flow *f, uint32_t q, const struct ibv_wc *wc)
{
	const uint8_t *at = f->receive + f->receives % options.depth * room();
	struct head h;

	if (wc->wr_id != f->receives)
		wrong("flow %u: receive %lu completed, expected %lu", q, (unsigned long)wc->wr_id, (unsigned long)f->receives);
	f->receives++;
	if (options.datagrams) {
		datagram_check(f, q, at, wc);
		at += ROUTE;
	}
	memcpy(&h, at, sizeof(h));
	if (h.size) {
		message_check(f, q, at, &h, wc);
	} else {
		if (!f->source || h.number <= f->acked || h.number > f->posted)
			wrong("flow %u: %lu messages are acknowledged, %lu were", q, (unsigned long)h.number, (unsigned long)f->acked);
		f->acked = h.number;
	}
	receive_give(f);
}

static uint32_t flow_of(const struct ibv_wc *wc)
{
	for (uint32_t q = 0; q < options.qps; q++)
		if (flows[q].qp->qp_num == wc->qp_num)
			return q;
	wrong("a completion of QP 0x%x, which is none of ours", wc->qp_num);
}

static int poll_all(void)
{
	struct ibv_wc wc;
	int total = 0, n;

	for (uint32_t i = 0; i < CQS; i++)
		while ((n = ibv_poll_cq(workers[0].cqs[i], 1, &wc))) {
			uint32_t q = n < 0 ? 0 : flow_of(&wc);

			if (n < 0 || wc.status)
				wrong("work %lx ended in %s", (unsigned long)wc.wr_id, n < 0 ? "no completion" : ibv_wc_status_str(wc.status));
			if (wc.opcode & IBV_WC_RECV)
				received(&flows[q], q, &wc);
			else
				sent(&flows[q], q, wc.wr_id);
			total++;
		}
	return total;
}

/* 1: there is something to wait for yet. */
static int step(struct flow *f)
{
	if (!f->source) {
		ack_post(f);
		return f->told < options.count || f->acks_posted != f->acks_completed;
	}
	while (f->posted < options.count && f->posted < f->acked + options.depth && f->posted < f->completed + options.depth)
		message_post(f);
	return f->acked < options.count || f->completed < options.count;
}

static void run(void)
{
	int busy = 1;

	while (busy) {
		busy = 0;
		for (uint32_t q = 0; q < options.qps; q++)
			busy |= step(&flows[q]);
		if (busy && !poll_all() && options.events)
			sleep_for_event();
	}
}

int main(int argc, char **argv)
{
	options_parse(argc, argv, "p:q:s:n:d:r:eU");
	if (options.largest < 64 || options.depth < 4)
		exit(2);
	device_open();
	tcp_connect();
	for (uint32_t q = 0; q < options.qps; q++) {
		flow_create(&flows[q], q);
		tcp_exchange(&flows[q].mine, &flows[q].other, sizeof(struct address));
		flow_connect(&flows[q]);
	}
	tcp_meet();
	run();
	tcp_meet();
	if (poll_all())
		wrong("a completion too many");
	for (uint32_t q = 0; q < options.qps; q++)
		must(!ibv_destroy_qp(flows[q].qp) && !(flows[q].ah && ibv_destroy_ah(flows[q].ah)) && !ibv_dereg_mr(flows[q].mr), "ibv_destroy_qp");
	worker_destroy(&workers[0]);
	device_close();
	printf("verbs_unreliable (%s): %u flows, %lu messages on each, all right\n", options.host ? "client" : "server", options.qps,
	       (unsigned long)options.count);
	return 0;
}
