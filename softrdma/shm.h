/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shared memory of softrdma. One segment (a file in the shared directory) a context; everything that a peer
 * must reach lies in it, as offsets from its start. Peers of the same user map each other's segments whole.
 *
 *   struct sr_seg | key table | objects from the segment's allocator: QPs, their rings, SRQs, CQs
 *
 * Who writes what is said at each field: "owner" is the process that opened the context, "executor" is whoever
 * runs a send queue (its owner or, after receiver-not-ready, the process at the other end), under the lock named.
 *
 * Lines of the cache are what a short message costs: each that both processors write takes a journey. So what one
 * side writes lies apart from what the other writes, and of the other side's counters each keeps the last value
 * seen and looks again only when that says full or empty.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"
#include "softrdma/rlock.h"

#define SR_MAGIC 0x616d647274666f73ull /* "softrdma" */
#define SR_LAYOUT 9
#define SR_SEG_SIZE (1ull << 32)

#define SR_CTX_BITS 10
#define SR_QP_BITS 14
#define SR_MAX_CTX (1u << SR_CTX_BITS)
#define SR_MAX_QP (1u << SR_QP_BITS)
#define SR_MAX_SRQ 4096u
#define SR_MAX_CHANNEL 1024u
#define SR_MAX_MR (1u << 17)
#define SR_KEY_TAG (~((SR_MAX_MR - 1) << 8)) /* the other bits of a key */
#define SR_MAX_SGE 32u
#define SR_MAX_INLINE 256u
#define SR_MAX_WR 16384u
#define SR_MAX_CQE (1u << 18)
#define SR_MAX_MODERATION 65535u /* completions, microseconds */
#define SR_MAX_PD 32768u
#define SR_MAX_AH 131072u
#define SR_MAX_MSG (1u << 31)
#define SR_MAX_DM (64u << 20)

/* Small sends lie here between the sender's post and the receiver's poll. */
#define SR_BOUNCE_UNIT 64u /* bytes */
#define SR_BOUNCE_UNITS 1024u
#define SR_BOUNCE_MAX 4096u /* largest message that takes this way */

/* The smallest ones lie in the completion itself. */
#define SR_CQE_DATA 64u

#define SR_ASYNC_SLOTS 64u

/* At the head of each receive of an unreliable datagram. */
#define SR_GRH 40u
#define SR_MTU 4096u

#define SR_MAX_GROUP 256u
#define SR_MAX_MEMBER 512u
#define SR_MAX_ALIAS 1024u

enum sr_ready { SR_NEW, SR_READY, SR_CLOSED };

/*
 * One memory region or window. A key is (random tag << 24 | index << 8 | tag), for the lowest 8 bits of a window's
 * key are its binder's to choose; 0 stands for no entry.
 */
struct sr_key {
	_Atomic uint32_t key;
	uint32_t access;
	uint32_t pd;	    /* 0: a window */
	uint32_t window_pd; /* window */
	uint64_t iova;	    /* address that work requests use */
	uint64_t len;
	uint64_t addr;	 /* where that is in the owner */
	uint32_t qpn;	 /* window: of the queue pair that it is open to; 0: of all of its domain */
	uint32_t region; /* window: key of the region that it lies in */
};

/* Of one partition, and one of both a full member (IBA 10.9.3). */
static inline int sr_pkeys_match(uint16_t a, uint16_t b)
{
	return !((a ^ b) & 0x7fff) && ((a | b) & 0x8000);
}

static inline uint32_t sr_key_index(uint32_t key) { return key >> 8 & (SR_MAX_MR - 1); }

/* A queue pair attached to a multicast group. */
struct sr_member {
	uint8_t gid[16];
	_Atomic uint32_t number; /* in the owner, + 1; 0: free */
};

/* An unaffiliated or affiliated asynchronous event; @handle is the object's number in the owner. */
struct sr_async {
	uint32_t type;
	uint32_t handle;
};

/* What wakes those who sleep on a completion channel: events.c. Above the bits: how often it rang. */
enum sr_bell { SR_BELL_ASLEEP = 1, SR_BELL_POSTED = 2, SR_BELL_RING = 4 };

/* Another name of a region's key, from a life before. */
struct sr_alias {
	uint32_t key, real;
};

