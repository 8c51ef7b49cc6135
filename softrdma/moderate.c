/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moderation of completion events: an armed queue raises its event when so many completions have come, or when it has been
 * armed for so long and one has come.
 *
 * The count is the producers', under the queue's lock, and from mod_until on the first completion is enough for them. One that
 * came before that time is the owner's: a timer of the channel, which makes its descriptor readable, leads him to look.
 * So each completion is seen by one of the two, and nobody has to run meanwhile. The timer is one shot each time that
 * a queue is armed.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/sys.h"
#include "softrdma/device.h"

static struct sr_channel *channel_of(struct sr_cq *cq)
{
	return cq->cq.channel ? container_of(cq->cq.channel, struct sr_channel, channel) : NULL;
}

int sr_moderate_due(struct sr_shm_cq *cq)
{
	return ++cq->mod_done >= cq->mod_count || raw_now_ns() >= cq->mod_until;
}

int sr_moderate_catch_up(struct sr_shm_cq *cq, uint32_t n)
{
	cq->mod_done = n;
	return n >= cq->mod_count || raw_now_ns() >= cq->mod_until;
}

/* So that it is readable at @ns of the monotonic clock, or before. ch->lock held. */
static void timer_set(struct sr_channel *ch, uint64_t ns)
{
	struct itimerspec its = { .it_value = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) } }, now;

	if (!timerfd_gettime(ch->timer_fd, &now) && (now.it_value.tv_sec || now.it_value.tv_nsec) &&
	    raw_now_ns() + (uint64_t)now.it_value.tv_sec * 1000000000u + (uint64_t)now.it_value.tv_nsec <= ns)
		return;
	timerfd_settime(ch->timer_fd, TFD_TIMER_ABSTIME, &its, NULL);
}

void sr_moderate_arm(struct sr_cq *cq)
{
	struct sr_channel *ch = channel_of(cq);

	sr_cq_lock(sr_context(cq->cq.context), cq->shm);
	cq->shm->mod_done = 0;
	cq->shm->mod_until = raw_now_ns() + cq->mod_period * 1000ull;
	rlock_release(&cq->shm->lock);
	if (!ch)
		return;
	lock_acquire(&ch->lock);
	timer_set(ch, cq->shm->mod_until);
	lock_release(&ch->lock);
}

/* The owner's half. */
static void look(struct sr_cq *cq, uint64_t now, uint64_t *next)
{
	struct sr_context *ctx = sr_context(cq->cq.context);
	struct sr_shm_cq *shm = cq->shm;

	sr_cq_lock(ctx, shm);
	if (shm->mod_count && sr_cq_armed(shm)) {
		if (shm->mod_until > now) {
			*next = shm->mod_until < *next ? shm->mod_until : *next;
		} else if (shm->mod_done) {
			sr_cq_tell_awake(shm, atomic_load(&shm->tail));
		}
	}
	rlock_release(&shm->lock);
}

void sr_moderate_look(struct sr_channel *ch)
{
	uint64_t now = raw_now_ns(), next = UINT64_MAX, ticks;
	struct sr_cq *cq;

	if (RAW3(SYS_read, ch->timer_fd, &ticks, sizeof(ticks)) > 0)
		atomic_fetch_add(&sr_context(ch->channel.context)->ticks, 1);
	list_each(cq, &ch->cqs, link)
		look(cq, now, &next);
	if (next != UINT64_MAX)
		timer_set(ch, next);
}

/* ch->lock held. 0 or an errno. */
static int timer_open(struct sr_channel *ch)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int fd;

	if (ch->timer_fd >= 0)
		return 0;
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (fd < 0)
		return errno;
	if (epoll_ctl(ch->channel.fd, EPOLL_CTL_ADD, fd, &ev)) {
		close(fd);
		return ENOMEM;
	}
	ch->timer_fd = fd;
	/* Who sleeps without it looks again. */
	if (atomic_load(&ch->asleep))
		sr_channel_wake(sr_context(ch->channel.context), sr_context(ch->channel.context)->seg, ch->number);
	return 0;
}

static int modify_cq(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr)
{
	struct sr_cq *cq = sr_cq(ibcq);
	struct sr_channel *ch = channel_of(cq);
	int err = 0, on = attr->moderate.cq_count > 1 && attr->moderate.cq_period;

	if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
		return attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_RESERVED ? EINVAL : 0;
	if (on && ch) {
		lock_acquire(&ch->lock);
		err = timer_open(ch);
		lock_release(&ch->lock);
	}
	if (err)
		return err;
	sr_cq_lock(sr_context(ibcq->context), cq->shm);
	cq->mod_period = attr->moderate.cq_period;
	cq->shm->mod_count = on ? attr->moderate.cq_count : 0;
	cq->shm->mod_until = 0; /* one that is armed now was armed without */
	rlock_release(&cq->shm->lock);
	return 0;
}

void sr_moderation_fill(struct verbs_context *v)
{
	v->modify_cq = modify_cq;
}
