/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The active moves of a connection's life: connect, accept, reject, disconnect, for reliable connections and for
 * the resolution of a UD service (SIDR). What comes back is cm_receive.c's. All under cm_lock.
 *
 * Programs tell their port as soon as they have it, and listen then (qperf), or end one listener and make another (perftest): a request takes its time on a
 * wire, so that works. So one that finds nobody is tried again for a while (CM_LATE_NS), on this host as on others (cm_dial.c): as long as the other may
 * stand where a checkpoint or a busy machine holds it up. Meanwhile the channel may poll readable without an event, but one is sure to come.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define ASK_FIRST_NS 1000000ull /* doubled each time */

int cm_send(struct cm_id *id, struct cm_message *m)
{
	char packet[CM_WIRE_MAX];
	size_t n = cm_wire_encode(m, packet);
	long r = id->sock < 0 ? -EPIPE
			      : RAW6(SYS_sendto, id->sock, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);

	return r < 0 ? (int)r : 0;
}

int cm_send_bare(struct cm_id *id, uint8_t type, uint32_t reason)
{
	struct cm_message m = { .h = { .type = type, .reason = reason } };

	return cm_send(id, &m);
}

static int is_ud(const struct cm_id *id)
{
	return id->qp_type == IBV_QPT_UD;
}

static int private_put(struct cm_message *m, const void *data, uint32_t len)
{
	if (len > cm_private_room(m->h.type) + (m->h.src.family == AF_IB ? 36 : 0))
		return -EINVAL;
	memcpy(m->private, data, len);
	m->h.private_len = (uint16_t)len;
	return 0;
}

void cm_message_place(struct cm_message *m, const struct cm_id *id)
{
	struct cm_place p;

	cm_place_of(id, &p);
	m->h.pid = (uint32_t)raw_getpid();
	m->h.lid = p.lid;
	m->h.mtu = p.mtu;
	memcpy(m->h.gid, p.gid, 16);
}

void cm_message_place_take(struct cm_id *id, const struct cm_message *m)
{
	id->conn.remote_pid = m->h.pid;
	id->conn.remote_lid = m->h.lid;
	memcpy(id->conn.remote_gid, m->h.gid, 16);
}

static void message_fill(struct cm_message *m, struct cm_id *id, const struct rdma_ucm_conn_param *p,
			 const struct rdma_ucm_ece *ece)
{
	m->h.qpn = p->qp_num & 0xffffff;
	m->h.psn = id->conn.psn;
	m->h.ps = id->ps;
	cm_message_place(m, id);
	m->h.qp_type = id->qp_type;
	m->h.responder_resources = p->responder_resources;
	m->h.initiator_depth = p->initiator_depth;
	m->h.flow_control = p->flow_control;
	m->h.retry_count = p->retry_count & 7;
	m->h.rnr_retry_count = p->rnr_retry_count & 7;
	m->h.srq = p->srq;
	m->h.ece_vendor = ece->vendor_id;
	m->h.ece_options = ece->attr_mod;
}

/* As a CM answers for a service that nobody has (8), or whose listener has no more room (28). */
static int nobody(struct cm_id *id, int err)
{
	int full = err == -EAGAIN;

	if (!full)
		cm_place_nobody(id);
	cm_move(id, CM_ENDED);
	if (is_ud(id))
		return cm_event_tell(id, CM_EVENT_UNREACHABLE, full ? 2 : 1);
	return cm_event_tell(id, CM_EVENT_REJECTED, full ? 28 : 8);
}

/* The socket that leads to where @id wants, or -errno. */
static int way_open(struct cm_id *id)
{
	if (!id->is_far || cm_here(&id->dst))
		return cm_port_knock(cm_process->dir, id->ps, &id->dst);
	return cm_net_here() ? cm_net_connect() : -ECONNREFUSED;
}