struct sr_seg {
	uint64_t magic;
	uint32_t layout;
	uint32_t index;
	uint32_t token; /* names the owner in locks: random << SR_CTX_BITS | index */
	int32_t pid;	/* as the owner sees itself */
	_Atomic uint32_t ready;
	uint32_t pid_ns; /* where @pid counts: low bits of the namespace's inode */
	uint64_t cookie; /* random; the same 8 bytes lie in the owner's private memory */
	uint64_t cookie_addr;
	uint32_t device;
	uint32_t reserved;
	uint64_t host_name; /* what the owner's names follow from, as struct sr_host: another pid namespace may have another node name */
	uint32_t host_address, host_mask;
	struct rlock async_lock;
	_Atomic uint32_t async_head; /* owner */
	_Atomic uint32_t async_tail; /* under async_lock */
	struct sr_async async[SR_ASYNC_SLOTS];
	struct rlock window_lock; /* changes of windows; readers see by the key that one changed */
	_Atomic uint32_t keys; /* entries of the key table that are backed by memory; a look at another could be a SIGBUS */
	_Atomic uint32_t members; /* entries below that were ever used */
	_Atomic uint32_t aliases;
	struct sr_alias alias[SR_MAX_ALIAS];
	_Atomic uint32_t bell[SR_MAX_CHANNEL];
	struct sr_member member[SR_MAX_MEMBER];
	_Atomic uint64_t qp_off[SR_MAX_QP]; /* 0: no such QP */
	_Atomic uint64_t srq_off[SR_MAX_SRQ];
	struct sr_key key[SR_MAX_MR];
};

/* The entry that @key names; one of another key where it can name none. */
static inline struct sr_key *sr_key_at(struct sr_seg *seg, uint32_t key)
{
	uint32_t index = sr_key_index(key);

	return &seg->key[index < atomic_load_explicit(&seg->keys, memory_order_acquire) ? index : 0];
}

enum sr_qp_flag { SR_QP_SIG_ALL = 1, SR_QP_BLOCK_SELF = 2 };

/* Why the head of a send queue waits. */
enum sr_stall { SR_STALL_NONE, SR_STALL_RNR, SR_STALL_UNREACHABLE };

/* The lower two bits of sr_shm_cq.notify. WAKING: an event is counted, and its sleeper is being woken. */
enum sr_armed { SR_DISARMED, SR_ARMED_SOLICITED, SR_ARMED_ANY, SR_WAKING };
#define SR_NOTIFY_STATE 3u
#define SR_NOTIFY_EVENT 4u

struct sr_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

enum sr_cqe_flag { SR_CQE_INLINED = 1, SR_CQE_SRQ = 2, SR_CQE_NOTIFIES = 4, SR_CQE_SHORT = 8 };

/* SR_CQE_SHORT: the data stands in place of wr_id, which the receive has too, and of the timestamp. */
#define SR_CQE_SHORT_DATA 16u

struct sr_cqe {
	uint64_t wr_id;
	uint64_t timestamp; /* if the queue wants it */
	uint16_t status;
	uint16_t opcode; /* enum ibv_wc_opcode */
	uint32_t src_qp;
	uint32_t byte_len;
	uint32_t imm; /* or the key made invalid */
	uint32_t qpn;
	uint32_t seq;	 /* of the work request in its queue */
	uint32_t rq_slot; /* receive: slot + 1; 0: a send */
	uint32_t bounce_end; /* position to free up to */
	uint32_t number;  /* the QP's in the owner, or with SR_CQE_SRQ the SRQ's */
	uint16_t bounce;  /* receive: bounce position + 1; 0: the data is in place */
	uint16_t slid;
	uint16_t wc_flags;
	uint8_t sl;
	uint8_t flags; /* SR_CQE_INLINED: the data is below, with SR_CQE_SHORT at the head; SR_CQE_NOTIFIES: solicited, or an error */
	_Atomic uint32_t position; /* in the ring, + 1; stored last: the entry is there */
	char data[SR_CQE_DATA];
};
_Static_assert(offsetof(struct sr_cqe, data) == 64 && sizeof(struct sr_cqe) == 128, "two cache lines");
_Static_assert(offsetof(struct sr_cqe, timestamp) == 8 && offsetof(struct sr_cqe, status) == SR_CQE_SHORT_DATA, "at its head");

