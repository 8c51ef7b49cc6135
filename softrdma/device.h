/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The private side of softrdma: what a context's own process knows. Everything hangs off struct sr_context; there
 * is no mutable global. Objects lie in the context's arena, with room behind them for the fields of newer headers.
 */
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/lock.h"
#include "softrdma/shm.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define SR_MAX_DEVICES 8u
#define SR_MAX_PORTS 2u
#define SR_MAX_GIDS 16u
#define SR_MAX_PKEYS 16u
#define SR_MAX_RD_ATOMIC 16
#define SR_PATH_MAX 96
#define SR_MAX_CHANNEL 1024u
#define SR_WAKES 8u
#define SR_CLASSES 112u
#define SR_SLACK 512 /* behind objects that newer headers make longer */

/* Another context's segment, mapped here. The context itself is one too. */
struct sr_peer {
	struct list link;
	struct sr_seg *seg;
	uint32_t token;
	int local;  /* lives in this process: memory is ours */
	int pid;    /* as we see it */
	int mem_fd; /* /proc/PID/mem, or -1 */
	int no_vm;  /* process_vm_* is refused */
	_Atomic int dead;
	_Atomic uint64_t checked_ns;
	uint32_t refs;
	int kept; /* for datagrams; one of the refs */
};

/* Numbers 0..n-1. One that was given back comes again when at least @rest others have been given back since. */
struct sr_ids {
	uint32_t *ring; /* given back */
	uint32_t n, rest, used;
	uint32_t start, fresh; /* handed out for the first time: start, start + 1, .. */
	uint32_t first, back;  /* in the ring */
	void **object;
};

struct sr_port {
	uint16_t lid, gids;
	uint8_t gid_type[SR_MAX_GIDS];
	union ibv_gid gid[SR_MAX_GIDS];
};

/* What the names of a host follow from. */
struct sr_host {
	uint64_t name;	  /* of its name, */
	uint32_t address; /* or its address on the network; 0: there is none */
	uint32_t mask;	  /* the bits of that which no LID tells */
};

/* A socket that is connected to another's: a path need not be walked each time. */
struct sr_wake {
	uint32_t index, number; /* index 0: none */
	int fd;
};

struct sr_context {
	struct arena arena;
	struct sr_seg *seg;
	struct sr_peer self;
	int seg_fd;	/* holds the lock that says we live */
	int wake_fd;	/* unbound datagram socket that wakes others */
	struct sr_wake wakes[SR_WAKES]; /* connected ones, to those that were woken last */
	struct lock wakes_lock;
	int async_sock; /* bound: woken for asynchronous events */
	int timer_fd;	/* runs while a send queue is stalled */
	uint64_t cookie;
	uint32_t device, ports, pkeys;
	int ethernet; /* RoCE */
	uint16_t pkey[SR_MAX_PKEYS];
	struct sr_host host;
	struct sr_port port[SR_MAX_PORTS];
	struct sr_net *net; /* other hosts; NULL: there are none */
	char dir[SR_PATH_MAX];
	struct rlock *atomics; /* shared by all contexts of the user */
	struct sr_groups *groups; /* as well; NULL until there is a need */
	uint64_t seg_bump;
	uint64_t seg_reserved; /* memory is there up to this offset */
	uint64_t seg_free[SR_CLASSES]; /* by size */
	uint64_t qp_free;      /* QPs' memory stays QPs': a peer may still look at one that is gone */
	struct lock lock;      /* objects, ids, the segment's allocator */
	struct list peers;
	struct lock peers_lock;
	struct sr_peer *route[SR_MAX_CTX]; /* by index; under peers_lock */
	struct list stalled; /* QPs whose send queue waits */
	struct lock stalled_lock;
	_Atomic uint32_t nr_stalled;
	_Atomic uint32_t failures; /* a queue pair's failure has been seen, and not seen to */
	uint64_t timer_due; /* under stalled_lock; 0: it does not run */
	uint64_t rng;
	uint32_t objects; /* that the program has not destroyed */
	uint32_t next_pd;
	_Atomic uint32_t pds, ahs;
	uint32_t windows;
	uint64_t huge_ns; /* spent on putting huge pages together */
	struct sr_ids mrs, qps, cqs, srqs, channels;
	struct lock async_take;
	uint64_t slack_verbs[64]; /* newer headers look for more operations down here, guarded by sz */
	struct verbs_context verbs;
};

