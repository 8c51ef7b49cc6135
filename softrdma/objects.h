/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The owner's half of each kind of object. They lie in the context's arena, with room behind them for the fields of
 * newer headers.
 */
#pragma once

#include "softrdma/context.h"

struct sr_td {
	struct ibv_td td;
	char newer[64]; /* what newer headers put behind a region */
	_Atomic uint32_t users;
};

struct sr_pd {
	struct ibv_pd pd;
	uint32_t number; /* a parent domain's is that of the domain in it */
	_Atomic uint32_t users;
	struct sr_pd *parent; /* of a parent domain: the one in it, */
	struct sr_td *td;     /* and its thread domain, if it has one */
};

struct sr_xrcd {
	struct ibv_xrcd xrcd;
	char newer[64];
	uint64_t id;
	_Atomic uint32_t users;
};

struct sr_ah {
	struct ibv_ah ah;
	char newer[64];
	struct sr_av av;
};

struct sr_dm {
	struct ibv_dm dm;
	char newer[64];
	char *memory;
	size_t length;
	_Atomic uint32_t users;
};

struct sr_mr {
	struct ibv_mr mr;
	char newer[64];
	uint32_t index;
	struct sr_dm *dm; /* in whose memory it lies */
};

struct sr_mw {
	struct ibv_mw mw;
	char newer[64];
	uint32_t index; /* windows and regions share a table */
};

struct sr_channel {
	struct ibv_comp_channel channel;
	struct list cqs;
	struct lock lock;
	uint32_t number;
	int sock; /* bound: makes the descriptor readable */
	int timer_fd; /* of moderated queues; -1: none had a need */
	_Atomic uint32_t asleep; /* who sleep on the bell; changes under the lock */
	_Atomic uint32_t ticks_seen; /* of the context's, at the end of the last ibv_get_cq_event */
};

/* After the empty polls that call for one; what came of it. */
enum sr_yield { SR_YIELD_NONE, SR_YIELD_DUE, SR_YIELD_ALONE, SR_YIELD_SHARED, SR_YIELD_SIBLINGS };

struct sr_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
		char newer[sizeof(struct ibv_cq_ex) + SR_SLACK];
	};
	struct sr_shm_cq *shm;
	struct list link; /* in its channel */
	struct lock poll;
	struct sr_cqe *current; /* between start_poll and end_poll */
	struct sr_cqe *ring; /* as in shm, whose line the producers write; under poll */
	uint32_t mask;
	uint32_t first_mask; /* as it was made */
	uint32_t mod_period; /* us */
	uint32_t taken; /* events handed out */
	uint32_t number;
	_Atomic uint32_t empty_polls; /* since the last yield; these four are about right when several threads poll */
	_Atomic uint32_t spins;	      /* empty polls to a yield */
	_Atomic uint32_t yielded;     /* enum sr_yield */
	_Atomic uint32_t slice;	      /* the last yield took one */
	_Atomic uint32_t acked, async_acked, async_taken;
	_Atomic uint32_t ending; /* somebody waits for the last to be acknowledged */
	_Atomic uint32_t users;
	_Atomic uint32_t net; /* queue pairs that lead to other hosts */
};

/* The owner's half of a receive queue. */
struct sr_rq {
	struct sr_shm_rq *shm;
	struct lock lock; /* posters, and the free slots */
	uint32_t *free;
	uint32_t nr_free, max_sge;
};

struct sr_srq {
	struct ibv_srq srq;
	struct sr_rq rq;
	struct sr_xrcd *xrcd; /* of extended connections; else NULL */
	struct sr_cq *cq;
	uint32_t number;
	_Atomic uint32_t users, async_acked, async_taken;
};

/* A receive that failed: has one been polled, and has the flush been ended? Until the queue pair is reset. */
enum sr_failure { SR_FAILURE_NONE, SR_FAILURE_SEEN, SR_FAILURE_DONE };

struct sr_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
		char newer[sizeof(struct ibv_qp_ex) + SR_SLACK];
	};
	struct sr_shm_qp *shm;
	struct sr_rq own_rq, *rq;
	struct list stalled_link;
	int on_stalled; /* under stalled_lock */
	struct sr_peer *_Atomic peer;
	struct net_qp *net;	 /* it leads to another host, */
	uint16_t apart;		 /* or as to one, to this site of a context of this machine (net_apart.c); 0: no */
	struct net_conn *net_to; /* where the last datagram went */
	int net_polled;
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;
	uint32_t ops; /* bits of enum ibv_wr_opcode that it has */
	/* Between wr_start and wr_complete, under sq_lock. */
	struct sr_wqe *building;
	uint32_t build_tail;
	int build_err;
	int extended;
	struct sr_xrcd *xrcd;
	int opened; /* another handle of a target: xrc.c */
	uint32_t number;
	_Atomic uint32_t async_acked, async_taken;
	_Atomic uint32_t failure; /* enum sr_failure */
};

static inline struct sr_pd *sr_pd(struct ibv_pd *pd) { return container_of(pd, struct sr_pd, pd); }
static inline struct sr_ah *sr_ah(struct ibv_ah *ah) { return container_of(ah, struct sr_ah, ah); }
static inline struct sr_cq *sr_cq(struct ibv_cq *cq) { return container_of(cq, struct sr_cq, cq); }
static inline struct sr_xrcd *sr_xrcd(struct ibv_xrcd *x) { return container_of(x, struct sr_xrcd, xrcd); }
static inline struct sr_srq *sr_srq(struct ibv_srq *srq) { return container_of(srq, struct sr_srq, srq); }
static inline struct sr_qp *sr_qp(struct ibv_qp *qp) { return container_of(qp, struct sr_qp, qp); }
