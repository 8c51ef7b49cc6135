/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of softrdma use of each other. Engine, rdma_cm and network have headers of their own. */
#pragma once

#include <errno.h>

#include "softrdma/objects.h"

/* segment.c: the shared directory and the segments in it. 0 or -errno. */
int sr_directory_find(char dir[SR_PATH_MAX]);
int sr_segment_create(struct sr_context *ctx);
void sr_segment_destroy(struct sr_context *ctx);
void sr_segment_sweep(struct sr_context *ctx);
struct sr_seg *sr_segment_map(struct sr_context *ctx, uint32_t index);
/* The file of the context @index; a descriptor or -errno. */
int sr_segment_open(struct sr_context *ctx, uint32_t index);
int sr_shared_map(struct sr_context *ctx, const char *name, size_t size, void **ret);
int sr_shm_reserve(struct sr_context *ctx, uint64_t off, uint64_t len);
int sr_socket_path(struct sr_context *ctx, struct sockaddr_un *sa, uint32_t index, uint32_t number);
uint64_t sr_random(struct sr_context *ctx);

/* shm_alloc.c. Zeroed memory in the own segment, under ctx->lock; NULL when there is none. */
void *sr_shm_alloc(struct sr_context *ctx, size_t size);
void sr_shm_free(struct sr_context *ctx, void *p, size_t size);

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
int sr_cq_push(struct sr_context *ctx, struct sr_peer *owner, struct sr_shm_cq *cq, struct sr_cqe *cqe,
	       int solicited);
static inline uint32_t sr_cq_armed(struct sr_shm_cq *cq)
{
	return atomic_load(&cq->notify) & SR_NOTIFY_STATE;
}
/* Everything before @tail is told by one event; by the owner, who is awake. Under the producers' lock. */
void sr_cq_tell_awake(struct sr_shm_cq *cq, uint32_t tail);
/* For completions that came before the queue was armed: those that call for the event are told. */
void sr_cq_catch_up(struct sr_context *ctx, struct sr_shm_cq *cq);
/* The producers' lock. */
void sr_cq_lock(struct sr_context *ctx, struct sr_shm_cq *cq);
int sr_cq_contains(struct sr_context *ctx, struct sr_shm_cq *cq, uint32_t qpn, uint32_t seq, int receive);
void sr_cq_purge(struct sr_context *ctx, struct sr_cq *cq, uint32_t number, uint32_t flag, struct sr_rq *rq);
/* What a completion brings: its data, and its queue's place. Gives its wr_id. */
uint64_t sr_cqe_take(struct sr_context *ctx, const struct sr_cqe *c);
/* spin.c: before and after a poll. A spinner may have to let others work. */
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

/* events.c: says to those who sleep on channel @number of @seg that they shall look. */
void sr_channel_wake(struct sr_context *ctx, struct sr_seg *seg, uint32_t number);
/* Sleepers on channels look again, and wait on the clock too. */
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
/* May sends be posted in its state? */
int sr_qp_sends(const struct sr_qp *qp);
/* Bits of enum ibv_wr_opcode. */
uint32_t sr_qp_ops(enum ibv_qp_type type);
void sr_wqe_address(struct sr_context *ctx, struct sr_qp *qp, struct sr_wqe *w, struct ibv_ah *ah, uint32_t qpn,
		    uint32_t qkey);
/* progress.c */
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
/* Runs the queue and gives its sq_lock back. */
void sr_qp_run_locked(struct sr_context *ctx, struct sr_qp *qp);
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

/* receive.c */
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
/* socket.c: sockets that do not wait, or -errno. */
int sr_socket(int domain, int type);
int sr_socketpair(int type, int ret_pair[2]);
int sr_accept(int fd);
void sr_close(int fd); /* also a descriptor of another kind; -1: nothing */

