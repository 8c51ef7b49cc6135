/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the socket plugin share. */
#pragma once

#include <asm/ioctls.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/macro.h"
#include "fermata/plugin.h"
#include "plugins/socket/socket_record.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* kernel 5.14 */
#endif
#define SOCKET_LOCK_SEND 1 /* its bits: the size is the program's, not the kernel's */
#define SOCKET_LOCK_RECEIVE 2
#define SOCKET_GUARD_NONE INT32_MIN
#define SOCKET_RECORD_VERSION 2

struct socket_peer { /* the value that each holder of a connected socket publishes */
	uint32_t pid;
	int32_t fd;
	int32_t domain;
	uint32_t host; /* among names of the job: fermata_host() */
	uint64_t ino, peer_ino;
	uint32_t receive_buffer, reserved; /* of TCP: SO_RCVBUF */
};

struct socket_messages { /* struct socket_message, one after the other */
	char *bytes;
	size_t length, room;
};

struct socket_guard { /* the value that a stuck sender publishes: its guard, as the process that leads it knows it */
	uint32_t pid;
	int32_t held, watched;
	int32_t lock; /* SO_BUF_LOCK of the stuck socket, as it was; SOCKET_GUARD_NONE: it can send nothing again, and has no guard */
	uint64_t held_ino, watched_ino;
};

struct socket_state { /* priv, from claim to resume */
	struct socket_record record; /* in the making */
	struct socket_peer peer;
	uint32_t pending; /* LISTENING: connections in its queue */
	bool foreign; /* TCP: connected to an address that is not this host's */
	bool elsewhere; /* to one that is, but no process of this host has that end */
	int widened;  /* its receive buffer was so large, before more was let in; 0: and is */
	int lock;   /* TCP: SO_BUF_LOCK as it was, -errno before Linux 5.14 */
	bool stuck; /* TCP: has a guard, for its receiver to take what it cannot send */
	char *content; /* of TCP: taken out and put back because the sender was stuck; NULL: still to be peeked at */
	size_t content_length;
	struct socket_messages messages; /* of a unix socket, or of UDP */
};

/*
 * What the killed processes left, addresses in TIME_WAIT among it, can be taken over on loopback (tcp_tw_reuse), but not within
 * the same second (tcp_twsk_unique in the kernel): so long it is tried.
 */
#define SOCKET_TRIES 70
#define SOCKET_TRY_NS 20000000

/* Urgent data has a place in the stream, or is beside it, which nothing that is put back would have: -EAGAIN, said, while there is some. When all has arrived. */
int socket_check_urgent(int fd, const struct socket_record *r);

static inline bool socket_is_inet(int domain)
{
	return domain == AF_INET || domain == AF_INET6;
}

static inline bool socket_is_tcp(const struct socket_record *r)
{
	return socket_is_inet(r->domain) && r->type == SOCK_STREAM;
}

static inline bool socket_is_udp(const struct socket_record *r)
{
	return socket_is_inet(r->domain) && r->type == SOCK_DGRAM;
}

static inline bool socket_is_unix_datagram(const struct socket_record *r)
{
	return r->domain == AF_UNIX && r->type == SOCK_DGRAM;
}

/* ---- socket_restart.c: the plugin's hooks of a restart ---- */
int socket_fd_restore(struct fermata_desc *d, const void *record, size_t len);
int socket_fd_reconnect(struct fermata_desc *d, const void *record, size_t len);
int socket_fd_refill(struct fermata_desc *d, const void *record, size_t len);

/* ---- socket_call.c: the calls, raw ---- */
int socket_get(int fd, int level, int name, void *value, size_t len); /* the length or -errno */
int socket_get_int(int fd, int level, int name); /* the value, negative ones not expected, or -errno */
int socket_set(int fd, int level, int name, const void *value, size_t len);
int socket_set_int(int fd, int level, int name, int value);
int socket_name_get(int fd, bool remote, struct socket_name *ret);
int socket_bind(int fd, const struct socket_name *n);
int socket_connect(int fd, const struct socket_name *n);
int socket_poll(int fd, int events, int timeout_ms); /* revents, 0 after the time-out, or -errno */
int socket_queued(int fd, unsigned long request); /* SIOCINQ, SIOCOUTQ */
long socket_receive(int fd, void *buf, size_t n, int flags); /* without waiting */
void socket_pause(void); /* a moment; loopback's own work takes less */
bool socket_is_inode(int fd, uint64_t ino);
/* Ends a connection with an error for both of its sides, if it is one still. What is queued is lost. */
void socket_reset(int fd);
/* "127.0.0.1:80", "[::1]:80", a path or "@abstract" */
/* In a restart: a path of a record becomes the one that it is now. 0, or -ENAMETOOLONG, said. */
int socket_name_move(struct socket_name *n);
void socket_name_text(const struct socket_name *n, char *buf, size_t size);

