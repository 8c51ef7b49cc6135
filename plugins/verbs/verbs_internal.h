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

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/macro.h"
#include "fermata/plugin.h"
#include "plugins/verbs/verbs_names.h"

/* verbs.h wraps these in macros that call the symbol; here the symbols are defined. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define VERBS_PORTS 4 /* of a device, whose LID and GIDs are virtual; more pass as they are */
#define VERBS_GIDS 16
#define VERBS_MAX_SGE 64
#define VERBS_CQ_ROOM 16 /* completions of our own that each completion queue has room for */

struct verbs_backend {
	void *handle;
	int soft; /* softrdma */
#define VERBS_MEMBER(answer, name, parameters) answer(*name) parameters;
	VERBS_NAMES(VERBS_MEMBER)
	VERBS_CM_NAMES(VERBS_MEMBER) /* all NULL but with softrdma */
#undef VERBS_MEMBER
};
extern struct verbs_backend verbs_backend HIDDEN;

/* Loads the device's library once; 0 or -errno. Not to be called between fermata_enter and leave: it takes libc's locks. */
int verbs_backend_load(void);
void verbs_backend_forked(void);

extern struct lock verbs_lock HIDDEN; /* lists, handle table */
extern struct list verbs_devices HIDDEN, verbs_contexts HIDDEN;
/* Set by a restart: names of the fabric differ from the program's. Before it, none is translated. */
extern int verbs_moved HIDDEN;

struct verbs_port {
	uint16_t virtual_lid, real_lid;
	union ibv_gid virtual_gid[VERBS_GIDS], real_gid[VERBS_GIDS];
};

struct shadow_device {
	struct ibv_device pub;
	uint64_t behind[32]; /* vendor libraries read a word behind the public struct: it must not be theirs */
	struct ibv_device *real;
	__be64 guid;
	int index;
	unsigned int ports;
	struct verbs_port port[VERBS_PORTS + 1]; /* by port number */
	struct list link;
};

/* Kinds of objects, besides queue pairs, shared receive queues and address handles, that a checkpoint cannot save yet. */
enum verbs_unsaved { UNSAVED_XRCD, UNSAVED_MW, UNSAVED_DM, UNSAVED_DOMAIN, UNSAVED_CQ, UNSAVED_KINDS };

struct shadow_context {
	char below[256];	 /* operations of newer headers: absent */
	struct verbs_context ex; /* ends with the public struct */
	char behind[64];
	struct ibv_context *real;
	struct shadow_device *device;
	struct list link;
	struct list pds, mrs, channels, cqs, srqs, qps, ahs;
	_Atomic uint32_t unsaved[UNSAVED_KINDS]; /* verbs_plain.c */
	struct lock async_lock;
	int status; /* at the checkpoint: F_GETFL of the asynchronous descriptor, or -1 */
};

struct shadow_pd {
	struct ibv_pd pub;
	char behind[48];
	struct ibv_pd *real;
	int parent; /* a parent domain */
	struct list link;
};

struct shadow_xrcd {
	struct ibv_xrcd pub;
	char behind[48];
	struct ibv_xrcd *real;
};

struct shadow_mw {
	struct ibv_mw pub;
	char behind[48];
	struct ibv_mw *real;
};

struct shadow_td {
	struct ibv_td pub;
	char behind[48];
	struct ibv_td *real;
};

struct shadow_dm {
	struct ibv_dm pub;
	char behind[48];
	struct ibv_dm *real;
};

