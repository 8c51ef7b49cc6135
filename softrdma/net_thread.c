/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread of a context that other hosts reach, its clock, and how it shares the sockets with those who poll.
 *
 * It sleeps in epoll_wait until something comes or the clock says so.
 *
 *   wait_fd     event | timer | listener | guests | sockets_fd
 *   sockets_fd  the connections' sockets; pollers ask it too
 *
 * Where a program spins in ibv_poll_cq, a thread that wakes for each packet costs the spinner's processor. So when some
 * packets in a row came while the program was polling, it leaves the sockets to who polls, looks each millisecond, and
 * takes them back when nobody polls any more, or something waits while the program does other things: it may watch its
 * memory.
 */
#include "softrdma/net.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

#define CONTENDED 8
#define LOOK_NS NET_MS
#define LATER_NS (NET_MS / 2)
#define SOON_NS 50000 /* an ACK waits for the program's next request */
#define SLICE_NS 100000 /* short: it may interrupt who spins */

uint64_t net_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NET_SECOND + (uint64_t)ts.tv_nsec;
}

void net_timer_set(struct sr_net *net, uint64_t due)
{
	struct itimerspec its = { .it_value = { (time_t)(due / NET_SECOND), (long)(due % NET_SECOND) } };
	uint64_t now = atomic_load(&net->timer_due);

	while (!now || due < now)
		if (atomic_compare_exchange_weak(&net->timer_due, &now, due)) {
			RAW4(SYS_timerfd_settime, net->timer_fd, TFD_TIMER_ABSTIME, &its, NULL);
			return;
		}
}

/* ---- the clock ---- */

struct net_conn *net_conn_next(struct sr_net *net, struct net_conn *c)
{
	struct list *l;

	lock_acquire(&net->lock);
	l = c ? c->link.next : net->conns.next;
	lock_release(&net->lock);
	return l == &net->conns ? NULL : container_of(l, struct net_conn, link);
}

/* Neither side's kernel nor we hold bytes of it. */
static int is_idle(const struct net_conn *c)
{
	int in = 0, out = 0;

	if (c->state != NET_UP)
		return 1;
	RAW3(SYS_ioctl, c->fd, SIOCINQ, &in);
	RAW3(SYS_ioctl, c->fd, SIOCOUTQ, &out); /* what the other kernel has not acknowledged */
	return !in && !out && c->out_at == c->out_end && c->source == NET_FROM_NOTHING && c->in_at == c->in_end && !c->in_frame;
}

int sr_net_idle(struct sr_context *ctx)
{
	struct net_conn *c;
	int idle = 1;

	for (c = net_conn_next(ctx->net, NULL); c && idle; c = net_conn_next(ctx->net, c)) {
		lock_acquire(&c->lock);
		idle = is_idle(c);
		lock_release(&c->lock);
	}
	return idle;
}

/* A break takes unreliable queue pairs out of the list, also the one that comes next: so it waits for the end of the walk. */
static void conn_tick(struct net_conn *c, uint64_t now)
{
	struct net_qp *n;
	uint64_t due;

	net_conn_clock(c, now);
	net_probe_tick(c, now);
	list_each_safe(n, &c->busy, busy_link) {
		due = net_request_clock(c, n, now);
		if (due)
			net_timer_set(c->net, due);
	}
	if ((c->given_up && c->state == NET_UP) || (c->redial && c->state == NET_DIALLING))
		net_conn_break(c, NULL);
	c->given_up = c->redial = 0;
	net_pump(c);
}

static void tick(struct sr_net *net)
{
	uint64_t expired, now = net_now();
	struct net_conn *c;

	raw_read(net->timer_fd, &expired, sizeof(expired));
	atomic_store(&net->timer_due, 0);
	net_guests_expire(net, now);
	for (c = net_conn_next(net, NULL); c; c = net_conn_next(net, c)) {
		lock_acquire(&c->lock);
		conn_tick(c, now);
		lock_release(&c->lock);
	}
}

/* ---- the sockets ---- */

/* @soon: the program is at work, and what is due may go with what it says. 1: there was something. */
static int conn_event(struct net_conn *c, int soon)
{
	int got = 0;

	if (c->state == NET_UP) {
		got = net_receive(c);
		if (c->urgent || c->watched_out || !list_empty(&c->sending) || !(soon && got))
			net_pump(c);
		else if (!list_empty(&c->due))
			net_timer_set(c->net, net_now() + SOON_NS);
	} else if (c->state != NET_DOWN) {
		net_conn_greet(c);
		got = 1;
	}
	return got;
}

static int sockets_serve(struct sr_net *net, int soon)
{
	struct epoll_event ev[16];
	long i, n = RAW4(SYS_epoll_wait, net->sockets_fd, ev, 16, 0);
	int got = 0;

	for (i = 0; i < n; i++) {
		struct net_conn *c = ev[i].data.ptr;

		lock_acquire(&c->lock);
		got |= conn_event(c, soon);
		lock_release(&c->lock);
	}
	return got;
}

static void sockets_leave(struct sr_net *net, int leave)
{
	struct epoll_event ev = { .events = leave ? 0 : EPOLLIN, .data.u64 = NET_TAG_SOCKETS };

	net->left_to_polls = leave;
	net->contended = 0;
	RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_MOD, net->sockets_fd, &ev);
}

