/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plain verbs program that knows exactly what it must see. Two processes over TCP make some reliable connections and
 * exchange on each a sequence of operations that both can compute: SEND, SEND with immediate, RDMA WRITE with immediate,
 * RDMA WRITE and the RDMA READ that fetches it back, fetch-and-add; inline where it fits, signalled or not. Each side checks
 * every byte that arrives, the length, the immediate, the order, that each completion comes once, that what
 * fetch-and-add returns only grows, and at the end that the counters hold the exact sums.
 *
 *   verbs_stress [-p port] [-q connections] [-s largest message] [-n operations a connection] [-d depth] [-e | -E] [-t threads]
 *                [-r seed] [-S | -x] [-g GID] [-T timeout] [-6] [host]
 *
 * -e sleeps for completion events instead of polling; -E in an epoll set of its own, edge by edge; -t shares the connections among threads; -S: a thread's connections take from one
 * shared queue of as many receives as each would have alone; -x: so do they, and the connections are extended ones, an initiator and a target each; -6: the two meet over IPv6. Receives are few, so senders often wait for them. Status 0: all was right; 1: what was wrong is told; 77: there is no device.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_stress.h"

struct options options = { .port = 18600, .qps = 1, .largest = 65536, .depth = 8, .seed = 1, .threads = 1, .count = 1000 };

/*
 * Where the last WRITE goes, and READs fetch it from. Not where the one before went: a READ whose answer was lost is said again, behind the WRITE
 * that was posted after it. A fence would do as well (IBA 10.8.3.3), but for Soft-RoCE of Linux 6.1, which never gets on behind one.
 */
static uint64_t written_place(const struct connection *c)
{
	return c->other.written + c->writes % landing_slots() * options.largest;
}

