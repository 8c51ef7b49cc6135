/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A key-value server and its clients, on bare verbs: a table in the server's memory. A client has a value put by a datagram, which the server answers; it is sent again after
 * a second without an answer, and done once. It reads values by RDMA READ, counts by fetch-and-add, and changes a record under a lock that it takes by compare-and-swap.
 *
 *   kv CLIENTS REQUESTS
 *
 * A client checks what it gets: the value that it has put, other clients' values by their checksum, its own counter, which says how often each addition was done. The
 * server says "step N" at each thousand of values put, and at the end "result" with the checksum of the table, the same from run to run. What is wrong ends the
 * program with 1.
 */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kv.h"

#define CLIENTS 16
#define SLOTS 960u
#define VALUE 240
#define EACH_SHARED 8 /* requests */
#define EACH_LOCKED 16
#define STEP 1000
#define ATTEMPTS 600

struct slot {
	uint64_t version, sum;
	unsigned char value[VALUE];
};

struct record {
	uint64_t lock, changes, mixed;
};

static struct table {
	struct slot slots[SLOTS];
	struct record record;
	uint64_t shared, own[CLIENTS];
} table;

struct request {
	uint64_t client, number;
	uint64_t key; /* SLOTS: it was the last one */
	unsigned char value[VALUE];
};

struct reply {
	uint64_t number, version;
};

struct client {
	pid_t pid;
	int socket; /* addresses go over it, no more */
	struct kv_address address;
	struct ibv_ah *ah;
	uint64_t number, version; /* of its last request, and what was answered */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t mixed(uint64_t sum, const void *bytes, size_t n)
{
	const unsigned char *b = bytes;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ b[i]) * 1099511628211ul;
	return sum;
}

static uint64_t sum_of(uint64_t version, const unsigned char *value)
{
	return mixed(mixed(14695981039346656037ul, &version, sizeof(version)), value, VALUE);
}

/* What is read while it changes has a sum that is not its own. */
static uint64_t put(struct slot *s, const unsigned char *value)
{
	uint64_t version = s->version + 1;

	memcpy(s->value, value, VALUE);
	s->sum = sum_of(version, value);
	__atomic_store_n(&s->version, version, __ATOMIC_RELEASE);
	return version;
}

static void answer(const struct kv_end *end, struct client *clients, const struct request *q)
{
	static uint64_t puts;
	struct client *c = &clients[q->client];
	struct reply *reply = kv_to_send(end);

	if (q->number == c->number + 1) {
		c->number = q->number;
		c->version = q->key < SLOTS ? put(&table.slots[q->key], q->value) : 0;
		if (q->key < SLOTS && ++puts % STEP == 0)
			printf("step %lu\n", puts);
	}
	if (q->number != c->number)
		return; /* one that was sent again, and is late */
	*reply = (struct reply){ c->number, c->version };
	kv_send(end, c->ah, c->address.datagrams, sizeof(*reply));
}

/* Until no client is left. */
static void serve(const struct kv_end *end, struct client *clients, int left)
{
	struct pollfd p = { .fd = end->channel->fd, .events = POLLIN };
	const struct request *q;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int status;

	while (left) {
		MUST(!ibv_req_notify_cq(end->received, 0));
		while ((q = kv_next(end, &wc))) {
			MUST(wc.byte_len == KV_ROUTE + sizeof(*q) && q->client < CLIENTS && q->key <= SLOTS);
			answer(end, clients, q);
			kv_again(end, wc.wr_id);
		}
		if (poll(&p, 1, 100) > 0) {
			MUST(!ibv_get_cq_event(end->channel, &cq, &context));
			ibv_ack_cq_events(cq, 1);
		}
		while (left && waitpid(-1, &status, WNOHANG) > 0) {
			MUST(!status);
			left--;
		}
	}
}

static void meet(struct client *c, struct kv_end *end, const struct ibv_mr *mr)
{
	struct ibv_qp *qp = kv_reliable(end);

	end->mine.reliable = qp->qp_num;
	end->mine.rkey = mr ? mr->rkey : 0;
	end->mine.base = (uintptr_t)&table;
	MUST(write(c->socket, &end->mine, sizeof(end->mine)) == sizeof(end->mine));
	MUST(recv(c->socket, &c->address, sizeof(c->address), MSG_WAITALL) == sizeof(c->address));
	kv_connect(end, qp, &c->address);
	c->ah = kv_reach(end, &c->address);
}