struct sr_td {
	struct ibv_td td;
	char newer[64];
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
	int sock; /* bound: woken for completion events */
	int timer_fd; /* of moderated queues; -1: none had a need */
	_Atomic uint32_t sleepers; /* that no timer wakes */
};

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
	_Atomic uint32_t empty_polls; /* since the last yield; these three are about right when several threads poll */
	_Atomic uint32_t spins;	      /* empty polls to a yield */
	_Atomic uint32_t yielded;     /* by the last poll */
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
	struct net_qp *net;	 /* it leads to another host */
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

static inline struct sr_context *sr_context(struct ibv_context *c)
{
	return container_of(c, struct sr_context, verbs.context);
}
static inline struct sr_pd *sr_pd(struct ibv_pd *pd) { return container_of(pd, struct sr_pd, pd); }
static inline struct sr_ah *sr_ah(struct ibv_ah *ah) { return container_of(ah, struct sr_ah, ah); }
static inline struct sr_cq *sr_cq(struct ibv_cq *cq) { return container_of(cq, struct sr_cq, cq); }
static inline struct sr_xrcd *sr_xrcd(struct ibv_xrcd *x) { return container_of(x, struct sr_xrcd, xrcd); }
static inline struct sr_srq *sr_srq(struct ibv_srq *srq) { return container_of(srq, struct sr_srq, srq); }
static inline struct sr_qp *sr_qp(struct ibv_qp *qp) { return container_of(qp, struct sr_qp, qp); }

/* segment.c: the shared directory and the segments in it. 0 or -errno. */
int sr_directory_find(char dir[SR_PATH_MAX]);
int sr_segment_create(struct sr_context *ctx);
void sr_segment_destroy(struct sr_context *ctx);
void sr_segment_sweep(struct sr_context *ctx);
struct sr_seg *sr_segment_map(struct sr_context *ctx, uint32_t index);
/* The file of the context @index; a descriptor or -errno. */
int sr_segment_open(struct sr_context *ctx, uint32_t index);
int sr_shared_map(struct sr_context *ctx, const char *name, size_t size, void **ret);
/* Zeroed memory in the own segment, under ctx->lock; NULL when there is none. */
void *sr_shm_alloc(struct sr_context *ctx, size_t size);
void sr_shm_free(struct sr_context *ctx, void *p, size_t size);
int sr_shm_reserve(struct sr_context *ctx, uint64_t off, uint64_t len);
int sr_socket_path(struct sr_context *ctx, struct sockaddr_un *sa, uint32_t index, uint32_t number);
uint64_t sr_random(struct sr_context *ctx);

/* One more of a kind of which there are not more than @max; 0 or -ENOMEM. */
static inline int sr_count(_Atomic uint32_t *n, uint32_t max)
{
	if (atomic_fetch_add(n, 1) < max)
		return 0;
	atomic_fetch_sub(n, 1);
	return -ENOMEM;
}

/* ids.c */
int sr_ids_init(struct sr_context *ctx, struct sr_ids *ids, uint32_t n, uint32_t start, uint32_t rest);
int sr_ids_take(struct sr_ids *ids, void *object, uint32_t *ret_id);
void sr_ids_give(struct sr_ids *ids, uint32_t id);
/* Each object that there is at some @i below ids->fresh; NULL between. */
static inline void *sr_ids_at(const struct sr_ids *ids, uint32_t i) { return ids->object[(ids->start + i) % ids->n]; }

/* peer.c: other contexts, their life and their memory. */
struct sr_peer *sr_peer_get(struct sr_context *ctx, uint32_t index);
/* Keeps it mapped for the next datagram. */
void sr_peer_keep(struct sr_context *ctx, struct sr_peer *p);
void sr_peer_put(struct sr_context *ctx, struct sr_peer *p);
void sr_peer_self(struct sr_context *ctx);
int sr_peer_alive(struct sr_context *ctx, struct sr_peer *p);
/* As sr_peer_alive, but may answer from what it knew a few milliseconds ago. */
int sr_peer_alive_lately(struct sr_context *ctx, struct sr_peer *p);

