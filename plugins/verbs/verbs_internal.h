/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder offer to each other, by subject; the objects are in verbs_shadow.h. */
#pragma once

#include "plugins/verbs/verbs_fabric.h"
#include "plugins/verbs/verbs_shadow.h"

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
/* The queue of that handle; NULL: it is gone. */
struct shadow_srq *verbs_srq_find(uint32_t handle);
int verbs_srq_slots_make(struct shadow_srq *srq, uint32_t n, uint32_t max_sge);
/* The queue pair with the device's number @number that takes its receives there, or NULL. Under srq->lock. */
struct shadow_qp *verbs_srq_qp(const struct shadow_srq *srq, uint32_t number);
int verbs_srq_attach(struct shadow_qp *qp); /* 0 or -ENOMEM */
void verbs_srq_detach(struct shadow_qp *qp, uint32_t number);
int verbs_srq_number(const struct shadow_srq *srq, uint32_t *ret); /* the device's; 0 or an errno */
int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* The remote half of a request, for the device of this life. */
void verbs_remote_real(const struct shadow_qp *qp, struct ibv_send_wr *wr);
void verbs_ud_real(struct ibv_send_wr *wr);
/* Ports: verbs_port.c. The names of this life, and if it was not @restarted the program's of ports that have none. 0 or -errno. In a device call. */
int verbs_real_query_port(struct ibv_context *real, uint8_t port, struct ibv_port_attr *attr, size_t len);
int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t len); /* as the program knows it */
int verbs_ports_read(struct shadow_device *d, struct ibv_context *real, int restarted);
/* Partition keys: verbs_pkey.c. What the table of @length has in this life; that it is what the program is told. In a device call. */
void verbs_pkeys_read(struct verbs_port *p, struct ibv_context *real, unsigned int port, unsigned int length);
void verbs_pkeys_name(struct verbs_port *p, unsigned int length);
/* Where the key is in this life that the program has at @index. */
uint16_t verbs_pkey_index_real(const struct verbs_port *own, uint16_t index);
/* Keys of scatter lists, for the device of this life. */
void verbs_sges_real(struct ibv_context *context, struct ibv_sge *to, const struct ibv_sge *from, uint32_t n);
/* Datagrams: verbs_datagram.c. The sender's names in @wc and in the receive of these pieces become those that the program knows. */
void verbs_datagram_virtual(const struct shadow_qp *qp, struct ibv_wc *wc, const struct ibv_sge *sge, uint32_t n);
/* Makes of @wr one to nobody. 0 or an errno. */
int verbs_datagram_noop(struct shadow_qp *qp, struct ibv_send_wr *wr);
void verbs_groups_forget(struct shadow_qp *qp);
/* Where the program's memory is that a piece names: an address of its own, or its region's. */
char *verbs_memory_at(struct ibv_context *context, uint32_t lkey, uint64_t addr);
/* Is there room for @n more sends? 0 or ENOMEM. */
int verbs_post_room(struct shadow_qp *qp, uint32_t n);
/* Binds a window of type 1. */
int verbs_post_bind(struct shadow_qp *qp, struct shadow_mw *mw, const struct ibv_mw_bind *bind);

/* ---- arming and events: verbs_notify.c ---- */
/* The device's event of @cq was read. 1: it is the program's; 0: only a completion of our own had fired it. */
int verbs_notify_taken(struct shadow_cq *cq);
void verbs_notify_settle(struct shadow_context *c, struct shadow_channel *ch); /* at the dump */
int verbs_notify_restore(struct shadow_context *c, struct shadow_cq *cq); /* before anybody sends */

/* ---- extended interfaces over the plain ones: verbs_qp_ex.c, verbs_cq_ex.c ---- */
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);
/* @qp can be posted to by ibv_wr_*. 0 or an errno. */
int verbs_builder_create(struct shadow_qp *qp, uint64_t ops);
/* A completion of the device's queue with its stamps, of one that has any: 1, or 0. Under cq->lock. */
int verbs_cq_take_stamped(struct shadow_cq *cq, struct ibv_wc *wc, struct verbs_stamps *stamps);
/* The oldest that was kept. 1, or 0: none is. Under cq->lock. */
int verbs_cq_kept_take(struct shadow_cq *cq, struct ibv_wc *wc, struct verbs_stamps *stamps);
/* @ex: what the plain way cannot say, or NULL. */
struct ibv_cq *verbs_cq_create(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
			       int vector, struct ibv_cq_init_attr_ex *ex);
int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
void verbs_reader_free(struct shadow_cq *cq);
void verbs_cq_ex_fill(struct verbs_context *v);