static void sockets_woke(struct sr_net *net)
{
	uint32_t polling = atomic_load(&net->polling), polls = atomic_load(&net->polls);

	sockets_serve(net, polls != net->polls_seen);
	net->polls_seen = polls;
	net->contended = polling ? net->contended + 1 : 0;
	if (net->contended < CONTENDED)
		return;
	sockets_leave(net, 1);
	net_timer_set(net, net_now() + LOOK_NS);
}

static int sockets_wait(struct sr_net *net)
{
	struct epoll_event ev;

	return RAW4(SYS_epoll_wait, net->sockets_fd, &ev, 1, 0) > 0;
}

static void pollers_look(struct sr_net *net)
{
	uint32_t polls = atomic_load(&net->polls);

	if (polls == net->polls_seen || (!atomic_load(&net->polling) && sockets_wait(net))) {
		sockets_leave(net, 0);
		return;
	}
	net->polls_seen = polls;
	net_timer_set(net, net_now() + LOOK_NS);
}

/* The program says something next, as a rule, or polls again; when it does not, the thread sees to it. */
static void received(struct net_conn *c)
{
	if (c->urgent || !list_empty(&c->sending))
		net_pump(c);
	else if (!list_empty(&c->due))
		net_timer_set(c->net, net_now() + LATER_NS);
}

/* By ibv_poll_cq, when its queue has something; */
void sr_net_polled(struct sr_context *ctx)
{
	atomic_store_explicit(&ctx->net->polling, 0, memory_order_relaxed);
}

/* when it is empty. */
void sr_net_poll(struct sr_context *ctx)
{
	struct sr_net *net = ctx->net;
	struct net_conn *c = atomic_load_explicit(&net->single, memory_order_relaxed);
	uint64_t pause;

	atomic_store_explicit(&net->polls, atomic_load_explicit(&net->polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	atomic_store_explicit(&net->polling, 1, memory_order_relaxed);
	if (!c) {
		if (atomic_load_explicit(&net->nr_open, memory_order_relaxed))
			sockets_serve(net, 1);
		return;
	}
	pause = atomic_load_explicit(&c->pause_until, memory_order_relaxed);
	if (pause && net_now() < pause)
		return;
	if (!lock_try(&c->lock))
		return;
	if (c->state == NET_UP) {
		/* What became due at the last poll had its chance to go with a request of the program's. */
		if (!list_empty(&c->due) || c->watched_out)
			net_pump(c);
		if (net_receive(c) && c->state == NET_UP)
			received(c);
	} else if (c->state != NET_DOWN) {
		net_conn_greet(c);
	}
	lock_release(&c->lock);
}

/* ---- the thread ---- */

static void serve(struct sr_net *net, uint64_t tag)
{
	uint64_t count;

	switch (tag) {
	case NET_TAG_EVENT:
		raw_read(net->event_fd, &count, sizeof(count));
		net_leave(net);
		break;
	case NET_TAG_TIMER:
		tick(net);
		if (net->left_to_polls)
			pollers_look(net);
		break;
	case NET_TAG_LISTENER:
		net_guests_accept(net);
		break;
	case NET_TAG_SOCKETS:
		sockets_woke(net);
		break;
	case NET_TAG_GROUPS:
		net_groups_read(net);
		break;
	default:
		net_guest_read(net, (uint32_t)(tag - NET_TAG_GUEST));
	}
}

static void thread_main(void *arg)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} slice = { .size = sizeof(slice), .nice = 0, .runtime = SLICE_NS };
	struct sr_net *net = arg;
	struct epoll_event ev[8];
	long i, n;

	slice.nice = 20 - (int32_t)RAW2(SYS_getpriority, 0, 0);
	RAW3(SYS_sched_setattr, 0, &slice, 0); /* Linux 6.12; before, and where it is refused: as any thread */
	RAW2(SYS_prctl, 15 /* PR_SET_NAME */, "softrdma");
	while (!atomic_load(&net->stopping)) {
		n = RAW4(SYS_epoll_wait, net->wait_fd, ev, 8, -1);
		for (i = 0; i < n; i++)
			serve(net, ev[i].data.u64);
	}
}

static int watch(struct sr_net *net, int fd, uint64_t tag)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = tag };

	return (int)RAW4(SYS_epoll_ctl, net->wait_fd, EPOLL_CTL_ADD, fd, &ev);
}

int net_thread_start(struct sr_net *net)
{
	int err = watch(net, net->event_fd, NET_TAG_EVENT);

	if (!err)
		err = watch(net, net->timer_fd, NET_TAG_TIMER);
	if (!err)
		err = watch(net, net->listen_fd, NET_TAG_LISTENER);
	if (!err)
		err = watch(net, net->sockets_fd, NET_TAG_SOCKETS);
	if (!err)
		err = net_thread_spawn(&net->thread, &net->stack, thread_main, net);
	if (!err)
		net_exit_know(net);
	return err;
}

void net_thread_stop(struct sr_net *net)
{
	uint64_t one = 1;

	if (!net->stack)
		return;
	net_exit_forget(net);
	atomic_store(&net->stopping, 1);
	raw_write(net->event_fd, &one, sizeof(one));
	net_thread_join(&net->thread, net->stack);
}
