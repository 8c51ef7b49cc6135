/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines to other hosts being dialled: the slots that a listener's process may be found at, one after the other. By who carries alone (cm_net.h).
 *
 * A request is not refused at once (cm_connect.c).
 *
 * Where no slot is a listener's, but one does not answer, it may be that one, stopped, or a lost packet, or the host is out of reach: dialling goes on
 * until the id gives up.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "softrdma/cm_net.h"
#include "softrdma/device.h"

#define DIAL_LONGEST_NS (8 * NET_SECOND)
#define PAUSE_NS NET_MS
#define SILENT_PAUSE_NS (100 * NET_MS)

/* Nobody listens there. */
static void nobody(struct cm_line *l)
{
	struct cm_message m;
	char packet[CM_WIRE_MAX];
	size_t n;

	cm_wire_decode(l->request, l->request_len, &m);
	n = cm_line_refusal(&m, 0, packet);
	RAW6(SYS_sendto, l->near, packet, n, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
	cm_line_end(l);
}

static socklen_t slot_address(struct cm_line *l)
{
	return l->joins ? cm_door_address(l->slot, l->joined_pid, &l->peer) : cm_net_address(l->ps, &l->dst, l->slot, &l->peer);
}

/* 0: it is on its way; else -errno. */
static int dial(struct cm_line *l)
{
	socklen_t len = slot_address(l);
	int one = 1;
	long r;

	l->far = len ? sr_socket(l->peer.family, SOCK_STREAM) : -1;
	if (l->far < 0)
		return -EHOSTUNREACH;
	RAW5(SYS_setsockopt, l->far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	r = RAW3(SYS_connect, l->far, &l->peer, len);
	if (r && r != -EINPROGRESS)
		return (int)r;
	cm_line_watch(l, EPOLL_CTL_ADD, l->far, EPOLLOUT);
	l->state = LINE_DIALLING;
	l->got = 0;
	cm_line_clock(l, net_now() + l->limit_ns);
	return 0;
}

static void round_end(struct cm_line *l)
{
	uint64_t now = net_now();

	if (!l->silent && now - l->since > CM_LATE_NS) {
		nobody(l);
		return;
	}
	if (l->silent && l->limit_ns < DIAL_LONGEST_NS)
		l->limit_ns *= 2;
	l->state = LINE_PAUSE;
	cm_line_clock(l, now + (l->silent ? SILENT_PAUSE_NS : PAUSE_NS));
	l->silent = 0;
	l->slot = 0;
}

void cm_line_park(struct cm_line *l)
{
	cm_line_hang_up(l, &l->far);
	l->state = LINE_PAUSE;
	l->due = 0;
}

void cm_dial_on(struct cm_line *l)
{
	int err;

	if (l->net->held) {
		cm_line_park(l);
		return;
	}
	for (; l->joins ? slot_address(l) : l->slot < NET_CM_SLOTS; l->slot++) {
		err = dial(l);
		if (!err)
			return;
		cm_line_hang_up(l, &l->far);
		l->silent |= err != -ECONNREFUSED;
	}
	round_end(l);
}

void cm_line_slot_next(struct cm_line *l, int silent)
{
	l->net->moved += l->state == LINE_ASKED;
	cm_line_hang_up(l, &l->far);
	l->silent |= silent;
	l->slot++;
	cm_dial_on(l);
}

void cm_dialled(struct cm_line *l)
{
	int err = 0;
	socklen_t len = sizeof(err);

	RAW5(SYS_getsockopt, l->far, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err) {
		cm_line_slot_next(l, err != ECONNREFUSED);
		return;
	}
	cm_line_watch(l, EPOLL_CTL_MOD, l->far, EPOLLIN);
	cm_hello_dialled(l);
}
