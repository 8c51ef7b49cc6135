/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of rdma_cm share: ids and events of the system's own librdmacm, each call checked. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NOBODY 28 /* consumer defined */

/* Both ends in this process, each on its own channel, up to a state of the two. */
enum stage { ASKED, REQUESTED, ACCEPTED, ANSWERED, CONNECTED };

struct pair {
	struct rdma_event_channel *there, *here;
	struct rdma_cm_id *listener, *server, *client;
};

/* Set-up and tear-down: shared memory of its own; with END_HOSTS a network, too, where the two ends are on two hosts. */
int places_make(void **state);
int places_remove(void **state);
int other_host(void);
int another_host(void **state); /* its address is a new one from now on */
/* Of @n tests the last @one_host are left out where the ends are on two. */
int run_places(const struct CMUnitTest *tests, size_t n, size_t one_host);
/* To go to; port 0: to listen at. */
struct sockaddr_in address(uint16_t port);
struct rdma_event_channel *channel(void);
struct rdma_cm_id *new_id(struct rdma_event_channel *ch, enum rdma_port_space ps);
/* The event that comes, which has to be @type; not acknowledged. */
struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
int expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
void quiet(struct rdma_event_channel *ch);
/* Until there is something to get. */
void await(struct rdma_event_channel *ch);
/* @ch has asked whom nobody has listened to so far; until @there hears it. */
void asks_on(struct rdma_event_channel *ch, struct rdma_event_channel *there);
/* To accept @server is of no use: who has asked has gone, which takes its time to be known on another host. */
void taken_back(struct rdma_event_channel *ch, struct rdma_cm_id *server);
struct rdma_cm_id *listener(struct rdma_event_channel *ch, enum rdma_port_space ps, int backlog);
struct rdma_cm_id *listener_at(struct rdma_event_channel *ch, uint16_t port);
struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, uint16_t port);
struct rdma_conn_param parameters(void);
uint16_t port_of(struct rdma_cm_id *id);
struct pair pair_to(enum stage stage);
void pair_end(struct pair *s);
void drop(struct rdma_cm_id **id);

/* The first port of TCP where the listener at @port of RDMA_PS_TCP may be; ports that have the same one. */
uint16_t first_slot(uint16_t port);
void same_slots(uint16_t port[3]);

/* A process that is at a port of TCP, says @words and hangs up. */
struct stranger {
	pid_t pid;
	int heard;
};
struct stranger stranger_begin(uint16_t tcp_port, const char *words);
/* How often it was asked. */
int stranger_end(struct stranger *s);