struct shadow_mr {
	struct ibv_mr pub;
	char behind[80];
	struct ibv_mr *real;
	uint64_t iova;
	uint32_t access;
	uint32_t kind; /* which of the functions made it: verbs_mr.c */
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

struct shadow_cq {
	union {
		struct ibv_cq pub;
		struct ibv_cq_ex ex;
		char room[512];
	};
	struct ibv_cq *real;
	struct ibv_modify_cq_attr moderation; /* as the program set it */
	int special; /* made in a way that a restart cannot repeat yet */
	struct verbs_cq_reader *reader; /* of one that is polled by start_poll: verbs_cq_ex.c */
	/* @lock: all below, and the tails of the queues that complete here */
	struct lock lock;
	uint32_t asked_cqe; /* by the program */
	uint32_t room_cqe;  /* what the device was asked for beyond that */
	uint32_t unacked;   /* events read, not yet acknowledged by the program */
	int vector;
	struct ibv_wc *kept; /* completions met while draining, as the program will see them */
	uint32_t kept_first, kept_count, kept_size;
	uint32_t armed;	      /* 0, or 1 + solicited_only, until its event was read */
	uint32_t since_armed; /* a completion came since then */
	uint32_t fired;	      /* set while dumping: armed, and the event stands in the channel unread */
	uint32_t noops;	      /* completions of our own to come */
	uint32_t hush;	      /* one of our own may have fired the event */
	struct list link;
};

enum {
	VERBS_TRANSLATE_KEYS = 1, /* they differ: verbs_moved */
	VERBS_TRANSLATE_AH = 2,	  /* a datagram's address handle is a shadow */
};

/*
 * A queue of posted work. Positions count up for ever; slot = position & mask. [tail, head) is outstanding.
 * head moves under @lock, by the posters; tail under the lock of the completion queue, by the pollers.
 * What posting needs lies in one cache line: between two posts a program makes system calls, and each line is cold then.
 */
struct verbs_ring {
	struct lock lock;
	uint32_t mask;
	uint32_t credits; /* positions that are free for sure; 0: ask the tail */
	uint32_t stride;
	uint16_t max_sge;
	uint8_t signal_all; /* IBV_SEND_SIGNALED or 0 */
	uint8_t translate;  /* VERBS_TRANSLATE_* */
	uint32_t max_inline;
	uint32_t handle;   /* upper half of the wr_ids that the device is given */
	uint32_t capacity; /* that the program may fill */
	char *slots;
	_Atomic uint64_t head;
	struct ibv_qp *real;
	union {
		int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
		int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	};
	_Atomic uint64_t tail __attribute__((aligned(64)));
} __attribute__((aligned(64)));
_Static_assert(offsetof(struct verbs_ring, tail) == 64, "one cache line for the posters");

enum { VERBS_SLOT_NOOP = 1 }; /* ours: its completion is not the program's */

/* One posted send, whole: what is needed to post it again. sges follow, then the inline data as it was at post time. */
struct verbs_send {
	uint64_t wr_id;
	uint16_t num_sge;
	uint8_t opcode;
	uint8_t slot_flags;
	uint32_t flags; /* enum ibv_send_flags */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	uint64_t compare_add, swap;
	uint32_t inline_length;
	uint32_t reserved[3];
	struct ibv_sge sge[];
};
_Static_assert(sizeof(struct verbs_send) == 64, "one cache line before the sges");

struct verbs_receive {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t reserved;
	struct ibv_sge sge[];
};

/* A shared receive queue: its receives complete in any order, so each has a slot of its own until then. */
struct verbs_srq_slot {
	uint64_t wr_id;
	uint32_t next; /* free one, + 1 */
};

struct shadow_srq {
	union {
		struct ibv_srq pub;
		char room[256];
	};
	struct ibv_srq *real;
	struct lock lock; /* the slots */
	uint32_t handle;  /* upper half of the wr_ids that the device is given */
	uint32_t free;	  /* slot + 1; 0: none */
	uint32_t slots;
	uint32_t max_sge;
	struct verbs_srq_slot *slot;
	struct list link;
};

struct shadow_ah {
	struct ibv_ah pub;
	char behind[40];
	struct ibv_ah *real;
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
	struct ibv_qp *real;
	uint32_t reserve; /* 1: the device's queue has a slot more than the program knows */
	uint32_t plain;	  /* of a kind that is not saved yet: passed through, and a checkpoint is refused (verbs_plain.c) */
	uint64_t two_sided; /* sends that take a receive of the peer, posted since RESET; under sq.lock */
	uint64_t received;  /* receives that completed well since RESET; under the receive CQ's lock */
	/* control; the program's own calls order these */
	struct ibv_qp_init_attr init; /* as the device was asked, its pointers as the program named them */
	struct ibv_qp_attr attr;      /* newest of each attribute, as the program said it */
	int attr_mask;
	uint32_t peer_pid;	      /* after a restart: whose keys this connection's peer names; 0: not known */
	/* drain; valid from the first round until the job goes on */
	uint32_t real_state;
	uint32_t peer; /* enum, verbs_drain.c */
	uint32_t said; /* state last published */
	uint64_t will_send, will_receive; /* two-sided that ever complete, out and in */
	uint64_t pending;		  /* position of the first send that was not executed */
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
static inline struct shadow_xrcd *shadow_xrcd(struct ibv_xrcd *p) { return container_of(p, struct shadow_xrcd, pub); }
static inline struct shadow_mw *shadow_mw(struct ibv_mw *p) { return container_of(p, struct shadow_mw, pub); }
static inline struct shadow_qp *shadow_qp(struct ibv_qp *p) { return container_of(p, struct shadow_qp, pub); }

static inline struct verbs_send *ring_send(const struct verbs_ring *r, uint64_t position)
{
	return (struct verbs_send *)(r->slots + (size_t)(position & r->mask) * r->stride);
}
static inline struct verbs_receive *ring_receive(const struct verbs_ring *r, uint64_t position)
{
	return (struct verbs_receive *)(r->slots + (size_t)(position & r->mask) * r->stride);
}
static inline char *send_inline(const struct verbs_ring *r, struct verbs_send *s)
{
	return (char *)&s->sge[r->max_sge];
}
static inline int send_two_sided(uint32_t opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV;
}

/* A process with one thread takes no lock: glibc keeps the word, and the checkpoint thread stops us outside. */
extern char __libc_single_threaded __attribute__((weak));

static inline int verbs_lock_acquire(struct lock *l)
{
	if (likely(&__libc_single_threaded && __libc_single_threaded))
		return 0;
	lock_acquire(l);
	return 1;
}
static inline void verbs_lock_release(struct lock *l, int held)
{
	if (unlikely(held))
		lock_release(l);
}

static inline int verbs_list_add(struct list *head, struct list *link)
{
	lock_acquire(&verbs_lock);
	list_add_tail(head, link);
	lock_release(&verbs_lock);
	return 0;
}
static inline void verbs_list_del(struct list *link)
{
	lock_acquire(&verbs_lock);
	list_del(link);
	lock_release(&verbs_lock);
}

/* Memory at a cache line's start; freed by verbs_free_aligned. */
static inline void *verbs_alloc_aligned(size_t size)
{
	char *p = fermata_alloc(size + 64), *at;

	if (!p)
		return NULL;
	at = (char *)ALIGN_UP((uintptr_t)p + sizeof(void *), (uintptr_t)64);
	memcpy(at - sizeof(void *), &p, sizeof(p));
	return at;
}

static inline void verbs_free_aligned(void *at)
{
	void *p;

	if (!at)
		return;
	memcpy(&p, (char *)at - sizeof(void *), sizeof(p));
	fermata_free(p);
}

static inline void *verbs_unsupported(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

/*
 * The head of each exported function: the device's own call back into libibverbs goes straight through, and a backend that
 * lacks the function answers for itself.
 */
#define VERBS_PASS(name, missing, ...)                                \
	do {                                                          \
		if (unlikely(!verbs_backend.name)) {                  \
			errno = EOPNOTSUPP;                           \
			return missing;                               \
		}                                                     \
		if (unlikely(fermata_in_device()))                    \
			return verbs_backend.name(__VA_ARGS__);       \
	} while (0)

/* Runs a call of the device's library; the value of @call. */
#define VERBS_DEVICE(call)                       \
	({                                       \
		__typeof__(call) answer_;        \
		fermata_device_enter();          \
		answer_ = (call);                \
		fermata_device_leave();          \
		answer_;                         \
	})

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

/* ---- data path ---- */
int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only);
/* Posts a send of slot @position again, to the device's object of this life. 0 or an errno. */
int verbs_repost_send(struct shadow_qp *qp, uint64_t position);
int verbs_repost_receive(struct shadow_qp *qp, uint64_t position);
/* A signalled zero-length write of ours. 0 or an errno. */
int verbs_post_noop(struct shadow_qp *qp);
/* Turns @n completions of the device into the program's, in place; how many are left. Under cq->lock. */
int verbs_complete(struct shadow_cq *cq, struct ibv_wc *wc, int n);
/* Polls the device's queue empty into the kept completions. How many came, or -errno. */
int verbs_cq_keep(struct shadow_cq *cq);
/* Forgets the kept completions of a QP. */
void verbs_cq_purge(struct shadow_cq *cq, uint32_t qp_num);

/* A completion of a shared receive queue: 1, and it has the program's wr_id, or 0: of one that is gone. */
int verbs_srq_complete(struct ibv_wc *wc);
int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* Keys of scatter lists, for the device of this life. */
void verbs_sges_real(struct ibv_sge *to, const struct ibv_sge *from, uint32_t n);
/* Is there room for @n more sends? 0 or ENOMEM. */
int verbs_post_room(struct shadow_qp *qp, uint32_t n);
/* Binds a window of type 1; @mw is the device's. */
int verbs_post_bind(struct shadow_qp *qp, struct ibv_mw *mw, const struct ibv_mw_bind *bind);

/* ---- extended interfaces over the plain ones: verbs_qp_ex.c, verbs_cq_ex.c ---- */
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
/* @qp can be posted to by ibv_wr_*. 0 or an errno. */
int verbs_builder_create(struct shadow_qp *qp, uint64_t ops);
/* @ex: what the plain way cannot say, or NULL. */
struct ibv_cq *verbs_cq_create(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
			       int vector, struct ibv_cq_init_attr_ex *ex);
int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
void verbs_reader_free(struct shadow_cq *cq);
void verbs_cq_ex_fill(struct verbs_context *v);

/* ---- object kinds that are passed through, and not saved yet; as long as there are any a checkpoint is refused ---- */
static inline void verbs_unsaved_add(struct ibv_context *context, enum verbs_unsaved kind, int n)
{
	atomic_fetch_add(&shadow_context(context)->unsaved[kind], (uint32_t)n);
}
/* One of libibverbs' operations below the public context, of the device's; NULL: it has none. */
#define VERBS_REAL_OP(real, op)                                                                             \
	({                                                                                                  \
		struct verbs_context *v_ = verbs_get_ctx(real);                                             \
		v_ && v_->sz >= sizeof(*v_) - offsetof(struct verbs_context, op) ? v_->op : NULL;           \
	})
void verbs_plain_fill(struct verbs_context *v);
void verbs_domain_fill(struct verbs_context *v);
void verbs_xrcd_fill(struct verbs_context *v);
void verbs_mr_fill(struct verbs_context *v);
void verbs_dm_fill(struct verbs_context *v);
struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *init);
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_mr *verbs_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access);
struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int verbs_dealloc_mw(struct ibv_mw *mw);

