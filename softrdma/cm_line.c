/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines: connections of rdma_cm to and from other hosts, from the first dial (cm_dial.c) to the last word. By who carries alone (cm_net.h).
 *
 *   dialler   NEW - request - > DIALLING -> GREETING -> ASKED - answer - > UP
 *                    ^ PAUSE <- no slot has answered well: the next one, then all again
 *   guest     GUEST -> GUEST_PROOF -> GUEST_REQUEST - somebody listens - > UP
 *
 * What a message means is the ids' to know; of it only the request and "not here" are looked at. An end that closes its socket is told to the other
 * end by a closed socket. So a process that dies is seen as on one host; of a host that dies nothing is seen: ids have their clocks.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "softrdma/cm_net.h"
#include "softrdma/device.h"

#define GUEST_NS (5 * NET_SECOND)
#define CROWD_NS (NET_SECOND / 2)
#define DIAL_FIRST_NS NET_SECOND
#define CLOSING_NS (10 * NET_SECOND)

static struct cm_line *line_new(struct cm_net *net, enum cm_line_state state)
{
	struct cm_line *l = arena_alloc(&net->arena, sizeof(*l));

	if (!l)
		return NULL;
	memset(l, 0, sizeof(*l));
	l->net = net;
	l->near = l->far = -1;
	l->state = state;
	list_add_tail(&net->lines, &l->link);
	return l;
}

void cm_line_watch(struct cm_line *l, int op, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = (uintptr_t)l | (fd == l->near) };

	RAW4(SYS_epoll_ctl, l->net->wait_fd, op, fd, &ev);
}

/* A forked child may have it: the watch would stay, and the connection. */
void cm_line_hang_up(struct cm_line *l, int *fd)
{
	if (*fd < 0)
		return;
	cm_line_watch(l, EPOLL_CTL_DEL, *fd, 0);
	RAW2(SYS_shutdown, *fd, SHUT_RDWR);
	sr_close(*fd);
	*fd = -1;
}

void cm_line_end(struct cm_line *l)
{
	l->net->moved += l->state == LINE_ASKED || l->state == LINE_UP;
	cm_line_hang_up(l, &l->near);
	cm_line_hang_up(l, &l->far);
	l->state = LINE_DEAD;
	l->due = 0;
}

void cm_line_clock(struct cm_line *l, uint64_t due)
{
	l->due = due;
	if (due && (!l->net->due || due < l->net->due))
		l->net->due = due;
}

void cm_lines_reap(struct cm_net *net)
{
	struct cm_line *l;

	list_each_safe(l, &net->lines, link) {
		if (l->state != LINE_DEAD)
			continue;
		list_del(&l->link);
		arena_free(&net->arena, l);
	}
}

size_t cm_line_refusal(const struct cm_message *m, int full, char *packet)
{
	int is_ud = m->h.type == CM_MSG_SIDR_REQ;
	struct cm_message answer = { .h = { .type = is_ud ? CM_MSG_SIDR_REP : CM_MSG_REJ } };

	answer.h.reason = is_ud ? (full ? 2 : 1) : full ? 28 : 8;
	return cm_wire_encode(&answer, packet);
}

int cm_line_read(struct cm_line *l, uint32_t want)
{
	long n = RAW6(SYS_recvfrom, l->far, l->in + l->got, want - l->got, MSG_DONTWAIT, 0, 0);

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		return -1;
	l->got += (uint32_t)n;
	return l->got == want;
}

int cm_line_say(struct cm_line *l, const void *bytes, size_t n)
{
	return RAW6(SYS_sendto, l->far, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0) == (long)n ? 0 : -EPIPE;
}

/* ---- carrying ---- */

/* The near end has said its last. */
static void near_gone(struct cm_line *l)
{
	if (l->state != LINE_UP && l->state != LINE_ASKED) {
		cm_line_end(l);
		return;
	}
	l->net->moved++;
	cm_line_hang_up(l, &l->near);
	RAW2(SYS_shutdown, l->far, SHUT_WR);
	l->state = LINE_CLOSING;
	cm_line_clock(l, net_now() + CLOSING_NS);
}

