/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels. The descriptor is the device's own under the number that the program knows, so poll and epoll work
 * on it without us. Reading an event: as in verbs_async.c, never blocking inside fermata_enter/leave. softrdma says without a call to the kernel whether there is one; of another device
 * the descriptor is waited for first, for each attempt in vain would cost three. What an event means for its queue: verbs_notify.c.
 */
#include <unistd.h>

#include "plugins/verbs/verbs_internal.h"

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct shadow_context *c = shadow_context(context);
	struct shadow_channel *ch;

	VERBS_PASS(ibv_create_comp_channel, NULL, context);
	fermata_device_enter();
	ch = fermata_alloc(sizeof(*ch));
	if (!ch)
		errno = ENOMEM;
	else
		ch->real = verbs_backend.ibv_create_comp_channel(c->real);
	if (ch && ch->real) {
		fermata_device_fd_note(ch->real->fd);
		ch->pub = (struct ibv_comp_channel){ .context = context, .fd = ch->real->fd };
		verbs_list_add(&c->channels, &ch->link);
	} else {
		fermata_free(ch);
		ch = NULL;
	}
	fermata_device_leave();
	return ch ? &ch->pub : NULL;
}

int verbs_channel_recreate(struct shadow_context *c, struct shadow_channel *ch)
{
	int r;

	fermata_device_enter();
	ch->real = verbs_backend.ibv_create_comp_channel(c->real);
	if (ch->real)
		fermata_device_fd_note(ch->real->fd);
	fermata_device_leave();
	if (!ch->real)
		return fermata_fail(-errno, "completion channel fd %d cannot be made again (error %d)", ch->pub.fd, errno);
	r = verbs_fd_number(ch->real->fd, ch->pub.fd);
	if (!r && ch->status >= 0) /* O_NONBLOCK is how the program reads it */
		r = raw_fcntl(ch->pub.fd, F_SETFL, ch->status);
	return r ? fermata_fail(r, "completion channel cannot get its descriptor %d", ch->pub.fd) : 0;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct shadow_channel *ch = shadow_channel(channel);
	int r, real_fd;

	VERBS_PASS(ibv_destroy_comp_channel, EOPNOTSUPP, channel);
	if (channel->refcnt)
		return EBUSY;
	fermata_device_enter();
	real_fd = ch->real->fd;
	r = verbs_backend.ibv_destroy_comp_channel(ch->real);
	if (!r) {
		if (channel->fd != real_fd)
			close(channel->fd);
		verbs_list_del(&ch->link);
		fermata_free(ch);
	}
	fermata_device_leave();
	return r;
}

/* Never waits. As ibv_get_cq_event. */
static int event_get(struct shadow_channel *ch, struct ibv_cq **ret_real, void **ret_context)
{
	int r, flags;

	if (verbs_backend.softrdma_get_cq_event)
		return verbs_backend.softrdma_get_cq_event(ch->real, ret_real, ret_context);
	verbs_set_nonblock(ch->pub.fd, &flags);
	r = verbs_backend.ibv_get_cq_event(ch->real, ret_real, ret_context);
	verbs_unset_nonblock(ch->pub.fd, flags);
	return r;
}

/* 1: *ret_cq; 0: nothing there; -1 with errno. */
static int event_take(struct shadow_channel *ch, struct shadow_cq **ret_cq)
{
	struct ibv_cq *real;
	void *context;
	int r;

	fermata_device_enter();
	lock_acquire(&ch->lock);
	r = event_get(ch, &real, &context) == 0 ? 1 : errno == EAGAIN ? 0 : -1;
	if (r > 0) {
		verbs_backend.ibv_ack_cq_events(real, 1);
		*ret_cq = context;
		r = verbs_notify_taken(*ret_cq);
	}
	lock_release(&ch->lock);
	fermata_device_leave();
	return r;
}

/* The same when there may be one; -1 with EAGAIN where the program does not wait. */
static int event_wait(struct shadow_channel *ch, struct shadow_cq **ret_cq)
{
	int at_once = verbs_wait_readable(ch->pub.fd), r = at_once < 0 ? -1 : event_take(ch, ret_cq);

	if (r || !at_once)
		return r;
	errno = EAGAIN;
	return -1;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	struct shadow_channel *ch = shadow_channel(channel);
	struct shadow_cq *found = NULL;
	int r;

	VERBS_PASS(ibv_get_cq_event, -1, channel, cq, context);
	r = verbs_backend.softrdma_get_cq_event ? event_take(ch, &found) : 0;
	while (!r)
		r = event_wait(ch, &found);
	if (r < 0)
		return -1;
	*cq = &found->pub;
	*context = found->pub.cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	if (fermata_in_device()) {
		verbs_backend.ibv_ack_cq_events(cq, count);
		return;
	}
	cq->comp_events_completed += count;
	__atomic_sub_fetch(&shadow_cq(cq)->unacked, count, __ATOMIC_RELAXED);
}