struct socket_end { /* an address of IP and a port, as both families agree on it */
	uint8_t address[16]; /* IPv4: mapped */
	uint16_t port;
} PACKED;
struct socket_end socket_end_of(const struct socket_name *n);
/* Whether a connection to @to comes in at a listener at @at, the ports being equal. */
bool socket_end_reaches(const struct socket_end *to, const struct socket_end *at);

/* ---- socket_address.c ---- */
#define SOCKET_ADDRESSES 24
bool socket_is_local(const struct socket_name *n); /* an address that this host has */
bool socket_is_loopback(const struct socket_name *n);
uint64_t socket_network(void); /* in which network namespace this is */
uint32_t socket_addresses(bool ip6, uint8_t ret[SOCKET_ADDRESSES][16]); /* of this host, loopback left out; IPv4: mapped */

/* ---- socket_far.c: connections between hosts ---- */
/* Of a connection to another host, or so it seems: makes itself known to the job. The keys are those of socket_tcp.c. */
int socket_far_claim(struct socket_state *s, const void *own_key, const void *other_key, size_t length);
int socket_far_publish_port(const struct socket_state *s); /* of a listener */
bool socket_far_resolve(const struct socket_state *s, const void *key, size_t length, struct socket_peer *ret); /* the lowest holder on another host */
void socket_far_found(struct socket_state *s, const struct socket_peer *peer);
int socket_far_ask_listener(struct socket_state *s); /* before the next is asked. 0 or -errno */
bool socket_far_has_listener(const struct socket_state *s); /* somebody in the job listens where it is connected to */
int socket_far_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round);

/* ---- socket_far_restart.c, _dial.c, _refill.c: as the plugin's hooks ---- */
bool socket_is_far(const struct socket_record *r);
int socket_far_restore(const struct fermata_desc *d, const struct socket_record *r, const char *content);
int socket_far_reconnect(const struct fermata_desc *d);
int socket_far_refill(const struct fermata_desc *d);
void socket_far_end(void);

/* ---- socket_filter.c ---- */
#define SOCKET_FILTER_MAX 256u /* instructions */
/* As options: how many, or -errno. */
int socket_filter_dump(int fd, struct socket_option *options, uint32_t room);
int socket_filter_restore(int fd, int number, const struct socket_option *o, uint32_t count);

/* ---- socket_option.c ---- */
int socket_options_dump(int fd, const struct socket_record *r, struct socket_option *options, uint32_t room);
/* @early: those that matter before bind; else the others. @number names the socket in a message. */
int socket_options_restore(int fd, int number, const struct socket_option *o, uint32_t count, bool early);

/* ---- socket_tcp.c, socket_unix.c ---- */
/* Its peer is out of the job: 1, and it is one that has been reset (--external); 0: that is to be refused. */
int socket_let_go(struct socket_state *s);
int socket_tcp_claim(struct fermata_desc *d, struct socket_state *s);
int socket_tcp_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round);
/* All has arrived: also an end of file that was still on its way when the first round looked (a busy machine takes its time over its own loopback). */
int socket_tcp_drained(struct fermata_desc *d, struct socket_state *s);
int socket_tcp_follow(struct fermata_desc *d, struct socket_state *s, unsigned int round);
/*
 * All that was sent lies in the receiver's queue: acknowledged, or, as acknowledgements may take 200 ms, counted there. Sequence
 * numbers count a FIN as a byte, bytes_sent does not.
 */
bool socket_tcp_arrived(int sender, int receiver);
int socket_unix_claim(struct fermata_desc *d, struct socket_state *s);
int socket_unix_let_go(struct fermata_desc *d);
int socket_unix_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round);

/* ---- socket_datagram.c ---- */
/* Its peer; NULL: that is not of the job. */
int socket_datagram_peer(struct fermata_desc *d, struct socket_state *s, const struct socket_peer *peer);
int socket_datagram_check(int fd, const struct socket_record *r, const struct socket_messages *all);
int socket_datagram_refill(struct fermata_desc *d, const struct socket_record *r, const char *content);
int socket_datagram_shut(int fd, const struct socket_record *r);
/* All queues are filled. */
void socket_datagrams_end(void);

/* ---- socket_udp.c ---- */
int socket_udp_claim(struct socket_state *s);
void socket_udp_connect(int fd, int number, const struct socket_record *r);
/* How many groups it is in, as options, or -errno. */
int socket_udp_groups(int fd, const struct socket_record *r, struct socket_option *options, uint32_t room);

