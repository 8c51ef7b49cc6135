/* SPDX-License-Identifier: BSD-2-Clause */
/* What kv.c has of the device: an end each of a datagram queue pair and of reliable ones, and operations that wait for their completion. What fails ends the program. */
#pragma once

#include <infiniband/verbs.h>

#define KV_ROUTE 40 /* bytes before the data of a datagram's receive */
#define KV_QKEY 0x4b56
#define KV_DATAGRAMS 64 /* receives that a side has posted */

#define MUST(x) kv_must(!!(x), #x, __LINE__)

struct kv_address {
	uint16_t lid;
	uint32_t datagrams, reliable; /* numbers of the queue pairs */
	uint32_t rkey;
	uint64_t base;
	union ibv_gid gid;
};

struct kv_end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *received, *sent; /* of datagrams; and of all that this end sends */
	struct ibv_qp *datagrams;
	struct ibv_mr *buffers;
	char *buffer; /* KV_DATAGRAMS receives, then one to send from */
	uint32_t datagram; /* bytes of one, without its route header */
	struct kv_address mine;
	int gid; /* its index; -1: addressed by LID */
};

void kv_must(int good, const char *what, int line);

/* With @datagram bytes at most in each. The completions of received ones wake who waits at @channel. */
void kv_open(struct kv_end *end, uint32_t datagram);

struct ibv_qp *kv_reliable(const struct kv_end *end);
void kv_connect(const struct kv_end *end, struct ibv_qp *qp, const struct kv_address *other);
struct ibv_ah *kv_reach(const struct kv_end *end, const struct kv_address *other);

/* Where the next datagram is to be written; sends it, and has it gone when it returns. */
void *kv_to_send(const struct kv_end *end);
void kv_send(const struct kv_end *end, struct ibv_ah *to, uint32_t qpn, uint32_t size);

/* The next one that has come, until kv_again(): its data. NULL: there is none. */
const void *kv_next(const struct kv_end *end, struct ibv_wc *ret);
void kv_again(const struct kv_end *end, uint64_t wr_id);

/* One operation of @wr's kind on @size bytes at @at, done when it returns. */
void kv_operation(const struct kv_end *end, struct ibv_qp *qp, const struct ibv_mr *mr, void *at, uint32_t size, struct ibv_send_wr *wr);