static int request_send(struct cm_id *id, struct cm_message *m)
{
	int err;

	id->sock = way_open(id);
	if (id->sock < 0)
		return id->sock;
	err = cm_send(id, m);
	if (!err)
		err = cm_watch(id->channel, id->sock, id->handle);
	if (err) {
		cm_id_hang_up(id);
		return err == -EPIPE || err == -ECONNRESET ? -ECONNREFUSED : err;
	}
	id->watched = 1;
	return 0;
}

static int ask(struct cm_id *id, struct cm_message *m)
{
	struct cm_asking *a = arena_alloc(&cm_process->arena, sizeof(*a));
	uint64_t now = raw_now_ns();

	if (!a)
		return -ENOMEM;
	a->length = (uint32_t)cm_wire_encode(m, (char *)a->packet);
	a->deadline_ns = id->deadline_ns;
	a->refused_ns = now + CM_LATE_NS;
	a->pause_ns = ASK_FIRST_NS;
	id->asking = a;
	cm_timer_at(id, now + a->pause_ns);
	return 0;
}

static int request_begin(struct cm_id *id, struct cm_message *m)
{
	int err = request_send(id, m);

	if (err == -EAGAIN)
		return nobody(id, err);
	if (err && err != -ECONNREFUSED)
		return err;
	cm_move(id, is_ud(id) ? CM_SIDR_SENT : CM_REQ_SENT);
	return err ? ask(id, m) : 0;
}

static struct cm_asking *asking_take(struct cm_id *id, struct cm_message *ret)
{
	struct cm_asking *a = id->asking;

	id->asking = NULL;
	cm_wire_decode((char *)a->packet, a->length, ret);
	return a;
}

void cm_connect_retry(struct cm_id *id)
{
	struct cm_message m;
	struct cm_asking *a = asking_take(id, &m);
	uint64_t now = raw_now_ns();
	int err = request_send(id, &m);

	if (err == -ECONNREFUSED && now < a->refused_ns) {
		a->pause_ns *= 2;
		id->asking = a;
		cm_timer_at(id, now + a->pause_ns);
		return;
	}
	if (err)
		nobody(id, err);
	else
		cm_timer_at(id, a->deadline_ns);
	arena_free(&cm_process->arena, a);
}

/* By what the request says; its time is not begun anew. */
int cm_connect_again(struct cm_id *id)
{
	uint64_t deadline = id->deadline_ns;
	struct cm_message m;
	int err;

	arena_free(&cm_process->arena, asking_take(id, &m));
	cm_message_place(&m, id);
	cm_timer_stop(id);
	err = request_begin(id, &m);
	if (err || id->state == CM_ENDED)
		return err;
	if (id->asking)
		id->asking->deadline_ns = deadline;
	else
		cm_timer_at(id, deadline);
	return 0;
}

int cm_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	struct cm_message m = { .h = { .type = is_ud(id) ? CM_MSG_SIDR_REQ : CM_MSG_REQ } };
	int err;

	if (id->state != CM_ROUTE_RESOLVED)
		return -EINVAL;
	message_fill(&m, id, p, ece);
	cm_address_to_wire(&id->src, &m.h.src);
	cm_address_to_wire(&id->dst, &m.h.dst);
	err = private_put(&m, p->private_data, p->private_data_len);
	if (err)
		return err;
	id->conn.qpn = m.h.qpn;
	id->conn.retry_count = m.h.retry_count;
	id->conn.responder_resources = p->responder_resources;
	id->conn.initiator_depth = p->initiator_depth;
	return request_begin(id, &m);
}

static int accept_connection(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	struct cm_message m = { .h = { .type = CM_MSG_REP } };
	int err;

	message_fill(&m, id, p, ece);
	err = private_put(&m, p->private_data, p->private_data_len);
	if (err)
		return err;
	id->conn.qpn = m.h.qpn;
	id->conn.responder_resources = p->responder_resources;
	id->conn.initiator_depth = p->initiator_depth;
	err = cm_send(id, &m);
	if (!err)
		err = cm_watch(id->channel, id->sock, id->handle);
	if (err) {
		/* Who asked has gone; the program has not been told of it yet. */
		cm_id_hang_up(id);
		cm_move(id, CM_ENDED);
		return -EINVAL;
	}
	id->watched = 1;
	cm_move(id, CM_REP_SENT);
	return 0;
}

