/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The private side of rdma_cm: the file /dev/infiniband/rdma_cm as librdmacm uses it. doc/softrdma.md has the design.
 *
 * A descriptor is all that a command has, so this is the one part of softrdma with state of the process: a bitmap of
 * the descriptors that are channels, and one struct cm_process, made for the first channel and given back with the last.
 * It belongs to the process that made it: a forked child sees none of it. Everything in it is under one lock, which
 * nobody holds while he waits.
 */
#pragma once

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/lock.h"
#include "softrdma/cm_wire.h"

#define CM_PATH "/dev/infiniband/rdma_cm"
#define CM_DIR_MAX 96
#define CM_MAX_HANDLES 65536u /* librdmacm's own table ends here */
#define CM_MAX_FD 65536u
#define CM_MAX_BACKLOG 1024u
#define CM_NAME 17 /* of an end of a connection: whose, and a hash */
#define CM_QKEY 0x01234567u /* of RDMA_PS_UDP (IBA annex A11) */
#define CM_QKEY_IPOIB 0x0b1bu
#define CM_REQUEST_S 137 /* what the kernel's retries come to, a request's with a sign of life (MRA) between */
#define CM_ANSWER_S 69
#define CM_EVENT_HANDLE UINT32_MAX	 /* of a channel's own descriptors */
#define CM_TIMER_HANDLE (UINT32_MAX - 1)
#define CM_PATH_MTU 5	      /* IBV_MTU_4096 */
#define CM_PACKET_LIFETIME 16 /* 4.096 us << 16: 0.27 s */

#ifndef AF_IB
#define AF_IB 27
#endif

/* As the kernel's rdma/ib.h has it. */
struct cm_sockaddr_ib {
	uint16_t family;
	uint16_t pkey;
	uint32_t flowinfo;
	uint8_t addr[16];
	uint64_t sid;
	uint64_t sid_mask;
	uint64_t scope_id;
};

union cm_addr {
	sa_family_t family;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct cm_sockaddr_ib ib;
	struct __kernel_sockaddr_storage ss;
};

/* As rdma/rdma_cma.h of librdmacm numbers them. */
enum cm_event_type {
	CM_EVENT_ADDR_RESOLVED,
	CM_EVENT_ADDR_ERROR,
	CM_EVENT_ROUTE_RESOLVED,
	CM_EVENT_ROUTE_ERROR,
	CM_EVENT_CONNECT_REQUEST,
	CM_EVENT_CONNECT_RESPONSE,
	CM_EVENT_CONNECT_ERROR,
	CM_EVENT_UNREACHABLE,
	CM_EVENT_REJECTED,
	CM_EVENT_ESTABLISHED,
	CM_EVENT_DISCONNECTED,
	CM_EVENT_DEVICE_REMOVAL,
	CM_EVENT_MULTICAST_JOIN,
	CM_EVENT_MULTICAST_ERROR,
	CM_EVENT_ADDR_CHANGE,
	CM_EVENT_TIMEWAIT_EXIT,
};

enum cm_state {
	CM_IDLE,	   /* made */
	CM_BOUND,	   /* has an address and a port */
	CM_ADDR_QUERY,	   /* the other host is asked whether it is there */
	CM_ADDR_RESOLVED,  /* has a device and a destination */
	CM_ROUTE_RESOLVED, /* has a path */
	CM_LISTENING,
	CM_REQ_SENT, /* connecting: waits for REP */
	CM_REP_RCVD, /* the program has the answer and is to move its QP */
	CM_REQ_RCVD, /* made by a request: waits for accept or reject */
	CM_REP_SENT, /* accepted: waits for RTU */
	CM_ESTABLISHED,
	CM_DREQ_SENT, /* we disconnect: waits for DREP */
	CM_DREQ_RCVD, /* the other end disconnects: DISCONNECTED has been told, DREP is due */
	CM_SIDR_SENT,
	CM_SIDR_RCVD,
	CM_ENDED, /* rejected, disconnected, unreachable, or the service is resolved */
	CM_TIMEWAIT, /* disconnected, both ends know it: TIMEWAIT_EXIT is still to come */
	CM_STATES,
};

/* A device's port, and its name there. */
struct cm_place {
	uint64_t guid;
	uint8_t gid[16];
	uint16_t lid; /* 0: it has none */
	uint8_t port, gid_index;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t v2;  /* of a kernel's port: RoCE v2, not v1 */
};

