/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The shadow objects: what the program holds instead of the device's own objects, which it never sees. Each begins with the
 * public struct of verbs.h (with room behind it for readers that were built with newer headers), and each is found from the
 * device's object by the context pointer that the device keeps for its creator.
 *
 * Life: made and freed by the program's calls; memory of fermata_alloc, so they come back with the process. `real` is valid in
 * this life only: a restart gives every shadow a new one.
 *
 * Lists hang off the context and change under verbs_lock. Checkpoint hooks read all of this without locks: the program's threads stand
 * still, and none of them stands between fermata_enter and fermata_leave.
 */
#pragma once

#include "plugins/verbs/verbs_backend.h"
#include "plugins/verbs/verbs_ring.h"

#define VERBS_PORTS 4 /* of a device, whose LID and GIDs are virtual; more pass as they are */
#define VERBS_GIDS 256 /* of a port: RoCE has some for each address of each VLAN */
#define VERBS_PKEYS 128
#define VERBS_MAX_SGE 64
#define VERBS_CQ_ROOM 16 /* completions of our own that each completion queue has room for */

extern struct list verbs_devices HIDDEN, verbs_contexts HIDDEN;
/* Set by a restart: names of the fabric differ from the program's. Before it, none is translated. */
extern int verbs_moved HIDDEN;

/* Whose a name of the fabric is. */
struct verbs_owner {
	uint32_t member;  /* a number of fermata_member(), in the life that the name is looked up in; 0: not known */
	uint32_t context; /* shadow_context.number */
};

struct verbs_port {
	uint16_t virtual_lid, real_lid;
	uint8_t virtual_lmc, real_lmc; /* how many low bits of a LID to the port tell the path */
	uint8_t real_mtu;	       /* enum ibv_mtu, of packets; 0: not known */
	uint8_t link_layer; /* what the program was told; so is the length of its table of GIDs */
	int gid_count;
	union ibv_gid virtual_gid[VERBS_GIDS], real_gid[VERBS_GIDS];
	uint16_t virtual_pkey[VERBS_PKEYS], real_pkey[VERBS_PKEYS]; /* network order; 0: a place without */
	uint16_t pkey_count;
	uint8_t virtual_kind[VERBS_GIDS], real_kind[VERBS_GIDS]; /* verbs_gid.c; 0: there is none */
	uint8_t real_place[VERBS_GIDS]; /* where each of the program's is in the real table */
	uint16_t places;		/* behind the program's last one */
};

struct shadow_device {
	struct ibv_device pub;
	uint64_t behind[32]; /* vendor libraries read a word behind the public struct: it must not be theirs */
	struct ibv_device *real;
	char real_name[IBV_SYSFS_NAME_MAX]; /* of this life */
	__be64 guid;
	int index;
	unsigned int ports;
	uint8_t reads_in, reads_out; /* of this life: READs and atomics that a queue pair can answer, and can have under way */
	struct verbs_port port[VERBS_PORTS + 1]; /* by port number */
	struct list link;
};

struct shadow_context {
	char below[256];	 /* operations of newer headers: absent */
	struct verbs_context ex; /* ends with the public struct */
	char behind[64];
	struct ibv_context *real;
	struct shadow_device *device;
	uint32_t number; /* in the names of this life, from 1 on; 0: opened since the restart, or none was */
	struct list link;
	struct list pds, tds, xrcds, dms, mrs, mws, channels, cqs, srqs, qps, ahs;
	struct lock async_lock;
	int status; /* at the checkpoint: F_GETFL of the asynchronous descriptor, or -1 */
	uint32_t regions; /* at the checkpoint */
	struct ibv_async_event *events; /* at the checkpoint: the unread ones, of shadows (verbs_events.c) */
	uint32_t events_count, events_size;
};

struct shadow_pd {
	struct ibv_pd pub;
	char behind[48];
	struct ibv_pd *real;
	int parent; /* a parent domain, made of @of */
	struct ibv_parent_domain_init_attr of;
	struct list link;
};

struct shadow_xrcd {
	struct ibv_xrcd pub;
	char behind[48];
	struct ibv_xrcd *real;
	struct ibv_xrcd_init_attr attr;
	uint64_t dev, ino; /* the file that it was opened by, and its name */
	char path[256];
	struct list link;
};

/* What a window is bound to: the newest of the bindings that were executed. */
struct verbs_binding {
	uint32_t rkey; /* the program's */
	uint32_t access;
	uint64_t addr, length;
	struct shadow_mr *mr;
	struct shadow_qp *qp; /* that bound it; NULL: it is gone */
	uint32_t number;      /* in the order of posting, from 1 on; 0: none yet */
	int32_t balance;      /* bindings less invalidations; a window of type 2 is bound while it is 1 */
};

