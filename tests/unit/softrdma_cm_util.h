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

struct sockaddr_in address(uint16_t port);
struct rdma_event_channel *channel(void);
struct rdma_cm_id *new_id(struct rdma_event_channel *ch, enum rdma_port_space ps);
/* The event that comes, which has to be @type; not acknowledged. */
struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
int expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
void quiet(struct rdma_event_channel *ch);
struct rdma_cm_id *listener(struct rdma_event_channel *ch, enum rdma_port_space ps, int backlog);
struct rdma_cm_id *resolved(struct rdma_event_channel *ch, enum rdma_port_space ps, uint16_t port);
struct rdma_conn_param parameters(void);
uint16_t port_of(struct rdma_cm_id *id);
struct pair pair_to(enum stage stage);
void pair_end(struct pair *s);
void drop(struct rdma_cm_id **id);