static void request_take(struct cm_line *l, const char *packet, size_t n)
{
	struct cm_message m;

	if (cm_wire_decode(packet, n, &m)) {
		cm_line_end(l);
		return;
	}
	memcpy(l->request, packet, n);
	l->request_len = (uint32_t)n;
	cm_name_of_request(&m, 0, l->name);
	cm_address_from_wire(&m.h.dst, &l->dst);
	l->ps = m.h.ps;
	l->joins = m.h.type == CM_MSG_JOIN;
	l->joined_pid = m.h.qkey;
	l->since = net_now();
	l->limit_ns = DIAL_FIRST_NS;
	cm_dial_on(l);
}

/* 1: there may be more. */
static int near_read(struct cm_line *l)
{
	char packet[CM_WIRE_MAX + 1];
	long n = RAW6(SYS_recvfrom, l->near, packet, sizeof(packet), MSG_DONTWAIT, 0, 0);

	if (n == -ECONNRESET) /* told before what was sent ahead of it */
		n = RAW6(SYS_recvfrom, l->near, packet, sizeof(packet), MSG_DONTWAIT, 0, 0);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		near_gone(l);
	else if (l->state == LINE_NEW)
		request_take(l, packet, (size_t)n);
	else if ((l->state != LINE_UP && l->state != LINE_ASKED) || cm_line_say(l, packet, (size_t)n))
		cm_line_end(l); /* it takes its request back, which has not gone yet; or nobody hears */
	else
		l->net->moved += !!++l->said;
	return l->near >= 0;
}

/* A message that has come whole. */
static void far_message(struct cm_line *l, size_t n)
{
	struct cm_message m;

	if (cm_wire_decode(l->in, n, &m)) {
		log_error("connection of rdma_cm closed: a message is not understood");
		cm_line_end(l);
		return;
	}
	l->got = 0;
	if (l->state == LINE_ASKED && ((m.h.type == CM_MSG_REJ && m.h.reason == 8) || (m.h.type == CM_MSG_SIDR_REP && m.h.reason == 1))) {
		cm_line_slot_next(l, 0);
		return;
	}
	if (l->state == LINE_ASKED) {
		l->state = LINE_UP;
		l->due = 0;
	}
	l->heard++;
	l->net->moved++;
	if (l->state == LINE_GUEST_REQUEST)
		cm_hello_guest_request(l, &m, n);
	else if (RAW6(SYS_sendto, l->near, l->in, n, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0) != (long)n)
		near_read(l); /* what it has said before it went */
}

/* The head says how long the message is; no more than that is read, so that nothing waits here. */
static void far_read(struct cm_line *l)
{
	enum cm_line_state state;
	int r;

	do {
		state = l->state;
		r = l->got < CM_WIRE_HEAD ? cm_line_read(l, CM_WIRE_HEAD) : 1;
		if (r > 0 && !cm_wire_length(l->in)) {
			log_error("connection of rdma_cm closed: a message is not understood");
			r = -1;
		}
		if (r > 0)
			r = cm_line_read(l, cm_wire_length(l->in));
		if (r > 0)
			far_message(l, l->got);
	} while (r > 0 && l->state == state);
	if (r < 0)
		cm_line_end(l);
}

static void discard(struct cm_line *l)
{
	char rest[CM_WIRE_MAX];
	long n;

	do {
		n = RAW6(SYS_recvfrom, l->far, rest, sizeof(rest), MSG_DONTWAIT, 0, 0);
	} while (n > 0);
	if (n != -EAGAIN && n != -EINTR)
		cm_line_end(l);
}