/* ---- operations of object kinds ---- */
void verbs_plain_fill(struct verbs_context *v);
void verbs_domain_fill(struct verbs_context *v);
void verbs_xrcd_fill(struct verbs_context *v);
/* The shadow of a target of another process, which has no device's object yet; NULL with errno. */
struct shadow_qp *verbs_qp_opened(struct ibv_context *context, const struct ibv_qp_open_attr *attr);
void verbs_qp_free(struct shadow_qp *qp);
void verbs_mr_fill(struct verbs_context *v);
void verbs_dm_fill(struct verbs_context *v);
struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *init);
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct ibv_mr *verbs_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access);

/* ---- memory windows: verbs_mw.c, verbs_mw_state.c, verbs_mw_restart.c ---- */
struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int verbs_dealloc_mw(struct ibv_mw *mw);
int verbs_mw_bound(const struct shadow_mw *mw, const struct verbs_binding *b);
/* Windows of this process by the keys that the program, and the device, has for them. Under verbs_lock. */
void verbs_mw_insert(struct shadow_mw *mw);
void verbs_mw_remove(struct shadow_mw *mw);
struct shadow_mw *verbs_mw_find(struct ibv_context *context, uint32_t key);
struct shadow_mw *verbs_mw_find_real(struct ibv_context *context, uint32_t key);
void verbs_mw_forget_all(void); /* restart: the tables are empty */
/* The device's key for one that the program has, of this window, or of any of this process; and back. */
uint32_t verbs_mw_key_real(const struct shadow_mw *mw, uint32_t key);
uint32_t verbs_mw_own_real(struct ibv_context *context, uint32_t key);
uint32_t verbs_mw_key_virtual(const struct shadow_mw *mw, uint32_t real);
/* A slot that binds or invalidates a window gets all that a later posting needs, and is counted, before the device has it; or it was not posted after all. */
void verbs_mw_post(struct shadow_qp *qp, struct verbs_send *s, const struct ibv_send_wr *wr);
void verbs_mw_unpost(struct shadow_qp *qp, const struct verbs_send *s);
/* The sends up to @position are over, all but it surely well, it if @good. */
void verbs_mw_retire(struct shadow_qp *qp, uint64_t position, int good);
/* A request was executed: verbs_lock, or at the checkpoint, which keeps apart what it infers. */
void verbs_mw_executed(struct shadow_qp *qp, const struct verbs_send *s, int at_checkpoint);
/* A peer has invalidated one: the completion says so, and is told the program's key. */
void verbs_mw_invalidated(struct ibv_context *context, struct ibv_wc *wc);
/* All outstanding requests are forgotten, before the queue's positions are. */
void verbs_mw_reset(struct shadow_qp *qp);
void verbs_mw_orphan(struct shadow_qp *qp);
void verbs_mw_region_gone(struct shadow_mr *mr);
int verbs_mw_settle(struct shadow_context *c); /* at the dump: 0 or -EOPNOTSUPP */
int verbs_mw_recreate(struct shadow_context *c, struct shadow_mw *mw);
int verbs_mw_rebind_all(struct shadow_context *c); /* type 1 */
int verbs_mw_rebind_qp(struct shadow_qp *qp);	   /* type 2, in RTS */
int verbs_repost_bind(struct shadow_qp *qp, uint64_t position);
/* The status of a completion of our own, whose wr_id is VERBS_OWN; -1: none came. Looked at by a restart only. */
extern int verbs_own_status HIDDEN;
#define VERBS_OWN ~0ull

/* ---- the device's queue pair behind a shadow: verbs_qp_real.c ---- */
/* What the data path needs of it, kept where it looks. */
void verbs_qp_real_set(struct shadow_qp *qp, struct ibv_qp *real);
/* Draws until the number is none that a peer may still know for another queue pair. */
struct ibv_qp *verbs_qp_create_new(struct shadow_qp *qp, struct ibv_qp_cap *cap);
void verbs_qp_settle(struct shadow_qp *qp);
void verbs_qp_fit(const struct shadow_qp *qp, struct ibv_qp_attr *real, int mask); /* after a move: to the limits of the device of this life */
void verbs_qp_allow_noop(const struct shadow_qp *qp, struct ibv_qp_attr *real, int mask);

