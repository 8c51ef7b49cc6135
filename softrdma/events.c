/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion channels, and the sleeping side of completion queues.
 *
 * A channel's descriptor is an epoll descriptor over two others, so that it can be polled by the program and yet
 * runs on a clock: a datagram socket with a name in the shared directory, to which whoever counts an event sends a
 * byte, and the context's timer, which runs only while one of its send queues waits (receiver not ready, peer out
 * of reach). Who sleeps in ibv_get_cq_event itself, and needs no clock, sleeps on a futex in the segment, the channel's bell: that
 * is less than half the way. Events are the counters in the queues; datagram and bell only say "look". So a full socket buffer loses
 * nothing:
 *
 *   producer:  events + 1; ASLEEP? ring, wake all; if that woke nobody: POSTED, send, POSTED
 *   taker:     look for events > taken; found: if POSTED, empty the socket; look again; if more are left: wake as a producer does
 *              not found: ASLEEP; look again; none: sleep unless the bell has changed since; awake, the last clears ASLEEP; look again
 *
 * A producer who has woken somebody has counted before ASLEEP was cleared, so the look behind it finds his event, though he sent nothing to those who
 * poll. Who is woken and does not look again (a signal's handler, or his end as a thread, called him away) says so to them if there is one. ASLEEP may stay
 * behind a thread that has left by a jump out of a handler: it wakes nobody then, and costs a call. A producer that dies before he wakes has left ASLEEP, and
 * the next one wakes.
 *
 * So the descriptor may be readable for nothing: an event is taken before its datagram comes, and a timer calls for work that brings
 * none, or that another thread does first (it counts ticks). Programs that made it non-blocking may rely on the one following from the other, as gloo does: they get an event of a queue that
 * is armed, which hardware may give as well, the queue is merely empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"
#include "softrdma/export.h"

static int channel_open(struct sr_context *ctx, struct sr_channel *ch)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int fd, err;

	ch->timer_fd = -1;
	ch->sock = sr_wake_socket(ctx, ch->number + 1);
	if (ch->sock < 0)
		return ch->sock;
	fd = epoll_create1(EPOLL_CLOEXEC);
	if (fd >= 0 && !epoll_ctl(fd, EPOLL_CTL_ADD, ch->sock, &ev) &&
	    !epoll_ctl(fd, EPOLL_CTL_ADD, ctx->timer_fd, &ev))
		return fd;
	err = -errno;
	if (fd >= 0)
		close(fd);
	sr_wake_socket_close(ctx, ch->number + 1, ch->sock);
	return err;
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct sr_context *ctx = sr_context(context);
	struct sr_channel *ch = arena_alloc(&ctx->arena, sizeof(*ch) + SR_SLACK);
	int err = -ENOMEM;

	if (!ch)
		goto err_none;
	lock_acquire(&ctx->lock);
	err = sr_ids_take(&ctx->channels, ch, &ch->number);
	lock_release(&ctx->lock);
	if (err)
		goto err_memory;
	list_init(&ch->cqs);
	ch->channel.context = context;
	err = ch->channel.fd = channel_open(ctx, ch);
	if (err < 0)
		goto err_id;
	return &ch->channel;
err_id:
	lock_acquire(&ctx->lock);
	sr_ids_give(&ctx->channels, ch->number);
	lock_release(&ctx->lock);
err_memory:
	arena_free(&ctx->arena, ch);
err_none:
	errno = -err;
	return NULL;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct sr_context *ctx = sr_context(channel->context);
	struct sr_channel *ch = container_of(channel, struct sr_channel, channel);

	if (!list_empty(&ch->cqs))
		return EBUSY;
	sr_wake_socket_close(ctx, ch->number + 1, ch->sock);
	if (ch->timer_fd >= 0)
		close(ch->timer_fd);
	close(channel->fd);
	lock_acquire(&ctx->lock);
	sr_ids_give(&ctx->channels, ch->number);
	lock_release(&ctx->lock);
	arena_free(&ctx->arena, ch);
	return 0;
}

static _Atomic uint32_t *bell_of(struct sr_channel *ch)
{
	return &sr_context(ch->channel.context)->seg->bell[ch->number];
}