/* What the other end has told, and what we have told it. */
struct cm_conn {
	uint32_t qpn, remote_qpn;
	uint32_t psn, remote_psn;
	uint32_t qkey;
	uint32_t remote_pid; /* on its host */
	uint16_t remote_lid;
	uint8_t remote_gid[16];
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
	uint8_t mtu;
};

enum cm_kind { CM_KIND_ID = 1, CM_KIND_MCAST, CM_KIND_PENDING };

struct cm_process {
	struct arena arena;
	char dir[CM_DIR_MAX];
	int ports_fd; /* the file whose locks are the ports in use */
	struct list channels;
	struct list bound; /* ids with a port */
	void **object;	   /* by handle; each begins with its enum cm_kind */
	struct cm_channel **channel; /* by descriptor */
	uint32_t next_handle;
	uint32_t request_s, answer_s; /* how long an id waits for the other end */
	struct cm_net *net;	      /* other hosts; NULL: there are none, or not yet */
	int net_asked;
};

struct cm_channel {
	struct list link;
	struct list ids;
	struct list pending; /* connections whose request has not come yet */
	struct list events;
	struct list waiting; /* ids, by deadline */
	int fd;	     /* epoll: what the program holds */
	uint64_t serial; /* never 0, never used again */
	int timer_fd; /* -1: not needed yet */
	int event_fd; /* readable while @events is not empty; also tells that @fd is still ours */
};

struct cm_id {
	enum cm_kind kind;
	uint32_t handle;
	struct list link; /* in its channel */
	struct list bound_link;
	struct list wait_link; /* in its channel's waiting ones */
	uint64_t deadline_ns;
	struct cm_channel *channel;
	uint64_t uid; /* 0: made by a request that the program has not accepted */
	uint16_t ps;
	uint8_t qp_type;
	enum cm_state state;
	union cm_addr src, dst;
	union cm_addr claim; /* the address and port that are locked; family 0: none */
	uint8_t claim_shared, reuse, afonly, ack_timeout, has_device, watched, is_far;
	uint8_t passive; /* made by a request */
	uint8_t rejoin;	 /* cm_load.c: what is still to be done */
	uint32_t query_try_ms, query_ms; /* how long the other host may take to answer this dial; and all that follow */
	uint32_t backlog;
	int sock; /* listens, or is the connection, or asks for the other host; -1 */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* of the listening socket */
	uint32_t events_reported;
	struct cm_conn conn;
	struct list mcasts;
	struct cm_asking *asking; /* or NULL */
};

/* A request that has not been said yet: in this life nobody has listened so far, or nobody has been found in a new one. */
struct cm_asking {
	uint64_t deadline_ns; /* of the request; the id's own is when it is tried next */
	uint64_t refused_ns;  /* from then on nobody is there */
	uint64_t pause_ns;
	uint32_t length;
	uint8_t packet[CM_WIRE_MAX];
};

struct cm_mcast {
	enum cm_kind kind;
	uint32_t handle;
	struct list link; /* in its id */
	struct cm_id *id;
	uint64_t uid;
	uint32_t events_reported;
	int sock; /* a member of the IP group, or -1 */
	union cm_addr addr;
};

struct cm_pending {
	enum cm_kind kind;
	uint32_t handle;
	struct list link;
	struct cm_id *listener;
	int sock;
};

struct cm_event {
	struct list link;
	struct cm_id *id; /* who counts it */
	struct cm_mcast *mcast;
	struct cm_id *request; /* CONNECT_REQUEST: the new id */
	struct rdma_ucm_event_resp resp;
};

/* cm_process.c */
extern struct cm_process *cm_process; /* under cm_lock */
extern struct lock cm_lock;
int cm_process_make(void); /* 0 or -errno; there is none */
void cm_process_free(struct cm_process *p);
uint32_t cm_random(void);
int cm_handle_take(void *object, uint32_t *ret_handle);
void cm_handle_give(uint32_t handle);
void *cm_handle_find(uint32_t handle, enum cm_kind kind);

/* cm_channel.c */
/* The channel of a descriptor of this process, or NULL. */
struct cm_channel *cm_channel_find(int fd);
int cm_channel_is_own(int fd); /* it may be one of this process's: no lock is needed */
int cm_process_anew(void); /* whatever was there is forgotten */
int cm_channel_again(int fd, uint32_t status, uint32_t fd_flags, uint64_t serial, struct cm_channel **ret);
int cm_watch(struct cm_channel *ch, int sock, uint32_t handle);
int cm_watch_dial(struct cm_channel *ch, int sock, uint32_t handle); /* until it is connected */
void cm_unwatch(struct cm_channel *ch, int sock);