static void op_post(struct connection *c, uint32_t q)
{
	uint64_t k = c->posted, slot = k % options.depth;
	struct op op = op_at(me(), q, k);
	uint8_t *from = c->send + slot * options.largest;
	struct ibv_sge sge[2] = { { (uintptr_t)from, op.size, c->mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = k, .sg_list = sge, .num_sge = 1, .imm_data = htonl((uint32_t)k) }, *bad;

	wr.send_flags = op.signaled ? IBV_SEND_SIGNALED : 0;
	wr.wr.rdma.rkey = c->other.rkey;
	wr.qp_type.xrc.remote_srqn = c->other.srqn;
	if (op.kind == OP_READ && !c->write_op)
		op.kind = OP_ADD;
	if (op.kind != OP_READ && op.kind != OP_ADD) {
		fill(from, op.size, op.seed);
		if (op.inlined && op.size <= max_inline)
			wr.send_flags |= IBV_SEND_INLINE;
		if (op.size > 1) { /* in two pieces */
			sge[0].length = op.size / 3 + 1;
			sge[1] = (struct ibv_sge){ (uintptr_t)from + sge[0].length, op.size - sge[0].length, c->mr->lkey };
			wr.num_sge = 1 + (sge[1].length > 0);
		}
	}
	switch (op.kind) {
	case OP_SEND:
		wr.opcode = IBV_WR_SEND;
		break;
	case OP_SEND_IMM:
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		break;
	case OP_WRITE_IMM:
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.wr.rdma.remote_addr = c->other.landing + c->landings % landing_slots() * options.largest;
		break;
	case OP_WRITE:
		wr.opcode = IBV_WR_RDMA_WRITE;
		c->writes++;
		wr.wr.rdma.remote_addr = written_place(c);
		c->write_op = k + 1;
		break;
	case OP_READ:
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = written_place(c);
		sge[0] = (struct ibv_sge){ (uintptr_t)(c->fetch + slot * options.largest),
					   op_at(me(), q, c->write_op - 1).size, c->mr->lkey };
		break;
	default:
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = c->other.counter;
		wr.wr.atomic.compare_add = op.add;
		wr.wr.atomic.rkey = c->other.counter_rkey;
		sge[0] = (struct ibv_sge){ (uintptr_t)(c->send + options.depth * (size_t)options.largest), 8, c->mr->lkey };
		break;
	}
	c->landings += (uint64_t)takes_receive(op.kind);
	must(!ibv_post_send(c->qp, &wr, &bad), "ibv_post_send");
	if (wr.send_flags & IBV_SEND_INLINE) /* it was taken at once: what becomes of the buffer is no matter */
		memset(from, 0xee, op.size);
	c->posted++;
}

/* Is the last WRITE before operation @k what it fetched? 0: there was none, it was a fetch-and-add. */
static int fetched(struct connection *c, uint32_t q, uint64_t k)
{
	for (uint64_t w = k; w-- > 0;) {
		struct op op = op_at(me(), q, w);

		if (op.kind != OP_WRITE)
			continue;
		check(c->fetch + k % options.depth * options.largest, op.size, op.seed, "read", q, k);
		return 1;
	}
	return 0;
}

/* A fetch-and-add's slot is shared by those outstanding, so the value is looked at when it is the only one to come. */
static void added(struct connection *c, uint32_t q, uint64_t k)
{
	uint64_t value;

	memcpy(&value, c->send + options.depth * (size_t)options.largest, 8);
	if (c->any_value && value < c->last_value)
		wrong("connection %u, fetch-and-add %lu: the counter went from %lu back to %lu", q, (unsigned long)k,
		      (unsigned long)c->last_value, (unsigned long)value);
	c->last_value = value;
	c->any_value = 1;
}

static void send_done(struct connection *c, uint32_t q, const struct ibv_wc *wc)
{
	struct op op;

	while (c->completed < wc->wr_id && !op_at(me(), q, c->completed).signaled)
		c->completed++;
	if (c->completed != wc->wr_id)
		wrong("connection %u: completion of send %lu, expected %lu", q, (unsigned long)wc->wr_id,
		      (unsigned long)c->completed);
	if (c->completed >= c->posted)
		wrong("connection %u: send %lu completed before it was posted", q, (unsigned long)wc->wr_id);
	op = op_at(me(), q, c->completed);
	if (op.kind == OP_ADD || (op.kind == OP_READ && !fetched(c, q, c->completed)))
		added(c, q, c->completed);
	c->completed++;
}

static void receive_done(struct connection *c, uint32_t q, const struct ibv_wc *wc)
{
	struct worker *w = &workers[q % options.threads];
	uint8_t *landed = c->landing + c->messages % landing_slots() * options.largest;
	uint8_t *at = options.shared ? shared_take(w, wc->wr_id) : c->receive + c->messages % options.depth * options.largest;
	struct op op = op_at(!me(), q, c->message);

	while (!takes_receive(op.kind) && c->message < options.count)
		op = op_at(!me(), q, ++c->message);
	if (c->message >= options.count)
		wrong("connection %u: a message more than were sent", q);
	if (!options.shared && wc->wr_id != c->messages)
		wrong("connection %u: receive %lu completed, expected %lu", q, (unsigned long)wc->wr_id,
		      (unsigned long)c->messages);
	if (wc->byte_len != op.size && op.kind != OP_WRITE_IMM)
		wrong("connection %u, message %lu: %u bytes, not %u", q, (unsigned long)c->message, wc->byte_len, op.size);
	if (wc->opcode != (op.kind == OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		wrong("connection %u, message %lu: opcode %d", q, (unsigned long)c->message, wc->opcode);
	if (op.kind != OP_SEND && (!(wc->wc_flags & IBV_WC_WITH_IMM) || ntohl(wc->imm_data) != (uint32_t)c->message))
		wrong("connection %u, message %lu: immediate %u", q, (unsigned long)c->message, ntohl(wc->imm_data));
	check(op.kind == OP_WRITE_IMM ? landed : at, op.size, op.seed, "message", q, c->message);
	c->message++;
	c->messages++;
	if (options.shared)
		shared_post(w, wc->wr_id % options.depth);
	else
		receive_post(c);
}

static uint32_t connection_of(const struct ibv_wc *wc)
{
	for (uint32_t q = 0; q < options.qps; q++)
		if ((wc->opcode & IBV_WC_RECV && options.xrc ? connections[q].target : connections[q].qp)->qp_num == wc->qp_num)
			return q;
	wrong("a completion of QP 0x%x, which is none of ours", wc->qp_num);
}

static int poll_all(struct worker *w)
{
	struct ibv_wc wc[4];
	int total = 0, n;

	for (uint32_t i = 0; i < CQS; i++) {
		n = ibv_poll_cq(w->cqs[i], 4, wc);
		if (n < 0)
			wrong("ibv_poll_cq: %d", n);
		for (int j = 0; j < n; j++) {
			uint32_t q = connection_of(&wc[j]);

			if (wc[j].status)
				wrong("connection %u: work %lu ended in %s", q, (unsigned long)wc[j].wr_id,
				      ibv_wc_status_str(wc[j].status));
			if (wc[j].opcode & IBV_WC_RECV)
				receive_done(&connections[q], q, &wc[j]);
			else
				send_done(&connections[q], q, &wc[j]);
		}
		total += n;
	}
	return total;
}

static void sleep_for_worker(struct worker *w)
{
	struct epoll_event event;
	struct ibv_cq *cq;
	void *cq_context;
	uint32_t i;

	while (ibv_get_cq_event(w->channel, &cq, &cq_context)) {
		must(errno == EAGAIN && options.epoll, "ibv_get_cq_event");
		must(epoll_wait(w->epoll, &event, 1, -1) == 1 && event.data.ptr == w, "epoll_wait");
	}
	i = cq == w->cqs[0] ? 0 : 1;
	if (cq != w->cqs[i])
		wrong("an event of a queue that is none of ours");
	if (++w->unacked[i] == 100) {
		ibv_ack_cq_events(cq, 100);
		w->unacked[i] = 0;
	}
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

/* All of the peer's messages on the connection have come. */
static int all_here(struct connection *c, uint32_t q)
{
	while (c->message < options.count && !takes_receive(op_at(!me(), q, c->message).kind))
		c->message++;
	return c->message >= options.count;
}

static void *run(void *arg)
{
	struct worker *w = arg;
	uint32_t first = (uint32_t)(w - workers);
	int busy = 1;

	while (busy) {
		int progress = 0;

		busy = 0;
		for (uint32_t q = first; q < options.qps; q += options.threads) {
			struct connection *c = &connections[q];

			while (c->posted < options.count && c->posted - c->completed < options.depth) {
				op_post(c, q);
				progress = 1;
			}
			busy |= c->completed < options.count || !all_here(c, q);
		}
		if (poll_all(w) || progress || !busy)
			continue;
		if (options.events)
			sleep_for_worker(w);
	}
	return NULL;
}

static void run_all(void)
{
	for (uint32_t i = 1; i < options.threads; i++)
		must(!pthread_create(&workers[i].thread, NULL, run, &workers[i]), "pthread_create");
	run(&workers[0]);
	for (uint32_t i = 1; i < options.threads; i++)
		must(!pthread_join(workers[i].thread, NULL), "pthread_join");
}

int main(int argc, char **argv)
{
	options_parse(argc, argv, "p:q:s:n:d:r:t:g:T:eES6x");
	device_open();
	tcp_connect();
	for (uint32_t q = 0; q < options.qps; q++) {
		connection_create(&connections[q], q);
		tcp_exchange(&connections[q].mine, &connections[q].other, sizeof(struct address));
		for (uint32_t i = 0; i < options.depth && !options.shared; i++)
			receive_post(&connections[q]);
		connection_connect(&connections[q]);
	}
	tcp_meet();
	run_all();
	tcp_meet();
	if (*(volatile uint64_t *)counter != sum_of_adds(!me()))
		wrong("the counter is %lu, not %lu", (unsigned long)*counter, (unsigned long)sum_of_adds(!me()));
	for (uint32_t t = 0; t < options.threads; t++) {
		for (uint32_t i = 0; i < CQS; i++)
			ibv_ack_cq_events(workers[t].cqs[i], (unsigned int)workers[t].unacked[i]);
		if (poll_all(&workers[t]))
			wrong("a completion too many");
	}
	for (uint32_t q = 0; q < options.qps; q++)
		must(!ibv_destroy_qp(connections[q].qp) && !(options.xrc && ibv_destroy_qp(connections[q].target)) && !ibv_dereg_mr(connections[q].mr),
		     "ibv_destroy_qp");
	for (uint32_t t = 0; t < options.threads; t++)
		worker_destroy(&workers[t]);
	device_close();
	printf("verbs_stress (%s): %u connections, %lu operations on each, all right\n", options.host ? "client" : "server",
	       options.qps, (unsigned long)options.count);
	return 0;
}