static int service_answer(struct cm_id *id, uint32_t status, const struct rdma_ucm_conn_param *p,
			  const struct rdma_ucm_ece *ece)
{
	struct cm_message m = { .h = { .type = CM_MSG_SIDR_REP } };
	int err;

	message_fill(&m, id, p, ece);
	m.h.reason = status;
	m.h.qkey = p->qkey ? p->qkey : id->ps == RDMA_PS_IPOIB ? CM_QKEY_IPOIB : CM_QKEY;
	err = private_put(&m, p->private_data, p->private_data_len);
	if (err)
		return err;
	err = cm_send(id, &m);
	cm_id_hang_up(id);
	cm_move(id, CM_ENDED);
	return err ? -EINVAL : 0;
}

/* Without parameters it is the connecting side's: the QP is ready, tell the other end. */
static int ready_to_use(struct cm_id *id)
{
	int err;

	if (id->state != CM_REP_RCVD)
		return -EINVAL;
	err = cm_send_bare(id, CM_MSG_RTU, 0);
	/* The other end has gone meanwhile: its end comes as an event. */
	cm_move(id, CM_ESTABLISHED);
	return err == -EPIPE || err == -ECONNRESET ? 0 : err;
}

int cm_accept(struct cm_id *id, uint64_t uid, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece)
{
	int err;

	if (!p->valid)
		return ready_to_use(id);
	if (id->state == CM_SIDR_RCVD)
		err = service_answer(id, 0, p, ece);
	else if (id->state == CM_REQ_RCVD)
		err = accept_connection(id, p, ece);
	else
		return -EINVAL;
	if (!err)
		id->uid = uid;
	return err;
}

int cm_reject(struct cm_id *id, const struct rdma_ucm_reject *cmd)
{
	struct rdma_ucm_conn_param p = { .private_data_len = cmd->private_data_len };
	struct cm_message m = { .h = { .type = CM_MSG_REJ, .reason = cmd->reason ? cmd->reason : 28 } };
	struct rdma_ucm_ece none = { 0 };
	int err;

	if (m.h.reason != 28 && m.h.reason != 35)
		return -EINVAL;
	if (id->state == CM_SIDR_RCVD) {
		memcpy(p.private_data, cmd->private_data, sizeof(p.private_data));
		return service_answer(id, 2, &p, &none);
	}
	if (id->state != CM_REQ_RCVD && id->state != CM_REP_SENT && id->state != CM_REP_RCVD)
		return -EINVAL;
	err = private_put(&m, cmd->private_data, cmd->private_data_len);
	if (err)
		return err;
	cm_send(id, &m);
	cm_id_hang_up(id);
	cm_move(id, CM_ENDED);
	return 0;
}

/* Begins or answers; at all other times there is nothing to say, which is no error. */
int cm_disconnect(struct cm_id *id)
{
	if (id->state < CM_REQ_SENT)
		return -EINVAL;
	if (id->state == CM_ESTABLISHED) {
		cm_send_bare(id, CM_MSG_DREQ, 0);
		cm_move(id, CM_DREQ_SENT);
	} else if (id->state == CM_DREQ_RCVD) {
		cm_send_bare(id, CM_MSG_DREP, 0);
		cm_id_hang_up(id);
		cm_move(id, CM_TIMEWAIT);
	}
	return 0;
}

/* The program has got data on the connection before its RTU. */
int cm_notify(struct cm_id *id, uint32_t event)
{
	if (id->state < CM_REQ_SENT)
		return -EINVAL;
	if (event != IBV_EVENT_COMM_EST || id->state != CM_REP_SENT)
		return 0;
	cm_move(id, CM_ESTABLISHED);
	return cm_event_tell(id, CM_EVENT_ESTABLISHED, 0);
}