struct shadow_mw {
	struct ibv_mw pub;
	char behind[48];
	struct ibv_mw *real; /* NULL: the program has given it back, and a binding is still in a queue */
	/* under verbs_lock: verbs_mw.c */
	uint32_t key;	     /* the program's newest; its upper 24 bits are the window's for ever */
	uint32_t shift;	     /* its lowest 8 bits less the device's */
	uint32_t posted;     /* bindings, ever */
	uint32_t users;	     /* in queues */
	uint32_t unsure;     /* a binding or invalidation up to this number is in nobody's memory; 0: none */
	struct verbs_binding now, then; /* then: at the checkpoint */
	/* at the checkpoint */
	struct shadow_qp *waits_on; /* has bindings that were not executed, the first with the key @waits_for */
	uint32_t waits_for;
	struct shadow_mw *of_qp; /* the next that is bound to the same queue pair */
	struct shadow_mw *by_key, *by_real;
	struct list link;
};

struct shadow_td {
	struct ibv_td pub;
	char behind[48];
	struct ibv_td *real;
	struct ibv_td_init_attr attr;
	struct list link;
};

struct shadow_dm {
	struct ibv_dm pub;
	char behind[48];
	struct ibv_dm *real;
	struct ibv_alloc_dm_attr attr;
	char *copy; /* of its bytes, from the dump to the end of the checkpoint or of the restart */
	struct list link;
};

struct shadow_mr {
	struct ibv_mr pub;
	char behind[80];
	struct ibv_mr *real;
	uint64_t iova;
	uint32_t access;
	uint32_t kind; /* which of the functions made it: verbs_mr.c */
	struct ibv_dm *dm; /* in which it lies, from @offset on; or NULL */
	uint64_t offset;
	uint32_t windows; /* were ever bound to it */
	struct list link;
};

struct shadow_channel {
	struct ibv_comp_channel pub;
	char behind[48];
	struct ibv_comp_channel *real;
	struct lock lock; /* one reader of an event at a time */
	int status;	  /* at the checkpoint: F_GETFL, or -1 */
	struct list link;
};

struct verbs_stamps {
	uint64_t completion, wallclock;
};

#define VERBS_CQ_EX (1u << 31)
#define VERBS_STAMPS (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

struct shadow_cq {
	union {
		struct ibv_cq pub;
		struct ibv_cq_ex ex;
		char room[512];
	};
	struct ibv_cq *real;
	struct ibv_modify_cq_attr moderation; /* as the program set it */
	struct verbs_cq_reader *reader; /* of one that is polled by start_poll: verbs_cq_ex.c */
	/* what the plain call cannot say; @more: enum ibv_cq_init_attr_mask and VERBS_CQ_EX, 0: the plain call makes it */
	uint32_t more, create_flags;
	uint64_t wc_flags;
	struct ibv_pd *parent;
	/* @lock: all below, and the tails of the queues that complete here */
	struct lock lock;
	uint32_t asked_cqe; /* by the program */
	uint32_t room_cqe;  /* what the device was asked for beyond that */
	uint32_t unacked;   /* events read, not yet acknowledged by the program */
	int vector;
	struct ibv_wc *kept; /* completions met while draining, as the program will see them */
	struct verbs_stamps *stamps; /* of each, where the queue has any; or NULL */
	uint32_t kept_first, kept_count, kept_size;
	uint32_t armed;	      /* 0, or 1 + solicited_only: until the events of all armings were read (verbs_notify.c) */
	uint32_t armings;     /* whose events were not read */
	uint32_t since_armed; /* a completion came since the first of them */
	uint32_t untold;      /* some were kept since an event was read last */
	uint32_t unread, waits; /* set while dumping: events in the channel; and how it is armed behind them, as @armed */
	uint32_t noops;	      /* completions of our own to come */
	uint32_t hush;	      /* one of our own may have fired the event */
	struct list link;
};

/* A shared receive queue: its receives complete in any order, so each has a slot of its own until then. Slots are named by their number + 1; 0: none. */
struct verbs_srq_slot {
	uint64_t wr_id;
	uint32_t next, prev; /* free: next free one; posted: its neighbours */
	uint32_t num_sge;
	uint32_t reserved;
	struct ibv_sge sge[];
};

struct shadow_srq {
	union {
		struct ibv_srq pub;
		char room[256];
	};
	struct ibv_srq *real;
	int special;		  /* of a kind that is not saved yet */
	struct ibv_xrcd *xrcd;	  /* of extended connections: their domain, the queue of its completions, and its number; or NULL */
	struct ibv_cq *cq;
	uint32_t number;
	uint32_t told;		  /* at the drain: what was last published of `posted` */
	uint32_t handle;	  /* upper half of the wr_ids that the device is given */
	struct ibv_srq_attr attr; /* as the device gave it first */
	struct lock lock;	  /* all below */
	uint32_t free, first, last; /* slots */
	uint32_t posted;
	uint32_t stride;
	char *slots;
	struct shadow_qp **qps; /* by the device's numbers */
	uint32_t qps_mask, qps_count;
	uint32_t limit; /* at the checkpoint */
	struct list link;
};

struct shadow_ah {
	struct ibv_ah pub;
	char behind[40];
	struct ibv_ah *real;
	struct ibv_ah_attr attr; /* as the program said it */
	struct verbs_ah_more *more; /* a name that several ports have now: to the others of them */
	struct list link;
};

#define VERBS_HOMES 64u /* hosts that processes of one host can be on after a restart */

