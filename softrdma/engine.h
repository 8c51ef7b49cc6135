/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine's inside: what the requester's side (execute.c) and the responder's (respond.c, ud.c) share. */
#pragma once

#include "softrdma/device.h"

/* Not yet: the request waits. Other results are of enum ibv_wc_status. */
#define STALL_RNR (-1)
#define STALL_UNREACHABLE (-2)

struct pieces {
	struct iovec v[SR_MAX_SGE + 2];
	uint32_t n;
};

/* Where a request's data is. */
enum op_data {
	OP_TO_MOVE,
	OP_PLACED,   /* where it shall go already */
	OP_UNPLACED, /* nowhere: its place was found closed, and is taken for closed whatever it is by now */
};

/* A request under way. */
struct op {
	struct sr_wqe *w;
	struct sr_shm_qp *d; /* responder */
	struct sr_peer *to;  /* whose receive queue, keys and memory; of an extended connection the SRQ's */
	struct sr_shm_rq *rq;
	uint32_t pd;
	uint32_t byte_len;
	enum op_data data;
	struct sr_peer *from; /* whose memory the pieces are: the requester, or the executor for inline data */
	struct pieces local;
};

/* Adds what @len bytes of @sge are to @p. 0, or -EACCES. */
static inline int gather(struct pieces *p, struct sr_seg *seg, uint32_t pd, const struct sr_sge *sge, uint32_t n,
			 uint64_t len, uint32_t access)
{
	uint64_t va;
	uint32_t i;

	for (i = 0; i < n && len; i++) {
		uint64_t part = sge[i].length < len ? sge[i].length : len;

		if (sr_key_check(seg, sge[i].lkey, sge[i].addr, part, access, pd, &va))
			return -1;
		p->v[p->n++] = (struct iovec){ (void *)(uintptr_t)va, part };
		len -= part;
	}
	return 0;
}

/* respond.c, receive.c; with rx_lock of o->d held. */
int sr_respond(struct sr_run *r, struct op *o);
/* The receive to be used now and its slot; of an SRQ it is taken, a QP's own stays at the head. NULL: none. */
struct sr_rwqe *sr_rq_peek(struct sr_run *r, struct op *o, uint32_t *ret_slot);
/* Moves the data of a message of @len bytes into the receive, or to where the poll finds it. 0 or -errno. */
int sr_place(struct sr_run *r, struct op *o, uint64_t len, struct pieces *there, struct sr_cqe *c);
/* Pushes the completion of the receive in @slot, then pops it. */
void sr_receive_complete(struct sr_run *r, struct op *o, struct sr_cqe *c, uint32_t slot);
/* A fault of the receive itself: its owner sees @local and an error, the sender @remote. */
int sr_receive_fault(struct sr_run *r, struct op *o, uint32_t slot, enum ibv_wc_status local,
		     enum ibv_wc_status remote);

/* The responder finds fault with the request: it goes into error too, and says so. Returns @status. */
int sr_refuse(struct sr_run *r, struct op *o, enum ibv_wc_status status);

/* May the request touch @len bytes? A status; else where they are. */
int sr_remote_check(struct sr_run *r, struct op *o, uint32_t access, uint64_t len, uint64_t *ret_va);

/* execute.c: parts of it, for queues whose requests are executed elsewhere (net_*.c); with sq_lock held. */
/* The own pieces of a request. A status. */
int sr_local_prepare(struct sr_run *r, struct op *o);
/* -EOVERFLOW: the completion is lost. */
int sr_complete(struct sr_run *r, struct sr_wqe *w, uint32_t seq, int status, uint32_t len);
void sr_fatal(struct sr_run *r);
/* Request @number ends with @status: who sees its completion finds the state, and its completion comes before what is flushed. */
void sr_fail(struct sr_run *r, struct sr_wqe *w, uint32_t number, int status);
void sr_drained(struct sr_run *r);
/* The responder @d has got its first message; with its rx_lock held. */
void sr_established(struct sr_run *r, struct sr_shm_qp *d);
/* Of the receiver-not-ready timer's encoding. */
uint64_t sr_rnr_ns(uint32_t timer);

/* A request that concerns no other queue pair. */
static inline int sr_is_local_request(const struct sr_wqe *w)
{
	return w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_BIND_MW;
}

/* Is @d ready to answer @q? With its rx_lock held. */
int sr_responds(struct sr_shm_qp *q, struct sr_shm_qp *d);

/* batch.c */
#define SR_BATCH 16u
/* Executes the first requests from @head to @tail that can be executed in one. How many were; none is as well. */
uint32_t sr_batch_run(struct sr_run *r, uint32_t head, uint32_t tail);

/* xrc.c */
int sr_xrc_respond(struct sr_run *r, struct op *o);

/* mw.c */
/* Ends the binding @key of a window that is open to @qpn. 0, or -EINVAL: there is none. */
int sr_window_invalidate(struct sr_context *ctx, struct sr_seg *seg, uint32_t key, uint32_t pd, uint32_t qpn);
/* A bind or a local invalidation: its status. */
int sr_window_request(struct sr_run *r, struct sr_wqe *w);

/* ud.c */
/* Who has sent a datagram, as its receiver is told. */
struct sr_sender {
	uint32_t qpn;
	uint16_t slid;
	uint16_t site; /* that it is for; 0: any */
	uint16_t pkey;
	uint8_t sl;
	uint8_t routed; /* its header is valid */
};
int sr_ud_send(struct sr_run *r, struct op *o);
/* To the queue pair @qpn of @to, if it takes it. o->local is header and data; the other fields of a request are in o->w. */
void sr_ud_deliver(struct sr_run *r, struct op *o, const struct sr_sender *from, struct sr_peer *to, uint32_t qpn);

/* net_group.c: to the members on other hosts. -EFAULT: what the message consists of is not there. */
int sr_net_group_send(struct sr_run *r, struct op *o, const struct sr_sender *from, const uint8_t gid[16]);

/* net_ud.c: a status. */
int sr_net_datagram(struct sr_run *r, struct op *o, const struct sr_sender *from, uint32_t host);
/* The same to a context of this machine whose memory is out of reach (net_apart.c). */
int sr_net_datagram_apart(struct sr_run *r, struct op *o, const struct sr_sender *from, const struct sr_peer *to, const struct sr_av *av);