static void far_event(struct cm_line *l)
{
	switch (l->state) {
	case LINE_DIALLING:
		cm_dialled(l);
		break;
	case LINE_GREETING:
		cm_hello_answer(l);
		break;
	case LINE_GUEST:
		cm_hello_guest(l);
		break;
	case LINE_GUEST_PROOF:
		cm_hello_guest_proof(l);
		break;
	case LINE_ASKED:
	case LINE_UP:
	case LINE_GUEST_REQUEST:
		far_read(l);
		break;
	case LINE_CLOSING:
		discard(l);
		break;
	default:
		break;
	}
}

void cm_line_event(struct cm_line *l, int is_near)
{
	if (is_near && l->near >= 0)
		while (near_read(l))
			;
	else if (!is_near && l->far >= 0)
		far_event(l);
}

/* ---- beginnings and ends ---- */

void cm_line_near_new(struct cm_net *net, int fd)
{
	struct cm_line *l = line_new(net, LINE_NEW);

	if (!l) {
		sr_close(fd);
		return;
	}
	l->near = fd;
	cm_line_watch(l, EPOLL_CTL_ADD, fd, EPOLLIN);
}

static int is_guest(const struct cm_line *l)
{
	return l->state == LINE_GUEST || l->state == LINE_GUEST_PROOF || l->state == LINE_GUEST_REQUEST;
}

/*
 * When there are too many the next ones wait at the door, in the kernel; but the oldest goes when it has had its time, and only silence to say: whoever means it
 * is through by then.
 */
int cm_line_guest_room(struct cm_net *net)
{
	struct cm_line *l, *oldest = NULL;
	uint32_t n = 0;

	list_each(l, &net->lines, link) {
		if (!is_guest(l))
			continue;
		oldest = oldest ? oldest : l;
		n++;
	}
	if (n < CM_GUESTS)
		return 1;
	if (net_now() - oldest->since < CROWD_NS) {
		if (!net->due || oldest->since + CROWD_NS < net->due)
			net->due = oldest->since + CROWD_NS;
		return 0;
	}
	cm_line_end(oldest);
	return 1;
}

void cm_line_guest_new(struct cm_net *net, int fd, uint32_t space, uint32_t port)
{
	socklen_t len = sizeof(union cm_addr);
	struct cm_line *l;
	int one = 1;

	l = line_new(net, LINE_GUEST);
	if (!l) {
		sr_close(fd);
		return;
	}
	RAW5(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	RAW3(SYS_getpeername, fd, &l->peer, &len);
	l->far = fd;
	l->since = net_now();
	l->space = space;
	l->port = port;
	cm_line_watch(l, EPOLL_CTL_ADD, fd, EPOLLIN);
	cm_line_clock(l, l->since + GUEST_NS);
}

void cm_line_listened(struct cm_line *l, int fd)
{
	l->near = fd;
	l->state = LINE_UP;
	l->due = 0;
	cm_line_watch(l, EPOLL_CTL_ADD, fd, EPOLLIN);
}

static void clock_over(struct cm_line *l)
{
	l->due = 0;
	if (l->state == LINE_PAUSE)
		cm_dial_on(l);
	else if (l->state == LINE_DIALLING || l->state == LINE_GREETING || l->state == LINE_ASKED)
		cm_line_slot_next(l, 1);
	else
		cm_line_end(l);
}

void cm_line_clocks(struct cm_net *net)
{
	uint64_t now = net_now();
	struct cm_line *l;

	net->due = 0;
	list_each(l, &net->lines, link) {
		if (l->due && l->due <= now)
			clock_over(l);
		else
			cm_line_clock(l, l->due);
	}
}

void cm_lines_end(struct cm_net *net)
{
	struct cm_line *l;

	list_each(l, &net->lines, link) {
		while (l->near >= 0 && near_read(l))
			;
		if (l->far >= 0)
			discard(l);
		if (l->far >= 0) { /* not SHUT_RDWR: what waits is still sent */
			RAW2(SYS_shutdown, l->far, SHUT_WR);
			sr_close(l->far);
			l->far = -1;
		}
		cm_line_end(l);
	}
}