/* life.c: may the locks that @token signed be taken over? 0: yes. */
int sr_token_alive(struct sr_context *ctx, uint32_t token);

/* copy.c: @len bytes from one list of pieces to another; at least one side is of this process. 0, -EFAULT or -ESRCH. */
int sr_copy(struct sr_context *ctx, struct sr_peer *dst, struct iovec *d, struct sr_peer *src, struct iovec *s,
	    uint64_t len);

/* -errno; no room in the shared directory is no memory to those who call. */
static inline int sr_space(int err) { return err == -ENOSPC || err == -EDQUOT ? -ENOMEM : err; }

/* mr.c: the entry of the key table may be used. 0 or -ENOMEM. ctx->lock held. */
int sr_key_reserve(struct sr_context *ctx, uint32_t index);
/* Where @addr..@addr+@len lies in the owner's memory. 0 or -EACCES, -EINVAL (no such key). */
int sr_key_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		 uint64_t *ret_va);
uint32_t sr_key_make(struct sr_context *ctx, uint32_t index);
/* When it returns, no executor is at what a key let it in to before. ctx->lock held. */
void sr_keys_settle(struct sr_context *ctx);
/* A region; what is in it was checked. */
struct ibv_mr *sr_mr_create(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, uint32_t access);
/* As a remote one does, by way of the queue pair @qpn. */
int sr_rkey_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		  uint32_t qpn, uint64_t *ret_va);

int sr_access_check(uint32_t access);

/* pd.c, dm.c, xrc.c, cq_ex.c: operations of the context */
void sr_domains_fill(struct verbs_context *v);
void sr_device_memory_fill(struct verbs_context *v);
void sr_xrc_fill(struct verbs_context *v);
void sr_qp_close(struct sr_qp *qp);
enum ibv_qp_state sr_opened_state(const struct sr_qp *qp);
void sr_cq_ex_fill(struct verbs_context *v);

/* mw.c */
void sr_windows_fill(struct verbs_context *v);
int sr_window_check(struct sr_seg *seg, uint32_t key, uint64_t addr, uint64_t len, uint32_t access, uint32_t pd,
		    uint32_t qpn, uint64_t *ret_va);
/* The verbs' error of a bind that cannot be posted, or 0. */
int sr_bind_check(const struct sr_qp *qp, const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info,
		  enum ibv_mw_type type);
void sr_wqe_bind(struct sr_wqe *w, uint32_t rkey, const struct ibv_mw_bind_info *info);
int sr_region_is_bound(struct sr_context *ctx, uint32_t key);

/* cq.c */
/* -EOVERFLOW: there was no room, and it is lost. */
int sr_cq_push(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_cq *cq, const struct sr_cqe *cqe,
	       int solicited);
static inline uint32_t sr_cq_armed(struct sr_shm_cq *cq)
{
	return atomic_load(&cq->notify) & SR_NOTIFY_STATE;
}
/* Everything before @tail is told by one event, and the owner woken if he may sleep. Under the producers' lock. */
void sr_cq_tell(struct sr_context *ctx, struct sr_shm_cq *cq, uint32_t tail, int wake);
/* For completions that came before the queue was armed: those that call for the event are told. */
void sr_cq_catch_up(struct sr_context *ctx, struct sr_shm_cq *cq);
/* The producers' lock. */
void sr_cq_lock(struct sr_context *ctx, struct sr_shm_cq *cq);
int sr_cq_contains(struct sr_context *ctx, struct sr_shm_cq *cq, uint32_t qpn, uint32_t seq, int receive);
void sr_cq_purge(struct sr_context *ctx, struct sr_cq *cq, uint32_t number, uint32_t flag, struct sr_rq *rq);
/* What a completion brings: its data, and its queue's place. */
void sr_cqe_take(struct sr_context *ctx, const struct sr_cqe *c);
/* After a poll: a spinner may have to let others work. */
void sr_cq_polling(struct sr_cq *cq);
void sr_cq_polled(struct sr_cq *cq, int got);
int sr_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int sr_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* moderate.c */
void sr_moderation_fill(struct verbs_context *v);
/* A queue is armed: its clock begins. */
void sr_moderate_arm(struct sr_cq *cq);
/* Is it time for an event? For a producer, under its lock. */
int sr_moderate_due(struct sr_shm_cq *cq);
/* @n came before it was armed. Ditto. */
int sr_moderate_catch_up(struct sr_shm_cq *cq, uint32_t n);
/* Makes the events whose time has come, and sets the channel's timer for the next. ch->lock held. */
void sr_moderate_look(struct sr_channel *ch);