/* What the library's users call: cm_file.c, or who stands in front of it. Each -errno or its result. */
int softrdma_cm_open(const char *path, int flags); /* -ENOTTY: not that path */
/*
 * One write(2) to a channel; never waits: -EAGAIN from GET_EVENT when there is no event; -ENOTTY: no channel. @channel is 0 at first and set;
 * who has waited gives it back, and gets -ESTALE when the descriptor is no longer that channel.
 */
long softrdma_cm_command(int fd, const void *buf, size_t n, uint64_t *channel);
int softrdma_cm_close(int fd);			     /* -ENOTTY: not a channel, nothing done */
int softrdma_cm_fstat(int fd, struct stat *st);	     /* after the true fstat: makes it a device's */
int softrdma_cm_is_channel(int fd);		     /* a guess that never says no wrongly */
int softrdma_cm_next(int fd);			     /* the first channel behind @fd, or -1 */
uint32_t softrdma_cm_ids(void);			     /* how many ids this process's channels have. Nobody may be in another call */
/* The process at the other end of a connection, as its host has it; 0: it is not known. */
uint32_t softrdma_cm_peer(int fd, uint32_t id);
/* The device of an id, or of a group's (0: it has none), and its two ends' addresses as GIDs, 16 bytes each; zeros: it has none. */
uint64_t softrdma_cm_ends(int fd, uint32_t handle, void *own, void *other);
/*
 * From now on ids are of the kernel's RoCE devices, as sysfs has them below @root (/sys/class/infiniband), or of softrdma's (NULL, as at first). How many addresses
 * those have; 0: there are no such devices. Nobody may be in another call.
 */
int softrdma_cm_kernel(const char *root);

/*
 * The state of all channels of this process as bytes, for who brings a process to life again (cm_save.c, cm_load.c). Nobody may be in another
 * call. Each 0 or -errno.
 */
int softrdma_cm_settle(void);			 /* takes in what has come; how many messages, or -errno */
long softrdma_cm_save(void *to, size_t room);	 /* the length, also when @room is shorter: then nothing is written */
int softrdma_cm_load(const void *from, size_t n); /* forgets what is there */
int softrdma_cm_join(int accept);		 /* 0: who has asked connects; then, 1: who was asked takes it */
/* @fn gets each connection's own name and the other end's, CM_NAME bytes each. */
int softrdma_cm_each(int (*fn)(const void *own, const void *other, int fd, void *arg), void *arg);
/* Before the first settle: no request is said to another host from now on; not held: they are again. */
void softrdma_cm_hold(int held);
/*
 * @fn gets each connection to another host, by the same names, and how many messages this end has said and heard: settled if the other end has heard
 * and said as many. @where: for who has to be told.
 */
int softrdma_cm_lines(int (*fn)(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg), void *arg);
/* The 16 bytes of an address of this host's, @nth from 0; 1, or 0: it has no more, or no network. */
int softrdma_cm_host(uint32_t nth, void *ret_address);
/* Programs of a host of that address are on this one from now on; or on another one, which has the address @now. Each 0 or -ENOSPC. And: nothing is known of any. */
int softrdma_cm_here(const void *address);
int softrdma_cm_there(const void *address, const void *now);
void softrdma_cm_hosts_forget(void);
/*
 * After load: where the other ends on other hosts of those who were asked find them (cm_door.c): a TCP port of this host's; 0: nobody was, or there is no network; or -errno. And, before
 * join: where others are found.
 */
int softrdma_cm_door(void);
int softrdma_cm_door_at(const void *address, uint16_t port, uint32_t pid); /* of that process, as it is on its host */

/* cm_timer.c */
void cm_move(struct cm_id *id, enum cm_state state);
void cm_timer_stop(struct cm_id *id);
void cm_timer_migrate(struct cm_id *id, struct cm_channel *to);
void cm_timer_expired(struct cm_channel *ch);
void cm_timer_again(struct cm_id *id); /* with the deadline that it has */
void cm_timer_at(struct cm_id *id, uint64_t deadline_ns);

/* cm_name.c */
void cm_name(const struct cm_id *id, int passive, uint8_t name[CM_NAME]);
void cm_name_of_request(const struct cm_message *m, int passive, uint8_t name[CM_NAME]);
/* Where the ends of a connection meet in another life; its length. */
int cm_meeting_address(const uint8_t name[CM_NAME], struct sockaddr_un *sa);