/* ---- socket_udp_queue.c: what has not been read ---- */
int socket_udp_publish(const struct socket_record *r); /* its address: it may be a sender's */
int socket_udp_drain(const struct fermata_desc *d, struct socket_state *s, unsigned int round);
void socket_udp_refill(const struct fermata_desc *d, const struct socket_record *r, const char *content);

/* ---- socket_netlink.c ---- */
int socket_netlink_claim(struct fermata_desc *d, struct socket_state *s);
int socket_netlink_groups(int fd, struct socket_option *option); /* as one option: how many options */
int socket_netlink_join(int fd, const struct socket_option *o);
int socket_netlink_bind(int fd, int number, const struct socket_record *r);

/* ---- socket_peek.c ---- */
int socket_messages_reserve(struct socket_messages *b, size_t more); /* room for so many bytes more. 0 or -ENOMEM */
/* What is queued in a unix socket, in ret->bytes, which is the caller's to free. */
int socket_peek_unix(int fd, int type, uint64_t ino, struct socket_messages *ret);
/* The descriptors in its queue, in their order; each is @take's from then on. */
int socket_peek_descriptors(int fd, int type, uint64_t ino, int (*take)(void *arg, int fd), void *arg);

/* ---- socket_seen.c ---- */
bool socket_seen(uint64_t ino); /* an empty message, in the socket's queue */
int socket_seen_add(uint64_t ino); /* 0 or -ENOMEM */
void socket_seen_remove(uint64_t ino);
void socket_seen_forget(void); /* in a restart */

/* ---- socket_flight.c ---- */
int socket_flight_unpack(struct fermata_desc *d);
/* Writes the numbers into the messages that had been peeked at @fd. */
int socket_flight_assign(int fd, uint64_t ino, struct socket_messages *all);
int socket_flight_refill(void);
void socket_flight_end(void);

/* ---- socket_message.c ---- */
int socket_process_publish(void);
int socket_name_publish(int fd, const struct socket_name *n);
int socket_name_ask(const struct socket_name *n);
/* Who holds the socket with that name. */
bool socket_name_resolve(const struct socket_name *n, uint32_t *ret_pid, int32_t *ret_fd);
/* The message at *@at, which moves on; NULL at the end, or where the bytes are none. */
const struct socket_message *socket_message_next(const void *all, size_t len, size_t *at);
bool socket_message_is_from(const struct socket_message *m, const struct socket_name *n);
int socket_messages_ask(const struct socket_messages *all);
int socket_messages_answer(int fd, struct socket_messages *all);
/* Sends the content of @r into @to, the other end of @fd. */
int socket_messages_put(int number, int to, int fd, const struct socket_record *r, const char *content);
/* Sends one datagram to @at from the socket that has its sender's name. */
int socket_message_put_from_sender(int number, const struct socket_name *at, const struct socket_message *m);
/* Elects the maker once the peer is known. */
void socket_peer_found(struct fermata_desc *d, struct socket_state *s, const struct socket_peer *lowest);
/* The lowest holder among the answers to @key, one of this host before any other; false: nobody in the job. @job: the key is a name of the job. */
bool socket_peer_resolve(bool job, const void *key, size_t keylen, struct socket_peer *ret);

/* ---- socket_pending.c ---- */
int socket_listening_claim(struct fermata_desc *d, struct socket_state *s);
/* The connection of @s waits in a listener's queue: FERMATA_DRAIN_MORE or -errno. */
int socket_pending_found(struct fermata_desc *d, struct socket_state *s);
/* For both sides of such a queue. */
int socket_pending_drain(struct fermata_desc *d, struct socket_state *s, unsigned int round);
/* REFILL: back into the queue. */
int socket_pending_connect(struct fermata_desc *d, const struct socket_record *r);

/* ---- socket_connecting.c ---- */
/* A socket of TCP in the state SYN_SENT: claim, drain, REFILL, and when all is back. */
int socket_connecting_claim(struct fermata_desc *d, struct socket_state *s);
int socket_connecting_drain(struct fermata_desc *d, struct socket_state *s);
int socket_connecting_later(struct fermata_desc *d, const struct socket_record *r);
void socket_connecting_restarted(void);