/* events.c: sleepers on channels look again, and wait on the clock too. */
void sr_channels_wake(struct sr_context *ctx);

/* async.c */
void sr_wake(struct sr_context *ctx, uint32_t index, uint32_t number);
void sr_wakes_close(struct sr_context *ctx);
/* How many wakings there were. */
int sr_wake_drain(int sock);
int sr_wake_socket(struct sr_context *ctx, uint32_t number);
void sr_wake_socket_close(struct sr_context *ctx, uint32_t number, int fd);
void sr_async_push(struct sr_context *ctx, struct sr_seg *seg, uint32_t type, uint32_t handle);

/* rq.c */
int sr_rq_create(struct sr_context *ctx, struct sr_rq *rq, uint32_t max_wr, uint32_t max_sge);
void sr_rq_destroy(struct sr_context *ctx, struct sr_rq *rq);
void sr_rq_reset(struct sr_rq *rq);
/* The slot of a receive whose completion leaves the ring. */
void sr_rq_give(struct sr_rq *rq, const struct sr_cqe *c);
int sr_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int sr_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* send.c */
/* Binds a window of type 1. */
int sr_post_bind(struct ibv_qp *qp, struct ibv_send_wr *wr);
int sr_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* The QP at the other end has got what this one's peer may be waiting for: run its queue. */
void sr_kick(struct sr_context *ctx, struct sr_qp *qp);
static inline int sr_wants_progress(struct sr_context *ctx)
{
	return (atomic_load_explicit(&ctx->nr_stalled, memory_order_relaxed) |
		atomic_load_explicit(&ctx->failures, memory_order_relaxed)) != 0;
}
/* Runs the own queues that wait, and their clocks; ends flushes that were begun. */
void sr_progress(struct sr_context *ctx);
void sr_stalled_add(struct sr_context *ctx, struct sr_qp *qp);
void sr_stalled_del(struct sr_context *ctx, struct sr_qp *qp);
/* May sends be posted in its state? */
int sr_qp_sends(const struct sr_qp *qp);
/* Runs the queue and gives its sq_lock back. */
void sr_qp_run_locked(struct sr_context *ctx, struct sr_qp *qp);
/* Bits of enum ibv_wr_opcode. */
uint32_t sr_qp_ops(enum ibv_qp_type type);
void sr_wqe_address(struct sr_context *ctx, struct sr_qp *qp, struct sr_wqe *w, struct ibv_ah *ah, uint32_t qpn,
		    uint32_t qkey);
/* The context at the other end, mapped on first use; NULL: not there. */
struct sr_peer *sr_qp_peer(struct sr_context *ctx, struct sr_qp *qp);
/* Runs the own queue as far as it goes; *sq_lock not held. */
void sr_qp_run(struct sr_context *ctx, struct sr_qp *qp);

/* The context of @index for a datagram of this queue; its sq_lock held. */
struct sr_peer *sr_qp_route(struct sr_context *ctx, struct sr_qp *qp, uint32_t index);

/* execute.c */
struct sr_run {
	struct sr_context *ctx;
	struct sr_peer *src, *dst; /* dst: NULL when there is none */
	struct sr_shm_qp *q;
	int mine;      /* the queue is of this context */
	/* out: a QP that was put into error: its send queue wants flushing */
	uint32_t failed;
	struct sr_peer *failed_in;
};
/* With q->sq_lock held. */
void sr_run(struct sr_run *r);
void sr_sq_lock(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q);
struct sr_shm_qp *sr_qp_find(struct sr_seg *seg, uint32_t qpn);
struct sr_shm_rq *sr_srq_find(struct sr_seg *seg, uint32_t srqn);