/* cm_here.c: 1: programs of that host have been brought to this one; to another one, at the address that @ret_now gets, port 0. */
int cm_here(const union cm_addr *a);
int cm_there(const union cm_addr *a, union cm_addr *ret_now);
/* In another life: what an id that is brought back has for another host becomes what that has now, if it is a GID. */
void cm_here_renew(union cm_addr *a);
/* An address of this host's becomes the first of its names of lives before, if it has any of that family. */
void cm_here_name(union cm_addr *a);

/* cm_carry.c, where everybody stands still: */
/* Carries what has come; how much, or -errno. */
int cm_carry_settle(void);
/* The request of an id that no other host has been told yet, CM_WIRE_MAX bytes at most; its length, 0: there is none such. */
uint32_t cm_carry_unsaid(const struct cm_id *id, void *packet);

/* cm_id.c */
struct cm_id *cm_id_create(struct cm_channel *ch, uint16_t ps, uint8_t qp_type);
void cm_id_destroy(struct cm_id *id);
struct cm_id *cm_id_find(struct cm_channel *ch, uint32_t handle);
void cm_id_migrate(struct cm_id *id, struct cm_channel *to);
/* The socket is done with. */
void cm_id_hang_up(struct cm_id *id);

/* cm_address.c */
int cm_address_take(union cm_addr *ret, const void *from, size_t len);
size_t cm_address_len(const union cm_addr *a);
int cm_address_any(const union cm_addr *a);
int cm_address_same_host(const union cm_addr *a, const union cm_addr *b);
int cm_address_local(const union cm_addr *a);
int cm_address_bindable(const union cm_addr *a); /* local, or this host's where it is the name of another one */
void cm_address_of_ip(const uint8_t ip[16], uint16_t port, union cm_addr *ret);
int cm_address_source(const union cm_addr *dst, union cm_addr *ret_src);
uint16_t cm_address_port(const union cm_addr *a); /* host order */
void cm_address_set_port(union cm_addr *a, uint16_t port);
uint64_t cm_address_hash(const union cm_addr *a);
void cm_address_to_wire(const union cm_addr *a, struct cm_wire_addr *w);
void cm_address_from_wire(const struct cm_wire_addr *w, union cm_addr *a);
/* IB: the port space that the service names, or 0; completes it. */
uint16_t cm_address_service_ps(struct cm_id *id, union cm_addr *a);
void cm_address_gid(const union cm_addr *a, uint8_t gid[16]); /* as RoCE names it */
void cm_gid(uint8_t gid[16]); /* softrdma's */

/* cm_place.c */
int cm_place_is_kernel(void);
/* @a: of this host, or any. 0, or -ENODEV: of no device's. */
int cm_place_find(const union cm_addr *a, struct cm_place *ret);
/* An id's own; empty where its address has gone. */
void cm_place_of(const struct cm_id *id, struct cm_place *ret);
/* What @id takes for the other end's names, as long as that has not told them; and where that is on a host that has the address @at. */
void cm_place_remote(struct cm_id *id);
void cm_place_far(struct cm_id *id, const union cm_addr *at);
/* Nobody is there where @id asks: it may be a program that only the kernel's rdma_cm reaches. Said once. */
void cm_place_nobody(const struct cm_id *id);
void cm_place_no_network(void); /* other hosts are asked for; said once, too */
int cm_place_address(uint32_t nth, uint8_t address[16]); /* 1; 0: there are no more */

/* cm_port.c */
int cm_port_bind(struct cm_id *id, const union cm_addr *a);
int cm_port_listen(struct cm_id *id, uint32_t backlog);
int cm_port_again(struct cm_id *id); /* what its claim and its state say */
void cm_port_release(struct cm_id *id);
/* Removes the names that dead listeners have left. */
void cm_port_sweep(void);
int cm_same_user(int sock); /* at the other end of @sock */
/* A socket connected to who listens at @dst; -ECONNREFUSED: nobody; -EAGAIN: his backlog is full. Whoever may ask: state of the process is not touched. */
int cm_port_knock(const char *dir, uint16_t ps, const union cm_addr *dst);
/* A port space of a kind of address, as a number from 0 to 7. */
uint32_t cm_port_space(uint16_t ps, const union cm_addr *a);