struct verbs_ah_more {
	unsigned int count;
	struct {
		uint64_t home;
		struct ibv_ah *real;
	} to[VERBS_HOMES - 1];
};

/* That a queue pair is a member of. */
struct verbs_group {
	union ibv_gid gid;
	uint16_t lid;
	struct list link;
};

struct shadow_qp {
	union {
		struct ibv_qp pub;
		struct ibv_qp_ex ex;
		char room[512];
	};
	struct verbs_ring sq, rq;
	struct verbs_builder *builder; /* of one with ibv_wr_*: verbs_qp_ex.c */
	const struct ibv_qp_init_attr_ex *asked; /* while it is made: what qp->init cannot say */
	/* what a restart needs of that */
	uint32_t more; /* enum ibv_qp_init_attr_mask; 0: the plain call makes it */
	uint32_t create_flags;
	struct ibv_xrcd *xrcd;
	uint32_t opened; /* another's target: verbs_xrcd.c. real: NULL when that is gone */
	struct ibv_qp *real;
	uint32_t reserve; /* 1: the device's queue has a slot more than the program knows */
	struct list groups;    /* multicast: verbs_datagram.c */
	struct ibv_ah *nobody; /* the device's, of this life; or NULL */
	uint32_t plain;	  /* of a kind that is not saved yet: passed through, and a checkpoint is refused (verbs_plain.c) */
	uint64_t two_sided; /* sends that take a receive of the peer, posted since RESET; under sq.lock */
	uint64_t received;  /* receives that completed well since RESET; under the receive CQ's lock, or the shared queue's */
	struct shadow_qp *srq_next; /* verbs_srq.c */
	/* control; the program's own calls order these */
	struct ibv_qp_init_attr init; /* as the device was asked, its pointers as the program named them */
	struct ibv_qp_attr attr;      /* newest of each attribute, as the program said it */
	int attr_mask;
	/* after a restart: who is at the other end of this connection, and the device that it leads to; 0: not known */
	struct verbs_owner peer_owner;
	uint64_t peer_device;
	/* drain; valid from the first round until the job goes on */
	uint32_t real_state;
	uint32_t draining; /* SQD, and a send that has begun has not ended */
	uint32_t peer; /* enum, verbs_drain.c */
	uint32_t said; /* state last published */
	uint64_t told, told_sends; /* receives and two-sided sends last published */
	uint64_t will_send, will_receive; /* two-sided that ever complete, out and in */
	uint64_t peer_sends;		  /* two-sided that the peer ever posted */
	uint64_t seen;			  /* `received` in the last round, and for how many rounds it has been that */
	uint32_t idle;
	uint64_t left;	   /* XRC, SQD: sends that the device had in the last round; */
	uint32_t blocked;  /* the queue that the first of them is for is known to be empty, */
	uint32_t refusals; /* and how often that had been answered when it became known */
	uint32_t established; /* at the checkpoint: the first message had come, as far as the device tells */
	uint64_t pending;		  /* position of the first send that was not executed */
	struct shadow_mw *windows;	  /* of type 2 that are bound to it, at the checkpoint */
	struct list link;
};

static inline struct shadow_device *shadow_device(struct ibv_device *p)
{
	return container_of(p, struct shadow_device, pub);
}
static inline struct shadow_context *shadow_context(struct ibv_context *p)
{
	return container_of(p, struct shadow_context, ex.context);
}
static inline struct shadow_pd *shadow_pd(struct ibv_pd *p) { return container_of(p, struct shadow_pd, pub); }
static inline struct shadow_mr *shadow_mr(struct ibv_mr *p) { return container_of(p, struct shadow_mr, pub); }
static inline struct shadow_channel *shadow_channel(struct ibv_comp_channel *p)
{
	return container_of(p, struct shadow_channel, pub);
}
static inline struct shadow_cq *shadow_cq(struct ibv_cq *p) { return container_of(p, struct shadow_cq, pub); }
static inline struct shadow_srq *shadow_srq(struct ibv_srq *p) { return container_of(p, struct shadow_srq, pub); }
static inline struct shadow_ah *shadow_ah(struct ibv_ah *p) { return container_of(p, struct shadow_ah, pub); }
static inline struct shadow_dm *shadow_dm(struct ibv_dm *p) { return container_of(p, struct shadow_dm, pub); }
static inline struct shadow_xrcd *shadow_xrcd(struct ibv_xrcd *p) { return container_of(p, struct shadow_xrcd, pub); }
static inline struct shadow_mw *shadow_mw(struct ibv_mw *p) { return container_of(p, struct shadow_mw, pub); }
static inline struct shadow_qp *shadow_qp(struct ibv_qp *p) { return container_of(p, struct shadow_qp, pub); }

static inline int verbs_qp_is_xrc(const struct shadow_qp *qp)
{
	return qp->pub.qp_type == IBV_QPT_XRC_SEND || qp->pub.qp_type == IBV_QPT_XRC_RECV;
}

/* The state of a queue pair that its attributes say; IBV_QPS_* */
static inline int verbs_qp_connected(uint32_t state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

#define for_each_context(c) list_each(c, &verbs_contexts, link)
