/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows between two processes. On each connection the client owns two windows, of type 2 on even connections and of type 1 on odd ones. In round k
 *
 *      client                                         server
 *      binds window k % 2 to its place, tells the key  ------>  writes through the window, reads it back
 *                                                     <------  is through; in every other round of type 2 that invalidates the window
 *      looks at the bytes; invalidates it itself, if nobody did
 *
 * and round k + 1 is told meanwhile. The server has one receive, which it gives again late, so bindings wait behind sends. Both
 * check every byte, key and completion; in the end the server asks for a key that is bound no more, and must be refused.
 *
 *   verbs_windows [-p port] [-q connections] [-s largest] [-n rounds] [-e] [-r seed] [host]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_stress.h"

#define MINE 2 /* windows */
#define SIGNAL_EACH 5

struct options options = { .port = 18800, .qps = 4, .largest = 4096, .depth = 16, .seed = 1, .threads = 1, .count = 1000 };

struct told {
	uint64_t round, address;
	uint32_t rkey, size;
};

enum { ID_BIND = 1, ID_TELL, ID_INVALIDATE, ID_WRITE, ID_READ, ID_DONE, ID_LAST }; /* in the wr_id, above the round */

static struct lane {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_mw *mw[MINE];
	struct address mine, other;
	uint8_t *memory, *places, *back;
	struct told *out, *in; /* MINE each */
	struct told last;      /* the server's */
	uint32_t key[MINE], stale;
	uint64_t begun, done; /* rounds */
	uint64_t last_id, reading, unread;
	uint64_t receives, received;
} lanes[QPS_MAX];

static int owner(void) { return options.host != NULL; }

static enum ibv_mw_type type_of(uint32_t q) { return q % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2; }

static int peer_invalidates(uint32_t q, uint64_t k) { return q % 2 == 0 && k % 2; }

static uint32_t size_at(uint64_t k)
{
	return 1 + (uint32_t)((k * 2654435761u + options.seed) % options.largest);
}

static uint8_t seed_at(uint32_t q, uint64_t k) { return (uint8_t)(k * 29 + q * 7 + options.seed); }

static unsigned int signal_at(uint64_t k) { return k % SIGNAL_EACH == 0 ? IBV_SEND_SIGNALED : 0; }

