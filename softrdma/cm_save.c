/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of the channels as bytes (cm_saved.h), for who brings this process to life again elsewhere. It is only looked at: whoever has saved it goes on as
 * if he had not. But before, what other processes have sent is taken in (softrdma_cm_settle), into ids and their queued
 * events, as GET_EVENT would: a kernel's CM takes it in as it comes, so no program can tell. Then
 *
 *   - no connection's socket has a message left that an id would still look at,
 *   - no listener's socket has a request left but such as come later,
 *   - and a connection whose other end has gone has heard so, but for those that do not listen (REQ_RCVD, DREQ_RCVD): they have no socket from here on, which
 *     answers as one without another end does.
 *
 * Taking in may answer (a request that nobody wants is refused), so it is over when all processes of the job have nothing to take in at one time; and
 * of a connection to another host, when both ends have counted the same (cm_carry.c).
 * A time-out that is due stays so. No state. Nobody may be in another call: no lock is taken, but that of the thread which carries.
 */
#include "softrdma/cm_saved.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define AT_ONCE 64
/* Of all channels, in the order in which they are saved. Not to be left by a break. */
#define each_id(id, ch, process) list_each(ch, &(process)->channels, link) list_each(id, &ch->ids, link)

struct writer {
	char *at, *end;
	long length;
};

static struct cm_process *saved_process(void)
{
	return softrdma_cm_next(-1) < 0 ? NULL : cm_process;
}

/* ---- taking in ---- */

/* How many sockets were readable. */
static int channel_settle(struct cm_channel *ch)
{
	struct epoll_event ready[AT_ONCE];
	long n = RAW6(SYS_epoll_pwait, ch->fd, ready, AT_ONCE, 0, 0, RAW_SIGSET_SIZE);
	int taken = 0;

	for (long i = 0; i < n; i++) {
		if (ready[i].data.u32 == CM_EVENT_HANDLE || ready[i].data.u32 == CM_TIMER_HANDLE)
			continue;
		cm_receive(ch, ready[i].data.u32);
		taken++;
	}
	return taken;
}

static int channels_settle(struct cm_process *p)
{
	struct cm_channel *ch;
	uint32_t all = 0;

	list_each(ch, &p->channels, link)
		for (int n; (n = channel_settle(ch)); all += (uint32_t)n)
			if (all > 4 * CM_MAX_HANDLES)
				return -EMFILE; /* a listener cannot accept what waits */
	return (int)all;
}

EXPORT int softrdma_cm_settle(void)
{
	struct cm_process *p = saved_process();
	int carried, taken, all = 0;

	if (!p)
		return 0;
	do {
		carried = cm_carry_settle();
		taken = carried < 0 ? carried : channels_settle(p);
		if (taken < 0)
			return taken;
		all += carried + taken;
	} while (taken); /* which may have been answered */
	return all;
}

/* ---- connections ---- */

static int is_connected(const struct cm_id *id)
{
	struct pollfd p = { .fd = id->sock, .events = POLLIN };
	char packet[CM_WIRE_MAX];

	if (id->sock < 0 || id->state == CM_LISTENING || id->state == CM_ADDR_QUERY || cm_carry_unsaid(id, packet))
		return 0;
	RAW5(SYS_ppoll, &p, 1, &(struct timespec){ 0 }, 0, 0);
	return !(p.revents & (POLLHUP | POLLERR));
}

EXPORT int softrdma_cm_each(int (*fn)(const void *own, const void *other, int fd, void *arg), void *arg)
{
	struct cm_process *p = saved_process();
	uint8_t own[CM_NAME], other[CM_NAME];
	struct cm_channel *ch;
	struct cm_id *id;
	int r = 0;

	if (!p)
		return 0;
	each_id(id, ch, p) {
		if (r || !is_connected(id))
			continue;
		cm_name(id, id->passive, own);
		cm_name(id, !id->passive, other);
		r = fn(own, other, ch->fd, arg);
	}
	return r;
}

EXPORT uint32_t softrdma_cm_ids(void)
{
	struct cm_process *p = saved_process();
	struct cm_channel *ch;
	struct cm_id *id;
	uint32_t count = 0;

	if (!p)
		return 0;
	each_id(id, ch, p)
		count++;
	return count;
}