/* cm_event.c */
struct cm_event *cm_event_new(struct cm_id *id, uint32_t event, int status);
void cm_event_queue(struct cm_event *ev);
int cm_event_tell(struct cm_id *id, uint32_t event, int status);
void cm_event_drop(struct cm_id *id, struct cm_mcast *mc);
void cm_event_move(struct cm_id *id, struct cm_channel *to);
int cm_event_next(struct cm_channel *ch, struct rdma_ucm_event_resp *resp);
void cm_event_private(struct cm_event *ev, const struct cm_message *m);
/* From @id to there. */
void cm_ah_fill(const struct cm_id *id, struct ib_uverbs_ah_attr *ah, uint16_t lid, const uint8_t gid[16]);

/* cm_receive.c: sockets that became readable. They queue one event at most. */
void cm_receive(struct cm_channel *ch, uint32_t handle);

/* cm_connect.c: commands of a connection's life. 0 or -errno. */
int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece);
int cm_accept(struct cm_id *id, uint64_t uid, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece);
int cm_reject(struct cm_id *id, const struct rdma_ucm_reject *cmd);
int cm_disconnect(struct cm_id *id);
int cm_notify(struct cm_id *id, uint32_t event);
int cm_connect_again(struct cm_id *id); /* what it is asking for, in another life */
void cm_connect_retry(struct cm_id *id); /* in this one: it is time */
#define CM_LATE_NS 250000000ull /* how long nobody may listen before a request is refused */
int cm_send(struct cm_id *id, struct cm_message *m);
int cm_send_bare(struct cm_id *id, uint8_t type, uint32_t reason);
/* Where the queue pair of @id is: this host's names, and the process; and where the other end says that its is. */
void cm_message_place(struct cm_message *m, const struct cm_id *id);
void cm_message_place_take(struct cm_id *id, const struct cm_message *m);

/* cm_net.c: other hosts */
/* Makes what is needed for them; 0: there is no network. */
int cm_net_here(void);
void cm_net_stop(struct cm_net *net);
/* A listener is to be found from other hosts. */
void cm_net_listen(struct cm_id *id);
void cm_net_unlisten(struct cm_id *id); /* NULL: the door */
/* A socket that leads to another host: where to, the request says that is sent first. */
int cm_net_connect(void);
/* Where a host is asked for a port's listener, @slot from 0 on. Length; 0: the address leads to no host. */
socklen_t cm_net_address(uint16_t ps, const union cm_addr *dst, uint32_t slot, union cm_addr *ret);

/* cm_door.c */
/* Where the @nth door is, from 0 on, those of process @pid first. Length; 0: there are no more. */
socklen_t cm_door_address(uint32_t nth, uint32_t pid, union cm_addr *ret);
/* A socket to who waits for that JOIN on this host, in this process if it has to be its @own; or -errno. */
int cm_door_knock(const uint8_t name[CM_NAME], int own);

/* cm_resolve.c */
int cm_resolve_addr(struct cm_id *id, const union cm_addr *src, const union cm_addr *dst, uint32_t timeout_ms);
/* In another life, for who had asked for another host. */
int cm_resolve_again(struct cm_id *id);
/* What has been asked for the other host has an answer. */
void cm_resolve_answered(struct cm_id *id);
/* It has not, within its time. */
void cm_resolve_unanswered(struct cm_id *id);
int cm_resolve_route(struct cm_id *id);

/* cm_query.c */
int cm_query_route(struct cm_id *id, struct rdma_ucm_query_route_resp *resp);
int cm_query_addr(struct cm_id *id, struct rdma_ucm_query_addr_resp *resp);
int cm_query_gid(struct cm_id *id, struct rdma_ucm_query_addr_resp *resp);
int cm_query_path(struct cm_id *id, struct rdma_ucm_query_path_resp *resp, size_t room);
uint8_t cm_ack_timeout(const struct cm_id *id); /* of its queue pair */
int cm_init_qp_attr(struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *a);

/* cm_mcast.c */
int cm_join(struct cm_id *id, const union cm_addr *a, uint64_t uid, uint32_t *ret_handle);
int cm_leave(struct cm_channel *ch, uint32_t handle, uint32_t *ret_reported);
void cm_mcast_free(struct cm_mcast *mc);
int cm_mcast_again(struct cm_mcast *mc); /* in another life; 0 or -errno */

/* cm_command.c */
long cm_command(struct cm_channel *ch, const void *buf, size_t n);
