/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one place where an id's state changes, and the clock of those states that wait for the other end, or, after a disconnection, for what of it may still be on its way. No message is lost, but its
 * receiver may be stopped, or never ask for its events, or be on a host that has gone: hardware gives up then, after its retries, and so do we.
 *
 * A channel's ids that wait stand in a list in the order of their deadlines; its timer, made when first needed, runs for the
 * first of them, and only as long as that waits: so the channel is readable by it only when there is something to tell. Under cm_lock.
 */
#include "softrdma/cm.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"

#define SECOND 1000000000ull

/* As the kernel's connection manager has it: a ms where the timeout is 8, twice as long for each step. */
static uint64_t timewait(uint32_t timeout)
{
	return (SECOND / 1000) << (timeout > 8 ? timeout - 8 : 0);
}

static uint64_t patience(const struct cm_id *id)
{
	switch (id->state) {
	case CM_ADDR_QUERY:
		return id->query_try_ms * (SECOND / 1000);
	case CM_REQ_SENT:
		return cm_process->request_s * SECOND;
	case CM_SIDR_SENT:
	case CM_REP_SENT:
	case CM_DREQ_SENT:
		return cm_process->answer_s * SECOND;
	case CM_TIMEWAIT:
		return timewait(cm_ack_timeout(id));
	default:
		return 0;
	}
}

static int timer_make(struct cm_channel *ch)
{
	if (ch->timer_fd < 0) {
		ch->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (ch->timer_fd >= 0)
			cm_watch(ch, ch->timer_fd, CM_TIMER_HANDLE);
	}
	return ch->timer_fd;
}

/* For the first in the list, or off. */
static void timer_set(struct cm_channel *ch)
{
	struct itimerspec at = { 0 };
	uint64_t due;

	if (!list_empty(&ch->waiting)) {
		due = container_of(ch->waiting.next, struct cm_id, wait_link)->deadline_ns;
		at.it_value = (struct timespec){ (time_t)(due / SECOND), (long)(due % SECOND) };
	} else if (ch->timer_fd < 0) {
		return;
	}
	if (timer_make(ch) >= 0)
		RAW4(SYS_timerfd_settime, ch->timer_fd, TFD_TIMER_ABSTIME, &at, 0);
}

static void wait_begin(struct cm_id *id)
{
	struct list *head = &id->channel->waiting, *at = head->prev;

	while (at != head && container_of(at, struct cm_id, wait_link)->deadline_ns > id->deadline_ns)
		at = at->prev;
	list_add_tail(at->next, &id->wait_link); /* behind @at */
	if (head->next == &id->wait_link)
		timer_set(id->channel);
}

void cm_timer_stop(struct cm_id *id)
{
	int first = id->channel->waiting.next == &id->wait_link;

	if (list_empty(&id->wait_link))
		return;
	list_del(&id->wait_link);
	if (first)
		timer_set(id->channel);
}

void cm_timer_migrate(struct cm_id *id, struct cm_channel *to)
{
	struct cm_channel *from = id->channel;

	if (list_empty(&id->wait_link))
		return;
	list_del(&id->wait_link);
	timer_set(from);
	id->channel = to;
	wait_begin(id);
	id->channel = from;
}

void cm_move(struct cm_id *id, enum cm_state state)
{
	uint64_t wait;

	cm_timer_stop(id);
	id->state = state;
	wait = patience(id);
	if (!wait)
		return;
	id->deadline_ns = raw_now_ns() + wait;
	wait_begin(id);
}

void cm_timer_at(struct cm_id *id, uint64_t deadline_ns)
{
	cm_timer_stop(id);
	id->deadline_ns = deadline_ns;
	wait_begin(id);
}

void cm_timer_again(struct cm_id *id)
{
	if (id->deadline_ns)
		wait_begin(id);
}

static void give_up(struct cm_id *id)
{
	int leaving = id->state == CM_DREQ_SENT;

	if (id->state == CM_ADDR_QUERY) {
		cm_resolve_unanswered(id);
		return;
	}
	if (id->state == CM_TIMEWAIT) {
		cm_move(id, CM_ENDED);
		cm_event_tell(id, CM_EVENT_TIMEWAIT_EXIT, 0);
		return;
	}
	if (id->state == CM_REQ_SENT || id->state == CM_REP_SENT)
		cm_send_bare(id, CM_MSG_REJ, 4 /* timeout */);
	cm_id_hang_up(id);
	cm_move(id, leaving ? CM_TIMEWAIT : CM_ENDED);
	cm_event_tell(id, leaving ? CM_EVENT_DISCONNECTED : CM_EVENT_UNREACHABLE, -ETIMEDOUT);
}

void cm_timer_expired(struct cm_channel *ch)
{
	uint64_t now = raw_now_ns(), n;
	struct cm_id *id;

	raw_read(ch->timer_fd, &n, sizeof(n));
	list_each_safe(id, &ch->waiting, wait_link) {
		if (id->deadline_ns > now)
			break;
		if (id->asking)
			cm_connect_retry(id);
		else
			give_up(id);
	}
	timer_set(ch);
}
