/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The channels again, from what cm_save.c has written: under their numbers, their ids and groups under their handles, their events in order,
 * ports claimed, listeners listening. What the library's memory says of channels before that is a dead process's and is forgotten unread.
 *
 * What takes two processes comes after that: cm_join.c. No state but the channels'; nobody may be in another call, no lock is taken.
 */
#include "softrdma/cm_saved.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "softrdma/device.h"

#define MEETING_BACKLOG 4096 /* one connection, and doors of this host that are not the one, which go at once (cm_join.c) */

struct reader {
	const char *at;
	size_t left;
	const struct cm_saved *head;
	uint8_t gid[16]; /* softrdma's on this host now */
};

/* ---- reading ---- */

static int take(struct reader *r, void *to, size_t n)
{
	if (r->left < n)
		return -EBADMSG;
	memcpy(to, r->at, n);
	r->at += n;
	r->left -= n;
	return 0;
}

/* Where this host's own GID stood, its present one goes. */
static void renew_address(const struct reader *r, union cm_addr *a)
{
	if (a->family == AF_IB && !memcmp(a->ib.addr, r->head->gid, 16))
		memcpy(a->ib.addr, r->gid, 16);
}

static int handle_set(uint32_t handle, void *object)
{
	if (handle >= CM_MAX_HANDLES || cm_process->object[handle])
		return -EBADMSG;
	cm_process->object[handle] = object;
	return 0;
}

static int load_channel(struct reader *r)
{
	struct cm_saved_channel s;
	struct cm_channel *ch;
	int err = take(r, &s, sizeof(s));

	if (!err && (s.fd < 0 || s.fd >= (int)CM_MAX_FD))
		err = -EBADMSG;
	return err ? err : cm_channel_again(s.fd, s.status, s.fd_flags, s.serial, &ch);
}

static void fill_id(struct cm_id *id, const struct cm_saved_id *s, const struct reader *r)
{
	id->kind = CM_KIND_ID;
	id->handle = s->handle;
	id->uid = s->uid;
	id->deadline_ns = s->deadline_ns;
	id->state = s->state;
	id->backlog = s->backlog;
	id->events_reported = s->events_reported;
	id->ps = s->ps;
	id->qp_type = s->qp_type;
	id->claim_shared = s->claim_shared;
	id->reuse = s->reuse;
	id->afonly = s->afonly;
	id->ack_timeout = s->ack_timeout;
	id->has_device = s->has_device;
	id->passive = s->passive;
	id->is_far = s->is_far;
	id->query_ms = s->query_ms;
	id->conn = s->conn;
	id->src = s->src;
	id->dst = s->dst;
	id->claim = s->claim;
	id->sock = -1;
	list_init(&id->bound_link);
	list_init(&id->wait_link);
	list_init(&id->mcasts);
	renew_address(r, &id->src);
	renew_address(r, &id->dst);
	renew_address(r, &id->claim);
	/* On its host the port was its own at any address; here others' may come from the same one. */
	if (id->is_far && id->claim.family == id->src.family && cm_address_any(&id->claim))
		id->claim = id->src;
}

/* Who was asked can be found from here on. @watched comes into force with the connection. */
static int meeting_open(struct cm_id *id)
{
	uint8_t name[CM_NAME];
	struct sockaddr_un sa;
	int len, err;

	cm_name(id, 1, name);
	len = cm_meeting_address(name, &sa);
	id->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (id->sock < 0)
		return -errno;
	err = (int)RAW3(SYS_bind, id->sock, &sa, len);
	return err ? err : (int)RAW2(SYS_listen, id->sock, MEETING_BACKLOG);
}