/* net*.c: other hosts; net.h has the inside. */
/* Is there a network for this user? Sets ctx->net, or leaves NULL. */
void sr_net_open(struct sr_context *ctx);
/* No bytes are on their way, at this moment; with a network only. */
int sr_net_idle(struct sr_context *ctx);
uint32_t sr_net_refusals(struct sr_qp *qp);
/* Nothing comes from there any more; */
void sr_net_stop(struct sr_context *ctx);
/* nothing is left of it. */
void sr_net_close(struct sr_context *ctx);
/* Binds the port that goes with an index. 0, or -EADDRINUSE: it is another's. */
int sr_net_claim(struct sr_context *ctx, uint32_t index);
/* This host's address on the network; 0: it has none. */
uint32_t sr_net_address(struct sr_host *h);
/* A queue pair that is ready to receive and leads to another host, or takes datagrams. */
void sr_net_attach(struct sr_context *ctx, struct sr_qp *qp);
void sr_net_detach(struct sr_context *ctx, struct sr_qp *qp);
/* As sr_net_attach, of one that leads to a context of this machine whose memory is out of reach. Where there is no network its peer stays dead. */
void sr_net_attach_apart(struct sr_context *ctx, struct sr_qp *qp, uint16_t site);
/* 1: there is a network now for datagrams of such contexts. */
int sr_net_listen_apart(struct sr_context *ctx);
/* What has come from its other end is heard, before it hears nothing more. */
void sr_net_take_in(struct sr_qp *qp);
/* As sr_qp_run_locked. */
void sr_net_run_locked(struct sr_context *ctx, struct sr_qp *qp);
/* The other end may have waited for what there is now. */
void sr_net_ready(struct sr_context *ctx, struct sr_qp *qp);
/* One more, or one less, of the context's queue pairs is a member; ctx->lock held. */
void sr_net_group_join(struct sr_context *ctx, const uint8_t gid[16]);
void sr_net_group_leave(struct sr_context *ctx, const uint8_t gid[16]);
void sr_net_poll(struct sr_context *ctx);
void sr_net_polled(struct sr_context *ctx);

/* group.c: multicast */
/* A group's GID: of InfiniBand's own, or an IPv4 group's address mapped, as RoCE v2 has it. */
static inline int sr_gid_is_group(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return gid[0] == 0xff || (gid[12] >> 4 == 0xe && !memcmp(gid, mapped, sizeof(mapped)));
}
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

/* name.c */
uint32_t sr_devices(void);
uint64_t sr_device_guid(uint32_t device);
/* Of the first device and its first port. */
uint64_t sr_guid(void);
void sr_first_gid(uint8_t gid[16]);
void sr_first_place(uint64_t *ret_guid, uint8_t gid[16], uint16_t *ret_lid); /* all three at once */
/* The same of the host that has that address on the network; and whose they are, 0: nobody's. */
void sr_first_names(uint32_t address, uint8_t gid[16], uint16_t *ret_lid);
uint32_t sr_first_gid_host(const uint8_t gid[16]);

/* port.c */
int sr_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len);
/* The names of the ports into a context whose device is set: they are asked for often. */
void sr_ports_fill(struct sr_context *ctx);
static inline int sr_port_is(const struct sr_context *ctx, uint32_t port) { return port >= 1 && port <= ctx->ports; }

/* site.c: a port of this host; where an address leads to, or 0. */
uint16_t sr_own_site(const struct sr_context *ctx, uint32_t port);
uint16_t sr_site_find(const struct sr_context *ctx, const struct ibv_ah_attr *a);
/* The same of the host that @seg's owner is. */
uint16_t sr_site_of(const struct sr_context *ctx, const struct sr_seg *seg, const struct ibv_ah_attr *a);
/* The other host's address, if there is a network and the address leads to one, and its port there; else 0. */
uint32_t sr_host_find(const struct sr_context *ctx, const struct ibv_ah_attr *a, uint16_t *ret_site);

/* query.c */
int sr_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t size);

/* How memory is got and given back: as the libc does, unless who has opened the library says otherwise. */
struct sr_memory {
	void *(*map)(void *at, size_t len, int prot, int flags, int fd, off_t offset);
	int (*unmap)(void *at, size_t len);
};
extern struct sr_memory sr_memory;
/* For programs that replace the libc's functions while they run; before anything else is called. */
void softrdma_memory(void *(*map)(void *, size_t, int, int, int, off_t), int (*unmap)(void *, size_t));