struct sr_shm_cq {
	/* Seldom written: both sides have it. */
	uint32_t mask;	   /* ring slots - 1 */
	uint32_t cap;	   /* completions that may wait */
	uint32_t channel;  /* number + 1 of the owner's completion channel; 0: none */
	uint32_t number;
	uint32_t owner;	/* index of its context */
	uint32_t flags; /* enum sr_cq_flag */
	uint32_t mod_count; /* completions to an event; 0: no moderation */
	uint64_t ring;	    /* from this struct; moves with the size, under both locks */
	uint64_t place;	    /* of this struct in its segment */
	/* The producers' line: the owner, when it polls, touches nothing here. */
	struct rlock lock __attribute__((aligned(64)));
	_Atomic uint32_t tail;
	_Atomic uint32_t told; /* an event has told of all completions before that */
	_Atomic uint64_t notify; /* events counted << 2 | enum sr_armed, so that both change at once */
	uint32_t head_seen; /* a head of some time ago */
	uint32_t mod_done;  /* completions since it was armed */
	uint64_t mod_until; /* from then on one is enough */
	_Atomic uint32_t head __attribute__((aligned(64)));  /* owner */
	_Atomic uint32_t overrun; /* seldom written */
	struct sr_cqe first_ring[] __attribute__((aligned(64)));
};

enum sr_cq_flag { SR_CQ_STAMPED = 1, SR_CQ_IGNORE_OVERRUN = 2 };

static inline struct sr_cqe *sr_cq_slot(struct sr_shm_cq *cq, uint32_t position)
{
	return (struct sr_cqe *)((char *)cq + cq->ring) + (position & cq->mask);
}

struct sr_rwqe {
	uint64_t wr_id;
	uint64_t length;
	uint32_t nsge;
	_Atomic uint32_t round; /* shared: how often it was given back */
	struct sr_sge sge[];
};

/* A receive queue, a QP's own or shared. The owner fills slots and pushes their numbers; executors pop. */
struct sr_shm_rq {
	struct rlock lock; /* SRQ: poppers; a QP's own is under the QP's rx_lock */
	uint32_t shared;
	uint32_t cap;
	uint32_t mask;
	uint32_t stride;
	uint32_t number; /* of the SRQ in the owner */
	uint32_t slots_off; /* from this struct */
	_Atomic uint32_t limit;
	_Atomic uint32_t waiters; /* peers in receiver-not-ready here; the owner clears it */
	_Atomic uint32_t pop_seq;  /* SRQ: the pop under way, for repair */
	_Atomic uint32_t pop_qpn;
	/* An SRQ of extended connections stands in for its QPs' receiving half. */
	uint32_t pd;
	uint64_t xrcd; /* names the domain; 0: an SRQ of the basic kind */
	uint64_t cq;   /* offset */
	_Atomic uint32_t head __attribute__((aligned(64)));
	uint32_t tail_seen; /* a tail of some time ago */
	_Atomic uint32_t tail __attribute__((aligned(64))); /* owner */
	_Atomic uint32_t polled; /* owner, of a QP's own: position behind the last that a poll has brought */
	uint32_t avail[]; /* SRQ: numbers of filled slots; a QP's own are filled and popped in turn */
};

struct sr_wqe {
	uint64_t wr_id;
	uint64_t remote_addr; /* bind: address, */
	uint64_t compare_add; /* length, */
	uint64_t swap;	      /* region's key << 32 | rights */
	uint32_t rkey;	      /* datagram: the key that the target must have */
	uint32_t opcode;      /* enum ibv_wr_opcode */
	uint32_t flags;	      /* enum ibv_send_flags */
	uint32_t imm;	      /* or the key to make invalid */
	uint32_t nsge;
	uint32_t target; /* extended connection: SRQ; datagram: QP */
	uint64_t length;
	struct sr_sge sge[]; /* or the inline data */
};
_Static_assert(sizeof(struct sr_wqe) == 64, "a cache line");

/* Where a datagram goes; behind the pieces of its request. */
struct sr_av {
	uint8_t dgid[16];
	uint32_t tclass_flow;
	uint16_t dlid;
	uint8_t sl;
	uint8_t hop_limit;
	uint8_t global;
	uint8_t multicast;
	uint8_t sgid_index;
	uint8_t reserved;
	uint16_t site; /* where it leads to; 0: nowhere */
	uint16_t reserved2;
	uint32_t group; /* where its group was found last */
	uint32_t host;	/* on which host; 0: this one */
};

