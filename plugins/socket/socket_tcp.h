/* SPDX-License-Identifier: BSD-2-Clause */
/* The states of TCP (RFC 9293, 3.3.2), by the kernel's numbers. What netinet/tcp.h calls TCP_*; linux/tcp.h, whose struct tcp_info is the longer one, has no names for them. */
#pragma once

#include "plugins/socket/socket.h"

enum {
	TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_SYN_RECV = 3, TCP_FIN_WAIT1 = 4, TCP_FIN_WAIT2 = 5, TCP_CLOSE = 7, TCP_CLOSE_WAIT = 8, TCP_LAST_ACK = 9,
	TCP_LISTEN = 10, TCP_CLOSING = 11,
};

#define STATE(s) (1u << (s))
#define STATES_CONNECTED                                                                                    \
	(STATE(TCP_ESTABLISHED) | STATE(TCP_FIN_WAIT1) | STATE(TCP_FIN_WAIT2) | STATE(TCP_CLOSE_WAIT) |     \
	 STATE(TCP_LAST_ACK) | STATE(TCP_CLOSING))
#define STATES_SENT_FIN (STATE(TCP_FIN_WAIT1) | STATE(TCP_FIN_WAIT2) | STATE(TCP_LAST_ACK) | STATE(TCP_CLOSING))
#define STATES_GOT_FIN (STATE(TCP_CLOSE_WAIT) | STATE(TCP_LAST_ACK) | STATE(TCP_CLOSING))
#define STATES_NOT_ACCEPTED (STATE(TCP_SYN_RECV) | STATE(TCP_ESTABLISHED) | STATE(TCP_CLOSE_WAIT)) /* of an end that nobody has: nobody has closed it either */

struct tcp_info;
int socket_tcp_info(const struct fermata_desc *d, struct tcp_info *ret); /* 0, or -errno with fermata_fail */
/* @err, with fermata_fail: both addresses, and @why. */
int socket_tcp_refuse(struct fermata_desc *d, const struct socket_state *s, int err, const char *why);
int socket_tcp_ask_elsewhere(struct socket_state *s); /* somebody else of this machine has the other end: FERMATA_DRAIN_MORE, or -errno */
