/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between hosts, inside: a context's connections to contexts of other hosts, and what each of its queue pairs that leads
 * there has under way. The protocol is in doc/softrdma-protocol.md.
 *
 * Locks, in this order:
 *
 *   sq_lock of an unreliable datagram QP | net_conn.lock | sq_lock of another QP | rx_lock | CQ's
 *   net.lock: the tables of connections and of QPs; a leaf, but that a connection's lock may be taken before it
 *
 * A connection's lock covers its socket, its buffers, and the net_qp of each queue pair that goes over it. Nobody sleeps
 * or waits for the network with a lock held.
 */
#pragma once

#include <netinet/in.h>

#include "base/thread.h"
#include "softrdma/engine.h"
#include "softrdma/net_wire.h"

#define NET_IN (64u << 10)
#define NET_OUT (32u << 10)
#define NET_SMALL 2048u	     /* payloads up to this are copied to be sent */
#define NET_BUFFERED 8192u   /* payloads up to this are taken from the buffer in one piece */
#define NET_READS 16u	     /* not answered, a queue pair */
#define NET_GUESTS 64u
#define NET_GROUPS 16u	     /* of IP, for all of ours */
#define NET_KEY_MAX 256u
#define NET_SECOND 1000000000ull
#define NET_MS 1000000ull

struct net_name {
	uint8_t gid[16];
	uint32_t index;
};

/* What an event of wait_fd is about. */
enum net_tag { NET_TAG_EVENT, NET_TAG_TIMER, NET_TAG_LISTENER, NET_TAG_SOCKETS, NET_TAG_GROUPS, NET_TAG_GUEST };

enum net_conn_state { NET_DOWN, NET_DIALLING, NET_GREETING, NET_UP };

/* Where the payload of the frame that is being sent comes from. */
enum net_source { NET_FROM_NOTHING, NET_FROM_REQUEST, NET_FROM_ANSWER, NET_FROM_SPILL };

struct net_answer {
	uint32_t seq;
	uint32_t atomic; /* the value is there already */
	uint32_t rkey, pd, length, offset;
	uint64_t address;
	uint64_t value;
};

enum net_due { NET_DUE_ACK = 1, NET_DUE_NAK = 2, NET_DUE_READY = 4 };

enum net_wait { NET_GOES, NET_WAITS_RNR, NET_WAITS_ABSENT };

/* A queue pair that leads to another host. Never freed while the context lives: recycled. */
struct net_qp {
	struct sr_qp *qp; /* NULL: free */
	struct net_conn *_Atomic conn;
	struct list link; /* conn->qps; or net->free_qps */
	uint32_t qpn, dest_qpn, life;
	uint16_t dest_site;
	int unreliable;

	/* Requester; numbers are those of the send ring. */
	struct list send_link; /* conn->sending; empty: not on it */
	struct list busy_link; /* conn->busy */
	uint32_t base;	       /* number of the request with seq 0 */
	uint32_t next, next_offset;
	uint32_t sent; /* behind the furthest one ever begun */
	uint32_t acked;
	uint32_t read_done, read_offset;
	uint32_t reads, atomics; /* under way */
	uint32_t fault, fault_at; /* a final status, and whose */
	enum net_wait wait;
	uint32_t tries, rnr_tries;
	uint32_t refusals; /* answers, ever, that there is no receive */
	uint64_t resume_ns, progress_ns;

	/* Responder. */
	struct list due_link; /* conn->due */
	uint32_t due;
	uint32_t rx_life, rx_known, expected, rx_offset;
	uint32_t nak_status, nak_timer;
	int refused; /* for good: that NAK is repeated to who asks again */
	uint32_t answer_head, answer_tail;
	struct net_answer answer[NET_READS];
	uint32_t result_seq[NET_READS];
	uint64_t result[NET_READS];
};

#define NET_TURN 16u	  /* fragments of a queue pair in a row */
#define NET_GATHER 48u /* pieces; at least those of one request */

/* Short payloads of one turn, which are copied into the buffer together. */
struct net_gather {
	uint32_t n, nv;
	uint32_t number[NET_TURN]; /* of the request */
	struct iovec to[NET_TURN], begin[NET_TURN];
	struct iovec from[NET_GATHER];
};

#define NET_PROBES 4

/* A try whether the host is there. */
struct net_probe {
	int fd; /* -1: none */
	uint64_t since;
};

