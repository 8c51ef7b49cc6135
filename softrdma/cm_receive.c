/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes in: requests at listeners, and the other end's messages on connections. The end of a connection's socket
 * without a word, which is what the kernel leaves of a killed process, stands for what a CM says when an id is destroyed:
 * a rejection before the connection is established, a disconnection after.
 *
 * A message is one event at most, and what can bring no further event is no longer watched: so a channel that
 * polls readable has something to get. All under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define REQUEST_WAIT_NS 10000000 /* a connected peer is about to send its request */
#define CARRIED_WAIT_NS 900000000 /* as is this process's own thread (cm_net.c), which is not stopped while we run */

#define NO_SERVICE 8 /* IBA 12.6.7.2 */

enum { ENDED = 1 };

/* 0: @m; ENDED: nothing will come any more; -EAGAIN. */
static int message_read(int sock, struct cm_message *m)
{
	char packet[CM_WIRE_MAX + 1];
	long n = RAW6(SYS_recvfrom, sock, packet, sizeof(packet), MSG_DONTWAIT, 0, 0);

	/* A reset is told before what was sent ahead of it. */
	if (n == -ECONNRESET)
		n = RAW6(SYS_recvfrom, sock, packet, sizeof(packet), MSG_DONTWAIT, 0, 0);
	if (n == -EAGAIN || n == -EINTR)
		return -EAGAIN;
	return n <= 0 || cm_wire_decode(packet, (size_t)n, m) ? ENDED : 0;
}

static void conn_event(struct cm_event *ev, const struct cm_message *m)
{
	struct rdma_ucm_conn_param *c = &ev->resp.param.conn;

	cm_event_private(ev, m);
	/* What the other end can start is what we have to answer, and the other way round. */
	c->responder_resources = m->h.initiator_depth;
	c->initiator_depth = m->h.responder_resources;
	c->flow_control = m->h.flow_control;
	c->retry_count = m->h.retry_count;
	c->rnr_retry_count = m->h.rnr_retry_count;
	c->srq = m->h.srq;
	c->qp_num = m->h.qpn;
	ev->resp.ece.vendor_id = m->h.ece_vendor;
	ev->resp.ece.attr_mod = m->h.ece_options;
}

static void remote_take(struct cm_id *id, const struct cm_message *m)
{
	struct cm_conn *c = &id->conn;
	struct cm_place own;

	cm_place_of(id, &own);
	c->remote_qpn = m->h.qpn;
	c->remote_psn = m->h.psn;
	cm_message_place_take(id, m);
	c->responder_resources = m->h.initiator_depth;
	c->initiator_depth = m->h.responder_resources;
	c->rnr_retry_count = m->h.rnr_retry_count;
	c->mtu = m->h.mtu && m->h.mtu < own.mtu ? m->h.mtu : own.mtu;
}

/* ---- requests ---- */

static int request_fits(struct cm_id *listener, const struct cm_message *m)
{
	union cm_addr dst;

	cm_address_from_wire(&m->h.dst, &dst);
	if (m->h.type != (listener->qp_type == IBV_QPT_UD ? CM_MSG_SIDR_REQ : CM_MSG_REQ))
		return 0;
	return cm_address_any(&listener->src) || cm_address_same_host(&listener->src, &dst);
}