/* ---- restart ---- */
int verbs_devices_renew(void);
void verbs_devices_lock(void); /* around a fork */
void verbs_devices_unlock(void);
int verbs_context_recreate(struct shadow_context *c);
int verbs_pd_recreate(struct shadow_context *c, struct shadow_pd *pd);
int verbs_td_recreate(struct shadow_context *c, struct shadow_td *td);
int verbs_dm_recreate(struct shadow_context *c, struct shadow_dm *dm);
/* The device's region behind a shadow, registered as the program did it. NULL with errno. */
struct ibv_mr *verbs_mr_real(const struct shadow_mr *mr);
int verbs_mr_deregister(void *real);
int verbs_lkeys_begin(void); /* the table of our local keys, before any region is made, and the numbers of contexts in it. 0 or -errno, said */
int verbs_mrs_recreate(struct shadow_context *c); /* and publishes their keys */
/* verbs_mr_hole.c: around the registration of memory of which a part may not be there any more. */
void verbs_holes_fill(const void *addr, size_t length);
void verbs_holes_empty(void);
int verbs_channel_recreate(struct shadow_context *c, struct shadow_channel *ch);
int verbs_cq_recreate(struct shadow_context *c, struct shadow_cq *cq);
int verbs_qp_recreate(struct shadow_context *c, struct shadow_qp *qp);
int verbs_qp_reconnect(struct shadow_qp *qp);
int verbs_groups_join(struct shadow_qp *qp);
int verbs_ah_recreate(struct shadow_ah *ah);
struct ibv_ah *verbs_ah_to(const struct shadow_ah *ah, uint32_t member); /* the device's, to the port that process @member has */
int verbs_qp_refill(struct shadow_qp *qp);
int verbs_dm_settle(struct shadow_dm *dm);
void verbs_dm_resume(void); /* the copies go */
int verbs_xrcd_settle(const struct shadow_xrcd *x); /* at the dump */
int verbs_xrcd_recreate(struct shadow_context *c, struct shadow_xrcd *x);
void verbs_qp_reopen(struct shadow_qp *qp);
int verbs_srq_settle(struct shadow_srq *srq); /* at the dump */
int verbs_srq_recreate(struct shadow_context *c, struct shadow_srq *srq);
int verbs_srq_refill(struct shadow_srq *srq);
/* A queue pair of ours that is connected to itself and completes on @cq, all the device's. */
struct ibv_qp *verbs_loop_create(struct shadow_context *c, struct ibv_pd *pd, struct ibv_cq *cq);
int verbs_recreate(const void *record, size_t len);
int verbs_reconnect(void);
int verbs_refill(void);

/* ---- checkpoint ---- */
int verbs_cm_init(void);
int verbs_cm_open(const char *path, int flags);
long verbs_cm_write(int fd, const void *data, size_t n);
int verbs_cm_stat(int fd, struct stat *st);
int verbs_cm_close(int fd);
int verbs_path_stat(const char *path, struct stat *ret);
void verbs_cm_quiesce(void);
int verbs_cm_drain(unsigned int round);
void verbs_cm_resume(void);
int verbs_cm_dump(void);
int verbs_cm_saved(uint32_t nth); /* the descriptor of that channel, or -1 */
int verbs_cm_numbers(int (*hold)(int fd));
int verbs_cm_recreate(void);
int verbs_cm_reconnect(void);
int verbs_cm_refill(void);
int verbs_cm_hosts_learn(void);
int verbs_is_together(void); /* in RECONNECT: no process of the job has come back in another part */
int verbs_numbers(int (*hold)(int fd));
int verbs_plain_quiesce(void);
/* Unread asynchronous events: noted at the checkpoint; told again at a restart. 0 or -errno. */
int verbs_events_settle(struct shadow_context *c);
int verbs_events_tell(struct shadow_context *c);
int verbs_drain(unsigned int round);
/* verbs_drain_xrc.c: what shared receive queues have left; whether an initiator is quiet: 1, 0, or -errno. */
int verbs_xrc_tell(struct shadow_context *c, unsigned int round);
int verbs_xrc_quiet(struct shadow_qp *qp, unsigned int round);
int verbs_dump(struct fermata_sink *sink);

/* ---- waiting for events: verbs_async.c ---- */
/* What of an event's element is filled: whose it is. */
enum verbs_event_owner { VERBS_EVENT_PORT, VERBS_EVENT_CQ, VERBS_EVENT_SRQ, VERBS_EVENT_QP };
enum verbs_event_owner verbs_event_owner(enum ibv_event_type type);
int verbs_channel_readable(int fd);
/* 1: *event, of shadows; 0: nothing there; -1 with errno. */
int verbs_async_take(struct shadow_context *c, struct ibv_async_event *event);
/* 0; 1 at once: the program has made @fd non-blocking; -1 with errno. */
int verbs_wait_readable(int fd);
/* Makes the descriptor non-blocking for a moment; *ret_flags is for verbs_unset_nonblock. */
int verbs_set_nonblock(int fd, int *ret_flags);
void verbs_unset_nonblock(int fd, int flags);
int verbs_fd_number(int fd, int want);


extern const struct fermata_plugin plugin_verbs;
