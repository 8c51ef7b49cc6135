/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two ends of connected queue pairs for the softrdma tests: an end is a context with one buffer, a send and a
 * receive CQ on one channel, and some QPs. Ends in other processes are connected through a socket pair. Nothing
 * here asserts: an end may run in a child, so each call says what went wrong and ends its process with status 1.
 */
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>
#include <sys/types.h>

#define END_QPS 8
#define END_QKEY 0x11223344
#define ALL_ACCESS                                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct end_name {
	uint32_t qpn[END_QPS];
	uint64_t addr;
	uint32_t rkey;
	uint16_t lid;
};

struct end {
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp[END_QPS];
	struct ibv_mr *mr;
	char *buf;
	size_t size;
	int nqp;
	struct end_name me, other;
	/* Changed before end_connect by tests that want to. */
	int timeout, retry_cnt, rnr_retry, access;
};

#define die_unless(x) ((x) ? (void)0 : end_die(__FILE__, __LINE__, #x))
_Noreturn void end_die(const char *file, int line, const char *what);

void end_open(struct end *e, int nqp, size_t size);
/* On another device than the first. */
void end_open_at(struct end *e, int device, int nqp, size_t size, enum ibv_qp_type type);
/* With queue pairs of another kind than RC. */
void end_open_as(struct end *e, int nqp, size_t size, enum ibv_qp_type type);
void end_close(struct end *e);
/* Tells the other end our names and learns its own; moves the QPs to RTS. */
void end_connect(struct end *e, int sock);
void end_open_connected(struct end *e, int nqp, size_t size, int sock);
void end_connect_to(struct end *e, const struct end_name *other);
void qp_to_init(struct ibv_qp *qp, int access);
void qp_to_rtr(struct ibv_qp *qp, uint32_t dest, const struct end *e);
void qp_to_rts(struct ibv_qp *qp, uint32_t dest, const struct end *e);

/* The first descriptor from @from on that is a connection to another host; -1: there is none. */
int end_connection(int from);

/* A point that both processes reach. */
void meet(int sock);

int post_recv(struct end *e, int q, uint64_t id, size_t off, uint32_t len);
/* @flags: of enum ibv_send_flags. Local data at @off, remote address at @to of the other's buffer. */
int post(struct end *e, int q, uint64_t id, enum ibv_wr_opcode op, size_t off, uint32_t len, size_t to,
	 unsigned int flags);
int post_wr(struct end *e, int q, struct ibv_send_wr *wr);
/* The next completion, within 20 s. */
struct ibv_wc next_wc(struct ibv_cq *cq);
struct ibv_wc next_good_wc(struct ibv_cq *cq);
/* One that ends well, with this id. */
struct ibv_wc good_wc(struct ibv_cq *cq, uint64_t id);
void expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
void expect_empty(struct ibv_cq *cq);

/* A child that a crash ends: the runner's own handlers would go on with the tests, there. */
pid_t end_fork(void);
/* Runs @fn in a child with one end of a socket pair. */
pid_t spawn_end(int (*fn)(int sock), int *ret_sock);
/* The child's exit status; -signal if one ended it. */
int reap(pid_t pid);

void fill(char *p, size_t n, unsigned int seed);
int filled(const char *p, size_t n, unsigned int seed);