/* ---- socket_diag.c ---- */
struct socket_unix_info {
	uint32_t ino, peer_ino; /* peer 0: none or not held by a descriptor */
	bool has_peer;
	uint32_t path_ino; /* the low half of the number of the file that it was bound to; 0: to none */
	uint32_t shutdown; /* 1: receive, 2: send */
	uint32_t pending, backlog; /* of a listening one */
};
int socket_diag_unix(uint32_t ino, struct socket_unix_info *ret);
struct socket_tcp_seen {
	uint32_t ino; /* 0: held by no descriptor */
	uint32_t state; /* socket_tcp.h */
};
/* The TCP socket at (@local, @remote) on this host. 0, or -ENOENT. */
int socket_diag_tcp(const struct socket_name *local, const struct socket_name *remote, struct socket_tcp_seen *ret);
/* Whom the TCP socket with inode @ino, in the state SYN_SENT, has asked: getpeername does not tell. 0, or -ENOENT: it is not in that state. */
int socket_diag_connecting(int domain, uint64_t ino, struct socket_name *ret);

/* ---- socket_lone.c ---- */
struct tcp_info;
/* What the other end of @d has sent before its end, with that: 0, or -EAGAIN: it does not all fit. */
int socket_lone_let_in(struct fermata_desc *d, struct socket_state *s);
/* Nobody of the job has the other end: what it is. As a drain's hook. */
int socket_lone_found(struct fermata_desc *d, struct socket_state *s, const struct tcp_info *info);
void socket_lone_claim(struct fermata_desc *d, struct socket_state *s); /* it is in the state CLOSE */

/* ---- socket_queue.c ---- */
int socket_queue_peek(int fd, char **ret, size_t *ret_len);
/*
 * Writes @bytes into @to, on their way to @fd, its other end. @back: without a time limit, so an error says that the connection is
 * dead; else -ENOBUFS when they do not fit.
 */
int socket_queue_write(int to, int fd, const char *bytes, size_t len, bool back);
/* The receive buffer of @fd becomes as large as it was, and as the kernel's own tuning would let it be. */
void socket_queue_make_room(int fd, const struct socket_record *record);
/* More than it has set itself, for what is still to come; and back, behind the drain. */
void socket_queue_widen(const struct fermata_desc *d, struct socket_state *s);
void socket_queue_narrow(const struct fermata_desc *d, struct socket_state *s);
/* The largest that SO_SNDBUF gives, as it reads. */
int socket_send_buffer_limit(void);
/* Writes the content of @record into @peer_end, so that it lies in the queue of @fd. @number names it in a message. */
int socket_queue_put(int number, int peer_end, int fd, const struct socket_record *record, const char *content);

/* ---- socket_stuck.c ---- */
/* The receiver, in a hook of its own: takes what is under way to @fd, puts it back. Errors that come before are harmless. */
int socket_stuck_take(struct fermata_desc *d, struct socket_state *s, const struct socket_guard *guard);

/* ---- socket_guard.c ---- */
int socket_guard_make(int fd, struct socket_guard *ret);
int socket_guard_watch(int fd, bool receives, const struct socket_guard *name);
/* A copy of the held end: its maker stands, and all who watch it will until that is closed. -ESTALE: it has gone on. */
int socket_guard_hold(const struct socket_guard *name);
/* Once when the connection is being touched, once when it is whole again. */
void socket_guard_mark(int held);
/* The way back to the program. Waits. */
void socket_guards_end(void);
/* After a restart there are none. */
void socket_guards_forget(void);

/* ---- socket_pair.c ---- */
/* Both ends of a connection: ret[0] as @r tells, ret[1] its peer, each with its old name where that can be had. */
int socket_pair_make(int number, const struct socket_record *r, int ret[2]);
/* A name for who connects: also one that a dead connection still has. */
int socket_bind_connecting(int fd, int domain, const struct socket_name *from);
/* Connects @fd, from its old address if that can be had. */
int socket_connect_from(int fd, int domain, const struct socket_name *from, const struct socket_name *to);

/* ---- socket_path.c ---- */
/* Where the file of a unix socket that is bound to a path is, and its mode. @ino: of struct socket_unix_info. 0, or -EOPNOTSUPP: said. */
int socket_path_note(const struct fermata_desc *d, struct socket_record *r, uint32_t ino);
/* Removes a socket file that nobody listens at any more. */
void socket_path_clear(const struct socket_name *n);
/* Before it is bound anew: what is left there of the killed goes, and a directory that is missing is made again. */
void socket_path_prepare(const struct socket_record *r);
/* It was bound anew: the file there gets what it had; one that was not there any more, or is elsewhere, does when all connections are there. */
int socket_path_bound(const struct socket_record *r);
/* REFILL: it has got its name, beside the one that others connect to. */
void socket_path_link(void);
/* All connections are there. */
void socket_path_end(void);