void sr_channel_wake(struct sr_context *ctx, struct sr_seg *seg, uint32_t number)
{
	_Atomic uint32_t *bell = &seg->bell[number];

	if (atomic_load(bell) & SR_BELL_ASLEEP) {
		atomic_fetch_add(bell, SR_BELL_RING);
		if (raw_futex((uint32_t *)bell, FUTEX_WAKE, INT32_MAX, NULL, 0) > 0)
			return;
	}
	/* Before it, for him who takes the event at once; and behind it, if he has emptied the socket between. */
	atomic_fetch_or(bell, SR_BELL_POSTED);
	sr_wake(ctx, seg->index, number + 1);
	if (!(atomic_load(bell) & SR_BELL_POSTED))
		atomic_fetch_or(bell, SR_BELL_POSTED);
}

/* One queue with an event that nobody has taken; *ret_more: there are others. ch->lock held. */
static struct sr_cq *event_look(struct sr_channel *ch, int *ret_more)
{
	struct sr_cq *cq, *found = NULL;

	*ret_more = 0;
	list_each(cq, &ch->cqs, link) {
		uint32_t waiting = (uint32_t)(atomic_load(&cq->shm->notify) / SR_NOTIFY_EVENT) - cq->taken;

		if (waiting && !found) {
			found = cq;
			waiting--;
		}
		*ret_more |= waiting != 0;
	}
	return found;
}

/* Takes one event. When one was found the socket is emptied, and then looked again for what that may have been for. */
static struct sr_cq *event_take(struct sr_channel *ch, int *ret_more)
{
	struct sr_cq *found;

	lock_acquire(&ch->lock);
	if (unlikely(ch->timer_fd >= 0))
		sr_moderate_look(ch);
	found = event_look(ch, ret_more);
	if (found) {
		found->taken++;
		list_del(&found->link); /* the next look begins behind it */
		list_add_tail(&ch->cqs, &found->link);
		if (atomic_load(bell_of(ch)) & SR_BELL_POSTED) {
			atomic_fetch_and(bell_of(ch), ~(uint32_t)SR_BELL_POSTED);
			sr_wake_drain(ch->sock);
		}
		*ret_more = event_look(ch, ret_more) != NULL;
	}
	lock_release(&ch->lock);
	return found;
}

/* The descriptor was readable and there is no event: one of a queue that is armed, if any is. */
static struct sr_cq *event_make_up(struct sr_channel *ch)
{
	struct sr_cq *cq, *found = NULL;

	lock_acquire(&ch->lock);
	list_each(cq, &ch->cqs, link) {
		uint64_t seen = atomic_load(&cq->shm->notify), state = seen & SR_NOTIFY_STATE;

		if (state != SR_ARMED_ANY && state != SR_ARMED_SOLICITED)
			continue;
		if (!atomic_compare_exchange_strong(&cq->shm->notify, &seen, seen - state + SR_NOTIFY_EVENT))
			continue; /* told this moment */
		cq->taken++;
		found = cq;
		break;
	}
	if (found) {
		list_del(&found->link);
		list_add_tail(&ch->cqs, &found->link);
	}
	lock_release(&ch->lock);
	return found;
}

/*
 * Compared with those at the end of the last call: may a clock have made the descriptor readable since? Another thread that ran it has taken that
 * away. Under the lock that holds counting and setting it together: a tick that was seen makes nothing readable any more.
 */
static uint32_t clock_ticks(struct sr_context *ctx)
{
	uint32_t ticks;

	lock_acquire(&ctx->stalled_lock);
	ticks = atomic_load(&ctx->ticks);
	lock_release(&ctx->stalled_lock);
	return ticks;
}

static int event_there(struct sr_channel *ch)
{
	int more, there;

	lock_acquire(&ch->lock);
	there = event_look(ch, &more) != NULL;
	lock_release(&ch->lock);
	return there;
}

static void sleep_end(struct sr_channel *ch)
{
	lock_acquire(&ch->lock);
	if (atomic_fetch_sub(&ch->asleep, 1) == 1)
		atomic_fetch_and(bell_of(ch), ~(uint32_t)SR_BELL_ASLEEP);
	lock_release(&ch->lock);
}

/* As after sleep_end, for those who do not look again. */
static void sleep_given_up(void *arg)
{
	struct sr_channel *ch = arg;
	struct sr_context *ctx = sr_context(ch->channel.context);

	sleep_end(ch);
	if (event_there(ch))
		sr_channel_wake(ctx, ctx->seg, ch->number);
}

