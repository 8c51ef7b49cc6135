/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events, and the waking of sleepers. Events lie in a ring of the owner's segment, pushed by any
 * executor under a robust lock; the descriptor that the program polls is a named datagram socket whose datagrams
 * only say "look". A ring that nobody empties keeps its oldest events.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

/* A bound, blocking socket for waking number @number. The descriptor or -errno. */
int sr_wake_socket(struct sr_context *ctx, uint32_t number)
{
	struct sockaddr_un sa;
	int len = sr_socket_path(ctx, &sa, ctx->seg->index, number);
	int err, fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	unlink(sa.sun_path);
	/* The socket's own mode becomes its name's. */
	if (fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&sa, (socklen_t)len)) {
		err = sr_space(-errno);
		close(fd);
		return err;
	}
	return fd;
}

void sr_wake_socket_close(struct sr_context *ctx, uint32_t number, int fd)
{
	struct sockaddr_un sa;

	sr_socket_path(ctx, &sa, ctx->seg->index, number);
	unlink(sa.sun_path);
	close(fd);
}

static void wake_forget(struct sr_wake *w)
{
	if (w->index)
		close(w->fd);
	w->index = 0;
}

/* A socket connected to that address takes the place of @w. */
static void wake_remember(struct sr_wake *w, uint32_t index, uint32_t number, const struct sockaddr_un *sa, int len)
{
	int fd = sr_socket(AF_UNIX, SOCK_DGRAM);

	if (fd < 0)
		return;
	if (RAW3(SYS_connect, fd, sa, len)) {
		close(fd);
		return;
	}
	wake_forget(w);
	*w = (struct sr_wake){ .index = index, .number = number, .fd = fd };
}

/* 1: done. wakes_lock held. */
static int wake_connected(struct sr_wake *w, uint32_t index, uint32_t number)
{
	long r;

	if (w->index != index || w->number != number)
		return 0;
	r = RAW6(SYS_sendto, w->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	if (r == 1 || r == -EAGAIN)
		return 1;
	wake_forget(w); /* it is gone; another may have its name */
	return 0;
}

/* Nobody there, or a full buffer: nothing to do, it is readable already. */
void sr_wake(struct sr_context *ctx, uint32_t index, uint32_t number)
{
	struct sr_wake *w = &ctx->wakes[(index + number) % SR_WAKES];
	int mine = lock_try(&ctx->wakes_lock), len;
	struct sockaddr_un sa;

	if (!mine || !wake_connected(w, index, number)) {
		len = sr_socket_path(ctx, &sa, index, number);
		if (RAW6(SYS_sendto, ctx->wake_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, &sa, len) == 1 && mine)
			wake_remember(w, index, number, &sa, len);
	}
	if (mine)
		lock_release(&ctx->wakes_lock);
}

void sr_wakes_close(struct sr_context *ctx)
{
	unsigned int i;

	for (i = 0; i < SR_WAKES; i++)
		wake_forget(&ctx->wakes[i]);
}

int sr_wake_drain(int sock)
{
	char byte;
	int n = 0;

	while (RAW6(SYS_recvfrom, sock, &byte, 1, MSG_DONTWAIT, 0, 0) >= 0)
		n++;
	return n;
}

void sr_async_push(struct sr_context *ctx, struct sr_seg *seg, uint32_t type, uint32_t handle)
{
	uint32_t tail;
	int full;

	rlock_acquire(ctx, &seg->async_lock, ctx->self.token);
	tail = atomic_load(&seg->async_tail);
	full = tail - atomic_load(&seg->async_head) >= SR_ASYNC_SLOTS;
	if (!full) {
		seg->async[tail % SR_ASYNC_SLOTS] = (struct sr_async){ type, handle };
		atomic_store(&seg->async_tail, tail + 1);
	}
	rlock_release(&seg->async_lock);
	if (!full)
		sr_wake(ctx, seg->index, 0);
}

/* ---- whose an event is ---- */

enum owner { OWNER_PORT, OWNER_CQ, OWNER_SRQ, OWNER_QP };

static enum owner owner_of(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return OWNER_CQ;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return OWNER_SRQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return OWNER_QP;
	default:
		return OWNER_PORT;
	}
}

/* 1: filled; 0: there is none, or its object is gone. */
static int event_fill(struct sr_context *ctx, const struct sr_async *a, struct ibv_async_event *ev)
{
	struct sr_cq *cq;
	struct sr_srq *srq;
	struct sr_qp *qp;

	ev->event_type = a->type;
	switch (owner_of(a->type)) {
	case OWNER_CQ:
		cq = ctx->cqs.object[a->handle];
		if (cq)
			atomic_fetch_add(&cq->async_taken, 1);
		ev->element.cq = cq ? &cq->cq : NULL;
		return cq != NULL;
	case OWNER_SRQ:
		srq = ctx->srqs.object[a->handle];
		if (srq)
			atomic_fetch_add(&srq->async_taken, 1);
		ev->element.srq = srq ? &srq->srq : NULL;
		return srq != NULL;
	case OWNER_QP:
		qp = ctx->qps.object[a->handle];
		if (qp)
			atomic_fetch_add(&qp->async_taken, 1);
		ev->element.qp = qp ? &qp->qp : NULL;
		return qp != NULL;
	default:
		ev->element.port_num = 1;
		return 1;
	}
}

static int event_take(struct sr_context *ctx, struct ibv_async_event *ev)
{
	struct sr_seg *seg = ctx->seg;
	uint32_t head;
	int got = 0;

	lock_acquire(&ctx->async_take);
	sr_wake_drain(ctx->async_sock);
	head = atomic_load(&seg->async_head);
	while (!got && head != atomic_load(&seg->async_tail)) {
		lock_acquire(&ctx->lock);
		got = event_fill(ctx, &seg->async[head % SR_ASYNC_SLOTS], ev);
		lock_release(&ctx->lock);
		atomic_store(&seg->async_head, ++head);
	}
	if (head != atomic_load(&seg->async_tail))
		sr_wake(ctx, seg->index, 0);
	lock_release(&ctx->async_take);
	return got;
}

/* An event of @ev's kind and object as the device would tell it: what was taken before a restart is told in the new life. 0 or an errno. */
EXPORT int softrdma_async_raise(struct ibv_context *context, const struct ibv_async_event *ev)
{
	struct sr_context *ctx = sr_context(context);
	uint32_t handle = 0;

	switch (owner_of(ev->event_type)) {
	case OWNER_CQ:
		handle = sr_cq(ev->element.cq)->number;
		break;
	case OWNER_SRQ:
		handle = sr_srq(ev->element.srq)->number;
		break;
	case OWNER_QP:
		handle = sr_qp(ev->element.qp)->number;
		break;
	default:
		break;
	}
	sr_async_push(ctx, ctx->seg, ev->event_type, handle);
	return 0;
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct sr_context *ctx = sr_context(context);
	char byte;

	while (!event_take(ctx, event))
		if (recv(ctx->async_sock, &byte, 1, MSG_PEEK) < 0)
			return -1;
	return 0;
}

static void ack(_Atomic uint32_t *counter)
{
	atomic_fetch_add(counter, 1);
	raw_futex((uint32_t *)counter, FUTEX_WAKE, INT32_MAX, NULL, 0);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (owner_of(event->event_type)) {
	case OWNER_CQ:
		ack(&sr_cq(event->element.cq)->async_acked);
		break;
	case OWNER_SRQ:
		ack(&sr_srq(event->element.srq)->async_acked);
		break;
	case OWNER_QP:
		ack(&sr_qp(event->element.qp)->async_acked);
		break;
	default:
		break;
	}
}