/* ---- writing ---- */

static void put(struct writer *w, const void *data, size_t n)
{
	if ((size_t)(w->end - w->at) >= n) {
		memcpy(w->at, data, n);
		w->at += n;
	} else {
		w->at = w->end; /* too short: nothing behind it, either */
	}
	w->length += (long)n;
}

static void put_channel(struct writer *w, const struct cm_channel *ch)
{
	struct cm_saved_channel s = { .fd = ch->fd, .status = (uint32_t)raw_fcntl(ch->fd, F_GETFL, 0),
				      .fd_flags = (uint32_t)raw_fcntl(ch->fd, F_GETFD, 0), .serial = ch->serial };

	put(w, &s, sizeof(s));
}

static void put_id(struct writer *w, const struct cm_id *id)
{
	struct cm_saved_id s = {
		.handle = id->handle,
		.channel = id->channel->fd,
		.uid = id->uid,
		.deadline_ns = list_empty(&id->wait_link) ? 0 : id->asking ? id->asking->deadline_ns : id->deadline_ns,
		.state = id->state,
		.backlog = id->backlog,
		.events_reported = id->events_reported,
		.ps = id->ps,
		.qp_type = id->qp_type,
		.claim_shared = id->claim_shared,
		.reuse = id->reuse,
		.afonly = id->afonly,
		.ack_timeout = id->ack_timeout,
		.has_device = id->has_device,
		.watched = id->watched,
		.passive = id->passive,
		.connected = (uint8_t)is_connected(id),
		.is_far = id->is_far,
		.query_ms = id->query_ms,
		.conn = id->conn,
		.src = id->src,
		.dst = id->dst,
		.claim = id->claim,
	};

	put(w, &s, sizeof(s));
}

static void put_request(struct writer *w, const struct cm_id *id, uint32_t *count)
{
	struct cm_saved_request s = { .id = id->handle };

	if (id->asking)
		memcpy(s.packet, id->asking->packet, s.length = id->asking->length);
	else
		s.length = cm_carry_unsaid(id, s.packet);
	if (!s.length)
		return;
	put(w, &s, sizeof(s));
	++*count;
}

static void put_mcasts(struct writer *w, const struct cm_id *id, uint32_t *count)
{
	struct cm_mcast *mc;

	list_each(mc, &id->mcasts, link) {
		struct cm_saved_mcast s = { .handle = mc->handle, .id = id->handle, .events_reported = mc->events_reported,
					    .uid = mc->uid, .addr = mc->addr };

		put(w, &s, sizeof(s));
		++*count;
	}
}

static void put_events(struct writer *w, const struct cm_channel *ch, uint32_t *count)
{
	struct cm_event *ev;

	list_each(ev, &ch->events, link) {
		struct cm_saved_event s = { .id = ev->id->handle, .mcast = ev->mcast ? ev->mcast->handle : CM_SAVED_NONE,
					    .request = ev->request ? ev->request->handle : CM_SAVED_NONE, .resp = ev->resp };

		put(w, &s, sizeof(s));
		++*count;
	}
}

static void put_all(struct writer *w, const struct cm_process *p, struct cm_saved *head)
{
	struct cm_channel *ch;
	struct cm_id *id;

	put(w, head, sizeof(*head));
	list_each(ch, &p->channels, link) {
		put_channel(w, ch);
		head->channels++;
	}
	each_id(id, ch, p) {
		put_id(w, id);
		head->ids++;
	}
	each_id(id, ch, p)
		put_request(w, id, &head->requests);
	each_id(id, ch, p)
		put_mcasts(w, id, &head->mcasts);
	list_each(ch, &p->channels, link)
		put_events(w, ch, &head->events);
}

EXPORT long softrdma_cm_save(void *to, size_t room)
{
	struct cm_saved head = { .magic = CM_SAVED_MAGIC, .version = CM_SAVED_VERSION };
	struct writer w = { .at = to, .end = (char *)to + room };
	struct cm_process *p = saved_process();

	if (!p)
		return 0;
	head.next_handle = p->next_handle;
	cm_gid(head.gid);
	put_all(&w, p, &head);
	if (room >= sizeof(head))
		memcpy(to, &head, sizeof(head));
	return w.length;
}