/* A cancellation point, as read(2) of a device's descriptor is one; restarts after a signal as that does. 0 or -errno. */
static int bell_sleep(struct sr_channel *ch, uint32_t seen)
{
	int type, r;

	pthread_cleanup_push(sleep_given_up, ch);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	r = (int)raw_futex((uint32_t *)bell_of(ch), FUTEX_WAIT, seen, NULL, 0);
	pthread_setcanceltype(type, NULL);
	pthread_cleanup_pop(0);
	return r == -EAGAIN ? 0 : r;
}

/* Neither a stalled queue nor moderation wants the clock. */
static int bell_wait(struct sr_context *ctx, struct sr_channel *ch)
{
	uint32_t seen;
	int r = 0;

	lock_acquire(&ch->lock);
	atomic_fetch_add(&ch->asleep, 1);
	seen = atomic_fetch_or(bell_of(ch), SR_BELL_ASLEEP) | SR_BELL_ASLEEP;
	lock_release(&ch->lock);
	if (!event_there(ch) && !atomic_load(&ctx->nr_stalled) && ch->timer_fd < 0)
		r = bell_sleep(ch, seen);
	if (!r) {
		sleep_end(ch);
		return 0;
	}
	sleep_given_up(ch);
	errno = -r;
	return -1;
}

/* Sleeps until there may be an event. 0, or -1 with errno. */
static int event_wait(struct sr_context *ctx, struct sr_channel *ch)
{
	struct pollfd p = { .fd = ch->channel.fd, .events = POLLIN };
	int r;

	if (!atomic_load(&ctx->nr_stalled) && ch->timer_fd < 0)
		return bell_wait(ctx, ch);
	r = poll(&p, 1, -1) < 0 ? -1 : 0;
	sr_wake_drain(ch->sock);
	return r;
}

void sr_channels_wake(struct sr_context *ctx)
{
	uint32_t i;

	lock_acquire(&ctx->lock);
	for (i = 0; i < ctx->channels.fresh; i++) {
		struct sr_channel *ch = ctx->channels.object[i];

		if (ch && atomic_load(&ch->asleep))
			sr_channel_wake(ctx, ctx->seg, i);
	}
	lock_release(&ctx->lock);
}

/* Instead of EAGAIN: the socket is emptied, so that it is readable only if something comes now. */
static struct sr_cq *event_for_readable(struct sr_context *ctx, struct sr_channel *ch, int *ret_more)
{
	int told = sr_wake_drain(ch->sock) > 0;
	struct sr_cq *cq = event_take(ch, ret_more);

	if (cq || (!told && clock_ticks(ctx) == ch->ticks_seen))
		return cq;
	cq = event_make_up(ch);
	/* One that was armed at the look before, and told since. */
	return cq ? cq : event_take(ch, ret_more);
}

/* @waits: for an event, unless the descriptor is non-blocking. */
static struct sr_cq *event_get(struct sr_context *ctx, struct sr_channel *ch, int waits, int *ret_more)
{
	struct sr_cq *cq;

	for (;;) {
		if (sr_wants_progress(ctx))
			sr_progress(ctx);
		cq = event_take(ch, ret_more);
		if (cq)
			return cq;
		if (!waits || fcntl(ch->channel.fd, F_GETFL) & O_NONBLOCK) {
			cq = event_for_readable(ctx, ch, ret_more);
			if (!cq)
				errno = EAGAIN;
			return cq;
		}
		if (event_wait(ctx, ch))
			return NULL;
	}
}

static int event_answer(struct ibv_comp_channel *channel, int waits, struct ibv_cq **ret_cq, void **ret_context)
{
	struct sr_channel *ch = container_of(channel, struct sr_channel, channel);
	struct sr_context *ctx = sr_context(channel->context);
	int more = 0;
	struct sr_cq *cq = event_get(ctx, ch, waits, &more);

	ch->ticks_seen = clock_ticks(ctx);
	if (!cq)
		return -1;
	if (more)
		sr_channel_wake(ctx, ctx->seg, ch->number);
	*ret_cq = &cq->cq;
	*ret_context = cq->cq.cq_context;
	return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context)
{
	return event_answer(channel, 1, ret_cq, ret_context);
}

EXPORT int softrdma_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context)
{
	return event_answer(channel, 0, ret_cq, ret_context);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *ibcq, unsigned int n)
{
	struct sr_cq *cq = sr_cq(ibcq);

	atomic_fetch_add(&cq->acked, n);
	ibcq->comp_events_completed += n;
	if (unlikely(atomic_load(&cq->ending)))
		raw_futex((uint32_t *)&cq->acked, FUTEX_WAKE, INT32_MAX, NULL, 0);
}
