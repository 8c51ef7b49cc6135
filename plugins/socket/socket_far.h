/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of a restart's far connections share: socket_far_restart.c, which owns the list, socket_far_dial.c, socket_far_refill.c. */
#pragma once

#include "plugins/socket/socket.h"

struct far_value { /* where who listens can be reached */
	uint8_t token[16];
	uint64_t network;
	uint16_t port;	/* as on the wire */
	uint16_t bound; /* 1: at the one address */
	uint32_t count;
	uint8_t addresses[SOCKET_ADDRESSES][16];
};

struct far_hello {
	uint8_t token[16];
	uint64_t length; /* of what was unread here */
	uint32_t shut;	 /* 1: and then came the end of file */
	uint32_t reserved;
};

struct far_end {
	const struct socket_record *r;
	const char *content;
	int number; /* the program's */
	int fd;	    /* from RECONNECT on the connection, under that number; before, what listens or will connect */
	bool listens, dialled;
	struct far_hello own, other;
	char *back; /* what the other has unread */
	uint64_t sent, got; /* of hello and content */
};

struct far_ends {
	struct far_end *ends;
	size_t count, room;
};
extern struct far_ends socket_far_list;

struct far_end *socket_far_find(const struct fermata_desc *d); /* or NULL */
int socket_far_open(const struct far_end *e); /* a new socket for it, or -errno */
/* Where it listens; NULL: it has not come back. */
const struct far_value *socket_far_value(const struct far_end *e);
