/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plain verbs program that knows exactly what it must see. Two processes over TCP make some reliable connections and
 * exchange on each a sequence of operations that both can compute: SEND, SEND with immediate, RDMA WRITE with immediate,
 * RDMA WRITE and the RDMA READ that fetches it back, fetch-and-add; inline where it fits, signalled or not. Each side checks
 * every byte that arrives, the length, the immediate, the order, that each completion comes once, that what
 * fetch-and-add returns only grows, and at the end that the counters hold the exact sums.
 *
 *   verbs_stress [-p port] [-q connections] [-s largest message] [-n operations a connection] [-d depth] [-e] [-t threads]
 *                [-r seed] [host]
 *
 * -e sleeps for completion events instead of polling; -t shares the connections among threads. Receives are few, so senders often wait for them. Status 0: all was
 * right; 1: what was wrong is told; 77: there is no device.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define QPS_MAX 64
#define CQS 2 /* a thread */
#define THREADS_MAX 16

enum kind { OP_SEND, OP_SEND_IMM, OP_WRITE_IMM, OP_WRITE, OP_READ, OP_ADD, OP_KINDS };

struct op {
	enum kind kind;
	uint32_t size;
	uint8_t seed;
	int inlined, signaled;
	uint64_t add;
};

/* What a side tells the other about a connection. */
struct address {
	uint32_t qpn, rkey;
	uint16_t lid, reserved;
	uint32_t psn;
	uint8_t gid[16];
	uint64_t landing, written, counter;
	uint32_t counter_rkey, reserved2;
};

struct connection {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct address mine, other;
	uint8_t *send, *receive, *landing, *written, *fetch;
	uint64_t posted, completed; /* operations of ours */
	uint64_t write_op;	    /* the last WRITE + 1; 0: none */
	uint64_t message, messages; /* expected next, as operation of the peer; messages seen */
	uint64_t receives_posted;
	uint64_t landings; /* messages of ours that take a receive, posted */
	uint64_t last_value;
	int any_value;
};

static struct {
	const char *host;
	uint16_t port;
	uint32_t qps, largest, depth, seed, threads;
	uint64_t count;
	int events;
} o = { .port = 18600, .qps = 1, .largest = 65536, .depth = 8, .seed = 1, .threads = 1, .count = 1000 };

static struct connection connections[QPS_MAX];
static struct ibv_context *context;
static struct ibv_pd *pd;
/* Each thread has queues and a channel of its own, and every connection whose number leaves its own as remainder. */
static struct worker {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cqs[CQS];
	uint64_t unacked[CQS];
	pthread_t thread;
} workers[THREADS_MAX];
static struct ibv_mr *counter_mr;
static uint64_t *counter;
static uint32_t max_inline;
static int tcp;

static _Noreturn void __attribute__((format(printf, 1, 2))) wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "verbs_stress (%s): ", o.host ? "client" : "server");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

static void must(int good, const char *what)
{
	if (!good)
		wrong("%s: %s", what, strerror(errno));
}

/* ---- the sequence that both sides know ---- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* Operation @k of connection @q in the direction of the client (0) or the server (1). */
static struct op op_at(int direction, uint32_t q, uint64_t k)
{
	uint64_t h = mix(((uint64_t)o.seed << 40) ^ ((uint64_t)direction << 39) ^ ((uint64_t)q << 32) ^ k);
	struct op op = { .kind = h % OP_KINDS, .seed = (uint8_t)(h >> 8), .add = 1 + (h >> 16) % 9 };
	uint64_t bits = mix(h);

	op.size = (uint32_t)(1 + (bits >> 8) % o.largest) >> (bits % 16);
	op.size = op.size ? op.size : 1;
	op.signaled = (bits >> 40) % 4 == 0 || k % (o.depth / 2) == 0 || k + 1 == o.count || op.kind == OP_READ ||
		      op.kind == OP_ADD;
	op.inlined = (bits >> 44) % 2 == 0;
	return op;
}

static int takes_receive(enum kind kind)
{
	return kind == OP_SEND || kind == OP_SEND_IMM || kind == OP_WRITE_IMM;
}

static uint8_t byte_at(uint8_t seed, uint32_t i)
{
	return (uint8_t)(seed + i * 7 + (i >> 8) * 13);
}

static void fill(uint8_t *p, uint32_t size, uint8_t seed)
{
	for (uint32_t i = 0; i < size; i++)
		p[i] = byte_at(seed, i);
}

