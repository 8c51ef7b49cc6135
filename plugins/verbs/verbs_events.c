/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events that are unread at a checkpoint. Owns the row of them that a context keeps over a restart.
 *
 * A device has no way to look at an event without taking it, nor one to have it told again; softrdma has the second. So at the dump the unread ones are taken,
 * noted, and told again at once, in their order: a job that goes on finds what it would have found. A restart tells them in its new life. With another
 * device a checkpoint is refused while the descriptor is readable, and a restart that goes on with one where there are any.
 *
 * What the restart itself causes is not the program's: a queue pair that is brought to ERR says once more that its last receive was reached. Until
 * everybody is connected nobody sends, so all that is there by then is of that kind, and dropped.
 */
#include "plugins/verbs/verbs_internal.h"

static int note(struct shadow_context *c, const struct ibv_async_event *event)
{
	uint32_t size = c->events_size ? c->events_size * 2 : 16;
	struct ibv_async_event *more;

	if (c->events_count == c->events_size) {
		more = fermata_alloc(size * sizeof(*more));
		if (!more)
			return fermata_fail(-ENOMEM, "no memory for the events of %s", c->device->pub.name);
		if (c->events_count)
			memcpy(more, c->events, c->events_count * sizeof(*more));
		fermata_free(c->events);
		c->events = more;
		c->events_size = size;
	}
	c->events[c->events_count++] = *event;
	return 0;
}

/* With the device's object of this life in place of the shadow. */
static struct ibv_async_event real_event(const struct ibv_async_event *event)
{
	struct ibv_async_event e = *event;

	switch (verbs_event_owner(e.event_type)) {
	case VERBS_EVENT_CQ:
		e.element.cq = shadow_cq(e.element.cq)->real;
		break;
	case VERBS_EVENT_SRQ:
		e.element.srq = shadow_srq(e.element.srq)->real;
		break;
	case VERBS_EVENT_QP:
		e.element.qp = shadow_qp(e.element.qp)->real;
		break;
	default:
		break;
	}
	return e;
}

/* A device that cannot. That the first message has come it says by itself, if it ever does, when the next one comes in RTR. */
static int leave_out(const struct shadow_context *c)
{
	for (uint32_t i = 0; i < c->events_count; i++)
		if (c->events[i].event_type != IBV_EVENT_COMM_EST)
			return fermata_fail(-EOPNOTSUPP, "%s had an event (type %d) that the program has not read yet, and only softrdma can tell it again: "
					    "--rdma soft", c->device->pub.name, c->events[i].event_type);
	return 0;
}

static int raise_all(struct shadow_context *c)
{
	int r = 0;

	if (!verbs_backend.softrdma_async_raise)
		return leave_out(c);
	for (uint32_t i = 0; !r && i < c->events_count; i++) {
		struct ibv_async_event e = real_event(&c->events[i]);

		r = VERBS_DEVICE(verbs_backend.softrdma_async_raise(c->real, &e));
	}
	return r ? fermata_fail(-r, "an event of %s cannot be told again (error %d)", c->device->pub.name, r) : 0;
}

/* Checkpoint, after the drain. */
int verbs_events_settle(struct shadow_context *c)
{
	struct ibv_async_event event;
	int r = 0, told;

	c->events_count = 0;
	if (!verbs_channel_readable(c->ex.context.async_fd))
		return 0;
	if (!verbs_backend.softrdma_async_raise)
		return fermata_fail(-EAGAIN, "there is an asynchronous event on %s (fd %d) that the program has not read, which cannot "
				    "be saved yet: try again when it has", c->device->pub.name, c->ex.context.async_fd);
	while (!r && verbs_async_take(c, &event) > 0)
		r = note(c, &event);
	told = raise_all(c);
	return r ? r : told;
}

/* Restart, before anybody sends. */
int verbs_events_tell(struct shadow_context *c)
{
	struct ibv_async_event event;

	while (verbs_channel_readable(c->ex.context.async_fd) && verbs_async_take(c, &event) > 0)
		;
	return c->events_count ? raise_all(c) : 0;
}
