/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the ids: one a connection, a listener, or a UD service. Its end tells the other end as the end of a CM id does
 * on InfiniBand; what a process leaves behind that is killed, the kernel closes, and the other end reads that. All under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"

struct cm_id *cm_id_create(struct cm_channel *ch, uint16_t ps, uint8_t qp_type)
{
	struct cm_id *id = arena_alloc(&cm_process->arena, sizeof(*id));

	if (!id || cm_handle_take(id, &id->handle)) {
		arena_free(&cm_process->arena, id);
		return NULL;
	}
	id->kind = CM_KIND_ID;
	id->channel = ch;
	id->ps = ps;
	id->qp_type = qp_type;
	id->sock = -1;
	id->conn.psn = cm_random() & 0xffffff;
	list_init(&id->bound_link);
	list_init(&id->wait_link);
	list_init(&id->mcasts);
	list_add_tail(&ch->ids, &id->link);
	return id;
}

struct cm_id *cm_id_find(struct cm_channel *ch, uint32_t handle)
{
	struct cm_id *id = cm_handle_find(handle, CM_KIND_ID);

	return id && id->channel == ch ? id : NULL;
}

/* shutdown(2) too: a forked child may have the descriptor. */
void cm_id_hang_up(struct cm_id *id)
{
	if (id->sock < 0)
		return;
	if (id->watched)
		cm_unwatch(id->channel, id->sock);
	id->watched = 0;
	RAW2(SYS_shutdown, id->sock, SHUT_RDWR);
	close(id->sock);
	id->sock = -1;
}

/* IBA 12.9.7: what ending an id in each state says to the other end. */
static void farewell(struct cm_id *id)
{
	switch (id->state) {
	case CM_REQ_SENT:
		cm_send_bare(id, CM_MSG_REJ, 4 /* timeout */);
		break;
	case CM_REQ_RCVD:
	case CM_REP_SENT:
	case CM_REP_RCVD:
		cm_send_bare(id, CM_MSG_REJ, 28 /* consumer defined */);
		break;
	case CM_ESTABLISHED:
		cm_send_bare(id, CM_MSG_DREQ, 0);
		break;
	case CM_DREQ_RCVD:
		cm_send_bare(id, CM_MSG_DREP, 0);
		break;
	case CM_SIDR_RCVD:
		cm_send_bare(id, CM_MSG_SIDR_REP, 2 /* rejected */);
		break;
	default:
		break;
	}
}

static void pending_drop(struct cm_id *listener)
{
	struct cm_pending *p;

	list_each_safe(p, &listener->channel->pending, link) {
		if (p->listener != listener)
			continue;
		cm_unwatch(listener->channel, p->sock);
		close(p->sock);
		cm_handle_give(p->handle);
		list_del(&p->link);
		arena_free(&cm_process->arena, p);
	}
}

void cm_id_destroy(struct cm_id *id)
{
	farewell(id);
	cm_id_hang_up(id);
	cm_timer_stop(id);
	pending_drop(id);
	while (!list_empty(&id->mcasts))
		cm_mcast_free(container_of(id->mcasts.next, struct cm_mcast, link));
	cm_event_drop(id, NULL);
	cm_port_release(id);
	list_del(&id->link);
	cm_handle_give(id->handle);
	arena_free(&cm_process->arena, id->asking);
	arena_free(&cm_process->arena, id);
}

/* Sockets, waiting connections and events go along. */
void cm_id_migrate(struct cm_id *id, struct cm_channel *to)
{
	struct cm_pending *p;

	list_each_safe(p, &id->channel->pending, link) {
		if (p->listener != id)
			continue;
		cm_unwatch(id->channel, p->sock);
		cm_watch(to, p->sock, p->handle);
		list_del(&p->link);
		list_add_tail(&to->pending, &p->link);
	}
	if (id->watched) {
		cm_unwatch(id->channel, id->sock);
		if (id->state == CM_ADDR_QUERY)
			cm_watch_dial(to, id->sock, id->handle);
		else
			cm_watch(to, id->sock, id->handle);
	}
	cm_timer_migrate(id, to);
	cm_event_move(id, to);
	list_del(&id->link);
	list_add_tail(&to->ids, &id->link);
	id->channel = to;
}