/* respond.c */
void sr_rx_lock(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q);
/* Ends the receive that a QP has taken from a shared queue and not used. rx_lock held. */
void sr_in_hand_flush(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q);
/* As sr_rx_fail, and says QP_FATAL if that is news. */
void sr_rx_fatal(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q);
/* Moves a QP into error and flushes its receive queue. rx_lock held. */
void sr_rx_fail(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_qp *q);

/* ah.c */
int sr_ah_check(const struct sr_context *ctx, const struct ibv_ah_attr *a);

/* cm_file.c: was this library there before the program? */
int sr_is_preloaded(void);

/* net*.c: other hosts; net.h has the inside. */
/* Is there a network for this user? Sets ctx->net, or leaves NULL. */
void sr_net_open(struct sr_context *ctx);
/* Nothing comes from there any more; */
void sr_net_stop(struct sr_context *ctx);
/* nothing is left of it. */
void sr_net_close(struct sr_context *ctx);
/* Binds the port that goes with an index. 0, or -EADDRINUSE: it is another's. */
int sr_net_claim(struct sr_context *ctx, uint32_t index);
/* This host's address on the network; 0: it has none. */
uint32_t sr_net_address(uint32_t *ret_mask);
/* A queue pair that is ready to receive and leads to another host, or takes datagrams. */
void sr_net_attach(struct sr_context *ctx, struct sr_qp *qp);
void sr_net_detach(struct sr_context *ctx, struct sr_qp *qp);
/* As sr_qp_run_locked. */
void sr_net_run_locked(struct sr_context *ctx, struct sr_qp *qp);
/* The other end may have waited for what there is now. */
void sr_net_ready(struct sr_context *ctx, struct sr_qp *qp);
void sr_net_poll(struct sr_context *ctx);
void sr_net_polled(struct sr_context *ctx);

/* group.c: multicast */
int sr_groups_map(struct sr_context *ctx);
void sr_groups_leave(struct sr_context *ctx);
/* *hint: where it was last. */
struct sr_group *sr_group_find(struct sr_context *ctx, const uint8_t *gid, uint32_t *hint);
/* With ctx->lock held. */
int sr_qp_is_member(struct sr_context *ctx, uint32_t number);

/* qp.c */
/* Its bounce ring, if there is memory. No lock held. */
void sr_qp_bounce(struct sr_context *ctx, struct sr_qp *qp);
/* Takes what a QP has in its completion queues out of them; both locks held. */
void sr_qp_purge(struct sr_context *ctx, struct sr_qp *qp);
/*
 * Back to how it was made. Nobody else is at it, or both locks are held. Sequence numbers go on, so that no old
 * completion in a ring can be taken for a new one's.
 */
void sr_qp_empty(struct sr_context *ctx, struct sr_qp *qp);
struct ibv_qp *sr_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);

/* qp_ex.c */
int sr_send_ops_check(enum ibv_qp_type type, uint64_t flags);
void sr_send_ops_fill(struct sr_qp *qp);

/* srq.c */
int sr_get_srq_num(struct ibv_srq *srq, uint32_t *ret_number);
struct ibv_srq *sr_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *init);

/* port.c */
int sr_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len);
uint32_t sr_devices(void);
uint64_t sr_device_guid(uint32_t device);
/* Of the first device and its first port. */
uint64_t sr_guid(void);
void sr_first_gid(uint8_t gid[16]);
uint16_t sr_lid(void);
/* The names of the ports into a context whose device is set: they are asked for often. */
void sr_ports_fill(struct sr_context *ctx);
static inline int sr_port_is(const struct sr_context *ctx, uint32_t port) { return port >= 1 && port <= ctx->ports; }
/* A port of this host; where an address leads to, or 0. */
uint16_t sr_own_site(const struct sr_context *ctx, uint32_t port);
uint16_t sr_site_find(const struct sr_context *ctx, const struct ibv_ah_attr *a);
/* The other host's address, if there is a network and the address leads to one, and its port there; else 0. */
uint32_t sr_host_find(const struct sr_context *ctx, const struct ibv_ah_attr *a, uint16_t *ret_site);

/* query.c */
int sr_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t size);