static int load_id(struct reader *r)
{
	struct cm_saved_id s;
	struct cm_id *id;
	int err = take(r, &s, sizeof(s));

	if (err)
		return err;
	id = arena_alloc(&cm_process->arena, sizeof(*id));
	if (!id)
		return -ENOMEM;
	fill_id(id, &s, r);
	id->channel = cm_channel_find(s.channel);
	if (!id->channel || s.state >= CM_STATES || handle_set(s.handle, id))
		return -EBADMSG;
	list_add_tail(&id->channel->ids, &id->link);
	cm_timer_again(id);
	err = cm_port_again(id);
	if (err) {
		log_error("port %u of rdma_cm cannot be taken again (error %d)", cm_address_port(&id->claim), -err);
		return err;
	}
	if (s.state == CM_ADDR_QUERY)
		id->rejoin = REJOIN_QUERY;
	if (!s.connected)
		return 0;
	id->watched = s.watched;
	id->rejoin = s.passive ? REJOIN_ACCEPT : REJOIN_CONNECT;
	return s.passive ? meeting_open(id) : 0;
}

static int load_request(struct reader *r)
{
	struct cm_saved_request s;
	struct cm_id *id;
	int err = take(r, &s, sizeof(s));

	id = err ? NULL : cm_handle_find(s.id, CM_KIND_ID);
	if (!id || id->rejoin != REJOIN_NOT || id->asking || s.length > sizeof(s.packet))
		return -EBADMSG;
	id->asking = arena_alloc(&cm_process->arena, sizeof(*id->asking));
	if (!id->asking)
		return -ENOMEM;
	id->asking->length = s.length;
	memcpy(id->asking->packet, s.packet, sizeof(s.packet));
	id->rejoin = REJOIN_ASK;
	return 0;
}

static int load_mcast(struct reader *r)
{
	struct cm_saved_mcast s;
	struct cm_mcast *mc;
	int err = take(r, &s, sizeof(s));

	if (err)
		return err;
	mc = arena_alloc(&cm_process->arena, sizeof(*mc));
	if (!mc)
		return -ENOMEM;
	mc->kind = CM_KIND_MCAST;
	mc->handle = s.handle;
	mc->id = cm_handle_find(s.id, CM_KIND_ID);
	mc->uid = s.uid;
	mc->events_reported = s.events_reported;
	mc->addr = s.addr;
	if (!mc->id || handle_set(s.handle, mc))
		return -EBADMSG;
	list_add_tail(&mc->id->mcasts, &mc->link);
	return cm_mcast_again(mc);
}

static int load_event(struct reader *r)
{
	struct cm_saved_event s;
	struct cm_event *ev;
	struct cm_id *id;
	int err = take(r, &s, sizeof(s));

	id = err ? NULL : cm_handle_find(s.id, CM_KIND_ID);
	if (!id)
		return -EBADMSG;
	ev = cm_event_new(id, s.resp.event, 0);
	if (!ev)
		return -ENOMEM;
	ev->resp = s.resp;
	ev->mcast = s.mcast == CM_SAVED_NONE ? NULL : cm_handle_find(s.mcast, CM_KIND_MCAST);
	ev->request = s.request == CM_SAVED_NONE ? NULL : cm_handle_find(s.request, CM_KIND_ID);
	cm_event_queue(ev);
	return 0;
}

static int each(struct reader *r, uint32_t count, int (*load)(struct reader *r))
{
	int err = 0;

	while (!err && count--)
		err = load(r);
	return err;
}

EXPORT int softrdma_cm_load(const void *from, size_t n)
{
	struct cm_saved head;
	struct reader r = { .at = from, .left = n, .head = &head };
	int err = take(&r, &head, sizeof(head));

	if (err || head.magic != CM_SAVED_MAGIC || head.version != CM_SAVED_VERSION)
		return -EBADMSG;
	cm_gid(r.gid);
	err = cm_process_anew();
	err = err ? err : each(&r, head.channels, load_channel);
	err = err ? err : each(&r, head.ids, load_id);
	err = err ? err : each(&r, head.requests, load_request);
	err = err ? err : each(&r, head.mcasts, load_mcast);
	err = err ? err : each(&r, head.events, load_event);
	if (!err)
		cm_process->next_handle = head.next_handle;
	return err;
}
