/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of verbs_stress share: the options, the device's objects, and the operations that both sides know. */
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stddef.h>

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
	uint32_t counter_rkey;
	uint32_t initiator, srqn; /* -x: qpn is the target's */
};

struct connection {
	struct ibv_qp *qp;
	struct ibv_qp *target; /* -x: qp is the initiator */
	struct ibv_mr *mr;
	struct address mine, other;
	uint8_t *send, *receive, *landing, *written, *fetch;
	uint64_t posted, completed; /* operations of ours */
	uint64_t write_op;	    /* the last WRITE + 1; 0: none */
	uint64_t writes;
	uint64_t message, messages; /* expected next, as operation of the peer; messages seen */
	uint64_t receives_posted;
	uint64_t landings; /* messages of ours that take a receive, posted */
	uint64_t last_value;
	int any_value;
};

struct options {
	const char *host;
	uint16_t port;
	uint32_t qps, largest, depth, seed, threads;
	uint8_t timeout; /* of the queue pairs; 0: 17, 0.54 s: on a busy machine the tests' own wire stands still for longer than 14 lasts */
	uint64_t count;
	int events, epoll, shared, gid, ipv6, xrc, datagrams;
};

/* Each thread has queues and a channel of its own, and every connection whose number leaves its own as remainder. */
struct worker {
	struct ibv_comp_channel *channel;
	int epoll; /* -E */
	struct ibv_cq *cqs[CQS];
	uint64_t unacked[CQS];
	struct ibv_srq *srq; /* -S, -x; its receives lie in a pool of as many places */
	struct ibv_mr *pool_mr;
	uint8_t *pool;
	uint64_t *pool_ids; /* of the receive that has a place, + 1; 0: none */
	uint64_t pool_next;
	pthread_t thread;
};

extern struct options options;
extern struct connection connections[QPS_MAX];
extern struct worker workers[THREADS_MAX];
extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern struct ibv_xrcd *domain; /* -x */
extern struct ibv_mr *counter_mr;
extern uint64_t *counter;
extern uint32_t max_inline;

/* Says what is wrong, and ends the process with status 1. */
_Noreturn void __attribute__((format(printf, 1, 2))) wrong(const char *fmt, ...);
void must(int good, const char *what);

/* verbs_stress_sequence.c */
/* 0: the client, 1: the server. */
int me(void);
/* Operation @k of connection @q in the direction of the client (0) or the server (1). */
struct op op_at(int direction, uint32_t q, uint64_t k);
int takes_receive(enum kind kind);
void fill(uint8_t *p, uint32_t size, uint8_t seed);
void check(const uint8_t *p, uint32_t size, uint8_t seed, const char *what, uint32_t q, uint64_t k);
/* What the other's counter holds in the end. */
uint64_t sum_of_adds(int direction);

/* verbs_stress_setup.c */
/* The command line's; of @letters, which are getopt's. Ends the process with 2 if it is wrong. */
void options_parse(int argc, char **argv, const char *letters);
void tcp_connect(void);
/* A point that both sides reach. */
void tcp_meet(void);
void tcp_exchange(const void *mine, void *other, size_t size);
void device_open(void);
void device_close(void);
/* Until there is a completion, of the first worker's queues. */
void sleep_for_event(void);
void worker_destroy(struct worker *w);
/*
 * Places for RDMA WRITEs with immediate. A large one fills its place before it asks for a receive (its last packet does), and as many
 * as @depth may be on their way when those before have completed for the sender, but were not looked at here: so twice as many.
 */
uint64_t landing_slots(void);
void connection_create(struct connection *c, uint32_t q);
void connection_connect(struct connection *c);
void receive_post(struct connection *c);

/* verbs_stress_shared.c */
void shared_create(struct worker *w);
void shared_destroy(struct worker *w);
/* A receive into place @slot. */
void shared_post(struct worker *w, uint64_t slot);
/* Where the receive lay that has completed; each has to once. */
uint8_t *shared_take(struct worker *w, uint64_t id);
