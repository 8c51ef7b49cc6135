/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owns the events that wait in a channel, and hands them out: queued ones first, then one from a socket that has
 * become readable. An event counts for its id when it is handed out: librdmacm waits at the id's end until as many have
 * been acknowledged. Events of an id that the program has not accepted yet are not told. All under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/sys.h"
#include "softrdma/device.h"

struct cm_event *cm_event_new(struct cm_id *id, uint32_t event, int status)
{
	struct cm_event *ev = arena_alloc(&cm_process->arena, sizeof(*ev));

	if (!ev)
		return NULL;
	list_init(&ev->link);
	ev->id = id;
	ev->resp.uid = id->uid;
	ev->resp.id = id->handle;
	ev->resp.event = event;
	ev->resp.status = (uint32_t)status;
	return ev;
}

static void signal_channel(struct cm_channel *ch)
{
	uint64_t one = 1;

	raw_write(ch->event_fd, &one, sizeof(one));
}

void cm_event_queue(struct cm_event *ev)
{
	list_add_tail(&ev->id->channel->events, &ev->link);
	signal_channel(ev->id->channel);
}

int cm_event_tell(struct cm_id *id, uint32_t event, int status)
{
	struct cm_event *ev = cm_event_new(id, event, status);

	if (!ev)
		return -ENOMEM;
	cm_event_queue(ev);
	return 0;
}

/* InfiniBand tells the whole field, zeros behind what was sent. */
void cm_event_private(struct cm_event *ev, const struct cm_message *m)
{
	int is_ib = m->h.src.family == AF_IB;
	uint32_t room = cm_private_room(m->h.type) + (is_ib ? 36 : 0);

	if (m->h.type == CM_MSG_SIDR_REQ || m->h.type == CM_MSG_SIDR_REP) {
		memcpy(ev->resp.param.ud.private_data, m->private, room);
		ev->resp.param.ud.private_data_len = (uint8_t)room;
	} else {
		memcpy(ev->resp.param.conn.private_data, m->private, room);
		ev->resp.param.conn.private_data_len = (uint8_t)room;
	}
}

void cm_ah_fill(const struct cm_id *id, struct ib_uverbs_ah_attr *ah, uint16_t lid, const uint8_t gid[16])
{
	struct cm_place p;

	cm_place_of(id, &p);
	memset(ah, 0, sizeof(*ah));
	memcpy(ah->grh.dgid, gid, 16);
	ah->grh.sgid_index = p.gid_index;
	ah->grh.hop_limit = 64;
	ah->dlid = lid;
	ah->is_global = 1;
	ah->port_num = p.port;
}

static void event_free(struct cm_event *ev)
{
	list_del(&ev->link);
	arena_free(&cm_process->arena, ev);
}

/* An empty queue does not make the channel readable. */
static void settle(struct cm_channel *ch)
{
	uint64_t n;

	if (list_empty(&ch->events))
		raw_read(ch->event_fd, &n, sizeof(n));
}

/* Forgets what waits for @id, or for one of its groups only. Requests that nobody will see are ended. */
void cm_event_drop(struct cm_id *id, struct cm_mcast *mc)
{
	struct cm_channel *ch = id->channel;
	struct cm_event *ev;
	struct cm_id *request;

	list_each_safe(ev, &ch->events, link) {
		if ((mc ? ev->mcast != mc : ev->id != id))
			continue;
		request = ev->request;
		event_free(ev);
		if (request)
			cm_id_destroy(request);
	}
	settle(ch);
}

void cm_event_move(struct cm_id *id, struct cm_channel *to)
{
	struct cm_event *ev;

	list_each_safe(ev, &id->channel->events, link) {
		if (ev->id != id)
			continue;
		list_del(&ev->link);
		list_add_tail(&to->events, &ev->link);
		signal_channel(to);
		/* The new id of a request that was not told yet goes where its listener goes. */
		if (ev->request)
			cm_id_migrate(ev->request, to);
	}
	settle(id->channel);
}

static void event_hand_out(struct cm_channel *ch, struct rdma_ucm_event_resp *resp)
{
	struct cm_event *ev = container_of(ch->events.next, struct cm_event, link);

	*resp = ev->resp;
	ev->id->events_reported++;
	if (ev->mcast)
		ev->mcast->events_reported++;
	event_free(ev);
	settle(ch);
}

int cm_event_next(struct cm_channel *ch, struct rdma_ucm_event_resp *resp)
{
	struct epoll_event ready;

	while (list_empty(&ch->events)) {
		if (RAW6(SYS_epoll_pwait, ch->fd, &ready, 1, 0, 0, RAW_SIGSET_SIZE) != 1)
			return -EAGAIN;
		if (ready.data.u32 == CM_EVENT_HANDLE)
			settle(ch);
		else if (ready.data.u32 == CM_TIMER_HANDLE)
			cm_timer_expired(ch);
		else
			cm_receive(ch, ready.data.u32);
	}
	event_hand_out(ch, resp);
	return 0;
}