static void receive_give(struct lane *l)
{
	struct ibv_sge sge = { (uintptr_t)&l->in[l->receives % MINE], sizeof(struct told), l->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = l->receives, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(!ibv_post_recv(l->qp, &wr, &bad), "ibv_post_recv");
	l->receives++;
}

/* ---- set-up ---- */

static void lane_create(struct lane *l, uint32_t q)
{
	struct ibv_qp_init_attr init = { .send_cq = workers[0].cqs[q % CQS], .recv_cq = workers[0].cqs[(q + 1) % CQS], .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4 * SIGNAL_EACH, .max_recv_wr = MINE, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	size_t all = 3 * MINE * (size_t)options.largest + 4096;
	struct ibv_port_attr port;
	union ibv_gid gid;

	l->memory = aligned_alloc(4096, (all + 4095) & ~(size_t)4095);
	must(l->memory != NULL, "memory");
	memset(l->memory, 0, all);
	l->out = (struct told *)l->memory;
	l->in = l->out + MINE;
	l->places = l->memory + 2048;
	l->back = l->places + MINE * options.largest;
	l->mr = ibv_reg_mr(pd, l->memory, all, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	must(l->mr != NULL, "ibv_reg_mr");
	l->qp = ibv_create_qp(pd, &init);
	must(l->qp != NULL, "ibv_create_qp");
	for (int i = 0; owner() && i < MINE; i++) {
		l->mw[i] = ibv_alloc_mw(pd, type_of(q));
		must(l->mw[i] != NULL, "ibv_alloc_mw");
		l->key[i] = l->mw[i]->rkey;
	}
	must(!ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	must(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid), "ibv_query_port");
	l->mine = (struct address){ .qpn = l->qp->qp_num, .lid = port.lid };
	memcpy(l->mine.gid, &gid, 16);
	for (int i = 0; i < (owner() ? MINE : 1); i++)
		receive_give(l);
}

static void lane_connect(struct lane *l)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = l->other.qpn, .max_dest_rd_atomic = 4,
				 .min_rnr_timer = 1 };

	a.ah_attr = (struct ibv_ah_attr){ .dlid = l->other.lid, .port_num = 1, .is_global = !l->other.lid, .grh = { .hop_limit = 1 } };
	memcpy(&a.ah_attr.grh.dgid, l->other.gid, 16);
	must(!ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	must(!ibv_modify_qp(l->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

/* ---- the run ---- */

static void post_one(struct lane *l, struct ibv_send_wr *wr, uint64_t kind, uint64_t k, void *from, uint32_t size)
{
	struct ibv_sge sge = { (uintptr_t)from, size, l->mr->lkey };
	struct ibv_send_wr *bad;

	wr->wr_id = kind << 56 | k;
	wr->sg_list = from ? &sge : NULL;
	wr->num_sge = from != NULL;
	must(!ibv_post_send(l->qp, wr, &bad), "ibv_post_send");
}

static void window_bind(struct lane *l, uint32_t q, uint64_t k)
{
	uint32_t i = k % MINE;
	struct ibv_mw_bind_info info = { .mr = l->mr, .addr = (uintptr_t)l->places + i * options.largest, .length = size_at(k),
					 .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	struct ibv_mw_bind b = { .wr_id = (uint64_t)ID_BIND << 56 | k, .send_flags = signal_at(k + 2), .bind_info = info };
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = signal_at(k + 2) };

	if (type_of(q) == IBV_MW_TYPE_1) {
		must(!ibv_bind_mw(l->qp, l->mw[i], &b), "ibv_bind_mw");
		l->key[i] = l->mw[i]->rkey;
		return;
	}
	l->key[i] = ibv_inc_rkey(l->key[i]);
	wr.bind_mw.mw = l->mw[i];
	wr.bind_mw.rkey = l->key[i];
	wr.bind_mw.bind_info = info;
	post_one(l, &wr, ID_BIND, k, NULL, 0);
}

static void round_begin(struct lane *l, uint32_t q, uint64_t k)
{
	struct told *t = &l->out[k % MINE];
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = signal_at(k) };

	memset(l->places + k % MINE * options.largest, 0, options.largest);
	window_bind(l, q, k);
	*t = (struct told){ .round = k, .address = (uintptr_t)l->places + k % MINE * options.largest, .rkey = l->key[k % MINE], .size = size_at(k) };
	post_one(l, &wr, ID_TELL, k, t, sizeof(*t));
	l->begun++;
}

/* The server is through with round l->done. */
static void round_end(struct lane *l, uint32_t q, const struct ibv_wc *wc)
{
	uint64_t k = l->done++;
	uint32_t i = k % MINE;
	struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .send_flags = signal_at(k + 1), .invalidate_rkey = l->key[i] };

	if (!!(wc->wc_flags & IBV_WC_WITH_INV) != peer_invalidates(q, k) || (peer_invalidates(q, k) && wc->invalidated_rkey != l->key[i]))
		wrong("connection %u, round %lu: key 0x%x was invalidated, expected 0x%x", q, (unsigned long)k, wc->invalidated_rkey, l->key[i]);
	if (!peer_invalidates(q, k) && wc->byte_len != sizeof(struct told))
		wrong("connection %u, round %lu: %u bytes", q, (unsigned long)k, wc->byte_len);
	check(l->places + i * options.largest, size_at(k), seed_at(q, k), "what came through the window", q, k);
	if (type_of(q) == IBV_MW_TYPE_2 && !peer_invalidates(q, k))
		post_one(l, &wr, ID_INVALIDATE, k, NULL, 0);
	receive_give(l);
}

static void window_use(struct lane *l, uint32_t q)
{
	const struct told *t = &l->in[(l->receives - 1) % MINE];
	uint8_t *from = l->places + t->round % MINE * options.largest;
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { t->address, t->rkey } };

	if (t->round != l->begun || t->size != size_at(t->round))
		wrong("connection %u: told round %lu, expected %lu", q, (unsigned long)t->round, (unsigned long)l->begun);
	l->begun++;
	l->stale = l->last.rkey;
	l->last = *t;
	fill(from, t->size, seed_at(q, t->round));
	memset(l->back, 0, t->size);
	post_one(l, &wr, ID_WRITE, t->round, from, t->size);
	wr = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { t->address, t->rkey } };
	post_one(l, &wr, ID_READ, t->round, l->back, t->size);
}

static void window_used(struct lane *l, uint32_t q, uint64_t k)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = signal_at(k) };

	if (k != l->done)
		wrong("connection %u: read of round %lu, expected %lu", q, (unsigned long)k, (unsigned long)l->done);
	check(l->back, size_at(k), seed_at(q, k), "what was read through the window", q, k);
	if (peer_invalidates(q, k)) {
		wr.opcode = IBV_WR_SEND_WITH_INV;
		wr.invalidate_rkey = l->last.rkey;
	}
	post_one(l, &wr, ID_DONE, k, l->memory, sizeof(struct told));
	l->done++;
	if (l->done < options.count)
		receive_give(l); /* late: the client's next has waited */
}