static void server(struct client *clients, int count)
{
	struct kv_end end = { 0 };
	struct ibv_mr *mr;
	double begin;

	kv_open(&end, sizeof(struct request));
	mr = ibv_reg_mr(end.pd, &table, sizeof(table), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	MUST(mr);
	for (int i = 0; i < count; i++)
		meet(&clients[i], &end, mr);
	for (int i = 0; i < count; i++) /* both ends are ready now */
		MUST(write(clients[i].socket, "", 1) == 1);
	begin = now();
	serve(&end, clients, count);
	printf("seconds %.2f\nresult %016lx, %lu counted, %lu under lock\n", now() - begin, mixed(14695981039346656037ul, &table, sizeof(table)),
	       table.shared, table.record.changes);
}

/* A client's. */
static struct kv_end end;
static struct client to;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static union {
	struct slot slot;
	struct record record;
	uint64_t word;
} got; /* by RDMA */

static uint64_t request(uint64_t me, uint64_t number, uint64_t key, const unsigned char *value)
{
	struct request *q = kv_to_send(&end);
	double sent = 0;
	int attempts = 0;

	*q = (struct request){ me, number, key, { 0 } };
	memcpy(q->value, value, VALUE);
	for (;;) {
		struct ibv_wc wc;
		const struct reply *r = kv_next(&end, &wc);
		struct reply said;

		if (r) {
			said = *r;
			kv_again(&end, wc.wr_id);
			if (said.number == number)
				return said.version;
			MUST(said.number < number);
		} else if (now() - sent > 1) {
			MUST(attempts++ < ATTEMPTS);
			kv_send(&end, to.ah, to.address.datagrams, sizeof(*q));
			sent = now();
		} else {
			sched_yield();
		}
	}
}

static void rdma(enum ibv_wr_opcode opcode, void *at, uint32_t size, const void *there)
{
	struct ibv_send_wr wr = { .opcode = opcode, .wr.rdma = { to.address.base + (uint64_t)((const char *)there - (const char *)&table), to.address.rkey } };

	kv_operation(&end, qp, mr, at, size, &wr);
}

/* The word's value before it. */
static uint64_t atomic(enum ibv_wr_opcode opcode, const uint64_t *there, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr wr = { .opcode = opcode, .wr.atomic = { to.address.base + (uint64_t)((const char *)there - (const char *)&table), compare_add, swap, to.address.rkey } };

	kv_operation(&end, qp, mr, &got.word, sizeof(got.word), &wr);
	return got.word;
}

static void read_slot(uint64_t key)
{
	do
		rdma(IBV_WR_RDMA_READ, &got.slot, sizeof(got.slot), &table.slots[key]);
	while (got.slot.version && got.slot.sum != sum_of(got.slot.version, got.slot.value));
}

static void change_record(uint64_t me, uint64_t number)
{
	while (atomic(IBV_WR_ATOMIC_CMP_AND_SWP, &table.record.lock, 0, me + 1))
		;
	rdma(IBV_WR_RDMA_READ, &got.record, sizeof(got.record), &table.record);
	MUST(got.record.lock == me + 1);
	got.record.changes++;
	got.record.mixed += number * (me + 1) * 2654435761u;
	rdma(IBV_WR_RDMA_WRITE, &got.record.changes, 2 * sizeof(uint64_t), &table.record.changes);
	MUST(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, &table.record.lock, me + 1, 0) == me + 1);
}

static void client(uint64_t me, uint64_t clients, uint64_t requests)
{
	uint64_t random = me, shared = 0, before;
	unsigned char value[VALUE];

	for (uint64_t number = 1; number <= requests; number++) {
		uint64_t key, version;

		for (int i = 0; i < VALUE; i++)
			value[i] = (unsigned char)((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
		key = (random >> 33) % (SLOTS / clients) * clients + me;
		version = request(me, number, key, value);
		read_slot(key);
		MUST(got.slot.version == version && !memcmp(got.slot.value, value, VALUE));
		read_slot((random >> 17) % SLOTS);
		MUST(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &table.own[me], 1, 0) == number - 1);
		if (number % EACH_SHARED == 0) {
			before = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &table.shared, 1, 0);
			MUST(before + 1 > shared);
			shared = before + 1;
		}
		if (number % EACH_LOCKED == 0)
			change_record(me, number);
	}
	request(me, requests + 1, SLOTS, value);
}

static void run_client(int socket, uint64_t me, uint64_t clients, uint64_t requests)
{
	char go;

	to.socket = socket;
	kv_open(&end, sizeof(struct request));
	mr = ibv_reg_mr(end.pd, &got, sizeof(got), IBV_ACCESS_LOCAL_WRITE);
	MUST(mr);
	qp = kv_reliable(&end);
	end.mine.reliable = qp->qp_num;
	MUST(recv(socket, &to.address, sizeof(to.address), MSG_WAITALL) == sizeof(to.address));
	kv_connect(&end, qp, &to.address);
	to.ah = kv_reach(&end, &to.address);
	MUST(write(socket, &end.mine, sizeof(end.mine)) == sizeof(end.mine));
	MUST(read(socket, &go, 1) == 1);
	client(me, clients, requests);
	exit(0);
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[1]) : 0;
	struct client clients[CLIENTS] = { 0 };

	if (count < 1 || count > CLIENTS) {
		fprintf(stderr, "kv CLIENTS REQUESTS: with 1 to %d clients\n", CLIENTS);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < count; i++) {
		int pair[2];

		MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
		clients[i].pid = fork();
		MUST(clients[i].pid >= 0);
		if (!clients[i].pid)
			run_client(pair[1], (uint64_t)i, (uint64_t)count, strtoul(argv[2], NULL, 10));
		close(pair[1]);
		clients[i].socket = pair[0];
	}
	server(clients, count);
	return 0;
}