struct net_conn {
	struct list link; /* net->conns */
	struct sr_net *net;
	struct net_name name;
	struct lock lock;
	enum net_conn_state state;
	int fd;
	int dialled; /* by us */
	int watched_out;
	int refused; /* the last dial was: nobody is there */
	int heard;   /* the other end has this connection too: net_conn.c */
	int mute;    /* nothing more is said; what has come is taken in */
	int given_up; /* the host does not answer, and a queue pair's tries are used up, or TCP waits too long */
	struct net_probe probe[NET_PROBES];
	uint32_t probe_last;
	uint64_t probe_every, probe_until, probe_heard; /* every 0: nobody asks */
	int redial; /* the host answers, but not to the dial under way: that was lost */
	uint64_t dial_since, dial_limit_ns, dial_next, up_since;
	struct net_hello hello; /* ours of this dial */
	struct list qps, sending, due, busy;
	int urgent; /* what is due should not wait for the next poll */

	/* Out: frames and small payloads, then one large payload. */
	uint32_t out_at, out_end;
	enum net_source source;
	struct net_qp *source_qp;
	uint32_t source_number; /* of the request */
	uint32_t source_offset, source_left;
	char *spill;
	struct net_gather gather;

	/* In. */
	uint32_t in_at, in_end;
	int in_frame, large, discard;
	struct net_qp *in_qp; /* whom the long payload is for */
	uint32_t left;
	_Atomic uint64_t pause_until; /* those who poll do not look before; 0: they do */
	uint64_t drained, ns_a_kib;   /* within a long payload: when the socket had no more of it (0: it has); how fast it comes */
	struct net_frame f;
	char out[NET_OUT];
	char *in;	  /* NET_IN bytes, */
	uint64_t in_base; /* as net->arrived has them */
};

/* A connection that was accepted and has not shown its proof. */
struct net_guest {
	int fd; /* -1: free */
	uint8_t address[16];
	uint32_t got;
	uint64_t since;
	struct net_hello theirs, ours;
	uint8_t proof[NET_MAC];
	int greeted;
};

struct sr_net {
	struct sr_context *ctx;
	struct sr_peer arrived, here; /* net_copy.c */
	uint32_t buffers;
	uint8_t gid[16]; /* the address, */
	uint32_t interface; /* IPv6: and where it is */
	uint32_t key_length;
	uint8_t key[NET_KEY_MAX];
	int listen_fd, wait_fd, sockets_fd, event_fd, timer_fd;
	struct lock lock;
	struct list conns, free_qps;
	struct net_conn *_Atomic single; /* the only connection with a socket; NULL: none or several */
	_Atomic uint32_t nr_open;
	struct net_qp *_Atomic qp[SR_MAX_QP];
	_Atomic uint64_t timer_due; /* 0: it does not run */
	struct net_guest guest[NET_GUESTS];
	int group_fd; /* net_group.c; -1: not needed yet; below: it cannot be had */
	uint32_t group_users[NET_GROUPS]; /* ctx->lock */
	uint8_t group_key[32];
	uint64_t cookie; /* net_end.c */
	_Atomic int stopping, leaving;
	int started;
	/* The thread leaves the sockets to who polls. */
	_Atomic uint32_t polls;   /* that found nothing */
	_Atomic uint32_t polling; /* the last one did: its program waits for more */
	uint32_t polls_seen, contended;
	int left_to_polls;
	uint64_t complain_ns; /* what error lines have cost so far; not before then */
	struct raw_thread thread;
	char *stack;
};

static inline int net_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

/* One for ctx->net, of which nothing is bound yet, or NULL; its end as long as nobody else knows it. */
struct sr_net *net_make(struct sr_context *ctx, const uint8_t *key, uint32_t length, const uint8_t gid[16], uint32_t interface);
void net_discard(struct sr_net *net);
/* Listens at the port that goes with an index. 0 or an error. */
int net_claim(struct sr_net *net, uint32_t index);
/* net_apart.c: the address of a host as a name; 0: this one's. */
void net_host_name(const struct sr_net *net, uint32_t host, uint8_t ret[16]);
/* net_address.c: 0, or -ENOENT: this user's hosts are no fabric; -EACCES and so on: something is wrong with the key. */
int net_address_find(struct sr_host *ret_host);
/* net_key.c */
int net_key_read(uint8_t key[NET_KEY_MAX], uint32_t *ret_length, int complain);
/* Of a host on our network, as 16 bytes. */
void net_name_fill(const struct sr_host *h, uint32_t address, uint8_t ret[16]);
/* The address of a port of an index there; its length. */
union net_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};
socklen_t net_sockaddr_fill(const uint8_t name[16], uint32_t port, union net_sockaddr *ret);
/* "ADDRESS:PORT". */
void net_name_show(const uint8_t name[16], uint32_t port, char *buf, size_t size);
void net_proof(const struct sr_net *net, char side, const struct net_hello *dialler, const struct net_hello *listener,
	       uint8_t ret[NET_MAC]);