/* ---- names of the fabric: verbs_fabric.c. Used only when verbs_moved. ---- */
uint32_t verbs_lkey_real(uint32_t key);
uint32_t verbs_rkey_real(const struct shadow_qp *qp, uint32_t key);
/* A key, a queue pair number that the program (or, for numbers, a peer) knows by its old name. */
int verbs_key_known(uint32_t lkey, uint32_t rkey);
int verbs_qpn_known(uint32_t qpn);
void verbs_key_remove(uint32_t lkey);
/*
 * Turns the address and number that the program named into those of this life. A number that nobody has published is the
 * device's own, of a queue pair made after the restart; but @old: of one that is gone, which must find nobody.
 */
void verbs_peer_real(struct shadow_qp *qp, struct ibv_qp_attr *attr, int mask, int old);
void verbs_ah_real(struct ibv_ah_attr *ah);
/* The address by which a peer is known: its LID, or a hash of its GID where LIDs are not used. */
uint64_t verbs_address(const struct ibv_ah_attr *ah);
/* Ditto, of our own port; 0: the port has no such GID. */
uint64_t verbs_port_address(const struct verbs_port *p, unsigned int gid_index);
const struct verbs_port *verbs_qp_port(const struct shadow_qp *qp);
int verbs_fabric_publish(void); /* restart, RECREATE: this process's names */
int verbs_fabric_learn(void);	/* restart, RECONNECT: everybody's */

