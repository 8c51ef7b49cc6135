/* SPDX-License-Identifier: BSD-2-Clause */
/* The network header before a datagram's data, in either of its forms. */
#pragma once

#include "plugins/verbs/verbs_internal.h"

#define VERBS_HEADER 40 /* bytes */

struct verbs_header {
	union ibv_gid from, to; /* an IPv4 address mapped */
	uint32_t flow_label;
	uint16_t length; /* of what follows */
	uint8_t traffic_class, hop_limit, next;
	uint8_t ipv4; /* the form */
};

void verbs_header_read(const void *bytes, struct verbs_header *ret);
void verbs_header_write(const struct verbs_header *h, void *bytes);
/* Whether it surely is by the program's names already: a program may have one buffer for all datagrams. */
int verbs_header_is_virtual(const struct verbs_port *port, const struct verbs_header *h);
/* Where it went to, by the program's name, and the form that the program's port has; @h->from is so already. */
void verbs_header_virtual(const struct verbs_port *port, struct verbs_header *h);
/* Where an answer to a datagram goes whose header the program has. 0, or -ENOENT: it went to no address of @port's. */
int verbs_header_answer(const struct verbs_port *port, const void *bytes, struct ibv_global_route *ret);