/* As net_proof, where there is no context. */
void net_key_proof(const uint8_t *key, uint32_t length, char side, const struct net_hello *dialler,
		   const struct net_hello *listener, uint8_t ret[NET_MAC]);
int net_proof_equal(const uint8_t a[NET_MAC], const uint8_t b[NET_MAC]);

/* net_conn.c: with the connection's lock held. */
struct net_conn *net_conn_get(struct sr_net *net, const struct net_name *name);
void net_conn_dial(struct net_conn *c);
/* @why: NULL when nothing is wrong. */
void net_conn_break(struct net_conn *c, const char *why);
/* It can say nothing more; what has come is still taken in, then it breaks. */
void net_conn_mute(struct net_conn *c, const char *why);
/* A socket that may be connected to the other end's port, or -errno. */
int net_dial_socket(const struct net_conn *c, union net_sockaddr *ret_to, socklen_t *ret_length);
/* Goes on with a dial; what a socket that can be written to means before it is up. */
void net_conn_greet(struct net_conn *c);
/* A guest's socket becomes the connection's. 0, or -EEXIST: our own dial is to stay. */
int net_conn_adopt(struct net_conn *c, int fd);
void net_conn_up(struct net_conn *c, int dialled);
/* The first that comes from who was dialled. */
void net_conn_heard(struct net_conn *c);
void net_conn_clock(struct net_conn *c, uint64_t now);
void net_hello_make(struct sr_net *net, struct net_hello *h);
/* Events of the socket. */
void net_conn_watch(struct net_conn *c, int out);

/* net_end.c */
/* Of a context that is closed. What is on its way is let go until @limit_ns. */
void net_conn_close(struct net_conn *c, uint64_t limit_ns);
/* Its thread runs: the process does not end without asking it; it shall not be asked any more. */
void net_exit_know(struct sr_net *net);
void net_exit_forget(struct sr_net *net);
/* By the thread: the process may be at its end. */
void net_leave(struct sr_net *net);

/* net_tcp.c */
void net_tcp_options(int fd);
int net_host_answers(const struct net_conn *c, uint64_t within_ns);
/* It has sent in vain, and says nothing for longer than a second. */
int net_tcp_waits(const struct net_conn *c);

/* net_probe.c */
/* Nothing else was heard for @interval_ns, so it asks, and goes on for as long. Has the host shown within that time that it is there? */
int net_probe(struct net_conn *c, uint64_t now, uint64_t interval_ns);
void net_probe_tick(struct net_conn *c, uint64_t now);
void net_probe_end(struct net_conn *c);

/* net_guest.c: who connects to us. By the thread alone. */
void net_guests_accept(struct sr_net *net);
void net_guest_read(struct sr_net *net, uint32_t number);
void net_guests_expire(struct sr_net *net, uint64_t now);

/* net_tx.c */
/* Sends what there is to send until the socket takes no more. */
void net_pump(struct net_conn *c);
/* What is begun or owed goes to the kernel, and nothing more is begun. 0, or -errno; -EAGAIN: it takes no more now. */
int net_hand_over(struct net_conn *c);
/* A frame, if there is room for it and @payload bytes. NULL: there is not; else where they go. */
char *net_frame_put(struct net_conn *c, const struct net_frame *f, uint32_t payload);
/* What is still to be sent of @n's payload is copied: its memory may go. */
void net_spill(struct net_conn *c, struct net_qp *n);
void net_due_add(struct net_conn *c, struct net_qp *n, uint32_t what);

/* net_copy.c: what the program may have unmapped. 0 or -EFAULT; the pieces are used up. */
void net_buffers_init(struct sr_net *net);
void net_buffers_close(struct sr_net *net);
/* net->lock held. */
int net_buffer_make(struct sr_net *net, struct net_conn *c);
/* A payload in c->in, as memory of net->arrived. */
struct iovec net_arrived(const struct net_conn *c, const char *payload, uint32_t length);
int net_copy_in(struct net_conn *c, struct pieces *to, const char *from);
int net_copy_out(struct net_conn *c, char *to, struct pieces *from);
/* What cannot be gone. */
void net_copy_known(char *to, const struct pieces *from);
int net_gather_has_room(const struct net_gather *g, uint32_t pieces);
void net_gather_add(struct net_gather *g, uint32_t number, char *to, const struct pieces *from);
int net_gather_run(struct net_conn *c, uint32_t *ret_number, char **ret_to);

/* net_rx.c */
/* Takes in what has come, up to a limit. 1: something had. */
int net_receive(struct net_conn *c);