static void sent(struct lane *l, uint32_t q, uint64_t id)
{
	if (id <= l->last_id && id >> 56 == l->last_id >> 56)
		wrong("connection %u: send %lx completed after %lx", q, (unsigned long)id, (unsigned long)l->last_id);
	l->last_id = id;
	if (id >> 56 == ID_READ)
		window_used(l, q, id & ~(0xffull << 56));
}

static uint32_t lane_of(const struct ibv_wc *wc)
{
	for (uint32_t q = 0; q < options.qps; q++)
		if (lanes[q].qp->qp_num == wc->qp_num)
			return q;
	wrong("a completion of QP 0x%x, which is none of ours", wc->qp_num);
}

static void completed(struct lane *l, uint32_t q, const struct ibv_wc *wc)
{
	if (wc->status)
		wrong("work %lx ended in %s", (unsigned long)wc->wr_id, ibv_wc_status_str(wc->status));
	if (!(wc->opcode & IBV_WC_RECV)) {
		sent(l, q, wc->wr_id);
		return;
	}
	if (wc->wr_id != l->received++)
		wrong("connection %u: receive %lu completed, expected %lu", q, (unsigned long)wc->wr_id, (unsigned long)l->received - 1);
	if (owner())
		round_end(l, q, wc);
	else
		window_use(l, q);
}

static int poll_all(void)
{
	struct ibv_wc wc;
	int total = 0, n;

	for (uint32_t i = 0; i < CQS; i++)
		while ((n = ibv_poll_cq(workers[0].cqs[i], 1, &wc))) {
			uint32_t q;

			must(n > 0, "ibv_poll_cq");
			q = lane_of(&wc);
			completed(&lanes[q], q, &wc);
			total++;
		}
	return total;
}

static void run(void)
{
	int busy = 1;

	while (busy) {
		busy = 0;
		for (uint32_t q = 0; q < options.qps; q++) {
			struct lane *l = &lanes[q];

			while (owner() && l->begun < options.count && l->begun < l->done + MINE)
				round_begin(l, q, l->begun);
			busy |= l->done < options.count;
		}
		if (busy && !poll_all() && options.events)
			sleep_for_event();
	}
}

/* A key of a former binding. */
static void ask_stale(struct lane *l, uint32_t q)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = l->last.address;
	wr.wr.rdma.rkey = type_of(q) == IBV_MW_TYPE_2 ? l->last.rkey : (l->last.rkey & ~0xffu) | ((l->last.rkey - 1) & 0xff);
	post_one(l, &wr, ID_LAST, 0, l->places, 1);
	do
		while (!ibv_poll_cq(workers[0].cqs[q % CQS], 1, &wc))
			;
	while (wc.wr_id >> 56 != ID_LAST);
	if (wc.status != IBV_WC_REM_ACCESS_ERR)
		wrong("connection %u: key 0x%x of a former binding: %s", q, wr.wr.rdma.rkey, ibv_wc_status_str(wc.status));
}

static void lane_destroy(struct lane *l)
{
	for (int i = 0; i < MINE; i++)
		must(!l->mw[i] || !ibv_dealloc_mw(l->mw[i]), "ibv_dealloc_mw");
	must(!ibv_destroy_qp(l->qp) && !ibv_dereg_mr(l->mr), "ibv_destroy_qp");
}

int main(int argc, char **argv)
{
	options_parse(argc, argv, "p:q:s:n:r:e");
	if (options.count < 4)
		exit(2);
	device_open();
	tcp_connect();
	for (uint32_t q = 0; q < options.qps; q++) {
		lane_create(&lanes[q], q);
		tcp_exchange(&lanes[q].mine, &lanes[q].other, sizeof(struct address));
		lane_connect(&lanes[q]);
	}
	tcp_meet();
	run();
	tcp_meet();
	for (uint32_t q = 0; !owner() && q < options.qps; q++)
		ask_stale(&lanes[q], q);
	tcp_meet();
	for (uint32_t q = 0; q < options.qps; q++)
		lane_destroy(&lanes[q]);
	worker_destroy(&workers[0]);
	device_close();
	printf("verbs_windows (%s): %u connections, %lu rounds on each, all right\n", owner() ? "client" : "server", options.qps,
	       (unsigned long)options.count);
	return 0;
}
