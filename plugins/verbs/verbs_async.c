/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events. The descriptor is the device's own under the number that the program knows. A reader that would
 * block waits in poll(2) outside fermata_enter/leave, so that it can be stopped there; the event itself is read inside, by
 * one thread at a time, with the descriptor made non-blocking meanwhile: a readable descriptor is no promise of an event. Events are acknowledged to the device as they are read: what the program
 * acknowledges later may belong to a device object of a former life.
 */
#include <poll.h>

#include "plugins/verbs/verbs_internal.h"

int verbs_channel_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec none = { 0 };

	return RAW5(SYS_ppoll, &p, 1, &none, NULL, 0) > 0;
}

/* 1: some signal has a handler that interrupts blocking reads, as read(2) on a device's descriptor would be. */
static int interrupts_reads(void)
{
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} act;

	for (int sig = 1; sig < 64; sig++)
		if (RAW4(SYS_rt_sigaction, sig, NULL, &act, RAW_SIGSET_SIZE) == 0 && act.handler != (void *)SIG_DFL &&
		    act.handler != (void *)SIG_IGN && !(act.flags & SA_RESTART) && sig < 32)
			return 1;
	return 0;
}

/* EINTR as a blocking read would give it: poll(2) always does, read(2) only when the handler was installed without SA_RESTART. */
int verbs_wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int flags = raw_fcntl(fd, F_GETFL, 0);

	if (flags >= 0 && flags & O_NONBLOCK)
		return 1;
	for (;;) {
		if (poll(&p, 1, -1) >= 0)
			return 0;
		if (errno != EINTR || interrupts_reads())
			return -1;
	}
}

enum verbs_event_owner verbs_event_owner(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return VERBS_EVENT_CQ;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return VERBS_EVENT_SRQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return VERBS_EVENT_QP;
	default:
		return VERBS_EVENT_PORT;
	}
}

/* The device's objects carry their shadow as their creator's context. */
static void event_to_shadow(struct ibv_async_event *e)
{
	switch (verbs_event_owner(e->event_type)) {
	case VERBS_EVENT_CQ:
		e->element.cq = &((struct shadow_cq *)e->element.cq->cq_context)->pub;
		break;
	case VERBS_EVENT_SRQ:
		e->element.srq = &((struct shadow_srq *)e->element.srq->srq_context)->pub;
		break;
	case VERBS_EVENT_QP:
		e->element.qp = &((struct shadow_qp *)e->element.qp->qp_context)->pub;
		break;
	default:
		break;
	}
}

int verbs_set_nonblock(int fd, int *ret_flags)
{
	*ret_flags = raw_fcntl(fd, F_GETFL, 0);
	if (*ret_flags < 0 || *ret_flags & O_NONBLOCK)
		return 0;
	return raw_fcntl(fd, F_SETFL, *ret_flags | O_NONBLOCK);
}

void verbs_unset_nonblock(int fd, int flags)
{
	if (flags >= 0 && !(flags & O_NONBLOCK))
		raw_fcntl(fd, F_SETFL, flags);
}

/* 1: *event; 0: nothing there; -1 with errno. */
int verbs_async_take(struct shadow_context *c, struct ibv_async_event *event)
{
	struct ibv_async_event real;
	int r, flags;

	fermata_device_enter();
	lock_acquire(&c->async_lock);
	verbs_set_nonblock(c->ex.context.async_fd, &flags);
	r = verbs_backend.ibv_get_async_event(c->real, &real) == 0 ? 1 : errno == EAGAIN ? 0 : -1;
	verbs_unset_nonblock(c->ex.context.async_fd, flags);
	if (r > 0) {
		*event = real;
		event_to_shadow(event);
		verbs_backend.ibv_ack_async_event(&real);
	}
	lock_release(&c->async_lock);
	fermata_device_leave();
	return r;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct shadow_context *c = shadow_context(context);

	VERBS_PASS(ibv_get_async_event, -1, context, event);
	for (;;) {
		int r = verbs_async_take(c, event);

		if (r)
			return r < 0 ? -1 : 0;
		r = verbs_wait_readable(c->ex.context.async_fd);
		if (r > 0)
			errno = EAGAIN;
		if (r)
			return -1;
	}
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (fermata_in_device())
		verbs_backend.ibv_ack_async_event(event);
}