/* net_request.c, net_send.c, net_reply.c: the requester's side. */
/* It may have something to send. */
void net_request_start(struct net_conn *c, struct net_qp *n);
/* After a post or a move: sq_lock held. */
void net_request_run(struct net_conn *c, struct net_qp *n);
/* Puts the next fragment into the buffer. 1: more may follow; 0: nothing more to send now. sq_lock held. */
int net_request_stage(struct net_conn *c, struct net_qp *n);
/* The short payloads of what was put there. 0: one is not there, and nothing from that request on is sent. sq_lock held. */
int net_request_gather(struct net_conn *c, struct net_qp *n);
int net_request_pieces(struct net_conn *c, struct net_qp *n, uint32_t number, uint32_t offset, uint32_t length,
		       struct pieces *p);
void net_request_sent(struct net_conn *c, struct net_qp *n);
void net_acked(struct net_conn *c, const struct net_frame *f);
void net_refused(struct net_conn *c, const struct net_frame *f);
void net_resumed(struct net_conn *c, const struct net_frame *f);
/* The memory for a fragment of a READ's answer; then that it is there. */
struct net_qp *net_data_accept(struct net_conn *c, const struct net_frame *f);
int net_data_pieces(struct net_conn *c, struct net_qp *n, const struct net_frame *f, uint32_t offset, uint32_t length, struct pieces *p);
void net_data_done(struct net_conn *c, struct net_qp *n, const struct net_frame *f);
/* It cannot be put there. */
void net_data_fault(struct net_conn *c, struct net_qp *n, const struct net_frame *f, enum ibv_wc_status status);
/* After a connection broke: all over again from the oldest. */
void net_request_again(struct net_conn *c, struct net_qp *n);
void net_request_rewind(struct net_conn *c, struct net_qp *n, uint32_t number);
/* The clock of a queue pair. When it has to be looked at again; 0: never. */
uint64_t net_request_clock(struct net_conn *c, struct net_qp *n, uint64_t now);
/* The memory of the request @number is not there. */
void net_request_fault(struct net_conn *c, struct net_qp *n, uint32_t number);
void net_flush(struct net_conn *c, struct net_qp *n);
void net_stop(struct net_conn *c, struct net_qp *n);

/* net_respond.c, net_place.c: the responder's side. */
/* NULL: the payload is dropped. */
struct net_qp *net_request_accept(struct net_conn *c, const struct net_frame *f);
void net_ping_take(struct net_conn *c, const struct net_frame *f);
void net_request_take(struct net_conn *c, struct net_qp *n, const struct net_frame *f, char *payload);
/* Locks the queue pair and says where @length bytes from @offset go; 0, or -1: refused, nothing is locked. */
int net_place_lock(struct net_conn *c, struct net_qp *n, const struct net_frame *f, uint32_t offset, uint32_t length,
		   struct pieces *p);
void net_place_unlock(struct net_qp *n);
/* The memory that the request is for is not there. */
void net_respond_fault(struct net_conn *c, struct net_qp *n, const struct net_frame *f);
void net_fragment_done(struct net_conn *c, struct net_qp *n, const struct net_frame *f);
/* As net_place_lock, for the answer to a READ. */
int net_answer_lock(struct net_conn *c, struct net_qp *n, uint32_t offset, uint32_t length, struct pieces *p);
/* The oldest answer cannot be given: its memory is gone, or its key is. */
void net_answer_fault(struct net_conn *c, struct net_qp *n, enum ibv_wc_status status);
void net_respond_reset(struct net_qp *n);
struct net_qp *net_qp_find(struct net_conn *c, uint32_t qpn);

/* net_ud.c */
void net_datagram_take(struct net_conn *c, const struct net_frame *f, char *payload);

/* net_group.c: messages to groups have come. By the thread alone. */
void net_groups_read(struct sr_net *net);

/* net_spawn.c */
/* A thread that libc does not know of, on a stack of its own; its end waits for @fn's. 0 or -errno. */
int net_thread_spawn(struct raw_thread *t, char **ret_stack, void (*fn)(void *), void *arg);
void net_thread_join(struct raw_thread *t, char *stack);

/* net_thread.c */
int net_thread_start(struct sr_net *net);
void net_thread_stop(struct sr_net *net);
void net_timer_set(struct sr_net *net, uint64_t due);
uint64_t net_now(void);
/* The one behind @c; NULL: the first, or none. */
struct net_conn *net_conn_next(struct sr_net *net, struct net_conn *c);

/* What @length bytes from @offset of @all are. */
void net_cut(const struct pieces *all, uint32_t offset, uint32_t length, struct pieces *ret);
