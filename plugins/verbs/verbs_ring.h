/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queues of posted work, and the handles by which a completion finds its queue and slot.
 */
#pragma once

#include "plugins/verbs/verbs_backend.h"

struct shadow_qp;

enum {
	VERBS_TRANSLATE_KEYS = 1, /* they differ: verbs_moved */
	VERBS_TRANSLATE_AH = 2,	  /* a datagram's address handle is a shadow */
	VERBS_TRANSLATE_XRC = 4,  /* requests name a shared receive queue */
};

#define RING_LINE 64u /* bytes; of the processor's caches */

/*
 * A queue of posted work. Positions count up for ever; [tail, head) is outstanding. head moves under @lock, by the posters; tail under the lock of the completion queue, by the
 * pollers. The slot of a position is its distance from @base, & mask. Who posts to an empty queue, when nobody reads a slot, moves @base there: a queue that is never deep uses its
 * first slots alone, so that thousands of them stay in the processor's caches.
 *
 * All that both need lies in one cache line: with thousands of queue pairs, or system calls between two posts, each line is cold. A poller that is another thread looks
 * at the handle in any case, so that it moves the tail there costs nothing more.
 */
struct verbs_ring {
	struct lock lock;
	uint32_t mask;
	uint32_t base;
	uint32_t credits; /* positions that are free for sure; 0: ask the tail */
	uint16_t stride;  /* from slot to slot, in RING_LINEs */
	uint16_t max_sge;
	uint16_t max_inline;
	uint8_t signal_all;	  /* IBV_SEND_SIGNALED or 0 */
	uint8_t translate;	  /* VERBS_TRANSLATE_* */
	uint32_t handle;	  /* upper half of the wr_ids that the device is given */
	_Atomic uint32_t windows; /* outstanding requests that bind or invalidate one */
	char *slots;
	_Atomic uint64_t head, tail;
	struct ibv_qp *real;
	uint32_t capacity; /* that the program may fill */
} __attribute__((aligned(64)));
_Static_assert(offsetof(struct verbs_ring, capacity) == 64, "one cache line for posters and pollers");

enum { VERBS_SLOT_NOOP = 1 }; /* ours: its completion is not the program's */

/*
 * One posted send, whole: what is needed to post it again. Its pieces follow, or the inline data as it was at post time: of most requests in place of the operands, so that
 * one of a single piece or of a few bytes lies in one cache line; of those that have operands (send_has_operands) behind them.
 */
struct verbs_send {
	uint64_t wr_id;
	uint16_t num_sge;
	uint8_t opcode;
	uint8_t slot_flags;
	uint32_t flags; /* enum ibv_send_flags */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	uint32_t inline_length;
	uint32_t qkey; /* of a datagram, whose handle is remote_addr, and number rkey; XRC: the number of the shared receive queue */
	/* operands */
	uint64_t compare_add, swap;
	uint64_t region; /* of a binding: its shadow; swap: the window's, compare_add: the length, qkey: the rights, imm: the binding's number */
};
_Static_assert(sizeof(struct verbs_send) == 64, "one cache line");
_Static_assert(offsetof(struct verbs_send, compare_add) + sizeof(struct ibv_sge) <= 64, "with one piece");

struct verbs_receive {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t reserved;
	struct ibv_sge sge[];
};

static inline void *ring_slot(const struct verbs_ring *r, uint64_t position)
{
	return r->slots + (size_t)(((uint32_t)position - r->base) & r->mask) * r->stride * RING_LINE;
}
static inline struct verbs_send *ring_send(const struct verbs_ring *r, uint64_t position)
{
	return ring_slot(r, position);
}
static inline struct verbs_receive *ring_receive(const struct verbs_ring *r, uint64_t position)
{
	return ring_slot(r, position);
}
/* The position that is posted to next. Under r->lock. */
static inline uint64_t ring_begin(struct verbs_ring *r)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (atomic_load_explicit(&r->tail, memory_order_acquire) == head)
		r->base = (uint32_t)head;
	return head;
}
static inline int send_has_operands(uint32_t opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_BIND_MW;
}
/* The pieces, or the inline data. */
static inline void *send_data(struct verbs_send *s)
{
	return send_has_operands(s->opcode) ? (void *)(s + 1) : (void *)&s->compare_add;
}
static inline int send_two_sided(uint32_t opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV;
}

static inline int send_of_window(uint32_t opcode)
{
	return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

static inline void ring_advance(struct verbs_ring *r, uint64_t head, uint32_t n)
{
	r->credits -= n;
	atomic_store_explicit(&r->head, head + n, memory_order_relaxed);
}
/* Learns from the tail what has become free; 1 if @position is. Under r->lock. */
int verbs_ring_refresh(struct verbs_ring *r, uint64_t head, uint64_t position);

/* ---- handles: verbs_handle.c ---- */

/*
 * What the device is given as wr_id:  63 receive | 62 srq | 61..54 generation | 53..32 index of the queue pair | 31..0
 * position. The upper half is the ring's handle.
 */
#define VERBS_HANDLE_RECEIVE (1u << 31)
#define VERBS_HANDLE_SRQ (1u << 30) /* with VERBS_HANDLE_RECEIVE; the index is the shared queue's */
int verbs_handle_draw(struct shadow_qp *qp); /* 0 or -ENOMEM */
void verbs_handle_drop(struct shadow_qp *qp);
void verbs_handle_renew(struct shadow_qp *qp); /* what is still posted is forgotten */
#define VERBS_HANDLE_CHUNK 1024u
#define VERBS_HANDLE_CHUNKS 4096u
extern struct shadow_qp **verbs_handle_chunks[VERBS_HANDLE_CHUNKS] HIDDEN;

static inline uint64_t ring_wr_id(const struct verbs_ring *r, uint64_t position)
{
	return (uint64_t)r->handle << 32 | (uint32_t)position;
}

/* The queue pair that may have posted @wr_id: its ring's handle tells whether it did. */
static inline struct shadow_qp *verbs_handle_find(uint64_t wr_id)
{
	uint32_t index = (uint32_t)(wr_id >> 32) & 0x3fffff;
	struct shadow_qp **chunk = verbs_handle_chunks[index / VERBS_HANDLE_CHUNK];

	return likely(chunk) ? chunk[index % VERBS_HANDLE_CHUNK] : NULL;
}