static void check(const uint8_t *p, uint32_t size, uint8_t seed, const char *what, uint32_t q, uint64_t k)
{
	for (uint32_t i = 0; i < size; i++)
		if (p[i] != byte_at(seed, i))
			wrong("connection %u, %s %lu: byte %u of %u is 0x%02x, not 0x%02x", q, what, (unsigned long)k, i,
			      size, p[i], byte_at(seed, i));
}

static int me(void)
{
	return o.host ? 0 : 1;
}

/* ---- set-up ---- */

static void tcp_meet(void)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(o.port) };
	int listener, one = 1;
	char port[8];

	if (o.host) {
		snprintf(port, sizeof(port), "%u", o.port);
		must(!getaddrinfo(o.host, port, &hints, &found), "getaddrinfo");
		tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		must(!connect(tcp, found->ai_addr, found->ai_addrlen), "connect");
		freeaddrinfo(found);
		return;
	}
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	must(!bind(listener, (struct sockaddr *)&any, sizeof(any)) && !listen(listener, 1), "listen");
	tcp = accept(listener, NULL, NULL);
	must(tcp >= 0, "accept");
	close(listener);
}

static void tcp_exchange(const void *mine, void *other, size_t size)
{
	size_t n = 0;
	ssize_t r;

	must(send(tcp, mine, size, MSG_NOSIGNAL) == (ssize_t)size, "send");
	for (; n < size; n += (size_t)r) {
		r = recv(tcp, (char *)other + n, size - n, 0);
		if (r <= 0)
			wrong("the other side is gone: %s", r ? strerror(errno) : "end of file");
	}
}

static void worker_create(struct worker *w)
{
	w->channel = o.events ? ibv_create_comp_channel(context) : NULL;
	for (uint32_t i = 0; i < CQS; i++) {
		w->cqs[i] = ibv_create_cq(context, (int)(o.qps * o.depth * 2), NULL, w->channel, 0);
		must(w->cqs[i] != NULL, "ibv_create_cq");
		if (o.events)
			must(!ibv_req_notify_cq(w->cqs[i], 0), "ibv_req_notify_cq");
	}
}