static void refuse(int sock, const struct cm_message *m, uint32_t reason)
{
	int is_ud = m->h.type == CM_MSG_SIDR_REQ;
	struct cm_message answer = { .h = { .type = is_ud ? CM_MSG_SIDR_REP : CM_MSG_REJ, .reason = reason } };
	char packet[CM_WIRE_MAX];
	size_t n = cm_wire_encode(&answer, packet);

	RAW6(SYS_sendto, sock, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	close(sock);
}

static struct cm_id *request_id(struct cm_id *listener, int sock, const struct cm_message *m)
{
	struct cm_id *id = cm_id_create(listener->channel, listener->ps, listener->qp_type);

	if (!id)
		return NULL;
	id->sock = sock;
	id->passive = 1;
	cm_move(id, m->h.type == CM_MSG_REQ ? CM_REQ_RCVD : CM_SIDR_RCVD);
	id->has_device = 1;
	cm_address_from_wire(&m->h.dst, &id->src);
	cm_address_from_wire(&m->h.src, &id->dst);
	remote_take(id, m);
	id->conn.retry_count = m->h.retry_count;
	return id;
}

static void request_take(struct cm_id *listener, int sock, const struct cm_message *m)
{
	int is_ud = m->h.type == CM_MSG_SIDR_REQ;
	struct cm_event *ev;

	if (!request_fits(listener, m)) {
		refuse(sock, m, is_ud ? 1 : NO_SERVICE); /* no such service */
		return;
	}
	ev = cm_event_new(listener, CM_EVENT_CONNECT_REQUEST, 0);
	if (ev)
		ev->request = request_id(listener, sock, m);
	if (!ev || !ev->request) {
		arena_free(&cm_process->arena, ev);
		refuse(sock, m, is_ud ? 2 : 3); /* no resources */
		return;
	}
	ev->resp.id = ev->request->handle;
	if (is_ud)
		cm_event_private(ev, m);
	else
		conn_event(ev, m);
	cm_event_queue(ev);
}

/* Its request is not here yet: the one who connects was stopped in between. */
static void pending_add(struct cm_id *listener, int sock)
{
	struct cm_pending *p = arena_alloc(&cm_process->arena, sizeof(*p));

	if (!p || cm_handle_take(p, &p->handle)) {
		arena_free(&cm_process->arena, p);
		close(sock);
		return;
	}
	cm_watch(listener->channel, sock, p->handle);
	p->kind = CM_KIND_PENDING;
	p->listener = listener;
	p->sock = sock;
	list_add_tail(&listener->channel->pending, &p->link);
}

static void pending_readable(struct cm_channel *ch, struct cm_pending *p)
{
	struct cm_message m;
	int r = message_read(p->sock, &m);

	if (r == -EAGAIN)
		return;
	cm_unwatch(ch, p->sock);
	if (r)
		close(p->sock);
	else
		request_take(p->listener, p->sock, &m);
	cm_handle_give(p->handle);
	list_del(&p->link);
	arena_free(&cm_process->arena, p);
}

static int is_carried(int sock)
{
	struct ucred c;
	unsigned int len = sizeof(c);

	return cm_process->net && !RAW5(SYS_getsockopt, sock, SOL_SOCKET, SO_PEERCRED, &c, &len) && c.pid == raw_getpid();
}

static void listener_readable(struct cm_id *listener)
{
	struct timespec wait = { .tv_nsec = REQUEST_WAIT_NS };
	int sock = accept4(listener->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), r;
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct cm_message m;

	if (sock < 0)
		return;
	if (is_carried(sock))
		wait.tv_nsec = CARRIED_WAIT_NS;
	RAW5(SYS_ppoll, &p, 1, &wait, 0, 0);
	r = message_read(sock, &m);
	if (!r)
		request_take(listener, sock, &m);
	else if (r == -EAGAIN)
		pending_add(listener, sock);
	else
		close(sock);
}

/* ---- connections ---- */

/* The last word: @id has nothing more to hear. */
static void over(struct cm_id *id, uint32_t event, int status, const struct cm_message *m)
{
	struct cm_event *ev = cm_event_new(id, event, status);

	if (ev && m)
		cm_event_private(ev, m);
	if (ev)
		cm_event_queue(ev);
	cm_id_hang_up(id);
	cm_move(id, CM_ENDED);
}

static void rejected(struct cm_id *id, int ended, const struct cm_message *m)
{
	int said = !ended && m->h.type == CM_MSG_REJ;

	if (said && m->h.reason == NO_SERVICE)
		cm_place_nobody(id);
	over(id, CM_EVENT_REJECTED, said ? (int)m->h.reason : 28, said ? m : NULL);
}

static void in_req_sent(struct cm_id *id, int ended, const struct cm_message *m)
{
	struct cm_event *ev;

	if (ended || m->h.type != CM_MSG_REP) {
		rejected(id, ended, m);
		return;
	}
	remote_take(id, m);
	cm_move(id, CM_REP_RCVD);
	ev = cm_event_new(id, CM_EVENT_CONNECT_RESPONSE, 0);
	if (!ev)
		return;
	conn_event(ev, m);
	cm_event_queue(ev);
}

static void in_sidr_sent(struct cm_id *id, int ended, const struct cm_message *m)
{
	int bad = ended || m->h.type != CM_MSG_SIDR_REP;
	int status = bad ? 2 : (int)m->h.reason;
	struct cm_event *ev = cm_event_new(id, status ? CM_EVENT_UNREACHABLE : CM_EVENT_ESTABLISHED, status);

	if (ev && !bad) {
		cm_event_private(ev, m);
		ev->resp.param.ud.qp_num = m->h.qpn;
		ev->resp.param.ud.qkey = m->h.qkey;
		memcpy(id->conn.remote_gid, m->h.gid, 16);
		id->conn.remote_lid = m->h.lid;
		cm_ah_fill(id, &ev->resp.param.ud.ah_attr, m->h.lid, m->h.gid);
	}
	if (ev)
		cm_event_queue(ev);
	cm_id_hang_up(id);
	cm_move(id, CM_ENDED);
}

/* The other end has gone first: its DREP is due, and nothing of it is of interest any more. */
static void dreq_received(struct cm_id *id)
{
	cm_unwatch(id->channel, id->sock);
	id->watched = 0;
	cm_move(id, CM_DREQ_RCVD);
	cm_event_tell(id, CM_EVENT_DISCONNECTED, 0);
}

/* Without a word. The program is to disconnect as well, though nobody hears it. */
static void gone(struct cm_id *id)
{
	cm_id_hang_up(id);
	cm_move(id, CM_DREQ_RCVD);
	cm_event_tell(id, CM_EVENT_DISCONNECTED, 0);
}

static void in_rep_sent(struct cm_id *id, int ended, const struct cm_message *m)
{
	if (!ended && m->h.type == CM_MSG_RTU) {
		cm_move(id, CM_ESTABLISHED);
		cm_event_tell(id, CM_EVENT_ESTABLISHED, 0);
	} else if (!ended && m->h.type == CM_MSG_DREQ) {
		dreq_received(id);
	} else {
		rejected(id, ended, m);
	}
}

static void in_established(struct cm_id *id, int ended, const struct cm_message *m)
{
	if (!ended && m->h.type == CM_MSG_RTU) /* rdma_notify was earlier */
		return;
	if (!ended && m->h.type == CM_MSG_DREQ)
		dreq_received(id);
	else
		gone(id);
}

static void connection_readable(struct cm_id *id)
{
	struct cm_message m;
	int r = message_read(id->sock, &m);

	if (r == -EAGAIN)
		return;
	switch (id->state) {
	case CM_REQ_SENT:
		in_req_sent(id, r, &m);
		break;
	case CM_SIDR_SENT:
		in_sidr_sent(id, r, &m);
		break;
	case CM_REP_RCVD:
		rejected(id, r, &m);
		break;
	case CM_REP_SENT:
		in_rep_sent(id, r, &m);
		break;
	case CM_ESTABLISHED:
		in_established(id, r, &m);
		break;
	case CM_DREQ_SENT:
		over(id, CM_EVENT_DISCONNECTED, 0, NULL);
		cm_move(id, CM_TIMEWAIT);
		break;
	default:
		cm_id_hang_up(id);
		break;
	}
}

void cm_receive(struct cm_channel *ch, uint32_t handle)
{
	struct cm_pending *p = cm_handle_find(handle, CM_KIND_PENDING);
	struct cm_id *id = cm_handle_find(handle, CM_KIND_ID);

	if (p)
		pending_readable(ch, p);
	else if (id && id->state == CM_LISTENING)
		listener_readable(id);
	else if (id && id->state == CM_ADDR_QUERY)
		cm_resolve_answered(id);
	else if (id && id->sock >= 0)
		connection_readable(id);
}