struct sr_shm_qp {
	uint32_t qpn;
	uint32_t type; /* enum ibv_qp_type */
	uint32_t flags;
	_Atomic uint32_t state;	 /* enum ibv_qp_state; under rx_lock */
	_Atomic uint32_t epoch;	 /* counts leaves of RESET: a connection is made once */
	uint32_t dest_qpn;
	uint16_t site, dest_site; /* port.c; 0: none */
	uint16_t pkey, port;
	uint32_t pd;
	uint32_t access;
	uint32_t qkey;
	uint32_t own_rnr_timer; /* told to the other end */
	uint32_t min_rnr_timer; /* as the other end told */
	uint32_t timeout, retry_cnt, rnr_retry;
	uint32_t dest_rd; /* READs and atomics that it answers at a time; 0: none at all */
	uint32_t number; /* in the owner */
	uint64_t send_cq, recv_cq, rq, sq, bounce; /* offsets */
	uint64_t xrcd;

	/* Requester. Whoever holds sq_lock is the executor. */
	struct rlock sq_lock __attribute__((aligned(64)));
	uint32_t sq_cap, sq_mask, sq_stride;
	uint32_t sq_av; /* of the address in a datagram's request; from its start */
	_Atomic uint32_t sq_head; /* executor: next to run */
	_Atomic uint32_t sq_tail; /* owner, under sq_lock */
	_Atomic uint32_t sq_freed; /* owner: completed and polled */
	_Atomic uint32_t stall;	  /* enum sr_stall; executor */
	uint32_t tries;
	uint32_t draining; /* in SQD: not drained yet; SR_DRAIN_NOTIFY: somebody wants to know */
	uint32_t peer_epoch; /* of the QP at the other end that this one has met; 0: none yet */
	uint32_t sq_base;    /* owner: what is in the first slot */
	_Atomic uint64_t next_try;

	/* Responder, under rx_lock. */
	struct rlock rx_lock __attribute__((aligned(64)));
	_Atomic uint32_t rx_seq; /* names the next completion from an SRQ */
	_Atomic uint32_t in_hand; /* slot + 1 taken from an SRQ, its completion not yet pushed */
	_Atomic uint32_t in_hand_round; /* the slot's, then */
	_Atomic uint32_t in_hand_srqn; /* of an extended connection: from which */
	uint32_t last_told; /* in error: LAST_WQE_REACHED has been said */
	uint32_t established; /* the first message has come */
	uint32_t bounce_head; /* positions count in units, for ever */
	uint32_t bounce_seen; /* a bounce_tail of some time ago */
	_Atomic uint32_t bounce_tail __attribute__((aligned(64))); /* owner: given back */
	/* The other end's queue is stalled on this QP: run it when that changes. */
	_Atomic uint32_t peer_waits __attribute__((aligned(64)));
};

enum sr_drain { SR_DRAINED, SR_DRAIN, SR_DRAIN_NOTIFY };

/* The multicast groups of all contexts of a user: which have members. Slots change under the lock. */
struct sr_group {
	uint8_t gid[16];
	_Atomic uint64_t contexts[SR_MAX_CTX / 64];
};

struct sr_groups {
	struct rlock lock __attribute__((aligned(64)));
	struct sr_group group[SR_MAX_GROUP] __attribute__((aligned(64)));
};

static inline void *sr_at(void *base, uint64_t off) { return (char *)base + off; }

static inline struct sr_wqe *sr_sq_slot(void *base, struct sr_shm_qp *q, uint32_t seq)
{
	return sr_at(base, q->sq + (uint64_t)((seq - q->sq_base) & q->sq_mask) * q->sq_stride);
}

/*
 * What is posted next; the owner's, under sq_lock. An empty ring begins at its first slot: of thousands that are never deep the caches hold one slot each. Whoever has read the
 * slots had the lock, or what it read about was not complete.
 */
static inline uint32_t sr_sq_begin(struct sr_shm_qp *q)
{
	uint32_t tail = atomic_load_explicit(&q->sq_tail, memory_order_relaxed);

	if (atomic_load_explicit(&q->sq_freed, memory_order_acquire) == tail)
		q->sq_base = tail;
	return tail;
}

static inline struct sr_av *sr_wqe_av(struct sr_shm_qp *q, struct sr_wqe *w) { return sr_at(w, q->sq_av); }

/* The slot of the @seq-th receive. */
static inline uint32_t sr_rq_number(const struct sr_shm_rq *rq, uint32_t seq)
{
	return rq->shared ? rq->avail[seq & rq->mask] : seq & rq->mask;
}

static inline struct sr_rwqe *sr_rq_slot(struct sr_shm_rq *rq, uint32_t slot)
{
	return (struct sr_rwqe *)((char *)rq + rq->slots_off + (uint64_t)slot * rq->stride);
}