static void device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0]) {
		fprintf(stderr, "verbs_stress: no RDMA device\n");
		exit(77);
	}
	context = ibv_open_device(list[0]);
	must(context != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	must(pd != NULL, "ibv_alloc_pd");
	for (uint32_t i = 0; i < o.threads; i++)
		worker_create(&workers[i]);
	counter = aligned_alloc(64, 64);
	memset(counter, 0, 64);
	counter_mr = ibv_reg_mr(pd, counter, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	must(counter_mr != NULL, "ibv_reg_mr");
}

static void receive_post(struct connection *c)
{
	uint64_t slot = c->receives_posted % o.depth;
	struct ibv_sge sge = { (uintptr_t)(c->receive + slot * o.largest), o.largest, c->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = c->receives_posted, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(c->receive + slot * o.largest, 0, 64 < o.largest ? 64 : o.largest);
	must(!ibv_post_recv(c->qp, &wr, &bad), "ibv_post_recv");
	c->receives_posted++;
}

static void connection_memory(struct connection *c)
{
	size_t part = (size_t)o.depth * o.largest + 64, all = 4 * part + o.largest;

	c->send = aligned_alloc(4096, (all + 4095) & ~(size_t)4095);
	must(c->send != NULL, "memory");
	memset(c->send, 0, all);
	c->receive = c->send + part;
	c->landing = c->receive + part;
	c->fetch = c->landing + part;
	c->written = c->fetch + part;
	c->mr = ibv_reg_mr(pd, c->send, all, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	must(c->mr != NULL, "ibv_reg_mr");
}

static void connection_create(struct connection *c, uint32_t q)
{
	struct worker *w = &workers[q % o.threads];
	uint32_t turn = q / o.threads;
	struct ibv_qp_init_attr init = { .send_cq = w->cqs[turn % CQS], .recv_cq = w->cqs[(turn + 1) % CQS],
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_port_attr port;
	union ibv_gid gid;

	init.cap = (struct ibv_qp_cap){ .max_send_wr = o.depth, .max_recv_wr = o.depth, .max_send_sge = 2,
					.max_recv_sge = 1, .max_inline_data = 128 };
	connection_memory(c);
	c->qp = ibv_create_qp(pd, &init);
	must(c->qp != NULL, "ibv_create_qp");
	max_inline = init.cap.max_inline_data;
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	must(!ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	must(!ibv_query_port(context, 1, &port) && !ibv_query_gid(context, 1, 0, &gid), "ibv_query_port");
	c->mine = (struct address){ .qpn = c->qp->qp_num, .rkey = c->mr->rkey, .lid = port.lid, .psn = 7 + q,
				    .landing = (uintptr_t)c->landing, .written = (uintptr_t)c->written,
				    .counter = (uintptr_t)counter, .counter_rkey = counter_mr->rkey };
	memcpy(c->mine.gid, &gid, 16);
}

static void connection_connect(struct connection *c)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = c->other.qpn,
				 .rq_psn = c->other.psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 1 };

	a.ah_attr = (struct ibv_ah_attr){ .dlid = c->other.lid, .port_num = 1, .is_global = !c->other.lid };
	memcpy(&a.ah_attr.grh.dgid, c->other.gid, 16);
	a.ah_attr.grh.hop_limit = 1;
	must(!ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				  .sq_psn = c->mine.psn, .max_rd_atomic = 4 };
	must(!ibv_modify_qp(c->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* ---- the run ---- */

static void op_post(struct connection *c, uint32_t q)
{
	uint64_t k = c->posted, slot = k % o.depth;
	struct op op = op_at(me(), q, k);
	uint8_t *from = c->send + slot * o.largest;
	struct ibv_sge sge[2] = { { (uintptr_t)from, op.size, c->mr->lkey } };
	struct ibv_send_wr wr = { .wr_id = k, .sg_list = sge, .num_sge = 1, .imm_data = htonl((uint32_t)k) }, *bad;

	wr.send_flags = op.signaled ? IBV_SEND_SIGNALED : 0;
	wr.wr.rdma.rkey = c->other.rkey;
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
		wr.wr.rdma.remote_addr = c->other.landing + c->landings % o.depth * o.largest;
		break;
	case OP_WRITE:
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = c->other.written;
		c->write_op = k + 1;
		break;
	case OP_READ:
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = c->other.written;
		sge[0] = (struct ibv_sge){ (uintptr_t)(c->fetch + slot * o.largest),
					   op_at(me(), q, c->write_op - 1).size, c->mr->lkey };
		break;
	default:
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = c->other.counter;
		wr.wr.atomic.compare_add = op.add;
		wr.wr.atomic.rkey = c->other.counter_rkey;
		sge[0] = (struct ibv_sge){ (uintptr_t)(c->send + o.depth * (size_t)o.largest), 8, c->mr->lkey };
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
		check(c->fetch + k % o.depth * o.largest, op.size, op.seed, "read", q, k);
		return 1;
	}
	return 0;
}

/* A fetch-and-add's slot is shared by those outstanding, so the value is looked at when it is the only one to come. */
static void added(struct connection *c, uint32_t q, uint64_t k)
{
	uint64_t value;

	memcpy(&value, c->send + o.depth * (size_t)o.largest, 8);
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
	uint64_t slot = c->messages % o.depth;
	struct op op = op_at(!me(), q, c->message);

	while (!takes_receive(op.kind) && c->message < o.count)
		op = op_at(!me(), q, ++c->message);
	if (c->message >= o.count)
		wrong("connection %u: a message more than were sent", q);
	if (wc->wr_id != c->messages)
		wrong("connection %u: receive %lu completed, expected %lu", q, (unsigned long)wc->wr_id,
		      (unsigned long)c->messages);
	if (wc->byte_len != op.size && op.kind != OP_WRITE_IMM)
		wrong("connection %u, message %lu: %u bytes, not %u", q, (unsigned long)c->message, wc->byte_len, op.size);
	if (wc->opcode != (op.kind == OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		wrong("connection %u, message %lu: opcode %d", q, (unsigned long)c->message, wc->opcode);
	if (op.kind != OP_SEND && (!(wc->wc_flags & IBV_WC_WITH_IMM) || ntohl(wc->imm_data) != (uint32_t)c->message))
		wrong("connection %u, message %lu: immediate %u", q, (unsigned long)c->message, ntohl(wc->imm_data));
	check(op.kind == OP_WRITE_IMM ? c->landing + slot * o.largest : c->receive + slot * o.largest, op.size, op.seed,
	      "message", q, c->message);
	c->message++;
	c->messages++;
	receive_post(c);
}

static uint32_t connection_of(const struct ibv_wc *wc)
{
	for (uint32_t q = 0; q < o.qps; q++)
		if (connections[q].qp->qp_num == wc->qp_num)
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

static void sleep_for_event(struct worker *w)
{
	struct ibv_cq *cq;
	void *cq_context;
	uint32_t i;

	must(!ibv_get_cq_event(w->channel, &cq, &cq_context), "ibv_get_cq_event");
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
	while (c->message < o.count && !takes_receive(op_at(!me(), q, c->message).kind))
		c->message++;
	return c->message >= o.count;
}

static void *run(void *arg)
{
	struct worker *w = arg;
	uint32_t first = (uint32_t)(w - workers);
	int busy = 1;

	while (busy) {
		int progress = 0;

		busy = 0;
		for (uint32_t q = first; q < o.qps; q += o.threads) {
			struct connection *c = &connections[q];

			while (c->posted < o.count && c->posted - c->completed < o.depth) {
				op_post(c, q);
				progress = 1;
			}
			busy |= c->completed < o.count || !all_here(c, q);
		}
		if (poll_all(w) || progress || !busy)
			continue;
		if (o.events)
			sleep_for_event(w);
	}
	return NULL;
}

static void worker_destroy(struct worker *w)
{
	for (uint32_t i = 0; i < CQS; i++)
		must(!ibv_destroy_cq(w->cqs[i]), "ibv_destroy_cq");
	must(!w->channel || !ibv_destroy_comp_channel(w->channel), "ibv_destroy_comp_channel");
}

static void run_all(void)
{
	for (uint32_t i = 1; i < o.threads; i++)
		must(!pthread_create(&workers[i].thread, NULL, run, &workers[i]), "pthread_create");
	run(&workers[0]);
	for (uint32_t i = 1; i < o.threads; i++)
		must(!pthread_join(workers[i].thread, NULL), "pthread_join");
}

static uint64_t sum_of_adds(int direction)
{
	uint64_t sum = 0;

	for (uint32_t q = 0; q < o.qps; q++) {
		int written = 0;

		for (uint64_t k = 0; k < o.count; k++) {
			struct op op = op_at(direction, q, k);

			written |= op.kind == OP_WRITE;
			if (op.kind == OP_ADD || (op.kind == OP_READ && !written))
				sum += op.add;
		}
	}
	return sum;
}

static void parse(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "p:q:s:n:d:r:t:e")) != -1) {
		switch (c) {
		case 'p': o.port = (uint16_t)atoi(optarg); break;
		case 'q': o.qps = (uint32_t)atoi(optarg); break;
		case 's': o.largest = (uint32_t)atoi(optarg); break;
		case 'n': o.count = (uint64_t)atoll(optarg); break;
		case 'd': o.depth = (uint32_t)atoi(optarg); break;
		case 'r': o.seed = (uint32_t)atoi(optarg); break;
		case 't': o.threads = (uint32_t)atoi(optarg); break;
		case 'e': o.events = 1; break;
		default: exit(2);
		}
	}
	o.host = optind < argc ? argv[optind] : NULL;
	if (!o.qps || o.qps > QPS_MAX || !o.largest || o.depth < 2 || !o.count || !o.threads ||
	    o.threads > THREADS_MAX || o.threads > o.qps)
		exit(2);
}

int main(int argc, char **argv)
{
	char there, here = 'x';

	parse(argc, argv);
	device_open();
	tcp_meet();
	for (uint32_t q = 0; q < o.qps; q++) {
		connection_create(&connections[q], q);
		tcp_exchange(&connections[q].mine, &connections[q].other, sizeof(struct address));
		for (uint32_t i = 0; i < o.depth; i++)
			receive_post(&connections[q]);
		connection_connect(&connections[q]);
	}
	tcp_exchange(&here, &there, 1);
	run_all();
	tcp_exchange(&here, &there, 1);
	if (*(volatile uint64_t *)counter != sum_of_adds(!me()))
		wrong("the counter is %lu, not %lu", (unsigned long)*counter, (unsigned long)sum_of_adds(!me()));
	for (uint32_t t = 0; t < o.threads; t++) {
		for (uint32_t i = 0; i < CQS; i++)
			ibv_ack_cq_events(workers[t].cqs[i], (unsigned int)workers[t].unacked[i]);
		if (poll_all(&workers[t]))
			wrong("a completion too many");
	}
	for (uint32_t q = 0; q < o.qps; q++)
		must(!ibv_destroy_qp(connections[q].qp) && !ibv_dereg_mr(connections[q].mr), "ibv_destroy_qp");
	for (uint32_t t = 0; t < o.threads; t++)
		worker_destroy(&workers[t]);
	must(!ibv_dereg_mr(counter_mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context), "ibv_close_device");
	printf("verbs_stress (%s): %u connections, %lu operations on each, all right\n", o.host ? "client" : "server",
	       o.qps, (unsigned long)o.count);
	return 0;
}
