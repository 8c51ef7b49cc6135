/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma_cm between hosts, inside: the thread of a process's channels and what it carries. doc/softrdma-protocol.md has what goes over the wire.
 *
 * A *line* is one connection: @near, a SOCK_SEQPACKET socket whose other end is an id's or a listener's, as on one host, and @far,
 * a TCP connection. Lines are under cm_net.carrying: who carries is the thread, or, where everybody stands still, who brings processes back
 * (cm_carry.c). What commands and the thread share is under cm_net.lock, a leaf (cm_lock or cm_net.carrying may be held before it): the listeners,
 * and the near ends that are on their way to the thread. Who carries never takes cm_lock.
 */
#pragma once

#include "softrdma/cm.h"
#include "softrdma/net.h"

/* What an event is about: a line (its address, and the lowest bit for its near end), a listener's number, or the bell. */
#define CM_TAG_BELL 2ull
#define CM_TAG_LISTENER 4ull
#define CM_TAG_BITS 7ull
#define CM_TAG_NUMBER 3

#define CM_DOOR 16u /* in place of a port space: no listener's port, but cm_door.c's */
#define CM_GUESTS 64u /* without a proof, or without a request */

enum cm_line_state {
	LINE_NEW,	    /* waits for the request of its near end */
	LINE_PAUSE,	    /* before the next round of dials; without a clock: held */
	LINE_DIALLING,
	LINE_GREETING,	    /* our hello is sent */
	LINE_ASKED,	    /* our request is sent: no more slots when anything else comes than "not here" */
	LINE_UP,	    /* messages go both ways */
	LINE_GUEST,	    /* connected to us: its hello, */
	LINE_GUEST_PROOF,   /* its proof, */
	LINE_GUEST_REQUEST, /* and its request are to come */
	LINE_CLOSING,	    /* the near end has gone; what was said last is on its way */
	LINE_DEAD,
};

struct cm_line {
	struct list link;
	struct cm_net *net;
	enum cm_line_state state;
	int near, far; /* -1 */
	uint64_t due;  /* 0: it has no clock */
	union cm_addr peer; /* where @far leads */
	uint8_t name[CM_NAME]; /* this end's, once the request is known */
	uint32_t said, heard;  /* messages: cm_carry.c */
	uint64_t since;
	/* A dialler's. */
	union cm_addr dst;
	uint16_t ps;
	uint32_t slot;
	int joins; /* its request is a JOIN: the slots are doors, */
	uint32_t joined_pid; /* this process's first */
	int silent; /* a slot of this round has not answered */
	uint64_t limit_ns;
	uint32_t request_len;
	char request[CM_WIRE_MAX];
	/* A guest's. */
	uint32_t space, port; /* of the listener that it has come to */
	struct net_hello ours, theirs;
	uint32_t got;
	char in[CM_WIRE_MAX];
};

struct cm_net_listener {
	struct list link;
	struct cm_id *id;
	uint32_t number, space, port;
	int fd;
};

struct cm_net_near {
	struct list link;
	int fd;
};

struct cm_net {
	struct arena arena;
	struct lock carrying;
	struct lock lock;
	struct list listeners, nears; /* under @lock */
	uint32_t last_number;
	uint32_t key_length;
	struct sr_host host;
	uint8_t key[NET_KEY_MAX];
	char dir[CM_DIR_MAX];
	int wait_fd, event_fd;
	_Atomic int stopping;
	struct raw_thread thread;
	char *stack;
	/* Under @carrying. */
	struct list lines;
	uint64_t due; /* the first clock among them; 0: none */
	uint64_t complain_ns;
	uint32_t moved; /* messages, and ends of lines */
	int held;	/* no request is said */
	int crowded;	/* listeners are not watched: too many guests */
};

/* cm_net.c */
/* Guests that come to the listening socket @fd are @id's, or the door's (NULL). 0, or -ENOMEM: @fd is closed. */
int cm_net_listener_add(struct cm_id *id, int fd, uint32_t space, uint32_t port);
void cm_net_ring(struct cm_net *net); /* wakes the thread */
void cm_net_nears_take(struct cm_net *net);
void cm_net_guest_accept(struct cm_net *net, uint32_t number);
void cm_net_doors(struct cm_net *net); /* open again, if they were shut and need not be */

/* cm_carry.c */
void cm_carry_main(void *net);

/* cm_line.c */
void cm_line_near_new(struct cm_net *net, int fd);
void cm_line_guest_new(struct cm_net *net, int fd, uint32_t space, uint32_t port);
/* May another one come in? */
int cm_line_guest_room(struct cm_net *net);
/* @is_near: which of the two has something. */
void cm_line_event(struct cm_line *l, int is_near);
void cm_line_clocks(struct cm_net *net);
/* All that the near ends have said goes out. */
void cm_lines_end(struct cm_net *net);
/* Takes out those that are over. No event of theirs may be in hand. */
void cm_lines_reap(struct cm_net *net);

/* cm_line.c, for cm_dial.c and cm_hello.c */
void cm_line_end(struct cm_line *l);
void cm_line_clock(struct cm_line *l, uint64_t due);
void cm_line_watch(struct cm_line *l, int op, int fd, uint32_t events);
void cm_line_hang_up(struct cm_line *l, int *fd);

/* Bytes into l->in, up to @want. 1: they are there; 0: not yet; -1: the other end has gone. */
int cm_line_read(struct cm_line *l, uint32_t want);
int cm_line_say(struct cm_line *l, const void *bytes, size_t n);
/* A guest has found its listener. */
void cm_line_listened(struct cm_line *l, int fd);
/* "Not here", or "no room", as an answer to the request @m. */
size_t cm_line_refusal(const struct cm_message *m, int full, char *packet);

/* cm_dial.c: goes on with the slot that it has come to, unless it is held. */
void cm_dial_on(struct cm_line *l);
/* Until it is held no more. */
void cm_line_park(struct cm_line *l);
/* The connect has ended, well or not. */
void cm_dialled(struct cm_line *l);
/* This slot is not it; @silent: nobody said so. */
void cm_line_slot_next(struct cm_line *l, int silent);

/* cm_hello.c: who is at the other end. */
void cm_line_show(const struct cm_line *l, char *to, size_t size);
void cm_hello_dialled(struct cm_line *l);
void cm_hello_answer(struct cm_line *l);
void cm_hello_guest(struct cm_line *l);
void cm_hello_guest_proof(struct cm_line *l);
/* Its request of @n bytes, in l->in. */
void cm_hello_guest_request(struct cm_line *l, const struct cm_message *m, size_t n);