/* ---- restart ---- */
int verbs_devices_renew(void);
void verbs_devices_lock(void); /* around a fork */
void verbs_devices_unlock(void);
int verbs_context_recreate(struct shadow_context *c);
int verbs_pd_recreate(struct shadow_context *c, struct shadow_pd *pd);
int verbs_mr_recreate(struct shadow_context *c, struct shadow_mr *mr);
int verbs_channel_recreate(struct shadow_context *c, struct shadow_channel *ch);
int verbs_cq_recreate(struct shadow_context *c, struct shadow_cq *cq);
int verbs_qp_recreate(struct shadow_context *c, struct shadow_qp *qp);
int verbs_qp_reconnect(struct shadow_qp *qp);
int verbs_qp_refill(struct shadow_qp *qp);
int verbs_cq_rearm(struct shadow_context *c, struct shadow_cq *cq);
int verbs_recreate(const void *record, size_t len);
int verbs_reconnect(void);
int verbs_refill(void);

/* ---- checkpoint ---- */
int verbs_cm_open(const char *path, int flags);
long verbs_cm_write(int fd, const void *data, size_t n);
int verbs_cm_stat(int fd, struct stat *st);
int verbs_cm_close(int fd);
int verbs_path_stat(const char *path, struct stat *ret);
int verbs_cm_quiesce(void);
int verbs_plain_quiesce(void);
int verbs_drain(unsigned int round);
int verbs_dump(struct fermata_sink *sink);

/* The state of a queue pair that its attributes say; IBV_QPS_* */
static inline int verbs_qp_connected(uint32_t state)
{
	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE;
}

/* ---- waiting for events: verbs_async.c ---- */
int verbs_channel_readable(int fd);
int verbs_wait_readable(int fd);
/* Makes the descriptor non-blocking for a moment; *ret_flags is for verbs_unset_nonblock. */
int verbs_set_nonblock(int fd, int *ret_flags);
void verbs_unset_nonblock(int fd, int flags);
int verbs_fd_number(int fd, int want);

#define for_each_context(c) list_each(c, &verbs_contexts, link)

extern const struct fermata_plugin plugin_verbs;
